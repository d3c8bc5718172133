"""FREEZE and UNFREEZE on replicas, beside merges, mutations and drops, step by step (spec §9.9)."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Corruption, Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.hashes.checksums import hash_hex
from rmt_pipeline.store.manifest import Manifest
from tests.support.local_replicas import Replicas, partitioned
from tests.support.partitioned import clean_up, insert, merge, rows, work

NOW = QuerySettings(alter_sync=0)
ALL = [(1, 0), (1, 1), (2, 7)]


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Partition 1 in two parts, partition 2 in one."""
    with Replicas(tmp_path, define=partitioned) as opened:
        for pair in ALL:
            insert(opened, pair)
        work(opened)
        yield opened


def place_of(replicas: Replicas, name: str) -> Path:
    root = Path(replicas.shadow("r1").disk.local_path("shadow"))
    return root / name / "data" / "default" / "t"


def frozen_in(replicas: Replicas, name: str) -> list[PartName]:
    """What the snapshot's list has, once every byte of it was compared with its hash."""
    table, place = replicas.table("r1"), place_of(replicas, name)
    parts = [part.name for one in table.frozen_parts.snapshot(name) for part in one.parts]
    for part in parts:
        manifest = Manifest.decode((place / str(part) / "part.json").read_bytes())
        for file in manifest.files:
            data = (place / str(part) / file.name).read_bytes()
            assert (len(data), hash_hex(data)) == (file.size, file.hash)
    return parts


def attach_from(replicas: Replicas, name: str) -> None:
    """As the manual says: copies of the parts' directories in `detached/`, then ATTACH."""
    place = place_of(replicas, name)
    for part in replicas.table("r1").frozen_parts.snapshot(name)[0].parts:
        target = Path(replicas.stores["r1"].disk.local_path("detached")) / str(part.name)
        shutil.copytree(place / str(part.name), target)
    replicas.table("r1").attach()
    work(replicas)


def test_what_was_frozen_outlives_merges_drops_and_clean_up_and_comes_back(replicas):
    frozen = replicas.table("r1").freeze(name="monday")
    assert [str(one.part) for one in frozen] == ["1_0_0_0", "1_1_1_0", "2_0_0_0"]
    merge(replicas)
    replicas.table("r1").truncate(settings=NOW)
    work(replicas)
    clean_up(replicas)
    assert rows(replicas) == replicas.stores["r1"].parts() == []
    attach_from(replicas, "monday")
    assert rows(replicas, "r1") == rows(replicas, "r2") == ALL


def test_one_partition_is_frozen(replicas):
    assert [str(one.part) for one in replicas.table("r1").freeze("1")] == ["1_0_0_0", "1_1_1_0"]
    assert replicas.table("r1").freeze("77", name="none") == []
    assert replicas.table("r1").frozen_parts.snapshot("none")[0].parts == ()


def test_parts_that_come_later_are_added_under_the_same_name(replicas):
    table = replicas.table("r1")
    table.freeze("1", name="n")
    table.freeze("2", name="n")
    merge(replicas)
    assert [str(one.part) for one in table.freeze("1", name="n")] == ["1_0_1_1"]
    assert len(frozen_in(replicas, "n")) == 4


def during_links(monkeypatch: pytest.MonkeyPatch, act) -> None:
    """What happens once the first file was linked."""
    link, done = LocalDisk.link_from, []

    def linked(disk, other, source, target):
        answer = link(disk, other, source, target)
        if not done:
            done.append(source)
            act()
        return answer

    monkeypatch.setattr(LocalDisk, "link_from", linked)


def test_a_merge_that_is_published_meanwhile_takes_nothing_from_it(replicas, monkeypatch):
    def merged() -> None:
        merge(replicas)
        clean_up(replicas)

    during_links(monkeypatch, merged)
    frozen = replicas.table("r1").freeze(name="n")
    assert [str(one.part) for one in frozen] == ["1_0_0_0", "1_1_1_0", "2_0_0_0"]
    assert frozen_in(replicas, "n") == [one.part for one in frozen]


def test_a_drop_meanwhile_takes_nothing_from_it(replicas, monkeypatch):
    def dropped() -> None:
        replicas.table("r1").drop_partitions(["1"], settings=NOW)
        work(replicas)
        clean_up(replicas)

    during_links(monkeypatch, dropped)
    frozen = replicas.table("r1").freeze(name="n")
    assert rows(replicas) == [(2, 7)]
    assert frozen_in(replicas, "n") == [one.part for one in frozen]
    monkeypatch.undo()
    attach_from(replicas, "n")
    assert sorted(set(rows(replicas))) == ALL


def test_what_was_merged_away_before_it_was_held_is_listed_again(replicas, monkeypatch):
    """1. FREEZE lists the parts. 2. They are merged, and removed. 3. FREEZE wants to hold them."""
    store, done = replicas.stores["r1"], []
    pin = type(store).pin

    def pinned(held, parts):
        if not done:
            done.append(parts)
            merge(replicas)
            clean_up(replicas)
        return pin(held, parts)

    monkeypatch.setattr(type(store), "pin", pinned)
    frozen = replicas.table("r1").freeze(name="n")
    assert [str(one.part) for one in frozen] == ["1_0_1_1", "2_0_0_0"]


def test_a_broken_part_is_not_frozen(replicas):
    disk = replicas.stores["r1"].disk
    path = f"1_0_0_0/{replicas.stores['r1'].manifest(PartName('1', 0, 0, 0)).files[0].name}"
    data = bytearray(disk.read(path))
    data[-1] ^= 1
    disk.write(path, [bytes(data)])
    with pytest.raises(Corruption):
        replicas.table("r1").freeze(name="n", settings={"broken_parts_wait_ms": 0})
    assert replicas.table("r1").frozen_parts.names() == frozenset()
    work(replicas)
    assert len(replicas.table("r1").freeze(name="n")) == 3


def test_without_zookeeper_a_snapshot_is_removed_without_an_error(replicas, monkeypatch):
    """1. UNFREEZE had removed the parts. 2. It wanted to note that, with a session that it does not
    need. 3. ZooKeeper was away: an error was told of what had been done.
    """

    def unreachable(_):
        raise Unavailable("ZooKeeper is away")

    table = replicas.table("r1")
    table.freeze(name="n")
    with monkeypatch.context() as away:
        away.setattr(type(table), "replica", property(unreachable))
        assert len(table.unfreeze("n")) == 3
    assert table.frozen_parts.names() == frozenset()


def test_writing_to_the_table_leaves_what_was_frozen_as_it_was(replicas):
    table = replicas.table("r1")
    table.freeze(name="n")
    place = place_of(replicas, "n")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    table.mutate("DELETE WHERE n = 1", settings=NOW)
    load_mutations(replicas["r1"])
    assign_mutations(replicas["r1"])
    work(replicas)
    assert rows(replicas) == [(1, 0), (2, 7)]
    merge(replicas)
    clean_up(replicas)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    assert [str(one.part) for one in table.unfreeze("n", "1")] == ["1_0_0_0", "1_1_1_0"]
    assert [str(one.part) for one in table.unfreeze("n")] == ["2_0_0_0"]
    assert not list(place.rglob("part.json"))
