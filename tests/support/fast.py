"""Makes simulations faster: remembers what pure functions of the production code answered, and
keeps the dead from complaining.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.manifest import Manifest
from tests.support.world import Killed

REMEMBERED_MAX = 50_000


@contextmanager
def remembering() -> Iterator[None]:
    """The same values for the same arguments, only sooner: they are frozen, nobody can tell."""
    decode = Manifest.__dict__["decode"]
    parse = PartName.__dict__["try_parse"]
    hook = sys.unraisablehook
    Manifest.decode = _remembered(Manifest.decode)  # type: ignore[method-assign]
    PartName.try_parse = _remembered(PartName.try_parse)  # type: ignore[method-assign]
    sys.unraisablehook = _silent_about_the_dead(hook)
    try:
        yield
    finally:
        Manifest.decode = decode
        PartName.try_parse = parse
        sys.unraisablehook = hook


def _remembered(function: Callable[..., Any]) -> Any:
    """Exceptions are not remembered: they are computed again."""
    return staticmethod(lru_cache(REMEMBERED_MAX)(function))


def _silent_about_the_dead(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """A generator of a killed process that is collected tries to clean up, and can't."""

    def report(unraisable: Any) -> object:
        return None if unraisable.exc_type is Killed else hook(unraisable)

    return report
