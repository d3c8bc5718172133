"""The parsers of ALTER TABLE … DROP, DETACH, ATTACH, REPLACE, MOVE, FETCH PARTITION or PART, FREEZE
and UNFREEZE, and of TRUNCATE (spec §9).
"""

from collections.abc import Callable

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.mutation import Partition, read_partition
from rmt_pipeline.syntax.statements.nodes import (
    AllPartitions,
    AlterPartitions,
    AttachPartition,
    DropDetached,
    DropPartition,
    FetchPartition,
    FreezePartition,
    MovePartition,
    OnePart,
    PartitionCommand,
    PartitionFrom,
    PartitionTarget,
    TableName,
    Truncate,
    UnfreezePartition,
)
from rmt_pipeline.syntax.statements.tail import answer_tail, snapshot_name, table_name


def at_partition_command(cursor: Cursor) -> bool:
    """Whether a command on partitions or parts starts here."""
    return any(_at(cursor, verb) for verb in _COMMANDS)


def partition_commands(cursor: Cursor, table: TableName) -> AlterPartitions:
    """Read one or more commands after ALTER TABLE t; they are carried out one after another."""
    commands = cursor.several(_command)
    return AlterPartitions(table, commands, answer_tail(cursor))


def truncate_table(cursor: Cursor) -> Truncate:
    """Read the rest of TRUNCATE."""
    cursor.take_words("TABLE")
    if_exists = cursor.take_words("IF", "EXISTS")
    table = table_name(cursor)
    cursor.take_words("SYNC")  # ignored: `alter_sync` says which replicas are waited for
    return Truncate(table, if_exists, answer_tail(cursor).settings)


def _command(cursor: Cursor) -> PartitionCommand:
    for verb, read in _COMMANDS.items():
        if _at(cursor, verb):
            cursor.take_words(*verb)
            return read(cursor)
    raise cursor.expected(
        "another command on partitions; those that change columns or rows are statements of their "
        "own"
    )


def _at(cursor: Cursor, verb: tuple[str, ...]) -> bool:
    """Whether this command comes next. PART or PARTITION must follow most verbs, since DROP, for
    example, may also be of a column.
    """
    if verb in _WITHOUT_TARGET:
        return cursor.at_words(*verb)
    return any(cursor.at_words(*verb, what) for what in _WHATS)


def _target(cursor: Cursor) -> PartitionTarget:
    """Read `PART 'name'`, `PARTITION ALL`, `PARTITION ID '…'` or `PARTITION value`."""
    if cursor.take_words("PART"):
        return OnePart(cursor.string("the name of a part in single quotes"))
    cursor.expect_words("PARTITION")
    if cursor.at_word("ALL") and not cursor.at_mark(1, "("):
        cursor.advance()
        return AllPartitions()
    return read_partition(cursor)


def _drop(cursor: Cursor) -> DropPartition:
    return DropPartition(_target(cursor))


def _detach(cursor: Cursor) -> DropPartition:
    return DropPartition(_target(cursor), detach=True)


def _attach(cursor: Cursor) -> AttachPartition | PartitionFrom:
    target = _target(cursor)
    if not cursor.take_words("FROM"):
        return AttachPartition(target)
    return PartitionFrom(_one(cursor, target), table_name(cursor), attach=True)


def _replace(cursor: Cursor) -> PartitionFrom:
    partition = _one(cursor, _target(cursor))
    cursor.expect_words("FROM")
    return PartitionFrom(partition, table_name(cursor))


def _move(cursor: Cursor) -> MovePartition:
    partition = _one(cursor, _target(cursor))
    cursor.expect_words("TO")
    if cursor.at_word("DISK") or cursor.at_word("VOLUME"):
        raise NotImplementedStatement(
            "MOVE PARTITION TO DISK and TO VOLUME are not implemented: a table has one disk here"
        )
    cursor.expect_words("TABLE")
    return MovePartition(partition, table_name(cursor))


def _fetch(cursor: Cursor) -> FetchPartition:
    target = _target(cursor)
    cursor.expect_words("FROM")
    path = cursor.string("the path in ZooKeeper of the table that it is from, in single quotes")
    return FetchPartition(target, path)


def _one(cursor: Cursor, target: PartitionTarget) -> Partition:
    """Return the target if it is one whole partition, as commands on two tables need. Raises
    SyntaxProblem for PART and for PARTITION ALL.
    """
    if isinstance(target, OnePart | AllPartitions):
        raise cursor.expected("PARTITION and its value; of two tables one partition is named")
    return target


def _drop_detached(cursor: Cursor) -> DropDetached:
    return DropDetached(_target(cursor))


def _freeze(cursor: Cursor) -> FreezePartition:
    partition = _frozen(cursor)
    return FreezePartition(partition, snapshot_name(cursor) if cursor.at_word("WITH") else "")


def _unfreeze(cursor: Cursor) -> UnfreezePartition:
    return UnfreezePartition(_frozen(cursor), snapshot_name(cursor))


def _frozen(cursor: Cursor) -> Partition | AllPartitions | None:
    if not cursor.at_word("PARTITION"):
        return None
    target = _target(cursor)
    assert not isinstance(target, OnePart)
    return target


_WHATS = ("PART", "PARTITION")
_COMMANDS: dict[tuple[str, ...], Callable[[Cursor], PartitionCommand]] = {
    ("DROP", "DETACHED"): _drop_detached,
    ("DROP",): _drop,
    ("DETACH",): _detach,
    ("ATTACH",): _attach,
    ("REPLACE",): _replace,
    ("MOVE",): _move,
    ("FETCH",): _fetch,
    ("FREEZE",): _freeze,
    ("UNFREEZE",): _unfreeze,
}
_WITHOUT_TARGET = (("FREEZE",), ("UNFREEZE",))
