"""Worlds of a Replicated database: its servers are the production supervisor, its loops over the
statements and its catalog on a real disk; clients create, alter, rename, exchange, detach and drop
tables while servers die, join, leave and lose their disks, and the log is cleaned behind them. Then
calm: everybody ends with what the log says, and nobody waits.
"""

import fcntl
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmt_pipeline.zookeeper.connect as connecting
from rmt_pipeline import system
from rmt_pipeline.catalog import catalog as catalogs
from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.cluster.queue import clean_queue
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.config import Address, Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError, UserError
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task, TaskOutcome
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.execute import Tools
from rmt_pipeline.replica.work.worker import work
from rmt_pipeline.server import tasks
from rmt_pipeline.server.status import Counters
from rmt_pipeline.server.supervisor import Supervisor
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.server.tasks import TaskLoops
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.run.task import TaskContext
from rmt_pipeline.syntax.statements import nodes as said
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.zookeeper.paths import DatabasePaths, database_table, sequence_number
from tests.support.cluster import SimWaker
from tests.support.fake_keeper import Node
from tests.support.fast import remembering
from tests.support.local_replicas import DirectPeers
from tests.support.schedule import Kind, Schedule, Swarm
from tests.support.servers import cluster_config
from tests.support.sim_keeper import SimKeeper
from tests.support.world import SESSION_TIMEOUT_S, Host, Process, World

DATABASE = "CREATE DATABASE d ENGINE = Replicated('/databases/d', '{shard}', '{replica}')"
PATHS = DatabasePaths("/databases/d")
SHARDS = (("r1", "r2"), ("r3",))
NAMES = ("t", "u", "v")
STORM_STEPS = 900
CALM_STEPS_MAX = 3_000
CALM_S = 900.0  # an ALTER that nobody carries out is waited for for 300 s
NEVER_S = 1e9
RESTART_S = 0.3
RETRY_S = 0.2
MANY = 10**6
MEMORY = Path("/dev/shm")


class NotSettled(AssertionError):
    """Everybody lives, nothing goes wrong any more, and still something is left undone."""


# --- what must be ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    """A table as the log makes it. Its comment says which CREATE it is of."""

    comment: str
    columns: frozenset[str] = frozenset("n")
    setting: str = ""
    is_detached: bool = False


@dataclass(slots=True)
class Books:
    """What is in the log, in its order, and what clients were told."""

    tables: dict[str, Model] = field(default_factory=dict)
    logged: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    origins: set[str] = field(default_factory=set)
    """Of all tables that ever were."""
    uncertain: set[str] = field(default_factory=set)
    """Comments of tables that some server could not alter, and has told so; and of those of which
    an ALTER was removed from the log while no record knew of it: its client is told TaskRemoved.
    """
    of_task: dict[str, str] = field(default_factory=dict)
    """The comment of the table that each ALTER is of, by the node of the log."""

    def committed(self, nodes: dict[str, Node], before: dict[str, Node | None]) -> None:
        for path, old in before.items():
            if old is not None or path not in nodes:
                continue
            log, _, name = path.rpartition("/")
            if log == PATHS.metadata:
                self.origins.add(TableRecord.decode(nodes[path].data).origin)
            if log == PATHS.queue.root and name.startswith("query-"):
                self.take(name, Task.decode(nodes[path].data).query)
            if log.endswith("/finished") and TaskOutcome.decode(nodes[path].data).code:
                task = log.removesuffix("/finished").rpartition("/")[2]
                if task in self.of_task:
                    self.uncertain.add(self.of_task[task])
        for path in before:
            above, _, name = path.rpartition("/")
            task = above.rpartition("/")[2]
            is_removed = name == "active" and path not in nodes and task in self.of_task
            if is_removed and not self.is_told(nodes, task):
                self.uncertain.add(self.of_task[task])

    def is_told(self, nodes: dict[str, Node], task: str) -> bool:
        """Whether the record of the table that this is an ALTER of knows of it."""
        for name, model in self.tables.items():
            if model.comment == self.of_task[task]:
                record = TableRecord.decode(nodes[PATHS.table(name)].data)
                return record.task >= sequence_number(task)
        return True

    def take(self, task: str, query: str) -> None:
        """What the statement makes of the tables."""
        self.logged.append(query)
        tables, parsed = self.tables, parse(query)
        match parsed:
            case said.CreateTable(table=table):
                assert table.name not in tables, f"{query} is logged, and there is one"
                tables[table.name] = Model(comment_of(query))
            case said.DropTable(tables=(table,)):
                del tables[table.name]
            case said.RenameTables(moves=((old, new),)):
                tables[new.name] = tables.pop(old.name)
            case said.ExchangeTables(one, other):
                tables[one.name], tables[other.name] = tables[other.name], tables[one.name]
            case said.DetachTable(table=table) | said.AttachTable(table=table):
                is_detached = isinstance(parsed, said.DetachTable)
                tables[table.name] = replace(tables[table.name], is_detached=is_detached)
            case said.AlterTable(table=table):
                self.of_task[task] = tables[table.name].comment
                tables[table.name] = altered(tables[table.name], query.split())
            case _:
                raise AssertionError(f"nobody has said {query}")


