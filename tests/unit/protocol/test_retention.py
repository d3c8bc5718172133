"""What may be forgotten (spec §10)."""

import pytest

from rmt_pipeline.protocol.mutations import FinishedMutations
from rmt_pipeline.protocol.retention import (
    LogTrim,
    OldPart,
    ReplicaLogFacts,
    Written,
    finished_mutations,
    log_trim,
    outdated_ids,
    outdated_parts,
    outdated_records,
)
from tests.support.protocol import part, parts

ENTRIES = range(100)


def replica(
    name: str, pointer: int, *, active: bool = True, lost: bool | None = False
) -> ReplicaLogFacts:
    return ReplicaLogFacts(name, active, lost, pointer, host_version=7)


def trim(*replicas: ReplicaLogFacts, keep_min: int = 10, keep_max: int = 50, **more) -> LogTrim:
    return log_trim(list(ENTRIES), replicas, keep_min=keep_min, keep_max=keep_max, **more)


def test_entries_that_everybody_pulled_go_but_for_the_last_ones() -> None:
    """P21."""
    found = trim(replica("r1", 100), replica("r2", 100))
    assert found.remove == tuple(range(90))
    assert (found.mark_lost, found.check_hosts) == ((), ())
    assert found.kept_because == ("the last 10 entries are kept in any case",)


def test_an_active_replica_pins_the_log_however_slow_it_is() -> None:
    """P21, C2."""
    found = trim(replica("r1", 100), replica("r2", 3))
    assert found.remove == (0, 1, 2)
    assert found.kept_because[1] == "r2 has still to pull from entry 3 on"


def test_a_short_log_is_left_alone() -> None:
    """P21. The factor keeps replicas from cleaning at the same moment."""
    assert trim(replica("r1", 100), keep_min=101).remove == ()
    assert trim(replica("r1", 100), keep_min=95, hysteresis=1.1).remove == ()
    assert trim(replica("r1", 100), keep_min=50, hysteresis=2.0).remove == tuple(range(50))
    assert trim(replica("r1", 100), keep_min=100).remove == ()
    assert log_trim([], [replica("r1", 0)], keep_min=1, keep_max=9).remove == ()
    assert log_trim([], [replica("r1", 0)], keep_min=0, keep_max=9).remove == ()


def test_who_is_behind_most_is_named_and_who_has_pulled_all_is_not() -> None:
    """P21."""
    late = trim(replica("r1", 3), replica("r2", 5), replica("r3", 3), keep_min=0)
    assert late.kept_because[1:] == (
        "r1 has still to pull from entry 3 on",
        "r3 has still to pull from entry 3 on",
    )
    at_the_last = trim(replica("r1", 99), keep_min=0)
    assert at_the_last.kept_because[1:] == ("r1 has still to pull from entry 99 on",)
    assert trim(replica("r1", 100), keep_min=0).kept_because[1:] == ()


@pytest.mark.parametrize("keep_max", [0, 100, 101, 1000])
def test_a_log_within_its_limit_makes_nobody_lost(keep_max: int) -> None:
    """P21. 0 is no limit."""
    found = trim(replica("r1", 100), replica("r2", 1, active=False), keep_max=keep_max)
    assert (found.remove, found.mark_lost) == ((0,), ())


def test_what_lost_replicas_alone_would_need_goes() -> None:
    """P21. Each of them clones another one first."""
    lost = replica("r1", 0, active=False, lost=True)
    assert trim(lost).remove == tuple(range(90))
    assert trim(lost, keep_min=0).remove == tuple(range(100))


def test_an_inactive_replica_pins_the_log_until_it_is_far_behind() -> None:
    """P21, C1."""
    fresh = trim(replica("r1", 100), replica("r2", 50, active=False))
    assert fresh.remove == tuple(range(50))
    assert fresh.mark_lost == ()
    stale = trim(replica("r1", 100), replica("r2", 49, active=False))
    assert stale.remove == tuple(range(90))
    assert stale.mark_lost == ("r2",)
    assert stale.check_hosts == (("r2", 7),)


def test_a_lost_replica_pins_nothing_but_must_stay_lost() -> None:
    """P21. The removal asserts that its host did not change."""
    found = trim(replica("r1", 100), replica("r2", 0, active=False, lost=True))
    assert found.remove == tuple(range(90))
    assert found.mark_lost == ()
    assert found.check_hosts == (("r2", 7),)


def test_very_old_replicas_without_the_mark_pin_the_log() -> None:
    """P21."""
    found = trim(replica("r1", 100), replica("r2", 4, active=False, lost=None))
    assert found.remove == (0, 1, 2, 3)


