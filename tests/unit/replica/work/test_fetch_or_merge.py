"""When the result of a merge or a mutation is fetched instead of made (spec §5.3)."""

import shutil
from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    assign_merge,
    merge_view,
    optimize_partition,
)
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.work.merge import somebody_has
from tests.support.local_replicas import Replicas

RESULT = PartName.parse("all_0_1_1")


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Two parts on both replicas."""
    with Replicas(tmp_path) as opened:
        for value in (1, 2):
            opened.insert("r1", value)
        opened.step("r2", "fetch")
        yield opened


def assign(replicas: Replicas) -> None:
    outcome = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(outcome, Assigned)


def kinds(replicas: Replicas, name: str) -> list[tuple[str, str]]:
    """What became of the replica's merge entries: kind, and what is wrong."""
    return [(done.kind, done.error) for done in replicas.step(name).done]


def test_usually_everybody_merges(replicas):
    assign(replicas)
    assert kinds(replicas, "r1") == kinds(replicas, "r2") == [("MERGE_PARTS", "")]


def test_a_replica_that_always_fetches_waits_for_one_that_merges(replicas):
    assign(replicas)
    replicas.set(always_fetch_merged_part=1)
    [(_, error)] = kinds(replicas, "r2")
    assert f"no active replica of /tables/t has {RESULT}" in error
    replicas.set()
    assert kinds(replicas, "r1") == [("MERGE_PARTS", "")]
    replicas.set(always_fetch_merged_part=1)
    assert kinds(replicas, "r2") == [("FETCH", "")]


@pytest.mark.parametrize(
    ("age_s", "limit_bytes", "r1_has_it", "expected"),
    [
        (100, 1, True, "FETCH"),
        (99, 1, True, "MERGE_PARTS"),
        (100, 1 << 30, True, "MERGE_PARTS"),
        (100, 1, False, "MERGE_PARTS"),
    ],
)
def test_what_is_old_and_large_is_fetched_if_somebody_has_it(
    replicas, age_s, limit_bytes, r1_has_it, expected
):
    replicas.set(
        prefer_fetch_merged_part_time_threshold=100,
        prefer_fetch_merged_part_size_threshold=limit_bytes,
    )
    assign(replicas)
    if r1_has_it:
        replicas.step("r1")
    replicas.clock.passed_s += age_s
    assert kinds(replicas, "r2") == [(expected, "")]


def test_who_assigned_a_recompression_does_it_first(replicas):
    replica = replicas["r1"]
    view = merge_view(replica)
    sources = view.active.in_partition("all")
    assert isinstance(assign_merge(replica, view, sources, merge_type=3), Assigned)
    [(_, error)] = kinds(replicas, "r2")
    assert "no active replica" in error
    assert kinds(replicas, "r1") == [("MERGE_PARTS", "")]
    assert kinds(replicas, "r2") == [("FETCH", "")]


def test_after_a_while_everybody_recompresses(replicas):
    replica = replicas["r1"]
    view = merge_view(replica)
    sources = view.active.in_partition("all")
    assert isinstance(assign_merge(replica, view, sources, merge_type=3), Assigned)
    replicas.clock.passed_s += replica.settings.try_fetch_recompressed_part_timeout + 1
    assert kinds(replicas, "r2") == [("MERGE_PARTS", "")]


def test_what_only_this_replica_has_nobody_else_has(replicas):
    mine = replicas.insert("r1", 3)
    assert [somebody_has(replicas[name], mine) for name in ("r1", "r2")] == [False, True]


def mutate(replicas: Replicas) -> None:
    replica = replicas["r1"]
    create_mutation(replica, "DELETE WHERE n = 1", ["all"])
    assert isinstance(assign_mutations(replica), list)


def test_what_was_made_of_a_part_that_is_not_here_is_fetched(replicas):
    mutate(replicas)
    replicas.work_off("r1")
    for part in replicas.stores["r2"].parts():
        shutil.rmtree(replicas.stores["r2"].directory(part))
    assert replicas.step("r2").done == (), "the look that notices it claims nothing"
    assert {(one.kind, one.error) for one in replicas.step("r2").done} == {("FETCH", "")}


@pytest.mark.parametrize(
    ("age_s", "limit_bytes", "expected"),
    [(100, 1, "FETCH"), (99, 1, "MUTATE_PART"), (100, 1 << 30, "MUTATE_PART")],
)
def test_a_mutation_of_what_is_old_and_large_is_fetched(replicas, age_s, limit_bytes, expected):
    replicas.set(
        prefer_fetch_merged_part_time_threshold=100,
        prefer_fetch_merged_part_size_threshold=limit_bytes,
    )
    mutate(replicas)
    replicas.work_off("r1")
    replicas.clock.passed_s += age_s
    assert {kind for kind, _ in kinds(replicas, "r2")} == {expected}


def test_what_was_made_of_a_mutation_and_differed_is_fetched(replicas):
    """To make it once more would give the same."""
    mutate(replicas)
    replicas.work_off("r1")
    replicas["r2"].memory.fetch_instead.learn({PartName.parse("all_0_0_0_2"): None})
    found = {(str(one.part), one.kind) for one in replicas.step("r2").done}
    assert found == {("all_0_0_0_2", "FETCH"), ("all_1_1_0_2", "MUTATE_PART")}
