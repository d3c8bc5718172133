"""What a session left behind without knowing it."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired, Unavailable
from rmt_pipeline.replica.life import drop
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData, Stat
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.strays import Stray, Strays, give_back, seen_to
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import StillClock
from tests.support.lost_answers import before, faulty


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


@pytest.fixture
def zookeeper() -> FakeZooKeeper:
    return FakeZooKeeper(StillClock())


def own(path: str, data: bytes = b"x\nmine") -> Create:
    return Create(path, data, ephemeral=True)


def test_only_what_is_ours_is_deleted(zookeeper: FakeZooKeeper) -> None:
    """A name may be used again: by another session, or by this one for something else."""
    keeper, other = zookeeper.connect(), zookeeper.connect()
    keeper.multi(
        [Create("/p"), own("/p/1"), own("/p/2", b"something else"), own("/named", b"")]
    )
    keeper.multi([Create("/lasting", b"mine"), own("/unmarked", b"another holder")])
    other.multi([own("/p/3"), own("/anothers")])
    paths = ("/named", "/lasting", "/anothers", "/gone")
    strays = [Stray("/p", "mine", is_parent=True), Stray("/unmarked", "mine")]
    strays += [Stray("/nowhere", "mine", is_parent=True), *map(Stray, paths)]
    keeper.strays.leave(strays)
    keeper.strays.leave([*strays, Stray("/p/1", "mine")])
    assert len(keeper.strays) == len(strays) + 1
    keeper.strays.settle(keeper)
    assert len(keeper.strays) == 0
    assert other.children("/") == ["anothers", "lasting", "p", "unmarked"]
    assert other.children("/p") == ["2", "3"]


def test_nothing_is_asked_when_nothing_is_left(
    zookeeper: FakeZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = zookeeper.connect()
    monkeypatch.setattr(keeper, "multi", lambda _: pytest.fail("asked"))
    keeper.strays.settle(keeper)


def test_what_goes_before_it_is_deleted_keeps_nothing_else(
    zookeeper: FakeZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among several that are deleted together one is gone when the request comes."""
    keeper, other = zookeeper.connect(), zookeeper.connect()
    names = ["a", "b", "c"]
    keeper.multi([own(f"/{name}") for name in names])
    get_many = keeper.get_many

    def get_many_and_then(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        read = get_many(paths)
        other.multi([Delete("/b")])
        return read

    monkeypatch.setattr(keeper, "get_many", get_many_and_then)
    keeper.strays.leave([Stray(f"/{name}") for name in names])
    keeper.strays.settle(keeper)
    assert other.children("/") == []
    assert len(keeper.strays) == 0


ERRORS: list[tuple[BaseException, bool, bool]] = [
    (Unavailable("no server"), True, False),
    (OutcomeUnknown("no answer"), True, False),
    (ReplicaRetired("the session is over"), False, False),
    (KeyboardInterrupt(), True, True),
]


def failing(error: BaseException) -> Callable[[object], list[str]]:
    def multi(_ops: object) -> list[str]:
        raise error

    return multi


@pytest.mark.parametrize(("error", "is_kept", "is_raised"), ERRORS)
@pytest.mark.parametrize("how", ["settle", "give back"])
def test_what_could_not_be_deleted_is_kept_for_the_next_time(
    zookeeper: FakeZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    how: str,
    *,
    is_kept: bool,
    is_raised: bool,
) -> None:
    """Unless the session is over, and the node with it."""
    keeper = zookeeper.connect()
    keeper.multi([own("/a")])
    strays = [Stray("/a")]
    if how == "settle":
        keeper.strays.leave(strays)
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "multi", failing(error))
        with pytest.raises(type(error)) if is_raised else nullcontext():
            if how == "settle":
                keeper.strays.settle(keeper)
            else:
                give_back(keeper, strays)
    assert len(keeper.strays) == is_kept
    keeper.strays.settle(keeper)
    assert zookeeper.connect().children("/") == ([] if is_kept else ["a"])


