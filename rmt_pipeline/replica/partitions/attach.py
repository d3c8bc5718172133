"""ATTACH PARTITION and PART: detached parts become parts of the table again (§9.5, §16.5 D8).

    the maximal parts of detached/ ──► renamed attaching_…, so that no other ATTACH takes them ──►
    every byte read ──► staged as hard links ──► committed as an insert: new block numbers,
    ATTACH_PART entries ──► the detached directories removed

Each part has a block id made of its name and bytes. So the same part is attached once, even when
two replicas that both detached it attach it at the same time, or when an ATTACH dies before the
last step and is repeated. Without deduplication the name of the ATTACH is in the id too, and is
noted beside the part first: so it is known what an ATTACH that died has attached.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
from rmt_pipeline.replica.wait import wait_for_others
from rmt_pipeline.store.disk import Lock
from rmt_pipeline.store.fetching import finish_fetches
from rmt_pipeline.store.layout import DetachedName
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.keeper import SetData

TOGETHER_MAX = 500  # how many parts go into one commit
Commit = Callable[[Insertion], InsertResult]
"""Runs the insertion until it is done, or was tried often enough."""


class BadDetachedPart(UserError):
    """A detached part can't be attached, or there is none of that name. Nothing was attached; what
    was detached is where it was.
    """

    code = "BAD_DATA_PART_NAME"


@dataclass(frozen=True, slots=True)
class Attached:
    """What an ATTACH did. `parts` are the new parts. `already` has, for each detached part whose
    rows were in the table, its partition and the part that has them. `inactive` are the parts that
    were set aside because a larger one contains them, `skipped` those that were left alone, with
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
    """A detached part that this ATTACH has locked and renamed, so that no other one takes it."""

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
    """Attach every detached part of this partition, or exactly this part; with neither, everything
    that is detached. Parts with a reason before their name (`broken_…`) are left alone.

    A commit takes up to `TOGETHER_MAX` parts and whole partitions, so a partition with no more
    parts than that is attached all at once or not at all. A larger one is attached some parts at a
    time: readers see those that are in, and when the process dies the next ATTACH brings the
    others. (In the original each part is a commit of its own.)

    A DETACH copies the parts before it takes them away. So nothing is attached while this replica
    has yet to drop something there: what was chosen is given back (`nothing_to_drop`). Raises
    BadDetachedPart; YetToDrop; UserErrors about damaged or foreign parts; what an insert raises.
    """
    store = replica.store
    finish_fetches(store)
    already = _give_back(replica, partition, part)
    chosen, inactive, skipped = _choose(store, partition, part)
    if part is not None and not chosen and not already:
        raise BadDetachedPart(
            f"{replica} has no detached part {part}; system.detached_parts shows which there are"
        )
    attempt = "" if deduplicate else replica.ids.new_id()
    taken, parts = list[_Taken](), list[PartName]()
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
            store.detached_parts.note_attempt(mine, attempt)
        taken.sort(key=lambda one: one.name.part.partition)  # the order within each stays
        everything = len(taken)
        while taken:
            some = _together(taken)
            result = _commit(replica, commit, some, taken, attempt)
            parts += result.parts
            already += result.duplicates
            del taken[: len(some)]
            for one in some:
                with suppress(OSError):  # they are in the table: the next clean-up removes it
                    store.detached_parts.remove(one.name)
    except BaseException as error:
        for one in taken:
            store.detached_parts.rename(one.name, "")
        if parts and isinstance(error, RmtError):
            error.args = (_in_part(parts, everything, error),)
        raise
    finally:
        for lock in locks:
            lock.release()
    return Attached(tuple(parts), tuple(already), tuple(inactive), tuple(skipped))


def _in_part(parts: Sequence[PartName], everything: int, error: RmtError) -> str:
    """The words of an error that came when `parts` were in the table, by commits of their own."""
    names = f"{parts[0]} to {parts[-1]}" if len(parts) > 1 else str(parts[0])
    return (
        f"{len(parts)} of the {everything} parts of this ATTACH are in the table, as {names}. To "
        f"the others this happened: {error}. Repeat the ATTACH for them: none comes twice"
    )


def _together(taken: Sequence[_Taken]) -> Sequence[_Taken]:
    """Return the first ones that go into one commit: whole partitions if the first one fits."""
    partitions = [one.name.part.partition for one in taken[: TOGETHER_MAX + 1]]
    if len(partitions) <= TOGETHER_MAX:
        return taken[:]
    whole = partitions.index(partitions[-1])  # the last partition, or what is listed of it
    return taken[: whole or TOGETHER_MAX]


def wait_until_attached(
    living: Living, attached: Attached, query: QuerySettings, new_waker: Callable[[], Waker]
) -> None:
    """Wait for the other replicas as `alter_sync` says: this one has the attached parts already.
    Raises Unfinished.
    """
    new = frozenset(attached.parts)

    def brings_some(text: bytes) -> bool:
        with suppress(Corruption):  # it is another one, whatever it is
            return not new.isdisjoint(parts_brought(decode(text)))
        return False

    if new:
        wait_for_others(living, brings_some, query, new_waker())


