"""An idle table, looked at again and again: nothing is kept of a look."""

import gc

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.replica.work.execute import Tools
from rmt_pipeline.replica.work.worker import Worker
from rmt_pipeline.system import EventWaker
from tests.support.local_replicas import DirectPeers, Replicas

TURNS = 2_000
WARM_UP = 300
OBJECTS_MAX = 200
"""More than that, and something grows with the turns. What a turn leaves in caches is bounded."""


@pytest.mark.parametrize("pool", ["fetch", "merge"])
def test_nothing_is_kept_of_thousands_of_idle_turns(tmp_path, pool) -> None:
    with Replicas(tmp_path) as replicas:
        replicas.insert("r1", 1, 2, 3)
        replica = replicas["r1"]
        tools = Tools(
            DirectPeers(replicas.stores),
            LocalMerger(replicas.clock),
            LocalMutator(replicas.clock),
        )
        worker, waker = Worker(replica, tools, pool, select=pool == "merge"), EventWaker()

        def idle(turns: int) -> tuple[int, int]:
            for _ in range(turns):
                worker.turn(waker)
                replicas.clock.passed_s += 1.0
            gc.collect()
            return len(gc.get_objects()), sum(map(len, replica.keeper._watches.values()))

        objects, watches = idle(WARM_UP)
        objects_then, watches_then = idle(TURNS)
        assert watches_then == watches
        assert objects_then - objects < OBJECTS_MAX
