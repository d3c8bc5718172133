"""ATTACH PARTITION and PART: what is detached becomes part of the table again (§9.5, §16.5 D8).

    maximal ones of detached/ ──► attaching_… (nobody else takes them) ──► every byte read ──►
    staged as hard links ──► committed as an insert: new numbers, ATTACH_PART entries ──► removed

Each has an id of its name and bytes, so that the same part is attached once, also when two
replicas that detached it are asked at the same time, or when we die before the last step and are
asked again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from rmt_pipeline.protocol.errors import Corruption, MissingPart, RmtError, UserError
from rmt_pipeline.protocol.inserts.ids import attach_block_id
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import AttachPart, parts_brought
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import HasCovering, Intersects, PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.replica.partitions.drop import Living
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.attached import attached_as
from rmt_pipeline.replica.wait import wait_as_asked_for
from rmt_pipeline.store.disk import Lock
from rmt_pipeline.store.fetching import finish_fetches
from rmt_pipeline.store.layout import DetachedName
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Waker

LOOK_BACK = 1000  # entries of a log, for those that were just written
TOGETHER_MAX = 500  # of one partition in one commit
Commit = Callable[[Insertion], InsertResult]
"""Runs it until it is done, or was tried often enough."""


class BadDetachedPart(UserError):
    """Nothing was attached; what was detached is where it was."""

    code = "BAD_DATA_PART_NAME"


@dataclass(frozen=True, slots=True)
class Attached:
    """`parts`: the new ones. `already`: of detached ones that the table had, the partition and the
    part that has them. `inactive`: smaller ones that were set aside for larger; `skipped`: with
    the reason.
    """

    parts: tuple[PartName, ...]
    already: tuple[tuple[str, str], ...] = ()
    inactive: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    def words(self) -> str:
        told = [
            f"a part of partition {partition} is in the table already, as {part}"
            for partition, part in self.already
        ]
        told += [f"{name} is contained in a larger one: set aside" for name in self.inactive]
        told += [f"{name} was left alone: {reason}" for name, reason in self.skipped]
        return "; ".join(told)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A detached part that nobody else takes now."""

    name: DetachedName
    manifest: Manifest


def attach(
    replica: Replica,
    commit: Commit,
    *,
    partition: str | None = None,
    part: PartName | None = None,
    deduplicate: bool = True,
) -> Attached:
    """Everything detached of this partition, or exactly this part; with neither, everything. Parts
    with a reason before their name (`broken_…`) are not meant. All of a partition at once, or none
    (up to 500).

    Raises BadDetachedPart; UserErrors of damaged or foreign parts; what an insert raises.
    """
    store = replica.store
    finish_fetches(store)
    already = _give_back(replica, partition, part)
    chosen, inactive, skipped = _choose(store, partition, part)
    if part is not None and not chosen and not already:
        raise BadDetachedPart(
            f"{replica} has no detached part {part}; system.detached_parts shows which there are"
        )
    taken: list[_Taken] = []
    locks: list[Lock] = []
    try:
        for name in chosen:
            attaching = store.detached_parts.take(name)
            if attaching is None:
                skipped.append((str(name), "somebody else is attaching or removing it"))
                continue
            mine, lock = attaching
            locks.append(lock)
            taken.append(_Taken(mine, _checked(replica, mine)))
        parts = list[PartName]()
        while taken:
            some = taken[:TOGETHER_MAX]
            result = _commit(replica, commit, some, deduplicate=deduplicate)
            parts += result.parts
            already += result.duplicates
            del taken[:TOGETHER_MAX]
            for one in some:
                store.detached_parts.remove(one.name)
    except BaseException:
        for one in taken:
            store.detached_parts.rename(one.name, "")
        raise
    finally:
        for lock in locks:
            lock.release()
    return Attached(tuple(parts), tuple(already), tuple(inactive), tuple(skipped))


def wait_until_attached(
    living: Living, attached: Attached, query: QuerySettings, new_waker: Callable[[], Waker]
) -> None:
    """Wait for the other replicas as `alter_sync` says: what was attached is here already. Entries
    that are gone from the log were carried out by all who can be waited for. Raises Unfinished.
    """
    if query.alter_sync < 2 or not attached.parts:
        return
    replica, new = living(), frozenset(attached.parts)
    names = replica.keeper.children(replica.table.log)[-LOOK_BACK - len(new) :]
    paths = [replica.table.log_entry(name) for name in names]
    entries = [
        (path, read[0])
        for path, read in zip(paths, replica.keeper.get_many(paths), strict=True)
        if read is not None and not new.isdisjoint(parts_brought(decode(read[0])))
    ]
    wait_as_asked_for(living, entries, query, new_waker(), is_done_here=True)


