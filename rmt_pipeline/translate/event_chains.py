"""Chains of events in the order of their times: what windowFunnel, sequenceMatch and sequenceCount
look for.

An event is its time and the conditions that it meets, as the bits of a number: bit 0 is the first.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rmt_pipeline.protocol.errors import SyntaxProblem, UserError

TimedEvent = tuple[int, int]
"""Its time, and the conditions that it meets."""

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
_STEP = re.compile(r"\(\?([0-9]+)\)|\(\?t(<=|>=|==|<|>)([0-9]+)\)|(\.\*)|(\.)")


def _met(met: int, conditions: int) -> list[int]:
    return [place for place in range(conditions) if met >> place & 1]


def longest_chain(events: Sequence[TimedEvent], window: int, conditions: int) -> int:
    """How many of the conditions were met one after the other, from the first one on, within
    `window` of the time of the first.
    """
    started: list[int | None] = [None] * conditions
    steps = ((time, place) for time, met in events for place in _met(met, conditions))
    for time, place in sorted(steps):  # of one time in the order of the conditions
        before = time if place == 0 else started[place - 1]
        if before is not None and (place == 0 or time <= before + window):
            started[place] = before
            if place + 1 == conditions:
                return conditions
    return max((place + 1 for place, one in enumerate(started) if one is not None), default=0)


@dataclass(frozen=True, slots=True)
class PatternPiece:
    """One piece of a pattern: an event that meets `condition` (0 is the first; -1 stands for any),
    or a wait, until a time that compares so to that of the piece before it, or for any time.
    """

    condition: int = -1
    is_wait: bool = False
    compares: str = ""
    duration: int = 0


@lru_cache(maxsize=64)
def pieces_of(pattern: str, conditions: int) -> tuple[PatternPiece, ...]:
    """Read a pattern: `(?1)(?t<=10).*(?2)`. Raises SyntaxProblem, UserError for a condition that is
    not there.
    """
    steps: list[PatternPiece] = []
    place = 0
    while place < len(pattern):
        found = _STEP.match(pattern, place)
        if found is None:
            raise SyntaxProblem(
                f"the pattern {pattern!r} has at {place + 1} neither (?1), (?t<=10), . nor .*"
            )
        place = found.end()
        if found[1]:
            number = int(found[1])
            if not 1 <= number <= conditions:
                raise UserError(f"(?{number}): there are {conditions} conditions")
            steps.append(PatternPiece(number - 1))
        elif found[2]:
            steps.append(PatternPiece(is_wait=True, compares=found[2], duration=int(found[3])))
        else:
            steps.append(PatternPiece(is_wait=bool(found[4])))
    return tuple(steps)


def count_matches(
    events: Sequence[TimedEvent], steps: tuple[PatternPiece, ...], most: int
) -> int:
    """How many times, `most` at most, the pattern is found, each time behind the time before.
    Events that meet no condition are not counted as events.
    """
    ordered = sorted((one for one in events if one[1]), key=lambda event: event[0])
    matcher = _Matcher(ordered, (PatternPiece(is_wait=True), *steps))
    count, place = 0, 0
    while count < most and place < len(ordered):
        end = matcher.end_from(place)
        if end is None:
            break
        count += 1
        place = max(end, place + 1)
    return count


class _Matcher:
    """Looks for a pattern. What has failed once from one place is not tried again."""

    def __init__(self, events: Sequence[TimedEvent], steps: tuple[PatternPiece, ...]) -> None:
        self._events, self._steps = events, steps
        self._failed: set[tuple[int, int, int]] = set()

    def end_from(self, place: int) -> int | None:
        """The place behind a match that begins at `place` or later; None if there is none."""
        return self._match(0, place, place)

    def _match(self, number: int, place: int, base: int) -> int | None:
        """Match the steps from `number` on. `base` is the event that waits are measured from."""
        if number == len(self._steps):
            return place
        if place >= len(self._events):
            rest = self._steps[number:]
            return place if all(one.is_wait and not one.compares for one in rest) else None
        if (number, place, base) in self._failed:
            return None
        step, found = self._steps[number], None
        if step.is_wait:
            found = self._waited(number, place, base)
        elif step.condition < 0 or self._events[place][1] >> step.condition & 1:
            found = self._match(number + 1, place + 1, place)
        if found is None:
            self._failed.add((number, place, base))
        return found

    def _waited(self, number: int, place: int, base: int) -> int | None:
        step, since = self._steps[number], self._events[base][0]
        for later in range(place, len(self._events)):
            passed = self._events[later][0] - since
            if step.compares and not _COMPARISONS[step.compares](passed, step.duration):
                if "<" in step.compares:
                    return None
                continue
            found = self._match(number + 1, later, later)
            if found is not None:
                return found
        return None
