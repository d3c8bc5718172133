"""Cuts operations into multis that fit into a packet of ZooKeeper, and sends them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.zookeeper.keeper import Create, Keeper, Op, Refused, SetData

T = TypeVar("T")


def batches(ops: Sequence[Op], *, bytes_max: int, ops_max: int = 0) -> Iterator[Sequence[Op]]:
    """Yield `ops` in order, in batches of at most `bytes_max` bytes and `ops_max` operations (0:
    any number). A batch has at least one operation, however large.
    """
    return cut(ops, op_bytes, bytes_max, count_max=ops_max)


def cut(
    items: Sequence[T], weigh: Callable[[T], int], most: int, *, count_max: int = 0
) -> Iterator[Sequence[T]]:
    """Yield `items` in order, in pieces that weigh at most `most` and have at most `count_max`
    items (0: any number). A piece has at least one item, however heavy. An item may stand for
    several operations that must go into the same multi.
    """
    if len(items) == 1:  # whatever it weighs
        yield items
        return
    start, size = 0, 0
    for at, item in enumerate(items):
        more = weigh(item)
        full = size + more > most or (count_max and at - start >= count_max)
        if full and at > start:
            yield items[start:at]
            start, size = at, 0
        size += more
    if start < len(items):
        yield items[start:]


def op_bytes(op: Op, frame: int = limits.OP_BYTES_OVERHEAD) -> int:
    """An upper bound of the bytes that an operation takes in a request to ZooKeeper. `frame` is
    what it takes besides its path and data.
    """
    data = len(op.data) if isinstance(op, Create | SetData) else 0
    return len(op.path.encode()) + data + frame


def fit_together(ops: Iterable[Op]) -> bool:
    """Whether these operations, all that there are, fit into one multi."""
    return sum(op_bytes(op, limits.OP_FRAME_BYTES) for op in ops) <= limits.MULTI_BYTES_MAX


def refusals(keeper: Keeper, multis: Sequence[Sequence[Op]]) -> list[Refused | None]:
    """Send independent multis. Return, for each, None if it succeeded, or the refusal. Raises
    the error of the first one that got no answer.
    """
    found: list[Refused | None] = []
    for start in range(0, len(multis), limits.MULTI_OPS_MAX):
        for result in keeper.multi_many(multis[start : start + limits.MULTI_OPS_MAX]):
            if isinstance(result, Exception) and not isinstance(result, Refused):
                raise result
            found.append(result if isinstance(result, Refused) else None)
    return found


def repeat_guarded(keeper: Keeper, guard: Op, todo: Callable[[], Sequence[Op]]) -> None:
    """Send the operations that `todo` returns, each multi with `guard` as its first operation, and
    call `todo` again, until it returns none. When an operation other than the guard is refused, the
    rest is given up and `todo` is called again. Raises Refused when the guard is refused, and
    Conflict when operations are left after a fixed number of rounds.
    """
    for _ in range(limits.FORGET_ROUNDS_MAX):
        ops = todo()
        if not ops:
            return
        for batch in batches(
            ops, bytes_max=limits.MULTI_BYTES_MAX // 2, ops_max=limits.MULTI_OPS_MAX
        ):
            try:
                keeper.multi([guard, *batch])
            except Refused as refused:
                if refused.index == 0:
                    raise
                break
    raise Conflict(f"{guard.path}: the nodes that it guards keep changing; try again")
