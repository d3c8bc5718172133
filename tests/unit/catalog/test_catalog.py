"""The catalog: what is remembered is read back, by every process, whatever the names are."""

import errno
import json
import multiprocessing
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.catalog import contents, journal
from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.definition import decode_definition, encode_definition
from rmt_pipeline.catalog.directory import DirectoryLock, claim_data_directory, require_owner
from rmt_pipeline.files import escape_file_name, unescape_file_name
from rmt_pipeline.protocol.errors import (
    BadConfiguration,
    Corruption,
    DatabaseAlreadyExists,
    DiskFull,
    ReplicaIsAlreadyActive,
    TableAlreadyExists,
    UnknownDatabase,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.table import Column, ColumnChange, Engine, TableDefinition
from tests.support.mortal_disk import Died
from tests.support.serving import forget

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
texts = st.text(st.characters(codec="utf-8"), max_size=10)
text_tuples = st.lists(texts, max_size=3).map(tuple)
columns = st.builds(
    Column, names, texts, st.sampled_from(["", "DEFAULT", "ALIAS"]), texts, texts, texts, texts
)
engines = st.builds(
    Engine,
    st.sampled_from(["MergeTree", "SummingMergeTree"]),
    texts,
    texts,
    texts,
    texts,
    texts,
    text_tuples,
)
definitions = st.builds(
    TableDefinition,
    database=names,
    name=names,
    columns=st.lists(columns, max_size=3).map(tuple),
    engine=engines,
    order_by=text_tuples,
    partition_by=text_tuples,
    primary_key=st.none() | text_tuples,
    sample_by=texts,
    ttl=texts,
    comment=texts,
    settings=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
)


def dies(*_: object) -> None:
    raise Died


def table(name: str, database: str = "default", comment: str = "") -> TableDefinition:
    return TableDefinition(
        database=database,
        name=name,
        columns=(Column("day", "Date"), Column("n", "UInt64", "DEFAULT", "1")),
        engine=Engine("MergeTree", "/t", "r1"),
        order_by=("n",),
        comment=comment,
    )


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


def test_a_new_catalog_has_the_default_database_and_no_table(catalog):
    assert catalog.databases() == ["default"]
    assert catalog.tables("default") == []
    assert catalog.definitions() == []


def test_a_table_is_read_back_by_another_process(catalog, tmp_path):
    catalog.create_database("b")
    catalog.add(table("t", "b"))
    catalog.add(table("t"))
    other = Catalog(tmp_path)
    assert other.definition("b", "t") == table("t", "b")
    assert other.definitions() == [table("t", "b"), table("t")]
    assert other.has("b", "t")
    assert not other.has("b", "u")


def test_adding_a_name_twice_keeps_the_first(catalog):
    catalog.add(table("t", comment="first"))
    with pytest.raises(TableAlreadyExists, match=r"default\.t already exists"):
        catalog.add(table("t", comment="second"))
    assert catalog.definition("default", "t").comment == "first"


def test_saving_replaces_and_needs_something_to_replace(catalog):
    catalog.add(table("t"))
    catalog.save(table("t", comment="altered"))
    assert catalog.definition("default", "t").comment == "altered"
    with pytest.raises(UnknownTable, match=r"default\.tt does not exist; did you mean 't'"):
        catalog.save(table("tt"))


def test_a_table_is_gone_for_whoever_looks_while_its_drop_is_to_be_finished(catalog):
    catalog.add(table("t"))
    with catalog.begin_drop(table("t"), 7):
        assert catalog.tables("default") == []
        assert catalog.dropping("default") == ["t"]
    with pytest.raises(UnknownTable, match="was interrupted: the server finishes it"):
        catalog.definition("default", "t")
    with catalog.resume_drop("default", "t") as drop:
        assert drop is not None
        assert (drop.definition, drop.replica_czxid) == (table("t"), 7)
        catalog.end_drop(drop.definition)
    with catalog.resume_drop("default", "t") as drop:
        assert drop is None
    with pytest.raises(UnknownTable, match="does not exist"):
        catalog.definition("default", "t")


def test_a_drop_file_that_cannot_be_read_is_named(catalog, tmp_path):
    (tmp_path / "metadata" / "default" / "t.dropping").write_text("{}")
    with pytest.raises(Corruption, match=r"t\.dropping does not say"):
        catalog.resume_drop("default", "t").__enter__()


def test_an_unknown_name_comes_with_the_nearest_one(catalog):
    catalog.create_database("flights")
    catalog.add(table("departures", "flights"))
    with pytest.raises(
        UnknownDatabase, match="'fligths' does not exist; did you mean 'flights'"
    ):
        catalog.tables("fligths")
    with pytest.raises(UnknownDatabase, match="did you mean 'flights'"):
        catalog.definition("fligths", "departures")
    with pytest.raises(UnknownTable, match=r"did you mean 'departures'"):
        catalog.definition("flights", "departure")
    with pytest.raises(UnknownDatabase):
        catalog.add(table("t", "fligths"))


def test_databases_are_made_once_and_dropped_when_empty(catalog):
    assert catalog.create_database("b")
    assert not catalog.create_database("b", if_not_exists=True)
    with pytest.raises(DatabaseAlreadyExists):
        catalog.create_database("b")
    catalog.add(table("t", "b"))
    with pytest.raises(UserError, match="still has tables: t"):
        catalog.drop_database("b")
    forget(catalog, "b")
    catalog.drop_database("b")
    assert catalog.databases() == ["default"]
    with pytest.raises(UnknownDatabase):
        catalog.drop_database("b")
    with pytest.raises(UserError, match="always exists"):
        catalog.drop_database("default")


@given(
    name=st.sampled_from(
        ["..", ".", "a/b", ".version", "version", ".staging", "a.json", "ü b", "%41"]
    )
)
def test_odd_names_stay_names(tmp_path_factory, name):
    data = tmp_path_factory.mktemp("server")
    catalog = Catalog(data)
    catalog.create_database(name)
    catalog.add(table(name, name))
    assert catalog.databases() == sorted([name, "default"])
    assert catalog.tables(name) == [name]
    assert catalog.definition(name, name) == table(name, name)
    directory = catalog.table_directory(table(name, name)).resolve()
    assert directory.parent.parent == (data / "data").resolve()


@pytest.mark.parametrize(
    ("name", "why"), [("", "empty"), ("x" * 300, "too long"), ("\ud800", "Unicode")]
)
def test_a_name_that_no_file_can_have_is_refused(catalog, name, why):
    with pytest.raises(UserError, match=why):
        catalog.create_database(name)
    with pytest.raises(UserError, match=why):
        catalog.definition("default", name)


@pytest.mark.parametrize("name", ["x" * 245, "д" * 40])
def test_a_table_of_the_longest_name_is_made_and_made_again(catalog, tmp_path, name):
    """Its second directory has more in its name than the first, which must still fit."""
    catalog.add(replace(table(name), uuid="1" * 32))
    first = catalog.table_directory(catalog.definition("default", name))
    first.mkdir(parents=True)
    with catalog.begin_drop(catalog.definition("default", name), 7) as drop:
        catalog.end_drop(drop.definition)
    catalog.add(replace(table(name), uuid="2" * 32))
    second = catalog.table_directory(catalog.definition("default", name))
    assert second.parent == first.parent
    assert second.name.endswith("~" + "2" * 32)
    second.mkdir()
    catalog.rename_tables([(("default", name), ("default", "short"))])
    assert catalog.table_directory(catalog.definition("default", "short")) == second


@given(names)
def test_a_file_name_is_safe_and_gives_the_name_back(name):
    escaped = escape_file_name(name)
    assert not {"/", ".", "\0"} & set(escaped)
    assert unescape_file_name(escaped) == name


@given(definitions)
def test_a_definition_is_read_back_as_it_was_written(definition):
    assert decode_definition(encode_definition(definition), "f") == definition


@given(
    st.binary(max_size=50)
    | st.recursive(st.none() | texts, st.lists).map(json.dumps).map(str.encode)
)
def test_any_other_bytes_are_corruption_and_nothing_else(content):
    with pytest.raises(Corruption, match="the file"):
        decode_definition(content, "the file")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 6},
        {"name": 3},
        {"unknown": "x"},
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": "a", "type": "b", "default_kind": "SOMETIMES"}]},
        {"engine": {"kind": "Log", "zookeeper_path": "", "replica": "", "columns_to_sum": []}},
        {"order_by": "n"},
        {"settings": [["a"]]},
    ],
)
def test_a_damaged_definition_is_corruption(change):
    content = {**json.loads(encode_definition(table("t"))), **change}
    with pytest.raises(Corruption, match="the file is not a table definition"):
        decode_definition(json.dumps(content).encode(), "the file")


