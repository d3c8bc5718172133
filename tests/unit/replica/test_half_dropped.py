"""What is left of a replica that somebody died dropping holds nobody up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.result import InsertResult, Outcome, QuorumNotReached
from rmt_pipeline.replica.mutations.mutations import (
    clean_mutations,
    finalize_mutations,
    load_mutations,
)
from rmt_pipeline.replica.quorum import clean_quorums
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.local_replicas import ROOT, Replicas

HALF = f"{ROOT}/replicas/r2"
ALONE = {"insert_quorum_parallel": "0"}


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


def half_drop(replicas: Replicas, name: str) -> None:
    """The process that drops the replica dies when `host` and `is_lost` are gone, and `parts` is
    not.
    """
    replicas.stop(name)
    paths = replicas["r1"].table.replica(name)
    replicas["r1"].keeper.multi([Delete(paths.host), Delete(paths.is_lost)])


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as opened:
        yield opened


def quorum_insert(
    replicas: Replicas, value: int = 1, at: str = "r1", **settings: str
) -> InsertResult:
    asked = {"insert_quorum": "2", "insert_quorum_timeout": "1000", **settings}
    return replicas.table(at).insert([{"n": value}], settings=asked)


def test_a_replica_whose_drop_was_cut_off_holds_nothing_for_a_duplicate(
    three: Replicas,
) -> None:
    """The rows reached their quorum on r1 and r3. Of these only r1 is still a replica when the
    insert is sent again to r2, which has yet to fetch them.
    """
    three.meanwhile.append(lambda: three.step("r3", "fetch"))
    assert quorum_insert(three).rows == 1
    half_drop(three, "r3")
    with pytest.raises(QuorumNotReached):
        quorum_insert(three, at="r2")
    three.meanwhile.append(lambda: three.step("r2", "fetch"))
    assert quorum_insert(three, at="r2").outcome is Outcome.DUPLICATE


def test_a_replica_whose_drop_was_cut_off_holds_nothing_for_the_insert_itself(
    three: Replicas,
) -> None:
    def fetch_and_go() -> None:
        three.step("r3", "fetch")
        half_drop(three, "r3")

    three.meanwhile += [fetch_and_go, lambda: three.step("r2", "fetch")]
    assert quorum_insert(three).outcome is Outcome.INSERTED
    assert three.meanwhile == [], "it did not wait for r2"


def test_rows_that_only_a_half_dropped_replica_has_are_on_too_few(three: Replicas) -> None:
    """They are not gone before its nodes are: until then they do not count as dropped."""
    assert quorum_insert(three, at="r3", insert_quorum="0").rows == 1
    half_drop(three, "r3")
    with pytest.raises(QuorumNotReached):
        quorum_insert(three)


def test_a_replica_whose_drop_was_cut_off_is_not_waited_for(three: Replicas) -> None:
    """Else no other insert that waits alone could begin until somebody finishes the drop."""
    with pytest.raises(QuorumNotReached):
        quorum_insert(three, **ALONE, insert_quorum="3")
    half_drop(three, "r3")
    assert clean_quorums(three["r1"]) == 0, "r2 has yet to fetch the rows"
    three.step("r2", "fetch")
    assert clean_quorums(three["r1"]) == 1
    three.meanwhile.append(lambda: three.step("r2", "fetch"))
    assert quorum_insert(three, 2, **ALONE).rows == 1
