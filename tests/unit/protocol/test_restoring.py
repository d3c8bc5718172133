"""Which parts of several disks a table is made of: nothing twice, nothing missing."""

import hashlib
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName, mutated
from rmt_pipeline.protocol.restoring import InsertTries, dead_tries, unite


def header(of: str) -> PartHeader:
    hashed = hashlib.sha256(of.encode()).digest()[:16]
    return PartHeader(b"c" * 16, 1, hashed, hashed, hashed)


def held(**replicas: str | Mapping[str, str]) -> dict[str, dict[PartName, PartHeader]]:
    """By replica: names of parts whose rows are as their name says, or names with what is in."""
    return {
        replica: {
            PartName.parse(name): header(of)
            for name, of in (
                parts.items()
                if isinstance(parts, Mapping)
                else ((name, name) for name in parts.split())
            )
        }
        for replica, parts in replicas.items()
    }


def names(parts) -> list[str]:
    return sorted(map(str, parts))


def test_what_one_has_merged_covers_the_pieces_of_the_other_and_what_one_alone_has_stays():
    united = unite(
        held(r1="all_0_2_1 all_5_5_0", r2="all_0_0_0 all_1_1_0 all_2_2_0 all_3_3_0"), {}
    )
    assert names(united.parts) == ["all_0_2_1", "all_3_3_0", "all_5_5_0"]
    assert united.parts[PartName.parse("all_3_3_0")] == "r2"
    assert united.given_up == ()


def test_of_unequal_parts_of_one_name_those_that_most_have_stay():
    united = unite(
        held(r1={"all_0_1_1": "a"}, r2={"all_0_1_1": "b"}, r3={"all_0_1_1": "b"}), {}
    )
    assert united.parts == {PartName.parse("all_0_1_1"): "r2"}
    [gone] = united.given_up
    assert (gone.replica, str(gone.part)) == ("r1", "all_0_1_1")
    assert "their rows differ" in gone.reason


def test_a_block_that_nobody_has_seen_promised_gives_way_to_the_same_one_that_stays():
    later = {"all_1_1_0": "a", "all_1_2_1": "b", "all_3_3_0": "c"}
    found = held(r1={"all_0_0_0": "a", "all_4_4_0": "c", "all_5_5_0": "d"}, r2=later)
    unseen = [PartName("all", block, block, 0) for block in (0, 3, 5)]
    united = unite(found, {}, unseen)
    assert names(united.parts) == ["all_1_2_1", "all_4_4_0", "all_5_5_0"]
    gone = [(one.replica, str(one.part)) for one in united.given_up]
    assert gone == [("r1", "all_0_0_0"), ("r2", "all_3_3_0")]
    fetched = unite({**found, "r3": found["r1"]}, {}, [*unseen, *unseen])
    assert names(fetched.parts) == ["all_0_0_0", "all_1_2_1", "all_4_4_0", "all_5_5_0"]


def test_of_as_many_it_is_the_first_replica_whoever_asks():
    one = held(r1={"all_0_1_1": "a"}, r2={"all_0_1_1": "b"})
    other = dict(reversed(one.items()))
    assert unite(one, {}) == unite(other, {})
    assert list(unite(one, {}).parts.values()) == ["r1"]


def test_a_part_that_another_replica_dropped_does_not_come_back():
    dropped = {"r1": [PartName.parse("all_0_3_999999999_999999999")]}
    united = unite(held(r1="all_4_4_0", r2="all_0_2_1 all_4_4_0"), dropped)
    assert names(united.parts) == ["all_4_4_0"]
    assert [(one.replica, str(one.part)) for one in united.given_up] == [("r2", "all_0_2_1")]


def test_what_no_history_explains_is_given_up_by_name_and_the_larger_one_stays():
    united = unite(held(r1="all_0_4_2", r2="all_3_5_1"), {})
    assert names(united.parts) == ["all_0_4_2"]
    [gone] = united.given_up
    assert "overlaps all_0_4_2" in gone.reason


BLOCKS = 8