def altered(table: Model, words: Sequence[str]) -> Model:
    match words:
        case [*_, "ADD", "COLUMN", "IF", "NOT", "EXISTS", column, _]:
            return replace(table, columns=table.columns | {column})
        case [*_, "DROP", "COLUMN", "IF", "EXISTS", column]:
            return replace(table, columns=table.columns - {column})
        case [*_, "MODIFY", "SETTING", _, "=", value]:
            return replace(table, setting=value)
    raise AssertionError(f"nobody has said {words}")


def comment_of(query: str) -> str:
    return query.rpartition("COMMENT '")[2].partition("'")[0]


def model_of(definition: TableDefinition, *, is_detached: bool = False) -> Model:
    """As it is on a server."""
    columns = frozenset(column.name for column in definition.columns)
    setting = dict(definition.settings).get("parts_to_throw_insert", "")
    return Model(definition.comment, columns, setting, is_detached)


# --- the world ---------------------------------------------------------------------------------


class LivingSession(SimKeeper):
    """As a supervisor wants it."""

    session_timeout_s = SESSION_TIMEOUT_S


class Thread:
    """A task of the process that starts it."""

    world: World

    def __init__(self, target: Callable[[], None], **_: object) -> None:
        self._target, self._is_over = target, False

    def start(self) -> None:
        assert self.world.current is not None
        self.world.current.process.spawn(self._run)

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._is_over = True

    def join(self, timeout_s: float) -> None:
        end_s = self.world.now_s + timeout_s
        while not self._is_over and self.world.now_s < end_s:
            self.world.sleep_s(0.05)


