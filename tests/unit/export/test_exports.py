"""A table's rows as other programs read them in its exports: no byte of a part is copied."""

import datetime as dt
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmt_pipeline.export.columns import NotExportable
from rmt_pipeline.export.delta import DeltaExport
from rmt_pipeline.export.files import ExportFiles, ExportIsBroken, ExportIsBusy
from rmt_pipeline.export.refresh import FORMATS, LEASE_S, Exported, Format, refresh
from rmt_pipeline.protocol.errors import DiskFull, UserError
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.system import SystemClock
from rmt_pipeline.table import Table
from tests.support.local_session import create, local_session
from tests.support.local_work import working
from tests.support.waiting import until

deltalake = pytest.importorskip("deltalake", reason="rmt-pipeline[export] is not installed")
SqlCatalog = pytest.importorskip("pyiceberg.catalog.sql").SqlCatalog
pyiceberg_table = pytest.importorskip("pyiceberg.table", reason="of rmt-pipeline[export]")

CREATE = (
    "CREATE TABLE t (k UInt32, s String, d Nullable(Float64)) "
    "ENGINE = ReplicatedMergeTree('/tables/t', 'r1') PARTITION BY k % 2 ORDER BY k"
)


def by_deltalake(exported: Exported) -> pa.Table:
    return deltalake.DeltaTable(exported.place).to_pyarrow_table()


def by_polars(exported: Exported) -> pa.Table:
    return pl.read_delta(exported.place).to_arrow()


def by_pyiceberg(exported: Exported) -> pa.Table:
    return pyiceberg_table.StaticTable.from_metadata(exported.place).scan().to_arrow()


def by_polars_from_iceberg(exported: Exported) -> pa.Table:
    return pl.scan_iceberg(exported.place, reader_override="pyiceberg").collect().to_arrow()


READERS: list[tuple[Format, Callable[[Exported], pa.Table]]] = [
    ("delta", by_polars),
    ("delta", by_deltalake),
    ("iceberg", by_polars_from_iceberg),
    ("iceberg", by_pyiceberg),
]
LIBRARIES = dict(READERS)
"""Of each format: the reader that comes with it."""

each_reader = pytest.mark.parametrize(
    ("form", "read"), READERS, ids=[read.__name__ for _, read in READERS]
)
each_format = pytest.mark.parametrize("form", FORMATS)


class LaterClock(SystemClock):
    def now_s(self) -> float:
        return super().now_s() + 2 * LEASE_S


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with local_session(tmp_path) as session:
        create(session, CREATE)
        session.execute("SET alter_sync = 0")  # of what is to be carried out, `work_off` waits
        yield session


def the_table(session: Session) -> Table:
    return session.context.server.table("t")


def export(session: Session, form: Format, **how: object) -> Exported:
    return refresh(session.context.server, the_table(session), form, **how)


def work_off(session: Session, statement: str) -> None:
    table = the_table(session)
    with working(session.context.server, table.definition, select=False):
        session.execute(f"{statement} SETTINGS alter_sync = 1")


def alter(session: Session, *commands: str) -> None:
    """What the table is, is altered; mutations, which would rewrite parts, nobody assigns."""
    for command in commands:
        table = the_table(session)
        before = table.definition.metadata_version
        with working(session.context.server, table.definition, select=False):
            session.execute(f"ALTER TABLE t {command}")
            until(lambda table=table, before=before: table.definition.metadata_version > before)


def rows_of(found: pa.Table) -> list[tuple[object, ...]]:
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    return sorted(rows, key=repr)


