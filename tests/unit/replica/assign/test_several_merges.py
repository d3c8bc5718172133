"""One look at a table assigns several merges with one multi: each is as allowed as alone, and no
part is in two of them.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import MERGE_REGULAR, MERGE_TTL_DELETE, MergeParts
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.assign import duty
from rmt_pipeline.replica.assign import merges as assign
from rmt_pipeline.replica.assign.duty import MergeDuty
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    Choice,
    Nothing,
    assign_merges,
    choose_merges,
    merge_view,
)
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.counting import multis_of
from tests.support.local_replicas import BEGAN_S, Replicas, by_tens, definition_of

PARTS = 6
"""Of each partition: as many parts of one size are worth a merge."""


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Three partitions."""
    with Replicas(tmp_path, define=by_tens) as opened:
        for number in range(3 * PARTS):
            opened.insert("r1", 10 * (number % 3) + number // 3)
        yield opened


def turn(replicas: Replicas, name: str = "r1") -> list[Assigned]:
    return MergeDuty(replicas[name]).turn()


def chosen(replicas: Replicas, most: int = duty.MERGES_PER_LOOK_MAX) -> list[Choice]:
    found = choose_merges(replicas["r1"], merge_view(replicas["r1"]), most=most)
    assert not isinstance(found, Nothing), found
    return found


def merges_in_log(replicas: Replicas) -> list[MergeParts]:
    replica = replicas["r1"]
    names = replica.keeper.children(replica.table.log)
    reads = replica.keeper.get_many([replica.table.log_entry(name) for name in names])
    entries = [decode(read[0]) for read in reads if read is not None]
    return [entry for entry in entries if isinstance(entry, MergeParts)]


def rows(replicas: Replicas, name: str) -> list[int]:
    return sorted(replicas.table(name).dataset().to_table().column("n").to_pylist())


def test_one_look_assigns_a_merge_in_each_partition_with_one_multi(replicas: Replicas) -> None:
    sent = multis_of(replicas["r1"].keeper)
    assigned = turn(replicas)
    assert sorted(one.result.partition for one in assigned) == ["0", "1", "2"]
    assert len([ops for ops in sent if any("/log/log-" in op.path for op in ops)]) == 1
    entries = merges_in_log(replicas)
    assert [entry.result for entry in entries] == [one.result for one in assigned]
    assert [decode(one.data) for one in assigned] == entries
    for one in assigned:
        text, _ = replicas["r1"].keeper.get(one.log_entry)
        assert text == one.data
    replicas.work_off()
    for name in ("r1", "r2"):
        assert rows(replicas, name) == sorted(
            10 * (number % 3) + number // 3 for number in range(3 * PARTS)
        )


def test_what_is_left_of_a_run_is_merged_as_well_and_nothing_twice(replicas: Replicas) -> None:
    replicas.set(max_parts_to_merge_at_once=PARTS)
    for number in range(2 * PARTS + 1):
        replicas.insert("r1", *[100] * (number + 1))
    choices = [one for one in chosen(replicas) if one.sources[0].partition == "10"]
    assert len(choices) == 2
    taken = [part for choice in choices for part in choice.sources]
    assert len(set(taken)) == len(taken)
    for choice in choices:
        assert all(
            one.block_max + 1 == other.block_min for one, other in pairwise(choice.sources)
        )


def test_no_merge_goes_across_one_that_was_chosen_before(replicas: Replicas) -> None:
    """What is left and right of its sources are no neighbours, though both are small."""
    replica = replicas["r1"]
    settings = assign.selector_settings(replica)
    runs = assign._runs(replica, merge_view(replica), settings)
    run = next(one for one in runs if one.parts[0].partition == "0")
    middle = Choice(run.parts[2:4], MERGE_REGULAR)
    left = assign._without(replica, runs, middle, settings)
    assert [one.parts for one in left if one.parts[0].partition == "0"] == [
        run.parts[:2],
        run.parts[4:],
    ]
    assert len(left) == len(runs) + 1


def test_no_more_are_assigned_than_the_queue_takes(replicas: Replicas) -> None:
    replicas.set(max_replicated_merges_in_queue=2)
    assert len(turn(replicas)) == 2
    assert turn(replicas) == []


def test_no_more_are_assigned_than_one_look_may(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty, "MERGES_PER_LOOK_MAX", 1)
    assert len(turn(replicas)) == 1


def test_one_whose_source_is_gone_is_left_out(replicas: Replicas) -> None:
    replica = replicas["r1"]
    view, choices = merge_view(replica), chosen(replicas)
    replica.keeper.multi([Delete(replica.paths.part(choices[1].sources[2]))])
    assigned = assign_merges(replica, view, choices)
    assert isinstance(assigned, list)
    assert [one.sources for one in assigned] == [choices[0].sources, choices[2].sources]


def test_where_all_have_lost_a_source_none_is_assigned(replicas: Replicas) -> None:
    replica = replicas["r1"]
    view, choices = merge_view(replica), chosen(replicas, 1)
    replica.keeper.multi([Delete(replica.paths.part(choices[0].sources[2]))])
    gone = f"{choices[0].sources[2]} is not among the parts of {replica} any more"
    assert assign_merges(replica, view, choices) == Nothing(gone, changed=True)
    assert merges_in_log(replicas) == []


def test_all_or_none_are_assigned_when_something_else_was_meanwhile(replicas: Replicas) -> None:
    replica = replicas["r1"]
    view, choices = merge_view(replica), chosen(replicas)
    replica.keeper.multi([SetData(replica.table.log)])
    outcome = assign_merges(replica, view, choices)
    assert isinstance(outcome, Nothing)
    assert outcome.changed
    assert merges_in_log(replicas) == []


def test_what_overlaps_is_never_written(replicas: Replicas) -> None:
    """By whatever bug it was chosen."""
    view, [choice, *_] = merge_view(replicas["r1"]), chosen(replicas)
    beside = replace(choice, sources=choice.sources[1:])
    with pytest.raises(AssertionError, match="are merged at once"):
        assign_merges(replicas["r1"], view, [choice, beside])
    assert merges_in_log(replicas) == []


def test_of_ttl_merges_one_look_assigns_as_many_as_may_be_queued(tmp_path: Path) -> None:
    def with_ttl(name: str) -> object:
        columns = (Column("p", "UInt8"), Column("n", "UInt64"), Column("t", "DateTime"))
        plain = definition_of(name, columns)
        return replace(plain, partition_by=("p",), ttl="t")

    with Replicas(tmp_path, define=with_ttl) as replicas:  # type: ignore[arg-type]
        for number in range(3):
            begun = {"p": number, "n": 1, "t": int(BEGAN_S) - 5}
            replicas.table("r1").insert([begun, begun | {"n": 2, "t": int(BEGAN_S) + 3600}])
        turn(replicas)
        assert [entry.merge_type for entry in merges_in_log(replicas)] == [MERGE_TTL_DELETE]


def test_more_than_a_multi_takes_are_left_for_the_next_look(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assign.limits, "MULTI_BYTES_MAX", 2)
    assigned = [turn(replicas) for _ in range(3)]
    assert [len(some) for some in assigned] == [1, 1, 1]
    assert {one.result.partition for [one] in assigned} == {"0", "1", "2"}


class Busy:
    """A table that is written to, with a duty that looks at it."""

    def __init__(self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replicas, self.written = replicas, 0
        self.looks: list[object] = []
        self.duty = MergeDuty(replicas["r1"])
        right = MergeDuty._select

        def select(looking: MergeDuty, now_s: float) -> list[Assigned] | Nothing:
            found = right(looking, now_s)
            self.looks += [found] if looking is self.duty else []
            return found

        monkeypatch.setattr(MergeDuty, "_select", select)

    def write(self, entries: int) -> None:
        for _ in range(entries):
            self.written += 1
            self.replicas.insert("r1", *[100] * self.written)
        pull_log(self.replicas["r1"])

    def turn(self) -> list[Assigned]:
        return self.duty.turn()


@pytest.fixture
def busy(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> Busy:
    monkeypatch.setattr(duty, "ENTRIES_ENOUGH", 10)
    return Busy(replicas, monkeypatch)


def test_a_look_that_found_something_is_not_followed_by_one_for_what_came_meanwhile(
    busy: Busy,
) -> None:
    assert busy.turn()
    busy.write(duty.ENTRIES_ENOUGH - 1 - 3)  # with the three merges
    assert busy.turn() == []
    assert len(busy.looks) == 1
    busy.replicas.clock.passed_s += busy.duty.next_s(busy.replicas.clock.monotonic_s())
    assert busy.turn()


def test_a_busy_log_is_looked_at_as_soon_as_it_has_enough_for_a_merge(busy: Busy) -> None:
    assert busy.turn()
    busy.write(duty.ENTRIES_ENOUGH - 3)
    [assigned] = busy.turn()
    assert len(assigned.sources) == duty.ENTRIES_ENOUGH - 3


def test_whoever_looks_early_in_vain_counts_twice_as_many_the_next_time(busy: Busy) -> None:
    assert busy.turn()
    busy.write(duty.ENTRIES_ENOUGH)
    assert turn(busy.replicas), "another one is faster"
    assert busy.turn() == []
    assert len(busy.looks) == 2
    busy.write(2 * duty.ENTRIES_ENOUGH - 1)
    assert busy.turn() == []
    assert len(busy.looks) == 2
    busy.write(1)
    assert busy.turn()
    busy.write(duty.ENTRIES_ENOUGH - 1)
    assert busy.turn(), "once it was in time, it counts as before"


@pytest.mark.parametrize(("what", "most"), [("MERGES_PER_LOOK_MAX", 1), ("bytes", 2)])
def test_what_one_look_had_to_leave_is_looked_for_at_once(
    busy: Busy, monkeypatch: pytest.MonkeyPatch, what: str, most: int
) -> None:
    if what == "bytes":
        monkeypatch.setattr(assign.limits, "MULTI_BYTES_MAX", most)
    else:
        monkeypatch.setattr(duty, what, most)
    assert [len(busy.turn()) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("changed", [False, True])
def test_who_found_nothing_looks_less_often_unless_something_has_changed(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """What came between is no sign of a table at rest."""
    nothing = Nothing("there is none", changed=changed)
    monkeypatch.setattr(MergeDuty, "_select", lambda *_: (nothing, False))
    looking, settings = MergeDuty(replicas["r1"]), replicas["r1"].settings
    shortest_s = settings.merge_selecting_sleep_ms / 1000
    slower_s = shortest_s * settings.merge_selecting_sleep_slowdown_factor
    assert looking.turn() == []
    now_s = replicas.clock.monotonic_s()
    assert looking.next_s(now_s) == (shortest_s if changed else slower_s)
