"""Many multis at once, each of which succeeds or fails by itself."""

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.zookeeper.batches import refusals
from rmt_pipeline.zookeeper.keeper import Create, RefusalKind
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import StillClock


def test_each_is_told_whether_it_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are."""
    monkeypatch.setattr(limits, "MULTI_OPS_MAX", 2)
    keeper = FakeZooKeeper(StillClock()).connect()
    keeper.multi([Create("/1"), Create("/3")])
    found = refusals(keeper, [[Create(f"/{number}")] for number in range(5)])
    kinds = [None if one is None else one.kind for one in found]
    assert kinds == [None, RefusalKind.NODE_EXISTS, None, RefusalKind.NODE_EXISTS, None]
    assert refusals(keeper, []) == []


def test_what_has_no_answer_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = FakeZooKeeper(StillClock()).connect()
    monkeypatch.setattr(keeper, "multi_many", lambda multis: [OutcomeUnknown("no answer")])
    with pytest.raises(OutcomeUnknown):
        refusals(keeper, [[Create("/1")]])
