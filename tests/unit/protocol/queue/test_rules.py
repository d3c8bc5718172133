"""Each rule of the queue, its reason in words, and that it lets everything else through."""

import dataclasses

import pytest

from rmt_pipeline.protocol.background import Background, stopped_words
from rmt_pipeline.protocol.log.entry import AttachPart, drop_range_of
from rmt_pipeline.protocol.merges.size_limits import GIB, MIB, SizeLimits
from rmt_pipeline.protocol.queue.facts import Covered, Facts, Run, Wait
from rmt_pipeline.protocol.queue.rules import is_shut
from rmt_pipeline.protocol.queue.view import QueueView
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
    queue,
    replace,
)


def reason(view: QueueView, number: int, facts: Facts | None = None) -> str | None:
    """Why the entry waits; None when it may run."""
    decision = view.decide(node(number), facts or Facts())
    match decision:
        case Run():
            return None
        case Wait():
            return decision.reason
        case Covered():
            return f"done by {decision.covered_by}"


ONE_OF_EACH = [
    (get("1_1_0"), ""),
    (AttachPart(part("1_1_0"), "0" * 32, create_time=TIME_S, source_replica="r1"), ""),
    (merge("0_0_0 1_1_0"), "0_0_0 1_1_0"),
    (mutate("0_0_0", "0_0_0_5"), "0_0_0"),
    (drop(5), "0_0_0"),
    (drop_part("0_0_0"), "0_0_0"),
    (replace(4, "5_5_0"), "0_0_0"),
    (replace(0, "5_5_0"), "0_0_0"),
    (alter(1), ""),
]


@pytest.mark.parametrize(("entry", "here"), ONE_OF_EACH)
def test_an_entry_alone_in_the_queue_runs(entry, here: str) -> None:
    """P12."""
    assert reason(queue(entry, here=here), 0) is None


@pytest.mark.parametrize(("entry", "here"), ONE_OF_EACH)
def test_an_entry_that_is_claimed_waits_for_its_worker(entry, here: str) -> None:
    """P10."""
    view = queue(entry, here=here, claims={0: ""})
    assert reason(view, 0) == "it is being executed by worker of 0"


@pytest.mark.parametrize(
    "entry", [get("1_1_0"), merge("0_0_0 1_1_0 2_2_0"), mutate("1_1_0", "1_1_0_5")]
)
def test_an_entry_whose_part_or_a_larger_one_is_here_is_done(entry) -> None:
    """P9. A restarted worker finds nothing left to do, and nobody does anything twice."""
    assert reason(queue(entry, here="0_3_9_7"), 0) == "done by all_0_3_9_7"


def test_done_goes_before_every_slot() -> None:
    facts = Facts(fetches_max=0, merges_max=0)
    assert reason(queue(get("1_1_0"), here="1_1_0"), 0, facts) == "done by all_1_1_0"


# --- what holds a whole kind back -------------------------------------------------------------

KINDS = (
    "get",
    "attach",
    "merge",
    "mutate",
    "drop",
    "drop part",
    "replace",
    "attach from",
    "alter",
)
FETCHES, MERGES = set(KINDS[:2]), set(KINDS[2:4])
STOPPED = {Background.REPLICATION_QUEUES: set(KINDS)} | {
    Background.FETCHES: FETCHES,
    Background.MERGES: MERGES,
}


@pytest.mark.parametrize("what", Background)
@pytest.mark.parametrize(("kind", "given"), list(zip(KINDS, ONE_OF_EACH, strict=True)))
def test_what_is_stopped_by_hand_keeps_its_kinds_and_no_others(kind, given, what) -> None:
    entry, here = given
    facts = Facts(stopped=frozenset({what}))
    is_kept = kind in STOPPED.get(what, set())
    assert reason(queue(entry, here=here), 0, facts) == (
        stopped_words(what) if is_kept else None
    )
    assert is_shut(entry, facts) == is_kept


