"""Who waits in a session: each once, however often it looks, and not when nobody waits any more."""

import gc
import threading
from dataclasses import dataclass

import pytest

from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.watches import Lasting, Watches

TURNS = 10_000


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def wake(self) -> None:
        self.calls += 1


def look(watches: Watches, watch, path: str = "/t/log", what="children"):
    """One read that asks for a watch, and is answered; its event."""
    asked, event = watches.ask(what, path, watch)
    watches.answered(asked)
    return event


def test_who_looks_again_and_again_is_kept_once() -> None:
    watches, waker = Watches(), EventWaker()
    events = {look(watches, waker.wake) for _ in range(TURNS)}
    assert len(watches) == 1
    assert len(events) == 1, "kazoo keeps a set of them"


def test_a_function_that_looks_again_and_again_is_kept_once() -> None:
    watches = Watches()

    def watch() -> None:
        pass

    for _ in range(TURNS):
        look(watches, watch)
    assert len(watches) == 1


def test_each_of_several_waiters_is_called_once() -> None:
    watches = Watches()
    waiters = [Counting(), Counting()]
    for waiter in waiters * 3:
        event = look(watches, waiter.wake)
    event()
    event()
    assert [waiter.calls for waiter in waiters] == [1, 1]
    assert len(watches) == 0


def test_paths_and_kinds_are_apart() -> None:
    watches, waiter = Watches(), Counting()
    data, children = look(watches, waiter.wake, what="data"), look(watches, waiter.wake)
    other = look(watches, waiter.wake, "/t/mutations")
    assert len(watches) == len({data, children, other}) == 3
    data()
    assert waiter.calls == 1
    assert len(watches) == 2


def test_a_waker_that_nobody_has_any_more_waits_no_more() -> None:
    """A sensor makes one for each tick; an idle table's log does not change for months."""
    watches = Watches()
    for _ in range(TURNS):
        look(watches, EventWaker().wake)
    gc.collect()
    assert len(watches) == 0
    look(watches, (last := EventWaker()).wake)()
    assert last.wait_s(0)


@pytest.mark.parametrize("how", ["ask", "wait"])
def test_who_looks_elsewhere_forgets_those_who_wait_no_more(how: str) -> None:
    """Nobody counts them in a process that only waits: the next one who asks for anything does."""
    watches = Watches()
    look(watches, EventWaker().wake, "/old")
    gc.collect()
    if how == "ask":
        watches.ask("data", "/new", lambda: None)
    else:
        watches.wait(("data", "/new"), lambda: None)
    assert ("children", "/old") not in watches._waiting


def test_who_has_no_identity_of_its_own_is_kept_until_it_is_called() -> None:
    """Two that are equal are two; one that allows no weak reference waits all the same."""

    @dataclass(slots=True)
    class Slotted:
        calls: int = 0

        def wake(self) -> None:
            self.calls += 1

    watches, one, other = Watches(), Slotted(), Slotted()
    for waiter in (one, other, one):
        event = look(watches, waiter.wake)
    assert len(watches) == 2
    event()
    assert (one.calls, other.calls) == (1, 1)


def test_a_read_that_failed_leaves_nothing_but_what_others_wait_for() -> None:
    watches, waiter = Watches(), Counting()
    event = look(watches, waiter.wake)
    for _ in range(TURNS):
        asked, _ = watches.ask("children", "/t/log", waiter.wake)
        watches.failed(asked)
    assert len(watches) == 1
    event()
    assert waiter.calls == 1


def test_an_event_before_the_answer_is_heard() -> None:
    """It comes of a watch that was set before, or it overtakes the thread that reads the answer."""
    watches, waiter = Watches(), Counting()
    asked, event = watches.ask("data", "/t/x", waiter.wake)
    event()
    watches.answered(asked)
    assert waiter.calls == 1
    event()
    assert waiter.calls == 1


