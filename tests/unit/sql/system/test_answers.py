"""What people who know the original ask system tables."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import ZooKeeperUnreachable
from rmt_pipeline.sql.run.session import Session
from tests.support.scripts import carried_out, script_session

CREATE = """CREATE TABLE t (k UInt32, d Decimal(10, 3), e DateTime64(3), s String)
    ENGINE = ReplicatedMergeTree ORDER BY k"""
# The query of the original's documentation, word for word.
PROBLEMS = """
SELECT database, table, is_leader, is_readonly, is_session_expired, future_parts, parts_to_check,
    columns_version, queue_size, inserts_in_queue, merges_in_queue, log_max_index, log_pointer,
    total_replicas, active_replicas
FROM system.replicas
WHERE is_readonly OR is_session_expired OR future_parts > 20 OR parts_to_check > 10
    OR queue_size > 20 OR inserts_in_queue > 10 OR log_max_index - log_pointer > 10
    OR total_replicas < 2 OR active_replicas < total_replicas
"""


@pytest.fixture
def session(tmp_path) -> Iterator[Session]:
    with script_session(tmp_path) as opened:
        assert carried_out(opened, CREATE).code == ""
        yield opened


def test_the_documented_look_for_problems(session: Session) -> None:
    """One replica is too few; nothing else is wrong."""
    row = "default\tt\t1\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\t1\t1"
    assert carried_out(session, PROBLEMS).text == row


def test_without_zookeeper_a_replica_has_a_row_that_says_why(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise ZooKeeperUnreachable("no ZooKeeper at 127.0.0.1:1")

    monkeypatch.setattr(ServerContext, "replica", none)
    asked = (
        "SELECT table, is_readonly, is_session_expired, replica_name, total_replicas,"
        " zookeeper_exception, replica_path = concat(zookeeper_path, '/replicas/r1')"
        " FROM system.replicas"
    )
    row = "t\t1\t1\tr1\t0\tno ZooKeeper at 127.0.0.1:1\t1"
    assert carried_out(session, asked).text == row


def test_other_names_of_columns_are_not_in_a_star(session: Session) -> None:
    assert (
        carried_out(session, "INSERT INTO t VALUES (1, 2, '2026-11-23 00:00:00.5', 'x')").code
        == ""
    )
    asked = "SELECT bytes = bytes_on_disk, part_name FROM system.parts WHERE table = 't'"
    assert carried_out(session, asked).text == "1\tall_0_0_0"
    described = carried_out(session, "DESCRIBE system.parts").text.splitlines()
    assert "bytes\tUInt64\tALIAS\tbytes_on_disk\t\t\t" in described
    starred = carried_out(session, "SELECT * FROM system.parts WHERE table = 't'").text
    plain = [line for line in described if line.split("\t")[2] != "ALIAS"]
    assert len(starred.split("\t")) == len(plain) == len(described) - 2


def test_a_table_is_known_by_its_uuid_in_every_table(session: Session) -> None:
    asked = (
        "SELECT count() FROM system.tables AS a JOIN system.replicas AS b ON a.uuid = b.uuid"
        " WHERE a.table = 't' AND a.uuid != '00000000-0000-0000-0000-000000000000'"
    )
    assert carried_out(session, asked).text == "1"
