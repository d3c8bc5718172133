"""Replace a part that no replica has any more by an empty one, so that nothing waits for it forever
(spec §5.9).

    an entry fails: no replica has its part ──► every replica was looked at, and all are active ──►
    an empty part, its ids forgotten, what was lost noted: in one multi

1. Not while a replica is away: it may have the part, or one that contains it. A replica whose drop
   has begun is not waited for, whatever is left of its nodes.
2. The multi that publishes the empty part asserts what was found: that nothing was assigned since
   the log was pulled (the log's version), that no replica was added or gave a part up since (the
   versions of `replicas` and of each `is_lost`), and that no replica has the part. Nor may any
   worker be making something of it at this moment, from bytes that it still has: then the part is
   not lost. The rules of the queue decide that, as for a worker that carries the part's entry out.
3. Not while a replica has yet to look whether its disk has the part, because it gave the part up,
   or fetched it and died before ZooKeeper knew; then that replica puts it back
   (`replica.put_back`). Nor while a replica has yet to look whether it has a copy in the table that
   the part came from.
4. If the result of a merge is missing, the lost parts are those of its sources that are lost, not
   the result.
5. The inserts whose rows these were are forgotten: sent again, they bring the rows back. (The
   original keeps its ids, and answers that the rows are there.)
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    OutcomeUnknown,
    RmtError,
)
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart, LogEntry, ReplaceRange, sources_of
from rmt_pipeline.protocol.nodes.formats import number_of
from rmt_pipeline.protocol.nodes.records import Claim, LostPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts, Run
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.forget import forget_lost, what_to_forget
from rmt_pipeline.replica.insert.report import insert_reports
from rmt_pipeline.replica.missing import PeerQueues, lost_of, yet_to_look
from rmt_pipeline.replica.publish import EntryGone, publish
from rmt_pipeline.replica.pull_log import PullingIsStopped, pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.commit_notes import settle_notes
from rmt_pipeline.store.manifest import Manifest, PartColumn
from rmt_pipeline.store.part_log import PartEvent
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import Check, Create, Op, Refused, SetData, absent
from rmt_pipeline.zookeeper.snapshot import (
    awaiting_quorum,
    queue_snapshot,
    staying_replicas,
)

AT_ONCE_MAX = 100

_LOST = "no replica has it any more: its rows are lost, and an empty part took its place"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What every replica has, and the versions by which the multi asserts it."""

    log_version: int
    guards: tuple[Op, ...]
    making: frozenset[PartName]
    """The parts that some worker is making right now."""


def lost_parts(replica: Replica) -> dict[PartName, LostPart]:
    """Return all parts that were ever lost, with the inserts that are to be repeated."""
    [names] = replica.keeper.children_many([replica.table.lost_parts])
    parts = [PartName.parse(name) for name in names or ()]
    reads = replica.keeper.get_many([replica.table.lost_part(part) for part in parts])
    return {
        part: LostPart.decode(read[0])
        for part, read in zip(parts, reads, strict=True)
        if read is not None
    }


def replace_lost_parts(replica: Replica) -> tuple[PartName, ...]:
    """Replace lost parts that this replica's queue has tried in vain to get or to make, and return
    them.

    Raises what ends the session, OSError, DiskFull; what else can't be done now is left to the next
    call.
    """
    queues = PeerQueues(replica)
    wanted = _wanted_in_vain(replica, queues)
    if not wanted:
        return ()
    replaced: list[PartName] = []
    for part in sorted(wanted)[:AT_ONCE_MAX]:
        with suppress(Conflict, OutcomeUnknown, Corruption, PullingIsStopped):
            if _replace(replica, part, queues):
                replaced.append(part)
    return tuple(replaced)


def _wanted_in_vain(replica: Replica, queues: PeerQueues) -> set[PartName]:
    """Return the lost parts for which entries of this replica have failed."""
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
    return lost_of(replica, asked, queues) - awaiting_quorum(keeper, replica.table)


