"""A statement ON CLUSTER, as a server of the cluster carries it out: once, whatever happens in
between.

Whether a statement that makes or removes a table or a database has happened is seen from its name
before and after: each table has a uuid, and a table that this statement makes has a uuid of the
statement's own. What changes a table of which other servers have replicas is carried out by one of
them, and the others wait:

    executed? ──► lock, ephemeral ──► executed? ──► the multi that does it also writes `executed`
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import assert_never

from rmt_pipeline.catalog.replicated import replicated_database, uuid_made_by
from rmt_pipeline.cluster.queue import make_node
from rmt_pipeline.cluster.worker import BegunTask
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.commands import ModifyComment, ModifySettings, ResetSettings
from rmt_pipeline.protocol.errors import (
    Corruption,
    NoNextSession,
    NotOnCluster,
    OutcomeUnknown,
    ReplicaDropped,
    ReplicaRetired,
    RmtError,
    Unavailable,
    Unfinished,
    UnknownDatabase,
    UnknownTable,
    UserError,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.nodes.tasks import NamesBefore, Task, TaskOutcome
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.mutations.mutations import wait_for_mutation
from rmt_pipeline.replica.wait import wait_for_kinds
from rmt_pipeline.sql.run.on_cluster import own_settings
from rmt_pipeline.sql.run.replicated import replicated_of
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.statements.nodes import (
    AllPartitions,
    AlterPartitions,
    AlterTable,
    AttachPartition,
    AttachTable,
    ClusterStatement,
    CreateDatabase,
    DetachTable,
    DropDatabase,
    DropDetached,
    DropTable,
    ExchangeTables,
    FreezePartition,
    MovePartition,
    MutateRows,
    OnCluster,
    Optimize,
    RenameDatabase,
    RenameTables,
    TableName,
    Truncate,
    UnfreezePartition,
)
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.keeper import Create, LivingKeeper, RefusalKind, Refused, SetData
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.strays import give_back, seen_to
from rmt_pipeline.zookeeper.through import CarriedOut, MarkedKeeper

TRIES = 3  # as in the original
PAUSE_S = 1.0  # between tries
WAIT_SLICE_S = 3.0  # the delay after an event that was missed, at most

_BY_ANOTHER = ". Another replica of the table may carry it out all the same"

_PARTS_THAT_COME_OR_GO = frozenset({"ATTACH_PART", "DROP_PART", "DROP_RANGE", "REPLACE_RANGE"})

_OWN = (ModifySettings, ResetSettings, ModifyComment)
"""Commands of ALTER that each replica carries out for itself."""

OfTable = AlterTable | MutateRows | AlterPartitions | Truncate | Optimize
"""Statements that one replica carries out for all."""


class TaskContext(ServerContext):
    """A server's context that acts in one session only: after that session, what was begun in it is
    looked at anew. A table that a task creates has the same uuid in each try.
    """

    bound: LivingKeeper | None = None
    origin: str = ""
    """The id of the statement that makes a table."""

    def bind(self, keeper: LivingKeeper, origin: str) -> None:
        self.use(keeper)
        self.bound, self.origin = keeper, origin

    def keeper(self, patience_s: float | None = None) -> LivingKeeper:
        """The keeper of the session. Raises NoNextSession when that has ended."""
        del patience_s
        if self.bound is None or self.bound.is_retired:
            raise NoNextSession("the session in which the statement was begun is over")
        return self.bound

    def new_uuid(self, definition: TableDefinition) -> str:
        del definition  # a statement makes one table
        return self.uuid_of(self.origin)

    def uuid_of(self, origin: str) -> str:
        """The uuid of the table on this server that the statement of this id makes."""
        return uuid_made_by(origin, self.server.name)

    def create_table(
        self, definition: TableDefinition, *, if_not_exists: bool = False, called: str = ""
    ) -> bool:
        """True also when the table was there already, and is the one that an earlier try made."""
        if self.catalog.has(definition.database, definition.name):
            there = self.catalog.definition(definition.database, definition.name)
            if there.uuid == self.new_uuid(definition):
                return True
        return super().create_table(definition, if_not_exists=if_not_exists, called=called)


class StatementCarrier:
    """Carries statements out for `cluster.worker`. For one thread."""

    def __init__(
        self, context: TaskContext, waker: Waker, should_stop: Callable[[], bool]
    ) -> None:
        """`waker` is woken when `should_stop` changes."""
        self.context = context
        self._waker = waker
        self._should_stop = should_stop

    def names(self, task: Task) -> NamesBefore:
        """What the names in the task stand for; nothing if it can't be read, which `carry_out`
        reports.
        """
        try:
            steps = self._steps(task)
        except UserError:
            return NamesBefore()
        found: dict[tuple[str, str], str] = {}
        for step in steps:
            if isinstance(step, CreateDatabase | DropDatabase):
                found[step.name, ""] = self._noted(step.name)
            if isinstance(step, DropDatabase):
                for table in self._tables_of(step.name):
                    found[step.name, table] = self._noted(step.name, table)
            if isinstance(step, RenameDatabase):
                found[step.old, ""] = self._noted(step.old)
            for name in _tables_in(step):
                database = name.database or task.database
                found[database, name.name] = self._noted(database, name.name)
        return NamesBefore(tuple((*name, uuid) for name, uuid in found.items()))

    def _noted(self, database: str, table: str = "") -> str:
        """As `_now`, but "" for a bad name or a damaged file. `carry_out` reports that; an error
        here would hold up every later statement.
        """
        try:
            return self._now(database, table)
        except (UserError, Corruption):
            return ""

    def carry_out(self, keeper: LivingKeeper, begun: BegunTask) -> TaskOutcome:
        """Carry the task out. Raises ReplicaRetired, ZooKeeperUnreachable; Unavailable when the
        server stops; OutcomeUnknown when it can't be found out yet whether it happened.
        """
        try:
            steps = self._steps(begun.task)
        except UserError as error:
            return _failed(error)
        for number, step in enumerate(steps):
            outcome = self._tried(keeper, begun, number, step)
            if outcome.code:
                return outcome
        return TaskOutcome()

    def _tried(
        self, keeper: LivingKeeper, begun: BegunTask, number: int, step: ClusterStatement
    ) -> TaskOutcome:
        """Carry a step out, with several tries. Failure is reported only when the step will not
        happen any more. A write without an answer may still be under way: then OutcomeUnknown is
        raised, and the next attempt at the task finds out.
        """
        is_unknown = False
        for left in reversed(range(TRIES)):
            if self._should_stop():
                raise Unavailable("the server is stopping")
            try:
                return self._step(keeper, begun, number, step)
            except ReplicaDropped as error:  # no later session brings it back
                return _failed(error)
            except (ReplicaRetired, ZooKeeperUnreachable):
                raise
            except RmtError as error:
                is_unknown = is_unknown or isinstance(error, OutcomeUnknown)
                if _is_final(error):
                    return _failed(error)
                if not left and is_unknown:
                    raise OutcomeUnknown(f"{error} (after {TRIES} tries)") from error
                if not left:
                    may_be = _BY_ANOTHER if isinstance(step, OfTable) else ""
                    return TaskOutcome(error.code, f"{error}{may_be}")
            except Exception as error:  # noqa: BLE001  a bug, or a disk that fails
                return TaskOutcome("LOGICAL_ERROR", repr(error))
            self.context.clock.sleep_s(PAUSE_S)
        raise AssertionError("the last try returns or raises")

    def _step(
        self, keeper: LivingKeeper, begun: BegunTask, number: int, step: ClusterStatement
    ) -> TaskOutcome:
        self.context.bind(keeper, begun.task.request_id)
        if isinstance(step, OfTable):
            self._require_same(step.table, begun)
        table = self._shared_table(begun.task, step)
        if table is not None:
            assert isinstance(step, OfTable)
            return self._once(keeper, begun, number, step, table)
        if not self._has_happened(step, begun):
            if isinstance(step, DropDatabase):
                self._require_no_others(step.name, begun)
            self._run(begun.task, step)
        return TaskOutcome()

    def _steps(self, task: Task) -> list[ClusterStatement]:
        """The steps of the task, in order. Raises SyntaxProblem, NotImplementedStatement."""
        parsed = parse(task.query)
        if not isinstance(parsed, OnCluster):
            raise UserError(f"the task is no statement ON CLUSTER: {task.query}")
        statement = parsed.statement
        match statement:
            case DropTable(tables=tables):
                return [replace(statement, tables=(table,)) for table in tables]
            case AlterPartitions(commands=commands):
                return [replace(statement, commands=(command,)) for command in commands]
            case _:
                return [statement]

    def _run(self, task: Task, statement: ClusterStatement) -> None:
        session = self._session(task)
        database = replicated_of(session.context, statement)
        if database:
            raise NotOnCluster(
                f"database {database} is Replicated: it brings its tables to its servers by "
                "itself. Say it without ON CLUSTER"
            )
        session.carry_out(statement)

    def _session(self, task: Task) -> Session:
        session = Session(self.context, dict(task.settings))
        session.context.database = task.database
        return session

    # --- what makes and removes ---

    def _now(self, database: str, table: str = "") -> str:
        """The uuid of the table that has the name now, or the name of the database; "" if there is
        none.
        """
        catalog = self.context.catalog
        if not table:
            return database if database in catalog.databases() else ""
        try:
            return catalog.definition(database, table).uuid or "unknown"
        except (UnknownTable, UnknownDatabase):
            return ""

    def _has_happened(self, step: ClusterStatement, begun: BegunTask) -> bool:
        """Whether an earlier try has carried it out. Raises UnknownTable for a DROP of a table that
        did not exist.
        """
        match step:
            case CreateDatabase(name):
                return begun.before.of(name) == "" and self._now(name) != ""
            case DropDatabase(name):
                return begun.before.of(name) != "" and self._now(name) == ""
            case RenameDatabase(old, new):
                return begun.before.of(old) != "" and (self._now(old), self._now(new)) == (
                    "",
                    new,
                )
            case RenameTables(moves=moves):  # all or none
                return any(self._is_another(old, begun) for old, _ in moves)
            case ExchangeTables(one, _):
                return self._is_another(one, begun)
            case AttachTable(table):
                before, now = self._before_and_now(table, begun)
                return before == "" and now != ""
            case DropTable(tables=(table,)) | DetachTable(table=table):
                before, now = self._before_and_now(table, begun)
                if before == now:
                    return False
                if before == "" and not step.if_exists:
                    raise UnknownTable(f"table {table} did not exist when this was begun")
                database = table.database or begun.task.database
                return not self.context.catalog.is_dropping(database, table.name)
            case _:
                return False

    def _require_same(self, table: TableName, begun: BegunTask) -> None:
        """Raises Unfinished unless the name stands for the same table as when the task was begun,
        or for none. Otherwise:

        1. A carries out TRUNCATE TABLE t, and dies before it has noted that.
        2. A client exchanges t with s, or drops t and creates another one.
        3. A begins again: the rows of the table that is t now must stay.
        """
        before, now = self._before_and_now(table, begun)
        if now in ("", before):
            return
        was = "there was no table" if before == "" else "another table was"
        raise Unfinished(
            f"{was} called {table} when this server began the statement, so it is not carried out "
            "on the table that has the name now. Repeat it if that one is meant"
        )

    def _require_no_others(self, database: str, begun: BegunTask) -> None:
        """Raises Unfinished if the database has tables that were not noted when the task was begun.
        In a Replicated database they are no reason, since they come from its log, and are on its
        other servers. Otherwise:

        1. A drops the database d, and dies before it has noted that.
        2. A client creates d and a table in it.
        3. A begins again: that table must stay.
        """
        if replicated_database(self.context.catalog, database) is not None:
            return
        noted = {uuid for name, table, uuid in begun.before.uuids if name == database and table}
        now = {name: self._now(database, name) for name in self._tables_of(database)}
        others = [
            f"{database}.{name}" for name, uuid in now.items() if uuid not in {"", *noted}
        ]
        if others:
            raise Unfinished(
                f"database {database} has tables that were not there when this server began with "
                f"the statement: {', '.join(others)}. It is not dropped with them; repeat it "
                "if they are to go"
            )

    def _tables_of(self, database: str) -> list[str]:
        try:
            return self.context.catalog.tables(database)
        except UserError:  # there is no such database, or its name is bad
            return []

    def _is_another(self, table: TableName, begun: BegunTask) -> bool:
        """Whether the name stood for a table and does not stand for that one any more."""
        before, now = self._before_and_now(table, begun)
        return before not in ("", now)

    def _before_and_now(self, table: TableName, begun: BegunTask) -> tuple[str, str]:
        database = table.database or begun.task.database
        return begun.before.of(database, table.name), self._now(database, table.name)

    # --- what one replica does for all ---

    def _shared_table(self, task: Task, step: ClusterStatement) -> TablePaths | None:
        """The table that one replica changes for all; None for what each server does itself."""
        match step:
            case AlterTable(commands=commands) if all(isinstance(c, _OWN) for c in commands):
                return None
            case AlterPartitions(
                commands=(DropDetached() | FreezePartition() | UnfreezePartition(),)
            ):
                return None
            case AlterTable() | MutateRows() | AlterPartitions() | Truncate() | Optimize():
                database = step.table.database or task.database
                try:
                    definition = self.context.catalog.definition(database, step.table.name)
                except (UnknownTable, UnknownDatabase):
                    if isinstance(step, Truncate) and step.if_exists:
                        return None
                    raise
                return TablePaths(definition.engine.zookeeper_path)
            case _:
                return None

    def _once(
        self,
        keeper: LivingKeeper,
        begun: BegunTask,
        number: int,
        step: OfTable,
        table: TablePaths,
    ) -> TaskOutcome:
        executed = begun.paths.executed(table, number)
        make_node(keeper, begun.paths.shard(table))
        while not self._should_stop():
            known = self._known(keeper, executed)
            if known:
                outcome = TaskOutcome.decode(known)
                if not outcome.code:
                    self._wait_until_here(keeper, begun, step, executed)
                return outcome
            with self._locked(keeper, begun, table) as is_ours:
                if is_ours and (done := self._executed(keeper, begun, executed, step, table)):
                    return done
            if not is_ours:
                self._waker.wait_s(WAIT_SLICE_S)
        raise Unavailable("the server is stopping")

    def _wait_until_here(
        self, keeper: LivingKeeper, begun: BegunTask, step: OfTable, executed: str
    ) -> None:
        """Wait until this replica has what another replica has carried out, as `alter_sync` or
        `mutations_sync` says, so that a client which is answered for this server sees it here.
        Raises Unfinished. Without this:

        1. r2 carries out an ALTER which adds a column, and r1 sees that.
        2. r1 reports that it has finished, and so all servers have.
        3. A SELECT on r1, whose queue still has the ALTER, does not know the column.

        A server that was away and comes to the task after the client's time does not wait.
        """
        query = self._session(begun.task).context.query_settings(own_settings(step))
        kinds, sync = _seen_by(step, query)
        clock, created = self.context.clock, keeper.exists(begun.paths.root)
        database = step.table.database or begun.task.database
        if sync == 0 or created is None:
            return
        left_s = query.receive_timeout - (clock.now_s() - created.created_ms / 1000)
        deadline_s = clock.monotonic_s() + min(left_s, query.receive_timeout)
        if left_s <= 0:
            return

        def check() -> str:
            """Raises an error when waiting is in vain."""
            if self._should_stop():
                raise Unavailable("the server is stopping")
            self._require_same(step.table, begun)
            self.context.table(step.table.name, database)
            return ""

        def give_up() -> bool:
            check()
            return clock.monotonic_s() >= deadline_s

        changed = [step.table]
        if isinstance(step, AlterPartitions):
            moves = (one for one in step.commands if isinstance(one, MovePartition))
            changed += [move.destination for move in moves]
        for name in changed:
            replica = self.context.table(
                name.name, name.database or begun.task.database
            ).replica
            if kinds and not wait_for_kinds(replica, kinds, give_up, self._waker):
                raise Unfinished(
                    f"another replica has carried it out, and {replica} has not yet: it will; "
                    "system.replication_queue says what it waits for"
                )
            for mutation in _mutations_of(keeper, replica.table, executed):
                wait_for_mutation(
                    replica,
                    mutation,
                    [replica.name],
                    timeout_s=deadline_s - clock.monotonic_s(),
                    inactive_timeout_s=deadline_s - clock.monotonic_s(),
                    waker=self._waker,
                    why_stuck=check,
                )

    def _known(self, keeper: LivingKeeper, executed: str) -> bytes | None:
        """The noted outcome; b"" when the step has happened, but its replica died before it noted
        more; None when it has not happened. A watch wakes when this changes.
        """
        if keeper.exists(executed, self._waker.wake) is None:
            return None
        [read] = keeper.get_many([executed])
        return None if read is None else read[0]

    @contextmanager
    def _locked(
        self, keeper: LivingKeeper, begun: BegunTask, table: TablePaths
    ) -> Iterator[bool]:
        """Take the lock of the table for this task. False while another replica has it, whose end
        wakes.
        """
        lock = keeper.strays.marked(begun.paths.lock(table), keeper.session_id)
        try:
            with seen_to(keeper, [lock]):
                keeper.multi([Create(lock.path, lock.mark.encode(), ephemeral=True)])
        except Refused as refused:
            if refused.kind is not RefusalKind.NODE_EXISTS:
                raise
            keeper.exists(lock.path, self._waker.wake)
            yield False
            return
        try:
            yield True
        finally:
            give_back(keeper, [lock])

    def _executed(
        self,
        keeper: LivingKeeper,
        begun: BegunTask,
        executed: str,
        step: ClusterStatement,
        table: TablePaths,
    ) -> TaskOutcome | None:
        """Carry the step out and note its outcome. None when it had happened before, so that this
        server has not yet waited for it.
        """
        known = self._known(keeper, executed)
        outcome = self._carried_out(keeper, begun, executed, step) if known is None else None
        if not known:
            _note(keeper, executed, outcome or _cut_off(keeper, step, table))
        return outcome

    def _carried_out(
        self, keeper: LivingKeeper, begun: BegunTask, executed: str, step: ClusterStatement
    ) -> TaskOutcome | None:
        match step:
            case Optimize() | AlterPartitions(commands=(AttachPartition(),)):
                return self._told(begun.task, step)  # safe to repeat: it changes nothing newer
            case _:
                pass
        self.context.bind(MarkedKeeper(keeper, executed), begun.task.request_id)
        try:
            return self._told(begun.task, step)
        except CarriedOut:
            return None
        finally:
            self.context.bind(keeper, begun.task.request_id)

    def _told(self, task: Task, step: ClusterStatement) -> TaskOutcome:
        """The outcome of a step; a final error is final for every replica of the table. Raises
        other errors.
        """
        try:
            self._run(task, step)
        except CarriedOut:
            raise
        except RmtError as error:
            if not _is_final(error):
                raise
            return _failed(error)
        return TaskOutcome()


def _tables_in(value: object) -> Iterator[TableName]:
    if isinstance(value, TableName):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _tables_in(one)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tables_in(getattr(value, field.name))


def _seen_by(step: ClusterStatement, query: QuerySettings) -> tuple[frozenset[str], int]:
    """The kinds of entries after which a SELECT sees the statement, and the setting for waiting."""
    match step:
        case AlterTable():
            return frozenset({"ALTER_METADATA"}), query.alter_sync
        case MutateRows(is_lightweight=True):
            return frozenset(), query.lightweight_deletes_sync
        case MutateRows():
            return frozenset(), query.mutations_sync
        case AlterPartitions() | Truncate():
            return _PARTS_THAT_COME_OR_GO, query.alter_sync
        case _:
            return frozenset(), 0


def _mutations_of(keeper: LivingKeeper, table: TablePaths, executed: str) -> list[str]:
    """The mutations that were created in one multi with the node `executed`."""
    mark = keeper.exists(executed)
    names = keeper.children(table.mutations)
    stats = keeper.exists_many([table.mutation(name) for name in names])
    return [
        name
        for name, stat in zip(names, stats, strict=True)
        if mark is not None and stat is not None and stat.created_zxid == mark.created_zxid
    ]


def _cut_off(keeper: LivingKeeper, step: ClusterStatement, table: TablePaths) -> TaskOutcome:
    """The outcome of a statement that happened, but whose replica died before it noted
    the outcome.
    """
    match step:
        case Truncate() | AlterPartitions(commands=(_,)) if _is_of_all(step):
            partitions = len(keeper.children(table.block_numbers))
            if partitions > limits.DROPS_PER_MULTI_MAX:
                return TaskOutcome(
                    Unfinished.code,
                    f"the server that dropped the {partitions} partitions of {table.root}, "
                    f"{limits.DROPS_PER_MULTI_MAX} at a time, was interrupted: repeat it if there "
                    "are rows left",
                )
    return TaskOutcome()


def _is_of_all(step: Truncate | AlterPartitions) -> bool:
    match step:
        case Truncate():
            return True
        case AlterPartitions(commands=commands):
            return any(isinstance(getattr(c, "target", None), AllPartitions) for c in commands)
        case _:
            assert_never(step)


def _note(keeper: LivingKeeper, executed: str, outcome: TaskOutcome) -> None:
    try:
        keeper.multi([Create(executed, outcome.encode())])
    except Refused as refused:
        if refused.kind is not RefusalKind.NODE_EXISTS:
            raise
        keeper.multi([SetData(executed, outcome.encode())])


def _is_final(error: RmtError) -> bool:
    """Whether another try would only give the same error."""
    if error.code == "CANNOT_ASSIGN_ALTER":
        return False
    return isinstance(error, UserError | Unfinished)


def _failed(error: RmtError) -> TaskOutcome:
    return TaskOutcome(error.code, str(error))
