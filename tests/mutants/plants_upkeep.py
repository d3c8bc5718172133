"""Planted bugs of start, clone, clean-up and mutations, and of bytes; see `plants`."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.nodes.formats import HASH_BYTES, PartHeader
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.retention import LogTrim, Written
from rmt_pipeline.replica import accounting, claims, readable
from rmt_pipeline.replica.alter import apply as alter_apply
from rmt_pipeline.replica.insert import insert
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.life import clone
from rmt_pipeline.replica.life import start as start_action
from rmt_pipeline.replica.mutations import mutations
from rmt_pipeline.replica.upkeep import check, clean_up, lost, outdated_ids
from rmt_pipeline.replica.work import carry, execute
from rmt_pipeline.store import part_store
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData
from rmt_pipeline.zookeeper.transactions import Tagged
from tests.mutants.plants import Plant
from tests.support import sim_rows

# --- start, clone, clean up ---


def missing_is_not_fetched(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(check, "refetch", lambda replica, part, look=None: None)


def what_is_lost_is_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(execute, "what_is_left", lambda replica, entry: None)
    patch.setattr(lost, "yet_to_look", lambda replica, parts, queues: {})


def listed_is_all_there_is(patch: pytest.MonkeyPatch) -> None:
    """What was published since the disk was listed counts as missing."""
    right = check.look_at_disk

    def wrong(replica: Any) -> Any:
        listed = tuple(replica.store.parts())
        found = right(replica)
        return replace(found, on_disk=tuple(one for one in found.on_disk if one in listed))

    patch.setattr(check, "look_at_disk", wrong)


def everything_unknown_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    right = check.look_at_disk
    wrong = lambda replica: replace(right(replica), in_flight=frozenset())  # noqa: E731
    patch.setattr(check, "look_at_disk", wrong)
    patch.setattr(clean_up, "look_at_disk", wrong)


def clone_lists_parts_first(patch: pytest.MonkeyPatch) -> None:
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


def clone_keeps_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clone, "_leave", lambda *_: ())


def clone_is_done_too_early(patch: pytest.MonkeyPatch) -> None:
    right = clone._fill_queue

    def wrong(replica: Any, source: Any, entries: Any) -> None:
        replica.keeper.multi([SetData(replica.paths.is_lost, b"0")])
        right(replica, source, entries)

    patch.setattr(clone, "_fill_queue", wrong)


def clone_forgets_the_queue(patch: pytest.MonkeyPatch) -> None:
    right = clone._fill_queue
    patch.setattr(
        clone,
        "_fill_queue",
        lambda replica, source, entries: right(
            replica, source, [entry for entry in entries if b"\nmerge\n" not in entry]
        ),
    )


def clone_fetches_before_drops(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        clone,
        "_in_order",
        lambda fetches, entries: [*map(encode, fetches), *(data for data, _ in entries)],
    )


def never_cloned(patch: pytest.MonkeyPatch) -> None:
    def wrong(replica: Any) -> None:
        replica.keeper.multi([SetData(replica.paths.is_lost, b"0")])

    patch.setattr(start_action, "clone_if_lost", wrong)


def active_replicas_do_not_pin(patch: pytest.MonkeyPatch) -> None:
    def wrong(entries: Any, replicas: Any, **kwargs: Any) -> LogTrim:
        return LogTrim(remove=tuple(entries[:-1]))

    patch.setattr(clean_up, "log_trim", wrong)


def disk_before_zookeeper_on_removal(patch: pytest.MonkeyPatch) -> None:
    right = clean_up._remove_parts

    def wrong(replica: Any, plan: Any) -> Any:
        replica.store.remove_all(plan.parts.remove)
        return right(replica, plan)

    patch.setattr(clean_up, "_remove_parts", wrong)


def uncovered_parts_are_old(patch: pytest.MonkeyPatch) -> None:
    right = clean_up._old_parts

    def wrong(replica: Any) -> Any:
        found, covering = right(replica)
        active = list(
            PartSet(
                clean_up.PartName.parse(name)
                for name in replica.keeper.children(replica.paths.parts)
            )
        )[:1]
        itself = {part: part for part in active}
        return replace(found, remove=(*found.remove, *active)), covering | itself

    patch.setattr(clean_up, "_old_parts", wrong)


def found_and_left_alone(patch: pytest.MonkeyPatch) -> None:
    """What nobody promises stays where it is."""
    patch.setattr(check, "reconcile", without_set_aside(check.reconcile))
    patch.setattr(clean_up, "_unpromised", lambda replica: ((), ()))


def without_set_aside(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: replace(right(*args, **kwargs), set_aside=())


def inserts_in_part_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    right = outdated_ids._inserts

    def wrong(replica: Any) -> Any:
        whole, in_part, unreadable, version = right(replica)
        old = dict.fromkeys([name for name, _ in in_part], Written(0, 0))
        return whole | old, (), unreadable, version

    patch.setattr(outdated_ids, "_inserts", wrong)
    patch.setattr(InsertRecord, "is_whole", property(lambda self: True))


def what_is_unreadable_is_not_broken(patch: pytest.MonkeyPatch) -> None:
    """A program that meets it fails, again and again."""
    patch.setattr(part_store, "_UNREADABLE", ())
    patch.setattr(sim_rows, "UNREADABLE", ())


def a_commit_is_never_the_last(patch: pytest.MonkeyPatch) -> None:
    right = insert.progress

    def wrong(*args: Any, is_last: bool, **kwargs: Any) -> Any:
        del is_last
        return right(*args, is_last=False, **kwargs)

    patch.setattr(insert, "progress", wrong)


def one_partition_per_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "INSERT_BYTES_MAX", 1)


def covered_parts_are_read_too(patch: pytest.MonkeyPatch) -> None:
    right = readable.parts_now
    patch.setattr(
        readable, "parts_now", lambda *of: SimpleNamespace(current=_AllParts(right(*of)))
    )


class _AllParts(list[PartName]):
    """As a PartSet that keeps what is covered."""

    def __init__(self, parts: Iterable[PartName]) -> None:
        super().__init__(sorted(parts))

    def containing(self, part: PartName) -> PartName | None:
        return PartSet(self).containing(part)


# --- mutations ---


def all_but_the_newest(ids: Any, pointers: Any, *, keep: int) -> tuple[str, ...]:
    return tuple(sorted(ids)[:-1])


def mutated_again(patch: pytest.MonkeyPatch) -> None:
    """What a part has seen already is done to it once more."""

    def wrong(self: Mutations, source: PartName, version: int) -> list[Any]:
        return [
            (mutation_id, self.entries[mutation_id])
            for number, mutation_id in self._by_partition.get(source.partition, [])
            if source.block_min < number <= version
        ]

    patch.setattr(Mutations, "between", wrong)


def altered_without(unwanted: Callable[[Op], bool]) -> Plant:
    """Some of an ALTER is not noted as applied."""
    right = alter_apply.applied_alter

    def wrong(*args: Any, **kwargs: Any) -> list[Op]:
        return [op for op in right(*args, **kwargs) if not unwanted(op)]

    return lambda patch: patch.setattr(alter_apply, "applied_alter", wrong)


def numbers_given_back_first(patch: pytest.MonkeyPatch) -> None:
    """The numbers are not held until the mutation is there."""
    right = mutations.allocate_numbers

    def wrong(replica: Any, partitions: Any) -> Any:
        locks = right(replica, partitions)
        if locks:
            mutations.release_numbers(replica, list(locks.values()))
        return locks

    patch.setattr(mutations, "allocate_numbers", wrong)


# --- bytes ---


def merge_makes(wrong: Callable[[list[str]], list[str]]) -> Plant:
    """Rows that are hashed as they are written: nobody can tell by the manifest."""
    return lambda patch: patch.setattr(
        sim_rows.SimMerger, "merged", staticmethod(lambda rows: sorted(wrong(rows)))
    )


def ids_of_blocks_are_each_replicas_own(patch: pytest.MonkeyPatch) -> None:
    """There they are, but nobody else's insert runs into them."""
    right = transactions.commit_insert

    def wrong(table: Any, replica: Any, *args: Any, **kwargs: Any) -> Tagged:
        made = right(table, replica, *args, **kwargs)
        ops = (
            replace(op, path=f"{op.path}_{replica.name}")
            if isinstance(op, Create) and op.path.startswith(table.blocks)
            else op
            for op in made.ops
        )
        return replace(made, ops=tuple(ops))

    patch.setattr(transactions, "commit_insert", wrong)


