"""A table to alter, and ALTER without a server."""

from dataclasses import replace

from rmt_pipeline.protocol.alter.definition import Altered, apply_alter
from rmt_pipeline.protocol.table import Column, ColumnChange, Engine, TableDefinition
from rmt_pipeline.replica.alter.check import check_altered, columns_used, keeps_rows
from rmt_pipeline.sql.define.alter import alter_commands
from rmt_pipeline.syntax.rename import with_renamed
from rmt_pipeline.syntax.statements.nodes import AlterTable
from rmt_pipeline.syntax.statements.parse import parse

TABLE = TableDefinition(
    database="default",
    name="t",
    columns=(
        Column("a", "Int64"),
        Column("b", "String", "DEFAULT", "'x'"),
        Column("k", "String"),
        Column("m", "Int64", "MATERIALIZED", "a + 1"),
        Column("al", "String", "ALIAS", "b"),
        Column("n", "Nullable(Int32)"),
    ),
    engine=Engine("MergeTree", "/t", "r1"),
    order_by=("a",),
    partition_by=("k",),
    metadata_version=3,
    history=(ColumnChange(2, "old"),),
)


def engine() -> TableDefinition:
    """A table whose engine works with columns, one of each kind."""
    columns = (
        Column("a", "Int64"),
        Column("ver", "UInt8"),
        Column("del", "UInt8"),
        Column("sign", "Int8"),
        Column("sum", "Int32"),
    )
    kind = Engine(
        "ReplacingMergeTree",
        "/t",
        "r1",
        version_column="ver",
        is_deleted_column="del",
        sign_column="sign",
        columns_to_sum=("sum",),
    )
    return replace(TABLE, columns=columns, engine=kind, partition_by=(), history=())


def alter(
    text: str, *, table: TableDefinition = TABLE, order_by: tuple[str, ...] = (), drop: str = ""
) -> Altered:
    """What an ALTER TABLE with these commands makes of the table, checked as for the log.

    With `order_by` the table has a column `k2` too; the column `drop` it has not.
    """
    if order_by:
        table = replace(
            table, columns=(*table.columns, Column("k2", "Int32")), order_by=order_by
        )
    columns = tuple(column for column in table.columns if column.name != drop)
    table = replace(table, columns=columns)
    statement = parse(f"ALTER TABLE t {text}")
    assert isinstance(statement, AlterTable)
    commands = alter_commands(statement.commands, table)
    altered = apply_alter(table, commands, columns_used, with_renamed, keeps_rows)
    check_altered(altered.definition)
    return altered


def names(altered: Altered) -> list[str]:
    return [column.name for column in altered.definition.columns]
