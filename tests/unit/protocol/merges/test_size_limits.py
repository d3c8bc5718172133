"""How large a merge or a mutation may be, at each limit of how busy its pool is (spec §6.4)."""

import pytest

from rmt_pipeline.protocol.merges.size_limits import SizeLimits

LIMITS = SizeLimits(
    at_max_space_bytes=64_000, at_min_space_bytes=1_000, lower_below_free=6, mutate_above_free=4
)


@pytest.mark.parametrize(
    ("used", "slots", "largest"),
    [
        (0, 1, 64_000),
        (1, 2, 64_000),  # one alone never shrinks the next, however small the pool
        (2, 8, 64_000),
        (3, 8, 32_000),
        (5, 8, 8_000),
        (7, 8, 2_000),
        (8, 8, 0),
        (9, 8, 0),
        (1, 1, 0),
        (0, 0, 0),
    ],
)
def test_the_fuller_the_pool_the_smaller_the_merges(
    used: int, slots: int, largest: int
) -> None:
    assert LIMITS.merge_bytes_max(used=used, slots=slots) == pytest.approx(largest, abs=1)
    is_any = LIMITS.any_size(used=used, slots=slots)
    assert is_any == (largest == 64_000)


def test_half_of_the_free_disk_is_the_most_that_a_merge_may_read() -> None:
    small = SizeLimits(at_max_space_bytes=64_000, disk_free_bytes=101)
    assert small.merge_bytes_max(used=0, slots=8) == 50
    assert not small.any_size(used=0, slots=8)
    assert small.mutation_bytes_max(used=0, slots=8) == 91


def test_without_a_lower_limit_nothing_runs_in_a_busy_pool() -> None:
    limits = SizeLimits(at_max_space_bytes=64_000, at_min_space_bytes=0)
    assert limits.merge_bytes_max(used=7, slots=8) == 0


@pytest.mark.parametrize(
    ("used", "slots", "may_run"),
    [
        (0, 1, True),
        (1, 2, True),
        (2, 6, True),
        (2, 5, False),
        (1, 1, False),
        (8, 8, False),
        (0, 0, False),
    ],
)
def test_a_mutation_leaves_slots_free_but_when_it_is_one_of_two(used, slots, may_run) -> None:
    assert (LIMITS.mutation_bytes_max(used=used, slots=slots) > 0) == may_run
