"""Back-pressure: inserts wait, then fail, when merges do not keep up (spec §2.1, design §5)."""

from collections import Counter
from contextlib import suppress

from rmt_pipeline.protocol.errors import Corruption, TooManyParts
from rmt_pipeline.protocol.parts.set import of_disk
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.result import NOT_SLOWED, Slowed
from rmt_pipeline.replica.replica import PartCounts, Replica

# How many parts a second the count assumes that other processes add, at most. When that could have
# reached a limit, the parts are counted again.
FAR_PARTS = 100
COUNT_VALID_MAX_S = 30.0
_CLEAN_UP_IS_BEHIND = "clean-up is behind (inactive_parts_to_delay_insert): see that it runs"
_MERGES_ARE_BEHIND = (
    "merges do not keep up with inserts (parts_to_delay_insert): insert larger blocks"
)


def throttle_insert(replica: Replica, query: QuerySettings) -> Slowed:
    """Sleep once, for longer the fuller the table is, if a partition has `parts_to_delay_insert`
    active parts or more, or `inactive_parts_to_delay_insert` outdated ones or more. Return how long
    and why.

    Raises TooManyParts from `parts_to_throw_insert`, `inactive_parts_to_throw_insert` or
    `max_parts_in_total` on.
    """
    settings = replica.settings
    counts = _counts(replica, query)
    if counts.active >= settings.max_parts_in_total:
        raise TooManyParts(
            f"{replica} has {counts.active} active parts, max_parts_in_total is "
            f"{settings.max_parts_in_total}: partitions are too many or too small; insert larger "
            "blocks, or choose a coarser PARTITION BY"
        )
    slowed = max(
        Slowed(_outdated_delay_s(replica, counts), _CLEAN_UP_IS_BEHIND),
        Slowed(_active_delay_s(replica, query, counts), _MERGES_ARE_BEHIND),
    )
    if not slowed.seconds:
        return NOT_SLOWED
    replica.clock.sleep_s(slowed.seconds)
    return slowed


def _outdated_delay_s(replica: Replica, counts: PartCounts) -> float:
    """Return how long outdated parts delay the insert, in seconds. Each of the two limits may be 0,
    which is off. Raises TooManyParts.
    """
    settings, outdated = replica.settings, counts.outdated
    throw = settings.inactive_parts_to_throw_insert
    delay = settings.inactive_parts_to_delay_insert
    if throw and outdated >= throw:
        raise TooManyParts(
            f"partition {counts.outdated_partition} of {replica} has {outdated} outdated parts, "
            f"inactive_parts_to_throw_insert is {throw}: clean-up is behind. See that it runs "
            "(`rmt cleanup`, `rmt serve --work`, Dagster's schedule), and that no reader pins "
            "old parts"
        )
    return _delay_s(replica, outdated, delay, throw) if delay and outdated >= delay else 0.0


def _active_delay_s(replica: Replica, query: QuerySettings, counts: PartCounts) -> float:
    """Return how long active parts delay the insert, in seconds. There may be any number of large
    parts: merging would not make them much fewer. Raises TooManyParts.
    """
    count = counts.in_partition
    delay, throw = _active_limits(replica, query)
    if count < min(delay, throw) or _are_large(replica, counts.partition):
        return 0.0
    if count >= throw:
        raise TooManyParts(
            f"partition {counts.partition} of {replica} has {count} active parts, "
            f"parts_to_throw_insert is {throw}: merges are behind. "
            f"{_producers(replica, counts.partition)}Insert fewer, larger blocks, and see that the "
            "queue is worked (`rmt serve --work`, `rmt worker`, Dagster)"
        )
    return _delay_s(replica, count, delay, throw) if count >= delay else 0.0


def _active_limits(replica: Replica, query: QuerySettings) -> tuple[int, int]:
    """Return the numbers of active parts in a partition from which an insert waits, and fails."""
    settings = replica.settings
    return (
        query.parts_to_delay_insert or settings.parts_to_delay_insert,
        query.parts_to_throw_insert or settings.parts_to_throw_insert,
    )


def _may_have_reached(
    replica: Replica, query: QuerySettings, counts: PartCounts, more: float
) -> bool:
    """Whether a limit may be reached if there are `more` parts than were counted."""
    settings = replica.settings
    outdated = (
        settings.inactive_parts_to_delay_insert,
        settings.inactive_parts_to_throw_insert,
    )
    return any(
        limit and count + more >= limit
        for count, limits in (
            (counts.active, (settings.max_parts_in_total,)),
            (counts.in_partition, _active_limits(replica, query)),
            (counts.outdated, outdated),
        )
        for limit in limits
    )


def _delay_s(replica: Replica, count: int, delay: int, throw: int) -> float:
    """Return the delay in seconds: it grows linearly with `count`, from `min_delay_to_insert_ms` to
    `max_delay_to_insert` (23.1+).
    """
    settings = replica.settings
    share = min(1.0, (count - delay + 1) / max(throw - delay, 1))
    return max(settings.min_delay_to_insert_ms / 1000, settings.max_delay_to_insert * share)


def _counts(replica: Replica, query: QuerySettings) -> PartCounts:
    """Return how many parts there are, as counted on the disk, which takes no request to ZooKeeper.
    A few parts are on the disk and not promised in ZooKeeper, or the other way round; that makes no
    difference here. A count holds for `COUNT_VALID_MAX_S`, as long as the inserts of this process
    and of others can't have reached a limit since.
    """
    now = replica.clock.monotonic_s()
    counted = replica.memory.parts_counted
    if counted is not None and now - counted[0] < COUNT_VALID_MAX_S:
        then, counts, before = counted
        more = replica.memory.inserted.value - before + FAR_PARTS * max(1.0, now - then)
        if not _may_have_reached(replica, query, counts, more):
            return counts
    inserted = replica.memory.inserted.value
    on_disk = replica.store.parts()
    active = of_disk(on_disk)
    by_partition = Counter(part.partition for part in active)
    outdated = Counter(part.partition for part in on_disk)
    outdated.subtract(by_partition)
    [(partition, count)] = by_partition.most_common(1) or [("", 0)]
    [(old_partition, old_count)] = outdated.most_common(1) or [("", 0)]
    found = PartCounts(len(active), partition, count, old_partition, old_count)
    replica.memory.parts_counted = (now, found, inserted)
    return found


def _are_large(replica: Replica, partition: str) -> bool:
    """Whether the partition's parts are larger on average than
    `max_avg_part_size_for_too_many_parts`; 0 is off.
    """
    limit = replica.settings.max_avg_part_size_for_too_many_parts
    sizes = []
    for part in of_disk(replica.store.parts()).in_partition(partition) if limit else ():
        try:
            sizes.append(replica.store.manifest(part).bytes_on_disk)
        except Corruption:
            continue  # merged away and removed just now, or broken: a worker finds that out
    return bool(sizes) and sum(sizes) / len(sizes) > limit


def _producers(replica: Replica, partition: str) -> str:
    """Return words on what made the partition's parts, as far as their manifests say: Dagster runs
    and inserts.
    """
    runs: Counter[str] = Counter()
    for part in of_disk(replica.store.parts()).in_partition(partition):
        with suppress(Corruption):  # as above
            manifest = replica.store.manifest(part)
            runs[manifest.run_id or "inserts outside of Dagster"] += 1
    if not runs:
        return ""
    most = ", ".join(f"{name} ({count})" for name, count in runs.most_common(3))
    return f"Most of them came from: {most}. "
