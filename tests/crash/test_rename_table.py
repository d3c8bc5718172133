"""RENAME TABLE, EXCHANGE TABLES, RENAME DATABASE: all or none wherever it is cut off, and whoever
works on the table goes on.
"""

from dataclasses import replace

import pytest

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.protocol.errors import ReplicaAlreadyExists, TableAlreadyExists, UnknownTable
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import work
from rmt_pipeline.server.tables import Active
from rmt_pipeline.system import EventWaker
from tests.support.hosts import TABLE, World, dying, looked, served
from tests.support.local_replicas import DirectPeers
from tests.support.serving import insert

EFFECTS_MAX = 80
A, B, C, T = (("default", name) for name in "abct")
ROOT = "/tables/t/replicas/r1"


def table(name: str, path: str = "") -> TableDefinition:
    engine = replace(TABLE.engine, zookeeper_path=f"/tables/{path or name}")
    return replace(TABLE, name=name, engine=engine)


def with_tables(directory, *names: str) -> World:
    """On r1, active, each with a part that holds its first name."""
    world = World(directory)
    for name in names:
        world.context().create_table(table(name))
    served(world, "r1")
    for name in names:
        insert(world.context().table(name), name.encode())
    world.expire_all()
    return world


def whose(world: World) -> dict[str, bytes]:
    """What is in each table's only part, as another process sees it."""
    context = world.context()
    found = {}
    for definition in context.catalog.definitions():
        [part] = (one.name for one in context.table_of(definition).parts())
        found[definition.name] = (
            context.catalog.table_directory(definition) / str(part) / "data-00000.parquet"
        ).read_bytes()
    return found


