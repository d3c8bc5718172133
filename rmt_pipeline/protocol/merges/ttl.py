"""Which TTL merge is due (spec §13): parts to drop, rows to delete, files to recompress.

A TTL merge may have a single source. The most urgent one is chosen, in this order:

1. Parts of which all rows have expired. Dropping them reads nothing, so there is no limit of bytes
   and no pause.
2. The part whose first row expired the longest time ago.
3. Parts that were written before the table had one of its rules. For these the original mutates all
   parts (MATERIALIZE TTL).
4. The part whose recompression has been due for the longest time.

Neighbours that are due for the same reason are merged with it. After 2 to 4 the partition rests for
`merge_with_ttl_timeout` (recompression has its own timeout). The original remembers in memory when
a partition may be merged again. Here the parts say when the last such merge was decided, so that
all leaders know it, also after a restart.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE, MERGE_TTL_RECOMPRESS, MergeType
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.refusal import Refusal
from rmt_pipeline.protocol.ttl import (
    PartTtl,
    TtlRule,
    codec_of,
    emptied_s,
    expires_s,
    is_unknown,
    recompressed_at_s,
)

UNKNOWN_S = 1  # the due time of a merge that is due since an unknown time


@dataclass(frozen=True, slots=True)
class TtlPart:
    """A part that may be a source: its bytes on disk, and what its manifest says about TTL. In a
    part without rows nothing can expire.
    """

    part: PartName
    size_bytes: int
    ttl: PartTtl
    has_rows: bool = True


@dataclass(frozen=True, slots=True)
class TtlSettings:
    """The table's rules and settings for TTL merges. `bytes_max` limits the sum of the sources;
    parts of which all rows have expired have no limit.
    """

    rules: tuple[TtlRule, ...]
    now_s: int
    bytes_max: int
    parts_max: int = 100
    pause_s: int = 14_400
    recompression_pause_s: int = 14_400
    only_drop_parts: bool = False


@dataclass(frozen=True, slots=True)
class TtlMerge:
    """Neighbouring parts that are due for the same reason, which `what` says to people. If there is
    a `refusal`, they are not merged now.
    """

    parts: tuple[TtlPart, ...]
    merge_type: MergeType
    what: str
    due_s: int
    refusal: Refusal | None = None

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


def select_ttl_merge(
    runs: Sequence[Sequence[TtlPart]], settings: TtlSettings
) -> TtlMerge | None:
    """The TTL merge to assign now; None if none is due or may be made now.

    `runs` are neighbours that the predicate allows to be merged, in order of blocks.
    """
    possible = (one for one in ttl_merges(runs, settings) if one.refusal is None)
    return next(possible, None)


def ttl_merges(runs: Sequence[Sequence[TtlPart]], settings: TtlSettings) -> Iterator[TtlMerge]:
    """Every TTL merge that is due, the most urgent first; some may not be made now, and say why."""
    for task in _tasks(settings):
        due = [
            (task.due_s(part), number, place)
            for number, run in enumerate(runs)
            for place, part in enumerate(run)
            if 0 < task.due_s(part) <= settings.now_s
        ]
        taken: set[tuple[int, int]] = set()
        for due_s, number, place in sorted(due):
            if (number, place) in taken:
                continue
            run = runs[number]
            others = {at for of_run, at in taken if of_run == number}
            begin, end = _widened(run, place, task, settings, others)
            taken |= {(number, each) for each in range(begin, end)}
            parts = tuple(run[begin:end])
            yield TtlMerge(
                parts, task.merge_type, task.what, due_s, _refusal(runs, parts, task, settings)
            )


@dataclass(frozen=True, slots=True)
class _Task:
    """One reason for a TTL merge. `due_s` says since when a part is due for it, 0 for never;
    `last_s` when the last such merge of the part's ancestors was decided, 0 for none.
    """

    merge_type: MergeType
    what: str
    due_s: Callable[[TtlPart], int]
    last_s: Callable[[TtlPart], int]
    pause_s: int
    bytes_max: int | None


def _tasks(settings: TtlSettings) -> Iterator[_Task]:
    """The reasons in order of urgency. If the table has no rule for a reason, no part
    is ever due.
    """
    rules = settings.rules
    yield _Task(
        MERGE_TTL_DELETE,
        "all rows have expired",
        lambda part: emptied_s(part.ttl, rules),
        lambda _: 0,
        0,
        None,
    )
    if not settings.only_drop_parts:
        yield _Task(
            MERGE_TTL_DELETE,
            "rows or values have expired",
            lambda part: expires_s(part.ttl, rules),
            lambda part: part.ttl.deleted_s,
            settings.pause_s,
            settings.bytes_max,
        )
    yield _Task(
        MERGE_TTL_DELETE,
        "the table has a TTL that is new to the part",
        lambda part: UNKNOWN_S if part.has_rows and is_unknown(part.ttl, rules) else 0,
        lambda part: part.ttl.deleted_s,
        settings.pause_s,
        settings.bytes_max,
    )
    yield _Task(
        MERGE_TTL_RECOMPRESS,
        "another codec is due",
        lambda part: _recompression_s(part, settings),
        lambda part: part.ttl.recompressed_s,
        settings.recompression_pause_s,
        settings.bytes_max,
    )


def _recompression_s(part: TtlPart, settings: TtlSettings) -> int:
    """Since when the part should be recompressed; 0 if it has the codec that it should have."""
    wanted = codec_of([part.ttl], settings.rules, settings.now_s)
    return 0 if wanted == part.ttl.codec else recompressed_at_s(part.ttl, settings.rules)


def _widened(
    run: Sequence[TtlPart],
    place: int,
    task: _Task,
    settings: TtlSettings,
    others: Collection[int],
) -> tuple[int, int]:
    """The range of due neighbours around the due part at `place`, as large as the limits of parts
    and bytes allow, as (begin, end).

    `others` are the places of parts that already are in a more urgent merge.
    """

    def takes(at: int) -> bool:
        if not 0 <= at < len(run) or at in others or end - begin >= settings.parts_max:
            return False
        fits = task.bytes_max is None or size + run[at].size_bytes <= task.bytes_max
        return fits and 0 < task.due_s(run[at]) <= settings.now_s

    begin, end, size = place, place + 1, run[place].size_bytes
    while takes(begin - 1):
        begin -= 1
        size += run[begin].size_bytes
    while takes(end):
        size += run[end].size_bytes
        end += 1
    return begin, end


def _refusal(
    runs: Sequence[Sequence[TtlPart]],
    parts: Sequence[TtlPart],
    task: _Task,
    settings: TtlSettings,
) -> Refusal | None:
    size = sum(part.size_bytes for part in parts)
    if task.bytes_max is not None and size > task.bytes_max:
        return Refusal(f"{size} bytes are more than the {task.bytes_max} allowed now")
    partition = parts[0].part.partition
    last_s = max(
        task.last_s(part) for run in runs for part in run if part.part.partition == partition
    )
    rest_s = last_s + task.pause_s - settings.now_s
    if last_s and rest_s > 0:
        return Refusal(
            f"partition {partition} had such a merge {settings.now_s - last_s} s ago; the next "
            f"may come in {rest_s} s"
        )
    return None
