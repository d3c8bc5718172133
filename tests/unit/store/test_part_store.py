"""The part store, example by example, on a real directory and on the fake disk."""

import dataclasses
import errno
import os
import random
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from rmt_pipeline.protocol.errors import Conflict, Corruption, DiskFull, MissingPart, UserError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import disk as disk_module
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import Disk, LocalDisk
from rmt_pipeline.store.manifest import Manifest, PartColumn
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import RandomIds
from tests.support.fake_disk import FakeDisk
from tests.support.parts import CountedIds, clone, manifest_of, put, stage_bytes

PART = PartName.parse("all_1_1_0")


@pytest.fixture(params=["fake", "local"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return FakeDisk(lambda: 1000.0) if request.param == "fake" else LocalDisk(tmp_path)


@pytest.fixture
def store(disk: Disk) -> PartStore:
    return PartStore(disk, "db/t", ids=CountedIds())


@pytest.mark.parametrize("look", ["size", "chunks"])
def test_a_part_that_goes_while_it_is_read_is_missing_and_not_broken(
    store: PartStore, disk: Disk, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    store.publish(stage_bytes(store), PART)
    right = getattr(type(disk), look)

    def late(self: Disk, path: str) -> Any:
        if layout.MANIFEST not in path and store.is_taken(PART):
            store.detach(PART, "clone")
        return right(self, path)

    monkeypatch.setattr(type(disk), look, late)
    with pytest.raises(MissingPart, match="is not on disk"):
        store.verify(PART)


def test_a_part_is_staged_then_published(store: PartStore) -> None:
    staged = stage_bytes(store)
    assert store.parts() == []
    assert store.staged() == [staged.directory]
    store.publish(staged, PART)
    assert store.parts() == [PART]
    assert store.staged() == []
    assert store.has(PART)
    assert store.manifest(PART) == staged.manifest
    assert store.verify(PART) == staged.manifest
    assert b"".join(store.file_chunks(PART, "data-00000.parquet")) == b"rows"


def test_publishing_twice_is_the_same_as_once(store: PartStore) -> None:
    staged = stage_bytes(store)
    store.publish(staged, PART)
    store.publish(staged, PART)
    assert store.parts() == [PART]


def test_a_part_with_the_same_rows_is_as_good(store: PartStore) -> None:
    put(store, str(PART), b"one encoding")
    again = stage_bytes(store, b"another encoding")
    store.publish(again, PART)
    assert store.manifest(PART).bytes_on_disk == len(b"one encoding")
    assert store.staged() == []


def test_a_part_with_other_rows_is_not_replaced(store: PartStore) -> None:
    put(store, str(PART))
    other = stage_bytes(store, content=10)
    with pytest.raises(Conflict, match="all_1_1_0 is on disk with other rows"):
        store.publish(other, PART)
    assert store.staged() == [other.directory]
    store.withdraw(PART, other)
    assert store.parts() == [PART], "not ours: it stays"


def test_what_was_destroyed_does_not_come_back_with_a_power_loss() -> None:
    """A new table of the same place would find the parts of the old one."""
    for seed in range(10):
        disk = FakeDisk(lambda: 1000.0)
        store = PartStore(disk, "db/t", ids=CountedIds())
        put(store, str(PART))
        store.destroy()
        disk.crash(random.Random(seed))
        assert store.parts() == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "lost"), DiskFull("lost")])