@st.composite
def disks(draw) -> dict[str, list[PartName]]:
    """Replicas of one log of merges, each of which has carried out another part of it, and has
    received some of the blocks.
    """
    present = draw(st.sets(st.integers(0, BLOCKS - 1), min_size=1))
    history = [[PartName("all", block, block, 0)] for block in sorted(present)]
    steps = [[group[0] for group in history]]
    while len(steps[-1]) > 1 and draw(st.booleans()):
        parts = steps[-1]
        first = draw(st.integers(0, len(parts) - 2))
        last = draw(st.integers(first + 1, len(parts) - 1))
        some = parts[first : last + 1]
        level = max(part.level for part in some) + 1
        merged = PartName("all", some[0].block_min, some[-1].block_max, level)
        steps.append([*parts[:first], merged, *parts[last + 1 :]])
    found = {}
    for replica in ("r1", "r2", "r3"):
        step = draw(st.integers(0, len(steps) - 1))
        found[replica] = [part for part in steps[step] if part.level or draw(st.booleans())]
    return found


def blocks_in(part: PartName, present: set[int]) -> set[int]:
    return set(range(part.block_min, part.block_max + 1)) & present


@given(disks())
def test_every_block_that_any_disk_has_is_in_exactly_one_part(found):
    present = {
        block
        for parts in found.values()
        for part in parts
        for block in range(part.block_min, part.block_max + 1)
    }
    united = unite(
        {name: {part: header(str(part)) for part in parts} for name, parts in found.items()}, {}
    )
    assert united.given_up == ()
    covered = [block for part in united.parts for block in blocks_in(part, present)]
    assert sorted(covered) == sorted(present)


DEAD_TRIES = {
    "one is announced": ("1=x@r1 5=x", "1>5"),
    "one is announced, and its number is smaller": ("1=x 5=x@r1", "5>1"),
    "nobody has announced either, and they are on two disks": ("1=x@r2 5=x@r1", "1>5"),
    "one try may have equal blocks": ("1=x@r1 5=x@r1", ""),
    "one try has two, and another one was announced": ("1=x@r1 3=x 5=x@r1", "1>3 5>3"),
    "what was announced is no dead try": ("1=x 5=x", ""),
    "of two tries on one disk the first one in their order stays": ("1=x@r1+2 5=x@r1+1", "1>5"),
    "the rows are others": ("1=x@r1 5=y", ""),
}


@pytest.mark.parametrize("case", DEAD_TRIES)
def test_which_blocks_of_an_insert_with_a_token_a_dead_try_has_left(case: str) -> None:
    """A block is written `number=content@disk`, without the disk when it was announced; with
    `+place` if there are several tries on that disk.
    """
    given, expected = DEAD_TRIES[case]
    contents, unseen = {}, {}
    for text in given.split():
        written = re.fullmatch(r"(\d)=(\w)(?:@(\w+)(?:\+(\d))?)?", text)
        number, content, disk, place = written.groups()
        contents[block(int(number))] = content
        if disk:
            unseen[block(int(number))] = disk, int(place or 0)
    found = dead_tries(contents, unseen)
    assert (
        " ".join(f"{one.block_min}>{other.block_min}" for one, other in found.items())
        == expected
    )


def test_equal_blocks_of_two_partitions_are_two() -> None:
    here, there = PartName("p", 1, 1, 0), PartName("q", 2, 2, 0)
    contents = {here: "x", there: "x"}
    assert dead_tries(contents, {here: ("r1", 0)}) == {}
    disks = {"r1": {here: header("x")}, "r2": {there: header("x")}}
    assert unite(disks, {}, [here]).given_up == ()
    disks["r2"][PartName("p", 3, 3, 0)] = header("x")
    assert [one.part for one in unite(disks, {}, [here]).given_up] == [here]


