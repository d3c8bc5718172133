"""Back-pressure: inserts wait, then fail, when merges do not keep up (spec §2.1, design §5)."""

from collections import Counter

from rmt_pipeline.protocol.errors import TooManyParts
from rmt_pipeline.protocol.part_set import PartSet
from rmt_pipeline.protocol.settings import QuerySettings
from rmt_pipeline.replica.replica import Replica

COUNT_VALID_S = 1.0  # a burst of inserts counts the parts once a second


def throttle_insert(replica: Replica, query: QuerySettings) -> None:
    """Sleep while the fullest partition has more than `parts_to_delay_insert` active parts.

    Raises TooManyParts from `parts_to_throw_insert` or `max_parts_in_total` on.
    """
    settings = replica.settings
    throw = query.parts_to_throw_insert or settings.parts_to_throw_insert
    delay = query.parts_to_delay_insert or settings.parts_to_delay_insert
    partition, count, total = _fullest(replica)
    if total >= settings.max_parts_in_total:
        raise TooManyParts(
            f"{replica} has {total} active parts, max_parts_in_total is "
            f"{settings.max_parts_in_total}: partitions are too many or too small; insert larger "
            "blocks, or choose a coarser PARTITION BY"
        )
    if count >= throw:
        raise TooManyParts(
            f"partition {partition} of {replica} has {count} active parts, parts_to_throw_insert "
            f"is {throw}: merges are behind. {_producers(replica, partition)}Insert fewer, larger "
            "blocks, and see that the queue is worked (`rmt serve --work`, `rmt worker`, Dagster)"
        )
    if count >= delay:
        replica.clock.sleep_s(_delay_s(replica, count, delay, throw))


def _delay_s(replica: Replica, count: int, delay: int, throw: int) -> float:
    """Grows linearly from `min_delay_to_insert_ms` to `max_delay_to_insert` (23.1+)."""
    settings = replica.settings
    share = (count - delay + 1) / max(throw - delay, 1)
    return max(settings.min_delay_to_insert_ms / 1000, settings.max_delay_to_insert * share)


def _fullest(replica: Replica) -> tuple[str, int, int]:
    """The partition with the most active parts, their number, and that of all.

    Counted on disk: what is there and not promised, or the other way round, makes no difference
    here, and an insert makes no request for it.
    """
    now = replica.clock.monotonic_s()
    counted = replica.memory.parts_counted
    if counted is not None and now - counted[0] < COUNT_VALID_S:
        return counted[1]
    parts = PartSet(replica.store.parts())
    counts = Counter(part.partition for part in parts)
    partition, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    replica.memory.parts_counted = (now, (partition, count, len(parts)))
    return partition, count, len(parts)


def _producers(replica: Replica, partition: str) -> str:
    """Who made the partition's parts, as far as their manifests say: Dagster runs and inserts."""
    runs: Counter[str] = Counter()
    for part in PartSet(replica.store.parts()).in_partition(partition):
        if replica.store.has(part):
            manifest = replica.store.manifest(part)
            runs[manifest.run_id or "inserts outside of Dagster"] += 1
    if not runs:
        return ""
    most = ", ".join(f"{name} ({count})" for name, count in runs.most_common(3))
    return f"Most of them came from: {most}. "
