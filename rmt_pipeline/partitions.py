"""The commands of a table on whole partitions and parts (spec §9).

Imports inside methods are for start-up time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from rmt_pipeline.exchange.peers import Peers
from rmt_pipeline.protocol.alter.commands import ClearColumn
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings, query_settings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.caught_up import wait_until_dropped
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.replica.partitions.attach import (
    Attached,
    attach,
    drop_detached,
    wait_until_attached,
)
from rmt_pipeline.replica.partitions.drop import drop_part, drop_partitions, require_partition
from rmt_pipeline.replica.partitions.from_table import Between, Taken
from rmt_pipeline.replica.partitions.undo import Undone, UndoPlan, plan_undo, undo_insert
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.layout import parse_detached
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_log import PartEvent, PartEventType
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.snapshot import active_parts

if TYPE_CHECKING:
    from rmt_pipeline.replica.partitions.from_path import FetchedInto
    from rmt_pipeline.replica.partitions.overwrite import ReplaceResult
    from rmt_pipeline.store.frozen import FrozenParts, InSnapshot


class Partitions(ABC):
    """The commands on partitions and parts; `Table` inherits them."""

    store: PartStore
    frozen_parts: "FrozenParts"
    new_waker: Callable[[], Waker]

    @property
    @abstractmethod
    def definition(self) -> TableDefinition: ...

    @property
    @abstractmethod
    def replica(self) -> Replica:
        """The replica, with a live session. Raises ZooKeeperUnreachable."""

    @abstractmethod
    def _run(
        self, insertion: Insertion, query: QuerySettings, replica: Replica | None = None
    ) -> InsertResult:
        """Run an insertion, with retries. `replica` is for the first try."""

    @abstractmethod
    def _pinned(
        self, partition: str | None, query: QuerySettings
    ) -> AbstractContextManager[Sequence[tuple[PartName, Manifest]]]:
        """The active parts of the partition (None: of all), checked, which stay while this is open.
        Raises as `Table.snapshot`.
        """

    @abstractmethod
    def _new_peers(self) -> AbstractContextManager[Peers]:
        """What fetches parts, from any replica of any table."""

    def _living(self) -> Replica:
        return self.replica

    def note_command(
        self, command: str, kind: PartEventType, parts: Sequence[PartName]
    ) -> None:
        """Note a finished command in `system.part_log` that leaves no entry in the log, such as
        FREEZE. Nothing is noted, and nothing raised, while ZooKeeper is away: these commands do not
        need it.
        """
        if not parts:
            return
        try:
            replica = self.replica
        except RmtError:
            return
        now_s, entry_id = replica.clock.now_s(), replica.new_entry_id()
        self.store.part_log.note(
            PartEvent(kind, str(part), now_s, command=command, entry_id=entry_id)
            for part in parts
        )

    def drop_partitions(
        self,
        partitions: Sequence[str] | None,
        *,
        detach: bool = False,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> tuple[PartName, ...]:
        """DROP PARTITION of these partition ids, in one transaction; None: of all partitions. With
        `detach` each replica keeps its parts in `detached/` (spec §9.2). Returns the ranges of
        blocks that were dropped; a partition that never had a row gives none.

        The rows can be inserted again afterwards. Waits as `alter_sync` says. Raises BadPartition
        for a malformed id, TableIsReadOnly, CannotAssignDrop; Unfinished when waiting ended first;
        OutcomeUnknown.
        """
        query = query_settings(settings)
        return drop_partitions(self._living, partitions, query, self.new_waker, detach=detach)

    def drop_part(
        self,
        part: PartName,
        *,
        detach: bool = False,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> None:
        """DROP PART: this active part and no other (spec §9.4). Otherwise as `drop_partitions`.

        Raises NoSuchPart, PartIsLocked.
        """
        drop_part(self._living, part, query_settings(settings), self.new_waker, detach=detach)

    def truncate(
        self, *, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> tuple[PartName, ...]:
        """TRUNCATE TABLE: drop every row. An insert under way meanwhile stays whole or is
        cancelled.
        """
        return self.drop_partitions(None, settings=settings)

    def attach(
        self,
        partition: str | None = None,
        *,
        part: PartName | None = None,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Attached:
        """ATTACH PARTITION (an id) or PART from this replica's `detached/`; all of it if neither is
        given (spec §9.5). Each part gets a new block number and comes to every replica. A damaged
        part stays where it is. The same part is attached once, unless `insert_deduplicate` is 0.
        Waits until what is to be dropped here before is, as long as `receive_timeout`, and then for
        the other replicas as `alter_sync` says.

        Raises BadDetachedPart, Unavailable, and what `insert` raises; Unfinished when waiting ended
        first.
        """
        query = query_settings(settings)
        only = partition if part is None else part.partition
        only_those = None if only is None else [only]
        wait_until_dropped(self._living, only_those, self.new_waker(), query.receive_timeout)
        attached = attach(
            self.replica,
            lambda insertion: self._run(insertion, query),
            partition=partition,
            part=part,
            deduplicate=query.insert_deduplicate,
        )
        wait_until_attached(self._living, attached, query, self.new_waker)
        return attached

    def replace(
        self,
        data: Any,
        *,
        partition: str | Sequence[str] | None = None,
        where: str = "",
        whole: bool = False,
        columns: Sequence[str] | None = None,
        token: str = "",
        settings: Mapping[str, Any] | QuerySettings | None = None,
        run_id: str = "",
    ) -> "ReplaceResult":
        """Replace rows by these, in one commit: a backfill. Readers see the old rows or the new
        ones, never a mix. If it fails, the old rows stay.

        One of these says which rows are replaced:

        partition  one or several partition ids, which then have exactly the new rows
        where      a condition, which must hold for the new rows too
        whole      the whole table
        (none)     the partitions that the new rows are in

        `data` and `columns` are as for `insert`. Repeating the call changes nothing: with a `token`
        until its rows are replaced or dropped, without one as long as exactly these rows are there.
        Two replacements at once happen one after the other. Of inserts at the same time, those that
        come before are replaced and those that come after stay; one that is being committed at that
        moment is cancelled as a whole.

        Raises BadValue, RowsOutside and other UserErrors; EmptySource if there are no rows at all
        (unless `allow_replace_partition_from_empty_source`); PartsDoNotFit, TableIsReadOnly,
        Unavailable: in all these cases nothing was changed. OutcomeUnknown: repeat the call.
        Unfinished: it is done here, but replicas that `alter_sync` waits for are late.
        """
        from rmt_pipeline.replica.partitions.overwrite import (  # noqa: PLC0415  pyarrow
            Overwrite,
            overwrite,
        )

        partitions = (partition,) if isinstance(partition, str) else partition
        asked = Overwrite(
            data=data,
            columns=columns,
            partitions=None if partitions is None else tuple(partitions),
            where=where,
            whole=whole,
            token=token,
            run_id=run_id,
        )
        return overwrite(self._living, asked, query_settings(settings), self.new_waker)

    def replace_partition(
        self,
        partition: str,
        source: "Partitions",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Taken:
        """REPLACE PARTITION (an id) FROM another table of this server, of the same columns and
        keys, by hard links (spec §9.6). Readers of this replica see the old rows or the new ones;
        the other replicas follow, and are waited for as `alter_sync` says.

        Raises CannotReplace, which names a difference of the tables; EmptySource unless
        `allow_replace_partition_from_empty_source` is set; Unavailable when this replica of the
        source lacks rows for longer than `receive_timeout`; PartsDoNotFit, TableIsReadOnly,
        Unfinished, OutcomeUnknown.
        """
        return self._between(source, self, partition, settings).replace()

    def attach_partition(
        self,
        partition: str,
        source: "Partitions",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Taken:
        """ATTACH PARTITION (an id) FROM another table: as `replace_partition`, but the partition's
        present rows stay. The same part of the source comes once, unless `insert_deduplicate` is 0.
        """
        return self._between(source, self, partition, settings).attach()

    def move_partition(
        self,
        partition: str,
        destination: "Partitions",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Taken:
        """MOVE PARTITION (an id) TO another TABLE, in one commit that changes both tables: repeated
        after a crash it moves nothing twice (spec §9.7). Raises as `replace_partition`, but an
        empty partition is no error.
        """
        return self._between(self, destination, partition, settings).move()

    @staticmethod
    def _between(
        source: "Partitions",
        destination: "Partitions",
        partition: str,
        settings: Mapping[str, Any] | QuerySettings | None,
    ) -> Between:
        query = query_settings(settings)
        return Between(
            lambda: destination.replica,
            lambda: source.replica,
            partition,
            query,
            destination.new_waker,
        )

    def plan_undo(self, insert_id: str) -> UndoPlan:
        """What `undo` would remove, or why it can't. Raises UnknownInsert."""
        return plan_undo(self.replica, insert_id)

    def undo(
        self, insert_id: str, *, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> Undone:
        """Remove exactly the rows of this insert from every replica, with its ids, so that it can
        be inserted again. Rows that were duplicates of an earlier insert belong to that one and
        stay. Waits as `alter_sync` says.

        Raises, without having changed anything: UnknownInsert; CannotUndo when its rows were merged
        with others and can't be told apart; PartIsLocked while its parts are being merged or
        mutated (try again). Unfinished: it is done here, and other replicas are late.
        OutcomeUnknown: repeat the call.
        """
        return undo_insert(self._living, insert_id, query_settings(settings), self.new_waker)

    def freeze(
        self,
        partition: str | None = None,
        *,
        name: str = "",
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> "list[InSnapshot]":
        """FREEZE [PARTITION (an id)] [WITH NAME]: hard-link this replica's active parts below
        `shadow/` in the server's data directory, all or none, after every file was compared with
        its hash (spec §9.9). They stay until `unfreeze`, whatever happens to the table. Without a
        name the snapshot gets a number.

        Raises DirectoryAlreadyExists for a part that was frozen under the name before,
        BadSnapshotName, SnapshotIsBusy, DiskFull; and as `snapshot`. Then nothing was frozen.
        """
        query = query_settings(settings)
        with self._pinned(partition, query) as parts:
            frozen = self.frozen_parts.freeze(self.store, self.definition, parts, name)
        self.note_command("FREEZE PARTITION", "FreezePart", [part for part, _ in parts])
        return frozen

    def unfreeze(self, name: str, partition: str | None = None) -> "list[InSnapshot]":
        """UNFREEZE [PARTITION (an id)] WITH NAME: remove what the snapshot has of this table, which
        is returned; nothing if there is no such snapshot. Raises as `freeze`.
        """
        unfrozen = self.frozen_parts.unfreeze(name, partition)
        self.note_command("UNFREEZE PARTITION", "UnfreezePart", [one.part for one in unfrozen])
        return unfrozen

    def clear_column(
        self,
        column: str,
        partition: str | None = None,
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> None:
        """CLEAR COLUMN [IN PARTITION (an id)]: give the present rows the column's default value, on
        every replica. Waits as `alter_sync` says. Raises BadPartition, and what an ALTER raises.
        """
        from rmt_pipeline.replica.alter.request import request_alter  # noqa: PLC0415  start-up

        if partition is not None:
            require_partition(partition, "cleared")
        clear, query = ClearColumn(column, partition), query_settings(settings)
        if request_alter(self._living, lambda _: [clear], query, self.new_waker) is not None:
            self.note_cleared(clear)

    def note_cleared(self, clear: ClearColumn) -> None:
        """Note a CLEAR COLUMN that is in the log in `system.part_log`."""
        with suppress(RmtError):  # ZooKeeper went away
            replica, wanted = self.replica, clear.partition_id
            parts = active_parts(replica.keeper, replica.paths)
            of_it = [part for part in parts if wanted in (None, part.partition)]
            self.note_command(f"CLEAR COLUMN {clear.column}", "ClearColumn", of_it)

    def fetch_partition(
        self,
        path: str,
        partition: str = "",
        *,
        part: PartName | None = None,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> "FetchedInto":
        """FETCH PARTITION (an id), or PART, FROM a path: fetch parts of the table at that path in
        ZooKeeper into this replica's `detached/`, from where `attach` takes them (spec §9.8). They
        are those of one moment, all or none. Repeated after it was cut off, it goes on.

        Raises CannotFetch, which names a difference of the tables, UnknownTable, BadZooKeeperPath,
        BadPartition, DetachedPartitionExists, DetachedPartExists, NoSuchPartition,
        NoReplicaHasPart, NoActiveReplicas, TooManyRetries, FetchIsRunning, DiskFull.
        """
        from rmt_pipeline.replica.partitions.from_path import FromPath  # noqa: PLC0415

        query = query_settings(settings)
        meant = part.partition if part is not None else partition
        fetched = FromPath(
            self._living, self._new_peers, path, meant, query, self.new_waker(), part
        ).fetch()
        self.note_command("FETCH PARTITION", "DownloadPart", fetched.parts)
        return fetched

    def drop_detached(
        self, partition: str | None = None, *, name: str | None = None
    ) -> tuple[str, ...]:
        """DROP DETACHED PARTITION (an id), or PART (a directory's name); everything in `detached/`
        if neither is given. Returns the names. Raises BadDetachedPart for a name that is not there.
        """
        removed = drop_detached(self.replica, partition, name)
        parts = [one.part for one in map(parse_detached, removed) if one is not None]
        self.note_command("DROP DETACHED PARTITION", "RemoveDetachedPart", parts)
        return removed
