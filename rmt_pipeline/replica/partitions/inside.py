"""What a replica has in a range of blocks that goes, and its directories once it is gone."""

from collections.abc import Sequence
from functools import partial

from rmt_pipeline.compute.stop import ask_to_stop
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import idle_ones
from rmt_pipeline.store.layout import StagedName, parse_staged


def parts_inside(
    replica: Replica, parts: Holdings, dropped: PartName, by: str
) -> tuple[PartName, ...]:
    """Promised parts in the range, or part, that goes; `by` says what takes them.

    Raises Corruption for a part that has both blocks that go and others: no history gives one.
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


def remove_unpromised(replica: Replica, parts: Sequence[PartName]) -> None:
    """The directories of parts that went. What readers hold goes with the next clean-up."""
    replica.store.remove_all(parts, partial(idle_ones, replica))


def stop_making(replica: Replica, dropped: PartName) -> None:
    """Merges and mutations that run here and make something inside, and fetches of it: nobody waits
    for them, and they end between two batches of rows, or two chunks. Whoever does not notice can't
    publish any more. What is fetched from another table is none of this one's parts yet.
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
