"""Every place where an action can be interrupted, one by one: dead before, during and after each
effect, each request lost, unanswered or late, each session over, the power gone, the disk full.

Adding an effect to an action adds its crash points: nobody maintains a list.
"""

import pytest

from tests.crash.scenarios import SCENARIOS, Scenario
from tests.simulation import run as simulation
from tests.support.fast import remembering
from tests.support.schedule import Fault, Strike


def count_of(scenario: Scenario, how: Fault) -> int:
    """How many effects of the scenario `how` can hit."""
    dry = Strike(how, owner=scenario.owner)
    scenario.play(dry).world.end()
    return dry.asked


def must_survive(scenario: Scenario, schedule: Strike) -> None:
    run = scenario.play(schedule)
    try:
        simulation.live_on(run)
    finally:
        run.world.end()


@pytest.mark.parametrize("how", list(Fault), ids=lambda how: how.name.lower())
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_promise_survives_one_fault_anywhere(name: str, how: Fault) -> None:
    scenario = SCENARIOS[name]
    with remembering():
        for at in range(count_of(scenario, how)):
            try:
                must_survive(scenario, Strike(how, at=at, owner=scenario.owner))
            except Exception as error:
                error.add_note(f"{name}: {how}, at effect {at} of {scenario.owner}")
                raise


def test_a_start_fetches_what_is_missing_and_sets_aside_what_nobody_promised() -> None:
    """Q1, P24. What "start over" interrupts at every point does happen."""
    run = SCENARIOS["start over"].play(Strike(Fault.KILL_BEFORE, owner="nobody"))
    try:
        detached = run.cluster.sites["r1"].host.disk.list("detached")
        assert [name for name in detached if name.endswith("a_77_77_0")] == detached
        assert len(detached) == 1
        for checker in (*simulation.CHECKERS, simulation.on_disk_is_promised):
            checker(run.finished)
    finally:
        run.world.end()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_ends_by_itself_when_nothing_goes_wrong(name: str) -> None:
    scenario = SCENARIOS[name]
    dry = Strike(Fault.KILL_BEFORE, owner=scenario.owner)
    run = scenario.play(dry)
    assert simulation.what_is_left(run.cluster, run.ledger) is None
    assert dry.asked >= 2, f"{name} has no effects to interrupt"
    run.world.end()
