"""ALTER … DELETE and UPDATE that name ALIAS columns: the mutation has their expressions, which an
ALTER may change before a replica comes to it.
"""

import pytest

from tests.support.local_session import create, rows

MUTATIONS = "SELECT command FROM system.mutations ORDER BY mutation_id"


@pytest.fixture
def orders(session):
    create(
        session,
        "CREATE TABLE o (id Int64, twice Int32 ALIAS id * 2, four Int32 ALIAS twice * 2, n Int64)"
        " ENGINE = ReplicatedMergeTree ORDER BY id",
    )
    session.execute("INSERT INTO o VALUES (1, 0), (2, 0)")
    return session


TWICE = "CAST(id * 2, 'Int32')"


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("DELETE WHERE twice = 4 OR id = 7", f"DELETE WHERE ({TWICE} = 4) OR (id = 7)"),
        ("DELETE WHERE four > 4", f"DELETE WHERE CAST({TWICE} * 2, 'Int32') > 4"),
        ("UPDATE n = twice WHERE 1", f"UPDATE n = {TWICE} WHERE 1"),
        (
            "DELETE WHERE arrayExists(twice -> twice = 1, [id, twice])",
            f"DELETE WHERE arrayExists(twice -> (twice = 1), [id, {TWICE}])",
        ),
    ],
)
def test_a_mutation_has_the_expressions_of_alias_columns(orders, typed, written):
    orders.execute(f"ALTER TABLE o {typed}")
    assert rows(orders, MUTATIONS) == [(written,)]


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        (
            "DELETE WHERE (id + 1 AS next) > 3 AND next < 9",
            "DELETE WHERE ((id + 1 AS next) > 3) AND ((id + 1) < 9)",
        ),
        ("UPDATE n = (n + 1 AS n) WHERE 1", "UPDATE n = n + 1 WHERE 1"),
        (
            "UPDATE n = (id AS key) + key WHERE key = 1",
            "UPDATE n = (id AS key) + id WHERE id = 1",
        ),
    ],
)
def test_a_mutation_may_give_aliases_itself(orders, typed, written):
    orders.execute(f"ALTER TABLE o {typed}")
    assert rows(orders, MUTATIONS) == [(written,)]
