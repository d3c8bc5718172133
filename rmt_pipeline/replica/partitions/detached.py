"""What is under `detached/`, and whether any rows would be lost if it were deleted (spec §9.12)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption, ReplicaDropped
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.layout import DetachedName, DetachReason
from rmt_pipeline.zookeeper.snapshot import active_parts


@dataclass(frozen=True, slots=True)
class WhyKept:
    """Whether a directory may be deleted without losing rows, and why or why not, in words."""

    is_safe: bool
    why: str


_FOREIGN = WhyKept(
    is_safe=False,
    why="no part can have had that name: somebody put it there, and nothing here needs it",
)


@dataclass(frozen=True, slots=True)
class DetachedDirectory:
    """What is known of one directory under `detached/`; None stands for what can't be told."""

    directory: str
    """The directory's name."""
    name: DetachedName | None
    """The name, parsed; None if no part could have that name: somebody put the directory there."""
    rows: int | None
    size_bytes: int
    modified_s: float
    is_safe: bool
    why: str


def detached_directories(replica: Replica) -> list[DetachedDirectory]:
    """Return everything under `detached/`, sorted by name."""
    detached = replica.store.detached_parts
    names = detached.names()
    try:
        known = why_kept(replica, names) if names else []
    except ReplicaDropped as error:
        known = [(name, WhyKept(is_safe=False, why=str(error))) for name in names]
    kept = {str(name): (name, why) for name, why in known}
    found = []
    for directory in detached.directories():
        name, why = kept.get(directory, (None, _FOREIGN))
        rows = None
        if name is not None:
            with suppress(Corruption):
                rows = detached.manifest(name).rows
        modified_s = detached.modified_s(directory)
        if modified_s is not None:  # else it was removed or attached meanwhile
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
    """Return for each directory whether it may be deleted: it may if everything that it can hold is
    in a part which this replica promises and has.

    What proves that depends on the reason in its name. A copy of a part that the table had under
    the same name (`_NAME_TELLS`) is covered by the part that has its block numbers now, unless that
    part was lost since, for an empty part takes over the name of a lost one. For anything else,
    only equal rows prove it.
    """
    active = PartSet(active_parts(replica.keeper, replica.paths))
    [lost] = replica.keeper.children_many([replica.table.lost_parts])
    told = _Told(replica, active, tuple(map(PartName.parse, lost or ())))
    return [(name, told.why_kept(name)) for name in names]


_NAME_TELLS: tuple[DetachReason, ...] = (
    "broken",
    "broken-on-start",
    "covered-by-broken",
    "merge-not-byte-identical",
    "mutate-not-byte-identical",
    "rows-do-not-add-up",
)
"""Reasons for which a copy of a part is set aside that the table had, or had got from another
replica, under the same name.
"""

_MADE_WRONG: tuple[DetachReason, ...] = _NAME_TELLS[3:]
"""Of these reasons, those that say the copy was made wrong: it is here because its rows differ."""


@dataclass(frozen=True, slots=True)
class _Told:
    replica: Replica
    active: PartSet
    lost: tuple[PartName, ...]

    def why_kept(self, name: DetachedName) -> WhyKept:
        if name.reason == "deleting":
            return WhyKept(is_safe=True, why="its removal was begun")
        if name.reason == "attaching":
            return WhyKept(
                is_safe=False,
                why="it is being attached, or who did so died: then the next ATTACH takes it; of "
                "what was attached already the server removes it soon",
            )
        if name.reason == "tmp-fetch":
            return WhyKept(
                is_safe=True,
                why="a FETCH that has not ended brought it: the table that it is from has it; said "
                "again, the FETCH goes on with it",
            )
        same_rows = self._has_same_rows(name)
        if same_rows:
            return WhyKept(
                is_safe=True,
                why=f"its rows are those of {name.part}, which is here and promised",
            )
        if name.reason in _NAME_TELLS:
            return self._why_copy_kept(name, same_rows)
        if name.reason == "":
            why = (
                "a statement detached or fetched it: ATTACH brings it back, nothing else has it"
            )
        else:
            why = f"it is {name.reason}, and nothing proves that the table has its rows"
        return WhyKept(is_safe=False, why=why)

    def _why_copy_kept(self, name: DetachedName, same_rows: bool | None) -> WhyKept:
        lost = [
            str(one) for one in self.lost if one.contains(name.part) or name.part.contains(one)
        ]
        if lost:
            return WhyKept(
                is_safe=False,
                why=f"{', '.join(lost)} was lost on all replicas: this may be all that is left",
            )
        covering = self.active.containing(name.part)
        if covering is None or not self.replica.store.has(covering):
            return WhyKept(
                is_safe=False,
                why=f"it is {name.reason}, and no part of this replica has its blocks",
            )
        if same_rows is False and name.reason not in _MADE_WRONG:
            return WhyKept(
                is_safe=False, why=f"the table's part of its name, {covering}, has other rows"
            )
        return WhyKept(
            is_safe=True, why=f"its blocks are in {covering}, which is here and promised"
        )

    def _has_same_rows(self, name: DetachedName) -> bool | None:
        """Whether the active part of the same name has the same rows. None if there is no such part
        here, or one of the two can't be read.
        """
        store = self.replica.store
        if name.part in self.active and store.has(name.part):
            with suppress(Corruption):
                mine = store.detached_parts.manifest(name)
                return store.manifest(name.part).has_rows_of(mine)
        return None
