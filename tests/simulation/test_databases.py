"""Worlds of a Replicated database, drawn from seeds. `python -m tests.simulation --databases` runs
more.
"""

import pytest

from tests.simulation import databases
from tests.support.schedule import Swarm

SEEDS = 8
FAILED_ONCE = {
    3: "an ALTER that was carried out late took a DETACH back",
    8: "a server stayed at work on a statement that it had done",
    9: "a new server did not wait for who was away, and altered nothing",
    24: "as 8, and what was to end it had no answer",
    36: "an ALTER was noted as done by all servers, and none had carried it out",
    70: "a server told what an ALTER makes of a table before it had taken that up",
    7019: "a table was detached with an ALTER of another server still in its queue",
}


@pytest.mark.parametrize("seed", sorted({*FAILED_ONCE, *range(1, SEEDS + 1)}))
def test_every_server_ends_with_what_the_log_says_and_nobody_waits(seed: int) -> None:
    failure = databases.failure_of(Swarm(seed))
    if failure is not None:
        pytest.fail(databases.report(seed, *failure))


def trace_of(seed: int) -> list[object]:
    run = databases.lived(Swarm(seed))
    return list(run.world.trace)


def test_the_same_seed_gives_the_same_trace() -> None:
    first = trace_of(9)
    assert len(first) > databases.STORM_STEPS
    assert trace_of(9) == first
