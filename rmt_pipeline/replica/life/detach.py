"""A replica whose table is detached keeps its place in ZooKeeper, and others are told why nobody
serves it.

Its log pointer and its queue stay. It is not active, so the log is kept for it as for any other
replica that is away; who stays away too long is lost, and is cloned when it is attached.
"""

from contextlib import suppress

from rmt_pipeline.zookeeper.keeper import Create, Keeper, Refused, SetData
from rmt_pipeline.zookeeper.paths import ReplicaPaths


def note_detached(keeper: Keeper, replica: ReplicaPaths, words: str) -> None:
    """Say so beside the replica; being active takes it back (`start`). Idempotent. Only for the
    replica's server, in the thread that makes it active: else a note that is late would say it
    of an attached table.
    """
    root, note = keeper.get_many([replica.root, replica.detached])
    if root is None or (note is not None and note[0] == words.encode()):
        return
    op = Create if note is None else SetData
    with suppress(Refused):  # somebody drops the replica
        keeper.multi([op(replica.detached, words.encode())])