def test_a_part_whose_bytes_the_disk_has_lost_is_not_published_later(
    store: PartStore, disk: Disk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A sync tells only once that bytes were lost: the next one finds nothing left to write."""
    staged = [stage_bytes(store, b"one"), stage_bytes(store, b"other")]
    pairs = list(zip(staged, (PART, PartName.parse("all_2_2_0")), strict=True))

    def tells(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(type(disk), "fsync_trees", tells)
        with pytest.raises(type(error)):
            store.publish_all(pairs)
    for pair in pairs:
        with pytest.raises(MissingPart, match="can't be published"):
            store.publish(*pair)
    assert store.parts() == []
    assert store.staged() == []


def test_publishing_what_was_swept_is_missing(store: PartStore) -> None:
    staged = stage_bytes(store)
    store.discard(staged)
    store.discard(staged)
    with pytest.raises(MissingPart, match="can't be published"):
        store.publish(staged, PART)


def test_staging_does_not_bring_back_the_directory_of_a_dropped_table(
    store: PartStore, disk: Disk
) -> None:
    """The next table of that name would find a part in its own that it never had."""
    store.destroy()
    with pytest.raises(MissingPart, match=r"db/t is gone.*was the table dropped"):
        stage_bytes(store)
    assert disk.modified_s("db/t") is None


def test_publishing_into_a_table_that_was_dropped_meanwhile_says_so(store: PartStore) -> None:
    """Its directory goes between the sync of what is staged and its new name, or before."""
    staged = stage_bytes(store)
    store.destroy()
    with pytest.raises(MissingPart, match=r"db/t is gone.*was the table dropped"):
        store.publish(staged, PART)


def test_many_are_published_with_one_sync(store: PartStore) -> None:
    pairs = [(stage_bytes(store), PartName("all", n, n, 0)) for n in range(3)]
    store.publish_all(pairs)
    assert store.parts() == [part for _, part in pairs]


def test_a_withdrawn_part_can_get_another_number(store: PartStore) -> None:
    staged = stage_bytes(store)
    store.publish(staged, PART)
    store.withdraw(PART, staged)
    store.withdraw(PART, staged)
    assert store.parts() == []
    store.publish(staged, PartName.parse("all_2_2_0"))
    assert store.verify(PartName.parse("all_2_2_0")) == staged.manifest


def test_an_abandoned_staging_leaves_nothing(store: PartStore) -> None:
    staging = store.begin("merge", "all_1_2_1")
    staging.write("data-00000.parquet", [b"a", b"b"])
    staging.abandon()
    assert store.staged() == []


def test_a_written_file_has_its_size_and_hash(store: PartStore) -> None:
    staging = store.begin("fetch", "all_1_2_1")
    written = staging.write("data-00000.parquet", iter([b"ro", b"ws"]))
    assert written == manifest_of({"data-00000.parquet": b"rows"}).files[0]


def test_a_seal_without_the_files_is_a_bug(store: PartStore) -> None:
    staging = store.begin("insert", "all")
    with pytest.raises(AssertionError, match="None bytes, not 4"):
        staging.seal(manifest_of({"data-00000.parquet": b"rows"}))


def test_what_is_not_there_is_missing(store: PartStore) -> None:
    assert not store.has(PART)
    with pytest.raises(MissingPart, match="db/t/all_1_1_0 is not on disk"):
        store.manifest(PART)
    with pytest.raises(MissingPart):
        store.verify(PART)
    with pytest.raises(MissingPart):
        store.detach(PART, "broken")
    with pytest.raises(MissingPart), store.pin([PART]):
        pass
    put(store, str(PART))
    with pytest.raises(MissingPart, match="no file other"):
        store.file_chunks(PART, "other")


def test_damage_is_found_and_named(store: PartStore, disk: Disk) -> None:
    put(store, str(PART))
    path = "db/t/all_1_1_0/data-00000.parquet"
    disk.write(path, [b"rowz"])
    with pytest.raises(Corruption, match=r"data-00000\.parquet has hash .* expected"):
        store.verify(PART)
    disk.write(path, [b"row"])
    with pytest.raises(Corruption, match="has 3 bytes, expected 4"):
        store.verify(PART)
    disk.write("db/t/all_1_1_0/part.json", [b"{}"])
    with pytest.raises(Corruption, match="db/t/all_1_1_0"):
        PartStore(disk, "db/t", ids=CountedIds()).manifest(PART)


def test_a_lost_file_is_found_and_named(store: PartStore, disk: Disk) -> None:
    staging = store.begin("insert", "all")
    store.publish(staging.seal(manifest_of({})), PART)
    assert store.verify(PART).files == ()
    lying = manifest_of({"data-00000.parquet": b"rows"})
    disk.write("db/t/all_1_1_0/part.json", [lying.encode()])
    with pytest.raises(Corruption, match=r"data-00000\.parquet is missing"):
        PartStore(disk, "db/t", ids=CountedIds()).verify(PART)
    with pytest.raises(MissingPart, match="lost a file"):
        clone(PartStore(disk, "db/t", ids=CountedIds()), PART, "attach", str(PART))
    assert store.staged() == []


def test_what_is_left_of_a_broken_part_is_set_aside(store: PartStore, disk: Disk) -> None:
    put(store, str(PART), b"rows")
    disk.write("db/t/all_1_1_0/part.json", [b"?"])
    assert store.detach_copy(PART, "broken") == "detached/broken_all_1_1_0"
    kept = "db/t/detached/broken_all_1_1_0"
    assert disk.list(kept) == disk.list("db/t/all_1_1_0") != []
    assert disk.read(f"{kept}/part.json") == b"?"
    with pytest.raises(MissingPart, match="all_7_7_0 is not on disk"):
        store.detach_copy(PartName.parse("all_7_7_0"), "broken")


def test_a_part_that_came_back_is_read_anew(tmp_path: Path) -> None:
    store = PartStore(LocalDisk(tmp_path), ids=CountedIds())
    put(store, str(PART), b"old")
    store.manifest(PART)
    other_process = PartStore(LocalDisk(tmp_path), ids=CountedIds())
    other_process.remove(PART)
    put(other_process, str(PART), b"newer")
    os.utime(tmp_path / "all_1_1_0" / "part.json", (5, 5))
    assert store.manifest(PART).bytes_on_disk == len(b"newer")


def test_removing(store: PartStore) -> None:
    put(store, str(PART))
    assert store.remove(PART)
    assert store.remove(PART), "it is gone: that is what was asked"
    assert store.parts() == store.staged() == []


def test_a_removal_that_died_does_not_stop_the_next_one(store: PartStore, disk: Disk) -> None:
    put(store, str(PART))
    disk.make_directory("db/t/delete_tmp_all_1_1_0")
    disk.write("db/t/delete_tmp_all_1_1_0/data-00000.parquet", [b"left"])
    assert store.remove(PART)
    assert store.parts() == store.staged() == []


def test_a_pinned_part_stays_until_it_is_released(store: PartStore) -> None:
    put(store, str(PART))
    other = put(store, "all_2_2_0")
    with store.pin([PART]), store.pin([PART]):
        assert store.remove_all([PART, other]) == [PART]
        assert store.verify(PART)
    assert store.remove(PART)


def test_a_pin_of_a_part_that_is_gone_pins_nothing(store: PartStore) -> None:
    put(store, str(PART))
    with pytest.raises(MissingPart), store.pin([PART, PartName.parse("all_9_9_0")]):
        pass
    assert store.remove(PART)


def test_a_pin_of_another_process_holds_and_ends_with_it(tmp_path: Path) -> None:
    store = PartStore(LocalDisk(tmp_path), ids=CountedIds())
    put(store, str(PART))
    reader = textwrap.dedent(f"""
        import sys
        from rmt_pipeline.protocol.parts.name import PartName
        from rmt_pipeline.store.disk import LocalDisk
        from rmt_pipeline.store.part_store import PartStore
        store = PartStore(LocalDisk({str(tmp_path)!r}), ids=None)
        with store.pin([PartName.parse("all_1_1_0")]):
            print("pinned", flush=True)
            sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", reader],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "pinned\n"
        assert not store.remove(PART)
        process.kill()
        process.wait()
    assert store.remove(PART)


def test_more_parts_can_be_pinned_than_the_usual_limit_of_open_files(tmp_path: Path) -> None:
    store = PartStore(LocalDisk(tmp_path), ids=CountedIds(), durable=False)
    for number in range(150):
        put(store, f"all_{number}_{number}_0")
    reader = textwrap.dedent(f"""
        import resource
        from rmt_pipeline.store.disk import LocalDisk
        from rmt_pipeline.store.part_store import PartStore
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        store = PartStore(LocalDisk({str(tmp_path)!r}), ids=None)
        parts = store.parts()
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
        with store.pin(parts):
            print(len(parts))
    """)
    found = subprocess.run(
        [sys.executable, "-c", reader],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert found.stdout == "150\n"


def test_readers_and_a_remover_never_meet(tmp_path: Path) -> None:
    """Whoever got a pin reads whole parts; whoever did not is told at once."""
    store = PartStore(LocalDisk(tmp_path), ids=CountedIds(), durable=False)
    broken: list[str] = []
    finished = threading.Event()

    def read() -> None:
        while not finished.is_set():
            try:
                with store.pin([PART]):
                    data = b"".join(store.file_chunks(PART, "data-00000.parquet"))
                    if data != b"rows":
                        broken.append(repr(data))
            except MissingPart:
                continue
            except OSError as error:
                broken.append(str(error))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(150):
        put(store, str(PART))
        while not store.remove(PART):
            pass
    finished.set()
    for reader in readers:
        reader.join()
    assert broken == []


def test_detached_parts_keep_their_reason_and_never_replace_each_other(
    store: PartStore,
) -> None:
    for expected in ["detached/broken_all_1_1_0", "detached/broken_all_1_1_0_try1"]:
        put(store, str(PART))
        assert store.detach(PART, "broken") == expected
    assert store.parts() == []
    put(store, str(PART))
    assert store.detach_copy(PART, "") == "detached/all_1_1_0"
    assert store.parts() == [PART]
    assert store.detached() == ["all_1_1_0", "broken_all_1_1_0", "broken_all_1_1_0_try1"]


def test_the_eleventh_detached_copy_is_refused(store: PartStore) -> None:
    put(store, str(PART))
    for _ in range(10):
        store.detach_copy(PART, "ignored")
    with pytest.raises(UserError, match="10 times; look at the copies"):
        store.detach_copy(PART, "ignored")
    with pytest.raises(UserError, match="10 times"):
        store.detach(PART, "ignored")
    assert store.has(PART)
    assert store.staged() == []


def test_a_part_whose_manifest_cannot_be_read_is_detached_all_the_same() -> None:
    """An entry of DETACH PARTITION failed for ever, and held up all that came behind it."""
    disk = FakeDisk(lambda: 1000.0)
    store = PartStore(disk, "t", ids=CountedIds())
    put(store, str(PART))
    disk.spoil(f"t/{PART}/part.json")
    assert store.detach_copy(PART, "", once=True) == "detached/all_1_1_0"
    assert store.detach_copy(PART, "", once=True) == "detached/all_1_1_0_try1"


def test_a_clone_shares_bytes_and_tells_its_own_story(store: PartStore, disk: Disk) -> None:
    put(store, str(PART))
    story = dataclasses.replace(store.manifest(PART), mutations=("0000000001",))
    clone = PartName.parse("all_1_1_0_5")
    staging = store.begin("mutate", str(clone))
    store.publish(store.clone_into(staging, PART, story), clone)
    assert store.verify(clone).mutations == ("0000000001",)
    assert store.manifest(PART).mutations == ()
    with store.pin([clone]):
        assert store.remove(PART), "a pin of the clone is not one of the source"
    assert store.verify(clone)


class Meanwhile:
    """A disk: something happens just before a directory loses the part's name, and just after."""

    def __init__(self, disk: Disk, before: Callable[[], object], after: Callable[[], object]):
        self._disk = disk
        self._before = [before]
        self._after = [after]

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def rename(self, source: str, target: str) -> None:
        moves = source.endswith(f"/{PART}")
        while moves and self._before:
            self._before.pop()()
        self._disk.rename(source, target)
        while moves and self._after:
            self._after.pop()()


def without_manifest(store: PartStore, disk: Disk) -> None:
    disk.make_directory(f"db/t/{PART}")
    disk.write(f"db/t/{PART}/data-00000.parquet", [b"rows of a part that has no manifest"])


def beside(disk: Disk, store: PartStore, after: Callable[[], object]) -> PartStore:
    """Another process's: in its way somebody puts a whole part in place of the broken one."""

    def replaced() -> None:
        disk.remove_tree(f"db/t/{PART}")
        put(store, str(PART))

    return PartStore(cast("Disk", Meanwhile(disk, replaced, after)), "db/t", ids=RandomIds())


def removed(store: PartStore) -> None:
    assert store.remove_all([PART]) == [PART]


def set_aside(store: PartStore) -> None:
    assert store.detach_if(PART, "unexpected", lambda: True) is None


@pytest.mark.parametrize("take", [removed, set_aside])
def test_a_sweep_takes_no_whole_part_that_was_taken_for_a_broken_one(
    store: PartStore, disk: Disk, take: Callable[[PartStore], None]
) -> None:
    """1. A directory has no manifest, so it can't be locked. 2. A whole part is put in its place.
    3. That is what the removal moves. 4. A clean-up of another process sweeps. 5. It is put back.
    """
    without_manifest(store, disk)
    swept: list[str] = []
    late = beside(
        disk, store, lambda: swept.extend(store.sweep((), older_than_s=0, now_s=1e12))
    )
    take(late)
    assert store.verify(PART)
    assert store.detached() == []
    assert swept == store.staged() == []


@pytest.mark.parametrize("take", [removed, set_aside])
def test_whoever_dies_with_a_part_in_his_hands_has_not_taken_it(
    store: PartStore, disk: Disk, take: Callable[[PartStore], None]
) -> None:
    def dies() -> None:
        raise KeyboardInterrupt

    without_manifest(store, disk)
    late = beside(disk, store, dies)
    with pytest.raises(KeyboardInterrupt):
        take(late)
    assert not store.is_taken(PART)
    assert store.sweep((), older_than_s=1e9, now_s=0) == []
    assert store.verify(PART)
    assert store.staged() == store.detached() == []


def test_what_was_moved_gives_way_to_what_has_the_name_by_then(
    store: PartStore, disk: Disk
) -> None:
    without_manifest(store, disk)
    late = beside(disk, store, lambda: put(store, str(PART)))
    assert late.remove_all([PART]) == [PART]
    assert store.verify(PART)
    assert store.staged() == []


def test_a_directory_without_a_manifest_goes_as_others_do(store: PartStore, disk: Disk) -> None:
    without_manifest(store, disk)
    assert store.remove(PART)
    without_manifest(store, disk)
    assert store.detach_if(PART, "unexpected", lambda: True) == f"detached/unexpected_{PART}"
    assert store.detached() == [f"unexpected_{PART}"]
    assert disk.list("db/t") == ["detached"]


def test_a_sweep_takes_what_is_old_and_not_needed(store: PartStore, disk: Disk) -> None:
    """Spec §10.6."""
    needed, old = stage_bytes(store), stage_bytes(store)
    put(store, str(PART))
    disk.make_directory("db/t/delete_tmp_all_5_5_0")
    disk.make_directory("db/t/somebody's")
    now_s = disk.modified_s(f"db/t/{old.directory}") or 0.0
    keep = {needed.directory}
    assert store.sweep(keep, older_than_s=60, now_s=now_s) == ["delete_tmp_all_5_5_0"]
    assert store.sweep(keep, older_than_s=60, now_s=now_s + 61) == [old.directory]
    assert disk.list("db/t") == sorted([str(PART), "somebody's", needed.directory])


def test_a_full_disk_stops_the_staging_and_leaves_the_rest() -> None:
    disk = FakeDisk(lambda: 0.0)
    store = PartStore(disk, ids=CountedIds())
    put(store, str(PART))
    staging = store.begin("insert", "all")
    disk.full = True
    with pytest.raises(DiskFull):
        staging.write("data-00000.parquet", b"rows")
    staging.abandon()
    assert store.staged() == []
    assert store.verify(PART)


def test_a_really_full_disk_is_named_with_the_bytes_wanted(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "data").symlink_to(full)
    with pytest.raises(DiskFull, match=rf"{tmp_path}; 5 bytes were to be written\. Free"):
        LocalDisk(tmp_path).write("data", [b"12345"])


def test_files_are_absolute_paths_in_key_order(tmp_path: Path) -> None:
    store = PartStore(LocalDisk(tmp_path), "db/t", ids=CountedIds())
    files = {"data-00001.parquet": b"b", "data-00000.parquet": b"a"}
    staging = store.begin("merge", "all_1_2_1")
    for name, data in files.items():
        Path(staging.local_path(name)).write_bytes(data)
    part = PartName.parse("all_1_2_1")
    store.publish(staging.seal(manifest_of(files)), part)
    assert store.files(part) == [f"{tmp_path}/db/t/all_1_2_1/{name}" for name in files]
    assert [Path(path).read_bytes() for path in store.files(part)] == [b"b", b"a"]


def test_of_more_manifests_than_are_remembered_the_oldest_are_read_again(
    store: PartStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all of them at once: then a table of so many parts would never be remembered."""
    three = 3 * manifest_of({"data-00000.parquet": b"rows"}).bytes_in_memory
    monkeypatch.setattr("rmt_pipeline.store.manifest.READ_BYTES_MAX", three)
    names = [f"all_{block}_{block}_0" for block in range(4)]
    parts = [put(store, name, b"rows") for name in names]
    read: list[str] = []
    right = type(disk).read

    def counted(self: Disk, path: str) -> bytes | None:
        read.append(path.split("/")[-2])
        return right(self, path)

    monkeypatch.setattr(type(disk), "read", counted)
    for part in parts[:3]:
        store.manifest(part)
    store.manifest(parts[0])
    store.manifest(parts[3])
    assert read == names, "the first one was asked for a moment ago"
    store.manifest(parts[0])
    store.manifest(parts[2])
    assert read == names
    store.manifest(parts[1])
    assert read == [*names, names[1]]


def test_what_is_remembered_has_a_bound_in_bytes_not_in_parts(
    store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest of many columns takes the place of many others. One is always remembered."""
    files = {"data-00000.parquet": b"rows"}
    wide = manifest_of(files)
    names = [f"c{number}" for number in range(40)]
    wide = dataclasses.replace(
        wide,
        columns=tuple(PartColumn(name, "UInt64") for name in names),
        column_hashes=dict.fromkeys(names, 1),
    )
    limit = 7 * manifest_of(files).bytes_in_memory
    monkeypatch.setattr("rmt_pipeline.store.manifest.READ_BYTES_MAX", limit)
    parts = [put(store, f"all_{block}_{block}_0", b"rows") for block in range(9)]
    for _ in range(3):  # a part that is read again, removed, and put again counts once
        store.manifest(parts[0])
        store.remove(parts[0])
        put(store, str(parts[0]), b"rows")
    assert sum(store.manifest_read(part) is not None for part in parts) == 7
    last = PartName.parse("all_9_9_0")
    staging = store.begin("insert", "all")
    staging.write("data-00000.parquet", b"rows")
    store.publish(staging.seal(wide), last)
    kept = [part for part in (*parts, last) if store.manifest_read(part) is not None]
    assert last in kept
    assert sum(store.manifest(part).bytes_in_memory for part in kept) <= limit
    monkeypatch.setattr("rmt_pipeline.store.manifest.READ_BYTES_MAX", 1)
    store.manifest(parts[0])
    assert store.manifest_read(parts[0]) is not None
    assert store.manifest_read(last) is None


@pytest.mark.parametrize("columns", [1, 30, 300])
def test_what_a_manifest_takes_in_memory_is_about_what_it_says(columns: int) -> None:
    names = [f"column_{number}" for number in range(columns)]
    made = dataclasses.replace(
        manifest_of({"data-00000.parquet": b"rows"}),
        columns=tuple(PartColumn(name, "Nullable(String)") for name in names),
        column_hashes={name: 2**100 + number for number, name in enumerate(names)},
    )
    text = made.encode()
    Manifest.decode(text)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    found = [Manifest.decode(text) for _ in range(20)]
    taken = (tracemalloc.get_traced_memory()[0] - before) / len(found)
    tracemalloc.stop()
    # Python may share some of what is small.
    assert taken / 3 < made.bytes_in_memory < taken * 3


def test_parts_that_kept_their_names_are_adopted_in_the_order_they_are_wanted(
    store: PartStore,
) -> None:
    """Not in that of a set, which differs from one process to the next."""
    wanted = [put(store, f"all_{number}_{number}_0") for number in reversed(range(1, 13))]
    found = store.adopt("fetch", dict.fromkeys(wanted, lambda _: True))
    assert list(found) == wanted


def test_what_was_just_published_is_not_read_to_know_what_is_in_it(
    store: PartStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until somebody else changes it: then its file has another time."""
    staged = stage_bytes(store)
    store.publish(staged, PART)
    read: list[str] = []
    right = type(disk).read
    monkeypatch.setattr(
        type(disk), "read", lambda self, path: read.append(path) or right(self, path)
    )
    assert store.manifest(PART) == staged.manifest
    assert read == []
    monkeypatch.setattr(type(disk), "modified_s", lambda *_: 2000.0)
    assert store.manifest(PART) == staged.manifest
    assert len(read) == 1


def test_a_part_that_another_process_removed_is_not_answered_from_memory(
    store: PartStore, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The manifest's mtime is read: there is no such part yet. 2. Another process publishes the
    part, and its manifest is read. 3. Another process removes it: again there is no mtime.
    """
    other = PartStore(disk, store.root, ids=CountedIds())
    right = type(disk).modified_s

    def publish_after_look(self: Disk, path: str) -> float | None:
        found = right(self, path)
        monkeypatch.setattr(type(disk), "modified_s", right)
        other.publish(stage_bytes(other), PART)
        return found

    monkeypatch.setattr(type(disk), "modified_s", publish_after_look)
    assert store.manifest(PART).rows
    assert other.remove(PART)
    with pytest.raises(MissingPart):
        store.manifest(PART)


@pytest.mark.parametrize("broken", [None, 0, 49])
@pytest.mark.parametrize("count", [3, 50])
def test_each_of_many_parts_is_synced_or_none_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, broken: int | None
) -> None:
    """Several threads share the work."""
    store, synced = PartStore(LocalDisk(tmp_path), "t", ids=CountedIds()), set[str]()
    names = [PartName("all", number, number, 0) for number in range(count)]
    staged = [stage_bytes(store) for _ in names]
    bad = None if broken is None else staged[broken % count].directory

    def sync(path: str, _flags: int) -> None:
        if bad is not None and bad in path:
            raise OSError(errno.ENOSPC, "no space left", path)
        synced.add(path)

    monkeypatch.setattr(disk_module, "_libc_with_syncfs", lambda: None)
    monkeypatch.setattr(disk_module, "_sync", sync)
    if bad is not None:
        with pytest.raises(DiskFull, match="no space left"):
            store.publish_all([*zip(staged, names, strict=True)])
        assert store.parts() == []
        return
    store.publish_all([*zip(staged, names, strict=True)])
    assert store.parts() == names
    root = tmp_path / "t"
    of_parts = [root / one.directory for one in staged]
    files = [root / one.directory / file for one in staged for file in one.names_to_sync()]
    assert synced == {*map(str, [root, *of_parts, *files])}


def test_a_part_that_another_thread_could_not_sync_does_not_get_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PartStore(LocalDisk(tmp_path), "t", ids=CountedIds())
    staged, ours = stage_bytes(store), threading.get_ident()
    another_failed = threading.Event()

    def sync(path: str, _flags: int) -> None:
        if threading.get_ident() == ours:
            assert another_failed.wait(30)
        else:
            another_failed.set()
            raise OSError(errno.EIO, "the disk is broken", path)

    monkeypatch.setattr(disk_module, "_sync", sync)
    with pytest.raises(OSError, match="the disk is broken"):
        store.publish(staged, PART)
    assert store.parts() == []
