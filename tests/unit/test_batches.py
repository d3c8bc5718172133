"""How operations are cut into multis, and many multis at once, each of which succeeds or fails by
itself.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.zookeeper.batches import batches, cut, op_bytes, refusals
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, RefusalKind, SetData
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


@given(st.lists(st.integers(0, 9)), st.integers(1, 12), st.integers(0, 4))
def test_pieces_are_all_items_in_order_and_as_long_as_they_may_be(
    items: list[int], most: int, count_max: int
) -> None:
    """An item that is too heavy is a piece of its own."""
    pieces = [list(piece) for piece in cut(items, int, most, count_max=count_max)]
    assert [item for piece in pieces for item in piece] == items

    def fits(piece: list[int]) -> bool:
        return sum(piece) <= most and not 0 < count_max < len(piece)

    assert all(fits(piece) or len(piece) == 1 for piece in pieces)
    assert not any(fits([*one, two[0]]) for one, two in pairwise(pieces))


def test_what_an_operation_weighs() -> None:
    """Its path in UTF-8, its data, and the frame around both."""
    weights: dict[Op, int] = {
        Create("/ä", b"123"): 6,
        SetData("/a", b"123", 1): 5,
        Delete("/a", 1): 2,
        Check("/a", 1): 2,
    }
    assert {op: op_bytes(op, 0) for op in weights} == weights
    assert op_bytes(Check("/a", 1)) == 2 + limits.OP_BYTES_OVERHEAD
    ops = [Create(f"/{number}") for number in range(5)]
    assert [len(one) for one in batches(ops, bytes_max=10**6, ops_max=2)] == [2, 2, 1]
    assert [len(one) for one in batches(ops, bytes_max=1)] == [1] * 5
    assert [len(one) for one in batches(ops, bytes_max=10**6)] == [5]
