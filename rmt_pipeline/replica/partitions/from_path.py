"""FETCH PARTITION and PART … FROM a table's path in ZooKeeper: parts of that table's replicas come
into `detached/` here, from where ATTACH takes them (spec §9.8).

    a replica that is not behind ──► its active parts, listed ──► each fetched, under a name that no
    ATTACH takes ──► all parts of one listing are here ──► they get their names

1. What is fetched together is one listing: the rows that one replica had at one moment. If a part
   is gone when it is asked for, merged away or dropped, a replica is listed again; parts that are
   not listed any more are thrown away, and those that are already here stay.
2. At that moment the replica had every row that was inserted, and none that was dropped. The parts
   are read, then what the replica has yet to carry out, then the parts again. If the parts are the
   same, no drop and no fetch was carried out in between. So whatever was in the log before the
   second read is either among the parts, or among what was read in the middle; in the second case
   the replica is behind, and another one is asked, or it is waited for.
3. A FETCH that died, when repeated, goes on with what it has (`store.fetching`): a part that is
   still what the source promises is not fetched again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from rmt_pipeline.exchange.peers import FetchRequest, Peers
from rmt_pipeline.protocol.errors import (
    NoReplicaHasPart,
    ReplicaDropped,
    RmtError,
    Unavailable,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.log.entry import LogEntry, describe_entry, drop_range_of
from rmt_pipeline.protocol.nodes.columns import parse_columns
from rmt_pipeline.protocol.nodes.formats import PartHeader, ReplicaAddress, number_of
from rmt_pipeline.protocol.nodes.metadata import (
    metadata_differences,
    metadata_of,
    parse_metadata,
)
from rmt_pipeline.protocol.parts.holdings import Holdings
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.protocol.text import require_path
from rmt_pipeline.replica.fetch import broken_promise
from rmt_pipeline.replica.life.create import at_version
from rmt_pipeline.replica.partitions.drop import Living, require_partition
from rmt_pipeline.replica.partitions.from_table import (
    column_difference,
    difference_of,
    stored_types,
    why_behind,
)
from rmt_pipeline.replica.wait import WAIT_SLICE_S
from rmt_pipeline.store.fetching import Fetching, SettledFetch, fetching
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper.alter_transactions import read_at_once
from rmt_pipeline.zookeeper.keeper import Refused
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.snapshot import (
    awaiting_quorum,
    entries_to_come,
    living_replicas,
    parts_now,
)

NewPeers = Callable[[], AbstractContextManager[Peers]]

_KEYS = ("partition key", "primary key", "sorting key")


class CannotFetch(UserError):
    """The structures of the two tables differ. Nothing was fetched."""


class BadZooKeeperPath(UserError):
    """The text after FETCH … FROM can't be the path of a table in this ZooKeeper."""

    code = "ILLEGAL_TYPE_OF_ARGUMENT"


class DetachedPartitionExists(UserError):
    """FETCH PARTITION while parts of that partition are in `detached/` already: they would mix.
    ATTACH or DROP DETACHED them first.
    """

    code = "PARTITION_ALREADY_EXISTS"


class DetachedPartExists(UserError):
    """FETCH PART while a part of that name is in `detached/` already. ATTACH or DROP DETACHED it
    first.
    """

    code = "DUPLICATE_DATA_PART"


class NoSuchPartition(UserError):
    """FETCH PARTITION of a partition of which the source's replica has no part."""

    code = "PARTITION_DOESNT_EXIST"


class NoActiveReplicas(Unavailable):
    """No replica of the table at the path of FETCH … FROM is active. Start one of its servers, then
    repeat the command.
    """

    code = "NO_ACTIVE_REPLICAS"


class TooManyRetries(Unavailable):
    """Parts did not arrive in all tries. Those that have arrived are kept: the FETCH, repeated,
    goes on with them.
    """

    code = "TOO_MANY_RETRIES_TO_FETCH_PARTS"


