"""What stands under `detached/`, and whether anything would be lost with it (spec §9.12)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.layout import DetachedName
from rmt_pipeline.zookeeper.snapshot import active_parts


@dataclass(frozen=True, slots=True)
class WhyKept:
    """Whether a directory may be deleted, and why (not), in words."""

    is_safe: bool
    why: str


_FOREIGN = WhyKept(
    is_safe=False,
    why="no part can have had that name: somebody put it there, and nothing here needs it",
)


@dataclass(frozen=True, slots=True)
class DetachedDirectory:
    """What is known of one directory; None for what can't be told."""

    directory: str
    """Its name."""
    name: DetachedName | None
    """None for one that no part could have had: somebody put it there."""
    rows: int | None
    size_bytes: int
    modified_s: float
    is_safe: bool
    why: str


def detached_directories(replica: Replica) -> list[DetachedDirectory]:
    """All that stands under `detached/`, sorted by name."""
    detached = replica.store.detached_parts
    names = detached.names()
    kept = {str(name): (name, why) for name, why in (why_kept(replica, names) if names else ())}
    found = []
    for directory in detached.directories():
        name, why = kept.get(directory, (None, _FOREIGN))
        rows = None
        if name is not None:
            with suppress(Corruption):
                rows = detached.manifest(name).rows
        modified_s = detached.modified_s(directory)
        if modified_s is not None:  # else somebody has removed or attached it meanwhile
            size_bytes = detached.size_bytes(directory)
            found.append(
                DetachedDirectory(
                    directory, name, rows, size_bytes, modified_s, why.is_safe, why.why
                )
            )
    return found


def why_kept(
    replica: Replica, names: Sequence[DetachedName]
) -> list[tuple[DetachedName, WhyKept]]:
    """A directory may go when all that it can hold is in a part that this replica promises and has:
    the blocks of its name. Of what was detached by a statement that can't be said.
    """
    active = PartSet(active_parts(replica.keeper, replica.paths))
    return [(name, _why_kept(replica, active, name)) for name in names]


def _why_kept(replica: Replica, active: PartSet, name: DetachedName) -> WhyKept:
    if name.reason == "deleting":
        return WhyKept(is_safe=True, why="its removal was begun")
    if name.reason == "attaching":
        return WhyKept(
            is_safe=False,
            why="it is being attached, or who did so died: then rename it to the part's name, and "
            "ATTACH it again; what was attached already is not attached twice",
        )
    if name.reason == "tmp-fetch":
        return WhyKept(
            is_safe=True,
            why="a FETCH that has not ended brought it: the table that it is from has it; said "
            "again, the FETCH goes on with it",
        )
    if name.reason == "":
        return _why_plain_kept(replica, active, name)
    covering = active.containing(name.part)
    if covering is not None and replica.store.has(covering):
        return WhyKept(
            is_safe=True, why=f"its blocks are in {covering}, which is here and promised"
        )
    return WhyKept(
        is_safe=False, why=f"it is {name.reason}, and no part of this replica has its blocks"
    )


def _why_plain_kept(replica: Replica, active: PartSet, name: DetachedName) -> WhyKept:
    """Its name proves nothing: parts that were fetched, or copied from elsewhere, have the numbers
    of another table. That a part here has the very same rows does.
    """
    store = replica.store
    if name.part in active and store.has(name.part):
        with suppress(Corruption):
            if store.manifest(name.part).has_rows_of(store.detached_parts.manifest(name)):
                return WhyKept(
                    is_safe=True, why="the table has the same part with the same rows, promised"
                )
    return WhyKept(
        is_safe=False,
        why="a statement detached or fetched it: ATTACH brings it back, nothing else has it",
    )
