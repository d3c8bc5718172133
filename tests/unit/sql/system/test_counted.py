"""system.events, errors, metrics, disks, replicated_fetches, and what replication_queue counts."""

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import UnknownTable
from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.replica.work.execute import POSTPONED_EVERY_S
from rmt_pipeline.server.status import Counters, TableStatus, metrics_page
from rmt_pipeline.server.status import ServerStatus as Status
from rmt_pipeline.sql.system.replication import queue_of
from rmt_pipeline.store.staging import FetchNote
from tests.support.local_replicas import Replicas
from tests.support.local_session import rows, session_with_numbers


@pytest.fixture
def session(tmp_path):
    with session_with_numbers(tmp_path) as opened:
        yield opened


@pytest.fixture
def two(tmp_path):
    with Replicas(tmp_path) as replicas:
        yield replicas


def counted(replicas: Replicas, name: str) -> dict[str, int]:
    found = replicas.stores[name].part_log.counts.read()
    return {event.name: count for event, count in found.items() if count}


def test_each_event_is_counted_on_the_host_where_it_happened(two):
    two.insert("r1", 1)
    two.insert("r1", 2)
    two.step("r2", "fetch")
    size = sum(two.stores["r1"].size_on_disk(part) for part in two.stores["r1"].parts())
    assert counted(two, "r1")["INSERTED_ROWS"] == 2
    assert 0 < counted(two, "r1")["INSERTED_BYTES"] <= size
    assert "INSERTED_ROWS" not in counted(two, "r2")


def test_events_and_the_metrics_of_prometheus_are_one_number(session):
    session.execute("INSERT INTO t VALUES (1), (2)")
    session.execute("INSERT INTO t VALUES (3)")
    found = dict(rows(session, "SELECT event, value FROM system.events"))
    assert found["MergeTreeDataWriterBlocks"] == 2
    assert found["MergeTreeDataWriterRows"] == 3
    assert "ReplicatedPartFetches" not in found, "what has not happened has no row"
    table = session.context.server.table("t")
    counts = {one.event: n for one, n in table.store.part_log.counts.read().items()}
    told = TableStatus(
        *("default", "t", "r1", "/t"),
        readonly=False,
        reason="",
        needs_somebody=False,
        queue_size=0,
        parts=1,
    )
    object.__setattr__(told, "events", counts)
    page = metrics_page(lambda: Status("r1", "0x1", (told,)), Counters()).decode()
    labels = '{database="default",replica="r1",table="t"}'
    assert f"rmt_inserted_rows_total{labels} 3.0" in page
    assert f"rmt_part_fetches_total{labels} 0.0" in page


def test_every_event_has_a_name_of_its_own():
    assert len({event.event for event in ProfileEvent}) == len(ProfileEvent)


def test_errors_of_statements(session):
    for _ in range(2):
        with pytest.raises(UnknownTable):
            session.execute("SYSTEM STOP MERGES nowhere")
    query = "SELECT name, value, last_error_message, last_error_time > '2020-01-01' FROM errors"
    session.execute("USE system")
    [(name, value, message, recent)] = rows(session, query)
    assert (name, value, bool(recent)) == ("UNKNOWN_TABLE", 2, True)
    assert "nowhere" in message


def test_metrics_are_as_it_is_now(session):
    session.execute("INSERT INTO t VALUES (1)")
    query = "SELECT metric, value FROM system.metrics"
    before = dict(rows(session, query))
    assert (before["PartsActive"], before["PartsOutdated"], before["Merge"]) == (1, 0, 0)
    assert before["ReadonlyReplica"] == 0
    store = session.context.server.table("t").store
    with store.begin("fetch", "all_5_5_0").noted(NOTE):
        assert dict(rows(session, query))["ReplicatedFetch"] == 1
    assert dict(rows(session, query))["ReplicatedFetch"] == 0


def test_the_disk(session):
    [(name, path, free, size, left, kind)] = rows(session, "SELECT * FROM system.disks")
    assert (name, path) == ("default", f"{session.context.server.catalog.data}/")
    assert 0 < free < size
    assert (left, kind) == (free, "Local")


NOTE = FetchNote(
    1_700_000_000.0, 1000, "/tables/t/replicas/r2", "http", "h", 9009, "http://h:9009/"
)


def test_a_fetch_is_seen_while_it_runs(session):
    store = session.context.server.table("t").store
    staging = store.begin("fetch", "all_5_5_0")
    query = (
        "SELECT result_part_name, partition_id, bytes_read_compressed, progress, "
        "source_replica_path, source_replica_hostname, source_replica_port, interserver_scheme, "
        "total_size_bytes_compressed FROM system.replicated_fetches WHERE elapsed > 0"
    )
    with staging.noted(NOTE):
        staging.write("data-00000.parquet", b"x" * 250)
        row = ("all_5_5_0", "all", 250, 0.25, "/tables/t/replicas/r2", "h", 9009, "http", 1000)
        assert rows(session, query) == [row]
    assert rows(session, query) == []


def test_a_fetch_whose_process_died_is_none(session):
    store = session.context.server.table("t").store
    staging = store.begin("fetch", "all_5_5_0")
    noted = staging.noted(NOTE)
    noted.__enter__()
    store.disk.lock = lambda *_, **__: type("Lock", (), {"release": lambda _: None})()
    assert store.fetches() == []


def test_how_often_an_entry_was_left_is_counted(two):
    two.insert("r1", 1)
    two.stores["r2"].marks.stop(Background.FETCHES)
    for _ in range(3):
        two.step("r2", "fetch")
        two.clock.passed_s += POSTPONED_EVERY_S
    [entry] = queue_of(two["r2"])
    assert entry["num_postponed"] == 3
    assert entry["last_postpone_time"].timestamp() == int(two.clock.now_s() - POSTPONED_EVERY_S)
    two.stores["r2"].marks.go_on(Background.FETCHES)
    two.step("r2", "fetch")
    assert queue_of(two["r2"]) == []


def test_tries_of_several_processes_are_counted(two):
    """Each process begins with none of its own."""
    two.insert("r1", 1)
    two.stores["r1"].disk.remove_tree(str(two.stores["r1"].parts()[0]))
    for tries in (1, 2, 3):
        two.clock.passed_s += 100
        two.step("r2", "fetch")
        [entry] = queue_of(two["r2"])
        assert entry["num_tries"] == tries
        assert entry["last_exception"]
        assert entry["last_exception_time"].timestamp() == int(two.clock.now_s())
    [(_, error)] = [*two.stores["r2"].errors.read().items()]
    assert error.times == 3
