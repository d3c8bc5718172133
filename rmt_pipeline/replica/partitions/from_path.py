"""FETCH PARTITION and PART … FROM a table's path in ZooKeeper: parts of its replicas come into
`detached/` here, from where ATTACH takes them (spec §9.8).

    who is furthest ──► its active parts, listed ──► each fetched, under a name that nobody
    attaches ──► all of one listing are here ──► they get their names

1. What comes together is one listing: all rows that one replica had at one moment. If a part is
   gone when it is asked for, merged away or dropped, the replica is listed again; what is listed no
   more goes, what is here already stays.
2. Said again after it died it goes on with what it has (`store.fetching`): a part is not fetched
   again that is what the source promises.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from rmt_pipeline.exchange.peers import FetchRequest, Peers
from rmt_pipeline.protocol.alter.history import is_current, stored_columns
from rmt_pipeline.protocol.errors import (
    Corruption,
    NoReplicaHasPart,
    RmtError,
    Unavailable,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.columns import parse_columns
from rmt_pipeline.protocol.nodes.formats import PartHeader, ReplicaAddress
from rmt_pipeline.protocol.nodes.metadata import (
    metadata_differences,
    metadata_of,
    parse_metadata,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.protocol.text import require_path
from rmt_pipeline.replica.fetch import difference_from_promise
from rmt_pipeline.replica.life.create import at_version
from rmt_pipeline.replica.partitions.drop import Living, require_partition
from rmt_pipeline.replica.pull_log import PUT_OFF_MAX, part_brought
from rmt_pipeline.store.fetching import Fetching, fetching
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper.alter_transactions import read_at_once
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths, log_entry_name
from rmt_pipeline.zookeeper.snapshot import active_parts, living_replicas

NewPeers = Callable[[], AbstractContextManager[Peers]]

_KEYS = ("partition key", "primary key", "sorting key")


class CannotFetch(UserError):
    """The two tables do not go together. Nothing was fetched."""


class BadZooKeeperPath(UserError):
    """FETCH … FROM names what is no path of a table in this ZooKeeper."""

    code = "ILLEGAL_TYPE_OF_ARGUMENT"


class DetachedPartitionExists(UserError):
    """FETCH PARTITION where parts of that partition lie in `detached/` already: they would mix.
    ATTACH or DROP DETACHED them first.
    """

    code = "PARTITION_ALREADY_EXISTS"


class DetachedPartExists(UserError):
    """FETCH PART where a part of that name lies in `detached/` already. ATTACH or DROP DETACHED it
    first.
    """

    code = "DUPLICATE_DATA_PART"


class NoSuchPartition(UserError):
    """FETCH PARTITION of one that the replica it would be fetched from has no part of."""

    code = "PARTITION_DOESNT_EXIST"


class NoActiveReplicas(Unavailable):
    """Nobody serves the table at the path of FETCH … FROM now. Start one of its servers, then ask
    again.
    """

    code = "NO_ACTIVE_REPLICAS"


class TooManyRetries(Unavailable):
    """What has arrived is kept: said again, the FETCH goes on with it."""

    code = "TOO_MANY_RETRIES_TO_FETCH_PARTS"


@dataclass(frozen=True, slots=True)
class FetchedInto:
    """`parts`: what is in `detached/` now; of them `kept`, which an earlier try had brought."""

    parts: tuple[PartName, ...]
    kept: tuple[PartName, ...] = ()


@dataclass(frozen=True, slots=True)
class FromPath:
    """All of `partition`, or one `part` of it, of the table at `path`."""

    living: Living
    new_peers: NewPeers
    path: str
    partition: str
    query: QuerySettings
    part: PartName | None = None

    def fetch(self) -> FetchedInto:
        """Bring the parts into `detached/`, from any replica of the other table that is active.

        Raises BadZooKeeperPath, BadPartition, UnknownTable, CannotFetch naming the difference,
        DetachedPartitionExists, DetachedPartExists, NoSuchPartition, NoReplicaHasPart,
        NoActiveReplicas, FetchIsRunning, DiskFull; TooManyRetries when parts are gone, or do not
        arrive, again and again.
        """
        source = TablePaths(checked_path(self.path))
        require_partition(self.partition, "fetched")
        with fetching(self.living().store, self.partition) as held:
            settled = held.finish()
            if settled is not None and self._is_meant(settled.parts, settled.path):
                return FetchedInto(settled.parts, settled.parts)
            self._require_free()
            kept = frozenset(held.begun())
            with self.new_peers() as peers:
                _Work(self, source, held, peers).done()
            parts = held.settle(source.root).parts
            return FetchedInto(parts, tuple(part for part in parts if part in kept))

    def _is_meant(self, parts: Sequence[PartName], path: str) -> bool:
        return path == checked_path(self.path) and self.part in (None, *parts)

    def _require_free(self) -> None:
        replica = self.living()
        plain = [one for one in replica.store.detached_parts.names() if one.reason == ""]
        if self.part is not None:
            if any(one.part == self.part for one in plain):
                raise DetachedPartExists(
                    f"Detached part {self.part} already exists. ATTACH PART takes it, DROP "
                    "DETACHED PART removes it"
                )
        elif any(one.part.partition == self.partition for one in plain):
            raise DetachedPartitionExists(
                f"Detached partition {self.partition} already exists. ATTACH PARTITION takes what "
                f"{replica} has of it, DROP DETACHED PARTITION removes it"
            )


def checked_path(path: str) -> str:
    """Without slashes at its end. Raises BadZooKeeperPath."""
    names = path.rstrip("/").split("/")[1:]
    if not path.startswith("/") or not names or any(name in ("", ".", "..") for name in names):
        raise BadZooKeeperPath(
            f"{path!r} is not the path of a table in ZooKeeper, as system.tables shows it in "
            "engine_full of the table that the parts are from: '/tables/1/t'. (Another ZooKeeper, "
            "'name:/path', can't be asked)"
        )
    try:
        require_path("/" + "/".join(names), "the path")
    except UserError as error:
        raise BadZooKeeperPath(str(error)) from error
    return "/" + "/".join(names)


class _Listed:
    """The source's parts that are wanted, as one replica had them at one moment."""

    def __init__(
        self, replica: ReplicaPaths, address: bytes, there: Mapping[PartName, bytes]
    ) -> None:
        self.replica = replica
        self.headers = {part: PartHeader.decode(data) for part, data in there.items() if data}
        self.parts = tuple(there)
        self._address = ReplicaAddress.decode(address)

    def request(self, part: PartName) -> FetchRequest:
        return FetchRequest(self._address, self.replica.root, part)


