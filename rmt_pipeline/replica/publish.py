"""Publishing a staged part: it gets its name on the disk first; then one multi promises it in
ZooKeeper and ends its queue entry (§5.4).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, Corruption, UserError
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.answered import answered
from rmt_pipeline.replica.quorum import count_us
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store import layout
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Check, Op, Refused, absent
from rmt_pipeline.zookeeper.snapshot import promised_elsewhere

_NOT_IDENTICAL: dict[layout.StageKind, layout.DetachReason] = {
    "merge": "merge-not-byte-identical",
    "mutate": "mutate-not-byte-identical",
}


class PartDiffers(Corruption):
    """Our bytes of a part are not what another replica has published under the same name.

    `ours` and `theirs` are the hashes of the rows' content, 32 hex digits.
    """

    code = "CHECKSUM_DOESNT_MATCH"

    def __init__(self, message: str, *, ours: str, theirs: str) -> None:
        super().__init__(message)
        self.ours = ours
        self.theirs = theirs


class EntryGone(Conflict):
    """The queue entry was removed while it ran (a DROP covers it), or our claim is gone. The result
    is thrown away.
    """

    code = "ABORTED"


class PartIsBusy(Conflict):
    """There is a directory with the part's name, and a reader still uses it. Retry later."""

    code = "PART_IS_TEMPORARILY_LOCKED"


@dataclass(frozen=True, slots=True)
class Published:
    """A part that is on the disk under its name, and in ZooKeeper."""

    part: PartName
    rows: int
    size_bytes: int
    is_claimed: bool = False
    """The entry was gone already, and our claim of it may still exist."""


def publish(
    replica: Replica,
    node: str,
    part: PartName,
    staged: StagedPart,
    *,
    is_theirs: bool = False,
    awaited: Collection[PartName] = (),
    more: Sequence[Op] = (),
) -> Published:
    """Make `staged` this replica's `part`, finishing the claimed queue entry `node`.

    `is_theirs`: the part was compared with what another replica has published already. `awaited`:
    parts in it whose quorum may be waited for; this replica is counted there. `more` are operations
    for the same multi.

    A publication that gets no answer is sent again. Each try deletes the queue entry, so only one
    of them can succeed: if the first one landed, the second one is refused; if not, it never will.

    Raises PartDiffers (the staged bytes are discarded or set aside), EntryGone, PartIsBusy;
    Conflict if others keep publishing the part meanwhile; OutcomeUnknown and ReplicaRetired if
    there was no answer: then the directory stays for `start` or the next attempt.
    """
    header, paths = staged.manifest.header(), replica.paths
    done = Published(part, staged.manifest.rows, staged.manifest.bytes_on_disk)
    for _ in range(limits.PUBLISH_ROUNDS_MAX):
        nobody_has = (
            [] if is_theirs else _compare_with_others(replica, node, part, header, staged)
        )
        counted = count_us(replica, awaited)
        if counted.failed:
            _throw_away(replica, node, part, staged)
            raise _quorum_failed(replica, node, counted.failed)
        ops = transactions.publish_part(
            paths,
            node,
            part,
            header.encode(),
            nobody_has=nobody_has,
            counted=[*counted.ops, *more],
        )
        known = replica.memory.queue
        before, queued = known.listed(paths), known.queued(paths)
        claims = known.claimed(paths)
        try:
            with _on_disk(replica, node, part, staged):
                answered(replica, ops)
        except Refused as refused:
            is_others = refused.path in {op.path for op in nobody_has}
            if is_others or counted.is_about(refused.path):
                take_back(replica, node, part, staged)
                continue  # another replica published or went meanwhile: compare, or count anew
            entry_gone = refused.path in (paths.queue_entry(node), paths.claim(node))
            if entry_gone and replica.keeper.exists(paths.part(part)) is not None:
                return replace(done, is_claimed=True)
            _throw_away(replica, node, part, staged)
            raise EntryGone(
                f"{replica}: {part} was made, but its queue entry {node} is gone ({refused})"
            ) from refused
        known.published(paths, before, [part], replica.keeper.session_id)
        known.changed(paths, queued, replica.keeper.session_id, went={node})
        known.claims_changed(paths, claims, replica.keeper.session_id, went={node})
        return done
    _discard(replica, staged)
    raise Conflict(
        f"{replica}: others published {part} {limits.PUBLISH_ROUNDS_MAX} times while we tried"
    )


def _quorum_failed(replica: Replica, node: str, failed: Collection[PartName]) -> EntryGone:
    """Finish the entry, since no replica is to have these parts any more; the error to raise."""
    with suppress(Refused):
        replica.keeper.multi(transactions.finish_entry(replica.paths, node))
    names = ", ".join(map(str, sorted(failed)))
    return EntryGone(
        f"{replica}: the quorum of {names} failed: it is not in the table any more"
    )


def _compare_with_others(
    replica: Replica, node: str, part: PartName, header: PartHeader, staged: StagedPart
) -> list[Op]:
    """What asserts that no other replica has the part, if none has it; nothing if one promises the
    same bytes. Raises PartDiffers if it promises others.
    """
    [compared] = compared_elsewhere(replica, {part: header}).values()
    if isinstance(compared, Difference):
        hashes = [one.hash_of_uncompressed_files.hex() for one in (header, compared.theirs)]
        raise PartDiffers(
            f"{replica}: our {part} differs from replica {compared.replica}'s in its "
            f"{compared.what}: ours is {hashes[0]}, theirs {hashes[1]}; "
            f"{_away(replica, node, part, staged)}, theirs is fetched",
            ours=hashes[0],
            theirs=hashes[1],
        )
    return compared


