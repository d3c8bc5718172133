"""A process that dies anywhere in a change of the catalog leaves the state before it or after."""

import os
from contextlib import suppress

import pytest

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.directory import claim_data_directory
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from tests.support.mortal_disk import Died

EFFECTS = ("fsync", "link", "replace", "rename", "mkdir", "rmdir", "unlink")
CRASHES_MAX = 40


def table(comment: str = "") -> TableDefinition:
    return TableDefinition(
        "default",
        "t",
        (Column("n", "UInt64"),),
        Engine("MergeTree", "/t", "r1"),
        ("n",),
        comment=comment,
    )


def dying_after(monkeypatch, effects: int) -> None:
    """The process dies at its next file system effect after that many."""
    left = iter(range(effects))

    def counted(real):
        def effect(*arguments, **options):
            if next(left, None) is None:
                raise Died
            return real(*arguments, **options)

        return effect

    for name in EFFECTS:
        monkeypatch.setattr(os, name, counted(getattr(os, name)))


def crashes(tmp_path, prepare, change, look):
    """What `look` sees after a death at each effect of `change`, and after none at all."""
    seen = []
    for effects in range(CRASHES_MAX):
        data = tmp_path / str(effects)
        prepare(data)
        with pytest.MonkeyPatch.context() as patch:
            dying_after(patch, effects)
            survived = False
            with suppress(Died):
                change(data)
                survived = True
        seen.append(look(data))
        if survived:
            return seen
    raise AssertionError("the change never ended")


def comments(data) -> list[str]:
    return [found.comment for found in Catalog(data).definitions()]


def test_a_new_table_is_there_or_not(tmp_path):
    seen = crashes(tmp_path, Catalog, lambda data: Catalog(data).add(table("new")), comments)
    assert len(seen) > 3
    assert {tuple(state) for state in seen} == {(), ("new",)}
    assert seen[-1] == ["new"]


def test_an_altered_table_is_the_old_one_or_the_new_one(tmp_path):
    def prepare(data):
        Catalog(data).add(table("old"))

    seen = crashes(tmp_path, prepare, lambda data: Catalog(data).save(table("new")), comments)
    assert {tuple(state) for state in seen} == {("old",), ("new",)}
    assert seen[-1] == ["new"]


def test_a_dropped_table_is_there_or_a_drop_to_finish_or_not(tmp_path):
    def prepare(data):
        Catalog(data).add(table("old"))

    def change(data):
        catalog = Catalog(data)
        with catalog.begin_drop(catalog.definition("default", "t"), 7) as drop:
            catalog.end_drop(drop.definition)

    def names(data) -> list[str]:
        catalog = Catalog(data)
        dropping = [f"{name} dropping" for name in catalog.dropping("default")]
        return [*catalog.tables("default"), *dropping]

    seen = crashes(tmp_path, prepare, change, names)
    assert {tuple(state) for state in seen} == {(), ("t",), ("t dropping",)}
    assert seen == sorted(seen, key=[["t"], ["t dropping"], []].index)


def test_a_claimed_directory_is_claimed_or_not(tmp_path):
    def prepare(data):
        data.mkdir()

    def look(data) -> bool:
        before = (data / "server.json").exists()
        claim_data_directory(data, "r1", "c")
        return before

    seen = crashes(tmp_path, prepare, lambda data: claim_data_directory(data, "r1", "c"), look)
    assert set(seen) == {False, True}
