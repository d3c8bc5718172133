"""Planted bugs, each a small change of the production code that a lane of the tests must notice.

`tests/simulation/test_mutants.py` plants them one by one. A mutant that nobody notices means that
a test is missing, or that the line is not needed: both are worth knowing.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rmt_pipeline.protocol import merge_predicate, queue, queue_rules
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.interpret import Committed, NotCommitted
from rmt_pipeline.protocol.part_set import PartSet
from rmt_pipeline.protocol.retention import LogTrim
from rmt_pipeline.replica import (
    assign,
    check,
    clean_up,
    clone,
    execute,
    fetch,
    insert,
    publish,
    pull_log,
)
from rmt_pipeline.replica import start as start_action
from rmt_pipeline.replica.insert import Insertion
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper import snapshot, transactions
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, Refused, SetData
from rmt_pipeline.zookeeper.transactions import Tagged
from tests.support import sim_rows

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """`noticed_by`: "seeds" of the simulation, or the name of a crash scenario."""

    name: str
    plant: Plant
    noticed_by: str = "seeds"

    def __str__(self) -> str:
        return self.name


def without(multi: str, unwanted: Callable[[Op], bool]) -> Plant:
    """A multi that lacks some of its operations."""
    whole = getattr(transactions, multi)

    def partial(*args: Any, **kwargs: Any) -> Any:
        made = whole(*args, **kwargs)
        if isinstance(made, Tagged):
            kept = [
                pair for pair in zip(made.ops, made.tags, strict=True) if not unwanted(pair[0])
            ]
            return Tagged(tuple(op for op, _ in kept), tuple(tag for _, tag in kept))
        return [op for op in made if not unwanted(op)]

    return lambda patch: patch.setattr(transactions, multi, partial)


def with_arguments(module: Any, name: str, change: Callable[..., tuple[Any, Any]]) -> Plant:
    """A function that is called with other arguments."""
    right = getattr(module, name)

    def wrong(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = change(args, kwargs)
        return right(*args, **kwargs)

    return lambda patch: patch.setattr(module, name, wrong)


def instead(target: Any, name: str, wrong: Any) -> Plant:
    return lambda patch: patch.setattr(target, name, wrong)


def creates(part_of_path: str) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, Create) and part_of_path in op.path


def checks(part_of_path: str) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, Check) and part_of_path in op.path


def deletes(part_of_path: str) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, Delete) and part_of_path in op.path


def any_version(multi: str, part_of_path: str) -> Plant:
    """A multi whose compare-and-set on a node compares nothing."""
    whole = getattr(transactions, multi)

    def loose(op: Op) -> Op:
        if isinstance(op, (SetData, Check)) and part_of_path in op.path:
            return replace(op, version=-1)
        return op

    def wrong(*args: Any, **kwargs: Any) -> Any:
        made = whole(*args, **kwargs)
        if isinstance(made, Tagged):
            return replace(made, ops=tuple(map(loose, made.ops)))
        return list(map(loose, made))

    return lambda patch: patch.setattr(transactions, multi, wrong)


# --- insert ---


def _unknown_is_failure(patch: pytest.MonkeyPatch) -> None:
    right = Insertion._commit_batch

    def wrong(self: Insertion, replica: Any, batch: Any, **kwargs: Any) -> Any:
        try:
            return right(self, replica, batch, **kwargs)
        except OutcomeUnknown:
            if self._committing is not None:
                self._withdraw(replica)
            raise

    patch.setattr(Insertion, "_commit_batch", wrong)


def _unknown_is_success(patch: pytest.MonkeyPatch) -> None:
    right = Insertion._commit_batch

    def wrong(self: Insertion, replica: Any, batch: Any, **kwargs: Any) -> Any:
        try:
            return right(self, replica, batch, **kwargs)
        except OutcomeUnknown:
            if self._committing is None:
                raise
            self._committed()
            return None

    patch.setattr(Insertion, "_commit_batch", wrong)


def _absence_is_proof(patch: pytest.MonkeyPatch) -> None:
    """Reads, finds nothing, and concludes that nothing will come."""

    def wrong(self: Insertion, replica: Any) -> None:
        if self._committing is None:
            return
        parts = [replica.paths.part(commit.part) for _, commit in self._committing.blocks]
        if any(stat is not None for stat in replica.keeper.exists_many(parts)):
            self._committed()
        else:
            self._withdraw(replica)

    patch.setattr(Insertion, "_settle", wrong)


def _zookeeper_before_disk(patch: pytest.MonkeyPatch) -> None:
    right = PartStore.publish_all
    waiting: list[Any] = []

    def later(self: PartStore, pairs: Any) -> None:
        waiting.append((self, pairs))

    commit = Insertion._committed

    def now(self: Insertion) -> None:
        while waiting:
            right(*waiting.pop())
        commit(self)

    patch.setattr(PartStore, "publish_all", later)
    patch.setattr(
        PartStore, "publish", lambda self, staged, part: right(self, [(staged, part)])
    )
    patch.setattr(Insertion, "_committed", now)


def _settled_as(outcome: object) -> Plant:
    return instead(insert.meaning, "settle", lambda evidence: outcome)


# --- assigning ---


def _log_before_locks(patch: pytest.MonkeyPatch) -> None:
    """The predicate's second and third reads, swapped."""
    right = assign.merge_view

    def wrong(replica: Any, partitions: Any = None) -> Any:
        early = right(replica, partitions)
        names = sorted(early.predicate.committing)
        late = snapshot.committing_blocks(replica.keeper, replica.table, names)
        return replace(early, predicate=replace(early.predicate, committing=late))

    patch.setattr(assign, "merge_view", wrong)


