"""CREATE DATABASE … ENGINE = Replicated over three servers in this process: definitions reach every
server, also one that was away, is new, or has lost its disk.
"""

import shutil

import pytest

from rmt_pipeline.catalog.replicated import (
    ReplicatedDatabase,
    encode_replicated,
    replicated_database,
)
from rmt_pipeline.cluster.queue import clean_queue, put_in
from rmt_pipeline.protocol.errors import (
    NotImplementedStatement,
    ReplicaAlreadyExists,
    ReplicaIsActive,
    TableAlreadyExists,
    Timeout,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task
from rmt_pipeline.server.tasks import NotCaughtUp
from rmt_pipeline.sql.run.on_cluster import FailedOnServer
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.databases import DATABASE, LATER, PATHS, TABLE, Site


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    return Site(tmp_path, monkeypatch)


def started(site: Site, *names: str) -> Site:
    """Servers with the database."""
    names = names or ("r1", "r2", "r3")
    site.start(*names)
    for name in names:
        assert site.say(DATABASE, name).note == ""
    return site


def part(site: Site, name: str, table: str = "t", database: str = "d") -> None:
    """As if the table there had rows: a part among the detached ones."""
    definition = site.nodes[name].catalog.definition(database, table)
    directory = site.nodes[name].catalog.table_directory(definition) / "detached" / "all_0_0_0"
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")


def test_a_table_reaches_every_server_and_goes_from_every_server(site):
    started(site)
    answer = site.rows(TABLE, "r2")
    assert sorted(row[:4] for row in answer) == [
        ("1", "r1", "OK", ""),
        ("1", "r2", "OK", ""),
        ("2", "r3", "OK", ""),
    ]
    assert [row[4] for row in answer] == [2, 1, 0]  # in the order in which they were done
    assert [node.tables() for node in site.running] == [["t"]] * 3
    roots = {node.catalog.definition("d", "t").engine.zookeeper_path for node in site.running}
    assert len(roots) == 2  # one for each shard
    assert site.rows("SELECT engine, engine_full FROM system.databases WHERE name = 'd'") == [
        ("Replicated", "Replicated('/databases/d', '{shard}', '{replica}')")
    ]
    site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", "r3")
    for node in site.running:
        assert dict(node.catalog.definition("d", "t").settings)["parts_to_throw_insert"] == "9"
    site.say("DROP TABLE d.t", "r3")
    assert [node.tables() for node in site.running] == [[]] * 3
    assert not any(site.below(root) for root in roots)


def test_a_server_that_was_away_carries_out_what_it_has_missed(site):
    started(site)
    site.say(TABLE)
    site.say(TABLE.replace("d.t", "d.u"))
    site.stop("r2")
    site.say("DROP TABLE d.t", **LATER)
    site.say(TABLE.replace("n UInt64", "n UInt64, s String"), **LATER)
    site.say("ALTER TABLE d.u MODIFY SETTING parts_to_throw_insert = 9", **LATER)
    site.look()
    site.start("r2")
    site.look()
    node = site.nodes["r2"]
    assert node.tables() == ["t", "u"]
    assert len(node.catalog.definition("d", "t").columns) == 2
    assert ("parts_to_throw_insert", "9") in node.catalog.definition("d", "u").settings
    assert node.tables("d_broken_tables") == []


def test_what_was_forgotten_of_the_log_is_found_by_comparing(site):
    started(site)
    for name in ("t", "u", "v", "w"):
        site.say(TABLE.replace("d.t", f"d.{name}"))
    part(site, "r2", "v")
    site.stop("r2")
    site.say("DROP TABLE d.t", **LATER)
    site.say("DROP TABLE d.v", **LATER)
    site.say("ALTER TABLE d.u MODIFY SETTING parts_to_throw_insert = 9", **LATER)
    site.say(TABLE.replace("d.t", "d.x"), **LATER)
    site.look()
    keeper = site.servers.zookeeper.connect()
    now_s = site.servers.clock.now_s()
    cleaned = clean_queue(keeper, PATHS.queue, now_s=now_s, lifetime_s=10**6, tasks_max=1)
    assert len(cleaned) == 7
    site.start("r2")
    site.look()
    node = site.nodes["r2"]
    assert node.tables() == ["u", "w", "x"]
    assert ("parts_to_throw_insert", "9") in node.catalog.definition("d", "u").settings
    # It held data, and nobody told this server to drop it.
    assert node.tables("d_broken_tables") == ["v_0"]
    moved = node.catalog.definition("d_broken_tables", "v_0")
    assert (node.catalog.table_directory(moved) / "detached" / "all_0_0_0").is_dir()


def test_a_new_server_makes_what_there_is(site):
    started(site, "r1", "r2")
    site.say(TABLE)
    site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9")
    site.start("r3")
    site.say(DATABASE, "r3")
    node = site.nodes["r3"]
    assert node.tables() == ["t"]
    assert ("parts_to_throw_insert", "9") in node.catalog.definition("d", "t").settings
    assert len(site.rows(TABLE.replace("d.t", "d.u"), "r3")) == 3


def test_a_server_that_lost_its_disk_takes_its_replicas_up_again(site):
    started(site)
    site.say(TABLE)
    keeper = site.servers.zookeeper.connect()
    definition = site.nodes["r2"].catalog.definition("d", "t")
    engine = definition.engine
    replica = f"{engine.zookeeper_path}/replicas/{engine.replica}"
    made = keeper.exists(replica).created_zxid
    site.stop("r2")
    shutil.rmtree(site.servers.config.server("r2").data)
    site.start("r2")
    site.say(DATABASE, "r2")
    site.look()
    node = site.nodes["r2"]
    assert node.tables() == ["t"]
    assert keeper.exists(replica).created_zxid == made
    assert node.catalog.definition("d", "t") == definition
    [table] = node.server.tables.all.values()
    assert table.reason == ""


def test_a_table_of_the_same_name_that_is_not_the_databases_is_moved_aside(site):
    started(site)
    site.say(TABLE)
    site.stop("r2")
    other = site.servers.session("r2").context.server
    definition = other.catalog.definition("d", "t")
    other.catalog.update_table(definition, lambda now: now)
    part_of = other.catalog.table_directory(definition) / "detached" / "all_0_0_0"
    part_of.mkdir(parents=True)
    (part_of / "manifest.json").write_text("{}")
    keeper = site.servers.zookeeper.connect()
    record = TableRecord.decode(keeper.get(PATHS.table("t"))[0])
    site.say("DROP TABLE d.t", **LATER)
    site.say(TABLE, **LATER)
    site.look()
    assert TableRecord.decode(keeper.get(PATHS.table("t"))[0]).origin != record.origin
    clean_queue(
        keeper,
        PATHS.queue,
        now_s=site.servers.clock.now_s(),
        lifetime_s=10**6,
        tasks_max=1,
    )
    site.start("r2")
    site.look()
    node = site.nodes["r2"]
    assert node.tables() == ["t"]
    assert node.catalog.definition("d", "t").uuid != definition.uuid
    assert node.catalog.definition("d_broken_tables", "t_0").uuid == definition.uuid


def test_a_replica_that_was_moved_aside_is_not_two_tables(site):
    """Also while the one that was moved aside is detached: it comes back."""
    started(site)
    at_path = TABLE.replace("MergeTree", "MergeTree('/tables/{shard}/t', '{replica}')")
    site.say(at_path)
    site.stop("r2")
    directory = site.servers.session("r2").context.server.catalog
    part_of = directory.table_directory(directory.definition("d", "t")) / "detached/all_0_0_0"
    part_of.mkdir(parents=True)
    (part_of / "manifest.json").write_text("{}")
    site.say("DROP TABLE d.t", **LATER)
    site.say(at_path, **LATER)
    site.look()
    keeper, now_s = site.servers.zookeeper.connect(), site.servers.clock.now_s()
    clean_queue(keeper, PATHS.queue, now_s=now_s, lifetime_s=10**6, tasks_max=1)
    site.start("r2")
    with pytest.raises(NotCaughtUp, match=r"d_broken_tables\.t_0"):
        site.look()
    site.say("DETACH TABLE d_broken_tables.t_0", "r2")
    with pytest.raises(NotCaughtUp, match=r"d_broken_tables\.t_0"):
        site.look()
    assert site.nodes["r2"].tables() == []


def test_what_is_not_there_or_there_already_is_refused_before_it_is_in_the_log(site):
    started(site)
    with pytest.raises(UnknownTable, match=r"d\.t does not exist"):
        site.say("DROP TABLE d.t")
    with pytest.raises(UnknownTable):
        site.say("ALTER TABLE d.t ADD COLUMN s String")
    site.say("DROP TABLE IF EXISTS d.t")
    site.say(TABLE)
    with pytest.raises(TableAlreadyExists):
        site.say(TABLE, "r3")
    site.say(TABLE.replace("TABLE d", "TABLE IF NOT EXISTS d"), "r3")
    keeper = site.servers.zookeeper.connect()
    assert len(keeper.children(PATHS.queue.root)) == 1


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE d.t, d.u",
        "DETACH TABLE d.t PERMANENTLY",
        "RENAME TABLE d.t TO default.t",
        "RENAME TABLE default.t TO d.t",
        "EXCHANGE TABLES d.t AND default.t",
        "UNDROP TABLE d.t",
        "RENAME DATABASE d TO e",
        "CREATE TABLE d.t ENGINE = MergeTree ORDER BY n AS SELECT 1 AS n",
    ],
)
def test_what_a_replicated_database_has_not_says_so(site, query):
    started(site)
    with pytest.raises(NotImplementedStatement, match="Replicated database"):
        site.say(query)


