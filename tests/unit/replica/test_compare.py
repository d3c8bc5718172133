"""Rows of replicas, compared by the sums of their hashes in ZooKeeper."""

from dataclasses import replace

import pytest

from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.upkeep.compare import Held, compare_replicas
from tests.support.local_replicas import Replicas


def test_the_hashes_of_parts_add_up_however_they_are_merged(tmp_path) -> None:
    """Three parts on one replica are one on the other: as many rows, the same."""
    with Replicas(tmp_path) as replicas:
        parts = [replicas.insert("r1", value) for value in (1, 2, 3)]
        hashes = [replicas.stores["r1"].manifest(part).row_hash for part in parts]
        replicas.step("r2", "fetch")
        optimize_partition(replicas["r2"], "all", final=True, skip_merged=False)
        replicas.step("r2", "merge")
        found = compare_replicas(replicas["r1"])
    total = sum(hashes) % 2**128
    assert found.held == {"all": {"r1": Held(3, total), "r2": Held(1, total)}}
    assert (found.different, found.behind) == ((), ("r1",))
    missing = {"all": {"r1": Held(3, total), "r2": Held(2, sum(hashes[:2]) % 2**128)}}
    assert replace(found, held=missing).different == ("all",)


@pytest.mark.parametrize("at", ["parts", "a header"])
def test_a_replica_that_is_dropped_while_it_is_read_is_not_compared(tmp_path, at) -> None:
    with Replicas(tmp_path) as replicas:
        replicas.insert("r1", 1)
        replicas.step("r2", "fetch")
        keeper, paths = replicas["r1"].session, replicas["r2"].paths
        children_many = keeper.children_many

        def dropped(wanted):
            found = None if at == "parts" else children_many(wanted)
            if wanted == [paths.parts]:
                keeper.children_many = children_many
                drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r2")
            return found or children_many(wanted)

        keeper.children_many = dropped
        found = compare_replicas(replicas["r1"])
    assert (found.replicas, found.different, [*found.held["all"]]) == (("r1",), (), ["r1"])
