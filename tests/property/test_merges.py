"""The merge predicate's claim under every interleaving, and what the selector does in the end."""

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.merges.predicate import MergePredicate, mergeable_runs
from rmt_pipeline.protocol.merges.predicate import _runs_of as part_by_part
from rmt_pipeline.protocol.merges.selector import (
    GIB,
    MergeablePart,
    Selected,
    SelectorSettings,
)
from rmt_pipeline.protocol.merges.size_limits import SizeLimits
from rmt_pipeline.protocol.parts.name import PartName, merged
from rmt_pipeline.protocol.parts.set import Intersects, PartSet
from tests.support.protocol import select_merge

# --- the predicate -----------------------------------------------------------------------------


@dataclass
class Partition:
    """One partition as ZooKeeper sees it: numbers in flight, and the log."""

    next_number: int = 0
    locked: set[int] = field(default_factory=set)
    log: list[PartName] = field(default_factory=list)

    def happen(self, kind: str, choice: int) -> None:
        """Somebody allocates a number, commits a block, or gives a number back."""
        if kind == "allocate":
            self.locked.add(self.next_number)
            self.next_number += 1
        elif self.locked:
            number = sorted(self.locked)[choice % len(self.locked)]
            self.locked.remove(number)
            if kind == "commit":
                self.log.append(PartName("p", number, number, 0))

    def virtual(self, pulled: int) -> PartSet:
        return PartSet(self.log[:pulled])

    def committing(self) -> dict[str, frozenset[int]]:
        return {"p": frozenset(self.locked)}


steps = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "allocate", "commit", "commit", "give back"]),
        st.integers(0, 9),
    ),
    max_size=8,
)
worlds = st.tuples(steps, steps, steps, steps, st.integers(0, 9))


def predicate_from(
    world: tuple, order: tuple[str, ...] = ("prev", "locks", "log")
) -> tuple[MergePredicate, Partition]:
    """The reads in this order, with things happening before, between and after them."""
    *happenings, pulled = world
    partition = Partition()
    prev, locks, virtual = PartSet(), {"p": frozenset[int]()}, PartSet()
    for number, happening in enumerate(happenings):
        for kind, choice in happening:
            partition.happen(kind, choice)
        if number < len(order):
            match order[number]:
                case "prev":
                    prev = partition.virtual(min(pulled, len(partition.log)))
                case "locks":
                    locks = partition.committing()
                case _:
                    virtual = partition.virtual(len(partition.log))
    return MergePredicate(prev, locks, virtual, {}, 1), partition


def merges_across_a_block(predicate: MergePredicate, partition: Partition) -> bool:
    """Whether it lets parts be merged between which a block is or may still come."""
    for left, right in pairwise(sorted(predicate.virtual)):
        if predicate.may_merge_two(left, right) is None:
            between = range(left.block_max + 1, right.block_min)
            committed = {part.block_min for part in partition.log}
            if any(number in partition.locked | committed for number in between):
                return True
    return False


@given(worlds)
@settings(max_examples=500)
def test_nothing_ever_appears_between_parts_that_may_be_merged(world: tuple) -> None:
    """P15, M1, M2. Whatever happens between the reads, and after them."""
    predicate, partition = predicate_from(world)
    assert not merges_across_a_block(predicate, partition)


ONE_IN_FLIGHT = [*[("allocate", 0)] * 3, ("commit", 0), ("commit", 1)]
"""Of three numbers the first and the last are parts, the one between them still comes."""


def test_reading_the_log_before_the_locks_would_be_wrong() -> None:
    """P15, M2. The order is the proof: in the other one the block between two parts commits after
    the log was read, which does not show it yet, and before the locks are, which show it no more.
    """
    world = (ONE_IN_FLIGHT, [], [("commit", 0)], [], 2)
    assert merges_across_a_block(*predicate_from(world, ("prev", "log", "locks")))
    assert not merges_across_a_block(*predicate_from(world))


def test_taking_parts_that_were_not_known_before_would_be_wrong() -> None:
    """P15. Why a part must be in `prev_virtual`: its left neighbours may be younger than the
    list of locks.
    """
    world = ([], [], ONE_IN_FLIGHT, [], 0)
    predicate, partition = predicate_from(world)
    assert not merges_across_a_block(predicate, partition)
    careless = replace(predicate, prev_virtual=predicate.virtual)
    assert merges_across_a_block(careless, partition)


@given(worlds, st.lists(st.integers(0, 20), max_size=3).map(sorted))
def test_merging_a_run_never_makes_an_intersection(world: tuple, versions: list[int]) -> None:
    """P15. Every run of neighbours, as a whole and in pieces."""
    predicate, _ = predicate_from(world)
    predicate = replace(predicate, mutations={"p": versions})
    found = mergeable_runs(predicate, predicate.virtual)
    for run in found.runs:
        assert predicate.merge_range(run) is None
        held = predicate.virtual.copy()
        assert not isinstance(held.add(merged(list(run))), Intersects)
        assert len({predicate.mutation_version(part) for part in run}) == 1
    cut = {part for run in found.runs for part in run}
    refused = {one.left for one in found.boundaries if one.right is None}
    assert cut | refused == set(predicate.virtual)
    assert not cut & refused


# --- the selector ------------------------------------------------------------------------------