@pytest.mark.parametrize(
    ("facts", "kept"),
    [
        (Facts(), set()),
        (Facts(fetches_busy=7, fetches_max=8, merges_busy=3.5, merges_max=4), set()),
        (Facts(fetches_busy=8, fetches_max=8), FETCHES),
        (Facts(merges_busy=4, merges_max=4), MERGES),
        (Facts(recoveries_busy=6, recoveries_max=6), set()),
    ],
)
def test_a_full_pool_keeps_its_kinds_and_no_others(facts: Facts, kept: set[str]) -> None:
    shut = {
        kind
        for kind, (entry, _) in zip(KINDS, ONE_OF_EACH, strict=True)
        if is_shut(entry, facts)
    }
    assert shut == kept


def test_what_was_lost_has_fewer_slots_for_fetches_than_what_is_new() -> None:
    lost = get("1_1_0", source="")
    full = Facts(fetches_busy=6, recoveries_busy=6, recoveries_max=6)
    words = "all 6 slots for fetches of what was lost are taken"
    assert reason(queue(lost), 0, full) == words
    assert reason(queue(get("1_1_0")), 0, full) is None
    assert reason(queue(lost), 0, Facts(recoveries_busy=5, recoveries_max=6)) is None
    stopped = Facts(stopped=frozenset({Background.FETCHES}))
    assert reason(queue(lost), 0, stopped) == stopped_words(Background.FETCHES)
    none = Facts(fetches_busy=8, fetches_max=8)
    assert reason(queue(lost), 0, none) == "all 8 slots for fetches are taken"


def test_what_runs_takes_its_slots_and_no_others() -> None:
    lost = get("1_1_0", source="")
    small = Facts(sizes={part("0_0_0"): MIB})
    taken = {
        "lost": (Facts().with_running(lost), Facts(fetches_busy=1, recoveries_busy=1)),
        "ttl": (
            Facts().with_running(merge("0_0_0 1_1_0", merge_type=2)),
            Facts(merges_busy=1, ttl_merges_busy=1),
        ),
        "small": (
            small.with_running(mutate("0_0_0", "0_0_0_5")),
            dataclasses.replace(small, merges_busy=1 / 64),
        ),
    }
    expected = [Facts(fetches_busy=1)] * 2 + [Facts(merges_busy=1)] * 2 + [Facts()] * 5
    for kind, (entry, _), facts in zip(KINDS, ONE_OF_EACH, expected, strict=True):
        taken[kind] = (Facts().with_running(entry), facts)
    for kind, (found, facts) in taken.items():
        assert found == facts, kind


# --- rule 1 ----------------------------------------------------------------------------------


def test_the_same_part_is_not_produced_twice() -> None:
    """P10."""
    view = queue(get("1_1_0"), get("1_1_0"), claims={0: "1_1_0"})
    assert reason(view, 1) == "another entry, queue-0000000000, is producing all_1_1_0"


@pytest.mark.parametrize("running", ["0_3_1", "1_1_0_5", "0_1_1"])
def test_overlapping_parts_are_not_produced_at_once(running: str) -> None:
    """P10. Larger, smaller, or the same blocks in another version (spec §16.3 Q5)."""
    view = queue(get("9_9_0"), merge("1_1_0 2_2_0"), claims={0: running})
    assert reason(view, 1) == (
        f"queue-0000000000 is producing all_{running}, which overlaps all_1_2_1"
    )


def test_a_drop_starts_over_work_that_it_covers() -> None:
    """P14. That work will not be able to publish."""
    assert reason(queue(get("1_1_0"), drop(5), claims={0: "1_1_0"}), 1) is None
    assert reason(queue(get("1_1_0"), replace(4, "5_5_0"), claims={0: "1_1_0"}), 1) is None


@pytest.mark.parametrize("entry", [drop(5), replace(4, "9_9_0")])
def test_a_drop_waits_for_work_that_it_does_not_cover(entry) -> None:
    """P14. It has blocks of the range, and others beside them."""
    view = queue(get("20_20_0"), entry, claims={0: "3_6_1"})
    assert "queue-0000000000 is producing all_3_6_1, which overlaps" in (reason(view, 1) or "")


def test_a_replacement_waits_for_work_on_its_new_parts() -> None:
    view = queue(get("9_9_0"), replace(4, "5_5_0"), claims={0: "5_6_1"})
    assert "producing all_5_6_1, which overlaps all_5_5_0" in (reason(view, 1) or "")


