"""INSERT … SELECT: a value that the column can't hold is refused, whatever type it comes with."""

import pytest

from rmt_pipeline.protocol.errors import BadValue
from tests.support.local_session import create, rows

TABLE = """CREATE TABLE t (d Date, ts DateTime, tz DateTime('Asia/Tokyo'), u UInt64,
    ds Array(Date), pair Tuple(Nullable(Date), Int32), tss Map(String, DateTime),
    small UInt8, ip IPv4)
    ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY tuple()"""


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("d", "toDate32('1960-01-01')"),
        ("d", "toDate32('2200-01-01')"),
        ("d", "toDateTime64('1969-12-30 23:00:00', 3)"),
        ("ts", "toDateTime64('1960-01-01 00:00:00', 3)"),
        ("ts", "toDateTime64('2200-01-01 00:00:00', 6)"),
        ("ts", "toDate32('1960-01-01')"),
        ("ts", "5000000000"),
        ("tz", "toInt32(-1)"),
        ("u", "toInt128(-1)"),
        ("ts", "5e9"),
        ("d", "-5"),
        ("d", "1000000000000"),
        ("ds", "[toDate('2020-01-01'), toDate32('1960-01-01')]"),
        ("pair", "tuple(toDate32('1960-01-01'), 1)"),
        ("tss", "map('a', toDateTime64('2200-01-01 00:00:00', 3))"),
        ("tss", "map('a', 5000000000)"),
        ("small", "CAST('a', 'Enum16(\\'a\\' = 300)')"),
        ("small", "toDate('2020-01-01')"),
        ("small", "toDateTime('2020-01-01 00:00:00')"),
        ("u", "toDate32('1960-01-01')"),
        ("ip", "toInt64(-1)"),
        ("ip", "4294967296"),
        ("ts", "toDecimal64(5000000000, 0)"),
        ("d", "toDecimal64(-5, 0)"),
    ],
)
def test_a_value_that_would_become_another_one_is_refused(session, column, value) -> None:
    create(session, TABLE)
    with pytest.raises(BadValue, match=f"column {column} .*row 1 does not fit"):
        session.execute(f"INSERT INTO t ({column}) SELECT {value}")
    assert rows(session, "SELECT count() FROM t") == [(0,)]


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [
        ("d", "toDateTime64('2020-01-01 23:59:59.999', 3)", "2020-01-01"),
        ("d", "toDateTime('2020-01-01 23:00:00', 'UTC')::DateTime('Asia/Tokyo')", "2020-01-02"),
        ("d", "toDate32('1970-01-01')", "1970-01-01"),
        ("ts", "toDateTime64('2020-01-01 23:59:59.999', 3)", "2020-01-01 23:59:59"),
        ("ts", "toDate('2020-01-01')", "2020-01-01 00:00:00"),
        ("tz", "toDate('2020-01-02')", "2020-01-02 00:00:00"),
        ("tz", "4294967295", "2106-02-07 15:28:15"),
        ("ts", "toNullable(toDate('2020-01-01'))", "2020-01-01 00:00:00"),
        ("u", "toInt128(5)", "5"),
        ("ts", "1.5", "1970-01-01 00:00:01"),
        ("d", "1700000000", "2023-11-14"),
        ("ds", "[toDate32('2020-01-01')]", "['2020-01-01']"),
        ("ds", "[toDateTime64('2020-01-01 23:59:59.999', 3)]", "['2020-01-01']"),
        ("pair", "tuple(toDate32('2020-01-01'), 1)", "('2020-01-01',1)"),
        ("pair", "tuple(NULL, 1)", "(NULL,1)"),
        ("small", "CAST('a', 'Enum16(\\'a\\' = 200)')", "200"),
        ("small", "toDate('1970-01-11')", "10"),
        ("u", "toDateTime('2020-01-01 00:00:00')", "1577836800"),
        ("u", "toNullable(toDate('2020-01-01'))", "18262"),
        ("ip", "4294967295", "255.255.255.255"),
        ("ts", "toDecimal64(5.5, 1)", "1970-01-01 00:00:05"),
        ("tss", "map('a', 4294967295)", "{'a':'2106-02-07 06:28:15'}"),
        ("tss", "map('a', toDate('2020-01-01'))", "{'a':'2020-01-01 00:00:00'}"),
        (
            "tss",
            "map('a', toDateTime64('2020-01-01 00:00:00.5', 1))",
            "{'a':'2020-01-01 00:00:00'}",
        ),
    ],
)
def test_a_value_that_the_column_can_hold_is_inserted(session, column, value, shown) -> None:
    create(session, TABLE)
    session.execute(f"INSERT INTO t ({column}) SELECT {value}")
    assert rows(session, f"SELECT toString({column}) FROM t") == [(shown,)]
