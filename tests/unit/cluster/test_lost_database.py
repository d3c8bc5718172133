"""ZooKeeper lost a Replicated database: its servers make it again, and nobody drops its rows."""

from contextlib import suppress

import pytest

from rmt_pipeline.protocol.errors import DatabaseAlreadyExists, TableIsReadOnly, UserError
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.databases import DATABASE, LATER, TABLE, Node, Site, part, started
from tests.unit.cluster.test_missed_alters import MANY_COLUMNS, alter, takes_up

LOOKS = 5  # until a table that was restored is active, and is altered


def lose_zookeeper(site: Site) -> None:
    """All of it, while no server runs."""
    for name in [*site.nodes]:
        site.stop(name)
    keeper = site.servers.zookeeper.connect()
    for name in keeper.children("/"):
        delete_tree(keeper, f"/{name}")


def test_a_database_that_zookeeper_lost_is_made_again_with_its_tables(site):
    """Nobody is told to drop a database whose rows are on the disks."""
    started(site)
    for table in ("t", "u", "v"):
        site.say(TABLE.replace("d.t", f"d.{table}"))
    site.say("DETACH TABLE d.u PERMANENTLY")
    here = {node.server.name: node.tables() for node in site.running}
    for name in ("r1", "r2", "r3"):
        part(site, name, "t")
    lose_zookeeper(site)
    site.start("r1", "r2", "r3")
    with pytest.raises(UserError, match=r"if ZooKeeper lost its data, SYSTEM RESTORE DATABASE"):
        site.look()
    with pytest.raises(UserError, match="SYSTEM RESTORE DATABASE REPLICA d on each"):
        site.say("CREATE TABLE d.w (n UInt64) ENGINE = ReplicatedMergeTree ORDER BY n", **LATER)
    for name in ("r1", "r2", "r3"):
        site.running[:] = [site.nodes[one] for one in ("r1", "r2", "r3") if one <= name]
        site.say("SYSTEM RESTORE DATABASE REPLICA d", name)
    site.look()
    assert {node.server.name: node.tables() for node in site.running} == here
    assert [node.tables("d_broken_tables") for node in site.running] == [[]] * 3
    with pytest.raises(UserError, match="nothing to restore"):
        site.say("SYSTEM RESTORE DATABASE REPLICA d", "r2")


@pytest.mark.parametrize("again", ["CREATE DATABASE", "CREATE DATABASE IF NOT EXISTS"])
def test_who_creates_it_again_is_told_to_restore_it(site, again):
    """An empty one in ZooKeeper would have its servers move all tables away."""
    started(site, "r1", "r2")
    site.say(TABLE)
    for name in ("r1", "r2"):
        part(site, name, "t")
    lose_zookeeper(site)
    site.start("r1", "r2")
    with pytest.raises(UserError):
        site.say(DATABASE.replace("CREATE DATABASE", again))
    with pytest.raises(UserError, match="SYSTEM RESTORE DATABASE REPLICA d"):
        site.look()
    assert [node.tables() for node in site.running] == [["t"]] * 2
    for name in ("r1", "r2"):
        site.running[:] = [site.nodes[one] for one in ("r1", "r2") if one <= name]
        site.say("SYSTEM RESTORE DATABASE REPLICA d", name)
    site.look()
    assert [node.tables() for node in site.running] == [["t"]] * 2
    with suppress(DatabaseAlreadyExists):
        site.say(DATABASE.replace("CREATE DATABASE", again))
    site.look()
    assert [node.tables() for node in site.running] == [["t"]] * 2


def test_who_makes_it_anew_tells_no_other_that_it_was_dropped(site):
    """A server that comes new, or has lost its disk, knows nothing of a database that ZooKeeper has
    lost. The others, whose tables have rows, are not to drop it; and restore it.
    """
    started(site, "r1", "r2")
    site.say(TABLE)
    for name in ("r1", "r2"):
        part(site, name, "t")
    lose_zookeeper(site)
    started(site, "r3")
    site.start("r1", "r2")
    for name in ("r1", "r2"):
        with pytest.raises(
            UserError, match="if ZooKeeper lost its data, SYSTEM RESTORE"
        ) as told:
            site.nodes[name].look()
        assert "rmt restore does both" in str(told.value)
    for name in ("r1", "r2"):
        site.say("SYSTEM RESTORE REPLICA d.t", name)
    for name in ("r1", "r2"):
        site.running[:] = [site.nodes[one] for one in ("r1", "r2", "r3") if one != "r2"]
        site.say("SYSTEM RESTORE DATABASE REPLICA d", name)
    site.running[:] = [site.nodes[one] for one in ("r1", "r2", "r3")]
    site.look()
    assert [node.tables() for node in site.running] == [["t"]] * 3
    assert [node.tables("d_broken_tables") for node in site.running] == [[]] * 3


