"""The conditions for the rows of many partitions: each fits into a statement, and each row fulfils
one of them.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from rmt_pipeline.dagster.rows.partitions import rows_of_partitions
from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import create, local_session, rows

FIRST = dt.date(2000, 1, 1)
DAYS = dg.DailyPartitionsDefinition(str(FIRST), end_date="2030-01-01")
PLACES = dg.StaticPartitionsDefinition([f"it's {number}" for number in range(12_000)])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "place": PLACES})
PLACED = {"day": "day", "place": "concat('it''s ', toString(n))"}


def day(number: int) -> str:
    return str(FIRST + dt.timedelta(days=number))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A table with a row for each number: its day, and the number."""
    directory: Path = tmp_path_factory.mktemp("partitions")
    with local_session(directory) as opened:
        create(
            opened,
            "CREATE TABLE t (day Date, n UInt64) "
            "ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY n",
        )
        opened.execute(
            "INSERT INTO t SELECT toDate('2000-01-01') + number, number FROM numbers(5000)"
        )
        yield opened


def read(
    session: Session,
    partitions: dg.PartitionsDefinition[Any],
    keys: Sequence[str],
    given: object,
) -> list[int]:
    context: Any = SimpleNamespace(asset_partitions_def=partitions)
    table = session.context.server.table("t")
    conditions = rows_of_partitions(context, table, keys, {"partition_expr": given})
    return sorted(
        int(str(number))
        for condition in conditions
        for (number,) in rows(session, f"SELECT n FROM t WHERE {condition}")
    )


def test_days_that_do_not_follow_one_another_may_be_thousands(session: Session) -> None:
    wanted = list(range(0, 5000, 3))
    assert read(session, DAYS, [day(number) for number in wanted], "day") == wanted


def test_keys_may_be_ten_thousand(session: Session) -> None:
    keys = [f"it's {number}" for number in range(3, 12_000)]
    assert read(session, PLACES, keys, PLACED["place"]) == list(range(3, 5000))


@pytest.mark.parametrize("step", [1, 7])
def test_partitions_of_two_dimensions_may_be_many(session: Session, step: int) -> None:
    """All places of some days; and one place of each day, whose rows have that place or another."""
    some = range(100, 100 + 40 * step, step)
    whole = [
        dg.MultiPartitionKey({"day": day(one), "place": f"it's {n}"})
        for one in some
        for n in some
    ]
    assert read(session, BOTH, whole, PLACED) == list(some)
    wanted = range(0, 200 * step, 2 * step)
    pairs = [
        dg.MultiPartitionKey({"day": day(n), "place": f"it's {n if n % 4 else n + 1}"})
        for n in wanted
    ]
    assert read(session, BOTH, pairs, PLACED) == [n for n in wanted if n % 4 and n < 5000]
