"""A view that is made of an earlier one, and what is chosen without asking about all.

tests/property/test_queue.py compares both with the plain look under any history; here is one case
for each of their rules.
"""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import (
    AlterMetadata,
    DropPart,
    LogEntry,
    ReplaceRange,
    describe_entry,
    drop_range_of,
    virtual_parts,
)
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.index import PartIndex
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.state import Lane
from rmt_pipeline.protocol.queue.view import Plan, QueueView
from tests.support.kept_view import assert_same
from tests.support.protocol import (
    alter,
    drop,
    drop_part,
    get,
    merge,
    mutate,
    node,
    numbered,
    part,
    part_set,
    parts,
    replace,
)
from tests.support.work import calls_of

ENTRIES = numbered([get("0_0_0"), get("1_1_0"), merge("0_0_0 1_1_0"), get("b_5_5_0")])


def view(
    entries: dict[str, LogEntry], here: str = "", *claimed: int, before: QueueView | None = None
) -> QueueView:
    claims = {node(one): Claim("w", virtual_parts(entries[node(one)])) for one in claimed}
    return QueueView(entries, claims, parts(here), before)


def run(one: QueueView, facts: Facts | None = None) -> list[str]:
    return [name for name, _ in one.choose(facts or Facts(), 100).run]


def without(entries: dict[str, LogEntry], *numbers: int) -> dict[str, LogEntry]:
    gone = [node(number) for number in numbers]
    return {name: entry for name, entry in entries.items() if name not in gone}


def test_an_entry_is_done_once_a_part_that_came_covers_it() -> None:
    first = view(ENTRIES)
    second = view(ENTRIES, "0_1_1", before=first)
    assert [name for name, _ in second.choose(Facts(), 100).done] == [
        node(n) for n in (0, 1, 2)
    ]
    assert run(second) == [node(3)]


def test_an_entry_is_to_do_again_when_what_covered_it_has_gone() -> None:
    first = view(ENTRIES, "0_1_1")
    second = view(ENTRIES, before=first)
    assert not second.choose(Facts(), 100).done
    assert run(second) == [node(0), node(1), node(3)]


def test_what_was_promised_and_never_came_is_not_virtual() -> None:
    """P8. The merge was dropped from the queue; or it was carried out."""
    first = view(ENTRIES, "0_0_0 1_1_0")
    left = without(ENTRIES, 0, 1, 2)
    assert view(left, "0_0_0 1_1_0", before=first).virtual == part_set("0_0_0 1_1_0 b_5_5_0")
    assert view(left, "0_1_1 0_0_0", before=first).virtual == part_set("0_1_1 b_5_5_0")


def test_a_partition_in_which_something_is_dropped_is_replayed() -> None:
    """P8, P14. Also when it is added to an earlier view, and when it has gone."""
    first = view(ENTRIES, "0_0_0")
    dropping = ENTRIES | {node(4): drop(5), node(5): get("7_7_0")}
    second = view(dropping, "0_0_0", before=first)
    assert second.virtual == view(dropping, "0_0_0").virtual
    third = view({node(5): get("7_7_0")}, "", before=second)
    assert third.virtual == part_set("7_7_0")
    first = view(numbered([drop_part("1_1_0")]), "1_1_0")
    assert first.virtual == part_set("")
    assert view({}, "1_1_0", before=first).virtual == part_set("1_1_0"), "it stays"


def test_promises_that_overlap_are_corrupt_however_they_are_looked_at() -> None:
    """P8."""
    first = view({}, "0_1_1")
    with pytest.raises(Corruption, match="overlaps"):
        view(numbered([get("1_2_1")]), "0_1_1", before=first)


def test_a_claim_that_ended_holds_back_nothing() -> None:
    first = view(ENTRIES, "", 0)
    assert run(first) == [node(1), node(3)]
    assert run(view(ENTRIES, "", before=first)) == [node(0), node(1), node(3)]
    assert view(ENTRIES, "", before=first).future == {}


