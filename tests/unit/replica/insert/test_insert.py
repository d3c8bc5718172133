"""What an insert does with answers that do not hold any more when it looks."""

from pathlib import Path

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.replica.insert import insert
from rmt_pipeline.replica.insert.record import Known
from rmt_pipeline.replica.insert.result import InsertInPart, Outcome
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Delete
from tests.support.local_replicas import Replicas, by_tens
from tests.support.lost_answers import before, faulty, logs


@pytest.mark.parametrize("token", ["", "mine"])
def test_a_record_that_is_forgotten_before_it_is_read_makes_no_duplicate(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """1. An insert is refused, as its record is there. 2. A clean-up removes what is too old."""
    replicas.table("r1").insert([{"n": 1}], token=token)
    read = insert.read_record

    def forgotten(replica: Replica, insert_id: str) -> Known | None:
        keeper, table = replica.keeper, replica.table
        ids = [Delete(table.block(one)) for one in keeper.children(table.blocks)]
        keeper.multi([Delete(table.insert(insert_id)), *ids])
        monkeypatch.setattr(insert, "read_record", read)
        return read(replica, insert_id)

    monkeypatch.setattr(insert, "read_record", forgotten)
    result = replicas.table("r2").insert([{"n": 1}], token=token)
    assert (result.outcome, result.rows, result.duplicates) == (Outcome.INSERTED, 1, ())
    assert replicas.table("r1").insert([{"n": 1}], token=token).outcome is Outcome.DUPLICATE


def test_who_is_told_that_an_insert_is_in_part_is_told_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of no partition some rows are missing: however it is cut, the insert can be said again."""
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 1)
    rows = [{"n": 1}, {"n": 11}]
    with Replicas(tmp_path, define=by_tens) as replicas:
        lost = faulty(replicas["r1"].keeper, logs, landed=False, after=1)
        with lost, pytest.raises(InsertInPart, match="on any replica and cut in any way: only"):
            replicas.table("r1").insert(rows, settings={"insert_keeper_max_retries": "0"})
        assert replicas.table("r2").insert(rows).outcome is Outcome.RESUMED


def test_a_replica_that_is_dropped_before_the_commit_has_inserted_nothing(
    replicas: Replicas,
) -> None:
    """It ends with that, at once: nothing was sent of which the answer is not known."""
    r1 = replicas["r1"]

    def dropped() -> None:
        drop_replica(replicas.zookeeper.connect(), r1.table, "r1")

    with before(r1.keeper, logs, dropped), pytest.raises(ReplicaDropped):
        replicas.table("r1").insert([{"n": 1}])
    assert replicas.clock.passed_s < 1.0, "it was tried for long"
    assert replicas.table("r2").insert([{"n": 1}]).outcome is Outcome.INSERTED
