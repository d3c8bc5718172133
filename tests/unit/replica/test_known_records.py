"""What a process remembers of the records of inserts, without listing them again."""

from dataclasses import replace

import pytest

from rmt_pipeline.replica.replica import KnownNames, KnownRecords
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Stat
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import StillClock

P, Q = frozenset({"p"}), frozenset({"q"})
KNOWN = KnownRecords(7, 10, ("a", "b", "c"), (("a", P), ("b", Q)))


def stat(created: int, version: int) -> Stat:
    keeper = FakeZooKeeper(StillClock()).connect()
    _, found = keeper.get("/")
    return replace(found, created_zxid=created, children_version=version)


@pytest.mark.parametrize(
    ("partitions", "but", "wanted"),
    [
        ({"p"}, "", ["a", "c"]),
        ({"q"}, "", ["b", "c"]),
        ({"p", "q"}, "a", ["b", "c"]),
        ({"p"}, "c", ["a"]),
        ((), "", ["c"]),
    ],
)
def test_a_record_of_which_nothing_is_known_may_have_rows_of_any_partition(
    partitions, but, wanted
) -> None:
    assert KNOWN.wanted(partitions, but) == wanted


def test_what_this_session_changes_is_counted() -> None:
    """A name that comes again is another record."""
    changed = KNOWN.changed(5, came=("d", "a"), went={"a"})
    assert changed == KnownRecords(7, 13, ("b", "c", "d", "a"), (("b", Q),), session=5)
    assert changed.is_still(stat(7, 13), 5)
    assert not changed.is_still(stat(7, 13), 6), "another session may see it as it was before"
    assert not changed.is_still(stat(7, 12), 5)
    assert not changed.is_still(stat(8, 13), 5)


def test_of_a_multi_what_makes_and_removes_children_of_the_node_is_counted() -> None:
    known = KnownNames(7, 10, ("a", "b"))
    ops = [
        Create("/t/inserts/c"),
        Delete("/t/inserts/a"),
        Check("/t/inserts/b"),
        Create("/t/inserts/b/1"),
        Delete("/t/blocks/b"),
    ]
    after = known.after(ops, "/t/inserts", 5)
    assert after == KnownNames(7, 12, ("b", "c"), session=5)
    assert after.after(ops, "/t/inserts", 6) == after, "it does not see what 5 has seen"


@pytest.mark.parametrize(
    ("created", "version", "names", "kept"),
    [
        (7, 10, ("a", "b", "c"), ("a", "b")),
        (7, 12, ("a", "c", "d"), ("a",)),
        (7, 14, ("a", "c", "d"), ()),
        (7, 12, ("a", "b", "c"), ()),
        (8, 12, ("a", "c", "d"), ()),
    ],
)
def test_after_a_listing_that_counts_say_all_about_the_rest_is_known_still(
    created, version, names, kept
) -> None:
    """Else a node may have gone and come again."""
    now = KNOWN.now(stat(created, version), names)
    partitions = tuple(one for one in KNOWN.partitions if one[0] in kept)
    assert now == KnownRecords(created, version, names, partitions)


def test_partitions_are_learnt_and_of_a_record_without_any_nothing_is_known() -> None:
    assert KNOWN.learnt({"a": P, "c": frozenset()}) is KNOWN
    learnt = KNOWN.learnt({"c": P | Q, "a": P})
    assert dict(learnt.partitions) == {"a": P, "b": Q, "c": P | Q}
