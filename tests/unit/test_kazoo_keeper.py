"""What a real session's keeper remembers of reads that failed, and of what it left, without a
ZooKeeper: kazoo's client is as it would be.
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kazoo.exceptions import (
    ConnectionLoss,
    NoNodeError,
    RuntimeInconsistency,
    UnimplementedError,
)
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat

from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired, Unavailable
from rmt_pipeline.system import Clock, SystemClock
from rmt_pipeline.zookeeper import kazoo_keeper
from rmt_pipeline.zookeeper.kazoo_keeper import (
    KazooKeeper,
    _AddWatch,
    _ChildWatchers,
    _ReadMany,
    _StaysHere,
)
from rmt_pipeline.zookeeper.keeper import Check, Refused
from rmt_pipeline.zookeeper.strays import Stray
from rmt_pipeline.zookeeper.watches import Event, Key, Lasting, Watches
from tests.support.local_replicas import StillClock

LONG_S = 10.0
CLOCK = SystemClock()
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

    def __init__(self) -> None:
        self.cuts = 0

    def cut(self) -> None:
        self.cuts += 1


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


def keeper_on(client: Any, clock: Clock = CLOCK) -> KazooKeeper:
    return KazooKeeper(client, Handler(), clock, session_timeout_s=LONG_S)


def keeper_of(*answers: Any) -> tuple[KazooKeeper, Client]:
    client = Client(list(answers))
    return keeper_on(client), client


def until_settled() -> None:
    for thread in threading.enumerate():
        if thread.name == "rmt-settle":
            thread.join(LONG_S)


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
    until_settled()
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
    keeper = keeper_on(client)
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
    keeper = keeper_on(client)
    reads = [keeper.get_many([path]) for path in found]
    assert [read and read[0] for [read] in reads] == [b"x", None, b""]


def test_a_listing_of_children_that_are_awaited_waits_with_that() -> None:
    """It would be of no use: where one of ZooKeeper's before 3.9 has fired, both are gone."""
    keeper, client = keeper_of(["a"], ["b"])
    told: list[str] = []
    keeper._life.watches.lasts(("children", "/t"))
    assert keeper.children("/t", lambda: told.append("/t")) == ["a"]
    assert keeper.children("/u", lambda: told.append("/u")) == ["b"]
    of_its_own, asked_for = client.events
    assert of_its_own is None
    keeper._life.watches.fire(("children", "/t"))
    asked_for()
    assert told == ["/t", "/u"]


