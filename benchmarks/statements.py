"""What a statement costs before its first request to ZooKeeper, and what reading one costs.

    python -m benchmarks.statements

In this process, over a fake ZooKeeper, through a session: no network, no disk before the request.
"""

import statistics
import tempfile
import time
from itertools import count
from pathlib import Path

from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.statements.parse import parse
from tests.support.fake_keeper import FakeKeeper
from tests.support.local_session import create, local_session

REPEATS = 200
BULK_ROWS = 100_000
COLUMNS = "k Int64, v String, p Int64, f Float64, d Date, a Array(Int64)"
ROW = "({0}, 'some text', 1, 1.5, '2024-01-01', [1, 2])"
QUERY = (
    "SELECT p, count() AS n, sum(k) AS s, max(v) FROM t WHERE d >= '2024-01-01' AND v LIKE 's%'"
    " AND k IN (1, 2, 3) GROUP BY p HAVING n > 0 ORDER BY s DESC LIMIT 10"
)


class _FirstRequest(BaseException):
    """Raised in the place of the first request, with the seconds that it took to get there."""


def until_request(session: Session, statement: str) -> float:
    """Processor seconds from the statement to its first request."""
    began = time.process_time()

    def stop(*_: object, **__: object) -> None:
        raise _FirstRequest(time.process_time() - began)

    names = [
        name
        for name in dir(FakeKeeper)
        if not name.startswith("_") and callable(getattr(FakeKeeper, name)) and name != "end"
    ]
    kept = {name: getattr(FakeKeeper, name) for name in names}
    try:
        for name in names:
            setattr(FakeKeeper, name, stop)
        began = time.process_time()
        session.execute(statement)
    except _FirstRequest as first:
        return float(first.args[0])
    finally:
        for name, method in kept.items():
            setattr(FakeKeeper, name, method)
    raise AssertionError(f"{statement} asked nothing")


def report(title: str, seconds: list[float]) -> None:
    best, middle = min(seconds), statistics.median(seconds)
    print(f"{title:<58} {middle * 1000:9.3f} ms   (best {best * 1000:.3f})")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, local_session(Path(directory)) as session:
        create(session, f"CREATE TABLE t ({COLUMNS}) ENGINE = ReplicatedMergeTree ORDER BY k")
        session.execute(f"INSERT INTO t VALUES {ROW.format(1)}")
        numbers = count(10)

        def insert() -> float:
            return until_request(session, f"INSERT INTO t VALUES {ROW.format(next(numbers))}")

        def update() -> float:
            number = next(numbers)
            return until_request(
                session,
                f"ALTER TABLE t UPDATE v = concat(v, '{number}'), p = p + {number}"
                f" WHERE k = {number} AND (f > 1.5 OR d < '2024-01-01')",
            )

        def select() -> float:
            start = time.process_time()
            session.execute(f"{QUERY} OFFSET {next(numbers)}")
            return time.process_time() - start

        def read() -> float:
            number, start = next(numbers), time.process_time()
            parse(f"INSERT INTO t VALUES {ROW.format(number)}")
            parse(
                f"ALTER TABLE t UPDATE v = concat(v, '{number}') WHERE k = {number} AND f > 1"
            )
            parse(f"{QUERY} OFFSET {number}")
            return time.process_time() - start

        for each in (read, insert, update, select):
            each()
        report("an INSERT, an UPDATE and a SELECT, read", [read() for _ in range(REPEATS)])
        report(
            "INSERT VALUES of one row, to the first request", [insert() for _ in range(REPEATS)]
        )
        report("ALTER UPDATE WHERE, to the first request", [update() for _ in range(REPEATS)])
        report("SELECT, prepared", [select() for _ in range(REPEATS // 3)])
        bulk = "INSERT INTO t VALUES " + ", ".join(ROW.format(n) for n in range(BULK_ROWS))
        report(
            f"INSERT VALUES of {BULK_ROWS:,} rows, to the first request",
            [until_request(session, bulk) for _ in range(2)],
        )
        create_table = (
            f"CREATE TABLE u{{0}} ({COLUMNS}, l Int64 DEFAULT k * {{0}}) ENGINE = ReplicatedMergeTree"
            " PARTITION BY p ORDER BY (k, v) TTL d + INTERVAL 1 MONTH DELETE WHERE p = {0}"
        )
        report(
            "CREATE TABLE, to the first request",
            [
                until_request(session, create_table.format(next(numbers)))
                for _ in range(REPEATS)
            ],
        )


if __name__ == "__main__":
    main()
