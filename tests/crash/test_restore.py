"""SYSTEM RESTORE REPLICA dies at every effect it has, and several replicas do it at once: whoever
comes next goes on, and in the end every row that any disk had is there once, on every replica.
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict, OutcomeUnknown, ReplicaRetired, RmtError
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life import announce as announce_module
from rmt_pipeline.replica.life import latecomer, opening, restoring
from rmt_pipeline.replica.life import restore as restore_module
from rmt_pipeline.replica.life.disk_parts import DiskParts
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.marks import Marks
from rmt_pipeline.zookeeper.keeper import Check, Op, Refused
from tests.support.fake_keeper import FakeKeeper
from tests.support.interleave import interleave
from tests.support.mortal_disk import Died
from tests.support.restoring import Disaster, restore_until_open

STEPS = [restore_module, announce_module, opening, latecomer, restoring]
EFFECTS_MAX = 200
EVERY_PAIR = 1 if os.environ.get("RMT_CRASH_EVERY") == "1" else 5
ROWS = Counter([1, 2, 3, 4, 5, 5])
_DISKS: dict[tuple[str, ...], Path] = {}
"""By the names of the replicas: as they were when ZooKeeper was lost."""


class Mortal:
    """A session whose process dies at its effect of that number: before it, or after. Or which gets
    no answer, and lives: `unanswered`.
    """

    def __init__(self, keeper: FakeKeeper, at: int, how: str) -> None:
        self._keeper, self.left, self._how = keeper, at, how

    def multi(self, ops: list[Op]) -> list[str]:
        self.left -= 1
        if self.left == 0 and self._how == "before":
            raise Died
        try:
            result = self._keeper.multi(ops)
        except Refused:
            if self.left == 0 and self._how == "after":
                raise Died from None
            raise
        if self.left == 0:
            raise Died if self._how == "after" else OutcomeUnknown("no answer")
        return result

    def multi_many(self, multis: list[list[Op]]) -> list[list[str]]:
        return [self.multi(ops) for ops in multis]

    def __getattr__(self, name: str) -> object:
        return getattr(self._keeper, name)


def disaster_with_rows(directory: Path, names: tuple[str, ...]) -> Disaster:
    """r1 has merged three inserts, the others have them in pieces, and each of the first two has
    one that nobody else has received.
    """
    if names not in _DISKS:
        _DISKS[names] = Path(tempfile.mkdtemp())
        disaster = Disaster(_DISKS[names], names)
        for value in (1, 2, 3):
            disaster.insert("r1", value)
        for name in names[1:]:
            disaster.step(name, "fetch")
        optimize_partition(disaster["r1"], "all", final=True, skip_merged=False)
        disaster.step("r1")
        disaster.insert("r1", 4)
        disaster.insert("r2", 5, 5)
        disaster.note()
    shutil.copytree(_DISKS[names], directory, dirs_exist_ok=True)
    return Disaster(directory, names, lost=True)


@pytest.fixture(autouse=True, scope="module")
def no_disks_are_left() -> Iterator[None]:
    yield
    for directory in _DISKS.values():
        shutil.rmtree(directory)
    _DISKS.clear()


def all_is_well(disaster: Disaster, names: tuple[str, ...], where: str) -> None:
    restore_until_open(disaster, names)
    disaster.live_on(names)
    for name in names:
        assert disaster.values(name) == ROWS, (where, name)
        assert disaster[name].store.detached() == [], (where, name)
    last = max(part.block_max for part in disaster["r1"].store.parts())
    numbers = disaster["r1"].keeper.exists(disaster["r1"].table.partition("all"))
    assert numbers is not None, where
    assert numbers.next_sequence > last, where
    assert disaster.insert(names[-1], 6).block_min > last, where
    root = disaster["r1"].table
    there = disaster["r1"].keeper.exists_many([root.restoring, root.restoring_lock])
    assert there == [None, None], where


def died_everywhere(
    tmp_path: Path, names: tuple[str, ...], how: str, who: str
) -> Iterator[tuple[Disaster, str]]:
    """A world for each effect at which the restoring of `who` died; the others before it in the
    list have restored.
    """
    for at in range(1, EFFECTS_MAX):
        disaster = disaster_with_rows(tmp_path / f"{how}-{at}", names)
        for name in names[: names.index(who)]:
            disaster.restore(name)
        replica = disaster.connect(who)
        mortal = Mortal(replica.session, at, how)
        ended = False
        with suppress(Died, OutcomeUnknown):
            restore(replace(replica, keeper=mortal), who.encode())
            ended = mortal.left > 0  # else it got past a request without answer
        if how == "unanswered":
            replica.session.exists("/")  # a session that lives sees to what it left
        else:
            disaster.zookeeper.expire(replica.keeper.session_id)
        yield disaster, f"{who} {how} effect {at}"
        if ended:
            assert at > 5, "it has more effects than this"
            return
    pytest.fail(f"restoring has {EFFECTS_MAX} effects: the test is not there to the end")


@pytest.mark.parametrize("how", ["before", "after", "unanswered"])
@pytest.mark.parametrize("who", ["r1", "r2"])
def test_whoever_comes_next_goes_on(tmp_path, how, who):
    names = ("r1", "r2")
    for disaster, where in died_everywhere(tmp_path, names, how, who):
        all_is_well(disaster, names, where)


@pytest.mark.parametrize("who", ["r1", "r2"])
def test_whoever_comes_next_dies_too(tmp_path, who):
    """At each pair of effects (`make crash`; else at one of EVERY_PAIR): the second process of the
    replica goes on where the first one died.
    """
    names, played = ("r1", "r2"), 0
    for first in range(1, EFFECTS_MAX):
        for second in range(1, EFFECTS_MAX):
            if (7 * first + second) % EVERY_PAIR:
                continue
            disaster = disaster_with_rows(tmp_path / f"{first}-{second}", names)
            for name in names[: names.index(who)]:
                disaster.restore(name)
            died = [dies(disaster, who, at) for at in (first, second)]
            if all(died):
                played += 1
                all_is_well(disaster, names, f"{who}: effect {first}, then {second}")
            else:
                break
        if not died[0]:
            break
    assert played >= 5, "so many pairs there are"


def dies(disaster: Disaster, who: str, at: int) -> bool:
    """After its effect of that number; not when it has no more."""
    replica = disaster.connect(who)
    mortal = Mortal(replica.session, at, "after")
    with suppress(Died, NothingToRestore):
        restore(replace(replica, keeper=mortal), who.encode())
    disaster.zookeeper.expire(replica.keeper.session_id)
    return mortal.left <= 0


def test_the_last_of_three_dies_anywhere(tmp_path):
    names = ("r1", "r2", "r3")
    for disaster, where in died_everywhere(tmp_path, names, "after", "r3"):
        all_is_well(disaster, names, where)


def test_the_servers_alone_open_what_the_last_one_announced_before_it_died(tmp_path):
    """Nobody says it again: the servers look at their tables."""
    names, opened = ("r1", "r2"), 0
    for disaster, where in died_everywhere(tmp_path, names, "after", "r2"):
        table = disaster["r1"].table
        [read] = disaster.zookeeper.connect().get_many([table.restoring_replica("r2")])
        if read is None or not read[0]:
            continue  # it has yet to announce, or all is done
        opened += 1
        disaster.live_on(names)
        assert disaster.values("r1") == disaster.values("r2") == ROWS, where
    assert opened > 1


@pytest.mark.parametrize("seed", range(12))
def test_two_or_three_at_once(tmp_path, seed):
    names = ("r1", "r2", "r3")[: 2 + seed % 2]
    disaster = disaster_with_rows(tmp_path, names)

    def doing(name: str) -> Callable[[], None]:
        replica = disaster.connect(name)

        def action() -> None:
            for _ in range(random.Random(seed).randint(1, 2)):
                with suppress(Conflict, NothingToRestore, ReplicaRetired):
                    restore(replica, name.encode())

        return action

    interleave(seed, STEPS, *map(doing, names))
    all_is_well(disaster, names, f"seed {seed}")


@pytest.mark.parametrize("seed", range(8))
def test_two_processes_restore_one_replica(tmp_path, seed):
    names = ("r1", "r2")
    disaster = disaster_with_rows(tmp_path, names)
    disaster.restore("r2")
    first, second = disaster.connect("r1"), disaster.connect("r1")

    def doing(replica):
        def action() -> None:
            with suppress(Conflict, NothingToRestore):
                restore(replica, b"r1")

        return action

    interleave(seed, STEPS, doing(first), doing(second))
    all_is_well(disaster, names, f"seed {seed}")


def test_a_late_request_of_a_dead_process_changes_nothing_of_the_open_table(tmp_path):
    """It announced r1 slowly; another process did it meanwhile, the table was opened and took an
    insert. Its requests arrive now.
    """
    names = ("r1", "r2")
    for at in range(1, EFFECTS_MAX):
        disaster = disaster_with_rows(tmp_path / str(at), names)
        replica = disaster.connect("r1")
        slow = Slow(replica.session, at, partial(all_is_well, disaster, names, "between"))
        ended = False
        with suppress(Conflict, NothingToRestore):
            restore(replace(replica, keeper=slow), b"r1")
            ended = True
        if ended and slow.left > 0:
            return
        where = f"slow from effect {at} on"
        assert disaster.values("r1") in (ROWS, ROWS + Counter([6])), where
        for _ in range(5):
            for name in names:
                disaster.step(name, "fetch")
        assert disaster.values("r1") == disaster.values("r2"), where
    pytest.fail("it never ended")


def without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restore_module, "awaited", lambda *_: ())


def numbers_from_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(announce_module, "_skip", lambda *_: None)


def parts_of_one_disk(patch: pytest.MonkeyPatch) -> None:
    """What is in the log is what the first replica has."""
    right = opening.unite
    wrong = lambda held, *more: right({"r1": held["r1"]}, *more)  # noqa: E731
    patch.setattr(opening, "unite", wrong)


def nothing_in_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "_log_parts", lambda *_: 0)


def unguarded(patch: pytest.MonkeyPatch) -> None:
    """What is announced does not depend on the version of what was announced."""
    patch.setattr(announce_module, "Check", lambda path, version=-1: Check("/"))


def others_are_not_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Marks, "replicas_seen", lambda _: ())


def only_what_covers(patch: pytest.MonkeyPatch) -> None:
    """A part that another disk has in pieces is not announced."""
    right = announce_module._promise_parts

    def wrong(replica: Replica, guard: Op, disk: DiskParts) -> None:
        small = {part: one for part, one in disk.promised.items() if not part.level}
        right(replica, guard, replace(disk, promised=small))

    patch.setattr(announce_module, "_promise_parts", wrong)


def plainly(tmp_path: Path) -> None:
    names = ("r1", "r2")
    disaster = disaster_with_rows(tmp_path, names)
    all_is_well(disaster, names, "with a planted bug")


@pytest.mark.parametrize(
    "plant",
    [
        without_waiting,
        numbers_from_zero,
        parts_of_one_disk,
        nothing_in_the_log,
        others_are_not_known,
        only_what_covers,
    ],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_noticed(tmp_path, monkeypatch, plant):
    disaster_with_rows(tmp_path / "before", ("r1", "r2"))  # the bug is in what comes after it
    plant(monkeypatch)
    with pytest.raises((AssertionError, RmtError)):
        plainly(tmp_path / "after")


def test_a_late_request_that_nothing_refuses_is_noticed(tmp_path, monkeypatch):
    unguarded(monkeypatch)
    with pytest.raises((AssertionError, RmtError)):
        test_a_late_request_of_a_dead_process_changes_nothing_of_the_open_table(tmp_path)


def test_without_a_bug_it_is_well(tmp_path):
    plainly(tmp_path)


class Slow:
    """Before the effect of that number, others get on."""

    def __init__(self, keeper: FakeKeeper, at: int, meanwhile: Callable[[], None]) -> None:
        self._keeper, self.left, self._meanwhile = keeper, at, meanwhile

    def multi(self, ops: list[Op]) -> list[str]:
        self.left -= 1
        if self.left == 0:
            self._meanwhile()
        return self._keeper.multi(ops)

    def __getattr__(self, name: str) -> object:
        return getattr(self._keeper, name)
