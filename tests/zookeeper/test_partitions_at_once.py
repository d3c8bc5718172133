"""Inserts, merges, DROP, REPLACE and MOVE PARTITION and overwrites of the same partitions at once,
through two servers, of which one is killed now and then.

    make soak-partitions MINUTES=1

Storms of two seconds; after each of them the queues empty, the replicas are compared by the hashes
of their rows, and what they show is noted. What clients saw meanwhile is noted too. In the end
`tests.soak.partitions` judges all of it.
"""

import math
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    OutcomeUnknown,
    ReplicaRetired,
    TableIsReadOnly,
    Unavailable,
    Unfinished,
)
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.replica.insert.result import InsertCancelled
from rmt_pipeline.replica.partitions.from_table import EmptySource
from rmt_pipeline.replica.reading import ReadWithoutZooKeeper
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table
from tests.soak.partitions import Act, Kind, Look, Unit, Verdict, judge
from tests.support.local_server import Server
from tests.support.serving import NOT_NOW, SHORT_S, config_at, create, patiently
from tests.support.time_limit import TEST_LIMIT_S, time_limit
from tests.support.waiting import until

pytestmark = pytest.mark.zookeeper

SECONDS = float(os.environ.get("RMT_SECONDS", "10"))
STORM_S = 2.0
REPLICAS = ("r1", "r2")
TABLES = ("t", "source", "sink")
PARTITIONS = ("1", "2", "3")
KINDS: tuple[Kind, ...] = ("drop", "replace", "replace", "put", "put", "move")
NOTHING: Unit = frozenset()
FULL = 0.8  # of what is put into the source
ROWS_MAX, SOURCE_ROWS, SOURCE_BLOCK = 12, 12, 4
INSERTERS = 2  # through each server
KILLED_EVERY = 4  # storms
SETTINGS = (("merge_selecting_sleep_ms", "100"), ("old_parts_lifetime", "1"))
IN_BLOCKS = {"max_insert_block_size": SOURCE_BLOCK, "min_insert_block_size_rows": SOURCE_BLOCK}
CLOCK = SystemClock()


def definition(root: str, name: str, replica: str) -> TableDefinition:
    return TableDefinition(
        database="default",
        name=name,
        columns=(Column("p", "UInt8"), Column("key", "Int64")),
        engine=Engine("MergeTree", f"{root}/{name}", replica),
        order_by=("key",),
        partition_by=("p",),
        settings=SETTINGS,
    )


@dataclass
class History:
    """What was said and answered, and seen. Appended to by several threads."""

    acts: list[Act] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    keys: Iterator[int] = field(default_factory=lambda: count(1))
    source: dict[str, list[Act]] = field(
        default_factory=lambda: {partition: [] for partition in PARTITIONS}
    )
    """What was done to each partition of `source`, by one client."""

    def new(self, rows: int) -> Unit:
        return frozenset(next(self.keys) for _ in range(rows))

    def all_acts(self) -> list[Act]:
        """What REPLACE brought is what the source may have had meanwhile."""
        return [
            replace(act, brings=self._in_source(act)) if act.kind == "replace" else act
            for act in self.acts
        ]

    def _in_source(self, act: Act) -> tuple[Unit, ...]:
        versions = self.source[act.partition]
        return tuple(
            version.brings[0]
            for number, version in enumerate(versions)
            if version.brings
            and version.begin_s <= act.end_s
            and not any(later.is_before(act) for later in versions[number + 1 :])
        )


def rows_of(units: dict[str, Unit]) -> pa.Table:
    rows = [(int(partition), key) for partition, unit in units.items() for key in sorted(unit)]
    return pa.table(
        {
            "p": pa.array([partition for partition, _ in rows], pa.uint8()),
            "key": pa.array([key for _, key in rows], pa.int64()),
        }
    )


def keys_of(table: Table) -> tuple[int, ...]:
    with table.snapshot() as snapshot:
        found = [pq.read_table(file, columns=["key"])["key"] for file in snapshot.files]
    return tuple(sorted(key for keys in found for key in keys.to_pylist()))


