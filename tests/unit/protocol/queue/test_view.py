"""The queue as a value: its sets, plans, and what a drop takes away."""

import dataclasses
import time

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.merges.size_limits import SizeLimits
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.view import Plan, QueueView
from rmt_pipeline.protocol.refusal import Refusal
from tests.support.protocol import (
    TIME_S,
    alter,
    drop,
    drop_part,
    get,
    merge,
    mutate,
    node,
    part,
    part_set,
    parts,
    queue,
    replace,
)

FULL = "0_4_999999999_999999999"


def test_virtual_parts_are_parts_and_promises() -> None:
    """P8."""
    view = queue(get("3_3_0"), merge("0_0_0 1_1_0"), here="0_0_0 1_1_0 b_0_0_0")
    assert view.current == part_set("0_0_0 1_1_0 b_0_0_0")
    assert view.virtual == part_set("0_1_1 3_3_0 b_0_0_0")
    view.check()


def test_a_range_that_is_dropping_covers_its_blocks_until_it_is_done() -> None:
    """P8, spec §16.4 M6."""
    view = queue(drop(5), get("7_7_0"), here="0_0_0 1_3_1 5_5_0")
    assert view.virtual == part_set(f"{FULL} 5_5_0 7_7_0")
    replaced = queue(replace(4, "5_5_0 6_6_0"), here="0_0_0")
    assert replaced.virtual == part_set(f"{FULL} 5_5_0 6_6_0")


def test_a_part_that_will_be_dropped_is_not_virtual() -> None:
    """P8. But one that comes later in the queue is."""
    view = queue(drop_part("1_1_0"), merge("0_0_0 2_2_0"), here="0_0_0 1_1_0 2_2_0")
    assert view.virtual == part_set("0_2_1")
    assert queue(drop_part("1_1_0"), here="0_0_0 1_1_0").virtual == part_set("0_0_0")


def test_a_part_that_is_given_up_while_its_drop_is_queued_is_not_virtual_again() -> None:
    """P8. The drop takes the entry that is to fetch it, and merges go across its numbers."""
    here = "0_0_0 1_1_0 2_2_0 3_3_0 4_4_0"
    view = queue(drop_part("1_3_1"), merge("0_0_0 4_4_0"), get("1_3_1"), here=here)
    assert view.virtual == part_set("0_4_1")
    assert queue(drop_part("1_1_0"), get("1_1_0")).virtual == part_set("")
    assert queue(get("1_1_0"), drop_part("1_1_0")).virtual == part_set("")
    assert queue(drop_part("1_1_0"), get("2_2_0")).virtual == part_set("2_2_0")


def test_promises_that_overlap_are_corrupt() -> None:
    """P8."""
    with pytest.raises(Corruption, match=r"what the queue will do \(merge .*\), overlaps"):
        queue(merge("1_1_0 2_2_0"), here="0_1_1")
    with pytest.raises(Corruption, match="overlap"):
        queue(here="0_1_1 1_2_1")


def test_drops_are_tried_first_and_the_rest_in_queue_order() -> None:
    """P14."""
    view = queue(
        get("6_6_0"), drop_part("5_5_0"), alter(1), drop(5), replace(0, "9_9_0"), here="5_5_0"
    )
    assert view.order() == [node(number) for number in (1, 3, 0, 2, 4)]


def test_what_was_inserted_and_what_was_lost_are_fetched_by_turns() -> None:
    """A replica that is cloned has the whole table to fetch, and is asked for new rows too."""
    lost = [dataclasses.replace(get(f"{n}_{n}_0"), source_replica="") for n in range(5)]
    view = queue(*lost[:4], get("7_7_0"), merge("5_5_0 6_6_0"), get("8_8_0"), lost[4])
    assert view.order() == [node(number) for number in (4, 0, 6, 1, 2, 5, 3, 7)]
    taken = [name for name, _ in view.plan(Facts(recoveries_max=2), 100).run]
    assert taken == [node(number) for number in (4, 0, 6, 1, 5)]
    assert (node(2), "all 2 slots for fetches of what was lost are taken") in view.plan(
        Facts(recoveries_busy=2, recoveries_max=2), 100
    ).wait


