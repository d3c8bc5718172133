"""What becomes of each answer and each error of kazoo: a result, or an error of ours whose kind
says whether something may have been written.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    MarshallingError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import ZnodeStat

from rmt_pipeline.protocol.errors import (
    AccessDenied,
    OutcomeUnknown,
    ReplicaRetired,
    RmtError,
    Unavailable,
)
from rmt_pipeline.zookeeper.kazoo_keeper import IN_FLIGHT_MAX, KazooKeeper, _pipelined
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, RefusalKind, Refused
from tests.support.local_replicas import StillClock

STAT = ZnodeStat(*range(11))
TIMEOUT_S = 7.0
OPS: list[Op] = [Create("/a"), Delete("/b"), Check("/c")]


def keeper_that_is_answered(answer: Callable[[], Any]) -> KazooKeeper:
    """Whatever it asks for, of nodes or of what to write."""

    def get(timeout: float) -> Any:
        assert timeout == TIMEOUT_S
        return answer()

    pending = SimpleNamespace(get=get)
    client = SimpleNamespace(
        client_id=(0x17, b""),
        chroot="",
        default_acl=None,
        add_listener=lambda _: None,
        get_children_async=lambda *_, **__: pending,
        get_async=lambda *_: pending,
        exists_async=lambda *_: pending,
        _call=lambda *_: None,
        handler=SimpleNamespace(async_result=lambda: pending),
        stop=lambda: None,
        close=lambda: None,
    )
    handler = SimpleNamespace(may_connect=None, cut=lambda: None)
    return KazooKeeper(
        client,  # type: ignore[arg-type]
        handler,  # type: ignore[arg-type]
        StillClock(),
        session_timeout_s=TIMEOUT_S,
        who="user 'me'",
    )


def failing(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


ERRORS_OF_READS: list[tuple[Exception, type[RmtError], str]] = [
    (NoNodeError(), Refused, "operation 0 on /a: no node"),
    (SessionExpiredError(), ReplicaRetired, "session 0x17 is over .expired.; start over"),
    (NoAuthError(), AccessDenied, "refuses /a to user 'me': the node's access list is for"),
    (InvalidACLError(), AccessDenied, "cannot make /a for its creator alone.* for user 'me'"),
    (AuthFailedError(), AccessDenied, "does not believe that we are user 'me'"),
    (ConnectionLoss(), Unavailable, "no answer about /a .the connection broke.; try again"),
    (KazooTimeoutError(), Unavailable, "no answer about /a .time ran out.; try again"),
    (MarshallingError(), Unavailable, "no answer about /a .MarshallingError.; try again"),
]


@pytest.mark.parametrize(("error", "ours", "words"), ERRORS_OF_READS)
def test_an_error_of_a_read(error: Exception, ours: type[RmtError], words: str) -> None:
    keeper = keeper_that_is_answered(failing(error))
    for read in (keeper.get, keeper.exists, keeper.children, keeper.children_stat):
        with pytest.raises(ours, match=words):
            read("/a")


@pytest.mark.parametrize("error", [ConnectionLoss(), KazooTimeoutError()])
def test_a_read_whose_session_ends_meanwhile_is_not_worth_another_try(error: Exception) -> None:
    def end() -> Any:
        keeper._life.retire("another one took its place")
        raise error

    keeper = keeper_that_is_answered(end)
    with pytest.raises(ReplicaRetired, match="another one took its place"):
        keeper.get("/a")


def test_an_answer_without_data_is_that_of_an_empty_node() -> None:
    """So ZooKeeper answers for a node that a client in another language made of nothing."""
    keeper = keeper_that_is_answered(lambda: (None, STAT))
    data, stat = keeper.get("/a")
    assert (data, stat.version, stat.children_version) == (b"", STAT.version, STAT.cversion)
    reads = keeper_that_is_answered(lambda: [(None, STAT), (b"x", STAT)])
    assert [read and read[0] for read in reads.get_many(["/a", "/b"])] == [b"", b"x"]


@pytest.mark.parametrize(
    ("error", "ours", "words"),
    [
        (SessionExpiredError(), ReplicaRetired, "session 0x17 is over .expired."),
        (
            ConnectionLoss(),
            OutcomeUnknown,
            "a write of 3 operations, the first on /a .the connection broke.; it may have",
        ),
        (KazooTimeoutError(), OutcomeUnknown, "the first on /a .time ran out."),
        (NoAuthError(), OutcomeUnknown, "the first on /a .NoAuthError."),
    ],
)
def test_an_error_of_a_write(error: Exception, ours: type[RmtError], words: str) -> None:
    """Only ZooKeeper's word that the session had ended before proves that nothing was written."""
    keeper = keeper_that_is_answered(failing(error))
    with pytest.raises(ours, match=words):
        keeper.multi(OPS)
    [result] = keeper.multi_many([OPS])
    assert type(result) is ours
    if ours is OutcomeUnknown:
        assert result.__cause__ is error


