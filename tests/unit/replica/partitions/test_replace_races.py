"""REPLACE PARTITION while its source is merged, mutated, dropped or written to, at each moment that
matters: what it brings is what the source had at one moment, on every replica. And MOVE PARTITION
after other commands.
"""

from collections.abc import Callable

import pytest

from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.zookeeper.keeper import Op
from tests.support.local_replicas import Replicas
from tests.support.lost_answers import allocates, before
from tests.support.partitioned import clean_up, insert, rows, swaps, work
from tests.support.two_tables import NOW, Two, filled

Meanwhile = Callable[[Replicas], object]


def merged(s: Replicas) -> None:
    optimize_partition(s["r2"], "1", final=True, skip_merged=False)
    work(s)


def mutated(s: Replicas) -> None:
    create_mutation(s["r2"], "DELETE WHERE n = 10")
    assign_mutations(s["r2"])
    work(s)


def dropped(s: Replicas) -> None:
    s.table("r2").drop_partitions(["1"], settings=NOW)
    work(s)


def detached(s: Replicas) -> None:
    s.table("r2").drop_partitions(["1"], detach=True, settings=NOW)
    work(s)


def written_to(s: Replicas) -> None:
    insert(s, (1, 12), at="r2")
    work(s)


CHANGES = {
    merged: [(1, 10), (1, 11)],
    mutated: [(1, 11)],
    dropped: [],
    detached: [],
    written_to: [(1, 10), (1, 11), (1, 12)],
}
ALL = [(1, 10), (1, 11), (2, 2)]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize(
    "at", [allocates, swaps], ids=["before its number", "before its commit"]
)
def test_a_replacement_brings_what_its_source_had_at_one_moment(
    two: Two, change: Meanwhile, at: Callable[[Op], bool]
) -> None:
    """P39. Its links are made by then; old parts of the source are gone before the others look."""
    filled(two)

    def meanwhile() -> None:
        change(two.s)
        clean_up(two.s)

    with before(two.t["r1"].keeper, at, meanwhile):
        assert two.replace().rows == 2
    work(two.t)
    clean_up(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == ALL
    assert rows(two.s, "r1") == rows(two.s, "r2") == CHANGES[change]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_who_carries_it_out_after_its_source_has_changed_has_the_same_rows(
    two: Two, change: Meanwhile
) -> None:
    """Its own copy is gone, or another: the parts are fetched from who has them."""
    filled(two)
    two.replace()
    work(two.t, "r1")
    change(two.s)
    clean_up(two.s)
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == ALL


def mutated_after(t: Replicas) -> list[tuple[int, int]]:
    create_mutation(t["r1"], "DELETE WHERE n = 1")
    assign_mutations(t["r1"])
    return [(1, 10), (2, 2)]


def merged_after(t: Replicas) -> list[tuple[int, int]]:
    insert(t, (1, 12))
    optimize_partition(t["r1"], "1", final=True, skip_merged=False)
    return [(1, 10), (1, 12), (2, 2)]


@pytest.mark.parametrize("change", [mutated_after, merged_after])
def test_who_is_behind_when_one_of_its_parts_is_dropped_and_the_other_is_in_a_larger_one(
    two: Two, change: Callable[[Replicas], list[tuple[int, int]]]
) -> None:
    """P12. The drop waits for the replacement; that has to take the larger part, which came behind
    the drop.
    """
    filled(two)
    two.replace()
    work(two.t, "r1")
    merged(two.s)
    clean_up(two.s)  # r2 has no copy to link
    (dropped,) = (one.name for one in two.t.table("r1").parts() if one.name.block_min == 3)
    two.t.table("r1").drop_part(dropped, settings=NOW)
    left = change(two.t)
    work(two.t, "r1")
    for _ in range(2):
        two.t.clock.passed_s += 10_000
        carry_out(two.t["r1"], plan_clean_up(two.t["r1"]))
    work(two.t)
    assert rows(two.t, "r2") == rows(two.t, "r1") == left


def test_the_source_is_replaced_in_its_turn_meanwhile(two: Two) -> None:
    """Each by the other: one comes after the other, and both have what was there before."""
    filled(two)

    def back() -> None:
        two.s.table("r1").replace_partition("1", two.t.table("r1"), settings=NOW)
        work(two.s)

    with before(two.t["r1"].keeper, swaps, back):
        two.replace()
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == ALL
    assert rows(two.s, "r1") == rows(two.s, "r2") == [(1, 1)]


@pytest.mark.parametrize("at", ["r1", "r2"])
@pytest.mark.parametrize("command", ["drop", "replace"])
def test_a_move_skips_no_number_whatever_was_said_before(two, monkeypatch, at, command):
    """1. A replica replaces in both tables, and knows the versions that this has left. 2. It, or
    another one, says something else. 3. It moves: at the first try, also out of the source.
    """
    filled(two, s=((1, 10), (2, 20)))
    two.replace()
    two.s.table("r1").replace_partition("2", two.t.table("r1"), settings=NOW)
    for replicas in (two.s, two.t):
        work(replicas)
        if command == "drop":
            replicas.table(at).drop_partitions(["2"], settings=NOW)
        else:
            other = two.t if replicas is two.s else two.s
            replicas.table(at).replace_partition("2", other.table(at), settings=NOW)
        work(replicas)
    monkeypatch.setattr("rmt_pipeline.protocol.limits.DROP_ROUNDS_MAX", 1)
    (part,) = two.move().parts
    work(two.s)
    work(two.t)
    assert part.block_min == 3
    assert (1, 10) in rows(two.t, "r2")
    assert (1, 10) not in rows(two.s, "r2")
