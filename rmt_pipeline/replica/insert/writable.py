"""Whether a replica takes inserts: while it is active, and not being cloned from another."""

from rmt_pipeline.protocol.errors import TableIsReadOnly
from rmt_pipeline.replica.replica import Replica


def not_lost_version(replica: Replica) -> int:
    """The version of `is_lost` while it says that this replica is not lost. One read per session:
    the multis check that it did not change. Raises TableIsReadOnly.
    """
    known = replica.memory.not_lost_version
    if known is not None:
        return known
    [read] = replica.keeper.get_many([replica.paths.is_lost])
    if read is None or read[0] == b"1":
        raise TableIsReadOnly(
            f"{replica} is lost and is cloning another replica; its server finishes that"
        )
    replica.memory.not_lost_version = read[1].version
    return read[1].version


def read_only(replica: Replica) -> TableIsReadOnly:
    replica.memory.not_lost_version = None  # it may have been cloned meanwhile: look again
    return TableIsReadOnly(
        f"{replica} is not active, or clones another replica, so it takes no inserts; start its "
        "server with `rmt serve`, or wait until that is done"
    )
