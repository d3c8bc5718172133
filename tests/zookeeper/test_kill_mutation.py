"""KILL MUTATION takes hold: what runs stops, what is queued goes, and it says when that was."""

import io
import os
import threading
from pathlib import Path

import pytest

from rmt_pipeline.compute import stop
from rmt_pipeline.compute.mutate import unit as kernel_mutate
from rmt_pipeline.compute.progress import Progress, UnitProgress
from rmt_pipeline.compute.rows import write
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import TableIsReadOnly
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import UnknownMutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.table import Table
from tests.support.local_work import working
from tests.support.serving import Served, create, definition_of
from tests.support.waiting import LIMIT_S, until

pytestmark = pytest.mark.zookeeper

ROWS = 100


@pytest.fixture
def table(table: Table) -> Table:
    """With one part."""
    table.insert([{"n": row} for row in range(ROWS)])
    return table


@pytest.fixture
def running(monkeypatch) -> threading.Event:
    """The first mutation that runs stops after some rows until it is asked to end: set when it
    has begun.
    """
    begun = threading.Event()

    class Paused(UnitProgress):
        def tell(self, progress: Progress) -> None:
            super().tell(progress)
            if begun.is_set():
                return
            begun.set()
            file = Path(os.path.dirname(self._path)) / stop.FILE  # noqa: PTH120
            until(file.exists, lambda: "nobody asked it to stop")

    monkeypatch.setattr(write, "UnitProgress", Paused)
    monkeypatch.setattr(kernel_mutate, "batch_rows_for", lambda *_: 10)
    return begun


def answer(session: Session, statement: str) -> list[list[str]]:
    out = io.BytesIO()
    result = session.execute(statement)
    assert isinstance(result, Rows), result
    write_rows(result, "TSV", out)
    return [line.split("\t") for line in out.getvalue().decode().splitlines()]


def test_a_killed_mutation_stops_where_it_is_and_leaves_the_rows(alone, table, running):
    """P36."""
    with (
        ServerContext.open(alone, "r1", purpose="worker") as own,
        working(own, table.definition) as done,
        Session.open(alone, "r1") as session,
    ):
        mutation = table.mutate("DELETE WHERE n % 2 = 0, DELETE WHERE n = 1")
        assert running.wait(LIMIT_S)
        first, second = answer(session, "KILL MUTATION WHERE table = 't' SYNC")
        assert first[:4] == second[:4] == ["finished", "default", "t", mutation]
        assert first[5].startswith("r1 after ")
        assert table.replica.keeper.children(table.replica.paths.queue) == []
    [failed] = [part.error for part in done if part.error]
    assert f"mutation {mutation} was killed" in failed
    [part] = table.parts()
    assert part.name.data_version == 1, (
        "its entry was carried out: there was nothing left to do"
    )
    assert part.manifest.rows == ROWS
    assert part.manifest.mutations == ()
    assert table.store.staged() == []


def test_a_kill_of_what_nobody_works_on_says_that_it_waits(alone, table):
    with Session.open(alone, "r1") as session:
        mutation = table.mutate("DELETE WHERE n = 1")
        assert isinstance(assign_mutations(table.replica), list)
        pull_log(table.replica)
        where = f"KILL MUTATION WHERE mutation_id = '{mutation}'"
        command = ["default", "t", mutation, "DELETE WHERE n = 1"]
        assert answer(session, f"{where} TEST") == [["", *command, ""]]
        assert answer(session, f"{where} ASYNC") == [["waiting", *command, "r1 not yet"]]
        assert table.mutations() == []


def test_an_unknown_mutation_is_refused(table):
    with pytest.raises(UnknownMutation, match="has no mutation 0000000077"):
        table.kill_mutation("0000000077")


def test_a_read_only_table_kills_and_takes_no_mutation(alone, chroot):
    with ServerContext.open(alone, "r1") as context:
        create(alone, context.keeper(), definition_of(f"{chroot}/t"))
        table = context.table("t")
        with Served(alone) as served:
            served.until(served.is_active)
            table.insert([{"n": 1}])
            mutation = table.mutate("DELETE WHERE n = 1")
        with pytest.raises(TableIsReadOnly, match="kills no mutations; start its server"):
            table.kill_mutation(mutation)
        with pytest.raises(TableIsReadOnly, match="takes no mutations; start its server"):
            table.mutate("DELETE WHERE n = 2")
        assert [one.status.mutation_id for one in table.mutations()] == [mutation]
