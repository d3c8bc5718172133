"""The tables of a running server: each is one replica, active in the present session or read-only.

    in the catalog ──► ReadOnly ──start──► Active ──session over, is_active gone──► ReadOnly …
                          └──fails: the reason, and when to try again──┘

Only the supervisor's thread changes anything here; HTTP threads read.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.entries import DroppedTable
from rmt_pipeline.config import Address
from rmt_pipeline.protocol.background import Background, first_stopped
from rmt_pipeline.protocol.errors import (
    TABLE_FAILS,
    Conflict,
    Corruption,
    ReplicaIsAlreadyActive,
    RmtError,
    Unavailable,
    UnknownDatabase,
    UnknownTable,
)
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.detach import DROPPED, note_detached
from rmt_pipeline.replica.life.drop import remove_dropped, resume_drop
from rmt_pipeline.replica.life.start import Started, inactive_if_it_fails, start
from rmt_pipeline.replica.readable import note_active
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.rewound import remember_log, remember_replicas
from rmt_pipeline.server.log import get_log
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import Clock, IdSource
from rmt_pipeline.zookeeper.keeper import Delete, Keeper, Refused, SetData
from rmt_pipeline.zookeeper.paths import ReplicaPaths
from rmt_pipeline.zookeeper.strays import Stray

RETRY_SOON_S = 0.5  # after a conflict, or without an answer: it may be over at once
RETRY_LATER_S = 10.0  # a person has to do something about it; as in the original

MAY_BE_OVER = Conflict | Unavailable | ReplicaIsAlreadyActive
"""Errors that may be gone at the next try. When a replica is already active, that may be a dying
session, which ends within its timeout.
"""

ServedName = tuple[str, str]
"""Database and table."""

log = get_log("server")


@dataclass(frozen=True, slots=True)
class Active:
    """The replica is announced in the present session, and ready to work."""

    replica: Replica


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """Why the table may not be written, and when (monotonic) to try to start it again."""

    reason: str
    retry_at_s: float = 0.0
    error: RmtError | None = None

    @property
    def needs_somebody(self) -> bool:
        """Whether it stays read-only until a person does something about the reason."""
        return self.error is not None and not isinstance(self.error, MAY_BE_OVER)


@dataclass(slots=True, eq=False, weakref_slot=True)
class ServedTable:
    """One table of this server. Its state is active (its session in ZooKeeper lives, and it may be
    written) or read-only, with the reason.
    """

    definition: TableDefinition
    store: PartStore
    state: Active | ReadOnly
    wake: Callable[[], None] = lambda: None
    verify_at_s: float = 0.0
    """When (monotonic) to look at `is_active`, unless a watch reports a change before that."""
    renamed: bool = False
    """Whether its `host` in ZooKeeper still has the old name."""

    @property
    def name(self) -> ServedName:
        return self.definition.database, self.definition.name

    @property
    def replica(self) -> Replica | None:
        state = self.state  # HTTP threads ask while the supervisor's thread changes it
        return state.replica if isinstance(state, Active) else None

    @property
    def reason(self) -> str:
        """Why it is read-only; "" when it is active."""
        state = self.state
        return state.reason if isinstance(state, ReadOnly) else ""

    def look_again(self) -> None:
        """Verify `is_active` soon. A watch on `is_active` calls this, from any thread."""
        self.verify_at_s = 0.0
        self.wake()

    def alter(self, definition: TableDefinition) -> None:
        """Take over another definition, or name, of the same replica; the table stays active."""
        self.renamed |= definition.full_name != self.definition.full_name
        self.definition = definition
        if isinstance(self.state, Active):
            settings = TableSettings.of(dict(definition.settings))
            replica = replace(self.state.replica, definition=definition, settings=settings)
            self.state = Active(replica)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which server this is: for good (`server`), in this process (`incarnation`), and
    its address.
    """

    server: str
    incarnation: str
    address: Address
    scheme: str = "http"

    def address_of(self, definition: TableDefinition) -> ReplicaAddress:
        host, port = self.address.host, self.address.port
        return ReplicaAddress(
            host=host,
            port=port,
            tcp_port=0,
            database=definition.database,
            table=definition.name,
            scheme=self.scheme,
        )


