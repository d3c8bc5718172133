"""Mutations on two real servers over a real ZooKeeper, asked for from this process."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from rmt_pipeline.cli import main as cli
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    BadValue,
    TableIsReadOnly,
    Unfinished,
    UnknownTable,
    UserError,
)
from rmt_pipeline.replica.mutations.mutations import UnknownMutation, create_mutation
from rmt_pipeline.replica.mutations.progress import mutation_progress
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.golden.cluster import InProcess
from tests.support.serving import config_at, create, definition_of
from tests.support.waiting import until

pytestmark = [pytest.mark.zookeeper, pytest.mark.spark]

CREATE = """CREATE TABLE {name} (id Int64, v String, p String)
ENGINE = ReplicatedMergeTree('{path}', '{{replica}}') ORDER BY id PARTITION BY p"""
BOTH = {"mutations_sync": 2}


@pytest.fixture
def client(two_servers) -> Iterator[InProcess]:
    opened = InProcess(two_servers)
    yield opened
    opened.close()


@pytest.fixture
def tables(two_servers, client, chroot) -> Iterator[tuple[Table, Table]]:
    """A table of this test on r1, and on r2."""
    name = chroot.strip("/").replace("-", "_")
    for replica in ("r1", "r2"):
        client.execute(replica, CREATE.format(name=name, path=f"{chroot}/{name}"))
    one, two = (ServerContext.open(two_servers, replica) for replica in ("r1", "r2"))
    with one, two:
        yield one.table(name), two.table(name)
    for replica in ("r1", "r2"):
        client.execute(replica, f"DROP TABLE {name} SYNC")


def rmt_mutations(config, *arguments: str) -> list[str]:
    """Lines of `rmt mutations …`; its error is raised."""
    done = CliRunner().invoke(cli.app, ["--config", str(config.path), "mutations", *arguments])
    if done.exception is not None:
        raise done.exception
    return done.output.splitlines()


def rows(table: Table) -> list[tuple[int, str, str]]:
    found = table.dataset().to_table().to_pylist()
    return sorted((row["id"], row["v"], row["p"]) for row in found)


def test_a_mutation_reaches_both_replicas_and_only_rows_that_were_there(tables):
    one, two = tables
    one.insert([{"id": n, "v": "x", "p": "ab"[n % 2]} for n in range(10)])
    two.mutate(
        "UPDATE v = concat(v, toString(id)) WHERE id < 3, DELETE WHERE id > 5", settings=BOTH
    )
    expected = [(n, f"x{n}" if n < 3 else "x", "ab"[n % 2]) for n in range(6)]
    assert rows(one) == rows(two) == expected
    one.insert([{"id": 9, "v": "later", "p": "b"}])
    two.sync()
    assert rows(two) == [*expected, (9, "later", "b")]
    for table in (one, two):
        [report] = table.mutations()
        assert report.status.is_done
        assert report.failure is None


def test_a_mutation_of_one_partition_leaves_the_others_their_names(tables):
    one, two = tables
    one.insert([{"id": n, "v": "x", "p": "ab"[n % 2]} for n in range(4)])
    [a, b] = sorted(one.parts(), key=lambda part: part.manifest.partition)
    one.mutate(f"DELETE IN PARTITION ID '{b.name.partition}' WHERE 1", settings=BOTH)
    assert rows(two) == [(0, "x", "a"), (2, "x", "a")]
    names = {part.name.partition: part.name for part in two.parts()}
    assert names[a.name.partition] == a.name
    assert names[b.name.partition].data_version == 1
    [report] = one.mutations()
    assert report.status.entry.block_numbers == ((b.name.partition, 1),)


def test_a_part_without_such_rows_is_the_same_file_under_the_new_name(tables):
    """P31."""
    one, two = tables
    one.insert([{"id": 1, "v": "x", "p": "a"}])
    two.sync()
    before = {table: table.parts()[0] for table in tables}
    one.mutate("DELETE WHERE id = 77", settings=BOTH)
    for table in (one, two):
        [part] = table.parts()
        assert part.name.data_version == 1
        assert part.manifest.files == before[table].manifest.files
        assert part.manifest.sources == (str(before[table].name),)
        assert part.manifest.mutations == ("0000000000",)


def test_several_mutations_that_wait_are_done_in_their_order(tables):
    one, two = tables
    one.insert([{"id": n, "v": "", "p": "a"} for n in range(3)])
    for number in range(4):
        one.mutate(f"UPDATE v = concat(v, '{number}') WHERE id < {number}")
    one.mutate("DELETE WHERE v = '123'", settings=BOTH)
    assert rows(one) == rows(two) == [(1, "23", "a"), (2, "3", "a")]


def test_what_cannot_be_computed_is_refused_and_nothing_is_written(tables):
    """P32."""
    one, _ = tables
    one.insert([{"id": 1, "v": "no number", "p": "a"}])
    with pytest.raises(BadValue, match="no number"):
        one.mutate("UPDATE v = toString(toInt32(v)) WHERE id = 1")
    with pytest.raises(UserError, match="id is in the sorting key"):
        one.mutate("UPDATE id = 2 WHERE 1")
    assert one.mutations() == []


def test_a_mutation_that_fails_later_says_why_and_can_be_killed(two_servers, client, tables):
    one, two = tables
    one.insert([{"id": 1, "v": "1", "p": "a"}])
    one.insert([{"id": 2, "v": "no number", "p": "b"}])
    parts = sorted(one.parts(), key=lambda part: part.manifest.partition)
    if parts[0].name.partition > parts[1].name.partition:  # the first one is tried at once
        parts.reverse()
    good, bad = parts
    change = "UPDATE v = toString(toInt32(v) + 1) WHERE 1"
    if good.manifest.partition != "a":
        one.mutate(
            "UPDATE v = '1' WHERE id = 2, UPDATE v = 'no number' WHERE id = 1", settings=BOTH
        )
    with pytest.raises(Unfinished, match="no number"):
        one.mutate(change, settings={"mutations_sync": 1})
    until(lambda: len(one.mutations()[-1].status.parts_to_do) == 1)  # the good one is done soon
    *_, report = one.mutations()
    assert not report.status.is_done
    assert report.failure is not None
    assert "no number" in report.failure.reason
    assert report.status.parts_to_do == (report.failure.part,)
    assert report.failure.part.partition == bad.name.partition
    name = one.definition.name
    [line] = client.execute(
        "r1",
        "SELECT parts_to_do, is_done, latest_failed_part, latest_fail_reason LIKE '%no number%'"
        f" FROM system.mutations WHERE table = '{name}' AND NOT is_done",
    )
    assert line == f"1\t0\t{report.failure.part}\t1"
    [progress] = [each for each in mutation_progress(one.replica) if not each.is_done]
    assert (progress.parts_done, progress.parts_to_do) == (1, 1)
    assert (progress.rows_done, progress.rows_to_do) == (1, 1)
    assert progress.rows_per_s > 0
    lines = rmt_mutations(two_servers, name, "--server", "r1")
    assert lines[0].startswith(f"default.{name} on r1: 1 unfinished, ")
    assert lines[1] == f"  {report.status.mutation_id} {change}"
    assert lines[2].startswith("    1 of 2 parts done, 1 to do (")
    assert f"{report.failure.part} failed " in lines[3]
    assert "no number" in lines[3]
    [killed] = client.execute("r2", f"KILL MUTATION WHERE table = '{name}' AND NOT is_done")
    assert killed.split("\t")[:4] == ["finished", "default", name, report.status.mutation_id]
    for table in (one, two):
        table.sync()
        assert [v for _, v, _ in rows(table)].count("no number") == 1
        assert [v for _, v, _ in rows(table)].count("2") == 1
    with pytest.raises(UnknownMutation, match=r"system\.mutations lists them"):
        one.kill_mutation(report.status.mutation_id)


def test_sql_says_in_partition_by_value_and_delete_from_waits_for_all(client, tables):
    one, two = tables
    name = one.definition.name
    one.insert([{"id": n, "v": "x", "p": "ab"[n % 2]} for n in range(6)])
    client.execute(
        "r1",
        f"ALTER TABLE {name} DELETE IN PARTITION 'b' WHERE id < 3, UPDATE v = 'y' WHERE id = 0"
        " SETTINGS mutations_sync = 2",
    )
    expected = [(0, "y", "a"), (2, "x", "a"), (3, "x", "b"), (4, "x", "a"), (5, "x", "b")]
    assert rows(two) == expected
    client.execute("r2", f"DELETE FROM {name} WHERE id > 3")
    assert rows(one) == rows(two) == expected[:3]
    lines = client.execute(
        "r2",
        f"SELECT command, is_done FROM system.mutations WHERE table = '{name}'"
        " ORDER BY mutation_id",
    )
    partition = next(p.name.partition for p in one.parts() if p.manifest.partition == "b")
    assert lines == [
        f"DELETE IN PARTITION ID \\'{partition}\\' WHERE id < 3\t1",
        "UPDATE v = \\'y\\' WHERE id = 0\t1",
        "DELETE WHERE id > 3\t1",
    ]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(client, tables):
    one, _ = tables
    one.insert([{"id": n, "v": "x", "p": "ab"[n % 2]} for n in range(10)])
    one.insert([{"id": 100, "v": "x", "p": "a"}])
    [b] = [part for part in one.parts() if part.manifest.partition == "b"]
    first = next(part for part in one.parts() if part.manifest.rows == 5 and part != b)
    lines = client.execute(
        "r1",
        f"ALTER TABLE {one.definition.name} DELETE WHERE id < 4, UPDATE v = 'y' WHERE id = 6"
        " SETTINGS dry_run = 1",
    )
    found = {line.split("\t")[0]: line.split("\t")[1:] for line in lines}
    size = {part: str(part.manifest.bytes_on_disk) for part in (first, b)}
    assert found == {
        first.name.partition: ["2", "6", "1", "3", size[first]],
        b.name.partition: ["1", "5", "1", "2", size[b]],
    }
    assert one.mutations() == []
    assert len(rows(one)) == 11


def test_the_command_line_plans_a_mutation_and_does_nothing(two_servers, tables):
    one, _ = tables
    name = one.definition.name
    one.insert([{"id": n, "v": "x", "p": "ab"[n % 2]} for n in range(10)])
    [a] = [part for part in one.parts() if part.manifest.partition == "a"]
    [title, first, second] = rmt_mutations(two_servers, "plan", name, "DELETE WHERE id = 4")
    size = a.manifest.bytes_on_disk
    assert title == (
        f"default.{name} on r1: 1 of 10 rows match; 1 of 2 parts would be rewritten, "
        f"{size} bytes; the others only renamed"
    )
    assert first == (
        f"  partition {a.name.partition}: 1 of 5 rows match; 1 of 1 parts, {size} bytes"
    )
    assert second.endswith(": 0 of 5 rows match; 0 of 1 parts, 0 bytes")
    in_partition = rmt_mutations(two_servers, "plan", name, "DELETE IN PARTITION 'b' WHERE 1")
    assert in_partition[0].startswith(f"default.{name} on r1: 5 of 5 rows match")
    assert one.mutations() == []
    for arguments in ((name,), ("list", name), (name, "--watch"), (f"default.{name}",)):
        lines = rmt_mutations(two_servers, *arguments)
        assert lines[0] == f"default.{name} on r1: 0 unfinished, 0 finished"
        assert lines[1] == f"default.{name} on r2: 0 unfinished, 0 finished"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("nowhere",), UnknownTable, "there is no table default.nowhere on r1, r2"),
        (("--server", "r3"), UserError, "there is no server 'r3'"),
        (("plan", "nowhere", "DELETE WHERE 1"), UnknownTable, "no table default.nowhere"),
    ],
)
def test_the_command_line_names_what_there_is_not(two_servers, arguments, error, message):
    with pytest.raises(error, match=message):
        rmt_mutations(two_servers, *arguments)


def test_killing_nothing_says_so(two_servers):
    with ServerContext.open(two_servers, "r1") as server, Session(server) as session:
        done = session.execute("KILL MUTATION WHERE mutation_id = '77'")
    assert "no mutation was killed" in done.note


def test_a_replica_that_is_not_served_takes_no_mutation(tmp_path, zookeeper_server, chroot):
    config = config_at(tmp_path, zookeeper_server.hosts)
    with ServerContext.open(config, "r1") as server:
        create(config, server.keeper(), definition_of(f"{chroot}/t"))
        with pytest.raises(TableIsReadOnly, match="takes no mutations"):
            server.table("t").mutate("DELETE WHERE 1")
        replica = server.table("t").replica
        is_active = replica.paths.is_active
        replica.session.multi([Create(is_active, ephemeral=True)])
        create_mutation(replica, "DELETE WHERE 1")
        replica.session.multi([Delete(is_active)])
        [report] = server.table("t").mutations()
        assert not report.status.is_done
        assert report.status.waits_for == "default.t (replica r1) is not active"
