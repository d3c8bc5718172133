"""REPLACE, ATTACH and MOVE PARTITION between two tables: wherever the process dies that was asked,
its next start finds all of it or nothing, and said again it ends as if it had been said once.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hosts import Died, Dying
from tests.support.local_replicas import Replicas, partitioned
from tests.support.partitioned import Pair, rows, work
from tests.support.two_tables import Two, filled, source_of

FILES = ("mkdir", "link", "rename", "unlink", "rmdir")
EFFECTS_MAX = 200
BOTH = ("r1", "r2")
NEW = [(1, 10), (1, 11)]
OLD = [(1, 1), (2, 2)]


COMMANDS = {
    "replace": (Two.replace, (NEW, [*NEW, (2, 2)])),
    "attach": (Two.attach, (NEW, sorted([*NEW, *OLD]))),
    "move": (Two.move, ([], sorted([*NEW, *OLD]))),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_who_dies_anywhere_has_done_all_or_nothing(tmp_path, monkeypatch, name):
    """P39. Death behind an effect is death before the next one."""
    command, after = COMMANDS[name]
    seen = set()
    for at in range(1, EFFECTS_MAX):
        with world(tmp_path / str(at)) as two:
            has_died = dies(monkeypatch, at, two, command)
            two.s.stop("r1")
            for replicas in (two.s, two.t):
                replicas.come_back("r1")
            found = state(two, "r1")
            assert found in ((NEW, OLD), after), f"after effect {at}"
            seen.add(found == after)
            command(two)
            for replicas in (two.t, two.s):
                work(replicas)
            assert [state(two, one) for one in BOTH] == [after, after], f"after effect {at}"
        if not has_died:
            break
    assert not has_died, f"it has more than {EFFECTS_MAX} effects"
    assert seen == {True, False}


@contextmanager
def world(directory: Path) -> Iterator[Two]:
    with Replicas(directory / "s", define=source_of) as s:
        two = Two(s, Replicas(directory / "t", define=partitioned, beside=s))
        filled(two)
        yield two


def state(two: Two, name: str) -> tuple[list[Pair], list[Pair]]:
    return rows(two.s, name), rows(two.t, name)


def dies(monkeypatch, at: int, two: Two, command: Callable[[Two], object]) -> bool:
    """Whether it does, behind effect number `at`."""
    death = Dying(at, after=True)
    with monkeypatch.context() as patch:
        for owner, effect in (
            *((os, name) for name in FILES),
            *((two.s["r1"].session, name) for name in ("multi", "multi_many")),
        ):
            real = getattr(owner, effect)
            patch.setattr(owner, effect, lambda *a, real=real, **o: death.effect(real, *a, **o))
        try:
            command(two)
        except Died:
            return True
    return False
