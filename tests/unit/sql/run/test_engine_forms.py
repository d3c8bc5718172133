"""Engines as they may be written: the old form, a path that is computed, one copy alone."""

import pytest

from rmt_pipeline.protocol.errors import ReplicaAlreadyExists, UserError
from rmt_pipeline.protocol.table import PLAIN_ENGINES
from tests.support.local_session import create, rows

COLUMNS = "(d Date, k Int64, v UInt8, s Int8)"


@pytest.mark.parametrize(
    ("engine", "shown"),
    [
        ("MergeTree('/o', 'r1', d, k, 8192)", "PARTITION BY toYYYYMM(d) ORDER BY k"),
        (
            "MergeTree('/o', 'r1', d, (k, intHash32(k)), 4096)",
            "PARTITION BY toYYYYMM(d) ORDER BY (k, intHash32(k))",
        ),
        (
            "MergeTree('/o', 'r1', d, intHash32(k), (k, intHash32(k)), 8192)",
            "PARTITION BY toYYYYMM(d) ORDER BY (k, intHash32(k)) SAMPLE BY intHash32(k)",
        ),
        (
            "ReplacingMergeTree('/o', 'r1', d, k, 8192, v)",
            "PARTITION BY toYYYYMM(d) ORDER BY k",
        ),
        (
            "CollapsingMergeTree('/o', 'r1', d, k, 8192, s)",
            "PARTITION BY toYYYYMM(d) ORDER BY k",
        ),
        (
            "SummingMergeTree('/o', 'r1', d, k, 8192, (v))",
            "PARTITION BY toYYYYMM(d) ORDER BY k",
        ),
    ],
)
def test_the_old_form_is_the_table_that_it_means(session, engine, shown):
    create(session, f"CREATE TABLE o {COLUMNS} ENGINE = Replicated{engine}")
    [(text,)] = rows(session, "SELECT engine_full FROM system.tables WHERE name = 'o'")
    granularity = engine.rpartition(", ")[2] if "4096" in engine else "8192)"
    assert shown in text
    assert f"index_granularity = {granularity.removesuffix(')')}" in text
    session.execute("INSERT INTO o VALUES ('2020-02-03', 1, 2, 1)")
    assert rows(session, "SELECT _partition_id, k FROM o") == [("202002", 1)]


@pytest.mark.parametrize(
    "engine",
    [
        "ReplicatedMergeTree('/o', 'r1', d, k)",
        "ReplicatedMergeTree('/o', 'r1', d, k, 8192, v)",
        "ReplicatedMergeTree('/o', 'r1', d)",
        "ReplicatedCollapsingMergeTree('/o', 'r1', d, k, 8192, s, v)",
        "ReplicatedMergeTree('/o', 'r1', k) ORDER BY k",
        "ReplicatedReplacingMergeTree('/o', 'r1', v, s, k) ORDER BY k",
    ],
)
def test_wrong_arguments_are_told_by_their_number(session, engine):
    with pytest.raises(UserError) as refused:
        session.execute(f"CREATE TABLE o {COLUMNS} ENGINE = {engine}")
    assert refused.value.code == "NUMBER_OF_ARGUMENTS_DOESNT_MATCH"


def test_a_path_may_be_computed_and_is_shown_with_its_macros(session):
    text = "CREATE TABLE o (k Int8) ENGINE = ReplicatedMergeTree({}, {}) ORDER BY k"
    path, replica = (
        "'/t/' || currentDatabase() || '/{shard}/{table}'",
        "concat('{', 'replica}')",
    )
    create(session, text.format(path, replica))
    definition = session.context.server.catalog.definition("default", "o")
    assert (definition.engine.zookeeper_path, definition.engine.replica) == (
        "/t/default/1/o",
        "r1",
    )
    [(shown,)] = rows(session, "SHOW CREATE TABLE o")
    assert "ReplicatedMergeTree('/t/default/{shard}/o', '{replica}')" in str(shown)


