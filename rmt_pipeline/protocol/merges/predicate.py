"""Which parts may be merged (spec §6.2). Because of this rule no merge loses or
doubles a row, so the safety of everything else depends on it.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rmt_pipeline.protocol.parts.name import PartName, gap
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.refusal import Refusal


@dataclass(frozen=True, slots=True, eq=False)
class MergePredicate:
    """The facts by which merges are allowed or refused, as one replica read them, in this order:

    1. `prev_virtual`: the virtual parts of its queue (parts and promises);
    2. `committing`: for each partition, the block numbers that are allocated and neither
       committed nor given back; with it `awaiting_quorum`, the parts that wait for their quorum,
       or whose quorum failed: they may leave the table again;
    3. `log_version`, the data version of `/log`; then the log was pulled to its end, which gave
       `virtual` (fresh virtual parts) and `mutations` (for each partition, sorted versions).

    Claim (P15): if `prev_virtual` contains a part, then every block with a smaller number in
    its partition is committing, or in `virtual`, or will never exist.

    Proof. The part's block number was allocated before the part got into the log, hence before
    step 1. ZooKeeper hands out a partition's numbers in order, so at step 1 every smaller
    number had been allocated too. Such a number was, at step 2, either still locked: then it is
    in `committing`. Or its lock was gone: the multi that deletes a lock either put the block
    into the log in the same step, before step 3, so that pulling the log in step 3 brought it
    into `virtual`; or it gave the number back, and a number is never handed out again. ∎

    If steps 2 and 3 were swapped, this could happen: 1. Replica A reads the log; block 7 is still
    locked. 2. Replica B commits block 7. 3. A lists the locks; 7 is not among them. 4. A merges 6
    and 8, and 7 has no place left. If steps 1 and 2 were swapped, the same could happen with a
    block that is allocated between them.

    The same holds for mutations, which take their numbers in the same way. So: if no committing
    number and no virtual part lies between two parts, nothing can ever appear there, and holes
    in the numbering are harmless. What happens after step 3 is excluded when the merge is
    assigned: each multi that assigns a merge, a mutation or a drop bumps the version of `/log`, and
    the assignment is a multi that asserts `log_version` (spec §6.3). Inserts do not bump it, and
    need not: their blocks get numbers greater than all those here.
    """

    prev_virtual: PartSet
    committing: Mapping[str, frozenset[int]]
    virtual: PartSet
    mutations: Mapping[str, Sequence[int]]
    log_version: int
    awaiting_quorum: frozenset[PartName] = frozenset()
    _numbers: Mapping[str, Sequence[int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        numbers = {partition: sorted(found) for partition, found in self.committing.items()}
        object.__setattr__(self, "_numbers", numbers)

    def may_merge_one(self, part: PartName) -> Refusal | None:
        """Why `part` may not be a source of a merge (or be mutated, or dropped) by itself; None if
        it may.
        """
        if part in self.awaiting_quorum:
            return Refusal(f"{part} waits for its quorum")
        if self.prev_virtual.containing(part) is None:
            return Refusal(f"the log entry of {part} was not pulled yet")
        covering = self.virtual.containing(part)
        if covering is None:
            return Refusal(f"{part} is going to be dropped")
        if covering.is_drop_range:
            return Refusal(f"{part} is going to be dropped with the range {covering}")
        if covering != part:
            return Refusal(f"{part} is already going to become part of {covering}")
        return None

    def may_merge_two(self, left: PartName, right: PartName) -> Refusal | None:
        """Why the two may not be neighbours in one merge; None if they may. `left` has the smaller
        blocks.
        """
        return (
            self.may_merge_one(left) or self.may_merge_one(right) or self.may_span(left, right)
        )

    def may_span(self, left: PartName, right: PartName) -> Refusal | None:
        """The rules of `may_merge_two` about the pair, without those about each part."""
        assert left.partition == right.partition, f"{left} and {right}: two partitions"
        assert left.block_max < right.block_min, f"{left} is not before {right}"
        return (
            self._block_between(left, right)
            or self._part_between(left, right)
            or self._mutation_between(left, right)
        )

    def is_at_rest(self, partition: str, active: PartSet) -> bool:
        """Whether the rules allow every merge of the partition's parts, so that they need not be
        asked: `active` has the same parts of it as the virtual parts and `prev_virtual`, no block
        is being inserted into it, it has no mutation, and no part of it waits for a quorum.
        """
        return (
            self._numbers.get(partition) == []
            and not self.mutations.get(partition)
            and active.is_same_in(partition, self.virtual)
            and active.is_same_in(partition, self.prev_virtual)
            and all(one.partition != partition for one in self.awaiting_quorum)
        )

    def merge_range(self, parts: Sequence[PartName]) -> Refusal | None:
        """Why `parts`, in order of their blocks, may not be merged into one; None if they may."""
        assert parts, "a merge has sources"
        if len(parts) == 1:
            return self.may_merge_one(parts[0])
        for left, right in pairwise(parts):
            refusal = self.may_merge_two(left, right)
            if refusal is not None:
                return refusal
        return None

    def mutation_version(self, part: PartName) -> int:
        """The newest mutation that was applied to the part, or is older than its rows;
        0 if none.
        """
        versions = self.mutations.get(part.partition, ())
        index = bisect_right(versions, part.data_version)
        return versions[index - 1] if index else 0

    def _block_between(self, left: PartName, right: PartName) -> Refusal | None:
        numbers = self._numbers.get(left.partition)
        if numbers is None:
            return Refusal(f"the blocks in flight of partition {left.partition} were not read")
        index = bisect_right(numbers, left.block_max)
        if index == len(numbers) or numbers[index] >= right.block_min:
            return None
        return Refusal(
            f"block {numbers[index]}, between {left} and {right}, is still being inserted"
        )

    def _part_between(self, left: PartName, right: PartName) -> Refusal | None:
        hole = gap(left, right)
        if hole is None or not (between := self.virtual.intersecting(hole)):
            return None
        return Refusal(f"{between[0]}, between {left} and {right}, exists or will exist")

    def _mutation_between(self, left: PartName, right: PartName) -> Refusal | None:
        mine, theirs = self.mutation_version(left), self.mutation_version(right)
        if mine == theirs:
            return None
        return Refusal(
            f"{left} has seen mutations up to {mine}, {right} up to {theirs}: "
            f"the older one must be mutated first"
        )


@dataclass(frozen=True, slots=True)
class Boundary:
    """Why `left` and `right` can't be in one merge; without `right`, why `left` can be in none."""

    left: PartName
    right: PartName | None
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class MergeableRuns:
    """A table's parts cut into runs whose neighbours may all be merged (spec §6.5),
    and where and why they are cut.
    """

    runs: tuple[tuple[PartName, ...], ...]
    boundaries: tuple[Boundary, ...]


