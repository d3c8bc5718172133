"""CREATE DATABASE … ENGINE = Replicated over three servers in this process: definitions reach every
server, also one that was away, is new, or has lost its disk.
"""

import re
import shutil
from contextlib import suppress

import pytest

from rmt_pipeline.catalog.replicated import (
    ReplicatedDatabase,
    encode_replicated,
    replicated_database,
)
from rmt_pipeline.cli import status
from rmt_pipeline.cluster.queue import clean_queue, put_in
from rmt_pipeline.config import Address
from rmt_pipeline.protocol.errors import (
    DatabaseNotEmpty,
    NotImplementedStatement,
    ReplicaAlreadyExists,
    ReplicaIsActive,
    TableAlreadyExists,
    TableDetached,
    Timeout,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.tasks import TableRecord, Task, TaskOutcome
from rmt_pipeline.server.status import server_status
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.server.tasks import AltersUnderWay, NotCaughtUp, TaskLoops
from rmt_pipeline.sql.run.on_cluster import FailedOnServer
from rmt_pipeline.system import RandomIds
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.databases import (
    DATABASE,
    LATER,
    PATHS,
    TABLE,
    Node,
    Site,
    forgets,
    part,
    started,
)


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


def test_what_was_forgotten_before_a_running_server_came_to_it_is_found_by_comparing(site):
    """1. r1 is at something long. 2. The others go on, and clean the log. 3. r1 comes to its end:
    what it has not heard of is not there any more.
    """
    started(site)
    site.say(TABLE)
    [late] = [node for node in site.running if node.name == "r1"]
    site.running.remove(late)
    site.say("DROP TABLE d.t", **LATER)
    site.say(TABLE.replace("d.t", "d.u"), **LATER)
    site.look()
    keeper = site.servers.zookeeper.connect()
    now_s = site.servers.clock.now_s()
    clean_queue(keeper, PATHS.queue, now_s=now_s, lifetime_s=10**6, tasks_max=0)
    late.look()
    assert late.tables() == ["u"]
    pointer, _ = keeper.get(PATHS.log_ptr("1|r1"))
    assert pointer == b"2"
    site.running.append(late)
    assert len(site.rows(TABLE.replace("d.t", "d.v"), "r3")) == 3


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


def without_the_alter(site: Site) -> Node:
    """Alone in its shard, it does not look while the table is altered: it has still to do that."""
    started(site, "r1")
    site.say(TABLE)
    [late] = site.running
    site.running.clear()
    site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", **LATER)
    return late


def test_a_new_server_has_what_others_have_still_to_carry_out(site):
    """It waits for them: nobody else alters the table in its shard."""
    late = without_the_alter(site)
    site.start("r3")
    with pytest.raises(AltersUnderWay, match=r"query-0000000001 .* '1\|r1' has still to"):
        site.say(DATABASE, "r3")
    site.running.insert(0, late)
    for _ in range(3):
        site.look()
    for node in site.running:
        settings = node.catalog.definition("d", "t").settings
        assert ("parts_to_throw_insert", "9") in settings, node.name


def test_a_new_server_has_what_one_that_is_away_has_still_to_carry_out(site):
    """Nobody else has: it waits until that one is back, or is dropped for good."""
    late = without_the_alter(site)
    site.running.append(late)
    site.stop("r1")
    site.start("r3")
    with pytest.raises(AltersUnderWay, match=r"'1\|r1' has still to .*DROP DATABASE REPLICA"):
        site.say(DATABASE, "r3")
    site.start("r1")
    for _ in range(3):
        site.running[1].look()
        site.running[0].look()
    for node in site.running:
        settings = node.catalog.definition("d", "t").settings
        assert ("parts_to_throw_insert", "9") in settings, node.name


@pytest.mark.parametrize(
    "after", ["", "RENAME TABLE d.t TO d.u", "EXCHANGE TABLES d.t AND d.v"]
)
@pytest.mark.parametrize(
    "change", ["ADD COLUMN s String", "MODIFY SETTING parts_to_throw_insert = 9"]
)
def test_an_alter_that_nobody_has_still_to_come_to_is_carried_out(site, change, after):
    """All that there are look at everything anew."""
    started(site, "r1")
    site.say(TABLE)
    site.say(TABLE.replace("d.t", "d.v"))
    [late] = site.running
    site.running.clear()
    site.say(f"ALTER TABLE d.t {change}", alter_sync="0", **LATER)
    if after:
        site.say(after, **LATER)
    site.running.append(late)
    late.loop = late.worker = None  # as after a restart
    site.say(DATABASE.replace("DATABASE d", "DATABASE IF NOT EXISTS d"), "r1")
    site.look()
    catalog = site.nodes["r1"].catalog
    name = {"": "t", "R": "u", "E": "v"}[after[:1]]
    altered = catalog.definition("d", name)
    columns = site.servers.zookeeper.nodes[f"{altered.engine.zookeeper_path}/columns"].data
    assert b"`s`" in columns or ("parts_to_throw_insert", "9") in altered.settings
    assert site.rows("SELECT count() FROM system.tables WHERE database = 'd'") == [(2,)]


def test_what_is_not_taken_up_here_is_not_told_to_the_record(site):
    """A new server would take what the record says for what the ALTER has made."""
    started(site, "r1", "r2")
    site.say(TABLE)
    site.say("ALTER TABLE d.t ADD COLUMN s String", alter_sync="0", **LATER)
    site.look()
    here = [node.catalog.definition("d", "t").metadata_version for node in site.running]
    assert here == [0, 0]  # nobody works the table's queue
    record = TableRecord.decode(site.servers.zookeeper.nodes[PATHS.table("t")].data)
    assert (record.task, record.version) == (0, 0)


def test_what_a_new_server_waits_for_is_said_where_people_look(site, capsys, monkeypatch):
    late = without_the_alter(site)
    site.start("r3")
    with pytest.raises(AltersUnderWay):
        site.say(DATABASE, "r3")
    node, clock = site.nodes["r3"], site.servers.clock
    loops = TaskLoops(site.servers.config, "r3", node.catalog)
    loops._databases["d", replicated_database(node.catalog, "d")] = node.loop
    assert loops.waiting() == ()
    node.worker, _ = node.loop._attempt(None)
    [reason] = loops.waiting()
    assert re.match(r"database d waits: query-0000000001 .* '1\|r1' has still to", reason)

    identity = Identity("r3", "1", Address("127.0.0.1", 1))
    tables = Tables(node.catalog, clock, RandomIds(), identity, lambda: None)
    found = server_status("r3", node.server.keeper, tables, loops.waiting(), loops.behind())
    assert (found.words, found.behind) == ("databases behind", ("d",))
    assert not found.healthy
    told = found.as_json()
    monkeypatch.setattr(status.control, "how_it_is", lambda *_: told)
    monkeypatch.setattr(status, "_loads", lambda config: {})
    assert status.run_status(site.servers.config, "r3") == 1
    assert f"  {reason}\n" in capsys.readouterr().out

    site.running.insert(0, late)
    for _ in range(2):
        late.look()
        node.worker, _ = node.loop._attempt(node.worker)
    assert loops.waiting() == loops.behind() == ()


def test_what_one_that_is_gone_for_good_had_still_to_carry_out_holds_up_nobody(site):
    late = without_the_alter(site)
    site.running.append(late)
    site.stop("r1")
    site.start("r3")
    with pytest.raises(AltersUnderWay):
        site.say(DATABASE, "r3")
    site.say("SYSTEM DROP DATABASE REPLICA '1|r1' FROM DATABASE d", "r3")
    site.look()
    assert site.nodes["r3"].tables() == ["t"]


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


def two(site: Site) -> dict[str, str]:
    """Tables t and u, of one column and of two; the roots of r1's replicas."""
    site.say(TABLE)
    site.say(TABLE.replace("d.t", "d.u").replace("n UInt64", "n UInt64, s String"))
    return roots(site, "r1")


def roots(site: Site, name: str) -> dict[str, str]:
    catalog = site.nodes[name].catalog
    return {table: catalog.definition("d", table).engine.root for table in catalog.tables("d")}


def test_a_table_is_renamed_on_every_server_and_stays_what_it_is(site):
    started(site)
    before = two(site)
    answer = site.rows("RENAME TABLE d.t TO d.v", "r2")
    assert sorted(row[:4] for row in answer) == [
        ("1", "r1", "OK", ""),
        ("1", "r2", "OK", ""),
        ("2", "r3", "OK", ""),
    ]
    assert [node.tables() for node in site.running] == [["u", "v"]] * 3
    assert roots(site, "r1") == {"u": before["u"], "v": before["t"]}
    with pytest.raises(UnknownTable, match=r"d\.t does not exist"):
        site.say("RENAME TABLE d.t TO d.w")
    with pytest.raises(TableAlreadyExists, match=r"d\.u already exists"):
        site.say("RENAME TABLE d.v TO d.u")
    site.say("RENAME TABLE IF EXISTS d.t TO d.w")
    site.say(TABLE)  # the name is free, and so is its path
    assert roots(site, "r1")["t"] != before["t"]


def test_a_path_with_the_tables_name_in_it_stays_for_who_makes_the_table_later(site):
    started(site, "r1")
    site.say(TABLE.replace("MergeTree", "MergeTree('/tables/{shard}/{table}', '{replica}')"))
    site.say("RENAME TABLE d.t TO d.v")
    site.start("r2")
    site.say(DATABASE, "r2")
    assert roots(site, "r2") == {"v": "/tables/1/t/replicas/r2"}


def test_two_tables_are_exchanged_on_every_server(site):
    started(site)
    before = two(site)
    site.say("EXCHANGE TABLES d.t AND d.u", "r3")
    for node in site.running:
        columns = [len(node.catalog.definition("d", name).columns) for name in ("t", "u")]
        assert columns == [2, 1]
        assert [table.reason for table in node.server.tables.all.values()] == ["", ""]
    assert roots(site, "r1") == {"t": before["u"], "u": before["t"]}
    with pytest.raises(UserError, match="nothing to exchange"):
        site.say("EXCHANGE TABLES d.t AND d.t")


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_server_that_was_away_has_the_names_of_now(site, is_forgotten):
    """u is t, v is u, and a new t: whether the log tells it, or the tables that there are."""
    started(site)
    before = two(site)
    at_r2 = roots(site, "r2")
    part(site, "r2", "t")
    site.stop("r2")
    for query in (
        "EXCHANGE TABLES d.t AND d.u",
        "RENAME TABLE d.t TO d.v",
        "ALTER TABLE d.v MODIFY SETTING parts_to_throw_insert = 9",
        TABLE,
    ):
        site.say(query, **LATER)
    site.look()
    if is_forgotten:
        forgets(site)
    site.start("r2")
    site.look()
    site.look()
    assert site.nodes["r2"].tables() == ["t", "u", "v"]
    assert site.nodes["r2"].tables("d_broken_tables") == []
    found = roots(site, "r2")
    assert (found["u"], found["v"]) == (at_r2["t"], at_r2["u"])
    assert roots(site, "r1")["u"] == before["t"]
    definition = site.nodes["r2"].catalog.definition("d", "v")
    assert ("parts_to_throw_insert", "9") in definition.settings


def test_what_is_altered_before_it_is_renamed_is_altered_there_too(site):
    """r2 carries the ALTER out when the table has its other name already."""
    started(site)
    site.say(TABLE)
    site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", **LATER)
    site.say("RENAME TABLE d.t TO d.v", **LATER)
    site.look()
    site.look()
    for node in site.running:
        assert ("parts_to_throw_insert", "9") in node.catalog.definition("d", "v").settings
    keeper = site.servers.zookeeper.connect()
    assert "parts_to_throw_insert" in TableRecord.decode(keeper.get(PATHS.table("v"))[0]).query


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_table_is_detached_and_attached_on_every_server(site, is_forgotten):
    started(site)
    before = two(site)
    site.stop("r2")
    site.say("DETACH TABLE d.t PERMANENTLY", **LATER)
    site.look()
    if is_forgotten:
        site.say("ALTER TABLE d.u MODIFY SETTING parts_to_throw_insert = 9", **LATER)
        site.look()
        forgets(site)
    site.start("r2")
    site.look()
    for node in site.running:
        assert node.tables() == ["u"]
        [one] = node.catalog.detached("d")
        assert (one.definition.name, one.permanently) == ("t", True)
    for query in (
        "DROP TABLE d.t",
        "ALTER TABLE d.t ADD COLUMN s String",
        "RENAME TABLE d.t TO d.v",
        "EXCHANGE TABLES d.u AND d.t",
        "DETACH TABLE d.t PERMANENTLY",
    ):
        with pytest.raises(TableDetached, match="ATTACH TABLE takes it up again"):
            site.say(query)
    with pytest.raises(TableAlreadyExists, match="detached permanently"):
        site.say(TABLE)
    with pytest.raises(DatabaseNotEmpty, match=r"t \(detached permanently\)"):
        site.say("DROP DATABASE d SYNC")
    site.say("ATTACH TABLE d.t", "r3")
    assert [node.tables() for node in site.running] == [["t", "u"]] * 3
    assert roots(site, "r1") == before
    with pytest.raises(TableAlreadyExists):
        site.say("ATTACH TABLE d.t")


@pytest.mark.parametrize(
    "change", ["ADD COLUMN s String", "MODIFY SETTING parts_to_throw_insert = 9"]
)
def test_an_alter_that_is_carried_out_after_a_detach_was_said_brings_nothing_back(site, change):
    """1. An ALTER and a DETACH PERMANENTLY are said, one after the other. 2. A server comes to the
    ALTER, and tells the table's record of it. 3. It and the others come to the DETACH.
    """
    started(site)
    site.say(TABLE)
    site.say(f"ALTER TABLE d.t {change}", alter_sync="0", **LATER)
    site.say("DETACH TABLE d.t PERMANENTLY", **LATER)
    for _ in range(3):
        site.look()
    assert [node.tables() for node in site.running] == [[]] * 3
    site.say("ATTACH TABLE d.t")
    assert [node.tables() for node in site.running] == [["t"]] * 3


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_server_that_missed_that_a_table_was_attached_again_has_it(site, is_dropped):
    """Or dropped after that: what is detached here is then no table of anybody."""
    started(site)
    two(site)
    at_r2 = roots(site, "r2")
    site.say("DETACH TABLE d.t PERMANENTLY")
    site.stop("r2")
    site.say("ATTACH TABLE d.t", **LATER)
    site.look()
    query = "DROP TABLE d.t" if is_dropped else "RENAME TABLE d.t TO d.v"
    site.say(query, **LATER)
    site.look()
    forgets(site)
    site.start("r2")
    site.look()
    assert roots(site, "r2") == (
        {"u": at_r2["u"]} if is_dropped else {"u": at_r2["u"], "v": at_r2["t"]}
    )
    assert site.nodes["r2"].catalog.detached("d") == []


def test_a_new_server_makes_a_detached_table_when_it_is_attached(site):
    started(site, "r1")
    two(site)
    site.say("DETACH TABLE d.t PERMANENTLY")
    site.start("r2")
    site.say(DATABASE, "r2")
    assert site.nodes["r2"].tables() == ["u"]
    site.say("ATTACH TABLE d.t", "r2")
    assert [node.tables() for node in site.running] == [["t", "u"]] * 2


def test_a_table_that_is_detached_on_one_server_is_its_own(site):
    """Without PERMANENTLY: the others serve it, and the server takes it back by itself."""
    started(site)
    two(site)
    site.say("DETACH TABLE d.t", "r2")
    site.look()
    assert [node.tables() for node in site.running] == [["t", "u"], ["u"], ["t", "u"]]
    site.say("ATTACH TABLE d.t", "r2")
    assert [node.tables() for node in site.running] == [["t", "u"]] * 3


def test_a_look_that_finds_nothing_to_do_changes_nothing(site):
    """The server hears of each change of the catalog, and looks again."""
    started(site)
    two(site)
    versions = [node.catalog.version() for node in site.running]
    site.look()
    assert [node.catalog.version() for node in site.running] == versions


def test_a_table_of_the_database_is_truncated_by_its_own_log(site):
    started(site)
    two(site)
    before = site.below(f"{PATHS.queue.root}")
    site.say("TRUNCATE TABLE d.t")
    assert site.below(f"{PATHS.queue.root}") == before


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE d.t, d.u",
        "RENAME TABLE d.t TO default.t",
        "RENAME TABLE default.t TO d.t",
        "EXCHANGE TABLES d.t AND default.t",
        "RENAME TABLE d.t TO d.u, d.v TO d.w",
        "ATTACH TABLE d.t (n UInt64) ENGINE = ReplicatedMergeTree('/x', 'r1') ORDER BY n",
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


@pytest.mark.parametrize("query", ["DROP TABLE d.v", "ALTER TABLE d.v ADD COLUMN s String"])
def test_what_failed_before_it_does_not_make_a_statement_be_of_another_table(site, query):
    """1. r3 is away. It can't make the table t, and so not exchange it with v. 2. What is said of v
    after that is said of the table that was t: that which is called v at r3 is not it.
    """
    started(site, "r1", "r3")
    with site.servers.session("r3") as session:
        session.execute(
            "CREATE TABLE x (k String) ENGINE = ReplicatedMergeTree('/x/2', 'r3') ORDER BY k"
        )
    site.say(TABLE.replace("d.t", "d.v"))
    part(site, "r3", "v")
    catalog = site.nodes["r3"].catalog
    before = catalog.definition("d", "v")
    site.stop("r3")
    typed = TABLE.replace("MergeTree", "MergeTree('/x/{shard}', '{replica}y')")
    for statement in (typed, "EXCHANGE TABLES d.t AND d.v", query):
        site.say(statement, alter_sync="0", **LATER)
        site.look()
    site.start("r3")
    for _ in range(2):
        with suppress(NotCaughtUp):  # of the table that it can't make
            site.nodes["r3"].look()
    after = catalog.definition("d", "t")
    assert (after.uuid, after.columns) == (before.uuid, before.columns)
    assert (catalog.table_directory(after) / "detached" / "all_0_0_0").is_dir()
    columns = f"{before.engine.zookeeper_path}/columns"
    assert b"`s`" not in site.servers.zookeeper.nodes[columns].data
    task = PATHS.queue.task("query-0000000003")
    outcome = site.servers.zookeeper.nodes[task.finished_on("2|r3")]
    assert "another table" in TaskOutcome.decode(outcome.data).message


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
    with pytest.raises(UserError, match="has a slash in it"):  # a node below it
        site.say(drop.replace("r2", "r2/log_ptr"))
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
