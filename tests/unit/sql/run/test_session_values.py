"""What a statement may ask about its session, and settings that are known without effect."""

import getpass
import os
import socket

import pytest

from rmt_pipeline import __version__
from rmt_pipeline.protocol.errors import Unfinished, UnknownSetting, UnknownTable, UserError
from rmt_pipeline.protocol.settings.neutral import (
    FIXED_WORD,
    NEUTRAL_QUERY_SETTINGS,
    NEUTRAL_TABLE_SETTINGS,
    WORD,
)
from rmt_pipeline.protocol.settings.query import ALIASES, QUERY_SETTINGS, QuerySettings
from rmt_pipeline.protocol.settings.setting import BadSetting, FixedSetting
from rmt_pipeline.protocol.settings.table import TABLE_SETTINGS, TableSettings
from rmt_pipeline.sql.formats.rows import Done
from tests.support.local_session import create, rows


def test_a_session_tells_its_database_user_host_and_version(session):
    asked = "SELECT currentDatabase(), currentUser(), hostName(), version()"
    told = (getpass.getuser(), socket.gethostname(), __version__)
    assert rows(session, asked) == [("default", *told)]
    session.execute("USE system")
    assert rows(session, asked) == [("system", *told)]


def test_an_account_without_a_name_is_its_number(session, monkeypatch):
    """As in a container that runs under a number that no list of users has."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert rows(session, "SELECT currentUser(), 1") == [(str(os.getuid()), 1)]


def test_inserted_values_may_ask_for_it_too(session):
    create(
        session, "CREATE TABLE t (d String, n UInt8) ENGINE = ReplicatedMergeTree ORDER BY n"
    )
    session.execute("INSERT INTO t VALUES (currentDatabase(), 1), (upper(database()), 2)")
    session.execute("CREATE DATABASE other")
    session.execute("USE other")
    session.execute("INSERT INTO default.t VALUES (currentDatabase(), 3)")
    assert rows(session, "SELECT d FROM default.t ORDER BY n") == [
        ("default",),
        ("DEFAULT",),
        ("other",),
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DELETE WHERE d = currentDatabase()",
        "ALTER TABLE t DELETE WHERE d = version() SETTINGS allow_nondeterministic_mutations = 1",
        "ALTER TABLE t UPDATE d = hostName() WHERE 1",
    ],
)
def test_what_is_stored_has_no_session(session, statement):
    create(
        session, "CREATE TABLE t (d String, n UInt8) ENGINE = ReplicatedMergeTree ORDER BY n"
    )
    with pytest.raises(UserError, match="constant"):
        session.execute(statement)


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        (
            "SELECT throwIf(1, 'my words')",
            "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO",
            "^my words, in",
        ),
        ("SELECT sleep(3.5)", "TOO_SLOW", "^the longest sleep is 3 seconds, not 3.5"),
        (
            "SELECT sleepEachRow(0.5) FROM numbers(7)",
            "TOO_SLOW",
            "^the longest sleep is 3 seconds for a block of rows, not 3.5 for 7",
        ),
        ("SELECT 1 FROM numbers(2) WHERE rowNumberInBlock() = 0", "ILLEGAL_TYPE", "QUALIFY"),
    ],
)
def test_a_refusal_has_the_originals_name(session, query, code, words):
    with pytest.raises(UserError, match=words) as refused:
        rows(session, query)
    assert refused.value.code.startswith(code)


# --- settings without effect ---


def test_a_neutral_setting_is_kept_shown_and_changes_nothing(session):
    assert (
        QuerySettings.of({"max_block_size": "7", "join_algorithm": "hash"}) == QuerySettings()
    )
    session.execute("SET max_block_size = 7, join_algorithm = 'hash'")
    shown = (
        "SELECT value, changed, type, description FROM system.settings"
        " WHERE name IN ('max_block_size', 'use_uncompressed_cache') ORDER BY name"
    )
    assert rows(session, shown) == [("7", 1, "UInt64", WORD), ("", 0, "Bool", WORD)]
    assert rows(session, "SHOW CHANGED SETTINGS LIKE 'max%'") == [
        ("max_block_size", "UInt64", "7")
    ]
    assert rows(session, "SELECT 1 SETTINGS log_queries = 0, max_threads = 1") == [(1,)]


def test_a_neutral_setting_of_a_table_is_shown_with_the_table(session):
    create(
        session,
        "CREATE TABLE t (n UInt8) ENGINE = ReplicatedMergeTree ORDER BY n"
        " SETTINGS min_bytes_for_wide_part = 0, parts_to_throw_insert = 9",
    )
    ((text,),) = rows(session, "SHOW CREATE TABLE t")
    assert "SETTINGS min_bytes_for_wide_part = 0, parts_to_throw_insert = 9" in text
    assert TableSettings.of({"min_bytes_for_wide_part": "0"}) == TableSettings()
    listed = (
        "SELECT description FROM system.merge_tree_settings WHERE name = 'write_final_mark'"
    )
    assert rows(session, listed) == [(WORD,)]


def test_a_setting_is_shown_by_its_other_name_too(session):
    session.execute("SET replication_alter_partitions_sync = 2")
    shown = (
        "SELECT name, value, changed, alias_for FROM system.settings"
        " WHERE value = '2' AND name LIKE '%\\_sync' ORDER BY name"
    )
    assert rows(session, shown) == [
        ("alter_sync", "2", 1, ""),
        ("lightweight_deletes_sync", "2", 0, ""),
        ("replication_alter_partitions_sync", "2", 1, "alter_sync"),
    ]


def test_an_unknown_setting_and_a_wrong_value_are_refused_as_ever(session):
    with pytest.raises(UnknownSetting, match="max_blok_size"):
        session.execute("SET max_blok_size = 1")
    with pytest.raises(BadSetting, match="max_block_size, which is UInt64"):
        session.execute("SET max_block_size = 'many'")


def test_a_setting_that_would_change_an_answer_has_the_one_value_that_is_true_here(session):
    session.execute("SET max_rows_to_read = 0, join_use_nulls = 0")
    assert rows(session, "SELECT 1 SETTINGS totals_mode = 'after_having_exclusive'") == [(1,)]
    shown = "SELECT value, type, description FROM system.settings WHERE name = 'extremes'"
    assert rows(session, shown) == [("0", "Bool", FIXED_WORD)]
    with pytest.raises(FixedSetting, match="max_rows_to_read is 0 here and can't become 1"):
        session.execute("SELECT 1 SETTINGS max_rows_to_read = 1")
    with pytest.raises(FixedSetting, match="join_use_nulls"):
        session.execute("SET join_use_nulls = 1")
    with pytest.raises(BadSetting, match="extremes, which is Bool"):
        session.execute("SET extremes = 'x'")


def test_no_setting_is_neutral_that_works_here():
    assert NEUTRAL_QUERY_SETTINGS.keys() & {*QUERY_SETTINGS, *ALIASES} == set()
    assert NEUTRAL_TABLE_SETTINGS.keys() & TABLE_SETTINGS.keys() == set()


def test_a_query_may_be_given_less_memory(session):
    query = "SELECT length(groupArray(toString(number))) FROM numbers(1000000)"
    assert rows(session, f"{query} SETTINGS max_memory_usage = 0") == [(1_000_000,)]
    with pytest.raises(UserError) as refused:
        rows(session, f"{query} SETTINGS max_memory_usage = 4000000, max_threads = 1")
    assert refused.value.code == "MEMORY_LIMIT_EXCEEDED"


def test_a_character_that_is_cut_in_two_is_told_in_our_own_words(session):
    with pytest.raises(
        UserError, match=r"a character was cut in two\. .* substringUTF8, leftUTF8"
    ):
        rows(session, "SELECT substring('äö', 1, 1)")


# --- EXPLAIN, and what an INSERT says ---


def test_explain_shows_the_plan_and_reads_nothing(session):
    create(
        session, "CREATE TABLE t (d String, n UInt8) ENGINE = ReplicatedMergeTree ORDER BY n"
    )
    session.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
    for explain in ("EXPLAIN", "EXPLAIN PLAN"):
        plan = "\n".join(
            str(line)
            for (line,) in rows(session, f"{explain} SELECT d FROM t WHERE n > 1 LIMIT 3")
        )
        assert "READ_PARQUET" in plan
        assert "n>1" in plan.replace(" ", "").replace('"', "")
    assert rows(session, "EXPLAIN SELECT throwIf(1, 'not run') FROM t")
    with pytest.raises(UnknownTable, match="nowhere"):
        session.execute("EXPLAIN SELECT 1 FROM nowhere")


def test_an_insert_tells_its_rows_where_somebody_sits(session):
    create(
        session, "CREATE TABLE t (d String, n UInt8) ENGINE = ReplicatedMergeTree ORDER BY n"
    )
    done = session.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
    assert isinstance(done, Done)
    assert (done.note, done.at_terminal) == ("", "inserted 2 rows as 1 part")


@pytest.mark.parametrize("mutations_sync", [0, 2])
def test_a_lightweight_delete_waits_as_its_own_setting_says(session, mutations_sync):
    """Nobody works this table's queue: who waits for it does so until the limit."""
    create(session, "CREATE TABLE t (n UInt8) ENGINE = ReplicatedMergeTree ORDER BY n")
    session.execute("INSERT INTO t VALUES (1), (2)")
    session.execute(f"SET mutations_sync = {mutations_sync}, receive_timeout = 1")
    with pytest.raises(Unfinished):
        session.execute("DELETE FROM t WHERE n = 1")  # 2 by itself, as in the original
    session.execute("DELETE FROM t WHERE n = 2 SETTINGS lightweight_deletes_sync = 0")
    session.execute("SET lightweight_deletes_sync = 0")
    session.execute("DELETE FROM t WHERE n = 2")
