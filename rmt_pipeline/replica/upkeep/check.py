"""Parts that are not what they should be: missing, unexpected, or with wrong bytes (spec §5.9,
§11.2).
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rmt_pipeline.protocol.errors import Corruption, MissingPart, RmtError, UserError
from rmt_pipeline.protocol.events import ProfileEvent
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart, drop_range_of, virtual_parts
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.reconcile import LocalPart, reconcile
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.rewound import (
    TooManyUnexpectedParts,
    require_numbers_given_out,
)
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_log import PartEvent
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Delete, RefusalKind, Refused
from rmt_pipeline.zookeeper.snapshot import (
    claims_and_parts,
    committing_blocks,
    entries_to_come,
    noted_mutations,
    queue_snapshot,
)

_HEALS = "it is fetched again from another replica"
UNANNOUNCED_S = 300.0  # a part that ZooKeeper does not know is left alone for so long


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found on its disk: promised parts that are not there (queued for a fetch),
    and what was set aside in `detached`, with the reason.
    """

    refetched: tuple[PartName, ...] = ()
    detached: tuple[tuple[str, str], ...] = ()
    in_flight: tuple[PartName, ...] = ()


@dataclass(frozen=True, slots=True)
class DiskView:
    """The parts on disk against the promises. `in_flight`: unexpected, but some process is about
    to promise them, or to take them away again.
    """

    on_disk: tuple[PartName, ...]
    promised: frozenset[PartName]
    unexpected: tuple[PartName, ...]
    in_flight: frozenset[PartName]
    queued: Mapping[PartName, str]
    is_lost_version: int
    dropped: tuple[PartName, ...]
    """What drops have taken away here. Of an unexpected part inside nothing is kept."""

    def was_dropped(self, part: PartName) -> bool:
        return any(one.contains(part) for one in self.dropped)


def look_at_disk(replica: Replica) -> DiskView:
    """Other processes of this host may be inserting or merging right now, and their parts have
    their name on disk before ZooKeeper knows them. So the disk is listed first, then the block
    numbers in flight and the claims, and the promises last: what was under way at the second
    read is known as such, what was finished by then is promised at the third.

    An insert whose session ended while its commit had no answer has no lock any more, and its
    process is finding out. So what is young is left alone too (spec §16.6 F10).
    """
    listed = tuple(replica.store.parts())
    # ZooKeeper may answer from the past: a part that was claimed, published or promised since
    # would look like one that nobody knows. After this it answers from now.
    replica.keeper.sync(replica.table.root)
    partitions = sorted({part.partition for part in listed})
    locks = committing_blocks(replica.keeper, replica.table, partitions)
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    claimed = {part for claim in snapshot.claims.values() for part in claim.parts}
    promised = frozenset(snapshot.parts)
    # What was published and promised since the disk was listed is not missing: it is there now.
    arrived = sorted(promised - frozenset(listed))
    on_disk = (*listed, *(part for part in arrived if replica.store.has(part)))
    queued = {
        part: node for node, entry in snapshot.entries.items() for part in virtual_parts(entry)
    }
    fresh_s = replica.clock.now_s() - UNANNOUNCED_S
    unexpected = tuple(part for part in on_disk if part not in promised)
    in_flight = frozenset(
        part
        for part in unexpected
        if part in claimed
        or part in queued  # whoever carries the entry out replaces it, perhaps at this moment
        or part.block_min in locks.get(part.partition, ())
        or _created_s(replica, part) > fresh_s
    )
    replaced = _ranges_to_drop(replica) if not in_flight.issuperset(unexpected) else []
    return DiskView(
        on_disk,
        promised,
        unexpected,
        in_flight,
        queued,
        snapshot.is_lost_version,
        (*replaced, *replica.store.drops.ranges()),
    )