@pytest.mark.parametrize(("error", "is_kept", "is_raised"), ERRORS)
def test_what_a_request_without_an_answer_may_have_made_is_looked_for(
    zookeeper: FakeZooKeeper, error: BaseException, *, is_kept: bool, is_raised: bool
) -> None:
    del is_raised  # the caller always hears of it
    keeper = zookeeper.connect()
    with pytest.raises(type(error)), seen_to(keeper, [Stray("/a")]):
        raise error
    assert len(keeper.strays) == is_kept


def test_what_was_refused_or_made_is_not_looked_for(zookeeper: FakeZooKeeper) -> None:
    keeper = zookeeper.connect()
    with pytest.raises(Refused), seen_to(keeper, [Stray("/a/b")]):
        keeper.multi([own("/a/b")])
    with seen_to(keeper, [Stray("/a")]):
        keeper.multi([own("/a")])
    assert len(keeper.strays) == 0
    give_back(keeper, [Stray("/a"), Stray("/b")])
    assert (len(keeper.strays), zookeeper.connect().children("/")) == (0, [])


def test_what_is_deleted_one_by_one_and_has_no_answer_is_kept(
    zookeeper: FakeZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = zookeeper.connect()
    keeper.multi([own("/a")])
    results: list[list[str] | Exception] = [OutcomeUnknown("no answer")]
    with monkeypatch.context() as patch:
        patch.setattr(keeper, "multi_many", lambda _: results)
        give_back(keeper, [Stray("/a"), Stray("/gone")])
    assert len(keeper.strays) == 2
    told: list[int] = []
    strays = Strays(lambda: told.append(len(strays)))
    strays.leave([Stray("/a")])
    strays.leave([Stray("/a"), Stray("/b")])
    assert told == [1, 2]


def test_what_another_thread_makes_under_its_name_while_it_is_looked_for_stays():
    """1. A lock is asked for; nobody answers, and it was not made. 2. A thread looks for it. 3. The
    first thread asks for it again: it need not wait for the other one, and has it. 4. The other
    thread finds a lock of its session, and must not take it for the lost one.
    """
    zookeeper = FakeZooKeeper(StillClock())
    keeper, other, table = zookeeper.connect(), zookeeper.connect(), TablePaths("/t")
    replica = table.replica("r1")
    keeper.multi([Create("/t"), Create(table.replicas), Create(replica.root)])
    with (
        faulty(keeper, lambda op: op.path == replica.dropping, landed=False),
        pytest.raises(OutcomeUnknown),
    ):
        drop_replica(keeper, table, "r1")
    read = keeper.get_many
    with ExitStack() as held:

        def late(paths: Sequence[str]) -> Any:
            keeper.get_many = read  # type: ignore[method-assign]
            held.enter_context(drop._alone(keeper, replica, None))
            return read(paths)

        keeper.get_many = late  # type: ignore[method-assign]
        keeper.strays.settle(keeper)
        assert other.exists(replica.dropping) is not None


def test_a_node_that_is_taken_over_is_no_stray_any_more():
    """What makes it anew finds it there, and marks it as its own, just before it is deleted."""
    zookeeper = FakeZooKeeper(StillClock())
    keeper, other = zookeeper.connect(), zookeeper.connect()
    lost = keeper.strays.marked("/lock", keeper.session_id)
    keeper.multi([Create("/lock", lost.mark.encode(), ephemeral=True)])
    keeper.strays.leave([lost])
    mine = keeper.strays.marked("/lock", keeper.session_id)
    with before(
        keeper,
        lambda op: isinstance(op, Delete),
        lambda: keeper.multi([SetData("/lock", mine.mark.encode(), 0)]),
    ):
        keeper.strays.settle(keeper)
    assert other.get("/lock")[0] == mine.mark.encode()
    assert len(keeper.strays) == 0
