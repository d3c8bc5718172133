"""Two clients of one server say the same at once: IF EXISTS and IF NOT EXISTS hold for both."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError, UnknownDatabase, UnknownTable
from rmt_pipeline.sql.define.table import define_table
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.statements.nodes import CreateTable
from rmt_pipeline.syntax.statements.parse import parse
from tests.support.local_session import NUMBERS, create, local_session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with local_session(tmp_path) as session:
        yield session


@pytest.fixture
def other(session: Session) -> Iterator[Session]:
    """The session of another process."""
    server = session.context.server
    context = ServerContext(server.config, server.server.name)
    context.use(server.keeper())
    with Session(context) as other:
        yield other


def before(
    monkeypatch: pytest.MonkeyPatch, of: Any, name: str, first: Callable[[], object]
) -> None:
    """Whoever calls this function next: `first` happens before, once."""
    original = getattr(of, name)

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(of, name, original)
        first()
        return original(*arguments, **options)

    monkeypatch.setattr(of, name, late)


def test_a_table_that_another_client_makes_meanwhile_exists(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once one of them holds the name, the other one waits (`Catalog.making`)."""
    statement = parse(NUMBERS)
    assert isinstance(statement, CreateTable)
    definition = define_table(statement.table, statement.syntax, "default")
    server = session.context.server
    before(monkeypatch, Catalog, "making", lambda: create(other, NUMBERS))
    assert not server.create_table(definition, if_not_exists=True)
    theirs = server.catalog.definition("default", "t")
    with pytest.raises(RmtError, match="already exists"):
        server.create_table(definition)
    assert server.catalog.definition("default", "t") == theirs


@pytest.mark.parametrize(
    "statement", ["DROP TABLE IF EXISTS t, u SYNC", "DROP DATABASE b SYNC"]
)
def test_a_table_that_another_client_drops_meanwhile_is_gone(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    session.execute("CREATE DATABASE b")
    session.execute("USE b")
    for name in ("t", "u"):
        create(session, NUMBERS.replace("/t'", f"/{name}'").replace(" t ", f" {name} "))
    before(
        monkeypatch, ServerContext, "drop_table", lambda: other.execute("DROP TABLE b.t SYNC")
    )
    session.execute(statement)
    assert not session.context.server.catalog.definitions()


def test_who_does_not_say_if_exists_is_told(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(session, NUMBERS)
    before(monkeypatch, ServerContext, "drop_table", lambda: other.execute("DROP TABLE t SYNC"))
    with pytest.raises(UnknownTable):
        session.execute("DROP TABLE t SYNC")


def test_a_database_that_another_client_drops_meanwhile_is_gone(
    session: Session, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tables", "drop_database"):
        session.execute("CREATE DATABASE b")
        before(monkeypatch, Catalog, name, lambda: other.execute("DROP DATABASE b"))
        session.execute("DROP DATABASE IF EXISTS b")
    session.execute("CREATE DATABASE b")
    before(monkeypatch, Catalog, "drop_database", lambda: other.execute("DROP DATABASE b"))
    with pytest.raises(UnknownDatabase):
        session.execute("DROP DATABASE b")
