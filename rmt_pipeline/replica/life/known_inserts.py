"""The inserts that a table still knows when it is made again from the disks of its replicas: a
repeated insert is answered as if ZooKeeper had never lost the table, as far as the disks tell.

What tells of an insert, from the least to the most:

1. The manifest of a part of one block has the id of the insert's token, or says that the insert is
   known by its rows. So a record can be made of the parts that are left. They do not say how many
   rows the insert had in all. An insert that is committed at once is in as a whole if any of it is.
2. The disk of the replica that takes an insert of several commits has a note of each commit: which
   blocks it has, and how many rows the whole insert has (`replica.insert.record`). So it is known
   what of the insert is in, even if that was merged since, and that the rest is not.
3. An older copy of ZooKeeper may have the record as it was then, whole or in part.

Each replica adds what its disk tells to what is there already. What names a block that was dropped
names the later one in which the same rows came again, before what was dropped is forgotten
(`name_what_came_again`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.inserts import ids
from rmt_pipeline.protocol.inserts.rows import Moved
from rmt_pipeline.protocol.nodes.records import (
    UNKNOWN_BLOCK,
    Announced,
    InsertBatch,
    InsertRecord,
    MissingRows,
    PartitionRows,
    decoded,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.restoring import CameAgain, InsertTries, United
from rmt_pipeline.replica.forget import renumber, take_out, what_to_move
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.life.disk_parts import DiskParts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.zookeeper.batches import batches, repeat_guarded
from rmt_pipeline.zookeeper.keeper import Create, Keeper, Op, SetData

_BLOCKS_TOGETHER = 1000  # of one insert that becomes known again: its record is one node
_LINES_TOGETHER = 2000  # of an insert in part, in one node


def remember_inserts(replica: Replica, guard: Op, disk: DiskParts) -> int:
    """Write records of the inserts of which parts on this disk are, as far as the parts tell: if
    such an insert is repeated, it is answered as a duplicate. Merged parts do not tell it any more.
    Return how many inserts with a token are known again.
    """
    doubtful = _doubtful(replica, disk)
    named = _by_token(disk)
    in_batches = _remember_in_batches(replica, guard, disk, named, doubtful)
    moves = {
        insert_id: CameAgain(seen).moved
        for insert_id, parts in named.items()
        if (seen := {one: parts[one].row_hash for one in parts.keys() - disk.unseen})
    }
    by_insert = {
        insert_id: parts
        # the last ones stay longest in the window
        for insert_id, parts in {**_by_rows(disk), **named}.items()
        if insert_id not in in_batches
    }
    table = replica.table

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
            known = decoded(path, read[0])
            both = _with_lines_of(known, record)
            if both != known:
                ops.append(SetData(path, both.encode(), read[1].version))
        return ops or what_to_move(unbound(replica), moves)

    repeat_guarded(replica.session, guard, todo)
    return len(named)


def _remember_in_batches(
    replica: Replica,
    guard: Op,
    disk: DiskParts,
    named: Mapping[str, Mapping[PartName, Manifest]],
    doubtful: frozenset[PartName],
) -> frozenset[str]:
    """Write records of inserts that are in part, according to a note on this disk or an older copy
    of ZooKeeper, and of those with so many parts that their lines do not fit into one node. Return
    their ids: what parts tell of these inserts is in the records too.
    """
    in_part, in_batches = {*disk.in_part}, {*disk.in_part}
    in_batches |= {one for one, parts in named.items() if len(parts) > _LINES_TOGETHER}
    paths = [replica.table.insert(insert_id) for insert_id in named]
    reads = replica.session.get_many(paths)
    for insert_id, path, read in zip(named, paths, reads, strict=True):
        record = None if read is None else decoded(path, read[0])
        if record is not None and record.row_hash and not record.is_whole:
            in_part.add(insert_id)
        elif record is not None and not record.row_hash and record.batches:
            in_batches.add(insert_id)
    in_batches |= in_part
    for insert_id in sorted(in_batches):
        note, parts = _note(disk.in_part.get(insert_id, ()), disk), named.get(insert_id, {})
        nothing = None if note is None else note.nothing
        if note is None and parts:
            nothing = _nothing_of(replica, parts)
        is_whole = insert_id not in in_part and not parts.keys() <= doubtful
        found = _found_in_part(note, parts, frozenset() if is_whole else doubtful)
        _add_to_record(replica, guard, insert_id, nothing, found, is_whole=is_whole)
    return frozenset(in_batches)


@dataclass(frozen=True, slots=True)
class _Note:
    """What the notes of an insert say: its record without any rows; which of its lines are in parts
    of this disk, and the partitions of which other lines are not.
    """

    nothing: InsertRecord
    lines: tuple[PartitionRows, ...]
    incomplete: AbstractSet[str]


def _note(records: Sequence[InsertRecord], disk: DiskParts) -> _Note | None:
    if not records:
        return None
    here = PartSet(disk.parts)
    lines = sorted({line for record in records for line in record.partitions})
    there = tuple(line for line in lines if _is_here(line, here))
    gone = {line.partition for line in lines if line not in there}
    incomplete = gone.intersection(line.partition for line in there)
    nothing = replace(records[0], partitions=(), blocks=0, rows_in=0, batches=0, missing=())
    return _Note(nothing, there, incomplete)


def _is_here(line: PartitionRows, here: PartSet) -> bool:
    """Whether a part here has the line's blocks. True if it has no rows, and so no block."""
    if line.first == UNKNOWN_BLOCK:
        return True
    block = PartName(line.partition, line.first, line.last, 0)
    return here.containing(block) is not None


