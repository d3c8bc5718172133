"""What a file system refuses: a directory can't be removed, a link can't be made."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store import layout
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from tests.support.parts import CountedIds, put

PART = PartName.parse("all_1_1_0")


def _removal(store: PartStore, parts: list[PartName]) -> object:
    return store.remove_all(parts)


def _removal_that_was_cut_off(store: PartStore, parts: list[PartName]) -> object:
    for part in parts:
        store.disk.rename(f"db/t/{part}", f"db/t/delete_tmp_{part}")
    return store.sweep((), older_than_s=0, now_s=1e12)


def _removal_of_detached_ones(store: PartStore, parts: list[PartName]) -> object:
    for part in parts:
        store.detach(part, "deleting")
    return store.detached_parts.finish_removals(0, 1e12)


@pytest.mark.parametrize("count", [3, 20])
@pytest.mark.parametrize(
    "remove", [_removal, _removal_that_was_cut_off, _removal_of_detached_ones]
)
def test_a_directory_that_can_not_be_removed_keeps_no_other_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    remove: Callable[[PartStore, list[PartName]], object],
    count: int,
) -> None:
    """It belongs to another account, say, and is the first of them each time."""
    store = PartStore(LocalDisk(tmp_path), "db/t", ids=CountedIds())
    parts = [PartName("all", number, number, 0) for number in range(count)]
    for part in parts:
        put(store, str(part))
    removed = shutil.rmtree

    def refuse(path: str) -> None:
        if path.endswith(f"_{parts[0]}"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        removed(path)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(PermissionError):
        remove(store, parts)
    left = [*(tmp_path / "db/t").glob("*_all_*"), *(tmp_path / "db/t/detached").glob("*")]
    assert [path.name.rpartition("all_")[2] for path in left] == ["0_0_0"]


@pytest.mark.parametrize("number", ["EXDEV", "EPERM", "EMLINK", "EOPNOTSUPP", "ENOSYS"])
def test_where_no_link_can_be_made_bytes_are_copied_and_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    """Some network file systems have no links, and no file has more than so many names."""
    store = PartStore(LocalDisk(tmp_path), "db/t", ids=CountedIds())
    put(store, str(PART))
    manifest = store.manifest(PART)
    code = getattr(errno, number)

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    clone = PartName.parse("all_1_1_0_5")
    staged = store.clone_into(store.begin("mutate", str(clone)), PART, manifest)
    assert set(staged.names_to_sync()) == {
        layout.MANIFEST,
        *(one.name for one in manifest.files),
    }
    store.publish(staged, clone)
    assert store.verify(clone) == manifest
