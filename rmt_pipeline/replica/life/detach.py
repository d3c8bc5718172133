"""A replica whose table is detached keeps its place in ZooKeeper, and others are told why nobody
serves it.

Its log pointer and its queue stay. It is not active, so the log is kept for it as for any other
replica that is away; who stays away too long is lost, and is cloned when it is attached.
"""

from contextlib import suppress

from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    Refused,
    SetData,
    absent,
)
from rmt_pipeline.zookeeper.paths import ReplicaPaths

DROPPED = "dropped"
"""Said of a replica whose table was dropped, and can be taken back for some minutes."""


def note_detached(keeper: Keeper, replica: ReplicaPaths, words: str) -> None:
    """Say so beside the replica; being active takes it back (`start`). Idempotent. Only for the
    replica's server, in the thread that makes it active: else a note that is late would say it
    of an attached table.
    """
    host, note = keeper.get_many([replica.host, replica.detached])
    if host is None or (note is not None and note[0] == words.encode()):
        return
    op = Create if note is None else SetData
    # Being active rewrites `host`: a note that lands late is refused.
    ops: list[Op] = [*absent(replica.is_active), Check(replica.host, host[1].version)]
    ops.append(op(replica.detached, words.encode()))
    with suppress(Refused):  # or somebody drops the replica
        keeper.multi(ops)


def forget_note(keeper: Keeper, replica: ReplicaPaths) -> None:
    """Take the note of `note_detached` back, if there is one: the table is attached again, or
    dropped.
    """
    with suppress(Refused):  # there is none
        keeper.multi([Delete(replica.detached)])
