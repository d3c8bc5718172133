"""A Replicated database on a server: carries out what its log says, and compares the tables here
with the database's records in ZooKeeper, to find what is missing or should not be there.

A table here is the one of a record when its uuid is that of the statement which created the
record's table. A table that has the name of a record but another uuid, or that the database does
not have, is moved to `<database>_broken_tables` if it holds data. Only a DROP of a table ever
deletes its rows here.
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
    TABLE_FAILS,
    Conflict,
    MetadataMismatch,
    ReplicaAlreadyExists,
    ReplicaRetired,
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
from rmt_pipeline.sql.run.replicated import defined_by
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.tasks.database_log import DatabaseLog, name_after
from rmt_pipeline.sql.tasks.task import StatementCarrier, TaskContext
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

_FLAT = (("flatten_nested", "0"),)  # take the columns as they are in the record


@dataclass(frozen=True, slots=True)
class _Look:
    """What one call of `catch_up` works with."""

    keeper: LivingKeeper
    picture: Picture
    log: DatabaseLog
    is_settled: bool


class DatabaseCarrier(StatementCarrier):
    """Carries out the statements of one database. For one thread."""

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
        """For each ALTER that is carried out late: the current name of its table."""
        self.is_behind = False
        """Whether a table here has missed an ALTER."""

    def carry_out(self, keeper: LivingKeeper, begun: BegunTask) -> TaskOutcome:
        """Carry the task out as one ON CLUSTER, and write what an ALTER has made of a table into
        its record.
        """
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
        """Carry out one step. Raises Unfinished when the statement means another table than the one
        that has the name here:

        1. r1 can't make the table t, and so can't exchange it with v.
        2. r1 comes to DROP TABLE v, which means the table that was t. On r1, v is still the old v,
           which the database now calls t.
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
        """Whether the table with that name here is one of the database's, but has another name in
        the records than the statements after `task` would give it.
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
        now = picture(keeper, paths)  # one picture: names may change while they are compared
        called = name_after(keeper, paths, name, task, now.last_task)
        names = {self.context.uuid_of(one.origin): name for name, one in now.tables.items()}
        return names.get(here.uuid, called) != called

    @staticmethod
    def _is_of_now(keeper: LivingKeeper, here: TableDefinition) -> bool:
        """Whether the definition here has all ALTERs of the shard so far. Otherwise:

        1. r1 carries an ALTER out, and r2 of the same shard only sees that it is finished.
        2. r2 writes its definition of the table into the record, but has not taken the ALTER up
           yet: the record claims to have the ALTER, and lacks it.
        3. r3, which is new, makes the table from that record, and goes on after the ALTER.
        """
        stat = keeper.exists(TablePaths(here.engine.zookeeper_path).metadata)
        return stat is not None and stat.version == here.metadata_version

    def catch_up(
        self, keeper: LivingKeeper, picture: Picture, *, is_settled: bool = False
    ) -> list[str]:
        """Make the tables here as the picture has them. Return the problems in words; the next call
        tries again.

        `is_settled`: the picture has the effects of all ALTERs except those that no replica has
        carried out. If it is not settled, this server has carried out all statements in the log;
        `is_behind` is set when a settled picture would be needed.
        """
        self.is_behind = False
        look = _Look(keeper, picture, self.log(keeper, picture), is_settled)
        self.context.bind(keeper, "")
        problems = []
        try:
            self._take_names(picture)
        except TABLE_FAILS as error:
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
            except TABLE_FAILS as error:
                self.is_behind |= isinstance(error, MetadataMismatch) and not is_settled
                problems.append(f"table {self._database}.{name}: {error}")
        return problems

    def log(self, keeper: LivingKeeper, picture: Picture) -> DatabaseLog:
        """The log up to the picture's end. Raises UserError when the database was dropped here."""
        return DatabaseLog(keeper, DatabasePaths(self._required().path), picture)

    def alters_left(self, keeper: LivingKeeper, picture: Picture, replica: str) -> list[str]:
        """The ALTERs that are not in the picture, and that this replica has not come to. When one
        of them is carried out from now on, its table is the one to which the statements up to the
        picture's end have given the name.
        """
        left = self.log(keeper, picture).left(replica)
        self._called = {one.request_id: one.table for one in left}
        return [one.node for one in left]

    def _required(self) -> ReplicatedDatabase:
        """The database's definition. Raises UserError when it was dropped here."""
        found = replicated_database(self.context.catalog, self._database)
        if found is None:
            raise UserError(f"database {self._database} is not here any more")
        return found

    # --- statements of the log ---

    def _steps(self, task: Task) -> list[ClusterStatement]:
        parsed = parse(task.query)
        match parsed:
            case DropTable() | DetachTable():  # the database had the table, says the log
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
        """The definition of the table here, even if it is detached."""
        known = self.context.catalog.detached(self._database)
        detached = (one.definition for one in known if one.definition.name == name)
        return next(detached, None) or self._here(name)

    def _make_attached(self, name: str) -> None:
        """Make a table that was created while it was detached here and so was not made."""
        paths = DatabasePaths(self._required().path)
        [read] = self.context.keeper().get_many([paths.table(name)])
        record = None if read is None else TableRecord.decode(read[0])
        if record is not None and not record.is_detached:
            self._make_as(name, record)  # else a later statement decides

    def _make_as(self, name: str, record: TableRecord) -> None:
        self._make(name, record, Task(record.query, (), "", record.origin, settings=_FLAT))

    # --- comparing ---

    def _here(self, name: str) -> TableDefinition | None:
        """The definition of the table here; None if there is none. Raises TableDetached."""
        try:
            return self.context.catalog.definition(self._database, name)
        except TableDetached:
            raise
        except UnknownTable:
            return None

    def _take_names(self, picture: Picture) -> None:
        """Attach tables that are not detached in the database, and rename tables to their names
        there: all at once, since two tables may have been exchanged.
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
        if not moves:  # an empty rename would change the catalog, and cause another look
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
            return  # a person has detached it on this server
        if here is not None and here.uuid != self.context.uuid_of(record.origin):
            self._let_go(name)
            here = None
        if here is None:
            if record.is_detached:
                return  # ATTACH makes it
            self._make_as(name, record)
            here = self.context.catalog.definition(self._database, name)
        has_more = here.metadata_version > record.version  # even if they undo each other
        if has_more or create_query(here) != record.query:
            self._agree(look, here, record)
        if record.is_detached:
            self.context.detach_table(self._database, name, permanently=True)

    def _agree(self, look: _Look, here: TableDefinition, record: TableRecord) -> None:
        """Make the table and its record agree: the one with more ALTERs is copied to the other.
        What this replica's own queue has still to make of the table is waited for.
        """
        knows = look.log.knows(here.name)
        if here.metadata_version > record.version or not knows:
            if not look.is_settled and self._is_of_now(look.keeper, here):
                self._tell_record(look.keeper, here, look.picture.last_task)
            return
        wanted = defined_by(record, self._database)

        def take_own(now: TableDefinition) -> TableDefinition:
            """Take settings and comment, which are each replica's own, from an ALTER that was
            missed.
            """
            return replace(now, settings=wanted.settings, comment=wanted.comment)

        self.context.catalog.update_table(here, take_own)
        shard = TablePaths(here.engine.zookeeper_path)
        read = read_at_once(look.keeper, [shard.metadata, shard.columns])
        if read is None:
            return  # the table is being dropped
        (metadata, _), (columns, _) = read
        try:  # the shard may have it so already; then the replica's queue brings it
            check_structure(wanted, metadata, columns, shard.root)
        except MetadataMismatch:
            if not look.is_settled:
                raise
            self._alter_as_others(look, here, wanted)

    def _tell_record(self, keeper: LivingKeeper, here: TableDefinition, task: int) -> None:
        """Write the definition here into the table's record, as the result of all statements up to
        `task`.
        """
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
        """The table's name in the records, and its origin. The record of the name here is looked at
        first; all others only if that is not the table's, because a later RENAME in the log has
        moved it.
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
        """Alter the table as ALTERs have altered it in the other shards, when no replica of this
        shard will come to these ALTERs any more:

        1. r3, which is new and alone in its shard, makes the table as the picture has it, and dies.
        2. An ALTER is requested; the servers of the other shard carry it out and write the record.
        3. r3 comes back, has the table, and goes on after the end of the log.

        The same happens to a server that was away until the log had lost the ALTERs of that time.
        Raises UserError when rows that are stored here would change.
        """
        name, picture = here.name, look.picture
        paths = DatabasePaths(self._required().path)
        decided: list[tuple[TableDefinition, list[AlterCommand]]] = []

        def commands(now: TableDefinition) -> list[AlterCommand]:
            """Decide the commands while no later statement of the log has changed the table. Raises
            Conflict.
            """
            for before, known in decided:
                if before == now:
                    return known
            _, log = look.keeper.children_stat(paths.queue.root)
            if log.next_sequence - 1 != picture.last_task:
                raise Conflict(f"{paths.root} changed meanwhile; trying again")
            decided.append((now, self._steps_towards(look.keeper, now, wanted)))
            return decided[-1][1]

        def end_of_log(replica: Replica) -> LogEnd | None:
            """The end of the table's log, if the commands drop something: rows that come to another
            replica while this is decided would lose it.
            """
            end = log_end(replica.keeper, replica.table, replica.paths)
            steps = self._steps_towards(look.keeper, replica.definition, wanted)
            return None if _only_adds(steps) else end

        table = self.context.table(name, self._database)
        session = Session(self.context)
        # A detached table takes no ALTER up, so wait for it first.
        sync = "1" if picture.tables[name].is_detached else "0"
        query = session.context.query_settings((("alter_sync", sync),))
        try:
            request_alter(lambda: table.replica, commands, query, EventWaker, end_of_log)
        except (CannotAssignAlter, Conflict) as error:
            raise Unavailable(str(error)) from error

    def _steps_towards(
        self, keeper: LivingKeeper, now: TableDefinition, wanted: TableDefinition
    ) -> list[AlterCommand]:
        """The commands that are missing. Raises UserError if they are more than new columns and
        there are rows.
        """
        commands = commands_towards(now, wanted)
        if not _only_adds(commands) and self._has_rows(keeper, now):
            raise UserError(
                f"{now.full_name} has missed what ALTERs made of it in other shards: it is "
                f"{create_query(now)}, and not {create_query(wanted)}. Repeat each of them with "
                "IF EXISTS or IF NOT EXISTS: it is carried out where it is missing"
            )
        return commands

    def _has_rows(self, keeper: LivingKeeper, table: TableDefinition) -> bool:
        """Whether there are rows here, or on another replica of the shard, which would be altered
        too.

        1. r1, which has rows, is away until an ALTER is cleaned from the log.
        2. r2 is new in its shard, and has fetched nothing yet.
        3. r1 comes back.

        Rows that r1 has given up count too, since it may find their bytes again. The queues are
        read before the parts, because a part that an entry brings moves from the one to the other.
        """
        store, shard = self.context.store(table), TablePaths(table.engine.zookeeper_path)
        if store.parts() or store.detached():
            return True
        [names] = keeper.children_many([shard.replicas])
        replicas = [shard.replica(one) for one in names or ()]
        for one in replicas:
            with suppress(ReplicaRetired):  # that replica was dropped meanwhile
                queue = queued_entries(keeper, one, KnownQueue()).values()
                if any(isinstance(entry, GetPart) for entry in queue):
                    return True
        stats = keeper.exists_many([one.parts for one in replicas])
        return any(stat is not None and stat.children_count for stat in stats)

    # --- making, and moving aside ---

    def _make(self, name: str, record: TableRecord, task: Task) -> None:
        """Make the table of the record. If it is half made, that is continued: its uuid shows that
        it is ours.
        """
        try:
            here = self._here(name)
        except TableDetached:
            here = None  # the CREATE reports it
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
        """The record with what ALTERs have made of the table in this shard, if the table has a path
        of its own. At any other path there may be another table, which must not be altered. Raises
        MetadataMismatch.

        One way to get here:

        1. r3, which is alone in its shard, loses its disk.
        2. An ALTER is carried out in the other shard, and written into the record.
        3. r3 comes back: its shard's nodes do not have the ALTER.

        Another way:

        1. r1 is slow.
        2. r2, of the same shard, carries out a CREATE, and an ALTER of the table.
        3. r1 comes to the CREATE: the shard's nodes are those after the ALTER.
        """
        wanted = defined_by(record, self._database)
        table = TablePaths(self.context.expanded(wanted).engine.zookeeper_path)
        if record.origin not in table.root.split("/"):
            return record
        read = read_at_once(keeper, [table.metadata, table.columns])
        if read is None:
            raise Unavailable(f"{table.root} is being created or dropped; trying again")
        (metadata, stat), (columns, _) = read
        there = definition_of_texts(
            wanted, metadata.decode(), columns.decode(), stat.version, ()
        )
        return replace(record, query=create_query(there))

    def _attach(self, record: TableRecord) -> None:
        """Take up the replica, which is in ZooKeeper but not on this disk, which was lost; its
        parts are fetched. Raises ReplicaAlreadyExists when another table here has it.
        """
        server = self.context
        wanted = replace(defined_by(record, self._database), uuid=server.uuid_of(record.origin))
        definition = server.expanded(wanted)
        try:
            server.attach_replica(definition)
        except UnknownTable as error:
            raise Unavailable(
                f"{definition.engine.root} is being created or dropped; trying again"
            ) from error

    def _let_go(self, name: str) -> None:
        """Free the name of a table that is not the database's: drop it if it is empty, else move it
        aside.
        """
        server = self.context
        definition = server.catalog.definition(self._database, name)
        store = server.store(definition)
        if not store.parts() and not store.detached():
            server.drop_table(self._database, name)
            return
        aside = f"{self._database}_broken_tables"
        server.catalog.create_database(aside, if_not_exists=True)
        taken = {*server.catalog.tables(aside), *server.catalog.dropping(aside)}
        taken |= {one.definition.name for one in server.catalog.detached(aside)}
        number = next(n for n in range(len(taken) + 1) if f"{name}_{n}" not in taken)
        server.rename_tables(((self._database, name), (aside, f"{name}_{number}")))


def _only_adds(commands: Sequence[AlterCommand]) -> bool:
    return all(isinstance(one, AddColumn) for one in commands)