@dataclass(slots=True)
class Tables:
    """The tables that this server serves, by their names. It opens them as the catalog has them,
    makes them active, starts them again after a lost session, and finishes their drops. Only the
    supervisor's thread may call it, except where a method says otherwise.
    """

    catalog: Catalog
    clock: Clock
    ids: IdSource
    identity: Identity
    wake: Callable[[], None]
    """Called from any thread when a table may need another look."""
    drop_delay_s: float = 480.0
    """How long UNDROP TABLE can bring a table back after a DROP TABLE without SYNC."""
    _tables: dict[ServedName, ServedTable] = field(default_factory=dict, init=False)
    _reads_due_s: float | None = field(default=None, init=False)
    """When (monotonic) to open tables again that could not be opened."""
    _drops_due_s: float | None = field(default=None, init=False)
    """When (monotonic) to look for drops that were cut off; None: when the catalog changes."""
    _detached_due_s: float | None = field(default=None, init=False)
    """When (monotonic) to note in ZooKeeper which tables are detached; None: when the catalog
    changes.
    """
    _removals_due_s: float | None = field(default=None, init=False)
    """When (monotonic) to remove the next dropped table; None: when the catalog changes."""
    _removals: dict[DroppedTable, float] = field(default_factory=dict, init=False)
    """When (monotonic) to remove each dropped table: the wall clock may be changed meanwhile."""
    _damaged: tuple[str, ...] = field(default=(), init=False)

    @property
    def all(self) -> Mapping[ServedName, ServedTable]:
        return MappingProxyType(self._tables)

    @property
    def damaged(self) -> tuple[str, ...]:
        """What is wrong with each file of the catalog that can't be read."""
        return self._damaged

    def store_of(self, endpoint: str) -> PartStore | None:
        """The parts of the replica at this ZooKeeper path, even if its table is read-only; None if
        this server has none there. From any thread. Raises Unavailable while sends are stopped by
        hand.
        """
        for table in list(self._tables.values()):
            if table.definition.engine.root == endpoint:
                stopped = first_stopped(
                    table.store.marks.stopped(), Background.REPLICATED_SENDS
                )
                if stopped is not None:
                    raise Unavailable(f"{table.definition.full_name}: {stopped}")
                return table.store
        return None

    def replica_of(self, endpoint: str) -> Replica | None:
        for table in list(self._tables.values()):
            if table.definition.engine.root == endpoint:
                return table.replica
        return None

    def replicas(self) -> list[Replica]:
        """The active replicas. From any thread."""
        found = [table.replica for table in list(self._tables.values())]
        return [replica for replica in found if replica is not None]

    def follow_catalog(self, keeper: Keeper | None) -> None:
        """Take up new tables, give up those that are dropped or detached, and update
        altered ones. Without a session, no table is active.
        """
        wanted: dict[ServedName, ServedTable] = {}
        by_uuid = {table.definition.uuid: table for table in self._tables.values()}
        damaged = []
        self._reads_due_s = None
        for name in self.catalog.names():
            try:
                found = self._read(name, by_uuid)
            except Corruption as error:
                damaged.append(str(error))
                found = self._tables.get(name)  # if it is served already, it goes on
            # its directory, which may be on a disk of its own, or a setting of a newer version
            except (OSError, RmtError) as error:
                damaged.append(f"table {'.'.join(name)}: {error}")
                self._reads_due_s = self.clock.monotonic_s() + RETRY_LATER_S
                found = self._tables.get(name)
            if found is not None:
                wanted[name] = found
        self._say_damaged([*damaged, *self.catalog.damaged_aside()])
        still = {id(table) for table in wanted.values()}
        for table in self._tables.values():
            if id(table) not in still:
                log.info("table gone", table=table.definition.full_name)
                self._leave(table, keeper)
        self._tables = wanted
        now_s = self.clock.monotonic_s()
        self._drops_due_s = self._detached_due_s = self._removals_due_s = now_s
        for table in wanted.values():
            table.verify_at_s = 0.0  # a table dropped and made again has lost its `is_active`

    def _say_damaged(self, problems: list[str]) -> None:
        """Log each problem once."""
        for problem in problems:
            if problem not in self._damaged:
                log.warning("a file of the catalog cannot be read", reason=problem)
        self._damaged = tuple(problems)

    def look(self, keeper: Keeper) -> None:
        """Activate the tables that are due, and those that lost their `is_active`. Never raises
        RmtError.
        """
        if self._has_come(self._reads_due_s):
            self.follow_catalog(keeper)
        if self._has_come(self._drops_due_s):
            self._drops_due_s = self._finish_drops(keeper)
        if self._has_come(self._detached_due_s):
            self._detached_due_s = self._note_detached(keeper)
        if self._has_come(self._removals_due_s):
            self._removals_due_s = self._remove_dropped(keeper)
        for table in self._tables.values():
            if isinstance(table.state, Active) and self._has_come(table.verify_at_s):
                self._verify(table, keeper)
            if isinstance(table.state, Active) and table.renamed:
                self._announce(table, table.state.replica)
            if isinstance(table.state, ReadOnly) and self._has_come(table.state.retry_at_s):
                self._activate(table, keeper)

    def next_look_s(self) -> float | None:
        """The seconds until a table, or something about one, is due; None when nothing is."""
        now_s = self.clock.monotonic_s()
        states = (table.state for table in self._tables.values())
        waits = [state.retry_at_s - now_s for state in states if isinstance(state, ReadOnly)]
        dues = (
            self._reads_due_s,
            self._drops_due_s,
            self._detached_due_s,
            self._removals_due_s,
        )
        waits += [due_s - now_s for due_s in dues if due_s is not None]
        return max(0.0, min(waits)) if waits else None

    def close_for_writes(self, reason: str) -> None:
        """The session is over: make all tables read-only until the next one."""
        for table in self._tables.values():
            table.state = ReadOnly(reason)

    def _finish_drops(self, keeper: Keeper) -> float | None:
        """Finish every DROP that was cut off. Returns when to try again; None when none is left."""
        again_s = None
        for database in self.catalog.databases():
            names: list[str] = []
            with suppress(UnknownDatabase):  # dropped since it was listed
                names = self.catalog.dropping(database)
            for name in names:
                full_name = f"{database}.{name}"
                try:
                    if resume_drop(self.catalog, keeper, database, name, self._store):
                        log.info("drop finished", table=full_name)
                except Conflict:  # another process is finishing it, or will die
                    again_s = self.clock.monotonic_s() + RETRY_SOON_S
                except TABLE_FAILS as error:
                    log.warning("drop not finished", table=full_name, reason=str(error))
                    again_s = again_s or self.clock.monotonic_s() + RETRY_LATER_S
        return again_s

    def _remove_dropped(self, keeper: Keeper) -> float | None:
        """Remove the dropped tables whose time is over. Returns when the next one is due; None when
        there is none.

        The wall clock is read once for each drop, when this process first sees it. So a clock that
        is set forward later does not shorten the time, and one that is set back does not lengthen
        it.
        """
        now_s, dues_s = self.clock.monotonic_s(), self._removals
        self._removals = {}
        waits: list[float] = []
        for one in self.catalog.dropped():
            left_s = one.dropped_s + self.drop_delay_s - self.clock.now_s()
            due_s = dues_s.get(one, now_s + min(left_s, self.drop_delay_s))
            self._removals[one] = due_s
            if now_s < due_s and not one.is_removing:
                waits.append(due_s - now_s)
                continue
            try:
                if remove_dropped(self.catalog, keeper, one, self._store):
                    log.info("dropped table removed", table=one.definition.full_name)
            except TABLE_FAILS as error:
                name = one.definition.full_name
                log.warning("dropped table not removed", table=name, reason=str(error))
                waits.append(RETRY_LATER_S)
        return self.clock.monotonic_s() + min(waits) if waits else None

    def _note_detached(self, keeper: Keeper) -> float | None:
        """Note in ZooKeeper, for other servers, which replicas are detached. Returns when to do it
        again, or None. The note of a dropped table goes when an UNDROP of it begins, so as long as
        there is one, the note is renewed regularly. Without dropped tables, once is enough.
        """
        detached = [(one.definition, one.words) for one in self.catalog.detached()]
        dropped = [
            (one.definition, DROPPED)
            for one in self.catalog.dropped()
            if one.drop.replica_czxid  # else it has no replica, or another table has that now
        ]
        is_whole = not dropped
        for definition, words in (*detached, *dropped):
            try:
                note_detached(keeper, definition, words)
            except RmtError as error:
                is_whole = False
                table = definition.full_name
                log.debug("a detached table was not told of", table=table, error=str(error))
        return None if is_whole else self.clock.monotonic_s() + RETRY_LATER_S

    def _store(self, definition: TableDefinition) -> PartStore:
        disk = LocalDisk(self.catalog.table_directory(definition))
        return PartStore(disk, ids=self.ids)

    def _store_named(self, database: str, name: str) -> PartStore | None:
        try:
            return self._store(self.catalog.definition(database, name))
        except (UnknownDatabase, UnknownTable):
            return None

    def _read(self, name: ServedName, by_uuid: Mapping[str, ServedTable]) -> ServedTable | None:
        """The table as the catalog has it now; None if it is not there any more.
        Raises Corruption.
        """
        known = self._tables.get(name)
        try:
            definition = self.catalog.definition(*name)
        except (UnknownDatabase, UnknownTable):
            return None
        if definition.uuid:
            known = by_uuid.get(definition.uuid, known)  # it may have been renamed
        if known is not None and _is_same(known.definition, definition):
            if known.definition != definition:
                known.alter(definition)
            return known
        state = ReadOnly("it is being started")
        store = self._store(definition)
        for what in store.marks.stopped():  # a start forgets what was stopped by hand
            store.marks.go_on(what)
            log.info("goes on", table=definition.full_name, what=what.value)
        return ServedTable(definition, store, state, self.wake)

    def _has_come(self, due_s: float | None) -> bool:
        return due_s is not None and self.clock.monotonic_s() >= due_s

    def _activate(self, table: ServedTable, keeper: Keeper) -> None:
        """Start the replica, and set the table's state by the outcome."""
        try:
            replica = self._replica(table, keeper)
        except RmtError as error:  # it has a setting of a newer version
            self._failed(table, error)
            return
        began_s = self.clock.monotonic_s()
        try:
            started = start(
                replica,
                identity=self.identity.server,
                incarnation=self.identity.incarnation,
                address=self.identity.address_of(table.definition),
            )
            with inactive_if_it_fails(replica):
                remember_log(replica)
                remember_replicas(replica)
                note_active(replica)
        except RmtError as error:
            self._failed(table, error)
            return
        except Exception as error:
            # A bug, or a disk that fails. The other tables of this server must not suffer from it.
            log.exception("table cannot be started", table=str(replica))
            self._failed(table, Corruption(f"it cannot be started: {error!r}"))
            return
        table.state, table.renamed = Active(replica), False
        self._verify(table, keeper)
        seconds = self.clock.monotonic_s() - began_s
        log.info(
            "table active", table=str(replica), seconds=round(seconds, 3), **_news(started)
        )

    def _failed(self, table: ServedTable, error: RmtError) -> None:
        soon = isinstance(error, MAY_BE_OVER)
        known = isinstance(table.state, ReadOnly) and table.state.reason == str(error)
        if not known:
            log.warning(
                "table is read-only", table=table.definition.full_name, reason=str(error)
            )
        retry_s = RETRY_SOON_S if soon else RETRY_LATER_S
        table.state = ReadOnly(str(error), self.clock.monotonic_s() + retry_s, error)

    def _verify(self, table: ServedTable, keeper: Keeper) -> None:
        """Check whether `is_active` is still ours. A watch reports when it changes; the check is
        also repeated after a while.
        """
        replica = table.replica
        assert replica is not None

        period_s = replica.settings.zookeeper_session_expiration_check_period
        table.verify_at_s = self.clock.monotonic_s() + period_s
        try:
            stat = keeper.exists(replica.paths.is_active, table.look_again)
        except RmtError as error:
            table.verify_at_s = 0.0
            log.debug("is_active was not read", table=str(replica), error=str(error))
            return
        if stat is None or stat.ephemeral_owner != keeper.session_id:
            log.warning("table lost its is_active", table=str(replica))
            table.state = ReadOnly("its is_active was removed; it is being started again")

    def _announce(self, table: ServedTable, replica: Replica) -> None:
        """Write the table's new name into `host`, from which other replicas read where to fetch its
        parts.
        """
        address = self.identity.address_of(table.definition).encode()
        try:
            replica.keeper.multi([SetData(replica.paths.host, address)])
        except RmtError as error:
            log.debug("host was not rewritten", table=str(replica), error=str(error))
        else:
            table.renamed = False

    def _leave(self, table: ServedTable, keeper: Keeper | None) -> None:
        """Remove our `is_active` of a table that is not served any more, or could not be served. If
        there is no answer, the session does it later: else others would wait for this replica for
        as long as it lives. Its other nodes are not touched here: those of a dropped table are
        removed by the DROP, those of a detached one stay.
        """
        if keeper is None:
            return
        is_active = ReplicaPaths(table.definition.engine.root).is_active
        try:
            stat = keeper.exists(is_active)
            if stat is not None and stat.ephemeral_owner == keeper.session_id:
                keeper.multi([Delete(is_active, stat.version)])
        except Refused:
            return  # the DROP was faster
        except RmtError as error:
            keeper.strays.leave([Stray(is_active, self.identity.incarnation)])
            name = table.definition.full_name
            log.debug("is_active was not removed", table=name, error=str(error))

    def _replica(self, table: ServedTable, keeper: Keeper) -> Replica:
        definition = table.definition
        return Replica(
            definition=definition,
            keeper=keeper,
            store=table.store,
            clock=self.clock,
            ids=self.ids,
            settings=TableSettings.of(dict(definition.settings)),
            worker=f"server {self.identity.server}",
            update_definition=partial(self.catalog.update_table, definition),
            other_store=self._store_named,
        )


def _is_same(one: TableDefinition, other: TableDefinition) -> bool:
    """Whether the two are one table before and after an ALTER. After DROP and CREATE
    they are not.
    """
    return one.uuid == other.uuid and one.engine.root == other.engine.root


def _news(started: Started) -> dict[str, object]:
    """What the start of a replica has found, as far as it is worth logging."""
    recovered = started.recovered
    news: dict[str, object] = {}
    if started.cloned is not None:
        news["cloned"] = started.cloned
    if recovered.refetched:
        news["refetched_parts"] = len(recovered.refetched)
    if recovered.detached:
        news["detached_parts"] = [name for _, name in recovered.detached]
    return news
