"""What a real session's keeper remembers of reads that failed, and of what it left, without a
ZooKeeper: kazoo's client is as it would be.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from rmt_pipeline.system import SystemClock
from rmt_pipeline.zookeeper import kazoo_keeper
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from rmt_pipeline.zookeeper.keeper import Refused
from rmt_pipeline.zookeeper.strays import Stray

LONG_S = 10.0


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
