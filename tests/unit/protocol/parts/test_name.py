"""Part names (spec §1)."""

from itertools import product

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import (
    LEVEL_MAX,
    LEVEL_MAX_LEGACY,
    MUTATION_MAX,
    PartName,
    drop_range,
    gap,
    merged,
    mutated,
)
from tests.support.protocol import part, parts


@pytest.mark.parametrize(
    "text",
    [
        "all_0_0_0",
        "202105_7_7_0",
        "all_0_5_2_9",
        "all_0_5_4294967295_4294967295",
        "-1_115_115_0_146",
        "3_0_1_999999999_999999999",
        "1_0_5_4294967295_999999999",
        "a-b_1_2_3",
    ],
)
def test_a_name_survives_reading_and_writing(text: str) -> None:
    """P1. Names of every kind, the legacy level and a negative partition too."""
    assert str(PartName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "all",
        "all_0_0",
        "_0_0_0",
        "all_1_0_0",
        "all_0_0_0_0",
        "all_00_0_0",
        "all_0_0_4294967296",
        "all_0_0_0_4294967296",
        "all_0_0_0_1_1",
        "all_0_0_x",
        "all_0_0_-1",
        "all_\u0660_0_0",
        "._0_0_0",
        ".._0_0_0",
        "a/b_0_0_0",
        "tmp_all_0_0_0",
    ],
)
def test_what_is_not_a_name_is_corrupt(text: str) -> None:
    """P1. One text per name; nothing that could leave its directory."""
    assert PartName.try_parse(text) is None
    with pytest.raises(Corruption, match="not a part name"):
        PartName.parse(text)


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("0_5_2", "0_4_2", False),
        ("0_5_3", "0_4_2", True),
        ("0_4_2_9", "0_4_2", True),
        ("0_4_2", "0_4_2_9", False),
        ("0_4_2", "0_4_2", True),
        ("0_5_999999999_999999999", "3_3_0_7", True),
        ("0_5_999999999_999999999", "3_6_1", False),
        ("0_5_999999999_999999999", "3_3_0_1000000007", True),
        ("0_5_3_7", "3_3_0_1000000007", False),
        ("0_5_999999999_999999999", "0_5_999999999_1000000007", False),
        ("0_5_3", "1_1_1_8", False),
        ("0_5_3", "other_1_1_1", False),
        ("0_1_1", "0_0_1", False),
    ],
)
def test_contains_needs_blocks_level_and_mutation(
    outer: str, inner: str, expected: bool
) -> None:
    """P2. The examples of spec §1.3."""
    assert part(outer).contains(part(inner)) is expected


def test_disjoint_asks_for_blocks_alone() -> None:
    assert part("0_5_2").disjoint(part("6_6_9"))
    assert part("6_6_9").disjoint(part("0_5_2"))
    assert not part("0_5_2").disjoint(part("5_6_0"))
    assert part("0_5_2").disjoint(part("other_0_5_2"))


def test_derived_values() -> None:
    assert part("3_5_1").data_version == 3
    assert part("3_5_1_9").data_version == 9
    assert part("3_5_1").blocks_count == 3
    assert not part("3_5_1").is_drop_range
    assert PartName("all", 0, 1, LEVEL_MAX_LEGACY).is_drop_range


def test_a_merge_is_named_after_its_sources() -> None:
    assert merged(parts("0_0_0_7 2_5_3 9_9_1_7")) == part("0_9_4_7")


def test_a_mutation_only_changes_the_version() -> None:
    assert mutated(part("0_5_2"), 9) == part("0_5_2_9")


def test_fake_parts() -> None:
    assert drop_range("all", 5) == PartName("all", 0, 4, LEVEL_MAX, MUTATION_MAX)
    assert gap(part("0_1_1"), part("5_5_0")) == PartName("all", 2, 4, LEVEL_MAX, MUTATION_MAX)
    assert gap(part("0_1_1"), part("2_5_0")) is None


def test_names_sort_by_partition_and_blocks() -> None:
    assert sorted(parts("b_0_0_0 a_1_1_0 a_0_5_1 a_0_1_1")) == parts(
        "a_0_1_1 a_0_5_1 a_1_1_0 b_0_0_0"
    )


SMALL = [
    PartName(partition, first, last, level, mutation)
    for partition, first, last, level, mutation in product(
        "pq", range(3), range(3), (0, 1, 2, LEVEL_MAX), (0, 1)
    )
    if first <= last
]


def test_contains_and_disjoint_are_what_the_spec_says_of_any_two_small_parts() -> None:
    """Said once more, with sets of blocks (spec §1.3, §1.4)."""
    for one, other in product(SMALL, SMALL):
        mine, theirs = (
            {(part.partition, block) for block in range(part.block_min, part.block_max + 1)}
            for part in (one, other)
        )
        if mine == theirs or one.level == LEVEL_MAX:
            is_newer = one.level >= other.level
        else:
            is_newer = one.level > other.level
        covers = mine >= theirs and is_newer and one.mutation >= other.mutation
        assert one.contains(other) == covers, (one, other)
        assert one.disjoint(other) == mine.isdisjoint(theirs), (one, other)
