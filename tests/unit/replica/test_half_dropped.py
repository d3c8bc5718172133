"""What is left of a replica that somebody died dropping holds nobody up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import (
    clean_mutations,
    finalize_mutations,
    load_mutations,
)
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.local_replicas import ROOT, Replicas

HALF = f"{ROOT}/replicas/r2"


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """DROP of r2 ended after its `host` was gone."""
    with Replicas(tmp_path) as opened:
        opened.stop("r2")
        keeper = opened["r1"].keeper
        keeper.multi([SetData(f"{HALF}/is_lost", b"1"), Delete(f"{HALF}/host")])
        opened.set(
            min_replicated_logs_to_keep=1,
            max_replicated_logs_to_keep=2,
            finished_mutations_to_keep=1,
        )
        yield opened


@pytest.mark.parametrize("also", [(), ("is_lost",), ("is_lost", "mutation_pointer")])
def test_the_log_is_trimmed(replicas: Replicas, also: tuple[str, ...]) -> None:
    for name in also:
        replicas["r1"].keeper.multi([Delete(f"{HALF}/{name}")])
    for value in range(9):
        replicas.insert("r1", value)
    replicas.step("r1", "fetch")
    cleaned = carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert cleaned.stopped_because == ""
    assert cleaned.log_entries > 0


def test_mutations_are_forgotten(replicas: Replicas) -> None:
    replicas["r1"].keeper.multi([Delete(f"{HALF}/mutation_pointer")])
    replicas.insert("r1", 1)
    replicas.step("r1", "fetch")
    table = replicas.table("r1")
    for value in (2, 3, 4):
        table.mutate(f"DELETE WHERE n = {value}")
    while not all(report.status.is_done for report in table.mutations()):
        carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
        assign_mutations(replicas["r1"])
        replicas.step("r1", "merge")
    finalize_mutations(replicas["r1"], load_mutations(replicas["r1"]))
    clean_mutations(replicas["r1"])
    assert len(replicas.zookeeper.nodes[f"{ROOT}/mutations"].children) == 1
