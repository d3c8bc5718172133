"""What happens while a part is inserted that waits for its quorum."""

from collections.abc import Sequence

import pytest

from rmt_pipeline.replica.assign.merges import Nothing
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.zookeeper.keeper import Op
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import ROOT, Replicas
from tests.support.lost_answers import logs

BRIEFLY = {"insert_quorum": "2", "insert_quorum_timeout": "1000"}


@pytest.mark.parametrize("number", range(8))
def test_a_part_that_comes_while_mutations_are_assigned_is_not_mutated(
    replicas: Replicas, number: int
) -> None:
    """P41. Its quorum may fail. Then its mutated form would stay, and the same rows, inserted
    again, would be there twice.
    """
    replica, landed = replicas["r1"], list[list[str]]()
    session = replica.session
    multi = session.multi

    def allocated_before_the_mutation_and_lands_later(ops: Sequence[Op]) -> list[str]:
        if not any(map(logs, ops)) or landed:
            return multi(ops)
        replicas.table("r1").mutate("DELETE WHERE n = 2")
        lands = BeforeRequest(session, number, lambda: landed.append(multi(ops)))
        replica.keeper.session = lands
        assert isinstance(assign_mutations(replica), Nothing)
        replica.keeper.session = session
        return landed[0] if lands.has_come else multi(ops)

    session.multi = allocated_before_the_mutation_and_lands_later
    with pytest.raises(QuorumNotReached):
        replicas.table("r1").insert([{"n": 1}], settings=BRIEFLY)
    assert set(replicas.zookeeper.nodes[f"{ROOT}/quorum/parallel"].children) == {"all_0_0_0"}
    assert isinstance(assign_mutations(replica), Nothing)
    replicas.step("r1", "fetch")
    replicas.step("r2", "fetch")
    assert not isinstance(assign_mutations(replica), Nothing)