def _ranges_to_drop(replica: Replica) -> list[PartName]:
    """Ranges that entries yet to be carried out here drop. Who replaced a range has none of its
    parts from the moment when the entry was written, and may have died before the disk was told.

    When an entry has left the queue, the disk was told; whoever asks looks there last.
    """
    keeper, known = replica.keeper, replica.memory.queue
    entries = entries_to_come(keeper, replica.table, replica.paths, known)
    dropped = map(drop_range_of, entries)
    return [one for one in dropped if one is not None and one.is_drop_range]


def recover_parts(replica: Replica) -> Recovered:
    """Make the disk and the promises in ZooKeeper agree (spec §11.2 item 4, design §4).

    Raises TooManyUnexpectedParts.
    """
    disk = look_at_disk(replica)
    force = replica.keeper.exists(replica.paths.force_restore_data) is not None
    if not force:
        require_numbers_given_out(replica, disk.unexpected)
    settled = [part for part in disk.on_disk if part not in disk.in_flight]
    local, broken = _loadable(replica, settled)
    broken = [one for one in broken if one[0] in disk.promised or not disk.was_dropped(one[0])]
    if not force:
        _require_few_broken(replica, broken)
    plan = reconcile(
        local,
        disk.promised,
        disk.queued,
        dropped=disk.dropped,
        wrong_rows_ratio_max=replica.settings.replicated_max_ratio_of_wrong_parts,
        force=force,
    )
    if plan.refusal is not None:
        raise TooManyUnexpectedParts(f"{replica}: {plan.refusal}")
    replica.store.remove_all(plan.remove, partial(idle_ones, replica))
    whole, detached = _set_aside_broken(replica, broken)
    for one in plan.set_aside:
        name = replica.store.detach_if(one.part, "ignored", partial(is_idle, replica, one.part))
        if name is not None:
            detached.append((name, one.reason))
    here = frozenset(one.part for one in local) | whole
    active = PartSet(disk.promised)
    for part in sorted(disk.promised - here - frozenset(plan.fetch)):
        _forget(replica, part, active.containing(part), disk.is_lost_version)
    refetched = tuple(part for part in plan.fetch if refetch(replica, part) is not None)
    refetched += _set_aside_returned(replica, here & disk.promised, detached)
    if force:
        replica.keeper.multi([Delete(replica.paths.force_restore_data)])
    return Recovered(refetched, tuple(detached), tuple(sorted(disk.in_flight)))


def _set_aside_returned(
    replica: Replica, here: AbstractSet[PartName], detached: list[tuple[str, str]]
) -> tuple[PartName, ...]:
    """Lost parts, replaced by empty ones (`lost`), that are back with a disk of before: their rows
    may have been inserted again since, and no other replica has them. People may attach them.
    """
    [names] = replica.keeper.children_many([replica.table.lost_parts])
    parts = sorted(here & {PartName.parse(name) for name in names or ()})
    promises = replica.keeper.get_many([replica.paths.part(part) for part in parts])
    refetched: list[PartName] = []
    for part, promise in zip(parts, promises, strict=True):
        problem = None if promise is None else differs(replica, part, promise[0])
        if problem is None:
            continue
        with suppress(UserError, MissingPart):  # ten copies of it are there: enough
            name = replica.store.detach_copy(part, "ignored", once=True)
            detached.append((name, f"{problem}: it was lost, and became an empty part"))
        if refetch(replica, part, replica.store.inspect) is not None:
            refetched.append(part)
    return tuple(refetched)


def _created_s(replica: Replica, part: PartName) -> int:
    try:
        return replica.store.manifest(part).created_s
    except Corruption:
        return 0


def _loadable(
    replica: Replica, parts: Sequence[PartName]
) -> tuple[list[LocalPart], list[tuple[PartName, str]]]:
    """Parts whose manifest can be read and whose files are there; and those that are broken, with
    what is wrong with them (spec §11.3).
    """
    loadable: list[LocalPart] = []
    broken: list[tuple[PartName, str]] = []
    for part in parts:
        try:
            manifest = replica.store.inspect(part)
            is_copy = _is_copy(part, manifest)
            loadable.append(LocalPart(part, manifest.rows, is_copy))
        except Corruption as error:
            broken.append((part, str(error)))
    return loadable, broken