def _found_in_part(
    note: _Note | None, parts: Mapping[PartName, Manifest], doubtful: frozenset[PartName]
) -> tuple[list[PartitionRows], AbstractSet[str]]:
    """Return the lines of the insert that this disk has, and the partitions of which some rows may
    be missing.
    """
    lines = [] if note is None else [*note.lines]
    noted = {(line.partition, line.first) for line in lines}
    more = [part for part in parts if (part.partition, part.block_min) not in noted]
    lines += [_line(part, parts[part]) for part in more]
    unsure = {part.partition for part in more if part in doubtful}
    return lines, unsure if note is None else unsure | note.incomplete


def _add_to_record(
    replica: Replica,
    guard: Op,
    insert_id: str,
    nothing: InsertRecord | None,
    found: tuple[Sequence[PartitionRows], AbstractSet[str]],
    *,
    is_whole: bool,
) -> None:
    """Add the lines that were found to the record, one multi after the other. If the process dies
    in between, there is a record of an insert in part that has fewer lines; the next try adds the
    others.

    `nothing` is the record of the insert before any of it was in, if this disk tells. `is_whole`:
    some of it is known here to be committed, and nothing tells that it is in part. Then all of it
    counts as committed, as `_of_lines` says, also what another disk is in doubt about.
    """
    path = replica.table.insert(insert_id)
    for _ in range(limits.FORGET_ROUNDS_MAX):
        known = read_record(unbound(replica), insert_id)
        if known is not None and known.record.row_hash and known.record.is_whole:
            return
        before, there = (nothing, ()) if known is None else (known.record, known.lines)
        assert before is not None, "without a note there was the record of an older copy"
        # the record was made of parts of other disks
        if not before.row_hash and nothing is not None and nothing.row_hash:
            before = replace(before, rows=nothing.rows, row_hash=nothing.row_hash, rows_in=0)
        is_told = is_whole or (known is not None and known.record.is_whole)
        record, batch = _with_more(
            before, there, *found, is_whole=is_told and not before.row_hash
        )
        if known is not None and record == known.record:
            return
        ops: list[Op] = []
        if record.batches > before.batches:
            new = replica.table.insert_batch(insert_id, before.batches)
            ops.append(Create(new, batch.encode()))
        text = record.encode()
        written = Create(path, text) if known is None else SetData(path, text, known.version)
        replica.session.multi([guard, written, *ops])
    raise Conflict(f"{path} keeps changing while {replica} is restored; try again")


def _with_more(
    before: InsertRecord,
    there: Sequence[PartitionRows],
    lines: Sequence[PartitionRows],
    incomplete: AbstractSet[str],
    *,
    is_whole: bool,
) -> tuple[InsertRecord, InsertBatch]:
    """Return the record with some of the lines that it lacks, and the batch that has these. All
    lines of an insert in part are in batches, because clean-up recognizes such an insert by them,
    and keeps it. One that `is_whole` misses nothing.
    """
    known = {(line.partition, line.first, line.last) for line in there}
    lacks = [one for one in lines if (one.partition, one.first, one.last) not in known]
    more = lacks[:_LINES_TOGETHER]
    counts = {one.partition: one.rows for one in before.missing}
    for line in more:
        if counts.get(line.partition) == line.rows_given > 0:  # it was thought to be lost
            del counts[line.partition]
        if line.partition in incomplete:
            counts.setdefault(line.partition, 0)
    counts = {} if is_whole else counts
    in_all = [*there, *more]
    batch = InsertBatch(tuple(sorted((*before.partitions, *more))))
    # a record that was made of parts has as many rows as these
    rows = 0 if before.row_hash else sum(one.rows for one in in_all)
    rows = max(before.rows, rows)
    record = replace(
        before,
        partitions=(),
        blocks=len(in_all),
        rows=rows,
        rows_in=_rows_in(rows, in_all, counts),
        batches=before.batches + bool(batch.partitions or not before.batches),
        missing=tuple(MissingRows(*one) for one in sorted(counts.items())),
    )
    return record, batch


