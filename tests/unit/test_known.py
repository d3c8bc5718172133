"""What a session knows of a node's children by the counts in its stat: only what they prove."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper import known as known_module
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.known import (
    Claims,
    CountedChildren,
    KnownQueue,
    Listed,
    Queued,
    node_counts,
)
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import StillClock

REPLICA = TablePaths("/t").replica("r1")
MINE, ANOTHERS = 5, 6


def stat(created: int, version: int) -> Stat:
    _, found = FakeZooKeeper(StillClock()).connect().get("/")
    return replace(found, created_zxid=created, children_version=version)


@pytest.mark.parametrize(
    ("changed_by", "read_by", "created", "version", "is_still"),
    [
        (0, MINE, 7, 10, True),
        (0, ANOTHERS, 7, 10, True),
        (MINE, MINE, 7, 10, True),
        (
            MINE,
            ANOTHERS,
            7,
            10,
            False,
        ),  # it may read it as it was, with a change of somebody else
        (MINE, MINE, 8, 10, False),
        (MINE, MINE, 7, 11, False),
    ],
)
def test_a_node_with_the_same_counts_has_the_same_children(
    changed_by: int, read_by: int, created: int, version: int, *, is_still: bool
) -> None:
    known = CountedChildren(7, 10, session=changed_by)
    assert known.is_still(stat(created, version), read_by) is is_still


def test_two_sessions_do_not_add_their_changes_to_one_listing() -> None:
    """Neither can tell what the other one's changes have added to the count."""
    known, listing = KnownQueue(), Queued(7, 10, {"queue-0000000000": None})
    known.changed(REPLICA, None, MINE, came=["queue-0000000001"])
    assert known.queued(REPLICA) is None
    known.changed(REPLICA, listing, MINE, came=["queue-0000000001"])
    mine = known.queued(REPLICA)
    known.changed(REPLICA, mine, ANOTHERS, came=["queue-0000000002"])
    assert known.queued(REPLICA) is mine
    known.changed(REPLICA, mine, MINE, went=["queue-0000000000"])
    now = known.queued(REPLICA)
    assert now is not None
    assert ([*now.names], now.children_version) == (["queue-0000000001"], 12)
    assert now.is_still(stat(7, 12), MINE)


ONE, TWO, THREE, FOUR = (PartName("all", number, number, 0) for number in (1, 2, 3, 4))
LISTED = Listed(7, 10, Holdings.of([ONE, TWO]))


def test_a_part_that_came_or_went_is_one_change_however_often_it_is_noted() -> None:
    """And one that was listed did not come: a write has only asserted it."""
    noted = LISTED.changed(MINE, came=[ONE, THREE], went=[TWO]).changed(
        MINE, came=[THREE, FOUR], went=[TWO]
    )
    assert (noted.came, noted.went, noted.session) == ({THREE, FOUR}, {TWO}, MINE)
    at = noted.at(stat(7, 13), MINE)
    assert at is not None
    assert set(at.holdings) == {ONE, THREE, FOUR}
    assert (at.came, at.went, at.children_version) == (frozenset(), frozenset(), 13)
    assert at.session == 0, "it is as good as a listing: any session may compare"


@pytest.mark.parametrize(
    ("created", "version", "session"),
    [(8, 12, MINE), (7, 11, MINE), (7, 13, MINE), (7, 10, MINE), (7, 12, ANOTHERS)],
)
def test_parts_are_not_known_where_the_counts_tell_of_other_changes(
    created: int, version: int, session: int
) -> None:
    noted = LISTED.changed(MINE, came=[THREE], went=[ONE])
    assert noted.at(stat(created, version), session) is None
    assert noted.at(stat(7, 12), MINE) is not None


def test_a_listing_that_nothing_has_changed_stays_the_same() -> None:
    assert LISTED.at(stat(7, 10), ANOTHERS) is LISTED
    for found in (stat(7, 11), stat(8, 10)):
        assert LISTED.at(found, MINE) is None
    came = LISTED.changed(MINE, came=[THREE], went=[]).at(stat(7, 11), MINE)
    assert came is not None
    assert set(came.holdings) == {ONE, TWO, THREE}
    went = LISTED.changed(MINE, came=[], went=[ONE]).at(stat(7, 11), MINE)
    assert went is not None
    assert set(went.holdings) == {TWO}


