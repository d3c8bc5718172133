"""Backfill by replacement: new rows take the place of the rows of whole partitions, or of those
rows for which a condition holds (`Table.replace`, INSERT OVERWRITE).

    rows staged as for an insert ──► [parts that the condition touches, read and written without
    its rows; others linked] ──► `swap`: all partitions in one multi, or none ──► waited for

1. Whole partitions: whatever is in them is replaced. An insert beside it comes before, and is
   replaced, or after, and stays; or it is under way just then, and is cancelled as a whole.
2. A condition: the rows in the table were read some time before the commit. So it is committed only
   if the partitions still have the very parts that were read, with every earlier mutation applied
   and none under way; otherwise they are read again. Rows that stay are the rows that were there,
   under new block numbers: the ids and records of their inserts stay too, and name the new numbers.
3. The same replacement, repeated, changes nothing. Without a token it counts as the same if the
   rows that would come are, as a whole, those that would go, and no mutation is on its way to
   these. With a token it counts as the same until what it brought is replaced or dropped: its
   record is written in the replacement's multi, and removed in the multi that replaces or drops its
   rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rmt_pipeline.compute.inputs.conform import conform
from rmt_pipeline.compute.insert import blocks
from rmt_pipeline.compute.merge.job import SourcePart
from rmt_pipeline.compute.merge.plan import unit_source
from rmt_pipeline.compute.mutate.commands import CompiledCommands
from rmt_pipeline.compute.mutate.pruning import manifest_bounds
from rmt_pipeline.compute.read.parts import converted_rows
from rmt_pipeline.compute.units import Shape
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import BadValue, Conflict, MissingPart, UserError
from rmt_pipeline.protocol.inserts.ids import REPLACEMENT, replacement_id
from rmt_pipeline.protocol.inserts.quorum import Quorum
from rmt_pipeline.protocol.nodes.records import (
    UNKNOWN_BLOCK,
    InsertRecord,
    PartitionRows,
    decoded,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.insert.result import NOT_SLOWED, Slowed
from rmt_pipeline.replica.insert.throttle import throttle_insert
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.replica.partitions.drop import Living, others_first, partition_version
from rmt_pipeline.replica.partitions.from_table import (
    EmptySource,
    is_behind,
    partitions_there,
    wait_for_swapped,
    wait_until_here,
)
from rmt_pipeline.replica.partitions.swap import (
    Change,
    IdIsTaken,
    Incoming,
    Numbers,
    PartitionChanged,
    Swapped,
    Wanted,
    swap,
)
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.hashes.rows import hash_table
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import DeleteRows, commands_text
from rmt_pipeline.system import Waker
from rmt_pipeline.translate.mutation_rules import check_commands
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, Refused
from rmt_pipeline.zookeeper.snapshot import active_parts, parts_now

PAUSE_S = 0.1  # the pause before partitions that changed are read again


class RowsOutside(BadValue):
    """Some rows do not belong to what is replaced. Nothing was changed."""


class RowsLost(UserError):
    """Some rows that a replacement under this token brought are lost. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """A replacement that is asked for. `partitions` are the ids of those that get exactly these
    rows. If it is None and there is no `where`, the partitions that have any of the rows are
    replaced, and with `whole` all others too. `where` is a condition: the rows for which it holds
    are replaced, and it must hold for the new ones. `token` names the replacement, "" for none.
    """

    data: Any
    columns: Sequence[str] | None = None
    partitions: tuple[str, ...] | None = None
    where: str = ""
    whole: bool = False
    token: str = ""
    run_id: str = ""

    @property
    def target(self) -> str:
        if self.where:
            return f"where {self.where}"
        if self.whole:
            return "all partitions"
        return f"partitions {sorted(set(self.partitions or ()))}" if self.partitions else ""


