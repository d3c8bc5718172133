"""Commands on partitions, from statement to answer: every kind of key, and bad input."""

import re

import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import ReplicaIsActive, RmtError
from rmt_pipeline.zookeeper.keeper import Create
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.local_replicas import DirectPeers
from tests.support.local_session import create, rows
from tests.support.local_work import working

ENGINE = "ENGINE = ReplicatedMergeTree('/t/{name}', 'r1')"


def table(session, columns, key, values):
    partition = f"PARTITION BY {key}" if key else ""
    engine = ENGINE.replace("{name}", "t")
    definition = create(session, f"CREATE TABLE t ({columns}) {engine} {partition} ORDER BY n")
    if values:
        session.execute(f"INSERT INTO t VALUES {values}")
    return definition


@pytest.mark.parametrize(
    ("columns", "key", "values", "dropped"),
    [
        ("p UInt8, n UInt8", "p", "(1, 1), (2, 2)", "1"),
        ("p Int32, n UInt8", "p", "(-7, 1), (2, 2)", "-7"),
        ("p Date, n UInt8", "p", "('2019-05-01', 1), ('2019-05-02', 2)", "'2019-05-01'"),
        ("p Date, n UInt8", "toYYYYMM(p)", "('2019-05-01', 1), ('2019-06-02', 2)", "201905"),
        ("p Date, n UInt8", "toYYYYMM(p)", "('2019-05-01', 1), ('2019-06-02', 2)", "'201905'"),
        (
            "p Date, n UInt8",
            "toMonday(p)",
            "('2019-05-01', 1), ('2019-06-02', 2)",
            "'2019-04-29'",
        ),
        ("p String, n UInt8", "p", "('a b', 1), ('c', 2)", "'a b'"),
        ("p String, q Int8, n UInt8", "(p, q)", "('a', 1, 1), ('a', 2, 2)", "('a', 1)"),
        ("p UInt8, q Int8, n UInt8", "(p, q)", "(3, -1, 1), (3, 2, 2)", "(3, -1)"),
        ("p UInt8, q Int8, n UInt8", "(p, q)", "(3, -1, 1), (3, 2, 2)", "ID '3--1'"),
        ("p Enum8('x' = 1, 'y' = 2), n UInt8", "p", "('x', 1), ('y', 2)", "'x'"),
        ("p UInt8, n UInt8", "p % 2", "(3, 1), (4, 2)", "1"),
    ],
)
def test_a_partition_is_named_by_the_value_of_its_key(session, columns, key, values, dropped):
    definition = table(session, columns, key, values)
    with working(session.context.server, definition):
        session.execute(f"ALTER TABLE t DROP PARTITION {dropped}")
        assert rows(session, "SELECT n FROM t") == [(2,)]
        session.execute(f"INSERT INTO t VALUES {values}")
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]


def test_a_table_without_a_key_has_one_partition(session):
    definition = table(session, "n UInt8", "", "(1)")
    with working(session.context.server, definition):
        for name in ("tuple()", "ID 'all'", "ALL"):
            session.execute(f"ALTER TABLE t DROP PARTITION {name}")
            assert rows(session, "SELECT n FROM t") == []
            session.execute("INSERT INTO t VALUES (1)")
        session.execute("TRUNCATE TABLE t")
        assert rows(session, "SELECT n FROM t") == []


def test_a_part_is_dropped_by_its_name(session):
    definition = table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    with working(session.context.server, definition):
        session.execute("ALTER TABLE t DROP PART '1_0_0_0', DETACH PARTITION 2")
        assert rows(session, "SELECT n FROM t") == []


def test_a_partition_goes_and_comes_back(session):
    definition = table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    with working(session.context.server, definition):
        session.execute("ALTER TABLE t DETACH PARTITION 1")
        query = "SELECT name, reason, is_safe_to_delete FROM system.detached_parts"
        assert rows(session, query) == [("1_0_0_0", "", 0)]
        session.execute("ALTER TABLE t ATTACH PARTITION 1")
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]
        assert rows(session, query) == []
        nothing = session.execute("ALTER TABLE t ATTACH PARTITION 1")
        assert nothing.note == "no part of partition 1 is detached here"