# --- rules 2, 3 and 9 ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry", [get("1_1_0"), merge("0_0_0 1_1_0"), mutate("1_1_0", "1_1_0_5")]
)
def test_nothing_is_produced_before_a_drop_of_a_part_that_it_touches(entry) -> None:
    """P14, spec §16.5 D4. Whichever comes first in the queue."""
    words = "which drops part all_1_1_0, must run before"
    assert words in (reason(queue(entry, drop_part("1_1_0"), here="0_0_0"), 0) or "")
    assert words in (reason(queue(drop_part("1_1_0"), entry, here="0_0_0"), 1) or "")
    assert reason(queue(entry, drop_part("7_7_0"), here="0_0_0"), 0) is None


def test_a_replacement_and_a_drop_of_its_new_part_go_in_queue_order() -> None:
    """P12, P14. In the original's rules the two would wait for each other."""
    first = queue(replace(4, "5_5_0"), drop_part("5_5_0"))
    assert reason(first, 0) is None
    assert reason(first, 1) == (
        "queue-0000000000 has to bring all_5_5_0 before it can be dropped"
    )
    second = queue(drop_part("5_5_0"), replace(0, "5_6_1"))
    assert reason(second, 0) is None
    assert "which drops part all_5_5_0, must run before all_5_6_1" in (reason(second, 1) or "")


@pytest.mark.parametrize("dropping", [drop(5), replace(4, "6_6_0")])
def test_nothing_is_fetched_that_a_queued_drop_will_take_away(dropping) -> None:
    """P14."""
    view = queue(get("1_1_0"), merge("1_1_0 2_2_0"), get("6_6_0"), dropping)
    name = "all_0_4_999999999_999999999"
    assert reason(view, 0) == f"all_1_1_0 is going to be dropped by the queued drop of {name}"
    assert reason(view, 1) == f"all_1_2_1 is going to be dropped by the queued drop of {name}"
    assert reason(view, 2) is None
    assert reason(view, 3) is None


# --- rule 4 ----------------------------------------------------------------------------------


def test_fetches_wait_for_their_turn() -> None:
    view = queue(*(entry for entry, _ in ONE_OF_EACH[:3]), here="0_0_0")
    facts = Facts(fetches_busy=8, fetches_max=8)
    assert reason(view, 0, facts) == "all 8 slots for fetches are taken"
    assert reason(view, 1, facts) == "all 8 slots for fetches are taken"
    assert reason(view, 2, facts) is None


# --- rule 5 ----------------------------------------------------------------------------------

MERGE = merge("0_0_0 1_1_0")
MUTATION = mutate("0_0_0", "0_0_0_5")
HERE = "0_0_0 1_1_0"


@pytest.mark.parametrize("entry", [MERGE, MUTATION])
def test_merges_and_mutations_wait_for_their_turn(entry) -> None:
    facts = Facts(merges_busy=4, merges_max=4)
    assert reason(queue(entry, here=HERE), 0, facts) == (
        "all 4 slots for merges and mutations are taken"
    )
    assert reason(queue(get("1_1_0")), 0, facts) is None


@pytest.mark.parametrize("entry", [merge("0_0_0 1_1_0"), mutate("1_1_0", "1_1_0_5")])
def test_a_source_that_is_being_produced_is_waited_for(entry) -> None:
    """P11. A source that is simply missing is not: then the result is fetched."""
    # The worker of 9 fetches 1_1_0; its entry was removed from the queue meanwhile.
    view = queue(entry, here="0_0_0", claims={9: "1_1_0"})
    words = "queue-0000000009 is producing all_1_1_0, which overlaps all_"
    assert (reason(view, 0) or "").startswith(words)
    assert reason(queue(entry), 0) is None


def test_a_merge_leaves_the_field_to_the_replica_that_was_chosen_for_it() -> None:
    facts = Facts(merges_elsewhere={part("0_1_1"): "r2"})
    assert reason(queue(MERGE, here=HERE), 0, facts) == (
        "replica r2 was chosen to merge all_0_1_1; waiting to fetch it"
    )


def test_ttl_merges_have_their_own_slots() -> None:
    ttl = merge("0_0_0 1_1_0", merge_type=2)
    busy = Facts(ttl_merges_busy=2, ttl_merges_max=2)
    assert reason(queue(ttl, here=HERE), 0, busy) == "all 2 slots for TTL merges are taken"
    assert reason(queue(MERGE, here=HERE), 0, busy) is None
    assert reason(queue(ttl, here=HERE), 0) is None


