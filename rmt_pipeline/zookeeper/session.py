"""The life of one ZooKeeper session: whether it is over, and what is called when it ends."""

import threading
from collections.abc import Callable

from rmt_pipeline.protocol.errors import ReplicaRetired
from rmt_pipeline.zookeeper.keeper import Watch
from rmt_pipeline.zookeeper.watches import Asked, Event, Key, Watches, What


class SessionLife:
    """The state of a session, which is alive at first, ends once, and stays ended. Thread-safe.

    Each watch is called once: when its event comes, or at the latest when the session ends.
    """

    def __init__(self, hang_up: Callable[[], None]) -> None:
        """`hang_up` releases the resources of the session; it is called once, and may block."""
        self.session_id = 0
        self._hang_up = hang_up
        self._lock = threading.Lock()
        self._over: str | None = None  # why the session ended; set once
        self._reaper: threading.Thread | None = None
        self._callbacks: list[Callable[[], None]] = []
        self.watches = Watches()

    @property
    def is_over(self) -> bool:
        """Whether the session has ended."""
        return self._over is not None

    def require(self) -> None:
        """Raises ReplicaRetired when the session is over."""
        if self._over is not None:
            raise self.retired()

    def retired(self) -> ReplicaRetired:
        """The error of a call in a session that is over."""
        return ReplicaRetired(
            f"ZooKeeper session {self.session_id:#x} is over ({self._over or 'expired'}); "
            "start over with a new one"
        )

    def on_retired(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from another thread, when the session ends in any way but by
        `close`; at once, in this thread, if it has ended so already. `callback` may call `close`.
        """
        with self._lock:
            if self._over is None:
                self._callbacks.append(callback)
                return
            closed_by_us = self._reaper is None
        if not closed_by_us:
            callback()

    def ask(self, what: What, path: str, watch: Watch) -> tuple[Asked, Event]:
        """Like `Watches.ask`. Raises ReplicaRetired."""
        asked, event = self.watches.ask(what, path, watch)
        if self._over is not None:  # ended since the caller checked: nothing would call it
            self.watches.failed(asked)
            raise self.retired()
        return asked, event

    def wait(self, key: Key, watch: Watch) -> bool:
        """Like `Watches.wait`. Raises ReplicaRetired."""
        is_waiting = self.watches.wait(key, watch)
        if self._over is not None:  # ended since the caller checked: maybe nothing calls it
            self.watches.fire(key)
            raise self.retired()
        return is_waiting

    def retire(self, why: str) -> None:
        """Note that the session ended by itself. Does not block: another thread calls the callbacks
        and watches, and hangs up.
        """
        with self._lock:
            if self._over is not None:
                return
            self._over = why
            self._reaper = threading.Thread(target=self._reap, name="rmt-retire", daemon=True)
            self._reaper.start()

    def close(self) -> None:
        """End the session, call its watches and hang up; return when that is done.

        If the session ended by itself, wait until everything is released (unless this is called by
        a callback, which the thread that releases it runs). After another `close`, do nothing.
        """
        with self._lock:
            first = self._over is None
            self._over = self._over or "closed"
            reaper = self._reaper
        if first:
            self.watches.fire_all()
            self._hang_up()
        elif reaper is not None and reaper is not threading.current_thread():
            reaper.join()

    def _reap(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        self.watches.fire_all()
        self._hang_up()
