"""A replica joins while another one is about to promise a part."""

from pathlib import Path

from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import kill_mutation, load_mutations
from rmt_pipeline.zookeeper.keeper import Create, Op
from tests.support.local_replicas import Replicas
from tests.support.lost_answers import before


def rows(replicas: Replicas, name: str) -> list[int]:
    return sorted(replicas.table(name).dataset().to_table().column("n").to_pylist())


def test_who_joins_before_a_part_is_promised_has_it_with_the_same_rows(tmp_path: Path) -> None:
    """1. r1 mutates a part; no other replica has it. 2. The mutation is killed, r2 joins, and makes
    the part without it. 3. r1 must not promise what it has made.
    """
    with Replicas(tmp_path, ["r1"]) as replicas:
        replicas.insert("r1", 1, 2)
        replicas.table("r1").mutate("DELETE WHERE n = 1")
        assert assign_mutations(replicas["r1"])
        replica = replicas["r1"]
        node = replica.paths.part("all_0_0_0_1")

        def joins() -> None:
            [killed] = load_mutations(replica).entries
            kill_mutation(replica, killed)
            replicas.create("r2")
            replicas.work_off("r2")
            assert "all_0_0_0_1" in replicas.parts("r2")

        def promises(op: Op) -> bool:
            return isinstance(op, Create) and op.path == node

        with before(replica.keeper, promises, joins):
            replicas.step("r1", "merge")
        replicas.clock.passed_s += 100
        replicas.work_off()
        assert rows(replicas, "r1") == rows(replicas, "r2") == [1, 2]
