"""REPLACE, ATTACH PARTITION … FROM a table, and MOVE PARTITION … TO one (spec §9.6, §9.7).

    wait until the source has all that was inserted ──► its active parts, pinned ──► hard links
    under temporary names ──► `swap`: one multi ──► waited for

Both tables are of this server. A MOVE, which the original does in two steps, is one multi here: the
source's DROP_RANGE and the destination's REPLACE_RANGE are in their logs together, so a MOVE is
never half done. Repeated after it has happened, it finds nothing left to move.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rmt_pipeline.compute.rows.conform import is_current, is_read_as_it_is
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.history import stored_as, stored_columns
from rmt_pipeline.protocol.errors import (
    MissingPart,
    Unavailable,
    UserError,
    YetToDrop,
)
from rmt_pipeline.protocol.inserts.ids import from_table_block_id
from rmt_pipeline.protocol.log.entry import (
    LogEntry,
    MergeParts,
    MutatePart,
    drop_range_of,
    parts_brought,
)
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.caught_up import (
    await_node,
    caught_up,
    require_dropped,
    takes_some,
    wait_until_dropped,
)
from rmt_pipeline.replica.forget import forget
from rmt_pipeline.replica.partitions.drop import Living
from rmt_pipeline.replica.partitions.swap import (
    Change,
    IdIsTaken,
    Incoming,
    Leaving,
    Numbers,
    PartitionChanged,
    Swapped,
    Wanted,
    swap,
)
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.wait import POLL_S, wait_for_others
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.keeper import Check, Op
from rmt_pipeline.zookeeper.snapshot import awaiting_quorum


class CannotReplace(UserError):
    """The structures of the two tables differ. Nothing was changed."""

    code = "BAD_ARGUMENTS"


class IncompatibleColumns(CannotReplace):
    """The columns of the two tables differ."""

    code = "INCOMPATIBLE_COLUMNS"


class EmptySource(UserError):
    """REPLACE with an empty partition would be a drop that was perhaps not meant. Nothing was
    changed.
    """

    code = "BAD_ARGUMENTS"


@dataclass(frozen=True, slots=True)
class Taken:
    """What was done. `parts` are the new parts, with `rows` rows; `gone` are the active parts that
    they replace, with `rows_gone` rows; `already` are those parts of the source that an ATTACH had
    brought before.
    """

    parts: tuple[PartName, ...] = ()
    rows: int = 0
    gone: tuple[PartName, ...] = ()
    rows_gone: int = 0
    already: tuple[PartName, ...] = ()


@dataclass(frozen=True, slots=True)
class Between:
    """One partition of two tables of one server: rows go from `source` to `living`. Each method
    waits as `alter_sync` says, and raises CannotReplace and what `swap` does; Unfinished if the
    waiting ended first.
    """

    living: Living
    source: Living
    partition: str
    query: QuerySettings
    new_waker: Callable[[], Waker]

    def replace(self) -> Taken:
        """Give the partition exactly the rows that the source's has. An insert beside it comes
        before, and is replaced, or after, and stays. Raises EmptySource.

        If nothing was ever in the partition, the new parts get block ids as in `attach`, so that
        the same parts are not attached once more.
        """

        def change(parts: Sequence[Incoming]) -> Wanted:
            if not parts and not self.query.allow_replace_partition_from_empty_source:
                raise EmptySource(
                    f"{self.source()} has no row in partition {self.partition}, so REPLACE "
                    f"PARTITION would drop that of {self.living()}. If that is meant: DROP "
                    "PARTITION, or SETTINGS allow_replace_partition_from_empty_source = 1"
                )
            known, named = frozenset(self._known(parts)), self._named(parts)
            free = (replace(one, block_id="") if one.source in known else one for one in named)
            return Wanted((Change(self.partition, tuple(free)),))

        return self._take(change)

    def attach(self) -> Taken:
        """Add the rows of the source's partition to this one. The same part of the source is
        attached once, unless `insert_deduplicate` is 0.
        """
        already: list[PartName] = []

        def change(parts: Sequence[Incoming]) -> Wanted | None:
            already[:] = map(PartName.parse, self._known(parts))
            known = frozenset(map(str, already))
            new = [one for one in self._named(parts) if one.source not in known]
            apart = Change(self.partition, tuple(new), replaces=False, is_apart=True)
            relied_on = [id_ for source, id_ in self._ids_of(parts).items() if source in known]

            def also(here: Replica, numbers: Numbers) -> list[Op]:
                self._look_for_drops(here, numbers)
                return _still_there(here, relied_on)

            return Wanted((apart,), also=also, command="ATTACH PARTITION FROM")

        return replace(self._take(change, is_beside=True), already=tuple(already))

    def move(self) -> Taken:
        """Move the rows of the source's partition to this one."""

        def change(parts: Sequence[Incoming]) -> Wanted | None:
            if not parts:
                return None
            there = frozenset(PartName.parse(one.source) for one in parts)
            return Wanted(
                (Change(self.partition, tuple(parts), replaces=False),),
                leaving=Leaving(self.source, self.partition, there),
                also=self._look_for_drops,
                command="MOVE PARTITION",
            )

        return self._take(change, is_beside=True)

    def _look_for_drops(self, here: Replica, _numbers: Numbers) -> list[Op]:
        """Raise YetToDrop if something that is in the partition here is to be dropped: readers
        would see it beside the rows that come (P14); after two moves, there and back, the same
        ones. `swap` asserts that no drop was decided since it took its numbers, before this.
        """
        require_dropped(here, [self.partition])
        return []

    def _named(self, parts: Sequence[Incoming]) -> list[Incoming]:
        if not self.query.insert_deduplicate:
            return list(parts)
        ids = self._ids_of(parts)
        return [replace(one, block_id=ids[one.source]) for one in parts]

    def _known(self, parts: Sequence[Incoming]) -> list[str]:
        """Return the names of those of the source's parts whose block ids exist here. A drop
        forgets the ids of what it drops; if they did not all fit into its multi, its replica has
        yet to do that, and it is done here first.
        """
        if not self.query.insert_deduplicate:
            return []
        here, ids = self.living(), self._ids_of(parts)
        reads = here.keeper.get_many([here.table.block(ids[one.source]) for one in parts])
        named = {
            one.source: PartName.parse(read[0].decode())
            for one, read in zip(parts, reads, strict=True)
            if read is not None
        }
        dropped = _dropped(here, named.values())
        if dropped:
            forget(here, dropped)
        return [source for source, part in named.items() if part not in dropped]

    def _ids_of(self, parts: Sequence[Incoming]) -> dict[str, str]:
        """Return the block ids of the parts, by the parts' names in the source."""
        root = self.source().table.root
        return {
            one.source: from_table_block_id(
                self.partition, root, one.source, one.staged.manifest.files_hash.hex()
            )
            for one in parts
        }

    def _take(
        self,
        change: Callable[[Sequence[Incoming]], Wanted | None],
        *,
        is_beside: bool = False,
    ) -> Taken:
        """Stage the source's parts and commit what `change` makes of them; it returns None if there
        is nothing to commit. With `is_beside` they come beside what is in the partition, after what
        was dropped is gone.
        """
        require_same_structure(self.living(), self.source())
        for _ in range(limits.DROP_ROUNDS_MAX):
            if is_beside:
                wait_until_dropped(
                    self.living,
                    [self.partition],
                    self.new_waker(),
                    self.query.receive_timeout,
                )
            parts = wait_until_here(self.source, self.partition, self.query, self.new_waker())
            try:
                taken, swapped = self._try(parts, change)
            except (PartitionChanged, IdIsTaken, MissingPart, YetToDrop):
                continue
            if swapped is not None:
                wait_for_swapped(swapped, self.query, self.new_waker)
            return taken
        raise Unavailable(
            f"partition {self.partition} of {self.source()} changed {limits.DROP_ROUNDS_MAX} times "
            "while it was read; nothing was changed, try again"
        )

    def _try(
        self,
        parts: Sequence[PartName],
        change: Callable[[Sequence[Incoming]], Wanted | None],
    ) -> tuple[Taken, Swapped | None]:
        here, there = self.living(), self.source()
        # again: one of the two may have been altered meanwhile
        require_same_structure(here, there)
        staged: list[StagedPart] = []
        try:
            incoming = []
            merge_alike = _merge_alike(here, there)
            with there.store.pin(parts):
                for part in parts:
                    staged.append(_clone(here, there, part))
                    level = part.level if merge_alike else 0
                    incoming.append(Incoming(staged[-1], str(part), level=level))
            wanted = change(incoming)
            if wanted is None:
                return Taken(), None
            origin = (there.definition.database, there.definition.name)
            swapped = swap(self.living, replace(wanted, origin=origin))
        finally:
            for one in staged:  # what may be in the table has another name by now
                here.store.discard(one)
        rows = sum(one.staged.manifest.rows for one in wanted.changes[0].incoming)
        return Taken(swapped.parts, rows, swapped.gone, swapped.rows_gone), swapped


