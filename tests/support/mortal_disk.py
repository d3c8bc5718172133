"""A disk whose process dies at one of its effects."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.fake_disk import FakeDisk

EFFECTS = (
    *("make_directory", "write", "append", "fsync", "fsync_directory", "rename"),
    *("link_from", "remove_file", "remove_tree"),
)


class Died(BaseException):
    """The process is no more. Not an Exception: nobody may catch their own death."""


class MortalDisk:
    """Dies at effect number `at`: before it, in the middle of it, or after it."""

    def __init__(self, disk: FakeDisk, at: int, when: str) -> None:
        self._disk = disk
        self._at = at
        self._when = when
        self.effects = 0

    def remove_trees(self, paths: Sequence[str]) -> None:
        """Each is an effect of its own."""
        for path in paths:
            self.remove_tree(path)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)
        return self._mortal(name, method) if name in EFFECTS else method

    def _mortal(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **named: Any) -> Any:
            arguments = [one._disk if isinstance(one, MortalDisk) else one for one in given]
            self.effects += 1
            if self.effects - 1 != self._at:
                return method(*arguments, **named)
            if self._when == "after":
                method(*arguments, **named)
            elif self._when == "during":
                self._part_of(name, *arguments)
            raise Died

        return act

    def _part_of(self, name: str, *arguments: Any) -> None:
        rng = random.Random(self._at)
        if name == "write":
            path, chunks = arguments
            self._disk.write_part_of(path, chunks, rng)
        elif name == "remove_tree":
            self._disk.remove_part_of(*arguments, rng)
