"""Who waits for what in one session: one watch for each path and kind, and each waiter once in it.

ZooKeeper keeps one watch of a session for a path however often it is asked for, and whoever waits
in a loop asks again at each turn. So what is kept here grows with what is waited for, never with
how often somebody looked:

* a waiter that asks again, for the same, is there once;
* a waiter that is a bound method, such as a waker's `wake`, is not kept alive: when nobody has the
  waker any more, nobody waits;
* a read that failed has left nothing;
* where ZooKeeper's own watch stays, of children that are awaited, a waiter costs no request.

A waiter is called at the first event after its read was sent. That may be one that the answer
already tells of (it was on its way): whoever is called looks again, and asks again.
"""

import inspect
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rmt_pipeline.zookeeper.keeper import Watch

What = Literal["data", "children"]
"""`get` and `exists` ask for the same watch of ZooKeeper's, listings for another one."""

Key = tuple[What, str]
Waiter = Callable[[], Watch | None]
"""Gives the watch to call; None when nobody waits any more. Equal for equal watches."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A waiter that stays until it is called."""

    watch: Watch

    def __call__(self) -> Watch:
        return self.watch


@dataclass(frozen=True, slots=True)
class Event:
    """What is to be called when `key` changes; equal for one key, however often it is asked for."""

    key: Key
    watches: "Watches" = field(repr=False)

    def __call__(self, *_: object) -> None:
        self.watches.fire(self.key)


@dataclass(frozen=True, slots=True)
class Lasting(Event):
    """An `Event` of a watch that stays after it has fired, and ends with the connection.

    1. The connection breaks, and with it the watch. Somebody asks for it before we hear of that.
    2. He takes it for one that stays, sends no request, and is among those who wait.
    3. We hear of it: first nothing stays any more, and then everybody who waits is called, he too.
    """

    def lapse(self) -> None:
        self.watches.lapse(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One read that asks for a watch and has no answer yet."""

    key: Key
    waiter: Waiter


class Watches:
    """Who waits for which change of which node, in one session: however many wait for the same
    change, ZooKeeper is asked once. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Key, set[Waiter]] = {}
        self._asked: dict[Key, list[Asked]] = {}
        self._lasting: set[Key] = set()
        # Filled by the garbage collector, at any moment in any thread: it may not take the lock.
        self._nobody: deque[tuple[Key, Waiter]] = deque()

    def __len__(self) -> int:
        """How many wait, once for each path and kind."""
        with self._lock:
            self._drop_nobody()
            waiting = sum(map(len, self._waiting.values()))
            return waiting + sum(map(len, self._asked.values()))

    def ask(self, what: What, path: str, watch: Watch) -> tuple[Asked, Event]:
        """Before the read is sent, since its event may come before its answer."""
        key = (what, path)
        asked = Asked(key, self._waiter(key, watch))
        with self._lock:
            self._drop_nobody()
            self._asked.setdefault(key, []).append(asked)
        return asked, Event(key, self)

    def lasts(self, key: Key) -> None:
        """ZooKeeper has a watch for it that stays until `lapse`. The answer says so before any of
        its events.
        """
        with self._lock:
            self._lasting.add(key)

    def lapse(self, key: Key) -> None:
        """The watch is gone: whoever waits looks for himself."""
        with self._lock:
            self._lasting.discard(key)
        self.fire(key)

    def wait(self, key: Key, watch: Watch) -> bool:
        """Wait with the watch that stays, if there is one."""
        waiter = self._waiter(key, watch)
        with self._lock:
            self._drop_nobody()
            if key in self._lasting:
                self._waiting.setdefault(key, set()).add(waiter)
                return True
        return False

    def answered(self, asked: Asked) -> None:
        """From now on there is a watch, unless its event has come already."""
        with self._lock:
            if self._take(asked):
                self._waiting.setdefault(asked.key, set()).add(asked.waiter)
        self._crossed(asked)

    def failed(self, asked: Asked) -> None:
        """The caller learns of the failure; that is enough."""
        with self._lock:
            self._take(asked)
        self._crossed(asked)

    def _crossed(self, asked: Asked) -> None:
        """A watch that fires once takes the place of one that stays, in servers before 3.9.

        1. The one that stays is asked for. 2. Before its answer comes, somebody else asks for one
        that fires once. 3. The first answer: it stays. 4. The second one: it does not, and after
        the next event there is no watch at all, with nobody to tell of it.

        So it counts as gone, which is told to all; who asks for it again has it.
        """
        with self._lock:
            is_crossed = asked.key in self._lasting
        if is_crossed:
            self.lapse(asked.key)

    def fire(self, key: Key) -> None:
        """Call whoever waits for it, once."""
        with self._lock:
            asked = {each.waiter for each in self._asked.pop(key, [])}
            waiters = self._waiting.pop(key, set()) | asked
        for waiter in waiters:
            watch = waiter()
            if watch is not None:
                watch()

    def fire_all(self) -> None:
        with self._lock:
            keys = [*self._waiting, *self._asked]
        for key in dict.fromkeys(keys):
            self.fire(key)

    def _waiter(self, key: Key, watch: Watch) -> Waiter:
        """Weak for the method of an object that allows it, and is told apart by who it is."""
        hashing: object = type(getattr(watch, "__self__", None)).__hash__
        if not inspect.ismethod(watch) or hashing is not object.__hash__:
            return _Kept(watch)
        nobody = self._nobody
        try:
            return weakref.WeakMethod(watch, lambda gone: nobody.append((key, gone)))
        except TypeError:
            return _Kept(watch)

    def _take(self, asked: Asked) -> bool:
        """False when an event was faster."""
        others = self._asked.get(asked.key, [])
        if asked not in others:
            return False
        others.remove(asked)
        if not others:
            del self._asked[asked.key]
        return True

    def _drop_nobody(self) -> None:
        while self._nobody:
            key, waiter = self._nobody.popleft()
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.discard(waiter)
                if not waiting:
                    del self._waiting[key]