def hidden_by_merges(plant: Plant) -> Plant:
    """Merges deduplicate, as those of other engines do: a second copy does not stay."""

    def both(patch: pytest.MonkeyPatch) -> None:
        plant(patch)
        unguarded(merge_makes(lambda rows: list(set(rows))))(patch)

    return both


def unguarded(plant: Plant) -> Plant:
    """Production's own guard does not look: what is planted is left to the checkers."""

    def both(patch: pytest.MonkeyPatch) -> None:
        plant(patch)
        patch.setattr(accounting, "require_covered", lambda *_: None)
        patch.setattr(accounting.Accounts, "_require_conserved", lambda *_: None)

    return both


def nodes_of_r2_are_of_other_columns(patch: pytest.MonkeyPatch) -> None:
    right = transactions.publish_part

    def wrong(replica: Any, node: str, part: PartName, header: bytes, **how: Any) -> list[Op]:
        if replica.name == "r2":
            other = replace(PartHeader.decode(header), columns_hash=bytes(HASH_BYTES))
            header = other.encode()
        return right(replica, node, part, header, **how)

    patch.setattr(transactions, "publish_part", wrong)


def wrong_row_hash(patch: pytest.MonkeyPatch) -> None:
    right = sim_rows.manifest_of

    def wrong(*args: Any, **kwargs: Any) -> Any:
        manifest = right(*args, **kwargs)
        return replace(manifest, row_hash=manifest.row_hash ^ bool(manifest.sources))

    patch.setattr(sim_rows, "manifest_of", wrong)


def nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartStore, "_make_safe", lambda self, parts: None)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartStore, "_sync_names", lambda self, directory="": None)


def merges_have_other_names_on_r2(otherwise: Callable[[PartName], PartName]) -> Plant:
    right = carry.publish_batch

    def wrong(replica: Any, ready: Any) -> Any:
        is_other = replica.name == "r2"
        return right(
            replica,
            [
                replace(one, part=otherwise(one.part)) if is_other and one.part.level else one
                for one in ready
            ],
        )

    return lambda patch: patch.setattr(carry, "publish_batch", wrong)


def one_level_more(part: PartName) -> PartName:
    return replace(part, level=part.level + 1)


def one_block_later(part: PartName) -> PartName:
    return replace(part, block_min=part.block_min + 1, block_max=part.block_max + 1)


def not_ephemeral(patch: pytest.MonkeyPatch) -> None:
    right = transactions.allocate_blocks

    def wrong(*args: Any, **kwargs: Any) -> Tagged:
        made = right(*args, **kwargs)
        ops = (
            replace(op, ephemeral=False) if isinstance(op, Create) else op for op in made.ops
        )
        return replace(made, ops=tuple(ops))

    patch.setattr(transactions, "allocate_blocks", wrong)


def answer_of_one_row_more(patch: pytest.MonkeyPatch) -> None:
    right = Insertion._result
    patch.setattr(
        Insertion, "_result", lambda self: replace(right(self), rows=right(self).rows + 1)
    )


def ignored_refusal(patch: pytest.MonkeyPatch) -> None:
    """A claim that was refused counts as taken."""
    right = claims.Holder.take

    def wrong(self: Any, snapshot: Any, wanted: Any) -> bool:
        with contextlib.suppress(Refused):
            right(self, snapshot, wanted)
        return True

    patch.setattr(claims.Holder, "take", wrong)


def unanswered_claims_are_kept(patch: pytest.MonkeyPatch) -> None:
    """The session goes on, and nobody sees to what it may have claimed."""
    patch.setattr(claims, "seen_to", lambda *_: contextlib.nullcontext())


def claims_are_given_back_once(patch: pytest.MonkeyPatch) -> None:
    """The session goes on, whether or not there was an answer."""

    def once(keeper: Any, wanted: Any) -> None:
        with contextlib.suppress(RmtError):
            keeper.multi([Delete(stray.path) for stray in wanted])

    patch.setattr(claims.strays, "give_back", once)
    patch.setattr(claims.Holder, "leave", lambda holder, nodes: None)
