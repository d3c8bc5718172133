"""Carrying out a replacement entry on one replica (spec §5.6).

    queue entries inside go ──► new parts: linked from the own copy of their source, or fetched ──►
    they get their names ──► one multi: they are promised, what they replace is not ──► that leaves
    the disk

1. As for a drop (`work.drop`), the queue entries inside the range are removed first: workers that
   are carrying them out can't publish any more, so no other part appears in the range.
2. New and old parts change places in the multi that ends the entry, so a reader here sees either
   the new ones or the old ones. Only if there are so many of both that they do not fit into one
   packet are the old ones removed before.
3. A source of which this replica has its own copy is linked only if that has exactly the bytes that
   the entry names. The copy may go at any time, merged away or dropped: then the part is fetched,
   or a larger one that contains it. Nor is it linked if the new part was lost meanwhile, and is an
   empty one elsewhere: a part has the same rows on all replicas.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from rmt_pipeline.exchange.peers import FetchRequest, Peers
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    NoReplicaHasPart,
    RmtError,
)
from rmt_pipeline.protocol.inserts.rows import Moved
from rmt_pipeline.protocol.log.entry import (
    DropPart,
    DropRange,
    LogEntry,
    ReplaceRange,
    describe_entry,
    drop_range_of,
)
from rmt_pipeline.protocol.parts.name import PartName, drop_range
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.answered import answered
from rmt_pipeline.replica.fetch import PartSource, broken_promise, find_sources
from rmt_pipeline.replica.forget import forget, renumber
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.partitions.inside import (
    parts_inside,
    remove_unpromised,
    stop_making,
)
from rmt_pipeline.replica.publish import EntryGone, room_for, take_back
from rmt_pipeline.replica.put_back import is_unseen, stage_what_is_left
from rmt_pipeline.replica.quorum import forget_dropped_quorums
from rmt_pipeline.replica.replica import Replica, lost_error
from rmt_pipeline.replica.settled import are_on_disk
from rmt_pipeline.replica.upkeep.commit_notes import settle_notes
from rmt_pipeline.replica.work.drop import DropHere
from rmt_pipeline.replica.work.step import Swept
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.batches import fit_together
from rmt_pipeline.zookeeper.keeper import Check, Op, Refused
from rmt_pipeline.zookeeper.partition_transactions import Dropping, cut_deletions
from rmt_pipeline.zookeeper.snapshot import queue_snapshot, sweep_snapshot

PEERS_ASKED_MAX = 3  # peers that one try asks, one after another, for the same part


@dataclass(frozen=True, slots=True)
class ReplaceHere:
    """A REPLACE_RANGE entry, carried out on this replica."""

    entry: ReplaceRange

    @property
    def part(self) -> PartName:
        """The range that is replaced, or the name that stands for no range."""
        return self.entry.range


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is to do: `pointless` are queue entries to remove, `missing` are new parts that
    this replica lacks, `inside` are the parts that go.
    """

    dropping: Dropping
    view: QueueView
    pointless: tuple[str, ...]
    missing: tuple[PartName, ...]
    inside: tuple[PartName, ...]


def sweep_of(entry: LogEntry) -> DropHere | ReplaceHere | None:
    """How to carry out an entry about a range; None for other entries."""
    match entry:
        case DropRange() | DropPart():
            return DropHere(entry)
        case ReplaceRange():
            return ReplaceHere(entry)
        case _:
            return None


def replace_here(replica: Replica, node: str, here: ReplaceHere, peers: Peers) -> Swept:
    """Carry out the claimed entry at `node`. May be repeated, and may die at any point.

    Raises EntryGone when our claim is gone, TableIsReadOnly when the replica is lost, Conflict when
    other processes keep changing the range, NoReplicaHasPart and what a fetch raises: then nothing
    was replaced.
    """
    work = _Work(replica, node, here.entry, peers)
    try:
        return work.done()
    finally:
        work.discard()