def _give_back(
    replica: Replica, partition: str | None, part: PartName | None
) -> list[tuple[str, str]]:
    """Give parts that an ATTACH which died, or got no answer, had taken their names back, so that
    they can be attached again. But those that it had committed are removed: those of them that are
    meant are returned, as in `Attached.already`.

    A commit that a process sent before it died may be on its way. It asserts a version, which is
    changed before it is looked what landed, so it does not land any more (`nothing_to_drop`).
    """
    detached, already = replica.store.detached_parts, list[tuple[str, str]]()
    for died in detached.died():
        replica.keeper.multi([SetData(replica.table.alter_partition_version)])
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
    """Choose the maximal parts; those that they contain are set aside, and parts that overlap a
    chosen one are left alone (D8). Returns the three lists.
    """
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
    """Read every byte of a detached part. Raises BadDetachedPart if it is damaged, after giving the
    directory its name back.
    """
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
    replica: Replica,
    commit: Commit,
    some: Sequence[_Taken],
    taken: list[_Taken],
    attempt: str,
) -> InsertResult:
    """Commit the first ones of what is `taken`. If it ends before it is known whether they are in
    the table, they do not get their names back: the next ATTACH finds out (`_give_back`).
    """
    insertion = _staged(replica, some, attempt)
    try:
        return commit(insertion)
    except BaseException:
        if insertion.is_pending:
            del taken[: len(some)]
        insertion.let_go(replica.store)
        raise


def _staged(replica: Replica, taken: Sequence[_Taken], attempt: str) -> Insertion:
    staged: list[tuple[StagedPart, str]] = []
    store = replica.store
    try:
        for one in taken:
            staging = store.begin("attach", str(one.name.part))
            manifest = replace(one.manifest, sources=(str(one.name.part),))
            part = store.detached_parts.stage(one.name, staging, manifest)
            checksum = manifest.files_hash.hex()
            staged.append((part, attach_block_id(one.name.part, checksum, attempt)))
        return Insertion.attaching(staged, replica)
    except BaseException:
        for part, _ in staged:
            store.discard(part)
        raise


def drop_detached(replica: Replica, partition: str | None, name: str | None) -> tuple[str, ...]:
    """Remove for good what is detached: one directory, those of a partition, or all (spec §9.10).
    Returns the names of what was removed. What another process is attaching or removing is left
    alone.
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
    """A log entry whose part this replica has detached, in the directory `name`."""

    entry: AttachPart
    name: DetachedName

    @property
    def part(self) -> PartName:
        return self.entry.part


def own_copies(replica: Replica, entries: Sequence[AttachPart]) -> dict[PartName, AttachHere]:
    """Return those entries for which this replica has a detached part with the bytes that they
    bring (spec §16.5 D9), by their parts. Each manifest is read once, for all entries: there may be
    hundreds of both. A part that a process had taken to attach it, and then died, is found as well.
    """
    detached = replica.store.detached_parts
    partitions = {entry.part.partition for entry in entries}
    found: dict[tuple[str, str], DetachedName] = {}
    for one in sorted(detached.names(), key=lambda one: one.reason) if entries else ():
        if one.reason in ("", "attaching") and one.part.partition in partitions:
            with suppress(Corruption):
                checksum = detached.manifest(one).files_hash.hex().upper()
                found.setdefault((one.part.partition, checksum), one)
    named = [(entry, found.get((entry.part.partition, entry.checksum))) for entry in entries]
    return {entry.part: AttachHere(entry, name) for entry, name in named if name is not None}


@contextmanager
def attach_here(replica: Replica, attach: AttachHere) -> Iterator[StagedPart | RmtError]:
    """Stage the part of an entry from the detached copy here, after reading every byte of it; or
    yield the error why the part has to be fetched. The caller publishes the part within the
    context. At its end the copy is removed, or gets its name back if the part is not promised.

    The copy is taken meanwhile, as by an ATTACH. If the process dies, the next clean-up or ATTACH
    finds out whether the copy was attached. Otherwise:

    1. A worker makes the part of a copy, and dies before it removes the copy.
    2. The partition is detached once more, and with that the id of the block is forgotten.
    3. The next ATTACH finds the old copy beside the new one, and the rows are there twice.
    """
    store = replica.store
    taken = store.detached_parts.take(attach.name)
    if taken is None:
        yield MissingPart(f"{replica}: the copy {attach.name} is gone, or is being attached")
        return
    name, lock = taken
    try:
        try:
            made = _staged_here(store, attach.part, name)
        except RmtError as error:
            store.detached_parts.rename(name, "")
            yield error
            return
        yield made
        with suppress(RmtError, OSError):  # whoever comes next finds out
            if replica.keeper.exists(replica.paths.part(attach.part)) is not None:
                store.detached_parts.remove(name)
            else:
                store.detached_parts.rename(name, "")
    finally:
        lock.release()


def _staged_here(store: PartStore, part: PartName, name: DetachedName) -> StagedPart:
    manifest = store.detached_parts.verify(name)
    staging = store.begin("attach", str(part))
    told = replace(manifest, sources=(str(name.part),))
    return store.detached_parts.stage(name, staging, told)
