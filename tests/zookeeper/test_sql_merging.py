"""What merges do, on running servers: SELECT … FINAL shows it, and TTL asks for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.config import Config
from rmt_pipeline.protocol.errors import IllegalFinal, IncorrectData, NotImplementedStatement
from rmt_pipeline.sql.run.final_relation import ABANDONED_S
from rmt_pipeline.sql.run.session import Session
from tests.golden.cluster import REPLICAS
from tests.support.waiting import until
from tests.zookeeper.test_sql_session import ask

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def session(two_servers: Config) -> Iterator[Session]:
    with Session.open(two_servers, "r1") as opened:
        yield opened
        for table in ask(opened, "SHOW TABLES"):
            opened.execute(f"DROP TABLE {table} SYNC")


COLUMNS = "k Int64, p Int8, n Int64, v UInt8, deleted UInt8, sign Int8, s String DEFAULT 'd'"


def fill(session: Session, engine: str, order_by: str = "k") -> None:
    session.execute(
        f"CREATE TABLE r ({COLUMNS}) ENGINE = Replicated{engine} PARTITION BY p"
        f" ORDER BY {order_by}"
    )
    rows = [
        "(1, 1, 1, 1, 0, 1), (2, 1, -2, 1, 0, -1)",
        "(1, 1, 2, 2, 0, 1)",
        "(1, 2, 3, 3, 1, -1), (2, 2, 2, 4, 0, 1)",
    ]
    for values in rows:
        session.execute(f"INSERT INTO r (k, p, n, v, deleted, sign) VALUES {values}")


@pytest.mark.parametrize(
    ("engine", "wanted"),
    [
        ("ReplacingMergeTree", ["1 2 3", "2 2 2"]),
        ("ReplacingMergeTree(v, deleted)", ["2 2 2"]),
        ("SummingMergeTree(n)", ["1 1 6"]),
        ("AggregatingMergeTree", ["1 1 1", "2 1 -2"]),
        ("CollapsingMergeTree(sign)", ["1 1 2", "2 2 2"]),
        (
            "VersionedCollapsingMergeTree(sign, v)",
            ["1 1 1", "1 1 2", "1 2 3", "2 1 -2", "2 2 2"],
        ),
    ],
)
def test_rows_of_one_key_are_merged_over_parts_and_partitions(session, engine, wanted):
    fill(session, engine)
    assert ask(session, "SELECT k, p, n FROM r FINAL ORDER BY k, p, n") == [
        row.replace(" ", "\t") for row in wanted
    ]
    assert ask(session, "SELECT count() FROM r FINAL") == [str(len(wanted))]
    assert ask(session, "SELECT count() FROM r") == ["5"]  # nothing was merged for good


def test_final_of_an_engine_that_merges_no_rows_is_refused_with_the_remedy(session):
    fill(session, "MergeTree")
    with pytest.raises(IllegalFinal, match="Leave FINAL out"):
        session.execute("SELECT k FROM r FINAL")
    assert ask(session, "SELECT count() FROM r SETTINGS final = 1") == ["5"]


def test_partitions_may_be_kept_apart(session):
    fill(session, "ReplacingMergeTree")
    session.execute("OPTIMIZE TABLE r PARTITION 1 FINAL")
    apart = "SETTINGS do_not_merge_across_partitions_select_final = 1"
    assert ask(session, f"SELECT k, n FROM r FINAL ORDER BY k, n {apart}") == [
        *("1\t2", "1\t3", "2\t-2", "2\t2"),
    ]


def test_a_condition_looks_at_what_was_merged(session):
    fill(session, "ReplacingMergeTree(v)")
    assert ask(session, "SELECT k FROM r FINAL WHERE n = 1") == []
    assert ask(session, "SELECT s FROM r WHERE n = 3 SETTINGS final = 1") == ["d"]


def test_each_side_of_a_join_says_whether_it_is_final(session):
    fill(session, "ReplacingMergeTree(v)")
    columns, order = "a.k, a.n, b.n", "ORDER BY a.k, b.n"
    query = f"SELECT {columns} FROM r AS a FINAL INNER JOIN r AS b ON a.k = b.k {order}"
    assert ask(session, query) == ["1\t3\t1", "1\t3\t2", "1\t3\t3", "2\t2\t-2", "2\t2\t2"]
    both = query.replace("r AS b", "r AS b FINAL")
    assert ask(session, both) == ["1\t3\t3", "2\t2\t2"]


def test_rows_that_the_engine_refuses_are_an_error(session):
    fill(session, "ReplacingMergeTree(v, deleted)")
    columns, settings = "(k, p, v, deleted)", "SETTINGS optimize_on_insert = 0"
    session.execute(f"INSERT INTO r {columns} {settings} VALUES (7, 1, 1, 2)")
    with pytest.raises(IncorrectData, match="deleted"):
        session.execute("SELECT k FROM r FINAL")


def test_a_merged_row_has_no_part(session):
    fill(session, "ReplacingMergeTree")
    with pytest.raises(NotImplementedStatement, match="_part with FINAL"):
        session.execute("SELECT _part FROM r FINAL")


def test_merged_files_go_with_the_answer_and_those_of_dead_processes_later(session):
    fill(session, "ReplacingMergeTree")
    spill = Path(session.context.server.catalog.data) / "tmp"
    left = spill / "final_dead"
    left.mkdir(parents=True)
    os.utime(left, (0, session.context.server.clock.now_s() - ABANDONED_S - 60))
    ask(session, "SELECT k FROM r FINAL")
    assert list(spill.glob("final_*")) == []


# --- TTL ---


CREATE = """
CREATE TABLE t (k Int64, d DateTime, secret String DEFAULT 'gone' TTL d + INTERVAL 1 YEAR)
ENGINE = ReplicatedMergeTree ORDER BY k
TTL d + INTERVAL 10 YEAR DELETE WHERE k > 0, d + INTERVAL 2 YEAR RECOMPRESS CODEC(NONE)
SETTINGS merge_selecting_sleep_ms = 100, max_merge_selecting_sleep_ms = 200
"""
TTL = "d + toIntervalYear(10) WHERE k > 0, d + toIntervalYear(2) RECOMPRESS CODEC(NONE)"


@pytest.fixture
def sessions(two_servers: Config) -> Iterator[list[Session]]:
    opened = [Session.open(two_servers, name) for name in REPLICAS]
    for session in opened:
        session.execute(CREATE)
    yield opened
    for session in opened:
        session.execute("DROP TABLE t SYNC")
        session.close()


def test_rows_and_values_expire_on_every_replica(sessions):
    """P20. Nobody asks for it: a leader sees that it is due."""
    r1, r2 = sessions
    [definition] = ask(r1, "SHOW CREATE TABLE t")
    assert f"\\nTTL {TTL}" in definition
    assert "TTL d + toIntervalYear(1)" in definition
    root = r1.context.server.catalog.definition("default", "t").engine.zookeeper_path
    node = f"SELECT value FROM system.zookeeper WHERE path = '{root}' AND name = 'metadata'"
    [metadata] = ask(r1, node)
    assert f"\\nttl: {TTL}\\n" in metadata
    r1.execute(
        "INSERT INTO t VALUES (-1, '2001-01-01 00:00:00', 'x'), (1, '2001-01-01 00:00:00', 'x'),"
        " (2, '2020-01-01 00:00:00', 'x'), (3, '2090-01-01 00:00:00', 'x')"
    )
    for session in (r1, r2):
        await_rows(session, ["-1\tgone", "2\tgone", "3\tx"])
    known = "delete_ttl_info_min, delete_ttl_info_max, default_compression_codec"
    waiting = ask(r1, f"SELECT {known} FROM system.parts WHERE table = 't' AND active")
    assert waiting == ["2030-01-01 00:00:00\t2100-01-01 00:00:00\tZSTD(1)"]


def await_rows(session: Session, wanted: list[str]) -> None:
    def found() -> list[str]:
        return ask(session, "SELECT k, secret FROM t ORDER BY k")

    until(lambda: found() == wanted, lambda: f"the rows are {found()}", limit_s=900)


# --- states of aggregate functions ---


def test_states_are_made_merged_and_read(session):
    session.execute(
        "CREATE TABLE visits (day Date, who String, n UInt32)"
        " ENGINE = ReplicatedMergeTree ORDER BY day"
    )
    session.execute(
        "CREATE TABLE daily (day Date, sums AggregateFunction(sum, UInt32),"
        " means AggregateFunction(avg, UInt32), who AggregateFunction(uniqExact, String),"
        " best AggregateFunction(argMax, String, UInt32))"
        " ENGINE = ReplicatedAggregatingMergeTree ORDER BY day"
    )
    session.execute(
        "INSERT INTO visits VALUES ('2024-01-01', 'a', 1), ('2024-01-01', 'b', 5),"
        " ('2024-01-02', 'a', 3), ('2024-01-01', 'a', 3)"
    )
    for condition in ("n < 3", "n >= 3"):
        session.execute(
            "INSERT INTO daily SELECT day, sumState(n), avgState(n), uniqExactState(who),"
            f" argMaxState(who, n) FROM visits WHERE {condition} GROUP BY day"
        )
    wanted = ["2024-01-01\t9\t3\t2\tb", "2024-01-02\t3\t3\t1\ta"]
    merged = "sumMerge(sums), avgMerge(means), uniqExactMerge(who), argMaxMerge(best)"
    query = f"SELECT day, {merged} FROM daily GROUP BY day ORDER BY day"
    assert ask(session, query) == wanted
    finished = ", ".join(
        f"finalizeAggregation({name})" for name in ("sums", "means", "who", "best")
    )
    assert ask(session, f"SELECT day, {finished} FROM daily FINAL ORDER BY day") == wanted
    session.execute("OPTIMIZE TABLE daily FINAL")
    assert ask(session, f"SELECT day, {finished} FROM daily ORDER BY day") == wanted
    assert ask(session, "SELECT sums, means FROM daily WHERE day = '2024-01-01'") == [
        "9\t(9,3)"
    ]
