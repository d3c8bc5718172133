"""DROP TABLE of a table that somebody has moved to a disk of its own, behind a link or a mount."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from tests.support.parts import CountedIds, put

PART = PartName.parse("all_1_1_0")


def test_a_table_behind_a_link_is_removed_with_its_rows(tmp_path: Path) -> None:
    """Somebody has moved it to a disk of its own. Else its DROP never ended."""
    there, root = tmp_path / "disk" / "t", tmp_path / "t"
    there.mkdir(parents=True)
    root.symlink_to(there)
    store = PartStore(LocalDisk(root), ids=CountedIds())
    put(store, str(PART))
    (there / "stray file").touch()
    (there / "stray link").symlink_to(tmp_path / "disk")
    store.destroy()
    store.destroy()
    assert [one.name for one in tmp_path.iterdir()] == ["disk"]
    assert not there.exists()


def test_the_link_to_a_table_stays_while_others_write_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would find any more what they have written."""
    there, root, right = tmp_path / "disk" / "t", tmp_path / "t", LocalDisk.list
    there.mkdir(parents=True)
    root.symlink_to(there)
    store = PartStore(LocalDisk(root), ids=CountedIds())
    put(store, str(PART))

    def late(disk: LocalDisk, path: str) -> list[str]:
        (there / "late").touch()
        return right(disk, path)

    monkeypatch.setattr("rmt_pipeline.store.disk.REMOVERS_MAX", 3)
    monkeypatch.setattr(LocalDisk, "list", late)
    with pytest.raises(OSError, match="others keep changing it"):
        store.destroy()
    monkeypatch.undo()
    assert root.is_symlink()
    store.destroy()
    assert [one.name for one in tmp_path.iterdir()] == ["disk"]
    assert not there.exists()


def test_a_table_whose_disk_is_not_mounted_is_not_removed(tmp_path: Path) -> None:
    """Its rows would be there when the disk is."""
    there, root = tmp_path / "disk" / "t", tmp_path / "t"
    there.mkdir(parents=True)
    root.symlink_to(there)
    store = PartStore(LocalDisk(root), ids=CountedIds())
    put(store, str(PART))
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    with pytest.raises(FileNotFoundError):
        store.destroy()
    (tmp_path / "unmounted").rename(tmp_path / "disk")
    assert store.has(PART)
    store.destroy()
    assert not there.exists()


def test_a_table_at_a_mount_point_is_removed_but_for_the_mount_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, rmdir = tmp_path / "t", os.rmdir

    def busy(path: Any, **more: Any) -> None:
        if str(path) == str(root):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        rmdir(path, **more)

    store = PartStore(LocalDisk(root), ids=CountedIds())
    put(store, str(PART))
    monkeypatch.setattr(os, "rmdir", busy)
    store.destroy()
    assert [*root.iterdir()] == []
