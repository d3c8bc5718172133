"""Every place where an action can be interrupted, one by one: dead before, during and after each
effect, each request lost, unanswered or late, each session over, the power gone, the disk full.

Adding an effect to an action adds its crash points: nobody maintains a list. `make test` strikes
with each fault at every fourth of the effects that it can hit, from another one on in each run, and
`make crash` at all of them.
"""

import os
import random

import pytest

from tests.crash.everywhere import (
    Everywhere,
    Once,
    must_survive,
    strike_after,
    strike_everywhere,
    strike_twice_everywhere,
)
from tests.crash.nursery import Nursery, struck, struck_twice
from tests.crash.scenarios import SCENARIOS, UNKNOWN_PART, Scenario
from tests.simulation import run as simulation
from tests.simulation.checkers import Finished
from tests.support.schedule import Fault, Strike
from tests.support.world import Event

EVERY = int(os.environ.get("RMT_CRASH_EVERY", "4"))
EVERY_FIRST, EVERY_SECOND = (1, 1) if EVERY == 1 else (11, 67)
PAIRS = [
    (Fault.KILL_AFTER, Fault.KILL_AFTER),
    (Fault.KILL_AFTER, Fault.LOSE_ANSWER),
    (Fault.LOSE_ANSWER, Fault.KILL_AFTER),
    (Fault.POWER_CUT, Fault.POWER_CUT),
]
TWICE = [
    "insert",
    "insert in part",
    "insert alone on two",
    "merge",
    "merge together",
    "pull and fetch",
    "mutate",
    "drop partitions",
    "carry out a drop",
    "replace partitions",
    "carry out a replacement on the follower",
    "clone",
    "join and clone",
    "start over",
    "replace a lost part",
    "take up an ALTER",
]
"""Of these, each pair of effects in `make crash`; one in some 700 in `make test`."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_promise_survives_one_fault_anywhere(nursery: Nursery, name: str) -> None:
    scenario = SCENARIOS[name]
    first = random.randrange(EVERY)  # of the seed that the run has printed
    found = nursery.ask(struck, name, every=EVERY, first=first)
    if found is None:
        return
    how, at = Fault[found[0]], found[1]
    try:
        must_survive(scenario, Strike(how, at=at, owner=scenario.owner))
    except Exception as error:
        error.add_note(f"{name}: {how}, at effect {at} of {scenario.owner}")
        raise
    pytest.fail(f"{name}: {how}, at effect {at} of {scenario.owner}, only in a fork")


@pytest.mark.parametrize(
    "pair", PAIRS, ids=lambda pair: "-".join(one.name.lower() for one in pair)
)
@pytest.mark.parametrize("name", TWICE)
def test_every_promise_survives_a_second_fault_in_the_recovery(
    nursery: Nursery, name: str, pair: tuple[Fault, Fault]
) -> None:
    """Whoever goes on after the first one, on any host."""
    scenario, (how, again) = SCENARIOS[name], pair
    turn = TWICE.index(name) + PAIRS.index(pair)
    at = nursery.ask(
        struck_twice, name, how, again, every=EVERY_FIRST, second=EVERY_SECOND, first=turn
    )
    if at is None:
        return
    then = Everywhere(again, owner="", every=EVERY_SECOND, first=turn)
    second = strike_after(scenario, Once(how, at=at, owner=scenario.owner), then).failed_at
    once = Once(how, at=at, owner=scenario.owner)
    once.then = None if second is None else Strike(again, at=second)
    words = f"{name}: {how}, at effect {at} of {scenario.owner}; then {again}, at {second}"
    try:
        must_survive(scenario, once)
    except Exception as error:
        error.add_note(words)
        raise
    pytest.fail(f"{words}, only in a fork")


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_fault_in_a_fork_is_the_same_fault(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails at one of the effects fails there, and the same as when it is played for it."""
    scenario, how = SCENARIOS["insert"], Fault.KILL_AFTER
    effects = traces(scenario, how)

    def canary(finished: Finished) -> None:
        assert told(finished.cluster.world.trace, how) != effects[number], "the canary is dead"

    monkeypatch.setattr(simulation, "CHECKERS", (*simulation.CHECKERS, canary))
    found = strike_everywhere(scenario, how)
    assert (found.failed_at, found.survived) == (number, number)
    with pytest.raises(AssertionError, match="the canary is dead"):
        must_survive(scenario, Strike(how, at=number, owner=scenario.owner))


