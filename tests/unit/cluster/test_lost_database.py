"""ZooKeeper lost a Replicated database: its servers make it again, and nobody drops its rows."""

import pytest

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.replica.life.drop import delete_tree
from tests.support.databases import LATER, TABLE, Site, part, started


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


def test_a_database_that_was_dropped_here_is_not_restored(site):
    """Its tables may have been dropped by the others since."""
    started(site)
    site.say(TABLE)
    site.stop("r2")
    site.say("SYSTEM DROP DATABASE REPLICA '1|r2' FROM DATABASE d")
    with pytest.raises(UserError, match=r"'1\|r2' of /databases/d was dropped: DROP DATABASE"):
        site.say("SYSTEM RESTORE DATABASE REPLICA d", "r2")
