"""ALTER … DELETE and UPDATE with queries in their expressions: the mutation has their answers."""

import pytest

from rmt_pipeline.protocol.errors import IncorrectQuery, UserError
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
        ("DELETE WHERE id NOT IN (SELECT 7)", "DELETE WHERE id NOT IN (7)"),
        (
            "DELETE WHERE s IN (SELECT s FROM o WHERE id = 2) OR id = 9",
            "DELETE WHERE (s IN ('it\\'s')) OR (id = 9)",
        ),
        ("DELETE WHERE d IN (SELECT max(d) FROM o)", "DELETE WHERE d IN ('2024-01-02')"),
        (
            "DELETE WHERE (id, s) IN (SELECT id, s FROM o WHERE id = 1)",
            "DELETE WHERE (id, s) IN ((1, 'a'))",
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
    assert rows(orders, MUTATIONS) == [("DELETE WHERE id IN (2)",)]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("id = (SELECT id FROM o)", "answered with 2 rows: add LIMIT 1"),
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
