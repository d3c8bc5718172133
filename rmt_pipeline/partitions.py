"""What a table can do with its partitions and parts as a whole (spec §9).

What a call needs beyond this is imported when it is made, for start-up time.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from rmt_pipeline.exchange.peers import Peers
from rmt_pipeline.protocol.alter.commands import ClearColumn
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings, query_settings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.replica.partitions.attach import Attached, attach, drop_detached
from rmt_pipeline.replica.partitions.drop import drop_part, drop_partitions, require_partition
from rmt_pipeline.replica.partitions.from_table import Between, Taken
from rmt_pipeline.replica.partitions.undo import Undone, UndoPlan, plan_undo, undo_insert
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.layout import parse_detached
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_log import PartEvent, PartEventType
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.snapshot import active_parts

if TYPE_CHECKING:
    from rmt_pipeline.replica.partitions.from_path import FetchedInto
    from rmt_pipeline.replica.partitions.overwrite import ReplaceResult
    from rmt_pipeline.store.frozen import FrozenParts, InSnapshot


class Partitions(ABC):
    """The commands on partitions and parts: a face of `Table`."""

    store: PartStore
    frozen_parts: "FrozenParts"

    @property
    @abstractmethod
    def definition(self) -> TableDefinition: ...

    @property
    @abstractmethod
    def replica(self) -> Replica:
        """With a living session. Raises ZooKeeperUnreachable."""

    @abstractmethod
    def _run(self, insertion: Insertion, query: QuerySettings) -> InsertResult:
        """Until it is done, or was tried often enough."""

    @abstractmethod
    def _pinned(
        self, partition: str | None, query: QuerySettings
    ) -> AbstractContextManager[Sequence[tuple[PartName, Manifest]]]:
        """What a reader reads of the partition (None: of all), whole; it stays while this is open.
        Raises as `Table.snapshot`.
        """

    @abstractmethod
    def _new_peers(self) -> AbstractContextManager[Peers]:
        """To fetch parts with, from any replica of any table."""

    def _living(self) -> Replica:
        return self.replica

    def note_command(
        self, command: str, kind: PartEventType, parts: Sequence[PartName]
    ) -> None:
        """For who looks, of what is done, and leaves nothing in the log that would say so. Without
        ZooKeeper nothing is noted: what needs none is no error then.
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
        """DROP PARTITION of these ids, at one moment; None: of all there are. With `detach`, each
        replica keeps its parts in `detached/` (spec §9.2). What was dropped, as ranges of blocks;
        one that never had a row is not among it.

        Their rows can be inserted again. Waits as `alter_sync` says. Raises BadPartition for
        what is no id, TableIsReadOnly, CannotAssignDrop; Unfinished when waiting ended first;
        OutcomeUnknown.
        """
        query = query_settings(settings)
        return drop_partitions(self._living, partitions, query, EventWaker, detach=detach)

    def drop_part(
        self,
        part: PartName,
        *,
        detach: bool = False,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> None:
        """DROP PART: this active part and no other (spec §9.4). As `drop_partitions` otherwise.

        Raises NoSuchPart, PartIsLocked.
        """
        drop_part(self._living, part, query_settings(settings), EventWaker, detach=detach)

    def truncate(
        self, *, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> tuple[PartName, ...]:
        """TRUNCATE TABLE: every row goes, what is inserted meanwhile stays or is cancelled."""
        return self.drop_partitions(None, settings=settings)

    def attach(
        self,
        partition: str | None = None,
        *,
        part: PartName | None = None,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Attached:
        """ATTACH PARTITION (an id) or PART, from this replica's `detached/`; with neither, all of
        it (spec §9.5). Each part gets a new block number, on every replica; one that is damaged
        stays where it is. The same part is attached once, unless `insert_deduplicate` is 0.

        Raises BadDetachedPart; what `insert` raises.
        """
        query = query_settings(settings)
        return attach(
            self.replica,
            lambda insertion: self._run(insertion, query),
            partition=partition,
            part=part,
            deduplicate=query.insert_deduplicate,
        )

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
        """Put these rows in the place of others, in one commit: a backfill. Readers see the old
        rows or the new ones; a run that fails leaves the old ones.

        What is replaced: `partition`, by id, one or several, which get exactly these rows; or what
        `where` holds for, which must hold for the new rows too; or the `whole` table; or, with none
        of these, the partitions that the rows are in. `data` and `columns` as for `insert`.

        Said again it changes nothing: with a `token` until what it brought is replaced or dropped,
        without one while just these rows are there. Of two at once one comes after the other.
        Inserts into what is replaced come before, and go, or after, and stay; one that is being
        committed just then is cancelled as a whole.

        Raises BadValue, RowsOutside and other UserErrors; EmptySource for no rows at all (unless
        `allow_replace_partition_from_empty_source`); PartsDoNotFit, TableIsReadOnly, Unavailable:
        nothing was changed. OutcomeUnknown: say it again. Unfinished: it has happened here, and the
        others that `alter_sync` waits for are late.
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
        return overwrite(self._living, asked, query_settings(settings), EventWaker)

    def replace_partition(
        self,
        partition: str,
        source: "Partitions",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Taken:
        """REPLACE PARTITION (an id) FROM another table of this server, of the same columns and
        keys: hard links, no copies (spec §9.6). Here readers see the old rows or the new ones from
        the moment it returns; others follow, waited for as `alter_sync` says.

        Raises CannotReplace naming the difference; EmptySource unless
        `allow_replace_partition_from_empty_source` is set; Unavailable when the source has yet to
        get rows for longer than `receive_timeout`; PartsDoNotFit, TableIsReadOnly, Unfinished,
        OutcomeUnknown.
        """
        return self._between(source, self, partition, settings).replace()

    def attach_partition(
        self,
        partition: str,
        source: "Partitions",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Taken:
        """ATTACH PARTITION (an id) FROM another table: as `replace_partition`, but what is here
        stays. The same part of the source comes once, unless `insert_deduplicate` is 0.
        """
        return self._between(source, self, partition, settings).attach()

    def move_partition(
        self,
        partition: str,
        destination: "Partitions",
        *,
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> Taken:
        """MOVE PARTITION (an id) TO another TABLE: out of here and into there in one commit, so it
        has happened or not, and said again it moves nothing twice (spec §9.7). Raises as
        `replace_partition`; nothing to move is no error.
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
            EventWaker,
        )

    def plan_undo(self, insert_id: str) -> UndoPlan:
        """What `undo` would take away, or why it can't. Raises UnknownInsert."""
        return plan_undo(self.replica, insert_id)

    def undo(
        self, insert_id: str, *, settings: Mapping[str, Any] | QuerySettings | None = None
    ) -> Undone:
        """Exactly the rows of this insert go, on every replica, and its ids with them: it can be
        inserted again. Rows that an earlier insert had brought already are that one's, and stay.
        Waits as `alter_sync` says.

        Raises, and nothing was changed: UnknownInsert; CannotUndo when rows of it were merged with
        others, which nothing tells apart; PartIsLocked while something is made of its parts (try
        again). Unfinished: it is done, and others are late. OutcomeUnknown: say it again.
        """
        return undo_insert(self._living, insert_id, query_settings(settings), EventWaker)

    def freeze(
        self,
        partition: str | None = None,
        *,
        name: str = "",
        settings: Mapping[str, Any] | QuerySettings | None = None,
    ) -> "list[InSnapshot]":
        """FREEZE [PARTITION (an id)] [WITH NAME]: hard links of this replica's active parts below
        `shadow/` in the server's data directory, all or none, every byte compared with its hash
        before (spec §9.9). They stay until `unfreeze`, whatever becomes of the table. Without a
        name the snapshot is called by a number.

        Raises DirectoryAlreadyExists for a part that was frozen under the name before,
        BadSnapshotName, SnapshotIsBusy, DiskFull; and as `snapshot`. Then nothing was frozen.
        """
        query = query_settings(settings)
        with self._pinned(partition, query) as parts:
            frozen = self.frozen_parts.freeze(self.store, self.definition, parts, name)
        self.note_command("FREEZE PARTITION", "FreezePart", [part for part, _ in parts])
        return frozen

    def unfreeze(self, name: str, partition: str | None = None) -> "list[InSnapshot]":
        """UNFREEZE [PARTITION (an id)] WITH NAME: what the snapshot has of this table is removed;
        what that was. Nothing happens when there is no such snapshot. Raises as `freeze`.
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
        """CLEAR COLUMN [IN PARTITION (an id)]: on every replica, the rows that are there get the
        column's default. Waits as `alter_sync` says. Raises BadPartition; what an ALTER does.
        """
        from rmt_pipeline.replica.alter.request import request_alter  # noqa: PLC0415  start-up

        if partition is not None:
            require_partition(partition, "cleared")
        clear, query = ClearColumn(column, partition), query_settings(settings)
        if request_alter(self._living, lambda _: [clear], query, EventWaker) is not None:
            self.note_cleared(clear)

    def note_cleared(self, clear: ClearColumn) -> None:
        """Of an ALTER that is in the log."""
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
        """FETCH PARTITION (an id), or PART, FROM a path: parts of the table at that path in
        ZooKeeper come from its replicas into `detached/` here, from where `attach` takes them
        (spec §9.8). All of one moment, or none; said again after it was cut off it goes on.

        Raises CannotFetch naming the difference of the tables, UnknownTable, BadZooKeeperPath,
        BadPartition, DetachedPartitionExists, DetachedPartExists, NoSuchPartition,
        NoReplicaHasPart, NoActiveReplicas, TooManyRetries, FetchIsRunning, DiskFull.
        """
        from rmt_pipeline.replica.partitions.from_path import FromPath  # noqa: PLC0415

        query = query_settings(settings)
        meant = part.partition if part is not None else partition
        fetched = FromPath(self._living, self._new_peers, path, meant, query, part).fetch()
        self.note_command("FETCH PARTITION", "DownloadPart", fetched.parts)
        return fetched

    def drop_detached(
        self, partition: str | None = None, *, name: str | None = None
    ) -> tuple[str, ...]:
        """DROP DETACHED PARTITION (an id), or PART (the directory's name); with neither, all that
        is detached here. Their names. Raises BadDetachedPart when there is none of the name.
        """
        removed = drop_detached(self.replica, partition, name)
        parts = [one.part for one in map(parse_detached, removed) if one is not None]
        self.note_command("DROP DETACHED PARTITION", "RemoveDetachedPart", parts)
        return removed