def _give_back(
    replica: Replica, partition: str | None, part: PartName | None
) -> list[tuple[str, str]]:
    """What others who died had taken is to be attached again. But not what they had committed,
    which an id tells or does not: it goes. Of that what is meant, as `Attached.already`.
    """
    detached, already = replica.store.detached_parts, list[tuple[str, str]]()
    for died in detached.died():
        found = None
        with suppress(Corruption, MissingPart):
            found = attached_as(replica, died)
        if found is None:
            detached.rename(died, "")
        elif detached.remove(died) and (
            partition in (None, died.part.partition) and part in (None, died.part)
        ):
            already.append((died.part.partition, str(found)))
    return already


def _choose(
    store: PartStore, partition: str | None, part: PartName | None
) -> tuple[list[DetachedName], list[str], list[tuple[str, str]]]:
    """The maximal ones; those that they contain are set aside; what overlaps is left alone (D8)."""
    plain = [
        one
        for one in store.detached_parts.names()
        if one.reason == "" and one.copy == 0 and partition in (None, one.part.partition)
    ]
    if part is not None:
        return [one for one in plain if one.part == part], [], []
    parts, skipped = PartSet(), list[tuple[str, str]]()
    inactive: list[str] = []
    for one in sorted(plain, key=lambda one: (-one.part.blocks_count, -one.part.level)):
        outcome = parts.add(one.part)
        if isinstance(outcome, Intersects):
            reason = f"it overlaps {outcome.part}, and neither contains the other"
            skipped.append((str(one), reason))
        elif isinstance(outcome, HasCovering):
            store.detached_parts.rename(one, "inactive")
            inactive.append(str(one))
    return [one for one in plain if one.part in parts], inactive, skipped


def _checked(replica: Replica, name: DetachedName) -> Manifest:
    """Raises BadDetachedPart after giving the directory its name back."""
    detached = replica.store.detached_parts
    try:
        manifest = detached.verify(name)
    except Corruption as error:
        detached.rename(name, "")
        raise BadDetachedPart(
            f"{replica}: detached part {name.part} is damaged and stays where it is: {error}"
        ) from error
    return manifest


def _commit(
    replica: Replica, commit: Commit, taken: Sequence[_Taken], *, deduplicate: bool
) -> InsertResult:
    staged: list[tuple[StagedPart, str]] = []
    store = replica.store
    try:
        for one in taken:
            staging = store.begin("attach", str(one.name.part))
            manifest = replace(one.manifest, sources=(str(one.name.part),))
            part = store.detached_parts.stage(one.name, staging, manifest)
            block_id = attach_block_id(one.name.part, manifest.files_hash.hex())
            staged.append((part, block_id if deduplicate else ""))
        insertion = Insertion.attaching(staged, replica)
    except BaseException:
        for part, _ in staged:
            store.discard(part)
        raise
    try:
        return commit(insertion)
    except RmtError:
        insertion.let_go(store)
        raise


def drop_detached(replica: Replica, partition: str | None, name: str | None) -> tuple[str, ...]:
    """Remove what is detached for good: a directory, those of a partition, or all (spec §9.10).
    What is being attached or removed by others is left alone.
    """
    detached = replica.store.detached_parts
    meant = [
        one
        for one in detached.names()
        if one.reason not in ("attaching", "deleting")
        and partition in (None, one.part.partition)
        and name in (None, str(one))
    ]
    if name is not None and not meant:
        raise BadDetachedPart(
            f"{replica} has nothing detached of the name {name!r}; system.detached_parts shows "
            "what there is"
        )
    return tuple(str(one) for one in meant if detached.remove(one))


@dataclass(frozen=True, slots=True)
class AttachHere:
    """An entry whose part this replica has detached, in the directory `name`."""

    entry: AttachPart
    name: DetachedName

    @property
    def part(self) -> PartName:
        return self.entry.part


def own_copies(replica: Replica, entries: Sequence[AttachPart]) -> dict[PartName, AttachHere]:
    """Those for which this replica has a detached part with the bytes that they bring (spec §16.5
    D9), by their parts. Each is read once for all: hundreds of both may come together.
    """
    detached = replica.store.detached_parts
    partitions = {entry.part.partition for entry in entries}
    found: dict[tuple[str, str], DetachedName] = {}
    for one in detached.names() if entries else ():
        if one.reason == "" and one.part.partition in partitions:
            with suppress(Corruption):
                checksum = detached.manifest(one).files_hash.hex().upper()
                found.setdefault((one.part.partition, checksum), one)
    named = [(entry, found.get((entry.part.partition, entry.checksum))) for entry in entries]
    return {entry.part: AttachHere(entry, name) for entry, name in named if name is not None}


def attach_here(replica: Replica, attach: AttachHere) -> StagedPart:
    """Staged from the copy here, once every byte of it was read. Raises Corruption: then others are
    asked for the part.
    """
    store = replica.store
    manifest = store.detached_parts.verify(attach.name)
    staging = store.begin("attach", str(attach.part))
    sources = (str(attach.name.part),)
    return store.detached_parts.stage(attach.name, staging, replace(manifest, sources=sources))
