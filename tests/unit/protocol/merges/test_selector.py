"""Which merge is worth it (spec §6.6)."""

import random
import time
from dataclasses import replace
from math import isclose, log, log2

import pytest

from rmt_pipeline.protocol.merges.selector import (
    FIXED_COST_BYTES,
    GIB,
    MIB,
    MergeablePart,
    SelectorSettings,
    WeighedRun,
    explain_run,
    select_weighed,
)
from rmt_pipeline.protocol.parts.name import PartName
from tests.support.protocol import select_merge
from tests.support.work import calls_of

SETTINGS = SelectorSettings()
DAY_S = 86_400


def run(sizes: list[int], age_s: int = 0, partition: str = "all") -> list[MergeablePart]:
    return [
        MergeablePart(PartName(partition, number, number, 0), size, age_s)
        for number, size in enumerate(sizes)
    ]


def chosen(
    sizes: list[int],
    settings: SelectorSettings = SETTINGS,
    bytes_max: int = 0,
    age_s: int = 0,
) -> list[int] | None:
    """The block numbers of the selected parts."""
    found = select_merge([run(sizes, age_s)], settings, bytes_max)
    return None if found is None else [one.part.block_min for one in found.parts]


def test_a_few_young_parts_are_left_alone() -> None:
    """P18. Four equal parts are 4 times the largest: less than the base of 5."""
    assert chosen([MIB] * 4) is None
    assert chosen([MIB] * 5) == [0, 1, 2, 3, 4]


