"""Sources of a merge: what is read of their files, and how often."""

from pathlib import Path

import pyarrow as pa
import pytest

from rmt_pipeline.compute.rows import source
from rmt_pipeline.compute.rows.source import BrokenSource, PartReader
from rmt_pipeline.compute.units import UnitFile, UnitSource
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.parquet import to_parquet

ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]})


def written(directory: Path) -> UnitFile:
    path, data = directory / "data-00000.parquet", to_parquet(ROWS).to_pybytes()
    path.write_bytes(data)
    return UnitFile(str(path), len(data), hash_hex(data))


def reader_of(file: UnitFile) -> PartReader:
    return PartReader(UnitSource("all_1_1_0", (file,)), ["k", "v"], ["k"], None, None)


def test_a_small_file_is_opened_once(tmp_path):
    file = written(tmp_path)
    reader = reader_of(file)
    Path(file.path).unlink()
    assert pa.Table.from_batches(reader.batches(10, ())).equals(ROWS)


def test_a_large_one_is_not_held_in_memory_until_it_is_its_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "READ_WHOLE_BYTES_MAX", 100)
    file = written(tmp_path)
    reader = reader_of(file)
    assert pa.Table.from_batches(reader.batches(10, ())).equals(ROWS)
    Path(file.path).unlink()
    with pytest.raises(BrokenSource, match="all_1_1_0"):
        list(reader.batches(10, ()))


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"x" * 500])
def test_a_file_that_is_gone_or_damaged_is_named_with_its_part(
    tmp_path, monkeypatch, most, content
):
    monkeypatch.setattr(source, "READ_WHOLE_BYTES_MAX", most)
    file = written(tmp_path)
    Path(file.path).unlink()
    if content is not None:
        Path(file.path).write_bytes(content)
    with pytest.raises(BrokenSource, match=f"part all_1_1_0: {file.path} cannot be read"):
        reader_of(file)