def _clone(here: Replica, there: Replica, part: PartName) -> StagedPart:
    """Stage a part of the source here, as hard links. Raises CannotReplace if only its table knows
    what an ALTER has made of its columns since it was written; MissingPart, Corruption.
    """
    manifest = there.store.verify_changed(part)
    difference = difference_of(manifest, there.definition, here.definition)
    if difference:
        raise CannotReplace(
            f"{part} of {there} {difference}; let the mutations of the table finish "
            "(system.mutations), or OPTIMIZE it FINAL, and try again"
        )
    told = replace(
        manifest,
        sources=(str(part),),
        created_s=int(here.clock.now_s()),
        metadata_version=here.definition.metadata_version,
    )
    staging = here.store.begin("replace", str(part))
    return here.store.clone_into(staging, part, told, of=there.store)


def difference_of(manifest: Manifest, there: TableDefinition, here: TableDefinition) -> str:
    """Why a part of `there` would not have the same rows in `here`, a table of the same columns, in
    words; "" if it has them. Its columns need the names and types that they had when it was
    written. Those that were added since need not be in it, if both tables have the same defaults.
    """
    part, version = manifest.columns, manifest.metadata_version
    if is_current(there, part, version):
        return ""
    types, kept = stored_types(there), stored_as(there, part, version)
    as_written = len(kept) == len(part) and all(
        one.name == one.column and is_read_as_it_is(one.type, types[one.column]) for one in kept
    )
    if not as_written:
        return "has its columns as they were before an ALTER"
    theirs, mine = _defaults(there), _defaults(here)
    for name in theirs | mine:  # an ALIAS, too: a default may have it in its expression
        if theirs.get(name) != mine.get(name):
            return (
                f"is from before an ADD COLUMN, and column {name} has "
                f"{theirs.get(name) or 'no default'} there and {mine.get(name) or 'no default'} "
                "here"
            )
    return ""


