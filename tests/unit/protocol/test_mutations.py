"""Which part needs which mutation, and when one is done (spec §7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.mutations import Desired, FinishedMutations, Mutations, Unmutated
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.refusal import Refusal
from tests.support.protocol import (
    TIME_S,
    drop,
    get,
    merge,
    mutate,
    part,
    part_set,
    parts,
    replace,
)


def mutation(alter_version: int = -1, **numbers: int) -> MutationEntry:
    found = tuple(sorted(numbers.items()))
    return MutationEntry(TIME_S, "r1", found, "DELETE WHERE x", alter_version)


def table() -> Mutations:
    return Mutations(
        {
            "0000000002": mutation(all=20),
            "0000000000": mutation(all=5, b=3),
            "0000000001": mutation(7, all=10),
        }
    )


def test_mutations_are_ordered_in_every_partition() -> None:
    """P29."""
    assert list(table().entries) == ["0000000000", "0000000001", "0000000002"]
    assert table().versions() == {"all": [5, 10, 20], "b": [3]}


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("4_4_0", "0000000000"),
        ("5_5_0", "0000000001"),
        ("4_4_0_10", "0000000002"),
        ("4_4_0_20", None),
        ("30_30_0", None),
        ("b_2_2_0", "0000000000"),
        ("c_2_2_0", None),
    ],
)
def test_the_first_mutation_that_a_part_lacks(name: str, first: str | None) -> None:
    """P29."""
    assert table().next_of(part(name)) == first


def test_the_mutations_of_one_step_are_those_in_between() -> None:
    """P29."""
    assert [found for found, _ in table().between(part("4_4_0_5"), 20)] == [
        "0000000001",
        "0000000002",
    ]
    assert table().between(part("c_0_0_0"), 20) == []


def test_all_pending_mutations_go_into_one_entry() -> None:
    """P29."""
    held = part_set("4_4_0 30_30_0")
    assert table().desired(part("4_4_0"), held) == Desired(20, -1)
    assert table().desired(part("4_4_0"), held, in_one_entry_max=1) == Desired(5, -1)


def test_an_unfinished_alters_mutation_ends_the_batch() -> None:
    """P29, P17."""
    unfinished = frozenset({"0000000001"})
    assert table().desired(
        part("4_4_0"), part_set("4_4_0"), unfinished_alters=unfinished
    ) == Desired(10, 7)
    other = frozenset({"0000000000"})
    assert table().desired(
        part("4_4_0"), part_set("4_4_0"), unfinished_alters=other
    ) == Desired(20, -1)


def test_a_part_that_goes_elsewhere_or_needs_nothing_is_left_alone() -> None:
    """P29, P15."""
    assert table().desired(part("4_4_0"), part_set("3_4_1")) == Refusal(
        "all_4_4_0 is going to become part of all_3_4_1"
    )
    assert table().desired(part("30_30_0"), part_set("30_30_0")) == Refusal(
        "all_30_30_0 has every mutation of its partition"
    )


def test_parts_here_and_parts_to_come_count() -> None:
    """P30. What is promised in a mutated form does not; a fake range never does."""
    here = part_set("0_0_0 6_6_0 b_9_9_0 c_0_0_0 1_1_0")
    queued = [get("2_2_0"), mutate("3_3_0", "3_3_0_5"), merge("b_0_0_0 b_1_1_0")]
    more = [replace(4, "8_8_0"), drop(3), replace(0, "b_2_2_0")]
    left = Unmutated(here, [*queued, *more]).before(table().entries["0000000000"])
    assert left == parts("0_0_0 1_1_0 2_2_0 b_0_1_1 b_2_2_0")


def test_a_block_in_flight_before_the_mutation_holds_it_back() -> None:
    """P30, U2."""
    assert table().blocked_by("0000000000", {"all": frozenset({4, 7})}) == ("all", 4)
    assert table().blocked_by("0000000000", {"b": frozenset({2})}) == ("b", 2)
    assert (
        table().blocked_by("0000000000", {"all": frozenset({5}), "c": frozenset({0})}) is None
    )


def finished(text: str) -> FinishedMutations:
    """`pointer|beyond beyond …`, each a digit."""
    pointer, _, beyond = text.partition("|")
    ids = [f"{int(one):010d}" for one in beyond.split()]
    return FinishedMutations(f"{int(pointer):010d}" if pointer else "", frozenset(ids))


@pytest.mark.parametrize(
    ("before", "ids", "done", "after"),
    [
        ("", "", "", ""),
        ("", "1 2 3", "1 2", "2"),
        ("", "1 2 3", "2 3", "|2 3"),
        ("|2 3", "1 2 3 4", "1", "3"),
        ("|3", "1 2 3 4", "1", "1|3"),
        ("1|3", "1 2 3 4", "2", "3"),
        ("1|3", "1 3 4", "", "3"),
        ("3", "1 2 3 4", "", "3"),
        ("3|5", "1 2 3 4 5", "1", "3|5"),
        ("3|5", "", "", "3"),
    ],
)
def test_the_pointer_has_only_finished_mutations_behind_it(before, ids, done, after) -> None:
    """What is killed is no more among the ids, and holds nothing up."""
    all_ids, now_done = ([f"{int(one):010d}" for one in text.split()] for text in (ids, done))
    assert finished(before).with_done(all_ids, now_done) == finished(after)


@pytest.mark.parametrize("text", ["", "3", "|5", "3|5 7"])
def test_what_is_finished_is_read_as_it_was_written(text: str) -> None:
    one = finished(text)
    beyond = one.encode_beyond() if one.beyond else b""
    assert FinishedMutations.decode(one.pointer.encode(), beyond) == one
    assert FinishedMutations.decode(one.pointer.encode(), one.encode_beyond()) == one


@pytest.mark.parametrize(
    ("pointer", "beyond"),
    [
        (b"\xff", b""),
        (b"", b"0000000005\n"),
        (b"", b"finished mutations format version: 0\n"),
        (b"", b"finished mutations format version: 2\n"),
        (b"", b"finished mutations format version: 1\n5\n"),
        (b"", b"finished mutations format version: 1\n0000000005"),
    ],
)
def test_what_is_no_note_of_finished_mutations_is_corrupt(
    pointer: bytes, beyond: bytes
) -> None:
    with pytest.raises(Corruption):
        FinishedMutations.decode(pointer, beyond)


NAMES = st.builds(
    lambda partition, first, more, mutation: PartName(
        partition, first, first + more, min(more, 1), mutation
    ),
    st.sampled_from("abc"),
    st.integers(0, 9),
    st.integers(0, 2),
    st.sampled_from([0, 0, 12, 15]),
)
NUMBERS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 16))


@given(st.lists(NAMES), NUMBERS)
def test_what_is_left_is_told_as_if_each_part_was_asked(names, numbers) -> None:
    """P30."""
    entry = mutation(**numbers)
    left = {one for one in names if one.data_version < numbers.get(one.partition, 0)}
    unmutated = Unmutated(names, [])
    assert unmutated.before(entry) == sorted(left)
    assert unmutated.has_any_before(entry) == bool(left)
