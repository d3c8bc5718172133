"""Worlds of a Replicated database: its servers are the production supervisor, its loops over the
statements and its catalog on a real disk; clients create, alter, rename, exchange, detach and drop
tables while servers die, join, leave and lose their disks, and the log is cleaned behind them. Then
calm: everybody ends with what the log says, and nobody waits.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmt_pipeline import system
from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.cluster.database import picture
from rmt_pipeline.cluster.queue import clean_queue
from rmt_pipeline.config import Address
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.alter.texts import definition_of_texts
from rmt_pipeline.protocol.errors import (
    OutcomeUnknown,
    TableAlreadyExists,
    TableDetached,
    Unavailable,
    UnknownDatabase,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task, TaskOutcome
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.server.status import Counters
from rmt_pipeline.server.supervisor import Supervisor
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.server.tasks import TaskLoops
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.tasks.catch_up import DatabaseCarrier
from rmt_pipeline.sql.tasks.task import TaskContext
from rmt_pipeline.syntax.statements import nodes as said
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.zookeeper.paths import (
    DatabasePaths,
    TablePaths,
    TaskQueuePaths,
    database_table,
    sequence_number,
)
from tests.support.fake_keeper import Node
from tests.support.fast import remembering
from tests.support.schedule import Schedule, Swarm
from tests.support.servers import cluster_config
from tests.support.sim_server import NEVER_S, LivingSession, WorkLoops, within
from tests.support.world import Host, Process, World

DATABASE = "CREATE DATABASE d ENGINE = Replicated('/databases/d', '{shard}', '{replica}')"
PATHS = DatabasePaths("/databases/d")
QUEUE = TaskQueuePaths("/clickhouse/task_queue/ddl")
SHARDS = (("r1", "r2"), ("r3",))
NAMES = ("t", "u", "v")
STORM_STEPS = 900
CALM_STEPS_MAX = 3_000
CALM_S = 900.0  # an ALTER that nobody carries out is waited for for 300 s
BESIDE = "CREATE TABLE IF NOT EXISTS k ON CLUSTER c (n UInt64) ENGINE = MergeTree ORDER BY n"
ON_CLUSTER = 0.1
"""How many statements are such."""
RESTART_S = 0.3
MANY = 10**6
MEMORY = Path("/dev/shm")


MEDDLED = TableDefinition(
    "d", "", (Column("n", "UInt64"),), Engine("MergeTree", "", "someone"), ("n",)
)
"""A table that is none of the database's."""


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
    an ALTER was removed from the log as too old while no record knew of it, or was on one server
    alone, where somebody has dropped the table behind the database's back.
    """
    is_too_old: bool = False
    """Whatever is in the log, it may be removed."""
    missed: list[str] = field(default_factory=list)
    """ALTERs that were removed though they are not too old, and no record knows of them."""
    beside: dict[str, tuple[str, bool | None]] = field(default_factory=dict)
    """The statements ON CLUSTER by their nodes: what was said, and whether there is a table k after
    it; None of one that every server refuses.
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
            if log == QUEUE.root and name.startswith("query-"):
                self.take_beside(name, Task.decode(nodes[path].data).query)
            if log.endswith("/finished") and TaskOutcome.decode(nodes[path].data).code:
                queue, _, task = log.removesuffix("/finished").rpartition("/")
                if queue == PATHS.queue.root and task in self.of_task:
                    self.uncertain.add(self.of_task[task])
        self.removed(nodes, before)

    def removed(self, nodes: dict[str, Node], before: dict[str, Node | None]) -> None:
        """What is removed from the log: `active` goes first."""
        for path in before:
            above, _, name = path.rpartition("/")
            task = above.rpartition("/")[2]
            is_removed = name == "active" and path not in nodes and task in self.of_task
            if is_removed and not self.is_told(nodes, task):
                if not self.is_too_old and self.of_task[task] not in self.uncertain:
                    self.missed.append(task)
                self.uncertain.add(self.of_task[task])

    def take_beside(self, task: str, query: str) -> None:
        match parse(query):
            case said.OnCluster(statement=said.CreateTable(table=table)):
                self.beside[task] = query, None if table.database == "d" else True
            case said.OnCluster(statement=said.DropTable()):
                self.beside[task] = query, False
            case _:
                raise AssertionError(f"nobody has said {query}")

    def is_untold(self, nodes: dict[str, Node], comment: str) -> bool:
        """Whether there is an ALTER of the table that its record does not know of."""
        return any(
            one == comment and not self.is_told(nodes, task)
            for task, one in self.of_task.items()
        )

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