def test_what_failed_still_holds_back_what_overlaps_it() -> None:
    """P11. It may be tried again while the other runs."""
    entries = numbered([get("1_1_0"), merge("0_0_0 1_1_0"), get("5_5_0")])
    plan = view(entries, "0_0_0").choose(Facts(), 100, later={node(0)})
    assert [name for name, _ in plan.run] == [node(2)]
    dropping = numbered([drop_part("1_1_0"), drop(5), get("c_7_7_0"), drop(9, "b")])
    plan = view(dropping, "1_1_0").choose(Facts(), 100, later={node(0)})
    assert [name for name, _ in plan.run] == [node(3), node(2)]


def test_what_failed_and_overlaps_nothing_makes_nobody_ask_about_all() -> None:
    entries = numbered([get(f"{n}_{n}_0") for n in range(9)])
    plan = view(entries).choose(Facts(fetches_max=1), 100, later={node(8)})
    assert [name for name, _ in (*plan.run, *plan.wait)] == [node(0), node(1)]


def test_a_kind_that_finds_no_slot_is_not_asked_again_and_others_are() -> None:
    entries = numbered(
        [get(f"{n}_{n}_0") for n in range(50)] + [merge("b_1_1_0 b_2_2_0"), get("60_60_0")]
    )
    plan = view(entries).choose(Facts(fetches_max=2), 100)
    assert [name for name, _ in plan.run] == [node(0), node(1), node(50)]
    assert plan.wait == ((node(2), "all 2 slots for fetches are taken"),)


def test_a_kind_that_is_left_to_others_is_not_asked() -> None:
    """P12. Nothing waits for it either."""
    entries = numbered([merge("1_1_0 2_2_0"), mutate("5_5_0", "5_5_0_9"), get("1_1_0")])
    plan = view(entries).choose(Facts(), 100, {Lane.MERGES, Lane.MUTATIONS})
    assert (plan.run, plan.wait) == (((node(2), get("1_1_0")),), ())


def test_another_queue_is_looked_at_anew() -> None:
    """Its replica was made again: what comes is before what was there."""
    first = view({node(9): get("1_1_0")})
    second = view({node(3): get("2_2_0"), node(9): get("1_1_0")}, before=first)
    assert second.order() == [node(3), node(9)]


def test_an_entry_that_is_another_one_under_its_name_is_looked_at_anew() -> None:
    """A restored replica's queue counts from 0 again; also where it is the last that changed."""
    first = view({node(0): get("1_1_0"), node(1): get("2_2_0")}, "2_2_0")
    second = view({node(0): get("1_1_0"), node(1): get("3_3_0")}, "2_2_0", before=first)
    assert run(second) == [node(0), node(1)]
    assert second.virtual == part_set("1_1_0 2_2_0 3_3_0")
    same_indexes(second, QueueView(second.entries, {}, parts("2_2_0")))


def test_an_earlier_view_does_not_change() -> None:
    first = view(ENTRIES, "", 0)
    says = str(first.plan(Facts(), 100)), str(first.virtual), dict(first.future), first.order()
    view(without(ENTRIES, 1) | {node(7): drop(9)}, "1_1_0", 2, before=first)
    assert says == (
        str(first.plan(Facts(), 100)),
        str(first.virtual),
        dict(first.future),
        first.order(),
    )


def test_partitions_that_have_gone_leave_nothing_in_a_view_that_is_kept() -> None:
    """A worker keeps its view for weeks, and a table has a partition for each hour."""
    name, empty = part("gone_0_0_0"), Holdings.of(())
    entries = {node(0): get("gone_0_0_0"), node(1): drop(9, "gone")}
    first = QueueView(entries, {}, empty, QueueView({}, {}, empty))
    holdings = empty.joined([name])
    second = QueueView({}, {}, holdings, first)
    last = QueueView({}, {}, holdings.without([name]), second)
    indexes = last._state.touched, last._state.drops
    assert [one._classes for one in indexes] == [{}, {}]
    assert [one._members for one in (last.virtual, last.current)] == [{}, {}]
    assert first.virtual.partitions() == ["gone"]


