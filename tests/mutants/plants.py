"""How bugs are planted: each takes a MonkeyPatch and makes the production code a little wrong."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rmt_pipeline.protocol import restoring
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.merges import predicate as merge_predicate
from rmt_pipeline.protocol.queue import rules as queue_rules
from rmt_pipeline.protocol.queue import view as queue
from rmt_pipeline.protocol.restoring import GivenUp, Promised, United
from rmt_pipeline.replica import fetch, finish, publish, publish_batch, quorum
from rmt_pipeline.replica.assign import merges as assign
from rmt_pipeline.replica.insert import insert
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.quorum import Counted
from rmt_pipeline.replica.work import carry
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper import snapshot, transactions
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.known import KnownEntries
from rmt_pipeline.zookeeper.strays import Strays
from rmt_pipeline.zookeeper.through import BoundKeeper
from rmt_pipeline.zookeeper.transactions import Tagged

Plant = Callable[[pytest.MonkeyPatch], None]


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


def no_block_is_known_to_be_there_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restoring, "_repeats", lambda *_: {})


def unite_without_mutated_parts(held: Promised, *rest: Any) -> United:
    kept = {
        replica: {part: header for part, header in parts.items() if not part.mutation}
        for replica, parts in held.items()
    }
    mutated = tuple(
        GivenUp(replica, part, "it was mutated")
        for replica, parts in held.items()
        for part in parts
        if part.mutation
    )
    united = restoring.unite(kept, *rest)
    return replace(united, given_up=united.given_up + mutated)


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


# --- what threads share ---


class _Shared:
    """Entries that are looked up each time in what all threads know."""

    def __init__(self, names: Sequence[str], known: KnownEntries) -> None:
        self._names = names
        self._known = known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._known.of(self._names), name)

    def __len__(self) -> int:
        return len(self._known.of(self._names))

    def __contains__(self, name: str) -> bool:
        return name in self._known.of(self._names)

    def __getitem__(self, name: str) -> Any:
        return self._known.of(self._names)[name]


def entries_are_shared(patch: pytest.MonkeyPatch) -> None:
    right = snapshot._entries

    def wrong(
        keeper: Any, replica: Any, names: Sequence[str], known: KnownEntries, _: Any = None
    ) -> Any:
        right(keeper, replica, names, known)
        return _Shared(names, known)

    patch.setattr(snapshot, "_entries", wrong)


def parts_listed_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot.Listed, "at", lambda listed, *_: listed)


def queue_listed_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot.Queued, "is_still", lambda *_: True)


# --- insert ---


def unknown_is_failure(patch: pytest.MonkeyPatch) -> None:
    right = Insertion._commit_batch

    def wrong(self: Insertion, replica: Any, batch: Any, **kwargs: Any) -> Any:
        try:
            return right(self, replica, batch, **kwargs)
        except OutcomeUnknown:
            if self._committing is not None:
                self._withdraw(replica)
            raise

    patch.setattr(Insertion, "_commit_batch", wrong)


def unknown_is_success(patch: pytest.MonkeyPatch) -> None:
    right = Insertion._commit_batch

    def wrong(self: Insertion, replica: Any, batch: Any, **kwargs: Any) -> Any:
        try:
            return right(self, replica, batch, **kwargs)
        except OutcomeUnknown:
            if self._committing is None:
                raise
            self._committed(replica)
            return None

    patch.setattr(Insertion, "_commit_batch", wrong)


def absence_is_proof(patch: pytest.MonkeyPatch) -> None:
    """Reads, finds nothing, and concludes that nothing will come."""

    def wrong(self: Insertion, replica: Any) -> None:
        if self._committing is None:
            return
        parts = [replica.paths.part(commit.part) for _, commit in self._committing.blocks]
        if any(stat is not None for stat in replica.keeper.exists_many(parts)):
            self._committed(replica)
        else:
            self._withdraw(replica)

    patch.setattr(Insertion, "_settle", wrong)


def writes_do_not_say_which_replica_they_mean(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoundKeeper, "multi", lambda self, ops: self.session.multi(ops))


def zookeeper_before_disk(patch: pytest.MonkeyPatch) -> None:
    right = PartStore.publish_all
    waiting: list[Any] = []

    def later(self: PartStore, pairs: Any) -> None:
        waiting.append((self, pairs))

    commit = Insertion._committed

    def now(self: Insertion, replica: Any) -> None:
        while waiting:
            right(*waiting.pop())
        commit(self, replica)

    patch.setattr(PartStore, "publish_all", later)
    patch.setattr(
        PartStore, "publish", lambda self, staged, part: right(self, [(staged, part)])
    )
    patch.setattr(Insertion, "_committed", now)


def partitions_of_batches_unknown(patch: pytest.MonkeyPatch) -> None:
    """Of a record only its own text is read."""
    right = insert.read_record

    def wrong(replica: Any, insert_id: str) -> Any:
        known = right(replica, insert_id)
        return known and replace(known, lines=known.record.partitions)

    patch.setattr(insert, "read_record", wrong)


def nothing_is_left_for_later(patch: pytest.MonkeyPatch) -> None:
    """What a session left without an answer is forgotten: it goes on as if nothing were."""
    patch.setattr(Strays, "leave", lambda self, strays: None)


def numbers_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(insert, "give_back", lambda keeper, strays: None)


def locks_of_who_gives_up_stay(patch: pytest.MonkeyPatch) -> None:
    right = Insertion.let_go

    def wrong(self: Insertion, store: Any) -> None:
        if not self.is_pending:
            right(self, store)

    patch.setattr(Insertion, "let_go", wrong)


def settled_as(outcome: object) -> Plant:
    return instead(insert.meaning, "settle", lambda evidence: outcome)


# --- quorums ---


def who_fetches_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    for module in (finish, publish, publish_batch):
        patch.setattr(module, "count_us", lambda *_: Counted())


def who_came_back_is_not_seen(patch: pytest.MonkeyPatch) -> None:
    """A quorum fails on what was looked at, whoever is active by now."""
    right = quorum._fail

    def wrong(replica: Any, part: Any) -> Any:
        ops = right(replica, part)
        return ops and [
            op for op in ops if not (isinstance(op, Check) and op.path.endswith("/host"))
        ]

    patch.setattr(quorum, "_fail", wrong)


# --- assigning ---


def log_before_locks(patch: pytest.MonkeyPatch) -> None:
    """The predicate's second and third reads, swapped: the locks are listed last."""
    snapshots, locks = assign.queue_snapshot, assign.committing_blocks
    found: dict[str, frozenset[int]] = {}
    asked: list[Any] = []

    def later(keeper: Any, table: Any, partitions: Any) -> Any:
        found.clear()
        asked[:] = [(keeper, table, partitions)]
        return found

    def first(*args: Any, **kwargs: Any) -> Any:
        snapshot = snapshots(*args, **kwargs)
        if asked:
            found.update(locks(*asked.pop()))
        return snapshot

    patch.setattr(assign, "committing_blocks", later)
    patch.setattr(assign, "queue_snapshot", first)


