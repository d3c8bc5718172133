"""Remove what an ATTACH PARTITION that died after its commit has left in `detached/`."""

from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.inserts.ids import attach_block_id
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store import layout
from rmt_pipeline.store.layout import DetachedName


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
            if attached_as(replica, name):
                detached.remove(name)
        except (Corruption, OSError) as error:
            why = "" if isinstance(error, Corruption) else f"{name} can't be removed: {error}"
            left.append(AttachedLeft(attach_block_id(name.part, ""), why))
    return left


def attached_as(replica: Replica, name: DetachedName) -> PartName | None:
    """Return the part as which this directory was committed, if it was: the id of its block tells.
    ZooKeeper may have lost that, and earlier builds gave none without deduplication; so a promised
    part that was made of the directory's very files tells it too.
    """
    detached = replica.store.detached_parts
    checksum, attempt = detached.manifest(name).files_hash.hex(), detached.attempt(name)
    block_id = attach_block_id(name.part, checksum, attempt)
    [read] = replica.keeper.get_many([replica.table.block(block_id)])
    return _made_of(replica, name) if read is None else PartName.parse(read[0].decode())


def _made_of(replica: Replica, name: DetachedName) -> PartName | None:
    store = replica.store
    detached, root = store.detached_parts, store.root
    files = [file.name for file in detached.manifest(name).files][:1]

    def has_its_files(part: PartName) -> bool:
        mine = (layout.join(root, layout.DETACHED, str(name), file) for file in files)
        made = (layout.join(root, str(part), file) for file in files)
        return all(map(store.disk.is_same_file, mine, made))

    made = [
        part
        for part in store.parts()
        if part.partition == name.part.partition
        and has_its_files(part)
        and store.manifest(part).sources == (str(name.part),)
    ]
    promised = replica.keeper.exists_many([replica.paths.part(part) for part in made])
    return next((part for part, stat in zip(made, promised, strict=True) if stat), None)