def test_a_look_costs_what_has_changed() -> None:
    """A queue of a thousand entries in ten partitions, of which half are done. Building it takes
    some fifty calls an entry; looking for entries that came or went takes one.
    """
    entries = {node(n): get(f"p{n % 10}_{n}_{n}_0") for n in range(1000)}
    held = Holdings.of(entries[node(n)].part for n in range(1000) if n % 10 < 5)
    held = held.joined(parts("p2_2_102_1 p7_7_107_1"))
    first = QueueView(entries, {}, held, QueueView({}, {}, held))

    def look(names: dict[str, LogEntry], now: Holdings, *claimed: str) -> int:
        claims = {one: Claim("w", virtual_parts(names[one])) for one in claimed}
        return calls_of(lambda: QueueView(names, claims, now, first))

    again = {name: dataclasses.replace(entry) for name, entry in entries.items()}
    assert look(entries, held) < 50
    assert look(entries, held, node(7)) < 80
    assert look(entries, held.joined(parts("p8_8_8_0"))) < 300
    assert look(entries, held.without(parts("p2_102_102_0"))) < 1500, "it was covered"
    assert look(again, held) < 5000, "what is equal is the same"
    more = entries | {node(1000): get("p8_1000_1000_0")}
    assert look(more, held) < 1300
    assert look(without(entries, 102), held) < 1300, "it was done"
    assert first.choose(Facts(fetches_max=1), 0) == Plan((), first.choose(Facts(), 1).done, ())
    one_slot = Facts(fetches_max=1)
    assert calls_of(lambda: first.choose(one_slot, 9, later={node(999)})) < 2000


@pytest.mark.parametrize("claimed", [(), (1,)])
def test_what_waits_for_an_earlier_drop_is_not_asked_one_by_one(
    claimed: tuple[int, ...],
) -> None:
    """However many entries there are. One of them tells why."""
    behind = [get(f"{number}_{number}_0") for number in range(7, 1000)]
    entries = numbered([get("6_6_0"), drop_part("3_3_0"), *behind, get("b_1_1_0")])
    one = view(entries, "3_3_0", *claimed)
    plan = one.choose(Facts(), 10)
    chosen = {name for name, _ in plan.run} | ({node(1)} if claimed else set())
    assert chosen == {node(0), node(1), node(995)}
    assert plan.wait == ((node(2), "queue-0000000001, which drops all_3_3_0, must run first"),)
    assert calls_of(lambda: one.choose(Facts(), 10)) < 2500
    assert plan.run == one.plan(Facts(), 10).run


def asked(index: PartIndex, text: str) -> set[str]:
    return {f"{name} {owner[-2:]}" for name, owner in index.overlapping(part(text))}


def test_an_index_finds_what_overlaps_whatever_its_length() -> None:
    names = parts("0_0_0 3_9_1 4_4_0 8_30_2 31_31_0 9_9_0 b_4_4_0")
    index = PartIndex()
    for number, name in enumerate(names):
        index.add(name, node(number))
    index.add(names[1], node(77))
    twin = index.copy()
    twin.remove(names[2], node(2))
    twin.remove(names[1], node(1))
    twin.remove(names[1], node(1))
    found = {"all_3_9_1 01", "all_3_9_1 77", "all_4_4_0 02", "all_8_30_2 03"}
    assert asked(index, "4_8_1") == found
    assert asked(twin, "4_8_1") == {"all_3_9_1 77", "all_8_30_2 03"}
    assert asked(twin, "31_40_0") == {"all_31_31_0 04"}
    assert twin.nodes_in("b") == {node(6)}


POOL = [
    *(
        get(f"{partition}_{n}_{n}_0", source)
        for n in range(4)
        for partition, source in ("pr", "q ")
    ),
    merge("p_0_0_0 p_1_1_0"),
    merge("p_0_1_1 p_2_2_0"),
    merge("q_1_1_0 q_2_2_0"),
    mutate("p_0_0_0", "p_0_0_0_9"),
    mutate("p_3_3_0", "p_3_3_0_9", 2),
    drop(3, "p"),
    dataclasses.replace(drop(2, "q"), detach=True),
    drop_part("p_3_3_0"),
    dataclasses.replace(drop_part("q_3_3_0"), detach=True),
    replace(2, "p_7_7_0", "p"),
    replace(0, "q_8_8_0", "q"),
    alter(2),
    alter(3, have_mutation=True),
]
HERE = parts(
    "p_0_0_0 p_1_1_0 p_0_1_1 p_2_2_0 p_0_2_2 p_3_3_0 q_1_1_0 q_2_2_0 q_1_2_1 p_0_0_0_9"
)
STEPS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(POOL), max_size=3),
        st.sets(st.integers(0, 9), max_size=3),
        st.sets(st.sampled_from(HERE), max_size=3),
        st.sets(st.sampled_from(HERE), max_size=2),
        st.sets(st.integers(0, 9), max_size=2),
    ),
    min_size=2,
    max_size=5,
)