def test_a_plan_takes_what_can_be_taken_together() -> None:
    """P11. The merge needs 2_2_0, which is fetched in the same claim, so it is not in it."""
    view = queue(
        get("2_2_0"),
        get("2_2_0"),
        merge("1_1_0 2_2_0"),
        get("0_0_0"),
        merge("b_0_0_0 b_1_1_0"),
        here="0_0_0 1_1_0 b_0_0_0 b_1_1_0",
    )
    plan = view.plan(Facts(), 100)
    assert [name for name, _ in plan.run] == [node(0), node(4)]
    assert plan.done == ((node(3), part("0_0_0")),)
    assert plan.wait == (
        (node(1), "another entry, queue-0000000000, is to produce all_2_2_0"),
        (node(2), "queue-0000000000 is to produce all_2_2_0, which overlaps all_1_2_1"),
    )


def test_a_plan_fills_the_slots_and_no_more() -> None:
    """P11."""
    gets = [get(f"{number}_{number}_0") for number in range(6)]
    merges = [merge(f"b_{n}_{n}_0 b_{n + 1}_{n + 1}_0", merge_type=2) for n in (0, 2, 4)]
    mutations = [mutate(f"c_{n}_{n}_0", f"c_{n}_{n}_0_9") for n in range(3)]
    view = queue(*gets, *merges, *mutations)
    facts = Facts(
        fetches_busy=6,
        fetches_max=8,
        merges_max=3,
        ttl_merges_busy=1,
        size_limits=SizeLimits(mutate_above_free=1),
    )
    taken = [entry for _, entry in view.plan(facts, 100).run]
    assert taken == [*gets[:2], merges[0], mutations[0], mutations[1]]


def test_a_plan_stops_at_the_limit_but_finds_what_is_done() -> None:
    view = queue(get("1_1_0"), get("2_2_0"), get("0_0_0"), alter(1), here="0_0_0")
    assert view.plan(Facts(), 1) == Plan(
        run=((node(0), get("1_1_0")),),
        done=((node(2), part("0_0_0")),),
        wait=(
            (node(1), "1 other entries were taken first"),
            (node(3), "1 other entries were taken first"),
        ),
    )


def test_nothing_waits_for_what_is_left_to_others() -> None:
    """P12. A merge that lacks a source must not hold back the fetch of that source."""
    view = queue(merge("1_1_0 2_2_0"), get("1_1_0"), here="2_2_0")
    assert [name for name, _ in view.plan(Facts(), 100).run] == [node(0)]
    plan = view.plan(Facts(), 100, skip={node(0)})
    assert (plan.run, plan.wait) == (((node(1), get("1_1_0")),), ())


def test_drops_of_one_range_are_not_taken_together() -> None:
    """P11, P14."""
    view = queue(drop(5), replace(6, "7_7_0"), drop(5, "b"))
    assert [name for name, _ in view.plan(Facts(), 100).run] == [node(0), node(2)]


def test_what_comes_before_a_queued_drop_is_not_virtual() -> None:
    """P8. The part has come; the drop behind it in the queue has not run yet."""
    view = queue(drop_part("1_1_0"), here="1_1_0")
    assert view.current == part_set("1_1_0")
    assert view.virtual == part_set("")
    view.check()


def test_every_name_is_known_and_only_the_maximal_ones_are_parts() -> None:
    """P8."""
    view = queue(here="0_0_0 1_1_0 0_1_1")
    assert view.names("all") == frozenset(parts("0_0_0 1_1_0 0_1_1"))
    assert view.names("b") == frozenset()
    assert view.current == view.virtual == part_set("0_1_1")


def test_what_others_wait_for_is_taken_before_them() -> None:
    view = queue(
        get("b_5_5_0"),
        drop_part("b_5_5_0"),
        alter(3),
        replace(0, "8_8_0"),
        mutate("0_0_0", "0_0_0_9", 3),
        drop_part("8_8_0"),
        here="0_0_0",
    )
    taken = [name for name, _ in view.plan(Facts(), 9).run]
    assert taken == [node(1), node(2), node(3)]


# --- fetching a larger part, removing entries -------------------------------------------------


def test_a_larger_part_may_be_fetched_when_the_queue_knows_it() -> None:
    """P16."""
    view = queue(get("1_1_0"), merge("1_1_0 2_2_0"), here="2_2_0", claims={0: "1_1_0"})
    assert view.may_take_actual_part(part("1_2_1"), node(0)) is None
    unknown = view.may_take_actual_part(part("0_5_2"), node(0))
    assert isinstance(unknown, Refusal)
    assert "is not pulled yet" in unknown.reason


