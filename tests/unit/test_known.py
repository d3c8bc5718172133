"""What a session knows of a node's children by the counts in its stat: only what they prove."""

from dataclasses import replace

import pytest

from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.known import CountedChildren, KnownQueue, Queued
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