def test_a_partition_goes_from_one_table_to_another(session):
    create(
        session,
        "CREATE TABLE s (p UInt8, n UInt8) ENGINE = ReplicatedMergeTree('/t/s', 'r1')"
        " PARTITION BY p ORDER BY n",
    )
    session.execute("INSERT INTO s VALUES (1, 7)")
    definition = table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    with working(session.context.server, definition):
        session.execute("ALTER TABLE t REPLACE PARTITION 1 FROM s")
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(2,), (7,)]
        with pytest.raises(RmtError, match=r"default.s .* has no row in partition 2"):
            session.execute("ALTER TABLE t REPLACE PARTITION 2 FROM s")
        session.execute("ALTER TABLE t ATTACH PARTITION 1 FROM s")
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(2,), (7,), (7,)]
        again = session.execute("ALTER TABLE t ATTACH PARTITION 1 FROM s")
        assert again.note == "1_0_0_0 of s had been attached before: not once more"
        session.execute("ALTER TABLE t MOVE PARTITION 2 TO TABLE s")
        assert rows(session, "SELECT n FROM s ORDER BY n") == [(2,), (7,)]
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(7,), (7,)]
        nothing = session.execute("ALTER TABLE t MOVE PARTITION 2 TO TABLE s")
        assert nothing.note == "default.t has no row in partition 2: nothing was done"
        with pytest.raises(RmtError, match="one table"):
            session.execute("ALTER TABLE t REPLACE PARTITION 1 FROM t")
        with pytest.raises(RmtError, match="DISK"):
            session.execute("ALTER TABLE t MOVE PARTITION 1 TO DISK 'd'")


def test_rows_are_inserted_in_the_place_of_others(session):
    table(session, "p UInt8, n UInt8", "p", "(1, 1), (1, 2), (2, 3)")
    session.execute("INSERT OVERWRITE INTO t PARTITION 1 VALUES (1, 7)")
    assert rows(session, "SELECT n FROM t ORDER BY n") == [(3,), (7,)]
    again = session.execute("INSERT OVERWRITE t PARTITION ID '1' SELECT 1, 7")
    assert again.note == "duplicate: these rows are there already; nothing was changed"
    session.execute("INSERT OVERWRITE t (n, p) WHERE n > 5 AND p = 1 SELECT 8, 1")
    assert rows(session, "SELECT n FROM t ORDER BY n") == [(3,), (8,)]
    session.execute("INSERT OVERWRITE t FORMAT CSV 2,4\n2,5")
    assert rows(session, "SELECT n FROM t ORDER BY n") == [(4,), (5,), (8,)]
    session.execute("INSERT OVERWRITE t PARTITION 1, PARTITION 2 VALUES (1, 9), (2, 9)")
    assert rows(session, "SELECT p, n FROM t ORDER BY p") == [(1, 9), (2, 9)]
    token = "SETTINGS insert_deduplication_token = 'x'"
    session.execute(f"INSERT OVERWRITE t PARTITION 2 {token} VALUES (2, 6)")
    done = session.execute(f"INSERT OVERWRITE t PARTITION 2 {token} VALUES (2, 7)")
    assert done.note.startswith("duplicate")
    with pytest.raises(RmtError, match="is not among those that are replaced: 2"):
        session.execute("INSERT OVERWRITE t PARTITION 2 VALUES (1, 6)")
    with pytest.raises(RmtError, match="does not hold for 1 of the rows"):
        session.execute("INSERT OVERWRITE t WHERE n < 3 VALUES (1, 6)")
    with pytest.raises(RmtError, match="allow_replace_partition_from_empty_source"):
        session.execute("INSERT OVERWRITE t PARTITION 2 SELECT 1, 1 WHERE 0")
    assert rows(session, "SELECT p, n FROM t ORDER BY p") == [(1, 9), (2, 6)]


