"""What a merge pool does besides working its queue: assign merges (spec §6.1); assign mutations of
single parts, and note which mutations are finished (spec §7.4, §7.6).
"""

import math

from rmt_pipeline.protocol.merges.predicate import mergeable_runs
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    MergeView,
    Nothing,
    assign_merges,
    choose_merge,
    choose_merges,
    merge_view,
)
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import finalize_mutations, load_mutations
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.system import Signal
from rmt_pipeline.zookeeper.keeper import Watch
from rmt_pipeline.zookeeper.snapshot import living_replicas, noted_mutations

LOOK_EVERY_S = 1.0  # while a mutation is unfinished (spec §7.6)
SEEN_MAX_S = 3600.0  # how long a view is trusted, in case a watch was missed
MERGES_PER_LOOK_MAX = 32  # as many as have slots: while these run, the next ones are chosen
ENTRIES_ENOUGH = 100  # of the log: so many new parts may go into one merge
STAND_BACK_S = 2.0  # per replica that comes before, since assigning at once only collides


def _nobody_waits() -> None:
    """The watch before the first turn; does nothing."""


class MutationDuty:
    """Assigns mutations of parts, and notes finished mutations. Between turns it remembers only
    when to look again; `turn` costs nothing while no mutation is unfinished.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._mutations = Mutations({})
        self._is_changed = True
        self._look_next_s = math.inf
        self._watch: Watch = _nobody_waits
        self._newest = ""
        self._waiting_since_s: float | None = None
        """When the first of the mutations was seen that have come since the last look for parts."""

    def turn(self, watch: Watch, *, progress: bool) -> list[Assigned]:
        """Look at the mutations if it is time to; returns the entries that were assigned.

        `watch` fires when a mutation is created or removed, or when the note of finished mutations
        changes. `progress`: the queue has changed since the last turn.
        """
        now_s = self._replica.clock.monotonic_s()
        is_changed = self._list(watch, now_s)
        due = is_changed or now_s >= self._look_next_s
        waiting = self._look_next_s < math.inf
        if not self._mutations.entries:
            return self._rested()  # even if the last one was killed
        if not (due or (progress and waiting)):
            return []
        self._look_next_s = now_s + LOOK_EVERY_S  # even if what follows fails
        finalize_mutations(self._replica, self._mutations)
        return self._assign(now_s) if self._is_anything_open() else self._rested()

    def look_again(self) -> None:
        """List the mutations in the next turn: something may have changed that no watch
        reported.
        """
        self._is_changed = True

    def next_s(self, now_s: float) -> float:
        """Seconds until the next turn that may do something without being woken; may be
        infinite.
        """
        return max(0.0, self._look_next_s - now_s)

    def _list(self, watch: Watch, now_s: float) -> bool:
        """List the mutations if they have, or may have, changed since the last turn; returns
        whether that is so. The pointer of finished mutations is watched as well: it is reset when a
        part is given up (`refetch_part`), and if nothing was open before, nothing else would make
        this replica look.
        """
        is_changed, self._is_changed = self._is_changed, False
        if not is_changed:
            return False
        self._watch = watch
        try:
            self._replica.keeper.exists(self._replica.paths.mutation_pointer, self._changed)
            self._mutations = load_mutations(self._replica, self._changed)
        except BaseException:
            self._is_changed = True
            raise
        newest = max(self._mutations.entries, default="")
        if newest > self._newest:
            self._newest = newest
            if self._waiting_since_s is None:
                self._waiting_since_s = now_s
        return True

    def _changed(self) -> None:
        """The watch of all requests: always the same method, so that it is registered only once.
        Called from any thread.
        """
        self._is_changed = True
        self._watch()

    def _is_anything_open(self) -> bool:
        noted = noted_mutations(self._replica.keeper, self._replica.paths)
        return any(one not in noted.finished for one in self._mutations.entries)

    def _rested(self) -> list[Assigned]:
        """Nothing is left to do: the next mutation is the first one that is waited for."""
        self._look_next_s, self._waiting_since_s = math.inf, None
        return []

    def _assign(self, now_s: float) -> list[Assigned]:
        """Assign mutations of parts. Any replica may do this. The active replica that comes first
        by name does it at once; each further one only after some time, when those before it seem
        not to do it. That time runs from the first mutation, however many follow: one may come
        every second for ever, while nobody works at the replicas before.
        """
        names = [
            name
            for name, active in living_replicas(
                self._replica.keeper, self._replica.table
            ).items()
            if active
        ]
        before = sum(name < self._replica.name for name in names)
        since_s = self._waiting_since_s
        if since_s is not None and now_s < since_s + before * STAND_BACK_S:
            return []
        self._waiting_since_s = None
        outcome = assign_mutations(self._replica)
        return [] if isinstance(outcome, Nothing) else outcome


class MergeDuty:
    """Looks for merges that are worth it every `merge_selecting_sleep_ms`, less and less often
    while nothing is found. While nothing changes, it looks at the view that it saw last: parts grow
    older and the disk emptier, so that a merge may become worth it.

    A busy log does not wait for that: once enough entries have come for one merge, it looks. So a
    second of inserts is merged at a time, not five of them at once, for which everything else would
    wait. Several replicas count the same entries: whoever has looked early in vain, because another
    one was faster, counts twice as many the next time. After a look that found something the next
    one is not early either, unless that one was full: what has come since would make tiny merges.

    The old view is trusted only as far as it says that there is nothing to do: a merge that is
    found in it is looked for again in a new one. The view is dropped when the watch on the log
    reports anything new (the part of an insert is never in the queue of the replica that took it)
    and when the queue has changed. A view in which something stands between two parts is not kept
    at all, since the obstacle may go away without any watch.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._log = Signal()
        self._seen: MergeView | None = None
        self._seen_until_s = 0.0
        self._next_s = 0.0
        self._sleep_s = self._shortest_s
        self._seen_to = 0
        """How far the log was copied at the last look."""
        self._enough = ENTRIES_ENOUGH

    @property
    def _shortest_s(self) -> float:
        return self._replica.settings.merge_selecting_sleep_ms / 1000

    def look_again(self) -> None:
        """Drop the view: the queue has changed, or something may have that no watch reported."""
        self._seen = None

    def still_true(self) -> None:
        """Keep the view for longer: nothing has changed since it was read."""
        self._seen_until_s = self._replica.clock.monotonic_s() + SEEN_MAX_S

    def turn(self) -> list[Assigned]:
        """Look for merges if it is time to, and assign them; returns those that were assigned."""
        now_s = self._replica.clock.monotonic_s()
        is_early = now_s < self._next_s
        if is_early and self._copied_to() - self._seen_to < self._enough:
            return []
        nothing = self._select_in_seen(now_s)
        outcome, is_full = self._select(now_s) if nothing is None else (nothing, False)
        self._seen_to = self._copied_to()
        settings, shortest_s = self._replica.settings, self._shortest_s
        if not isinstance(outcome, Nothing):
            self._sleep_s, self._enough = shortest_s, ENTRIES_ENOUGH
            self._next_s = now_s if is_full else now_s + shortest_s
            return outcome
        if is_early:
            self._enough *= 2
        if not outcome.changed:
            slower_s = self._sleep_s * settings.merge_selecting_sleep_slowdown_factor
            self._sleep_s = min(slower_s, settings.max_merge_selecting_sleep_ms / 1000)
        self._next_s = now_s + self._sleep_s
        return []

    def next_s(self, now_s: float) -> float:
        """Seconds until the next turn that may do something without being woken."""
        return max(0.0, self._next_s - now_s)

    def _copied_to(self) -> int:
        """The number of the log entry that is copied next, as far as this process knows."""
        pointer = self._replica.memory.pointer
        return 0 if pointer is None else pointer.index or 0

    def _select_in_seen(self, now_s: float) -> Nothing | None:
        """`Nothing` if the last view tells, without a request, that there is nothing to merge; else
        None.
        """
        seen = self._seen
        if seen is None or self._log.is_fired or now_s >= self._seen_until_s:
            return None
        choice = choose_merge(self._replica, seen, aggressive=False)
        return choice if isinstance(choice, Nothing) else None

    def _select(self, now_s: float) -> tuple[list[Assigned] | Nothing, bool]:
        """Assign merges, as many as one look finds: it costs a dozen requests, whatever it finds.
        Returns also whether it may have left something for the next one.
        """
        self._seen = None
        self._log.take()
        view = merge_view(self._replica, log_watch=self._log.fire)
        choices = choose_merges(self._replica, view, most=MERGES_PER_LOOK_MAX)
        if not isinstance(choices, Nothing):
            assigned = assign_merges(self._replica, view, choices)
            is_all = isinstance(assigned, list) and len(assigned) == len(choices)
            return assigned, len(choices) == MERGES_PER_LOOK_MAX or not is_all
        if not mergeable_runs(view.predicate, view.active).boundaries:
            self._seen, self._seen_until_s = view, now_s + SEEN_MAX_S
        return choices, False