def predicate_without(rule: str) -> Plant:
    return instead(merge_predicate.MergePredicate, rule, lambda self, left, right: None)


def unpulled_is_merged(patch: pytest.MonkeyPatch) -> None:
    """What is promised may be merged again, and what was not pulled too."""
    patch.setattr(merge_predicate.MergePredicate, "may_merge_one", lambda self, part: None)


# --- following ---


def pointer_off_by(distance: int) -> Plant:
    def change(args: Any, kwargs: Any) -> tuple[Any, Any]:
        return args, {**kwargs, "pointer": kwargs["pointer"] + distance}

    return with_arguments(transactions, "pull", change)


def only_the_exact_part(patch: pytest.MonkeyPatch) -> None:
    def wrong(replica: Any, living: Any, names: Any, parts: Any, failed: Any) -> Any:
        return {part: fetch.NoReplicaHasPart(f"nobody has {part}") for part in parts}

    patch.setattr(fetch, "_search", wrong)


def parts_before_claims(patch: pytest.MonkeyPatch) -> None:
    """The race that two workers of one pool found: a claim that ends while it is read. The parts
    are listed before the claims, and nobody asserts that the entry is still queued.
    """
    without("claim", checks("/queue/"))(patch)
    claims, parts = snapshot._list_claims, snapshot.parts_now
    found: list[Any] = []

    def later(keeper: Any, replica: Any, known: Any, *rest: Any) -> Any:
        found[:] = [parts(keeper, replica, known)]
        return claims(keeper, replica, known, *rest)

    patch.setattr(snapshot, "_list_claims", later)
    patch.setattr(snapshot, "parts_now", lambda *asked: found.pop() if found else parts(*asked))


def leftovers_go_unasked(patch: pytest.MonkeyPatch) -> None:
    def wrong(replica: Any, node: str, part: Any, staged: Any) -> Any:
        if replica.store.has(part):
            replica.store.remove(part)
        replica.store.publish(staged, part)
        return contextlib.nullcontext()

    patch.setattr(publish, "_on_disk", wrong)


def unanswered_publication_is_withdrawn(patch: pytest.MonkeyPatch) -> None:
    right = carry.BatchCarrier._failed_task

    def wrong(self: Any, batch: Any, task: Any, error: Exception) -> Any:
        told = right(self, batch, task, error)
        if isinstance(error, OutcomeUnknown):
            self._replica.store.remove(task.part)
        return told

    patch.setattr(carry.BatchCarrier, "_failed_task", wrong)


def no_covered_entry_is_skipped(patch: pytest.MonkeyPatch) -> None:
    right = queue.QueueView.choose

    def wrong(*args: Any, **kwargs: Any) -> Any:
        return replace(right(*args, **kwargs), done=())

    patch.setattr(queue.QueueView, "choose", wrong)


def waits_name_others(patch: pytest.MonkeyPatch) -> None:
    right = queue.reason_to_wait

    def wrong(question: Any) -> str | None:
        reason = right(question)
        return None if reason is None else reason.replace("queue-0", "queue-9")

    patch.setattr(queue, "reason_to_wait", wrong)


def rule_is_ignored(rule: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        ignored = getattr(queue_rules, rule)
        rules = {
            kind: tuple(one for one in those if one is not ignored)
            for kind, those in queue_rules._RULES.items()
        }
        patch.setattr(queue_rules, "_RULES", rules)

    return plant