@dataclass(frozen=True, slots=True)
class FetchedInto:
    """What a FETCH did. `parts` are in `detached/` now; those of them that are `kept` had been
    brought by an earlier try.
    """

    parts: tuple[PartName, ...]
    kept: tuple[PartName, ...] = ()


@dataclass(frozen=True, slots=True)
class FromPath:
    """A FETCH of all of `partition`, or of one `part` of it, from the table at `path`."""

    living: Living
    new_peers: NewPeers
    path: str
    partition: str
    query: QuerySettings
    waker: Waker
    part: PartName | None = None

    def fetch(self) -> FetchedInto:
        """Bring the parts into `detached/`, from any replica of the other table that is active.

        Raises BadZooKeeperPath, BadPartition, UnknownTable, CannotFetch naming the difference,
        DetachedPartitionExists, DetachedPartExists, NoSuchPartition, NoReplicaHasPart,
        NoActiveReplicas, FetchIsRunning, DiskFull; Unavailable when each active replica has been
        behind for `receive_timeout`; TooManyRetries when parts are gone, or do not arrive, again
        and again.
        """
        source = TablePaths(checked_path(self.path))
        require_partition(self.partition, "fetched")
        with fetching(self.living().store, self.partition) as held:
            settled = held.finish()
            if settled is not None and self._is_meant(settled):
                return FetchedInto(settled.parts, settled.parts)
            self._require_free()
            kept = frozenset(held.begun())
            with self.new_peers() as peers:
                _Work(self, source, held, peers).done()
            parts = held.settle(source.root, is_one=self.part is not None).parts
            return FetchedInto(parts, tuple(part for part in parts if part in kept))

    def _is_meant(self, settled: SettledFetch) -> bool:
        """Whether an earlier FETCH, of which only the end was cut off, has brought what this one is
        for, and all of that is still there: a DROP DETACHED may have removed it since.
        """
        if settled.path != checked_path(self.path) or not self._plain().issuperset(
            settled.parts
        ):
            return False
        return not settled.is_one if self.part is None else self.part in settled.parts

    def _plain(self) -> frozenset[PartName]:
        """The parts that ATTACH takes."""
        names = self.living().store.detached_parts.names()
        return frozenset(one.part for one in names if one.reason == "")

    def _require_free(self) -> None:
        replica, plain = self.living(), self._plain()
        if self.part is not None:
            if self.part in plain:
                raise DetachedPartExists(
                    f"Detached part {self.part} already exists. ATTACH PART takes it, DROP "
                    "DETACHED PART removes it"
                )
        elif any(part.partition == self.partition for part in plain):
            raise DetachedPartitionExists(
                f"Detached partition {self.partition} already exists. ATTACH PARTITION takes what "
                f"{replica} has of it, DROP DETACHED PARTITION removes it"
            )


def checked_path(path: str) -> str:
    """Return the path without slashes at its end. Raises BadZooKeeperPath."""
    root = path.rstrip("/")
    try:
        require_path(root, "the path")
    except UserError as error:
        raise BadZooKeeperPath(
            f"{path!r} is not the path of a table in ZooKeeper, as system.tables shows it in "
            "engine_full of the table that the parts are from: '/tables/1/t'. (Another ZooKeeper, "
            f"'name:/path', can't be asked.) {error}"
        ) from error
    return root