def test_a_larger_part_is_not_fetched_beside_work_that_it_overlaps() -> None:
    """P16, spec §16.3 Q5."""
    view = queue(
        get("1_1_0"),
        merge("0_0_0 1_1_0 2_2_0"),
        merge("0_2_1 3_3_0"),
        claims={0: "1_1_0", 1: "0_2_1"},
    )
    assert view.may_take_actual_part(part("0_3_2"), node(0)) == Refusal(
        "queue-0000000001 is producing all_0_2_1, which overlaps all_0_3_2"
    )


def test_a_larger_part_is_not_fetched_over_a_queued_drop_of_a_part() -> None:
    """P16."""
    view = queue(get("1_1_0"), drop_part("2_2_0"), merge("1_1_0 3_3_0"), claims={0: "1_1_0"})
    refusal = view.may_take_actual_part(part("1_3_1"), node(0))
    assert refusal == Refusal(
        "queue-0000000001, which drops part all_2_2_0, must run before all_1_3_1"
    )


@pytest.mark.parametrize("dropping", [drop_part("1_1_0"), drop(3)])
def test_a_larger_part_waits_for_drops_behind_which_some_of_its_rows_come(dropping) -> None:
    """P14, P16. Readers would see them beside what is dropped."""
    rest = [get("6_6_0"), merge("5_5_0 6_6_0")]
    view = queue(get("5_5_0"), dropping, *rest, here="1_1_0", claims={0: "5_5_0"})
    assert view.may_take_actual_part(part("5_6_1"), node(0)) == Refusal(
        "queue-0000000001 must run before all_5_6_1, which has rows that came after it"
    )
    elsewhere = drop(3, "b")
    view = queue(get("5_5_0"), elsewhere, *rest, here="1_1_0", claims={0: "5_5_0"})
    assert view.may_take_actual_part(part("5_6_1"), node(0)) is None
    before = queue(get("5_5_0"), *rest, dropping, here="1_1_0", claims={0: "5_5_0"})
    assert before.may_take_actual_part(part("5_6_1"), node(0)) is None


def test_a_replacement_takes_a_larger_part_when_it_takes_away_what_came_before() -> None:
    """P12, P16. What comes behind it waits for it, so it must not wait for that."""
    after = [get("6_6_0"), merge("5_5_0 6_6_0")]
    view = queue(drop(2), replace(4, "5_5_0"), *after, here="1_1_0", claims={1: "5_5_0"})
    assert view.may_take_actual_part(part("5_6_1"), node(1)) is None
    between = [drop_part("7_7_0"), *after]
    view = queue(replace(4, "5_5_0"), *between, here="1_1_0", claims={0: "5_5_0"})
    assert view.may_take_actual_part(part("5_6_1"), node(0)) == Refusal(
        "queue-0000000001 must run before all_5_6_1, which has rows that came after it"
    )


@pytest.mark.parametrize(
    "dropping", [[drop_part("6_6_0")], [replace(0, "8_8_0"), drop_part("8_8_0")]]
)
def test_a_replacement_takes_a_larger_part_before_drops_that_wait_for_it(dropping) -> None:
    """P12. Nobody has the smaller one any more; and what they drop is not here before it."""
    brought = [replace(4, "5_5_0 6_6_0"), *dropping]
    claims = {0: "5_5_0 6_6_0"}
    view = queue(*brought, get("9_9_0"), merge("5_5_0 9_9_0"), claims=claims)
    assert view.may_take_actual_part(part("5_9_1"), node(0)) is None
    view = queue(*brought, mutate("5_5_0", "5_5_0_7"), claims=claims)
    assert view.may_take_actual_part(part("5_5_0_7"), node(0)) is None


def test_a_drop_takes_the_entries_inside_its_range_with_it() -> None:
    """P14, spec §4.11, §16.5 D1."""
    view = queue(
        get("1_1_0"),
        merge("0_0_0 1_1_0"),
        mutate("2_2_0", "2_2_0_9"),
        drop(3),
        replace(1, "2_2_0 3_3_0"),
        drop(5),
        get("7_7_0"),
        get("b_0_0_0"),
        alter(2),
    )
    removed = [name for name, _ in view.entries_removed_by(part(FULL), node(5))]
    assert removed == [node(number) for number in (0, 1, 2, 4)]
    without = [name for name, _ in view.entries_removed_by(part(FULL))]
    assert without == [node(number) for number in (0, 1, 2)]


