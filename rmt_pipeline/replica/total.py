"""A number to which several threads add."""

import threading


class Total:
    """What was added since it was made: nothing is lost between two threads. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0

    @property
    def value(self) -> int:
        return self._value

    def add(self, number: int) -> None:
        with self._lock:
            self._value += number
