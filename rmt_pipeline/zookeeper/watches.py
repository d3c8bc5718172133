"""The watches of one session: which callbacks wait for a change of which node.

ZooKeeper keeps one watch of a session for a path, however often it is asked for, while a loop that
waits asks again at each turn. So this module keeps each callback once for each path and kind of
watch; its memory grows with what is waited for, not with how often a loop asks:

* a callback that waits for a node already is not added again;
* a callback that is a bound method, such as a waker's `wake`, is referenced weakly: when its object
  is gone, it no longer waits;
* a read that failed leaves no callback behind;
* where ZooKeeper has a persistent watch, of awaited children, another callback costs no request.

A callback is called at the first event after its read was sent. The read's answer may already
include that change, since the event was on its way then. So the caller reads again when it is
called, and asks for a new watch.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rmt_pipeline.zookeeper.keeper import Watch

What = Literal["data", "children"]
"""The kind of a watch: `get` and `exists` set the same one in ZooKeeper, listings another one."""

Key = tuple[What, str]
Waiter = Callable[[], Watch | None]
"""Returns the watch to call, or None if its object is gone. Waiters of equal watches are equal."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A waiter that holds its watch strongly, until it is called."""

    watch: Watch

    def __call__(self) -> Watch:
        return self.watch


@dataclass(frozen=True, slots=True)
class Event:
    """What ZooKeeper's client calls when `key` changes. Events of one key are equal, so that the
    client keeps only one of them.
    """

    key: Key
    watches: "Watches" = field(repr=False)

    def __call__(self, *_: object) -> None:
        self.watches.fire(self.key)


@dataclass(frozen=True, slots=True)
class Lasting(Event):
    """An `Event` of a persistent watch, which stays after it has fired and ends with the
    connection.

    1. The connection breaks, and with it the watch. Before we are told, a caller asks to wait.
    2. The caller takes the watch for one that still exists, sends no request, and waits.
    3. We are told: first the watch is removed from the persistent ones, then every waiter is
       called, also that caller.
    """

    def lapse(self) -> None:
        """Note that the connection has ended, and the watch with it."""
        self.watches.lapse(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One read that asks for a watch and has no answer yet."""

    key: Key
    waiter: Waiter


class Watches:
    """The callbacks that wait for changes of nodes in one session. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Key, set[Waiter]] = {}
        self._asked: dict[Key, list[Asked]] = {}
        self._lasting: set[Key] = set()
        # Waiters whose objects are gone. The garbage collector adds them, at any moment and in any
        # thread, so that must not take the lock.
        self._nobody: deque[tuple[Key, Waiter]] = deque()

    def __len__(self) -> int:
        """How many callbacks wait; one counts once for each path and kind."""
        with self._lock:
            self._drop_nobody()
            waiting = sum(map(len, self._waiting.values()))
            return waiting + sum(map(len, self._asked.values()))

    def ask(self, what: What, path: str, watch: Watch) -> tuple[Asked, Event]:
        """Note that a read which asks for this watch is about to be sent. The caller passes the
        Event with the read, and calls `answered` or `failed` with the Asked afterwards.

        This comes before the read is sent because an event may come before the answer.
        """
        key = (what, path)
        asked = Asked(key, self._waiter(key, watch))
        with self._lock:
            self._drop_nobody()
            self._asked.setdefault(key, []).append(asked)
        return asked, Event(key, self)

    def lasts(self, key: Key) -> None:
        """Note that ZooKeeper has a persistent watch for `key`, until `lapse`. Called when its
        answer comes, which is before any of its events.
        """
        with self._lock:
            self._lasting.add(key)

    def lapse(self, key: Key) -> None:
        """Note that the persistent watch of `key` is gone, and call its waiters, which then read
        again.
        """
        with self._lock:
            self._lasting.discard(key)
        self.fire(key)

    def wait(self, key: Key, watch: Watch) -> bool:
        """Wait with the persistent watch of `key`. Return False, and do nothing, if
        there is none.
        """
        waiter = self._waiter(key, watch)
        with self._lock:
            self._drop_nobody()
            if key in self._lasting:
                self._waiting.setdefault(key, set()).add(waiter)
                return True
        return False

    def answered(self, asked: Asked) -> None:
        """Note that the read was answered: its callback waits, unless its event has
        come already.
        """
        with self._lock:
            if self._take(asked):
                self._waiting.setdefault(asked.key, set()).add(asked.waiter)
        self._crossed(asked)

    def failed(self, asked: Asked) -> None:
        """Note that the read failed: its callback is dropped, since the caller gets the error."""
        with self._lock:
            self._take(asked)
        self._crossed(asked)

    def _crossed(self, asked: Asked) -> None:
        """Give up the persistent watch of a key if an ordinary one was asked for as well.

        In servers before 3.9 a watch that fires once replaces a persistent one of the same path:

        1. One thread asks for the persistent watch.
        2. Before its answer comes, another thread asks for a watch that fires once.
        3. The first answer comes: the watch is noted as persistent.
        4. The second answer comes: the watch is no longer persistent. After the next event
           ZooKeeper has no watch at all, and no waiter would ever be called.

        So the persistent watch counts as gone, and all its waiters are called; the next one that
        asks for it sets it again.
        """
        with self._lock:
            is_crossed = asked.key in self._lasting
        if is_crossed:
            self.lapse(asked.key)

    def fire(self, key: Key) -> None:
        """Call the watches that wait for `key`; none of them waits any longer."""
        with self._lock:
            asked = {each.waiter for each in self._asked.pop(key, [])}
            waiters = self._waiting.pop(key, set()) | asked
        for waiter in waiters:
            watch = waiter()
            if watch is not None:
                watch()

    def fire_all(self) -> None:
        """Call every watch that waits, as when the session ends."""
        with self._lock:
            keys = [*self._waiting, *self._asked]
        for key in dict.fromkeys(keys):
            self.fire(key)

    def _waiter(self, key: Key, watch: Watch) -> Waiter:
        """The waiter for this watch: a weak reference if it is a bound method of an object that
        can be referenced weakly and is compared by identity, else a strong one.
        """
        hashing: object = type(getattr(watch, "__self__", None)).__hash__
        if hashing is not object.__hash__:
            return _Kept(watch)
        nobody = self._nobody
        try:
            return weakref.WeakMethod(watch, lambda gone: nobody.append((key, gone)))
        except TypeError:  # no bound method, or its object allows no weak reference
            return _Kept(watch)

    def _take(self, asked: Asked) -> bool:
        """Remove a read without answer. False if an event came first, and has removed it."""
        others = self._asked.get(asked.key, [])
        if asked not in others:
            return False
        others.remove(asked)
        if not others:
            del self._asked[asked.key]
        return True

    def _drop_nobody(self) -> None:
        """Remove the waiters whose objects are gone. The caller holds the lock."""
        while self._nobody:
            key, waiter = self._nobody.popleft()
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.discard(waiter)
                if not waiting:
                    del self._waiting[key]