def test_a_table_of_one_copy_has_a_path_that_is_no_other_tables(session):
    text = "CREATE TABLE {} (k Int8) ENGINE = MergeTree ORDER BY k"
    paths = {create(session, text.format(name)).engine.zookeeper_path for name in "ab"}
    assert len(paths) == 2
    assert all(path.startswith("/clickhouse/private/r1/") for path in paths)
    [(shown,)] = rows(session, "SHOW CREATE TABLE a")
    assert "ENGINE = MergeTree\n" in str(shown)
    assert rows(session, "SELECT count() FROM system.replicas") == [(0,)]


def test_an_index_is_kept_and_the_answer_says_that_it_is_not_built(session):
    create(
        session,
        "CREATE TABLE o (k Int8, INDEX i k + 1 TYPE minmax, PROJECTION p (SELECT k ORDER BY k))"
        " ENGINE = ReplicatedMergeTree ORDER BY k",
    )
    [(shown,)] = rows(session, "SHOW CREATE TABLE o")
    assert "    INDEX i k + 1 TYPE minmax GRANULARITY 1,\n" in str(shown)
    assert "    PROJECTION p (SELECT k ORDER BY k)\n" in str(shown)


def test_two_tables_of_a_server_are_not_one_replica(session):
    create(
        session, "CREATE TABLE o (k Int8) ENGINE = ReplicatedMergeTree('/o', 'r1') ORDER BY k"
    )
    attach = "ATTACH TABLE u (k Int8) ENGINE = ReplicatedMergeTree('/o', 'r1') ORDER BY k"
    with pytest.raises(ReplicaAlreadyExists, match="is this server's table"):
        session.execute(attach)
    assert rows(session, "SHOW TABLES") == [("o",)]


@pytest.mark.parametrize("engine", PLAIN_ENGINES)
def test_a_table_without_a_key_is_one_of_a_single_copy(session, engine):
    create(session, f"CREATE TABLE p (k Int64, s Nullable(String)) ENGINE = {engine}")
    session.execute("INSERT INTO p VALUES (2, NULL), (1, 'a')")
    session.execute("INSERT INTO p VALUES (2, NULL), (1, 'a')")
    assert rows(session, "SELECT * FROM p") == [(2, None), (1, "a")] * 2
    shown = "SELECT engine, engine_full, sorting_key FROM system.tables WHERE name = 'p'"
    assert rows(session, shown) == [(engine, engine, "")]
    assert rows(session, "SELECT name FROM system.parts WHERE table = 'p'") == []
    [(text,)] = rows(session, "SHOW CREATE TABLE p")
    assert text.endswith(f"ENGINE = {engine}")
    assert create(session, text.replace("default.p", "q")).engine.name == engine


@pytest.mark.parametrize(
    "text",
    [
        "ENGINE = Memory ORDER BY k",
        "ENGINE = Log PARTITION BY k",
        "ENGINE = TinyLog(k)",
        "ENGINE = StripeLog SETTINGS index_granularity = 5",
        "ENGINE = Memory TTL d + INTERVAL 1 DAY",
    ],
)
def test_an_engine_without_keys_takes_none(session, text):
    with pytest.raises(UserError, match="neither arguments nor keys nor a TTL nor settings"):
        session.execute(f"CREATE TABLE p {COLUMNS} {text}")


@pytest.mark.parametrize(
    "command",
    [
        "MODIFY TTL d + INTERVAL 1 DAY",
        "ADD COLUMN n Int8, MODIFY ORDER BY n",
        "MODIFY SETTING old_parts_lifetime = 5",
        "RESET SETTING old_parts_lifetime",
    ],
)
def test_nor_does_it_get_one_that_its_statement_would_not_show(session, command):
    create(session, f"CREATE TABLE p {COLUMNS} ENGINE = Memory")
    with pytest.raises(UserError, match="neither arguments nor keys nor a TTL nor settings"):
        session.execute(f"ALTER TABLE p {command}")
    assert [name for (name, *_) in rows(session, "DESCRIBE TABLE p")] == ["d", "k", "v", "s"]
