"""Assigning merges (spec §6). Any replica may; the version of `/log` lets one of them win."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rmt_pipeline.compute.rows.computed import ttl_rules
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.background import Background, first_stopped
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import MERGE_REGULAR, MergeParts, MergeType, MutatePart
from rmt_pipeline.protocol.merges.optimize import (
    CannotMerge,
    NothingToMerge,
    OptimizeFacts,
    select_partition,
)
from rmt_pipeline.protocol.merges.predicate import MergePredicate, mergeable_runs
from rmt_pipeline.protocol.merges.selector import (
    MergeablePart,
    SelectorSettings,
    WeighedRun,
    select_weighed,
)
from rmt_pipeline.protocol.merges.ttl import TtlMerge, TtlPart, TtlSettings, select_ttl_merge
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.parts.name import PartName, merged
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.ttl import something_expired
from rmt_pipeline.replica.accounting import covered_now
from rmt_pipeline.replica.alter.apply import knows_its_ttl
from rmt_pipeline.replica.mutations.mutations import load_mutations
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica, asserting_active
from rmt_pipeline.replica.upkeep.check import is_here, manifest_here, suspect
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import cut
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused, Watch
from rmt_pipeline.zookeeper.snapshot import (
    QueueSnapshot,
    awaiting_quorum,
    committing_blocks,
    queue_snapshot,
)

RUNS_KNOWN_MORE = 100  # weighed runs to remember beyond twice the current number
GAVE_UP = "the replica gave up a part, or was cloned, since it was looked at"
OUTDATED = "another replica assigned something to the log first"


@dataclass(frozen=True, slots=True)
class Assigned:
    """A merge that is in the log now: the path of its entry, and its text, by which one can wait
    for it.
    """

    result: PartName
    sources: tuple[PartName, ...]
    log_entry: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing was assigned, with the reason. `changed` if something changed meanwhile or may soon:
    look again.
    """

    reason: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A merge that is worth it and may be assigned."""

    sources: tuple[PartName, ...]
    merge_type: MergeType


@dataclass(frozen=True, slots=True)
class MergeView:
    """What may be merged now: the predicate, the active parts, and how full the queue is."""

    predicate: MergePredicate
    active: PartSet
    mutations: Mutations
    merges_queued: int
    mutations_queued: int
    ttl_merges_queued: int
    is_lost_version: int
    """The version of `is_lost` when the log was pulled for this view; assigning asserts it."""

    @property
    def queued(self) -> int:
        return self.merges_queued + self.mutations_queued

    def with_queued(self, choice: Choice) -> "MergeView":
        """The view as if this merge were queued, as far as the queue's limits are concerned."""
        is_for_ttl = choice.merge_type != MERGE_REGULAR
        return replace(
            self,
            merges_queued=self.merges_queued + 1,
            ttl_merges_queued=self.ttl_merges_queued + is_for_ttl,
        )


def merge_view(
    replica: Replica, partitions: Sequence[str] | None = None, log_watch: Watch | None = None
) -> MergeView:
    """Read what may be merged, in the order that makes the predicate right (spec §6.2, §16.4 M2).
    The watch fires when an entry comes into the log after step 3.

    1. What the replica has and will have.
    2. Block numbers that are allocated and not committed. If a part of step 1 has a greater number
       than some block, that block's number was allocated before; so either it is listed here, or it
       is committed, and then its log entry was written before this read.
    3. The log, pulled into the queue, and what the replica has and will have now: this contains
       every block that was committed before step 2. So every number between two parts of step 1 is
       either listed in step 2 or among the parts of step 3, unless the replica was cloned, or gave
       up a part, since; the version of `is_lost` tells that. Mutations are loaded after step 2,
       too: a mutation holds its numbers until its entry exists.
    """
    keeper, memory = replica.keeper, replica.memory
    before = queue_snapshot(keeper, replica.paths, memory.queue)
    if partitions is None:
        partitions = before.parts.partitions()
    earlier = view_of(before)
    awaiting = awaiting_quorum(keeper, replica.table)
    committing = committing_blocks(keeper, replica.table, list(partitions))
    mutations = load_mutations(replica)
    pulled = pull_log(replica, log_watch, afresh=True)
    after = queue_snapshot(keeper, replica.paths, memory.queue, before=before)
    virtual = view_of(after, earlier).virtual
    entries = after.entries.values()
    predicate = MergePredicate(
        prev_virtual=earlier.virtual,
        committing=committing,
        virtual=virtual,
        mutations=mutations.versions(),
        log_version=pulled.log_version,
        awaiting_quorum=awaiting,
    )
    return MergeView(
        predicate,
        after.parts.current,
        mutations,
        sum(isinstance(entry, MergeParts) for entry in entries),
        sum(isinstance(entry, MutatePart) for entry in entries),
        sum(
            isinstance(entry, MergeParts) and entry.merge_type != MERGE_REGULAR
            for entry in entries
        ),
        pulled.is_lost_version,
    )


