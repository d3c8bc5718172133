"""A part that no replica has becomes an empty one: nothing waits for it for ever (spec §5.9).

    an entry fails: nobody has its part ──► every replica was looked at, and all are active ──►
    an empty part, its ids forgotten, what was lost noted: in one multi

1. Not while a replica is away: it may have the part, or what contains it.
2. Nothing was assigned since the log was pulled (its version), no replica was added or gave a part
   up since we looked (the versions of `replicas` and of each `is_lost`), none has the part: all of
   it is asserted where it counts, in the multi that publishes the empty one. Nor is anybody making
   something of it at this moment, from bytes that he has still: then it is not lost. Here the rules
   of the queue decide, as for whoever carries the part's entry out.
3. Not while a replica has yet to look whether its disk has the part: one that gave it up, or that
   fetched it and died before ZooKeeper knew. Then it puts it back (`replica.put_back`). Nor while
   one has yet to look whether it has a copy in the table that the part came from.
4. What is lost of a merge's result are those of its sources that are lost, not the result.
5. An insert whose rows these were is known no more: said again it brings them back. The original
   keeps its ids, and answers that they are there.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    OutcomeUnknown,
    RmtError,
)
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart, LogEntry, ReplaceRange, sources_of
from rmt_pipeline.protocol.nodes.records import Claim, LostPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts, Run
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.forget import what_to_forget
from rmt_pipeline.replica.insert.report import insert_reports
from rmt_pipeline.replica.missing import lost_of, yet_to_look
from rmt_pipeline.replica.publish import EntryGone, publish
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.manifest import Manifest, PartColumn
from rmt_pipeline.store.part_log import PartEvent
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.keeper import Check, Create, Op, Refused, SetData, absent
from rmt_pipeline.zookeeper.snapshot import (
    awaiting_quorum,
    queue_snapshot,
)

AT_ONCE_MAX = 100

_LOST = "no replica has it any more: its rows are lost, and an empty part took its place"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What every replica has, and the versions that say so for as long as they last."""

    log_version: int
    guards: tuple[Op, ...]
    making: frozenset[PartName]
    """What somebody is producing right now."""


def lost_parts(replica: Replica) -> dict[PartName, LostPart]:
    """All that ever were, and whose inserts are to be said again."""
    [names] = replica.keeper.children_many([replica.table.lost_parts])
    parts = [PartName.parse(name) for name in names or ()]
    reads = replica.keeper.get_many([replica.table.lost_part(part) for part in parts])
    return {
        part: LostPart.decode(read[0])
        for part, read in zip(parts, reads, strict=True)
        if read is not None
    }


def replace_lost_parts(replica: Replica) -> tuple[PartName, ...]:
    """Of what this replica's queue has tried to get or to make in vain: what is lost becomes empty.

    Raises what ends the session; what can't be done now is done by the next call.
    """
    wanted = _wanted_in_vain(replica)
    if not wanted:
        return ()
    replaced: list[PartName] = []
    for part in sorted(wanted)[:AT_ONCE_MAX]:
        with suppress(Conflict, OutcomeUnknown, Corruption):
            if _replace(replica, part):
                replaced.append(part)
    return tuple(replaced)


def _wanted_in_vain(replica: Replica) -> set[PartName]:
    """Lost parts for which entries of this replica have failed."""
    keeper = replica.keeper
    failed = frozenset(keeper.children(replica.paths.attempts))
    if not failed:
        return set()
    snapshot = queue_snapshot(keeper, replica.paths, replica.memory.queue)
    entries = [entry for node, entry in snapshot.entries.items() if node in failed]
    asked = {
        part
        for entry in entries
        for part in _needed(entry)
        if snapshot.parts.current.containing(part) is None
    }
    if not asked:
        return set()
    return lost_of(replica, asked) - awaiting_quorum(keeper, replica.table)


def _replace(replica: Replica, part: PartName) -> bool:
    """Whether it is an empty part now, and was not before."""
    pulled = pull_log(replica, afresh=True)
    seen = _look(replica, part, pulled.log_version)
    if seen is None or any(one.contains(part) for one in seen.making):
        return False
    if yet_to_look(replica, [part]) or lost_of(replica, [part]) != {part}:
        return False
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    nodes = [node for node, entry in snapshot.entries.items() if _gets(entry, part)]
    if not nodes:
        needing = [node for node, entry in snapshot.entries.items() if part in _needed(entry)]
        if needing:
            _ask_for(replica, part, seen, snapshot.is_lost_version, needing[0])
        return False  # the next call finds it; or a drop has taken who needed it
    # Nor while a replacement brings it here: it was begun, perhaps, since we looked who makes what.
    view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
    if not isinstance(view.decide(nodes[0], Facts()), Run):
        return False
    holder = Holder.new(replica)
    if not holder.take(snapshot, {nodes[0]: (part,)}):
        return False
    try:
        publish(
            replica,
            nodes[0],
            part,
            _staged_empty(replica, part),
            more=_ops(replica, part, seen),
        )
    except EntryGone:
        holder.give_back([nodes[0]])
        return False
    except BaseException:
        holder.give_back([nodes[0]])
        raise
    now_s = replica.clock.now_s()
    replica.store.part_log.note([PartEvent("LostPart", str(part), now_s, error=_LOST)])
    return True