each_change = pytest.mark.parametrize(
    "change",
    [
        lambda c: c.add(table("u")),
        lambda c: c.save(table("t", comment="x")),
        forget,
        lambda c: c.create_database("b"),
        lambda c: c.drop_database("a"),
        lambda c: c.rename_tables([(("default", "t"), ("a", "t"))]),
    ],
)


@each_change
def test_every_change_by_another_process_is_another_version(catalog, tmp_path, change):
    catalog.add(table("t"))
    catalog.create_database("a")
    before = catalog.version()
    assert catalog.version() == before
    change(Catalog(tmp_path))
    assert catalog.version() != before


@each_change
def test_a_change_that_fills_the_disk_is_made_and_shows(catalog, tmp_path, monkeypatch, change):
    """What tells others of it is written behind it, and must not make it look like a failure."""
    catalog.add(table("t"))
    catalog.create_database("a")
    before, stage, tokens = catalog.version(), contents.stage_file, []

    def full(path, content):
        if len(content) == 32:
            tokens.append(content)
            raise DiskFull(f"no space left to write {path}")
        return stage(path, content)

    monkeypatch.setattr(contents, "stage_file", full)
    change(Catalog(tmp_path))
    assert tokens
    assert catalog.version() != before


def test_what_was_staged_for_a_change_that_the_disk_refuses_goes(
    catalog, tmp_path, monkeypatch
):
    catalog.add(replace(table("t"), uuid="1"))

    def full(path, _):
        raise DiskFull(f"no space left to write {path}")

    monkeypatch.setattr(journal, "stage_file", full)
    for change in (
        lambda: catalog.rename_tables([(("default", "t"), ("default", "u"))]),
        lambda: catalog.put_away(replace(table("t"), uuid="1"), 7, 0),
    ):
        with pytest.raises(DiskFull):
            change()
    assert catalog.tables("default") == ["t"]
    assert not [*(tmp_path / "metadata" / ".staging").iterdir()]


