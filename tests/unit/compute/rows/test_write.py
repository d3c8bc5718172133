"""What is written of a merge's result, in however many pieces it came."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.compute.rows import write
from rmt_pipeline.compute.rows.write import PIECE_ROWS_MIN, ResultWriter
from rmt_pipeline.compute.units import Shape, Unit
from rmt_pipeline.protocol.table import Column

ROWS = pa.table(
    {
        "k": pa.array(range(3 * PIECE_ROWS_MIN), pa.int64()),
        "v": pa.array([f"text {number % 7}" for number in range(3 * PIECE_ROWS_MIN)]),
    }
)


@dataclass(slots=True)
class Nothing:
    rows_read: int = 0
    bytes_read: int = 0


def written(directory: Path, pieces: list[pa.Table]) -> tuple[ResultWriter, pa.Table]:
    directory.mkdir()
    columns = (Column("k", "Int64"), Column("v", "String"))
    output = directory / "data-00000.parquet"
    writer = ResultWriter(Unit(0, 0, Shape(columns, key=()), (), str(output)))
    assert writer.write_all(pieces, lambda piece: piece, Nothing()) is not None
    return writer, pq.read_table(output)


def cut(rows: int, *, coded: bool = False) -> list[pa.Table]:
    pieces = [ROWS.slice(start, rows) for start in range(0, ROWS.num_rows, rows)]
    if coded:  # each piece with a dictionary of its own
        pieces = [
            piece.set_column(1, "v", piece.column("v").combine_chunks().dictionary_encode())
            for piece in pieces
        ]
    return pieces


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In how many pieces each table is that was hashed."""
    pieces: list[int] = []
    right = write.hash_table

    def counting(table: pa.Table, **named: Any) -> Any:
        pieces.append(table.column(0).num_chunks)
        return right(table, **named)

    monkeypatch.setattr(write, "hash_table", counting)
    return pieces


@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
def test_crumbs_are_hashed_and_written_as_one_piece(
    tmp_path: Path, hashed: list[int], coded: bool
) -> None:
    """Of a merge of many small parts each piece may be a row, and would be hashed by itself."""
    crumbs, in_crumbs = written(tmp_path / "crumbs", cut(5, coded=coded))
    whole, as_whole = written(tmp_path / "whole", cut(ROWS.num_rows, coded=coded))
    assert hashed == [1, 1]
    assert in_crumbs.equals(as_whole)
    assert crumbs.hashes == whole.hashes
    assert crumbs.bounds == whole.bounds


def test_large_pieces_are_not_copied(tmp_path: Path, hashed: list[int]) -> None:
    written(tmp_path / "large", cut(PIECE_ROWS_MIN))
    assert hashed == [3]
