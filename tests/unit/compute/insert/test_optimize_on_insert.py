"""optimize_on_insert: what is stored of a block is what merging it alone would leave."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.insert.blocks import blocks_of
from rmt_pipeline.protocol.errors import IncorrectData
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.hashes.rows import hash_table
from tests.oracle.rows import merge_rows
from tests.support.merging import Row, definition, rows_of, rules_of, sorted_table

COLUMNS = [
    *(("k", "Int8"), ("p", "Int8"), ("v", "UInt8"), ("flag", "UInt8"), ("sign", "Int8")),
    ("n", "Int64"),
]
MAX = [*COLUMNS[:-1], ("n", "SimpleAggregateFunction(max, Int64)")]


def partitioned(kind: Any, columns: list[tuple[str, str]] = COLUMNS, **engine: Any):
    return replace(definition(columns, ("k",), kind, **engine), partition_by=("p",))


TABLES = {
    "plain": partitioned("MergeTree"),
    "replacing": partitioned(
        "ReplacingMergeTree", version_column="v", is_deleted_column="flag"
    ),
    "summing": partitioned("SummingMergeTree", columns_to_sum=("n",)),
    "aggregating": partitioned("AggregatingMergeTree", MAX),
    "collapsing": partitioned("CollapsingMergeTree", sign_column="sign"),
    "versioned": partitioned(
        "VersionedCollapsingMergeTree", sign_column="sign", version_column="v"
    ),
}
ROW = st.fixed_dictionaries(
    {
        "k": st.integers(0, 2),
        "p": st.integers(0, 2),
        "v": st.integers(0, 2),
        "flag": st.integers(0, 1),
        "sign": st.sampled_from([-1, 1]),
        "n": st.integers(-1, 1),
    }
)


def given_table(rows: list[Row], table: TableDefinition) -> pa.Table:
    """Rows in the order in which they came."""
    numbered = [row | {"k": number} for number, row in enumerate(rows)]
    plain = sorted_table(numbered, replace(table, engine=definition(COLUMNS, ("k",)).engine))
    keys = pa.array([row["k"] for row in rows], pa.int8())
    return plain.set_column(0, plain.schema.field(0), keys)


def blocks(rows: list[Row], table: TableDefinition, **settings: Any):
    found = list(blocks_of([given_table(rows, table)], table, QuerySettings(**settings)))
    return {block.partition_id: block for block in found}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
@settings(deadline=None, max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=12))
def test_each_partition_has_what_the_engine_leaves(table, rows) -> None:
    """P25."""
    found = blocks(rows, table)
    plain = blocks(rows, table, optimize_on_insert=False)
    assert found.keys() == plain.keys()
    for partition, block in found.items():
        came = [row for row in rows if str(row["p"]) == partition]
        stored = rows_of(sorted_table(came, table), table)
        assert rows_of(plain[partition].table, table) == stored
        assert rows_of(block.table, table) == merge_rows([stored], rules_of(table))
        assert block.hashes.row_hash == hash_table(block.table).row_hash
        assert block.given == plain[partition].given
        assert block.given == (len(came), plain[partition].hashes.row_hash)


def test_a_value_that_the_engine_refuses_is_refused_with_the_insert() -> None:
    row = {"k": 1, "p": 1, "v": 1, "flag": 2, "sign": 1, "n": 1}
    with pytest.raises(IncorrectData, match="flag"):
        blocks([row], TABLES["replacing"])