class Log:
    """What servers tell people; a bug that they go on after breaks the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def info(self, event: str, **about: object) -> None:
        current = self._world.current
        self._world.note(str(current and current.process), event, str(about)[:200])

    warning = debug = info

    def log(self, _level: int, event: str, **about: object) -> None:
        self.info(event, **about)

    def exception(self, event: str, **about: object) -> None:
        self.info(event, **about)
        error = sys.exception()
        assert error is not None
        self._world.breaks(error)


@contextmanager
def within(world: World) -> Iterator[None]:
    """Production code's clocks, ids, wakers, threads, sessions and files are the world's."""

    def process() -> Process:
        assert world.current is not None, "only a task has a session"
        return world.current.process

    def flock(file: Any, how: int) -> None:
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if how & fcntl.LOCK_NB:
                    raise
                world.sleep_s(0.01)
            else:
                return

    def stage_file(path: Path, content: bytes) -> Path:
        if world.current is None:
            return staged(path, content)
        name = path.parent.parent.parent.name
        return world.effect(
            process(), Kind.DISK, "stage a file of", name, lambda: staged(path, content)
        )

    staged = catalogs.stage_file
    log = Log(world)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system.SystemClock, "now_s", lambda _: world.now_s)
        patch.setattr(system.SystemClock, "monotonic_s", lambda _: world.now_s)
        patch.setattr(system.SystemClock, "sleep_s", lambda _, seconds: world.sleep_s(seconds))
        patch.setattr(system.RandomIds, "new_id", lambda _: world.new_id())
        patch.setattr(
            system.EventWaker, "__init__", lambda self: setattr(self, "sim", SimWaker(world))
        )
        patch.setattr(system.EventWaker, "wake", lambda self: self.sim.wake())
        patch.setattr(system.EventWaker, "wait_s", lambda self, most_s: self.sim.wait_s(most_s))
        patch.setattr(Thread, "world", world, raising=False)
        patch.setattr(tasks, "threading", SimpleNamespace(Thread=Thread, Event=threading.Event))
        patch.setattr(tasks, "LOOK_ANYWAY_S", NEVER_S)  # who misses a watch waits for ever
        patch.setattr(connecting, "connect", lambda *_, **__: LivingSession(process()))
        patch.setattr(catalogs, "stage_file", stage_file)
        patch.setattr(catalogs, "fcntl", SimpleNamespace(**{**vars(fcntl), "flock": flock}))
        patch.setattr(os, "fsync", lambda _: None)
        for module in ("tasks", "tables", "supervisor"):
            patch.setattr(f"rmt_pipeline.server.{module}.log", log)
        yield


class WorkLoops:
    """What a server works its tables' queues with: they have no rows, but are altered."""

    def __init__(self, world: World, config: Config, name: str) -> None:
        self._world = world
        self._context = ServerContext(config, name, purpose="worker")
        self._going: dict[str, tuple[list[bool], SimWaker]] = {}

    def follow(self, tables: Sequence[TableDefinition]) -> None:
        wanted = {table.uuid: table for table in tables}
        for uuid in self._going.keys() - wanted.keys():
            is_over, waker = self._going.pop(uuid)
            is_over.append(True)
            waker.wake()
        for uuid in wanted.keys() - self._going.keys():
            self._going[uuid] = [], SimWaker(self._world)
            assert self._world.current is not None
            self._world.current.process.spawn(
                lambda uuid=uuid: self._work(
                    wanted[uuid], *self._going.get(uuid, ([True], None))
                )
            )

    def stop(self) -> None:
        self.follow([])

    def _work(
        self, table: TableDefinition, is_over: list[bool], waker: SimWaker | None
    ) -> None:
        assert waker is not None or is_over
        clock = self._context.clock
        assert self._world.current is not None
        spawn = self._world.current.process.spawn
        while not is_over:
            try:
                work(
                    lambda: self._context.replica(table),
                    Tools(DirectPeers({}), LocalMerger(clock), LocalMutator(clock), spawn),
                    "fetch",
                    waker=waker,
                    linger_s=None,
                    on_flush=lambda _: None,
                    should_stop=lambda: bool(is_over),
                )
            except RmtError as error:
                self._world.note(table.full_name, "work paused", str(error)[:200])
            self._world.sleep_s(RETRY_S)


