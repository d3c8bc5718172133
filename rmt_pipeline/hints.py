"""What was read before, kept to save requests; shared by the threads of a process."""

import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Hints(Generic[K, V]):
    """A cache that may forget anything at any time. Thread-safe.

    A lookup returns a dictionary of its own with the keys that are known; the caller reads the
    others itself. What other threads learn or forget afterwards does not change that dictionary, so
    a decision never mixes two states. A value may be learnt only if it stays true for ever, or if
    an action that relies on it is refused once it is no longer true.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[K, V] = {}

    def of(self, keys: Iterable[K]) -> dict[K, V]:
        """The values of those keys that are known, in the order of `keys`."""
        with self._lock:
            found = self._found
            return {key: found[key] for key in keys if key in found}

    def __contains__(self, key: K) -> bool:
        return key in self._found

    def __len__(self) -> int:
        return len(self._found)

    def learn(self, found: Mapping[K, V], *, most: int | None = None) -> None:
        """Remember these values. With `most`, the oldest are forgotten when there are more than
        that.
        """
        with self._lock:
            self._found.update(found)
            if most is not None and len(self._found) > most:
                for key in [*self._found][: len(self._found) - most]:
                    del self._found[key]

    def forget(self, keys: Iterable[K]) -> None:
        """Forget these keys, known or not."""
        with self._lock:
            for key in keys:
                self._found.pop(key, None)
