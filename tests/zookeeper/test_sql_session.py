"""SQL against a real server: what goes in comes out, and nothing goes in by mistake."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.catalog.entries import TABLE_SUFFIX
from rmt_pipeline.config import Config
from rmt_pipeline.protocol.errors import (
    BadValue,
    CannotAssignOptimize,
    DuplicateColumn,
    RmtError,
    TableAlreadyExists,
    UnknownColumn,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart, MergeParts
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.sql.formats import input_files
from rmt_pipeline.sql.formats.rows import Done, Rows
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run import tables as session_tables
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.sql.system.zookeeper import NoNode
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.serving import forget

pytestmark = pytest.mark.zookeeper

COLUMNS = "a Int64, s String DEFAULT concat('d', toString(a)), m Int64 MATERIALIZED a * 2"


@pytest.fixture
def session(two_servers: Config) -> Iterator[Session]:
    """With an empty table `t`."""
    with Session.open(two_servers, "r1") as opened:
        opened.execute(f"CREATE TABLE t ({COLUMNS}) ENGINE = ReplicatedMergeTree ORDER BY a")
        yield opened
        opened.execute("DROP TABLE IF EXISTS t SYNC")


def ask(session: Session, query: str) -> list[str]:
    out = io.BytesIO()
    answer = session.execute(query)
    assert isinstance(answer, Rows)
    write_rows(answer, "TSV", out)
    return out.getvalue().decode().splitlines()


def everything(session: Session) -> list[str]:
    return ask(session, "SELECT a, s FROM t ORDER BY a, s")


# --- OPTIMIZE of what is not there ---


@pytest.fixture
def partitioned(session) -> Iterator[Session]:
    """With a table `p` of two partitions as well."""
    session.execute(
        "CREATE TABLE p (a Int64) ENGINE = ReplicatedMergeTree PARTITION BY a % 10 ORDER BY a"
    )
    session.execute("INSERT INTO p VALUES (1), (2)")
    yield session
    session.execute("DROP TABLE p SYNC")


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("nowhere", UnknownTable, "nowhere"),
        ("p PARTITION 'three'", BadValue, "three"),
        ("p PART 'all_0_0_0'", UserError, "PART"),
        ("p FINAL DEDUPLICATE BY b", UnknownColumn, "default.p has a"),
        ("t PARTITION 1", UserError, "PARTITION"),
    ],
)
def test_an_optimize_of_what_is_not_there_is_an_error(partitioned, what, error, message):
    with pytest.raises(error, match=message):
        partitioned.execute(f"OPTIMIZE TABLE {what}")


def test_an_optimize_that_finds_nothing_is_none(partitioned):
    partitioned.execute("OPTIMIZE TABLE t FINAL")
    partitioned.execute("OPTIMIZE TABLE t PARTITION tuple()")
    done = partitioned.execute("OPTIMIZE TABLE p PARTITION 3")
    assert "partition 3: nothing was merged" in done.note
    partitioned.execute("OPTIMIZE TABLE p PARTITION ID 'x' FINAL")
    with pytest.raises(
        CannotAssignOptimize, match="no partition with the id 3; there are: 1, 2"
    ):
        partitioned.execute("OPTIMIZE TABLE p PARTITION 3 SETTINGS optimize_throw_if_noop = 1")
    with pytest.raises(CannotAssignOptimize, match="only part of the partition"):
        partitioned.execute("OPTIMIZE TABLE p PARTITION 1 SETTINGS optimize_throw_if_noop = 1")


# --- what goes in comes out ---


def test_values_get_defaults_and_computed_columns(session):
    session.execute("INSERT INTO t VALUES (1, 'x'), (1 + 1, DEFAULT), (3, DEFAULT)")
    assert ask(session, "SELECT *, m FROM t ORDER BY a") == ["1\tx\t2", "2\td2\t4", "3\td3\t6"]


def test_rows_keep_their_order_when_some_have_defaults(session):
    session.execute("INSERT INTO t VALUES (1, 'x'), (1, DEFAULT), (1, 'y'), (1, DEFAULT)")
    assert ask(session, "SELECT s FROM t") == ["x", "d1", "y", "d1"]


@pytest.mark.parametrize(
    "insert",
    [
        "INSERT INTO t (s, a) VALUES ('x', 1), ('y', 2)",
        "INSERT INTO t FORMAT CSV\n1,x\n2,y\n",
        "INSERT INTO t (s, a) FORMAT TSV\nx\t1\ny\t2",
        "INSERT INTO t FORMAT TSVWithNames\ns\ta\nx\t1\ny\t2\n",
        'INSERT INTO t FORMAT JSONEachRow {"a": 1, "s": "x"} {"a": 2, "s": "y"}',
        'INSERT INTO t FORMAT JSONEachRow\n{"a": 1,\n "s": "x"},\n{"a": 2, "s": "y"}\n',
        "INSERT INTO t SELECT number + 1, ['x', 'y'][number + 1] FROM numbers(2)",
        "INSERT INTO t (s, a) SELECT 'x', 1 UNION ALL SELECT 'y', 2",
    ],
)
def test_rows_come_in_every_form(session, insert):
    session.execute(insert)
    assert everything(session) == ["1\tx", "2\ty"]


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.csv", "a,s\n1,x\n2,y\n", ""),
        ("b.csv", "1,x\n2,y\n", ""),
        ("c.tsv", "s\ta\nx\t1\ny\t2\n", ""),
        ("d.jsonl", '{"a": 1, "s": "x"}\n{"a": 2, "s": "y"}\n', ""),
        ("e.data", "1,x\n2,y\n", "FORMAT CSV"),
    ],
)
def test_rows_come_from_files(session, tmp_path, name, text, form):
    (tmp_path / name).write_text(text)
    session.execute(f"INSERT INTO t FROM INFILE '{tmp_path / name}' {form}")
    assert everything(session) == ["1\tx", "2\ty"]


@pytest.mark.parametrize("spool_bytes", [1 << 20, 4])
def test_rows_come_from_standard_input(session, monkeypatch, spool_bytes):
    monkeypatch.setattr(input_files, "SPOOL_BYTES", spool_bytes)
    session.context.stdin = io.BytesIO(b"1,x\n2,y\n")
    session.execute("INSERT INTO t FORMAT CSV")
    assert everything(session) == ["1\tx", "2\ty"]


def test_parquet_goes_out_and_in_again(session):
    session.execute("INSERT INTO t (a) VALUES (1), (2)")
    file = io.BytesIO()
    answer = session.execute("SELECT a + 10 AS a, s FROM t FORMAT Parquet")
    assert isinstance(answer, Rows)
    write_rows(answer, answer.format or "", file)
    session.context.stdin = io.BytesIO(file.getvalue())
    session.execute("INSERT INTO t (a, s) FORMAT Parquet")
    assert everything(session) == ["1\td1", "2\td2", "11\td1", "12\td2"]


def test_the_same_insert_again_is_answered_as_a_duplicate(session):
    first = session.execute("INSERT INTO t (a) VALUES (1), (2)")
    again = session.execute("INSERT INTO t (a) VALUES (2), (1)")
    assert first == Done(at_terminal="inserted 2 rows as 1 part")
    assert isinstance(again, Done)
    assert again.note.startswith("duplicate of insert ")
    session.execute("INSERT INTO t (a) SETTINGS insert_deduplicate = 0 VALUES (1), (2)")
    assert ask(session, "SELECT count() FROM t") == ["4"]


# --- nothing goes in by mistake ---


@pytest.mark.parametrize(
    ("insert", "error"),
    [
        ("INSERT INTO t (a) VALUES (1), ('not a number')", BadValue),
        ("INSERT INTO t (a) VALUES (1), (1, 2)", BadValue),
        ("INSERT INTO t (a) VALUES (1), (nosuch)", BadValue),
        ("INSERT INTO t (a) VALUES (1), (NULL)", BadValue),
        ("INSERT INTO t (a) VALUES (1) SELECT", UserError),
        ("INSERT INTO t (a, nosuch) VALUES (1, 1)", UnknownColumn),
        ("INSERT INTO t (a, a) VALUES (1, 1)", DuplicateColumn),
        ("INSERT INTO t (a, m) VALUES (1, 1)", UserError),
        ("INSERT INTO nosuch VALUES (1)", UnknownTable),
        ("INSERT INTO system.one VALUES (1)", UserError),
        ("INSERT INTO t FORMAT CSV\n1,x\nno,y\n", BadValue),
        ('INSERT INTO t FORMAT JSONEachRow {"a": 1} {"nosuch": 2}', UserError),
        ("INSERT INTO t FORMAT NoSuch 1", UserError),
        ("INSERT INTO t FORMAT CSV", UserError),
        ("INSERT INTO t FROM INFILE '/nosuch.csv'", UserError),
        ("INSERT INTO t FROM INFILE '/nosuch'", UserError),
        ("INSERT INTO t SELECT 1", UserError),
        ("INSERT INTO t SELECT nosuch, 1", UnknownColumn),
        ("INSERT INTO t SELECT toInt64(if(number < 3, '1', 'x')), '' FROM numbers(5)", BadValue),
        ("INSERT INTO t SETTINGS nosuch = 1 VALUES (1, 'x')", UserError),
    ],
)  # fmt: skip
def test_an_insert_with_a_mistake_leaves_nothing_behind(session, insert, error):
    with pytest.raises(error):
        session.execute(insert)
    assert everything(session) == []
    assert ask(session, "SELECT count() FROM system.parts WHERE table = 't'") == ["0"]


# --- reading ---


def test_an_empty_table_has_its_columns(session):
    answer = session.execute("SELECT *, m, _part FROM t")
    assert isinstance(answer, Rows)
    assert [(each.name, each.type.text) for each in answer.columns] == [
        ("a", "Int64"),
        ("s", "String"),
        ("m", "Int64"),
        ("_part", "String"),
    ]
    assert list(answer.batches) == []
    assert ask(session, "SELECT count(), sum(a) FROM t") == ["0\t0"]


def test_rows_know_the_part_they_are_in(session):
    session.execute("INSERT INTO t (a) VALUES (1)")
    session.execute("INSERT INTO t (a) VALUES (2)")
    query = "SELECT a, _part, _partition_id FROM t ORDER BY a"
    assert ask(session, query) == ["1\tall_0_0_0\tall", "2\tall_1_1_0\tall"]
    assert ask(session, "SELECT a FROM t WHERE _part = 'all_1_1_0'") == ["2"]


def test_parts_stay_while_an_answer_is_being_read(session):
    session.execute("INSERT INTO t SELECT number, '' FROM numbers(200000)")
    store = session.context.server.table("t").store
    answer = session.execute("SELECT a FROM t")
    assert isinstance(answer, Rows)
    batches = iter(answer.batches)
    rows = next(batches).num_rows
    parts = store.parts()
    assert store.remove_all(parts) == parts, "parts that are read are pinned"
    assert rows + sum(batch.num_rows for batch in batches) == 200_000
    assert store.remove_all(parts) == []


def test_a_column_that_older_parts_do_not_have_is_read_as_its_default(session):
    session.execute("INSERT INTO t (a) VALUES (1)")
    catalog = session.context.server.catalog
    definition = catalog.definition("default", "t")
    added = (
        Column("z", "Int64"),
        Column("y", "Nullable(String)"),
        Column("x", "String", default_kind="DEFAULT", default="concat(s, '!')"),
    )
    catalog.save(definition.with_columns((*definition.columns, *added)))
    assert ask(session, "SELECT a, x, y, z FROM t") == ["1\td1!\t\\N\t0"]


def test_a_column_that_changed_its_type_is_read_with_the_new_one(session):
    session.execute("INSERT INTO t (a) VALUES (1)")
    catalog = session.context.server.catalog
    definition = catalog.definition("default", "t")
    first, *others = definition.columns
    catalog.save(definition.with_columns((replace(first, type="String"), *others)))
    assert ask(session, "SELECT concat(a, '!'), toTypeName(a) FROM t") == ["1!\tString"]


def test_two_tables_are_joined(session):
    session.execute("INSERT INTO t (a) VALUES (1), (2)")
    query = "SELECT x.a, y.s FROM t AS x INNER JOIN default.t AS y ON x.a = y.a - 1"
    assert ask(session, query) == ["1\td2"]


# --- tables ---


def test_a_table_is_there_until_it_is_dropped(session):
    assert ask(session, "EXISTS t") == ["1"]
    assert ask(session, "SHOW TABLES LIKE 't'") == ["t"]
    with pytest.raises(TableAlreadyExists):
        session.execute("CREATE TABLE t (a Int8) ENGINE = ReplicatedMergeTree ORDER BY a")
    session.execute(
        "CREATE TABLE IF NOT EXISTS t (a Int8) ENGINE = ReplicatedMergeTree ORDER BY a"
    )
    session.execute("DROP TABLE t SYNC")
    assert ask(session, "EXISTS t") == ["0"]
    with pytest.raises(UnknownTable):
        session.execute("DROP TABLE t")
    session.execute("DROP TABLE IF EXISTS t")


def test_what_show_create_says_makes_the_table_again(session):
    (statement,) = ask(session, "SHOW CREATE TABLE t FORMAT TSVRaw")
    text = statement.replace("\\n", "\n").replace("\\'", "'")
    before = session.context.server.catalog.definition("default", "t")
    session.execute("DROP TABLE t SYNC")
    session.execute(text)
    after = session.context.server.catalog.definition("default", "t")
    assert replace(after, uuid=before.uuid) == before


def test_none_of_several_tables_is_dropped_when_one_is_unknown(session):
    with pytest.raises(UnknownTable):
        session.execute("DROP TABLE t, nosuch")
    assert ask(session, "EXISTS t") == ["1"]


def test_a_database_is_dropped_with_its_tables(session):
    session.execute("CREATE DATABASE d")
    session.execute("CREATE TABLE d.t (a Int8) ENGINE = ReplicatedMergeTree ORDER BY a")
    session.execute("DROP DATABASE d SYNC")
    assert ask(session, "EXISTS DATABASE d") == ["0"]
    path = "/clickhouse/tables/01/d"
    assert ask(session, f"SELECT name FROM system.zookeeper WHERE path = '{path}'") == []


def test_a_replica_that_the_catalog_forgot_is_attached_with_its_rows(session):
    session.execute("INSERT INTO t (a) VALUES (1)")
    create = f"({COLUMNS}) ENGINE = ReplicatedMergeTree ORDER BY a"
    catalog = session.context.server.catalog
    directory = catalog.table_directory(catalog.definition("default", "t"))
    Path(session.context.server.server.data, "metadata", "default", f"t{TABLE_SUFFIX}").unlink()
    with pytest.raises(UnknownTable):
        session.execute("ATTACH TABLE t")
    session.execute(f"ATTACH TABLE t {create}")
    assert catalog.table_directory(catalog.definition("default", "t")) == directory
    assert everything(session) == ["1\td1"]
    with pytest.raises(RmtError):
        session.execute(f"ATTACH TABLE t {create}")
    with pytest.raises(UnknownTable, match="no replica r1"):
        session.execute(f"ATTACH TABLE other {create}")


def test_a_table_without_its_server_is_made_and_says_that_it_is_read_only(
    two_servers, monkeypatch
):
    monkeypatch.setattr(session_tables, "ACTIVE_WAIT_S", 0.2)
    data = Path(two_servers.server("r1").data).with_name("r3")
    lonely = replace(
        two_servers, servers={"r3": replace(two_servers.server("r1"), name="r3", data=data)}
    )
    with Session.open(lonely, "r3") as session:
        text = "ENGINE = ReplicatedMergeTree('/lonely', 'r3') ORDER BY a"
        made = session.execute(f"CREATE TABLE alone (a Int8) {text}")
        assert isinstance(made, Done)
        assert "read-only until its server runs: rmt serve --server r3" in made.note
        session.execute("DROP TABLE alone")


# --- system tables ---


def test_parts_tell_where_their_rows_came_from(session):
    session.execute(
        "INSERT INTO t (a) SETTINGS insert_deduplication_token = 'token' VALUES (1), (2)"
    )
    query = (
        "SELECT partition, name, active, rows, level, min_block_number, engine, files,"
        " bytes_on_disk > 0, insert_id != '', length(row_hash), source_parts"
        " FROM system.parts WHERE table = 't'"
    )
    assert ask(session, query) == [
        "tuple()\tall_0_0_0\t1\t2\t0\t0\tReplicatedMergeTree\t1\t1\t1\t32\t[]"
    ]


def test_replicas_tell_how_they_are(session):
    session.execute("INSERT INTO t (a) VALUES (1)")
    query = (
        "SELECT is_leader, is_readonly, queue_size, log_pointer > log_max_index, total_replicas,"
        " active_replicas, replica_is_active FROM system.replicas WHERE table = 't'"
    )
    session.execute("SYSTEM SYNC REPLICA t")
    assert ask(session, query) == ["1\t0\t0\t1\t1\t1\t{'r1':1}"]


def test_a_queue_entry_is_shown_with_what_it_waits_for(session):
    """A merge waits for a source that a worker is about to fetch."""
    replica = session.context.server.table("t").replica
    made = {"create_time": 1_700_000_000, "source_replica": "r9"}
    first, second = PartName.parse("all_5_5_0"), PartName.parse("all_6_6_0")
    merge = MergeParts(**made, sources=(first, second), result=PartName.parse("all_5_6_1"))
    entries = [GetPart(**made, part=first), GetPart(**made, part=second), merge]
    node = f"{replica.paths.queue}/queue-"
    claim = Claim("somebody", (first,)).encode()
    replica.keeper.multi(
        [
            *(Create(node, encode(entry), sequence=True) for entry in entries),
            Create(replica.paths.claim("queue-0000000000"), claim, ephemeral=True),
        ]
    )
    query = (
        "SELECT position, node_name, type, toUnixTimestamp(create_time), source_replica,"
        " new_part_name, parts_to_merge, is_currently_executing, merge_type, postpone_reason"
        " FROM system.replication_queue WHERE table = 't' AND type = 'MERGE_PARTS'"
    )
    [row] = ask(session, query)
    *facts, reason = row.split("\t")
    shown = "2 queue-0000000002 MERGE_PARTS 1700000000 r9 all_5_6_1 ['all_5_5_0','all_6_6_0']"
    assert facts == [*shown.split(), "0", "REGULAR"]
    assert "all_5_5_0" in reason


def test_a_table_made_again_is_not_its_namesake(session):
    """Parts and queue entries of both have the same names (P24)."""
    session.execute("INSERT INTO t (a) VALUES (1)")
    before = session.context.server.catalog.definition("default", "t")
    for value in (2, 3):
        session.execute("DROP TABLE t SYNC")
        session.execute(f"CREATE TABLE t ({COLUMNS}) ENGINE = ReplicatedMergeTree ORDER BY a")
        session.execute(f"INSERT INTO t (a) VALUES ({value})")
        assert ask(session, "SELECT a FROM t") == [str(value)]
    assert session.context.server.catalog.definition("default", "t").uuid != before.uuid


def test_totals_of_tables_are_counted_when_they_are_asked_for(session):
    session.execute("INSERT INTO t (a) VALUES (1), (2)")
    query = "SELECT total_rows, active_parts, sorting_key FROM system.tables WHERE name = 't'"
    assert ask(session, query) == ["2\t1\ta"]
    names = "SELECT name FROM system.tables WHERE database = 'default'"
    assert ask(session, names) == ["t"]


def test_nodes_of_zookeeper_are_shown_with_their_values(session):
    path = "/clickhouse/tables/01/default/t"
    query = f"SELECT name, value FROM system.zookeeper WHERE path = '{path}/replicas'"
    assert ask(session, query) == ["r1\t"]
    nowhere = "SELECT name FROM system.zookeeper WHERE path IN ('/', '/nowhere')"
    with pytest.raises(NoNode, match="no node /nowhere"):
        session.execute(nowhere)
    with pytest.raises(UserError, match="path = "):
        session.execute("SELECT * FROM system.zookeeper")


def test_a_table_whose_replica_is_gone_has_no_row_and_hides_no_other(session):
    session.execute("CREATE TABLE gone (a Int8) ENGINE = ReplicatedMergeTree ORDER BY a")
    definition = session.context.server.catalog.definition("default", "gone")
    session.execute("DROP TABLE gone SYNC")
    session.context.server.catalog.add(definition)
    try:
        assert ask(session, "SELECT table FROM system.replicas") == ["t"]
        assert ask(session, "SELECT table FROM system.replication_queue") == []
    finally:
        forget(session.context.server.catalog, name="gone")
