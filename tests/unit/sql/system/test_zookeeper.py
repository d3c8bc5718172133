"""Which nodes system.zookeeper shows: those below the paths that the conditions come to."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.system.zookeeper import NoNode
from rmt_pipeline.zookeeper.keeper import Create, SetData
from tests.support.local_session import create, local_session, rows


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Iterator[Session]:
    with local_session(tmp_path_factory.mktemp("zookeeper")) as opened:
        create(
            opened,
            "CREATE TABLE t (k Int8) ENGINE = ReplicatedMergeTree('/t/z', 'r1') ORDER BY k",
        )
        yield opened


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("path = '/t'", ["z"]),
        ("'/t' = path", ["z"]),
        ("path = '/' || 't'", ["z"]),
        ("path = concat('/t/z', '/replicas')", ["r1"]),
        ("path IN ('/t', concat('/t/z', '/replicas'))", ["r1", "z"]),
        ("path IN ['/t', '/t/z/replicas']", ["r1", "z"]),
        ("path IN tuple('/t')", ["z"]),
        ("path IN (SELECT zookeeper_path || '/replicas' FROM system.replicas)", ["r1"]),
        ("path = (SELECT zookeeper_path || '/replicas' FROM system.replicas)", ["r1"]),
        (
            (
                "path IN (SELECT r || '/z/' || name FROM"
                " (SELECT '/t' AS r, name FROM system.zookeeper WHERE path = '/t/z')"
                " WHERE name = 'replicas')"
            ),
            ["r1"],
        ),
        ("(path = '/t' OR path = '/t/z/replicas') AND name LIKE 'r%'", ["r1"]),
        ("path = '/t' AND path = '/t/z'", []),
        ("path = '/t' AND name != 'z'", []),
        ("path = p", ["r1"]),
        ("path = '/t/' AND path LIKE '%/'", ["z"]),
        ("path IN ('/t/z/replicas/', '/t/')", ["r1", "z"]),
    ],
)
def test_a_path_is_what_its_expression_comes_to(session, condition, names):
    query = (
        "WITH '/t/z' AS root, root || '/replicas' AS p SELECT name FROM system.zookeeper AS z"
    )
    found = rows(session, f"{query} WHERE {condition} ORDER BY name")
    assert [name for (name,) in found] == names


@pytest.mark.parametrize(
    "condition",
    [
        "path = '/t/z/nosuch'",
        "z.`path` == '/it\\'s'",
        "path IN ('/t', '/t/nosuch')",
        "path = '/nosuch' AND name = 'z'",
    ],
)
def test_a_path_that_is_not_there_is_refused_as_in_the_original(session, condition):
    with pytest.raises(NoNode, match="no node"):
        rows(session, f"SELECT name FROM system.zookeeper AS z WHERE {condition}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name, '/t' AS p FROM system.zookeeper WHERE path = p",
        "SELECT name, p FROM (SELECT *, path AS p FROM system.zookeeper) WHERE path = '/t'",
        (
            "SELECT a.name, b.path FROM system.zookeeper a JOIN system.zookeeper b"
            " ON a.name = b.name WHERE a.path = '/t' AND b.path = '/t'"
        ),
        (
            "SELECT a.name, b.path FROM (SELECT 'z' AS name) a LEFT JOIN system.zookeeper b"
            " ON a.name = b.name AND b.path = '/t'"
        ),
    ],
)
def test_a_condition_counts_wherever_the_table_stands(session, query):
    assert rows(session, query) == [("z", "/t")]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM system.zookeeper",
        "SELECT name FROM system.zookeeper WHERE path LIKE '/t%'",
        "SELECT name FROM system.zookeeper WHERE path != '/t'",
        "SELECT name FROM system.zookeeper WHERE path = '/t' OR name = 'z'",
        "SELECT name FROM system.zookeeper WHERE NOT path = '/t'",
        "SELECT name FROM system.zookeeper WHERE path = name",
        "SELECT name FROM (SELECT name, 'x' AS path FROM system.zookeeper) WHERE path = '/t'",
        "SELECT path FROM (SELECT path FROM system.zookeeper LIMIT 1) WHERE path = '/t'",
        (
            "SELECT a.name FROM system.zookeeper a JOIN system.zookeeper b ON a.name = b.name"
            " WHERE a.path = '/t'"
        ),
        (
            "SELECT name FROM system.zookeeper WHERE path = '/t' UNION ALL"
            " SELECT name FROM system.zookeeper"
        ),
    ],
)
def test_the_whole_tree_is_not_read(session, query):
    with pytest.raises(UserError, match="needs a condition path = "):
        session.execute(query)


def test_an_error_in_a_path_is_that_error(session):
    with pytest.raises(UserError, match="toNoSuch"):
        session.execute("SELECT name FROM system.zookeeper WHERE path = toNoSuch('/t')")


def test_a_node_has_the_transactions_that_made_and_changed_it(session):
    query = (
        "SELECT mzxid > czxid, pzxid > mzxid, aversion FROM system.zookeeper"
        " WHERE path = '/t/z/replicas' AND name = 'r1'"
    )
    session.context.server.keeper().multi([SetData("/t/z/replicas/r1", b"")])
    assert rows(session, query) == [(1, 0, 0)]
    session.context.server.keeper().multi([Create("/t/z/replicas/r1/new")])
    assert rows(session, query) == [(1, 1, 0)]