@dataclass(frozen=True, slots=True)
class ReplaceResult:
    """What a replacement did. `parts` are the new parts, which include rows that stayed.
    `is_duplicate`: it had been done before, or would have changed nothing, and nothing was changed.
    """

    parts: tuple[PartName, ...] = ()
    rows_replaced: int = 0
    rows_added: int = 0
    partitions: tuple[str, ...] = ()
    is_duplicate: bool = False
    slowed: Slowed = NOT_SLOWED

    def words(self) -> str:
        return f"{self._what_became_of_it()}{self.slowed.words()}"

    def _what_became_of_it(self) -> str:
        if self.is_duplicate:
            return "duplicate: these rows are there already; nothing was changed"
        if not self.partitions:
            return "nothing to replace"
        many = len(self.partitions)
        return (
            f"replaced {self.rows_replaced} rows by {self.rows_added} in "
            f"{many} partition{'s' * (many != 1)}"
        )


def overwrite(
    living: Living, asked: Overwrite, query: QuerySettings, new_waker: Callable[[], Waker]
) -> ReplaceResult:
    """Carry the replacement out once, in all its partitions or in none. Waits as `alter_sync` says;
    on this replica it has happened when this returns.

    Raises, before anything was changed: BadValue and other UserErrors for rows that do not fit;
    RowsOutside; EmptySource for no rows at all, unless `allow_replace_partition_from_empty_source`;
    PartsDoNotFit, TableIsReadOnly; Unavailable if partitions kept changing, or the replica lagged
    behind, for `receive_timeout`. OutcomeUnknown: repeat the command. Unfinished: it has happened
    here, and other replicas are late.
    """
    replica = living()
    work = _Overwriting(living, asked, query, replica.definition, replica.store, new_waker())
    if work.is_known(replica):
        return ReplaceResult(is_duplicate=True)
    slowed = throttle_insert(replica, query)
    try:
        work.stage_rows(replica)
        result, swapped = work.until_done()
    finally:
        work.discard()
    if swapped is not None:
        wait_for_swapped(swapped, query, new_waker)
    return replace(result, slowed=slowed)


@dataclass(slots=True)
class _Sum:
    """A number of rows and the sum of their hashes: if two sums are equal, so are the rows, in any
    order.
    """

    rows: int = 0
    row_hash: int = 0

    def add(self, rows: int, row_hash: int) -> None:
        self.rows += rows
        self.row_hash = (self.row_hash + row_hash) % 2**128


@dataclass(slots=True)
class _Plan:
    """What is to be committed. `gone` are the rows that the condition removes, by partition."""

    changes: tuple[Change, ...] = ()
    made: list[StagedPart] = field(default_factory=list)
    gone: dict[str, _Sum] = field(default_factory=dict)
    is_same: bool = False
    there: dict[str, list[PartName]] = field(default_factory=dict)
    """If the rows that would come are in the table already (`is_same`): the parts that have them,
    by partition.
    """


