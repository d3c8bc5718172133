"""A server works off the queue of statements ON CLUSTER: each once, one after the other.

    list new tasks ──► is it for us, and not finished? ──► make active and begun, in one multi
        ──► carry it out ──► delete active, make finished, in one multi ──► the next one

A server that dies in between begins the same task again. What has happened already is found out
from `begun`, which is written once, before anything happens; and each change of a replicated table
notes in ZooKeeper that it was made (`zookeeper/through.py`). So each statement happens once on each
server:

1. Server A begins DROP TABLE t, and notes which table t is. It drops the table, and dies.
2. A client creates another table t.
3. A begins again: t is not the table that was noted. That one was dropped, and the new one stays.
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
    SetData,
    Watch,
)
from rmt_pipeline.zookeeper.paths import TaskPaths, TaskQueuePaths, sequence_number
from rmt_pipeline.zookeeper.strays import Stray, give_back, seen_to


@dataclass(frozen=True, slots=True)
class BegunTask:
    """A task that this server carries out, maybe not for the first time."""

    paths: TaskPaths
    task: Task
    host: str
    before: NamesBefore


class Carrier(Protocol):
    """Carries the statement of a task out."""

    def names(self, task: Task) -> NamesBefore:
        """What the names in the statement stand for now."""
        ...

    def carry_out(self, keeper: LivingKeeper, begun: BegunTask) -> TaskOutcome:
        """Carry the statement out on this server. Return the outcome, which may be an error of the
        statement. Raises Unavailable, ReplicaRetired, OutcomeUnknown: then the task is begun again.
        """
        ...


class StillActive(Unavailable):
    """The session of this server's last process still lives, so what that process requested may
    still happen. A watch tells when the session ends.
    """


def end_work(keeper: LivingKeeper, actives: Sequence[str]) -> None:
    """Delete those of these `active` nodes that this session has. Nodes of other sessions of this
    server end with those.

    1. The server has finished a task, and its request to note that gets no answer.
    2. The server begins the task once more, and the lost request takes effect just before it makes
       `active`.
    3. It notes again that it has finished: this has no answer either, and is refused, since
       `finished` exists.
    4. As long as the session lives, its `active` node would keep the task from being removed.
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
    """Report nothing."""


@dataclass(slots=True)
class TaskWorker:
    """Works the queue off for one server, in one session. For one thread."""

    keeper: LivingKeeper
    queue: TaskQueuePaths
    host: str
    carrier: Callable[[], Carrier]
    changed: Watch
    """Called from any thread when there may be something to do."""
    tell: Callable[[str, Mapping[str, object]], None] = ignore
    is_open: bool = True
    """Whether any server may work the queue off; if not, only registered ones may."""
    last: str = ""
    """The last task that this server is done with."""

    @property
    def reached(self) -> int:
        """The number of the last task that this server is done with; -1 for none."""
        return sequence_number(self.last) if self.last else -1

    def skip_to(self, number: int) -> None:
        self.last = f"query-{number:010d}" if number >= 0 else ""

    def announce(self) -> None:
        """Announce that this server works the queue off, as long as its session lives. Raises
        StillActive.
        """
        path = self.queue.server_active(self.host)
        if self.is_open:
            make_queue(self.keeper, self.queue)
            for above in (self.queue.servers, self.queue.server(self.host)):
                make_node(self.keeper, above)
        self._create_ephemeral(path)

    def turn(self) -> int:
        """Work off the new tasks. Return how many were carried out. A watch reports the next ones.

        Raises Unavailable, OutcomeUnknown, ReplicaRetired: then the next turn goes on with the same
        task.
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
        """Carry one task out now. False when it is not for this server, or is gone. Raises as
        `turn`.
        """
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
        """Make `active` and `begun`. None when the task is being removed."""
        if not make_status_nodes(self.keeper, paths):
            return None
        begun = paths.begun_on(self.host)
        [read] = self.keeper.get_many([begun])
        beside: list[Op] = []
        if read is None:
            before = self.carrier().names(task)
            beside.append(Create(begun, before.encode()))
        else:
            before = NamesBefore.decode(read[0])
        try:
            self._create_ephemeral(paths.active_on(self.host), beside)
        except Refused as refused:
            if refused.kind is RefusalKind.NO_NODE:
                return None
            raise
        return BegunTask(paths, task, self.host, before)

    def _create_ephemeral(self, path: str, beside: Sequence[Op] = ()) -> None:
        """Create an ephemeral node of this server, and carry out what is `beside` it. When there is
        no answer, the node is removed later: it might appear when the task is finished already.
        Raises StillActive.
        """
        mine = self.keeper.strays.marked(path, self.keeper.session_id)
        create = Create(path, mine.mark.encode(), ephemeral=True)
        try:
            with seen_to(self.keeper, [mine]):
                self.keeper.multi([create, *beside])
        except Refused as refused:
            if refused.kind is not RefusalKind.NODE_EXISTS or refused.path != path:
                raise
            stat = self.keeper.exists(path, self.changed)
            if stat is None or stat.ephemeral_owner != self.keeper.session_id:
                raise StillActive(
                    f"{path} is there: the session of the last process of this server has not "
                    "ended yet"
                ) from refused
            self._take_over(path, mine, stat.version, beside)

    def _take_over(self, path: str, mine: Stray, version: int, beside: Sequence[Op]) -> None:
        """Mark the node, which this session has made before, as `mine`. It may have got no answer
        then, and another thread be about to delete the node for that: then one of the two comes too
        late. Raises StillActive.
        """
        try:
            with seen_to(self.keeper, [mine]):
                self.keeper.multi([SetData(path, mine.mark.encode(), version), *beside])
        except Refused as refused:
            if refused.path != path:
                raise
            raise StillActive(f"{path} has just been deleted; trying again") from refused

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
            # Our first request has taken effect, maybe before we made `active` once more.
            give_back(self.keeper, [Stray(paths.active_on(self.host))])
