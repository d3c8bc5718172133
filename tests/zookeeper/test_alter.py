"""ALTER TABLE on two real servers over a real ZooKeeper, asked for from this process (spec §8)."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.table import Table
from tests.golden.cluster import InProcess, running_servers

pytestmark = [pytest.mark.zookeeper, pytest.mark.spark]

CREATE = """CREATE TABLE {name} (id Int64, v String, p String)
ENGINE = ReplicatedMergeTree('{path}', '{{replica}}') ORDER BY id PARTITION BY p"""


@pytest.fixture(scope="module")
def config(zookeeper_server, tmp_path_factory):
    """Of `rmt serve r1 --work` and r2's."""
    directory = tmp_path_factory.mktemp("servers")
    with running_servers(directory, zookeeper_server.hosts) as file:
        yield load_config(file)


class Pair:
    """One table on r1 and r2."""

    def __init__(self, config, client: InProcess, name: str, one: Table, two: Table) -> None:
        self.config = config
        self.client = client
        self.name = name
        self.one = one
        self.two = two

    def sql(self, server: str, statement: str) -> list[str]:
        return self.client.execute(server, statement.format(t=self.name))

    def everywhere(self, query: str) -> list[str]:
        """The answer to a query, which is the same on both replicas, once they are in step."""
        for table in (self.one, self.two):
            table.sync()
        first, second = (self.sql(server, query) for server in ("r1", "r2"))
        assert first == second
        return first


@pytest.fixture
def pair(config, chroot) -> Iterator[Pair]:
    client = InProcess(config)
    name = chroot.strip("/").replace("-", "_")
    for replica in ("r1", "r2"):
        client.execute(replica, CREATE.format(name=name, path=f"{chroot}/{name}"))
    one, two = (ServerContext.open(config, replica) for replica in ("r1", "r2"))
    with one, two:
        yield Pair(config, client, name, one.table(name), two.table(name))
    for replica in ("r1", "r2"):
        client.execute(replica, f"DROP TABLE {name} SYNC")
    client.close()


def described(lines: list[str]) -> list[str]:
    return [" ".join(line.split("\t")[:4]).rstrip() for line in lines]


def test_columns_come_and_go_on_both_replicas_and_old_parts_read_as_new_ones(pair):
    """P33."""
    pair.sql("r1", "INSERT INTO {t} VALUES (1, '10', 'a'), (2, '20', 'b')")
    pair.sql(
        "r2",
        "ALTER TABLE {t} ADD COLUMN w Int64 DEFAULT id * 3 AFTER id, ADD COLUMN f String FIRST"
        " SETTINGS alter_sync = 2",
    )
    pair.sql("r1", "INSERT INTO {t} (id, v, p) VALUES (3, '30', 'a')")
    assert pair.everywhere("SELECT * FROM {t} ORDER BY id") == [
        "\t1\t3\t10\ta",
        "\t2\t6\t20\tb",
        "\t3\t9\t30\ta",
    ]
    pair.sql(
        "r1",
        "ALTER TABLE {t} MODIFY COLUMN v Int32, RENAME COLUMN w TO x, DROP COLUMN f"
        " SETTINGS alter_sync = 2",
    )
    expected = ["1\t3\t10\ta", "2\t6\t20\tb", "3\t9\t30\ta"]
    assert pair.everywhere("SELECT * FROM {t} ORDER BY id") == expected
    assert described(pair.sql("r2", "DESCRIBE {t}")) == [
        "id Int64",
        "x Int64 DEFAULT id * 3",
        "v Int32",
        "p String",
    ]
    for table in (pair.one, pair.two):
        assert [column.name for column in table.definition.columns] == ["id", "x", "v", "p"]
        for part in table.parts():
            assert [name for name, _ in part.manifest.columns] == ["id", "x", "v", "p"]
    pair.sql("r2", "OPTIMIZE TABLE {t} FINAL SETTINGS alter_sync = 2")
    assert pair.everywhere("SELECT * FROM {t} ORDER BY id") == expected
