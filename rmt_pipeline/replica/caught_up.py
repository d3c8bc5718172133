"""What a replica has, and has yet to do, once all that is in the log by now is in its queue."""

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.replica.pull_log import Pulled, PutOff, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, sweep_snapshot


def caught_up(replica: Replica, put_off: PutOff | None = None) -> tuple[Pulled, QueueSnapshot]:
    """For whoever acts on what is neither in the queue nor among the parts. `put_off` as in
    `pull_log`.

    A part that is given up goes from the parts to the queue: who reads the queue before that, and
    the parts after it, sees it nowhere. A clone empties both. Each moves the version of `is_lost`,
    which is read with the pointer of the log, and again when all has been read.

    Raises Conflict when the replica changes all the time; what `pull_log` does.
    """
    for _ in range(limits.LOOK_ROUNDS_MAX):
        pulled = pull_log(replica, afresh=True, put_off=put_off)
        snapshot = sweep_snapshot(replica.keeper, replica.paths, replica.memory.queue)
        [is_lost] = replica.keeper.get_many([replica.paths.is_lost])
        if is_lost is not None and is_lost[1].version == pulled.is_lost_version:
            return pulled, snapshot
    raise Conflict(
        f"{replica} was cloned or gave up parts each of {limits.LOOK_ROUNDS_MAX} times while it "
        "was looked at what it has; nothing was changed, try again"
    )
