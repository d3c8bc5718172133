"""How far a replica is behind the others."""

from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.lag import Lag, lag_of
from tests.support.local_replicas import Replicas


def test_what_others_inserted_is_as_old_as_it_is_wherever_it_waits(tmp_path: Path) -> None:
    """In the log, then in the queue, until the replica has it."""
    with Replicas(tmp_path) as replicas:
        assert lag_of(replicas["r2"]) == Lag(0, 0)
        replicas.clock.passed_s += 100
        replicas.insert("r1", 1)
        replicas.clock.passed_s += 10
        replicas.insert("r1", 2)
        replicas.clock.passed_s += 20
        assert lag_of(replicas["r2"]) == Lag(2, 30)
        pull_log(replicas["r2"])
        assert lag_of(replicas["r2"]) == Lag(0, 30)
        while replicas.step("r2", "fetch").did_something:
            pass
        assert lag_of(replicas["r2"]) == Lag(0, 0)


def test_a_replica_that_was_dropped_has_none(tmp_path: Path) -> None:
    """It may be while `system.replicas` is read: then it has no row, and the others have theirs."""
    with Replicas(tmp_path) as replicas:
        dropped = replicas["r2"]
        drop_replica(replicas["r1"].session, dropped.table, "r2")
        with pytest.raises(ReplicaDropped):
            lag_of(dropped)
