"""What happens to one table hides no other one from system tables: it is dropped, detached or made
anew while they are listed, its replica is gone from ZooKeeper, or its disk fails.
"""

import errno
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.system.scope import TableLeftOut
from rmt_pipeline.store import layout
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.local_session import TABLE, create, rows, session_with_two_tables

WITH_ROWS = (
    "parts",
    "parts_columns",
    "detached_parts",
    "part_log",
    "replicas",
    "replication_queue",
    "inserts",
    "mutations",
    "tables",
    "columns",
)
OTHERS = ("lost_parts", "merges", "metrics", "errors", "events", "replicated_fetches")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Each of `t` and `u` has two parts, a copy of a broken one, and a mutation that waits."""
    with session_with_two_tables(tmp_path) as opened:
        for name in ("t", "u"):
            fill(opened, name)
        yield opened


def fill(session: Session, name: str) -> None:
    for number in range(2):
        session.execute(f"INSERT INTO {name} VALUES ({number})")
    store = session.context.server.table(name).store
    store.detach_copy(store.parts()[0], "broken")
    session.execute(f"DELETE FROM {name} WHERE n = 1 SETTINGS lightweight_deletes_sync = 0")
    session.execute(f"OPTIMIZE TABLE {name} SETTINGS alter_sync = 0")


def require_all_of_u(session: Session) -> None:
    """Every system table is answered, with all rows of `u`."""
    for name in OTHERS:
        rows(session, f"SELECT * FROM system.{name}")
    for name in WITH_ROWS:
        if name != "replication_queue":  # nothing pulls the log here
            found = rows(session, f"SELECT * FROM system.{name} WHERE table = 'u'")
            assert found, name
        rows(session, f"SELECT * FROM system.{name}")
    for name in ("tables", "columns"):
        asked = f"SELECT * FROM information_schema.{name} WHERE table_name = 'u'"
        assert rows(session, asked), name


def gone_with_all(session: Session) -> None:
    delete_tree(session.context.server.keeper(), "/tables/t")


def gone_alone(session: Session) -> None:
    delete_tree(session.context.server.keeper(), "/tables/t/replicas/r1")


@pytest.mark.parametrize("goes", [gone_with_all, gone_alone])
def test_its_replica_is_gone(session: Session, goes: Callable[[Session], None]) -> None:
    """What is on the disk is shown, as nothing that is read."""
    goes(session)
    require_all_of_u(session)
    asked = "SELECT name, active FROM system.parts WHERE table = 't'"
    assert rows(session, asked) == [("all_0_0_0", 0), ("all_1_1_0", 0)]
    asked = "SELECT total_rows FROM system.tables WHERE name = 't'"
    assert rows(session, asked) == [(None,)]
    asked = "SELECT is_safe_to_delete, why FROM system.detached_parts WHERE table = 't'"
    [(is_safe, why)] = rows(session, asked)
    assert not is_safe
    assert "is gone from ZooKeeper" in str(why)


def detached(session: Session) -> None:
    session.context.server.detach_table("default", "t")


def dropped(session: Session) -> None:
    session.context.server.drop_table("default", "t", sync=True)


def put_away(session: Session) -> None:
    session.context.server.drop_table("default", "t", sync=False)


def made_anew(session: Session) -> None:
    dropped(session)
    create(session, TABLE.format("t"))


@pytest.mark.parametrize("goes", [detached, dropped, put_away, made_anew])
@pytest.mark.parametrize("name", [*WITH_ROWS, "metrics"])
def test_it_goes_when_the_tables_are_listed(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    goes: Callable[[Session], None],
) -> None:
    listed = Catalog.definitions
    went: list[Catalog] = []

    def listed_just_before(catalog: Catalog) -> object:
        found = listed(catalog)
        if not went:
            went.append(catalog)
            goes(session)
        return found

    monkeypatch.setattr(Catalog, "definitions", listed_just_before)
    found = rows(session, f"SELECT * FROM system.{name}")
    assert went
    assert name in ("replication_queue", "metrics") or any("u" in row for row in found)


def test_a_part_of_it_is_broken(session: Session) -> None:
    store = session.context.server.table("t").store
    for part in store.parts():
        (Path(store.directory(part)) / layout.MANIFEST).write_bytes(b"damaged")
    require_all_of_u(session)


def test_its_directory_fails(session: Session) -> None:
    server = session.context.server
    directory = server.catalog.table_directory(server.catalog.definition("default", "t"))
    shutil.rmtree(directory)
    directory.write_bytes(b"")  # every path below it is an error
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        require_all_of_u(session)
    left_out = [str(one.message) for one in told if one.category is TableLeftOut]
    assert all(words.startswith("default.t is left out: its directory") for words in left_out)


@pytest.mark.parametrize("full", [False, True])
def test_its_directory_can_not_be_made(
    session: Session, monkeypatch: pytest.MonkeyPatch, *, full: bool
) -> None:
    """Its disk is not there, or full; a process that begins then opens all tables."""
    server = session.context.server
    directory = server.catalog.table_directory(server.catalog.definition("default", "t"))
    shutil.rmtree(directory)
    mkdir = os.mkdir

    def refuse(path: str, *more: int) -> None:
        if str(path) == str(directory):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        mkdir(path, *more)

    if full:
        monkeypatch.setattr(os, "mkdir", refuse)
    else:
        directory.symlink_to(directory.with_name("not mounted"))
    fresh = ServerContext(server.config, "r1")
    fresh.use(server.keeper())
    with Session(fresh) as other, pytest.warns(UserWarning, match=r"default\.t is left out"):
        require_all_of_u(other)


def test_a_session_that_ends_meanwhile_is_an_error(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer without the table would be wrong, and look right."""

    def ended(_: Table) -> list[object]:
        raise ReplicaRetired("the session is over")

    monkeypatch.setattr(Table, "mutations", ended)
    with pytest.raises(ReplicaRetired):
        rows(session, "SELECT * FROM system.mutations")
