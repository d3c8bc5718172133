"""One look of a worker at what may have changed for its pool: the log, the queue, claims, and what
no watch reports (design §6). `loop` has it look again and again.
"""

import math
from collections.abc import Collection
from zlib import crc32

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.duty import MergeDuty, MutationDuty
from rmt_pipeline.replica.assign.merges import Assigned
from rmt_pipeline.replica.pull_log import PutOff, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import suspect
from rmt_pipeline.replica.work import net as nets
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.execute import Executor, Look
from rmt_pipeline.replica.work.net import Counts, SafetyNet
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone, Step
from rmt_pipeline.system import Signal, Waker

SAFETY_NET_S = 300.0  # a watch that was missed costs at most this
PATIENCE_FIRST_S, PATIENCE_MAX_S = 1.0, 8.0
"""Before a look for what no watch reports; it doubles after each look that finds nothing."""
OWN_CHANGES_S = 0.5  # before a queue that we emptied is listed again without a new log entry
OWN_INSERTS_REST_S = 0.02  # after a look at the log that found only what was inserted here


class Worker:
    """Works one pool of one replica, bound to its session. `turn` looks at what may have changed.

    Watches tell what changed: the log, which the fetch pool pulls; the queue; and claims, while
    there are entries that wait for those of other workers. What no watch reports is looked at when
    it is due. When nothing is left to do, everything is looked at once every few minutes
    (`SAFETY_NET_S`), in case a watch was missed. With a `net`, which its process shares, it is then
    looked at only if something has changed since the last time.
    """

    def __init__(
        self,
        replica: Replica,
        tools: Tools,
        pool: Pool,
        waker: Waker,
        *,
        select: bool,
        is_endless: bool = False,
        net: SafetyNet | None = None,
    ) -> None:
        """With `select`, the merge pool also assigns merges and mutations of parts (a leader's
        duty, spec §6.1), and notes which mutations are finished. A worker that `is_endless` may put
        off what no client waits for.
        """
        self.replica = replica
        self.pool = pool
        self.executor = Executor(replica, tools, pool)
        self._waker = waker
        self._select = select
        self._mutations = MutationDuty(replica)
        self._merges = MergeDuty(replica)
        self._log = Signal(waker)
        self._queue = Signal(waker)
        self._to_merge = Signal(waker)
        if pool == "merge":
            replica.memory.wakers.learn({pool: self._to_merge.fire})
        self.has_got_merge = False
        """Whether a merge or a mutation was copied to the queue before the last turn."""
        self._waiting: tuple[tuple[str, str], ...] = ()
        self._retry_s = math.inf
        self._pulled_to: int | None = None
        self._rested_s = -math.inf
        self._put_off = PutOff() if is_endless else None
        replica.memory.passes_by = replica.memory.passes_by or is_endless
        self._patience_s = PATIENCE_FIRST_S
        self._all_next_s = -math.inf
        self._net = net
        self._seen: Counts = ()
        """The counts of `net` from before everything was last looked at."""

    def turn(
        self, *, progress: bool = False, elsewhere: Collection[PartName] = ()
    ) -> tuple[Look, list[Assigned]]:
        """The fetch pool pulls the log; the merge pool follows the queue that this fills. Returns
        the look, with the batches that it claimed for the caller to carry out, and what was
        assigned.

        `progress`: something was done since the last turn. If this raises, nothing is claimed, and
        the next turn looks at everything. A part that can't be read stops nothing else: it is
        fetched again, and the next turn goes on without it.
        """
        look = Look(Step())
        self.has_got_merge = self._to_merge.take()
        try:
            claimer = None if elsewhere else self.executor
            if self._now_s() >= self._all_next_s:
                self._look_at_net()
                claimer = None  # hardly anything has come
            is_filled = self.pool == "fetch" and self._pull(claimer)
            look = Look(Step(waiting=self._waiting), self.executor.taken_with_the_pull())
            found = self._look(progress=progress, is_filled=is_filled, elsewhere=elsewhere)
            look = Look(found.step, (*look.batches, *found.batches))
            return look, self._propose(look, progress=progress)
        except BaseException as error:
            self._log.renew()
            self._queue.renew()
            for batch in (*look.batches, *self.executor.taken_with_the_pull()):
                self.executor.give_back(batch)
            if not isinstance(error, Corruption):
                raise
            problem = suspect(self.replica, error)
            if problem is None or error.part is None:
                raise
            return Look(Step(done=(PartDone(error.part, "CHECK_PART", error=problem),))), []

    def _look_at_net(self) -> None:
        """Look at everything in this turn, unless the net says that nothing has changed; and set
        the time of the next look that no watch asks for. That time differs between tables, so that
        they do not all look at once.

        The log pointer is read again, too: a clone by another process may have moved it back, to
        that of a source that was behind, and then no watch tells that there is something to copy.
        """
        before = self._seen
        self._seen = () if self._net is None else self._net.look(self.replica)
        if self._net is not None and before == self._seen:
            self._merges.still_true()
        else:
            self.replica.memory.pointer = None
            self._log.renew()
            self._mutations.look_again()
            if self._net is not None:  # without one, `MergeDuty` trusts its view for an hour
                self._merges.look_again()
            self._retry_s = 0.0
        name = f"{self.replica.paths.root} {self.pool}".encode()
        most_s = SAFETY_NET_S - (0.0 if self._net is None else nets.VALID_S)
        self._all_next_s = self._now_s() + most_s * (0.6 + 0.4 * crc32(name) / 2**32)

    def _pull(self, claimer: Executor | None) -> bool:
        """Pull the log if its watch fired, or if entries that were put off are due. Returns whether
        the queue got entries that are not claimed yet, from us or from another loop that was
        faster.
        """
        if self._is_pulling_stopped():
            return False  # the log's watch stays fired until pulling goes on
        if self._now_s() < self._pull_due_s():
            return False
        self._log.take()
        pulled = pull_log(self.replica, self._log.fire, put_off=self._put_off, claimer=claimer)
        is_ours = not pulled.queued and self._put_off is not None and self._put_off.entries
        self._rested_s = self._now_s() + OWN_INSERTS_REST_S if is_ours else -math.inf
        before, self._pulled_to = self._pulled_to, pulled.pointer
        is_left = pulled.queued > self.executor.pulled_count
        return is_left or pulled.pointer - pulled.entries != before

    def _pull_due_s(self) -> float:
        """When the log is to be read next. A replica that takes inserts reads an entry for each
        insert, only to put it off. So after a look that found nothing else, it rests before it
        looks again: then one look finds several of them.
        """
        due_s = math.inf if self._put_off is None else self._put_off.due_s
        return min(due_s, self._rested_s) if self._log.is_fired else due_s

    def _is_pulling_stopped(self) -> bool:
        return Background.PULLING_REPLICATION_LOG in self.replica.store.marks.stopped()

    def _look(
        self, *, progress: bool, is_filled: bool, elsewhere: Collection[PartName]
    ) -> Look:
        """Look at the queue if it changed, if something was done, or if a retry is due.

        Our own pulls and fetches change the queue as well, for which the watch fires. If all that
        was in it has been begun, only the log fills it: so if another process has added an entry
        just then, that may wait for a moment.
        """
        is_due = self._now_s() >= self._retry_s
        if self._queue.take() or is_filled or progress:
            self._patience_s = PATIENCE_FIRST_S
            self._merges.look_again()
            if is_filled or self.pool != "fetch" or not self.executor.has_begun_all:
                is_due = True
            else:
                self._retry_s = min(self._retry_s, self._now_s() + OWN_CHANGES_S)
        if not is_due:
            return Look(Step(waiting=self._waiting))
        look = Look(Step())
        queue = self.executor.glance(self._queue.fire)
        if queue:
            look = self.executor.look(self._queue.fire, elsewhere, queue)
        step = look.step
        waits = [math.inf if step.next_retry_s is None else step.next_retry_s]
        if step.left and (look.batches or step.did_something):
            waits.append(0.0)
        elif step.left:
            waits.append(self._patience_s)
            self._patience_s = min(2 * self._patience_s, PATIENCE_MAX_S)
        self._waiting = step.waiting
        self._retry_s = self._now_s() + min(waits)
        return look

    def _propose(self, look: Look, *, progress: bool) -> list[Assigned]:
        if not self._select or self._is_pulling_stopped():
            return []
        if look.batches:
            return []  # they are begun first: an assignment takes a dozen requests
        did_something = progress or look.step.did_something
        assigned = self._mutations.turn(self._waker.wake, progress=did_something)
        if not assigned and not look.step.did_something:
            assigned = self._merges.turn()
        return assigned

    @property
    def has_come(self) -> bool:
        """Whether a merge or a mutation was copied to the queue since the last turn began."""
        return self._to_merge.is_fired

    def idle_s(self) -> float:
        """For how many seconds there is nothing to do, unless a watch fires earlier."""
        now_s = self._now_s()
        waits = [self._retry_s - now_s, self._all_next_s - now_s]
        stopped = self.replica.store.marks.stopped()
        if stopped:
            waits.append(PATIENCE_MAX_S)  # no watch reports when it is started again
        if Background.PULLING_REPLICATION_LOG in stopped:
            return max(0.0, min(waits))  # nothing is pulled or assigned then
        if self.pool == "fetch":
            waits.append(self._pull_due_s() - now_s)
        if self._select:
            waits += [self._merges.next_s(now_s), self._mutations.next_s(now_s)]
        return max(0.0, min(waits))

    def _now_s(self) -> float:
        return self.replica.clock.monotonic_s()