def test_what_a_journal_names_is_there_after_a_loss_of_power(catalog, tmp_path, monkeypatch):
    """1. A journal is on the disk, and says that t goes and a staged file becomes u. 2. The power
    goes, and the name of that file is lost. 3. Who finishes the RENAME removes t.
    """
    catalog.add(table("t"))
    decided, synced, sync = tmp_path / "metadata" / ".renaming", [], journal.sync_directory

    def noted(directory):
        synced.append((directory.name, decided.exists()))
        sync(directory)

    monkeypatch.setattr(journal, "sync_directory", noted)
    catalog.rename_tables([(("default", "t"), ("default", "u"))])
    assert synced.index((".staging", False)) < synced.index(("metadata", True))


def test_a_journal_whose_staged_file_is_gone_removes_nothing(catalog, tmp_path, monkeypatch):
    catalog.add(table("t"))
    with monkeypatch.context() as patched:
        patched.setattr(journal, "complete", dies)
        with pytest.raises(Died):
            catalog.rename_tables([(("default", "t"), ("default", "u"))])
    [staged] = (tmp_path / "metadata" / ".staging").iterdir()
    lost = staged.rename(tmp_path / "lost")
    with pytest.raises(Corruption, match=r"which is to become .*u\.json, is gone"):
        catalog.names()
    assert (tmp_path / "metadata" / "default" / "t.json").exists()
    lost.rename(staged)
    assert catalog.names() == [("default", "u")]


def test_a_database_that_another_process_drops_first_is_unknown(catalog, tmp_path, monkeypatch):
    catalog.create_database("b")
    locked = Catalog._locked

    @contextmanager
    def late(self, **how):
        if self is catalog:
            Catalog(tmp_path).drop_database("b")
        with locked(self, **how):
            yield

    monkeypatch.setattr(Catalog, "_locked", late)
    with pytest.raises(UnknownDatabase, match="'b' does not exist"):
        catalog.drop_database("b")


def test_who_may_only_read_the_directory_reads_the_catalog(catalog, tmp_path, monkeypatch):
    """[files] umask = "027" lets the group read. Its accounts can't open a file to write."""
    catalog.add(table("t"))
    reader = Catalog(tmp_path)
    opened = os.open

    def refuse(path, flags, *how, **more):
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, flags, *how, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert reader.names() == [("default", "t")]
    assert reader.definitions() == [table("t")]
    assert reader.current(table("t")) == table("t")
    with pytest.raises(BadConfiguration, match=r"\.lock cannot be written: Permission denied"):
        reader.detach("default", "t")