def test_what_is_detached_is_removed_only_when_that_is_allowed(session):
    definition = table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    with working(session.context.server, definition):
        session.execute("ALTER TABLE t DETACH PARTITION ALL")
    with pytest.raises(RmtError, match="allow_drop_detached = 1"):
        session.execute("ALTER TABLE t DROP DETACHED PARTITION 1")
    allowed = "SETTINGS allow_drop_detached = 1"
    gone = session.execute(f"ALTER TABLE t DROP DETACHED PARTITION 1 {allowed}")
    assert gone.note == "removed 1_0_0_0"
    session.execute(f"ALTER TABLE t DROP DETACHED PART '2_0_0_0' {allowed}")
    assert rows(session, "SELECT name FROM system.detached_parts") == []


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        (
            "ALTER TABLE t DROP PARTITION 'x'",
            "CANNOT_PARSE_TEXT",
            "no value of the partition key",
        ),
        ("ALTER TABLE t DROP PARTITION (1, 2)", "CANNOT_PARSE_TEXT", r"\(p UInt8\)"),
        ("ALTER TABLE t DROP PARTITION ID 'a_b'", "INVALID_PARTITION_VALUE", "can't be the id"),
        (
            "ALTER TABLE t DROP PARTITION ID '../x'",
            "INVALID_PARTITION_VALUE",
            "can't be the id",
        ),
        (
            "ALTER TABLE t DROP PART '../1_0_0_0'",
            "BAD_DATA_PART_NAME",
            "not the name of a part",
        ),
        ("ALTER TABLE t DROP PART '1_0_0_999999999'", "BAD_DATA_PART_NAME", "name of a part"),
        ("ALTER TABLE t DROP PART '1_7_7_0'", "NO_SUCH_DATA_PART", "no active part 1_7_7_0"),
        (
            "ALTER TABLE t ATTACH PART '1_7_7_0'",
            "BAD_DATA_PART_NAME",
            "no detached part 1_7_7_0",
        ),
        (
            "ALTER TABLE t ATTACH PART '../1_0_0_0'",
            "BAD_DATA_PART_NAME",
            "not the name of a part",
        ),
        ("ALTER TABLE u DROP PARTITION 1", "UNKNOWN_TABLE", "u"),
        ("ALTER TABLE system.parts DROP PARTITION 1", "BAD_ARGUMENTS", "system.parts"),
        ("TRUNCATE TABLE u", "UNKNOWN_TABLE", "u"),
    ],
)
def test_what_names_nothing_is_refused_and_nothing_is_dropped(session, statement, code, words):
    table(session, "p UInt8, n UInt8", "p", "(1, 1)")
    with pytest.raises(RmtError, match=words) as raised:
        session.execute(statement)
    assert raised.value.code == code
    assert rows(session, "SELECT n FROM t") == [(1,)]


WITH_A_PARTITION = (
    "ALTER TABLE t DROP {}",
    "ALTER TABLE t DETACH {}",
    "ALTER TABLE t ATTACH {}",
    "ALTER TABLE t ATTACH {} FROM s",
    "ALTER TABLE t REPLACE {} FROM s",
    "ALTER TABLE t MOVE {} TO TABLE s",
    "ALTER TABLE t FREEZE {}",
    "ALTER TABLE t UNFREEZE {} WITH NAME 'x'",
    "ALTER TABLE t FETCH {} FROM '/t/s'",
    "ALTER TABLE t CLEAR COLUMN m IN {}",
    "ALTER TABLE t DROP DETACHED {} SETTINGS allow_drop_detached = 1",
    "OPTIMIZE TABLE t {} FINAL",
    "INSERT OVERWRITE t {} VALUES (1, 7, 7)",
)


@pytest.mark.parametrize(
    ("columns", "key", "literal"),
    [
        ("p String", "p", "5"),
        ("p LowCardinality(String)", "p", "-5"),
        ("p FixedString(1)", "p", "1.5"),
        ("p String, d Date", "(p, d)", "(5, '2024-01-01')"),
    ],
)
def test_a_number_is_no_partition_of_a_key_of_text(session, columns, key, literal):
    """'5' and '05' are two partitions: which one 5 means is for the user to say."""
    table(session, f"{columns}, n UInt8", key, "")
    with pytest.raises(RmtError, match=r"is a number, and the key is a \w*String.*Say, for"):
        session.execute(f"ALTER TABLE t DROP PARTITION {literal}")