@pytest.mark.parametrize("deaths", [1, 2])
def test_pairs_strike_twice_and_what_fails_is_found(
    deaths: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails with the second fault fails there alone; nobody dies a third time."""
    scenario, how = SCENARIOS["insert"], Fault.KILL_AFTER

    def canary(finished: Finished) -> None:
        died = [event for event in finished.cluster.world.trace if event[2] == how.value]
        assert len(died) <= deaths, "the canary is dead"

    monkeypatch.setattr(simulation, "CHECKERS", (*simulation.CHECKERS, canary))
    then = Everywhere(how, owner="", every=90, first=5)
    both = Everywhere(how, owner=scenario.owner, every=4, then=then)
    found = strike_twice_everywhere(scenario, both)
    assert (found.failed_at is None) == (deaths == 2)
    assert (found.survived > 1) == (deaths == 2)
    if deaths == 1:
        again = Everywhere(how, owner="", every=90, first=5)
        once = Once(how, at=0, owner=scenario.owner)
        assert strike_after(scenario, once, again).failed_at == 5
        once = Once(how, at=0, owner=scenario.owner)
        once.then = Strike(how, at=5)
        with pytest.raises(AssertionError, match="the canary is dead"):
            must_survive(scenario, once)


def test_every_effect_is_struck() -> None:
    """By one who strikes at all, or by three who take turns."""
    scenario, how = SCENARIOS["insert"], Fault.KILL_AFTER
    effects = len(traces(scenario, how))
    assert strike_everywhere(scenario, how).survived == effects > 10
    turns = [strike_everywhere(scenario, how, every=3, first=first) for first in range(3)]
    assert sum(turn.survived for turn in turns) == effects


def test_faults_that_strike_in_one_play_strike_where_each_does_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each at effects of its own, so that a death after one is not the death before the next."""
    scenario, all_faults, every = SCENARIOS["insert"], list(Fault), 50
    met = {}
    for how in all_faults:
        dry = Strike(how, owner=scenario.owner)
        scenario.play(dry).world.end()
        met[how] = dry.asked
    found = strike_everywhere(scenario, *all_faults, every=every)
    assert found.met == met
    assert found.failed_at is None
    assert found.survived == sum(at < met[how] for at, how in enumerate(all_faults)) > 5

    def canary(finished: Finished) -> None:
        there = {event[2] for event in finished.cluster.world.trace}
        assert Fault.EXPIRE.value not in there, "the canary is dead"

    monkeypatch.setattr(simulation, "CHECKERS", (*simulation.CHECKERS, canary))
    found = strike_everywhere(scenario, *all_faults, every=every)
    assert (found.how, found.failed_at) == (Fault.EXPIRE, all_faults.index(Fault.EXPIRE))


def traces(scenario: Scenario, how: Fault) -> list[list[Event]]:
    """What happened up to each effect that the fault can hit, played for each."""
    dry = Strike(how, owner=scenario.owner)
    scenario.play(dry).world.end()
    found = []
    for at in range(dry.asked):
        run = scenario.play(Strike(how, at=at, owner=scenario.owner))
        run.world.end()
        found.append(told(run.world.trace, how))
    return found


def told(trace: list[Event], how: Fault) -> list[Event]:
    """Everything up to the fault."""
    return trace[: 1 + next(at for at, event in enumerate(trace) if event[2] == how.value)]


def test_a_start_fetches_what_is_missing_and_sets_aside_what_nobody_promised() -> None:
    """Q1, P24. What "start over" interrupts at every point does happen."""
    run = SCENARIOS["start over"].play(Strike(Fault.KILL_BEFORE, owner="nobody"))
    try:
        detached = run.cluster.sites["r1"].host.disk.list("detached")
        assert [name for name in detached if name.endswith(UNKNOWN_PART)] == detached
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