def test_on_cluster_is_not_for_its_tables(site):
    started(site)
    with pytest.raises(FailedOnServer, match="without ON CLUSTER") as raised:
        site.say(TABLE.replace("d.t", "d.t ON CLUSTER c"))
    assert raised.value.code == "QUERY_IS_PROHIBITED"
    assert [node.tables() for node in site.running] == [[]] * 3


def test_the_database_itself_may_be_made_on_cluster(site):
    site.start("r1", "r2", "r3")
    site.say(DATABASE.replace("d ENGINE", "d ON CLUSTER c ENGINE"), **LATER)
    site.look()
    site.look()
    assert len(site.rows(TABLE)) == 3


def test_an_error_on_a_server_is_the_answers_and_holds_up_nothing(site):
    started(site)
    with site.servers.session("r3") as session:
        session.execute(
            "CREATE TABLE x (k String) ENGINE = ReplicatedMergeTree('/x/2', 'r3') ORDER BY k"
        )
    with pytest.raises(FailedOnServer, match=r"2\|r3: .*differs"):
        site.say(
            "CREATE TABLE d.t (n UInt64) ENGINE = ReplicatedMergeTree('/x/{shard}', '{replica}y') "
            "ORDER BY n"
        )
    assert [node.tables() for node in site.running] == [["t"], ["t"], []]
    with pytest.raises(NotCaughtUp, match="differs"):
        site.nodes["r3"].look()


