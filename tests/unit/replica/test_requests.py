"""How many requests one small insert costs, its inserter and both replicas together, when each
insert is looked at alone: by who asks. The clock stands still, so these are exact.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.worker import Worker
from rmt_pipeline.system import EventWaker
from tests.support.counting import Counting
from tests.support.local_replicas import DirectPeers, Replicas

INSERTS = 40
PAUSE_S = 0.1


@pytest.fixture
def counted(replicas: Replicas) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for name in ("r1", "r2"):
        found[name] = Counter()
        replica: Any = replicas[name].keeper
        replica.session = Counting(replica.session, found[name])
    return found


def working(replicas: Replicas, name: str, pool: Pool) -> Callable[[], None]:
    """What wakes up, looks, and has done whatever it finds."""
    tools = replicas.tools()
    here = Tools(DirectPeers(replicas.stores), tools.merger, tools.mutator, lambda run: run())
    replica: Replica = replicas[name]
    worker = Worker(replica, here, pool, EventWaker(), select=False, is_endless=True)

    def turns() -> None:
        found, progress = True, False
        while found:
            look, _ = worker.turn(progress=progress)
            for batch in look.batches:
                list(worker.executor.carry_out(batch))
            found = progress = bool(look.batches)

    return turns


def test_what_a_small_insert_costs(
    replicas: Replicas, counted: dict[str, Counter[str]]
) -> None:
    loops = {
        "r1": working(replicas, "r1", "fetch"),
        "r2": working(replicas, "r2", "fetch"),
    }
    asked: dict[str, Counter[str]] = {who: Counter() for who in ("inserter", "r1", "r2")}
    for number in range(2 * INSERTS):
        if number == INSERTS:
            for found in asked.values():
                found.clear()
        for one in counted.values():
            one.clear()
        replicas.insert("r1", number)
        asked["inserter"] += counted["r1"]
        counted["r1"].clear()
        for name, turn in loops.items():
            turn()
            asked[name] += counted[name]
        replicas.clock.passed_s += PAUSE_S
    each = {who: found.total() / INSERTS for who, found in asked.items()}
    assert len(replicas.parts("r2")) == 2 * INSERTS
    assert each["inserter"] <= 2, asked["inserter"]
    assert each["r1"] <= 1.25, asked["r1"]
    assert each["r2"] <= 4.2, asked["r2"]


def test_while_a_part_is_fetched_its_own_entry_is_not_looked_at_again(
    replicas: Replicas, counted: dict[str, Counter[str]]
) -> None:
    """The watch of the queue fires for what this process has pulled, often only after its look."""
    worker = Worker(
        replicas["r2"],
        Tools(DirectPeers(replicas.stores), replicas.tools().merger, replicas.tools().mutator),
        "fetch",
        EventWaker(),
        select=False,
        is_endless=True,
    )
    worker.turn()
    replicas.insert("r1", 1)
    look, _ = worker.turn()
    [batch] = look.batches
    worker._queue.fire()
    counted["r2"].clear()
    assert not worker.turn()[0].batches
    assert not counted["r2"]
    replicas.clock.passed_s += 1
    worker.turn()
    assert counted["r2"], "another process may have added something"
    assert [done.error for done in worker.executor.carry_out(batch)] == [""]
