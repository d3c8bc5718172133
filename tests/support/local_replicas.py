"""Replicas in this process: real disks and the real kernel over a fake ZooKeeper, with a clock that
stands still. Nothing happens but what the test says, step by step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.merge.job import Merger
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.errors import (
    MissingPart,
    NoReplicaHasPart,
    RmtError,
    UnknownTable,
)
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.life.start import Started, start
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone, Step
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.frozen import Shadow
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.executor import Executor
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.parts import CountedIds

ROOT = "/tables/t"
BEGAN_S = 1_700_000_000.0
STEPS_MAX = 1000  # of one pool, until nothing is left that it can do now


@dataclass(slots=True)
class StillClock:
    """Moves only when somebody sleeps or says so; `slept` are the naps."""

    passed_s: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now_s(self) -> float:
        return BEGAN_S + self.passed_s

    def monotonic_s(self) -> float:
        return self.passed_s

    def sleep_s(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.passed_s += seconds


class ClockWaker(EventWaker):
    """Nobody wakes it, and the clock goes on while somebody waits."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__()
        self._clock = clock

    def wait_s(self, seconds: float) -> bool:
        self._clock.passed_s += seconds
        return False


def in_memory(
    replica: Replica,
) -> Callable[[Callable[[TableDefinition], TableDefinition]], TableDefinition]:
    """What changes the definition without a catalog: `Replica.update_definition`."""

    def update(change: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
        replica.definition = change(replica.definition)
        return replica.definition

    return update


def definition_of(
    replica: str,
    columns: Sequence[Column] = (Column("n", "UInt64"),),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> TableDefinition:
    return TableDefinition(
        database="default",
        name="t",
        columns=tuple(columns),
        engine=Engine("MergeTree", ROOT, replica),
        order_by=("n",),
        settings=tuple(settings.items()),
        uuid=f"uuid-of-{replica}",
    )


def by_tens(replica: str) -> TableDefinition:
    """As `definition_of`, with a partition for each ten numbers."""
    return replace(definition_of(replica), partition_by=("intDiv(n, 10)",))


def partitioned(replica: str) -> TableDefinition:
    """By `p`."""
    plain = definition_of(replica, (Column("p", "UInt8"), Column("n", "UInt64")))
    return replace(plain, partition_by=("p",))


class DirectPeers:
    """Fetches by reading the other replica's directory."""

    def __init__(self, stores: Mapping[str, PartStore]) -> None:
        self._stores = stores

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        """All together."""
        yield list(self._fetch_each(requests, store))

    def _fetch_each(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Fetched]:
        for request in requests:
            name = request.endpoint.rpartition("/")[2]
            theirs = self._stores.get(request.endpoint) or self._stores[name]
            try:
                manifest = theirs.verify(request.part)
            except MissingPart as error:
                yield request, NoReplicaHasPart(str(error))
                continue
            except RmtError as error:
                yield request, error
                continue
            staging = store.begin("fetch", str(request.part))
            for file in manifest.files:
                staging.write(file.name, theirs.file_chunks(request.part, file.name))
            yield request, staging.seal(manifest)


@dataclass(slots=True)
class Meanwhile:
    """A waker for a world in which nothing happens but what the test says: at each wait the next of
    `steps` is done; when there is none, the time passes.
    """

    clock: StillClock
    steps: list[Callable[[], object]]

    def wake(self) -> None:
        pass

    def wait_s(self, timeout_s: float) -> bool:
        if self.steps:
            self.steps.pop(0)()
            return True
        self.clock.sleep_s(timeout_s)
        return False


class Replicas:
    """Active replicas of one table, by name."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str] = ("r1", "r2"),
        define: Callable[[str], TableDefinition] = definition_of,
        beside: "Replicas | None" = None,
    ) -> None:
        """`beside`: another table of the same servers, in their sessions."""
        self._define = define
        self._beside = beside
        self.meanwhile: list[Callable[[], object]] = []
        """What others do while an insert waits, one at each wait."""
        self.clock = StillClock() if beside is None else beside.clock
        self.zookeeper = FakeZooKeeper(self.clock) if beside is None else beside.zookeeper
        self._ids = CountedIds() if beside is None else beside._ids
        self._directory = directory
        self.stores = {name: self._store(name) for name in names}
        self._uuids: dict[str, str] = {}
        """Of tables that were created again."""
        self._replicas = {name: self._start(name) for name in names}

    def _store(self, name: str) -> PartStore:
        return PartStore(LocalDisk(self._directory / name), ids=self._ids, durable=False)

    def __getitem__(self, name: str) -> Replica:
        return self._replicas[name]

    def set(self, **settings: Any) -> None:
        """Table settings, for all replicas."""
        for replica in self._replicas.values():
            replica.settings = TableSettings.of(settings)

    def insert(self, name: str, *values: int) -> PartName:
        """One part with these rows."""
        result = self.table(name).insert([{"n": value} for value in values])
        [part] = result.parts
        return part

    def table(self, name: str) -> Table:
        meant = self[name]

        def replica() -> Replica:
            if self[name].definition.uuid != meant.definition.uuid:
                raise UnknownTable("the table was dropped and created again")
            return self[name]

        return Table(
            meant.definition,
            meant.store,
            replica=replica,
            peers=lambda: nullcontext(self.peers()),
            frozen=self.shadow(name).of_table("data/default/t"),
            clock=self.clock,
            new_waker=lambda: Meanwhile(self.clock, self.meanwhile),
        )

    def shadow(self, name: str) -> Shadow:
        """Of the replica's server."""
        disk = LocalDisk(self._directory / f"data of {name}")
        disk.make_directory("")
        return Shadow(disk, clock=self.clock, ids=self._ids, durable=False)

    def step(self, name: str, pool: Pool = "merge", *, merger: Merger | None = None) -> Step:
        """Pull the log, and look at the queue once."""
        pull_log(self[name])
        return self.executor(name, pool, merger=merger).step(None)

    def work_off(self, *names: str) -> list[PartDone]:
        """Whatever these, else all of them, can do now, one replica after the other."""
        done: list[PartDone] = []
        pools: tuple[Pool, ...] = ("fetch", "merge")
        for name, pool in ((name, pool) for name in names or self._replicas for pool in pools):
            for _ in range(STEPS_MAX):
                step = self.step(name, pool)
                if not step.did_something:
                    break
                done += step.done
            else:
                raise AssertionError(f"{name} is never done: {done[-3:]}")
        return done

    def peers(self) -> DirectPeers:
        """Of this table's replicas, and of the other one's."""
        stores = dict(self.stores)
        if self._beside is not None:
            for name, store in self._beside.stores.items():
                stores[self._beside[name].paths.root] = store
        return DirectPeers(stores)

    def executor(self, name: str, pool: Pool, *, merger: Merger | None = None) -> Executor:
        return Executor(self[name], self.tools(merger), pool)

    def tools(self, merger: Merger | None = None) -> Tools:
        merger = merger or LocalMerger(self.clock)
        return Tools(DirectPeers(self.stores), merger, LocalMutator(self.clock))

    def create_again(self, *names: str) -> None:
        """Somebody drops these replicas, and with the last one the table, and creates them again:
        the same paths in ZooKeeper and on disk. What their processes have is of the old ones.
        """
        self.drop(*names)
        self.create(*names)

    def drop(self, *names: str) -> None:
        """Somebody drops these replicas, and with the last one the table."""
        session = self.zookeeper.connect()
        for name in names:
            drop_replica(session, TablePaths(ROOT), name)
            self.stores[name].destroy()

    def create(self, *names: str) -> None:
        """These replicas, which were dropped, or never were."""
        for name in names:
            self.stores[name] = self._store(name)
        for name in names:
            self._uuids[name] = self._ids.new_id()
            self._replicas[name] = self._start(name)

    def parts(self, name: str) -> list[str]:
        """What the replica promises, covered ones too."""
        return self[name].keeper.children(self[name].paths.parts)

    def close(self) -> None:
        for replica in self._replicas.values():
            replica.keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stop(self, name: str) -> None:
        """Its server is killed: all that its session held is gone."""
        self.zookeeper.expire(self[name].keeper.session_id)

    def come_back(self, name: str) -> Started:
        """What its server does when it starts again."""
        self._replicas[name] = self._connected(name)
        return self._begin(self[name])

    def _start(self, name: str) -> Replica:
        replica = self._connected(name)
        create_replica(replica.session, replica.definition, name.encode())
        self._begin(replica)
        return replica

    def _connected(self, name: str) -> Replica:
        beside, definition = self._beside, self._define(name)
        return Replica(
            definition=replace(definition, uuid=self._uuids.get(name, definition.uuid)),
            keeper=self.zookeeper.connect() if beside is None else beside[name].session,
            store=self.stores[name],
            clock=self.clock,
            ids=self._ids,
            settings=TableSettings(),
            worker=f"test of {name}",
            user=f"user of {name}",
            other_store=lambda _, table: (
                beside.stores[name]
                if beside and table == beside[name].definition.name
                else None
            ),
        )

    @staticmethod
    def _begin(replica: Replica) -> Started:
        address = ReplicaAddress(replica.name, 9009, 9000, "default", "t")
        return start(replica, identity=replica.name, incarnation="1", address=address)


@contextmanager
def two_parts(directory: Path) -> Iterator[Replicas]:
    """`all_0_0_0` and `all_1_1_0`, on both replicas."""
    with Replicas(directory) as replicas:
        replicas.insert("r1", 1, 2, 3)
        replicas.insert("r1", 4, 5, 6)
        replicas.step("r1", "fetch")
        replicas.step("r2", "fetch")
        yield replicas
