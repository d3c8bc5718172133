"""Threads that take turns at every line: what a switch between two lines can break, breaks here,
and breaks again with the same seed.

Only one of the threads runs at a time. At every line of the given modules it may have to wait, and
another one goes on. Modules that hold locks while they run are not among them: a thread that waits
there would never be waited for.
"""

import random
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any

PATIENCE_S = 300.0  # then a thread waits for a lock of one that waits for its turn


def interleave(
    seed: int, modules: Sequence[ModuleType], *actions: Callable[[], None], switch: float = 0.3
) -> None:
    """Run each action in a thread of its own. Raises the first error of any of them."""
    turns = _Turns(random.Random(seed), switch, {module.__file__ for module in modules})
    threads = [
        threading.Thread(target=turns.run, args=(number, action), daemon=True)
        for number, action in enumerate(actions)
    ]
    for thread in threads:
        thread.start()
    turns.begin(len(threads))
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread holds a lock while it waits for its turn"
    for error in turns.errors:
        raise error


class _Turns:
    def __init__(self, rng: random.Random, switch: float, files: set[str | None]) -> None:
        self.errors: list[BaseException] = []
        self._rng = rng
        self._switch = switch
        self._files = files
        self._changed = threading.Condition()
        self._waiting: list[int] = []
        self._turn = -1

    def begin(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) == count, PATIENCE_S)
            self._hand_over()

    def run(self, number: int, action: Callable[[], None]) -> None:
        self._pause(number, hand_over=False)

        def called(frame: FrameType, event: str, argument: Any) -> Any:
            del event, argument
            return at_line if frame.f_code.co_filename in self._files else None

        def at_line(frame: FrameType, event: str, argument: Any) -> Any:
            del frame, argument
            if event == "line" and self._rng.random() < self._switch:
                self._pause(number, hand_over=True)
            return at_line

        sys.settrace(called)
        try:
            action()
        except BaseException as error:  # noqa: BLE001  raised by who waits for the threads
            self.errors.append(error)
        finally:
            sys.settrace(None)
            with self._changed:
                self._hand_over()

    def _pause(self, number: int, *, hand_over: bool) -> None:
        with self._changed:
            self._waiting.append(number)
            if hand_over:
                self._hand_over()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == number, PATIENCE_S)
            self._waiting.remove(number)
            self._turn = -1

    def _hand_over(self) -> None:
        """To one of those that wait. For who runs, with the lock."""
        if self._waiting:
            self._turn = self._rng.choice(sorted(self._waiting))
            self._changed.notify_all()
