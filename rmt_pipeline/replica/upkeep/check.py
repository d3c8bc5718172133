"""Find parts that are not what they should be: missing, unexpected, or with wrong bytes (spec §5.9,
§11.2).
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rmt_pipeline.protocol.errors import (
    Corruption,
    DiskFull,
    MissingPart,
    RmtError,
    UserError,
)
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
    require_promises,
)
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_log import PartEvent
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Delete, RefusalKind, Refused
from rmt_pipeline.zookeeper.snapshot import (
    claims_and_parts,
    committing_blocks,
    entries_to_come,
    free_parts,
    noted_mutations,
    queue_snapshot,
    sweep_snapshot,
)

_HEALS = "it is fetched again from another replica"
UNANNOUNCED_S = 300.0  # how long a part that ZooKeeper does not know is left alone


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start found on its disk: promised parts that are missing (queued for a fetch), and
    what was set aside in `detached`, with the reason.
    """

    refetched: tuple[PartName, ...] = ()
    detached: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DiskView:
    """The parts on disk compared with the promises. `in_flight` are unexpected parts that some
    process is about to promise, or to take away again.
    """

    on_disk: tuple[PartName, ...]
    promised: frozenset[PartName]
    unexpected: tuple[PartName, ...]
    in_flight: frozenset[PartName]
    queued: Mapping[PartName, str]
    is_lost_version: int
    dropped: tuple[PartName, ...]
    """Ranges that drops have taken away here. Unexpected parts within them are not kept."""

    def was_dropped(self, part: PartName) -> bool:
        return any(one.contains(part) for one in self.dropped)