@pytest.mark.parametrize(
    ("columns", "key", "example"),
    [
        ("p Date", "toYYYYMM(p)", "202401"),
        ("p DateTime", "toYYYYMMDD(p)", "20240101"),
        ("p Date", "toYear(p)", "2024"),
        ("p Date", "p", "'2024-01-01'"),
        ("p Date", "toMonday(p)", "'2024-01-01'"),
        ("p DateTime", "toStartOfHour(p)", "'2024-01-01 00:00:00'"),
        ("p FixedString(3)", "p", "'x'"),
        ("p UInt64", "cityHash64(p) % 16", "1"),
        ("p LowCardinality(String), d Date", "(toYYYYMM(d), p)", "(202401, 'text')"),
        ("p UUID", "p", "'61f0c404-5cb3-11e7-907b-a6006ad3dba0'"),
        ("p IPv4", "p", "'192.0.2.1'"),
        ("p IPv6", "p", "'2001:db8::1'"),
        ("p Bool", "p", "true"),
        ("p Decimal(9, 2)", "p", "1"),
        ("p Enum8('x' = 1)", "p", "'x'"),
    ],
)
def test_whoever_names_no_value_of_the_key_is_told_one(session, columns, key, example):
    table(session, f"{columns}, n UInt8", key, "")
    with pytest.raises(RmtError, match="Say, for example") as refusal:
        session.execute("ALTER TABLE t DROP PARTITION (1, 2, 3)")
    assert f"PARTITION {example}, or PARTITION ID" in str(refusal.value)
    done = session.execute(f"ALTER TABLE t DROP PARTITION {example}")
    assert "has never had a row" in done.note


NOT_OF_THE_KEY = r"(?s)\(p UInt8\).*Say, for example, PARTITION 1, or PARTITION ID"


@pytest.fixture
def two_tables(session):
    engine = f"{ENGINE} PARTITION BY p ORDER BY n"
    for name in "ts":
        columns = "(p UInt8, n UInt8, m UInt8)"
        create(session, f"CREATE TABLE {name} {columns} {engine.replace('{name}', name)}")
        session.execute(f"INSERT INTO {name} VALUES (1, 1, 1)")
    return session


@pytest.mark.parametrize(
    ("partition", "codes", "words"),
    [
        ("PARTITION 'x'", {"CANNOT_PARSE_TEXT"}, NOT_OF_THE_KEY),
        ("PARTITION 300", {"CANNOT_PARSE_TEXT"}, NOT_OF_THE_KEY),
        ("PARTITION (1, 2)", {"INVALID_PARTITION_VALUE", "CANNOT_PARSE_TEXT"}, NOT_OF_THE_KEY),
        ("PARTITION ID '../x'", {"INVALID_PARTITION_VALUE"}, "can't be the id"),
        ("PARTITION ID '/etc'", {"INVALID_PARTITION_VALUE"}, "can't be the id"),
        ("PARTITION ID ''", {"INVALID_PARTITION_VALUE"}, "can't be the id"),
    ],
)
def test_a_wrong_partition_is_refused_by_every_statement(two_tables, partition, codes, words):
    answers = {}
    for statement in WITH_A_PARTITION:
        try:
            two_tables.execute(statement.format(partition))
            answers[statement] = "it was done"
        except RmtError as error:
            if error.code not in codes or not re.search(words, str(error)):
                answers[statement] = f"{error.code}: {error}"
    assert answers == {}
    for name in "ts":
        assert rows(two_tables, f"SELECT n, m FROM {name}") == [(1, 1)]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER TABLE t REPLACE PARTITION 1 FROM nosuch", "UNKNOWN_TABLE"),
        ("ALTER TABLE t ATTACH PARTITION 1 FROM nosuch", "UNKNOWN_TABLE"),
        ("ALTER TABLE t MOVE PARTITION 1 TO TABLE nosuch", "UNKNOWN_TABLE"),
        ("ALTER TABLE nosuch REPLACE PARTITION 1 FROM t", "UNKNOWN_TABLE"),
        ("ALTER TABLE t FETCH PARTITION 1 FROM '/t/nosuch'", "UNKNOWN_TABLE"),
        ("INSERT OVERWRITE nosuch PARTITION 1 VALUES (1, 1, 1)", "UNKNOWN_TABLE"),
        ("ALTER TABLE t REPLACE PARTITION 9 FROM s", "BAD_ARGUMENTS"),
        ("ALTER TABLE t FETCH PARTITION 9 FROM '/t/s'", "PARTITION_DOESNT_EXIST"),
        ("ALTER TABLE t DETACH PART '1_7_7_0'", "NO_SUCH_DATA_PART"),
        ("ALTER TABLE t DETACH PART '../1_0_0_0'", "BAD_DATA_PART_NAME"),
        ("ALTER TABLE t DROP DETACHED PART '1_7_7_0' {}", "BAD_DATA_PART_NAME"),
        ("ALTER TABLE t DROP DETACHED PART '../1_0_0_0' {}", "BAD_DATA_PART_NAME"),
        ("UNDROP TABLE nosuch", "UNKNOWN_TABLE"),
        ("SYSTEM DROP REPLICA 'nosuch' FROM TABLE t", "BAD_ARGUMENTS"),
        ("SYSTEM DROP REPLICA '../r1' FROM TABLE t", "BAD_ARGUMENTS"),
        ("SYSTEM DROP REPLICA 'r2' FROM DATABASE nosuch", "UNKNOWN_DATABASE"),
        ("SYSTEM DROP REPLICA 'r1' FROM DATABASE default", "BAD_ARGUMENTS"),
        ("SYSTEM DROP REPLICA 'nosuch' FROM DATABASE default", "BAD_ARGUMENTS"),
        ("SYSTEM DROP REPLICA 'r1'", "BAD_ARGUMENTS"),
    ],
)
def test_what_is_not_there_is_refused_by_every_statement(two_tables, statement, code):
    with pytest.raises(RmtError) as raised:
        two_tables.execute(statement.replace("{}", "SETTINGS allow_drop_detached = 1"))
    assert raised.value.code == code
    for name in "ts":
        assert rows(two_tables, f"SELECT n, m FROM {name}") == [(1, 1)]