@dataclass
class Client:
    """One thread, with a session of its own. Each turn is a statement or a look."""

    context: ServerContext
    history: History
    rng: random.Random

    def table(self, name: str = "t") -> Table:
        return self.context.table(name)

    def say(
        self,
        kind: Kind,
        partition: str,
        statement: Callable[[], object],
        brings: Unit = NOTHING,
    ) -> Iterator[Act]:
        """What it did; nothing if the server is away, somebody else was first, or nothing was there
        to be taken.
        """
        begin_s, server, done = CLOCK.monotonic_s(), self.context.server.name, True
        try:
            statement()
        except Unfinished:
            server = ""  # it is in the log
        except (OutcomeUnknown, ReplicaRetired):
            done = False  # or nobody knows
        except TableIsReadOnly:
            CLOCK.sleep_s(0.1)
            return
        except (InsertCancelled, EmptySource, Unavailable) as error:
            self.history.refused[f"{kind}: {error.code}"] += 1
            return
        brought = (brings,) if brings else ()
        yield Act(kind, partition, begin_s, CLOCK.monotonic_s(), server, brought, done)

    def insert(self) -> None:
        some = self.rng.sample(PARTITIONS, self.rng.randint(1, 2))
        units = {one: self.history.new(self.rng.randint(1, ROWS_MAX)) for one in some}
        for act in self.say("insert", "", lambda: self.table().insert(rows_of(units))):
            self.history.acts += [
                replace(act, partition=partition, brings=(unit,))
                for partition, unit in units.items()
            ]
        CLOCK.sleep_s(self.rng.uniform(0, 0.2))

    def change(self) -> None:
        kind, partition = self.rng.choice(KINDS), self.rng.choice(PARTITIONS)
        new = self.history.new(self.rng.randint(1, ROWS_MAX)) if kind == "put" else NOTHING
        statements: dict[Kind, Callable[[], object]] = {
            "drop": lambda: self.table().drop_partitions([partition]),
            "move": lambda: self.table().move_partition(partition, self.table("sink")),
            "replace": lambda: self.table().replace_partition(partition, self.table("source")),
            "put": lambda: self.table().replace(rows_of({partition: new}), partition=partition),
        }
        self.history.acts += self.say(kind, partition, statements[kind], new)
        CLOCK.sleep_s(self.rng.uniform(0, 0.8))

    def renew(self) -> None:
        """Some other rows are in `source`, in several parts that merge; or none."""
        partition, source = self.rng.choice(PARTITIONS), self.table("source")
        unit = self.history.new(SOURCE_ROWS if self.rng.random() < FULL else 0)
        rows, versions = rows_of({partition: unit}), self.history.source[partition]
        under_way = Act(
            "put", partition, CLOCK.monotonic_s(), math.inf, "", (unit,), done=False
        )
        versions.append(under_way if unit else replace(under_way, brings=()))
        if unit:
            said = self.say(
                "put",
                partition,
                lambda: source.replace(rows, partition=partition, settings=IN_BLOCKS),
                unit,
            )
        else:
            said = self.say("drop", partition, lambda: source.drop_partitions([partition]))
        versions[-1:] = said
        CLOCK.sleep_s(self.rng.uniform(0, 0.5))

    def look(self) -> None:
        begin_s = CLOCK.monotonic_s()
        try:
            keys = keys_of(self.table())
        except (*NOT_NOW, ReadWithoutZooKeeper):
            return
        self.history.looks.append(
            Look(self.context.server.name, keys, begin_s, CLOCK.monotonic_s())
        )
        CLOCK.sleep_s(self.rng.uniform(0, 0.2))


