"""A replica's parts and queue, read after everything in the log has been copied to its queue."""

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.replica.pull_log import Pulled, PutOff, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, sweep_snapshot


def caught_up(replica: Replica, put_off: PutOff | None = None) -> tuple[Pulled, QueueSnapshot]:
    """Pull the log, and return how far with a snapshot of the queue and the parts. For callers that
    act on a part being neither queued nor there. `put_off` is as in `pull_log`.

    A part that is given up moves from the parts to the queue: a reader that looks at the queue
    before that, and at the parts after it, sees it nowhere. A clone empties both. Each of the two
    changes the version of `is_lost`, which is therefore read with the log pointer, and again at the
    end.

    Raises Conflict if the replica changes all the time, and what `pull_log` raises.
    """
    keeper, paths = replica.keeper, replica.paths
    for _ in range(limits.LOOK_ROUNDS_MAX):
        pulled = pull_log(replica, afresh=True, put_off=put_off)
        snapshot = sweep_snapshot(keeper, paths, replica.memory.queue, [paths.is_lost])
        is_lost = snapshot.beside.get(paths.is_lost) if snapshot.beside_is_last else None
        if is_lost is None:
            [is_lost] = keeper.get_many([paths.is_lost])
        if is_lost is not None and is_lost[1].version == pulled.is_lost_version:
            return pulled, snapshot
    raise Conflict(
        f"{replica} was cloned or gave up parts each of {limits.LOOK_ROUNDS_MAX} times while it "
        "was looked at what it has; nothing was changed, try again"
    )