def is_trouble(outcome: TaskOutcome) -> bool:
    """Whether ZooKeeper or the disk failed a statement: it may have happened all the same."""
    troubles = (Unavailable.code, OutcomeUnknown.code)
    return outcome.code in troubles or outcome.message.startswith("BadSector")


def comment_of(query: str) -> str:
    return query.rpartition("COMMENT '")[2].partition("'")[0]


def model_of(definition: TableDefinition, *, is_detached: bool = False) -> Model:
    """As it is on a server."""
    columns = frozenset(column.name for column in definition.columns)
    setting = dict(definition.settings).get("parts_to_throw_insert", "")
    return Model(definition.comment, columns, setting, is_detached)


# --- the world ---------------------------------------------------------------------------------


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
    lost: set[str] = field(default_factory=set)
    """The servers that have lost their disk: statements ON CLUSTER of before are not repeated."""
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
        supervisor.run()

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
        if rng.random() < ON_CLUSTER:
            return rng.choice(
                (
                    BESIDE,
                    "DROP TABLE IF EXISTS k ON CLUSTER c",
                    f"CREATE TABLE d.{one} ON CLUSTER c (n UInt64) ENGINE = MergeTree ORDER BY n",
                )
            )
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
        self.lost.add(name)
        self.world.note(name, "lost its disk", "")
        self.world.sleep_s(2.5)
        self.create(name)

    def clean(self, name: str, *, is_too_old: bool = False) -> None:
        """As a server that finds all but the last too many; or too old."""

        def run() -> None:
            keeper = LivingSession(process)
            carrier = DatabaseCarrier(
                self.context(name), system.EventWaker(), lambda: False, "d"
            )
            self.books.is_too_old |= is_too_old
            try:
                if is_too_old or self.has(name):
                    clean_queue(
                        keeper,
                        PATHS.queue,
                        now_s=self.world.now_s,
                        lifetime_s=MANY,
                        tasks_max=1,
                        first_needed=None
                        if is_too_old
                        else lambda: carrier.log(keeper, picture(keeper, PATHS)).first_needed(),
                    )
            finally:
                self.world.end_process(process, kill_others=True)

        process = self.world.start_process(self.world.hosts[name], "cleaner")
        process.spawn(run)
        self.until_it_ends(process, 5.0)

    def meddle(self, name: str) -> None:
        """Somebody drops a table of the database from the server's catalog, and may make another
        one of that name: both behind the database's back.
        """
        table, again = self.rng.choice(NAMES), self.rng.random() < 0.5
        other = replace(
            MEDDLED,
            name=table,
            engine=replace(MEDDLED.engine, zookeeper_path=f"/meddled/{self.world.new_id()}"),
        )

        def run() -> None:
            with ServerContext(self.config, name) as context:
                with suppress(UnknownTable, UnknownDatabase, TableDetached):
                    context.drop_table("d", table)
                if again:
                    with suppress(TableAlreadyExists, UnknownDatabase):
                        context.create_table(other)
            self.world.end_process(process, kill_others=True)

        nodes = self.world.zookeeper.nodes
        for model in self.books.tables.values():
            if self.books.is_untold(nodes, model.comment):
                self.books.uncertain.add(model.comment)
        process = self.world.start_process(self.world.hosts[name], "meddler")
        process.spawn(run)
        self.until_it_ends(process, 5.0)

    def _have_events(self) -> None:
        self.world.sleep_s(self.rng.uniform(0.5, 2.0))
        kinds = ("off", "off", "off", "clean", "clean", "old", "leave", "disk", "meddle")
        for kind in self.rng.sample(kinds, self.rng.choice((0, 2, 4, 6))):
            self.world.sleep_s(self.rng.uniform(0.0, 1.5))
            if self.world.is_calm:
                return
            name = self.rng.choice(self.names[1:])
            if kind in ("clean", "old"):
                self.clean("r1", is_too_old=kind == "old")
            elif kind == "off":
                self.switch_off(self.rng.choice(self.names), self.rng.uniform(0.1, 6.0))
            elif name in self.wanted:
                {"leave": self.leave, "disk": self.lose_disk, "meddle": self.meddle}[kind](name)

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
            if left := self.difference_beside(name):
                return f"{name} {left}"
        return self.what_hangs()

    def difference_beside(self, name: str) -> str:
        """What statements ON CLUSTER have left undone there; those that failed for the server's own
        trouble, which is told, may have happened or not.
        """
        host = str(self.config.server(name).advertised_address)
        may_be, told = {False}, ""
        for task, (query, is_there) in self.books.beside.items():
            outcome = self.outcome_beside(task, host)
            if outcome is None:
                return f"has not done {task} of {QUEUE.root}: {query}"
            told += f"; {query}: {outcome.message or 'done'}"
            if is_there is None:
                if not outcome.code:
                    return f"has not refused {query}"
            else:
                may_be = {is_there, *(may_be if is_trouble(outcome) else ())}
        tables = set(self.context(name).catalog.tables("default"))
        if name not in self.lost and tables not in [{"k"} if one else set() for one in may_be]:
            return f"has the tables {sorted(tables)} of default{told}"
        return ""

    def outcome_beside(self, task: str, host: str) -> TaskOutcome | None:
        node = self.world.zookeeper.nodes.get(QUEUE.task(task).finished_on(host))
        return None if node is None else TaskOutcome.decode(node.data)

    def difference(self, name: str) -> str:
        catalog = self.context(name).catalog
        here = {
            table: model_of(catalog.definition("d", table)) for table in catalog.tables("d")
        }
        for one in catalog.detached("d"):
            if one.permanently:
                here[one.definition.name] = self.once_attached(one.definition)
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

    def once_attached(self, definition: TableDefinition) -> Model:
        """What a table that is detached will be: its queue, which nobody works meanwhile, may have
        an ALTER yet that another replica of the shard has carried out.
        """
        mine = model_of(definition, is_detached=True)
        nodes, shard = self.world.zookeeper.nodes, TablePaths(definition.engine.zookeeper_path)
        metadata, columns = nodes.get(shard.metadata), nodes.get(shard.columns)
        if (
            metadata is None
            or columns is None
            or metadata.version == definition.metadata_version
        ):
            return mine
        texts = metadata.data.decode(), columns.data.decode()
        there = definition_of_texts(definition, *texts, metadata.version, ())
        return replace(mine, columns=model_of(there).columns)

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
        missed = self.books.missed
        assert not missed, f"{missed} were cleaned away, and no record knew of them"
        for query in self.books.answered:
            if "COMMENT" in query:
                assert comment_of(query) in logged, f"{query} was answered, and never logged"
            elif "d." in query and "ON CLUSTER" not in query:
                assert query in self.books.logged, f"{query} was answered, and never logged"
        self.check_answers_beside()

    def check_answers_beside(self) -> None:
        """Of a statement ON CLUSTER that failed on a server its client is told."""
        hosts = [str(self.config.server(name).advertised_address) for name in self.names]
        done = [
            query
            for task, (query, _) in self.books.beside.items()
            if all(self.outcome_beside(task, host) == TaskOutcome() for host in hosts)
        ]
        for query in {query for query in self.books.answered if "ON CLUSTER" in query}:
            answered = self.books.answered.count(query)
            assert answered <= done.count(query), (
                f"{query} was answered, and not done everywhere"
            )


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