sizes = st.one_of(
    st.integers(0, 10),
    st.integers(0, 64).map(lambda power: 2 ** (power % 40)),
    st.integers(0, 200 * GIB),
)
runs = st.lists(st.tuples(sizes, st.integers(0, 40 * 86_400)), max_size=40)
selector_settings = st.builds(
    SelectorSettings,
    parts_max=st.integers(2, 12),
    parts_min=st.integers(0, 4),
    base=st.sampled_from([1.0, 2.5, 5.0]),
    window=st.integers(1, 50),
    force_age_s=st.sampled_from([0, 0, 3600]),
    force_whole_partition=st.booleans(),
    trim_small_right=st.booleans(),
)
limits = st.sampled_from([0, 10**6, 10**9, 150 * GIB])


def as_run(drawn: list[tuple[int, int]], partition: str = "p") -> list[MergeablePart]:
    return [
        MergeablePart(PartName(partition, number, number, 0), size, age)
        for number, (size, age) in enumerate(drawn)
    ]


def size_of(found: Selected) -> int:
    return sum(part.size_bytes for part in found.parts)


@given(runs, selector_settings, limits)
@settings(max_examples=100, deadline=None)
def test_merging_again_and_again_ends(
    drawn: list[tuple[int, int]], given_settings: SelectorSettings, bytes_max: int
) -> None:
    """P18. Each step takes parts away, loses no byte, and keeps neighbours neighbours."""
    parts = as_run(drawn)
    total = sum(part.size_bytes for part in parts)
    for _ in range(len(parts) + 1):
        found = select_merge([parts], given_settings, bytes_max)
        if found is None:
            break
        begin = parts.index(found.parts[0])
        assert parts[begin : begin + len(found.parts)] == list(found.parts)
        name = merged([part.part for part in found.parts])
        made = MergeablePart(name, size_of(found), 0)
        parts[begin : begin + len(found.parts)] = [made]
        assert sum(part.size_bytes for part in parts) == total
    else:
        raise AssertionError("merging did not end")


@given(st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_a_table_that_is_written_to_stays_readable(drawn: random.Random) -> None:
    """P18. The number of parts grows like the logarithm of what was inserted."""
    parts: list[MergeablePart] = []
    for number in range(300):
        size = drawn.randrange(10_000, 1_000_000)
        parts.append(MergeablePart(PartName("p", number, number, 0), size, 0))
        found = select_merge([parts], SelectorSettings(), 150 * GIB)
        if found is not None:
            begin = parts.index(found.parts[0])
            name = merged([part.part for part in found.parts])
            parts[begin : begin + len(found.parts)] = [MergeablePart(name, size_of(found), 0)]
        assert len(parts) < 60


# --- size limits -------------------------------------------------------------------------------


@given(
    st.builds(
        SizeLimits,
        at_max_space_bytes=st.integers(2**20, 2**40),
        at_min_space_bytes=st.integers(0, 2**20),
        lower_below_free=st.integers(1, 16),
        mutate_above_free=st.integers(0, 30),
        disk_free_bytes=st.integers(0, 2**45),
    ),
    st.integers(1, 40),
)
def test_more_running_never_allows_larger_merges(limits: SizeLimits, slots: int) -> None:
    """P19."""
    merges = [limits.merge_bytes_max(used=used, slots=slots) for used in range(slots + 1)]
    mutations = [limits.mutation_bytes_max(used=used, slots=slots) for used in range(slots + 1)]
    assert merges == sorted(merges, reverse=True)
    assert mutations == sorted(mutations, reverse=True)
    assert merges[-1] == mutations[-1] == 0
    assert all(size <= limits.disk_free_bytes for size in merges + mutations)


# --- partitions at rest ----------------------------------------------------------------------


@given(worlds, st.lists(st.integers(0, 9), max_size=2).map(sorted), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_partition_at_rest_is_one_run_as_the_rules_say_part_by_part(
    world: tuple, versions: list[int], waits: bool
) -> None:
    """P15."""
    predicate, _ = predicate_from(world)
    first = next(iter(predicate.virtual), None)
    predicate = replace(
        predicate,
        mutations={"p": versions},
        awaiting_quorum=frozenset([first] if first is not None and waits else []),
    )
    found = mergeable_runs(predicate, predicate.virtual)
    slowly = part_by_part(predicate, predicate.virtual.in_partition("p"))
    assert found.runs == tuple(run for run in slowly.runs if run)
    assert found.boundaries == slowly.boundaries


def test_a_partition_is_at_rest_only_when_nothing_is_on_its_way_into_it() -> None:
    parts = PartSet([PartName("p", 0, 0, 0), PartName("p", 2, 2, 0)])
    calm = MergePredicate(
        prev_virtual=parts.copy(),
        committing={"p": frozenset()},
        virtual=parts.copy(),
        mutations={},
        log_version=1,
    )
    assert calm.is_at_rest("p", parts)
    assert mergeable_runs(calm, parts).runs == (tuple(parts),)
    promised = parts.copy()
    promised.add(PartName("p", 1, 1, 0))
    for change in (
        {"committing": {}},
        {"committing": {"p": frozenset({1})}},
        {"virtual": promised},
        {"prev_virtual": PartSet()},
        {"mutations": {"p": [1]}},
        {"awaiting_quorum": frozenset({PartName("p", 0, 0, 0)})},
    ):
        restless = replace(calm, **change)
        assert not restless.is_at_rest("p", parts)
        assert mergeable_runs(restless, parts).runs != (tuple(parts),) or "mutations" in change
