"""What the store relies on a disk for: the same tests on a real directory and on the fake."""

import errno
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.store import disk as disk_module
from rmt_pipeline.store.disk import Disk, LocalDisk
from tests.support.fake_disk import FakeDisk


@pytest.fixture(params=["fake", "local"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return FakeDisk(time.time) if request.param == "fake" else LocalDisk(tmp_path)


def test_what_is_written_is_read(disk: Disk) -> None:
    disk.make_directory("a/b")
    assert disk.write("a/b/f", [b"one", b"", b"two"]) == 6
    assert disk.read("a/b/f") == b"onetwo"
    assert b"".join(disk.chunks("a/b/f")) == b"onetwo"
    assert disk.size("a/b/f") == 6
    disk.write("a/b/f", [b"x"])
    assert disk.read("a/b/f") == b"x"
    disk.fsync("a/b/f")
    disk.fsync_directory("a/b")
    disk.fsync_directory("")


def test_what_is_not_there(disk: Disk) -> None:
    disk.make_directory("d")
    disk.write("d/f", [b"1"])
    for path in ("no", "no/f", "d/no", "d/f/no"):
        assert disk.read(path) is None
        assert disk.size(path) is None
        assert disk.modified_s(path) is None
        assert disk.list(path) == []
        assert disk.lock(path, shared=True) is None
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            list(disk.chunks(path))
    for path in ("no", "no/f", "d/no"):
        disk.remove_tree(path)
    with pytest.raises(FileNotFoundError):
        disk.write("no/f", [b""])


def test_names_are_sorted_and_making_a_directory_twice_is_fine(disk: Disk) -> None:
    for name in ("c", "a", "b", "a"):
        disk.make_directory(name)
    assert disk.list("") == ["a", "b", "c"]


def test_a_rename_moves_a_whole_directory(disk: Disk) -> None:
    disk.make_directory("old/inner")
    disk.make_directory("there")
    disk.write("old/inner/f", [b"1"])
    disk.rename("old", "there/new")
    assert disk.read("there/new/inner/f") == b"1"
    assert disk.list("") == ["there"]


def test_a_rename_never_replaces_anything(disk: Disk) -> None:
    for name in ("source", "full", "empty"):
        disk.make_directory(name)
    for name in ("source", "full"):
        disk.write(f"{name}/f", [name.encode()])
    for target in ("full", "empty"):
        with pytest.raises(FileExistsError):
            disk.rename("source", target)
    assert disk.read("source/f") == b"source"
    assert disk.read("full/f") == b"full"


def test_a_rename_of_nothing_is_refused(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.rename("no", "other")


def test_a_link_is_a_second_name_of_the_same_file(disk: Disk) -> None:
    disk.make_directory("a")
    disk.make_directory("b")
    disk.write("a/f", [b"1"])
    disk.link_from(disk, "a/f", "b/g")
    with pytest.raises(FileExistsError):
        disk.link_from(disk, "a/f", "b/g")
    with pytest.raises(FileNotFoundError):
        disk.link_from(disk, "a/no", "b/h")
    disk.remove_tree("a")
    assert disk.read("b/g") == b"1"


def test_removing_a_tree_removes_everything_in_it(disk: Disk) -> None:
    disk.make_directory("a/b")
    disk.write("a/b/f", [b"1"])
    disk.remove_tree("a")
    disk.remove_tree("a")
    assert disk.list("") == []


def test_removing_many_trees_removes_each(disk: Disk) -> None:
    names = [f"a/{number}" for number in range(20)]
    for name in names:
        disk.make_directory(name)
        disk.write(f"{name}/f", [b"1"])
    disk.remove_trees([*names[1:], "a/none"])
    assert disk.list("a") == ["0"]
    disk.remove_trees([])


def test_an_exclusive_lock_excludes_every_other(disk: Disk) -> None:
    disk.make_directory("a")
    disk.write("a/f", [b"1"])
    held = disk.lock("a/f", shared=False)
    assert held is not None
    assert disk.lock("a/f", shared=False) is None
    assert disk.lock("a/f", shared=True) is None
    held.release()
    held.release()
    assert disk.lock("a/f", shared=True) is not None


def test_shared_locks_share(disk: Disk) -> None:
    disk.make_directory("a")
    disk.write("a/f", [b"1"])
    one, two = disk.lock("a/f", shared=True), disk.lock("a/f", shared=True)
    assert one is not None
    assert two is not None
    one.release()
    assert disk.lock("a/f", shared=False) is None
    two.release()
    assert disk.lock("a/f", shared=False) is not None


def test_a_lock_goes_with_its_file_when_the_directory_is_renamed(disk: Disk) -> None:
    disk.make_directory("a")
    disk.write("a/f", [b"1"])
    held = disk.lock("a/f", shared=True)
    disk.rename("a", "b")
    assert disk.lock("a/f", shared=False) is None, "it is gone"
    assert disk.lock("b/f", shared=False) is None, "it is still locked"
    assert held is not None
    held.release()


def test_a_lock_of_which_the_disk_does_not_say_whether_it_is_right_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nobody could remove the part until the process ends."""
    disk = LocalDisk(tmp_path)
    disk.write("f", [b"1"])

    def fails(*_: object) -> bool:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk_module, "is_at", fails)
        with pytest.raises(OSError, match="input/output error"):
            disk.lock("f", shared=True)
    assert disk.lock("f", shared=False) is not None


def test_free_space_is_a_number_of_bytes(disk: Disk) -> None:
    assert disk.free_bytes() > 0


def test_of_a_directory_that_somebody_removed_the_free_space_is_still_known(
    tmp_path: Path,
) -> None:
    """Its parts are fetched again. The worker that looks how large a merge may be ended with it."""
    assert LocalDisk(tmp_path / "table" / "gone").free_bytes() > 0


def test_a_file_is_replaced_at_once(disk: Disk) -> None:
    disk.make_directory("d")
    for data in (b"a first one", b"second", b""):
        disk.replace("d/f", data)
        assert disk.read("d/f") == data
    disk.replace("d/f", b"third", durable=True)
    assert (disk.list("d"), disk.read("d/f")) == (["f"], b"third")
    with pytest.raises(FileNotFoundError):
        disk.replace("no/f", b"")


def test_of_a_file_that_can_not_be_replaced_the_old_bytes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full. The next one goes on from the file that the failed try has left."""
    disk, right = LocalDisk(tmp_path), os.write

    def half(descriptor: int, data: Any) -> int:
        if len(data) > 3:
            return right(descriptor, data[:3])
        raise OSError(errno.ENOSPC, "no space left")

    disk.replace("f", b"what was there")
    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(DiskFull):
            disk.replace("f", b"what comes")
    assert disk.read("f") == b"what was there"
    disk.replace("f", b"new")
    assert (disk.list(""), disk.read("f")) == (["f"], b"new")


def test_many_who_replace_a_file_at_once_leave_one_of_theirs(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.replace("f", b"0" * 100)
    seen: set[bytes | None] = set()

    def replace(digit: int) -> None:
        for _ in range(50):
            disk.replace("f", str(digit).encode() * 100)
            seen.add(disk.read("f"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(replace, range(4)))
    assert seen <= {str(digit).encode() * 100 for digit in range(4)}
    assert disk.list("") == ["f"]


# What a crash of the host takes; only the fake can be asked.


@pytest.fixture
def fake() -> FakeDisk:
    return FakeDisk(time.time)


def after_many_crashes(
    build: Callable[[FakeDisk], None], look: Callable[[FakeDisk], object]
) -> set[object]:
    found = set()
    for seed in range(60):
        disk = FakeDisk(lambda: 0.0)
        build(disk)
        disk.crash(random.Random(seed))
        found.add(look(disk))
    return found


@pytest.mark.parametrize("count", [0, 1, 50])
def test_tasks_are_done_at_once_and_after_an_error_no_further_ones(
    disk: Disk, count: int
) -> None:
    done: list[int] = []
    disk.at_once([partial(done.append, number) for number in range(count)])
    assert sorted(done) == [*range(count)]

    def fails(number: int) -> None:
        begun.append(number)
        raise DiskFull(f"at {number}")

    begun: list[int] = []
    if count:
        with pytest.raises(DiskFull):
            disk.at_once([partial(fails, number) for number in range(count)])
        assert 1 <= len(begun) <= 3


def test_what_is_synced_survives_a_crash() -> None:
    def build(disk: FakeDisk) -> None:
        disk.make_directory("a")
        disk.write("a/f", [b"123"])
        disk.fsync("a/f")
        disk.fsync_directory("a")
        disk.fsync_directory("")
        disk.rename("a", "b")
        disk.fsync_directory("")

    assert after_many_crashes(build, lambda disk: disk.read("b/f")) == {b"123"}


def test_bytes_that_were_not_synced_may_be_cut() -> None:
    def build(disk: FakeDisk) -> None:
        disk.make_directory("a")
        disk.write("a/f", [b"123"])
        disk.fsync_directory("a")
        disk.fsync_directory("")

    assert after_many_crashes(build, lambda disk: disk.read("a/f")) == {
        b"",
        b"1",
        b"12",
        b"123",
    }


def test_names_that_were_not_synced_may_be_undone_each_alone() -> None:
    def build(disk: FakeDisk) -> None:
        disk.make_directory("a")
        disk.make_directory("b")

    assert after_many_crashes(build, lambda disk: tuple(disk.list(""))) == {
        (),
        ("a",),
        ("b",),
        ("a", "b"),
    }


def test_a_file_that_was_removed_may_come_back_until_that_is_synced() -> None:
    def build(disk: FakeDisk, *, synced: bool = False) -> None:
        disk.write("f", [b"123"])
        disk.fsync("f")
        disk.fsync_directory("")
        disk.remove_file("f")
        if synced:
            disk.fsync_directory("")

    assert after_many_crashes(build, lambda disk: disk.read("f")) == {b"123", None}
    synced = partial(build, synced=True)
    assert after_many_crashes(synced, lambda disk: disk.read("f")) == {None}


def test_a_rename_that_was_not_synced_leaves_the_old_name_or_the_new_one() -> None:
    def build(disk: FakeDisk) -> None:
        disk.make_directory("a")
        disk.make_directory("there")
        disk.fsync_directory("")
        disk.rename("a", "there/b")

    assert after_many_crashes(build, lambda disk: (*disk.list(""), *disk.list("there"))) == {
        ("a", "there"),
        ("there", "b"),
    }


def test_a_process_that_dies_in_a_write_leaves_a_short_file(fake: FakeDisk) -> None:
    sizes = set()
    for seed in range(20):
        fake.write_part_of("f", [b"12", b"34"], random.Random(seed))
        sizes.add(fake.size("f"))
    assert sizes == {0, 1, 2, 3, 4}


def test_a_process_that_dies_in_a_removal_leaves_some_of_it(fake: FakeDisk) -> None:
    left = set()
    for seed in range(30):
        fake.remove_tree("d")
        fake.make_directory("d")
        for name in ("x", "y"):
            fake.write(f"d/{name}", [b"1"])
        fake.remove_part_of("d", random.Random(seed))
        left.add(tuple(fake.list("d")))
    assert left == {(), ("x",), ("y",), ("x", "y")}
