"""The rows that a merge or mutation covers add up, or it does not happen.

That they do is what all the rest is for: the predicate, the claims, the kernel's own sums. Here it
is looked at once more, by other means and when it matters: before a merge is decided, and before
the result of a merge or mutation is published. What covers blocks takes every row in them away; so
each part in its range must be in one of its sources, whether it is promised here or only queued.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

from rmt_pipeline.compute.rows.computed import ttl_rules
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.history import is_current
from rmt_pipeline.protocol.errors import Conflict, Corruption, MissingPart, UserError
from rmt_pipeline.protocol.log.entry import (
    LogEntry,
    MergeParts,
    MutatePart,
    parts_brought,
    sources_of,
)
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.snapshot import queued_entries

LISTED_VALID_S = 1.0
"""A listing serves for the results of a batch that come within that time of it: a mutation of ten
thousand small parts does not list ten thousand names ten thousand times.
"""
NAMED_MAX = 5


class RowsDoNotAddUp(Corruption):
    """A merge or mutation would take rows away that it has not read. Nothing was published or
    decided, and nothing was removed.
    """

    code = "LOGICAL_ERROR"


def require_covered(
    replica: Replica, result: PartName, sources: Sequence[PartName], there: Sequence[PartName]
) -> None:
    """Raises RowsDoNotAddUp unless each of these parts that `result` covers is in a source. `there`
    is sorted.
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
    """Whether `require_covered` holds for these entries with what the replica has, and has queued,
    at this moment.

    False when the log or `is_lost` has another version than those that the entries were decided on:
    something was assigned since, and the log will refuse them. Raises RowsDoNotAddUp when it does
    not hold and the versions are the same.
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
    """What a replica has queued and has, listed anew whatever others have listed before. `names`
    are sorted; only those of the partitions that are asked for are parsed.
    """

    queued: Sequence[PartName]
    names: Sequence[str]
    _found: dict[str, list[PartName]] = field(default_factory=dict)

    @classmethod
    def now(cls, replica: Replica) -> "_There":
        """The queue first: an entry goes from there to the parts, so nothing is in neither. A part
        that is given up goes the other way, and `is_lost` has another version after it. Raises
        Conflict when that happens again and again.
        """
        keeper, paths = replica.keeper, replica.paths
        for _ in range(limits.LOOK_ROUNDS_MAX):
            before = keeper.exists(paths.is_lost)
            queued = queued_entries(keeper, paths, replica.memory.queue).values()
            names = keeper.children(paths.parts)
            if before == keeper.exists(paths.is_lost):
                parts = [part for entry in queued for part in parts_brought(entry)]
                return cls(parts, names)
        raise Conflict(
            f"{replica} was cloned or gave up parts each of {limits.LOOK_ROUNDS_MAX} times while "
            "it was looked at what a result covers; it is tried again"
        )

    def of(self, partition: str) -> list[PartName]:
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
    _there: _There = field(default_factory=lambda: _There((), ()))
    _listed_s: float | None = None

    def require(self, entry: LogEntry, staged: StagedPart) -> None:
        """Raises RowsDoNotAddUp unless the result of a merge or mutation may be published.

        One that covers too much stays where it is: made again it would be the same, so the next
        try takes it. One with the wrong rows is set aside, and made again: what was wrong with it
        may be the disk of yesterday.
        """
        if not isinstance(entry, MergeParts | MutatePart):
            return
        now_s = self.replica.clock.monotonic_s()
        if self._listed_s is None or now_s - self._listed_s > LISTED_VALID_S:
            self._there, self._listed_s = _There.now(self.replica), now_s
        there = self._there.of(entry.result.partition)
        require_covered(self.replica, entry.result, sources_of(entry), there)
        if isinstance(entry, MergeParts) and _is_plain(self.replica, entry, staged.manifest):
            self._require_conserved(entry, staged)

    def _differs(self, result: PartName, made: Manifest) -> bool:
        """Whether another replica has published other rows: then ours are not published anyhow,
        and theirs are fetched.
        """
        replica = self.replica
        names = replica.keeper.children(replica.table.replicas)
        paths = [
            replica.table.replica(name).part(result) for name in names if name != replica.name
        ]
        headers = [read[0] for read in replica.keeper.get_many(paths) if read is not None]
        ours = made.header().uncompressed_hash_of_compressed_files
        return any(
            PartHeader.decode(header).uncompressed_hash_of_compressed_files != ours
            for header in headers
            if header
        )

    def _require_conserved(self, entry: MergeParts, staged: StagedPart) -> None:
        """The sum of what ZooKeeper says of the sources, which the kernel has not seen. Sources
        that are gone from there by now, or have no header, say nothing.
        """
        replica, made = self.replica, staged.manifest
        paths = [replica.paths.part(source) for source in entry.sources]
        headers = [read[0] for read in replica.keeper.get_many(paths) if read is not None]
        if len(headers) < len(paths) or not all(headers):
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
                f"of its {len(paths)} sources ({named}) add up to {expected:032x} in ZooKeeper. "
                f"Nothing was published; {where}. This is a bug, or bytes changed on a disk: "
                "CHECK TABLE reads them all"
            )

    def _set_aside(self, part: PartName, staged: StagedPart) -> str:
        """For people to look at, and so that no other try takes it for whole. Which, in words."""
        store = self.replica.store
        try:
            where = store.detach_staged(staged, part, "rows-do-not-add-up")
        except MissingPart:
            return "what was made is gone"
        except UserError as error:  # there are enough of them
            store.discard(staged)
            return f"what was made is thrown away: {error}"
        return f"what was made is set aside as {where}"


def _is_plain(replica: Replica, entry: MergeParts, made: Manifest) -> bool:
    """Whether every row of the sources must be in the result, with the same hash."""
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