def look_at_disk(replica: Replica) -> DiskView:
    """Compare the disk with ZooKeeper. Other processes of this host may be inserting or merging
    right now, and their parts have their name on disk before ZooKeeper knows them. So the disk is
    listed first, then the block numbers in flight and the claims, and the promises last: what was
    under way at the second read is recognized as such, and what was finished by then is promised at
    the third.

    An insert whose session ended while its commit had no answer has no lock any more, and its
    process is finding out what happened. So a young part is left alone too (spec §16.6 F10).
    """
    listed = tuple(replica.store.parts())
    # ZooKeeper may answer from the past: then a part that was claimed, published or promised since
    # would look like one that no process knows. After a sync the answers are not older than the
    # list.
    replica.keeper.sync(replica.table.root)
    partitions = sorted({part.partition for part in listed})
    locks = committing_blocks(replica.keeper, replica.table, partitions)
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    claimed = {part for claim in snapshot.claims.values() for part in claim.parts}
    promised = frozenset(snapshot.parts)
    # Parts that were published and promised since the disk was listed are not missing: look again.
    arrived = sorted(promised - frozenset(listed))
    on_disk = (*listed, *(part for part in arrived if replica.store.has(part)))
    queued = {
        part: node for node, entry in snapshot.entries.items() for part in virtual_parts(entry)
    }
    unexpected = tuple(part for part in on_disk if part not in promised)
    in_flight = frozenset(
        part
        for part in unexpected
        if part in claimed
        or part in queued  # a worker that carries the entry out may replace it at this moment
        or part.block_min in locks.get(part.partition, ())
        or _is_young(replica, part)
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
    """Return the ranges that entries yet to be carried out here drop. A replica that replaces a
    range promises none of its parts from the moment when the entry is written; its process may have
    died before it noted the drop on the disk.

    When an entry leaves the queue, its drop is on the disk: so the caller looks there last.
    """
    keeper, known = replica.keeper, replica.memory.queue
    entries = entries_to_come(keeper, replica.table, replica.paths, known)
    dropped = map(drop_range_of, entries)
    return [one for one in dropped if one is not None and one.is_drop_range]


def forget_undone_drops(replica: Replica) -> None:
    """Forget notes of drops that did not happen in this table, as it is since a restore:

    1. A process that carries out a drop is about to note it on the disk, and ZooKeeper loses the
       table.
    2. No disk knows of the drop, so the restored table has the rows. Only then the process notes
       it.
    3. New rows get numbers within the range. ZooKeeper loses the table again. To the next restore
       the note would say that all these rows are dropped.

    When a drop is carried out, nothing within it is promised here. Until then its entry is queued.
    """
    noted = replica.store.drops.ranges()
    if not noted:
        return
    snapshot = sweep_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    queued = {drop_range_of(entry) for entry in snapshot.entries.values()}
    undone = [
        one
        for one in noted
        if one not in queued and any(map(one.contains, snapshot.parts.names(one.partition)))
    ]
    if not undone or snapshot.is_lost:
        return
    require_promises(replica)
    stat = replica.keeper.exists(replica.paths.is_lost)
    if stat is None or stat.version != snapshot.is_lost_version:
        return  # it was cloned meanwhile
    for one in undone:
        replica.store.drops.forget(one)


def recover_parts(replica: Replica) -> Recovered:
    """Make the disk and the promises in ZooKeeper agree (spec §11.2 item 4, design §4): remove, set
    aside or fetch parts.

    Raises TooManyUnexpectedParts, ZooKeeperIsOlder.
    """
    forget_undone_drops(replica)
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
        replica.store.marks.forget_log_seen()
        replica.keeper.multi([Delete(replica.paths.force_restore_data)])
    return Recovered(refetched, tuple(detached))


def _set_aside_returned(
    replica: Replica, here: AbstractSet[PartName], detached: list[tuple[str, str]]
) -> tuple[PartName, ...]:
    """Set aside parts that were lost, and replaced by empty ones (`lost`), but are back with an
    older copy of the disk, and queue fetches of the empty ones. The lost rows may have been
    inserted again since, so they do not come back by themselves; no other replica has them, so
    people may attach them.
    """
    [names] = replica.keeper.children_many([replica.table.lost_parts])
    parts = sorted(here & {PartName.parse(name) for name in names or ()})
    promises = replica.keeper.get_many([replica.paths.part(part) for part in parts])
    refetched: list[PartName] = []
    for part, promise in zip(parts, promises, strict=True):
        problem = None if promise is None else differs(replica, part, promise[0])
        if problem is None:
            continue
        # ten copies of it are in detached/ already: enough
        with suppress(UserError, MissingPart):
            name = replica.store.detach_copy(part, "ignored", once=True)
            detached.append((name, f"{problem}: it was lost, and became an empty part"))
        if refetch(replica, part, replica.store.inspect) is not None:
            refetched.append(part)
    return tuple(refetched)


def _is_young(replica: Replica, part: PartName) -> bool:
    """Whether the part may be that of an insert whose process is finding out what became of it. A
    part from the future was made while the clock of its host was ahead: it is young for as long
    after this process first saw it.
    """
    try:
        created_s = replica.store.manifest(part).created_s
    except Corruption:
        return False
    clock, seen = replica.clock, replica.memory.from_the_future
    if created_s <= clock.now_s():
        return created_s > clock.now_s() - UNANNOUNCED_S
    now_s = clock.monotonic_s()
    first_s = seen.of([part]).get(part, now_s)
    seen.learn({part: first_s})
    return now_s - first_s <= UNANNOUNCED_S


def _loadable(
    replica: Replica, parts: Sequence[PartName]
) -> tuple[list[LocalPart], list[tuple[PartName, str]]]:
    """Return the parts whose manifest can be read and whose files are there; and those that are
    broken, with what is wrong with them (spec §11.3).
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
    """Whether the part has the level of its only source. That is a copy (or a mutated part, which
    has a mutation number): a merged part has a greater level than its sources.
    """
    levels = [one.level for text in manifest.sources if (one := PartName.try_parse(text))]
    return levels == [part.level]


def _require_few_broken(replica: Replica, broken: Sequence[tuple[PartName, str]]) -> None:
    """Raise TooManyUnexpectedParts if many parts are broken at once: the disk may be, too."""
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
                "set them aside and fetch them again: rmt force-restore-data"
            )


def _set_aside_broken(
    replica: Replica, broken: Sequence[tuple[PartName, str]]
) -> tuple[frozenset[PartName], list[tuple[str, str]]]:
    """Set broken parts aside. Return the parts that turn out to be whole, because a fetch has
    replaced their bytes since; and the names of what was set aside, with the problem.
    """
    whole: set[PartName] = set()
    detached: list[tuple[str, str]] = []
    for part, problem in broken:

        def is_broken(part: PartName = part) -> bool:
            return _problem(replica.store.inspect, part) is not None

        # ten copies of it are in detached/ already: enough to look at
        with suppress(UserError, MissingPart):
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
    return free_parts(replica.keeper, replica.paths, parts)


def is_here(replica: Replica, part: PartName) -> bool:
    """Whether a promised part can be read. If it can't, `check_part` has queued a fetch of it: work
    that needs the part waits for that, and all other work goes on.
    """
    return manifest_here(replica, part) is not None


def manifest_here(replica: Replica, part: PartName) -> Manifest | None:
    """Return the manifest of a part that was promised when the caller listed it. None if it can't
    be read: then `check_part` has queued a fetch of it, unless a drop has taken it since, which
    does no harm; or the disk can't note that the part is given up: then the next look tries again,
    and all other work goes on.
    """
    manifest = manifest_seen(replica, part)
    if manifest is None:
        with suppress(OSError, DiskFull):
            check_part(replica, part)
    return manifest


def manifest_seen(replica: Replica, part: PartName) -> Manifest | None:
    """Return the manifest of a part, or None if it can't be read; for callers that only look and
    repair nothing. A part that was just listed may be gone.
    """
    try:
        return replica.store.manifest(part)
    except Corruption:
        return None


def suspect(replica: Replica, error: RmtError) -> str | None:
    """Check the part about which a reader of this replica got the error. Returns what `check_part`
    does; None too if the error is about no part of this disk.
    """
    part = error.part if isinstance(error, Corruption) else None
    return None if part is None else check_part(replica, part)


def check_part(replica: Replica, part: PartName) -> str | None:
    """Read every byte of a promised part. If it is broken, a copy is set aside, a fetch is queued,
    and what is wrong is returned; None if it is whole, or not ours any more.
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
    """Keep a copy of a broken part for people to look at; the broken bytes stay under their name
    until the fetched ones replace them. A copy that can't be kept does not stop the repair: the
    reason is returned, in words.
    """
    try:
        replica.store.detach_copy(part, "broken")
    except MissingPart:
        return ""  # nothing is left of the part
    except (UserError, OSError) as error:
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
    """Stop promising `part` and queue a fetch of it, in one multi, if `look` finds it broken (spec
    §5.9.1). Return what is wrong with it; None if nothing is, or if it is not promised.

    ZooKeeper is changed first, then the disk: the other way round, a part that is published between
    the two looks like one that was never promised (spec §16.6 F9). Bytes that were fetched since
    are not given up:

    1. Two processes see that the part is broken.
    2. One gives it up, and it is fetched.
    3. The other one goes on: `is_lost` has another version by now, its multi is refused, and it
       looks again.
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
        # Marked before it is no longer promised: otherwise a reader in between would go without its
        # rows.
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
    """Return how a part here differs from the one that is promised under its name, with this
    header; None if it does not.
    """
    try:
        manifest = replica.store.manifest(part)
    except Corruption as error:
        return str(error)
    difference = PartHeader.decode(header).difference(manifest.header()) if header else None
    return None if difference is None else f"{part} is not what is promised: {difference}"


def _forget(
    replica: Replica, part: PartName, covering: PartName | None, is_lost_version: int
) -> None:
    """Stop promising a part whose bytes are gone and that a larger one covers. If that one was
    given up since we looked, this part stays promised: whatever needs it will find that it is
    missing.
    """
    assert covering not in (None, part), f"{part} is promised and nothing covers it"
    with suppress(Refused):
        replica.keeper.multi(
            transactions.forget_covered(
                replica.paths, part, covering, is_lost_version=is_lost_version
            )
        )
