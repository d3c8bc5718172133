"""A replica whose table is detached keeps its place in ZooKeeper, and a note there tells others why
it is not served.

Its log pointer and its queue stay. It is not active, so the log is kept for it as for any other
inactive replica; if it stays away too long, it is marked lost, and is cloned when its table is
attached.
"""

from contextlib import suppress

from rmt_pipeline.protocol.table import TableDefinition
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
"""The note of a replica whose table was dropped, and can be taken back for some minutes."""


def note_detached(keeper: Keeper, definition: TableDefinition, words: str) -> None:
    """Write the note beside the replica; activating the replica removes it (`start`). May be
    repeated. Only the replica's server may call this, in the thread that activates it: otherwise a
    late note would describe a table that is attached again.
    """
    replica = ReplicaPaths(definition.engine.root)
    host, note = keeper.get_many([replica.host, replica.detached])
    if host is None or (note is not None and note[0] == words.encode()):
        return
    [creations] = keeper.children_many([replica.creations])
    if not definition.may_be(creations or ()):
        return  # another table has its place: who is told that it is dropped would remove that
    op = Create if note is None else SetData
    # Activation rewrites `host`: so a note that lands late is refused.
    ops: list[Op] = [*absent(replica.is_active), Check(replica.host, host[1].version)]
    ops += [Check(replica.creation(one)) for one in creations or ()]
    ops.append(op(replica.detached, words.encode()))
    with suppress(Refused):  # or the replica is being dropped
        keeper.multi(ops)


def forget_note(keeper: Keeper, replica: ReplicaPaths) -> None:
    """Remove the note of `note_detached`, if any: the table is attached again, or dropped."""
    with suppress(Refused):  # there is none
        keeper.multi([Delete(replica.detached)])