def _defaults(definition: TableDefinition) -> dict[str, str]:
    return {one.name: f"{one.default_kind} {one.default}".strip() for one in definition.columns}


def wait_for_swapped(
    swapped: Swapped, query: QuerySettings, new_waker: Callable[[], Waker]
) -> None:
    """Wait until the other replicas have carried the swap out too, if `alter_sync` is 2 or more; on
    this one it has happened. Raises Unfinished.
    """
    for living, logged in swapped.logged:
        wait_for_others(living, logged.__contains__, query, new_waker())


# --- the source -------------------------------------------------------------------------------


def wait_until_here(
    living: Living, partition: str | None, query: QuerySettings, waker: Waker
) -> tuple[PartName, ...]:
    """Wait until this replica has everything that was inserted into the partition (None: into any),
    and nothing that was dropped, and none of its parts waits for its quorum; return its active
    parts. A part must not be dropped while it waits for its quorum: the replicas that have yet to
    fetch it would find it nowhere, and its insert would be told that it failed. Raises Unavailable
    after `receive_timeout`.
    """
    clock = living().clock
    deadline_s = clock.monotonic_s() + query.receive_timeout
    while True:
        replica = living()
        _, snapshot = caught_up(replica)
        current = snapshot.parts.current
        parts = tuple(current if partition is None else current.in_partition(partition))
        only = None if partition is None else [partition]
        node = why_behind(snapshot.entries, snapshot.parts, only)
        waiting = awaiting_quorum(replica.keeper, replica.table).intersection(parts)
        if not node and not waiting:
            return parts
        left_s = deadline_s - clock.monotonic_s()
        if left_s <= 0:
            if not node:
                raise Unavailable(
                    f"{min(waiting)} of {replica} waits for its quorum; nothing was changed. Try "
                    "again when it has it: system.replicas.parts_awaiting_quorum"
                )
            raise Unavailable(
                f"{replica} has yet to carry out {node}; nothing was changed. Try again when it "
                "has: SYSTEM SYNC REPLICA waits for it, system.replication_queue says what it "
                "waits for"
            )
        if node:
            await_node(replica, node, waker, left_s)
        else:
            waker.wait_s(min(left_s, POLL_S))


def is_behind(replica: Replica, partitions: Collection[str]) -> bool:
    """Whether the log has rows of these partitions that this replica has not, or drops of rows that
    it still has.
    """
    _, snapshot = caught_up(replica)
    return bool(why_behind(snapshot.entries, snapshot.parts, partitions))


def partitions_there(replica: Replica) -> frozenset[str]:
    """Return the ids of the partitions that have a part, on this replica now or once its queue and
    the log are carried out.
    """
    return frozenset(part.partition for part in _view(replica).virtual)