def test_nobody_is_marked_when_everybody_would_be() -> None:
    """P21, C1."""
    found = trim(
        replica("r1", 1, active=False),
        replica("r2", 2, active=False),
        replica("r3", 0, active=False, lost=True),
    )
    assert found.remove == found.mark_lost == ()
    assert found.kept_because == ("every replica that is not lost would become lost: r1, r2",)


def test_a_recovering_replica_counts_with_its_pointer_of_now() -> None:
    """P21, C3. It moved backwards, to that of the replica that is cloned."""
    found = trim(
        replica("r1", 100),
        replica("r2", 90, lost=True),
        recovering_pointers={"r2": 20},
    )
    assert found.remove == tuple(range(20))
    assert found.check_hosts == (("r2", 7),)
    unread = trim(replica("r1", 100), replica("r2", 90, lost=True))
    assert unread.remove == ()


def test_a_recovering_replica_may_be_cloning_a_candidate() -> None:
    """P21. It will copy the candidate's pointer."""
    found = trim(
        replica("r1", 100),
        replica("r2", 90, lost=True),
        replica("r3", 5, active=False),
        recovering_pointers={"r2": 90},
    )
    assert found.remove == tuple(range(5))
    assert found.mark_lost == ("r3",)


def test_nothing_is_marked_when_nothing_is_removed() -> None:
    """P21."""
    found = trim(replica("r1", 0), replica("r2", 3, active=False))
    assert (found.remove, found.mark_lost) == ((), ())


def test_ids_outside_either_window_are_forgotten() -> None:
    """P22, spec §16.2 I6."""
    created = {"a": Written(1, 1_000), "b": Written(2, 2_000), "c": Written(3, 3_000)}
    by_count = outdated_ids(created, window=2, window_seconds=100, now_s=9)
    assert (by_count.remove, by_count.kept) == (("a",), 2)
    by_age = outdated_ids(created, window=100, window_seconds=1, now_s=9)
    assert (by_age.remove, by_age.kept) == (("a",), 2)
    none = outdated_ids(created, window=0, window_seconds=100, now_s=9)
    assert none.remove == ("a", "b", "c")


def test_the_newest_id_never_grows_too_old() -> None:
    """P22. No local clock decides."""
    assert outdated_ids({"a": Written(1, 1)}, window=5, window_seconds=0, now_s=9).remove == ()
    assert outdated_ids({}, window=5, window_seconds=0, now_s=9).kept == 0


def test_ids_of_one_moment_go_by_name() -> None:
    """P22. Two leaders that clean at once choose the same ones."""
    at_once = dict.fromkeys("abc", Written(7, 5))
    assert outdated_ids(at_once, window=1, window_seconds=9, now_s=9).remove == ("a", "b")


def ids_at(*seconds: int) -> dict[str, Written]:
    """Ids a, b, c, … in the order of their creation, at these times of the leaders' clocks."""
    return {
        name: Written(zxid, 1000 * each)
        for name, (zxid, each) in zip("abcde", enumerate(seconds, 1), strict=False)
    }


def test_a_leader_whose_clock_is_behind_creates_the_newest_ids() -> None:
    """P22. By the clock these would be the oldest: a retry just after the leader was lost, when
    answers are, would not be known.
    """
    found = outdated_ids(ids_at(100, 101, 40, 41), window=2, window_seconds=1000, now_s=102)
    assert (found.remove, found.kept) == (("a", "b"), 2)


NEVER_S = 10_000_000


@pytest.mark.parametrize(
    ("seconds", "now_s", "removed"),
    [
        ((100, 101, 9_000_000, 102, 103), 104, ""),  # for a moment it was far ahead
        ((100, 101, 9_000_000), 102, ""),  # it is so still
        ((100, 101, 102, 103), NEVER_S, ""),  # ours is
        ((100, 101, 9_000_000, 102, 103), NEVER_S, "ab"),  # both
        ((100, 101, 40, 102, 103), 104, ""),  # or behind
        ((100, 40, 41, 42, 149), 150, ""),
        ((100, 40, 41, 42, 151), 152, "abcd"),
        ((100, 40, 41, 42, 151), 149, ""),  # ours is behind
    ],
)
def test_no_id_is_old_because_a_clock_was_wrong(
    seconds: tuple[int, ...], now_s: int, removed: str
) -> None:
    """P22. An id that a clock far ahead has dated is not the newest for ever after, and makes none
    old that came before.
    """
    found = outdated_ids(ids_at(*seconds), window=9, window_seconds=50, now_s=now_s)
    assert "".join(found.remove) == removed