@dataclass(frozen=True, slots=True)
class Difference:
    """What another replica has published under the name of our part is not the same: `what`
    differs, in words.
    """

    replica: str
    theirs: PartHeader
    what: str


def compared_elsewhere(
    replica: Replica, headers: Mapping[PartName, PartHeader]
) -> dict[PartName, list[Op] | Difference]:
    """For each part how ours compares with what other replicas promise: what asserts that none has
    it, if that is so; nothing if one promises the same bytes; or the difference. A node without a
    header, made by hand for bytes that were brought back, says nothing and is skipped.

    It is also asserted that no replica has joined. Otherwise:

    1. We mutate a part, and nobody has it.
    2. The mutation is killed. A replica joins, and makes the part without it.
    3. We promise ours, which has other rows.
    """
    table, found = replica.table, dict[PartName, list[Op] | Difference]()
    version, promised = promised_elsewhere(replica.keeper, table, replica.name, list(headers))
    for part, header in headers.items():
        nobody_has: list[Op] = [Check(table.replicas, version)]
        for name, data in promised[part].items():
            nobody_has += absent(table.replica(name).part(part)) if data is None else []
        theirs = next(((name, data) for name, data in promised[part].items() if data), None)
        if theirs is None:
            found[part] = nobody_has
            continue
        other = PartHeader.decode(theirs[1])
        what = header.difference(other)
        found[part] = [] if what is None else Difference(theirs[0], other, what)
    return found


def _away(replica: Replica, node: str, part: PartName, staged: StagedPart) -> str:
    """Discard our differing result, or set it aside for people to look at. Returns which, in words.
    It has the part's name if it was to be published together with others.
    """
    take_back(replica, node, part, staged)
    name = layout.parse_staged(staged.directory)
    reason = None if name is None else _NOT_IDENTICAL.get(name.kind)
    if reason is None or not replica.settings.detach_not_byte_identical_parts:
        _discard(replica, staged)
        return "ours is thrown away"
    return f"ours is set aside as {replica.store.detach_staged(staged, part, reason)}"


@contextmanager
def _on_disk(replica: Replica, node: str, part: PartName, staged: StagedPart) -> Iterator[None]:
    """While this is open the part is on the disk under its name, and no clean-up removes it."""
    with room_for(replica, node, part, staged):
        replica.store.publish(staged, part)
        yield


@contextmanager
def room_for(replica: Replica, node: str, part: PartName, staged: StagedPart) -> Iterator[None]:
    """While this is open, the staged part can be given the part's name.

    A directory of that name may exist: left by an attempt that died, or with bytes that were found
    broken. It may also be that our session has ended without our noticing, and another worker has
    claimed the entry after us and published the part.

    If the existing directory is whole and has the same files, it is as good as ours, no matter
    which process made it. It is pinned, because a clean-up that saw it before we claimed the entry
    may be about to remove it. Any other directory is removed, but only after ZooKeeper has
    confirmed that our claim still stands: its rows are known only from its own manifest, and its
    files are not those that we are about to promise.
    """
    with _as_good(replica, part, staged) as as_good:
        if not as_good:
            _make_room(replica, node, part, staged)
        yield


def _make_room(replica: Replica, node: str, part: PartName, staged: StagedPart) -> None:
    if not replica.store.is_taken(part):
        return
    if not staged.manifest.rows:
        _keep_rows(replica, part)

    def may_go(held: Sequence[PartName]) -> Sequence[PartName]:
        replica.keeper.multi(transactions.confirm_claim(replica.paths, node, part))
        return held

    try:
        stays = replica.store.remove_all([part], may_go)
    except Refused as refused:
        _discard(replica, staged)
        raise EntryGone(f"{replica}: our claim of {node} is gone ({refused})") from refused
    if stays:
        raise PartIsBusy(
            f"{replica}: an old directory of {part} is still being read; trying again later"
        )


def _keep_rows(replica: Replica, part: PartName) -> None:
    """Keep a copy of the old directory in `detached/` when an empty part replaces it. The empty
    part stands for one that no replica has any more; but if its bytes were only unavailable for a
    while, these may be the last ones, and people may attach them.
    """
    with suppress(Corruption, UserError):  # broken, so a copy exists; or there are ten
        if replica.store.verify(part).rows:
            replica.store.detach_copy(part, "ignored", once=True)


@contextmanager
def _as_good(replica: Replica, part: PartName, staged: StagedPart) -> Iterator[bool]:
    """Yields whether there is a directory of the part that is as good as the staged one; if so, it
    is pinned while this is open.
    """
    with ExitStack() as pinned:
        try:
            pinned.enter_context(replica.store.pin([part]))
            found = replica.store.verify(part).header()
        except Corruption:  # or there is none
            found = None
        as_good = found is not None and found == staged.manifest.header()
        if not as_good:
            pinned.close()
        yield as_good


def _throw_away(replica: Replica, node: str, part: PartName, staged: StagedPart) -> None:
    """Remove the part's directory, if it is certainly ours to remove; otherwise clean-up does."""
    if take_back(replica, node, part, staged):
        _discard(replica, staged)


def take_back(replica: Replica, node: str, part: PartName, staged: StagedPart) -> bool:
    """Take the part's name from the directory, if our claim still stands and the part is not
    promised. Returns whether that was done.
    """

    def is_ours() -> bool:
        try:
            replica.keeper.multi(transactions.confirm_claim(replica.paths, node, part))
        except Refused:
            return False
        return True

    return replica.store.withdraw(part, staged, is_ours)


def _discard(replica: Replica, staged: StagedPart) -> None:
    replica.store.discard(staged)