def _rows_in(rows: int, lines: Iterable[PartitionRows], incomplete: Collection[str]) -> int:
    """Return how many of all the rows of an insert are in, according to its lines."""
    return min(rows, sum(one.rows_given for one in lines if one.partition not in incomplete))


def _doubtful(replica: Replica, disk: DiskParts) -> frozenset[PartName]:
    """Return parts of inserts with a token that were perhaps never announced: neither this disk,
    nor another replica that promises them, says so. If two replicas look at once, at least one sees
    the other's promise.
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
    """Return what may have been inserts without a token, by the id that the sum of their rows gives
    them: each block, and all blocks of one second and run. Block ids recognize the same rows only
    when they are cut as before; these ids do however they are cut.
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
    lines = [_line(part, manifest) for part, manifest in parts.items()]
    is_whole = not parts.keys() <= doubtful
    return _of_lines(_nothing_of(replica, parts), lines, is_whole=is_whole)


def _nothing_of(replica: Replica, parts: Mapping[PartName, Manifest]) -> InsertRecord:
    """Return the record that is made of these parts, without their lines."""
    is_by_rows = all(manifest.insert_id == ids.BY_ROWS for manifest in parts.values())
    return InsertRecord(
        created_s=min(manifest.created_s for manifest in parts.values()),
        replica=replica.name,
        run_id=next(iter(parts.values())).run_id,
        partitions=(),
        blocks=0,
        rows=0,
        # other blocks of an insert with a token may be in merged parts
        row_hash=f"{_row_hash(parts):032x}" if is_by_rows else "",
        rows_in=0,
    )


def _line(part: PartName, manifest: Manifest) -> PartitionRows:
    rows, row_hash = manifest.rows, f"{manifest.row_hash:032x}"
    return PartitionRows(part.partition, rows, row_hash, part.block_min, part.block_max)


def _with_lines_of(known: InsertRecord, found: InsertRecord) -> InsertRecord:
    """Return the record with what another disk has written and what this one knows. A record that
    was not made of parts stays as it is: it knows more than parts do.
    """
    if known.row_hash or known.batches:
        return known
    there = {(one.partition, one.first, one.last) for one in known.partitions}
    more = [
        one for one in found.partitions if (one.partition, one.first, one.last) not in there
    ]
    is_whole = known.is_whole or found.is_whole
    return _of_lines(known, (*known.partitions, *more), is_whole=is_whole)


def _of_lines(
    before: InsertRecord, lines: Iterable[PartitionRows], *, is_whole: bool
) -> InsertRecord:
    """Return the record with these lines. If any of an insert is known to be committed, it counts
    as whole, as far as parts can tell. Otherwise it may have died when only some of its parts had
    their names: then a repeated insert brings what these lack.
    """
    lines = tuple(sorted(lines))
    rows = sum(one.rows for one in lines)
    partitions = dict.fromkeys(one.partition for one in lines)
    missing = () if is_whole else tuple(MissingRows(one, 0) for one in partitions)
    return replace(
        before, partitions=lines, blocks=len(lines), rows=rows, rows_in=rows, missing=missing
    )


def tries_of(replica: Replica, said: Mapping[str, Announced]) -> dict[str, InsertTries]:
    """Return the inserts with a token of which some blocks may be from tries that died, by their
    ids. An insert's record has by now what each disk has of it; or it is of an older copy of
    ZooKeeper, and tells of announced blocks alone. Of two tries on one disk the earlier one died.
    """
    unseen: dict[str, dict[PartName, tuple[str, int]]] = defaultdict(dict)
    for name, one in said.items():
        for tried in one.tries:
            unseen[tried.insert_id][tried.part] = name, -tried.began_s
    found = {}
    for insert_id, tries in sorted(unseen.items()):
        known = read_record(unbound(replica), insert_id)
        blocks = {
            PartName(line.partition, line.first, line.last, 0)
            for line in (known.lines if known else ())
            if line.first == line.last
        }
        announced = blocks if known is not None and _is_older(known.record) else ()
        unsure = {part: by for part, by in tries.items() if part not in announced}
        found[insert_id] = InsertTries(blocks | tries.keys(), unsure)
    return found


def _is_older(record: InsertRecord) -> bool:
    """Whether it is of an older copy of ZooKeeper, and nothing was added since."""
    return bool(record.row_hash) and record.is_whole and not record.batches


