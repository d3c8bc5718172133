"""A replica goes while somebody still writes below it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import Conflict, UserError
from rmt_pipeline.replica.life.drop import drop_dead_replica, drop_replica, remove_leftovers
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.counting import Counting
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import Replicas, StillClock
from tests.support.lost_answers import before, faulty
from tests.support.mortal_disk import Died


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


@pytest.mark.parametrize("name", ["", "r2/parts", "r2/", "r2/queue"])
def test_what_is_no_name_of_a_replica_drops_nothing(tmp_path: Path, name: str) -> None:
    """Below a replica there are nodes that are not active; and a client of ZooKeeper takes away the
    slash at the end of a path, so that an empty name means all replicas.
    """
    with Replicas(tmp_path) as replicas:
        replicas.insert("r2", 1)
        keeper, table = Slashless(replicas.zookeeper.connect()), replicas["r1"].table
        with pytest.raises(UserError, match="it has: r1, r2"):
            drop_dead_replica(keeper, table, name)  # type: ignore[arg-type]
        assert keeper.children(table.replicas) == ["r1", "r2"]
        assert keeper.children(table.replica("r2").parts) == ["all_0_0_0"]


def test_of_two_that_drop_a_replica_one_is_told_that_the_other_is_at_it(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        table = replicas["r1"].table
        first, second = replicas.zookeeper.connect(), replicas.zookeeper.connect()
        replicas["r2"].keeper.close()
        told: list[str] = []

        def beside() -> None:
            with pytest.raises(Conflict, match="is being removed by another process") as raised:
                drop_replica(second, table, "r2")
            told.append(str(raised.value))

        def removes(op: Op) -> bool:
            return isinstance(op, Delete) and op.path == replicas["r2"].paths.root

        with before(first, removes, beside):
            assert not drop_replica(first, table, "r2")
        assert len(told) == 1
        assert second.children(table.replicas) == ["r1"]


def test_a_drop_that_failed_holds_no_lock_of_its_replica(tmp_path: Path) -> None:
    """Its session lives on; and another process goes on with the drop."""
    with Replicas(tmp_path) as replicas:
        table = replicas["r1"].table
        first, second = replicas.zookeeper.connect(), replicas.zookeeper.connect()
        replicas["r2"].keeper.close()

        def removes(op: Op) -> bool:
            return isinstance(op, Delete) and op.path.startswith(replicas["r2"].paths.root)

        with (
            faulty(first, removes, landed=False, error=Died()),
            pytest.raises(Died),
        ):
            drop_replica(first, table, "r2")
        first.strays.settle(first)  # as the session does with its next write
        assert not drop_replica(second, table, "r2")
        assert second.children(table.replicas) == ["r1"]


class Slashless:
    """Takes paths as kazoo does."""

    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self.keeper, name)

    def exists_many(self, paths: Sequence[str]) -> Any:
        return self.keeper.exists_many([path.replace("//", "/").rstrip("/") for path in paths])

    def multi(self, ops: Sequence[Op]) -> Any:
        changed = [replace(op, path=op.path.replace("//", "/").rstrip("/")) for op in ops]
        return self.keeper.multi(changed)


def test_what_one_process_removes_no_other_one_removes() -> None:
    zookeeper = FakeZooKeeper(StillClock())
    first, second, table = zookeeper.connect(), zookeeper.connect(), TablePaths("/t")
    lock = Create(table.dropped_lock, ephemeral=True)
    first.multi([Create(table.root), Create(table.dropped), lock])
    with pytest.raises(Conflict, match="is being removed by another process"):
        remove_leftovers(second, table)
    zookeeper.expire(first.session_id)
    remove_leftovers(second, table)
    assert second.exists(table.root) is None


def test_who_finds_another_replica_of_the_name_leaves_it_and_holds_nothing(
    tmp_path: Path,
) -> None:
    """Else nobody could drop that one as long as his session lives."""
    with Replicas(tmp_path) as replicas:
        table = replicas["r1"].table
        keeper = replicas.zookeeper.connect()
        drop_replica(keeper, table, "r2", made_in=1)
        assert keeper.children(table.replicas) == ["r1", "r2"]
        drop_replica(replicas.zookeeper.connect(), table, "r2")
        assert keeper.children(table.replicas) == ["r1"]


def test_many_nodes_are_removed_with_few_requests(tmp_path: Path) -> None:
    """Two for each made a DROP of a table with thousands of parts and ids hold up all that its
    server does for others.
    """
    many = 1000
    with Replicas(tmp_path, ["r1"]) as replicas:
        paths, table = replicas["r1"].paths, replicas["r1"].table
        keeper = replicas.zookeeper.connect()
        keeper.multi([Create(paths.part(f"all_{one}_{one}_0")) for one in range(many)])
        keeper.multi([Create(table.block(f"all_{one}")) for one in range(many)])
        keeper.multi([Create(table.insert(str(one))) for one in range(many)])
        keeper.multi([Create(table.insert_batch(str(one), 0)) for one in range(many)])
        counted = Counter[str]()
        assert drop_replica(Counting(keeper, counted), table, "r1")  # type: ignore[arg-type]
        assert not keeper.children("/tables")
        multis = sum(
            counts for name, counts in counted.items() if name.startswith("multi_many")
        )
        assert 4 * many < multis < 5.2 * many, "one for each node, sent together"
        assert sum(counted.values()) - multis < 200