def test_everybody_is_called_at_the_end() -> None:
    watches, waiters = Watches(), [Counting() for _ in range(3)]
    look(watches, waiters[0].wake, "/a")
    look(watches, waiters[1].wake, "/b", "data")
    watches.ask("data", "/c", waiters[2].wake)
    watches.fire_all()
    assert [waiter.calls for waiter in waiters] == [1, 1, 1]
    assert len(watches) == 0


@pytest.mark.parametrize("seed", range(3))
def test_no_event_is_lost_between_threads(seed: int) -> None:
    """A looker always either sees the newest number or is called."""
    watches, waker = Watches(), EventWaker()
    number, last = [0], 300
    seen: list[int] = []

    def changing() -> None:
        for value in range(1, last + 1):
            number[0] = value
            watches.fire(("data", "/n"))

    thread = threading.Thread(target=changing)
    thread.start()
    while True:
        asked, _ = watches.ask("data", "/n", waker.wake)
        seen.append(number[0])
        watches.answered(asked)
        if seen[-1] == last:
            break
        assert waker.wait_s(60), f"it saw {seen[-1]} and was not called for {number[0]}"
    thread.join()


def test_a_watch_that_stays_calls_whoever_waits_with_it_once() -> None:
    watches, calls = Watches(), []
    assert not watches.wait(("children", "/a"), lambda: calls.append("nobody"))
    watches.lasts(("children", "/a"))
    for name in ("one", "two"):
        assert watches.wait(("children", "/a"), lambda name=name: calls.append(name))
        watches.fire(("children", "/a"))
        watches.fire(("children", "/a"))
    assert calls == ["one", "two"]


def test_who_waits_with_a_watch_whose_connection_broke_is_called_and_asks_anew() -> None:
    watches, calls = Watches(), []
    watches.lasts(("children", "/a"))
    assert watches.wait(("children", "/a"), lambda: calls.append("broken"))
    Lasting(("children", "/a"), watches).lapse()
    assert calls == ["broken"]
    assert not watches.wait(("children", "/a"), lambda: calls.append("nobody"))
    assert len(watches) == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_watch_that_another_one_took_the_place_of_does_not_stay(*, fails: bool) -> None:
    """Servers before 3.9 keep one for each path, and the last one asked for fires once."""
    watches, calls = Watches(), []
    key = ("children", "/a")
    asked, _ = watches.ask(*key, lambda: calls.append("listed"))
    watches.lasts(key)
    assert watches.wait(key, lambda: calls.append("waits"))
    (watches.failed if fails else watches.answered)(asked)
    assert "waits" in calls
    assert not watches.wait(key, lambda: calls.append("nobody"))
    assert len(watches) == 0


def test_of_two_reads_on_their_way_each_is_answered_for_itself() -> None:
    watches, calls = Watches(), []
    first, event = watches.ask("data", "/a", lambda: calls.append("first"))
    second, _ = watches.ask("data", "/a", lambda: calls.append("second"))
    watches.failed(first)
    assert len(watches) == 1
    watches.failed(first)
    event()
    assert calls == ["second"]
    watches.answered(second)
    assert len(watches) == 0


def test_a_path_that_nobody_waits_for_any_more_is_forgotten() -> None:
    """A server asks for millions of them, one after the other."""
    watches = Watches()
    asked, _ = watches.ask("data", "/failed", lambda: None)
    watches.failed(asked)
    asked, _ = watches.ask("data", "/answered", lambda: None)
    watches.answered(asked)
    watches.fire(("data", "/answered"))
    look(watches, EventWaker().wake, "/gone")
    look(watches, EventWaker().wake, "/dead")
    gc.collect()
    watches.fire(("children", "/dead"))
    stays = EventWaker()
    look(watches, stays.wake, "/half")
    look(watches, EventWaker().wake, "/half")
    gc.collect()
    assert len(watches) == 1
    assert [*watches._waiting] == [("children", "/half")]
    assert not watches._asked
