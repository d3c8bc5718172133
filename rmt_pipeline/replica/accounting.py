"""A check that no merge or mutation loses rows.

The merge predicate, the claims and the kernel's own sums should already ensure that. This module
checks it once more by other means, at the two moments that matter: before a merge or mutation is
assigned, and before its result is published. A part replaces everything in its range of blocks; so
each part in that range must be contained in one of its sources, whether this replica has that part
or only has it in its queue.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from rmt_pipeline.compute.rows.computed import ttl_rules
from rmt_pipeline.compute.rows.conform import is_current
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, Corruption, MissingPart, UserError
from rmt_pipeline.protocol.log.entry import (
    LogEntry,
    MergeParts,
    MutatePart,
    parts_left,
    sources_of,
)
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.snapshot import promised_elsewhere, queued_entries

LISTED_VALID_S = 1.0
"""How long one listing of parts and queue serves for the results of a batch, in seconds: a mutation
of ten thousand small parts must not list ten thousand names ten thousand times.
"""
NAMED_MAX = 5


class RowsDoNotAddUp(Corruption):
    """A merge or mutation would remove rows that it has not read. Nothing was assigned, published
    or removed.
    """

    code = "LOGICAL_ERROR"


def require_covered(
    replica: Replica, result: PartName, sources: Sequence[PartName], there: Sequence[PartName]
) -> None:
    """Raises RowsDoNotAddUp unless each of the parts in `there` that `result` covers is contained
    in one of `sources`. `there` is sorted.
    """
    start = bisect_left(there, (result.partition, result.block_min), key=_position)
    inside = takewhile(
        lambda part: _position(part) <= (result.partition, result.block_max), there[start:]
    )
    lost = sorted(
        part
        for part in set(inside).difference(sources)
        if result.contains(part)
        and part != result
        and not any(source.contains(part) for source in sources)
    )
    if lost:
        shown = ", ".join(map(str, lost[:NAMED_MAX]))
        raise RowsDoNotAddUp(
            f"{replica}: {result} covers {len(lost)} parts that are in none of its "
            f"{len(sources)} sources ({', '.join(map(str, sources[:NAMED_MAX]))}): {shown}. Their "
            "rows would be gone, so nothing was done. This is a bug: keep the log and the parts, "
            "and report it"
        )


def _position(part: PartName) -> tuple[str, int]:
    return part.partition, part.block_min


def covered_now(
    replica: Replica,
    decided: Sequence[MergeParts | MutatePart],
    *,
    log_version: int,
    is_lost_version: int,
) -> bool:
    """Whether `require_covered` holds for these entries, given the parts that the replica has or
    has queued at this moment.

    Returns False if it does not hold and the log or `is_lost` no longer has the version on which
    the entries were decided: something was assigned since, so the log will refuse the entries
    anyway. Raises RowsDoNotAddUp if it does not hold although the versions are the same.
    """
    there = _There.now(replica)
    try:
        for entry in decided:
            result = entry.result
            require_covered(replica, result, sources_of(entry), there.of(result.partition))
    except RowsDoNotAddUp:
        stats = replica.keeper.exists_many([replica.table.log, replica.paths.is_lost])
        versions = [stat and stat.version for stat in stats]
        if versions == [log_version, is_lost_version]:
            raise
        return False
    return True


@dataclass(slots=True)
class _There:
    """The parts that a replica has or has queued, from a listing that is made anew each time.
    `names` are sorted; only those of the partitions that are asked for are parsed.
    """

    queued: Sequence[PartName]
    names: Sequence[str]
    _found: dict[str, list[PartName]] = field(default_factory=dict)

    @classmethod
    def now(cls, replica: Replica) -> "_There":
        """List the queue and the parts of the replica.

        The queue is read first: an entry's part moves from the queue to the parts, so it can't be
        missed in both. A part that is given up moves the other way, but that changes the version of
        `is_lost`; then both are read again. Raises Conflict if that happens again and again.
        """
        keeper, paths = replica.keeper, replica.paths
        for _ in range(limits.LOOK_ROUNDS_MAX):
            before = keeper.exists(paths.is_lost)
            queued = queued_entries(keeper, paths, replica.memory.queue).values()
            names = keeper.children(paths.parts)
            if before == keeper.exists(paths.is_lost):
                return cls(parts_left(queued), names)
        raise Conflict(
            f"{replica} was cloned or gave up parts each of {limits.LOOK_ROUNDS_MAX} times while "
            "it was looked at what a result covers; it is tried again"
        )

    def of(self, partition: str) -> list[PartName]:
        """The sorted parts of the partition."""
        if partition not in self._found:
            first = bisect_left(self.names, f"{partition}_")
            named = takewhile(
                lambda name: name.startswith(f"{partition}_"), islice(self.names, first, None)
            )
            queued = (part for part in self.queued if part.partition == partition)
            self._found[partition] = sorted([*queued, *map(PartName.parse, named)])
        return self._found[partition]


@dataclass(slots=True)
class Accounts:
    """Checks the results of one batch before they are published, against a listing of this
    replica's parts and queue that is at most LISTED_VALID_S old.
    """

    replica: Replica
    batch: Sequence[LogEntry] = ()
    """The entries of the batch: the headers of all their sources are read at once."""
    _there: _There = field(default_factory=lambda: _There((), ()))
    _listed_s: float | None = None
    _headers: dict[PartName, bytes] = field(default_factory=dict)

    def require(self, entry: LogEntry, staged: StagedPart) -> None:
        """Raises RowsDoNotAddUp if the result of a merge or mutation must not be published.

        A result that covers too much stays staged, and the next try takes it again, since making it
        once more would give the same. A merge result with the wrong rows is set aside and made
        again: the cause may have been a disk error that is over.
        """
        assert isinstance(entry, MergeParts | MutatePart), "nothing else is made here"
        now_s = self.replica.clock.monotonic_s()
        if self._listed_s is None or now_s - self._listed_s > LISTED_VALID_S:
            self._there, self._listed_s = _There.now(self.replica), now_s
        there = self._there.of(entry.result.partition)
        require_covered(self.replica, entry.result, sources_of(entry), there)
        if isinstance(entry, MergeParts) and _is_plain(self.replica, entry, staged.manifest):
            self._require_conserved(entry, staged)

    def _differs(self, result: PartName, made: Manifest) -> bool:
        """Whether another replica has published other rows under this name. If so, ours will not be
        published anyway, and theirs are fetched.
        """
        replica = self.replica
        _, found = promised_elsewhere(replica.keeper, replica.table, replica.name, [result])
        ours = made.header().uncompressed_hash_of_compressed_files
        return any(
            PartHeader.decode(header).uncompressed_hash_of_compressed_files != ours
            for header in found[result].values()
            if header
        )

    def _require_conserved(self, entry: MergeParts, staged: StagedPart) -> None:
        """Raises RowsDoNotAddUp unless the result's row hash is the sum of its sources' hashes.

        The sources' hashes are read from their headers in ZooKeeper, which the kernel has not seen.
        If a source is gone from there, or has no header, nothing can be compared and the result
        passes. It also passes if another replica has published other rows, since ours will not be
        published then.
        """
        replica, made = self.replica, staged.manifest
        headers = self._promised(entry.sources)
        if len(headers) < len(entry.sources):
            return
        expected = sum(
            int.from_bytes(
                PartHeader.decode(header).uncompressed_hash_of_compressed_files, "little"
            )
            for header in headers
        ) % (1 << 128)
        if made.row_hash != expected and not self._differs(entry.result, made):
            named = ", ".join(map(str, entry.sources[:NAMED_MAX]))
            where = self._set_aside(entry.result, staged)
            raise RowsDoNotAddUp(
                f"{replica}: the rows of {entry.result} have the hash {made.row_hash:032x}, those "
                f"of its {len(headers)} sources ({named}) add up to {expected:032x} in ZooKeeper. "
                f"Nothing was published; {where}. This is a bug, or bytes changed on a disk: "
                "CHECK TABLE reads them all"
            )

    def _promised(self, sources: Sequence[PartName]) -> list[bytes]:
        """The headers with which this replica promises these parts, as far as there are any."""
        unknown = [source for source in sources if source not in self._headers]
        if unknown:
            others = (part for entry in self.batch for part in sources_of(entry))
            parts = list(dict.fromkeys([*unknown, *others]))
            self.batch = ()
            reads = self.replica.keeper.get_many(list(map(self.replica.paths.part, parts)))
            self._headers |= {
                part: read[0]
                for part, read in zip(parts, reads, strict=True)
                if read is not None and read[0]
            }
        return [self._headers[source] for source in sources if source in self._headers]

    def _set_aside(self, part: PartName, staged: StagedPart) -> str:
        """Move the result to `detached/` for people to look at, so that no other try takes it for a
        good one; discard it if there are enough copies there. Returns what was done, in words.
        """
        store = self.replica.store
        try:
            where = store.detach_staged(staged, part, "rows-do-not-add-up")
        except MissingPart:
            return "what was made is gone"
        except UserError as error:  # `detached/` has enough copies of it
            store.discard(staged)
            return f"what was made is thrown away: {error}"
        return f"what was made is set aside as {where}"


def _is_plain(replica: Replica, entry: MergeParts, made: Manifest) -> bool:
    """Whether every row of the sources must be in the result of this merge, with the same hash:
    nothing is deduplicated, aggregated, expired by TTL or converted to other columns.
    """
    definition, store = replica.definition, replica.store
    if (
        definition.engine.kind != "MergeTree"
        or entry.deduplicate
        or entry.cleanup
        or ttl_rules(definition)
        or made.metadata_version != definition.metadata_version
    ):
        return False
    manifests = [store.manifest(source) for source in entry.sources if store.has(source)]
    return len(manifests) == len(entry.sources) and all(
        is_current(definition, one.columns, one.metadata_version) for one in manifests
    )
