"""What a user gives as a path or name in ZooKeeper, and no node can have, is refused by an error
of ours that names it: kazoo refuses it with its own, or the server closes the connection.
"""

import pytest

from rmt_pipeline.config import load_config
from rmt_pipeline.protocol.errors import BadConfiguration, UserError
from rmt_pipeline.protocol.text import require_node, require_path
from rmt_pipeline.zookeeper.paths import DatabasePaths, database_table
from tests.support.servers import Servers

BAD_NAMES = (".", "..", "a\0", "a\x01b", "\x1f", "\x7f", "\x9f", "\ue000", "\ufff0")
ENGINE = "CREATE TABLE t (n UInt64) ENGINE = ReplicatedMergeTree('{path}', '{name}') ORDER BY n"
STATEMENTS = {
    "engine path": ENGINE.replace("{path}", "/a/{bad}/b").replace("{name}", "r1"),
    "replica name": ENGINE.replace("{path}", "/a/b").replace("{name}", "{bad}"),
    "attach": ENGINE.replace("CREATE", "ATTACH")
    .replace("{path}", "/a/{bad}")
    .replace("{name}", "r1"),
    "drop replica": "SYSTEM DROP REPLICA '{bad}' FROM ZKPATH '/a'",
    "ZKPATH": "SYSTEM DROP REPLICA 'r1' FROM ZKPATH '/a/{bad}'",
    "database path": "CREATE DATABASE d ENGINE = Replicated('/a/{bad}', '1', 'r1')",
    "shard": "CREATE DATABASE d ENGINE = Replicated('/a/b', '{bad}', 'r1')",
    "replica of a database": "CREATE DATABASE d ENGINE = Replicated('/a/b', '1', '{bad}')",
    "dropped replica of a database": "SYSTEM DROP DATABASE REPLICA '{bad}' FROM ZKPATH '/a'",
    "ZKPATH of a database": "SYSTEM DROP DATABASE REPLICA '1|r1' FROM ZKPATH '/a/{bad}'",
    "path of system.zookeeper": "SELECT * FROM system.zookeeper WHERE path = '/a/{bad}'",
    "default path": "CREATE TABLE `{bad}` (n UInt64) "
    "ENGINE = ReplicatedMergeTree('/a/{table}', 'r1') ORDER BY n",
}


def quoted(name: str) -> str:
    return "".join(f"\\x{ord(c):02x}" if ord(c) < 0x20 else c for c in name)


@pytest.mark.parametrize("bad", BAD_NAMES, ids=ascii)
@pytest.mark.parametrize("where", STATEMENTS)
def test_what_no_node_can_be_called_is_refused_by_name(tmp_path, where, bad):
    servers = Servers(tmp_path)
    before = set(servers.zookeeper.nodes)
    with servers.session() as session:
        query = STATEMENTS[where].replace("{bad}", quoted(bad))
        with pytest.raises(UserError, match="ZooKeeper") as raised:
            list(getattr(session.execute(query), "batches", ()))
    assert repr(bad)[1:-1] in str(raised.value)
    assert set(servers.zookeeper.nodes) == before


@pytest.mark.parametrize("where", ["replica name", "drop replica", "replica of a database"])
@pytest.mark.parametrize("bad", ["", "a/b"])
def test_a_name_is_one_node_not_a_path_to_one(tmp_path, where, bad):
    servers = Servers(tmp_path)
    before = set(servers.zookeeper.nodes)
    with servers.session() as session, pytest.raises(UserError, match=repr(bad)):
        session.execute(STATEMENTS[where].replace("{bad}", bad))
    assert set(servers.zookeeper.nodes) == before


@pytest.mark.parametrize("path", ["/a/../b", "/a//b", "/a/\x01", "a", "/a/"])
def test_the_queue_of_the_configuration_has_a_path(tmp_path, path):
    file = tmp_path / "rmt.toml"
    text = path.replace("\x01", "\\u0001")
    file.write_text(f'[servers.r1]\ndata = "d"\n[distributed_ddl]\npath = "{text}"\n')
    with pytest.raises(BadConfiguration, match="path"):
        load_config(file)


@pytest.mark.parametrize("name", [*BAD_NAMES, "a/b", "100%", "%2F", "ä", "…", "a b", ".a"])
def test_any_name_of_a_table_is_that_of_a_node_of_its_database(name):
    node = DatabasePaths("/d").table(name).rsplit("/", 1)[1]
    require_node(node, "node")
    assert database_table(node) == name


@pytest.mark.parametrize("path", ["/a", "/a/b.c", "/a/...", "/ä/…", "/a b/%2F"])
def test_what_zookeeper_takes_is_taken(path):
    require_path(path, "path")
