"""What a session in memory is asked for, request by request."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rmt_pipeline.zookeeper.kazoo_keeper import READ_TOGETHER_MAX
from rmt_pipeline.zookeeper.keeper import Keeper, Op

KINDS = ("get", "exists", "children", "children_stat", "sync")
TOGETHER = ("get_many", "exists_many", "children_many")


class Counting:
    """A session that counts what it sends."""

    def __init__(self, session: Keeper, counted: Counter[str]) -> None:
        self._session = session
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        right = getattr(self._session, name)
        if name not in {*KINDS, *TOGETHER, "multi", "multi_many"}:
            return right

        def call(what: Any, *rest: Any, **named: Any) -> Any:
            asked = list(what) if not isinstance(what, str) else [what]
            about = str(getattr(asked[-1], "path", asked[-1])).split("/") if asked else []
            named_so = f"{name} {'/'.join(about[-2:]).rstrip('0123456789')}"
            count = len(asked)
            if name in {*KINDS, "multi"}:
                count = 1
            elif name in TOGETHER:
                count = -(-count // READ_TOGETHER_MAX)
            self._counted[named_so] += count
            return right(what, *rest, **named)

        return call


def multis_of(
    keeper: Any, before: Callable[[Sequence[Op]], object] = lambda _: None
) -> list[Sequence[Op]]:
    """Those that it sends from now on. `before` is called when one is about to be sent; what it
    sends itself is not among them.
    """
    found: list[Sequence[Op]] = []
    right = keeper.multi

    def multi(ops: Sequence[Op]) -> Any:
        keeper.multi = right
        before(ops)
        keeper.multi = multi
        found.append(ops)
        return right(ops)

    keeper.multi = multi
    return found


def once(
    act: Callable[[], object], when: Callable[[Op], bool]
) -> Callable[[Sequence[Op]], None]:
    """Before the first multi that has such an operation."""
    left = [act]

    def before(ops: Sequence[Op]) -> None:
        if left and any(map(when, ops)):
            left.pop()()

    return before
