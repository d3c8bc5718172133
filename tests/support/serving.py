"""A server in a thread of the test, and what tests ask it."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from examples.flights.ports import free_port
from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.config import Config, load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange import control
from rmt_pipeline.protocol.errors import ReplicaRetired, RmtError, Unavailable
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.server.process import StopSwitch, serve_until
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.keeper import Keeper
from tests.support.exchange import manifest_of
from tests.support.waiting import LASTING_S, LIMIT_S, until

SHORT_S = 4.0  # a session that is to end; nothing but that may depend on it


def config_at(
    directory: Path, hosts: str, *, data: Mapping[str, str] | None = None, **options: Any
) -> Config:
    """Servers r1 and r2, or those of `data` (name: directory), on free ports."""
    options = {"session_timeout_s": LASTING_S, "connect_timeout_s": LASTING_S, **options}
    lines = ["[zookeeper]", f'hosts = "{hosts}"']
    lines += [f"{key} = {value}" for key, value in options.items()]
    for name, place in (data or {"r1": "r1", "r2": "r2"}).items():
        lines += [
            f"[servers.{name}]",
            f'data = "{place}"',
            f'listen = "127.0.0.1:{free_port()}"',
            f'macros = {{shard = "01", replica = "{name}"}}',
        ]
    file = directory / "rmt.toml"
    file.write_text("\n".join(lines))
    return load_config(file)


def definition_of(root: str, replica: str = "r1", name: str = "t") -> TableDefinition:
    return TableDefinition(
        database="default",
        name=name,
        columns=(Column("n", "UInt64"),),
        engine=Engine("MergeTree", root, replica),
        order_by=("n",),
    )


def create(
    config: Config, keeper: Keeper, definition: TableDefinition, server: str = "r1"
) -> None:
    """What CREATE TABLE does."""
    create_replica(keeper, definition, b"test")
    Catalog(config.server(server).data).add(definition)


def insert(table: Table, *blocks: bytes) -> list[str]:
    """Inserts that need no engine: each block's bytes are its part's only file."""
    names: list[str] = []
    for data in blocks:
        row_hash = int.from_bytes(hashlib.sha256(data).digest()[:16])
        manifest = replace(
            manifest_of({"data-00000.parquet": data}),
            content_hash=row_hash,
            row_hash=row_hash,
            column_hashes={"n": row_hash},
        )
        staging = table.store.begin("insert", manifest.partition_id)
        staging.write("data-00000.parquet", data)
        result = table.commit([staging.seal(manifest)])
        names += [str(part) for part in result.parts]
    return names


NOT_NOW: tuple[type[RmtError], ...] = (Unavailable, ReplicaRetired)
"""Nothing was done: the server is away, or ZooKeeper is, or the session of who asks is over because
the machine stood still for a while.
"""
Answer = TypeVar("Answer")


def patiently(
    action: Callable[[], Answer], again: tuple[type[RmtError], ...] = NOT_NOW
) -> Answer:
    """Again after such an error, as a person would, until there is an answer."""
    until_s = time.monotonic() + LIMIT_S
    while True:
        try:
            return action()
        except again as error:
            if time.monotonic() > until_s:
                raise AssertionError("it is never done") from error
            time.sleep(0.1)


ANSWER_S = 10.0  # who has not answered by then is asked again


class Served:
    """A server that runs in a thread while the block does; its error is raised at the end."""

    def __init__(self, config: Config, name: str = "r1", *, work: bool = False) -> None:
        self.url = f"http://{config.server(name).listen}"
        self._config = config
        self._name = name
        self._work = work
        self._switch = StopSwitch()
        self._error: RmtError | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self.until(lambda: self.health() is not None or not self._thread.is_alive())
        self._raise()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> float:
        """How many seconds it took."""
        began_s = time.monotonic()
        self._switch.ask()
        self._thread.join()
        return time.monotonic() - began_s

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def ended(self) -> RmtError | None:
        """Waits until it ends by itself."""
        self._thread.join(LIMIT_S)
        return self._error

    def health(self) -> dict[str, Any] | None:
        with suppress(Unavailable):
            return control.health(self._config, self._config.server(self._name), ANSWER_S)
        return None

    def table(self, name: str = "t") -> dict[str, Any] | None:
        found = self.health()
        tables = found["tables"] if found else []
        return next((table for table in tables if table["table"] == name), None)

    def is_active(self, name: str = "t") -> bool:
        table = self.table(name)
        return table is not None and not table["readonly"]

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, lambda: f"the server says {self.health()}")

    def _run(self) -> None:
        try:
            serve_until(self._switch, self._config, self._name, work=self._work)
        except RmtError as error:
            self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


@contextmanager
def table_of_one_server(
    config: Config, root: str, define: Callable[[str], TableDefinition] = definition_of
) -> Iterator[Table]:
    """An empty table `t` below `root`, active on server r1, which works no queue."""
    with ServerContext.open(config, "r1") as context:
        create(config, context.keeper(), define(root))
        with Served(config) as served:
            served.until(served.is_active)
            yield context.table("t")


def forget(catalog: Catalog, database: str = "default", name: str = "t") -> None:
    """What a DROP does to the catalog: it has the table no more, and a mark stays that the table's
    directory was used. Nothing else changes.
    """
    definition = catalog.definition(database, name)
    with catalog.begin_drop(definition, 0):
        catalog.end_drop(definition)