def _is_copy(part: PartName, manifest: Manifest) -> bool:
    """Whether it has the level of its only source: what was merged has a greater one, and what was
    mutated keeps it, and has a mutation.
    """
    levels = [one.level for text in manifest.sources if (one := PartName.try_parse(text))]
    return levels == [part.level]


def _require_few_broken(replica: Replica, broken: Sequence[tuple[PartName, str]]) -> None:
    """Raises TooManyUnexpectedParts: many parts break at once when it is the disk that does."""
    settings = replica.settings
    size = sum(replica.store.size_on_disk(part) for part, _ in broken)
    for found, name, limit, what in (
        (len(broken), "max_suspicious_broken_parts", settings.max_suspicious_broken_parts, ""),
        (
            size,
            "max_suspicious_broken_parts_bytes",
            settings.max_suspicious_broken_parts_bytes,
            f" of {size} bytes",
        ),
    ):
        if found > limit:
            raise TooManyUnexpectedParts(
                f"{replica}: {len(broken)} parts{what} are broken, for instance {broken[0][0]} "
                f"({broken[0][1]}); {name} is {limit}: is the disk failing? To start all the same, "
                "set them aside and fetch them again, create the node flags/force_restore_data"
            )


def _set_aside_broken(
    replica: Replica, broken: Sequence[tuple[PartName, str]]
) -> tuple[frozenset[PartName], list[tuple[str, str]]]:
    """Parts that turn out to be whole: somebody has put the fetched bytes in their place since. And
    what was set aside, with the problem.
    """
    whole: set[PartName] = set()
    detached: list[tuple[str, str]] = []
    for part, problem in broken:

        def is_broken(part: PartName = part) -> bool:
            return _problem(replica.store.inspect, part) is not None

        with suppress(UserError, MissingPart):  # ten copies of it are there: enough to look at
            name = replica.store.detach_if(part, "broken-on-start", is_broken)
            if name is not None:
                detached.append((name, problem))
            elif not is_broken():
                whole.add(part)
    return frozenset(whole), detached


def is_idle(replica: Replica, part: PartName) -> bool:
    """Whether this replica does not promise the part in ZooKeeper, and no claim of its workers is
    about to bring it.
    """
    return claims_and_parts(replica.keeper, replica.paths).is_free(part)


def idle_ones(replica: Replica, parts: Sequence[PartName]) -> list[PartName]:
    """Those of the parts for which `is_idle` holds, found out with one read for all of them."""
    view = claims_and_parts(replica.keeper, replica.paths)
    return [part for part in parts if view.is_free(part)]


def is_here(replica: Replica, part: PartName) -> bool:
    """Whether a promised part can be worked with. If it can't be read, it is as `check_part` says
    from now on: whoever needs it waits for the fetch, and all others go on.
    """
    return manifest_here(replica, part) is not None


def manifest_here(replica: Replica, part: PartName) -> Manifest | None:
    """What is in a part that was promised when somebody listed it. None when that can't be read:
    then it is as `is_here` says, or a drop has taken it since, which is no harm.
    """
    manifest = manifest_seen(replica, part)
    if manifest is None:
        check_part(replica, part)
    return manifest


def manifest_seen(replica: Replica, part: PartName) -> Manifest | None:
    """What is in a part; for who only looks, and mends nothing. Who asks whether it is there, and
    then what is in it, may find it gone.
    """
    try:
        return replica.store.manifest(part)
    except Corruption:
        return None


def suspect(replica: Replica, error: RmtError) -> str | None:
    """Somebody read a part of this replica and failed. As `check_part`; None too when the error is
    about nothing that is on this disk.
    """
    part = error.part if isinstance(error, Corruption) else None
    return None if part is None else check_part(replica, part)