@dataclass(slots=True)
class _Overwriting:
    living: Living
    asked: Overwrite
    query: QuerySettings
    definition: TableDefinition
    store: PartStore
    """Of this table; also once there is no living replica to ask for it."""
    waker: Waker
    rows: dict[str, list[StagedPart]] = field(default_factory=dict)
    """The new rows, staged, by partition."""
    plan: _Plan = field(default_factory=_Plan)
    condition: CompiledCommands | None = None
    insert_id: str = ""

    def __post_init__(self) -> None:
        """Raises a UserError for a condition that can't be used, if more than one kind of target is
        given, or if a quorum is asked for.
        """
        asked = self.asked
        if Quorum.of(self.query).replicas != 1:
            raise UserError(
                f"a replacement knows no quorum (insert_quorum = {self.query.insert_quorum}): "
                "nothing was changed. Say insert_quorum = 0 for it; alter_sync = 2 waits until all "
                "replicas have the rows, 3 until all active ones do"
            )
        if bool(asked.where) + (asked.partitions is not None) + asked.whole > 1:
            raise UserError(
                "either partitions are replaced, or what a condition says, or the whole table: "
                "not both"
            )
        if asked.where:
            command = DeleteRows(parse_expression(asked.where))
            check_commands([command], self.definition)
            columns = stored_columns(self.definition)
            self.condition = CompiledCommands([commands_text((command,))], columns, "")
        token = asked.token or self.query.insert_deduplication_token
        if token and self.query.insert_deduplicate:
            self.insert_id = replacement_id(token, asked.target)

    def is_known(self, replica: Replica) -> bool:
        """Whether a replacement under this token was done, and what it brought was not replaced
        since. Raises RowsLost.
        """
        known = read_record(replica, self.insert_id) if self.insert_id else None
        if known is not None and known.record.missing:
            lost = ", ".join(
                f"{one.rows or 'some'} rows in partition {one.partition}"
                for one in known.record.missing
            )
            raise RowsLost(
                f"this replacement was done under its token, and of what it brought {lost} are "
                f"lost: no replica of {replica} has them any more, or the insert that had brought "
                "them was undone. Others are there, and what was inserted beside them since would "
                "go if it were done again; nothing was changed. Under another token it is done "
                "again"
            )
        return known is not None

    def discard(self) -> None:
        """Throw away what was staged and is not in the table. What is in the table does not have
        its staged name any more.
        """
        for part in [*self.plan.made, *(one for parts in self.rows.values() for one in parts)]:
            self.store.discard(part)

    # --- the rows that come

    def stage_rows(self, replica: Replica) -> None:
        """Stage the new rows. Raises RowsOutside, EmptySource."""
        tables = conform(
            self.asked.data,
            self.definition.columns,
            settings=self.query,
            columns_given=self.asked.columns,
            key_columns=blocks.key_columns_of(self.definition),
            now_s=replica.clock.now_s(),
        )
        for block in blocks.blocks_of(tables, self.definition, self.query):
            self._require_inside(block)
            self._stage(replica, block, self.rows.setdefault(block.partition_id, []))
        allowed = self.query.allow_replace_partition_from_empty_source
        if not self.rows and self.asked.target and not allowed:
            raise EmptySource(
                f"there are no rows to put in the place of those of {self.asked.target} of "
                f"{replica}: they would be dropped. If that is meant: SETTINGS "
                "allow_replace_partition_from_empty_source = 1"
            )

    def _stage(
        self, replica: Replica, block: blocks.Block, found: list[StagedPart]
    ) -> StagedPart | None:
        """Stage one block and add it to `found`; returns None if the engine leaves no row of it."""
        staged = blocks.stage(
            block,
            replica.store,
            insert_id=self.insert_id,
            run_id=self.asked.run_id,
            created_s=int(replica.clock.now_s()),
        )
        if not staged.manifest.rows:
            replica.store.discard(staged)
            return None
        found.append(staged)
        return staged

    def _require_inside(self, block: blocks.Block) -> None:
        wanted = self.asked.partitions
        if wanted is not None and block.partition_id not in wanted:
            raise RowsOutside(
                f"{block.given.rows} of the rows are of partition {block.partition_id}, which is "
                f"not among those that are replaced: {', '.join(wanted)}. Nothing was changed"
            )
        if self.condition is not None:
            outside = block.table.num_rows - int(self.condition.touched(block.table).sum())
            if outside:
                raise RowsOutside(
                    f"the condition {self.asked.where} does not hold for {outside} of the rows "
                    f"that are to come in partition {block.partition_id}: they would be there "
                    "twice after a second run. Nothing was changed"
                )

    # --- until it is done

    def until_done(self) -> tuple[ReplaceResult, Swapped | None]:
        clock = self.living().clock
        deadline_s = clock.monotonic_s() + self.query.receive_timeout
        for _ in range(limits.DROP_ROUNDS_MAX):
            try:
                unchanged = self._unchanged(self.living())
                self.plan = self._planned()
                if self.plan.is_same:
                    self._note_same(self.living(), unchanged)
                    return ReplaceResult(is_duplicate=True), None
                if not self.plan.changes:
                    return ReplaceResult(), None
                swapped = swap(self.living, self._wanted())
            except IdIsTaken:
                if self.is_known(self.living()):
                    return ReplaceResult(is_duplicate=True), None
            except PartitionChanged:
                if clock.monotonic_s() >= deadline_s:
                    raise
            else:
                return self._result(swapped), swapped
            for part in self.plan.made:
                self.store.discard(part)
            self.plan = _Plan()
            clock.sleep_s(PAUSE_S)
        raise others_first(self.living())

    def _result(self, swapped: Swapped) -> ReplaceResult:
        rows_replaced = swapped.rows_gone
        if self.condition is not None:
            rows_replaced = sum(one.rows for one in self.plan.gone.values())
        return ReplaceResult(
            parts=swapped.parts,
            rows_replaced=rows_replaced,
            rows_added=sum(self._coming(partition).rows for partition in self.rows),
            partitions=tuple(change.partition for change in self.plan.changes),
        )

    def _coming(self, partition: str) -> _Sum:
        return _sum_of(one.manifest for one in self.rows.get(partition, ()))

    def _planned(self) -> _Plan:
        """Plan the commit, from what is in the table now. Raises PartitionChanged."""
        replica = self.living()
        if self.condition is None:
            return self._of_partitions(replica)
        try:
            return self._of_rows(replica)
        except MissingPart as error:
            raise PartitionChanged(
                f"{replica}: parts were merged, replaced or dropped, and removed, before they were "
                f"read ({error}); nothing was changed, try again"
            ) from error

    def _wanted(self) -> Wanted:
        return Wanted(
            self.plan.changes,
            also=self._record,
            keeps_ids=self.condition is not None,
            command="INSERT OVERWRITE",
            run_id=self.asked.run_id,
        )

    # --- whole partitions

    def _of_partitions(self, replica: Replica) -> _Plan:
        named = self.asked.partitions
        wanted = set(self.rows if named is None else named)
        if self.asked.whole:
            wanted |= partitions_there(replica)
        partitions = sorted(wanted)
        if partitions and self._are_there(replica, partitions):
            active = PartSet(active_parts(replica.keeper, replica.paths, partitions))
            there = {one: list(active.in_partition(one)) for one in partitions}
            return _Plan(is_same=True, there=there)
        return _Plan(
            tuple(
                Change(partition, tuple(map(Incoming, self.rows.get(partition, ()))))
                for partition in partitions
            )
        )

    def _are_there(self, replica: Replica, partitions: Sequence[str]) -> bool:
        """Whether the partitions have just these rows, and nothing that would change that is queued
        or under way. The parts are read first, so that whatever is queued for them afterwards is
        seen. An unfinished mutation counts too: it would change the rows that are there, but not
        rows put there after it.
        """
        there = parts_now(replica.keeper, replica.paths, replica.memory.queue)
        active = {one: PartSet(there.names(one)) for one in partitions}
        try:
            same = all(
                _sum_of(map(replica.store.manifest, parts)) == self._coming(partition)
                for partition, parts in active.items()
            )
        except MissingPart:
            return False  # it was removed since, so something changed
        here = [part for parts in active.values() for part in parts]
        return same and not is_behind(replica, partitions) and not _are_mutated(replica, here)

    # --- a condition

    def _of_rows(self, replica: Replica) -> _Plan:
        """Plan a replacement by a condition: every part that has a row for which it holds is
        written anew, all other parts of the partitions that change are linked. The new numbers keep
        the order of the old ones, and the new rows get the greatest: some engines keep the last of
        the rows with one key.
        """
        if replica.definition.metadata_version != self.definition.metadata_version:
            raise Conflict(
                f"{replica} was altered while rows of it were read; nothing was changed, try again"
            )
        plan = _Plan()
        self.plan = plan
        parts = wait_until_here(self.living, None, self.query, self.waker)
        by_partition: dict[str, list[PartName]] = {one: [] for one in self.rows}
        for part in parts:
            by_partition.setdefault(part.partition, []).append(part)
        changes: list[Change] = []
        with ExitStack() as held:
            held.enter_context(replica.store.pin(parts))
            touched = {
                part
                for found in by_partition.values()
                for part in found
                if self._take(replica, part, plan)
            }
            changed = {part.partition for part in touched} | self.rows.keys()
            is_same = changed and all(
                plan.gone.get(one, _Sum()) == self._coming(one) for one in changed
            )
            if is_same and not _are_mutated(
                replica, [part for part in parts if part.partition in changed]
            ):
                plan.is_same = True
                plan.there = {one: by_partition[one] for one in changed}
                return plan
            for partition in sorted(changed):
                found = by_partition[partition]
                incoming: list[Incoming] = []
                for part in found:
                    incoming += self._kept(replica, part, plan, rewrite=part in touched)
                incoming += map(Incoming, self.rows.get(partition, ()))
                changes.append(
                    Change(
                        partition,
                        tuple(incoming),
                        expected=frozenset(found),
                        rewrites=True,
                    )
                )
        plan.changes = tuple(changes)
        return plan

    def _take(self, replica: Replica, part: PartName, plan: _Plan) -> bool:
        """Whether the condition holds for any row of the part; adds those rows to `plan.gone`."""
        assert self.condition is not None
        manifest = replica.store.verify_changed(part)
        if manifest.metadata_version > self.definition.metadata_version:
            raise PartitionChanged(
                f"{part} of {replica} has columns of an ALTER that this replica has yet to take "
                "up; nothing was changed"
            )
        source = unit_source(
            SourcePart(str(part), replica.store.directory(part), manifest), self.definition
        )
        shape = Shape(stored_columns(self.definition), ())
        if self.condition.is_for_none(manifest_bounds(source, shape, manifest.key_bounds)):
            return False
        any_was = False
        for table in self._tables(replica, part):
            for gone in self.condition.apply(table).deleted:
                found = hash_table(gone)
                plan.gone.setdefault(part.partition, _Sum()).add(found.rows, found.row_hash)
                any_was = any_was or bool(found.rows)
        return any_was

    def _tables(self, replica: Replica, part: PartName) -> Iterator[pa.Table]:
        source = SourcePart(
            str(part), replica.store.directory(part), replica.store.manifest(part)
        )
        columns = stored_columns(self.definition)
        return converted_rows(unit_source(source, self.definition), columns)

    def _kept(
        self, replica: Replica, part: PartName, plan: _Plan, *, rewrite: bool
    ) -> list[Incoming]:
        """Stage what stays of a part: the part itself, or with `rewrite` the rows for which the
        condition does not hold.
        """
        assert self.condition is not None
        condition = self.condition
        if not rewrite:
            manifest = replica.store.manifest(part)
            told = replace(manifest, sources=(str(part),), created_s=int(replica.clock.now_s()))
            staging = replica.store.begin("replace", str(part))
            plan.made.append(replica.store.clone_into(staging, part, told))
            return [Incoming(plan.made[-1], str(part))]
        schema = blocks.block_shape(self.definition).schema
        kept = (
            condition.apply(table).rows.cast(schema) for table in self._tables(replica, part)
        )
        found: list[Incoming] = []
        whole = replace(self.query, max_partitions_per_insert_block=0)
        # rows that were there stay, whatever constraints there are
        unchecked = replace(self.definition, constraints=())
        for block in blocks.blocks_of(kept, unchecked, whole):
            staged = self._stage(replica, block, plan.made)
            if staged is not None:
                found.append(Incoming(staged, str(part)))
        return found

    # --- what is known of it

    def _record(self, replica: Replica, numbers: Numbers) -> list[Op]:
        """Return operations that write the record of this replacement, and remove the records of
        earlier ones in partitions that it changes.
        """
        keeper, table = replica.keeper, replica.table
        ops: list[Op] = []
        if self.condition is not None:  # else those records go with the rows
            ids = [one for one in keeper.children(table.inserts) if one.startswith(REPLACEMENT)]
            paths = [table.insert(one) for one in ids]
            for path, read in zip(paths, keeper.get_many(paths), strict=True):
                if read is not None and not numbers.keys().isdisjoint(
                    decoded(path, read[0]).partition_ids()
                ):
                    ops.append(Delete(path, read[1].version))
        return [*ops, *self._own_record(replica, numbers)]

    def _unchanged(self, replica: Replica) -> list[Op]:
        """Return checks that are refused if a merge or mutation was assigned since, or anything was
        dropped or replaced. Without a token there are none.
        """
        if not self.insert_id:
            return []
        _, log = replica.keeper.children_stat(replica.table.log)
        version = partition_version(replica)
        return [
            Check(replica.table.log, log.version),
            Check(replica.table.alter_partition_version, version),
        ]

    def _note_same(self, replica: Replica, unchanged: Sequence[Op]) -> None:
        """Record a replacement with a token whose rows are in the table already. Without the
        record:

        1. The rows that the token would bring are in the table already, and the client is told so.
        2. Other rows are inserted beside them.
        3. The replacement is repeated under the token, and removes those other rows.

        Raises PartitionChanged.
        """
        if not self.insert_id:
            return
        there = self.plan.there
        numbers = self._last_numbers(
            replica, [one for one, parts in there.items() if not parts]
        )
        numbers |= {
            partition: (min(p.block_min for p in parts), max(p.block_max for p in parts))
            for partition, parts in there.items()
            if parts
        }
        try:
            replica.keeper.multi([*unchanged, *self._own_record(replica, numbers)])
        except Refused as refused:
            if self.is_known(replica):
                return
            raise PartitionChanged(
                f"{replica}: partitions changed while they were read; nothing was changed"
            ) from refused

    def _last_numbers(
        self, replica: Replica, partitions: Sequence[str]
    ) -> dict[str, tuple[int, int]]:
        """The last number that was given out in each of these partitions, which have no part;
        UNKNOWN_BLOCK if there was none. A drop of before takes only smaller ones:

        1. r1 drops a partition. r2 has yet to carry that out.
        2. A token replaces the partition by nothing, which is the same. Then rows are inserted.
        3. r2 carries the drop out, and sees to the ids and records of what it takes.
        4. The token is repeated. If its record had gone in 3, the new rows would go.
        """
        stats = replica.keeper.exists_many([replica.table.partition(one) for one in partitions])
        last = [UNKNOWN_BLOCK if stat is None else stat.next_sequence - 1 for stat in stats]
        return {one: (number, number) for one, number in zip(partitions, last, strict=True)}

    def _own_record(self, replica: Replica, numbers: Numbers) -> list[Op]:
        if not self.insert_id:
            return []
        sums = {partition: self._coming(partition) for partition in numbers}
        total = _Sum()
        for one in sums.values():
            total.add(one.rows, one.row_hash)
        record = InsertRecord(
            created_s=int(replica.clock.now_s()),
            replica=replica.name,
            run_id=self.asked.run_id,
            partitions=tuple(
                PartitionRows(partition, one.rows, f"{one.row_hash:032x}", *numbers[partition])
                for partition, one in sorted(sums.items())
            ),
            blocks=sum(map(len, self.rows.values())),
            rows=total.rows,
            row_hash=f"{total.row_hash:032x}",
            rows_in=total.rows,
        )
        return [Create(replica.table.insert(self.insert_id), record.encode())]


def _are_mutated(replica: Replica, parts: Iterable[PartName]) -> bool:
    """Whether a mutation has yet to be applied to any of these parts."""
    versions = load_mutations(replica).versions()
    return any(
        part.data_version < version
        for part in parts
        for version in versions.get(part.partition, ())
    )


def _sum_of(manifests: Iterable[Manifest]) -> _Sum:
    found = _Sum()
    for one in manifests:
        found.add(one.rows, one.row_hash)
    return found
