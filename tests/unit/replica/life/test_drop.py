"""A replica goes while somebody still writes below it."""

from pathlib import Path

from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from tests.support.local_replicas import Replicas
from tests.support.lost_answers import before


def test_what_is_written_below_a_replica_while_it_goes_goes_too(tmp_path: Path) -> None:
    """1. Its nodes are listed and deleted. 2. A process of it that has not heard of it yet writes
    one more. 3. ZooKeeper refuses to delete what is not empty; so they are listed again.
    """
    with Replicas(tmp_path) as replicas:
        root = replicas["r2"].paths.root
        table = replicas["r1"].table
        keeper, late = replicas.zookeeper.connect(), replicas.zookeeper.connect()
        replicas["r2"].keeper.close()

        def last_of_it(op: Op) -> bool:
            return isinstance(op, Delete) and op.path == root

        with before(keeper, last_of_it, lambda: late.multi([Create(f"{root}/late")])):
            assert not drop_replica(keeper, table, "r2")
        assert keeper.children(table.replicas) == ["r1"]
