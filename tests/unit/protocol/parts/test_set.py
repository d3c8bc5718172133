"""Sets of maximal parts (spec §1.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import (
    Added,
    HasCovering,
    Intersects,
    PartSet,
    contained_in,
)
from tests.support.protocol import part, part_set, parts


def test_a_larger_part_swallows_what_it_contains_and_says_what() -> None:
    """P3."""
    held = part_set("0_0_0 1_1_0 2_2_0 3_3_0")
    assert held.add(part("1_2_1")) == Added((part("1_1_0"), part("2_2_0")))
    assert list(held) == parts("0_0_0 1_2_1 3_3_0")
    assert len(held) == 3


def test_a_part_that_is_covered_changes_nothing() -> None:
    held = part_set("0_5_2")
    assert held.add(part("3_3_0")) == HasCovering(part("0_5_2"))
    assert held.add(part("0_5_2")) == HasCovering(part("0_5_2"))
    assert list(held) == parts("0_5_2")


@pytest.mark.parametrize("name", ["0_1_1", "1_3_5", "0_2_1_7", "2_2_9"])
def test_a_part_that_overlaps_without_containing_is_refused(name: str) -> None:
    """P3. From the left, from the right, from both sides, and from inside."""
    held = part_set("1_2_1_9 4_4_0")
    assert held.add(part(name)) == Intersects(part("1_2_1_9"))
    assert list(held) == parts("1_2_1_9 4_4_0")


def test_names_that_no_history_gives_are_corrupt() -> None:
    with pytest.raises(Corruption, match="overlap and neither contains"):
        part_set("0_1_1 1_2_1")


def test_containing_looks_at_both_neighbours() -> None:
    held = part_set("0_5_2 6_6_0")
    assert held.containing(part("5_5_0")) == part("0_5_2")
    assert held.containing(part("0_5_2")) == part("0_5_2")
    assert held.containing(part("6_6_0_9")) is None
    assert held.containing(part("7_7_0")) is None
    assert held.containing(part("other_0_0_0")) is None


def test_covered_and_overlapping_parts_differ() -> None:
    held = part_set("0_0_0 1_2_1 3_3_0 4_4_0_9")
    assert held.covered_by(part("0_4_2")) == parts("0_0_0 1_2_1 3_3_0")
    assert held.intersecting(part("2_4_0")) == parts("1_2_1 3_3_0 4_4_0_9")
    assert held.intersecting(part("other_0_9_9")) == []


def test_removing_is_exact_or_with_everything_covered() -> None:
    held = part_set("0_0_0 1_1_0 2_2_0")
    assert not held.remove(part("0_1_1"))
    assert not held.remove(part("1_1_0_5"))
    assert held.remove(part("1_1_0"))
    assert held.remove_covered(part("0_2_999999999_999999999")) == parts("0_0_0 2_2_0")
    assert len(held) == 0
    assert held.partitions() == []


def test_a_copy_goes_its_own_way() -> None:
    held = part_set("0_0_0 b_0_0_0")
    twin = held.copy()
    twin.add(part("1_1_0"))
    assert held == part_set("b_0_0_0 0_0_0")
    assert twin != held
    assert held != parts("0_0_0")
    twin.check()


def test_partitions_do_not_mix() -> None:
    held = part_set("b_0_0_0 a_0_5_1 a_7_7_0")
    assert held.partitions() == ["a", "b"]
    assert held.in_partition("a") == parts("a_0_5_1 a_7_7_0")
    assert held.in_partition("c") == []
    assert part("a_7_7_0") in held
    assert "a_7_7_0" not in held
    assert part("c_7_7_0") not in held
    assert repr(held) == "PartSet(a_0_5_1 a_7_7_0 b_0_0_0)"


def test_one_partition_can_be_replaced() -> None:
    held = part_set("a_0_0_0 b_0_0_0 b_1_1_0")
    held.replace_partition("b", parts("b_0_1_1 b_0_0_0"))
    held.replace_partition("c", [])
    assert held == part_set("a_0_0_0 b_0_1_1")
    held.check()


ANY_PARTS = st.lists(
    st.builds(
        lambda partition, first, size, level: PartName(partition, first, first + size, level),
        st.sampled_from("pq"),
        st.integers(0, 6),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=12,
)


@given(ANY_PARTS, ANY_PARTS, ANY_PARTS)
def test_a_set_and_its_copies_answer_as_a_plain_list_would(
    before: list[PartName], after: list[PartName], asked: list[PartName]
) -> None:
    """Parts that overlap a member are refused, each by itself."""
    one, plain = PartSet(), list[PartName]()
    fill(one, plain, before)
    other, other_plain = one.copy(), list(plain)
    fill(other, other_plain, after)
    other.replace_partition("q", one.in_partition("q"))
    other_plain = [part for part in other_plain if part.partition == "p"]
    other_plain += [part for part in plain if part.partition == "q"]
    third, third_plain = other.copy(), list(other_plain)
    fill(third, third_plain, asked)
    for parts_, members in ((one, plain), (other, other_plain), (third, third_plain)):
        parts_.check()
        assert list(parts_) == sorted(members)
        assert (len(parts_), parts_) == (len(members), PartSet(members))
        for part_ in [*before, *after, *asked]:
            assert (part_ in parts_) == (part_ in members)
            overlapping = [member for member in sorted(members) if not member.disjoint(part_)]
            assert parts_.intersecting(part_) == overlapping
            covering = [member for member in overlapping if member.contains(part_)]
            assert [parts_.containing(part_)] == (covering or [None])
            covered = [member for member in overlapping if part_.contains(member)]
            assert parts_.covered_by(part_) == covered
    for partition in "pqr":
        is_same = one.in_partition(partition) == third.in_partition(partition)
        assert one.is_same_in(partition, third) == is_same


def fill(parts_: PartSet, plain: list[PartName], more: list[PartName]) -> None:
    for part_ in more:
        overlapping = [member for member in plain if not member.disjoint(part_)]
        if any(member.contains(part_) for member in overlapping):
            assert isinstance(parts_.add(part_), HasCovering)
        elif all(part_.contains(member) for member in overlapping):
            assert parts_.add(part_) == Added(tuple(sorted(overlapping)))
            plain[:] = [member for member in plain if member not in overlapping] + [part_]
        else:
            assert isinstance(parts_.add(part_), Intersects)


@given(ANY_PARTS, ANY_PARTS)
def test_what_one_of_parts_that_may_overlap_contains(some, asked) -> None:
    is_contained = contained_in(some)
    for part_ in [*some, *asked]:
        assert is_contained(part_) == any(one.contains(part_) for one in some)


def test_a_set_is_no_list() -> None:
    assert PartSet(parts("0_0_0")) != parts("0_0_0")