@dataclass
class World:
    contexts: dict[str, ServerContext]
    servers: dict[str, Server]
    opened: ExitStack
    history: History = field(default_factory=History)

    def client(self, name: str, rng: random.Random) -> Client:
        context = ServerContext.open(self.contexts[name].config, name)
        return Client(
            self.opened.enter_context(context), self.history, random.Random(rng.random())
        )

    def turns(self, rng: random.Random) -> list[Callable[[], None]]:
        """What each thread does again and again."""
        found = [self.client("r1", rng).renew]
        for name in REPLICAS:
            found += [self.client(name, rng).insert for _ in range(INSERTERS)]
            found += [self.client(name, rng).change, self.client(name, rng).look]
        return found

    def storm(self, turns: list[Callable[[], None]], killed: str) -> None:
        until_s = CLOCK.monotonic_s() + STORM_S
        errors: list[BaseException] = []

        def run(turn: Callable[[], None]) -> None:
            try:
                while CLOCK.monotonic_s() < until_s:
                    turn()
            except BaseException as error:  # noqa: BLE001  asserted below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(turn,)) for turn in turns]
        for thread in threads:
            thread.start()
        if killed:
            CLOCK.sleep_s(STORM_S / 2)
            self.servers[killed].kill()
        for thread in threads:
            thread.join()
        assert errors == []

    def calm(self) -> None:
        """Queues empty, the replicas are compared, and what they show is noted."""
        for name in TABLES:
            until(lambda name=name: self._is_even(name))
            compared = patiently(
                lambda name=name: compare_replicas(self.contexts["r1"].table(name).replica)
            )
            assert compared.different == ()
        begin_s = CLOCK.monotonic_s()
        for name, context in self.contexts.items():
            keys, moved = (
                patiently(lambda context=context, one=one: keys_of(context.table(one)))
                for one in ("t", "sink")
            )
            end_s = CLOCK.monotonic_s()
            self.history.looks.append(Look(name, keys, begin_s, end_s, moved))

    def verdict(self) -> Verdict:
        return judge(self.history.all_acts(), self.history.looks)

    def said(self) -> Counter[str]:
        return Counter(act.kind for act in self.history.acts)

    def has_seen_everything(self) -> bool:
        """On a busy machine a storm is a few statements."""
        verdict, said = self.verdict(), self.said()
        parts = self.contexts["r1"].table("sink").parts()
        return (
            min(said[kind] for kind in ("insert", *KINDS)) > 0
            and verdict.must_be_there > 0
            and verdict.must_be_gone > 0
            and any(part.name.level > 0 for part in parts)
        )

    def _is_even(self, name: str) -> bool:
        try:
            for context in self.contexts.values():
                context.table(name).sync()
            return not compare_replicas(self.contexts["r1"].table(name).replica).behind
        except NOT_NOW:
            return False


@pytest.fixture
def world(tmp_path: Path, zookeeper_server, chroot: str) -> Iterator[World]:
    config = config_at(tmp_path, zookeeper_server.hosts, session_timeout_s=SHORT_S)
    with ExitStack() as opened:
        contexts, servers = {}, {}
        for name in REPLICAS:
            contexts[name] = opened.enter_context(ServerContext.open(config, name))
            for table in TABLES:
                create(config, contexts[name].keeper(), definition(chroot, table, name), name)
        for name in REPLICAS:
            servers[name] = Server(config, name, tmp_path / f"{name}.log")
            opened.callback(servers[name].stop)
        yield World(contexts, servers, opened)


def test_partitions_hold_what_some_order_of_all_that_was_said_explains(world: World) -> None:
    """P38, P39, P40."""
    seed = int(os.environ.get("RMT_SEED", random.SystemRandom().randint(0, 2**32)))
    print(f"RMT_SEED={seed}")
    rng = random.Random(seed)
    turns = world.turns(rng)
    world.calm()  # both servers are there
    with time_limit("the storms", TEST_LIMIT_S + 20 * SECONDS):
        for storm in count(1):
            world.storm(turns, rng.choice(REPLICAS) if storm % KILLED_EVERY == 0 else "")
            world.calm()
            if storm * STORM_S >= SECONDS and world.has_seen_everything():
                break
    verdict = world.verdict()
    print(f"{dict(world.said())}, refused {dict(world.history.refused)}")
    print(
        f"{verdict.looks} looks, {verdict.quiet} of them quiet; {verdict.must_be_there} times",
        end=" ",
    )
    print(f"something had to be there, {verdict.must_be_gone} times gone")
    assert verdict.faults == {}