def test_what_threads_of_a_session_publish_at_once_is_noted_together() -> None:
    """Each has seen the listing before it wrote, and notes its part after the other one did."""
    known = KnownQueue()
    known.published(REPLICA, None, [THREE], MINE)
    assert known.listed(REPLICA) is None
    known.published(REPLICA, LISTED, [THREE], MINE)
    known.published(REPLICA, LISTED, [FOUR], MINE, went=[ONE])
    noted = known.listed(REPLICA)
    assert noted is not None
    assert (noted.came, noted.went) == ({THREE, FOUR}, {ONE})
    known.published(REPLICA, noted, [ONE], ANOTHERS)
    assert known.listed(REPLICA) is noted


@pytest.mark.parametrize(
    "again", [replace(LISTED, created_zxid=8), replace(LISTED, children_version=11)]
)
def test_what_is_listed_while_a_part_is_published_may_have_it_already(again: Listed) -> None:
    known = KnownQueue()
    known.parts.learn({REPLICA.parts: again})
    known.published(REPLICA, LISTED, [THREE], MINE)
    noted = known.listed(REPLICA)
    assert noted is not None
    assert (noted.created_zxid, noted.children_version) == (7, 10), "to be listed anew"


def test_the_names_of_a_queue_stay_in_order_whichever_is_noted_first() -> None:
    listing = Queued(7, 10, dict.fromkeys(["a", "b"]))
    later = listing.changed(MINE, came={"d": None}, went=["a", "gone already"])
    assert ([*later.names], later.children_version) == (["b", "d"], 13)
    both = later.changed(MINE, came={"c": None}, went=())
    assert ([*both.names], both.children_version) == (["b", "c", "d"], 14)
    emptied = both.changed(MINE, came={}, went=["b", "c", "d"])
    assert ([*emptied.names], emptied.session) == ([], MINE)
    assert [*emptied.changed(MINE, came={"e": None}, went=()).names] == ["e"]
    assert [*listing.names] == ["a", "b"]
    assert both.is_of(later)
    assert both.is_of(listing)
    assert listing.is_of(both)
    assert not both.is_of(Queued(7, 10, dict.fromkeys(["a", "b"])))


def test_a_queue_that_is_too_long_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_module, "QUEUE_KNOWN_MAX", 2)
    known = KnownQueue()
    two = Queued(7, 10, dict.fromkeys(["a", "b"]))
    known.found(REPLICA, two)
    assert known.queued(REPLICA) is two
    known.found(REPLICA, Queued(7, 11, dict.fromkeys(["a", "b", "c"])))
    assert known.queued(REPLICA) is None


def test_claims_are_noted_by_their_own_session_alone() -> None:
    known, claims = KnownQueue(), Claims(7, 10, {})
    claim = Claim("worker", (ONE,))
    known.claims_changed(REPLICA, None, MINE, came={"a": claim})
    assert known.claimed(REPLICA) is None
    known.claims_changed(REPLICA, claims, MINE, came={"a": claim})
    known.claims_changed(REPLICA, claims, MINE, came={"b": claim}, went=["a"])
    noted = known.claimed(REPLICA)
    assert noted is not None
    assert (dict(noted.names), noted.children_version) == ({"b": claim}, 13)
    known.claims_changed(REPLICA, noted, ANOTHERS, went=["b"])
    assert known.claimed(REPLICA) is noted


def test_the_counts_of_a_node_tell_its_creation_its_data_and_its_children() -> None:
    assert node_counts(None) is None
    found = replace(stat(7, 10), version=3)
    assert node_counts((b"", found)) == (7, 3, 10)


def test_what_another_session_has_noted_is_not_added_to() -> None:
    """As when this one has begun anew: the counts do not tell whose changes it has seen."""
    known = KnownQueue()
    known.parts.learn({REPLICA.parts: LISTED.changed(ANOTHERS, came=[FOUR], went=[])})
    known.published(REPLICA, LISTED, [THREE], MINE)
    noted = known.listed(REPLICA)
    assert noted is not None
    assert (noted.came, noted.session) == ({THREE}, MINE)
