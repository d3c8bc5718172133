"""Many parts are synced with their whole file system, where that is sure to keep them."""

import ctypes
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import disk as disk_module
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from tests.support.parts import CountedIds, stage_bytes

EXT4, TMPFS = 0xEF53, 0x01021994
MANY = [PartName("all", number, number, 0) for number in range(30)]
FEW = MANY[:3]


@dataclass
class FakeLibc:
    """The three functions of the C library that are used, on a file system of this kind."""

    kind: int = EXT4
    error: int = 0
    lost: Callable[[str], int] = lambda _path: 0
    """The error of a file whose bytes could not be written, 0 if there is none."""
    synced: list[str] = field(default_factory=list)
    """The directories by which whole file systems were synced."""
    looked_at: list[str] = field(default_factory=list)

    def fstatfs(self, _descriptor: int, about: Any) -> int:
        ctypes.c_long.from_buffer(about).value = self.kind
        return 0

    def syncfs(self, descriptor: int) -> int:
        self.synced.append(_path_of(descriptor))
        return self._answer(self.error)

    def sync_file_range(self, descriptor: int, *_: int) -> int:
        self.looked_at.append(_path_of(descriptor))
        return self._answer(self.lost(_path_of(descriptor)))

    @staticmethod
    def _answer(number: int) -> int:
        ctypes.set_errno(number)
        return -1 if number else 0


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


class Published:
    """A store that publishes parts on a disk with this C library, and what was synced one by
    one.
    """

    def __init__(self, root: Path, libc: FakeLibc | None, patch: pytest.MonkeyPatch) -> None:
        self.one_by_one: set[str] = set()
        self.store = PartStore(LocalDisk(root), "t", ids=CountedIds())
        self.root = root / "t"
        self.files: set[str] = set()
        patch.setattr(disk_module, "_libc_with_syncfs", lambda: libc)
        patch.setattr(disk_module, "_dirty_bytes", lambda: 0)
        patch.setattr(disk_module, "_sync", lambda path, _flags: self.one_by_one.add(path))

    def publish(self, parts: list[PartName]) -> None:
        staged = [stage_bytes(self.store) for _ in parts]
        self.files = {
            str(self.root / one.directory / name)
            for one in staged
            for name in one.names_to_sync()
        }
        self.directories = {str(self.root / one.directory) for one in staged}
        self.one_by_one.clear()
        self.store.publish_all([*zip(staged, parts, strict=True)])

    @property
    def each(self) -> set[str]:
        """What is synced when each file and directory is."""
        return {str(self.root), *self.files, *self.directories}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Published]:
    return lambda libc: Published(tmp_path, libc, monkeypatch)


def test_many_parts_are_synced_once_and_each_file_is_asked_for_its_error(
    published: Callable[..., Published],
) -> None:
    libc = FakeLibc()
    found = published(libc)
    found.publish(MANY)
    assert found.store.parts() == MANY
    assert len(libc.synced) == 1
    assert {*libc.looked_at} == found.files
    assert found.one_by_one == {str(found.root)}  # their names


@pytest.mark.parametrize(
    "libc",
    [None, FakeLibc(kind=TMPFS), FakeLibc(error=errno.EIO)],
    ids=["no syncfs", "another kind of file system", "it failed for a file of somebody"],
)
def test_where_that_is_not_sure_each_file_is_synced(
    published: Callable[..., Published], libc: FakeLibc | None
) -> None:
    found = published(libc)
    found.publish(MANY)
    assert found.one_by_one == found.each