@dataclass(slots=True)
class _Work:
    replica: Replica
    node: str
    entry: ReplaceRange
    peers: Peers
    staged: dict[PartName, StagedPart] = field(default_factory=dict)
    """Staged parts, by name: each new part that is not here, or a larger one that contains it."""
    none_lost: tuple[Op, ...] = ()
    """The operation that asserts that no part was lost since we looked, before we linked any."""

    def done(self) -> Swept:
        for _ in range(limits.LOOK_ROUNDS_MAX):
            found = self._look()
            if found is None:
                return Swept(is_claimed=True)
            try:
                if found.pointless:
                    self._empty_queue(found)
                    continue
                self._get(found)
                replaced = self._publish(found)
            except Refused as refused:
                if refused.path == self.replica.paths.claim(self.node):
                    raise EntryGone(
                        f"{self.replica}: our claim of {self.node} is gone ({refused})"
                    ) from refused
                if refused.path == self.replica.table.lost_part_count:
                    self.discard()  # a linked part may be the one that was lost
                continue
            self.staged.clear()
            remove_unpromised(self.replica, found.inside)
            return replaced
        raise Conflict(
            f"{self.replica}: what {describe_entry(self.entry)} changes, changes all the time; "
            "trying again"
        )

    def discard(self) -> None:
        """Throw away what was staged."""
        for staged in self.staged.values():
            self.replica.store.discard(staged)
        self.staged.clear()

    def _look(self) -> _Found | None:
        """Read what there is to do; None if the entry is gone. As for a drop, `is_lost` is read
        first, then the queue, then the parts.
        """
        replica, entry = self.replica, self.entry
        snapshot = sweep_snapshot(replica.keeper, replica.paths, replica.memory.queue)
        if snapshot.is_lost:
            raise lost_error(replica)
        if self.node not in snapshot.entries:
            return None
        view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
        dropped = drop_range_of(entry)
        pointless: tuple[str, ...] = ()
        inside: tuple[PartName, ...] = ()
        if dropped is not None:
            pointless = tuple(one for one, _ in view.entries_removed_by(dropped, by=self.node))
            inside = parts_inside(replica, snapshot.parts, dropped, describe_entry(entry))
        missing = tuple(
            part
            for part in entry.new_parts
            if view.current.containing(part) is None
            and not view.is_dropped_later(part, self.node)
        )
        dropping = Dropping(replica.paths, self.node, snapshot.is_lost_version)
        return _Found(dropping, view, pointless, missing, inside)

    def _empty_queue(self, found: _Found) -> None:
        dropped = drop_range_of(self.entry)
        assert dropped is not None, "without a range nothing is pointless"
        # Another replica's disk may have what was to come here (see `replica.work.drop`).
        self.replica.store.drops.note(dropped)
        queue = self.replica.paths.queue_entry
        for nodes in cut_deletions(found.pointless, queue):
            answered(self.replica, found.dropping.remove_entries(nodes))
        stop_making(self.replica, self.entry.range)

    # --- getting them

    def _lacking(self, found: _Found) -> list[PartName]:
        staged = PartSet(self.staged)
        return [part for part in found.missing if staged.containing(part) is None]

    def _get(self, found: _Found) -> None:
        """Stage every new part that is missing: link it, or fetch it. Raises the last error if some
        parts did not arrive.
        """
        self._link(self._lacking(found))
        failed: dict[PartName, set[str]] = {}
        problem: RmtError | None = None
        for _ in range(PEERS_ASKED_MAX):
            wanted = self._lacking(found)
            if not wanted:
                return
            chosen = self._sources(wanted, failed)
            for together in self.peers.fetch(list(chosen), self.replica.store):
                for request, outcome in together:
                    source = chosen[request]
                    problem = self._arrived(source, outcome) or problem
                    if source.part not in self.staged:
                        for part in filter(source.part.contains, wanted):
                            failed.setdefault(part, set()).add(source.replica)
        if self._lacking(found):
            assert problem is not None
            raise problem

    def _sources(
        self, wanted: Sequence[PartName], failed: Mapping[PartName, set[str]]
    ) -> dict[FetchRequest, PartSource]:
        """Which replica to ask for which part. Raises NoReplicaHasPart; Conflict if a larger part
        may not be taken yet; Corruption if no replica has a part and what this disk has left of it
        is not whole.
        """
        hint = self.entry.source_replica
        sources = find_sources(self.replica, [(part, hint) for part in wanted], failed)
        nowhere = [part for part in wanted if not isinstance(sources[part], PartSource)]
        # All of them, before one raises: while one is not looked for, none may count as lost.
        for part in nowhere:
            if is_unseen(self.replica, part):
                self.staged[part] = stage_what_is_left(self.replica, self.node, part)
        chosen: dict[PartName, PartSource] = {}
        for part in wanted:
            source = sources[part]
            if isinstance(source, PartSource):
                self._require_known(source.part)
                chosen[source.part] = source
            elif part not in self.staged:
                why = why_missing(self.replica, [part]).get(part)
                raise NoReplicaHasPart(f"{source}: {why}" if why else str(source))
        maximal = PartSet(chosen)
        return {one.request: one for part, one in chosen.items() if part in maximal}

    def _require_known(self, part: PartName) -> None:
        """Raises Conflict if `part` is a larger part that another replica has made of new parts,
        and may not be taken before its own entry is here.
        """
        if part in self.entry.new_parts:
            return
        replica = self.replica
        snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
        view = QueueView(snapshot.entries, snapshot.claims, snapshot.parts)
        refusal = view.may_take_actual_part(part, self.node)
        if refusal is not None:
            raise Conflict(
                f"{self.replica}: {part} can't be taken yet: {refusal.reason}; trying again"
            )

    def _arrived(self, source: PartSource, outcome: StagedPart | RmtError) -> RmtError | None:
        """Keep a fetched part if it is what ZooKeeper promises; otherwise return the error."""
        if isinstance(outcome, RmtError):
            return outcome
        error = broken_promise(
            self.replica, source.part, outcome, source.header, source.replica
        )
        if error is None:
            self.staged[source.part] = outcome
        return error

    def _link(self, wanted: Sequence[PartName]) -> None:
        """Link parts from this server's own copy of the table that they come from, as far as it has
        them.
        """
        entry = self.entry
        if not wanted or not entry.from_table:
            return
        store = self.replica.other_store(entry.from_database, entry.from_table)
        if store is None:
            return
        table, keeper = self.replica.table, self.replica.keeper
        _, stat = keeper.get(table.lost_part_count)
        lost = keeper.exists_many([table.lost_part(part) for part in wanted])
        self.none_lost = (Check(table.lost_part_count, stat.version),)
        wanted_here = {part for part, there in zip(wanted, lost, strict=True) if there is None}
        for name, part, checksum in zip(
            entry.source_parts, entry.new_parts, entry.part_checksums, strict=True
        ):
            source = PartName.try_parse(name)
            if part in wanted_here and source is not None and store.has(source):
                with suppress(Corruption):  # gone or broken here: other replicas have it
                    self._link_one(store, source, part, checksum)

    def _link_one(
        self, store: PartStore, source: PartName, part: PartName, checksum: str
    ) -> None:
        """Link one part, unless the own copy has other bytes: in a table that is not replicated the
        same name may be another part's.
        """
        with store.pin([source]):
            manifest = store.verify_changed(source)
            if manifest.files_hash.hex().upper() != checksum:
                return
            told = replace(
                manifest,
                sources=(str(source),),
                created_s=int(self.replica.clock.now_s()),
                metadata_version=max(0, self.entry.columns_version),
            )
            own = self.replica.store
            staging = own.begin("replace", str(source))
            self.staged[part] = own.clone_into(staging, source, told, of=store)

    # --- publishing them

    def _publish(self, found: _Found) -> Swept:
        """Publish the new parts and remove the old ones. Raises Refused when the caller must look
        again; then nothing was promised.
        """
        replica, dropped = self.replica, drop_range_of(self.entry)
        arrivals = [
            (part, self.staged[part])
            for part in PartSet(self.staged)
            if found.view.current.containing(part) is None
        ]
        told = self._told(found, arrivals)
        if dropped is not None:
            if found.inside or are_on_disk(replica, [dropped]):
                replica.store.drops.note(dropped)
            forget_dropped_quorums(replica, dropped)
            self._see_to_ids(dropped)
        for part, _ in arrivals:
            settle_notes(replica, part)
        headers = [(part, staged.manifest.header().encode()) for part, staged in arrivals]
        going = self._first_those_covered(found, headers)
        known = replica.memory.queue
        before, queued = known.listed(replica.paths), known.queued(replica.paths)
        with ExitStack() as held:
            for part, staged in arrivals:
                held.enter_context(room_for(replica, self.node, part, staged))
            replica.store.publish_all([(staged, part) for part, staged in arrivals])
            try:
                ops = [*found.dropping.finish(going, headers), *self.none_lost]
                answered(replica, ops)
            except Refused as refused:
                if self._has_landed(refused, arrivals):
                    return replace(told, is_claimed=True)
                for part, staged in arrivals:
                    take_back(replica, self.node, part, staged)
                raise
        came, session = [part for part, _ in arrivals], replica.keeper.session_id
        known.published(replica.paths, before, came, session, went=going)
        known.changed(replica.paths, queued, session, went={self.node})
        return told

    def _see_to_ids(self, dropped: PartName) -> None:
        entry = self.entry
        if entry.keeps_ids:
            moved = Moved.of(zip(entry.source_parts, entry.new_parts, strict=True))
            renumber(self.replica, moved)
        else:
            # Not of the range's last block: there a replacement that brought no row has its
            # record.
            forget(self.replica, [drop_range(dropped.partition, dropped.block_max)])

    def _has_landed(
        self, refused: Refused, arrivals: Sequence[tuple[PartName, StagedPart]]
    ) -> bool:
        """Whether an earlier try that got no answer was carried out after all: the entry is gone,
        and all new parts are promised.
        """
        if refused.path != self.replica.paths.queue_entry(self.node) or not arrivals:
            return False
        promised = [self.replica.paths.part(part) for part, _ in arrivals]
        return None not in self.replica.keeper.exists_many(promised)

    def _told(self, found: _Found, arrivals: Sequence[tuple[PartName, StagedPart]]) -> Swept:
        gone = tuple(PartSet(found.inside))
        rows_gone = bytes_gone = 0
        for part in gone:
            with suppress(Corruption):  # a part that can't be read is replaced, but not counted
                counts = self.replica.store.counts(part)
                rows_gone, bytes_gone = rows_gone + counts[0], bytes_gone + counts[1]
        return Swept(
            gone=gone,
            rows_gone=rows_gone,
            bytes_gone=bytes_gone,
            rows=sum(staged.manifest.rows for _, staged in arrivals),
            size_bytes=sum(staged.manifest.bytes_on_disk for _, staged in arrivals),
        )

    def _first_those_covered(
        self, found: _Found, headers: Sequence[tuple[PartName, bytes]]
    ) -> tuple[PartName, ...]:
        """Which old parts go in the last multi: all, if they fit into it. Otherwise the parts that
        others cover, which no reader reads, are removed here before, and the active ones go in the
        last multi; if even these are too many, all are removed before.
        """
        if _fits(found.dropping, found.inside, headers):
            return found.inside
        active = tuple(PartSet(found.inside))
        last = active if _fits(found.dropping, active, headers) else ()
        first = [part for part in found.inside if part not in frozenset(last)]
        for some in cut_deletions(first, self.replica.paths.part):
            answered(self.replica, found.dropping.forget_parts(some))
        return last


def _fits(
    dropping: Dropping, parts: Sequence[PartName], headers: Sequence[tuple[PartName, bytes]]
) -> bool:
    return fit_together(dropping.finish(parts, headers))