def test_a_name_that_no_table_can_have_holds_up_nothing(site):
    started(site)
    name = "x" * 250  # longer, as a file name, than there may be
    long = TABLE.replace("d.t", f"d.{name}")
    with pytest.raises(UserError, match="too long for a file name"):
        site.say(long)
    keeper = site.servers.zookeeper.connect()
    assert keeper.children(PATHS.queue.root) == []
    # It is in the log all the same: put in by a server that did not look.
    task = Task(long, (), "1|r1", "id")
    change = Create(PATHS.table(name), TableRecord("id", long).encode())
    put_in(keeper, PATHS.queue, task, site.servers.clock, [change])
    site.say(TABLE, **LATER)
    for node in site.running:
        with pytest.raises(NotCaughtUp, match="too long for a file name"):
            node.look()
        assert node.tables() == ["t"]


def test_the_longest_name_of_a_database_is_not_too_long_to_look_at(site):
    site.start("r1")
    name = "x" * 245
    site.say(f"CREATE DATABASE {name}")
    assert replicated_database(site.nodes["r1"].catalog, name) is None
    site.say(TABLE.replace("d.t", f"{name}.t"))
    site.say(f"DROP DATABASE {name} SYNC")


def test_sync_waits_for_the_log_and_says_where_it_is(site):
    started(site)
    site.stop("r2")
    site.say(TABLE, **LATER)
    with pytest.raises(Timeout, match="rmt serve --server r2"):
        site.say("SYSTEM SYNC DATABASE REPLICA d", "r2")
    site.start("r2")
    site.say("SYSTEM SYNC DATABASE REPLICA d", "r2")
    assert site.nodes["r2"].tables() == ["t"]
    with pytest.raises(UserError, match="not Replicated"):
        site.say("SYSTEM SYNC DATABASE REPLICA default")


