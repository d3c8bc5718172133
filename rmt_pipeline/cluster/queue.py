"""The queue of statements ON CLUSTER in ZooKeeper: put in, waited for, listed, cleaned. A statement
in it is a task.

The nodes of one task, below `query-0000000017`, which holds the statement and its servers' names:

* `active/<server>`, ephemeral: the server is carrying it out;
* `begun/<server>`: what the names in the statement stood for on that server before it began;
* `shards/<table>/…`: which replica of a table carries it out, and the result;
* `finished/<server>`: the result on that server; `synced/<server>`: the result was no error.

Beside the queue, `replicas/<server>/active`, ephemeral: the server works the queue off.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    OutcomeUnknown,
    ReplicaRetired,
    Unavailable,
    Unfinished,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import Task, TaskOutcome
from rmt_pipeline.system import Clock, Waker
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    RefusalKind,
    Refused,
    Stat,
)
from rmt_pipeline.zookeeper.paths import TaskPaths, TaskQueuePaths, ancestors, sequence_number
from rmt_pipeline.zookeeper.trees import delete_tree

WAIT_SLICE_S = 3.0  # the delay after an event that was missed, at most
SETTLE_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # while ZooKeeper does not answer

LivingSession = Callable[[], Keeper]
"""Returns a keeper with a living session."""


def put_in(
    keeper: Keeper,
    queue: TaskQueuePaths,
    task: Task,
    clock: Clock,
    change: Sequence[Op] = (),
) -> TaskPaths:
    """Put the task into the queue, in one multi with `change`. Raises UserError for one that is too
    large, OutcomeUnknown when it can't be found out whether it is in, and Refused for the change.
    """
    ops: list[Op] = [*change, Create(queue.task_prefix, task.encode(), sequence=True)]
    size = sum(op_bytes(op, limits.OP_FRAME_BYTES) for op in ops)
    if size > limits.NODE_BYTES_MAX:  # ZooKeeper would end the connection, and answer nothing
        raise UserError(
            f"the statement is written with {size} bytes into {queue.root} in ZooKeeper, and at "
            f"most {limits.NODE_BYTES_MAX} are possible: make it shorter"
        )
    make_queue(keeper, queue)
    try:
        path = keeper.multi(ops)[-1]
    except OutcomeUnknown:
        path = _settled(keeper, queue, task, clock, ops)
    paths = TaskPaths(path)
    with suppress(Unavailable, OutcomeUnknown):  # else the first server that begins makes them
        make_status_nodes(keeper, paths)
    return paths


def make_queue(keeper: Keeper, queue: TaskQueuePaths) -> None:
    """Make the nodes that all tasks share, if they are missing."""
    if keeper.exists(queue.root) is not None:
        return
    for path in [*ancestors(queue.root), queue.root]:
        make_node(keeper, path)


def make_node(keeper: Keeper, path: str) -> None:
    """Make a node if it is missing. Raises Refused when there is no node above it."""
    try:
        keeper.multi([Create(path)])
    except Refused as refused:
        if refused.kind is not RefusalKind.NODE_EXISTS:
            raise


def make_status_nodes(keeper: Keeper, task: TaskPaths) -> bool:
    """Make the nodes below a task. False when the task is being removed, or is gone. A removal
    deletes `active` first and `finished` last; a server that finds one without the other leaves the
    task alone.
    """
    nodes = (task.active, task.finished, task.synced, task.begun, task.shards)
    try:
        keeper.multi([Create(path) for path in nodes])
    except Refused as refused:
        return refused.path == task.active and refused.kind is RefusalKind.NODE_EXISTS
    return True


def _settled(
    keeper: Keeper, queue: TaskQueuePaths, task: Task, clock: Clock, ops: Sequence[Op]
) -> str:
    """The path of a task that was put in without an answer. If it is not there, it is put in again.

    A session's requests are carried out in their order: once a later one is answered, the first one
    has happened, or never will.
    """
    for pause_s in SETTLE_PAUSES_S:
        clock.sleep_s(pause_s)
        try:
            keeper.multi([Check(queue.root)])
            keeper.sync(queue.root)
            for name, found in tasks_in(keeper, queue):
                if found == task:
                    return queue.task(name).root
            path = keeper.multi(ops)[-1]
        except ReplicaRetired:
            break
        except (OutcomeUnknown, Unavailable):
            continue
        else:
            return path
    raise OutcomeUnknown(
        f"whether the statement is in {queue.root} is not known: ZooKeeper did not answer. "
        "system.distributed_ddl_queue shows it if it is; repeat it if it is not"
    )


def tasks_in(keeper: Keeper, queue: TaskQueuePaths) -> list[tuple[str, Task]]:
    """All tasks that can be read, in order."""
    try:
        names = [name for name in keeper.children(queue.root) if name.startswith("query-")]
    except Refused:
        return []
    found = []
    reads = keeper.get_many([queue.task(name).root for name in names])
    for name, read in zip(names, reads, strict=True):
        if read is not None:
            with suppress(Corruption):  # a task of a newer version
                found.append((name, Task.decode(read[0])))
    return found


def running_servers(keeper: Keeper, queue: TaskQueuePaths, hosts: Sequence[str]) -> set[str]:
    """Those of `hosts` whose servers work the queue off."""
    stats = keeper.exists_many([queue.server_active(host) for host in hosts])
    return {host for host, stat in zip(hosts, stats, strict=True) if stat is not None}


# --- waiting ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostResult:
    """A row of the answer. `outcome` is None for a server that has not finished."""

    host: str
    outcome: TaskOutcome | None
    remaining: int
    active: int


class TaskRemoved(Unfinished):
    """The task is not in the queue any more: too many came after it, or it became too old."""


def wait_for_hosts(
    living: LivingSession,
    task: TaskPaths,
    hosts: Sequence[str],
    *,
    timeout_s: float | None,
    waker: Waker,
    clock: Clock,
) -> list[HostResult]:
    """Wait for the servers. Return their results in the order in which they came; then, without an
    outcome, the servers that have not finished within `timeout_s` (None: no limit).

    A lost connection does not end the wait. Raises TaskRemoved.
    """
    deadline_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
    results: list[HostResult] = []
    active = 0
    while len(results) < len(hosts):
        known = {result.host for result in results}
        try:
            found, active = _look(living(), task, [h for h in hosts if h not in known], waker)
        except (Unavailable, OutcomeUnknown, ReplicaRetired) as error:
            if isinstance(error, TaskRemoved):
                raise
            found = []
        for host, outcome in found:
            left = len(hosts) - len(results) - 1
            results.append(HostResult(host, outcome, left, active))
        if len(results) == len(hosts):
            break
        left_s = WAIT_SLICE_S if deadline_s is None else deadline_s - clock.monotonic_s()
        if left_s <= 0:
            due = [host for host in hosts if host not in {one.host for one in results}]
            return [*results, *(HostResult(host, None, len(due), active) for host in due)]
        waker.wait_s(min(left_s, WAIT_SLICE_S))
    return results


def _look(
    keeper: Keeper, task: TaskPaths, due: Sequence[str], waker: Waker
) -> tuple[list[tuple[str, TaskOutcome]], int]:
    """Those of `due` that have finished, with their outcomes, and how many servers carry the task
    out now.
    """
    try:
        finished = keeper.children(task.finished, waker.wake)
        done = [host for host in due if host in finished]
        reads = keeper.get_many([task.finished_on(host) for host in done])
        active = len(keeper.children(task.active)) if len(done) < len(due) else 0
    except Refused as refused:
        if keeper.exists(task.root) is None:
            raise TaskRemoved(
                f"{task.root} was removed from the queue before every server had done it: "
                f"{', '.join(due)}. Look there, and repeat it where it is not done"
            ) from refused
        return [], 0  # the task's nodes are not made yet
    found = []
    for host, read in zip(done, reads, strict=True):
        if read is not None:
            found.append((host, TaskOutcome.decode(read[0])))
    return found, active


# --- cleaning ---------------------------------------------------------------------------------


def clean_queue(
    keeper: Keeper,
    queue: TaskQueuePaths,
    *,
    now_s: float,
    lifetime_s: int,
    tasks_max: int,
    first_needed: Callable[[], int] | None = None,
) -> list[str]:
    """Remove tasks that are older than `lifetime_s`, and the oldest ones when there are more than
    `tasks_max`; never one that a server is carrying out. Returns the names of the removed tasks.

    `first_needed` returns the number of the first task that has to stay, however many there are. It
    is called only when there are too many.
    """
    names = [name for name in keeper.children(queue.root) if name.startswith("query-")]
    stats = keeper.exists_many([queue.task(name).root for name in names])
    too_many = set(names[: max(0, len(names) - tasks_max)])
    if too_many and first_needed is not None:
        needed = first_needed()
        too_many = {name for name in too_many if sequence_number(name) < needed}
    removed = []
    for name, stat in zip(names, stats, strict=True):
        if stat is None or (name not in too_many and not _is_old(stat, now_s, lifetime_s)):
            continue
        with suppress(Conflict):  # another server begins or removes the task
            if _remove(keeper, queue.task(name)):
                removed.append(name)
    return removed


def _is_old(stat: Stat, now_s: float, lifetime_s: int) -> bool:
    return stat.created_ms / 1000 + lifetime_s < now_s


def _remove(keeper: Keeper, task: TaskPaths) -> bool:
    """Remove a task; False while a server is carrying it out. `active` is deleted first: from then
    on no server begins.
    """
    try:
        keeper.multi([Delete(task.active)])
    except Refused as refused:
        if refused.kind is RefusalKind.NOT_EMPTY:
            return False
        if keeper.exists(task.finished) is None:  # its nodes were never made
            keeper.multi([Delete(task.root)])
            return True
    for name in keeper.children(task.root):
        path = f"{task.root}/{name}"
        if path != task.finished:
            delete_tree(keeper, path)
    for host in keeper.children(task.finished):
        keeper.multi([Delete(task.finished_on(host))])
    last: list[Op] = [Delete(task.finished), Delete(task.root)]
    keeper.multi(last)
    return True
