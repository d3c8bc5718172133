"""Removing nodes with everything below them, while others may still write there."""

from collections.abc import Collection, Sequence

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.zookeeper.batches import refusals
from rmt_pipeline.zookeeper.keeper import Delete, Keeper, RefusalKind

TRIES_MAX = 20  # listings of one node below which another process writes while it is removed


def delete_tree(keeper: Keeper, path: str) -> None:
    """Delete a node and everything below it, as `delete_trees`."""
    delete_trees(keeper, [path])


def delete_trees(
    keeper: Keeper, paths: Sequence[str], spare: Collection[str] = ()
) -> Sequence[str]:
    """Delete these nodes, which stand beside each other, with everything below them. What is gone
    already is fine. A node that has children of all these names (`spare`) stays, with what is above
    it: return those of the nodes that stay.

    A process that has not noticed the removal may still write below them: what came after the
    listing is listed again. Raises Conflict if that does not end.

    Most nodes have nothing below them. So each is deleted before it is listed, and many at a time:
    a table has tens of thousands.
    """
    stay: list[str] = []
    todo = paths
    for _ in range(TRIES_MAX):
        todo = _not_empty(keeper, todo)
        if not todo:
            return stay
        listed = dict(zip(todo, keeper.children_many(todo), strict=True))
        spared = {one for one, names in listed.items() if _is_spared(names or (), spare)}
        below = [
            f"{one}/{name}"
            for one, names in listed.items()
            if one not in spared
            for name in names or ()
        ]
        if below:
            left = delete_trees(keeper, below, spare)
            spared.update(one.rpartition("/")[0] for one in left)
        stay += sorted(spared)
        todo = [one for one in todo if one not in spared]
        if not todo:
            return stay
    raise is_written_to(todo[0])


def _is_spared(names: Collection[str], spare: Collection[str]) -> bool:
    return bool(spare) and set(names).issuperset(spare)


def _not_empty(keeper: Keeper, paths: Sequence[str]) -> Sequence[str]:
    """Delete those of these nodes that have nothing below them, and return the others."""
    left: list[str] = []
    answers = refusals(keeper, [[Delete(path)] for path in paths])
    for path, refused in zip(paths, answers, strict=True):
        if refused is not None and refused.kind is RefusalKind.NOT_EMPTY:
            left.append(path)
        elif refused is not None and refused.kind is not RefusalKind.NO_NODE:
            raise refused
    return left


def is_written_to(path: str) -> Conflict:
    """The error for a node below which others write all the time."""
    return Conflict(f"{path} can't be removed: another process keeps writing there; try again")
