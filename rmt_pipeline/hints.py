"""What was learnt before, kept to save requests; shared by the threads of a process."""

import threading
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Hints(Generic[K, V]):
    """A hint is never an answer: whoever asks gets a dictionary of his own, of what is known of the
    keys that he names, and has to find out the rest by himself. What other threads learn or forget
    afterwards changes nothing in it. So a hint may be forgotten at any time, by anybody; and it
    may be learnt only if it stays true for ever, or if whoever acts on it is refused when it
    is not true any more. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[K, V] = {}

    def of(self, keys: Iterable[K]) -> dict[K, V]:
        """Of these keys, those that are known, in their order."""
        with self._lock:
            found = self._found
            return {key: found[key] for key in keys if key in found}

    def __contains__(self, key: K) -> bool:
        return key in self._found

    def __len__(self) -> int:
        return len(self._found)

    def learn(self, found: Mapping[K, V], *, most: int | None = None) -> None:
        """With `most`: when more than so many are known, the oldest ones are forgotten."""
        with self._lock:
            self._found.update(found)
            if most is not None and len(self._found) > most:
                for key in [*self._found][: len(self._found) - most]:
                    del self._found[key]

    def forget(self, keys: Iterable[K]) -> None:
        """Nothing happens to those that are not known."""
        with self._lock:
            for key in keys:
                self._found.pop(key, None)