def test_what_is_dropped_is_no_reason_to_give_up_what_was_inserted_again() -> None:
    """Another disk knows the drop. A third copy of the rows is a repeat of what stays."""
    before, again, late = block(0), block(4), block(6)
    disks = {"r1": {}, "r2": {before: header("x"), again: header("x")}, "r3": {}}
    dropped = {"r3": [block(0)]}
    of_token = InsertTries([before, again, late], {again: ("r2", 0), late: ("r3", 0)})
    for more in (([again, late], ()), ((), [of_token])):
        assert sorted(unite(disks, dropped, *more).parts) == [again]
        three = unite({**disks, "r3": {late: header("x")}}, dropped, *more)
        assert len(three.parts) == 1
        assert sorted(unite(disks, {}, *more).parts) == [before]


DEAD = {
    "the block is on one disk": ("r1: 1 | r2: 5", "1>5", "5"),
    "it was fetched: somebody has seen it promised": ("r1: 1 | r2: 1 5", "1>5", "1 5"),
    "a merge has taken it up": ("r1: 1 | r2: 0-2 5", "1>5", "0-2 5"),
    "the block that would stay is on no disk": ("r1: 1", "1>5", "1"),
    "a merge has taken up the one that stays": ("r1: 1 | r2: 5 5-6", "1>5", "5-6"),
    "it is not in the merged part that covers its number": (
        "r1: 3 | r2: 1-5 7",
        "3>7",
        "1-5 7",
    ),
}


@pytest.mark.parametrize("case", DEAD)
def test_what_a_dead_try_has_left_goes_when_the_same_block_stays(case: str) -> None:
    disks, dead, expected = DEAD[case]
    found = {}
    for disk in disks.split(" | "):
        replica, _, some = disk.partition(": ")
        parts = [block(*map(int, text.split("-"))) for text in some.split()]
        found[replica] = {
            part: header("x" if part.blocks_count == 1 else str(part)) for part in parts
        }
    gives_way, other = (block(int(one)) for one in dead.split(">"))
    tries = InsertTries([gives_way, other], {gives_way: ("r1", 0)})
    united = unite(found, {}, inserts=[tries])
    stays = sorted(united.parts)
    assert stays == [block(*map(int, text.split("-"))) for text in expected.split()]
    gone = [one.part for one in united.given_up]
    assert gone == ([] if any(one.contains(gives_way) for one in stays) else [gives_way])


def test_what_was_fetched_stays_although_another_block_of_its_try_goes() -> None:
    """r2 has seen the first block promised."""
    found = {
        "r1": {block(1): header("x"), block(3): header("y")},
        "r2": {block(1): header("x"), block(5): header("x"), block(7): header("y")},
    }
    tried = {block(1): ("r1", 0), block(3): ("r1", 0)}
    tries = InsertTries([block(one) for one in (1, 3, 5, 7)], tried)
    united = unite(found, {}, inserts=[tries])
    assert sorted(united.parts) == [block(1), block(5), block(7)]
    assert [one.part for one in united.given_up] == [block(3)]


def test_the_block_that_would_stay_has_to_be_one_that_does() -> None:
    """It overlaps another part, and is given up itself."""
    stays = mutated(block(5), 9)
    found = {"r1": {block(1): header("x")}, "r2": {stays: header("x")}}
    found["r3"] = {block(4, 6): header("larger")}
    of_token = InsertTries([block(1), stays], {block(1): ("r1", 0)})
    for more in (([block(1)], ()), ((), [of_token])):
        united = unite(found, {}, *more)
        assert sorted(united.parts) == [block(1), block(4, 6)]
        assert [one.part for one in united.given_up] == [stays]


def test_an_unseen_block_is_compared_with_blocks_alone_and_only_if_it_stays_itself() -> None:
    """A merged part may have the rows of one of its blocks, when the others were empty."""
    merged = {"all_0_1_1": "x", "all_3_3_0": "x"}
    united = unite(held(r1=merged), {}, [block(3)])
    assert (names(united.parts), united.given_up) == (["all_0_1_1", "all_3_3_0"], ())
    covered = {"all_0_0_0": "x", "all_0_1_1": "y"}
    united = unite(held(r1=covered, r2={"all_3_3_0": "x"}), {}, [block(0)])
    assert (names(united.parts), united.given_up) == (["all_0_1_1", "all_3_3_0"], ())


def block(first: int, last: int | None = None) -> PartName:
    return PartName("all", first, first if last is None else last, int(last is not None))