def view_of(snapshot: QueueSnapshot, before: QueueView | None = None) -> QueueView:
    """The rules' view of a queue that was just read: which of its entries may run now. `before` is
    the view of an earlier read, from which this one is made.
    """
    return QueueView(snapshot.entries, snapshot.claims, snapshot.parts, before)


def assign_merge(
    replica: Replica,
    view: MergeView,
    sources: Sequence[PartName],
    *,
    deduplicate: bool = False,
    deduplicate_by: tuple[str, ...] = (),
    cleanup: bool = False,
    merge_type: MergeType = MERGE_REGULAR,
) -> Assigned | Nothing:
    """Write the merge of `sources` to the log; see `assign_merges`."""
    assigned = assign_merges(
        replica,
        view,
        [Choice(tuple(sources), merge_type)],
        deduplicate=deduplicate,
        deduplicate_by=deduplicate_by,
        cleanup=cleanup,
    )
    return assigned if isinstance(assigned, Nothing) else assigned[0]


def assign_merges(
    replica: Replica,
    view: MergeView,
    choices: Sequence[Choice],
    *,
    deduplicate: bool = False,
    deduplicate_by: tuple[str, ...] = (),
    cleanup: bool = False,
) -> list[Assigned] | Nothing:
    """Write these merges to the log with one multi, unless anything was assigned since `view`. They
    have no block in common, so each is allowed whether or not the others are in the log before it.
    Those with a source that is gone are left out; so are the last ones, if all are too many for a
    multi.

    Raises OutcomeUnknown if there was no answer: the entries may exist, and a new view will show
    them; TableIsReadOnly if the replica is not active.
    Raises RowsDoNotAddUp if a result would cover rows that are in none of its sources.
    """
    parts = [part for choice in choices for part in choice.sources]
    found = replica.keeper.exists_many([replica.paths.part(part) for part in parts])
    gone = [part for part, stat in zip(parts, found, strict=True) if stat is None]
    entries = [
        MergeParts(
            create_time=int(replica.clock.now_s()),
            source_replica=replica.name,
            sources=choice.sources,
            result=merged(list(choice.sources)),
            deduplicate=deduplicate,
            deduplicate_by=deduplicate_by,
            merge_type=choice.merge_type,
            cleanup=cleanup,
        )
        for choice in choices
        if set(choice.sources).isdisjoint(gone)
    ]
    if not entries:
        return Nothing(f"{gone[0]} is not among the parts of {replica} any more", changed=True)
    for one, next_one in pairwise(sorted(entry.result for entry in entries)):
        assert one.disjoint(next_one), f"{one} and {next_one} are merged at once"
    texts = next(cut([encode(entry) for entry in entries], len, limits.MULTI_BYTES_MAX // 2))
    entries = entries[: len(texts)]
    if not covered_now(
        replica,
        entries,
        log_version=view.predicate.log_version,
        is_lost_version=view.is_lost_version,
    ):
        return Nothing(OUTDATED, changed=True)
    ops = transactions.assign(
        replica.table,
        replica.paths,
        texts,
        log_version=view.predicate.log_version,
        is_lost_version=view.is_lost_version,
    )
    try:
        with asserting_active(replica, "it assigns no merges"):
            paths_created = replica.keeper.multi(ops)[-len(texts) :]
    except Refused as refused:
        if refused.kind is RefusalKind.BAD_VERSION:
            return Nothing(outdated(replica, refused), changed=True)
        raise
    return [
        Assigned(entry.result, entry.sources, path, text)
        for entry, path, text in zip(entries, paths_created, texts, strict=True)
    ]


def outdated(replica: Replica, refused: Refused) -> str:
    """Why an assignment was refused, in words."""
    is_log = refused.path == replica.table.log
    return OUTDATED if is_log else GAVE_UP


def optimize_partition(
    replica: Replica,
    partition: str,
    *,
    final: bool,
    skip_merged: bool,
    deduplicate: bool = False,
    deduplicate_by: tuple[str, ...] = (),
    cleanup: bool = False,
) -> Assigned | Nothing:
    """Assign a merge of all active parts of a partition into one (spec §6.7). One that cleans up
    takes tombstones away, and so has to have every older version of their rows: while the
    partition has too many parts for one merge it does not (spec §16.9 E3).
    """
    stopped = first_stopped(replica.store.marks.stopped(), Background.MERGES)
    if stopped is not None:
        return Nothing(stopped)
    outcome: Assigned | Nothing = Nothing(f"partition {partition} was not looked at")
    for _ in range(limits.OPTIMIZE_ROUNDS_MAX):
        view = merge_view(replica, [partition])
        parts = view.active.in_partition(partition)
        try:
            manifests = [replica.store.manifest(part) for part in parts]
        except Corruption as error:
            is_broken = suspect(replica, error) is not None
            outcome = Nothing(f"partition {partition}: {error}", changed=True)
            if is_broken:
                return outcome  # fetched again: OPTIMIZE waits for the queue, then merges it
            continue  # it was dropped, or replaced, since it was listed
        facts = OptimizeFacts(
            sizes_bytes=[one.bytes_on_disk for one in manifests],
            disk_free_bytes=replica.store.disk.free_bytes(),
            ttl_unfinished=something_expired(
                [one.ttl for one in manifests],
                ttl_rules(replica.definition),
                int(replica.clock.now_s()),
            ),
        )
        choice = select_partition(
            parts, view.predicate, facts, final=final, skip_merged=skip_merged
        )
        if isinstance(choice, NothingToMerge):
            return Nothing(f"partition {partition}: {choice.reason}")
        if isinstance(choice, CannotMerge):
            return Nothing(f"partition {partition}: {choice.reason}", changed=True)
        some = _named_at_once(parts)
        outcome = assign_merge(
            replica,
            view,
            some,
            deduplicate=deduplicate,
            deduplicate_by=deduplicate_by,
            cleanup=cleanup and len(some) == len(parts),
        )
        if isinstance(outcome, Assigned) and len(some) < len(parts):
            return Nothing(
                f"partition {partition} has {len(parts)} parts, more than one entry of the log can "
                f"name: {len(some)} of them are merged first, into {outcome.result}",
                changed=True,
            )
        if isinstance(outcome, Assigned) or not outcome.changed:
            return outcome
    return outcome


def select_and_assign(
    replica: Replica,
    *,
    aggressive: bool,
    deduplicate: bool = False,
    deduplicate_by: tuple[str, ...] = (),
) -> Assigned | Nothing:
    """Choose the merge that is most worth it in any partition, and assign it (spec §6.1).

    `aggressive` is OPTIMIZE without FINAL: it takes less balanced ranges too.
    """
    view = merge_view(replica)
    choice = choose_merge(replica, view, aggressive=aggressive)
    if isinstance(choice, Nothing):
        return choice
    return assign_merge(
        replica,
        view,
        choice.sources,
        deduplicate=deduplicate,
        deduplicate_by=deduplicate_by,
        merge_type=choice.merge_type,
    )


def _named_at_once(parts: Sequence[PartName]) -> Sequence[PartName]:
    """The first of the parts, as many as one entry of the log can name."""
    return next(cut(parts, lambda part: len(str(part)) + 1, limits.MERGE_NAMES_BYTES_MAX))


def choose_merge(replica: Replica, view: MergeView, *, aggressive: bool) -> Choice | Nothing:
    """The merge that is most worth it, among those that are allowed. Reads only the disk."""
    chosen = choose_merges(replica, view, aggressive=aggressive, most=1)
    return chosen if isinstance(chosen, Nothing) else chosen[0]


def choose_merges(
    replica: Replica, view: MergeView, *, aggressive: bool = False, most: int
) -> list[Choice] | Nothing:
    """At most so many merges with no part in common, each of them the one that is most worth it
    once those before it are queued. Reads only the disk.
    """
    settings = selector_settings(replica, aggressive=aggressive)
    runs: list[WeighedRun] | None = None
    chosen: list[Choice] = []
    why = Nothing("")
    while len(chosen) < most:
        refused = no_room(replica, view)
        if refused is not None:
            why = refused
            break
        runs = _runs(replica, view, settings) if runs is None else runs
        choice = _choose(replica, view, runs, settings, aggressive=aggressive)
        if isinstance(choice, Nothing):
            why = choice
            break
        chosen.append(choice)
        view = view.with_queued(choice)
        if len(chosen) < most:
            runs = _without(replica, runs, choice, settings)
    return chosen or why


def no_room(replica: Replica, view: MergeView) -> Nothing | None:
    """Why no merge is assigned now, whichever it is."""
    settings = replica.settings
    stopped = first_stopped(replica.store.marks.stopped(), Background.MERGES)
    if stopped is not None:
        return Nothing(stopped)
    return queue_is_full(settings, view.queued)


def queue_is_full(settings: TableSettings, queued: float) -> Nothing | None:
    """Why neither a merge nor a mutation is assigned while so many slots are queued for."""
    most = settings.max_replicated_merges_in_queue
    if queued < most:
        return None
    return Nothing(
        f"{queued:g} merges and mutations are queued, max_replicated_merges_in_queue is {most}"
    )


def _choose(
    replica: Replica,
    view: MergeView,
    runs: list[WeighedRun],
    settings: SelectorSettings,
    *,
    aggressive: bool,
) -> Choice | Nothing:
    bytes_max = replica.size_limits().merge_bytes_max(
        used=0 if aggressive else view.queued,
        slots=replica.settings.max_replicated_merges_in_queue,
    )
    now_s = int(replica.clock.now_s())
    while True:
        due = None if aggressive else choose_ttl_merge(replica, view, runs, bytes_max)
        best = due or select_weighed(runs, settings, bytes_max, now_s)
        if best is None:
            return Nothing(f"no merge is worth it now (active parts: {len(view.active)})")
        sources = tuple(one.part for one in best.parts)
        if all(is_here(replica, part) for part in sources):
            named = tuple(_named_at_once(sources))
            return Choice(named, MERGE_REGULAR if due is None else due.merge_type)
        # Choose from other runs: the part that is not here must be fetched again first.
        runs = [run for run in runs if not set(run.parts).intersection(sources)]


def _without(
    replica: Replica, runs: Sequence[WeighedRun], choice: Choice, settings: SelectorSettings
) -> list[WeighedRun]:
    """The runs that are left when the chosen merge is queued: its sources are in none, and what is
    before them in their run does not become a neighbour of what is behind.
    """
    found: list[WeighedRun] = []
    for run in runs:
        first = choice.sources[0]
        if run.parts[0].partition != first.partition or first not in run.parts:
            found.append(run)
            continue
        begin = run.parts.index(first)
        pieces = (slice(begin), slice(begin + len(choice.sources), None))
        new = [
            WeighedRun.of(run.parts[one], run.sizes[one], run.created_s[one], settings)
            for one in pieces
            if run.parts[one]
        ]
        most = 2 * len(runs) + RUNS_KNOWN_MORE
        replica.memory.runs.learn({one.parts[0]: one for one in new}, most=most)
        found += new
    return found


def _runs(replica: Replica, view: MergeView, settings: SelectorSettings) -> list[WeighedRun]:
    """The runs of parts that may be merged, weighed. A run that was weighed before and has the same
    parts is not weighed again; manifests are read from the disk only for parts that this process
    has not read yet. Runs with a part that is not here are left out.
    """
    memory = replica.memory
    runs = mergeable_runs(view.predicate, view.active).runs
    known = memory.runs.of(run[0] for run in runs)
    found: list[WeighedRun] = []
    new: dict[PartName, WeighedRun] = {}
    for run in runs:
        weighed = known.get(run[0])
        if (
            weighed is not None
            and weighed.parts == run
            and (weighed.parts_max, weighed.window) == (settings.parts_max, settings.window)
        ):
            found.append(weighed)
            continue
        manifests = _known_manifests(replica, run)
        if manifests is not None:
            sizes = tuple(manifest.bytes_on_disk for manifest in manifests)
            created_s = tuple(manifest.created_s for manifest in manifests)
            new[run[0]] = WeighedRun.of(run, sizes, created_s, settings)
            found.append(new[run[0]])
    memory.runs.learn(new, most=2 * len(runs) + RUNS_KNOWN_MORE)
    return found


def _known_manifests(replica: Replica, run: Sequence[PartName]) -> list[Manifest] | None:
    """The manifests of the parts, as they were read last, or now. None if one of the parts is not
    here (any more).
    """
    found: list[Manifest] = []
    for part in run:
        manifest = replica.store.manifest_read(part) or manifest_here(replica, part)
        if manifest is None:
            return None
        found.append(manifest)
    return found


def choose_ttl_merge(
    replica: Replica,
    view: MergeView,
    runs: Sequence[WeighedRun],
    bytes_max: int,
) -> TtlMerge | None:
    """The TTL merge that is due and may be assigned now (spec §6.1 item 3, §13); None if there is
    none.
    """
    if ttl_limit(replica, view) or not ttl_rules(replica.definition):
        return None
    found: list[list[TtlPart]] = []
    for run in runs:  # a part may be gone since its run was weighed
        manifests = _known_manifests(replica, run.parts)
        if manifests is not None:
            found.append(list(map(ttl_part, run.parts, manifests)))
    due = select_ttl_merge(found, ttl_settings(replica, bytes_max))
    return due if due is None or knows_its_ttl(replica) else None


def ttl_limit(replica: Replica, view: MergeView) -> str:
    """Why no TTL merge may be assigned now; "" when one may."""
    most = replica.settings.max_replicated_merges_with_ttl_in_queue
    stopped = first_stopped(replica.store.marks.stopped(), Background.TTL_MERGES)
    if stopped is not None:
        return stopped
    if not replica.settings.max_number_of_merges_with_ttl_in_pool:
        return "max_number_of_merges_with_ttl_in_pool is 0: none would ever run here"
    if view.ttl_merges_queued < most:
        return ""
    return (
        f"{view.ttl_merges_queued} TTL merges are queued, max_replicated_merges_with_ttl_in_queue "
        f"is {most}"
    )


def selector_settings(replica: Replica, *, aggressive: bool = False) -> SelectorSettings:
    """The table's settings as the merge selector takes them. `aggressive`: merge whatever is
    possible, as OPTIMIZE wants.
    """
    settings = replica.settings
    return SelectorSettings(
        parts_max=settings.max_parts_to_merge_at_once,
        parts_min=settings.min_parts_to_merge_at_once,
        base=1.0 if aggressive else settings.merge_selector_base,
        window=settings.merge_selector_window_size,
        force_age_s=settings.min_age_to_force_merge_seconds,
        force_whole_partition=settings.min_age_to_force_merge_on_partition_only,
        trim_small_right=settings.merge_selector_enable_heuristic_to_remove_small_parts_at_right,
    )


def mergeable(part: PartName, manifest: Manifest, now_s: int) -> MergeablePart:
    """A part as the selector of merges sees it: its bytes, and its age in seconds."""
    return MergeablePart(part, manifest.bytes_on_disk, max(0, now_s - manifest.created_s))


def ttl_settings(replica: Replica, bytes_max: int) -> TtlSettings:
    """The table's settings and rules as the selector of TTL merges takes them."""
    settings = replica.settings
    return TtlSettings(
        rules=ttl_rules(replica.definition),
        now_s=int(replica.clock.now_s()),
        bytes_max=bytes_max,
        parts_max=settings.max_parts_to_merge_at_once,
        pause_s=settings.merge_with_ttl_timeout,
        recompression_pause_s=settings.merge_with_recompression_ttl_timeout,
        only_drop_parts=settings.ttl_only_drop_parts,
    )


def ttl_part(part: PartName, manifest: Manifest) -> TtlPart:
    """A part as the selector of TTL merges sees it: its bytes, and when its rows expire."""
    return TtlPart(part, manifest.bytes_on_disk, manifest.ttl, has_rows=manifest.rows > 0)