def _predicate_without(rule: str) -> Plant:
    return instead(merge_predicate.MergePredicate, rule, lambda self, left, right: None)


def _unpulled_is_merged(patch: pytest.MonkeyPatch) -> None:
    """What is promised may be merged again, and what was not pulled too."""
    patch.setattr(merge_predicate.MergePredicate, "may_merge_one", lambda self, part: None)


# --- following ---


def _pointer_off_by(distance: int) -> Plant:
    def change(args: Any, kwargs: Any) -> tuple[Any, Any]:
        return args, {**kwargs, "pointer": kwargs["pointer"] + distance}

    return with_arguments(transactions, "pull", change)


def _only_the_exact_part(patch: pytest.MonkeyPatch) -> None:
    right = fetch._search

    def wrong(replica: Any, part: Any) -> Any:
        found = right(replica, part)
        exact = isinstance(found, fetch.Source) and found.part == part
        return found if exact else fetch.NoReplicaHasPart(f"nobody has {part}")

    patch.setattr(fetch, "_search", wrong)


def _claims_of_what_is_gone(patch: pytest.MonkeyPatch) -> None:
    """The race that two workers of one pool found: a claim that ends while it is read."""
    without("claim", checks("/queue/"))(patch)
    patch.setattr(snapshot, "_just_ended", lambda entry: snapshot.Claim("nobody", ()))


def _leftovers_go_unasked(patch: pytest.MonkeyPatch) -> None:
    def wrong(replica: Any, node: str, part: Any, staged: Any) -> None:
        if replica.store.has(part):
            replica.store.remove(part)
        replica.store.publish(staged, part)

    patch.setattr(publish, "_onto_disk", wrong)


def _unanswered_publication_is_withdrawn(patch: pytest.MonkeyPatch) -> None:
    right = publish._landed

    def wrong(replica: Any, node: str, part: Any) -> bool:
        landed = right(replica, node, part)
        if not landed:
            replica.store.remove(part)
        return landed

    patch.setattr(publish, "_landed", wrong)


def _no_covered_entry_is_skipped(patch: pytest.MonkeyPatch) -> None:
    right = queue.QueueView.plan

    def wrong(self: Any, facts: Any, limit: int) -> Any:
        return replace(right(self, facts, limit), done=())

    patch.setattr(queue.QueueView, "plan", wrong)


