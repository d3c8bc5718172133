"""Finding the replica from which to fetch a part, or a part that contains it (spec §5.2)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.errors import Corruption, NoReplicaHasPart, RmtError
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
ASKED_BESIDE_MAX = 32  # entries for which `hints_of` gives paths
LOOKED_THROUGH_MAX = 1000  # entries of a queue that it looks through for that

SeenNodes = Mapping[str, tuple[bytes, Stat] | None]
"""Nodes that were read a moment ago, by path; None for one that did not exist."""

Failed = Mapping[PartName, Collection[str]]
"""For each part, the replicas at which its fetch has failed."""


@dataclass(frozen=True, slots=True)
class PartSource:
    """From where to fetch `part` (the wanted one, or one that contains it). `header` is what the
    replica has promised for it in ZooKeeper; None if its node is empty.
    """

    request: FetchRequest
    replica: str
    part: PartName
    header: PartHeader | None


def broken_promise(
    replica: Replica,
    part: PartName,
    staged: StagedPart,
    promised: PartHeader | None,
    sender: str,
) -> Corruption | None:
    """The error for a part of a peer that is not what ZooKeeper has promised; None if it is. A
    wrong one is discarded.
    """
    difference = _difference(replica.store, part, staged, promised)
    if difference is None:
        return None
    replica.store.discard(staged)
    return Corruption(
        f"{replica}: {part} arrived from {sender} and is not what ZooKeeper has for it: "
        f"{difference}"
    )


def _difference(
    store: PartStore, part: PartName, staged: StagedPart, promised: PartHeader | None
) -> str | None:
    """How a part that a peer has sent differs from what ZooKeeper has promised; None if it does
    not.

    A peer's manifest may claim anything about the rows. If the files have the promised hash, they
    are proven. If not (another program may store the same rows in other bytes), the rows are read
    and compared with the manifest. The metadata version with which they are read must be the
    promised one, unless the promise is from before this rule and names none.

    No hash covers the key bounds by which a mutation or a replacement skips a part, so these are
    compared with the files. The files may already be under the name of `part`, if an earlier
    attempt died.
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
    """Find a source for each wanted pair (part, replica that first had it).

    1. The replica that wrote the log entry is asked first: usually it has the part, and one
       pipelined read answers for the whole batch.
    2. Then all active replicas are asked for exactly the parts that are left. A replica that cloned
       another one needs this for its whole queue, whose entries name no source.
    3. Only for parts that no replica has under their own name are all parts of all replicas listed.

    A replica may promise a part and yet be unable to send it, because it can't be reached or its
    disk fails. `failed` names such replicas; others that have the part, or one that contains it,
    are asked first. `seen` saves reads of nodes that were read a moment ago.
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
    """The paths that `find_sources` will read first if all GET_PART entries of this queue that are
    not `at_hand` are fetched, so that the caller can read them in the same request as something
    else. Empty if there are many such entries, of which few may run yet.
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
    return _paths_of_hints(replica, _hints(replica, wanted))


def hinted_sources(
    replica: Replica, wanted: Sequence[tuple[PartName, str]]
) -> dict[PartName, PartSource]:
    """The sources that the first step of `find_sources` finds, in one request if all are there."""
    hints = _hints(replica, wanted)
    paths = _paths_of_hints(replica, hints)
    seen = dict(zip(paths, replica.keeper.get_many(paths), strict=True))
    return _read_hints(replica, dict(hints), seen)


def _paths_of_hints(replica: Replica, hints: Sequence[tuple[PartName, str]]) -> list[str]:
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
    """Read these nodes, except those that `seen` has. A node that was seen to be missing is read
    again.
    """
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
    """Addresses of those replicas that are active, or were within ADDRESS_VALID_S. If one is no
    longer active, the fetch fails and the next try looks again. A replica that became active for
    the first time since `seen` was read had no address then, and is left out.
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
    """Sources for the parts that one of these replicas has under exactly this name. One that was
    dropped since it was listed has no `host`; one that was made since in its place has no address
    before it is active.
    """
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
        if part not in found and header is not None and host is not None and host[0]:
            found[part] = _source(replica, names[number], host[0], part, header[0])
    return found


def _search(
    replica: Replica,
    living: Mapping[str, bool],
    names: Sequence[str],
    parts: Sequence[PartName],
    failed: Failed,
) -> dict[PartName, PartSource | NoReplicaHasPart]:
    """For each part the largest part that contains it, on any active replica (spec §5.2.1)."""
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
        if part not in found:  # no replica has it, or it was merged away since the listing
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
    request = FetchRequest(_address(address), replica.table.replica(name).root, part)
    return PartSource(request, name, part, PartHeader.decode(header) if header else None)


@lru_cache(maxsize=256)
def _address(text: bytes) -> ReplicaAddress:
    """Decode an address. Cached, since thousands of parts may have the same source."""
    return ReplicaAddress.decode(text)