@dataclass(slots=True)
class _Work:
    asked: FromPath
    source: TablePaths
    held: Fetching
    peers: Peers
    failed: set[str] = field(default_factory=set)
    """Replicas of the source that could not send what they have."""

    def done(self) -> None:
        """All of one listing is kept, and nothing else. Raises as `FromPath.fetch`."""
        problem: RmtError | None = None
        for _ in range(self.asked.query.max_fetch_partition_retries_count + 1):
            there = self._structure()
            listed = self._list()
            if listed is None:
                continue
            try:
                for error in self._arriving(there, listed):
                    problem = error
            except CannotFetch:
                for part in self.held.begun():
                    self.held.forget(part)
                raise
            if not self._lacking(listed):
                return
        raise TooManyRetries(
            f"partition {self.asked.partition} of {self.source.root} did not arrive whole in "
            f"{self.asked.query.max_fetch_partition_retries_count + 1} tries"
            + (
                f"; the last problem: {problem}"
                if problem
                else ": its parts changed all the time"
            )
            + ". What has arrived is kept: say it again"
        )

    # --- the source

    def _structure(self) -> TableDefinition:
        """Our definition, with the version and the history of the source's. Raises UnknownTable,
        CannotFetch.
        """
        replica, source = self.asked.living(), self.source
        read = read_at_once(replica.keeper, [source.metadata, source.columns])
        if read is None:
            raise UnknownTable(f"there is no table at {source.root} in ZooKeeper")
        (metadata, stat), (columns, _) = read
        difference = _difference(replica.definition, metadata, columns)
        if difference:
            raise CannotFetch(
                f"{replica.definition.full_name} and {source.root} have different {difference}; "
                "parts go from one table to another only where columns and keys are the same"
            )
        plain = replace(replica.definition, history=(), metadata_version=0)
        return at_version(replica.keeper, source, plain, stat.version)

    def _list(self) -> _Listed | None:
        """None: it changed while it was listed. Raises NoActiveReplicas, NoReplicaHasPart,
        NoSuchPartition.
        """
        keeper, asked = self.asked.living().keeper, self.asked
        replica = self._furthest()
        if replica is None:
            return None
        try:
            active = PartSet(active_parts(keeper, replica))
        except Refused as refused:
            if refused.kind is not RefusalKind.NO_NODE:
                raise
            return None  # it was dropped just now
        wanted = active.in_partition(asked.partition) if asked.part is None else [asked.part]
        if not wanted:
            raise NoSuchPartition(
                f"Partition {asked.partition} on {replica.root} doesn't exist: nothing to fetch"
            )
        reads = keeper.get_many([replica.host, *(replica.part(part) for part in wanted)])
        found = [read[0] for read in reads if read is not None]
        if len(found) < len(reads):
            return None
        return _Listed(replica, found[0], dict(zip(wanted, found[1:], strict=True)))

    def _furthest(self) -> ReplicaPaths | None:
        """Of the active replicas that can send (and have the part): the one that has copied most of
        the log, then the one with the shortest queue. None: one went while it was looked at.
        """
        keeper, source, part = self.asked.living().keeper, self.source, self.asked.part
        active = [
            name for name, is_active in living_replicas(keeper, source).items() if is_active
        ]
        if not active:
            raise NoActiveReplicas(f"No active replicas for shard {source.root}")
        paths = [source.replica(name) for name in active]
        if part is not None:
            has = keeper.exists_many([one.part(part) for one in paths])
            paths = [one for one, stat in zip(paths, has, strict=True) if stat is not None]
            if not paths:
                raise NoReplicaHasPart(
                    f"Part {part} does not exist on any replica of {source.root}"
                )
        if all(one.name in self.failed for one in paths):
            self.failed.clear()
        paths = [one for one in paths if one.name not in self.failed]
        pointers = keeper.get_many([one.log_pointer for one in paths])
        queues = keeper.children_many([one.queue for one in paths])
        known = [
            (self._reached(one, int(pointer[0] or b"0")), -len(queue), one)
            for one, pointer, queue in zip(paths, pointers, queues, strict=True)
            if pointer is not None and queue is not None
        ]
        return max(known, key=lambda one: one[:2])[2] if known else None

    def _reached(self, replica: ReplicaPaths, pointer: int) -> int:
        """How much of the log it has: its pointer, or beyond it, behind what was inserted there.
        For that alone it may put off moving the pointer, which says then less than that of one who
        has copied these entries and has none of their parts.
        """
        numbers = range(pointer, pointer + PUT_OFF_MAX)
        paths = [self.source.log_entry(log_entry_name(number)) for number in numbers]
        reads = self.asked.living().keeper.get_many(paths)
        for number, read in zip(numbers, reads, strict=True):
            if read is None or part_brought(read[0], replica.name) is None:
                return number
        return numbers.stop

    # --- its parts

    def _lacking(self, listed: _Listed) -> list[PartName]:
        """Of what is listed; what is kept and is not listed, or is another part by now, goes."""
        kept = self.held.begun()
        for part, manifest in kept.items():
            header = listed.headers.get(part)
            differs = header is not None and manifest.header().difference(header)
            if part not in listed.parts or differs:
                self.held.forget(part)
        kept = self.held.begun()
        return [part for part in listed.parts if part not in kept]

    def _arriving(self, there: TableDefinition, listed: _Listed) -> Iterator[RmtError]:
        """Fetch what is lacking. What is wrong with what did not come."""
        store = self.asked.living().store
        requests = [listed.request(part) for part in self._lacking(listed)]
        arrived: list[StagedPart] = []
        try:
            for together in self.peers.fetch(requests, store) if requests else ():
                arrived = [one for _, one in together if isinstance(one, StagedPart)]
                for request, outcome in together:
                    error = self._take(there, listed, request.part, outcome)
                    if error is not None:
                        yield error
                arrived = []
        finally:
            for staged in arrived:
                store.discard(staged)

    def _take(
        self,
        there: TableDefinition,
        listed: _Listed,
        part: PartName,
        outcome: StagedPart | RmtError,
    ) -> RmtError | None:
        if isinstance(outcome, RmtError):
            if isinstance(outcome, UserError):
                raise outcome
            if not isinstance(outcome, NoReplicaHasPart):  # it did, and can't send it
                self.failed.add(listed.replica.name)
            return outcome
        replica = self.asked.living()
        manifest = outcome.manifest
        header = listed.headers.get(part)
        difference = difference_from_promise(replica.store, part, outcome, header)
        if difference is not None:
            self.failed.add(listed.replica.name)
            replica.store.discard(outcome)
            return Corruption(
                f"{part} arrived from {listed.replica.root} and is not what ZooKeeper has for it: "
                f"{difference}"
            )
        if not is_current(there, manifest.columns, manifest.metadata_version):
            raise CannotFetch(
                f"{part} of {self.source.root} has its columns as they were before an ALTER "
                "there: let its mutations finish (system.mutations), or OPTIMIZE it FINAL, "
                "and say it again. Nothing was fetched"
            )
        version = replica.definition.metadata_version
        self.held.keep(outcome, part, replace(manifest, metadata_version=version))
        return None


def _difference(mine: TableDefinition, metadata: bytes, columns: bytes) -> str:
    """The first one, in words; "" for none. Theirs is the second."""
    parsed = parse_columns(columns.decode())
    theirs = {column.name: column.type for column in parsed if column.is_stored}
    ours = {column.name: column.type for column in stored_columns(mine)}
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name, "none"), theirs.get(name, "none")
        if one != other:
            return f"columns: {name} is {one} in the first, {other} in the second"
    if list(ours) != list(theirs):
        return f"orders of columns: {', '.join(ours)} and {', '.join(theirs)}"
    for found in metadata_differences(metadata_of(mine), parse_metadata(metadata.decode())):
        if found.field in _KEYS:
            return f"{found.field}s: ({found.mine}) and ({found.theirs})"
    return ""
