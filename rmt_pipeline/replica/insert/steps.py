"""Group commit: the commits of several small inserts of one process, carried out in step.

What an insert asks of ZooKeeper and of the disk are steps: it allocates with one multi, publishes
its parts, and commits with another multi, independently of other inserts. The inserts that are
ready while a group is under way are the next group. One of their threads does the steps of all of
them, a step at a time: one request, one write of ZooKeeper's log, one sync of the disk for all.

1. If the common multi is refused, nothing was written, and each insert's own multi is sent by
   itself. So an insert that is a duplicate, or was cancelled by a DROP, does not make others fail,
   and gets the same refusal that it would have got alone.
2. If the common multi gets no answer, none of the inserts has one, and each settles its own commit
   as if it had sent it alone. A commit deletes its locks; so once one of these inserts has given
   its locks back, the common multi can't land any more, and with it none of the others' commits
   either (spec §2.6, §16.2 I4).
3. If the common sync fails, it has failed for all: an error of a disk is told once, and a second
   sync would not tell it again.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from inspect import GEN_RUNNING, getgeneratorstate
from typing import Any

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, MissingPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.part_log import PartEvent
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.batches import cut, op_bytes
from rmt_pipeline.zookeeper.keeper import Keeper, Op, Refused


@dataclass(frozen=True, slots=True)
class Send:
    """Send a multi; the result is that of `Keeper.multi`."""

    ops: Sequence[Op]

    @property
    def bytes(self) -> int:
        return sum(map(op_bytes, self.ops))


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish parts, as `PartStore.publish_all` does."""

    pairs: Sequence[tuple[StagedPart, PartName]]


@dataclass(frozen=True, slots=True)
class Note:
    """Write into the part log."""

    events: Sequence[PartEvent]


InsertStep = Send | Publish | Note
Steps = Generator[InsertStep, Any, None]
"""Yields one step after the other, and is sent the result of each, or has its error thrown in."""


class StepRefused(Exception):
    """ZooKeeper refused a step. `explain` finds out why, in the thread of the insert itself: others
    may be waiting for the steps. It returns if another round can succeed, and raises otherwise.
    """

    def __init__(self, explain: Callable[[], None]) -> None:
        super().__init__()
        self.explain = explain


@dataclass(slots=True, eq=False)
class Walk:
    """The steps of one insert under way."""

    replica: Replica
    steps: Steps
    step: InsertStep | None = None
    """The one that is to be done next; None before the first one and when all are done."""
    error: Exception | None = field(default=None, init=False)
    """The error with which the steps ended."""

    def go_on(self, result: Any = None) -> None:
        """Go on with the result of the step, or with its error."""
        try:
            if isinstance(result, Exception):
                self.step = self.steps.throw(result)
            else:
                self.step = self.steps.send(result)
        except StopIteration:
            self.step = None
        except Exception as error:  # noqa: BLE001  raised in the thread of its insert
            self.step, self.error = None, error


def in_step(replica: Replica, steps: Steps, waker: Waker | None) -> None:
    """Do all steps, alone, or with those of other inserts if the `waker` of the calling thread is
    given. Raises what the steps raise.
    """
    walk = Walk(replica, steps)
    try:
        if waker is None:
            _walk_together([walk])
        else:
            replica.memory.inserts.do(
                walk, waker, lambda one: _walk_together([one])[0], _walk_together
            )
    except BaseException as interrupted:
        # Interrupted once more while it waited for the thread that works on it: that one ends it.
        # An error thrown into steps that run may end the whole process (CPython 3.11).
        if getgeneratorstate(steps) != GEN_RUNNING:
            steps.throw(interrupted)
        raise
    if walk.error is not None:
        raise walk.error


def _walk_together(walks: Sequence[Walk]) -> Sequence[None]:
    """Do the steps of all of them; the errors are left with each."""
    for walk in walks:
        walk.go_on()
    while open_ones := [walk for walk in walks if walk.step is not None]:
        kind = type(open_ones[0].step)
        same = [walk for walk in open_ones if type(walk.step) is kind]
        for walk, result in zip(same, _results(same), strict=True):
            walk.go_on(result)
    return [None] * len(walks)


def _results(walks: Sequence[Walk]) -> Sequence[Any]:
    """Do the next step, which is of the same kind, of each. Return the results or errors."""
    steps = [walk.step for walk in walks]
    match steps[0]:
        case Send():
            return _send(walks, [one for one in steps if isinstance(one, Send)])
        case Publish():
            return _publish(
                walks[0].replica, [one for one in steps if isinstance(one, Publish)]
            )
        case _:
            events = [event for one in steps if isinstance(one, Note) for event in one.events]
            walks[0].replica.store.part_log.note(events)
            return [None] * len(walks)


def _send(walks: Sequence[Walk], steps: Sequence[Send]) -> list[list[str] | Exception]:
    """Each multi in its own session; those of the same session together."""
    results: dict[int, list[str] | Exception] = {}
    by_keeper: dict[int, list[int]] = {}
    for number, walk in enumerate(walks):
        by_keeper.setdefault(id(walk.replica.keeper), []).append(number)
    for numbers in by_keeper.values():
        keeper = walks[numbers[0]].replica.keeper
        for some in cut(numbers, lambda number: steps[number].bytes, limits.MULTI_BYTES_MAX):
            multis = [steps[number].ops for number in some]
            results |= zip(some, _together(keeper, multis), strict=True)
    return [results[number] for number in range(len(walks))]


def _together(
    keeper: Keeper, multis: Sequence[Sequence[Op]]
) -> Sequence[list[str] | Exception]:
    if len(multis) > 1:
        try:
            answer = iter(keeper.multi([op for ops in multis for op in ops]))
        except Refused:
            return keeper.multi_many(multis)
        except Exception as error:  # noqa: BLE001  each insert raises it
            return [error] * len(multis)
        return [[next(answer) for _ in ops] for ops in multis]
    try:
        return [keeper.multi(multis[0])]
    except Exception as error:  # noqa: BLE001  as above
        return [error]


def _publish(replica: Replica, steps: Sequence[Publish]) -> list[Exception | None]:
    try:
        replica.store.publish_all([pair for step in steps for pair in step.pairs])
    except Exception as error:  # noqa: BLE001  as above
        # It is the fault of one of them if the disk has taken all, which comes first.
        if len(steps) > 1 and isinstance(error, MissingPart | Conflict):
            return [found for step in steps for found in _publish(replica, [step])]
        return [error] * len(steps)
    return [None] * len(steps)
