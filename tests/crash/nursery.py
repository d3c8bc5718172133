"""A small process whose forks are struck.

A fork copies what describes the memory of the process that it comes from, and every page that it
writes to. A worker of the test runner has read all tests and all that they need, which is several
times what a scenario needs: its forks would take longer to make than to play. So under a worker one
process is started that has read nothing else, and it forks for the tests of that worker.
"""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.crash.everywhere import Everywhere, strike_everywhere, strike_twice_everywhere
from tests.crash.scenarios import SCENARIOS
from tests.support.schedule import Fault

T = TypeVar("T")

ROOT = Path(__file__).parents[2]


def struck(name: str, *, every: int, first: int) -> tuple[str, int] | None:
    """The first fault that was not survived, if there is one, and the number of its effect."""
    found = strike_everywhere(SCENARIOS[name], *Fault, every=every, first=first)
    return None if found.failed_at is None else (found.how.name, found.failed_at)


def struck_twice(
    name: str, how: Fault, again: Fault, *, every: int, second: int, first: int
) -> int | None:
    """The same of the first of two faults; the second one strikes at one of `second` so many."""
    then = Everywhere(again, owner="", every=second, first=first)
    scenario = SCENARIOS[name]
    both = Everywhere(how, owner=scenario.owner, every=every, first=first, then=then)
    return strike_twice_everywhere(scenario, both).failed_at


ASKED: dict[str, Callable[..., Any]] = {one.__name__: one for one in (struck, struck_twice)}


class Nursery:
    """The process, which is started when it is first asked; without a worker it is this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, what: Callable[..., T], *faults: object, **numbers: int) -> T:
        """What the function answers there. What it raises there it raises here, too."""
        if "PYTEST_XDIST_WORKER" not in os.environ:
            return what(*faults, **numbers)
        words = [one.name if isinstance(one, Fault) else one for one in faults]
        answer = self._asked(json.dumps([what.__name__, words, numbers]))
        return answer["is"] if "is" in answer else what(*faults, **numbers)

    def _asked(self, line: str) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        except BaseException:
            self.close()
            raise
        if not answer:
            self.close()
        return answer

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.kill()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a scenario prints is no answer
    os.fsync = lambda descriptor: None
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        what, (name, *faults), numbers = json.loads(line)
        try:
            found = ASKED[what](name, *(Fault[one] for one in faults), **numbers)
            answer = {"is": found}
        except Exception as error:  # noqa: BLE001  raised where it was asked
            answer = {"raises": repr(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
