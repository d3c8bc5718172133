"""Many small parts are looked at together; what becomes of each is as if it were alone."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.mutate import together as kernel_together
from rmt_pipeline.compute.mutate import unit as kernel_mutate
from rmt_pipeline.compute.mutate.job import (
    MutateDone,
    MutateFailure,
    MutateJob,
    MutateOutcome,
    Untouched,
)
from rmt_pipeline.protocol.errors import BadValue, Corruption
from rmt_pipeline.syntax.types import arrow_schema
from rmt_pipeline.system import SystemClock
from tests.support.merging import definition, write_part

TABLE = definition([("id", "Int64"), ("v", "String")], ("id",))


def mutate_all(root: Path, command: str, *parts: list[str]) -> list[MutateOutcome]:
    """One part for each list of `v`; their outcomes in order."""
    jobs = []
    for number, values in enumerate(parts):
        rows = [{"id": at, "v": value} for at, value in enumerate(values)]
        source = write_part(
            root,
            f"all_{number}_{number}_0",
            pa.Table.from_pylist(rows, schema=arrow_schema(TABLE.columns)),
        )
        staging = root / f"staging{number}"
        staging.mkdir()
        jobs.append(
            MutateJob(
                *(f"all_{number}_{number}_0_9", source, str(staging), TABLE),
                *((command,), ("0",), 1),
            )
        )
    found = {one.job.result: one for one in LocalMutator(SystemClock()).mutate(jobs)}
    return [found[job.result] for job in jobs]


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """How many parts each question to DuckDB is about; a part that is asked alone is not in it."""
    counts: list[int] = []
    whole = kernel_together._untouched

    def counting(units: Any) -> Any:
        counts.append(len(units))
        return whole(units)

    monkeypatch.setattr(kernel_together, "_untouched", counting)
    return counts


def test_parts_are_asked_together_and_each_gets_its_own_answer(tmp_path, asked):
    parts = (["ax"], ["b", "c"], ["d", "ex", "f"], ["g"])
    outcomes = mutate_all(tmp_path, "DELETE WHERE endsWith(v, 'x')", *parts)
    assert [type(one) for one in outcomes] == [MutateDone, Untouched, MutateDone, Untouched]
    assert [one.manifest.rows for one in outcomes if isinstance(one, MutateDone)] == [0, 2]
    assert asked == [4]


def test_parts_with_and_without_a_dictionary_are_asked_together(tmp_path, asked):
    repeating, various = ["a", "b"] * 600, [f"{n}-" * 9 for n in range(1200)]
    outcomes = mutate_all(tmp_path, "DELETE WHERE endsWith(v, 'b')", repeating, various, ["c"])
    assert [type(one) for one in outcomes] == [MutateDone, Untouched, Untouched]
    assert asked == [3]


def test_a_part_that_can_not_be_computed_does_not_stop_the_others(tmp_path, asked):
    parts = (["1"], ["no number"], ["7"])
    outcomes = mutate_all(tmp_path, "DELETE WHERE toInt32(v) = 7", *parts)
    assert [type(one) for one in outcomes] == [Untouched, MutateFailure, MutateDone]
    assert isinstance(outcomes[1], MutateFailure)
    assert isinstance(outcomes[1].error, BadValue)
    assert "no number" in str(outcomes[1].error)
    assert asked == [3]


def test_a_broken_part_does_not_stop_the_others(tmp_path, monkeypatch):
    whole = kernel_mutate.condition_rows

    def breaking(unit: Any, commands: Any) -> Any:
        if unit.sources[0].part == "all_1_1_0":
            Path(unit.sources[0].files[0].path).unlink()
        return whole(unit, commands)

    monkeypatch.setattr(kernel_together, "condition_rows", breaking)
    outcomes = mutate_all(tmp_path, "DELETE WHERE endsWith(v, 'x')", ["a"], ["b"], ["cx"])
    assert [type(one) for one in outcomes] == [Untouched, MutateFailure, MutateDone]
    assert isinstance(outcomes[1], MutateFailure)
    assert isinstance(outcomes[1].error, Corruption)
    assert outcomes[1].part == "all_1_1_0"


def test_large_parts_are_asked_alone(tmp_path, asked, monkeypatch):
    monkeypatch.setattr(kernel_together, "FILE_BYTES_MAX", 0)
    outcomes = mutate_all(tmp_path, "DELETE WHERE endsWith(v, 'x')", ["a"], ["bx"])
    assert [type(one) for one in outcomes] == [Untouched, MutateDone]
    assert asked == []