def forget_tries(replica: Replica, united: United, inserts: Mapping[str, InsertTries]) -> None:
    """Take the rows of tries that died out of the inserts' records: the insert has them once. Ids
    and records that name such a block name the one that stays from now on.
    """
    plain = unbound(replica)
    for insert_id, insert in inserts.items():
        gone = united.repeats.keys() & insert.unseen.keys()
        known = read_record(plain, insert_id) if gone else None
        if known is None:
            continue
        record = known.record
        lines = [line for line in known.lines if any(map(line.is_in, gone))]
        left = [line for line in known.lines if line not in lines]
        if record.batches and lines:
            incomplete = {one.partition for one in record.missing}
            # as many as its parts have, if it was made of them
            rows = record.rows if record.row_hash else sum(one.rows for one in left)
            rows_left = rows, _rows_in(rows, left, incomplete)
            replica.session.multi(
                take_out(plain, insert_id, record, known.version, lines, rows_left=rows_left)
            )
        elif not record.row_hash:  # made of parts, by a replica that announced them
            mended = _of_lines(record, left, is_whole=record.is_whole)
            path = replica.table.insert(insert_id)
            replica.session.multi([SetData(path, mended.encode(), known.version)])
    if united.repeats:
        moved = Moved.of((str(part), other) for part, other in united.repeats.items())
        renumber(plain, moved)


def name_what_came_again(
    replica: Replica,
    said: Mapping[str, Announced],
    stay: Mapping[PartName, tuple[int, int]],
    dropped: Collection[PartName],
) -> None:
    """Let ids and records that name a block that was dropped name the later one that has the same
    rows, if that stays. `stay` are the parts that do, with the hashes of their rows in order and in
    any order. Otherwise these would be forgotten with what was dropped:

    1. The rows of an insert are dropped, and inserted again. 2. ZooKeeper goes back to a copy from
    before that; or it loses the table, and a disk that has yet to drop the first block is heard
    first. 3. Id and record name the first block. They are forgotten, and the insert, said once
    more, is in the table twice.

    Blocks that their disk has seen promised are named by now, as far as they are known by a token
    (`remember_inserts`) or an id (`announce`). A block that none has seen could be of a try that
    died, until it was decided what stays.
    """
    plain = unbound(replica)
    keeper, table = plain.keeper, plain.table
    unseen = {part for one in said.values() for part in one.unseen} & stay.keys()
    ids_of = {
        table.block(ids.block_id(one.partition, stay[one][0])): one for one in sorted(unseen)
    }
    reads = keeper.get_many(list(ids_of))
    _send(
        keeper,
        [
            SetData(path, str(part).encode(), read[1].version)
            for (path, part), read in zip(ids_of.items(), reads, strict=True)
            if read is not None and names_earlier(read[0], part)
        ],
    )
    by_rows = CameAgain(_named_by_rows(plain, stay))
    tried: dict[str, dict[PartName, int]] = defaultdict(dict)
    for each in said.values():
        for one in each.tries:
            if one.part in stay:
                tried[one.insert_id][one.part] = stay[one.part][1]
    known = {
        **{
            name: by_rows
            for name in keeper.children(table.inserts)
            if name.startswith(ids.BY_ROWS)
        },
        **{name: CameAgain(blocks) for name, blocks in tried.items()},
    }
    moves = {name: partial(again.moved, dropped=dropped) for name, again in known.items()}
    _send(keeper, what_to_move(plain, moves))


def _named_by_rows(
    plain: Replica, stay: Mapping[PartName, tuple[int, int]]
) -> dict[PartName, int]:
    """Return the parts that ids by rows name, if they stay, with the hashes of their rows."""
    names = plain.keeper.children(plain.table.blocks)
    reads = plain.keeper.get_many(list(map(plain.table.block, names)))
    found: dict[PartName, int] = {}
    for name, read in zip(names, reads, strict=True):
        part = PartName.try_parse("" if read is None else read[0].decode(errors="replace"))
        if (
            part is not None
            and part in stay
            and ids.block_id(part.partition, stay[part][0]) == name
        ):
            found[part] = stay[part][1]
    return found


def names_earlier(named: bytes, block: PartName) -> bool:
    """Whether an id names an earlier block than this one."""
    part = PartName.try_parse(named.decode(errors="replace"))
    return part is not None and part.block_min < block.block_min


def _send(keeper: Keeper, ops: Sequence[Op]) -> None:
    for batch in batches(ops, bytes_max=limits.MULTI_BYTES_MAX):
        keeper.multi(batch)


def unbound(replica: Replica) -> Replica:
    """Return the replica in the session itself, without the assertions of `BoundKeeper`: while its
    table is restored nothing can be asserted of the nodes that it had before.
    """
    plain = replace(replica.definition, uuid="")
    return replace(replica, definition=plain, keeper=replica.session)
