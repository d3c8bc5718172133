"""A server works the queue of statements ON CLUSTER off: each once, one after the other.

    list what is new ──► is it for us, and not done? ──► active and begun, in one multi
        ──► carry it out ──► not active, finished, in one multi ──► the next one

Who dies in between begins again with the same task. What has happened of it by then is found out
by what was noted in `begun`, which is written once, before anything happens; what changes a
replicated table says so itself (`zookeeper/through.py`). So each happens once on each server:

1. A begins DROP TABLE t, and notes which table t is. It drops it, and dies.
2. Somebody creates another table t.
3. A begins again: t is not the table that was noted. It was dropped, and the new one stays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmt_pipeline.cluster.queue import make_node, make_queue, make_status_nodes
from rmt_pipeline.protocol.errors import Corruption, Unavailable
from rmt_pipeline.protocol.nodes.tasks import NamesBefore, Task, TaskOutcome
from rmt_pipeline.zookeeper.keeper import (
    Create,
    Delete,
    LivingKeeper,
    Op,
    RefusalKind,
    Refused,
    Watch,
)
from rmt_pipeline.zookeeper.paths import TaskPaths, TaskQueuePaths, sequence_number
from rmt_pipeline.zookeeper.strays import Stray, give_back, seen_to


@dataclass(frozen=True, slots=True)
class BegunTask:
    """A task that this server is at, maybe not for the first time."""

    paths: TaskPaths
    task: Task
    host: str
    before: NamesBefore


class Carrier(Protocol):
    """What carries a task's statement out."""

    def names(self, task: Task) -> NamesBefore:
        """What the names in the statement stand for now."""
        ...

    def carry_out(self, keeper: LivingKeeper, begun: BegunTask) -> TaskOutcome:
        """Carry the statement out on this server: what came of it, an error of the statement
        included. Raises Unavailable, ReplicaRetired, OutcomeUnknown: then it is begun again.
        """
        ...


class StillActive(Unavailable):
    """The session of this server's last process lives on for a while: what it asked for may still
    happen. Its end is heard of.
    """


def end_work(keeper: LivingKeeper, actives: Sequence[str]) -> None:
    """This server is not at these tasks any more. What another session of it is at ends with that.

    1. The server is done with a task, and its request to say so has no answer.
    2. It begins once more, and the request lands just before it says that it is at the task.
    3. It says again that it is done: that has no answer either, and is refused, for it is done.
    4. While the session lives it is at the task, which can't be removed.
    """
    stats = keeper.exists_many(actives)
    left = [
        Stray(path)
        for path, stat in zip(actives, stats, strict=True)
        if stat is not None and stat.ephemeral_owner == keeper.session_id
    ]
    if left:
        give_back(keeper, left)


def ignore(_event: str, _about: Mapping[str, object]) -> None:
    """Nobody is told."""


@dataclass(slots=True)
class TaskWorker:
    """One server's, in one session. For one thread."""

    keeper: LivingKeeper
    queue: TaskQueuePaths
    host: str
    carrier: Callable[[], Carrier]
    changed: Watch
    """Called from any thread when there may be something to do."""
    tell: Callable[[str, Mapping[str, object]], None] = ignore
    is_open: bool = True
    """Any server may work the queue off; else one that is registered."""
    last: str = ""
    """The last task that needs no look any more."""

    @property
    def reached(self) -> int:
        """The number of the last task that needs no look any more; -1 for none."""
        return sequence_number(self.last) if self.last else -1

    def skip_to(self, number: int) -> None:
        self.last = f"query-{number:010d}" if number >= 0 else ""

    def announce(self) -> None:
        """That this server works the queue off, while its session lives. Raises StillActive."""
        path = self.queue.server_active(self.host)
        if self.is_open:
            make_queue(self.keeper, self.queue)
            for above in (self.queue.servers, self.queue.server(self.host)):
                make_node(self.keeper, above)
        self._create_ephemeral([Create(path, ephemeral=True)])

    def turn(self) -> int:
        """Work off what is new; how many tasks were carried out. Hears of the next ones.

        Raises Unavailable, OutcomeUnknown, ReplicaRetired: the next turn goes on with the same.
        """
        names = self.keeper.children(self.queue.root, self.changed)
        new = [name for name in names if name.startswith("query-") and name > self.last]
        finished = self.keeper.exists_many(
            [self.queue.task(name).finished_on(self.host) for name in new]
        )
        over = [name for name, stat in zip(new, finished, strict=True) if stat is not None]
        end_work(self.keeper, [self.queue.task(name).active_on(self.host) for name in over])
        done = 0
        for name in new:
            if name not in over:
                done += self.carry_out(name)
            self.last = name
        return done

    def carry_out(self, name: str) -> bool:
        """One task, now; False when there is none for us. Raises as `turn`."""
        paths = self.queue.task(name)
        [read] = self.keeper.get_many([paths.root])
        if read is None:
            return False
        try:
            task = Task.decode(read[0])
        except Corruption as error:
            self.tell("task cannot be read", {"task": name, "error": str(error)})
            return False
        if task.hosts and self.host not in task.hosts:
            return False
        begun = self._begin(paths, task)
        if begun is None:
            self.tell("task was removed before it was begun", {"task": name})
            return False
        outcome = self.carrier().carry_out(self.keeper, begun)
        self._finish(paths, outcome)
        about = {"task": name, "query": task.query, "error": outcome.message}
        self.tell("task done" if not outcome.code else "task failed", about)
        return True

    def _begin(self, paths: TaskPaths, task: Task) -> BegunTask | None:
        """None when the task is being removed."""
        if not make_status_nodes(self.keeper, paths):
            return None
        active = Create(paths.active_on(self.host), ephemeral=True)
        begun = paths.begun_on(self.host)
        [read] = self.keeper.get_many([begun])
        ops: list[Op] = [active]
        if read is None:
            before = self.carrier().names(task)
            ops.append(Create(begun, before.encode()))
        else:
            before = NamesBefore.decode(read[0])
        try:
            self._create_ephemeral(ops)
        except Refused as refused:
            if refused.kind is RefusalKind.NO_NODE:
                return None
            raise
        return BegunTask(paths, task, self.host, before)

    def _create_ephemeral(self, ops: list[Op]) -> None:
        """The first of `ops` is an ephemeral node that this server has; it does not stay when there
        is no answer, for it may land when the task is done. Raises StillActive.
        """
        try:
            with seen_to(self.keeper, [Stray(ops[0].path)]):
                self.keeper.multi(ops)
        except Refused as refused:
            if refused.kind is not RefusalKind.NODE_EXISTS or refused.path != ops[0].path:
                raise
            stat = self.keeper.exists(refused.path, self.changed)
            if stat is not None and stat.ephemeral_owner == self.keeper.session_id:
                if len(ops) > 1:
                    self.keeper.multi(ops[1:])
                return  # there was no answer when we made it
            raise StillActive(
                f"{refused.path} is there: the session of the last process of this server has not "
                "ended yet"
            ) from refused

    def _finish(self, paths: TaskPaths, outcome: TaskOutcome) -> None:
        ops: list[Op] = [
            Delete(paths.active_on(self.host)),
            Create(paths.finished_on(self.host), outcome.encode()),
        ]
        if not outcome.code:
            ops.append(Create(paths.synced_on(self.host)))
        try:
            self.keeper.multi(ops)
        except Refused:
            if self.keeper.exists(paths.finished_on(self.host)) is None:
                raise
            # Our first request has landed after all, maybe before we made `active` once more.
            give_back(self.keeper, [Stray(paths.active_on(self.host))])