def test_a_replacement_goes_as_a_whole_or_not_at_all() -> None:
    """P14."""
    outside = queue(replace(0, "6_6_0"), drop(5))
    assert outside.entries_removed_by(part(FULL), node(1)) == []
    empty = queue(replace(1, ""), drop(5))
    assert empty.entries_removed_by(part(FULL), node(1)) == []
    larger = queue(replace(8, "4_4_0"), drop(5))
    assert larger.entries_removed_by(part(FULL), node(1)) == []
    torn = queue(replace(0, "4_4_0 6_6_0"), drop(5))
    with pytest.raises(Corruption, match="inside that range and other parts outside"):
        torn.entries_removed_by(part(FULL), node(1))


def test_a_replacement_does_not_remove_itself() -> None:
    """P14. Even if it would bring parts into the range that it replaces."""
    view = queue(replace(5, "3_3_0"))
    assert view.entries_removed_by(view.entries[node(0)].range, node(0)) == []


def test_a_part_that_a_later_entry_drops_is_known() -> None:
    """P14. One that is dropped by an earlier entry, or by the entry itself, comes behind it."""
    view = queue(get("0_0_0"), drop(3), replace(6, "7_7_0"), get("1_1_0"), drop_part("8_8_0"))

    def dropped(name: str) -> list[int]:
        return [n for n in range(5) if view.is_dropped_later(part(name), node(n))]

    assert dropped("2_2_0") == [0, 1]
    assert dropped("5_5_0") == [0, 1]
    assert dropped("8_8_0") == [0, 1, 2, 3]
    assert dropped("7_7_0") == dropped("b_1_1_0") == []


def test_a_view_that_does_not_hold_together_is_noticed() -> None:
    """P8, P10. Ranges that are dropped may overlap what is produced."""
    queue(get("1_1_0"), drop(5), get("2_2_0"), claims={0: "1_1_0", 1: FULL}).check()
    queue(get("1_1_0"), claims={0: "1_1_0 0_2_1"}).check()
    twice = queue(get("1_1_0"), get("0_1_1"), claims={0: "1_1_0", 1: "0_1_1"})
    same = queue(get("1_1_0"), get("1_1_0"), claims={0: "1_1_0", 1: "1_1_0"})
    for view in (twice, same):
        with pytest.raises(AssertionError, match="at once"):
            view.check()
    torn = queue(get("3_3_0"), here="1_1_0 2_2_0")
    torn.virtual._members["all"].reverse()
    with pytest.raises(AssertionError):
        torn.check()
    torn = queue(get("3_3_0"), here="1_1_0 2_2_0")
    torn.current._members["all"].reverse()
    with pytest.raises(AssertionError):
        torn.check()


def test_names_that_overlap_are_all_found() -> None:
    index = PartIndex()
    index.add(part("1_1_0"), "a")
    index.add(part(FULL), "b")
    index.add(part("1_1_0"), "c")
    index.add(part("1_1_0"), "a")
    index.add(part("0_1_1"), "d")
    twin = index.copy()
    twin.add(part("9_9_0"), "e")
    assert sorted((str(name), owner) for name, owner in index.overlapping(part("1_1_0"))) == [
        ("all_0_1_1", "d"),
        (f"all_{FULL}", "b"),
        ("all_1_1_0", "a"),
        ("all_1_1_0", "c"),
    ]
    assert list(index.overlapping(part("9_9_0"))) == []
    assert list(twin.overlapping(part("9_9_0"))) == [(part("9_9_0"), "e")]


def test_ten_thousand_entries_are_no_problem() -> None:
    """Building and planning are linear: ten times the time here is another growth."""
    entries = {
        node(n): GetPart(PartName("all", n, n, 0), create_time=TIME_S, source_replica="r")
        for n in range(10_000)
    }
    here = [PartName("b", n, n, 0) for n in range(10_000)]
    started = time.process_time()
    view = QueueView(entries, {}, here)
    built = time.process_time()
    taken = view.plan(Facts(fetches_max=10**9), 10**9).run
    planned = time.process_time()
    assert len(taken) == 10_000
    assert built - started < 10
    assert planned - built < 10
