"""Snapshots below `shadow/`: dying at every effect, of the process or of the whole host, and what
the next FREEZE or UNFREEZE makes of what was left (spec §9.9).
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.frozen import (
    BadSnapshotName,
    DirectoryAlreadyExists,
    FrozenParts,
    Shadow,
    SnapshotIsBusy,
)
from rmt_pipeline.store.part_store import PartStore
from tests.support.fake_disk import FakeDisk
from tests.support.local_replicas import StillClock, definition_of
from tests.support.mortal_disk import Died, MortalDisk
from tests.support.parts import CountedIds, put

ONE, TWO, THREE = (PartName("all", number, number, 0) for number in range(3))
DEFINITION = replace(definition_of("r1"), comment="as it was")
HOME = "data/default/t"
SEEDS = 4


class Host(FakeDisk):
    """With paths to tell, and one file system for all its tables."""

    def local_path(self, path: str) -> str:
        return f"/r1/{path}"

    def link_from(self, disk: Any, source: str, target: str) -> bool:
        del disk
        return super().link_from(self, source, target)


def opened(disk: Any, *, durable: bool = True) -> tuple[PartStore, FrozenParts]:
    ids = CountedIds()
    store = PartStore(disk, HOME, ids=ids, durable=durable)
    shadow = Shadow(disk, clock=StillClock(), ids=ids, durable=durable)
    return store, shadow.of_table(HOME)


def freeze(
    store: PartStore, frozen: FrozenParts, *parts: PartName, name: str = "n"
) -> list[str]:
    known = [(part, store.manifest(part)) for part in parts]
    return [str(one.part) for one in frozen.freeze(store, DEFINITION, known, name)]


def new_host() -> Host:
    disk = Host(lambda: 0.0)
    store = PartStore(disk, HOME, ids=CountedIds())
    for part in (ONE, TWO, THREE):
        put(store, str(part), str(part).encode())
    return disk


def scenario(store: PartStore, frozen: FrozenParts) -> Iterator[set[PartName]]:
    """Yields what a step made certain to be in the snapshot, and nothing else."""
    freeze(store, frozen, ONE, TWO)
    yield {ONE, TWO}
    freeze(store, frozen, THREE)
    yield {ONE, TWO, THREE}
    frozen.unfreeze("n")
    yield set()
    freeze(store, frozen, ONE)
    yield {ONE}


STEPS = [set[PartName](), {ONE, TWO}, {ONE, TWO, THREE}, set[PartName](), {ONE}]


def run_until_death(disk: Host, at: int, when: str, *, durable: bool = True) -> tuple[int, int]:
    """How many steps were done when the process died, and how many effects there were."""
    mortal = MortalDisk(disk, at, when)
    done = 0
    try:
        for _ in scenario(*opened(mortal, durable=durable)):
            done += 1
    except Died:
        pass
    return done, mortal.effects


EFFECTS = run_until_death(new_host(), -1, "never")[1]


def check(disk: Host, done: int) -> None:
    """What the list says is there, whole: that of before the step that was died in or of after it;
    and the next UNFREEZE and FREEZE find nothing in their way.
    """
    store, frozen = opened(disk)
    listed = {part.name for one in frozen.snapshot("n") for part in one.parts}
    assert listed in (STEPS[done], STEPS[min(done + 1, 4)])
    for part in listed:
        data = disk.read(f"shadow/n/{HOME}/{part}/data-00000.parquet")
        assert data == str(part).encode()
        manifest = disk.read(f"shadow/n/{HOME}/{part}/part.json")
        assert manifest == disk.read(f"{HOME}/{part}/part.json")
    for part in listed:
        with pytest.raises(DirectoryAlreadyExists):
            freeze(store, frozen, part)
    rest = [part for part in (ONE, TWO, THREE) if part not in listed]
    freeze(store, frozen, *rest)
    there = [name for name in disk.list(f"shadow/n/{HOME}") if PartName.try_parse(name)]
    assert there == sorted(map(str, (ONE, TWO, THREE)))
    assert len(frozen.unfreeze("n")) == 3
    assert disk.list(f"shadow/n/{HOME}") == []
    assert disk.list("shadow") == ["n"]  # and nothing half removed
    for part in (ONE, TWO, THREE):
        store.verify(part)


def test_the_scenario_has_effects_to_die_at() -> None:
    assert EFFECTS > 50


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_process_may_die_at_every_effect_of_a_snapshot(when: str) -> None:
    for at in range(EFFECTS):
        disk = new_host()
        done, _ = run_until_death(disk, at, when)
        release_locks(disk)
        check(disk, done)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_the_host_may_crash_at_every_effect_of_a_snapshot(when: str) -> None:
    for at in range(EFFECTS + 1):
        for seed in range(SEEDS):
            disk = new_host()
            done, _ = run_until_death(disk, at, when)
            disk.crash(random.Random(seed))
            check(disk, done)


def release_locks(disk: Host) -> None:
    """What the kernel does for a process that is gone."""
    for name in ("shadow/n/lock", "shadow/increment.txt"):
        node = disk._find(name)
        if node is not None:
            node.locks.clear()


def test_a_snapshot_that_was_not_synced_is_noticed() -> None:
    """The canary: `durable=False` must be noticed, or the tests above prove nothing."""
    broken = 0
    for seed in range(20):
        disk = new_host()
        done, _ = run_until_death(disk, -1, "never", durable=False)
        disk.crash(random.Random(seed))
        try:
            check(disk, done)
        except (AssertionError, Exception):  # noqa: BLE001  whatever it is that breaks
            broken += 1
    assert broken > 5


# --- on a real disk -------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path) -> tuple[PartStore, FrozenParts, Shadow]:
    ids, disk = CountedIds(), LocalDisk(tmp_path)
    store = PartStore(disk, HOME, ids=ids, durable=False)
    for part in (ONE, TWO, THREE):
        put(store, str(part), str(part).encode())
    shadow = Shadow(disk, clock=StillClock(), ids=ids, durable=False)
    return store, shadow.of_table(HOME), shadow


def test_it_is_laid_out_as_the_original_does(local, tmp_path):
    store, frozen, _ = local
    [one] = frozen.freeze(store, DEFINITION, [(ONE, store.manifest(ONE))], "a name/ä")
    place = tmp_path / "shadow" / "a%20name%2F%C3%A4" / HOME
    assert one.snapshot == "a name/ä"
    assert one.directory == f"{place}/"
    assert one.part_directory == f"{place}/{ONE}/"
    own, ours = (root / str(ONE) / "part.json" for root in (tmp_path / HOME, place))
    assert own.stat().st_ino == ours.stat().st_ino
    assert sorted(path.name for path in (place / str(ONE)).iterdir()) == [
        "data-00000.parquet",
        "part.json",
    ]


def test_the_list_says_what_was_frozen_and_when(local):
    store, frozen, _ = local
    freeze(store, frozen, ONE, TWO)
    [one] = frozen.snapshot("n")
    assert (one.frozen_s, one.definition) == (1_700_000_000, DEFINITION)
    manifest = store.manifest(TWO)
    assert one.parts[1]._asdict() == {
        "name": TWO,
        "rows": 3,
        "size_bytes": len(str(TWO)),
        "row_hash": f"{manifest.row_hash:032x}",
        "content_hash": f"{manifest.content_hash:032x}",
        "hash_of_all_files": manifest.files_hash.hex(),
    }


@pytest.mark.parametrize("name", ["../x", "..", "a/../../b", "/etc/x", "x" * 300])
def test_a_name_that_would_lead_out_is_refused(local, name, tmp_path):
    store, frozen, shadow = local
    for command in (
        lambda: freeze(store, frozen, ONE, name=name),
        lambda: frozen.unfreeze(name),
        lambda: shadow.remove(name),
    ):
        with pytest.raises(BadSnapshotName):
            command()
    assert not (tmp_path / "shadow").exists()


def test_a_part_is_frozen_once_under_a_name_and_nothing_with_it(local, tmp_path):
    store, frozen, _ = local
    freeze(store, frozen, ONE)
    with pytest.raises(DirectoryAlreadyExists, match=f"{ONE} already exists and is not empty"):
        freeze(store, frozen, TWO, ONE)
    assert not (tmp_path / "shadow" / "n" / HOME / str(TWO)).exists()
    assert freeze(store, frozen, TWO) == [str(TWO)]


def test_without_a_name_it_gets_the_next_number(local, tmp_path):
    store, frozen, _ = local
    numbers = [frozen.freeze(store, DEFINITION, [(ONE, store.manifest(ONE))]) for _ in range(2)]
    assert [one.snapshot for [one] in numbers] == ["1", "2"]
    assert (tmp_path / "shadow" / "increment.txt").read_text() == "2\n"
    freeze(store, frozen, ONE, name="7")
    (tmp_path / "shadow" / "increment.txt").write_text("")  # died while it was written
    [one] = frozen.freeze(store, DEFINITION, [(ONE, store.manifest(ONE))])
    assert one.snapshot == "8"


def test_one_partition_is_unfrozen_and_the_others_stay(local):
    store, frozen, _ = local
    other = put(store, "b_0_0_0")
    freeze(store, frozen, ONE, other)
    assert frozen.unfreeze("n", "c") == []
    assert [one.part for one in frozen.unfreeze("n", "all")] == [ONE]
    assert frozen.names() == {str(other)}
    assert [one.part for one in frozen.unfreeze("n", "b")] == [other]
    assert frozen.unfreeze("n") == frozen.unfreeze("no such snapshot") == []


def test_all_tables_are_unfrozen_at_once(local, tmp_path):
    store, frozen, shadow = local
    freeze(store, frozen, ONE, TWO)
    shadow.of_table("data/d/gone").freeze(store, DEFINITION, [(ONE, store.manifest(ONE))], "n")
    had = shadow.remove("n")
    assert sorted((one.part, one.directory) for one in had) == [
        (ONE, f"{tmp_path}/shadow/n/data/d/gone/"),
        (ONE, f"{tmp_path}/shadow/n/{HOME}/"),
        (TWO, f"{tmp_path}/shadow/n/{HOME}/"),
    ]
    assert list((tmp_path / "shadow").iterdir()) == []
    assert shadow.remove("n") == []


def test_a_snapshot_in_use_is_waited_for_and_then_refused(local):
    store, frozen, shadow = local
    with shadow.held("n"), pytest.raises(SnapshotIsBusy, match="shadow/n/lock"):
        freeze(store, frozen, ONE)
    assert freeze(store, frozen, ONE) == [str(ONE)]


def test_a_list_that_was_damaged_is_not_believed(local, tmp_path):
    store, frozen, shadow = local
    freeze(store, frozen, ONE)
    [file] = (tmp_path / "shadow" / "n" / HOME).glob("frozen_*.json")
    file.write_bytes(file.read_bytes().replace(b'"rows": 3', b'"rows": 4'))
    for command in (lambda: freeze(store, frozen, TWO), lambda: frozen.unfreeze("n")):
        with pytest.raises(Corruption, match=r"frozen_000001\.json: check sum") as raised:
            command()
        assert "SYSTEM UNFREEZE WITH NAME 'n' removes it" in str(raised.value)
    assert [one.part for one in shadow.remove("n")] == [ONE]


@pytest.mark.parametrize("partition", [None, "all"])
def test_what_another_command_unfreezes_meanwhile_is_gone(local, monkeypatch, partition):
    store, _, shadow = local
    shadow.durable = True
    frozen = shadow.of_table(HOME)
    freeze(store, frozen, ONE)
    held = Shadow.held

    def late(self, name):
        monkeypatch.setattr(Shadow, "held", held)
        assert shadow.remove(name)
        return held(self, name)

    monkeypatch.setattr(Shadow, "held", late)
    assert frozen.unfreeze("n", partition) == []
