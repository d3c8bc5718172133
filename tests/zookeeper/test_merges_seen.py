"""A running merge is seen from other processes, with how far it is."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from rmt_pipeline.cli import merges as cli_merges
from rmt_pipeline.compute.progress import Progress, UnitProgress
from rmt_pipeline.compute.rows import windows as kernel
from rmt_pipeline.compute.rows import write
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import UnknownTable
from rmt_pipeline.replica.work.running import running_merges
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.table import Table
from tests.support.local_work import working
from tests.support.waiting import LIMIT_S

pytestmark = pytest.mark.zookeeper

ROWS, PARTS = 100, 3


@pytest.fixture
def table(table: Table) -> Table:
    """With three parts of 100 rows."""
    for part in range(PARTS):
        table.insert([{"n": part * ROWS + row} for row in range(ROWS)])
    return table


@pytest.fixture
def pause(monkeypatch) -> tuple[threading.Event, threading.Event]:
    """Merges stop after their first window: one event says that they have, one lets them on."""
    stopped, go_on = threading.Event(), threading.Event()

    class Paused(UnitProgress):
        def tell(self, progress: Progress) -> None:
            super().tell(progress)
            stopped.set()
            assert go_on.wait(LIMIT_S)

    monkeypatch.setattr(write, "UnitProgress", Paused)
    monkeypatch.setattr(kernel, "WINDOW_ROWS", 64)
    return stopped, go_on


@contextmanager
def released(paused: threading.Event) -> Iterator[None]:
    """Whatever happens in the block: who waits for this goes on at its end."""
    try:
        yield
    finally:
        paused.set()


def select(session: Session, query: str) -> list[list[str]]:
    out = io.BytesIO()
    write_rows(session.execute(query), "TSV", out)
    return [line.split("\t") for line in out.getvalue().decode().splitlines()]


def test_a_running_merge_is_seen_with_what_it_has_done(alone, table, pause, capsys):
    stopped, go_on = pause
    names = [str(part.name) for part in table.parts()]
    with (
        ServerContext.open(alone, "r1", purpose="worker") as own,
        working(own, table.definition, select=False) as done,
        Session.open(alone, "r1") as session,
        released(go_on),
    ):
        session.execute("OPTIMIZE TABLE t FINAL SETTINGS alter_sync = 0")
        assert stopped.wait(LIMIT_S)

        [merge] = running_merges(table.replica)
        assert 0 < merge.done.rows_read < merge.rows == ROWS * PARTS
        assert merge.worker.startswith("worker ")
        assert merge.elapsed_s >= 0
        [row] = select(
            session,
            "SELECT table, result_part_name, num_parts, is_mutation, rows_read, total_rows, "
            "progress = rows_read / total_rows, elapsed >= 0, source_part_names, merge_type, "
            "total_size_bytes_compressed, executed_by FROM system.merges",
        )
        sources = "[" + ",".join(f"'{name}'" for name in names) + "]"
        assert row == [
            *("t", "all_0_2_1", "3", "0", str(merge.done.rows_read), "300", "1", "1"),
            *(sources, "Regular", str(merge.bytes_on_disk), merge.worker),
        ]

        assert cli_merges.run_merges(alone, None, "t", watch=False) == 0
        printed = capsys.readouterr().out
        assert f"default.t: merging {' '.join(names)} into all_0_2_1: " in printed
        assert f"{merge.done.rows_read:,} of 300 rows read" in printed
        go_on.set()
        session.execute("SYSTEM SYNC REPLICA t")
        assert select(session, "SELECT * FROM system.merges") == []
        assert running_merges(table.replica) == []
    assert [(str(part.part), part.rows) for part in done] == [("all_0_2_1", 300)]
    assert cli_merges.run_merges(alone, "r1", None, watch=False) == 0
    assert capsys.readouterr().out == "server r1: nothing is being merged\n"


def test_a_mutation_is_seen_as_one(alone, table, pause):
    stopped, go_on = pause
    with (
        ServerContext.open(alone, "r1", purpose="worker") as own,
        working(own, table.definition),
        released(go_on),
    ):
        table.mutate("DELETE WHERE n = 1")
        assert stopped.wait(LIMIT_S)
        [merge] = [one for one in running_merges(table.replica) if one.done.rows_read]
        assert merge.is_mutation
        assert 0 < merge.done.rows_read < merge.rows == ROWS
        go_on.set()
        table.sync()


def test_what_an_attempt_that_died_left_behind_is_no_merge(table):
    table.store.begin("merge", "all_0_2_1")
    assert running_merges(table.replica) == []


def test_watching_ends_with_an_interrupt(alone, table, monkeypatch, capsys):
    rounds: list[float] = []

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_merges, "time", SimpleNamespace(sleep=sleep))
    assert cli_merges.run_merges(alone, "r1", "default.t", watch=True) == 0
    assert capsys.readouterr().out == "server r1: nothing is being merged\n" * 2


def test_a_table_that_is_not_there_is_an_error(alone, table):
    with pytest.raises(UnknownTable):
        cli_merges.run_merges(alone, "r1", "nowhere", watch=False)
