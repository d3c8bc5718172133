"""The rules for a well-formed log entry. Constructors assert them; decoding raises Corruption.

Each function returns what is wrong with an entry, in words, or None.
"""

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.text import TIME_MAX


def header_defect(create_time: int, source_replica: str, quorum: int) -> str | None:
    """What is wrong with the fields of the header: the time must fit the format, the name of the
    replica must be one line, the quorum must not be negative.
    """
    if not 0 <= create_time <= TIME_MAX:
        return f"create_time {create_time} is outside what the format can hold"
    if "\n" in source_replica:
        return f"the replica's name {source_replica!r} has a newline in it"
    if quorum < 0:
        return f"a quorum of {quorum} replicas"
    return None


def merge_defect(sources: tuple[PartName, ...], result: PartName) -> str | None:
    """What is wrong with a MERGE_PARTS: there must be sources, and the result must contain each and
    equal none of them.
    """
    if not sources:
        return f"a merge into {result} without sources"
    for source in sources:
        if source == result or not result.contains(source):
            return f"a merge into {result}, which does not make its source {source} obsolete"
    return None


def columns_defect(deduplicate: bool, deduplicate_by: tuple[str, ...]) -> str | None:
    """What is wrong with the columns of a MERGE_PARTS: only a merge that deduplicates has any."""
    if deduplicate_by and not deduplicate:
        return f"columns {deduplicate_by} to deduplicate by, without deduplication"
    return None


def mutation_defect(source: PartName, result: PartName) -> str | None:
    """What is wrong with a MUTATE_PART: the result must have the source's blocks and level, and a
    greater mutation version.
    """
    same_blocks = (source.partition, source.block_min, source.block_max, source.level) == (
        result.partition,
        result.block_min,
        result.block_max,
        result.level,
    )
    if not same_blocks or result.mutation <= source.mutation:
        return f"a mutation of {source} to {result}, which is not a later version of it"
    return None


def replacement_defect(part_range: PartName, counts: tuple[int, int, int]) -> str | None:
    """What is wrong with a REPLACE_RANGE: `counts`, of source parts, new parts and checksums, must
    be equal, and a range of several blocks must be a drop range.
    """
    if len(set(counts)) != 1:
        return f"{counts[0]} source parts, {counts[1]} new parts and {counts[2]} checksums"
    if part_range.blocks_count >= 2 and not part_range.is_drop_range:
        return f"a replacement of {part_range}, which is not a drop range"
    return None
