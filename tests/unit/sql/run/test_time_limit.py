"""`max_execution_time`: a query that takes longer ends, whatever it is at."""

import gc
import threading
import time

import pytest

from rmt_pipeline.protocol.errors import QueryTooSlow
from rmt_pipeline.protocol.settings.query import QUERY_SETTINGS
from rmt_pipeline.protocol.settings.setting import setting_text
from rmt_pipeline.sql.run import select
from tests.support.local_session import NUMBERS, create, rows
from tests.support.waiting import until

LONG = "SELECT count() FROM numbers(100000000000000) WHERE sqrt(number) < 5"  # for hours
WATCHES = "_interrupt"


def test_what_is_over_before_it_has_begun_is_not_computed_to_its_end(session, monkeypatch):
    """DuckDB forgets an interrupt of a query that does not run yet."""
    run = select._run

    def late(connection, sql, query, sources):
        while not sources.limit.is_over:
            time.sleep(0.01)
        time.sleep(0.2)
        return run(connection, sql, query, sources)

    monkeypatch.setattr(select, "_run", late)
    with pytest.raises(QueryTooSlow, match=r"max_execution_time, 0\.1 s"):
        rows(session, f"{LONG} SETTINGS max_execution_time = 0.1")


@pytest.mark.parametrize("limit", ["99999999999", "999999999999999.5", "1234567.5"])
def test_a_limit_of_ages_is_none(session, monkeypatch, limit):
    """No clock of a computer goes so far."""
    problems: list[object] = []
    monkeypatch.setattr(threading, "excepthook", problems.append)
    assert rows(session, f"SELECT 1 SETTINGS max_execution_time = {limit}") == [(1,)]
    time.sleep(0.1)
    assert problems == []


def test_an_answer_that_nobody_reads_is_not_watched_for_ever(session):
    query = "SELECT number FROM numbers(100000000000) SETTINGS max_execution_time = 0.5"
    answer = session.execute(query)
    assert watching()
    del answer
    gc.collect()
    until(lambda: not watching())


@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO t SETTINGS max_execution_time = 0.2 {LONG}",
        f"INSERT INTO t {LONG} SETTINGS max_execution_time = 0.2",
    ],
)
def test_the_query_of_an_insert_is_limited_too(session, statement):
    create(session, NUMBERS)
    with pytest.raises(QueryTooSlow):
        session.execute(statement)
    assert rows(session, "SELECT count() FROM t") == [(0,)]


@pytest.mark.parametrize("seconds", [0.0, 1234567.5, 2000000.0, 0.00001, 12345678.25])
def test_a_number_of_python_is_the_limit_that_it_says(seconds):
    limit = QUERY_SETTINGS["max_execution_time"]
    assert limit.parse(seconds) == seconds
    assert "e" not in setting_text(seconds)


@pytest.mark.parametrize(
    "place", ["t SETTINGS final = 1 SELECT * FROM r", "t SELECT * FROM r SETTINGS final = 1"]
)
def test_settings_of_an_insert_are_those_of_its_query(session, place):
    """`final` decides which rows there are."""
    create(session, NUMBERS)
    create(
        session,
        "CREATE TABLE r (n UInt64) ENGINE = ReplicatedReplacingMergeTree('/r', 'r1') ORDER BY n",
    )
    for _ in range(2):
        session.execute("INSERT INTO r SETTINGS insert_deduplicate = 0 VALUES (1)")
    assert rows(session, "SELECT n FROM r") == [(1,), (1,)]
    session.execute(f"INSERT INTO {place}")
    assert rows(session, "SELECT n FROM t") == [(1,)]


def watching() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if WATCHES in one.name]
