"""ALTER TABLE on two real servers over a real ZooKeeper, asked for from this process (spec §8)."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.table import Table
from tests.golden.cluster import InProcess, StatementFailed

pytestmark = [pytest.mark.zookeeper, pytest.mark.spark]

CREATE = """CREATE TABLE {name} (id Int64, v String, p String)
ENGINE = ReplicatedMergeTree('{path}', '{{replica}}') ORDER BY id PARTITION BY p"""
BETWEEN_INSERTS_S = 0.05  # dozens come in each ALTER; what more would cost are merges


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
def pair(two_servers, chroot) -> Iterator[Pair]:
    client = InProcess(two_servers)
    name = chroot.strip("/").replace("-", "_")
    for replica in ("r1", "r2"):
        client.execute(replica, CREATE.format(name=name, path=f"{chroot}/{name}"))
    one, two = (ServerContext.open(two_servers, replica) for replica in ("r1", "r2"))
    with one, two:
        yield Pair(two_servers, client, name, one.table(name), two.table(name))
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
            names = [name for name, _ in part.manifest.columns]
            lacks_x = ["id", "v", "p"]  # an INSERT from before it: it is read as its default
            assert names in (["id", "x", "v", "p"], lacks_x)
    pair.sql("r2", "OPTIMIZE TABLE {t} FINAL SETTINGS alter_sync = 2")
    assert pair.everywhere("SELECT * FROM {t} ORDER BY id") == expected


def stale(pair: Pair) -> Table:
    """r1's table in a process that never looks at the catalog again: as it is now, for good."""
    server = ServerContext.open(pair.config, "r1")
    definition = server.catalog.definition("default", pair.name)
    return Table(
        definition,
        server.store(definition),
        replica=lambda: replace(server.replica(definition), definition=definition),
        frozen=server.frozen_parts(definition),
        peers=lambda: closing(server.peers(definition)),
        clock=server.clock,
    )


def test_a_block_of_an_older_structure_is_taken_and_read_right(pair):
    """P33, P35: an insert that began before the ALTERs and is committed after them."""
    old = stale(pair)
    pair.sql(
        "r2",
        "ALTER TABLE {t} RENAME COLUMN v TO w, ADD COLUMN v Int32 DEFAULT 7"
        " SETTINGS alter_sync = 2",
    )
    old.insert([{"id": 1, "v": "old", "p": "a"}])
    pair.one.insert([{"id": 2, "w": "new", "v": 8, "p": "a"}])
    expected = ["1\told\ta\t7", "2\tnew\ta\t8"]
    query = "SELECT id, w, p, v FROM {t} ORDER BY id"
    assert pair.everywhere(query) == expected
    assert [part.manifest.metadata_version for part in pair.two.parts()] == [0, 1]
    rows = sorted(pair.two.dataset().to_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["w"], row["v"]) for row in rows] == [("old", 7), ("new", 8)]
    pair.sql(
        "r1",
        "ALTER TABLE {t} UPDATE w = concat(w, '!') WHERE v = 7 SETTINGS mutations_sync = 2",
    )
    pair.sql("r1", "OPTIMIZE TABLE {t} FINAL SETTINGS alter_sync = 2")
    assert pair.everywhere(query) == ["1\told!\ta\t7", "2\tnew\ta\t8"]
    [part] = pair.two.parts()
    assert part.manifest.metadata_version == 1