def test_stopped_ttl_merges_wait_and_others_do_not() -> None:
    stopped = Facts(stopped=frozenset({Background.TTL_MERGES}))
    ttl = merge("0_0_0 1_1_0", merge_type=2)
    assert reason(queue(ttl, here=HERE), 0, stopped) == stopped_words(Background.TTL_MERGES)
    assert reason(queue(MERGE, here=HERE), 0, stopped) is None


def test_large_merges_wait_while_the_pool_is_busy() -> None:
    """P19."""
    sizes = {part("0_0_0"): GIB, part("1_1_0"): GIB}
    busy = Facts(merges_busy=31, merges_max=32, sizes=sizes)
    words = reason(queue(MERGE, here=HERE), 0, busy) or ""
    assert words.startswith("its sources have 2147483648 bytes, and with 31 of 32 slots taken")
    small = Facts(merges_busy=31, merges_max=32, sizes={part("0_0_0"): MIB})
    assert reason(queue(MERGE, here=HERE), 0, small) is None
    one = Facts(merges_busy=31, merges_max=32, sizes={part("0_0_0"): GIB})
    words = reason(queue(MERGE, here=HERE), 0, one) or ""
    assert words.startswith("its sources have 1073741824 bytes"), (
        "one that is not here has none"
    )


def test_an_idle_pool_runs_merges_of_any_size() -> None:
    """P19. OPTIMIZE FINAL may have asked for one."""
    facts = Facts(sizes={part("0_0_0"): 1000 * GIB})
    assert reason(queue(MERGE, here=HERE), 0, facts) is None


def test_a_mutation_needs_free_slots_and_disk() -> None:
    """P19."""
    busy = Facts(merges_busy=13, merges_max=32)
    assert "at most 0 may start" in (reason(queue(MUTATION, here=HERE), 0, busy) or "")
    full = Facts(size_limits=SizeLimits(disk_free_bytes=100), sizes={part("0_0_0"): 91})
    assert "at most 90 may start" in (reason(queue(MUTATION, here=HERE), 0, full) or "")
    fits = dataclasses.replace(full, sizes={part("0_0_0"): 90})
    assert reason(queue(MUTATION, here=HERE), 0, fits) is None
    nothing = Facts(size_limits=SizeLimits(disk_free_bytes=0))
    assert "at most 0 may start" in (reason(queue(MUTATION, here=HERE), 0, nothing) or "")


def test_mutations_of_small_parts_share_a_slot_and_others_do_not() -> None:
    """P19."""
    entries = [mutate(f"{n}_{n}_0", f"{n}_{n}_0_700") for n in range(600)]
    here = " ".join(f"{n}_{n}_0" for n in range(600))
    small = {part(f"{n}_{n}_0"): MIB for n in range(600)}
    view = queue(*entries, here=here)
    assert len(view.plan(Facts(sizes=small), 600).run) == 600
    large = dict.fromkeys(small, MIB + 1)
    assert len(view.plan(Facts(sizes=large), 600).run) == 13, "20 of 32 slots are to be free"
    assert len(view.plan(Facts(), 600).run) == 13, "parts whose size is not known are not small"


# --- rules 6 and 7 ---------------------------------------------------------------------------


def test_alters_go_one_after_another() -> None:
    """P17."""
    view = queue(alter(2), alter(3))
    assert reason(view, 0) is None
    assert reason(view, 1) == (
        "queue-0000000000, which alters metadata to version 2, comes first"
    )


def test_an_alter_waits_for_the_data_of_the_one_before() -> None:
    """P17, spec §16.8 U8."""
    facts = Facts(unfinished_alters=frozenset({2, 9}))
    assert reason(queue(alter(3)), 0, facts) == (
        "the mutation of ALTER 2 is not finished on this replica"
    )
    assert reason(queue(alter(2)), 0, facts) is None