def test_a_dead_replica_is_removed_from_all_tables_that_have_it(two_tables):
    keeper = two_tables.context.server.keeper()
    replica = TablePaths("/t/t").replica("r2")
    keeper.multi([Create(replica.root), Create(replica.is_lost, b"0")])
    two_tables.execute("SYSTEM DROP REPLICA 'r2' FROM DATABASE default")
    assert keeper.exists(replica.root) is None


def test_one_that_is_active_in_one_table_is_removed_from_the_others_and_that_is_told(
    two_tables,
):
    keeper = two_tables.context.server.keeper()
    for name in "st":
        replica = TablePaths(f"/t/{name}").replica("r2")
        keeper.multi([Create(replica.root), Create(replica.is_lost, b"0")])
    keeper.multi([Create(TablePaths("/t/s").replica("r2").is_active, ephemeral=True)])
    with pytest.raises(
        ReplicaIsActive, match=r"of /t/s is active.* Of /t/t replica 'r2' is removed"
    ):
        two_tables.execute("SYSTEM DROP REPLICA 'r2'")
    assert keeper.children("/t/s/replicas") == ["r1", "r2"]
    assert keeper.children("/t/t/replicas") == ["r1"]


def test_a_number_that_looks_like_a_date_is_not_taken_for_seconds(session):
    table(session, "p Date, n UInt8", "p", "('2024-01-31', 1)")
    with pytest.raises(RmtError, match=r"20240131 is no date.* Say, .* PARTITION '2024-01-01'"):
        session.execute("ALTER TABLE t DROP PARTITION 20240131")
    session.execute("ALTER TABLE t FREEZE PARTITION 19753")  # days since 1970
    assert rows(session, "SELECT is_frozen FROM system.parts") == [(1,)]


def test_a_value_of_too_few_elements_is_counted(session):
    table(session, "p UInt8, q UInt8, n UInt8", "(p, q)", "(1, 2, 3)")
    with pytest.raises(
        RmtError, match=r"it has one value, and the key has 2\. Say, .*\(1, 1\)"
    ):
        session.execute("ALTER TABLE t DROP PARTITION 1")


def test_a_partition_without_rows_is_said_to_be_one(session):
    table(session, "p UInt8, n UInt8", "p", "(1, 1)")
    done = session.execute("ALTER TABLE t DROP PARTITION 9")
    assert done.note == "partition 9 has never had a row; nothing was dropped"
    done = session.execute("ALTER TABLE t DETACH PARTITION 8")
    assert done.note == "partition 8 has never had a row; nothing was detached"
    done = session.execute("ALTER TABLE t FREEZE PARTITION 9 WITH NAME 'n'")
    assert done.note == "partition 9 has no part here: nothing was frozen"
    done = session.execute("ALTER TABLE t UNFREEZE WITH NAME 'no'")
    assert done.note == "snapshot 'no' has nothing of default.t here: nothing was removed"
    assert session.execute("TRUNCATE TABLE IF EXISTS u").note == ""


