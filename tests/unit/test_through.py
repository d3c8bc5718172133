"""A statement that several replicas may try happens once, as its mark says; and what is written for
one creation of a replica.
"""

import pytest

from rmt_pipeline.protocol.errors import ReplicaDropped, ReplicaRetired
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, RefusalKind, Refused
from rmt_pipeline.zookeeper.through import BoundKeeper, CarriedOut, MarkedKeeper
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
from tests.support.local_replicas import StillClock

INTO_THE_LOG = Create("/t/log/log-", b"", sequence=True)


@pytest.fixture
def keeper() -> FakeKeeper:
    keeper = FakeZooKeeper(StillClock()).connect()
    keeper.multi([Create("/t"), Create("/t/log")])
    return keeper


def test_of_two_that_try_it_one_does_it(keeper: FakeKeeper) -> None:
    first, second = MarkedKeeper(keeper, "/mark"), MarkedKeeper(keeper, "/mark")
    assert first.multi([INTO_THE_LOG]) == ["/t/log/log-0000000000"]
    assert first.multi([INTO_THE_LOG]) == ["/t/log/log-0000000001"]  # the same statement's
    with pytest.raises(CarriedOut):
        second.multi([INTO_THE_LOG])
    assert len(keeper.children("/t/log")) == 2


def test_what_is_refused_for_another_reason_was_not_carried_out(keeper: FakeKeeper) -> None:
    marked = MarkedKeeper(keeper, "/mark")
    with pytest.raises(Refused, match="/t/gone"):
        marked.multi([Check("/t/gone"), INTO_THE_LOG])
    assert keeper.exists("/mark") is None
    assert marked.multi([INTO_THE_LOG]) == ["/t/log/log-0000000000"]


def test_what_commits_nothing_makes_no_mark(keeper: FakeKeeper) -> None:
    marked = MarkedKeeper(keeper, "/mark")
    marked.multi([Create("/t/x")])
    marked.multi([Delete("/t/x")])
    assert keeper.exists("/mark") is None


def test_where_its_mark_can_not_be_made_a_statement_was_not_carried_out(
    keeper: FakeKeeper,
) -> None:
    """The node of its task was removed, as too old, while a replica began with it."""
    marked = MarkedKeeper(keeper, "/removed/mark")
    with pytest.raises(Refused, match="operation 1 on /removed/mark: no node"):
        marked.multi([INTO_THE_LOG])
    assert keeper.children("/t/log") == []


@pytest.mark.parametrize(
    ("op", "is_marked"),
    [
        (INTO_THE_LOG, True),
        (Create("/t/mutations/", b"", sequence=True), True),
        (Create("/t/log/other", b""), False),
        (Create("/t/blocks-", b"", sequence=True), False),
    ],
)
def test_what_adds_to_the_log_or_the_mutations_makes_the_mark(
    keeper: FakeKeeper, op: Create, *, is_marked: bool
) -> None:
    keeper.multi([Create("/t/mutations")])
    MarkedKeeper(keeper, "/mark").multi([Check("/t"), op])
    assert (keeper.exists("/mark") is not None) is is_marked


def test_multis_for_one_creation_are_told_of_by_the_operations_of_who_sends_them(
    keeper: FakeKeeper,
) -> None:
    """The operation that asserts the creation is not one of his."""
    keeper.multi([Create("/creation")])
    bound = BoundKeeper(keeper, "/t/replicas/r1", "/creation")
    assert bound.multi([Check("/t"), Create("/t/a")]) == ["", "/t/a"]
    assert bound.multi_many([[Check("/t"), Create("/t/b")]]) == [["", "/t/b"]]
    [refused] = bound.multi_many([[Check("/t"), Create("/t/b")]])
    assert isinstance(refused, Refused)
    assert (refused.kind, refused.path, refused.index) == (RefusalKind.NODE_EXISTS, "/t/b", 1)
    with pytest.raises(Refused, match="operation 0 on /t/a: node exists"):
        bound.multi([Create("/t/a")])
    keeper.multi([Delete("/creation")])
    with pytest.raises(ReplicaDropped, match="/t/replicas/r1 is not the replica"):
        bound.multi([Create("/t/c")])
    [gone] = bound.multi_many([[Create("/t/c")]])
    assert isinstance(gone, ReplicaDropped)
    keeper.close()
    [over] = bound.multi_many([[Create("/t/c")]])
    assert isinstance(over, ReplicaRetired)


def test_what_is_not_written_goes_to_the_session_as_it_is() -> None:
    zookeeper = FakeZooKeeper(StillClock())
    other, behind = zookeeper.connect(), zookeeper.connect(lambda behind: behind)
    bound = BoundKeeper(behind, "/t/replicas/r1", "/creation")
    other.multi([Create("/a", b"x"), Create("/a/b")])
    assert bound.exists("/a") is None
    bound.sync("/")
    assert bound.get("/a")[0] == b"x"
    assert (bound.children("/a"), bound.children_stat("/a")[0]) == (["b"], ["b"])
    assert bound.children_many(["/a", "/c"]) == [["b"], None]
    assert [stat is None for stat in bound.exists_many(["/a", "/c"])] == [False, True]
    assert [read and read[0] for read in bound.get_many(["/a", "/c"])] == [b"x", None]
    assert (bound.session_id, bound.strays) == (behind.session_id, behind.strays)
    told: list[str] = []
    assert bound.await_children("/a", lambda: told.append("children"))
    bound.close()
    assert told == ["children"]
    assert behind.is_retired
