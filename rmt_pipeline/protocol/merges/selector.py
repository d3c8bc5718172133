"""Which merge is worth it (spec §6.6): the original's SimpleMergeSelector, with its constants.

A merge costs the rewriting of every byte of its sources, and saves parts. The score of a range is
its cost per part saved; the range with the smallest score is merged. A range is only allowed if it
is balanced, that is if its parts together are at least `base` times as large as its largest part.
Otherwise large parts would be rewritten again and again to get rid of small ones. `base` is lowered
for old parts and for partitions with many parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count
from math import inf, log, log2
from operator import add, attrgetter

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.refusal import Refusal

MIB = 1024**2
GIB = 1024**3
FIXED_COST_BYTES = 5 * MIB
SAVED_OFFSET = 1.9  # so two parts count as 0.1 parts saved: merging only two hardly pays
SIZE_LOW, SIZE_HIGH = log(1 + MIB), log(1 + 100 * GIB)
AGE_LOW_S = 10
AGE_HIGH_SMALL_S, AGE_HIGH_LARGE_S = 3600, 30 * 86400
PARTS_LOW, PARTS_HIGH = 10, 50
BASE_LOWEST = 2.0
ALIGN_RATIO = 0.9
ALIGN_LOG2_MAX = 0.5
ALIGN_FACTOR = 0.75
SMALL_RIGHT_RATIO = 0.01
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class MergeablePart:
    """A part that may be a source; its bytes on disk, and the seconds since it was made."""

    part: PartName
    size_bytes: int
    age_s: int


@dataclass(frozen=True, slots=True)
class SelectorSettings:
    """The table's settings for choosing merges. `base` is 1 for OPTIMIZE, which also accepts less
    balanced ranges.

    Ranges whose parts are all at least `force_age_s` old are merged whatever their balance, with
    `force_whole_partition` only if they are a whole partition. 0 turns this off.
    """

    parts_max: int = 100
    parts_min: int = 0
    base: float = 5.0
    window: int = 1000
    force_age_s: int = 0
    force_whole_partition: bool = False
    trim_small_right: bool = True


@dataclass(frozen=True, slots=True)
class WeighedRun:
    """A run, and the least score of any of its ranges, allowed or not. The scores do not depend on
    time, so it can be kept as long as the run has these parts. `parts_max` and `window` are the
    settings with which it was computed.
    """

    parts: tuple[PartName, ...]
    sizes: tuple[int, ...]
    created_s: tuple[int, ...]
    parts_max: int
    window: int
    least: float

    @classmethod
    def of(
        cls,
        parts: tuple[PartName, ...],
        sizes: tuple[int, ...],
        created_s: tuple[int, ...],
        settings: "SelectorSettings",
    ) -> "WeighedRun":
        """Compute the least score of a run, from the size and the creation time of each part."""
        run = [MergeablePart(part, size, 0) for part, size in zip(parts, sizes, strict=True)]
        lightest = _Search(run, settings, bytes_max=0).better_than(inf, whatever=True)
        least = inf if lightest is None else lightest.score
        return cls(parts, sizes, created_s, settings.parts_max, settings.window, least)

    def at(self, now_s: int) -> list[MergeablePart]:
        """The run's parts with their ages at `now_s`."""
        known = zip(self.parts, self.sizes, self.created_s, strict=True)
        return [
            MergeablePart(part, size, max(0, now_s - made_s)) for part, size, made_s in known
        ]