def test_a_change_whose_maker_died_before_saying_so_shows_too(catalog, tmp_path):
    before = catalog.version()
    (tmp_path / "metadata" / "default" / "t.json").write_bytes(encode_definition(table("t")))
    assert catalog.version() != before


def _add_once(data: Path, number: int, results) -> None:
    try:
        Catalog(data).add(table("t", comment=str(number)))
        results.put(number)
    except TableAlreadyExists:
        results.put(None)


def test_of_many_processes_that_add_one_table_one_succeeds(tmp_path):
    Catalog(tmp_path)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [context.Process(target=_add_once, args=(tmp_path, n, results)) for n in range(4)]
    for worker in workers:
        worker.start()
    answers = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    winners = [answer for answer in answers if answer is not None]
    assert len(winners) == 1
    assert Catalog(tmp_path).definition("default", "t").comment == str(winners[0])


def test_a_staged_file_that_a_crash_left_is_no_table(catalog, tmp_path):
    (tmp_path / "metadata" / ".staging" / "abc").write_bytes(b"half")
    assert catalog.databases() == ["default"]
    assert catalog.tables("default") == []


def test_a_directory_remembers_its_server(tmp_path):
    first = claim_data_directory(tmp_path / "d", "r1", "c1")
    assert claim_data_directory(tmp_path / "d", "r1", "c1") == first
    with pytest.raises(
        BadConfiguration, match=r"is the data directory of server 'r1', not of 'r2'"
    ):
        claim_data_directory(tmp_path / "d", "r2", "c1")
    with pytest.raises(BadConfiguration, match=r"not of 'r2'"):
        require_owner(tmp_path / "d", "r2")


def test_a_copy_of_a_directory_is_somebody_else(tmp_path):
    original = claim_data_directory(tmp_path / "d", "r1", "c1")
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    assert claim_data_directory(tmp_path / "copy", "r1", "c1") != original
    assert claim_data_directory(tmp_path / "other", "r1", "c1") != original


def test_a_directory_is_served_by_one_process_at_a_time(tmp_path):
    held = DirectoryLock(tmp_path, "r1")
    with pytest.raises(
        ReplicaIsAlreadyActive, match=f"r1 runs already: process {os.getpid()} "
    ):
        DirectoryLock(tmp_path, "r1")
    held.release()
    DirectoryLock(tmp_path, "r1").release()


def test_a_directory_remembers_its_cluster(tmp_path):
    claim_data_directory(tmp_path, "r1", "c1")
    with pytest.raises(BadConfiguration, match=r"cluster c1, but the configured one is c2"):
        claim_data_directory(tmp_path, "r1", "c2")


def test_a_damaged_owner_file_is_named(tmp_path):
    (tmp_path / "server.json").write_text("{}")
    with pytest.raises(Corruption, match=r"server\.json"):
        claim_data_directory(tmp_path, "r1", "c1")


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfiguration, match="cannot be written"):
        claim_data_directory(tmp_path / "file" / "data", "r1", "c1")
    with pytest.raises(BadConfiguration, match="cannot be written"):
        Catalog(tmp_path / "file" / "data")


def test_definitions_differ_when_tables_differ():
    one = table("t")
    assert encode_definition(one) != encode_definition(replace(one, ttl="d"))


def test_changes_of_one_definition_at_once_are_all_made(catalog):
    altered = table("t")
    catalog.add(altered)

    def lengthen(_: int) -> None:
        catalog.update_table(altered, lambda now: replace(now, comment=f"{now.comment}x"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lengthen, range(40)))
    assert catalog.definition("default", "t").comment == "x" * 40


def test_a_table_that_was_made_again_is_not_changed_for_its_namesake(catalog):
    catalog.add(replace(table("t"), uuid="new"))
    with pytest.raises(UnknownTable, match="dropped and created again"):
        catalog.update_table(replace(table("t"), uuid="old"), lambda now: now)


def test_an_altered_definition_reads_back_with_its_history(catalog):
    changes = (ColumnChange(2, "a", "b"), ColumnChange(3, "c"))
    altered = replace(table("t"), metadata_version=3, history=changes)
    catalog.add(altered)
    assert catalog.definition("default", "t") == altered


@pytest.mark.parametrize("field", ['"metadata_version": -1', '"metadata_version": "x"'])
def test_a_version_that_is_none_is_no_definition(field):
    text = encode_definition(table("t")).decode().replace('"metadata_version": 0', field)
    with pytest.raises(Corruption, match="no version of the metadata"):
        decode_definition(text.encode(), "t.json")
