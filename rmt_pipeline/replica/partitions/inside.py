"""What a replica has within a range of blocks that is dropped: its parts, their directories, and
the work that is under way there.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from rmt_pipeline.compute.stop import ask_to_stop
from rmt_pipeline.protocol.errors import Corruption, RmtError
from rmt_pipeline.protocol.log.entry import LogEntry, drop_range_of
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet, contained_in
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import idle_ones
from rmt_pipeline.store.layout import StagedName, parse_staged


def parts_inside(
    replica: Replica, parts: Holdings, dropped: PartName, by: str
) -> tuple[PartName, ...]:
    """Return the promised parts within the range, or part, that is dropped. `by` names in an error
    what drops it.

    Raises Corruption for a part that has both blocks that are dropped and others: no history of the
    table leads to one.
    """
    inside: list[PartName] = []
    for part in sorted(parts.names(dropped.partition)):
        if dropped.contains(part):
            inside.append(part)
        elif not dropped.disjoint(part) and not part.contains(dropped):
            raise Corruption(
                f"{replica}: {part} has blocks that {by} drops, and others beside them: no history "
                "gives both. Nothing was dropped"
            )
    return tuple(inside)


def in_no_part(
    blocks: Iterable[PartName], parts: Sequence[PartSet], queue: Iterable[LogEntry]
) -> list[PartName]:
    """Return those of these blocks, which were all committed, that were dropped: they are in none
    of the `parts` that the replica has or will have, or in one that an entry of its queue drops.
    """
    is_dropped = contained_in(filter(None, map(drop_range_of, queue)))
    return [
        block
        for block in blocks
        if is_dropped(block) or not any(one.intersecting(block) for one in parts)
    ]


def remove_unpromised(replica: Replica, parts: Sequence[PartName]) -> None:
    """Remove the directories of parts that were dropped, as far as that is possible now: what
    readers hold, what the disk refuses to remove, or of which ZooKeeper does not say whether it may
    go, goes with the next clean-up. The drop is carried out, so no error of this is its error.
    """
    with suppress(RmtError, OSError):
        replica.store.remove_all(parts, partial(idle_ones, replica))


def stop_making(replica: Replica, dropped: PartName) -> None:
    """Ask merges, mutations and fetches under way here to stop if their part is within the range:
    the part is not needed any more. They stop between two batches of rows, or two chunks; one that
    does not notice can't publish its part any more. Fetches from another table are left alone: they
    bring none of this table's parts.
    """
    for name in replica.store.staged():
        staged = parse_staged(name)
        part = None if staged is None else PartName.try_parse(staged.hint)
        where = replica.store.staged_at(name)
        if staged is None or part is None or where is None:
            continue
        if dropped.contains(part) and _is_of_the_queue(replica, staged, name):
            ask_to_stop(where[1], f"{part} was dropped, with {dropped}, while it was made")


def _is_of_the_queue(replica: Replica, staged: StagedName, name: str) -> bool:
    if staged.kind == "fetch":
        note = replica.store.fetch_note(name)
        return note is not None and note.source_path.startswith(f"{replica.table.root}/")
    return staged.kind in ("merge", "mutate")