def mergeable_runs(predicate: MergePredicate, active: PartSet) -> MergeableRuns:
    """The maximal runs among the active parts, by partition and block. A run may have one
    part only.
    """
    runs: list[tuple[PartName, ...]] = []
    boundaries: list[Boundary] = []
    for partition in active.partitions():
        parts = active.in_partition(partition)
        if predicate.is_at_rest(partition, active):
            runs.append(tuple(parts))
            continue
        found = _runs_of(predicate, parts)
        runs += found.runs
        boundaries += found.boundaries
    return MergeableRuns(tuple(run for run in runs if run), tuple(boundaries))


def _runs_of(predicate: MergePredicate, parts: Sequence[PartName]) -> MergeableRuns:
    """The runs of one partition, found part by part. Some of the runs may be empty."""
    runs: list[tuple[PartName, ...]] = []
    boundaries: list[Boundary] = []
    run: list[PartName] = []
    for part in parts:
        refusal = predicate.may_merge_one(part)
        if refusal is not None:
            boundaries.append(Boundary(part, None, refusal))
            runs.append(tuple(run))
            run = []
            continue
        refusal = predicate.may_span(run[-1], part) if run else None
        if refusal is not None:
            boundaries.append(Boundary(run[-1], part, refusal))
            runs.append(tuple(run))
            run = []
        run.append(part)
    return MergeableRuns((*runs, tuple(run)), tuple(boundaries))
