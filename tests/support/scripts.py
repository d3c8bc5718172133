"""Scripts of statements, carried out by a session and by ClickHouse itself, answer by answer.

The session's server is the production one without its process: its tables follow the catalog, and
one thread works their queues, over a fake ZooKeeper.
"""

import io
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmt_pipeline.catalog.contents import CatalogVersion
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.config import Address, load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.worker import Worker
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.sql.formats.rows import Rows
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.statements.split import split
from rmt_pipeline.system import EventWaker, RandomIds, SystemClock
from tests.support.clickhouse_oracle import connection
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import DirectPeers

LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement was answered with: rows as TSV, or the code of an error."""

    text: str = ""
    code: str = ""
    message: str = ""

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.code else self.text


class ServerThread:
    """What `rmt serve --work` does with the tables of one server."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"server {context.server.name}")
        self._errors: list[BaseException] = []
        self._workers: dict[int, list[Worker]] = {}
        self._busy: set[int] = set()
        """The workers that did something at their last turn."""
        identity = Identity(context.server.name, "1", Address("127.0.0.1", 1))
        self.tables = Tables(
            context.catalog, SystemClock(), RandomIds(), identity, lambda: None
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        try:
            seen: CatalogVersion | None = None
            while not self._stop.wait(LOOK_S):
                seen = self._turn(seen)
        except BaseException as error:  # noqa: BLE001  raised in the test
            self._errors.append(error)

    def _turn(self, seen: CatalogVersion | None) -> CatalogVersion:
        version, keeper = self._context.catalog.version(), self._context.keeper()
        if version != seen:
            self.tables.follow_catalog(keeper)
        self.tables.look(keeper)
        for table in self.tables.all.values():
            if table.replica is not None:
                self._work(table.replica)
        return version

    def _work(self, replica: Replica) -> None:
        workers = self._workers.get(id(replica))
        if workers is None or workers[0].replica is not replica:
            clock = replica.clock
            tools = Tools(DirectPeers({}), LocalMerger(clock), LocalMutator(clock))
            workers = [
                Worker(replica, tools, pool, EventWaker(), select=True)
                for pool in ("fetch", "merge")
            ]
            self._workers[id(replica)] = workers
        for worker in workers:
            try:
                look, _ = worker.turn(progress=id(worker) in self._busy)
                self._busy.discard(id(worker))
                for batch in look.batches:
                    list(worker.executor.carry_out(batch))
                    self._busy.add(id(worker))
            except RmtError:
                return  # the table goes away, or another definition comes: look again


@contextmanager
def script_session(directory: Path) -> Iterator[Session]:
    """Of server r1, which works its queues."""
    file = directory / "rmt.toml"
    file.write_text(
        f'[servers.r1]\ndata = "{directory / "r1"}"\nlisten = "127.0.0.1:9009"\n'
        'macros = {shard = "1", replica = "r1"}\n'
    )
    zookeeper = FakeZooKeeper(SystemClock())
    config = load_config(file)
    server, client = ServerContext(config, "r1"), ServerContext(config, "r1")
    server.use(zookeeper.connect())
    client.use(zookeeper.connect())
    thread = ServerThread(server)
    thread.start()
    try:
        with Session(client) as session:
            session.context.set((("mutations_sync", "2"), ("alter_sync", "2")))
            yield session
    finally:
        thread.stop()
        server.close()


def carried_out(session: Session, statement: str) -> Answer:
    """One statement, by us."""
    try:
        result = session.execute(statement)
        if not isinstance(result, Rows):
            return Answer()
        out = io.BytesIO()
        write_rows(result, result.format or "TSV", out)
        return Answer(out.getvalue().decode().removesuffix("\n"))
    except RmtError as error:
        return Answer(code=error.code, message=str(error))


def original(statement: str) -> Answer:
    """One statement, by ClickHouse; a replicated engine is the plain one of its kind."""
    text = statement.replace("ENGINE = Replicated", "ENGINE = ")
    try:
        found = connection().query(text, "TSV")
    except Exception as error:  # noqa: BLE001  chdb has no class of its own
        message = str(error).strip()
        code = message.rpartition("(")[2].removesuffix(")")
        return Answer(code=code if code.isupper() else message, message=message)
    return Answer(found.bytes().decode().removesuffix("\n"))


def original_begins(database: str) -> None:
    """An empty database of this name is ClickHouse's current one, with the settings as they are
    by default.
    """
    for statement in (
        f"DROP DATABASE IF EXISTS {database}",
        f"CREATE DATABASE {database}",
        f"USE {database}",
        "SET flatten_nested = 1, session_timezone = 'UTC', mutations_sync = 2, alter_sync = 2",
    ):
        connection().query(statement)


def original_ends(database: str) -> None:
    for statement in ("USE default", f"DROP DATABASE {database}", "SET flatten_nested = 1"):
        connection().query(statement)


def statements_of(script: str) -> list[str]:
    return [piece.text for piece in split(script)]


_REPLICATED = re.compile(r"Replicated(\w*MergeTree)\(\\?'[^']*\\?', \\?'[^']*\\?'(, )?")


def _comparable(answer: Answer) -> tuple[str, str]:
    """Text and code, with the engine as the plain one of its kind and the original's word for one
    that has no arguments.
    """
    text = _REPLICATED.sub(r"\1(", answer.text).replace("MergeTree()", "MergeTree")
    return text, answer.code


def told_apart(session: Session, script: str, codes: Sequence[str] = ()) -> list[str]:
    """Where our answers to a script are not ClickHouse's, in words. Errors are equal when their
    codes are; of a statement that contains one of `codes` when both are errors.
    """
    original_begins("script")
    for statement in ("CREATE DATABASE IF NOT EXISTS script", "USE script"):
        session.execute(statement)
    try:
        differences = []
        for statement in statements_of(script):
            theirs, ours = original(statement), carried_out(session, statement)
            both_fail = bool(theirs.code) and bool(ours.code)
            excused = both_fail and any(each in statement for each in codes)
            if _comparable(theirs) != _comparable(ours) and not excused:
                differences.append(
                    f"{statement.strip()}\n  original: {theirs}\n  ours:     {ours}"
                )
        return differences
    finally:
        original_ends("script")
