"""REPLACE, ATTACH and MOVE PARTITION between two tables, and ATTACH of what was detached: wherever
the process dies that was asked, its next start finds all of it or nothing, and said again it ends
as if it had been said once.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hosts import Died, Dying
from tests.support.local_replicas import Replicas, partitioned
from tests.support.partitioned import Pair, rows, work
from tests.support.two_tables import NOW, Two, filled, source_of

FILES = ("mkdir", "link", "rename", "unlink", "rmdir")
EFFECTS_MAX = 200
BOTH = ("r1", "r2")
NEW = [(1, 10), (1, 11)]
OLD = [(1, 1), (2, 2)]


def attach_detached(two: Two) -> None:
    two.t.table("r1").attach("1", settings=NOW)


COMMANDS = {
    "replace": (Two.replace, OLD, (NEW, [*NEW, (2, 2)])),
    "attach": (Two.attach, OLD, (NEW, sorted([*NEW, *OLD]))),
    "move": (Two.move, OLD, ([], sorted([*NEW, *OLD]))),
    "attach what was detached": (attach_detached, [(2, 2)], (NEW, OLD)),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_who_dies_anywhere_has_done_all_or_nothing(tmp_path, monkeypatch, name):
    """P39. Death behind an effect is death before the next one."""
    command, before, after = COMMANDS[name]
    seen = set()
    for at in range(1, EFFECTS_MAX):
        with world(tmp_path / str(at), name) as two:
            assert state(two, "r1") == (NEW, before)
            has_died = dies(monkeypatch, at, two, command)
            two.s.stop("r1")
            for replicas in (two.s, two.t):
                replicas.come_back("r1")
            found = state(two, "r1")
            assert found in ((NEW, before), after), f"after effect {at}"
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
def world(directory: Path, name: str) -> Iterator[Two]:
    with Replicas(directory / "s", define=source_of) as s:
        two = Two(s, Replicas(directory / "t", define=partitioned, beside=s))
        filled(two)
        if name == "attach what was detached":
            two.t.table("r1").drop_partitions(["1"], detach=True, settings=NOW)
            work(two.t)
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