def test_an_alter_of_data_waits_for_mutations_that_were_decided_before_it() -> None:
    """P34: their commands name the columns as they were."""
    before = mutate("0_0_0", "0_0_0_5")
    view = queue(before, alter(3, have_mutation=True), here="0_0_0")
    assert reason(view, 1) == (
        "queue-0000000000, which mutates all_0_0_0, was decided for the columns before"
    )
    assert reason(queue(before, alter(3), here="0_0_0"), 1) is None
    assert reason(queue(alter(3, have_mutation=True), before, here="0_0_0"), 0) is None
    others = [get("7_7_0"), merge("0_0_0 1_1_0"), drop_part("8_8_0"), alter(2)]
    assert "comes first" in (reason(queue(*others, alter(3, have_mutation=True)), 4) or "")
    assert reason(queue(*others[:3], alter(3, have_mutation=True)), 3) is None
    mine = mutate("0_0_0", "0_0_0_5", 2)
    assert reason(queue(mine, alter(3, have_mutation=True), here="0_0_0"), 1) is None


def test_an_alters_mutation_waits_for_its_metadata() -> None:
    """P17."""
    view = queue(alter(2), mutate("0_0_0", "0_0_0_5", 2), MUTATION, here="0_0_0")
    assert reason(view, 1) == (
        "queue-0000000000, which alters metadata to version 2, comes first"
    )
    assert reason(view, 2) is None
    assert reason(queue(alter(3), mutate("0_0_0", "0_0_0_5", 2), here="0_0_0"), 1) is None


# --- rule 8 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [drop(9), replace(8, "9_9_0"), drop_part("3_3_0")])
def test_drops_that_overlap_run_one_by_one(second) -> None:
    """P14."""
    view = queue(drop(5), second, claims={0: "0_4_999999999_999999999"})
    assert "all_0_4_999999999_999999999, which overlaps" in (reason(view, 1) or "")


@pytest.mark.parametrize("second", [drop(9), replace(8, "9_9_0"), drop_part("3_3_0")])
def test_what_an_earlier_entry_detaches_is_still_there_when_it_comes(second) -> None:
    """Else nothing of it would be set aside."""
    detaching = dataclasses.replace(drop(5), detach=True)
    assert reason(queue(detaching, second, here="3_3_0"), 1) == (
        "queue-0000000000, which detaches all_0_4_999999999_999999999, must run first"
    )
    assert reason(queue(detaching, second, here="3_3_0"), 0) is None
    later = queue(second, detaching, here="3_3_0")
    assert reason(later, 0) is None


def test_drops_of_other_blocks_run_at_once() -> None:
    view = queue(
        drop(5), drop(5, "b"), drop_part("7_7_0"), claims={0: "0_4_999999999_999999999"}
    )
    assert reason(view, 1) is None
    assert reason(view, 2) is None


# --- rule 11 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("claims", [{}, {0: ""}])
@pytest.mark.parametrize("dropping", [drop(5), drop_part("3_3_0"), replace(4, "5_5_0")])
@pytest.mark.parametrize(
    "entry",
    [
        get("7_7_0"),
        get("7_7_0", source=""),
        AttachPart(part("7_7_0"), "0" * 32, create_time=TIME_S, source_replica="r1"),
        merge("6_6_0 7_7_0"),
        mutate("7_7_0", "7_7_0_9"),
        replace(0, "7_7_0"),
    ],
)
def test_what_comes_after_a_drop_waits_for_it(entry, dropping, claims) -> None:
    """P14. Also while the drop is under way."""
    view = queue(dropping, entry, here="3_3_0", claims=claims)
    words = f"queue-0000000000, which drops {drop_range_of(dropping)}, must run first"
    assert reason(view, 1) == words
    assert reason(queue(entry, dropping, here="3_3_0"), 0) is None
    elsewhere = queue(drop(5, "b"), drop_part("c_3_3_0"), entry, here="3_3_0")
    assert reason(elsewhere, 2) is None


def test_an_empty_part_does_not_wait_for_the_replacement_that_lacks_it() -> None:
    """P12. No replica has the part any more."""
    view = queue(replace(4, "5_5_0"), get("5_5_0", source=""), here="3_3_0")
    assert "must run first" in (reason(view, 1) or "")
    assert reason(view, 1, Facts(has_rows=False)) is None


def test_a_replacement_does_not_wait_for_drops_of_what_it_takes_away() -> None:
    """P12. Of the first one's new parts no replica may have any left: the second took them."""
    view = queue(drop(2), replace(4, "5_5_0"), replace(6, "7_7_0"), here="3_3_0")
    assert [reason(view, number) for number in range(3)] == [None] * 3