VERBOSE = "SETTINGS alter_partition_verbose_result = 1"
FROZEN_COLUMNS = [
    *("command_type", "partition_id", "part_name"),
    *("backup_name", "backup_path", "part_backup_path"),
]


def names_of(result):
    return [column.name for column in result.columns]


def values_of(result):
    return [tuple(row.values()) for batch in result.batches for row in batch.to_pylist()]


def test_a_snapshot_is_made_and_removed(session, tmp_path):
    table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    assert session.execute("ALTER TABLE t FREEZE WITH NAME 'n'").note == ""
    shadow = tmp_path / "r1" / "shadow"
    place = f"{shadow}/1/data/default/t/"
    done = session.execute(f"ALTER TABLE t FREEZE PARTITION 2 {VERBOSE}")
    assert names_of(done) == FROZEN_COLUMNS
    row = ("FREEZE PARTITION", "2", "2_0_0_0", "1", place, f"{place}2_0_0_0/")
    assert values_of(done) == [row]
    assert rows(session, "SELECT name, is_frozen FROM system.parts") == [
        ("1_0_0_0", 1),
        ("2_0_0_0", 1),
    ]
    with pytest.raises(RmtError, match=r"1_0_0_0 already exists and is not empty") as found:
        session.execute("ALTER TABLE t FREEZE WITH NAME 'n'")
    assert found.value.code == "DIRECTORY_ALREADY_EXISTS"
    done = session.execute(f"ALTER TABLE t UNFREEZE PARTITION 1 WITH NAME 'n' {VERBOSE}")
    assert [row[:4] for row in values_of(done)] == [("UNFREEZE PARTITION", "1", "1_0_0_0", "n")]
    nothing = session.execute(f"ALTER TABLE t UNFREEZE WITH NAME 'nosuch' {VERBOSE}")
    assert (names_of(nothing), values_of(nothing)) == (FROZEN_COLUMNS[:3], [])
    done = session.execute("SYSTEM UNFREEZE WITH NAME 'n'")
    assert [row[:4] for row in values_of(done)] == [("SYSTEM UNFREEZE", "2", "2_0_0_0", "n")]
    assert sorted(path.name for path in shadow.iterdir()) == ["1", "increment.txt"]
    nothing = session.execute("SYSTEM UNFREEZE WITH NAME 'n'")
    assert nothing.note == "nothing is frozen under the name 'n'"