class _Listed:
    """Those parts of the source that are wanted, as one replica had them at one moment."""

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
    """The names of the source's replicas that could not send a part that they have."""
    known: dict[str, KnownQueue] = field(default_factory=dict)
    """What was read before of each replica of the source, by its name: hints that save reads."""

    def done(self) -> None:
        """Fetch until all of one listing is kept, and nothing else. Raises what `FromPath.fetch`
        does.
        """
        problem: RmtError | None = None
        for _ in range(self.asked.query.max_fetch_partition_retries_count + 1):
            there = self._structure()
            listed = self._list()
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
            + ". What has arrived is kept: repeat the FETCH"
        )

    # --- the source

    def _structure(self) -> TableDefinition:
        """Return our definition with the metadata version and the history of the source's. Raises
        UnknownTable, CannotFetch.
        """
        replica, source = self.asked.living(), self.source
        read = read_at_once(replica.keeper, [source.metadata, source.columns])
        if read is None:
            raise _unknown(source)
        (metadata, stat), (columns, _) = read
        difference = _difference(replica.definition, metadata, columns)
        if difference:
            raise CannotFetch(
                f"{replica.definition.full_name} and {source.root} have different {difference}; "
                "parts go from one table to another only where columns and keys are the same"
            )
        plain = replace(replica.definition, history=(), metadata_version=0)
        return at_version(replica.keeper, source, plain, stat.version)

    def _list(self) -> _Listed:
        """Return the listing of a replica of the source that is not behind. Raises
        NoActiveReplicas, NoReplicaHasPart, NoSuchPartition; Unavailable if all active replicas have
        been behind for `receive_timeout`. Before each wait for what holds them back they are looked
        at once more, under watches.
        """
        clock, waker = self.asked.living().clock, self.asked.waker
        deadline_s = clock.monotonic_s() + self.asked.query.receive_timeout
        is_watched = False
        while True:
            # Else all these reads may be stale.
            self.asked.living().keeper.sync(self.source.root)
            behind: list[str] = []
            replicas = self._furthest_first()
            for replica in replicas:
                found = self._look(replica)
                if isinstance(found, _Listed):
                    return found
                behind.append(f"{replica.name} {found}")
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                what = self.asked.part or f"partition {self.asked.partition}"
                raise Unavailable(
                    f"no active replica of {self.source.root} has all that was done to {what}: "
                    f"{'; '.join(behind)}. Nothing was fetched. Try again when one has: there "
                    "SYSTEM SYNC REPLICA waits for it, and system.replication_queue says what it "
                    "waits for"
                )
            if is_watched:
                waker.wait_s(min(left_s, WAIT_SLICE_S))
            else:
                self._watch(replicas)
            is_watched = not is_watched

    def _watch(self, replicas: Sequence[ReplicaPaths]) -> None:
        """Be woken when an entry leaves a queue or comes into it, or a part reaches its quorum."""
        keeper, wake = self.asked.living().keeper, self.asked.waker.wake
        keeper.exists(self.source.quorum_status, wake)
        for parent in (self.source.quorum_parallel, *(one.queue for one in replicas)):
            with suppress(Refused):  # dropped just now
                keeper.children(parent, wake)

    def _furthest_first(self) -> list[ReplicaPaths]:
        """Return the active replicas that can send what is wanted (and have the part, if it is
        one). First comes the one that has copied most of the log; of equal ones, the one with the
        shortest queue.
        """
        keeper, source, part = self.asked.living().keeper, self.source, self.asked.part
        try:
            living = living_replicas(keeper, source)
        except Refused as refused:
            raise _unknown(source) from refused
        paths = [source.replica(name) for name, is_active in living.items() if is_active]
        if not paths:
            raise NoActiveReplicas(f"No active replicas for shard {source.root}")
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
            (number_of(pointer[0]), -len(queue), one)
            for one, pointer, queue in zip(paths, pointers, queues, strict=True)
            if pointer is not None and queue is not None
        ]
        return [one for *_, one in sorted(known, key=lambda one: one[:2], reverse=True)]

    def _look(self, replica: ReplicaPaths) -> _Listed | str:
        """List the replica's wanted parts, or return in words why it can't be listed now. Raises
        NoSuchPartition.
        """
        keeper, asked = self.asked.living().keeper, self.asked
        known = self.known.setdefault(replica.name, KnownQueue())
        try:
            [lost] = keeper.get_many([replica.is_lost])
            there = parts_now(keeper, replica, known)
            entries = entries_to_come(keeper, self.source, replica, known)
            again = parts_now(keeper, replica, known)
        except (Refused, ReplicaDropped):
            return "was dropped just now"
        names = there.names(asked.partition)
        [lost_now] = keeper.get_many([replica.is_lost])
        is_as_before = lost is not None and lost_now is not None and lost == lost_now
        if not is_as_before or names != again.names(asked.partition):
            return "changed while it was looked at"
        if lost is None or lost[0] != b"0":
            return "is lost, and takes over what another one has"
        if behind := self._why_behind(entries, there):
            return f"has yet to carry out: {behind}"
        wanted = there.current.in_partition(asked.partition)
        if asked.part is not None:
            wanted = [asked.part] if asked.part in names else []
        elif not wanted:
            raise NoSuchPartition(
                f"Partition {asked.partition} on {replica.root} doesn't exist: nothing to fetch"
            )
        # a part comes together with the node that says that it waits, so read after the parts
        waiting = awaiting_quorum(keeper, self.source).intersection(wanted)
        if waiting:
            return f"has {min(waiting)}, which waits for its quorum"
        reads = keeper.get_many([replica.host, *(replica.part(part) for part in wanted)])
        found = [read[0] for read in reads if read is not None]
        if not wanted or len(found) < len(reads):
            return "changed while it was looked at"
        return _Listed(replica, found[0], dict(zip(wanted, found[1:], strict=True)))

    def _why_behind(self, entries: Sequence[LogEntry], there: Holdings) -> str:
        """Return the entry, in words, that has yet to bring rows of what is wanted, or to drop
        some; "" if there is none.
        """
        part = self.asked.part
        if part is None:
            told = {describe_entry(entry): entry for entry in entries}
            return why_behind(told, there, [self.asked.partition])
        for entry in entries:
            dropped = drop_range_of(entry)
            if dropped is not None and dropped.contains(part):
                return describe_entry(entry)
        return ""

    # --- its parts

    def _lacking(self, listed: _Listed) -> list[PartName]:
        """Return the listed parts that are not here yet. Parts that are kept, but are not listed or
        differ from what is listed, are thrown away.
        """
        kept = self.held.begun()
        for part, manifest in kept.items():
            header = listed.headers.get(part)
            differs = header is not None and manifest.header().difference(header)
            if part not in listed.parts or differs:
                self.held.forget(part)
        kept = self.held.begun()
        return [part for part in listed.parts if part not in kept]

    def _arriving(self, there: TableDefinition, listed: _Listed) -> Iterator[RmtError]:
        """Fetch the parts that are lacking. Yields what is wrong with each that did not come."""
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
            # the replica had it, and can't send it
            if not isinstance(outcome, NoReplicaHasPart):
                self.failed.add(listed.replica.name)
            return outcome
        replica = self.asked.living()
        manifest = outcome.manifest
        header = listed.headers.get(part)
        error = broken_promise(replica, part, outcome, header, listed.replica.root)
        if error is not None:
            self.failed.add(listed.replica.name)
            return error
        difference = difference_of(manifest, there, replica.definition)
        if difference:
            raise CannotFetch(
                f"{part} of {self.source.root} {difference}; let the mutations there finish "
                "(system.mutations), or OPTIMIZE it FINAL, and repeat the FETCH. Nothing was "
                "fetched"
            )
        version = replica.definition.metadata_version
        self.held.keep(outcome, part, replace(manifest, metadata_version=version))
        return None


def _unknown(source: TablePaths) -> UnknownTable:
    return UnknownTable(f"there is no table at {source.root} in ZooKeeper")


def _difference(mine: TableDefinition, metadata: bytes, columns: bytes) -> str:
    """Return the first difference between our definition and the source's, in words; "" if there is
    none.
    """
    parsed = parse_columns(columns.decode())
    theirs = {column.name: column.type for column in parsed if column.is_stored}
    different = column_difference(stored_types(mine), theirs)
    if different:
        return different
    for found in metadata_differences(metadata_of(mine), parse_metadata(metadata.decode())):
        if found.field in _KEYS:
            return f"{found.field}s: ({found.mine}) and ({found.theirs})"
    return ""
