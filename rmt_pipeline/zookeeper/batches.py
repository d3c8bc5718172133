"""Operations cut into multis that ZooKeeper takes (docs/protocol.md on packets)."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.zookeeper.keeper import Create, Keeper, Op, Refused, SetData

T = TypeVar("T")


def batches(ops: Sequence[Op], *, bytes_max: int, ops_max: int = 0) -> Iterator[Sequence[Op]]:
    """`ops` in order, each batch of at most `bytes_max` bytes and `ops_max` operations (0: any
    number), but at least one.
    """
    return cut(ops, op_bytes, bytes_max, count_max=ops_max)


def cut(
    items: Sequence[T], weigh: Callable[[T], int], most: int, *, count_max: int = 0
) -> Iterator[Sequence[T]]:
    """`items` in order, in pieces that weigh at most `most` and have at most `count_max` items (0:
    any number), but at least one: for what belongs together and goes into one multi.
    """
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
    """The most bytes that an operation takes in a request of ZooKeeper. `frame` is what it takes
    besides its path and data.
    """
    data = len(op.data) if isinstance(op, Create | SetData) else 0
    return len(op.path.encode()) + data + frame


def refusals(keeper: Keeper, multis: Sequence[Sequence[Op]]) -> list[Refused | None]:
    """Send the multis, each of which succeeds or fails by itself. For each None, or why ZooKeeper
    refused it. Raises when there was no answer.
    """
    found: list[Refused | None] = []
    for start in range(0, len(multis), limits.MULTI_OPS_MAX):
        for result in keeper.multi_many(multis[start : start + limits.MULTI_OPS_MAX]):
            if isinstance(result, Exception) and not isinstance(result, Refused):
                raise result
            found.append(result if isinstance(result, Refused) else None)
    return found


def repeat_guarded(keeper: Keeper, guard: Op, todo: Callable[[], Sequence[Op]]) -> None:
    """Carry out what there is `todo`, each multi with `guard` as its first operation, until there
    is nothing: after a refusal of another operation it is asked anew. Raises Refused when the guard
    is refused, and Conflict when others keep changing the nodes.
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
