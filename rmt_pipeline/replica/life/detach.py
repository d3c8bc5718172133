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
    same = _is_its_own(keeper, definition)
    if same is None:
        return  # another table has its place: who is told that it is dropped would remove that
    op = Create if note is None else SetData
    # Activation rewrites `host`: so a note that lands late is refused.
    ops: list[Op] = [*absent(replica.is_active), Check(replica.host, host[1].version)]
    ops += same
    ops.append(op(replica.detached, words.encode()))
    with suppress(Refused):  # or the replica is being dropped
        keeper.multi(ops)


def forget_note(keeper: Keeper, definition: TableDefinition) -> None:
    """Remove the note of `note_detached`, if there is one of this table: it is attached again, or
    taken back. Another table may have its replica's place by now, and a note of its own.
    """
    same = _is_its_own(keeper, definition)
    if same is not None:
        note = ReplicaPaths(definition.engine.root).detached
        with suppress(Refused):  # there is none
            keeper.multi([*same, Delete(note)])


def _is_its_own(keeper: Keeper, definition: TableDefinition) -> list[Op] | None:
    """Return what asserts that the replica in the place of this table's is its own; None if it is
    another table's.
    """
    replica = ReplicaPaths(definition.engine.root)
    [creations] = keeper.children_many([replica.creations])
    if not definition.may_be(creations or ()):
        return None
    return [Check(replica.creation(one)) for one in creations or ()]