def _rule_is_ignored(rule: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        ignored = getattr(queue_rules, rule)
        rules = {
            kind: tuple(one for one in those if one is not ignored)
            for kind, those in queue_rules._RULES.items()
        }
        patch.setattr(queue_rules, "_RULES", rules)

    return plant


# --- start, clone, clean up ---


def _missing_is_not_fetched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(check, "refetch", lambda replica, part: True)


def _listed_is_all_there_is(patch: pytest.MonkeyPatch) -> None:
    """What was published since the disk was listed counts as missing."""
    right = check.look_at_disk

    def wrong(replica: Any) -> Any:
        listed = tuple(replica.store.parts())
        found = right(replica)
        return replace(found, on_disk=tuple(one for one in found.on_disk if one in listed))

    patch.setattr(check, "look_at_disk", wrong)


def _everything_unknown_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    right = check.look_at_disk
    wrong = lambda replica: replace(right(replica), in_flight=frozenset())  # noqa: E731
    patch.setattr(check, "look_at_disk", wrong)
    patch.setattr(clean_up, "look_at_disk", wrong)


def _clone_lists_parts_first(patch: pytest.MonkeyPatch) -> None:
    right = clone._copy_pointer
    listed: list[Any] = []

    def early(replica: Any, source: Any) -> Any:
        listed[:] = [replica.keeper.children(source.paths.parts)]
        return right(replica, source)

    original = clone._clone

    def wrong(replica: Any, source: Any) -> Any:
        keeper = replica.keeper
        children = keeper.children

        def stale(path: str, watch: Any = None) -> list[str]:
            if path == source.paths.parts and listed:
                return list(listed.pop())
            return children(path, watch)

        keeper.children = stale
        try:
            return original(replica, source)
        finally:
            del keeper.children

    patch.setattr(clone, "_copy_pointer", early)
    patch.setattr(clone, "_clone", wrong)


def _clone_keeps_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clone, "_leave", lambda replica, known, source: ())


def _clone_is_done_too_early(patch: pytest.MonkeyPatch) -> None:
    right = clone._fill_queue

    def wrong(replica: Any, source: Any, entries: Any) -> None:
        replica.keeper.multi([SetData(replica.paths.is_lost, b"0")])
        right(replica, source, entries)

    patch.setattr(clone, "_fill_queue", wrong)


def _clone_forgets_the_queue(patch: pytest.MonkeyPatch) -> None:
    right = clone._fill_queue
    patch.setattr(
        clone,
        "_fill_queue",
        lambda replica, source, entries: right(
            replica, source, [entry for entry in entries if b"\nmerge\n" not in entry]
        ),
    )


def _never_cloned(patch: pytest.MonkeyPatch) -> None:
    def wrong(replica: Any) -> None:
        replica.keeper.multi([SetData(replica.paths.is_lost, b"0")])

    patch.setattr(start_action, "clone_if_lost", wrong)


def _active_replicas_do_not_pin(patch: pytest.MonkeyPatch) -> None:
    def wrong(entries: Any, replicas: Any, **kwargs: Any) -> LogTrim:
        return LogTrim(remove=tuple(entries[:-1]))

    patch.setattr(clean_up, "trim_log", wrong)


def _disk_before_zookeeper_on_removal(patch: pytest.MonkeyPatch) -> None:
    right = clean_up._remove_parts

    def wrong(replica: Any, parts: Any, leftovers: Any) -> Any:
        replica.store.remove_all(parts)
        return right(replica, parts, leftovers)

    patch.setattr(clean_up, "_remove_parts", wrong)


def _uncovered_parts_are_old(patch: pytest.MonkeyPatch) -> None:
    right = clean_up._old_parts

    def wrong(replica: Any) -> Any:
        found = right(replica)
        active = PartSet(
            clean_up.PartName.parse(name)
            for name in replica.keeper.children(replica.paths.parts)
        )
        return replace(found, remove=(*found.remove, *list(active)[:1]))

    patch.setattr(clean_up, "_old_parts", wrong)


# --- bytes ---


def _merge_loses_a_row(patch: pytest.MonkeyPatch) -> None:
    right = sim_rows.decode_rows
    patch.setattr(
        sim_rows,
        "decode_rows",
        lambda data: right(data)[:-1] if len(right(data)) > 2 else right(data),
    )


def _wrong_row_hash(patch: pytest.MonkeyPatch) -> None:
    right = sim_rows.manifest_of

    def wrong(*args: Any, **kwargs: Any) -> Any:
        manifest = right(*args, **kwargs)
        return replace(manifest, row_hash=manifest.row_hash ^ bool(manifest.sources))

    patch.setattr(sim_rows, "manifest_of", wrong)


def _nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartStore, "_make_safe", lambda self, parts: None)


def _names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartStore, "_sync_names", lambda self, directory="": None)