@each_reader
def test_the_rows_of_now_are_read(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    session.execute("INSERT INTO t VALUES (1, 'a', 1.5), (4294967295, 'b', NULL), (2, 'c', 0)")
    first = export(session, form)
    assert first.version
    assert (first.parts, first.rows) == (2, 3)
    found = read(first)
    assert found.column_names == ["k", "s", "d"]
    assert rows_of(found) == [(1, "a", 1.5), (2, "c", 0.0), (4294967295, "b", None)]

    session.execute("INSERT INTO t VALUES (4, 'd', 0)")
    work_off(session, "ALTER TABLE t DROP PARTITION 1")
    second = export(session, form)
    assert (second.files_added, second.files_removed) == (1, 1)
    assert rows_of(read(second)) == [(2, "c", 0.0), (4, "d", 0.0)]
    again = export(session, form)
    assert (again.version, again.files_added, again.files_removed) == ("", 0, 0)
    assert rows_of(read(again)) == [(2, "c", 0.0), (4, "d", 0.0)]


@each_reader
def test_an_empty_table_has_columns(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    found = read(export(session, form))
    assert (found.num_rows, found.column_names) == (0, ["k", "s", "d"])


@each_reader
def test_parts_of_before_an_alter_are_read_as_the_table_is_now(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    """Nobody works on mutations here: the parts stay as they were written."""
    session.execute("INSERT INTO t VALUES (2, 'old', 1)")
    export(session, form)
    alter(session, "ADD COLUMN n Nullable(Int32)")
    session.execute("INSERT INTO t VALUES (4, 'new', NULL, 7)")
    found = export(session, form)
    again = 1 if form == "delta" else 0  # other columns, and so other paths of the same file
    assert found.converted == ()
    assert (found.files_added, found.files_removed) == (1 + again, again)
    assert rows_of(read(found)) == [(2, "old", 1.0, None), (4, "new", None, 7)]
    alter(session, "ADD COLUMN e String DEFAULT concat('#', toString(k))")
    found = export(session, form)
    assert len(found.converted) == 2, "a default is no NULL"
    assert rows_of(read(found)) == [(2, "old", 1.0, None, "#2"), (4, "new", None, 7, "#4")]
    assert export(session, form).version == ""


@each_reader
def test_a_renamed_column_of_parts_that_nobody_has_rewritten_is_read(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    session.execute("INSERT INTO t VALUES (2, 'old', 1)")
    before = export(session, form)
    alter(session, "RENAME COLUMN s TO text")
    session.execute("INSERT INTO t VALUES (4, 'new', 7)")
    found = export(session, form)
    assert rows_of(read(found)) == [(2, "old", 1.0), (4, "new", 7.0)]
    assert read(found).column_names == ["k", "text", "d"]
    is_mapped = form == "iceberg"
    assert len(found.converted) == (0 if is_mapped else 1)
    if is_mapped:
        assert rows_of(read(before)) == [(2, "old", 1.0)], "the version before is as it was"


@each_reader
def test_a_dropped_column_is_not_read(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    session.execute("INSERT INTO t VALUES (2, 'old', 1)")
    export(session, form)
    alter(session, "ADD COLUMN p Array(Tuple(a Int8, m Map(String, Int128)))")
    session.execute("INSERT INTO t (k, s, d) VALUES (4, 'new', 7)")
    found = export(session, form, columns=["k", "s", "d"])
    assert rows_of(read(found)) == [(2, "old", 1.0), (4, "new", 7.0)]
    alter(session, "DROP COLUMN d")
    found = export(session, form, columns=["k", "s"])
    assert found.converted == ()
    assert rows_of(read(found)) == [(2, "old"), (4, "new")]


@each_reader
def test_a_column_of_another_type_is_read_as_the_table_has_it(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    session.execute("INSERT INTO t VALUES (2, '17', 1)")
    export(session, form)
    alter(session, "MODIFY COLUMN s Int64")
    found = export(session, form)
    assert len(found.converted) == 1
    assert rows_of(read(found)) == [(2, 17, 1.0)]


@each_reader
def test_values_of_all_types_are_read(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    """And the columns are the same ones when they are looked at again."""
    create(
        session,
        "CREATE TABLE all_types (k Int64, a Array(UInt8), m Map(String, Int64), "
        "p Tuple(x Int16, y Array(String)), l LowCardinality(Nullable(String)), "
        "e Enum8('one' = 1), u UUID, f FixedString(3), d Decimal(20, 4), day Date, "
        "t DateTime, t3 DateTime64(3), b Bool, ip IPv4, f4 Float32, n Nested(q UInt32)) "
        "ENGINE = ReplicatedMergeTree('/tables/all', 'r1') ORDER BY k",
    )
    session.execute(
        "INSERT INTO all_types VALUES (1, [1, 255], map('k', 5), (7, ['y']), NULL, 'one', "
        "'00000000-0000-0000-0000-000000000001', 'abc', 1.5, '2026-01-02', "
        "'2026-01-02 03:04:05', '2026-01-02 03:04:05.678', true, '1.2.3.4', 0.5, [4294967295])"
    )
    server = session.context.server
    exported = refresh(server, server.table("all_types"), form)
    [row] = read(exported).to_pylist()
    assert (row["a"], dict(row["m"]), row["p"]) == ([1, 255], {"k": 5}, {"x": 7, "y": ["y"]})
    assert (row["l"], row["e"], row["f"]) == (None, "one", b"abc")
    assert (row["d"], row["day"]) == (Decimal("1.5"), dt.date(2026, 1, 2))
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert (row["t"], row["t3"]) == (at, at.replace(microsecond=678_000))
    assert (row["b"], row["ip"], row["f4"]) == (True, 0x01020304, 0.5)
    assert row["n.q"] == [4294967295]
    assert refresh(server, server.table("all_types"), form).version == ""


@each_reader
def test_a_table_of_any_name_is_read(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    create(session, CREATE.replace("TABLE t", "TABLE `a b.c%é`").replace("/t'", "/odd'"))
    session.execute("INSERT INTO `a b.c%é` VALUES (2, 'c', 0)")
    server = session.context.server
    for _ in range(2):
        found = refresh(server, server.table("a b.c%é"), form)
        assert rows_of(read(found)) == [(2, "c", 0.0)]
    assert found.version == ""


def test_what_lists_the_files_of_old_snapshots_goes(session: Session) -> None:
    for number in range(4):
        session.execute(f"INSERT INTO t VALUES ({number}, 's', 0)")
        exported = export(session, "iceberg", lease_s=0)
    table = pyiceberg_table.StaticTable.from_metadata(exported.place)
    assert len(table.snapshots()) == 1
    assert table.scan().to_arrow().num_rows == 4
    [one] = table.snapshots()
    named = {one.manifest_list, *(file.manifest_path for file in one.manifests(table.io))}
    metadata = Path(exported.place.removeprefix("file://")).parent
    assert {f"file://{path}" for path in metadata.glob("*.avro")} == named


def test_no_commit_of_a_delta_table_adds_and_removes_one_path(session: Session) -> None:
    """Readers take the actions of a commit in their order: what is added, and then removed, is not
    there for them. The library of the tests takes them otherwise.
    """
    session.execute("INSERT INTO t VALUES (2, 'old', 1)")
    export(session, "delta")
    alter(session, "ADD COLUMN n Nullable(Int32)")
    session.execute("INSERT INTO t VALUES (4, 'new', NULL, 7)")
    log = Path(export(session, "delta").place, "_delta_log")
    *_, last = sorted(log.glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    added = {action["add"]["path"] for action in actions if "add" in action}
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    assert (len(added), len(removed)) == (2, 1)
    assert not added & removed


@each_reader
def test_a_table_that_was_made_again_has_its_own_rows(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    """The same parts and the same ALTERs, but another default for what the parts lack."""
    for default in (1, 2):
        session.execute("INSERT INTO t VALUES (2, 'c', 0)")
        alter(session, f"ADD COLUMN e Int32 DEFAULT {default}")
        found = export(session, form)
        assert found.converted == ("0_0_0_0",)
        assert rows_of(read(found)) == [(2, "c", 0.0, default)]
        session.execute("DROP TABLE t SYNC")
        create(session, CREATE)


@each_reader
def test_a_part_that_is_written_anew_has_no_other_columns_than_the_export(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    session.execute("INSERT INTO t VALUES (2, '17', 1)")
    alter(session, "MODIFY COLUMN s Int64")
    found = export(session, form, columns=["s", "k"])
    assert len(found.converted) == 1
    assert rows_of(read(found)) == [(17, 2)]
    found = export(session, form)
    assert rows_of(read(found)) == [(2, 17, 1.0)]


@each_reader
def test_a_column_that_was_renamed_twice_in_between_is_read(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    export(session, form)
    with working(session.context.server, the_table(session).definition):
        for names in ("s TO x", "x TO y"):  # the second waits until the first has rewritten
            session.execute(f"ALTER TABLE t RENAME COLUMN {names} SETTINGS alter_sync = 1")
    found = read(export(session, form))
    assert (found.column_names, rows_of(found)) == (["k", "y", "d"], [(2, "c", 0.0)])


@each_reader
def test_an_export_that_was_removed_is_made_anew(
    session: Session, form: Format, read: Callable[[Exported], pa.Table]
) -> None:
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    export(session, form)
    shutil.rmtree(Path(session.context.server.server.data, "exports/data/default/t", form))
    assert rows_of(read(export(session, form))) == [(2, "c", 0.0)]


def test_the_lease_of_a_snapshot_begins_when_it_is_replaced(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A snapshot is there for two hours, and a reader has opened it.
    2. The next one takes its place: the reader still finds what lists its files, for an hour.
    """
    session.execute("INSERT INTO t VALUES (2, 'old', 1)")
    first = export(session, "iceberg")
    opened = pyiceberg_table.StaticTable.from_metadata(first.place)
    later = LaterClock()
    monkeypatch.setattr(session.context.server, "clock", later)
    monkeypatch.setattr("pyiceberg.table.snapshots.time", SimpleNamespace(time=later.now_s))
    session.execute("INSERT INTO t VALUES (4, 'new', 7)")
    export(session, "iceberg")
    assert rows_of(opened.scan().to_arrow()) == [(2, "old", 1.0)]


@each_format
def test_no_byte_of_a_part_is_copied(session: Session, form: Format) -> None:
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    exported = export(session, form)
    [file] = [Path(file) for file in the_table(session).files()]
    root = Path(session.context.server.server.data, "exports")
    [name] = root.rglob("data-*.parquet")
    assert name.samefile(file)
    assert exported.converted == ()


@each_format
def test_a_version_holds_its_files_for_the_lease(session: Session, form: Format) -> None:
    """1. A part is exported, and dropped: its file stays, for who reads the version.
    2. The next version does not have it: it stays until the lease is over.
    """
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    first = export(session, form)
    root = Path(session.context.server.server.data, "exports")
    work_off(session, "ALTER TABLE t DROP PARTITION 0")
    assert the_table(session).store.parts() == []
    reader = LIBRARIES[form]
    assert rows_of(reader(first)) == [(2, "c", 0.0)]
    assert export(session, form, lease_s=1e9).files_removed == 1
    assert export(session, form, lease_s=1e9).let_go == ()
    assert len(list(root.rglob("data-*.parquet"))) == 1
    assert len(export(session, form, lease_s=0).let_go) == 1
    assert list(root.rglob("data-*.parquet")) == []


@each_format
def test_what_nobody_else_can_read_is_refused(session: Session, form: Format) -> None:
    alter(session, "ADD COLUMN wide Int128")
    with pytest.raises(NotExportable, match=r"column wide .* is Int128"):
        export(session, form)
    with pytest.raises(UserError, match="stores no column x: k, s, d, wide"):
        export(session, form, columns=["x"])
    assert rows_of(LIBRARIES[form](export(session, form, columns=["k", "s"]))) == []


@each_format
def test_an_integer_that_others_do_not_have_is_refused(session: Session, form: Format) -> None:
    alter(session, "ADD COLUMN h UInt64")
    session.execute("INSERT INTO t (k, h) VALUES (2, 9223372036854775807)")
    assert LIBRARIES[form](export(session, form))["h"].to_pylist() == [2**63 - 1]
    session.execute("INSERT INTO t (k, h) VALUES (2, 9223372036854775808)")
    with pytest.raises(NotExportable, match="column h has 9223372036854775808"):
        export(session, form)
    assert export(session, form, columns=["k"]).rows == 2


@each_format
def test_two_at_once_are_not_let_in(session: Session, form: Format) -> None:
    export(session, form)
    server = session.context.server
    files = ExportFiles(
        LocalDisk(server.server.data),
        f"exports/data/default/t/{form}",
        server.clock,
        server.ids,
    )
    with files.held(), pytest.raises(ExportIsBusy, match="being brought up to date"):
        export(session, form)


@each_format
def test_what_is_refused_again_and_again_holds_no_files(session: Session, form: Format) -> None:
    """Merges make other parts of it each time."""
    alter(session, "ADD COLUMN h UInt64")
    session.execute("INSERT INTO t (k, h) VALUES (2, 9223372036854775808)")
    for _ in range(2):
        with pytest.raises(NotExportable):
            export(session, form, lease_s=0)
    work_off(session, "ALTER TABLE t DROP PARTITION 0")
    session.execute("INSERT INTO t (k, h) VALUES (1, 9223372036854775808)")
    for _ in range(2):  # what the first one retires, the second one removes
        with pytest.raises(NotExportable):
            export(session, form, lease_s=0)
    root = Path(session.context.server.server.data, "exports")
    assert [path for path in root.rglob("0_*") if path.parent.name == "data"] == []


@each_format
def test_an_empty_part_of_before_an_alter_is_no_file(session: Session, form: Format) -> None:
    session.execute("INSERT INTO t VALUES (1, 'a', 0), (2, 'c', 0)")
    with working(session.context.server, the_table(session).definition):
        session.execute("ALTER TABLE t DELETE WHERE k = 2 SETTINGS mutations_sync = 1")
    alter(session, "ADD COLUMN e Int32 DEFAULT 1")
    assert sorted(part.manifest.rows for part in the_table(session).parts()) == [0, 1]
    found = export(session, form)
    assert (found.files_added, found.rows) == (1, 1)
    assert export(session, form).version == ""


def exported_files(session: Session, form: Format) -> list[Path]:
    root = Path(session.context.server.server.data, "exports/data/default/t", form)
    return sorted((root / "data").rglob("data-*.parquet"))


@each_format
def test_a_part_that_was_fetched_again_is_exported_again(
    session: Session, form: Format
) -> None:
    """1. The disk rots under a part: its second name in the export has the same bytes.
    2. Another replica's comes in its place, in files of its own.
    """
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    first = export(session, form)
    [name] = the_table(session).files()
    place = Path(name)
    whole = place.read_bytes()
    place.write_bytes(whole[:100] + bytes(4) + whole[104:])
    fetched = place.with_name("fetched")
    fetched.write_bytes(whole)
    fetched.replace(place)
    again = export(session, form)
    assert (again.version, again.place) == ("", first.place)
    assert rows_of(LIBRARIES[form](first)) == [(2, "c", 0.0)]
    [exported] = exported_files(session, form)
    assert exported.samefile(place), "no byte is copied"


@each_format
def test_a_file_that_lacks_is_there_again(session: Session, form: Format) -> None:
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    first = export(session, form)
    for file in exported_files(session, form):
        file.unlink()
    export(session, form)
    assert rows_of(LIBRARIES[form](first)) == [(2, "c", 0.0)]


@each_format
def test_who_dies_while_a_part_is_removed_leaves_no_half_of_it(
    session: Session, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    export(session, form)
    work_off(session, "ALTER TABLE t DROP PARTITION 0")
    export(session, form, lease_s=1e9)

    def dies(_: LocalDisk, path: str) -> None:
        raise KeyboardInterrupt(path)

    with monkeypatch.context() as patched:
        patched.setattr(LocalDisk, "remove_tree", dies)
        with pytest.raises(KeyboardInterrupt):
            export(session, form, lease_s=0)
    assert exported_files(session, form) == []
    root = Path(session.context.server.server.data, "exports/data/default/t", form)
    assert len(list(root.glob("_tmp_*"))) == 1
    export(session, form)
    assert list(root.glob("_tmp_*")) == []


def test_a_vacuum_between_link_and_commit_takes_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link is as old as its file: VACUUM takes it for one that nobody has wanted for long."""
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    export(session, "delta")
    session.execute("INSERT INTO t VALUES (4, 'd', 0)")
    commit = DeltaExport.commit

    def after_vacuum(self: DeltaExport, *what: Any) -> str:
        directory = str(
            Path(session.context.server.server.data, "exports/data/default/t/delta")
        )
        table = deltalake.DeltaTable(directory)
        taken = table.vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
        )
        assert len(taken) == 1, "the test's vacuum finds the link"
        return commit(self, *what)

    monkeypatch.setattr(DeltaExport, "commit", after_vacuum)
    exported = export(session, "delta")
    assert rows_of(by_deltalake(exported)) == [(2, "c", 0.0), (4, "d", 0.0)]


DAMAGED: list[tuple[Format, str]] = [
    ("delta", "data/default/t/delta/_delta_log/*0.json"),
    ("iceberg", "data/default/t/iceberg/metadata/*.metadata.json"),
    ("iceberg", "data/default/t/iceberg/metadata/*.avro"),
    ("iceberg", "iceberg.db"),
]


@pytest.mark.parametrize(("form", "pattern"), DAMAGED)
def test_damage_is_named_with_the_remedy(session: Session, form: Format, pattern: str) -> None:
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    export(session, form)
    root = Path(session.context.server.server.data, "exports")
    for file in root.glob(pattern):
        file.write_bytes(b"x" * 1000)
    own = root / "data/default/t" / form
    session.execute("INSERT INTO t VALUES (4, 'd', 0)")
    with pytest.raises(ExportIsBroken, match=f"{own} could not be .* remove it") as raised:
        export(session, form)
    assert "\n" not in str(raised.value)
    (root / "iceberg.db").unlink() if "db" in pattern else shutil.rmtree(own)
    assert rows_of(LIBRARIES[form](export(session, form))) == [(2, "c", 0.0), (4, "d", 0.0)]


@each_format
def test_what_fills_the_disk_goes_and_so_does_what_nobody_needs(
    session: Session, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is to be written anew does not fit. What is there may hold the space for it."""
    session.execute("INSERT INTO t VALUES (1, 'a', 0), (2, 'c', 0)")
    export(session, form)
    work_off(session, "ALTER TABLE t DROP PARTITION 1")
    export(session, form, lease_s=0)
    alter(session, "ADD COLUMN e Int32 DEFAULT 1")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    root = Path(session.context.server.server.data, "exports/data/default/t", form)
    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, "write_table", full)
        patched.setattr(LocalDisk, "write", full)
        with pytest.raises(DiskFull, match=f"no space left on the disk of {root}"):
            export(session, form, lease_s=0)
    assert list(root.glob("_tmp_*")) == []
    assert [path.name[:2] for path in (root / "data").iterdir()] == ["0_"]
    assert rows_of(LIBRARIES[form](export(session, form))) == [(2, "c", 0.0, 1)]


@each_format
def test_a_version_is_there_after_a_loss_of_power(
    session: Session, form: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are on the disk, also those that the format's library has written."""
    synced: set[str] = set()
    fsync = LocalDisk.fsync

    def noted(disk: LocalDisk, path: str) -> None:
        synced.add(Path(path).name)
        fsync(disk, path)

    monkeypatch.setattr(LocalDisk, "fsync", noted)
    session.execute("INSERT INTO t VALUES (2, 'c', 0)")
    exported = export(session, form)
    root = Path(session.context.server.server.data, "exports/data/default/t", form)
    made = {"delta": "_delta_log", "iceberg": "metadata"}[form]
    assert {path.name for path in (root / made).iterdir()} <= synced
    assert exported.version


def test_what_all_exports_share_is_made_by_one(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two tables that are exported at once for the first time, each makes iceberg.db."""
    disk = LocalDisk(session.context.server.server.data)
    alone: list[bool] = []

    def noted(name: str) -> None:
        original = getattr(SqlCatalog, name)

        def make(*what: Any) -> None:
            lock = "exports/iceberg.db.lock"
            is_held = disk.size(lock) is not None and disk.lock(lock, shared=False) is None
            alone.append(is_held)
            original(*what)

        monkeypatch.setattr(SqlCatalog, name, make)

    noted("create_tables")
    noted("create_namespace")
    export(session, "iceberg")
    assert alone == [True, True]


def test_metadata_that_a_reader_was_told_of_stays_for_the_lease(session: Session) -> None:
    """However many versions came since: a sensor makes one after each flush."""
    session.execute("INSERT INTO t VALUES (0, 'first', 0)")
    first = export(session, "iceberg")
    for number in range(1, 25):
        session.execute(f"INSERT INTO t VALUES ({number}, 's', 0)")
        last = export(session, "iceberg")
    assert rows_of(by_pyiceberg(first)) == [(0, "first", 0.0)]
    export(session, "iceberg", lease_s=0)
    metadata = Path(last.place.removeprefix("file://")).parent
    kept = list(metadata.glob("*.metadata.json"))
    assert len(kept) <= 2
    assert by_pyiceberg(export(session, "iceberg", lease_s=0)).num_rows == 25
