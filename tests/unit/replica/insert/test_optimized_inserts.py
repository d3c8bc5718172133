"""Inserts of which the engine leaves fewer rows, or none."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.replica.insert.result import Outcome
from tests.support.local_replicas import ROOT, Replicas, definition_of


def summing(replica: str) -> TableDefinition:
    plain = definition_of(replica, (Column("k", "UInt64"), Column("n", "Int64")))
    return replace(plain, engine=Engine("SummingMergeTree", ROOT, replica), order_by=("k",))


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path, ["r1"], define=summing) as opened:
        yield opened


def rows(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    return [{"k": key, "n": number} for key, number in pairs]


def test_rows_are_added_up_before_they_are_stored(replicas):
    table = replicas.table("r1")
    result = table.insert(rows((1, 2), (1, 3), (2, 1)))
    assert result.rows == 2
    assert table.dataset().to_table().to_pylist() == rows((1, 5), (2, 1))


def test_of_rows_that_add_up_to_nothing_there_is_no_part(replicas):
    table = replicas.table("r1")
    result = table.insert(rows((1, 2), (1, -2)))
    assert (result.outcome, result.parts) == (Outcome.EMPTY, ())
    assert replicas.stores["r1"].staged() == []


def test_a_retry_that_is_cut_otherwise_is_still_a_duplicate(replicas):
    """P6. Its blocks add up to other rows, but the rows that were given are the same."""
    table = replicas.table("r1")
    given = rows((1, 2), (1, 3), (2, 1))
    table.insert(given)
    again = table.insert(
        given, settings={"max_insert_block_size": 1, "min_insert_block_size_rows": 1}
    )
    assert again.outcome is Outcome.DUPLICATE
    assert table.dataset().to_table().to_pylist() == rows((1, 5), (2, 1))


def test_rows_are_stored_as_they_come_when_asked(replicas):
    table = replicas.table("r1")
    table.insert(rows((1, 2), (1, 3)), settings={"optimize_on_insert": 0})
    assert table.dataset().to_table().to_pylist() == rows((1, 2), (1, 3))
