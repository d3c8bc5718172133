"""The pools of workers of a replica: to which one a queue entry belongs, and what each may
run now.
"""

from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
)
from functools import reduce
from typing import Literal

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.log.entry import (
    LogEntry,
    MergeParts,
    MutatePart,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.facts import Facts
from rmt_pipeline.protocol.queue.state import Lane
from rmt_pipeline.protocol.queue.view import Plan, QueueView
from rmt_pipeline.replica.alter.apply import unfinished_alters
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.single_merge import merges_awaited
from rmt_pipeline.store.manifest import Manifest

Pool = Literal["fetch", "merge"]
POOLS: tuple[Pool, ...] = ("fetch", "merge")
COMPUTING = frozenset({Lane.MERGES, Lane.MUTATIONS})
LANES: Mapping[Pool, frozenset[Lane]] = {
    "fetch": frozenset(Lane) - COMPUTING,
    "merge": COMPUTING,
}


def pool_of(entry: LogEntry) -> Pool:
    """The pool of an entry: merges and mutations compute; everything else is quick (spec §4.10)."""
    return "merge" if isinstance(entry, MergeParts | MutatePart) else "fetch"


class _Sizes(Mapping[PartName, int]):
    """The bytes on disk of this replica's parts, as far as they can be read. A part is looked at
    when it is first asked for, since of hundreds of queued merges one look considers few.
    """

    def __init__(
        self,
        replica: Replica,
        view: QueueView,
        look: Callable[[Replica, PartName], Manifest | None],
    ) -> None:
        self._replica = replica
        self._current = view.current
        self._look = look
        self._found: dict[PartName, int | None] = {}

    def __getitem__(self, part: PartName) -> int:
        if part not in self._found:
            known = self._replica.store.manifest_read
            manifest = None
            if part in self._current:
                manifest = known(part) or self._look(self._replica, part)
            self._found[part] = None if manifest is None else manifest.bytes_on_disk
        size = self._found[part]
        if size is None:
            raise KeyError(part)
        return size

    def __iter__(self) -> Iterator[PartName]:
        return (part for part in self._current if part in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def queue_facts(
    replica: Replica,
    view: QueueView,
    look: Callable[[Replica, PartName], Manifest | None],
    *,
    merging: bool = True,
) -> Facts:
    """What this replica knows that is not in the queue itself: the sizes of the parts that its
    merges and mutations read; the slots that claimed entries take; which merges other replicas
    make.

    `look` (usually `manifest_here`) is asked for parts of which this process has no manifest; a
    worker looks for the others, too, before it takes up a merge. With `merging=False` sizes are
    left out and it is not asked which replica makes a merge, since no merge will be planned.
    """
    claimed = [view.entries[node] for node in view.claims if node in view.entries]
    computed = view.of_lanes(*COMPUTING) if merging else {}
    unclaimed = (entry for node, entry in sorted(computed.items()) if node not in view.claims)
    facts = Facts(
        ttl_merges_max=replica.settings.max_number_of_merges_with_ttl_in_pool,
        size_limits=replica.size_limits(),
        sizes=_Sizes(replica, view, look) if merging else {},
        merges_elsewhere=merges_awaited(replica, unclaimed) if merging else {},
        unfinished_alters=unfinished_alters(replica, view),
        stopped=replica.store.marks.stopped(),
    )
    return reduce(Facts.with_running, claimed, facts)


def plan_of_pool(view: QueueView, facts: Facts, pool: Pool) -> Plan:
    """The plan for workers of this pool; it also has entries that other pools can run.

    Merges wait for fetches that come before them, but no fetch waits for a merge that has not
    begun: the merge may lack the very part that is to be fetched again.
    """
    skip = frozenset(view.of_lanes(*COMPUTING)) if pool == "fetch" else frozenset()
    return view.plan(facts, limits.ENTRIES_PER_STEP_MAX, skip)


def choose_of_pool(
    view: QueueView, facts: Facts, pool: Pool, later: Collection[str] = ()
) -> Plan:
    """The entries that `plan_of_pool` would run or finds done, for a worker that carries them out:
    why each of the others waits is not worked out. `later` is as for `QueueView.plan`.
    """
    skip = COMPUTING if pool == "fetch" else frozenset()
    return view.choose(facts, limits.ENTRIES_PER_STEP_MAX, skip, later)
