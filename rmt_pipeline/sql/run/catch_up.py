"""A Replicated database on a server: what its log says is carried out, and what is missing or too
much is found by comparing with the database's tables in ZooKeeper.

A table here is the one there when its uuid is that of the statement which created it. Any other one
of its name, and one that the database does not have, is moved aside when it holds data, to
`<database>_broken_tables`; nothing with rows in it is ever dropped here but by its DROP.
"""

from collections.abc import Callable
from dataclasses import replace

from rmt_pipeline.catalog.replicated import ReplicatedDatabase, replicated_database
from rmt_pipeline.cluster.database import Picture, update_record
from rmt_pipeline.cluster.worker import BegunTask
from rmt_pipeline.protocol.errors import (
    ReplicaAlreadyExists,
    ReplicaRetired,
    RmtError,
    TableDetached,
    Unavailable,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task, TaskOutcome
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.define.table import define_table
from rmt_pipeline.sql.run.task import StatementCarrier, TaskContext
from rmt_pipeline.syntax.statements.nodes import (
    AlterTable,
    ClusterStatement,
    CreateTable,
    DropTable,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.keeper import LivingKeeper
from rmt_pipeline.zookeeper.paths import DatabasePaths, sequence_number

_FLAT = (("flatten_nested", "0"),)  # columns are as they are in the record


class DatabaseCarrier(StatementCarrier):
    """Of one database. For one thread."""

    def __init__(
        self,
        context: TaskContext,
        waker: Waker,
        should_stop: Callable[[], bool],
        database: str,
    ) -> None:
        super().__init__(context, waker, should_stop)
        self._database = database

    def carry_out(self, keeper: LivingKeeper, begun: BegunTask) -> TaskOutcome:
        """As for ON CLUSTER; an ALTER is then in the table's record."""
        outcome = super().carry_out(keeper, begun)
        if outcome.code:
            return outcome
        for step in self._steps(begun.task):
            if isinstance(step, AlterTable):
                here = self._here(step.table.name)
                if here is not None:
                    number = sequence_number(begun.paths.root)
                    self._tell_record(keeper, self._required(), here, number)
        return outcome

    def catch_up(self, keeper: LivingKeeper, picture: Picture) -> list[str]:
        """Make of the tables here what the picture has. What could not be done, in words: the next
        time it is tried again.
        """
        database = self._required()
        self.context.bind(keeper, "")
        problems = []
        here = self.context.catalog.tables(self._database)
        for name in [*(name for name in here if name not in picture.tables), *picture.tables]:
            if self._required().is_dropping:
                return []
            try:
                if name in picture.tables:
                    self._match(keeper, database, name, picture.tables[name])
                else:
                    self._let_go(name)
            except (ReplicaRetired, Unavailable):
                raise
            except (RmtError, OSError) as error:
                problems.append(f"table {self._database}.{name}: {error}")
        return problems

    def _required(self) -> ReplicatedDatabase:
        """Raises UserError: it was dropped here."""
        found = replicated_database(self.context.catalog, self._database)
        if found is None:
            raise UserError(f"database {self._database} is not here any more")
        return found

    # --- statements of the log ---

    def _steps(self, task: Task) -> list[ClusterStatement]:
        parsed = parse(task.query)
        if isinstance(parsed, DropTable):
            return [replace(parsed, if_exists=True)]  # the log says that the database had it
        if isinstance(parsed, CreateTable | AlterTable):
            return [parsed]
        raise UserError(f"the log of a Replicated database can't have this: {task.query}")

    def _run(self, task: Task, statement: ClusterStatement) -> None:
        if isinstance(statement, CreateTable):
            name = statement.table.name
            self._make(name, TableRecord(task.request_id, task.query), task)
        else:
            self._session(task).carry_out(statement)

    # --- comparing ---

    def _here(self, name: str) -> TableDefinition | None:
        """Raises TableDetached."""
        try:
            return self.context.catalog.definition(self._database, name)
        except TableDetached:
            raise
        except UnknownTable:
            return None

    def _match(
        self,
        keeper: LivingKeeper,
        database: ReplicatedDatabase,
        name: str,
        record: TableRecord,
    ) -> None:
        try:
            here = self._here(name)
        except TableDetached:
            return  # somebody wants it so, here
        if here is None or here.uuid != self.context.uuid_of(record.origin):
            self._make(name, record, Task(record.query, (), "", record.origin, settings=_FLAT))
        elif here.metadata_version > record.version:
            self._tell_record(keeper, database, here, record.task, record.origin)
        elif here.metadata_version == record.version and create_query(here) != record.query:
            self._take_own(here, record)

    def _tell_record(
        self,
        keeper: LivingKeeper,
        database: ReplicatedDatabase,
        here: TableDefinition,
        task: int,
        origin: str = "",
    ) -> None:
        """What the table is here; of a table of another origin nothing is told."""
        paths = DatabasePaths(database.path)
        if not origin:
            [read] = keeper.get_many([paths.table(here.name)])
            if read is None:
                return
            origin = TableRecord.decode(read[0]).origin
        if here.uuid == self.context.uuid_of(origin):
            told = TableRecord(origin, create_query(here), here.metadata_version, task)
            update_record(keeper, paths, here.name, told)

    def _take_own(self, here: TableDefinition, record: TableRecord) -> None:
        """Settings and comment, which are each replica's own, of an ALTER that was missed."""
        wanted = self._defined(record)

        def change(now: TableDefinition) -> TableDefinition:
            return replace(now, settings=wanted.settings, comment=wanted.comment)

        self.context.catalog.update_table(here, change)

    # --- making, and moving aside ---

    def _make(self, name: str, record: TableRecord, task: Task) -> None:
        """The table of the record. What was half made is gone on with: by its uuid it is ours."""
        try:
            here = self._here(name)
        except TableDetached:
            here = None  # says CREATE
        if here is not None and here.uuid != self.context.uuid_of(record.origin):
            self._let_go(name)
        keeper = self.context.keeper()
        self.context.bind(keeper, record.origin)
        statement = parse(record.query)
        assert isinstance(statement, CreateTable)
        try:
            self._session(replace(task, settings=_FLAT)).carry_out(statement)
        except ReplicaAlreadyExists:
            self._attach(record)

    def _attach(self, record: TableRecord) -> None:
        """Its replica is in ZooKeeper and not on this disk, which was lost: it is taken up, and its
        parts are fetched. Raises ReplicaAlreadyExists when another table here has it.
        """
        server = self.context
        wanted = replace(self._defined(record), uuid=server.uuid_of(record.origin))
        definition = server.expanded(wanted)
        try:
            server.attach_replica(definition)
        except UnknownTable as error:
            raise Unavailable(
                f"{definition.engine.root} is being made or dropped; it is looked at again"
            ) from error

    def _defined(self, record: TableRecord) -> TableDefinition:
        statement = parse(record.query)
        assert isinstance(statement, CreateTable)
        assert statement.syntax is not None
        return define_table(
            statement.table, statement.syntax, self._database, flatten_nested=False
        )

    def _let_go(self, name: str) -> None:
        """A table that is not the database's: away with the name, and nothing else is lost."""
        server = self.context
        definition = server.catalog.definition(self._database, name)
        store = server.store(definition)
        if not store.parts() and not store.detached():
            server.drop_table(self._database, name)
            return
        aside = f"{self._database}_broken_tables"
        server.catalog.create_database(aside, if_not_exists=True)
        taken = {*server.catalog.tables(aside), *server.catalog.dropping(aside)}
        number = next(n for n in range(len(taken) + 1) if f"{name}_{n}" not in taken)
        server.rename_tables(((self._database, name), (aside, f"{name}_{number}")))
