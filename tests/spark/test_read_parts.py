"""Parts as a DataFrame: with the table's columns of now, whichever they were written with."""

from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.compute.read_parts import PartFiles, part_files
from rmt_pipeline.compute.spark import SparkSessions, read_parts
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.store.manifest import PartColumn
from tests.support.merging import definition, sorted_table, write_part
from tests.support.old_parts import BEFORE, EXPECTED, NOW, ROWS, OnePart, part_of

pytestmark = pytest.mark.spark


def files(root: Path, name: str, table: TableDefinition) -> list[PartFiles]:
    part = OnePart(part_of(root, name, ROWS))
    return part_files(part, [part], table)


def test_a_dataframe_has_the_columns_of_now(connect: SparkSessions, tmp_path: Path) -> None:
    """P33."""
    session = connect.get()
    for case in ("another name and type", "a column more"):
        table = NOW[case]
        rows = read_parts(session, files(tmp_path / case, "all_0_0_0", table), table).collect()
        assert sorted(map(tuple, rows)) == EXPECTED[case]


def test_a_dataframe_of_current_and_old_parts_has_all_rows(
    connect: SparkSessions, tmp_path: Path
) -> None:
    """P33."""
    current = files(tmp_path, "all_0_0_0", BEFORE)
    old = [part._replace(constants=None) for part in files(tmp_path, "all_1_1_0", BEFORE)]
    found = read_parts(connect.get(), [*current, *old], BEFORE)
    assert sorted(row["id"] for row in found.collect()) == [1, 1, 2, 2, 3, 3]
    assert read_parts(connect.get(), [], BEFORE).collect() == []


def test_unsigned_integers_are_read_whole(connect: SparkSessions, tmp_path: Path) -> None:
    kinds = [("u8", 8), ("u16", 16), ("u32", 32), ("u64", 64)]
    table = definition(
        [("id", "Int64"), *((name, f"UInt{bits}") for name, bits in kinds)], ("id",)
    )
    row = {"id": 1, **{name: 2**bits - 1 for name, bits in kinds}}
    part = write_part(tmp_path, "all_0_0_0", sorted_table([row], table))
    columns = tuple(PartColumn(column.name, column.type) for column in table.columns)
    one = OnePart(replace(part, manifest=replace(part.manifest, columns=columns)))
    [as_it_is] = part_files(one, [one], table)
    for read in (as_it_is, as_it_is._replace(constants=None)):
        [found] = read_parts(connect.get(), [read], table).collect()
        assert [int(value) for value in found] == list(row.values())
