"""Rows of replicas, compared by the sums of their hashes in ZooKeeper."""

from dataclasses import replace

from rmt_pipeline.replica.assign.merges import optimize_partition
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