def _ignored_refusal(patch: pytest.MonkeyPatch) -> None:
    """A claim that was refused counts as taken."""
    right = execute.Executor._claim

    def wrong(self: Any, seen: Any, tasks: Any) -> bool:
        with contextlib.suppress(Refused):
            right(self, seen, tasks)
        return True

    patch.setattr(execute.Executor, "_claim", wrong)


MUTANTS: tuple[Mutant, ...] = (
    # insert
    Mutant("insert: no block id in the commit", without("commit_insert", creates("/blocks/"))),
    Mutant("insert: no record in the commit", without("commit_insert", creates("/inserts/"))),
    Mutant("insert: no log entry in the commit", without("commit_insert", creates("/log/"))),
    Mutant("insert: no part node in the commit", without("commit_insert", creates("/parts/"))),
    Mutant("insert: locks not in the commit", without("commit_insert", deletes("/block-"))),
    Mutant("insert: a lost replica takes it", without("commit_insert", checks("/is_lost"))),
    Mutant("insert: unknown taken for failure", _unknown_is_failure),
    Mutant("insert: unknown taken for success", _unknown_is_success),
    Mutant("insert: absence in a read taken for proof", _absence_is_proof),
    Mutant("insert: settled as committed, always", _settled_as(Committed())),
    Mutant("insert: settled as not committed, always", _settled_as(NotCommitted())),
    Mutant("insert: ZooKeeper told before the disk", _zookeeper_before_disk),
    # following
    Mutant("pull: pointer one too small", _pointer_off_by(-1)),
    Mutant("pull: pointer one too large", _pointer_off_by(1)),
    Mutant("pull: pointer's version not checked", any_version("pull", "/log_pointer")),
    Mutant(
        "pull: an old pointer is a hole", instead(pull_log, "_pointer_moved", lambda *_: False)
    ),
    Mutant("claim: version of executing not checked", any_version("claim", "/executing")),
    Mutant("claim: entries that are gone", _claims_of_what_is_gone),
    Mutant("claim: a refusal is ignored", _ignored_refusal),
    Mutant("publish: queue entry stays", without("publish_part", deletes("/queue/"))),
    Mutant("publish: claim stays", without("publish_part", deletes("/executing/"))),
    Mutant("publish: part node missing", without("publish_part", creates("/r1/parts/"))),
    Mutant("publish: leftovers removed unasked", _leftovers_go_unasked),
    Mutant("publish: unanswered one withdrawn", _unanswered_publication_is_withdrawn),
    Mutant("fetch: only the exact part", _only_the_exact_part),
    Mutant("queue: covered entries not skipped", _no_covered_entry_is_skipped),
    Mutant("queue: overlapping work at once", _rule_is_ignored("_produced_by_another")),
    # assigning
    Mutant("assign: version of the log not checked", any_version("assign", "/log")),
    Mutant("predicate: locks read after the log", _log_before_locks),
    Mutant("predicate: blocks in flight ignored", _predicate_without("_block_between")),
    Mutant("predicate: parts in between ignored", _predicate_without("_part_between")),
    Mutant("predicate: promised parts merged again", _unpulled_is_merged),
    # start, clone, clean up
    Mutant("start: missing parts not fetched", _missing_is_not_fetched),
    Mutant("start: the disk listed once", _listed_is_all_there_is),
    Mutant("start: work in progress set aside", _everything_unknown_is_set_aside),
    Mutant("clone: parts listed before the queue", _clone_lists_parts_first),
    Mutant("clone: keeps what the source does not know", _clone_keeps_everything),
    Mutant("clone: not lost before the queue is filled", _clone_is_done_too_early),
    Mutant("clone: merges of the source forgotten", _clone_forgets_the_queue),
    Mutant("clone: never", _never_cloned),
    Mutant("clean up: active replicas do not pin the log", _active_replicas_do_not_pin),
    Mutant("clean up: disk before ZooKeeper", _disk_before_zookeeper_on_removal),
    Mutant("clean up: an active part taken for old", _uncovered_parts_are_old),
    Mutant(
        "clean up: attempts never forgotten",
        instead(clean_up, "_finished_attempts", lambda replica: ()),
    ),
    # bytes
    Mutant("merge: a row is lost", _merge_loses_a_row),
    Mutant("merge: a wrong row hash", _wrong_row_hash),
    Mutant("store: bytes not synced", _nothing_is_synced),
    Mutant("store: names not synced", _names_are_not_synced),
)