def test_what_is_attached_is_told_as_rows(session):
    definition = table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    with working(session.context.server, definition):
        session.execute("ALTER TABLE t DETACH PARTITION 1")
        done = session.execute(f"ALTER TABLE t ATTACH PARTITION 1 {VERBOSE}")
    assert names_of(done) == ["command_type", "partition_id", "part_name", "old_part_name"]
    [(kind, partition, part, old)] = values_of(done)
    assert (kind, partition, old) == ("ATTACH PARTITION", "1", "1_0_0_0")
    assert part in {"1_2_2_0", "1_1_1_0"}


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER TABLE t FREEZE PARTITION ALL", "SUPPORT_IS_DISABLED"),
        ("ALTER TABLE t FREEZE PART '1_0_0_0'", "SYNTAX_ERROR"),
        ("ALTER TABLE t UNFREEZE", "SYNTAX_ERROR"),
        ("ALTER TABLE t UNFREEZE PARTITION 1", "SYNTAX_ERROR"),
        ("ALTER TABLE t FREEZE WITH NAME '../x'", "BAD_ARGUMENTS"),
        ("ALTER TABLE t UNFREEZE WITH NAME '../x'", "BAD_ARGUMENTS"),
        ("SYSTEM UNFREEZE WITH NAME '/x'", "BAD_ARGUMENTS"),
        ("SYSTEM UNFREEZE 'x'", "SYNTAX_ERROR"),
        ("ALTER TABLE nosuch FREEZE", "UNKNOWN_TABLE"),
        ("ALTER TABLE t FREEZE PARTITION 'x'", "CANNOT_PARSE_TEXT"),
    ],
)
def test_a_snapshot_that_can_not_be_is_refused(session, statement, code, tmp_path):
    table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    with pytest.raises(RmtError) as found:
        session.execute(statement)
    assert found.value.code == code
    assert not (tmp_path / "r1" / "shadow").exists()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("FETCH PARTITION ALL FROM '/t/t'", "SUPPORT_IS_DISABLED"),
        ("FETCH PARTITION 7 FROM '/t/t'", "PARTITION_DOESNT_EXIST"),
        ("FETCH PARTITION 1 FROM 't'", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("FETCH PARTITION 1 FROM ''", "ILLEGAL_TYPE_OF_ARGUMENT"),
        ("FETCH PARTITION 1 FROM '/{nosuch}/t'", "BAD_ARGUMENTS"),
        ("FETCH PART '1_9_9_0' FROM '/t/t'", "NO_REPLICA_HAS_PART"),
        ("FETCH PART '../x' FROM '/t/t'", "BAD_DATA_PART_NAME"),
    ],
)
def test_what_can_not_be_fetched_is_refused(session, statement, code, tmp_path):
    table(session, "p UInt8, n UInt8", "p", "(1, 1), (2, 2)")
    with pytest.raises(RmtError) as found:
        session.execute(f"ALTER TABLE t {statement}")
    assert found.value.code == code
    assert rows(session, "SELECT name FROM system.detached_parts") == []


class ClosedPeers(DirectPeers):
    def close(self) -> None: ...


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ATTACH PARTITION 1 FROM s",
        "ALTER TABLE t REPLACE PARTITION 1 FROM s",
        "ALTER TABLE s MOVE PARTITION 1 TO TABLE t",
        "ALTER TABLE t FETCH PARTITION 1 FROM '/t/s'",
    ],
)
def test_a_part_from_before_an_enum_grew_goes_to_another_table(session, statement, monkeypatch):
    """No mutation rewrites it, so there is none to wait for."""
    server = session.context.server
    columns = "(p UInt8, e Enum8('a' = 1))"
    s, t = (
        create(
            session,
            f"CREATE TABLE {name} {columns} {ENGINE.replace('{name}', name)} "
            "PARTITION BY p ORDER BY e",
        )
        for name in "st"
    )
    session.execute("INSERT INTO s VALUES (1, 'a')")
    for altered in (s, t):
        with working(server, altered):
            session.execute(
                f"ALTER TABLE {altered.name} MODIFY COLUMN e Enum8('b' = -1, 'a' = 1)"
            )
    session.execute("INSERT INTO s VALUES (1, 'b')")
    peers = ClosedPeers({"/t/s/replicas/r1": server.store(s)})
    monkeypatch.setattr(ServerContext, "peers", lambda *_: peers)
    session.execute(statement)
    if "FETCH" in statement:
        session.execute("ALTER TABLE t ATTACH PARTITION 1")
    assert rows(session, "SELECT e FROM t ORDER BY e") == [("b",), ("a",)]


def test_a_partition_is_fetched_from_the_replicas_of_another_table(session, monkeypatch):
    server = session.context.server
    engine = ENGINE.replace("{name}", "s")
    s = create(session, f"CREATE TABLE s (p UInt8, n UInt8) {engine} PARTITION BY p ORDER BY n")
    session.execute("INSERT INTO s VALUES (1, 8), (2, 9)")
    table(session, "p UInt8, n UInt8", "p", "(2, 2)")
    peers = ClosedPeers({"/t/s/replicas/r1": server.store(s)})
    monkeypatch.setattr(ServerContext, "peers", lambda *_: peers)
    assert session.execute("ALTER TABLE t FETCH PARTITION 1 FROM '/t/s'").note == ""
    query = "SELECT name, reason, is_safe_to_delete FROM system.detached_parts"
    assert rows(session, query) == [("1_0_0_0", "", 0)]
    session.execute("ALTER TABLE t ATTACH PARTITION 1")
    assert rows(session, "SELECT p, n FROM t ORDER BY n") == [(2, 2), (1, 8)]