@pytest.mark.parametrize(
    ("blamed", "kind"),
    [
        (NoNodeError(), RefusalKind.NO_NODE),
        (NodeExistsError(), RefusalKind.NODE_EXISTS),
        (BadVersionError(), RefusalKind.BAD_VERSION),
        (NotEmptyError(), RefusalKind.NOT_EMPTY),
        (NoChildrenForEphemeralsError(), RefusalKind.NO_CHILDREN_FOR_EPHEMERALS),
    ],
)
def test_of_a_refused_multi_the_one_to_blame_is_named(
    blamed: Exception, kind: RefusalKind
) -> None:
    keeper = keeper_that_is_answered(
        lambda: [RolledBackError(), blamed, RuntimeInconsistency()]
    )
    with pytest.raises(Refused) as caught:
        keeper.multi(OPS)
    assert (caught.value.kind, caught.value.path, caught.value.index) == (kind, "/b", 1)
    [result] = keeper.multi_many([OPS])
    assert isinstance(result, Refused)


def test_what_is_refused_for_other_reasons_is_told_with_its_node() -> None:
    results = [RolledBackError(), NoAuthError(), RuntimeInconsistency()]
    with pytest.raises(AccessDenied, match="refuses /b to user 'me'"):
        keeper_that_is_answered(lambda: results).multi(OPS)
    results = [RolledBackError(), MarshallingError(), RuntimeInconsistency()]
    with pytest.raises(Unavailable, match=r"operation 1 on /b: Marshalling.*its quotas"):
        keeper_that_is_answered(lambda: results).multi(OPS)


def test_a_multi_gives_the_paths_that_it_created() -> None:
    keeper = keeper_that_is_answered(lambda: ["/a", True, True])
    assert keeper.multi(OPS) == ["/a", "", ""]
    assert keeper.multi_many([OPS, OPS]) == [["/a", "", ""]] * 2


def test_of_many_requests_some_are_on_their_way_at_once_and_all_are_answered_in_order() -> None:
    """kazoo blocks a caller who sends too many before he takes an answer."""
    under_way: list[int] = []
    most = 0

    def send(number: int) -> int:
        nonlocal most
        under_way.append(number)
        most = max(most, len(under_way))
        return 10 * number

    def outcome(pending: int, number: int) -> int:
        assert under_way.pop(0) == number
        return pending

    numbers = range(2 * IN_FLIGHT_MAX + 5)
    assert list(_pipelined(numbers, send, outcome)) == [10 * number for number in numbers]
    assert most == IN_FLIGHT_MAX
    assert under_way == []


def test_children_of_many_nodes_are_sorted_and_those_of_no_node_are_none() -> None:
    keeper = keeper_that_is_answered(lambda: [["b", "a"], NoNodeError(), []])
    assert keeper.children_many(["/a", "/b", "/c"]) == [["a", "b"], None, []]
