"""`x IN (SELECT …)`: a value that would become another one in x's type is no member."""

import pytest

from tests.support.local_session import create, rows


@pytest.fixture
def values(session):
    create(
        session,
        "CREATE TABLE v (u UInt8, i Int64, f Float32, d Decimal(9, 2), day Date, t DateTime)"
        " ENGINE = ReplicatedMergeTree ORDER BY u",
    )
    session.execute(
        "INSERT INTO v VALUES (1, 1, 0.1, '1.25', '2024-01-01', '2024-01-01 00:00:00')"
    )
    return session


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("u IN (SELECT 257)", 0),
        ("u NOT IN (SELECT 257)", 1),
        ("u IN (SELECT number FROM numbers(1000) WHERE number > 1)", 0),
        ("u IN (SELECT number FROM numbers(1000))", 1),
        ("(u, i) IN (SELECT 257, 1)", 0),
        ("(u, i) IN (SELECT 1, 1.)", 1),
        ("i IN (SELECT 1.5)", 0),
        ("i IN (SELECT 1.)", 1),
        ("-i IN (SELECT toUInt64(18446744073709551615))", 0),
        ("f IN (SELECT 0.1)", 0),
        ("f IN (SELECT toFloat32(0.1))", 1),
        ("d IN (SELECT toDecimal64(1.251, 3))", 0),
        ("d IN (SELECT toDecimal64(1.250, 3))", 1),
        ("day IN (SELECT toDateTime('2024-01-01 05:00:00'))", 0),
        ("day IN (SELECT toDateTime('2024-01-01 00:00:00'))", 1),
        ("t IN (SELECT toDateTime64('2024-01-01 00:00:00.5', 1))", 0),
        ("t IN (SELECT toDate('2024-01-01'))", 1),
        ("i IN (SELECT toNullable(1))", 1),
        ("i IN (SELECT NULL)", 0),
        ("i NOT IN (SELECT NULL)", 1),
        ("i IN (SELECT '1')", 1),
    ],
)
def test_a_member_is_equal(values, condition, expected):
    assert rows(values, f"SELECT count() FROM v WHERE {condition}") == [(expected,)]
