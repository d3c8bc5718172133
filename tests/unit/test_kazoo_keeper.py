"""What a real session's keeper remembers of reads that failed, and of what it left, without a
ZooKeeper: kazoo's client is as it would be.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import (
    ConnectionLoss,
    NoNodeError,
    RuntimeInconsistency,
    UnimplementedError,
)
from kazoo.protocol.states import KazooState, ZnodeStat

from rmt_pipeline.protocol.errors import ReplicaRetired, Unavailable
from rmt_pipeline.system import SystemClock
from rmt_pipeline.zookeeper import kazoo_keeper
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from rmt_pipeline.zookeeper.keeper import Check, Refused
from rmt_pipeline.zookeeper.strays import Stray

LONG_S = 10.0
STAT = ZnodeStat(*range(11))


class Answer:
    def __init__(self, result: Any) -> None:
        self._result = result

    def get(self, timeout: float) -> Any:
        del timeout
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class Client:
    """Its answers to listings, one after the other, and the events that they asked for."""

    client_id = (1, b"")
    chroot = ""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self.events: list[Callable[..., None]] = []

    def add_listener(self, listener: object) -> None:
        pass

    def get_children_async(self, path: str, watch: Any = None) -> Answer:
        del path
        self.events.append(watch)
        return Answer(self._answers.pop(0))


class Handler:
    may_connect: Callable[[], bool]

    def cut(self) -> None:
        pass


class Settler:
    """The lock of the one thread that settles unasked; right before it is given back something
    happens.
    """

    def __init__(self, before_release: list[Callable[[], None]]) -> None:
        self._lock = threading.Lock()
        self._before_release = before_release

    def acquire(self, *, blocking: bool) -> bool:
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        if self._before_release:
            self._before_release.pop()()
        self._lock.release()


def keeper_of(*answers: Any) -> tuple[KazooKeeper, Client]:
    client = Client(list(answers))
    keeper = KazooKeeper(
        client,  # type: ignore[arg-type]
        Handler(),
        SystemClock(),
        session_timeout_s=LONG_S,
    )
    return keeper, client


def test_who_was_told_that_a_read_failed_is_not_called_when_something_happens() -> None:
    keeper, client = keeper_of(NoNodeError(), ["a"])
    told: list[str] = []
    with pytest.raises(Refused):
        keeper.children("/t", lambda: told.append("the one whose read failed"))
    assert keeper.children("/t", lambda: told.append("another one")) == ["a"]
    client.events[-1]()
    assert told == ["another one"]


def test_what_is_left_while_a_settler_ends_is_settled_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. The settler has seen to all, and looks no more. 2. Something else is left: its thread is
    not over, so no other one begins. 3. It ends. Nobody else may ever use this session again.
    """
    monkeypatch.setattr(kazoo_keeper, "SETTLE_PAUSE_S", 0)
    keeper, _ = keeper_of()
    looked_at: list[str] = []
    second = threading.Event()

    def looked(paths: list[str]) -> list[None]:
        looked_at.extend(paths)
        if "/second" in paths:
            second.set()
        return [None for _ in paths]

    monkeypatch.setattr(keeper, "multi", lambda ops: ["" for _ in ops])
    monkeypatch.setattr(keeper, "children_many", lambda paths: [None for _ in paths])
    monkeypatch.setattr(keeper, "get_many", looked)
    leaves = [lambda: keeper.strays.leave([Stray("/second")])]
    monkeypatch.setattr(keeper, "_settler", Settler(leaves))
    keeper.strays.leave([Stray("/first")])
    assert second.wait(LONG_S)
    for thread in threading.enumerate():
        if thread.name == "rmt-settle":
            thread.join(LONG_S)
    assert looked_at == ["/first", "/second"]
    assert not [one for one in threading.enumerate() if one.name == "rmt-settle"], (
        "none begins when nothing is left"
    )


class Everything:
    """A client that is asked for anything, and remembers it."""

    client_id = (1, b"")
    chroot = ""
    default_acl = None

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.handler = self

    def async_result(self) -> Answer:
        return Answer(NoNodeError())

    def __getattr__(self, name: str) -> Any:
        def request(*args: Any, **kwargs: Any) -> Any:
            del args, kwargs
            self.asked.append(name)
            return Answer(NoNodeError())

        return request