def test_a_dead_replica_is_dropped_and_a_living_one_is_not(site):
    started(site)
    drop = "SYSTEM DROP DATABASE REPLICA '1|r2' FROM DATABASE d"
    with pytest.raises(ReplicaIsActive):
        site.say(drop)
    with pytest.raises(UserError, match="own: DROP DATABASE"):
        site.say(drop.replace("r2", "r1"))
    site.stop("r2")
    site.say("SYSTEM DROP DATABASE REPLICA 'r2' FROM SHARD '1' FROM ZKPATH '/databases/d'")
    with pytest.raises(UserError, match=r"no replica '1\|r2'; it has: 1\|r1, 2\|r3"):
        site.say(drop)
    assert len(site.rows(TABLE)) == 2
    site.start("r2")
    with pytest.raises(UserError, match="was dropped: DROP DATABASE d here too"):
        site.look()


def test_the_last_replica_takes_the_database_with_it(site):
    started(site)
    site.say(TABLE)
    for name in ("r1", "r2", "r3"):
        assert site.below("/databases/d")
        site.say("DROP DATABASE d SYNC", name)
        site.running.remove(site.nodes[name])
        assert site.nodes[name].catalog.databases() == ["default"]
    assert site.below("/databases/d") == []
    assert [path for path in site.below("/clickhouse/tables") if "replicas" in path] == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (DATABASE.replace("/databases/d", "databases"), "no absolute path"),
        (DATABASE.replace("{shard}", "a|b"), "names no shard"),
        (DATABASE.replace("{shard}", "{nothing}"), "no macro"),
        (DATABASE.replace("/databases/d", "/clickhouse"), "is something else"),
        (DATABASE.replace("DATABASE d", "DATABASE e"), "is Replicated database d, not"),
        (DATABASE.replace(", '{replica}'", ""), "three strings"),
    ],
)
def test_a_database_that_cannot_be_says_why(site, query, words):
    started(site, "r1")
    with pytest.raises(UserError, match=words):
        site.say(query, "r2")
    assert site.rows("SHOW DATABASES", "r2") == [("default",), ("system",)]


def test_a_replica_of_another_server_is_not_taken(site):
    started(site, "r1")
    with pytest.raises(ReplicaAlreadyExists, match="server r1's"):
        site.say(DATABASE.replace("{replica}", "r1"), "r2")


@pytest.mark.parametrize("is_dropping", [False, True])
@pytest.mark.parametrize("way", ["CREATE", "RENAME"])
def test_what_a_death_left_of_a_database_is_not_taken_up_by_a_namesake(site, is_dropping, way):
    """CREATE DATABASE dies before the directory is made, or DROP DATABASE after it is gone."""
    site.start("r1")
    catalog = site.nodes["r1"].catalog
    left = ReplicatedDatabase("/databases/d", "1", "r1", "Replicated(…)", is_dropping)
    catalog.replicated_file("d").write_bytes(encode_replicated(left))
    if way == "CREATE":
        site.say("CREATE DATABASE d")
    else:
        site.say("CREATE DATABASE e")
        site.say("RENAME DATABASE e TO d")
    assert replicated_database(catalog, "d") is None
    site.say(TABLE)
    site.say("DROP TABLE d.t SYNC")
    site.say("DROP DATABASE d SYNC")
    assert not catalog.replicated_file("d").exists()


def test_a_name_that_is_too_long_for_a_replicated_database_is_refused_before_anything(site):
    site.start("r1")
    name = "x" * 245
    with pytest.raises(UserError, match=f"the name of the database '{name[:40]}'… is too long"):
        site.say(DATABASE.replace("DATABASE d", f"DATABASE {name}"))
    assert site.below("/databases") == []


def test_it_is_made_again_without_harm(site):
    started(site, "r1")
    site.say(TABLE)
    site.say(DATABASE.replace("DATABASE d", "DATABASE IF NOT EXISTS d"))
    assert site.nodes["r1"].tables() == ["t"]
