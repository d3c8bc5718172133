"""A Replicated database on a server: what its log says is carried out, and what is missing or too
much is found by comparing with the database's tables in ZooKeeper.

A table here is the one there when its uuid is that of the statement which created it. Any other one
of its name, and one that the database does not have, is moved aside when it holds data, to
`<database>_broken_tables`; nothing with rows in it is ever dropped here but by its DROP.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from rmt_pipeline.catalog.replicated import ReplicatedDatabase, replicated_database
from rmt_pipeline.cluster.database import Picture, picture, update_record
from rmt_pipeline.cluster.worker import BegunTask
from rmt_pipeline.protocol.alter.commands import AddColumn, AlterCommand
from rmt_pipeline.protocol.alter.texts import definition_of_texts
from rmt_pipeline.protocol.errors import (
    Conflict,
    MetadataMismatch,
    ReplicaAlreadyExists,
    ReplicaRetired,
    RmtError,
    TableDetached,
    Unavailable,
    Unfinished,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task, TaskOutcome
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.alter.request import CannotAssignAlter, request_alter
from rmt_pipeline.replica.life.create import check_structure
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.sql.define.difference import commands_towards
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.run.database_log import DatabaseLog, name_after
from rmt_pipeline.sql.run.databases import defined_by
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.run.task import StatementCarrier, TaskContext
from rmt_pipeline.syntax.statements.nodes import (
    AlterTable,
    AttachTable,
    ClusterStatement,
    CreateTable,
    DetachTable,
    DropTable,
    ExchangeTables,
    RenameTables,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import EventWaker, Waker
from rmt_pipeline.zookeeper.alter_transactions import LogEnd, log_end, read_at_once
from rmt_pipeline.zookeeper.keeper import LivingKeeper
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.paths import (
    DatabasePaths,
    TablePaths,
    database_table,
    sequence_number,
)
from rmt_pipeline.zookeeper.snapshot import queued_entries

_FLAT = (("flatten_nested", "0"),)  # columns are as they are in the record


@dataclass(frozen=True, slots=True)
class _Look:
    """As `catch_up` has it."""

    keeper: LivingKeeper
    picture: Picture
    log: DatabaseLog
    is_settled: bool


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
        self._called: dict[str, str] = {}
        """By an ALTER that is carried out late, the name that its table has by now."""
        self.is_behind = False
        """There is a table here that has missed an ALTER."""

    def carry_out(self, keeper: LivingKeeper, begun: BegunTask) -> TaskOutcome:
        """As for ON CLUSTER; an ALTER is then in the table's record."""
        outcome = super().carry_out(keeper, begun)
        if outcome.code:
            return outcome
        for step in self._steps(begun.task):
            if isinstance(step, AlterTable):
                here = self._here(step.table.name)
                if here is not None and self._is_of_now(keeper, here):
                    number = sequence_number(begun.paths.root)
                    self._tell_record(keeper, here, number)
        return outcome

    def _step(
        self, keeper: LivingKeeper, begun: BegunTask, number: int, step: ClusterStatement
    ) -> TaskOutcome:
        """Raises Unfinished for what is said of another table than is called so here:

        1. r1 can't make the table t, and so not exchange it with v.
        2. It comes to DROP TABLE v, which is of the table that was t. Its own v is t now.
        """
        match step:
            case DropTable(tables=(table,)) | AlterTable(table=table) if (
                begun.task.request_id not in self._called
                and self._means_another(keeper, sequence_number(begun.paths.root), table.name)
            ):
                raise Unfinished(
                    f"{self._database}.{table.name} is another table here than where this was "
                    "said: a statement before it failed here. What the table is is found by "
                    "comparing with the database"
                )
            case _:
                return super()._step(keeper, begun, number, step)

    def _means_another(self, keeper: LivingKeeper, task: int, name: str) -> bool:
        """Whether the database's records have the table that is called so here, and not under the
        name that this one has got since.
        """
        try:
            here = self._here(name)
        except TableDetached:
            return False
        if here is None:
            return False
        paths = DatabasePaths(self._required().path)
        called = name_after(keeper, paths, name, task)
        [read] = keeper.get_many([paths.table(called or name)])
        if called and read is not None:
            origin = TableRecord.decode(read[0]).origin
            if here.uuid == self.context.uuid_of(origin):
                return False
        now = picture(keeper, paths)  # else names may change while they are compared
        called = name_after(keeper, paths, name, task, now.last_task)
        names = {self.context.uuid_of(one.origin): name for name, one in now.tables.items()}
        return names.get(here.uuid, called) != called

    @staticmethod
    def _is_of_now(keeper: LivingKeeper, here: TableDefinition) -> bool:
        """Whether what it is here is what ALTERs have made of it by now:

        1. r1 carries an ALTER out, and r2 of the same shard only hears that it is done.
        2. r2 tells the record what the table is there, which has not taken the ALTER up yet: it is
           said to know of the ALTER, and has no word of it.
        3. r3, which is new, makes the table of that, and goes on behind the ALTER.
        """
        stat = keeper.exists(TablePaths(here.engine.zookeeper_path).metadata)
        return stat is not None and stat.version == here.metadata_version

    def catch_up(
        self, keeper: LivingKeeper, picture: Picture, *, is_settled: bool = False
    ) -> list[str]:
        """Make of the tables here what the picture has. What could not be done, in words: the next
        time it is tried again. `is_settled`: what ALTERs have made of them is in the picture, but
        of those that nobody has carried out; else this server has carried out all that there are,
        and `is_behind` when it would take a settled picture.
        """
        self.is_behind = False
        look = _Look(keeper, picture, self.log(keeper, picture), is_settled)
        self.context.bind(keeper, "")
        problems = []
        try:
            self._take_names(picture)
        except (RmtError, OSError) as error:
            if isinstance(error, ReplicaRetired | Unavailable):
                raise
            problems.append(f"database {self._database}: {error}")
        here = self.context.catalog.tables(self._database)
        for name in [*(name for name in here if name not in picture.tables), *picture.tables]:
            if self._required().is_dropping:
                return []
            try:
                if name in picture.tables:
                    self._match(look, name)
                else:
                    self._let_go(name)
            except (ReplicaRetired, Unavailable):
                raise
            except (RmtError, OSError) as error:
                self.is_behind |= isinstance(error, MetadataMismatch) and not is_settled
                problems.append(f"table {self._database}.{name}: {error}")
        return problems

    def log(self, keeper: LivingKeeper, picture: Picture) -> DatabaseLog:
        """Raises UserError: the database was dropped here."""
        return DatabaseLog(keeper, DatabasePaths(self._required().path), picture)

    def alters_left(self, keeper: LivingKeeper, picture: Picture, replica: str) -> list[str]:
        """Those that are not in the picture, and that this replica has not come to. From now on the
        table of each is the one that has it by the end of the picture's log.
        """
        left = self.log(keeper, picture).left(replica)
        self._called = {one.request_id: one.table for one in left}
        return [one.node for one in left]

    def _required(self) -> ReplicatedDatabase:
        """Raises UserError: it was dropped here."""
        found = replicated_database(self.context.catalog, self._database)
        if found is None:
            raise UserError(f"database {self._database} is not here any more")
        return found

    # --- statements of the log ---

    def _steps(self, task: Task) -> list[ClusterStatement]:
        parsed = parse(task.query)
        match parsed:
            case DropTable() | DetachTable():  # the log says that the database had it
                return [replace(parsed, if_exists=True)]
            case AttachTable():
                return [replace(parsed, if_not_exists=True)]
            case AlterTable(table=table):
                name = self._called.get(task.request_id, table.name)
                return [replace(parsed, table=replace(table, name=name))]
            case CreateTable() | RenameTables() | ExchangeTables():
                return [parsed]
            case _:
                raise UserError(
                    f"the log of a Replicated database can't have this: {task.query}"
                )

    def _run(self, task: Task, statement: ClusterStatement) -> None:
        match statement:
            case CreateTable(table=table):
                self._make(table.name, TableRecord(task.request_id, task.query), task)
            case AttachTable(table=table) if self._here_at_all(table.name) is None:
                self._make_attached(table.name)
            case _:
                self._session(task).carry_out(statement)

    def _here_at_all(self, name: str) -> TableDefinition | None:
        """Also when it is detached."""
        known = self.context.catalog.detached(self._database)
        detached = (one.definition for one in known if one.definition.name == name)
        return next(detached, None) or self._here(name)

    def _make_attached(self, name: str) -> None:
        """A table that came while it was detached, and so was not made here."""
        paths = DatabasePaths(self._required().path)
        [read] = self.context.keeper().get_many([paths.table(name)])
        record = None if read is None else TableRecord.decode(read[0])
        if record is not None and not record.is_detached:
            self._make_as(name, record)  # else a later statement has more to say

    def _make_as(self, name: str, record: TableRecord) -> None:
        self._make(name, record, Task(record.query, (), "", record.origin, settings=_FLAT))

    # --- comparing ---

    def _here(self, name: str) -> TableDefinition | None:
        """Raises TableDetached."""
        try:
            return self.context.catalog.definition(self._database, name)
        except TableDetached:
            raise
        except UnknownTable:
            return None

    def _take_names(self, picture: Picture) -> None:
        """Tables that have another name there, or are not detached there, are so here. All names
        at once: two tables may have been exchanged.
        """
        server, database = self.context, self._database
        names = {server.uuid_of(record.origin): name for name, record in picture.tables.items()}
        for one in server.catalog.detached(database):
            there = picture.tables.get(names.get(one.definition.uuid, ""))
            if one.permanently and (there is None or not there.is_detached):
                server.attach_table(database, one.definition.name)
        moves: dict[str, str] = {}
        for name in server.catalog.tables(database):
            uuid = server.catalog.definition(database, name).uuid
            if names.get(uuid, name) != name:
                moves[name] = names[uuid]
        for name in moves.values():
            if name not in moves and server.catalog.has(database, name):
                self._let_go(name)
        if not moves:  # a rename of nothing is a change too, and who hears of it looks again
            return
        between = {name: f"renamed {server.uuid_of(name)}" for name in moves}
        server.rename_tables(
            *(((database, name), (database, between[name])) for name in moves),
            *(((database, between[name]), (database, new)) for name, new in moves.items()),
        )

    def _match(self, look: _Look, name: str) -> None:
        record = look.picture.tables[name]
        try:
            here = self._here(name)
        except TableDetached:
            return  # somebody wants it so, here
        if here is not None and here.uuid != self.context.uuid_of(record.origin):
            self._let_go(name)
            here = None
        if here is None:
            if record.is_detached:
                return  # ATTACH makes it
            self._make_as(name, record)
            here = self.context.catalog.definition(self._database, name)
        has_more = here.metadata_version > record.version  # maybe ALTERs that undo each other
        if has_more or create_query(here) != record.query:
            self._agree(look, here, record)
        if record.is_detached:
            self.context.detach_table(self._database, name, permanently=True)

    def _agree(self, look: _Look, here: TableDefinition, record: TableRecord) -> None:
        """The table and its record become one: who knows of more makes the other one so. What this
        replica's queue is still to make of the table is waited for.
        """
        knows = look.log.knows(here.name)
        if here.metadata_version > record.version or not knows:
            if not look.is_settled and self._is_of_now(look.keeper, here):
                self._tell_record(look.keeper, here, look.picture.last_task)
            return
        wanted = defined_by(record, self._database)

        def take_own(now: TableDefinition) -> TableDefinition:
            """Settings and comment, which are each replica's own, of an ALTER that was missed."""
            return replace(now, settings=wanted.settings, comment=wanted.comment)

        self.context.catalog.update_table(here, take_own)
        shard = TablePaths(here.engine.zookeeper_path)
        read = read_at_once(look.keeper, [shard.metadata, shard.columns])
        if read is None:
            return  # it is being dropped
        (metadata, _), (columns, _) = read
        try:  # this shard may have it so already, and the replica by its queue
            check_structure(wanted, metadata, columns, shard.root)
        except MetadataMismatch:
            if not look.is_settled:
                raise
            self._alter_as_others(look, here, wanted)

    def _tell_record(self, keeper: LivingKeeper, here: TableDefinition, task: int) -> None:
        """What the table is here, with all statements up to that one."""
        paths = DatabasePaths(self._required().path)
        found = self._record_of(keeper, paths, here)
        if found is not None:
            name, origin = found
            query = create_query(replace(here, name=name))
            told = TableRecord(origin, query, here.metadata_version, task)
            update_record(keeper, paths, name, told)

    def _record_of(
        self, keeper: LivingKeeper, paths: DatabasePaths, here: TableDefinition
    ) -> tuple[str, str] | None:
        """Its name there, and its origin. Only when it has not the name that it has here, because a
        RENAME that is further on in the log has moved it, all others are looked at.
        """

        def found(names: Sequence[str]) -> tuple[str, str] | None:
            reads = keeper.get_many([paths.table(name) for name in names])
            for name, read in zip(names, reads, strict=True):
                origin = "" if read is None else TableRecord.decode(read[0]).origin
                if origin and here.uuid == self.context.uuid_of(origin):
                    return name, origin
            return None

        return found([here.name]) or found(
            [database_table(node) for node in keeper.children(paths.metadata)]
        )

    def _alter_as_others(
        self, look: _Look, here: TableDefinition, wanted: TableDefinition
    ) -> None:
        """What ALTERs have made of the table in the other shards, when they are not carried out in
        this one any more:

        1. r3, which is new and alone in its shard, makes the table as the picture has it, and dies.
        2. An ALTER is said, and the servers of the other shard carry it out and tell the record.
        3. r3 comes back, has the table, and goes on behind the end of the log.

        So does who was away until the log had no ALTER of that time any more. Raises UserError when
        what is stored here would change by it.
        """
        name, picture = here.name, look.picture
        paths = DatabasePaths(self._required().path)
        decided: list[tuple[TableDefinition, list[AlterCommand]]] = []

        def commands(now: TableDefinition) -> list[AlterCommand]:
            """Decided on what the table is before any statement that comes next changes it."""
            for before, known in decided:
                if before == now:
                    return known
            _, log = look.keeper.children_stat(paths.queue.root)
            if log.next_sequence - 1 != picture.last_task:
                raise Conflict(f"{paths.root} was changed meanwhile; it is looked at again")
            decided.append((now, self._steps_towards(look.keeper, now, wanted)))
            return decided[-1][1]

        def end_of_log(replica: Replica) -> LogEnd | None:
            """Rows may come to another replica while this is decided, and would lose what it
            drops.
            """
            end = log_end(replica.keeper, replica.table, replica.paths)
            steps = self._steps_towards(look.keeper, replica.definition, wanted)
            return None if _only_adds(steps) else end

        table = self.context.table(name, self._database)
        session = Session(self.context)
        # It takes nothing up once it is detached.
        sync = "1" if picture.tables[name].is_detached else "0"
        query = session.context.query_settings((("alter_sync", sync),))
        try:
            request_alter(lambda: table.replica, commands, query, EventWaker, end_of_log)
        except (CannotAssignAlter, Conflict) as error:
            raise Unavailable(str(error)) from error

    def _steps_towards(
        self, keeper: LivingKeeper, now: TableDefinition, wanted: TableDefinition
    ) -> list[AlterCommand]:
        """Raises UserError for more than new columns, when there are rows."""
        commands = commands_towards(now, wanted)
        if not _only_adds(commands) and self._has_rows(keeper, now):
            raise UserError(
                f"{now.full_name} has missed what ALTERs made of it in other shards: it is "
                f"{create_query(now)}, and not {create_query(wanted)}. Say each of them again with "
                "IF EXISTS or IF NOT EXISTS: it is carried out where it is missing"
            )
        return commands

    def _has_rows(self, keeper: LivingKeeper, table: TableDefinition) -> bool:
        """Here, or on another replica of the shard: what is altered is altered there, too.

        1. r1, which has rows, is away until an ALTER is cleaned from the log.
        2. r2 is new in its shard, and has fetched nothing yet. 3. r1 comes back.

        So are rows that r1 has given up, of which it may find the bytes again. The queues are read
        before the parts: what an entry brings moves from the one to the other.
        """
        store, shard = self.context.store(table), TablePaths(table.engine.zookeeper_path)
        if store.parts() or store.detached():
            return True
        [names] = keeper.children_many([shard.replicas])
        replicas = [shard.replica(one) for one in names or ()]
        for one in replicas:
            with suppress(ReplicaRetired):  # it was dropped meanwhile
                queue = queued_entries(keeper, one, KnownQueue()).values()
                if any(isinstance(entry, GetPart) for entry in queue):
                    return True
        stats = keeper.exists_many([one.parts for one in replicas])
        return any(stat is not None and stat.children_count for stat in stats)

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
        except MetadataMismatch:
            there = self._as_in_shard(keeper, record)
            if there == record:
                raise
            self._make(name, there, task)

    def _as_in_shard(self, keeper: LivingKeeper, record: TableRecord) -> TableRecord:
        """What ALTERs have made of the table in this shard, when it has a path of its own: what is
        elsewhere may be another table, which is not to be altered. Raises MetadataMismatch.

        1. r3, which is alone in its shard, loses its disk. 2. An ALTER is done in the other shard,
        and told to the record. 3. r3 comes back: its shard's nodes know nothing of the ALTER.

        1. r1 is slow. 2. r2, of the same shard, carries a CREATE out, and an ALTER of the table.
        3. r1 comes to the CREATE: the shard's nodes are those after the ALTER.
        """
        wanted = defined_by(record, self._database)
        table = TablePaths(self.context.expanded(wanted).engine.zookeeper_path)
        if record.origin not in table.root.split("/"):
            return record
        read = read_at_once(keeper, [table.metadata, table.columns])
        if read is None:
            raise Unavailable(f"{table.root} is being made or dropped; it is looked at again")
        (metadata, stat), (columns, _) = read
        there = definition_of_texts(
            wanted, metadata.decode(), columns.decode(), stat.version, ()
        )
        return replace(record, query=create_query(there))

    def _attach(self, record: TableRecord) -> None:
        """Its replica is in ZooKeeper and not on this disk, which was lost: it is taken up, and its
        parts are fetched. Raises ReplicaAlreadyExists when another table here has it.
        """
        server = self.context
        wanted = replace(defined_by(record, self._database), uuid=server.uuid_of(record.origin))
        definition = server.expanded(wanted)
        try:
            server.attach_replica(definition)
        except UnknownTable as error:
            raise Unavailable(
                f"{definition.engine.root} is being made or dropped; it is looked at again"
            ) from error

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


def _only_adds(commands: Sequence[AlterCommand]) -> bool:
    return all(isinstance(one, AddColumn) for one in commands)