def test_the_cache_of_the_disk_is_emptied_after_all_was_written(
    published: Callable[..., Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An fsync does so. A syncfs of ext2, or of ext4 without a journal, leaves it to the disk when
    it writes the names of files.
    """
    libc = FakeLibc()
    found = published(libc)
    emptied = []
    monkeypatch.setattr(
        disk_module.os, "fsync", lambda one: emptied.append((_path_of(one), [*libc.synced]))
    )
    found.publish(MANY)
    [directory] = libc.synced
    assert emptied == [(directory, [directory])]


def test_where_nothing_tells_what_others_write_each_file_is_synced(
    published: Callable[..., Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container without /proc."""
    unpatched = disk_module._dirty_bytes
    found = published(FakeLibc())
    monkeypatch.setattr(disk_module, "_dirty_bytes", unpatched)

    def no_such_file(*_: Any, **__: Any) -> None:
        raise FileNotFoundError

    with monkeypatch.context() as no_proc:
        no_proc.setattr(disk_module, "open", no_such_file, raising=False)
        found.publish(MANY)
    assert found.one_by_one == found.each


def test_a_file_beside_one_that_is_gone_is_asked_for_its_error(tmp_path: Path) -> None:
    libc, disk = FakeLibc(), LocalDisk(tmp_path)
    trees = [(f"t{number}", ["gone", "f"]) for number in range(20)]
    for directory, _ in trees:
        disk.make_directory(directory)
        disk.write(f"{directory}/f", [b"1"])
    with pytest.MonkeyPatch.context() as patch:
        Published(tmp_path, libc, patch)
        disk.fsync_trees(trees)
    assert {*libc.looked_at} == {str(tmp_path / one / "f") for one, _ in trees}


def test_few_parts_are_synced_one_by_one(published: Callable[..., Published]) -> None:
    libc = FakeLibc()
    found = published(libc)
    found.publish(FEW)
    assert found.one_by_one == found.each
    assert not libc.synced


def test_what_others_have_written_is_not_waited_for(
    published: Callable[..., Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    libc = FakeLibc()
    found = published(libc)
    monkeypatch.setattr(disk_module, "_dirty_bytes", lambda: 1 << 30)
    found.publish(MANY)
    assert found.one_by_one == found.each
    assert not libc.synced


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, OSError), (errno.ENOSPC, DiskFull)], ids=["EIO", "ENOSPC"]
)
def test_parts_of_which_a_file_was_lost_do_not_get_their_names(
    published: Callable[..., Published], number: int, kind: type[Exception]
) -> None:
    """The sync of another program was told of the error, so ours was not."""
    libc = FakeLibc(lost=lambda _path: number if len(libc.looked_at) == 40 else 0)
    found = published(libc)
    with pytest.raises(kind):
        found.publish(MANY)
    assert found.store.parts() == []


def test_each_file_system_is_synced(
    tmp_path: Path, published: Callable[..., Published], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's directory may be a link to another disk."""
    libc, disk = FakeLibc(), LocalDisk(tmp_path)
    published(libc)
    trees = [(f"{one}{number}", ["f"]) for one in "ab" for number in range(20)]
    for directory, _ in trees:
        disk.make_directory(directory)
        disk.write(f"{directory}/f", [b"1"])
    stat = disk_module.os.stat

    def on_two_disks(path: str) -> Any:
        found = [*stat(path)]
        found[2] = 1 if Path(path).name.startswith("a") else 2  # the device
        return disk_module.os.stat_result(found)

    with monkeypatch.context() as two_disks:
        two_disks.setattr(disk_module.os, "stat", on_two_disks)
        disk.fsync_trees([*trees, ("gone", ["f"])])
    assert sorted(Path(one).name[0] for one in libc.synced) == ["a", "b"]


def test_the_file_system_of_this_machine_is_synced_or_left_alone(tmp_path: Path) -> None:
    """With the real C library."""
    store = PartStore(LocalDisk(tmp_path), "t", ids=CountedIds())
    staged = [stage_bytes(store) for _ in MANY]
    store.publish_all([*zip(staged, MANY, strict=True)])
    assert store.parts() == MANY
    assert disk_module._dirty_bytes() >= 0
    libc = disk_module._libc_with_syncfs()
    if libc is not None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            disk_module._checked(libc.syncfs(-1), "no file")


@pytest.mark.parametrize(
    ("release", "is_sure"), [("5.7.19", False), ("5.8.0-rt", True), ("6.1", True), ("x", False)]
)
def test_a_kernel_whose_sync_does_not_say_that_it_failed_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, release: str, is_sure: bool
) -> None:
    names = disk_module.os.uname_result(("Linux", "host", release, "", ""))
    monkeypatch.setattr(disk_module.os, "uname", lambda: names)
    monkeypatch.setattr(disk_module.sys, "platform", "linux")
    found = disk_module._libc_with_syncfs.__wrapped__()
    assert (found is not None) == is_sure
