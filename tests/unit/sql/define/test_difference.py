"""ALTERs that bring a table to the definition that its database has."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.alter.commands import AddColumn
from rmt_pipeline.protocol.alter.definition import apply_alter
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.check import columns_used, keeps_rows
from rmt_pipeline.sql.define.difference import commands_towards
from rmt_pipeline.syntax.rename import with_renamed
from tests.support.local_replicas import definition_of

NOW = definition_of("r1")


@pytest.mark.parametrize(
    "column",
    [
        Column("c", "DateTime", "DEFAULT", "now()", comment="when", codec="ZSTD(1)"),
        Column("c", "UInt64", "MATERIALIZED", "rand64()"),
        Column("c", "DateTime", "ALIAS", "now()"),
        Column("c", "UInt64", "DEFAULT", "n + 1"),
    ],
)
def test_a_column_comes_with_its_default(column):
    """One like `now()` is for rows to come, so the column is added without."""
    wanted = replace(NOW, columns=(*NOW.columns, column))
    commands = commands_towards(NOW, wanted)
    made = apply_alter(NOW, commands, columns_used, with_renamed, keeps_rows)
    assert made.definition.columns == wanted.columns
    added = [one.column for one in commands if isinstance(one, AddColumn)]
    is_random = column.is_stored and column.default in ("now()", "rand64()")
    assert [one.default for one in added] == ["" if is_random else column.default]
