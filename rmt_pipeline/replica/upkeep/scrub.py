"""Reading parts whole, to find what a disk has lost before a reader does: CHECK TABLE, the scrub.

A part that is broken is given up and fetched again (`check`); nothing else is changed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part, differs

Paced = Callable[[int], None]
"""Told how many bytes were read; returns when more may be read."""


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """`problem` is "" when every byte is as it was written, and the rows are those promised."""

    part: PartName
    problem: str
    size_bytes: int = 0


def checked_parts(
    replica: Replica, wanted: Callable[[PartName], bool] | None = None
) -> Iterator[CheckedPart]:
    """Every active part (that is `wanted`), read whole now, at full speed; and those that are
    broken and not fetched again yet. Raises what ends the session.
    """
    found = readable_parts(replica)
    for part in found.absent if wanted is None else filter(wanted, found.absent):
        problem = "it was broken or gone, and is fetched again from another replica"
        yield CheckedPart(part, problem)
    for part in found.active if wanted is None else filter(wanted, found.active):
        yield check_whole(replica, part)


def check_whole(replica: Replica, part: PartName, paced: Paced | None = None) -> CheckedPart:
    """Read without a lock: a part that is merged away meanwhile has no problem. Whoever finds
    something wrong looks again (`check_part`), and gives it up only if it is still promised.
    """
    try:
        manifest = replica.store.verify_again(part, paced)
    except Corruption:
        return CheckedPart(part, check_part(replica, part) or "")
    problem = check_part(replica, part) if _is_other(replica, part) else None
    return CheckedPart(part, problem or "", manifest.bytes_on_disk)


def _is_other(replica: Replica, part: PartName) -> bool:
    """Whether what is promised under the name is not what is here, though it is whole."""
    [promise] = replica.keeper.get_many([replica.paths.part(part)])
    return promise is not None and differs(replica, part, promise[0]) is not None


def due_parts(replica: Replica, period_s: float) -> list[PartName]:
    """Parts on this disk that were last read whole longer ago than that, the oldest first."""
    now_s = replica.clock.now_s()
    seen = [(replica.store.verified_s(part), part) for part in replica.store.parts()]
    return [part for when_s, part in sorted(seen) if now_s - when_s >= period_s]
