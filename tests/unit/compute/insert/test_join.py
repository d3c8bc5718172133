"""A partition in more blocks than one commit takes is made of fewer, larger ones."""

from dataclasses import replace

import pytest

from rmt_pipeline import table as table_module
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, Engine
from rmt_pipeline.replica.insert.result import Outcome
from tests.support.local_replicas import ROOT, Replicas, definition_of

ROWS = [{"p": n // 20, "k": n % 3, "n": n} for n in range(24)]
ROW_BY_ROW = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)


def summing(replica):
    columns = (Column("p", "UInt8"), Column("k", "UInt8"), Column("n", "Int64"))
    plain = definition_of(replica, columns)
    engine = Engine("SummingMergeTree", ROOT, replica)
    return replace(plain, engine=engine, order_by=("k",), partition_by=("p",))


def plain(replica):
    return replace(summing(replica), engine=Engine("MergeTree", ROOT, replica))


@pytest.fixture
def few_fit(monkeypatch):
    """Seven blocks or so fit into a multi."""
    monkeypatch.setattr(table_module, "BLOCKS_ALWAYS_TOGETHER", 4)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 9000)


def stored(table):
    return sorted(table.dataset().to_table().to_pylist(), key=lambda row: row["n"])


def test_its_rows_are_all_there_in_as_many_blocks_as_fit(tmp_path, few_fit):
    with Replicas(tmp_path, define=plain) as replicas:
        table = replicas.table("r1")
        result = table.insert(ROWS, token="a token", settings=ROW_BY_ROW)
        of_first = [part for part in result.parts if part.partition == "0"]
        assert 2 <= len(of_first) <= 7
        assert len(result.parts) - len(of_first) == 4, "the other partition's fit as they are"
        assert (result.outcome, result.rows) == (Outcome.INSERTED, 24)
        assert stored(table) == ROWS
        assert replicas.stores["r1"].staged() == []
        again = replicas.table("r2").insert(ROWS, token="a token")
        assert again.outcome is Outcome.DUPLICATE


@pytest.mark.parametrize("token", ["", "a token"])
def test_it_is_known_by_its_rows_as_they_were_given(tmp_path, few_fit, token):
    """P6. Although joining leaves fewer rows than the blocks had."""
    with Replicas(tmp_path, define=summing) as replicas:
        table = replicas.table("r1")
        result = table.insert(ROWS, token=token, settings=ROW_BY_ROW)
        assert 6 < result.rows < 24, "rows of one key are added up in each block"
        assert sum(row["n"] for row in stored(table)) == sum(range(24))
        again = replicas.table("r2").insert(ROWS, token=token)
        assert again.outcome is Outcome.DUPLICATE


def test_what_was_staged_goes_when_it_can_not_be_joined(tmp_path, few_fit, monkeypatch):
    def fails(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr("rmt_pipeline.compute.insert.blocks._join", fails)
    with Replicas(tmp_path, define=plain) as replicas:
        with pytest.raises(OSError, match="no space left"):
            replicas.table("r1").insert(ROWS, settings=ROW_BY_ROW)
        assert replicas.stores["r1"].staged() == []


def test_what_blocks_were_merged_to_need_not_fulfil_a_constraint(tmp_path, few_fit):
    """It is of the rows that were given. Two of each block have one key."""

    def checked(replica):
        return replace(summing(replica), constraints=("small CHECK n < 10",))

    given = [{"p": 0, "k": n // 2, "n": 6} for n in range(24)]
    by_twos = QuerySettings(max_insert_block_size=2, min_insert_block_size_rows=2)
    with Replicas(tmp_path, define=checked) as replicas:
        table = replicas.table("r1")
        table.insert(given, settings=by_twos)
        assert [row["n"] for row in stored(table)] == [12] * 12