def test_old_parts_are_merged_sooner() -> None:
    """P18. Small ones within an hour; large ones take a month."""
    assert chosen([MIB // 2] * 2, age_s=3599) is None
    assert chosen([MIB // 2] * 2, age_s=3600) == [0, 1]
    assert chosen([100 * GIB] * 2, age_s=3600) is None
    assert chosen([100 * GIB] * 2, age_s=30 * DAY_S) == [0, 1]


def test_many_parts_are_merged_sooner() -> None:
    """P18. In a partition of more than 50 parts twice the largest is enough."""
    large_and_small = [400 * MIB, 200 * MIB, 200 * MIB] * 20
    assert chosen(large_and_small) is not None
    assert chosen(large_and_small[:3]) is None


def test_a_large_part_is_not_rewritten_for_the_sake_of_small_ones() -> None:
    """P18."""
    assert chosen([10 * GIB, MIB, MIB, MIB, MIB, MIB]) == [1, 2, 3, 4, 5]


def test_the_cheapest_range_per_part_saved_wins() -> None:
    """P18. Over all runs."""
    cheap = run([MIB] * 6, partition="b")
    found = select_merge([run([8 * MIB] * 6), cheap, run([4 * MIB] * 6)], SETTINGS, 0)
    assert found is not None
    assert found.parts == tuple(cheap)
    assert isclose(found.score, (6 * MIB + 6 * FIXED_COST_BYTES) / 4.1)


def test_what_a_run_could_be_without_limits_does_not_hide_a_better_one() -> None:
    """P18. Ten parts of the first would be the cheapest, three are all that is allowed; three of
    the second are cheaper, by little.
    """
    settings = SelectorSettings(base=1.0, parts_max=10)
    almost = run([6 * MIB] * 3, partition="b")
    first, worse = run([6 * MIB + MIB // 2] * 10), run([7 * MIB] * 10, partition="c")
    found = select_merge([first, worse, almost], settings, 20 * MIB)
    assert found is not None
    assert found.parts == tuple(almost)
    found = select_merge([first, worse], settings, 20 * MIB)
    assert found is not None
    assert found.parts == tuple(first[:3])


def test_no_more_parts_and_bytes_than_allowed() -> None:
    """P18."""
    assert chosen([MIB] * 20, SelectorSettings(parts_max=7)) == list(range(7))
    assert chosen([GIB] * 20, bytes_max=6 * GIB) == list(range(6))
    assert chosen([GIB] * 20, bytes_max=GIB) is None


def test_no_fewer_parts_than_allowed() -> None:
    assert chosen([MIB] * 5, SelectorSettings(parts_min=6)) is None
    assert chosen([MIB] * 6, SelectorSettings(parts_min=6)) == list(range(6))


def test_optimize_takes_less_balanced_ranges() -> None:
    """P18. Base 1: any two parts."""
    assert chosen([10 * GIB, MIB], SelectorSettings(base=1)) == [0, 1]


def test_parts_that_are_old_enough_are_merged_whatever_their_sizes() -> None:
    forced = SelectorSettings(force_age_s=60, trim_small_right=False)
    assert chosen([10 * GIB, MIB], forced, age_s=60) == [0, 1]
    assert chosen([10 * GIB, MIB], forced, age_s=59) is None
    whole = SelectorSettings(force_age_s=60, force_whole_partition=True)
    assert chosen([10 * GIB, 9 * GIB, MIB], whole, age_s=60) == [0, 1]
    pairs = replace(forced, parts_max=2)
    assert chosen([10 * GIB, 9 * GIB, MIB], pairs, age_s=60) == [1, 2]
    assert chosen([10 * GIB, 9 * GIB, MIB], replace(whole, parts_max=2), age_s=60) is None


def test_a_result_as_large_as_its_left_neighbour_is_preferred() -> None:
    """P18. The two will merge well. The bonus is at most a quarter."""
    sizes = [50 * MIB, *[10 * MIB] * 5, 10**12, *[10 * MIB] * 5]
    assert chosen(sizes) == [1, 2, 3, 4, 5]
    turned = [10**12, *[10 * MIB] * 5, 50 * MIB, *[10 * MIB] * 5]
    assert chosen(turned) == [7, 8, 9, 10, 11]
    slightly = [66 * MIB, *[10 * MIB] * 5]
    bonus = explain_run(run(slightly), SETTINGS, 0, 100)
    scores = {one.parts[0].part.block_min: one.score for one in bonus if len(one.parts) == 5}
    assert 0.75 < scores[1] / ((50 * MIB + 5 * FIXED_COST_BYTES) / 3.1) < 1


def test_tiny_parts_at_the_right_end_are_left_for_later() -> None:
    """P18. They count for the score, not for the merge."""
    sizes = [*[100 * MIB] * 6, MIB, MIB]
    assert chosen(sizes) == [0, 1, 2, 3, 4, 5]
    assert chosen(sizes, SelectorSettings(trim_small_right=False)) == list(range(8))


def test_only_the_first_parts_of_a_long_run_are_looked_at() -> None:
    sizes = [*[10**12 * 3**number for number in range(4)], *[MIB] * 5]
    assert chosen(sizes, SelectorSettings(window=4)) is None
    assert chosen(sizes, SelectorSettings(window=5)) == [4, 5, 6, 7, 8]


def test_empty_parts_and_empty_runs_are_no_trouble() -> None:
    assert chosen([0] * 6) == list(range(6))
    assert chosen([MIB, 0, 0, 0, 0, 0, 0]) == [0, 1]
    assert chosen([]) is None
    assert chosen([MIB]) is None
    assert select_merge([], SETTINGS, 0) is None


def test_every_range_that_is_not_taken_has_its_reason() -> None:
    """P18."""
    found = explain_run(run([10 * GIB, MIB, MIB]), SETTINGS, 5 * GIB, 10)
    assert [len(one.parts) for one in found] == [2, 3, 2]
    reasons = [one.refusal.reason for one in found if one.refusal]
    assert reasons[0].startswith("unbalanced: all parts together are 2.00 times the largest")
    assert reasons[1].endswith("bytes are more than the 5368709120 allowed now")
    few = explain_run(run([MIB] * 2), SelectorSettings(parts_min=3), 0, 10)
    assert "fewer than min_parts_to_merge_at_once" in (
        few[0].refusal.reason if few[0].refusal else ""
    )


def score_of(sizes: list[int], begin: int, end: int) -> float:
    """As spec §6.6 writes it down."""
    total, count = sum(sizes[begin:end]), end - begin
    score = (total + 5 * MIB * count) / (count - 1.9)
    left = sizes[begin - 1] if begin > 0 else 0
    if total and left > 0.9 * total and abs(log2(total / left)) < 0.5:
        score *= 0.75 + 0.25 * abs(log2(total / left)) / 0.5
    return score


def is_allowed(
    parts: list[MergeablePart], begin: int, end: int, settings: SelectorSettings, bytes_max: int
) -> bool:
    """As spec §6.6 writes it down."""
    some = parts[begin:end]
    total, age_s = sum(one.size_bytes for one in some), min(one.age_s for one in some)
    if bytes_max and total > bytes_max:
        return False
    if (
        settings.force_age_s
        and age_s >= settings.force_age_s
        and (some == parts or not settings.force_whole_partition)
    ):
        return True
    if len(some) < settings.parts_min:
        return False

    def share(value: float, low: float, high: float) -> float:
        return min(1.0, max(0.0, (value - low) / (high - low)))

    of_size = share(log(1 + total), log(1 + MIB), log(1 + 100 * GIB))
    of_age = share(age_s, 10, 3600 + (30 * DAY_S - 3600) * of_size)
    of_parts = share(len(parts), 10, 50)
    needed = settings.base + (2 - settings.base) * min(1, of_age + of_parts)
    largest = max(one.size_bytes for one in some)
    return (total + 5 * MIB * len(some)) / (largest + 5 * MIB) >= needed


def trimmed(sizes: list[int], begin: int, end: int) -> int:
    last, total = end, sum(sizes[begin:end])
    while last - begin >= 3 and sizes[last - 1] < 0.01 * total:
        last -= 1
    return last


def drawn_run(drawn: random.Random, partition: str) -> list[MergeablePart]:
    """Sizes that differ by a few times, by so much that a part is tiny, or hardly; and sums of
    those before, which a merge fits.
    """
    sizes: list[int] = []
    unit = drawn.choice([1, MIB, 100 * MIB, 10 * GIB])
    for _ in range(drawn.choice([1, 2, 3, 6, 6, 8, 30])):
        size = unit * drawn.choice([0, 1, 9, 10, 10, 12, 14, 20, 30, 5000])
        sizes.append(drawn.choice([size, size, size + drawn.randrange(9), sum(sizes[-3:])]))
    sizes = drawn.choice([sizes, sizes[::-1]])
    old_s = drawn.choice([0, 60, 3600, 20 * DAY_S, 40 * DAY_S])
    return [
        MergeablePart(PartName(partition, number, number, 0), size, drawn.randint(0, old_s))
        if drawn.random() < 0.1
        else MergeablePart(PartName(partition, number, number, 0), size, old_s)
        for number, size in enumerate(sizes)
    ]


def test_the_selection_is_the_best_range_of_a_plain_search() -> None:
    """P18. Every range of up to three runs is looked at by itself."""
    drawn = random.Random(18)
    for _ in range(1000):
        settings = SelectorSettings(
            parts_max=drawn.choice([2, 4, 100]),
            parts_min=drawn.choice([0, 0, 3]),
            base=drawn.choice([1.0, 2.5, 5.0]),
            window=drawn.choice([2, 1000]),
            force_age_s=drawn.choice([0, 0, 0, 3600]),
            force_whole_partition=drawn.random() < 0.5,
            trim_small_right=drawn.random() < 0.7,
        )
        bytes_max = drawn.choice([0, 0, 50 * MIB, 2 * GIB, 300 * GIB])
        runs = [drawn_run(drawn, f"p{number}") for number in range(drawn.randint(1, 3))]
        plain: list[tuple[float, list[MergeablePart]]] = []
        for parts in runs:
            sizes = [one.size_bytes for one in parts]
            ranges = [
                (begin, end)
                for begin in range(min(settings.window, len(parts)))
                for end in range(begin + 2, min(len(parts), begin + settings.parts_max) + 1)
            ]
            scores = {at: score_of(sizes, *at) for at in ranges}
            may = {at for at in ranges if is_allowed(parts, *at, settings, bytes_max)}
            shown = explain_run(parts, settings, bytes_max, len(ranges))
            assert {
                (one.parts[0].part.block_min, one.parts[-1].part.block_min + 1): (
                    one.score,
                    one.refusal is None,
                )
                for one in shown
            } == {at: (pytest.approx(scores[at]), at in may) for at in ranges}
            for begin, end in may:
                last = trimmed(sizes, begin, end) if settings.trim_small_right else end
                plain.append((scores[begin, end], parts[begin:last]))
        found = select_merge(runs, settings, bytes_max)
        if not plain:
            assert found is None
            continue
        least = min(score for score, _ in plain)
        assert found is not None
        assert found.score == pytest.approx(least)
        assert list(found.parts) in [some for score, some in plain if isclose(score, least)]


def test_a_range_that_can_t_be_better_costs_nothing() -> None:
    """P18. Of a thousand equal parts, the first range is one of the best: nothing is weighed
    beside it. A run that can't be better is not searched.
    """
    calm = run([10 * MIB] * 1000)
    other = run([40 * MIB] * 1000, partition="b")

    def weighed(parts: list[MergeablePart]) -> WeighedRun:
        names, ages = tuple(one.part for one in parts), (0,) * len(parts)
        return WeighedRun.of(names, tuple(one.size_bytes for one in parts), ages, SETTINGS)

    one, both = [weighed(calm)], [weighed(calm), weighed(other)]
    alone = calls_of(lambda: select_weighed(one, SETTINGS, 0, 0))
    assert alone < 10_000
    assert calls_of(lambda: select_weighed(both, SETTINGS, 0, 0)) < alone + 100
    too_large = calls_of(lambda: select_weighed(one, SETTINGS, 15 * MIB, 0))
    assert too_large < 20_000, "no longer range is weighed than may be merged"


def test_ten_thousand_parts_are_searched_in_a_moment() -> None:
    """P18. Measured in milliseconds; the bound here only notices another growth."""
    drawn = random.Random(1)
    shapes = {
        "equal": [MIB] * 10_000,
        "random": [drawn.randrange(GIB) for _ in range(10_000)],
        "falling": [int(1.001 ** (10_000 - number) * 1000) for number in range(10_000)],
    }
    for name, sizes in shapes.items():
        parts = run(sizes)
        started = time.process_time()
        assert select_merge([parts], SETTINGS, 150 * GIB) is not None
        assert time.process_time() - started < 2, name
