"""Each fault at every effect of a scenario, one by one, without playing its beginning again for
each: at each effect the process forks for each fault, it strikes in the fork, and here everything
goes on. So it is with pairs: in the fork another one strikes at every effect that follows, in forks
of the fork.
"""

import gc
import os
import warnings

from tests.crash.scenarios import Scenario
from tests.simulation import run as simulation
from tests.support.fast import remembering
from tests.support.schedule import POSSIBLE, Fault, Kind, Strike


class Everywhere(Strike):
    """Strikes at each effect that one of the faults can hit, until one fork has failed; never here.
    Or only at one of `every` so many: the first fault from the effect with the number `first` on
    (of those that it can hit), the second from the next one on, and so forth. `then` strikes in
    the forks, at what everybody does after the fault.
    """

    def __init__(
        self,
        *faults: Fault,
        owner: str,
        every: int = 1,
        first: int = 0,
        then: "Everywhere | None" = None,
    ) -> None:
        super().__init__(faults[0], owner=owner)
        self.every = every
        self.turns = {how: (first + at) % every for at, how in enumerate(faults)}
        self.met = dict.fromkeys(faults, 0)
        self.then = then
        self.is_fork = False
        self.survived = 0
        self.failed_at: int | None = None

    def fault(self, kind: Kind, owner: str) -> Fault | None:
        """`how` is the fault that has struck in this fork, or that was not survived in one."""
        if self.is_fork and self.then is not None:
            return None if self._is_calm else self.then.fault(kind, owner)
        if self.is_fork or self._is_calm or not owner.startswith(self.owner):
            return None
        for how in POSSIBLE[kind]:
            if how not in self.met or self.failed_at is not None:
                continue
            number = self.met[how]
            self.met[how] += 1
            if number % self.every == self.turns[how] and self._strikes(how, number):
                return how
        return None

    def _strikes(self, how: Fault, number: int) -> bool:
        """True in a fork; here what became of it is noted."""
        child = _fork()
        if child == 0:
            self.is_fork, self.how = True, how
            return True
        _, status = os.waitpid(child, 0)
        if status == 0:
            self.survived += 1
        else:
            self.failed_at, self.how = number, how
        return False


def _fork() -> int:
    """What a fork leaves behind goes with it: collecting it would only copy what it shares."""
    with warnings.catch_warnings():  # threads of the test runner that have no part in this
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        gc.disable()
    return child


def strike_everywhere(
    scenario: Scenario, *faults: Fault, every: int = 1, first: int = 0
) -> Everywhere:
    """What came of it: how many forks survived, and the fault and the number of the first effect
    where one did not. `must_survive` with a strike at this effect tells why.
    """
    everywhere = Everywhere(*faults, owner=scenario.owner, every=every, first=first)
    _play(scenario, everywhere, everywhere)
    return everywhere


def strike_after(scenario: Scenario, once: "Once", then: Everywhere) -> Everywhere:
    """The same of a second fault, when the first has struck at one place."""
    once.then = then
    _play(scenario, once, then)
    return then


def strike_twice_everywhere(scenario: Scenario, everywhere: Everywhere) -> Everywhere:
    """A fork survives when those survive in which `everywhere.then` struck after it."""
    _play(scenario, everywhere, everywhere)
    return everywhere


def _play(scenario: Scenario, schedule: Strike, everywhere: Everywhere) -> None:
    code = 1
    try:
        with remembering():
            run = scenario.play(schedule)
            if everywhere.is_fork:
                simulation.live_on(run)
                then = everywhere.then
                code = 0 if then is None or then.failed_at is None else 1
            run.world.end()
    finally:
        if everywhere.is_fork:
            os._exit(code)


class Once(Strike):
    """A strike, after which somebody else is asked."""

    then: Strike | None = None
    has_struck = False

    def fault(self, kind: Kind, owner: str) -> Fault | None:
        if self.has_struck:
            is_over = self._is_calm or self.then is None
            return None if is_over else self.then.fault(kind, owner)
        fault = super().fault(kind, owner)
        self.has_struck = fault is not None
        return fault


def must_survive(scenario: Scenario, schedule: Strike) -> None:
    """What the schedule does, from the beginning to the end, in this process."""
    with remembering():
        run = scenario.play(schedule)
        try:
            simulation.live_on(run)
        finally:
            run.world.end()
