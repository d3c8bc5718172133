"""A file of the catalog that can't be read: the server starts, says which one it is and what to do
about it, leaves it as it is, and serves every other table.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.catalog.replicated import ReplicatedDatabase, encode_replicated
from rmt_pipeline.protocol.errors import Corruption, UnknownTable
from rmt_pipeline.server.status import server_status
from rmt_pipeline.server.tables import Active
from rmt_pipeline.server.tasks import TaskLoops
from rmt_pipeline.sql.run import tables as sql_tables
from rmt_pipeline.sql.run.session import Session
from tests.support.hosts import TABLE, World, looked
from tests.support.local_session import rows
from tests.support.serving import insert

T = ("default", "t")
U = replace(TABLE, name="u", engine=replace(TABLE.engine, zookeeper_path="/tables/u"))
ATTACH = """ATTACH TABLE t (n UInt64)
ENGINE = ReplicatedMergeTree('/tables/t', '{replica}') ORDER BY n"""


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(sql_tables, "ACTIVE_WAIT_S", 0.0)


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:40])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbage(file: Path) -> None:
    file.write_bytes(bytes(range(256)))


def nested(file: Path) -> None:
    file.write_bytes(b"[" * 100_000)


def of_another_kind(file: Path) -> None:
    file.write_text('{"format": 1, "dropped_s": null, "definition": {}, "replica_czxid": "x"}')


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = (truncated, emptied, garbage, nested, of_another_kind, directory)


def half_dropped(context) -> None:
    catalog = context.catalog
    with catalog.begin_drop(catalog.definition(*T), 7):
        pass


def half_removed(context) -> None:
    context.drop_table(*T, sync=False)
    [dropped] = context.catalog.dropped()
    with context.catalog.begin_removal(dropped):
        pass


STATES: dict[str, Callable] = {
    "t.json": lambda context: None,
    "t.detached": lambda context: context.detach_table(*T),
    "t.permanent": lambda context: context.detach_table(*T, permanently=True),
    "t.dropping": half_dropped,
    ".dropped/*.json": lambda context: context.drop_table(*T, sync=False),
    ".dropped/*.removing": half_removed,
}


def made(directory: Path) -> World:
    """Tables t and u, each with a part."""
    world = World(directory)
    tables, keeper = world.server()
    for definition in (TABLE, U):
        world.context().create_table(definition)
    looked(tables, keeper)
    for name in ("t", "u"):
        insert(world.context().table(name), b"rows")
    return world


def metadata(world: World) -> Path:
    return Path(world.config.server("r1").data) / "metadata"


def files_in(path: Path) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes() if file.is_file() else b""
        for file in sorted([*path.glob("default/t.*"), *path.glob(".dropped/*")])
    }


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("state", STATES)
def test_every_other_table_is_served_and_the_file_is_named(tmp_path, state, damage):
    world = made(tmp_path)
    STATES[state](world.context())
    world.expire_all()
    [file] = [*metadata(world).glob(f"default/{state}"), *metadata(world).glob(state)]
    damage(file)
    before = files_in(metadata(world))
    context = world.context()
    context.catalog.attach_again()  # as every start
    before_start = files_in(metadata(world))
    assert list(before.values()) == list(before_start.values())
    tables, keeper = world.server()
    looked(tables, keeper)
    looked(tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active]
    [problem] = tables.damaged
    assert str(file.with_suffix("")) in problem
    assert "Put a copy" in problem
    assert server_status("r1", keeper, tables).words == "damaged files"
    assert len(context.table("u").parts()) == 1
    session = Session(context)
    session.execute(
        "CREATE TABLE v (n UInt64) ENGINE = ReplicatedMergeTree('/v', 'r1') ORDER BY n"
    )
    session.execute("RENAME TABLE u TO w")
    insert(context.table("w"), b"more")
    [(count,)] = rows(session, "SELECT count() FROM system.tables WHERE database = 'default'")
    assert count == 2
    session.execute("DROP TABLE w SYNC")
    session.execute("DROP TABLE v")
    with pytest.raises(UnknownTable, match="does not exist"):
        session.execute("DROP TABLE nosuch")
    looked(tables, keeper)
    left = files_in(metadata(world))
    assert {name: left[name] for name in before_start} == before_start


def test_a_table_whose_file_was_damaged_is_attached_as_the_error_says(tmp_path):
    world = made(tmp_path)
    world.expire_all()
    file = metadata(world) / "default" / "t.json"
    file.write_bytes(b"")
    with pytest.raises(Corruption, match="move the file out of the server's metadata/"):
        world.context().table("t")
    file.rename(tmp_path / "t.json")
    Session(world.context()).execute(ATTACH)
    tables, keeper = world.server()
    looked(tables, keeper)
    assert [type(one.state) for one in tables.all.values()] == [Active, Active]
    assert len(world.context().table("t").parts()) == 1
    assert world.context().table("t").replica.store.parts()


def test_a_new_table_does_not_get_a_directory_that_may_be_anothers(tmp_path):
    """u was called t once, and has its directory."""
    world = made(tmp_path)
    context = world.context()
    context.drop_table("default", "u")
    context.rename_tables((T, ("default", "u")))
    file = metadata(world) / "default" / "u.json"
    whole = file.read_bytes()
    file.write_bytes(b"")
    elsewhere = replace(TABLE, engine=replace(TABLE.engine, zookeeper_path="/tables/new"))
    with pytest.raises(Corruption, match=r"u\.json"):
        context.create_table(elsewhere)
    file.write_bytes(whole)
    assert context.create_table(elsewhere)
    catalog = context.catalog
    directories = {catalog.table_directory(one) for one in catalog.definitions()}
    assert len(directories) == 2


def test_a_database_with_a_damaged_file_is_neither_dropped_nor_renamed(tmp_path):
    world = World(tmp_path)
    session = Session(world.context())
    session.execute("CREATE DATABASE d")
    for name in ("a", "t"):
        world.context().create_table(
            replace(
                TABLE,
                database="d",
                name=name,
                engine=replace(TABLE.engine, zookeeper_path=f"/d/{name}"),
            )
        )
    (metadata(world) / "d" / "t.json").write_bytes(b"")
    for query in ("DROP DATABASE d SYNC", "RENAME DATABASE d TO e"):
        with pytest.raises(Corruption, match=r"t\.json"):
            session.execute(query)
    assert world.context().catalog.tables("d") == ["a", "t"]


def test_a_damaged_note_of_a_replicated_database_holds_up_that_database_alone(tmp_path):
    world = World(tmp_path)
    catalog = world.context().catalog
    database = ReplicatedDatabase("/databases/d", "1", "r1", "Replicated(…)", is_dropping=True)
    catalog.create_database("d", replicated=encode_replicated(database))
    catalog.replicated_file("d").write_bytes(json.dumps([1]).encode())
    loops = TaskLoops(world.config, "r1", catalog)
    loops.follow_catalog()
    with pytest.raises(Corruption, match=r"d\.replicated"):
        Session(world.context()).execute(
            "CREATE TABLE d.t (n UInt64) ENGINE = MergeTree ORDER BY n"
        )
    assert world.context().create_table(TABLE)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"[]", b'{"replaced": [[1]], "gone": 2}']
)
def test_a_damaged_journal_is_named_and_nothing_is_served_from_half_a_rename(tmp_path, content):
    world = made(tmp_path)
    (metadata(world) / ".renaming").write_bytes(content)
    with pytest.raises(Corruption, match=r"\.renaming .*remove the journal"):
        world.context()
    assert (metadata(world) / ".renaming").read_bytes() == content


def test_a_damaged_version_is_as_good_as_any(tmp_path):
    world = made(tmp_path)
    catalog = world.context().catalog
    (metadata(world) / ".version").write_bytes(b"\xff\xfe")
    version = catalog.version()
    catalog.create_database("e")
    assert catalog.version() != version
