"""What OPTIMIZE merges, or why it merges nothing (spec §6.7): every branch of the decision."""

import pytest

from rmt_pipeline.protocol.merges.optimize import (
    CannotMerge,
    MergeAll,
    NothingToMerge,
    OptimizeFacts,
    select_partition,
)
from rmt_pipeline.protocol.merges.predicate import MergePredicate
from rmt_pipeline.protocol.merges.size_limits import MERGE_SPACE_FACTOR
from tests.support.protocol import part_set, parts

NO_PARTS = NothingToMerge("the partition has no parts")
MERGED = NothingToMerge("all_0_1_1 is the only part, and is merged already")


def choose(
    names: str, *, sizes=(50,), free=1000, ttl=False, final=True, skip=False, known=None
):
    known_set = part_set(names if known is None else known)
    predicate = MergePredicate(known_set, {"all": frozenset()}, known_set, {}, log_version=1)
    facts = OptimizeFacts(sizes, free, ttl)
    return select_partition(parts(names), predicate, facts, final=final, skip_merged=skip)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("skip", [False, True])
def test_all_of_several_parts_are_merged_and_nothing_of_none(final: bool, skip: bool) -> None:
    assert choose("0_0_0 1_2_1", final=final, skip=skip) == MergeAll(
        tuple(parts("0_0_0 1_2_1"))
    )
    assert choose("", final=final, skip=skip) == NO_PARTS


@pytest.mark.parametrize(
    ("name", "skip", "ttl", "is_merged"),
    [
        ("0_0_0", False, False, True),
        ("0_0_0", True, False, True),
        ("0_1_1", False, False, True),
        ("0_1_1", True, False, False),
        ("0_1_1", True, True, True),
    ],
)
def test_the_only_part_is_merged_with_final_unless_it_is_merged(name, skip, ttl, is_merged):
    assert choose(name, final=False, skip=skip, ttl=ttl) == (
        CannotMerge(f"all_{name} is the only part of the partition")
    )
    merges = MergeAll(tuple(parts(name)))
    assert choose(name, skip=skip, ttl=ttl) == (merges if is_merged else MERGED)


def test_what_may_not_be_merged_is_not() -> None:
    refused = choose("0_0_0 1_1_0", known="0_0_0")
    assert refused == CannotMerge("the log entry of all_1_1_0 was not pulled yet")


def test_the_disk_has_to_have_room() -> None:
    assert MERGE_SPACE_FACTOR == 2
    names = "0_0_0 1_1_0"
    assert isinstance(choose(names, sizes=(40, 60), free=200), MergeAll)
    assert choose(names, sizes=(40, 60), free=199) == CannotMerge(
        "the disk has 199 bytes free; merging 2 parts of 100 bytes needs 200"
    )
