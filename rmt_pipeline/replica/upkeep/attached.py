"""Remove what an ATTACH PARTITION that died after its commit has left in `detached/`."""

from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.inserts.ids import attach_block_id
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store import layout
from rmt_pipeline.store.layout import DetachedName
from rmt_pipeline.store.part_store import PartStore


@dataclass(frozen=True, slots=True)
class AttachedLeft:
    """A detached part that was not removed: perhaps it was attached already. Until it is removed,
    the id of its block must stay, which begins with `block_ids`. `why` is empty for a damaged part,
    which stays for people to look at.
    """

    block_ids: str
    why: str


def remove_attached(replica: Replica) -> list[AttachedLeft]:
    """Remove detached parts that were attached already. This must happen soon:

    1. ATTACH commits, and dies before it removes the detached parts.
    2. The rows are dropped, and the ids of their blocks with them; or the ids leave the window.
    3. The next ATTACH takes up what is in `detached/`, and the rows are there again.

    Returns what it was not able to remove. One of them does not stop the others.
    """
    left: list[AttachedLeft] = []
    detached = replica.store.detached_parts
    for name in detached.died():
        try:
            block_id = attach_block_id(name.part, detached.manifest(name).files_hash.hex())
            has_id = replica.keeper.exists(replica.table.block(block_id)) is not None
            if has_id or attached_as(replica, name):
                detached.remove(name)
        except (Corruption, OSError) as error:
            why = "" if isinstance(error, Corruption) else f"{name} can't be removed: {error}"
            left.append(AttachedLeft(attach_block_id(name.part, ""), why))
    return left


def attached_as(replica: Replica, name: DetachedName) -> PartName | None:
    """Return the promised part that was made of this directory's very files, if there is one. This
    finds what was attached without deduplication, of which no block id tells.
    """
    store, paths = replica.store, replica.paths
    files = [file.name for file in store.detached_parts.manifest(name).files][:1]
    wanted = [_inode(store, layout.DETACHED, str(name), file) for file in files]
    same = [
        part
        for part in store.parts()
        if part.partition == name.part.partition
        and [_inode(store, str(part), file) for file in files] == wanted
        and store.manifest(part).sources == (str(name.part),)
    ]
    promised = replica.keeper.exists_many([paths.part(part) for part in same])
    found = (part for part, stat in zip(same, promised, strict=True) if stat is not None)
    return None if None in wanted else next(found, None)


def _inode(store: PartStore, *names: str) -> int | None:
    stamp = store.disk.stamp(layout.join(store.root, *names))
    return None if stamp is None else stamp.inode
