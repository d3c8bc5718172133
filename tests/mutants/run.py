"""Plants each bug of the table and looks whether anybody notices: `python -m tests.mutants`."""

import argparse
import contextlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.crash.everywhere import must_survive, strike_everywhere
from tests.crash.scenarios import SCENARIOS
from tests.mutants import lines, planting
from tests.mutants.stories import tell
from tests.mutants.table import MUTANTS, Mutant
from tests.simulation import run as simulation
from tests.simulation import (
    test_scenarios,
    test_scenarios_claims,
    test_scenarios_inserts,
    test_scenarios_leaving,
    test_scenarios_merges,
    test_scenarios_threads,
)
from tests.simulation.between import Tables
from tests.simulation.watchman import Watchman
from tests.support.schedule import Fault, Strike, Swarm

SEEDS_MAX = 150
LOOKING = (Watchman, Tables)
TESTS = {
    **vars(test_scenarios),
    **vars(test_scenarios_claims),
    **vars(test_scenarios_inserts),
    **vars(test_scenarios_leaving),
    **vars(test_scenarios_merges),
    **vars(test_scenarios_threads),
}
CHECKS = ("checkers.py", "watchman.py", "between.py")
OF_THE_PLANT = (TypeError, AttributeError, NameError)


class NotPlanted(Exception):
    """What a plant puts in the place of a function does not fit where it is called."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Who noticed a mutant: `where` is a seed or a crash point, `check` the function that did."""

    where: str
    check: str
    words: str
    seed: int = 0

    @property
    def row(self) -> str:
        """For the table in docs/proof.md."""
        return f"| {self.where} | `{self.check}`"


@contextlib.contextmanager
def planted(mutant: Mutant, *, without_check: str = "") -> Iterator[None]:
    """The production code with this bug, the tests perhaps without one check."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        looking = next((one for one in LOOKING if hasattr(one, without_check)), None)
        if looking is not None:
            patch.setattr(looking, without_check, lambda *_: None)
        elif without_check:
            kept = [one for one in simulation.CHECKERS if one.__name__ != without_check]
            patch.setattr(simulation, "CHECKERS", tuple(kept))
            for name in ("nothing_is_left_behind", "on_disk_is_promised"):
                if name == without_check:
                    patch.setattr(simulation, name, lambda _: None)
        yield


def notice(mutant: Mutant, *, seeds_max: int = SEEDS_MAX) -> Notice | None:
    """The first who notices; None when nobody does."""
    with planted(mutant):
        if mutant.test:
            return _in_test(mutant.test)
        if mutant.scenario:
            return _in_scenario(mutant.scenario)
        if mutant.story:
            return _in_story(mutant.story)
        for seed in dict.fromkeys([mutant.seed or 1, *range(1, seeds_max + 1)]):
            found = at_seed(seed)
            if found is not None:
                return found
    return None


def at_seed(seed: int) -> Notice | None:
    failure = simulation.failure_of(Swarm(seed))
    return None if failure is None else _notice(f"seed {seed}", failure[0], seed)


def _in_test(name: str) -> Notice | None:
    try:
        TESTS[name]()
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  it was noticed
        return _notice(name, error)
    return None


def _in_scenario(name: str) -> Notice | None:
    scenario = SCENARIOS[name]
    for how in Fault:
        at: int | None = -1
        try:
            at = strike_everywhere(scenario, how).failed_at
            if at is not None:
                must_survive(scenario, Strike(how, at=at, owner=scenario.owner))
        except Exception as error:  # noqa: BLE001  whatever it is, it was noticed
            return _notice(f"{name}, {how} {at}", error)
    return None


def _notice(where: str, error: BaseException, seed: int = 0) -> Notice:
    """Assertions of the production code notice too: then the check is where they stand. Raises
    NotPlanted for what no check says: a bug that breaks everything proves nothing.
    """
    first: BaseException = error
    while first.__cause__ is not None:
        first = first.__cause__
    if isinstance(first, OF_THE_PLANT):
        raise NotPlanted(f"{where}: the planted bug does not fit the code: {first}") from first
    frames = traceback.extract_tb(first.__traceback__)
    checks = [frame.name for frame in frames if frame.filename.endswith(CHECKS)]
    check = checks[-1] if checks else frames[-1].name
    words = (str(error) or repr(error)).splitlines()[0][:120]
    return Notice(where, check, words, seed)


def _in_story(name: str) -> Notice | None:
    try:
        tell(name)
    except Exception as error:  # noqa: BLE001  whatever it is, it was noticed
        return _notice(name, error)
    return None


def alone(mutant: Mutant) -> Notice | None:
    """Where `only_by` notices the mutant, and nobody does once it does not look."""
    found = notice(mutant)
    if found is None or found.check != mutant.only_by:
        return None
    with planted(mutant, without_check=mutant.only_by):
        return found if _in_story(mutant.story) is None else None


def sooner(mutant: Mutant) -> Notice | None:
    """Where `first_by` notices the mutant before anybody else does."""
    found = notice(mutant)
    return found if found is not None and found.check == mutant.first_by else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; none: all")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    options = parser.parse_args()
    unlike = 0
    print("| planted bug | where | noticed by |\n|---|---|---|", flush=True)
    for mutant in _chosen(MUTANTS, options.names):
        if mutant.only_by:
            found = alone(mutant)
        elif mutant.first_by:
            found = sooner(mutant)
        else:
            found = notice(mutant, seeds_max=options.seeds)
        said = found.row if found else "| nobody | nobody"
        said += ", only" if found and mutant.only_by else ""
        unlike += found is None
        print(f"| {mutant.name} {said} |", flush=True)
    for line in _chosen(lines.MUTANTS, options.names):
        test = planting.notice(line)
        unlike += not test
        print(
            f"| {line.name} | `{test.split('::')[0]}` | `{test.split('::')[-1]}` |", flush=True
        )
    print(f"{unlike} are not noticed as they should be", file=sys.stderr)
    return 1 if unlike else 0


def _chosen(mutants: Sequence[Any], names: Sequence[str]) -> list[Any]:
    return [one for one in mutants if not names or any(name in one.name for name in names)]
