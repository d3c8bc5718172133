"""Who decides what goes wrong, and when: a seed, a list of allowed faults, or one single strike.

At every effect the world asks once for a fault. `Swarm` draws its probabilities per seed, so that
some worlds never kill and some lose one message in five. Each question uses up exactly one random
number, whatever the answer: a fault is known by the number of its question, and dropping one from
a failing run (to find out whether it matters) leaves the others where they were.
"""

import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Fault(StrEnum):
    KILL_BEFORE = "process killed before"
    KILL_DURING = "process killed in the middle of"
    KILL_AFTER = "process killed after"
    POWER_CUT = "host lost its power before"
    LOSE_REQUEST = "request lost"
    LOSE_ANSWER = "answer lost"
    LATE = "request delayed"
    EXPIRE = "session expired before"
    FREEZE = "process frozen before"
    BREAK = "connection broke in"
    DISK_FULL = "disk full at"
    BAD_SECTOR = "input/output error at"
    BAD_READ = "input/output error in reading"


class Kind(StrEnum):
    """Kinds of effects, by what can go wrong with them."""

    WRITE = "zookeeper write"
    READ = "zookeeper read"
    DISK = "disk"
    SPACE = "disk space"
    PEER = "peer"
    LOOK = "disk read"


EVERYWHERE = (
    Fault.KILL_BEFORE,
    Fault.KILL_AFTER,
    Fault.POWER_CUT,
    Fault.EXPIRE,
    Fault.FREEZE,
)
POSSIBLE: dict[Kind, tuple[Fault, ...]] = {
    Kind.WRITE: (*EVERYWHERE, Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.LATE),
    Kind.READ: (*EVERYWHERE, Fault.BREAK),
    Kind.DISK: (*EVERYWHERE, Fault.KILL_DURING, Fault.BAD_SECTOR),
    Kind.SPACE: (*EVERYWHERE, Fault.KILL_DURING, Fault.DISK_FULL, Fault.BAD_SECTOR),
    Kind.PEER: (*EVERYWHERE, Fault.KILL_DURING, Fault.BREAK),
    Kind.LOOK: (Fault.BAD_READ,),
}


class Schedule(Protocol):
    rng: random.Random
    """For everything that is not a fault: who runs next, how stale a read is."""

    switch: float
    """How likely another task runs at each effect."""

    stale: float
    """How likely a read sees an older tree than it could."""

    freezes_s: tuple[float, ...]
    """How long a frozen process may stay so."""

    def fault(self, kind: Kind, owner: str) -> Fault | None:
        """Asked at each effect. `owner` is the process whose effect it is."""
        ...

    def truce(self) -> AbstractContextManager[None]:
        """No faults for a while."""
        ...

    def calm(self) -> None:
        """No more faults."""
        ...


@dataclass(slots=True)
class Swarm:
    """A random world. With `only`, just the faults with these numbers strike."""

    seed: int
    only: frozenset[int] | None = None
    rng: random.Random = field(init=False)
    switch: float = field(init=False)
    stale: float = field(init=False)
    freezes_s: tuple[float, ...] = (0.1, 0.1, 0.3, 1.0, 5.0)
    struck: list[tuple[int, Fault]] = field(init=False, default_factory=list)
    _faults: random.Random = field(init=False)
    _thresholds: dict[Kind, list[tuple[float, Fault]]] = field(init=False)
    _looks: random.Random = field(init=False)
    _asked: int = field(init=False, default=0)
    _looked: int = field(init=False, default=0)
    _is_calm: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed * 2 + 1)
        self._faults = random.Random(self.seed * 2)
        self._looks = random.Random(f"looks {self.seed}")
        draw = random.Random(f"swarm {self.seed}")
        self.switch = draw.choice((0.02, 0.1, 0.3, 0.6))
        self.stale = draw.choice((0.0, 0.0, 0.1, 0.5))
        rates = {fault: draw.choice((0.0, 0.3, 1.0)) * _RATES[fault] for fault in Fault}
        self._thresholds = {
            kind: _cumulative(rates, faults) for kind, faults in POSSIBLE.items()
        }

    def fault(self, kind: Kind, owner: str) -> Fault | None:
        del owner
        if self._is_calm:
            return None
        number, drawn = self._asks(kind)
        thresholds = self._thresholds[kind]
        if drawn >= thresholds[-1][0]:
            return None
        if self.only is not None and number not in self.only:
            return None
        fault = next(fault for threshold, fault in thresholds if drawn < threshold)
        self.struck.append((number, fault))
        return fault

    def _asks(self, kind: Kind) -> tuple[int, float]:
        """Reads of disks are counted beside all else, below 0: there are many."""
        if kind is Kind.LOOK:
            self._looked += 1
            return -self._looked, self._looks.random()
        self._asked += 1
        return self._asked - 1, self._faults.random()

    @contextmanager
    def truce(self) -> Iterator[None]:
        self._is_calm = True
        yield
        self._is_calm = False

    def calm(self) -> None:
        self._is_calm = True
        self.switch = 0.1
        self.stale = 0.0


_RATES: dict[Fault, float] = {
    Fault.KILL_BEFORE: 0.01,
    Fault.KILL_AFTER: 0.01,
    Fault.KILL_DURING: 0.02,
    Fault.POWER_CUT: 0.002,
    Fault.EXPIRE: 0.005,
    Fault.FREEZE: 0.02,
    Fault.LOSE_REQUEST: 0.06,
    Fault.LOSE_ANSWER: 0.06,
    Fault.LATE: 0.06,
    Fault.BREAK: 0.02,
    Fault.DISK_FULL: 0.01,
    Fault.BAD_SECTOR: 0.01,
    Fault.BAD_READ: 0.003,
}


def _cumulative(
    rates: dict[Fault, float], faults: Iterable[Fault]
) -> list[tuple[float, Fault]]:
    total, thresholds = 0.0, []
    for fault in faults:
        total += rates[fault]
        thresholds.append((total, fault))
    return thresholds


@dataclass(slots=True)
class Strike:
    """Exactly one fault: `how`, at the `at`-th effect that it can hit. -1: never, only count.

    `owner` limits it to the effects of processes whose name (host/process) begins with it.
    """

    how: Fault
    at: int = -1
    owner: str = ""
    asked: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    switch: float = 0.0
    stale: float = 0.0
    freezes_s: tuple[float, ...] = (5.0,)
    _is_calm: bool = False

    def fault(self, kind: Kind, owner: str) -> Fault | None:
        if self._is_calm or self.how not in POSSIBLE[kind] or not owner.startswith(self.owner):
            return None
        number = self.asked
        self.asked += 1
        return self.how if number == self.at else None

    @contextmanager
    def truce(self) -> Iterator[None]:
        self._is_calm = True
        yield
        self._is_calm = False

    def calm(self) -> None:
        self._is_calm = True