def _view(replica: Replica) -> QueueView:
    _, snapshot = caught_up(replica)
    return QueueView(snapshot.entries, snapshot.claims, snapshot.parts)


def why_behind(
    entries: Mapping[str, LogEntry], there: Holdings, partitions: Collection[str] | None
) -> str:
    """Return the key of the first entry that has yet to bring rows to `there`, or to drop some of
    them; "" if there is none. Merges and mutations bring no rows. `partitions` limits it to these;
    None: all.
    """
    for key, entry in entries.items():
        if isinstance(entry, MergeParts | MutatePart):
            continue
        dropped = drop_range_of(entry)
        is_meant = dropped is not None and _is_among(dropped, partitions)
        if is_meant and takes_some(entry, there):
            return key
        if any(
            _is_among(part, partitions) and there.current.containing(part) is None
            for part in parts_brought(entry)
        ):
            return key
    return ""


def _is_among(part: PartName, partitions: Collection[str] | None) -> bool:
    return partitions is None or part.partition in partitions


# --- do they go together ----------------------------------------------------------------------


def _still_there(here: Replica, ids: Sequence[str]) -> list[Op]:
    """Return checks that the parts which were attached before are still in the table when the
    others come: a drop in the meantime forgets their ids, at once or later. Raises
    PartitionChanged.
    """
    paths = [here.table.block(one) for one in ids]
    reads = here.keeper.get_many(paths)
    found = [(path, read) for path, read in zip(paths, reads, strict=True) if read is not None]
    named = [PartName.parse(data.decode()) for _, (data, _) in found]
    if len(found) < len(paths) or _dropped(here, named):
        raise PartitionChanged(
            f"parts that {here} had of the other table were dropped meanwhile; nothing was changed"
        )
    return [Check(path, stat.version) for path, (_, stat) in found]


def _dropped(here: Replica, parts: Collection[PartName]) -> list[PartName]:
    """Return those parts that a drop in the log takes, whether it was carried out or not."""
    if not parts:
        return []
    virtual = _view(here).virtual
    covering = {part: virtual.containing(part) for part in parts}
    return [part for part, by in covering.items() if by is None or by.is_drop_range]


def require_same_structure(here: Replica, there: Replica) -> None:
    """Raise CannotReplace naming the first difference in structure of the tables, if any."""
    mine, theirs = here.definition, there.definition
    if mine.full_name == theirs.full_name or here.table.root == there.table.root:
        raise CannotReplace(f"{here} and {there} are one table")
    difference = table_difference(mine, theirs)
    if difference:
        refusal = IncompatibleColumns if difference.startswith("columns") else CannotReplace
        raise refusal(
            f"{mine.full_name} and {theirs.full_name} have different {difference}; parts go from "
            "one table to another only where columns and keys are the same"
        )


def stored_types(definition: TableDefinition) -> dict[str, str]:
    """The types of the columns that parts have, by name, in the table's order."""
    return {column.name: column.type for column in stored_columns(definition)}


def column_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """The first difference between the types of two tables' columns, in words; "" if none."""
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name, "none"), theirs.get(name, "none")
        if one != other:
            return f"columns: {name} is {one} in the first, {other} in the second"
    if list(ours) != list(theirs):
        return f"orders of columns: {', '.join(ours)} and {', '.join(theirs)}"
    return ""


def table_difference(mine: TableDefinition, theirs: TableDefinition) -> str:
    """The first difference between columns and keys of two tables, in words; "" if none."""
    found = column_difference(stored_types(mine), stored_types(theirs))
    if found:
        return found
    for words, one, other in (
        ("PARTITION BY", mine.partition_by, theirs.partition_by),
        ("ORDER BY", mine.order_by, theirs.order_by),
        ("PRIMARY KEY", _primary(mine), _primary(theirs)),
    ):
        if one != other:
            return f"{words}: ({', '.join(one)}) and ({', '.join(other)})"
    return ""


def _merge_alike(here: Replica, there: Replica) -> bool:
    """Whether both tables merge rows by the same rules. Then a part keeps its level: with a level
    above 0, it has no two rows that a merge would make one (spec §2.2), and neither FINAL nor
    OPTIMIZE FINAL merges it alone.
    """
    mine, theirs = here.definition.engine, there.definition.engine
    return mine == replace(theirs, zookeeper_path=mine.zookeeper_path, replica=mine.replica)


def _primary(definition: TableDefinition) -> tuple[str, ...]:
    return definition.order_by if definition.primary_key is None else definition.primary_key
