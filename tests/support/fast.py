"""Makes simulations faster: remembers what pure functions of the production code answered, and
keeps the dead from complaining.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import pytest

from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica import pull_log
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.zookeeper import snapshot
from tests.support.world import Killed

REMEMBERED_MAX = 50_000
PURE: tuple[tuple[type, str], ...] = (
    (Claim, "decode"),
    (Manifest, "decode"),
    (PartHeader, "decode"),
    (PartName, "try_parse"),
)


@contextmanager
def remembering(*modules: ModuleType) -> Iterator[None]:
    """The same values for the same arguments, only sooner: they are frozen, nobody can tell.

    `modules` read entries of the log too. What is a plant when it begins stays one; nothing is
    remembered for the next time, which may have another.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", _silent_about_the_dead(sys.unraisablehook))
        for owner, name in PURE:
            patch.setattr(owner, name, staticmethod(_remembered(getattr(owner, name))))
        for module in (snapshot, pull_log, *modules):
            patch.setattr(module, "decode", _remembered(module.decode))
        yield


def _remembered(function: Callable[..., Any]) -> Any:
    """Exceptions are not remembered: they are computed again."""
    return lru_cache(REMEMBERED_MAX)(function)


def _silent_about_the_dead(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """A generator of a killed process that is collected tries to clean up, and can't."""

    def report(unraisable: Any) -> object:
        return None if unraisable.exc_type is Killed else hook(unraisable)

    return report