REQUESTS: dict[str, Callable[[KazooKeeper], object]] = {
    "get": lambda keeper: keeper.get("/a"),
    "get with a watch": lambda keeper: keeper.get("/a", lambda: None),
    "get_many": lambda keeper: keeper.get_many(["/a"]),
    "get_many, together": lambda keeper: keeper.get_many(["/a", "/b"]),
    "exists": lambda keeper: keeper.exists("/a"),
    "exists_many": lambda keeper: keeper.exists_many(["/a", "/b"]),
    "children": lambda keeper: keeper.children("/a"),
    "children_stat": lambda keeper: keeper.children_stat("/a"),
    "children_many": lambda keeper: keeper.children_many(["/a"]),
    "await_children": lambda keeper: keeper.await_children("/a", lambda: None),
    "sync": lambda keeper: keeper.sync("/"),
    "multi": lambda keeper: keeper.multi([Check("/a")]),
    "multi_many": lambda keeper: keeper.multi_many([[Check("/a")]]),
}


def keeper_of_everything() -> tuple[KazooKeeper, Everything]:
    client = Everything()
    keeper = KazooKeeper(
        client,  # type: ignore[arg-type]
        Handler(),
        SystemClock(),
        session_timeout_s=LONG_S,
    )
    client.asked.clear()
    return keeper, client


@pytest.mark.parametrize("request_name", REQUESTS)
def test_before_each_request_what_was_left_is_seen_to(
    request_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that nobody holds any more holds others up: the next thing done with the session ends
    that, whatever it is.
    """
    keeper, client = keeper_of_everything()
    monkeypatch.setattr(keeper.strays, "settle", lambda _: client.asked.append("settled"))
    with contextlib.suppress(Exception):
        REQUESTS[request_name](keeper)
    assert client.asked[0] == "settled"
    assert len(client.asked) > 1


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_session_that_is_over_asks_for_nothing(request_name: str) -> None:
    keeper, client = keeper_of_everything()
    keeper.close()
    client.asked.clear()
    try:
        result = REQUESTS[request_name](keeper)
    except ReplicaRetired as retired:
        result = [retired]
    assert isinstance(result, list)
    assert [type(one) for one in result] == [ReplicaRetired]
    assert client.asked == []


@pytest.mark.parametrize(
    ("error", "requests"),
    [(UnimplementedError(), ["get_async", "get_async"]), (ConnectionLoss(), ["_call"])],
)
def test_a_server_that_can_not_read_many_nodes_at_once_is_asked_for_one_at_a_time(
    error: Exception, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only such a one: a connection breaks for other reasons, too."""
    keeper, client = keeper_of_everything()
    monkeypatch.setattr(client, "async_result", lambda: Answer(error))
    for _ in range(2):
        client.asked.clear()
        with contextlib.suppress(Unavailable):
            assert keeper.get_many(["/a", "/b"]) == [None, None]
    assert client.asked == requests


def test_an_error_about_one_of_many_nodes_is_no_node_that_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server answers about each by itself; only that there is no such node is an answer."""
    keeper, client = keeper_of_everything()
    answers = {"/a": (b"x", STAT), "/b": NoNodeError(), "/c": RuntimeInconsistency()}
    monkeypatch.setattr(client, "async_result", lambda: Answer([*answers.values()]))
    with pytest.raises(Unavailable, match=r"no answer about /c \(Runtime"):
        keeper.get_many([*answers])
    del answers["/c"]
    monkeypatch.setattr(client, "async_result", lambda: Answer([*answers.values()]))
    read, missing = keeper.get_many([*answers])
    assert read is not None
    assert (read[0], missing) == (b"x", None)


def test_a_watch_that_lasts_is_relied_on_when_the_server_has_taken_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper, client = keeper_of_everything()
    monkeypatch.setattr(client, "async_result", lambda: Answer(ConnectionLoss()))
    with pytest.raises(Unavailable):
        keeper.await_children("/a", lambda: None)
    assert client.asked == ["_call"]


def test_a_session_that_another_one_took_the_place_of_is_over_and_its_own_is_not() -> None:
    """kazoo connects again under a new session when the old one has expired."""
    keeper, client = keeper_of_everything()
    for state in (KazooState.SUSPENDED, KazooState.CONNECTED):
        keeper._on_state(state)
    assert not keeper.is_retired
    client.client_id = (2, b"")
    keeper._on_state(KazooState.CONNECTED)
    assert keeper.is_retired


def test_what_each_read_finds_and_where_nothing_is() -> None:
    """In the order in which it was asked for, also when it is asked one by one."""
    found = {"/a": (b"x", STAT), "/b": NoNodeError(), "/c": (None, STAT)}
    client = Client([])
    client.get_async = lambda path: Answer(found[path])  # type: ignore[attr-defined]
    keeper = KazooKeeper(
        client,  # type: ignore[arg-type]
        Handler(),
        SystemClock(),
        session_timeout_s=LONG_S,
    )
    reads = [keeper.get_many([path]) for path in found]
    assert [read and read[0] for [read] in reads] == [b"x", None, b""]
