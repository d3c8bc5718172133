"""Cutting merges into units, and units into tasks."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.compute.merge.plan import TASK_UNITS_MAX, tasks_of
from rmt_pipeline.compute.units import (
    MOVED_MAX,
    UNIT_BYTES,
    UNITS_PER_MERGE_MAX,
    RowGroupStatistics,
    Sample,
    Shape,
    Unit,
    UnitFile,
    UnitSource,
    cuts,
    cuts_by_samples,
    units_count,
)


@st.composite
def stretches(draw: st.DrawFn, values: st.SearchStrategy) -> list[RowGroupStatistics]:
    found = []
    for _ in range(draw(st.integers(1, 12))):
        least, greatest = sorted([draw(values), draw(values)])
        found.append(RowGroupStatistics(least, greatest, draw(st.integers(1, 100))))
    return found


ANY = st.one_of(
    stretches(st.integers(-(2**63), 2**63)),
    stretches(st.integers(0, 5)),
    stretches(st.binary(max_size=3)),
    stretches(st.decimals(-5, 5, places=1)),
    stretches(st.floats(-5, 5)),
)


@given(ANY, st.integers(1, 8))
def test_cuts_ascend_and_every_unit_has_some_of_the_range(found, count) -> None:
    edges = cuts(found, count)
    lowest = min(each.least for each in found)
    highest = max(each.greatest for each in found)
    assert edges == sorted(set(edges))
    assert len(edges) < count
    assert all(lowest < edge <= highest for edge in edges)


@given(st.integers(-(10**15), 10**15), st.integers(10**4, 10**12), st.integers(2, 8))
def test_evenly_spread_numbers_are_cut_into_equal_shares(low, width, count) -> None:
    found = [RowGroupStatistics(low, low + width, 10) for _ in range(10)]
    edges = cuts(found, count)
    wanted = [low + width * number // count for number in range(1, count)]
    assert len(edges) == count - 1
    assert all(abs(a - b) <= 2 for a, b in zip(edges, wanted, strict=True))


@given(st.lists(st.integers(0, 1000), min_size=10, max_size=10), st.sampled_from([2, 4]))
def test_parts_of_one_size_are_cut_between_their_row_groups(jitters, count) -> None:
    """Four row groups each, the last one smaller, which end near each other: no unit decodes much
    that another one decodes too, though even shares of the bytes would end elsewhere.
    """
    found = []
    for jitter in jitters:
        ends = [0, 262_000 + jitter, 524_000 + jitter, 786_000 + jitter, 1_000_000]
        found += [
            RowGroupStatistics(least, greatest - 1, greatest - least)
            for least, greatest in pairwise(ends)
        ]
    edges = cuts(found, count)
    assert len(edges) == count - 1
    for edge in edges:
        twice = sum(edge - each.least for each in found if each.least < edge <= each.greatest)
        assert twice <= 10 * 1000


@given(stretches(st.integers(-(2**63), 2**63)), st.integers(2, 8))
def test_a_cut_is_not_moved_far_from_an_even_share(found, count) -> None:
    shares = []
    for edge in cuts(found, count):
        before = 0.0
        for each in found:
            width = each.greatest - each.least + 1
            before += each.size * min(max(edge - each.least, 0), width) / width
        shares.append(before / sum(each.size for each in found) * count)
    # Several rows of one key can't be divided: then a cut is farther off, or left out.
    if all(each.least < each.greatest for each in found):
        assert [round(share) for share in shares] == [*range(1, count)]
        assert all(abs(share - round(share)) <= 1 / MOVED_MAX + 1e-6 for share in shares)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_cuts_by_samples_ascend_within_the_samples(keys, count) -> None:
    edges = cuts_by_samples([Sample(key, 1.0) for key in keys], count)
    assert edges == sorted(set(edges))
    assert len(edges) < count
    assert all(min(keys) < edge <= max(keys) for edge in edges)


def test_samples_of_distinct_keys_are_cut_into_equal_shares() -> None:
    samples = [Sample((number % 4, number), 1.0) for number in range(400)]
    assert cuts_by_samples(samples, 4) == [(1, 1), (2, 2), (3, 3)]


def test_rows_that_all_have_one_key_are_not_cut() -> None:
    assert cuts([RowGroupStatistics(7, 7, 10**9)], 4) == []


def test_unknown_bounds_mean_no_cut() -> None:
    assert cuts([RowGroupStatistics(None, None, 10), RowGroupStatistics(1, 9, 10)], 4) == []


def test_the_number_of_units_depends_on_the_bytes_alone() -> None:
    assert units_count(0) == units_count(UNIT_BYTES) == 1
    assert units_count(UNIT_BYTES + 1) == 2
    assert units_count(2 * UNIT_BYTES + 1) == 4
    assert units_count(10**15) == UNITS_PER_MERGE_MAX


def unit(merge: int, ordinal: int, size: int) -> Unit:
    source = UnitSource("all_1_1_0", (UnitFile("data-00000.parquet", size, "0" * 64),))
    return Unit(merge, ordinal, Shape(columns=(), key=()), (source,), "")


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1 << 24)), max_size=40))
def test_every_unit_is_in_one_task_and_large_merges_spread(merges) -> None:
    planned = [
        [unit(number, ordinal, size) for ordinal in range(units)]
        for number, (units, size) in enumerate(merges)
    ]
    jobs = tasks_of(planned)
    everything = [one for job in jobs for task in job for one in task]
    assert sorted(everything, key=lambda one: (one.merge, one.ordinal)) == [
        one for units in planned for one in units
    ]
    for job in jobs:
        assert all(1 <= len(task) <= TASK_UNITS_MAX for task in job)
        if any(len(planned[one.merge]) > 1 for task in job for one in task):
            assert all(len(task) == 1 for task in job)
            assert len({task[0].merge for task in job}) == 1