@settings(max_examples=200)
@given(STEPS, st.integers(0, 3), st.integers(0, 9), st.sets(st.sampled_from(Lane)))
def test_a_kept_view_says_what_a_fresh_one_says_whatever_comes_and_goes(
    steps, most, tried, skip
) -> None:
    """Entries, parts and claims come and go in any order, also in ways that no history has. Where
    the plain look finds that corrupt, the kept one does, too. No look changes an earlier one.
    """
    before: list[tuple[QueueView, QueueView]] = []
    entries: dict[str, LogEntry] = {}
    holdings, kept, number = Holdings.of(()), None, 0
    facts = Facts(fetches_max=most, recoveries_max=1, merges_max=most)
    for came, gone, new, lost, claimed in steps:
        grown = entries | {node(number + at): entry for at, entry in enumerate(came)}
        number += len(came)
        entries = {
            one: entry for at, (one, entry) in enumerate(grown.items()) if at not in gone
        }
        holdings = holdings.joined(new).without(lost)
        claims = {
            one: Claim("w", virtual_parts(entry))
            for at, (one, entry) in enumerate(entries.items())
            if at in claimed
        }
        try:
            fresh = QueueView(entries, claims, list(holdings))
        except Corruption:
            with pytest.raises(Corruption):
                QueueView(entries, claims, holdings, kept)
            break
        kept = QueueView(entries, claims, holdings, kept)
        assert_same(kept, fresh, facts, limit=99)
        later = [one for at, one in enumerate(entries) if at == tried]
        assert_same(kept, fresh, facts, limit=2, later=later)
        assert_same(kept, fresh, facts, limit=most, skip=skip)
        before.append((kept, fresh))
    for kept, fresh in before:
        same_indexes(kept, fresh)
        assert (kept.current, kept.virtual) == (fresh.current, fresh.virtual)


def same_indexes(kept: QueueView, fresh: QueueView) -> None:
    """What was forgotten is in no index, and what is there is in its own."""
    one, other = kept._state, fresh._state
    assert (one.lanes, one.alters, one.covered) == (other.lanes, other.alters, other.covered)
    for index in (
        "touched",
        "drops",
        "drop_parts",
        "detaching",
        "replacements",
        "dropping",
        "future",
    ):
        mine, theirs = getattr(one, index).owners, getattr(other, index).owners
        assert {part: set(nodes) for part, nodes in mine.items()} == {
            part: set(nodes) for part, nodes in theirs.items()
        }, index


@pytest.mark.parametrize("entry", POOL, ids=describe_entry)
def test_an_entry_is_in_the_indexes_of_its_kind_and_in_no_others(entry: LogEntry) -> None:
    """What a drop empties counts as touched."""
    state = QueueView({node(0): entry}, {}, ())._state
    dropped = drop_range_of(entry)
    names = {*virtual_parts(entry), *({dropped} if dropped else ())}
    is_detach = getattr(entry, "detach", False)
    assert set(state.touched.owners) == names
    assert set(state.drops.owners) == ({dropped} if dropped else set())
    assert set(state.detaching.owners) == ({dropped} if is_detach else set())
    is_part = isinstance(entry, DropPart)
    assert set(state.drop_parts.owners) == ({dropped} if is_part else set())
    assert set(state.replacements.owners) == (
        set(entry.new_parts) if isinstance(entry, ReplaceRange) else set()
    )
    assert state.alters == (
        {node(0): entry.alter_version} if isinstance(entry, AlterMetadata) else {}
    )
