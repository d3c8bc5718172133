"""One server as any process of its host sees it: its tables, its ZooKeeper session, its catalog.

Imports inside methods keep the start of a process fast: a statement without a table needs neither
ZooKeeper nor pyarrow.
"""

import os
import socket
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.contents import CatalogVersion, FullName
from rmt_pipeline.catalog.directory import make_data_directory, require_owner
from rmt_pipeline.catalog.entries import directory_of_its_own, full_name_of
from rmt_pipeline.config import Config, RenewedConfig, ServerConfig, expand, load_config
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import (
    Conflict,
    DiskFull,
    ReplicaAlreadyExists,
    TableAlreadyExists,
    UnknownDatabase,
    UnknownTable,
    UserError,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.protocol.text import require_node, require_path
from rmt_pipeline.system import Clock, RandomIds, SystemClock, account

if TYPE_CHECKING:
    from rmt_pipeline.exchange.bandwidth import Bandwidth
    from rmt_pipeline.exchange.client import HttpPeers
    from rmt_pipeline.exchange.connections import Connections
    from rmt_pipeline.exchange.slots import FetchSlots
    from rmt_pipeline.protocol.refusal import ReadOnlyReason
    from rmt_pipeline.replica.life.restoring import Restored
    from rmt_pipeline.replica.replica import Replica
    from rmt_pipeline.store.frozen import FrozenParts, Shadow
    from rmt_pipeline.store.part_store import PartStore
    from rmt_pipeline.store.tally import ErrorCounts
    from rmt_pipeline.table import Table
    from rmt_pipeline.zookeeper.keeper import LivingKeeper


READ_PATIENCE_S = 3.0  # for ZooKeeper; then a reader goes on from what the server last knew
AWAY_S = 5.0  # after a wait in vain, readers do not wait again for so long
MAKING_WAIT_S = 60.0  # for another process that gives a table the same name
MAKING_LOOK_S = 0.05
LOOKED_FOR = 2  # directories of tables, for each table more


class ServerContext:
    """What a process needs to act for one server of its host. It connects when it first has to.

    It holds no state of its own: the truth is in ZooKeeper, in the catalog and in the directories
    of parts. So any number of processes may have a context of the same server at once.
    """

    def __init__(
        self,
        config: Config,
        server: str,
        *,
        clock: Clock | None = None,
        purpose: str = "client",
    ) -> None:
        """`purpose` describes this process in claims, e.g. `worker`. Raises BadConfiguration."""
        self.config = config
        self.server: ServerConfig = config.server(server)
        self.clock = clock or SystemClock()
        self.ids = RandomIds()
        require_owner(self.server.data, self.server.name)
        make_data_directory(self.server.data, config.files.umask)
        self.catalog = Catalog(self.server.data, self.ids)
        self._worker = f"{purpose} on {socket.gethostname()}, process {os.getpid()}"
        self._lock = threading.RLock()
        self._keeper: LivingKeeper | None = None
        self._away_until_s = float("-inf")
        self._away_because = ""
        self._replicas: dict[str, Replica] = {}
        self._stores: OrderedDict[Path, PartStore] = OrderedDict()
        self._definitions: dict[str, tuple[CatalogVersion, TableDefinition]] = {}
        self._tables: tuple[CatalogVersion, list[Table]] | None = None
        self._renewed = RenewedConfig(config, server)
        self._fetch_slots: FetchSlots | None = None
        self._connections: Connections | None = None
        self._fetched: Bandwidth | None = None

    @classmethod
    def open(
        cls, config: str | Path | Config | None, server: str, *, purpose: str = "client"
    ) -> Self:
        """`config`: a file, a Config, or None for the file that RMT_CONFIG names, else
        the default.
        """
        loaded = config if isinstance(config, Config) else load_config(config)
        return cls(loaded, server, purpose=purpose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the ZooKeeper session, if there is one, and idle connections to peers. The
        context may be used again.
        """
        with self._lock:
            keeper, self._keeper = self._keeper, None
            self._replicas.clear()
            connections = self._connections
        if connections is not None:
            connections.close()
        if keeper is not None:
            keeper.close()

    def keeper(self, patience_s: float | None = None) -> "LivingKeeper":
        """A live session; a new one if the last has ended. Raises ZooKeeperUnreachable. With
        `patience_s` it raises after so many seconds without an answer, and for AWAY_S after that
        immediately, in the same words, so that who logs them does so once. Without it, a caller
        that waits is told why after READ_PATIENCE_S, by a warning, StillTrying.
        """
        with self._lock:
            if self._keeper is not None and not self._keeper.is_retired:
                return self._keeper
            from rmt_pipeline.replica.tries import StillTrying  # noqa: PLC0415  start-up

            self._replicas.clear()
            most_s = self.config.zookeeper.connect_timeout_s
            first_s = min(most_s, READ_PATIENCE_S if patience_s is None else patience_s)
            if patience_s is not None and self.clock.monotonic_s() < self._away_until_s:
                raise ZooKeeperUnreachable(self._away_because)
            try:
                try:
                    self._keeper = self._connected(first_s)
                except ZooKeeperUnreachable as error:
                    if patience_s is not None or first_s == most_s:
                        raise
                    words = f"still trying, for up to {most_s - first_s:g} s more: {error}"
                    warnings.warn(words, StillTrying, stacklevel=2)
                    self._keeper = self._connected(most_s - first_s)
            except ZooKeeperUnreachable as error:
                self._away_until_s = self.clock.monotonic_s() + AWAY_S
                self._away_because = str(error)
                raise
            return self._keeper

    def _connected(self, timeout_s: float) -> "LivingKeeper":
        from rmt_pipeline.zookeeper.access import Access  # noqa: PLC0415  start-up
        from rmt_pipeline.zookeeper.connect import connect  # noqa: PLC0415  start-up

        return connect(
            self.config.zookeeper_hosts,
            session_timeout_s=self.config.zookeeper.session_timeout_s,
            connect_timeout_s=timeout_s,
            access=Access.of(self.config.zookeeper),
        )

    def use(self, keeper: "LivingKeeper") -> None:
        """Use this session from now on: the server's own, which holds `is_active`."""
        with self._lock:
            self._keeper = keeper
            self._replicas.clear()

    def peers(
        self, definition: TableDefinition, should_stop: Callable[[], bool] = lambda: False
    ) -> "HttpPeers":
        """What fetches parts of a table from the other servers. The caller closes it.

        Its fetches share the table's `max_replicated_fetches_network_bandwidth`, and with those of
        other tables the limits of `[exchange]`. They end when fetches are stopped by hand, and when
        `should_stop` says so.
        """
        from rmt_pipeline.exchange.bandwidth import Bandwidth  # noqa: PLC0415  start-up
        from rmt_pipeline.exchange.client import (  # noqa: PLC0415  start-up
            HttpPeers,
            PartClient,
        )
        from rmt_pipeline.exchange.connections import (  # noqa: PLC0415  start-up
            Connections,
        )
        from rmt_pipeline.exchange.slots import FetchSlots  # noqa: PLC0415  start-up

        def limit() -> int:
            settings = TableSettings.of(dict(self.current(definition).settings))
            return settings.max_replicated_fetches_network_bandwidth

        with self._lock:
            if self._fetched is None:
                most = self.config.exchange.fetches_bandwidth
                self._fetched = Bandwidth(lambda: most, self.clock)
            fetched = self._fetched
            at_once = self.config.exchange.fetches_at_once
            if self._fetch_slots is None:
                self._fetch_slots = FetchSlots(at_once)
            slots = self._fetch_slots
            if self._connections is None:
                self._connections = Connections(self.config.tls.files, idle_max=at_once)
            connections = self._connections
        marks = self.store(definition).marks
        shared = self.secret()
        client = PartClient(
            lambda: self._configured_secret() or shared,
            bandwidth=Bandwidth(limit, self.clock, within=fetched),
            is_cancelled=lambda: should_stop() or Background.FETCHES in marks.stopped(),
            connections=connections,
        )
        return HttpPeers(client, slots=slots)

    def secret(self) -> str:
        """The secret that this server shows to others: the configured one, else that
        in ZooKeeper.
        """
        from rmt_pipeline.exchange.secret import exchange_secret  # noqa: PLC0415  start-up

        return self._configured_secret() or exchange_secret(self.keeper(), self.ids)

    def _configured_secret(self) -> str:
        return next(iter(self._renewed.now().secrets_of(self.server.name)), "")

    @property
    def errors(self) -> "ErrorCounts":
        """The errors by which statements ended, in all processes of this host."""
        from rmt_pipeline.store.disk import LocalDisk  # noqa: PLC0415  start-up
        from rmt_pipeline.store.tally import ErrorCounts  # noqa: PLC0415  start-up

        return ErrorCounts(LocalDisk(self.server.data), "")

    # --- tables ---

    def table(self, name: str, database: str = "default") -> "Table":
        """The table of this name. Raises UnknownTable, UnknownDatabase."""
        return self.table_of(self.catalog.definition(database, name))

    def tables(self) -> "list[Table]":
        """Every table, sorted by database and name. While the catalog is unchanged they are the
        same objects, and no definition is read again; but when a file is damaged, since it may be
        mended in place. A table whose directory can't be made, since the disk that it is on is not
        there, is left out, with a warning.
        """
        version = self.catalog.version()
        with self._lock:
            known = self._tables
        if known is None or known[0] != version:
            tables = []
            for definition in self.catalog.definitions():
                try:
                    tables.append(self.table_of(definition))
                except (OSError, DiskFull) as error:
                    words = f"its directory can't be made; is its disk there? {error}"
                    words = f"{definition.full_name} is left out: {words}"
                    warnings.warn(words, UserWarning, stacklevel=2)
            known = version, tables
            is_whole = len(tables) == len(self.catalog.names())
            with self._lock:
                self._tables = known if is_whole else None
        return list(known[1])

    def table_of(self, definition: TableDefinition) -> "Table":
        from rmt_pipeline.table import Table  # noqa: PLC0415  start-up

        return Table(
            definition,
            self.store(definition),
            replica=lambda: self.replica(definition),
            reader=lambda: self.replica(definition, READ_PATIENCE_S),
            current=lambda: self.current(definition),
            why_read_only=lambda: self.why_read_only(definition),
            frozen=self.frozen_parts(definition),
            peers=lambda: closing(self.peers(definition)),
            clock=self.clock,
        )

    def why_read_only(self, definition: TableDefinition) -> "ReadOnlyReason | None":
        """Why the table takes no writes, as its server says; None when it does take them."""
        from rmt_pipeline.exchange import control  # noqa: PLC0415  start-up

        told = control.how_it_is(self.config, self.server)
        return control.why_read_only(told, self.server, self.current(definition))

    def shadow(self) -> "Shadow":
        """The snapshots that FREEZE made on this server."""
        from rmt_pipeline.store.disk import LocalDisk  # noqa: PLC0415  start-up
        from rmt_pipeline.store.frozen import Shadow  # noqa: PLC0415  start-up

        return Shadow(LocalDisk(self.server.data), clock=self.clock, ids=self.ids)

    def frozen_parts(self, definition: TableDefinition) -> "FrozenParts":
        directory = self.catalog.table_directory(definition)
        return self.shadow().of_table(str(directory.relative_to(self.catalog.data)))

    def current(self, definition: TableDefinition) -> TableDefinition:
        """The table's definition after all ALTERs so far; of a dropped table, the one that is
        given.
        """
        with suppress(UnknownTable):
            return self._same(definition)
        return definition

    def _same(self, definition: TableDefinition) -> TableDefinition:
        """As `current`, also if it was renamed. Raises UnknownTable if another table has the name
        by now; TableDetached, since nothing may work on a detached table.
        """
        version, key = self.catalog.version(), definition.uuid or definition.full_name
        with self._lock:
            known = self._definitions.get(key)
        if known is None or known[0] != version:
            found = self.catalog.current(definition)
            if found is None:
                return definition
            known = version, found
            with self._lock:
                self._definitions[key] = known
        return known[1]

    def replica(
        self, definition: TableDefinition, patience_s: float | None = None
    ) -> "Replica":
        """The table's replica, with its current definition and a live session. Raises
        ZooKeeperUnreachable; UnknownTable if the table was dropped and created again, because the
        new one may have the same path in ZooKeeper, and what is remembered of the old one would be
        wrong there.
        """
        from rmt_pipeline.replica.replica import Memory, Replica  # noqa: PLC0415  start-up

        keeper = self.keeper(patience_s)
        definition = self._same(definition)
        key = definition.uuid or definition.full_name
        with self._lock:
            known = self._replicas.get(key)
            if known is not None and known.session is keeper and known.definition == definition:
                return known
            replica = Replica(
                definition=definition,
                keeper=keeper,
                store=self.store(definition),
                clock=self.clock,
                ids=self.ids,
                settings=TableSettings.of(dict(definition.settings)),
                worker=self._worker,
                memory=Memory(),
                update_definition=partial(self.catalog.update_table, definition),
                other_store=self.store_named,
                user=account(),
            )
            self._replicas[key] = replica
            return replica

    def store_named(self, database: str, name: str) -> "PartStore | None":
        """The part store of a table of this server; None if there is no such table."""
        try:
            return self.store(self.catalog.definition(database, name))
        except (UnknownTable, UnknownDatabase):
            return None

    def store(self, definition: TableDefinition) -> "PartStore":
        directory = self.catalog.table_directory(definition)
        with self._lock:
            store = self._stores.get(directory)
            if store is None:
                from rmt_pipeline.store.disk import LocalDisk  # noqa: PLC0415  start-up
                from rmt_pipeline.store.part_store import PartStore  # noqa: PLC0415  start-up

                self._forget_gone()
                store = self._stores[directory] = PartStore(LocalDisk(directory), ids=self.ids)
            return store

    def _forget_gone(self) -> None:
        """Let go of what is remembered of tables whose directories other processes have removed.
        Their stores stay: a new one, for who still works such a table, would make its directory
        again. A few tables are looked for each time, in turn: looking for all of them would make
        the start of a process with thousands of tables slow.
        """
        gone = []
        for directory in [*islice(self._stores, LOOKED_FOR)]:
            self._stores.move_to_end(directory)
            if not directory.exists():
                gone.append(self._stores[directory])
        for store in gone:
            store.forget_all()
        for key, replica in [*self._replicas.items()] if gone else ():
            if replica.store in gone:
                del self._replicas[key]

    def expanded(self, definition: TableDefinition) -> TableDefinition:
        """The definition with the macros replaced in the engine's ZooKeeper path and replica name.
        The text as it was typed is kept beside them, with {database} and {table} replaced in it
        too, so that a renamed table stays where it is.
        """
        macros = self.server.macros_for(definition.database, definition.name)
        engine = definition.engine
        if engine.is_private:
            macros = {**macros, "uuid": definition.uuid}
        path = expand(engine.zookeeper_path, macros).rstrip("/")
        name = expand(engine.replica, macros)
        if not path.startswith("/") or "//" in path:
            raise UserError(
                f"ZooKeeper path {path!r} of {definition.full_name} is not an absolute path; "
                "write e.g. '/clickhouse/tables/{shard}/{table}'"
            )
        require_path(path, f"the ZooKeeper path of {definition.full_name}")
        require_node(name, f"the replica name of {definition.full_name}")
        engine = replace(
            engine,
            zookeeper_path=path,
            replica=name,
            typed_path=with_names(engine.zookeeper_path, definition),
            typed_replica=with_names(engine.replica, definition),
        )
        return replace(definition, engine=engine)

    def create_table(
        self, definition: TableDefinition, *, if_not_exists: bool = False, called: str = ""
    ) -> bool:
        """CREATE TABLE: make the nodes in ZooKeeper, then add the table to the catalog. Returns
        False if it existed (attached or not) and `if_not_exists` was given, also if another process
        has made it meanwhile. `called` is a temporary name for the catalog; paths are made from the
        real one.

        The server makes the replica active when it notices the new table; `wait_active` waits for
        that. Raises TableAlreadyExists, MetadataMismatch, ReplicaAlreadyExists.
        """
        name = called or definition.name
        if if_not_exists and not self.catalog.is_free(definition.database, name):
            return False  # whoever may be giving it away: nothing is waited for, nor written
        try:
            with self._making((definition.database, name)):
                self._create_table(definition, called)
        except (TableAlreadyExists, ReplicaAlreadyExists):
            if not if_not_exists or self.catalog.is_free(definition.database, name):
                raise
            return False
        return True

    def _create_table(self, definition: TableDefinition, called: str) -> None:
        from rmt_pipeline.replica.life.create import create_replica  # noqa: PLC0415  start-up

        self.catalog.require_database(definition.database)
        self.catalog.require_free(definition.database, called or definition.name)
        self._finish_drop(definition.database, called or definition.name)
        definition = self.expanded(replace(definition, uuid=self.new_uuid(definition)))
        if called:  # a temporary name is used only once, so no mark is needed that it was used
            own = directory_of_its_own(definition, definition.uuid)
            definition = replace(definition, name=called, directory=own)
        self.catalog.require_room(definition)
        self._remove_dropped(definition)
        try:
            made = create_replica(self.keeper(), definition, self._creator(definition))
        except ReplicaAlreadyExists as error:
            raise self._whose(error, definition) from None
        if made.creation != definition.creation:  # it is of a CREATE that got no answer; or
            for other in self._tables_at(made.engine.root):  # has that been renamed since?
                raise _is_of(other)
        self.catalog.add(made)

    @contextmanager
    def _making(self, *names: FullName) -> Iterator[None]:
        """While this is open no other process makes a table of one of these names. Raises
        Conflict.
        """
        deadline_s = self.clock.monotonic_s() + MAKING_WAIT_S
        with ExitStack() as held:
            for database, name in sorted(set(names)):
                while not held.enter_context(self.catalog.making(database, name)):
                    if self.clock.monotonic_s() >= deadline_s:
                        raise Conflict(
                            f"another process has been making table {database}.{name} for "
                            f"{MAKING_WAIT_S:g} s; nothing was changed, try again"
                        )
                    self.clock.sleep_s(MAKING_LOOK_S)
            yield

    def new_uuid(self, definition: TableDefinition) -> str:
        """A uuid for a new table, which tells it from all others that ever have its name."""
        del definition
        return self.ids.new_id()

    def drop_table(self, database: str, name: str, *, sync: bool = True) -> None:
        """DROP TABLE: remove the name, so that nothing works on the table any more, then its nodes
        in ZooKeeper, then its files. A drop that is cut off is finished by the server, or by the
        next DROP or CREATE of that name. Raises UnknownTable; Conflict if another process drops it.

        Without `sync` only the name goes now. The server removes the rest after `drop_delay_s`, and
        until then `undrop_table` brings the table back. A CREATE of the same replica does not wait.
        """
        from rmt_pipeline.replica.life.drop import (  # noqa: PLC0415  start-up
            drop_table,
            replica_czxid,
        )

        if not self._finish_drop(database, name):
            definition = self.catalog.definition(database, name)
            if not sync and definition.uuid and self.server.drop_delay_s:
                czxid = replica_czxid(self.keeper(), definition)
                self.catalog.put_away(definition, czxid, self.clock.now_s())
                self._forget(definition)
                return
            drop_table(self.catalog, self.keeper(), definition, self._last_store)

    def detach_table(
        self, database: str, name: str, *, permanently: bool = False
    ) -> TableDefinition:
        """DETACH TABLE: no process of this host works on it any more, and the server stops serving
        it as soon as it notices. The parts and the replica in ZooKeeper stay. Raises UnknownTable.
        """
        definition = self.catalog.detach(database, name, permanently=permanently)
        self._forget(definition)
        return definition

    def attach_table(self, database: str, name: str) -> None:
        """ATTACH TABLE: bring a detached table back. Raises UnknownTable, TableAlreadyExists."""
        self.catalog.attach(database, name)

    def attach_replica(self, definition: TableDefinition) -> None:
        """ATTACH TABLE with a definition: add a table whose replica exists in ZooKeeper, but which
        this server's catalog lacks.

        Raises UnknownTable if there is no such replica; ReplicaAlreadyExists if another table of
        this server is that replica, since each of the two would take the other's parts for lost.
        """
        from rmt_pipeline.replica.life.create import at_version  # noqa: PLC0415  start-up
        from rmt_pipeline.zookeeper.paths import TablePaths  # noqa: PLC0415  start-up

        engine = definition.engine
        for other in self._tables_at(engine.root):
            if other.full_name != definition.full_name:
                raise _is_of(other)
        table = TablePaths(engine.zookeeper_path)
        replica = table.replica(engine.replica)
        version, host = self.keeper().get_many([replica.metadata_version, replica.host])
        [creations] = self.keeper().children_many([replica.creations])
        if version is None or host is None:
            raise UnknownTable(
                f"there is no replica {engine.replica} at {engine.zookeeper_path} to attach, or "
                "only what an interrupted DROP has left of it: CREATE TABLE makes one"
            )
        applied = number_of(version[0])
        for name in creations or ():  # the catalog finds the table's directory by it
            definition = definition.with_creation(name)
        definition = at_version(self.keeper(), table, definition, applied)
        with self._making(full_name_of(definition)):
            self.catalog.add(definition)

    def restore(self, definition: TableDefinition) -> "Restored":
        """SYSTEM RESTORE REPLICA. Raises what `replica.life.restore` raises."""
        from rmt_pipeline.replica.life.restore import restore  # noqa: PLC0415  start-up

        return restore(self.replica(definition), self._creator(definition))

    def undrop_table(self, database: str, name: str, uuid: str = "") -> None:
        """UNDROP TABLE: bring back the last table that was dropped under that name, or the one with
        this uuid. Raises UnknownTable, UnknownDatabase, TableAlreadyExists.
        """
        from rmt_pipeline.replica.life.detach import forget_note  # noqa: PLC0415  start-up

        self._finish_drop(database, name)
        last = self.catalog.to_take_back(database, name, uuid)
        # The note goes first, so that other servers do not take the replica for given up. If this
        # process dies now, or is refused below, the table stays dropped, and its server notes that
        # again.
        with self._making((database, name)):
            forget_note(self.keeper(), last.definition)
            self.catalog.take_back(database, name, last.definition.uuid)

    def rename_tables(self, *moves: tuple[FullName, FullName]) -> None:
        """RENAME TABLE: each move is a (database, name) and a new one. They happen in turn, all or
        none. Replicas and parts stay where they are, and running work finds the table under its new
        name. Raises UnknownTable, UnknownDatabase, TableAlreadyExists.
        """
        for _, new in moves:
            self._finish_drop(*new)
        with self._making(*(new for _, new in moves)):
            self.catalog.rename_tables(moves)

    def exchange_tables(self, one: FullName, other: FullName) -> None:
        """EXCHANGE TABLES: swap two names in one step. Raises UnknownTable."""
        self.catalog.exchange_tables(one, other)

    def rename_database(self, old: str, new: str) -> None:
        """RENAME DATABASE. Raises UnknownDatabase, DatabaseAlreadyExists."""
        for name in self.catalog.dropping(old):
            self._finish_drop(old, name)
        self.catalog.rename_database(old, new)

    def _remove_dropped(self, definition: TableDefinition) -> None:
        """Remove a dropped table whose replica a new one, of this definition, is about to get, but
        not if that would be refused. Raises MetadataMismatch, Conflict.
        """
        from rmt_pipeline.replica.life.create import require_fits  # noqa: PLC0415  start-up
        from rmt_pipeline.replica.life.drop import remove_dropped  # noqa: PLC0415  start-up

        for one in self.catalog.dropped():
            if one.definition.engine.root == definition.engine.root:
                require_fits(self.keeper(), definition)
                remove_dropped(self.catalog, self.keeper(), one, self._last_store)

    def _whose(
        self, error: ReplicaAlreadyExists, definition: TableDefinition
    ) -> ReplicaAlreadyExists:
        """The error, with the name of this server's table that has the replica: it may
        be renamed.
        """
        for one in self._tables_at(definition.engine.root):
            return ReplicaAlreadyExists(f"{error}. Here it is {one.full_name}'s")
        return error

    def _tables_at(self, root: str) -> list[TableDefinition]:
        """Tables of this server, detached ones too, whose replica has this path."""
        detached = [one.definition for one in self.catalog.detached()]
        tables = [*self.catalog.definitions(), *detached]
        return [one for one in tables if one.engine.root == root]

    def _finish_drop(self, database: str, name: str) -> bool:
        """Finish a drop of that name that was cut off; False if there is none."""
        if not self.catalog.is_dropping(database, name):
            return False
        from rmt_pipeline.replica.life.drop import resume_drop  # noqa: PLC0415  start-up

        return resume_drop(self.catalog, self.keeper(), database, name, self._last_store)

    def _last_store(self, definition: TableDefinition) -> "PartStore":
        """The part store of a table that is being dropped. It is not cached."""
        self._forget(definition)
        store = self.store(definition)
        self._forget(definition)
        return store

    def _forget(self, definition: TableDefinition) -> None:
        with self._lock:
            self._stores.pop(self.catalog.table_directory(definition), None)
            self._replicas.pop(definition.uuid or definition.full_name, None)

    def _creator(self, definition: TableDefinition) -> bytes:
        return f"{definition.full_name}|{self.server.name}".encode()


def _is_of(table: TableDefinition) -> ReplicaAlreadyExists:
    """The error for who would take the replica of this server's `table`: each of the two would take
    the other's parts for lost.
    """
    engine = table.engine
    return ReplicaAlreadyExists(
        f"replica {engine.replica} at {engine.zookeeper_path} is this server's table "
        f"{table.full_name}: RENAME TABLE gives that another name"
    )


def with_names(text: str, definition: TableDefinition) -> str:
    """`text` with {database} and {table} replaced, which would mean something else
    after a RENAME.
    """
    return text.replace("{database}", definition.database).replace("{table}", definition.name)
