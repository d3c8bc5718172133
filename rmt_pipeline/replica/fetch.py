"""Find who has a part, or a part that contains it, and get it (spec §5.2)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.errors import NoReplicaHasPart, RmtError
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.nodes.formats import PartHeader, ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.layout import join
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.keeper import Stat
from rmt_pipeline.zookeeper.snapshot import living_replicas

ADDRESS_VALID_S = 1.0
ASKED_BESIDE_MAX = 32  # entries
LOOKED_THROUGH_MAX = 1000  # of a queue, to find these

SeenNodes = Mapping[str, tuple[bytes, Stat] | None]
"""What was read a moment ago, by path."""

Failed = Mapping[PartName, Collection[str]]
"""By part: the replicas at which its fetch has failed."""


@dataclass(frozen=True, slots=True)
class PartSource:
    """Where to get `part` (the wanted one, or one that contains it) and what it must be."""

    request: FetchRequest
    replica: str
    part: PartName
    header: PartHeader | None


def difference_from_promise(
    store: PartStore, part: PartName, staged: StagedPart, promised: PartHeader | None
) -> str | None:
    """How what a peer has sent is not what ZooKeeper has for it; None when it is.

    A peer may say of its rows whatever it likes. Files that are the promised ones by hash are
    proof; others, of a writer that stores the same rows differently, are read. The version of the
    metadata that they are read with is the promised one, or the promise is older than this rule. No
    hash is over the bounds by which a mutation or a replacement passes a part by: they are compared
    with the files.
    These may have the name of `part` already, from an attempt that died.
    """
    manifest = staged.manifest
    header = manifest.header()
    difference = header.difference(promised) if promised is not None else None
    if difference is not None:
        return difference
    from rmt_pipeline.compute.read.proof import (  # noqa: PLC0415  start-up
        difference_from_bounds,
        rows_are_those_of,
    )

    staged_at = store.staged_at(staged.directory)
    directory = store.directory(part) if staged_at is None else staged_at[1]
    paths = [join(directory, name) for name in sorted(one.name for one in manifest.files)]
    known = None if promised is None else promised.hash_of_all_files
    is_proven = known in (None, header.hash_of_all_files, manifest.files_hash)
    if promised is not None and known != manifest.files_hash:
        claimed, version = manifest.metadata_version, promised.metadata_version
        if version is not None and claimed != version:
            return f"metadata version: its manifest says {claimed}, promised is {version}"
    if not is_proven and not rows_are_those_of(manifest, paths):
        return "content: its rows are not those that the manifest claims"
    try:
        difference = difference_from_bounds(manifest, paths)
    except RmtError as error:
        return f"content: {error}"
    return None if difference is None else f"key bound of {difference}"


def find_sources(
    replica: Replica,
    wanted: Sequence[tuple[PartName, str]],
    failed: Failed = MappingProxyType({}),
    seen: SeenNodes = MappingProxyType({}),
) -> dict[PartName, PartSource | NoReplicaHasPart]:
    """A source for each (part, replica that first had it).

    The replica that wrote the log entry is asked first: usually it is right, and one pipelined
    read answers for a whole batch. Then every active one is asked for just these parts, as who
    clones another must. Only for what nobody has under its own name all that they have is listed.

    A replica may promise a part and not be able to send it: we can't reach it, or its disk fails.
    Then whoever else has the part, or one that contains it, is asked first.
    """
    hints = {
        part: name for part, name in _hints(replica, wanted) if name not in failed.get(part, ())
    }
    found: dict[PartName, PartSource | NoReplicaHasPart] = dict(
        _read_hints(replica, hints, seen)
    )
    parts = [part for part, _ in wanted if part not in found]
    if parts:
        living = living_replicas(replica.keeper, replica.table)
        names = [name for name, active in living.items() if active and name != replica.name]
        found |= _read_exact(replica, names, parts, failed)
        parts = [part for part in parts if part not in found]
        found |= _search(replica, living, names, parts, failed) if parts else {}
    nowhere_else = [
        (part, "")
        for part, _ in wanted
        if part in failed and not isinstance(found[part], PartSource)
    ]
    return found | (find_sources(replica, nowhere_else) if nowhere_else else {})


def _hints(
    replica: Replica, wanted: Iterable[tuple[PartName, str]]
) -> list[tuple[PartName, str]]:
    return [(part, name) for part, name in wanted if name and name != replica.name]


def hints_of(replica: Replica, queue: Collection[str], at_hand: Collection[str]) -> list[str]:
    """What `find_sources` reads first when all of this queue are fetched that are not at hand, for
    who reads it with something else: no request more. Nothing of many, of which few may run yet.
    """
    if len(queue) - len(at_hand) > LOOKED_THROUGH_MAX:
        return []
    known = replica.memory.queue.entries.of(queue)
    wanted = [
        (entry.part, entry.source_replica)
        for node, entry in known.items()
        if isinstance(entry, GetPart) and node not in at_hand
    ]
    if len(wanted) > ASKED_BESIDE_MAX:
        return []
    hints = _hints(replica, wanted)
    names = sorted({name for _, name in hints})
    parts = [replica.table.replica(name).part(part) for part, name in hints]
    return [*_paths_of_addresses(replica, _stale(replica, names)), *parts]


def _read_hints(
    replica: Replica, hints: Mapping[PartName, str], seen: SeenNodes
) -> dict[PartName, PartSource]:
    addresses = _addresses(replica, sorted(set(hints.values())), seen)
    asked = [(part, name) for part, name in hints.items() if name in addresses]
    paths = [replica.table.replica(name).part(part) for part, name in asked]
    return {
        part: _source(replica, name, addresses[name], part, read[0])
        for (part, name), read in zip(asked, _read(replica, paths, seen), strict=True)
        if read is not None
    }


def _read(
    replica: Replica, paths: Sequence[str], seen: SeenNodes
) -> list[tuple[bytes, Stat] | None]:
    """What was seen to be there is; whatever else may be by now."""
    found = {path: read for path in paths if (read := seen.get(path)) is not None}
    left = [path for path in paths if path not in found]
    reads = dict(zip(left, replica.keeper.get_many(left), strict=True))
    return [found.get(path) or reads[path] for path in paths]


def _stale(replica: Replica, names: Sequence[str]) -> list[str]:
    known, now = replica.memory.addresses.of(names), replica.clock.monotonic_s()
    return [
        name
        for name in names
        if now - known.get(name, (-ADDRESS_VALID_S, b""))[0] > ADDRESS_VALID_S
    ]


def _paths_of_addresses(replica: Replica, names: Sequence[str]) -> list[str]:
    paths = [replica.table.replica(name) for name in names]
    return [node for peer in paths for node in (peer.is_active, peer.host)]


def _addresses(replica: Replica, names: Sequence[str], seen: SeenNodes) -> dict[str, bytes]:
    """Of those that are active, or were a moment ago: if one is not any more, its fetch fails and
    the next try looks again. Who has become active since `seen` had no address then, if it was his
    first time.
    """
    known, now = replica.memory.addresses.of(names), replica.clock.monotonic_s()
    stale = _stale(replica, names)
    reads = _read(replica, _paths_of_addresses(replica, stale), seen)
    for name, active, host in zip(stale, reads[0::2], reads[1::2], strict=True):
        known.pop(name, None)
        if active is not None and host is not None and host[0]:
            known[name] = (now, host[0])
    replica.memory.addresses.learn(known)
    replica.memory.addresses.forget(name for name in stale if name not in known)
    return {name: address for name, (_, address) in known.items()}


def _read_exact(
    replica: Replica, names: Sequence[str], parts: Sequence[PartName], failed: Failed
) -> dict[PartName, PartSource]:
    """Parts that one of these replicas has under this very name."""
    peers = [replica.table.replica(name) for name in names]
    hosts = replica.keeper.get_many([peer.host for peer in peers])
    asked = [
        (part, number)
        for part in parts
        for number, name in enumerate(names)
        if name not in failed.get(part, ())
    ]
    reads = replica.keeper.get_many([peers[number].part(part) for part, number in asked])
    found: dict[PartName, PartSource] = {}
    for (part, number), header in zip(asked, reads, strict=True):
        host = hosts[number]
        if part not in found and header is not None and host is not None:
            found[part] = _source(replica, names[number], host[0], part, header[0])
    return found


def _search(
    replica: Replica,
    living: Mapping[str, bool],
    names: Sequence[str],
    parts: Sequence[PartName],
    failed: Failed,
) -> dict[PartName, PartSource | NoReplicaHasPart]:
    """The largest part that contains each, on any active replica (spec §5.2.1)."""
    keeper, table = replica.keeper, replica.table
    listed = keeper.children_many([table.replica(name).parts for name in names])
    active = [
        (name, PartSet(map(PartName.parse, had or [])))
        for name, had in zip(names, listed, strict=True)
    ]
    found: dict[PartName, PartSource | NoReplicaHasPart] = {}
    for part in parts:
        best: tuple[PartName, str] | None = None
        for name, theirs in active:
            if name in failed.get(part, ()):
                continue
            candidate = theirs.containing(best[0] if best else part)
            if candidate is not None and (best is None or candidate != best[0]):
                best = (candidate, name)
        sources = {} if best is None else _read_exact(replica, [best[1]], [best[0]], failed)
        for source in sources.values():
            found[part] = source
        if part not in found:  # nobody, or it was merged away since it was listed
            found[part] = _nobody_has(replica, living, names, part)
    return found


def _nobody_has(
    replica: Replica, living: Mapping[str, bool], names: Sequence[str], part: PartName
) -> NoReplicaHasPart:
    inactive = sorted(name for name, active in living.items() if not active)
    return NoReplicaHasPart(
        f"no active replica of {replica.table.root} has {part} or a part that contains it "
        f"(looked at {', '.join(names) or 'none'}; not active: {', '.join(inactive) or 'none'})"
    )


def _source(
    replica: Replica, name: str, address: bytes, part: PartName, header: bytes
) -> PartSource:
    request = FetchRequest(
        ReplicaAddress.decode(address), replica.table.replica(name).root, part
    )
    return PartSource(request, name, part, PartHeader.decode(header) if header else None)
