"""Blocks are in the order of the original's keys, which merges rely on."""

from typing import Any

import pyarrow as pa
import pytest

from rmt_pipeline.compute.insert.blocks import blocks_of
from rmt_pipeline.compute.merge.plan import shape_of
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.syntax.types import parse_type
from tests.support.merging import definition, job_of

UUIDS = [
    "00000000-0000-0001-0000-000000000000",
    "ffffffff-ffff-ffff-0000-000000000001",
    "00000000-0000-0000-0000-000000000002",
    "80000000-0000-0000-8000-00000000000a",
]


@pytest.mark.parametrize(
    ("kind", "in_order"),
    [
        ("Enum8('b' = -1, 'c' = 2, 'a' = 7)", ["b", "c", "a"]),
        ("UUID", UUIDS),
        ("LowCardinality(UUID)", UUIDS),
    ],
)
def test_enums_are_in_the_order_of_numbers_and_uuids_of_their_halves(
    kind: str, in_order: list[Any]
) -> None:
    """P25."""
    table = definition([("k", kind), ("n", "Int64")], ("k",))
    given = sorted(in_order)
    rows = pa.table({"k": pa.array(given, parse_type(kind).arrow), "n": range(len(given))})
    [block] = blocks_of([rows], table, QuerySettings())
    assert block.table.column("k").to_pylist() == in_order
    assert block.key_bounds[0].min == min(given)
    assert block.shape.sorted_by == ()  # what Parquet's readers take to be sorted is not
    assert shape_of(job_of(table)).key[0].is_computed


def test_versions_that_collapse_are_in_order_within_their_key() -> None:
    """P25. The version is part of the key, though ORDER BY does not name it."""
    columns = [("k", "Int64"), ("v", "UInt8"), ("sign", "Int8")]
    kind = "VersionedCollapsingMergeTree"
    table = definition(columns, ("k",), kind, version_column="v", sign_column="sign")
    rows = pa.table(
        {
            "k": pa.array([1, 1, 0]),
            "v": pa.array([2, 1, 3], pa.uint8()),
            "sign": pa.array([1, 1, 1], pa.int8()),
        }
    )
    [block] = blocks_of([rows], table, QuerySettings())
    assert block.table.column("v").to_pylist() == [3, 1, 2]