def check_part(replica: Replica, part: PartName) -> str | None:
    """Read every byte of a promised part. What is wrong with it, when it was set aside and queued
    for a fetch; None when it is whole, or not ours any more.
    """
    kept: list[str] = []

    def look(part: PartName) -> Manifest:
        try:
            return replica.store.verify(part)
        except Corruption:
            if not kept:
                kept.append(_keep_copy(replica, part))
            raise

    replica.store.part_log.counts.add({ProfileEvent.CHECKS: 1})
    problem = refetch(replica, part, look)
    return None if problem is None else f"{problem}{''.join(kept)}"


def _keep_copy(replica: Replica, part: PartName) -> str:
    """For people to look at; the broken bytes stay under their name until the fetched ones replace
    them. That a copy can't be kept stops no healing: why, in words.
    """
    try:
        replica.store.detach_copy(part, "broken")
    except MissingPart:
        return ""  # nothing is left of it
    except UserError as error:
        return f"; it could not be set aside: {error}"
    return ""


PartsSeen = Callable[[PartName], Manifest]


def _problem(look: PartsSeen, part: PartName) -> str | None:
    try:
        look(part)
    except Corruption as error:
        return str(error)
    return None


def refetch(replica: Replica, part: PartName, look: PartsSeen | None = None) -> str | None:
    """Stop promising `part` and queue a fetch of it, at once, if `look` finds it broken
    (spec §5.9.1). What is wrong with it; None when nothing is, or when it is not promised.

    ZooKeeper first, then the disk: the other way round, a part that is published between the two
    looks like one that nobody promised (spec §16.6 F9). And nobody gives up the bytes that were
    fetched since: 1. Two see that the part is broken. 2. One gives it up, and it is fetched. 3. The
    other goes on: `is_lost` has another version by now, and it looks again.
    """
    keeper, paths = replica.keeper, replica.paths
    while True:
        lost, promise = keeper.get_many([paths.is_lost, paths.part(part)])
        if lost is None or promise is None:
            return None
        problem = _problem(look or replica.store.inspect, part)
        if problem is None and look is not None:
            problem = differs(replica, part, promise[0])
        if problem is None:
            return None
        # Before it is no longer promised: else a reader in between would go without its rows.
        replica.store.marks.give_up(part, promise=promise[0])
        entry = GetPart(create_time=promise[1].created_ms // 1000, source_replica="", part=part)
        ops = transactions.refetch_part(
            paths,
            part,
            encode(entry),
            is_lost_version=lost[1].version,
            is_lost=lost[0],
            noted=noted_mutations(keeper, paths),
        )
        try:
            keeper.multi(ops)
        except Refused as refused:
            if refused.kind is RefusalKind.BAD_VERSION:
                continue
            return None
        log = replica.store.part_log
        log.counts.add({ProfileEvent.CHECKS_FAILED: 1})
        now_s = replica.clock.now_s()
        log.note([PartEvent("BrokenPart", str(part), now_s, error=f"{problem}; {_HEALS}")])
        return problem


def differs(replica: Replica, part: PartName, header: bytes) -> str | None:
    """How a whole part is not the one that is promised under its name, with this header."""
    try:
        manifest = replica.store.manifest(part)
    except Corruption as error:
        return str(error)
    difference = PartHeader.decode(header).difference(manifest.header()) if header else None
    return None if difference is None else f"{part} is not what is promised: {difference}"


def _forget(
    replica: Replica, part: PartName, covering: PartName | None, is_lost_version: int
) -> None:
    """A promised part whose bytes are gone and that a larger one covers is not needed. If that one
    was given up since we looked, this one stays: who misses it will find that out.
    """
    assert covering not in (None, part), f"{part} is promised and nothing covers it"
    with suppress(Refused):
        replica.keeper.multi(
            transactions.forget_covered(
                replica.paths, part, covering, is_lost_version=is_lost_version
            )
        )
