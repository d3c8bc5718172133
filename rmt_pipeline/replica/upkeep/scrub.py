"""Read parts whole, to find what a disk has damaged before a reader does: CHECK TABLE, and the
scrub.

A broken part is given up and fetched again (`check`); nothing else is changed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part, differs

Paced = Callable[[int], None]
"""Called with the number of bytes that were read; returns when more may be read."""


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """A part that was checked. `problem` is "" if every byte is as it was written, and the rows are
    the promised ones.
    """

    part: PartName
    problem: str
    size_bytes: int = 0


def checked_parts(
    replica: Replica, wanted: Callable[[PartName], bool] | None = None
) -> Iterator[CheckedPart]:
    """Read every active part (that is `wanted`) whole now, at full speed; yield also the parts that
    are broken and have not been fetched again yet. Raises what ends the session.
    """
    found = readable_parts(replica)
    for part in found.absent if wanted is None else filter(wanted, found.absent):
        problem = "it was broken or gone, and is fetched again from another replica"
        yield CheckedPart(part, problem)
    for part in found.active if wanted is None else filter(wanted, found.active):
        yield check_whole(replica, part)


def check_whole(replica: Replica, part: PartName, paced: Paced | None = None) -> CheckedPart:
    """Read a part whole, without a lock: one that is merged away meanwhile has no problem. If
    something is wrong, `check_part` looks again, and gives the part up only if it is still
    promised.
    """
    try:
        manifest = replica.store.verify_again(part, paced)
    except Corruption:
        return CheckedPart(part, check_part(replica, part) or "")
    problem = check_part(replica, part) if _is_other(replica, part) else None
    return CheckedPart(part, problem or "", manifest.bytes_on_disk)


def _is_other(replica: Replica, part: PartName) -> bool:
    """Whether the part here, though whole, is not the one that is promised under its name."""
    [promise] = replica.keeper.get_many([replica.paths.part(part)])
    return promise is not None and differs(replica, part, promise[0]) is not None


def due_parts(replica: Replica, period_s: float) -> list[PartName]:
    """Return the parts on this disk that were last read whole more than `period_s` ago, the oldest
    first.
    """
    now_s = replica.clock.now_s()
    seen = [(replica.store.verified_s(part), part) for part in replica.store.parts()]
    return [part for when_s, part in sorted(seen) if now_s - when_s >= period_s]
