"""Looking for a part that no replica has on this disk, before it counts as lost (spec §5.9).

It may have been given up here while it was only unreadable for a moment; or the process that
fetched it died before it was promised.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption, MissingPart, UserError
from rmt_pipeline.protocol.log.entry import AttachPart, GetPart, LogEntry
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Refused

_SET_ASIDE_AS = ("broken", "broken-on-start")


@dataclass(frozen=True, slots=True)
class PutBack:
    """A queue entry whose part this disk may still have: it has not been looked for yet."""

    part: PartName


def is_unseen(replica: Replica, part: PartName) -> bool:
    """Whether this disk may have the part and was not searched for it yet. No byte is read.

    That is so if the part was given up here; or if a directory has its name although it is not
    promised yet, because the process that fetched or made it died before ZooKeeper knew. (By then
    that process had compared it.)
    """
    store = replica.store
    return store.marks.is_unseen(part) or _is_untold(store, part)


def _is_untold(store: PartStore, part: PartName) -> bool:
    return store.marks.given_up_s(part) is None and store.is_taken(part)


def what_is_left(replica: Replica, entry: LogEntry) -> PutBack | None:
    """How to look for the entry's part on this disk. None if that was done in vain, if this replica
    never had the part, or if the entry is of another kind.
    """
    if not isinstance(entry, GetPart | AttachPart):
        return None
    return PutBack(entry.part) if is_unseen(replica, entry.part) else None


def stage_what_is_left(replica: Replica, node: str, part: PartName) -> StagedPart:
    """Stage the part from its own directory, or from a copy that was set aside, if every byte of it
    is what was promised. The entry at `node` is claimed. Raises Corruption if neither is whole:
    then the part may be lost.
    """
    store = replica.store
    if _is_untold(store, part):
        return _stage_untold(replica, node, part)
    promise = store.marks.promise(part)

    def require_promised(manifest: Manifest) -> Manifest:
        difference = PartHeader.decode(promise).difference(manifest.header())
        if difference is not None:
            raise Corruption(f"{part} is not what was promised: {difference}")
        return manifest

    problems: list[str] = []
    try:
        manifest = require_promised(store.verify(part))
        return store.clone_into(store.begin("fetch", str(part)), part, manifest)
    except Corruption as error:
        problems.append(str(error))
    detached = store.detached_parts
    for name in detached.names():
        if name.part == part and name.reason in _SET_ASIDE_AS:
            try:
                manifest = require_promised(detached.verify(name))
                return detached.stage(name, store.begin("fetch", str(part)), manifest)
            except Corruption as error:
                problems.append(str(error))
    store.marks.looked_again(part)
    raise _not_whole(replica, part, problems)


def _stage_untold(replica: Replica, node: str, part: PartName) -> StagedPart:
    """Stage a part that has its name and was never promised. A broken one is set aside, unless
    another worker has claimed the entry since.
    """
    store = replica.store
    try:
        manifest = store.verify(part)
        return store.clone_into(store.begin("fetch", str(part)), part, manifest)
    except Corruption as error:
        with suppress(MissingPart, UserError):  # there are ten copies of it already
            store.detach_copy(part, "broken")
        with suppress(Refused):
            store.remove_all([part], lambda held: _confirmed(replica, node, part, held))
        raise _not_whole(replica, part, [str(error)]) from error


def _confirmed(
    replica: Replica, node: str, part: PartName, held: Sequence[PartName]
) -> Sequence[PartName]:
    replica.keeper.multi(transactions.confirm_claim(replica.paths, node, part))
    return held


def _not_whole(replica: Replica, part: PartName, problems: Sequence[str]) -> Corruption:
    return Corruption(
        f"{replica}: no replica has {part}, and what this disk has left of it is not whole: "
        f"{'; '.join(problems)}"
    )