def test_a_server_that_never_answers_about_watches_that_stay_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Perhaps it hangs up because it is asked."""
    keeper, client = keeper_of_everything()
    monkeypatch.setattr(client, "async_result", lambda: Answer(ConnectionLoss()))
    for _ in range(kazoo_keeper.LASTING_WATCH_TRIES):
        with pytest.raises(Unavailable):
            keeper.await_children("/a", lambda: None)
    assert not keeper.await_children("/a", lambda: None)
    assert client.asked == ["_call"] * kazoo_keeper.LASTING_WATCH_TRIES


def test_of_the_watchers_of_a_path_those_stay_that_last() -> None:
    """kazoo takes all of them away when it fires them, and keeps what a read of it has made."""
    watches = Watches()
    key: Key = ("children", "/a")
    once, lasts = Event(key, watches), _StaysHere(Lasting(key, watches))
    watchers = _ChildWatchers(set)
    watchers["/a"] |= {once, lasts}
    watchers["/b"] |= {once}
    assert watchers.pop("/a") == {once, lasts}
    assert watchers.pop("/b") == {once}
    assert watchers.pop("/c", []) == []
    assert watchers == {"/a": {lasts}}


def test_a_connection_that_broke_at_once_leaves_nothing_open() -> None:
    client = Everything()
    client.client_id = None  # type: ignore[assignment]
    with pytest.raises(Unavailable, match="broke at once; try again"):
        keeper_on(client)
    assert client.asked == ["add_listener", "stop", "close"]


def test_a_server_that_does_not_hang_while_we_close_is_not_cut() -> None:
    keeper, client = keeper_of_everything()
    before = set(threading.enumerate())
    keeper.close()
    assert client.asked == ["stop", "close"]
    assert keeper._handler.cuts == 0  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before


def test_a_close_that_fails_cuts_nothing_and_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper, client = keeper_of_everything()
    before = set(threading.enumerate())
    monkeypatch.setattr(client, "stop", Mock(side_effect=KeyboardInterrupt), raising=False)
    with pytest.raises(KeyboardInterrupt):
        keeper.close()
    assert keeper._handler.cuts == 0  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before


def test_a_server_that_hangs_while_we_close_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kazoo_keeper, "CLOSE_TIMEOUT_S", 0.01)
    keeper, client = keeper_of_everything()
    is_cut = threading.Event()
    waited: list[bool] = []
    monkeypatch.setattr(keeper._handler, "cut", is_cut.set)
    monkeypatch.setattr(
        client, "stop", lambda: waited.append(is_cut.wait(LONG_S)), raising=False
    )
    keeper.close()
    assert waited == [True]


def test_kazoo_connects_again_as_long_as_the_session_may_live() -> None:
    clock = StillClock()
    keeper = keeper_on(Everything(), clock)
    may_connect = keeper._handler.may_connect
    clock.passed_s = 5 * LONG_S
    assert may_connect(), "it never broke"
    keeper._on_state(KazooState.SUSPENDED)
    clock.passed_s += LONG_S
    assert may_connect()
    keeper._on_state(KazooState.CONNECTED)
    clock.passed_s += LONG_S
    assert may_connect()
    keeper._on_state(KazooState.SUSPENDED)
    clock.passed_s += LONG_S + 1
    assert not may_connect()
    with pytest.raises(ReplicaRetired, match=r"no ZooKeeper answered for 11\.0 s"):
        keeper.get("/a")


def test_a_session_that_kazoo_calls_lost_is_over_and_one_without_a_name_yet_is_not() -> None:
    keeper, client = keeper_of_everything()
    client.client_id = None  # type: ignore[assignment]
    keeper._on_state(KazooState.CONNECTED)
    assert not keeper.is_retired
    keeper._on_state(KazooState.LOST)
    with pytest.raises(ReplicaRetired, match="expired"):
        keeper.get("/a")


def test_who_settles_unasked_waits_a_while_before_each_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper, _ = keeper_of()
    done: list[object] = []
    monkeypatch.setattr(keeper, "_hung_up", SimpleNamespace(wait=done.append))
    answers = iter([Unavailable("no server"), OutcomeUnknown("no answer"), None])

    def multi(_ops: object) -> list[str]:
        done.append("tries")
        if error := next(answers):
            raise error
        return [""]

    monkeypatch.setattr(keeper, "multi", multi)
    monkeypatch.setattr(keeper, "children_many", lambda _: [])
    monkeypatch.setattr(keeper, "get_many", lambda paths: [None for _ in paths])
    keeper.strays.leave([Stray("/first")])
    until_settled()
    assert done == [kazoo_keeper.SETTLE_PAUSE_S, "tries"] * 3


def test_the_answer_about_many_nodes_has_what_was_found_of_each() -> None:
    """Behind whatever stands before it."""

    def head(kind: int, *, is_end: bool = False) -> bytes:
        return bytes(serialization.MultiHeader(kind, is_end, -1).serialize())

    stat = serialization.stat_struct.pack(*range(11))
    names = serialization.int_struct.pack(2) + b"".join(map(serialization.write_string, "äb"))
    answer = b"".join(
        (
            b"before",
            head(serialization.GetData.type) + serialization.write_buffer(b"x") + stat,
            head(serialization.GetChildren.type) + names,
            head(-1) + serialization.int_struct.pack(NoNodeError.code),
            head(serialization.GetData.type) + serialization.write_buffer(None) + stat,
            head(-1, is_end=True),
        )
    )
    one, children, missing, empty = _ReadMany.deserialize(answer, len(b"before"))
    assert one == (b"x", STAT)
    assert children == ["ä", "b"]
    assert isinstance(missing, NoNodeError)
    assert empty == (None, STAT)


def test_a_watch_that_lasts_is_heard_until_the_connection_breaks() -> None:
    """kazoo keeps the watchers of a connection in a dictionary that it replaces with the next."""
    watches, told = Watches(), []
    key: Key = ("children", "/a")
    client = SimpleNamespace(chroot="/ours", _child_watchers=defaultdict(set))
    client._child_watchers["/other"].add("somebody")
    for number in range(2):
        request = _AddWatch(client, "/a", Lasting(key, watches))  # type: ignore[arg-type]
        assert request.deserialize(b"", 0)
        assert watches.wait(key, lambda: told.append("children"))
        [watcher] = client._child_watchers.pop("/ours/a")
        watcher(WatchedEvent(EventType.CHILD, KazooState.CONNECTED, "/a"))
        assert told == ["children"] * (number + 1)
        assert client._child_watchers["/other"] == {"somebody"}
    assert watches.wait(key, lambda: told.append("broke"))
    [watcher] = client._child_watchers["/ours/a"]
    watcher(WatchedEvent(EventType.NONE, KazooState.SUSPENDED, "/a"))
    assert told[2:] == ["broke"]
    assert not watches.wait(key, lambda: told.append("nobody"))


def test_children_that_are_awaited_already_cost_no_request() -> None:
    keeper, client = keeper_of_everything()
    told: list[str] = []
    keeper._life.watches.lasts(("children", "/a"))
    assert keeper.await_children("/a", lambda: told.append("called"))
    assert client.asked == []
    keeper._life.watches.fire(("children", "/a"))
    assert told == ["called"]
