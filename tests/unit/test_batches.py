"""How operations are cut into multis, and many multis at once, each of which succeeds or fails by
itself.
"""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, OutcomeUnknown
from rmt_pipeline.zookeeper.batches import batches, cut, op_bytes, refusals, repeat_guarded
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Op,
    RefusalKind,
    Refused,
    SetData,
)
from tests.support.counting import multis_of
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
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


GUARD = Check("/guard", 0)


class Todo:
    """What is left to create of some names."""

    def __init__(self, keeper: FakeKeeper, names: list[str]) -> None:
        self.keeper = keeper
        self.names = names
        self.rounds = 0

    def __call__(self) -> list[Op]:
        self.rounds += 1
        return [Create(name) for name in self.names if self.keeper.exists(name) is None]


@pytest.fixture
def keeper() -> FakeKeeper:
    opened = FakeZooKeeper(StillClock()).connect()
    opened.multi([Create("/guard")])
    return opened


@pytest.fixture
def multis(keeper: FakeKeeper) -> list[Sequence[Op]]:
    return multis_of(keeper)


def test_what_is_guarded_is_done_in_multis_of_which_each_asserts_the_guard(
    keeper: FakeKeeper, multis: list[Sequence[Op]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MULTI_OPS_MAX", 2)
    todo = Todo(keeper, [f"/{number}" for number in range(5)])
    repeat_guarded(keeper, GUARD, todo)
    assert [one[0] for one in multis] == [GUARD] * 3
    assert [len(one) for one in multis] == [3, 3, 2]
    assert todo() == []
    assert todo.rounds == 3


def test_two_halves_of_a_packet_are_two_multis(
    keeper: FakeKeeper, multis: list[Sequence[Op]]
) -> None:
    """The guard, and what stands for a node elsewhere, come on top."""
    data = bytes(limits.MULTI_BYTES_MAX // 3)
    left: list[Op] = [Create("/a", data), Create("/b", data)]
    repeat_guarded(keeper, GUARD, lambda: [] if keeper.exists("/b") else left)
    assert [len(one) for one in multis] == [2, 2]


def test_where_something_else_changes_what_is_left_is_looked_for_anew(
    keeper: FakeKeeper, multis: list[Sequence[Op]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MULTI_OPS_MAX", 1)
    keeper.multi([Create("/1")])
    rounds = iter([[Create("/0"), Create("/1"), Create("/2")], [Create("/2")], []])
    repeat_guarded(keeper, GUARD, lambda: next(rounds))
    assert keeper.children("/") == ["0", "1", "2", "guard"]
    assert len(multis) == 1 + 3, "of the first round the third was not sent"
    assert next(rounds, None) is None


def test_where_the_guard_does_not_hold_nothing_more_is_done(keeper: FakeKeeper) -> None:
    todo = Todo(keeper, ["/0"])
    with pytest.raises(Refused, match="/guard: bad version"):
        repeat_guarded(keeper, Check("/guard", 7), todo)
    assert todo.rounds == 1
    assert todo() != []


def test_what_changes_all_the_time_is_given_up(
    keeper: FakeKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FORGET_ROUNDS_MAX", 3)
    rounds: list[int] = []

    def todo() -> list[Op]:
        rounds.append(1)
        return [Create("/guard")]

    with pytest.raises(Conflict, match="/guard: the nodes that it guards keep changing"):
        repeat_guarded(keeper, GUARD, todo)
    assert len(rounds) == 3