@dataclass(eq=False)
class Run:
    """One world from its storm to its end."""

    schedule: Schedule
    directory: Path
    world: World = field(init=False)
    books: Books = field(default_factory=Books)
    wanted: set[str] = field(default_factory=set)
    """The servers that are to have the database."""
    given_up: set[str] = field(default_factory=set)
    """The origins of tables that were on a disk that is lost: a replica of theirs may stay."""
    clients: int = 0
    said: int = 0
    """Statements about tables: each has a number of its own."""

    def __post_init__(self) -> None:
        self.names = [name for shard in SHARDS for name in shard]
        self.world = World(self.schedule, self.names)
        self.rng = self.world.rng
        self.config = cluster_config(self.directory, SHARDS)
        self.world.zookeeper.on_commit(
            lambda before: self.books.committed(self.world.zookeeper.nodes, before)
        )
        self.desk = Host("clients", self.world.hosts["r1"].disk, [0.0])
        self.world.everybody.append(self.desk)

    # --- servers ---

    def boot(self, name: str) -> None:
        host = self.world.hosts[name]
        if host.down_until_s > self.world.now_s:  # since this was to happen
            self._again(name)
            return
        process = self.world.start_process(host, "server")
        process.on_end.append(lambda: self._again(name))
        process.spawn(lambda: self._serve(name, process))

    def _again(self, name: str) -> None:
        soonest_s = max(self.world.now_s, self.world.hosts[name].down_until_s)
        self.world.at(soonest_s + self.rng.uniform(0.0, RESTART_S), lambda: self.boot(name))

    def _serve(self, name: str, process: Process) -> None:
        server, waker = self.config.server(name), system.EventWaker()
        context = ServerContext(self.config, name)  # makes the directory
        identity = Identity(name, self.world.new_id(), Address.parse(server.listen))
        tables = Tables(context.catalog, context.clock, context.ids, identity, waker.wake, 1.0)
        loops = TaskLoops(self.config, name, context.catalog)
        supervisor = Supervisor(
            tables,
            waker,
            Counters(),
            open_session=lambda: LivingSession(process),
            loops=WorkLoops(self.world, self.config, name),
            should_stop=lambda: False,
            on_catalog=loops.follow_catalog,
        )
        loops.start()
        supervisor.run(LivingSession(process))

    def switch_off(self, name: str, for_s: float) -> None:
        host = self.world.hosts[name]
        host.down_until_s = self.world.now_s + for_s
        for process in list(host.processes):
            self.world.end_process(process, kill_others=True)

    # --- clients ---

    def context(self, name: str) -> TaskContext:
        """To look at its catalog from outside."""
        return TaskContext(self.config, name)

    def has(self, name: str) -> bool:
        found = replicated_database(self.context(name).catalog, "d")
        return found is not None and not found.is_dropping

    def say(self, name: str, query: str, **settings: str) -> Process:
        """One client's process on the server's host."""
        process = self.world.start_process(self.world.hosts[name], "client")
        self.clients += 1
        process.on_end.append(self._ended)

        def run() -> None:
            with Session(ServerContext(self.config, name), settings) as session:
                try:
                    session.execute(query)
                except UserError:
                    self.books.refused.append(query)
                    raise
                self.books.answered.append(query)
                self.world.note(process.label, "was answered", query)
            self.world.end_process(process, kill_others=True)

        process.spawn(run)
        return process

    def _ended(self) -> None:
        self.clients -= 1

    def until_it_ends(self, process: Process, most_s: float = NEVER_S) -> None:
        end_s = self.world.now_s + most_s
        while process.is_alive and self.world.now_s < end_s:
            self.world.sleep_s(0.05)

    def somewhere(self) -> str:
        return self.rng.choice(sorted(self.wanted))

    def _go(self, name: str, run: Callable[[], None]) -> None:
        """Somebody who sits outside, and never fails."""
        process = self.world.start_process(self.desk, name)
        self.clients += 1

        def until_done() -> None:
            run()
            self.clients -= 1
            self.world.end_process(process, kill_others=True)

        process.spawn(until_done)

    def say_until_done(self, name: str, query: str, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.until_it_ends(self.say(name, query))
            self.world.sleep_s(0.2)

    def _talk(self) -> None:
        """Statements about tables, from any server, one after another or several at once."""
        for _ in range(self.rng.choice((4, 8, 12))):
            self.world.sleep_s(self.rng.choice((0.0, 0.05, 0.5)))
            if self.world.is_calm:
                return
            self.said += 1
            process = self.say(
                self.somewhere(), self.drawn(self.said), distributed_ddl_task_timeout="20"
            )
            self.until_it_ends(process, self.rng.choice((0.1, 3.0, 30.0)))

    def drawn(self, number: int) -> str:
        rng = self.rng
        one, other = rng.sample(NAMES, 2)
        column = rng.choice("xy")
        engine = rng.choice(("ReplicatedMergeTree", "ReplicatedMergeTree", "MergeTree"))
        return rng.choice(
            (
                f"CREATE TABLE d.{one} (n UInt64) ENGINE = {engine} ORDER BY n COMMENT '{number}'",
                f"CREATE TABLE d.{one} (n UInt64) ENGINE = {engine} ORDER BY n COMMENT '{number}'",
                f"CREATE TABLE d.{one} (n UInt64) ENGINE = {engine} ORDER BY n COMMENT '{number}'",
                f"ALTER TABLE d.{one} ADD COLUMN IF NOT EXISTS {column} Int64",
                f"ALTER TABLE d.{one} DROP COLUMN IF EXISTS {column}",
                f"ALTER TABLE d.{one} MODIFY SETTING parts_to_throw_insert = {number % 1000 + 1}",
                f"RENAME TABLE d.{one} TO d.{other}",
                f"EXCHANGE TABLES d.{one} AND d.{other}",
                f"DROP TABLE d.{one}",
                f"DETACH TABLE d.{one} PERMANENTLY",
                f"ATTACH TABLE d.{one}",
                f"ATTACH TABLE d.{one}",
            )
        )

    def _join(self, name: str) -> None:
        self.world.sleep_s(self.rng.uniform(0.0, 3.0))
        self.create(name)

    def create(self, name: str) -> None:
        self.say_until_done(name, DATABASE, lambda: self.has(name))
        self.wanted.add(name)

    def leave(self, name: str) -> None:
        """DROP DATABASE there, and later CREATE it again."""
        self.wanted.discard(name)
        catalog = self.context(name).catalog
        self.say_until_done(
            name,
            "DROP DATABASE d SYNC",
            lambda: "d" not in catalog.databases() or self._is_refused(name),
        )
        self.world.sleep_s(self.rng.uniform(0.0, 1.0))
        self.create(name)

    def _is_refused(self, name: str) -> bool:
        """Tables that are detached for good keep the database from being dropped."""
        detached = self.context(name).catalog.detached("d")
        return self.has(name) and any(one.permanently for one in detached)

    def lose_disk(self, name: str) -> None:
        self.switch_off(name, self.rng.uniform(0.5, 2.0))
        self.world.sleep_s(0.01)
        shutil.rmtree(self.directory / name, ignore_errors=True)
        self.given_up |= self.books.origins  # no DROP finds what this server had of them
        self.world.note(name, "lost its disk", "")
        self.world.sleep_s(2.5)
        self.create(name)

    def clean(self, name: str) -> None:
        def run() -> None:
            keeper = LivingSession(process)
            clean_queue(
                keeper, PATHS.queue, now_s=self.world.now_s, lifetime_s=MANY, tasks_max=1
            )
            self.world.end_process(process, kill_others=True)

        process = self.world.start_process(self.world.hosts[name], "cleaner")
        process.spawn(run)
        self.until_it_ends(process, 5.0)

    def _have_events(self) -> None:
        self.world.sleep_s(self.rng.uniform(0.5, 2.0))
        kinds = ("off", "off", "off", "clean", "clean", "leave", "disk")
        for kind in self.rng.sample(kinds, self.rng.choice((0, 2, 4))):
            self.world.sleep_s(self.rng.uniform(0.0, 1.5))
            if self.world.is_calm:
                return
            name = self.rng.choice(self.names[1:])
            if kind == "clean":
                self.clean("r1")
            elif kind == "off":
                self.switch_off(self.rng.choice(self.names), self.rng.uniform(0.1, 6.0))
            elif name in self.wanted:
                {"leave": self.leave, "disk": self.lose_disk}[kind](name)

    # --- its life ---

    def live(self) -> None:
        for name in self.names:
            self.boot(name)
        first = self.names[: self.rng.choice((1, 2, 2, 3))]
        with self.schedule.truce():
            for name in first:
                self._go(f"creates at {name}", lambda name=name: self.create(name))
            assert self.world.run(CALM_STEPS_MAX, lambda: self.have_begun(first)), (
                "no beginning"
            )
        for name in self.names[len(first) :]:
            self._go(f"joins {name}", lambda name=name: self._join(name))
        for number in range(self.rng.choice((1, 2, 3))):
            self._go(f"talks {number}", self._talk)
        self._go("events", self._have_events)
        self.world.run(STORM_STEPS)
        self.world.calm()
        end_s = self.world.now_s + CALM_S
        while left := self.what_is_left():
            if self.world.now_s > end_s:
                raise NotSettled(f"after a long calm {left}")
            self.world.run(
                1_000, lambda until_s=self.world.now_s + 5: self.world.now_s > until_s
            )
        self.check_answers()

    def have_begun(self, names: Sequence[str]) -> bool:
        """They have the database, and have caught up with it for the first time."""
        nodes = self.world.zookeeper.nodes
        return not self.clients and all(
            nodes[PATHS.log_ptr(self.in_zookeeper(name))].data for name in names
        )

    @staticmethod
    def in_zookeeper(name: str) -> str:
        shard = next(number for number, names in enumerate(SHARDS, 1) if name in names)
        return f"{shard}|{name}"

    def what_is_left(self) -> str | None:
        if self.clients:
            return f"{self.clients} clients wait"
        nodes, books = self.world.zookeeper.nodes, self.books
        there = {database_table(node) for node in nodes[PATHS.metadata].children}
        if there != books.tables.keys():
            return f"ZooKeeper has {sorted(there)}, the log makes {sorted(books.tables)}"
        last = nodes[PATHS.queue.root].creations - 1
        for name in sorted(self.wanted):
            if not self.has(name):
                return f"{name} has no database"
            pointer = nodes[PATHS.log_ptr(self.in_zookeeper(name))].data
            difference = self.difference(name)
            if difference:
                return f"{name} {difference} (it is at {pointer!r} of {last})"
        return self.what_hangs()

    def difference(self, name: str) -> str:
        catalog = self.context(name).catalog
        here = {
            table: model_of(catalog.definition("d", table)) for table in catalog.tables("d")
        }
        for one in catalog.detached("d"):
            if one.permanently:
                here[one.definition.name] = model_of(one.definition, is_detached=True)
        wanted = self.books.tables
        attached = {table for table, model in wanted.items() if not model.is_detached}
        if not attached <= here.keys() <= wanted.keys():  # what is detached is made by ATTACH
            return f"has the tables {sorted(here)}, and the log makes {sorted(wanted)}"
        for table, mine in here.items():
            model = wanted[table]
            if model.comment in self.books.uncertain:
                model = replace(model, columns=mine.columns, setting=mine.setting)
            if mine != model:
                return f"has {table} as {mine}, and the log makes {model}"
        if "d_broken_tables" in catalog.databases():
            return f"has moved {catalog.tables('d_broken_tables')} aside, which had no rows"
        return ""

    def what_hangs(self) -> str | None:
        """In ZooKeeper: what nobody has any more, and what somebody holds."""
        nodes, origins = self.world.zookeeper.nodes, self.origins() | self.given_up
        tables = nodes.get("/clickhouse/tables")
        for origin in sorted(tables.children if tables else ()):
            below = [path for path in nodes if path.startswith(f"/clickhouse/tables/{origin}/")]
            if origin not in origins and below:
                return f"{below[0]} is left of a table that was dropped"
        for path, node in nodes.items():
            if node.owner and not path.endswith("/active") and not path.endswith("/is_active"):
                return f"{path} is held"
        return None

    def origins(self) -> set[str]:
        """Of the tables that there are."""
        nodes = self.world.zookeeper.nodes
        return {
            TableRecord.decode(nodes[PATHS.table(table)].data).origin
            for table in self.books.tables
        }

    def check_answers(self) -> None:
        """What was answered happened, once; what was refused did not."""
        logged = [comment_of(query) for query in self.books.logged if "COMMENT" in query]
        twice = {one for one in logged if logged.count(one) > 1}
        assert not twice, f"{twice} were created twice"
        for query in self.books.answered:
            if "COMMENT" in query:
                assert comment_of(query) in logged, f"{query} was answered, and never logged"
            elif "d." in query:
                assert query in self.books.logged, f"{query} was answered, and never logged"


@dataclass
class Failed(Exception):
    cause: Exception
    run: Run


def lived(schedule: Swarm) -> Run:
    """A world from its storm to its end. Raises what is wrong with it, which knows of the world."""
    with ExitStack() as opened:
        opened.enter_context(remembering())
        place = MEMORY if MEMORY.is_dir() else None
        directory = opened.enter_context(tempfile.TemporaryDirectory(dir=place))
        run = Run(schedule, Path(directory))
        opened.enter_context(within(run.world))
        try:
            run.live()
        except Exception as error:
            raise Failed(error, run) from error
        finally:
            run.world.end()
    return run


def failure_of(schedule: Swarm) -> tuple[Exception, Run] | None:
    try:
        lived(schedule)
    except Failed as failed:
        return failed.cause, failed.run
    return None


def report(seed: int, error: Exception, run: Run) -> str:
    """The seed, the log, and the last effects."""
    cause = f" from {error.__cause__!r}" if error.__cause__ else ""
    log = "\n".join(run.books.logged)
    return f"database seed {seed} fails: {error}{cause}\n{log}\n{run.world.story(80)}"


def run_seeds(first: int, count: int) -> int:
    """How many fail."""
    failures = 0
    for seed in range(first, first + count):
        failure = failure_of(Swarm(seed))
        if failure is not None:
            failures += 1
            print(report(seed, *failure), flush=True)
    print(f"{count} seeds of databases, {failures} failed", file=sys.stderr, flush=True)
    return failures