def _needed(entry: LogEntry) -> tuple[PartName, ...]:
    """What a replica waits for that carries the entry out. Parts of another table (REPLACE FROM)
    each replica may have a copy of: of those nobody can say that they are lost.
    """
    match entry:
        case GetPart():
            return (entry.part,)
        case ReplaceRange() if not entry.from_table:
            return entry.new_parts
        case _:
            return sources_of(entry)


def _gets(entry: LogEntry, part: PartName) -> bool:
    return isinstance(entry, GetPart) and entry.part == part


def _look(replica: Replica, part: PartName, log_version: int) -> _Seen | None:
    """None when a replica is away, or is being cloned. Whoever gives a part up, or takes another
    replica's state over, gives his `is_lost` another version.
    """
    keeper, table = replica.keeper, replica.table
    names, replicas = keeper.children_stat(table.replicas)
    peers = [table.replica(name) for name in names]
    lost = keeper.get_many([peer.is_lost for peer in peers])
    active = keeper.exists_many([peer.is_active for peer in peers])
    if None in active or any(read is None or read[0] == b"1" for read in lost):
        return None
    listed = keeper.children_many([peer.executing for peer in peers])
    claims = keeper.get_many(
        [
            peer.claim(node)
            for peer, nodes in zip(peers, listed, strict=True)
            for node in nodes or ()
        ]
    )
    guards: list[Op] = [Check(table.log, log_version), Check(table.replicas, replicas.version)]
    guards += [Check(peer.is_active) for peer in peers]
    guards += [
        Check(peer.is_lost, read[1].version)
        for peer, read in zip(peers, lost, strict=True)
        if read is not None
    ]
    for peer in peers:  # nor has anybody brought it back, whatever its node says
        guards += absent(peer.part(part)) if peer.name != replica.name else []
    making = {one for read in claims if read is not None for one in Claim.decode(read[0]).parts}
    return _Seen(log_version, tuple(guards), frozenset(making))


def _ask_for(
    replica: Replica, part: PartName, seen: _Seen, is_lost_version: int, needing: str
) -> None:
    """Only what is made of it is in the queue, `needing`: an entry for the part itself, by which it
    will be replaced, or fetched if it turns up.

    1. A merge of it fails, and the part is looked for in vain. 2. A drop of all of it is carried
    out here: the merge leaves the queue. 3. An entry for the part is not written any more: it would
    bring an empty part into the range that was dropped, here alone, and tell of lost rows.
    """
    now_s = int(replica.clock.now_s())
    entry = encode(GetPart(create_time=now_s, source_replica="", part=part))
    with suppress(Refused):
        replica.keeper.multi(
            [
                Check(replica.paths.is_active),
                Check(replica.paths.is_lost, is_lost_version),
                Check(replica.table.log, seen.log_version),
                Check(replica.paths.queue_entry(needing)),
                Create(replica.paths.queue_prefix, entry, sequence=True),
            ]
        )


def _ops(replica: Replica, part: PartName, seen: _Seen) -> Sequence[Op]:
    """What is asserted, and what is written beside the empty part."""
    keeper, table = replica.keeper, replica.table
    count, stat = keeper.get(table.lost_part_count)
    [before] = keeper.get_many([table.lost_part(part)])  # then the empty one is lost as well
    earlier = () if before is None else LostPart.decode(before[0]).inserts
    note = LostPart(
        replaced_s=int(replica.clock.now_s()),
        replica=replica.name,
        inserts=tuple(sorted({*earlier, *_inserts_in(replica, part)})),
    )
    noted: Op = Create(table.lost_part(part), note.encode())
    if before is not None:
        noted = SetData(table.lost_part(part), note.encode(), before[1].version)
    parent = [] if keeper.exists(table.lost_parts) is not None else [Create(table.lost_parts)]
    forgotten = what_to_forget(replica, [part], are_lost=True)
    return [
        *seen.guards,
        SetData(table.lost_part_count, str(int(count or b"0") + 1).encode(), stat.version),
        *parent,
        noted,
        *(op for some in forgotten for op in some),
    ]


def _inserts_in(replica: Replica, part: PartName) -> Collection[str]:
    """Those that are remembered, and had rows in these blocks."""
    return {
        report.insert_id
        for report in insert_reports(replica)
        if any(line.touches(part) for line in report.lines)
    }


def _staged_empty(replica: Replica, part: PartName) -> StagedPart:
    """A part without rows, of the table's columns of now. What its partition is called people read
    from another part of it, if there is one.
    """
    definition, store = replica.definition, replica.store
    columns = stored_columns(definition)
    manifest = Manifest(
        columns=tuple(PartColumn(column.name, column.type) for column in columns),
        rows=0,
        bytes_on_disk=0,
        partition_id=part.partition,
        partition=_partition_text(replica, part),
        key_bounds=(),
        files=(),
        row_hash=0,
        column_hashes=dict.fromkeys((column.name for column in columns), 0),
        content_hash=0,
        created_s=int(replica.clock.now_s()),
        engine_version="empty, instead of a lost part",
        metadata_version=definition.metadata_version,
    )
    return store.begin("fetch", str(part)).seal(manifest)


def _partition_text(replica: Replica, part: PartName) -> str:
    for other in replica.store.parts():
        if other.partition == part.partition:
            with suppress(RmtError):
                return replica.store.manifest(other).partition
    return part.partition
