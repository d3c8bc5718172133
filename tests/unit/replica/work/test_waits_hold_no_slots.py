"""What waits until it may be tried again takes no slot from what may run now."""

import shutil
from pathlib import Path

from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import RECOVERIES_MAX
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.local_replicas import Replicas

HERE = PartName("all", 0, 0, 0)


def test_what_nobody_can_give_now_holds_up_nothing_that_others_have(tmp_path: Path) -> None:
    """1. r3 has lost its disk. 2. More parts than it may recover at once are on a server alone that
    is away. 3. One behind them in the queue is on a server that is here.
    """
    with Replicas(tmp_path) as replicas:
        assert replicas.insert("r1", 1) == HERE
        replicas.step("r2", "fetch")
        two = replicas["r2"]
        for number in range(RECOVERIES_MAX):
            part = PartName("all", 1000 + number, 1000 + number, 0)
            entry = encode(GetPart(create_time=0, source_replica="", part=part))
            two.keeper.multi([Create(two.paths.queue_prefix, entry, sequence=True)])
        shutil.rmtree(replicas.stores["r2"].directory(HERE))
        assert check_part(two, HERE)
        executor = replicas.executor("r2", "fetch")
        executor.step(None)
        executor.step(None)
        assert str(HERE) in replicas.parts("r2")