CHANGES = {
    "rename": lambda catalog: catalog.rename_tables([(A, C)]),
    "exchange": lambda catalog: catalog.exchange_tables(A, B),
    "several": lambda catalog: catalog.rename_tables([(A, C), (B, A), (C, B)]),
    "a chain": lambda catalog: catalog.rename_tables([(A, C), (B, A)]),
}
AFTER = {
    "rename": {"b": b"b", "c": b"a"},
    "exchange": {"a": b"b", "b": b"a"},
    "several": {"a": b"b", "b": b"a"},
    "a chain": {"a": b"b", "c": b"a"},
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("after", [False, True])
def test_a_rename_that_is_cut_off_has_happened_or_not(tmp_path, monkeypatch, name, after):
    before, seen = {"a": b"a", "b": b"b"}, []
    for at in range(1, EFFECTS_MAX):
        world = with_tables(tmp_path / str(at), "a", "b")
        ended = False
        with dying(monkeypatch, at, after=after):
            CHANGES[name](world.context().catalog)
            ended = True
        seen.append(whose(world))
        [(tables, _)] = served(world, "r1")
        assert [type(one.state) for one in tables.all.values()] == [Active, Active], at
        assert {name for _, name in tables.all} == {*seen[-1]}, at
        if ended:
            break
    assert seen[-1] == AFTER[name]
    assert seen[0] == before
    assert [one for one in seen if one not in (before, AFTER[name])] == []
    assert len(seen) > 8


def test_a_reader_of_the_same_moment_sees_each_table_once(tmp_path, monkeypatch):
    """The process that renames stands still between any two of its effects."""
    for at in range(1, EFFECTS_MAX):
        world = with_tables(tmp_path / str(at), "a", "b")
        catalog = world.context().catalog
        uuids = {one.uuid for one in catalog.definitions()}
        with dying(monkeypatch, at, after=True):
            catalog.exchange_tables(A, B)
        # It stands still without its lock, which is worse than what can be.
        seen = Catalog(catalog.data).definitions()
        assert {one.uuid for one in seen} == uuids, at
        if whose(world) == AFTER["exchange"] and at > 12:
            return


def test_a_drop_that_died_before_it_had_dropped_anything_does_not_follow_the_table(
    tmp_path, monkeypatch
):
    """It left a note under the old name, which means nothing while the table is there."""
    left = 0
    for change in ("rename", "detach"):
        for at in range(1, EFFECTS_MAX):
            world = with_tables(tmp_path / f"{change} {at}", "a")
            ended = False
            with dying(monkeypatch, at, after=True) as mortal:
                context = world.context(keeper=mortal(world.zookeeper.connect()))
                context.drop_table(*A)
                ended = True
            catalog = world.context().catalog
            if ended or not catalog.has(*A):
                break
            left += (catalog.data / "metadata" / "default" / "a.dropping").exists()
            if change == "rename":
                world.context().rename_tables((A, C))
            else:
                world.context().detach_table(*A, permanently=True)
            world.expire_all()
            served(world, "r1")
            assert "/tables/a/replicas/r1/host" in world.zookeeper.nodes, (change, at)
            assert not catalog.is_dropping(*A)
    assert left >= 2


def test_a_renamed_table_stays_active_and_tells_its_new_name(tmp_path):
    world = with_tables(tmp_path, "t")
    [(tables, keeper)] = served(world, "r1")
    [before] = tables.all.values()
    session = world.zookeeper.nodes[f"{ROOT}/is_active"].owner
    world.context().catalog.create_database("d")
    world.context().rename_tables((T, ("d", "new")))
    looked(tables, keeper)
    assert dict(tables.all) == {("d", "new"): before}
    assert isinstance(before.state, Active)
    assert before.state.replica.definition.full_name == "d.new"
    assert world.zookeeper.nodes[f"{ROOT}/is_active"].owner == session
    address = ReplicaAddress.decode(world.zookeeper.nodes[f"{ROOT}/host"].data)
    assert (address.database, address.table) == ("d", "new")


def test_who_has_opened_a_table_goes_on_with_it_under_its_new_name(tmp_path):
    world = with_tables(tmp_path, "t")
    [(tables, keeper)] = served(world, "r1")
    opened = world.context().table("t")
    assert opened.replica.definition.name == "t"
    world.context().rename_tables((T, A))
    looked(tables, keeper)
    insert(opened, b"second")
    assert opened.definition.full_name == opened.replica.definition.full_name == "default.a"
    changed = opened.replica.update_definition(lambda now: replace(now, comment="altered"))
    assert (changed.name, changed.comment) == ("a", "altered")
    assert world.context().catalog.definition(*A).comment == "altered"
    world.context().create_table(table("t", "other"))
    looked(tables, keeper)
    insert(opened, b"third")
    assert len(world.context().table("a").parts()) == 3
    assert world.context().table("t").parts() == []
    directories = [one.store.disk.local_path("x") for one in tables.all.values()]
    assert len(set(directories)) == 2, "two tables have one directory"
    world.context().drop_table(*T)
    assert len(world.context().table("a").parts()) == 3
    world.context().detach_table(*A)
    with pytest.raises(UnknownTable, match=r"default\.a is detached"):
        _ = opened.replica


def test_a_worker_of_another_process_goes_on_with_a_renamed_table(tmp_path):
    world = with_tables(tmp_path, "t")
    [(tables, keeper)] = served(world, "r1")
    opened = world.context().table("t")
    flushed, looks = [], []

    class Waker(EventWaker):
        def wait_s(self, timeout_s: float) -> bool:
            looks.append(timeout_s)
            if len(looks) == 2:
                world.context().rename_tables((T, A))
                looked(tables, keeper)
                insert(world.context().table("a"), b"later")
            return True

    work(
        lambda: opened.replica,
        Tools(DirectPeers({}), LocalMerger(world.clock), LocalMutator(world.clock)),
        "fetch",
        waker=Waker(),
        linger_s=None,
        on_flush=flushed.append,
        should_stop=lambda: len(looks) > 6,
    )
    queue = [path for path in world.zookeeper.nodes if path.startswith(f"{ROOT}/queue/")]
    assert queue == [], "the entry of the insert after the renaming was not worked"


def test_what_is_renamed_to_must_be_free(tmp_path):
    world = with_tables(tmp_path, "a", "b")
    context = world.context()
    for moves in ([(A, B)], [(A, A)], [(A, C), (B, C)]):
        with pytest.raises(TableAlreadyExists, match="already exists"):
            context.rename_tables(*moves)
    with pytest.raises(UnknownTable, match="does not exist"):
        context.rename_tables((A, C), (A, T))
    context.detach_table(*B)
    with pytest.raises(TableAlreadyExists, match="ATTACH TABLE takes it up again"):
        context.rename_tables((A, B))
    assert context.catalog.tables("default") == ["a"]
    context.rename_tables((A, C))
    with pytest.raises(ReplicaAlreadyExists, match=r"Here it is default\.c's$"):
        context.create_table(table("a"))


def test_a_renamed_database_takes_its_tables_along_and_a_new_one_has_its_own(
    tmp_path, monkeypatch
):
    for after in (False, True):
        for at in range(1, EFFECTS_MAX):
            world = World(tmp_path / f"{at} {after}")
            world.context().catalog.create_database("d")
            for name in ("a", "b", "c"):
                world.context().create_table(replace(table(name), database="d"))
            served(world, "r1")
            insert(world.context().table("a", "d"), b"a")
            world.context().detach_table("d", "b", permanently=True)
            world.expire_all()
            ended = False
            with dying(monkeypatch, at, after=after):
                world.context().rename_database("d", "e")
                ended = True
            catalog = world.context().catalog
            [database] = [name for name in catalog.databases() if name != "default"]
            assert catalog.tables(database) == ["a", "c"]
            assert [one.definition.full_name for one in catalog.detached()] == [f"{database}.b"]
            assert len(world.context().table("a", database).parts()) == 1
            if ended:
                assert at > 2
                break
    catalog.create_database("d")
    for name in ("a", "c"):
        fresh = table(name, f"new {name}".replace(" ", "_"))
        world.context().create_table(replace(fresh, database="d"))
    [(tables, _)] = served(world, "r1")
    assert [type(one.state) for one in tables.all.values()] == [Active] * 4
    assert world.context().table("a", "d").parts() == []
    assert len({one.store.disk.local_path("x") for one in tables.all.values()}) == 4
