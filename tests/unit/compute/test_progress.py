"""How far a merge is: told while it runs, and gone with the last unit."""

from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeDone
from rmt_pipeline.compute.progress import (
    FILE,
    Progress,
    UnitProgress,
    forget_progress,
    read_progress,
)
from rmt_pipeline.compute.rows import windows as kernel
from rmt_pipeline.compute.rows import write
from rmt_pipeline.system import SystemClock
from tests.support.merging import definition, job_of, sorted_table, write_part

TABLE = definition([("id", "Int64"), ("name", "String")], ("id",))


def test_units_add_up_whatever_their_order(tmp_path):
    assert read_progress(str(tmp_path)) is None
    for ordinal in (2, 0):
        unit = UnitProgress(f"{tmp_path}/data-0000{ordinal}.parquet", ordinal)
        unit.tell(Progress(1, 2, 3, 4))
        unit.tell(Progress(10, 20, 30, 40))
    assert read_progress(str(tmp_path)) == Progress(20, 40, 60, 80)
    forget_progress(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    forget_progress(str(tmp_path))


def test_a_unit_goes_on_when_it_cannot_tell(tmp_path):
    UnitProgress(f"{tmp_path}/gone/data-00000.parquet", 0).tell(Progress(1, 1, 1, 1))
    assert read_progress(f"{tmp_path}/gone") is None


def test_a_merge_tells_the_rows_of_its_windows_and_leaves_only_the_part(tmp_path, monkeypatch):
    seen: list[Progress] = []

    class Watched(UnitProgress):
        def tell(self, progress: Progress) -> None:
            super().tell(progress)
            told = read_progress(str(staging))
            assert told == progress
            seen.append(told)

    monkeypatch.setattr(write, "UnitProgress", Watched)
    monkeypatch.setattr(kernel, "WINDOW_ROWS", 64)
    staging = tmp_path / "staging"
    staging.mkdir()
    parts = [
        write_part(
            tmp_path,
            f"all_{part}_{part}_0",
            sorted_table([{"id": row, "name": "x" * row} for row in range(100)], TABLE),
        )
        for part in range(2)
    ]
    (made,) = LocalMerger(SystemClock()).merge([job_of(TABLE, parts, staging)])

    assert isinstance(made, MergeDone)
    rows = [progress.rows_read for progress in seen]
    assert len(rows) > 2
    assert rows == sorted(rows)
    assert 0 < rows[0] < rows[-1] == 200
    assert seen[-1].bytes_read > seen[0].bytes_read > 0
    assert not (Path(made.job.staging) / FILE).exists()
    assert {file.name for file in staging.iterdir()} == {"data-00000.parquet"}


@pytest.mark.parametrize("torn", [b"", b"12345678"])
def test_half_a_slot_is_nothing_yet(tmp_path, torn):
    (tmp_path / FILE).write_bytes(torn)
    assert read_progress(str(tmp_path)) == Progress()
