"""A sweep that dies in the middle, while somebody still stages: his clock or ours has jumped."""

import random

import pytest

from rmt_pipeline.protocol.errors import MissingPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.part_store import PartStore
from tests.support.fake_disk import FakeDisk
from tests.support.mortal_disk import Died
from tests.support.sim_rows import stage_rows


class Ids:
    def new_id(self) -> str:
        return "0" * 32


class Always(random.Random):
    def random(self) -> float:
        return 0.0


def test_what_a_dead_sweep_has_half_removed_is_never_published(monkeypatch) -> None:
    """Every file is gone and the directory is there: it must not get a part's name."""
    disk = FakeDisk(lambda: 1000.0)
    store = PartStore(disk, ids=Ids())
    staged = stage_rows(store, "a", ["x"], created_s=1000)

    def die_in_the_middle(path: str) -> None:
        disk.remove_part_of(path, Always())
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(store, "_disk", disk_that(disk, remove_tree=die_in_the_middle))
        with pytest.raises(Died):
            store.sweep(keep=(), older_than_s=60.0, now_s=5000.0)
    part = PartName("a", 0, 0, 0)
    with pytest.raises(MissingPart, match="can't be published"):
        store.publish(staged, part)
    assert not store.has(part)
    assert store.sweep(keep=(), older_than_s=60.0, now_s=5000.0) != []
    assert disk.list("") == []


def disk_that(disk: FakeDisk, **methods: object) -> object:
    class Changed:
        def __getattr__(self, name: str) -> object:
            return methods.get(name) or getattr(disk, name)

    return Changed()
