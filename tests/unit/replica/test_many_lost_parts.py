"""What others have queued is read once, when many parts are lost."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.missing import PeerQueues
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.local_replicas import ROOT, Replicas
from tests.unit.replica.test_lost_parts import lose


def test_what_replicas_have_queued_is_read_once_for_many_parts(tmp_path: Path) -> None:
    """And not once more for each part: of ten thousand, a clean-up read two million entries."""
    with Replicas(tmp_path) as replicas:
        parts = [replicas.insert("r1", number) for number in range(8)]
        replicas.step("r2", "fetch")
        for name in ("r1", "r2"):
            for part in parts:
                lose(replicas, name, part)
        for name in ("r1", "r2"):
            replicas.step(name, "fetch")
        keeper, read = replicas["r1"].session, Counter[str]()
        get_many = keeper.get_many

        def counted(paths: Sequence[str]) -> Any:
            read.update(path for path in paths if path.startswith(f"{ROOT}/replicas/r2/queue/"))
            return get_many(paths)

        keeper.get_many = counted
        assert replace_lost_parts(replicas["r1"]) == tuple(parts)
        assert len(read) == len(parts)
        assert set(read.values()) == {1}


def test_a_queue_that_another_replica_has_in_the_place_of_one_is_read(tmp_path: Path) -> None:
    """Its nodes are named alike."""
    with Replicas(tmp_path) as replicas:
        lose(replicas, "r1", replicas.insert("r1", 1))
        pull_log(replicas["r2"])
        queues, paths = PeerQueues(replicas["r1"]), replicas["r2"].paths
        before_it = queues.entries(paths)
        assert before_it
        replicas.create_again("r2")
        keeper = replicas.zookeeper.connect()
        for node in keeper.children(paths.queue):
            keeper.multi([Delete(paths.queue_entry(node))])
        other = GetPart(create_time=1, source_replica="", part=PartName("all", 7, 7, 0))
        for node in before_it:
            keeper.multi([Create(paths.queue_entry(node), encode(other))])
        assert [*queues.entries(paths).values()] == [other] * len(before_it)
