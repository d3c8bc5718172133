"""A view of a queue that is made of an earlier one, compared with one that is made of nothing but
what was read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rmt_pipeline.protocol.log.entry import LogEntry
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.state import Lane
from rmt_pipeline.protocol.queue.view import Plan, QueueView


def assert_same(
    kept: QueueView,
    fresh: QueueView,
    facts: Facts,
    *,
    limit: int,
    skip: Collection[Lane] = (),
    later: Collection[str] = (),
) -> None:
    """Both say the same; and who chooses gets what the whole plan has."""
    assert_equal(kept, fresh)
    plan = fresh.plan(facts, limit, frozenset(fresh.of_lanes(*skip)), later)
    for view in (kept, fresh):
        assert_chooses(view, plan, facts, limit=limit, skip=skip, later=later)


def assert_equal(kept: QueueView, fresh: QueueView) -> None:
    """Both have the same queue, parts and order."""
    assert [*kept.entries.items()] == [*fresh.entries.items()]
    assert kept.claims == fresh.claims
    assert (kept.current, kept.virtual) == (fresh.current, fresh.virtual)
    assert kept.future.keys() == fresh.future.keys()
    assert kept.order() == fresh.order()


def assert_chooses(
    view: QueueView,
    plan: Plan,
    facts: Facts,
    *,
    limit: int,
    skip: Collection[Lane] = (),
    later: Collection[str] = (),
) -> None:
    chosen = view.choose(facts, limit, skip, later)
    assert chosen.run == plan.run
    assert sorted(chosen.done) == sorted(plan.done)
    assert {node for node, _ in chosen.wait} <= {node for node, _ in plan.wait}


@contextmanager
def remembering() -> Iterator[None]:
    """While it lasts, a view of what was read before is not made anew each time to compare with:
    processes of one replica look at the same queue again and again.
    """
    _seen.append({})
    try:
        yield
    finally:
        _seen.pop()


_Seen = dict[object, tuple[QueueView, Plan, object]]
_seen: list[_Seen] = []


def _planned(
    entries: Mapping[str, LogEntry], claims: Mapping[str, Claim], parts: tuple[PartName, ...]
) -> tuple[QueueView, Plan]:
    """A view of just this, and what it plans."""
    read = (*entries.values(), *claims.values())
    # Entries and claims are decoded once for all (`fast.remembering`): those with another identity
    # are others, or are looked at once more. They are kept, so that no other one gets theirs.
    key = tuple(entries), tuple(claims), tuple(map(id, read)), frozenset(parts)
    seen: _Seen = _seen[-1] if _seen else {}
    if key not in seen:
        fresh = QueueView(dict(entries), claims, parts)
        plan = fresh.plan(Facts(), len(entries))
        assert_chooses(fresh, plan, Facts(), limit=len(entries))
        seen[key] = fresh, plan, read
    fresh, plan, _ = seen[key]
    return fresh, plan


class Compared(QueueView):
    """In the place of QueueView: each that is made of an earlier one is compared."""

    __slots__ = ()

    def __init__(
        self,
        entries: Mapping[str, LogEntry],
        claims: Mapping[str, Claim],
        parts: Iterable[PartName],
        before: QueueView | None = None,
    ) -> None:
        super().__init__(entries, claims, parts, before)
        if before is not None:
            fresh, plan = _planned(entries, claims, tuple(parts))
            assert_equal(self, fresh)
            assert_chooses(self, plan, Facts(), limit=len(entries))
