"""Which parts may be merged (spec §6.2, §16.4)."""

from rmt_pipeline.protocol.merges.predicate import MergePredicate, mergeable_runs
from rmt_pipeline.protocol.refusal import Refusal
from tests.support.protocol import part, part_set, parts

ACTIVE = "0_0_0 1_1_0 2_2_0"


def predicate(
    prev: str = ACTIVE,
    *,
    committing: dict[str, set[int]] | None = None,
    virtual: str | None = None,
    mutations: dict[str, list[int]] | None = None,
    quorum: str = "",
) -> MergePredicate:
    found = {"all": set[int]()} if committing is None else committing
    return MergePredicate(
        prev_virtual=part_set(prev),
        committing={name: frozenset(numbers) for name, numbers in found.items()},
        virtual=part_set(prev if virtual is None else virtual),
        mutations=mutations or {},
        log_version=1,
        awaiting_quorum=frozenset(parts(quorum)),
    )


def why(found: Refusal | None) -> str | None:
    return None if found is None else found.reason


def two(given: MergePredicate, names: str) -> str | None:
    return why(given.may_merge_two(*parts(names)))


def test_neighbours_may_be_merged() -> None:
    """P15."""
    assert two(predicate(), "0_0_0 1_1_0") is None


def test_a_hole_in_which_nothing_can_appear_is_no_obstacle() -> None:
    """P15, M1. The lock was released without a commit."""
    assert two(predicate("0_0_0 2_2_0"), "0_0_0 2_2_0") is None


def test_never_across_a_block_that_is_being_inserted() -> None:
    """P15, M1."""
    given = predicate("0_0_0 2_2_0", committing={"all": {1, 7}})
    assert two(given, "0_0_0 2_2_0") == (
        "block 1, between all_0_0_0 and all_2_2_0, is still being inserted"
    )
    beside = predicate("0_0_0 2_2_0", committing={"all": {0, 2, 3}})
    assert two(beside, "0_0_0 2_2_0") is None


def test_never_across_a_part_that_committed_between_the_two_reads() -> None:
    """P15, M2. It was not among the locks any more, so the log must have brought it."""
    given = predicate("0_0_0 2_2_0", virtual="0_0_0 1_1_0 2_2_0")
    assert two(given, "0_0_0 2_2_0") == (
        "all_1_1_0, between all_0_0_0 and all_2_2_0, exists or will exist"
    )


def test_never_across_a_part_that_is_not_here_yet() -> None:
    """P15, M5."""
    given = predicate("0_0_0 5_5_0", virtual="0_0_0 2_3_1 5_5_0")
    assert "all_2_3_1, between" in (two(given, "0_0_0 5_5_0") or "")


def test_a_partition_whose_locks_were_not_read_is_left_alone() -> None:
    """P15. The hint did not name it."""
    assert two(predicate(committing={}), "0_0_0 1_1_0") == (
        "the blocks in flight of partition all were not read"
    )


def test_a_part_that_the_queue_did_not_know_before_is_left_alone() -> None:
    """P15. Nothing is known about the blocks to its left."""
    given = predicate("0_0_0", virtual="0_0_0 1_1_0")
    assert two(given, "0_0_0 1_1_0") == "the log entry of all_1_1_0 was not pulled yet"


def test_a_part_that_goes_into_another_one_is_left_alone() -> None:
    """P15."""
    given = predicate(ACTIVE, virtual="0_0_0 1_2_1")
    assert two(given, "0_0_0 1_1_0") == "all_1_1_0 is already going to become part of all_1_2_1"
    mutating = predicate(ACTIVE, virtual="0_0_0 1_1_0_9 2_2_0")
    assert two(mutating, "0_0_0 1_1_0") == (
        "all_1_1_0 is already going to become part of all_1_1_0_9"
    )


def test_a_part_that_will_be_dropped_is_left_alone() -> None:
    """P15, M6, M8. With a range, or by itself."""
    full = "0_4_999999999_999999999"
    assert two(predicate(virtual=full), "0_0_0 1_1_0") == (
        f"all_0_0_0 is going to be dropped with the range all_{full}"
    )
    single = predicate(virtual="0_0_0 2_2_0")
    assert two(single, "0_0_0 1_1_0") == "all_1_1_0 is going to be dropped"


def test_a_part_that_waits_for_its_quorum_is_left_alone() -> None:
    """P15, spec §16.2 I13."""
    assert two(predicate(quorum="1_1_0"), "0_0_0 1_1_0") == "all_1_1_0 waits for its quorum"
    assert two(predicate(quorum="0_0_0"), "0_0_0 1_1_0") == "all_0_0_0 waits for its quorum"


def test_never_across_a_mutation() -> None:
    """P15, M4. Mutation 10: 9_9_0 is older and not mutated yet, 11_11_0 was born after it."""
    names = "9_9_0 11_11_0"
    given = predicate(names, mutations={"all": [3, 10]})
    assert two(given, names) == (
        "all_9_9_0 has seen mutations up to 3, all_11_11_0 up to 10: the older one must be "
        "mutated first"
    )
    after = predicate("9_9_0_10 11_11_0", mutations={"all": [3, 10]})
    assert two(after, "9_9_0_10 11_11_0") is None
    both_older = predicate(names, mutations={"all": [20], "b": [10]})
    assert two(both_older, names) is None


def test_one_part_alone_needs_only_the_rules_about_parts() -> None:
    given = predicate("1_1_0", committing={})
    assert why(given.may_merge_one(part("1_1_0"))) is None
    assert why(given.merge_range(parts("1_1_0"))) is None
    refused = "the log entry of all_2_2_0 was not pulled yet"
    assert why(given.may_merge_one(part("2_2_0"))) == refused
    assert why(given.merge_range(parts("2_2_0"))) == refused


def test_a_range_is_as_mergeable_as_its_neighbours() -> None:
    given = predicate("0_0_0 1_1_0 3_3_0", committing={"all": {2}})
    assert why(given.merge_range(parts("0_0_0 1_1_0"))) is None
    assert "block 2, between all_1_1_0" in (
        why(given.merge_range(parts("0_0_0 1_1_0 3_3_0"))) or ""
    )


def test_runs_are_cut_where_no_merge_may_span_and_say_why() -> None:
    """P15. Adjacent parts only, in one partition (E4)."""
    names = "0_0_0 1_1_0 3_3_0 4_4_0 6_6_0 b_0_0_0"
    given = predicate(
        names,
        committing={"all": {2}, "b": set()},
        virtual="0_0_0 1_1_0 3_3_0 4_4_0_9 6_6_0 b_0_0_0",
    )
    found = mergeable_runs(given, part_set(names))
    assert found.runs == (
        tuple(parts("0_0_0 1_1_0")),
        tuple(parts("3_3_0")),
        tuple(parts("6_6_0")),
        tuple(parts("b_0_0_0")),
    )
    assert [(one.left, one.right) for one in found.boundaries] == [
        (part("1_1_0"), part("3_3_0")),
        (part("4_4_0"), None),
    ]
    assert "becomes" not in found.boundaries[0].refusal.reason
    assert "is still being inserted" in found.boundaries[0].refusal.reason


def test_a_partition_of_which_no_part_may_be_merged_has_no_run() -> None:
    given = predicate("0_0_0 1_1_0", virtual="0_1_1")
    found = mergeable_runs(given, part_set("0_0_0 1_1_0"))
    assert found.runs == ()
    assert [(one.left, one.right) for one in found.boundaries] == [
        (part("0_0_0"), None),
        (part("1_1_0"), None),
    ]