def at(numbers: dict[str, int]) -> dict[str, Written]:
    return {name: Written(number, number) for name, number in numbers.items()}


RECORDS = {
    "in both windows": ({"a": 1, "b": 2}, {"x": 1}, (), 2),
    "too many, and no id is left that is as old": (
        {"a": 1, "b": 5, "c": 6},
        {"x": 2},
        ("a",),
        2,
    ),
    "too many, and an id is as old": ({"a": 2, "b": 5, "c": 6}, {"x": 2}, (), 3),
    "too many, and the id that is as old is outdated itself": (
        {"a": 1, "b": 5, "c": 6},
        {"x": 1, "y": 7, "z": 8},
        ("a",),
        2,
    ),
    "no id is left": ({"a": 1, "b": 5, "c": 6, "d": 7}, {}, ("a", "b"), 2),
}


@pytest.mark.parametrize("case", RECORDS)
def test_the_record_of_an_insert_is_forgotten_after_every_id_that_is_as_old(case: str) -> None:
    """P22, I6. A window of two."""
    written, ids, removed, kept = RECORDS[case]
    found = outdated_records(at(written), at(ids), window=2, window_seconds=100, now_s=9)
    assert (found.remove, found.kept) == (removed, kept)


def test_a_covered_part_stays_for_a_while_and_while_it_is_read() -> None:
    """P23, C9."""
    found = outdated_parts(
        [
            OldPart(part("0_0_0"), part("0_1_1"), outdated_s=481),
            OldPart(part("1_1_0"), part("0_1_1"), outdated_s=480),
            OldPart(part("2_2_0"), part("2_3_1"), outdated_s=900, readers=2),
            OldPart(part("7_7_0"), None, outdated_s=1),
        ],
        lifetime_s=480,
    )
    assert found.remove == tuple(parts("0_0_0 7_7_0"))
    assert found.kept == (
        (part("2_2_0"), "2 readers have it pinned"),
        (part("1_1_0"), "covered by all_0_1_1 for 480 s, and stays for 480 s"),
    )


def test_only_so_many_parts_are_removed_at_once() -> None:
    """P23."""
    old = [
        OldPart(one, part("0_9_1"), 500 + n) for n, one in enumerate(parts("0_0_0 1_1_0 2_2_0"))
    ]
    found = outdated_parts(old, lifetime_s=1, limit=2)
    assert found.remove == tuple(parts("2_2_0 1_1_0"))
    assert found.kept == (
        (part("0_0_0"), "2 parts are removed at once, and older ones come first"),
    )
    pinned = OldPart(part("3_3_0"), part("0_9_1"), 2, readers=1)
    again = outdated_parts([*old, pinned], lifetime_s=1, limit=2)
    assert again.kept[1:] == ((part("3_3_0"), "1 readers have it pinned"),)


def test_mutations_that_every_replica_finished_go() -> None:
    """P23, U10. An inactive replica counts like any other."""
    ids = [f"{number:010d}" for number in range(6)]
    finished = {"r1": up_to(ids[5]), "r2": up_to(ids[3])}
    assert finished_mutations(ids, finished, keep=2) == tuple(ids[:2])


def test_one_that_nobody_finishes_keeps_no_others_from_going() -> None:
    """P23. Of other partitions, finished beyond the pointer on every replica."""
    ids = [f"{number:010d}" for number in range(5)]
    late = FinishedMutations(ids[0], frozenset(ids[2:]))
    found = finished_mutations(ids, {"r1": late, "r2": up_to(ids[4])}, keep=1)
    assert found == (ids[0], ids[2], ids[3])


def up_to(pointer: str) -> FinishedMutations:
    return FinishedMutations(pointer)


@pytest.mark.parametrize(
    ("pointers", "keep"),
    [
        ({"r1": "0000000005", "r2": ""}, 1),
        ({}, 1),
        ({"r1": "0000000005"}, 0),
    ],
)
def test_mutations_stay_when_it_is_not_certain(pointers, keep: int) -> None:
    """P23. Without the doubt the first of them would go."""
    finished = {name: up_to(pointer) for name, pointer in pointers.items()}
    assert finished_mutations(["0000000000", "0000000001"], finished, keep=keep) == ()


def test_mutations_within_the_number_to_keep_stay() -> None:
    finished = {"r1": up_to("0000000000")}
    assert finished_mutations(["0000000000"], finished, keep=5) == ()
