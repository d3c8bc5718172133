"""A view of a queue that is made of an earlier one, compared with one that is made of nothing but
what was read.
"""

from collections.abc import Collection, Iterable, Mapping

from rmt_pipeline.protocol.log.entry import LogEntry
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.state import Lane
from rmt_pipeline.protocol.queue.view import QueueView


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
    assert [*kept.entries.items()] == [*fresh.entries.items()]
    assert kept.claims == fresh.claims
    assert (kept.current, kept.virtual) == (fresh.current, fresh.virtual)
    assert kept.future.keys() == fresh.future.keys()
    assert kept.order() == fresh.order()
    plan = fresh.plan(facts, limit, frozenset(fresh.of_lanes(*skip)), later)
    for view in (kept, fresh):
        chosen = view.choose(facts, limit, skip, later)
        assert chosen.run == plan.run
        assert sorted(chosen.done) == sorted(plan.done)
        assert {node for node, _ in chosen.wait} <= {node for node, _ in plan.wait}


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
            fresh = QueueView(entries, claims, tuple(parts))
            assert_same(self, fresh, Facts(), limit=len(entries))
