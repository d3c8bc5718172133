"""A Replicated database on a server: what its log says is carried out, and what is missing or too
much is found by comparing with the database's tables in ZooKeeper.

A table here is the one there when its uuid is that of the statement which created it. Any other one
of its name, and one that the database does not have, is moved aside when it holds data, to
`<database>_broken_tables`; nothing with rows in it is ever dropped here but by its DROP.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from rmt_pipeline.catalog.replicated import ReplicatedDatabase, replicated_database
from rmt_pipeline.cluster.database import Picture, followers, update_record
from rmt_pipeline.cluster.queue import tasks_in
from rmt_pipeline.cluster.worker import BegunTask
from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    AddDeclared,
    AlterCommand,
    DeclaredKind,
    DropColumn,
    DropDeclared,
    ModifyColumn,
    ModifyOrderBy,
    ModifyTtl,
    Place,
)
from rmt_pipeline.protocol.alter.definition import declared_name
from rmt_pipeline.protocol.errors import (
    Conflict,
    MetadataMismatch,
    ReplicaAlreadyExists,
    ReplicaRetired,
    RmtError,
    TableDetached,
    Unavailable,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task, TaskOutcome
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.alter.request import CannotAssignAlter, request_alter
from rmt_pipeline.replica.life.create import check_structure
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.run.databases import defined_by
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
    Statement,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import EventWaker, Waker
from rmt_pipeline.zookeeper.keeper import LivingKeeper
from rmt_pipeline.zookeeper.paths import (
    DatabasePaths,
    TablePaths,
    database_table,
    sequence_number,
)

_FLAT = (("flatten_nested", "0"),)  # columns are as they are in the record


def renamed(name: str, statement: Statement) -> str:
    """What the table of that name is called after the statement; "" of one that is dropped."""
    match statement:
        case DropTable(tables=tables) if name in {table.name for table in tables}:
            return ""
        case RenameTables(moves=((old, new),)) if name == old.name:
            return new.name
        case ExchangeTables(one, other) if name in (one.name, other.name):
            return other.name if name == one.name else one.name
        case _:
            return name


def commands_towards(now: TableDefinition, wanted: TableDefinition) -> list[AlterCommand]:
    """What makes a table of this structure one of that. A column that has got another name is
    dropped and added.
    """
    kept = {column.name for column in now.columns} & {column.name for column in wanted.columns}
    is_in_order = [one.name for one in now.columns if one.name in kept] == [
        one.name for one in wanted.columns if one.name in kept
    ]
    commands: list[AlterCommand] = []
    kinds: tuple[tuple[DeclaredKind, tuple[str, ...], tuple[str, ...]], ...] = (
        ("INDEX", now.indices, wanted.indices),
        ("PROJECTION", now.projections, wanted.projections),
        ("CONSTRAINT", now.constraints, wanted.constraints),
    )
    others = [kind for kind in kinds if kind[1] != kind[2]]
    for kind, before, _ in others:
        commands += [DropDeclared(kind, declared_name(text)) for text in before]
    commands += [DropColumn(one.name) for one in now.columns if one.name not in kept]
    last = ""
    for column in wanted.columns:
        known = now.column(column.name)
        if known is None:
            commands.append(AddColumn(column, Place(last)))
        elif known != column or not is_in_order:
            commands.append(_made_to(column, None if is_in_order else Place(last)))
        last = column.name
    if now.order_by != wanted.order_by:
        commands.append(ModifyOrderBy(wanted.order_by))
    if now.ttl != wanted.ttl:
        commands.append(ModifyTtl(wanted.ttl))
    for kind, _, after in others:
        commands += [AddDeclared(kind, declared_name(text), text) for text in after]
    return commands


def _made_to(column: Column, place: Place | None) -> ModifyColumn:
    return ModifyColumn(
        column.name,
        type=column.type,
        default_kind=column.default_kind,
        default=column.default,
        comment=column.comment,
        codec=column.codec,
        ttl=column.ttl,
        place=place,
    )


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
        self._called: dict[str, list[Task]] = {}
        """By an ALTER that is carried out late, what is in the log behind it."""

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
                    self._tell_record(keeper, self._required(), here, number)
        return outcome

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
        time it is tried again. `is_settled`: what ALTERs have made of them is in the picture, and
        none before its end is carried out here any more.
        """
        database = self._required()
        missed = self._known_in_full(keeper, picture) if is_settled else frozenset()
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
                    if name in missed:
                        self._alter_as_others(keeper, name, picture)
                    self._match(keeper, database, name, picture.tables[name])
                else:
                    self._let_go(name)
            except (ReplicaRetired, Unavailable):
                raise
            except (RmtError, OSError) as error:
                problems.append(f"table {self._database}.{name}: {error}")
        return problems

    def alters_under_way(
        self, keeper: LivingKeeper, picture: Picture, replica: str
    ) -> list[tuple[str, str]]:
        """The ALTERs before the end of the picture's log that are not in it yet, because another
        replica has still to come to them; each with the first such replica.

        Also one whose server does not run, as long as nobody else has carried the ALTER out: when
        it comes back it will, and nobody would in the shards that have gone on without.
        """
        untold = self._untold(keeper, self._tasks(keeper, picture), picture)
        if not untold:
            return []
        others = followers(keeper, DatabasePaths(self._required().path), replica)
        found: list[tuple[str, str]] = []
        for name, finished in untold:
            left = [
                one
                for one in others
                if one.done < sequence_number(name)
                and one.name not in finished
                and (one.is_active or not finished)
            ]
            found += [(name, one.name) for one in left[:1]]
        return found

    def alters_left(self, keeper: LivingKeeper, picture: Picture, replica: str) -> list[str]:
        """Those that are not in the picture, and that this replica has not come to. From now on the
        table of each is the one that has it by the end of the picture's log.
        """
        tasks = self._tasks(keeper, picture)
        untold = self._untold(keeper, tasks, picture)
        left = [name for name, finished in untold if replica not in finished]
        self._called = {
            tasks[name].request_id: [task for other, task in tasks.items() if other > name]
            for name in left
        }
        return [name for name in left if self._is_there(tasks[name], picture)]

    def _tasks(self, keeper: LivingKeeper, picture: Picture) -> dict[str, Task]:
        """What the log has before the picture's end, in its order."""
        log = DatabasePaths(self._required().path).queue
        found = tasks_in(keeper, log)
        return {
            name: task for name, task in found if sequence_number(name) <= picture.last_task
        }

    def _known_in_full(self, keeper: LivingKeeper, picture: Picture) -> frozenset[str]:
        """The tables of which the picture has every ALTER that was carried out anywhere."""
        tasks = self._tasks(keeper, picture)
        unknown: set[str] = set()
        for name, _ in self._untold(keeper, tasks, picture):
            parsed = parse(tasks[name].query)
            if isinstance(parsed, AlterTable):
                called = parsed.table.name
                for later in (task for other, task in tasks.items() if other > name):
                    called = renamed(called, parse(later.query))
                unknown.add(called)
        return frozenset(picture.tables) - unknown

    def _is_there(self, task: Task, picture: Picture) -> bool:
        """Whether the table of an ALTER has not been dropped since."""
        return all(
            isinstance(step, AlterTable) and step.table.name in picture.tables
            for step in self._steps(task)
        )

    def _untold(
        self, keeper: LivingKeeper, tasks: Mapping[str, Task], picture: Picture
    ) -> list[tuple[str, Collection[str]]]:
        """The ALTERs that the tables' records do not know of, and who notes them as done."""
        queue = DatabasePaths(self._required().path).queue
        names = [
            name
            for name, task in tasks.items()
            if self._is_to_be_told(task, sequence_number(name), picture)
        ]
        finished = keeper.children_many([queue.task(name).finished for name in names])
        return [(name, done or ()) for name, done in zip(names, finished, strict=True)]

    def _is_to_be_told(self, task: Task, number: int, picture: Picture) -> bool:
        """Whether it is an ALTER that the table's record does not know of. A table that the picture
        does not have may have got another name since.
        """
        try:
            steps = self._steps(task)
        except RmtError:
            return False  # that is said when it is carried out
        for step in steps:
            if isinstance(step, AlterTable):
                known = picture.tables.get(step.table.name)
                if known is None or known.task < number:
                    return True
        return False

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
                name = table.name
                for later in self._called.get(task.request_id, ()):
                    name = renamed(name, parse(later.query))
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
        is_its = here is not None and here.uuid == self.context.uuid_of(record.origin)
        if record.is_detached:
            if is_its:
                self.context.detach_table(self._database, name, permanently=True)
            elif here is not None:
                self._let_go(name)
        elif here is None or not is_its:
            self._make_as(name, record)
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
        paths, name = DatabasePaths(database.path), here.name
        if not origin:
            found = self._record_of(keeper, paths, here)
            if found is None:
                return
            name, origin = found
        if here.uuid == self.context.uuid_of(origin):
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

    def _alter_as_others(self, keeper: LivingKeeper, name: str, picture: Picture) -> None:
        """What ALTERs have made of the table in the other shards, when they are not carried out in
        this one any more:

        1. r3, which is new and alone in its shard, makes the table as the picture has it, and dies.
        2. An ALTER is said, and the servers of the other shard carry it out and tell the record.
        3. r3 comes back, has the table, and goes on behind the end of the log.

        So does who was away until the log had no ALTER of that time any more. Raises UserError when
        what is stored here would change by it.
        """
        try:
            here = self._here(name)
        except TableDetached:
            return
        record = picture.tables[name]
        if here is None or here.uuid != self.context.uuid_of(record.origin):
            return
        wanted = defined_by(record, self._database)
        if here.metadata_version > record.version or create_query(here) == record.query:
            return
        self._take_own(here, record)
        if self._is_in_shard(keeper, here, wanted):
            return
        session = self._session(Task(record.query, (), "", record.origin))
        paths = DatabasePaths(self._required().path)
        decided: list[tuple[TableDefinition, list[AlterCommand]]] = []

        def commands(now: TableDefinition) -> list[AlterCommand]:
            """Decided on what the table is before any statement that comes next changes it."""
            for before, known in decided:
                if before == now:
                    return known
            _, log = keeper.children_stat(paths.queue.root)
            if log.next_sequence - 1 != picture.last_task:
                raise Conflict(f"{paths.root} was changed meanwhile; it is looked at again")
            decided.append((now, self._steps_towards(now, wanted)))
            return decided[-1][1]

        table = self.context.table(name, self._database)
        sync = "1" if record.is_detached else "0"  # it takes nothing up once it is detached
        query = session.context.query_settings((("alter_sync", sync),))
        try:
            request_alter(lambda: table.replica, commands, query, EventWaker)
        except (CannotAssignAlter, Conflict) as error:
            raise Unavailable(str(error)) from error

    @staticmethod
    def _is_in_shard(
        keeper: LivingKeeper, here: TableDefinition, wanted: TableDefinition
    ) -> bool:
        """Whether the table's replicas in this shard are as wanted, or will be by their queues."""
        table = TablePaths(here.engine.zookeeper_path)
        metadata, columns = keeper.get_many([table.metadata, table.columns])
        if metadata is None or columns is None:
            return True  # it is being dropped
        try:
            check_structure(wanted, metadata[0], columns[0], table.root)
        except MetadataMismatch:
            return False
        return True

    def _steps_towards(
        self, now: TableDefinition, wanted: TableDefinition
    ) -> list[AlterCommand]:
        """Raises UserError for more than new columns, when there are rows."""
        commands = commands_towards(now, wanted)
        store = self.context.store(now)
        has_rows = bool(store.parts() or store.detached())
        if has_rows and not all(isinstance(one, AddColumn) for one in commands):
            raise UserError(
                f"{now.full_name} has missed what ALTERs made of it in other shards: it is "
                f"{create_query(now)}, and not {create_query(wanted)}. Say each of them again with "
                "IF EXISTS or IF NOT EXISTS: it is carried out where it is missing"
            )
        return commands

    def _take_own(self, here: TableDefinition, record: TableRecord) -> None:
        """Settings and comment, which are each replica's own, of an ALTER that was missed."""
        wanted = defined_by(record, self._database)

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
