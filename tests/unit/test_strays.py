"""What a session left behind without knowing it."""

from collections.abc import Sequence

from rmt_pipeline.zookeeper.keeper import Create, Op
from rmt_pipeline.zookeeper.strays import Stray
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import StillClock


def test_a_request_that_is_still_on_its_way_is_waited_for_before_its_node_is_looked_for():
    """1. A lock is asked for; nobody answers, and the request is still under way. 2. It is looked
    for: it is not there yet. 3. Then it comes, and would stay as long as the session does.
    ZooKeeper carries out a session's requests in their order: an answer to a later one settles it.
    """
    zookeeper = FakeZooKeeper(StillClock())
    keeper, other = zookeeper.connect(), zookeeper.connect()
    at_once = keeper.multi
    under_way: list[Op] = [Create("/lock", b"mine", ephemeral=True)]

    def in_order(ops: Sequence[Op]) -> list[str]:
        while under_way:
            at_once([under_way.pop()])
        return at_once(ops)

    keeper.multi = in_order  # type: ignore[method-assign]
    keeper.strays.leave([Stray("/lock", "mine")])
    keeper.strays.settle(keeper)
    assert under_way == []
    assert other.exists("/lock") is None
    assert len(keeper.strays) == 0
