"""A table whose ZooKeeper loses everything, and replicas that make it again from their disks."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.restoring import NothingToRestore, Restored
from rmt_pipeline.replica.life.start import Started, start
from rmt_pipeline.replica.readable import note_active
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.upkeep.rewound import remember_log, remember_replicas
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import Replicas, definition_of

ROUNDS = 60


class Disaster(Replicas):
    """Replicas that note what servers note, and then lose their ZooKeeper."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str] = ("r1", "r2"),
        *,
        define: Callable[[str], TableDefinition] = definition_of,
        lost: bool = False,
    ) -> None:
        """`lost`: the directories are there, and ZooKeeper has nothing."""
        self._lost = lost
        self.catalog: dict[str, TableDefinition] = {}
        super().__init__(directory, names, define)
        if lost:
            self.clock.passed_s += 2000
        else:
            self.note()

    def _start(self, name: str) -> Replica:
        return self._connected(name) if self._lost else super()._start(name)

    def note(self) -> None:
        """What each server notes while it runs."""
        for replica in self._replicas.values():
            remember_log(replica)
            remember_replicas(replica)
            note_active(replica)

    def wipe(self) -> None:
        self.note()
        self.clock.passed_s += 1000  # nothing is young any more
        self.move_to(FakeZooKeeper(self.clock))

    def copy_of_zookeeper(self, *, without: str = "") -> FakeZooKeeper:
        """What it has now, as it may be restored some day: nothing of a session, and nothing at or
        below the node `without`.
        """
        older = FakeZooKeeper(self.clock)
        older.nodes.update(
            (path, node)
            for path, node in self.zookeeper.nodes.items()
            if not node.owner and not (without and f"{path}/".startswith(f"{without}/"))
        )
        older.zxid = self.zookeeper.zxid
        _forget_children_that_are_gone(older)
        return older

    def go_back_to(self, older: FakeZooKeeper) -> None:
        self.move_to(older)
        self.clock.passed_s += 1000  # nothing is young any more

    def move_to(self, zookeeper: FakeZooKeeper) -> None:
        self.zookeeper = zookeeper
        for name in self._replicas:
            self.connect(name)

    def connect(self, name: str) -> Replica:
        """Another process, with a session of its own. It has read no manifest yet. All processes of
        a replica have one catalog.
        """
        self.stores[name] = self._store(name)
        bound = replace(
            self[name],
            definition=self.catalog.setdefault(name, self[name].definition),
            keeper=self.zookeeper.connect(),
            memory=Memory(),
            store=self.stores[name],
        )

        def update(change: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
            self.catalog[name] = bound.definition = change(self.catalog[name])
            return bound.definition

        bound.update_definition = update
        self._replicas[name] = bound
        return bound

    def restore(self, name: str) -> Restored:
        return restore(self.connect(name), name.encode())

    def start(self, name: str) -> Started:
        address = ReplicaAddress(name, 9009, 9000, "default", "t")
        started = start(self.connect(name), identity=name, incarnation="2", address=address)
        remember_log(self[name])
        return started

    def live_on(self, names: Iterable[str] = ()) -> None:
        """Everybody is active, pulls the log and works until nothing is left to do."""
        names = tuple(names) or tuple(self._replicas)
        for name in names:
            self.start(name)
        for _ in range(ROUNDS):
            for name in names:
                self.step(name, "fetch")
                self.step(name, "merge")
            if not any(self.queue(name) for name in names):
                return
        raise AssertionError({name: self.queue(name) for name in names})

    def queue(self, name: str) -> list[str]:
        return self[name].keeper.children(self[name].paths.queue)

    def values(self, name: str) -> Counter[int]:
        """Of the rows that a reader of this replica gets."""
        active = PartSet(map(PartName.parse, self.parts(name)))
        found = Counter[int]()
        for part in active:
            self[name].store.verify(part)
            found.update(rows_of(self[name], part))
        return found

    def insert_again(
        self,
        name: str,
        *values: int,
        token: str = "",
        settings: Mapping[str, int] | None = None,
    ) -> str:
        rows = [{"n": value} for value in values]
        result = self.table(name).insert(rows, token=token, settings=settings)
        return result.outcome.value


def rows_of(replica: Replica, part: PartName) -> list[int]:
    import pyarrow.parquet as pq  # noqa: PLC0415  only here

    directory = Path(replica.store.directory(part))
    return [
        value
        for file in sorted(directory.glob("*.parquet"))
        for value in pq.read_table(file).column("n").to_pylist()
    ]


def _forget_children_that_are_gone(zookeeper: FakeZooKeeper) -> None:
    """Parents still list the nodes that the copy does not have."""
    for path, node in list(zookeeper.nodes.items()):
        there = frozenset(
            child for child in node.children if f"{path.rstrip('/')}/{child}" in zookeeper.nodes
        )
        if there != node.children:
            zookeeper.nodes[path] = node.with_children(
                there, node.creations, node.children_zxid
            )


def restore_until_open(disaster: Disaster, names: Sequence[str]) -> None:
    """As a person does: again, until it says that all is well."""
    for _ in range(3):
        for name in names:
            with suppress(Conflict, NothingToRestore):
                disaster.restore(name)
