"""One disk's parts become what ZooKeeper says of the replica, while its table is restored.

Every request asserts the version of what the replica has announced so far: once all is announced,
nothing of another process that was at it lands any more.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, repeat

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.protocol.errors import Conflict, Corruption
from rmt_pipeline.protocol.inserts import ids
from rmt_pipeline.protocol.nodes.columns import columns_text
from rmt_pipeline.protocol.nodes.metadata import metadata_text
from rmt_pipeline.protocol.nodes.records import (
    Announced,
    InsertRecord,
    MissingRows,
    PartitionRows,
    Restoring,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.restoring import outermost, twice
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.zookeeper import restore_transactions, transactions
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    RefusalKind,
    Refused,
    SetData,
)

_OPS_TOGETHER = 1000
_BLOCKS_TOGETHER = 1000  # of one insert that is known again: its record is one node
_UNSEEN_MAX = 5000  # that are told of, in one node; a server looks every few seconds
_SKIPPED, _SKIPS_TOGETHER = 100, 20  # numbers in one request: the fastest, when it was measured


@dataclass(frozen=True, slots=True)
class DiskParts:
    """`parts`: the maximal ones, which are the table's rows here; `promised`: the ones that they
    cover, too, which clean-up removes in its time. `small`: of these, those of one insert each,
    `unseen` those that this disk never saw promised. `numbers`: the greatest of each partition that
    is known here.
    """

    parts: Mapping[PartName, Manifest]
    promised: Mapping[PartName, Manifest]
    small: Mapping[PartName, Manifest]
    unseen: Collection[PartName]
    left_out: Sequence[tuple[PartName, str]]
    dropped: Sequence[PartName]
    numbers: Mapping[str, int]
    mutations: int


def parts_of_disk(replica: Replica) -> DiskParts:
    """What a replica whose nodes ZooKeeper has lost has on its disk, each row once: of parts that
    overlap, or have the same block of an insert, one is left out and told of.
    """
    store = replica.store
    dropped = store.drops.ranges()
    names = store.parts()
    manifests: dict[PartName, Manifest] = {}
    left_out: list[tuple[PartName, str]] = []
    numbers: dict[str, int] = defaultdict(lambda: -1)
    for part in (*names, *dropped):
        last = part.block_max if part.is_drop_range else max(part.block_max, part.mutation)
        numbers[part.partition] = max(numbers[part.partition], last)
    for part in names:
        if any(one.contains(part) for one in dropped):
            continue
        try:
            manifests[part] = store.inspect(part)
        except Corruption as error:
            left_out.append((part, f"it is broken: {error}"))
    seen = store.marks.active_seen()
    noted = PartSet(() if seen is None else seen.parts)
    small = {part: one for part, one in manifests.items() if one.insert_id}
    unseen = {part for part in small if noted.containing(part) is None}
    # Blocks of one try of an insert with a token may be equal; those of one that is known by its
    # rows are not.
    contents = {part: (one.insert_id, one.content_hash) for part, one in small.items()}
    tries = {part: one.created_s for part, one in small.items() if one.insert_id != ids.BY_ROWS}
    for part, other in twice(contents, unseen, tries):
        del manifests[part]
        left_out.append((part, f"the same block of the same insert is there as {other}"))
    maximal, overlapping = outermost(manifests)
    for part, other in overlapping.items():
        del manifests[part]
        left_out.append((part, f"it overlaps {other}, and neither contains the other"))
    mutations = [int(one) for found in manifests.values() for one in found.mutations]
    return DiskParts(
        parts={part: manifests[part] for part in maximal},
        promised=manifests,
        small={part: one for part, one in small.items() if part in manifests},
        unseen=unseen & manifests.keys(),
        left_out=left_out,
        dropped=dropped,
        numbers=numbers,
        mutations=max(mutations, default=-1),
    )


def announce(replica: Replica, creator: bytes, disk: DiskParts) -> int:
    """Make the replica's nodes what its disk says. How many inserts are known again; of what was
    announced before nothing is changed.
    """
    keeper, table = replica.session, replica.table
    path = table.restoring_replica(replica.name)
    [restoring, read] = keeper.get_many([table.restoring, path])
    if restoring is None or read is None or read[0]:
        return 0
    guard = Check(path, read[1].version)
    log = Restoring.decode(restoring[0]).log
    # The mark says that this disk has seen a longer log. It was the log of another time.
    replica.store.marks.note_log_seen(0)
    try:
        _ensure_replica(replica, creator, guard, log)
        _repeated(replica, guard, lambda: _queue_ops(replica))
        _repeated(replica, guard, lambda: _part_ops(replica, disk))
        for partition, number in sorted(disk.numbers.items()):
            _skip_numbers(replica, guard, partition, number)
        _skip(keeper, guard, table.mutations, f"{table.mutations}/", disk.mutations)
        _repeated(replica, guard, lambda: _record_ops(replica, disk))
        inserts = _remember_inserts(replica, guard, disk)
        if disk.left_out and keeper.exists(replica.paths.force_restore_data) is None:
            keeper.multi([guard, Create(replica.paths.force_restore_data)])
        told = [(one, disk.small[one].insert_id) for one in sorted(disk.unseen)[-_UNSEEN_MAX:]]
        announced = Announced(
            tuple(disk.dropped),
            tuple(part for part, insert_id in told if insert_id == ids.BY_ROWS),
            tuple((part, insert_id) for part, insert_id in told if insert_id != ids.BY_ROWS),
        )
        keeper.multi([SetData(path, announced.encode(), read[1].version)])
    except Refused as refused:
        raise Conflict(
            f"{replica}: another process restores it, or somebody drops it: {refused}. Say it again"
        ) from refused
    return inserts


def new_creation(replica: Replica) -> str:
    """Of a replica that is made again. Another one than before: versions and numbers begin anew,
    and who has lived through it remembers those of before. Its server's start adopts it.
    """
    return replace(replica.definition, restored=replica.ids.new_id()).creation


def _ensure_replica(replica: Replica, creator: bytes, guard: Op, log: int) -> None:
    keeper, table, paths = replica.session, replica.table, replica.paths
    metadata, columns = texts_of(replica)
    version = replica.definition.metadata_version
    if keeper.exists(paths.root) is None:
        stat = keeper.exists(table.replicas)
        ops = transactions.create_replica(
            paths,
            is_lost=False,
            metadata=metadata,
            columns=columns,
            metadata_version=version,
            creator=creator,
            creation=new_creation(replica),
        )
        announce = transactions.announce_replica(
            table, replica.name, 0 if stat is None else stat.version
        )
        keeper.multi([guard, *ops, announce])
    reset = restore_transactions.reset_replica(
        paths, metadata=metadata, columns=columns, version=version, log=log
    )
    keeper.multi([guard, *reset])
    with suppress(Refused):
        keeper.multi([guard, Delete(paths.finished_mutations)])


def _repeated(replica: Replica, guard: Op, todo: Callable[[], Sequence[Op]]) -> None:
    """Carry out what there is to do until there is nothing: after a refusal it is another thing.
    Raises Refused when it is the guard's.
    """
    for _ in range(limits.FORGET_ROUNDS_MAX):
        ops = todo()
        if not ops:
            return
        for batch in batches(ops, bytes_max=limits.MULTI_BYTES_MAX // 2, ops_max=_OPS_TOGETHER):
            try:
                replica.session.multi([guard, *batch])
            except Refused as refused:
                if refused.index == 0:
                    raise
                break
    raise Conflict(f"{replica}: its nodes keep changing while it is restored; try again")


def _queue_ops(replica: Replica) -> list[Op]:
    paths = replica.paths
    queue, attempts = replica.session.children_many([paths.queue, paths.attempts])
    return [
        *(Delete(paths.queue_entry(node)) for node in queue or ()),
        *(Delete(paths.attempts_of(node)) for node in attempts or ()),
    ]


def _part_ops(replica: Replica, disk: DiskParts) -> list[Op]:
    paths = replica.paths
    [names] = replica.session.children_many([paths.parts])
    there = sorted(names or ())
    reads = replica.session.get_many([paths.part(name) for name in there])
    wanted = {str(part): manifest.header().encode() for part, manifest in disk.promised.items()}
    ops: list[Op] = []
    for name, read in zip(there, reads, strict=True):
        if name not in wanted:
            ops.append(Delete(paths.part(name)))
        elif read is not None and read[0] != wanted[name]:
            ops.append(SetData(paths.part(name), wanted[name]))
    missing = wanted.keys() - set(there)
    return [*ops, *(Create(paths.part(name), wanted[name]) for name in sorted(missing))]


def _skip_numbers(replica: Replica, guard: Op, partition: str, number: int) -> None:
    keeper, table = replica.session, replica.table
    path = table.partition(partition)
    if keeper.exists(path) is None:
        try:
            keeper.multi(transactions.create_partition(table, replica.paths, partition))
        except Refused as refused:
            if refused.kind is not RefusalKind.NODE_EXISTS:
                raise
    _skip(keeper, guard, path, table.lock_prefix(partition), number)


def _skip(keeper: Keeper, guard: Op, parent: str, prefix: str, number: int) -> None:
    """No number up to this one is given out any more: parts of some disk have them."""
    while True:
        stat = keeper.exists(parent)
        if stat is None or stat.next_sequence > number:
            return
        counts = _cut(number + 1 - stat.next_sequence)
        firsts = accumulate(counts, initial=stat.next_sequence)
        multis = [
            [
                guard,
                *restore_transactions.skip_numbers(
                    parent, prefix, first, count, stat.version + ordinal
                ),
            ]
            for ordinal, (first, count) in enumerate(zip(firsts, counts, strict=False))
        ]
        for result in keeper.multi_many(multis):
            if isinstance(result, Refused) and result.index > 0:
                continue  # somebody else gives out, or skips, numbers: look again
            if isinstance(result, Exception):
                raise result


def _cut(count: int) -> list[int]:
    """As many numbers as are skipped at once: some in each of several requests."""
    whole, rest = divmod(min(count, _SKIPPED * _SKIPS_TOGETHER), _SKIPPED)
    return [*repeat(_SKIPPED, whole), *([rest] if rest else [])]


def _record_ops(replica: Replica, disk: DiskParts) -> list[Op]:
    """Ids of blocks, and records of ALTERs, which parts of before are read with."""
    table, definition = replica.table, replica.definition
    wanted: dict[str, bytes] = {}
    for part, manifest in disk.small.items():
        if manifest.insert_id == ids.BY_ROWS:
            block = ids.block_id(part.partition, manifest.content_hash)
            wanted[table.block(block)] = str(part).encode()
    for version in sorted({change.version for change in definition.history}):
        changes = tuple(one for one in definition.history if one.version == version)
        record = AlterRecord(
            int(replica.clock.now_s()), replica.name, "", "restored from a disk", changes
        )
        wanted[table.alter(version)] = record.encode()
    paths = sorted(wanted)
    there = replica.session.exists_many(paths)
    return [
        Create(path, wanted[path])
        for path, stat in zip(paths, there, strict=True)
        if stat is None
    ]


def _remember_inserts(replica: Replica, guard: Op, disk: DiskParts) -> int:
    """Records of the inserts that parts of this disk are of, as far as these tell: one that is said
    again is answered as the duplicate that it is. What was merged does not say it any more.
    """
    named = _by_token(disk)
    by_insert = {**_by_rows(disk), **named}  # what is younger is kept longer
    table = replica.table
    doubtful = _doubtful(replica, disk)

    def todo() -> list[Op]:
        paths = [table.insert(one) for one in by_insert]
        ops: list[Op] = []
        for path, parts, read in zip(
            paths, by_insert.values(), replica.session.get_many(paths), strict=True
        ):
            record = _record_of(replica, parts, doubtful)
            if read is None:
                ops.append(Create(path, record.encode()))
                continue
            known = InsertRecord.decode(read[0])
            both = _with_lines_of(known, record)
            if both != known:
                ops.append(SetData(path, both.encode(), read[1].version))
        return ops

    _repeated(replica, guard, todo)
    return len(named)


def _doubtful(replica: Replica, disk: DiskParts) -> frozenset[PartName]:
    """Parts of inserts with a token of which nobody knows that they were ever announced: neither
    this disk, nor another one that has them. Of two who look at once, one sees the other's.
    """
    keeper, table = replica.session, replica.table
    others = [
        table.replica(name) for name in keeper.children(table.replicas) if name != replica.name
    ]
    unseen = [part for part in disk.unseen if disk.small[part].insert_id != ids.BY_ROWS]
    asked = [(part, other.part(part)) for part in unseen for other in others]
    found = keeper.exists_many([path for _, path in asked])
    promised = {part for (part, _), stat in zip(asked, found, strict=True) if stat is not None}
    return frozenset(unseen) - promised


def _by_token(disk: DiskParts) -> dict[str, dict[PartName, Manifest]]:
    found: dict[str, dict[PartName, Manifest]] = defaultdict(dict)
    for part, manifest in disk.small.items():
        if manifest.insert_id != ids.BY_ROWS:
            found[manifest.insert_id][part] = manifest
    return found


def _by_rows(disk: DiskParts) -> dict[str, dict[PartName, Manifest]]:
    """What may have been an insert without a token, by the id that the sum of its rows gives it:
    each block, and all blocks of one second and run. Ids of blocks know the same rows only when
    they are cut as before; these know them however they are cut.
    """
    alone, together = [], defaultdict[tuple[int, str], dict[PartName, Manifest]](dict)
    for part, manifest in disk.small.items():
        if manifest.insert_id == ids.BY_ROWS and manifest.rows:
            alone.append({part: manifest})
            together[manifest.created_s, manifest.run_id][part] = manifest
    likely = [parts for parts in together.values() if len(parts) <= _BLOCKS_TOGETHER]
    return {
        ids.insert_id_of_rows(_row_hash(parts), sum(one.rows for one in parts.values())): parts
        for parts in (*likely, *alone)
    }


def _row_hash(parts: Mapping[PartName, Manifest]) -> int:
    return sum(manifest.row_hash for manifest in parts.values()) & ids.HASH_MAX


def _record_of(
    replica: Replica, parts: Mapping[PartName, Manifest], doubtful: frozenset[PartName]
) -> InsertRecord:
    is_by_rows = all(manifest.insert_id == ids.BY_ROWS for manifest in parts.values())
    lines = [
        PartitionRows(
            part.partition,
            manifest.rows,
            f"{manifest.row_hash:032x}",
            part.block_min,
            part.block_max,
        )
        for part, manifest in parts.items()
    ]
    nothing = InsertRecord(
        created_s=min(manifest.created_s for manifest in parts.values()),
        replica=replica.name,
        run_id=next(iter(parts.values())).run_id,
        partitions=(),
        blocks=0,
        rows=0,
        # Of an insert with a token other blocks may be in merged parts.
        row_hash=f"{_row_hash(parts):032x}" if is_by_rows else "",
        rows_in=0,
    )
    return of_lines(nothing, lines, is_whole=not parts.keys() <= doubtful)


def _with_lines_of(known: InsertRecord, found: InsertRecord) -> InsertRecord:
    """What another disk knows of it, and what this one does. A record of a table that was not lost
    stays as it is: it knows more than parts do.
    """
    if known.row_hash or known.batches:
        return known
    there = {(one.partition, one.first, one.last) for one in known.partitions}
    more = [
        one for one in found.partitions if (one.partition, one.first, one.last) not in there
    ]
    is_whole = known.is_whole or found.is_whole
    return of_lines(known, (*known.partitions, *more), is_whole=is_whole)


def of_lines(
    before: InsertRecord, lines: Iterable[PartitionRows], *, is_whole: bool
) -> InsertRecord:
    """An insert of which some was committed is whole, as far as parts can tell. Else it died when
    so many of its parts had their names, perhaps: who says it again brings what these lack.
    """
    lines = tuple(sorted(lines))
    rows = sum(one.rows for one in lines)
    partitions = dict.fromkeys(one.partition for one in lines)
    missing = () if is_whole else tuple(MissingRows(one, 0) for one in partitions)
    return replace(
        before, partitions=lines, blocks=len(lines), rows=rows, rows_in=rows, missing=missing
    )


def texts_of(replica: Replica) -> tuple[bytes, bytes]:
    """`metadata` and `columns` of the replica, as its nodes in ZooKeeper have them."""
    definition = replica.definition
    return metadata_text(definition).encode(), columns_text(definition.columns).encode()
