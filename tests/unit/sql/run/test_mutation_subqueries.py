"""ALTER … DELETE and UPDATE with queries in their expressions: the mutation has their answers."""

import pytest

from rmt_pipeline.protocol.errors import IncorrectQuery, UserError
from rmt_pipeline.sql.run import alter
from tests.support.local_session import create, rows

MUTATIONS = "SELECT command FROM system.mutations ORDER BY mutation_id"


@pytest.fixture
def orders(session):
    create(
        session,
        "CREATE TABLE o (id Int64, s String, d Date, n Nullable(Int64))"
        " ENGINE = ReplicatedMergeTree ORDER BY id",
    )
    session.execute(
        "INSERT INTO o VALUES (1, 'a', '2024-01-01', NULL), (2, 'it\\'s', '2024-01-02', 5)"
    )
    return session


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("DELETE WHERE id IN (SELECT id FROM o ORDER BY id)", "DELETE WHERE id IN (1, 2)"),
        ("DELETE WHERE id NOT IN (SELECT 7)", "DELETE WHERE id NOT IN 7"),
        (
            "DELETE WHERE s IN (SELECT s FROM o WHERE id = 2) OR id = 9",
            "DELETE WHERE (s IN 'it\\'s') OR (id = 9)",
        ),
        ("DELETE WHERE d IN (SELECT max(d) FROM o)", "DELETE WHERE d IN '2024-01-02'"),
        (
            "DELETE WHERE (id, s) IN (SELECT id, s FROM o WHERE id = 1)",
            "DELETE WHERE (id, s) IN (1, 'a')",
        ),
        ("DELETE WHERE id IN (SELECT id FROM o WHERE 0)", "DELETE WHERE 0"),
        ("DELETE WHERE id NOT IN (SELECT id FROM o WHERE 0)", "DELETE WHERE 1"),
        (
            "UPDATE n = (SELECT count() FROM o) WHERE id = (SELECT min(id) FROM o)",
            "UPDATE n = CAST(2, 'UInt64') WHERE id = CAST(1, 'Int64')",
        ),
        (
            "UPDATE n = (SELECT id FROM o WHERE 0) WHERE exists(SELECT 1)",
            "UPDATE n = NULL WHERE 1",
        ),
    ],
)
def test_a_mutation_has_the_answers_of_its_queries(orders, typed, written):
    orders.execute(f"ALTER TABLE o {typed}")
    assert rows(orders, MUTATIONS) == [(written,)]


def test_a_lightweight_delete_has_them_too(orders):
    orders.execute("SET lightweight_deletes_sync = 0")
    orders.execute("DELETE FROM o WHERE id IN (SELECT max(id) FROM o)")
    assert rows(orders, MUTATIONS) == [("DELETE WHERE id IN 2",)]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("id = (SELECT id FROM o)", "answered with more than one row: add LIMIT 1"),
        ("id = (SELECT id, s FROM o LIMIT 1)", "has one column, not 2"),
    ],
)
def test_a_query_that_is_no_single_value_is_refused(orders, condition, problem):
    with pytest.raises(IncorrectQuery, match=problem):
        orders.execute(f"ALTER TABLE o DELETE WHERE {condition}")
    assert rows(orders, MUTATIONS) == []


def test_a_query_of_no_such_table_is_refused(orders):
    with pytest.raises(UserError, match="nosuch"):
        orders.execute("ALTER TABLE o DELETE WHERE id IN (SELECT id FROM nosuch)")
    assert rows(orders, MUTATIONS) == []


# 02:30 there, for the second time that night.
ZONED = "toTimeZone(toDateTime(1729992600, 'UTC'), 'Europe/Berlin')"