def _replace(replica: Replica, part: PartName, queues: PeerQueues) -> bool:
    """Replace the part by an empty one; return whether this call did so."""
    pulled = pull_log(replica, afresh=True)
    seen = _look(replica, part, pulled.log_version)
    if seen is None or any(one.contains(part) for one in seen.making):
        return False
    if yet_to_look(replica, [part], queues) or lost_of(replica, [part], queues) != {part}:
        return False
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    nodes = [node for node, entry in snapshot.entries.items() if _gets(entry, part)]
    if not nodes:
        needing = [node for node, entry in snapshot.entries.items() if part in _needed(entry)]
        if needing and not snapshot.is_lost:
            _ask_for(replica, part, seen, snapshot.is_lost_version, needing[0])
        return False  # the next call finds it; or a drop has taken the entry that needed it
    # Not while a replacement brings it here: that may have begun since we looked at the claims.
    view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
    if not isinstance(view.decide(nodes[0], Facts(has_rows=False)), Run):
        return False
    holder = Holder.new(replica)
    if not holder.take(snapshot, {nodes[0]: (part,)}):
        return False
    try:
        settle_notes(replica, part)
        more = _ops(replica, part, seen)
        if sum(map(op_bytes, more)) > limits.MULTI_BYTES_MAX:
            _forget_before(replica, part, seen)
            more = _ops(replica, part, seen)
        publish(replica, nodes[0], part, _staged_empty(replica, part), more=more)
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
    """Return the parts that a replica needs to carry the entry out. Parts that come from another
    table (REPLACE FROM) are left out: any replica may have a copy of them there, so they can't be
    called lost.
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
    """Look at all replicas; None if one is away, or is being cloned. A replica that gives a part
    up, or takes over another replica's state, gives its `is_lost` another version. What is left of
    a replica whose drop has begun does not count: nobody will get anything from it.
    """
    keeper, table = replica.keeper, replica.table
    _, replicas = keeper.children_stat(table.replicas)
    living = staying_replicas(keeper, table)
    peers = [table.replica(name) for name in living]
    lost = keeper.get_many([peer.is_lost for peer in peers])
    if not all(living.values()) or any(read is None or read[0] == b"1" for read in lost):
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
    # nor may a replica have got the part back, whatever its other nodes say
    for peer in peers:
        guards += absent(peer.part(part)) if peer.name != replica.name else []
    making = {one for read in claims if read is not None for one in Claim.decode(read[0]).parts}
    return _Seen(log_version, tuple(guards), frozenset(making))


def _ask_for(
    replica: Replica, part: PartName, seen: _Seen, is_lost_version: int, needing: str
) -> None:
    """Queue an entry for the part itself if only an entry that is made of it, `needing`, is in the
    queue: by that entry the part will be replaced, or fetched if it turns up.

    1. A merge of the part fails, and the part is looked for in vain.
    2. A drop of all of it is carried out here: the merge leaves the queue.
    3. An entry for the part is not written any more, because the multi asserts that `needing` is
       there. It would bring an empty part into the range that was dropped, here alone, and report
       lost rows.

    Setting `is_lost` to its own value gives it a new version: a pull that knew which number its
    entry would get is refused.
    """
    now_s = int(replica.clock.now_s())
    entry = encode(GetPart(create_time=now_s, source_replica="", part=part))
    with suppress(Refused):
        replica.keeper.multi(
            [
                Check(replica.paths.is_active),
                SetData(replica.paths.is_lost, b"0", is_lost_version),
                Check(replica.table.log, seen.log_version),
                Check(replica.paths.queue_entry(needing)),
                Create(replica.paths.queue_prefix, entry, sequence=True),
            ]
        )


def _ops(replica: Replica, part: PartName, seen: _Seen) -> Sequence[Op]:
    """Return the operations that assert what was found, and those that note the loss."""
    forgotten = what_to_forget(replica, [part], are_lost=True)
    noted = _noted(replica, part, parts=1)
    return [*seen.guards, *noted, *(op for some in forgotten for op in some)]


def _forget_before(replica: Replica, part: PartName, seen: _Seen) -> None:
    """Forget the inserts of which the part had rows: they are thousands, and do not fit into the
    multi that replaces it. Each multi asserts that the part is lost. Which inserts they are is
    noted first: if we die in between, the next clean-up goes on, and does not find all of them.
    """
    replica.keeper.multi([*seen.guards, *_noted(replica, part, parts=0)])
    forget_lost(replica, [part], seen.guards)


def _noted(replica: Replica, part: PartName, *, parts: int) -> Sequence[Op]:
    """Return the operations that note which inserts had rows in the part, and count so many more
    lost parts.
    """
    keeper, table = replica.keeper, replica.table
    count, stat = keeper.get(table.lost_part_count)
    # there is one if the empty part was lost as well
    [before] = keeper.get_many([table.lost_part(part)])
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
    total = number_of(count) + parts
    return [
        SetData(table.lost_part_count, str(total).encode(), stat.version),
        *parent,
        noted,
    ]


def _inserts_in(replica: Replica, part: PartName) -> Collection[str]:
    """Return the inserts that have a record and had rows in these blocks."""
    return {
        report.insert_id
        for report in insert_reports(replica)
        if any(line.touches(part) for line in report.lines)
    }


def _staged_empty(replica: Replica, part: PartName) -> StagedPart:
    """Stage a part without rows, with the table's present columns. The readable text of its
    partition is taken from another part of the partition, if there is one.
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