def test_a_server_of_an_earlier_build_does_not_take_itself_for_dropped(site):
    """While the servers are upgraded one after the other, and ZooKeeper loses everything. It would
    say to drop the database, with its rows.
    """
    started(site, "r1", "r2")
    site.say(TABLE)
    lose_zookeeper(site)
    site.start("r1")
    with pytest.raises(UserError):
        site.look()
    site.say("SYSTEM RESTORE DATABASE REPLICA d", "r1")
    keeper = site.servers.zookeeper.connect()
    assert keeper.exists("/databases/d/replicas/1|r2") is None
    assert keeper.exists("/databases/d/restored") is not None, "it takes itself for lost"


def test_a_database_that_was_dropped_here_is_not_restored(site):
    """Its tables may have been dropped by the others since."""
    started(site)
    site.say(TABLE)
    site.stop("r2")
    site.say("SYSTEM DROP DATABASE REPLICA '1|r2' FROM DATABASE d")
    with pytest.raises(UserError, match=r"'1\|r2' of /databases/d was dropped: DROP DATABASE"):
        site.say("SYSTEM RESTORE DATABASE REPLICA d", "r2")
    site.start("r2")
    site.say("DROP DATABASE d", "r2")
    site.say(DATABASE, "r2")
    site.look()
    assert site.nodes["r2"].tables() == ["t"], "it has come back"
    assert not [
        one for one in site.below("/databases/d") if one.endswith("dropped_replicas/1|r2")
    ]


@pytest.mark.parametrize("order", [("r1", "r3"), ("r3", "r1")])
@pytest.mark.parametrize("tables_first", [False, True])
@pytest.mark.parametrize("change", ["ADD COLUMN s String", "DROP COLUMN k"])
def test_an_alter_that_a_server_had_missed_when_all_was_lost_is_made_there_too(
    site, monkeypatch, order, tables_first, change
):
    """Each server is alone in its shard, and has no rows. The database is made again with the
    table as the first server has it; the log has nothing of the ALTER any more.
    """
    look = Node.look

    def look_on(node: Node) -> None:
        """As the loop does: a table that is not active yet is altered later."""
        with suppress(TableIsReadOnly):
            look(node)

    missed_by_r1(site, change)
    monkeypatch.setattr(Node, "look", look_on)
    made_again(site, order, tables_first)
    for _ in range(LOOKS):
        site.servers.clock.passed_s += 100
        site.look()
    assert create_query(takes_up(site, "r1")) == create_query(takes_up(site, "r3"))
    assert takes_up(site, "r3").metadata_version == 1
    assert [node.loop.waits_for for node in site.running] == ["", ""]
    site.say("ALTER TABLE d.t ADD COLUMN later String", alter_sync="0", **LATER)
    site.look()
    assert create_query(takes_up(site, "r1")) == create_query(takes_up(site, "r3"))


def missed_by_r1(site: Site, change: str) -> None:
    started(site, "r1", "r3")
    site.say(MANY_COLUMNS)
    site.stop("r1")
    alter(site, change, by="r3")
    assert takes_up(site, "r3").metadata_version == 1
    lose_zookeeper(site)


def made_again(site: Site, order: tuple[str, ...], tables_first: bool) -> None:
    site.start("r1", "r3")
    with pytest.raises(UserError, match="SYSTEM RESTORE DATABASE"):
        site.look()

    def tables() -> None:
        for name in order:
            site.say("SYSTEM RESTORE REPLICA d.t", name)

    if tables_first:
        tables()
        for node in site.running:
            site.servers.clock.passed_s += 100
            node.server.turn()
            node.server.look()
    for number, name in enumerate(order, 1):
        site.running[:] = [site.nodes[one] for one in order[:number]]
        site.say("SYSTEM RESTORE DATABASE REPLICA d", name)
    if not tables_first:
        tables()
