"""A mini-language for tests of the protocol: `part("1_0_5_2")`, `merge("0_0_0 1_1_0")`, …

A name that begins with a digit is one of partition `all`: "0_5_2" is `all_0_5_2`.
"""

from collections.abc import Iterable, Mapping, Sequence

from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    DropPart,
    DropRange,
    GetPart,
    LogEntry,
    MergeParts,
    MutatePart,
    ReplaceRange,
)
from rmt_pipeline.protocol.merges.selector import (
    MergeablePart,
    Selected,
    SelectorSettings,
    WeighedRun,
    select_weighed,
)
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName, drop_range, merged
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.view import QueueView

TIME_S = 1_795_184_387  # 2026-11-20 14:19:47


def part(text: str) -> PartName:
    return PartName.parse(f"all_{text}" if text[0].isdigit() else text)


def parts(text: str) -> list[PartName]:
    return [part(name) for name in text.split()]


def part_set(text: str) -> PartSet:
    return PartSet(parts(text))


def get(name: str, source: str = "r1") -> GetPart:
    return GetPart(part(name), create_time=TIME_S, source_replica=source)


def merge(sources: str, **more: object) -> MergeParts:
    found = parts(sources)
    return MergeParts(
        tuple(found), merged(found), create_time=TIME_S, source_replica="r1", **more
    )


def mutate(source: str, result: str, alter_version: int = -1) -> MutatePart:
    return MutatePart(
        part(source), part(result), alter_version, create_time=TIME_S, source_replica="r1"
    )


def drop(delimiter: int, partition: str = "all") -> DropRange:
    return DropRange(drop_range(partition, delimiter), create_time=TIME_S, source_replica="r1")


def drop_part(name: str) -> DropPart:
    return DropPart(part(name), create_time=TIME_S, source_replica="r1")


def replace(delimiter: int, new: str, partition: str = "all") -> ReplaceRange:
    """Replace everything up to `delimiter` by parts; 0 replaces nothing (MOVE, ATTACH FROM)."""
    dummy = PartName(partition, 0, 0, 0)
    dropped = drop_range(partition, delimiter + 1) if delimiter else dummy
    found = tuple(parts(new))
    return ReplaceRange(
        dropped,
        "db",
        "source",
        tuple(f"{partition}_{index}_{index}_0" for index, _ in enumerate(found)),
        found,
        tuple("0" * 32 for _ in found),
        create_time=TIME_S,
        source_replica="r1",
    )


def alter(version: int, *, have_mutation: bool = False) -> AlterMetadata:
    return AlterMetadata(
        version,
        have_mutation,
        "columns format version: 1\n0 columns:\n",
        "metadata\n",
        create_time=TIME_S,
        source_replica="r1",
    )


def node(number: int) -> str:
    return f"queue-{number:010d}"


def numbered(entries: Iterable[LogEntry]) -> dict[str, LogEntry]:
    return {node(number): entry for number, entry in enumerate(entries)}


def queue(
    *entries: LogEntry, here: str = "", claims: Mapping[int, str] | None = None
) -> QueueView:
    """Entries get the nodes 0, 1, …; `here`: parts of the replica; `claims`: node to parts."""
    found = {
        node(number): Claim(f"worker of {number}", tuple(parts(text)))
        for number, text in (claims or {}).items()
    }
    return QueueView(numbered(entries), found, parts(here))


def select_merge(
    runs: Sequence[Sequence[MergeablePart]], settings: SelectorSettings, bytes_max: int
) -> Selected | None:
    """The best range of runs that nobody has looked at before."""
    now_s = max((part.age_s for run in runs for part in run), default=0)
    weighed = [
        WeighedRun.of(
            tuple(part.part for part in run),
            tuple(part.size_bytes for part in run),
            tuple(now_s - part.age_s for part in run),
            settings,
        )
        for run in runs
    ]
    return select_weighed(weighed, settings, bytes_max, now_s)