@pytest.mark.parametrize(
    ("kind", "values", "condition", "left"),
    [
        # A number in a query's text has 64 bits.
        ("Int128", f"({2**127 - 1}), ({2**127 - 2})", "x IN (SELECT max(x) FROM k)", 1),
        ("Int128", f"({-(2**127)}), ({1 - 2**127})", "x = (SELECT min(x) FROM k)", 1),
        ("Int128", f"({2**127 - 1}), ({2**127 - 2})", "x + 0 IN (SELECT max(x) FROM k)", 1),
        (
            "Decimal(38, 2)",
            f"('{10**34}.12'), ('{10**34}.13')",
            "x IN (SELECT max(x) FROM k)",
            1,
        ),
        (
            "Decimal(38, 2)",
            f"('{10**34}.12'), ('{10**34}.13')",
            "x = (SELECT max(x) FROM k)",
            1,
        ),
        (
            "Decimal(38, 2)",
            f"('{10**34}.12'), ('{10**34}.13')",
            "(x, 1) IN (SELECT max(x), 1 FROM k)",
            1,
        ),
        ("Decimal(9, 2)", "('1.25'), ('1.26')", "x IN (SELECT toDecimal64(1.251, 3))", 2),
        ("Float32", "(0.1), (0.2)", "x IN (SELECT max(x) FROM k)", 1),
        # A text is a time in the zone of what it is compared with.
        (
            "DateTime('UTC')",
            "('2024-01-01 00:00:00'), ('2024-01-01 09:00:00')",
            "x IN (SELECT toTimeZone(min(x), 'Asia/Tokyo') FROM k)",
            1,
        ),
        ("DateTime('Asia/Tokyo')", "(1729992600), (1700000000)", f"x IN (SELECT {ZONED})", 1),
        (
            "DateTime('Europe/Berlin')",
            "(1729992600), (1729989000)",
            f"x IN (SELECT {ZONED})",
            1,
        ),
        (
            "DateTime('Europe/Berlin')",
            "(1729992600), (1729989000)",
            f"x = (SELECT {ZONED})",
            1,
        ),
        (
            "DateTime64(9, 'UTC')",
            "('2024-01-01 00:00:00.123456789')",
            "x IN (SELECT x FROM k)",
            0,
        ),
        ("Array(String)", r"(['it\'s', '\\']), (['a'])", "x IN (SELECT x FROM k LIMIT 1)", 1),
        ("Map(String, Int8)", "({'a': 1}), ({})", "x = (SELECT map('a', toInt8(1)))", 1),
        ("Tuple(Int8, String)", "((1, 'a')), ((2, 'b'))", "x = (SELECT (toInt8(1), 'a'))", 1),
    ],
)
def test_the_rows_that_a_query_answers_with_are_the_rows_that_go(
    session, kind, values, condition, left
):
    create(session, f"CREATE TABLE k (x {kind}) ENGINE = ReplicatedMergeTree ORDER BY tuple()")
    session.execute(f"INSERT INTO k VALUES {values}")
    session.execute(f"ALTER TABLE k DELETE WHERE {condition}")
    [(command,)] = rows(session, MUTATIONS)
    stay = f"SELECT x FROM k WHERE NOT ({command.removeprefix('DELETE WHERE ')})"
    found = rows(session, stay)
    assert len(found) == left
    assert found == rows(session, f"SELECT x FROM k WHERE NOT ({condition})")


def test_bytes_that_are_no_text_are_refused(session):
    create(session, "CREATE TABLE k (x FixedString(2)) ENGINE = ReplicatedMergeTree ORDER BY x")
    session.execute(r"INSERT INTO k VALUES ('\xFF\x80')")
    with pytest.raises(UserError, match="the bytes ff80, which are no UTF-8 text"):
        session.execute("ALTER TABLE k DELETE WHERE x IN (SELECT x FROM k)")


def test_a_query_with_too_many_values_is_refused_before_they_fill_the_memory(
    orders, monkeypatch
):
    """They would need a hundred times more of it than text: who asks for a hundred million of them
    would end the server.
    """
    made = []
    text_of = alter.canonical
    monkeypatch.setattr(alter, "canonical", lambda node: made.append(1) or text_of(node))
    with pytest.raises(UserError, match="more than the 900000 bytes of values"):
        orders.execute("ALTER TABLE o DELETE WHERE id IN (SELECT number FROM numbers(3000000))")
    assert len(made) < 200_000
    assert rows(orders, MUTATIONS) == []


def test_the_same_value_many_times_is_written_once(orders):
    orders.execute("ALTER TABLE o DELETE WHERE id IN (SELECT number % 2 FROM numbers(500000))")
    [(command,)] = rows(orders, MUTATIONS)
    assert command in {"DELETE WHERE id IN (0, 1)", "DELETE WHERE id IN (1, 0)"}