@dataclass(frozen=True, slots=True)
class Selected:
    """The parts to merge. The score is the bytes rewritten per part saved; lower is better."""

    parts: tuple[MergeablePart, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A range that was considered, for people; its score, and why it may not be merged now."""

    parts: tuple[MergeablePart, ...]
    score: float
    refusal: Refusal | None


def select_weighed(
    runs: Sequence[WeighedRun], settings: SelectorSettings, bytes_max: int, now_s: int
) -> Selected | None:
    """The range with the smallest score over all runs; None if no range may be merged.

    `runs` are neighbours that the predicate allows to be merged, each in order of blocks; if
    `force_whole_partition` is set, each must be a whole partition. `bytes_max` 0 is no limit. Runs
    are searched in order of their least scores, until no other one can be better than the best.
    """
    best: Selected | None = None
    for run in sorted(runs, key=attrgetter("least")):
        if best is not None and run.least >= best.score:
            break
        search = _Search(run.at(now_s), settings, bytes_max)
        best = search.better_than(best.score if best else inf) or best
    return best


def explain_run(
    run: Sequence[MergeablePart], settings: SelectorSettings, bytes_max: int, limit: int
) -> list[Candidate]:
    """The `limit` ranges of one run with the smallest scores, each with the rule that
    forbids it.
    """
    search = _Search(run, settings, bytes_max)
    found = [
        Candidate(tuple(run[begin:end]), search.score(begin, end), search.refusal(begin, end))
        for begin in range(min(settings.window, len(run)))
        for end in range(begin + 2, min(begin + settings.parts_max, len(run)) + 1)
    ]
    return sorted(found, key=lambda candidate: candidate.score)[:limit]


class _Search:
    """The search in one run, with prefix sums: `sum(sizes[i:j])` is `sums[j] - sums[i]`."""

    def __init__(
        self, run: Sequence[MergeablePart], settings: SelectorSettings, bytes_max: int
    ) -> None:
        self._run = run
        self._settings = settings
        self._bytes_max = bytes_max or inf
        self._sizes = [part.size_bytes for part in run]
        self._lefts = [0, *self._sizes]  # of each part, the size of its left neighbour
        self._ages_s = [part.age_s for part in run]
        self._sums = list(accumulate(self._sizes, initial=0))
        self._many_parts = _clamp((len(run) - PARTS_LOW) / (PARTS_HIGH - PARTS_LOW))

    def better_than(self, score_max: float, *, whatever: bool = False) -> Selected | None:
        """The allowed range with the smallest score below `score_max`, or None. With `whatever`,
        ranges that are not allowed count too.

        To look at a hundred ends for each of a thousand begins one by one would be slow, so all
        ends of a begin are tested at once first. A range of n parts from `begin` beats the best
        only if

            sum + n * cost < best / bonus * (n - 1.9)        (bonus: 1, or 0.75 at the least)

        With prefix sums that is  sums[begin + n] + (n * cost - best / bonus * (n - 1.9)) <
        sums[begin], where the bracket depends on n alone: a table, added to a slice in C.
        """
        settings, sums = self._settings, self._sums
        best: tuple[int, int] | None = None
        bounds = _Bounds(score_max, settings.parts_max)
        for begin in range(min(settings.window, len(self._run) - 1)):
            table = bounds.with_bonus if self._may_get_bonus(begin) else bounds.plain
            ends = sums[begin + 2 : begin + settings.parts_max + 1]
            if min(map(add, ends, table), default=inf) >= sums[begin]:
                continue
            for score, end in sorted(self._scored(begin, ends, table)):
                if score >= score_max:
                    break
                if whatever or self.refusal(begin, end) is None:
                    best, score_max = (begin, end), score
                    bounds = _Bounds(score_max, settings.parts_max)
                    break
        if best is None:
            return None
        return Selected(tuple(self._run[slice(*self._trimmed(*best))]), score_max)

    def _scored(
        self, begin: int, ends: list[int], table: list[float]
    ) -> Iterator[tuple[float, int]]:
        """The ends whose range from `begin` may beat the best one, with the scores, as (score,
        end).
        """
        start = self._sums[begin]
        for end, total, bound in zip(count(begin + 2), ends, table, strict=False):
            if total - start > self._bytes_max:
                return  # all longer ranges are too large as well
            if total + bound < start:
                yield self.score(begin, end), end

    def _may_get_bonus(self, begin: int) -> bool:
        """Whether some range from `begin` may get the bonus of `score`: the part before it is large
        enough, compared with the shortest range.
        """
        shortest = self._sizes[begin] + self._sizes[begin + 1]
        return self._lefts[begin] > ALIGN_RATIO * shortest

    def score(self, begin: int, end: int) -> float:
        """The bytes rewritten per part saved, less a bonus if the result fits its left
        neighbour.
        """
        size = self._sums[end] - self._sums[begin]
        parts = end - begin
        score = (size + FIXED_COST_BYTES * parts) / (parts - SAVED_OFFSET)
        left = self._lefts[begin]
        if size and left > ALIGN_RATIO * size:
            # The result is about as large as its left neighbour, with which it can be merged later.
            difference = abs(log2(size / left))
            if difference < ALIGN_LOG2_MAX:
                score *= _between(ALIGN_FACTOR, 1, difference / ALIGN_LOG2_MAX)
        return score

    def refusal(self, begin: int, end: int) -> Refusal | None:
        """The rule that forbids the range now; None if it is allowed."""
        size = self._sums[end] - self._sums[begin]
        parts = end - begin
        if size > self._bytes_max:
            return Refusal(f"{size} bytes are more than the {self._bytes_max} allowed now")
        min_age_s = min(self._ages_s[begin:end])
        if self._is_forced(begin, end, min_age_s):
            return None
        if parts < self._settings.parts_min:
            return Refusal(f"{parts} parts are fewer than min_parts_to_merge_at_once")
        size_norm = _clamp((log(1 + size) - SIZE_LOW) / (SIZE_HIGH - SIZE_LOW))
        age_high_s = _between(AGE_HIGH_SMALL_S, AGE_HIGH_LARGE_S, size_norm)
        age_norm = _clamp((min_age_s - AGE_LOW_S) / (age_high_s - AGE_LOW_S))
        needed = _between(self._settings.base, BASE_LOWEST, min(1, age_norm + self._many_parts))
        largest = max(self._sizes[begin:end]) + FIXED_COST_BYTES
        ratio = (size + parts * FIXED_COST_BYTES) / largest
        if ratio >= needed:
            return None
        return Refusal(
            f"unbalanced: all parts together are {ratio:.2f} times the largest, and must be "
            f"{needed:.2f} times (the older they get, the less)"
        )

    def _is_forced(self, begin: int, end: int, min_age_s: int) -> bool:
        settings = self._settings
        whole = begin == 0 and end == len(self._run)
        old = 0 < settings.force_age_s <= min_age_s
        return old and (whole or not settings.force_whole_partition)

    def _trimmed(self, begin: int, end: int) -> tuple[int, int]:
        """The range without tiny parts at its end: these will soon have neighbours of
        their size.
        """
        size = self._sums[end] - self._sums[begin]
        while (
            self._settings.trim_small_right
            and end - begin >= 3
            and self._sizes[end - 1] < SMALL_RIGHT_RATIO * size
        ):
            end -= 1
        return begin, end


class _Bounds:
    """The tables of `better_than`: for n = 2, 3, … the bracket `n * cost - best / bonus * (n -
    1.9)`, for ranges without and with a bonus.
    """

    def __init__(self, score_max: float, parts_max: int) -> None:
        self._score_max = score_max
        self._counts = range(2, parts_max + 1)

    @cached_property
    def plain(self) -> list[float]:
        return self._table(self._score_max)

    @cached_property
    def with_bonus(self) -> list[float]:
        return self._table(self._score_max / ALIGN_FACTOR)

    def _table(self, reach: float) -> list[float]:
        reach *= 1 + ROUNDING  # the test may let too many ranges through, never too few
        return [FIXED_COST_BYTES * n - reach * (n - SAVED_OFFSET) for n in self._counts]


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * share