def test_alters_of_two_replicas_at_once_have_one_order_and_no_insert_is_refused(pair):
    """P34, P35, spec §16.8 U8."""
    failures: list[BaseException] = []
    finished = threading.Event()

    def alter(server: str, prefix: str) -> None:
        try:
            for number in range(3):
                pair.sql(
                    server, f"ALTER TABLE {{t}} ADD COLUMN {prefix}{number} Int32 DEFAULT id"
                )
            pair.sql(server, f"ALTER TABLE {{t}} RENAME COLUMN {prefix}0 TO {prefix}9")
        except BaseException as error:  # noqa: BLE001  shown by the test
            failures.append(error)

    def insert() -> None:
        try:
            number = 0
            while not finished.wait(BETWEEN_INSERTS_S):
                number += 1
                pair.one.insert([{"id": number, "v": "v", "p": "a"}])
            pair.one.insert([{"id": 0, "v": str(number), "p": "b"}])
        except BaseException as error:  # noqa: BLE001  shown by the test
            failures.append(error)

    inserter = threading.Thread(target=insert)
    threads = [threading.Thread(target=alter, args=one) for one in (("r1", "x"), ("r2", "y"))]
    for thread in (inserter, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    finished.set()
    inserter.join()
    assert failures == []
    columns = pair.everywhere(
        "SELECT name FROM system.columns WHERE table = '{t}' ORDER BY position"
    )
    assert columns[:3] == ["id", "v", "p"]
    assert sorted(columns[3:]) == ["x1", "x2", "x9", "y1", "y2", "y9"]
    [count] = pair.sql("r2", "SELECT v FROM {t} WHERE p = 'b'")
    sums = pair.everywhere("SELECT count(), min(x9 = id), min(y9 = id), min(y2 = id) FROM {t}")
    assert sums == [f"{int(count) + 1}\t1\t1\t1"]
    versions = {table.definition.metadata_version for table in (pair.one, pair.two)}
    assert versions == {8}


def test_what_can_not_be_converted_is_named_and_the_table_stays_as_it_was(pair):
    """P35."""
    pair.sql("r1", "INSERT INTO {t} VALUES (1, '10', 'a'), (2, 'ten', 'b')")
    [bad] = [part.name for part in pair.one.parts() if part.manifest.partition == "b"]
    with pytest.raises(StatementFailed) as failed:
        pair.sql("r1", "ALTER TABLE {t} MODIFY COLUMN v Int32")
    assert isinstance(failed.value.cause, BadValue)
    assert f"part {bad}: column v has the value 'ten'" in str(failed.value)
    assert described(pair.sql("r1", "DESCRIBE {t}"))[1] == "v String"
    assert pair.one.definition.metadata_version == 0
    assert pair.one.mutations() == []


def test_settings_and_comments_are_of_one_replica_and_do_not_keep_it_from_starting(pair):
    pair.sql(
        "r1", "ALTER TABLE {t} MODIFY SETTING old_parts_lifetime = 77, COMMENT COLUMN v 'hey'"
    )
    assert "old_parts_lifetime = 77" in pair.sql("r1", "SHOW CREATE TABLE {t}")[0]
    assert "old_parts_lifetime" not in pair.sql("r2", "SHOW CREATE TABLE {t}")[0]
    assert pair.sql("r1", "DESCRIBE {t}")[1].split("\t")[4] == "hey"
    assert pair.sql("r2", "DESCRIBE {t}")[1].split("\t")[4] == ""
    pair.sql("r2", "ALTER TABLE {t} ADD COLUMN x Int8 SETTINGS alter_sync = 2")
    assert "old_parts_lifetime = 77" in pair.sql("r1", "SHOW CREATE TABLE {t}")[0]


def test_a_column_is_cleared_in_one_partition(pair):
    pair.sql("r1", "INSERT INTO {t} VALUES (1, 'x', 'a'), (2, 'y', 'b')")
    pair.sql("r2", "ALTER TABLE {t} CLEAR COLUMN v IN PARTITION 'b' SETTINGS alter_sync = 2")
    assert pair.everywhere("SELECT id, v FROM {t} ORDER BY id") == ["1\tx", "2\t"]
    [b] = [part.name.partition for part in pair.one.parts() if part.manifest.partition == "b"]
    assert pair.sql("r1", "SELECT command FROM system.mutations WHERE table = '{t}'") == [
        f"CLEAR COLUMN v IN PARTITION ID \\'{b}\\'"
    ]


def test_a_replica_that_joins_later_takes_over_the_structure_and_what_came_before(
    two_servers, chroot
):
    """P33, P34: with a part that no ALTER has rewritten."""
    client = InProcess(two_servers)
    name = chroot.strip("/").replace("-", "_") + "_late"
    path = f"{chroot}/{name}"
    client.execute("r1", CREATE.format(name=name, path=path))
    with (
        ServerContext.open(two_servers, "r1") as one,
        ServerContext.open(two_servers, "r2") as two,
    ):
        pair = Pair(two_servers, client, name, one.table(name), one.table(name))
        old = stale(pair)
        pair.sql(
            "r1", "ALTER TABLE {t} RENAME COLUMN v TO w, ADD COLUMN x Int64 DEFAULT id * 2"
        )
        old.insert([{"id": 1, "v": "old", "p": "a"}])
        with pytest.raises(
            StatementFailed, match="column 2 is `v` String here, `w` String there"
        ):
            client.execute("r2", CREATE.format(name=name, path=path))
        client.execute(
            "r2",
            CREATE.format(name=name, path=path).replace(
                "v String, p String", "w String, p String, x Int64 DEFAULT id * 2"
            ),
        )
        pair.two = two.table(name)
        assert pair.everywhere("SELECT * FROM {t}") == ["1\told\ta\t2"]
        assert pair.two.definition.history == pair.one.definition.history
    for replica in ("r1", "r2"):
        client.execute(replica, f"DROP TABLE {name} SYNC")
    client.close()
