"""What was stopped by hand: said in SQL, shown everywhere, forgotten when the server starts."""

from contextlib import closing, contextmanager

import dagster as dg
import pytest

from rmt_pipeline.cli.status import _table_lines
from rmt_pipeline.config import Address
from rmt_pipeline.dagster.upkeep.checks import check_of
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import ReplicaDropped, Unavailable, UnknownTable
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.system import RandomIds, SystemClock
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.local_session import TABLE, create, rows, session_with_two_tables


@pytest.fixture
def session(tmp_path):
    with session_with_two_tables(tmp_path) as opened:
        yield opened


def stopped(session) -> list[tuple[object, ...]]:
    return rows(session, "SELECT table, stopped FROM system.replicas ORDER BY table")


def test_one_table_or_all_that_there_are(session):
    session.execute("SYSTEM STOP MERGES t")
    session.execute("SYSTEM STOP FETCHES")
    session.execute("SYSTEM STOP MOVES")
    assert stopped(session) == [("t", ["FETCHES", "MERGES"]), ("u", ["FETCHES"])]
    session.execute("SYSTEM START FETCHES")
    assert stopped(session) == [("t", ["MERGES"]), ("u", [])]
    create(session, TABLE.format("v"))
    assert stopped(session)[2] == ("v", []), "a table that comes later is not meant"
    with pytest.raises(UnknownTable):
        session.execute("SYSTEM STOP MERGES nowhere")


@pytest.mark.parametrize("what", ["t", "t FINAL", "t PARTITION tuple() FINAL"])
def test_an_optimize_meanwhile_says_that_it_has_merged_nothing(session, what):
    assert not session.execute(f"OPTIMIZE TABLE {what.replace(' PARTITION tuple()', '')}").note
    session.execute("SYSTEM STOP MERGES t")
    done = session.execute(f"OPTIMIZE TABLE {what}")
    assert done.note == (
        "default.t: nothing was merged: MERGES are stopped by hand on this server (SYSTEM START "
        "MERGES)"
    )


def test_what_one_table_cannot_be_asked_is_stopped_for_the_others_all_the_same(session):
    """Which of its merges are for TTL its queue would say, and that is gone."""
    delete_tree(session.context.server.keeper(), "/tables/t")
    with pytest.raises(ReplicaDropped):
        session.execute("SYSTEM STOP TTL MERGES")
    marks = [table.store.marks.stopped() for table in session.context.server.tables()]
    assert marks == [{Background.TTL_MERGES}] * 2


def test_status_says_it_and_the_remedy(session):
    session.execute("SYSTEM STOP TTL MERGES t")
    lines = list(_table_lines(session.context.server.table("t"), Unavailable("not running")))
    [line] = [line for line in lines if "stopped by hand" in line]
    assert "TTL MERGES; SYSTEM START TTL MERGES default.t" in line


def tables_of(session) -> Tables:
    server = session.context.server
    identity = Identity("r1", "2", Address("127.0.0.1", 1))
    return Tables(server.catalog, SystemClock(), RandomIds(), identity, lambda: None)


def test_sends_are_refused_while_they_are_stopped(session):
    tables = tables_of(session)
    tables.follow_catalog(session.context.server.keeper())
    endpoint = "/tables/t/replicas/r1"
    assert tables.store_of(endpoint) is not None
    session.execute("SYSTEM STOP REPLICATED SENDS t")
    with pytest.raises(Unavailable, match="REPLICATED SENDS are stopped by hand"):
        tables.store_of(endpoint)
    session.execute("SYSTEM START REPLICATED SENDS t")
    assert tables.store_of(endpoint) is not None


def test_fetches_that_run_are_cancelled_between_two_chunks(session):
    server = session.context.server
    with closing(server.peers(server.catalog.definition("default", "t"))) as peers:
        assert not peers._client.is_cancelled()
        session.execute("SYSTEM STOP FETCHES t")
        assert peers._client.is_cancelled()
        session.execute("SYSTEM START FETCHES t")
        assert not peers._client.is_cancelled()


def test_a_start_of_the_server_forgets_it_and_another_look_at_the_catalog_does_not(session):
    session.execute("SYSTEM STOP MERGES")
    keeper = session.context.server.keeper()
    tables = tables_of(session)
    tables.follow_catalog(keeper)
    assert stopped(session) == [("t", []), ("u", [])]
    session.execute("SYSTEM STOP MERGES t")
    tables.close_for_writes("the session is over")
    tables.follow_catalog(keeper)
    assert stopped(session) == [("t", ["MERGES"]), ("u", [])]


def test_the_check_in_dagster_warns(session):
    class Engine:
        @contextmanager
        def server(self, *_: str, **__: str):
            yield session.context.server

    check = check_of("stopped_by_hand", "t", "r1").op.compute_fn.decorated_fn
    context = dg.build_asset_check_context()
    assert check(context, Engine()).passed
    session.context.server.table("t").store.marks.stop(Background.CLEANUP)
    result = check(context, Engine())
    assert not result.passed
    remedy = result.metadata["remedy"].text
    assert remedy == "When it should run again: SYSTEM START CLEANUP t"
