"""Hosts with servers of one table, in this process: real catalogs and real parts, a ZooKeeper in
memory; and a process that dies at any of its effects, in ZooKeeper and on the disk.
"""

import os
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path

from rmt_pipeline.config import Address, Config, load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.server.tables import Active, Identity, Tables
from rmt_pipeline.system import RandomIds
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
from tests.support.local_replicas import StillClock
from tests.support.mortal_disk import Died

FILE_EFFECTS = ("fsync", "replace", "rename", "unlink", "rmdir")
TABLE = TableDefinition(
    "default",
    "t",
    (Column("n", "UInt64"),),
    Engine("MergeTree", "/tables/t", "{replica}"),
    ("n",),
)


class World:
    """One host with a server r1 and, for the other replica of the table, a host with r2."""

    def __init__(self, directory: Path) -> None:
        self.clock = StillClock()
        self.zookeeper = FakeZooKeeper(self.clock)
        self.config = config_at(directory)

    def context(self, server: str = "r1", keeper: FakeKeeper | None = None) -> ServerContext:
        context = ServerContext(self.config, server, clock=self.clock)
        context.use(keeper or self.zookeeper.connect())
        return context

    def server(self, name: str = "r1") -> tuple[Tables, FakeKeeper]:
        identity = Identity(name, RandomIds().new_id(), Address("127.0.0.1", 1))
        catalog = self.context(name).catalog
        tables = Tables(catalog, self.clock, RandomIds(), identity, lambda: None)
        return tables, self.zookeeper.connect()

    def served(self, name: str = "r1") -> Tables:
        """A server that has started and looked."""
        tables, keeper = self.server(name)
        tables.follow_catalog(keeper)
        tables.look(keeper)
        return tables

    def expire_all(self) -> None:
        for session in list(self.zookeeper.sessions):
            self.zookeeper.expire(session)

    def is_clean(self) -> bool:
        """Nothing is left of the table, nor of a replica of it."""
        below = [path for path in self.zookeeper.nodes if path.startswith("/tables/t")]
        files = [str(file) for file in Path(self.config.server("r1").data).rglob("*t.*")]
        parts = [str(file) for file in Path(self.config.server("r1").data).glob("data/*/t")]
        return below == files == parts == []


def config_at(directory: Path) -> Config:
    lines = ["[zookeeper]", 'hosts = "127.0.0.1:1"']
    for number, name in enumerate(("r1", "r2")):
        lines += [
            f"[servers.{name}]",
            f"data = '{directory / name}'",
            f"listen = '127.0.0.1:{20000 + number}'",
            f"macros = {{replica = '{name}'}}",
        ]
    file = directory / "rmt.toml"
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))
    return load_config(file)


class Dying:
    """The process dies at its effect of that number: before it, or after. The dead have none."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left, self.after = at, after

    def effect(self, real: Callable, *arguments, **options):
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Died
        try:
            return real(*arguments, **options)
        finally:
            if self.left == 0:
                raise Died


class DyingKeeper:
    def __init__(self, keeper: FakeKeeper, dying: Dying) -> None:
        self._keeper, self._dying = keeper, dying

    def multi(self, ops):
        return self._dying.effect(self._keeper.multi, ops)

    def multi_many(self, multis):
        return self._dying.effect(self._keeper.multi_many, multis)

    def __getattr__(self, name):
        return getattr(self._keeper, name)


@contextmanager
def dying(monkeypatch, at: int, *, after: bool, files: tuple[str, ...] = FILE_EFFECTS):
    """Everything that the process does to files, and `keeper`, which it is given."""
    death = Dying(at, after=after)
    with monkeypatch.context() as patch:
        for name in files:
            real = getattr(os, name)
            patch.setattr(os, name, lambda *a, real=real, **o: death.effect(real, *a, **o))
        with suppress(Died):
            yield lambda keeper: DyingKeeper(keeper, death)


def with_table(directory: Path, *others: str) -> World:
    """The table is active on r1, and created on the others, and has a part's directory on r1."""
    world = World(directory)
    context = world.context()
    for name in ("r1", *others):
        world.context(name).create_table(TABLE)
    for name in ("r1", *others):
        [table] = world.served(name).all.values()
        assert isinstance(table.state, Active), table.state
    definition = context.catalog.definition("default", "t")
    part = context.catalog.table_directory(definition) / "all_0_0_0"
    part.mkdir(parents=True)
    (part / "data").write_text("rows")
    world.expire_all()
    return world


class Pausing:
    """Before its multi of that number something else happens."""

    def __init__(self, keeper: FakeKeeper, at: int, meanwhile: Callable[[], None]) -> None:
        self._keeper, self._left, self._meanwhile = keeper, at, meanwhile

    def multi(self, ops):
        self._left -= 1
        if self._left == 0:
            self._meanwhile()
        return self._keeper.multi(ops)

    def multi_many(self, multis):
        return FakeKeeper.multi_many(self, multis)

    def __getattr__(self, name):
        return getattr(self._keeper, name)


def looked(tables: Tables, keeper) -> None:
    tables.follow_catalog(keeper)
    tables.look(keeper)


def served(world: World, *servers: str) -> list[tuple[Tables, object]]:
    """Running servers, which have started and looked."""
    running = [world.server(name) for name in servers]
    for tables, keeper in running:
        looked(tables, keeper)
    return running
