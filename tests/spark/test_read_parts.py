"""Parts as a DataFrame: with the table's columns of now, whichever they were written with."""

from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.spark import SparkSessions, read_parts
from rmt_pipeline.store.manifest import PartColumn
from tests.support.merging import definition, sorted_table, write_part
from tests.support.old_parts import EXPECTED, NOW, ROWS, Parts, part_of

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("case", ["another name and type", "a column more"])
def test_a_dataframe_has_the_columns_of_now(
    case: str, connect: SparkSessions, tmp_path: Path
) -> None:
    """P33."""
    old = part_of(tmp_path, "all_0_0_0", ROWS)
    table = NOW[case]
    rows = [
        dict(zip((column.name for column in table.columns), row, strict=True))
        for row in EXPECTED[case]
    ]
    new = write_part(tmp_path, "all_1_1_0", sorted_table(rows, table))
    kinds = tuple(PartColumn(column.name, column.type) for column in table.columns)
    new = replace(new, manifest=replace(new.manifest, columns=kinds, metadata_version=5))
    store = Parts(old, new)
    found = read_parts(connect.get(), store, store.all, table).collect()
    assert sorted(map(tuple, found)) == sorted([*EXPECTED[case], *EXPECTED[case]])
    assert read_parts(connect.get(), store, [], table).collect() == []


def test_unsigned_integers_are_read_whole(connect: SparkSessions, tmp_path: Path) -> None:
    kinds = [("u8", 8), ("u16", 16), ("u32", 32), ("u64", 64)]
    table = definition(
        [("id", "Int64"), *((name, f"UInt{bits}") for name, bits in kinds)], ("id",)
    )
    row = {"id": 1, **{name: 2**bits - 1 for name, bits in kinds}}
    part = write_part(tmp_path, "all_0_0_0", sorted_table([row], table))
    columns = tuple(PartColumn(column.name, column.type) for column in table.columns)
    part = replace(part, manifest=replace(part.manifest, columns=columns))
    altered = replace(table, columns=(*table.columns, *NOW["a column more"].columns[-1:]))
    store = Parts(part)
    for now, more in ((table, []), (altered, [0])):
        [found] = read_parts(connect.get(), store, store.all, now).collect()
        assert [int(value) for value in found] == [*row.values(), *more]
