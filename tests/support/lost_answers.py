"""Faults of single requests of a session: lost on the way there, or on the way back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from tests.support.mortal_disk import Died


def allocates(op: Op) -> bool:
    return isinstance(op, Create) and op.ephemeral and "/block_numbers/" in op.path


def unlocks(op: Op) -> bool:
    return isinstance(op, Delete) and "/block_numbers/" in op.path


def logs(op: Op) -> bool:
    return isinstance(op, Create) and "/log/log-" in op.path


@contextmanager
def faulty(
    keeper: Any,
    *hits: Callable[[Op], bool],
    landed: bool,
    error: BaseException | None = None,
    but: Callable[[Op], bool] = lambda op: False,
    times: int = 1,
    after: int = 0,
) -> Iterator[None]:
    """The first multis that have an operation of each of `hits`, and none like `but`, get no answer
    (or end in `error`); with `after`, so many of them are carried out before. `landed`: those that
    get no answer were carried out, too.
    """
    multi, left, passed = keeper.multi, [times], [after]

    def wrong(ops: Sequence[Op]) -> list[str]:
        hit = all(any(map(one, ops)) for one in hits) and not any(map(but, ops))
        if hit and passed[0]:
            passed[0] -= 1
            hit = False
        if not hit or not left[0]:
            return multi(ops)  # type: ignore[no-any-return]
        left[0] -= 1
        if landed:
            multi(ops)
        raise error or OutcomeUnknown("no answer")

    keeper.multi = wrong
    try:
        yield
    finally:
        keeper.multi = multi
    assert left[0] == 0, f"{left[0]} of {times} multis did not come"


@contextmanager
def dies_at_a_commit(
    replica: Replica, *, after: int = 0, landed: bool = False
) -> Iterator[None]:
    """Its process is killed at one, after so many others: it takes no part's name back."""
    dies = faulty(replica.session, logs, landed=landed, error=Died(), after=after)
    with dies, pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica.store, "withdraw", lambda *_: False)
        with pytest.raises(Died):
            yield


@contextmanager
def before(
    keeper: Any,
    hit: Callable[[Op], bool],
    happens: Callable[[], object],
    *,
    alone: bool = False,
) -> Iterator[None]:
    """Something happens right before the first multi that has such an operation, maybe `alone`."""
    multi, left = keeper.multi, [happens]

    def late(ops: Sequence[Op]) -> list[str]:
        if left and any(map(hit, ops)) and (len(ops) == 1 or not alone):
            left.pop()()
        return multi(ops)  # type: ignore[no-any-return]

    keeper.multi = late
    try:
        yield
    finally:
        keeper.multi = multi
    assert not left, "it did not come to that"
