"""One replica of one table: its definition, its place in ZooKeeper, its parts on the disk, and what
this process remembers about it.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rmt_pipeline.hints import Hints
from rmt_pipeline.protocol.errors import ReplicaDropped, RmtError, TableIsReadOnly
from rmt_pipeline.protocol.merges.selector import WeighedRun
from rmt_pipeline.protocol.merges.size_limits import SizeLimits
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.kills import Kills
from rmt_pipeline.replica.together import Together
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Clock, IdSource
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Keeper, Op, Refused, Stat
from rmt_pipeline.zookeeper.known import CountedChildren, KnownQueue
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths, last_name
from rmt_pipeline.zookeeper.through import BoundKeeper


class Total:
    """A sum that several threads add to. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0

    @property
    def value(self) -> int:
        return self._value

    def add(self, number: int) -> None:
        with self._lock:
            self._value += number


@dataclass(frozen=True, slots=True)
class Insertable:
    """What inserts know of a replica that takes them: the version that `is_lost` had when it was
    seen to be "0", which they assert; and a number that the log had not passed at `seen_s`
    (`monotonic_s`), from which on a commit without an answer is looked for.
    """

    is_lost_version: int
    log_begin: int
    seen_s: float


@dataclass(frozen=True, slots=True)
class Pointer:
    """How far the log was pulled (None: never), with the versions to assert when pulling goes
    on.
    """

    index: int | None
    version: int
    is_lost_version: int
    next_queued: int | None = field(default=None, compare=False)
    """The number that the next queue entry gets if these versions are still the same (None: not
    known). Whoever else adds to a queue changes one of them.
    """


@dataclass(frozen=True, slots=True)
class PartCounts:
    """How many parts are on the disk: all active ones, those of the `partition` that has most, and
    the outdated ones of the partition that has most outdated ones.
    """

    active: int
    partition: str
    in_partition: int
    outdated_partition: str
    outdated: int


_NO_MUTATIONS = Mutations({})


@dataclass(frozen=True, slots=True)
class KnownNames(CountedChildren):
    """The children of a node, by name."""

    created_zxid: int = -1
    children_version: int = -1
    names: tuple[str, ...] = ()

    def changed(self, session: int, *, came: Sequence[str], went: Collection[str]) -> Self:
        """This knowledge after `session` has added and removed these children and changed nothing
        else.
        """
        return replace(
            self,
            children_version=self.children_version + len(came) + len(went),
            names=(*(name for name in self.names if name not in went), *came),
            session=session,
        )

    def after(self, ops: Sequence[Op], node: str, session: int) -> Self:
        """This knowledge of the children of `node` once a multi of `session` has landed. Nothing is
        noted if another session has changed them before.
        """
        if self.session not in {0, session}:
            return self
        parent = f"{node}/"
        own = [
            op for op in ops if op.path.startswith(parent) and "/" not in op.path[len(parent) :]
        ]
        return self.changed(
            session,
            came=[last_name(op.path) for op in own if isinstance(op, Create)],
            went={last_name(op.path) for op in own if isinstance(op, Delete)},
        )


@dataclass(frozen=True, slots=True)
class KnownRecords(KnownNames):
    """The insert records that exist, by name; and for some of them, whose list of partitions is
    complete, every partition that they will ever have rows of.
    """

    partitions: tuple[tuple[str, frozenset[str]], ...] = ()

    def wanted(self, partitions: Collection[str], but: str) -> list[str]:
        """The records, except `but`, that may have rows of these partitions."""
        known = dict(self.partitions)
        return [
            name
            for name in self.names
            if name != but and (name not in known or not known[name].isdisjoint(partitions))
        ]

    def now(self, stat: Stat, names: Sequence[str]) -> "KnownRecords":
        """This knowledge, updated to a new listing. If a record had been removed and created again,
        the stat would show more changes than the names do; then what was known of every record is
        dropped.
        """
        changes = len(frozenset(self.names).symmetric_difference(names))
        is_told = stat.created_zxid == self.created_zxid and (
            stat.children_version - self.children_version == changes
        )
        there = frozenset(names) if is_told else frozenset()
        kept = tuple(one for one in self.partitions if one[0] in there)
        return KnownRecords(stat.created_zxid, stat.children_version, tuple(names), kept)

    def changed(self, session: int, *, came: Sequence[str], went: Collection[str]) -> Self:
        """As of any names. A name that was removed may come again for another record."""
        return replace(
            KnownNames.changed(self, session, came=came, went=went),
            partitions=tuple(one for one in self.partitions if one[0] not in went),
        )

    def learnt(self, found: Mapping[str, frozenset[str]]) -> "KnownRecords":
        """This knowledge with the partitions of more records. A record with an empty set is left
        out, since its partitions are not known.
        """
        told = {name: partitions for name, partitions in found.items() if partitions}
        if told.items() <= dict(self.partitions).items():
            return self
        return replace(self, partitions=tuple((dict(self.partitions) | told).items()))


@dataclass(slots=True)
class Memory:
    """What this process remembers only to save requests. Losing all of it changes nothing.

    All loops of a process share it, so any field may change at any moment. A field is an immutable
    value, which is replaced as a whole and read once per decision, or an object with a lock of its
    own (`Hints`, `Kills`), or made of such; nothing else. Below each field stands why it is safe to
    act on an old value.
    """

    partitions: Hints[str, None] = field(default_factory=Hints)
    """Partitions whose node in `block_numbers` was seen. An allocation is refused if the node does
    not exist.
    """
    insertable: Insertable | None = None
    queue: KnownQueue = field(default_factory=KnownQueue)
    """Queue entries by node, which never change; and the parts as they were listed last, which are
    used only if the stat that was just read says that they are still the same.
    """
    pointer: Pointer | None = None
    """The log pointer as this process left it. A pull that copies something with an outdated
    pointer is refused; callers that must know that nothing is left to copy do not use it
    (`pull_log`, `afresh`).
    """
    addresses: Hints[str, tuple[float, bytes]] = field(default_factory=Hints)
    """The addresses of peers that were active, and when (monotonic). A fetch from an outdated
    address fails and is tried again.
    """
    inserted: Total = field(default_factory=Total)
    """How many parts this process has inserted."""
    parts_counted: tuple[float, PartCounts, int] | None = None
    """When parts were counted last (monotonic), the counts, and the value of `inserted` at that
    time. They only slow inserts down.
    """
    active: tuple[float, tuple[str, ...]] | None = None
    """When the active replicas were listed last (monotonic), and their names: to choose which
    replica merges. If two replicas choose differently, both merge, or each waits for the other
    until the time for that is over.
    """
    runs: Hints[PartName, WeighedRun] = field(default_factory=Hints)
    """Weighed runs of parts, by their first parts. They serve only to choose a merge; whether it is
    allowed is checked anew.
    """
    fetch_instead: Hints[PartName, None] = field(default_factory=Hints)
    """Results of merges that came out differently here, and are therefore fetched from the replica
    that published them. A process that does not know this makes the same result once more.
    """
    loaded: Mutations = _NO_MUTATIONS
    """The mutations as some thread loaded them last; only their entries are used, which never
    change.
    """
    checked: Hints[tuple[str, str], None] = field(default_factory=Hints)
    """Pairs of mutation and partition for which no smaller block number was in flight: none will be
    any more.
    """
    records: KnownRecords = field(default_factory=KnownRecords)
    """Insert records that were read before. An insert has rows of the same partitions for ever, and
    the stat of their parent, which is read each time, tells whether the nodes are still the same.
    """
    block_ids: KnownNames = field(default_factory=KnownNames)
    """The names of block ids as they were listed last. Used only if the stat of their parent, which
    is read each time, tells that they are still the same.
    """
    partition_version: int | None = None
    """The version of `alter_partition_version` as this process has read or changed it last. Whoever
    takes block numbers with it asserts it, and reads it if another command came since.
    """
    kills: Kills = field(default_factory=Kills)
    inserts: "Together[Any, None]" = field(default_factory=Together)
    """Commits of small inserts (`insert.steps.Walk`) that wait for some that are under way. None is
    lost, because the insert does not return before.
    """
    from_the_future: Hints[PartName, float] = field(default_factory=Hints)
    """When (monotonic) a part was first seen that ZooKeeper does not know, and that was made by a
    clock that was ahead. If it is not known any more, the part is left alone for longer.
    """
    wakers: Hints[str, Callable[[], None]] = field(default_factory=Hints)
    """Under "merge", what wakes the merge pool of this process, if it has one: called when a merge
    or a mutation was copied from the log. The pool would look at it a little later by itself.
    """
    passes_by: bool = False
    """Set by a loop that never ends: it need not report replacements that left nothing to do, so
    `pull_log` does not queue them.
    """
    pull_batch: int = 1
    """Log entries per pull: starts at one and doubles, so that huge entries get through."""


UpdateDefinition = Callable[[Callable[[TableDefinition], TableDefinition]], TableDefinition]
"""Replaces the definition on this host's disk by what the given function makes of it, atomically
and durably; returns the new one.
"""


def _no_catalog(_: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
    raise AssertionError("this replica was made without a catalog: nothing can be altered")


OtherStore = Callable[[str, str], PartStore | None]
"""Returns the parts of another table of this server, by database and name; None if there is no such
table.
"""


def _no_other_tables(_database: str, _name: str) -> None:
    return None


@dataclass(slots=True)
class Replica:
    """One replica, bound to one ZooKeeper session through `keeper`; a new session needs a new
    Replica, and so does an ALTER.

    It writes nothing into a replica of the same name that was created later, whatever its session
    is. `worker` names this process in claims, for people; `user` is the account that asks.
    """

    definition: TableDefinition
    keeper: Keeper
    store: PartStore
    clock: Clock
    ids: IdSource
    settings: TableSettings
    worker: str
    memory: Memory = field(default_factory=Memory)
    update_definition: UpdateDefinition = _no_catalog
    other_store: OtherStore = _no_other_tables
    user: str = ""

    creation: str = field(init=False)
    """The path of the node that identifies this creation of the replica; "" for a definition that
    is in no catalog.
    """

    def __post_init__(self) -> None:
        name = self.definition.creation
        self.creation = self.paths.creation(name) if name else ""
        if self.creation:
            self.keeper = BoundKeeper(self.session, self.paths.root, self.creation)

    def become(self, definition: TableDefinition) -> None:
        """Go on with this definition after the replica's nodes were made again; what was remembered
        of the old ones is dropped.
        """
        self.definition, self.memory = definition, Memory()
        self.__post_init__()

    def require_meant(self) -> None:
        """Raise ReplicaDropped if the replica that is meant is not there any more: what was read
        before may be another one's. For what changes the disk before the first multi asserts it.
        """
        if self.creation and self.keeper.exists(self.creation) is None:
            raise not_meant(self)

    @property
    def session(self) -> Keeper:
        """The session that `keeper` uses, for callers that ask whether it is still the same one."""
        keeper = self.keeper
        return keeper.session if isinstance(keeper, BoundKeeper) else keeper

    @property
    def name(self) -> str:
        return self.definition.engine.replica

    @property
    def table(self) -> TablePaths:
        return TablePaths(self.definition.engine.zookeeper_path)

    @property
    def paths(self) -> ReplicaPaths:
        return self.table.replica(self.name)

    @property
    def has_own_window(self) -> bool:
        """Whether this is a table of one copy with its own setting for how many inserts it
        remembers.
        """
        settings = self.settings
        return (
            self.definition.engine.is_private
            and settings.non_replicated_deduplication_window > 0
        )

    @property
    def deduplication_window(self) -> int:
        """How many ids of blocks and of inserts are remembered."""
        if self.has_own_window:
            return self.settings.non_replicated_deduplication_window
        return self.settings.replicated_deduplication_window

    def size_limits(self) -> SizeLimits:
        """How large merges may be, by settings and free disk (spec §6.4)."""
        settings = self.settings
        return SizeLimits(
            at_max_space_bytes=settings.max_bytes_to_merge_at_max_space_in_pool,
            at_min_space_bytes=settings.max_bytes_to_merge_at_min_space_in_pool,
            lower_below_free=settings.number_of_free_entries_in_pool_to_lower_max_size_of_merge,
            mutate_above_free=settings.number_of_free_entries_in_pool_to_execute_mutation,
            disk_free_bytes=self.store.disk.free_bytes(),
        )

    def is_there(self) -> bool:
        """Whether this replica certainly exists in ZooKeeper. If not, its directory may belong to
        another table by now, in which a part may have the name of one of ours.
        """
        try:
            self.keeper.multi([Check(self.paths.root)])
        except RmtError:
            return False
        return True

    def new_holder(self) -> str:
        """A new unique name for the holder of a block number or a claim."""
        return f"{self.worker} {self.ids.new_id()}"

    def new_entry_id(self) -> str:
        """A new id for a log entry that an account asks for; the account's name follows it, for
        people.
        """
        return f"{self.ids.new_id()} {self.user}".strip()

    def __str__(self) -> str:
        return f"{self.definition.full_name} (replica {self.name})"


def not_active(replica: Replica, therefore: str) -> TableIsReadOnly:
    """The error to raise when the replica is found to be not active, `therefore` it does not do
    what is asked.
    """
    return TableIsReadOnly(
        f"{replica} is not active, so {therefore}; start its server with `rmt serve`. If it runs, "
        "it is starting over, or the table is being restored: try again when it is active"
    )


@contextmanager
def asserting_active(replica: Replica, therefore: str) -> Iterator[None]:
    """For a multi that asserts that the replica is active. Raises TableIsReadOnly if it is not;
    then nothing was written. It may have been a moment before: the session of its server ends when
    ZooKeeper, or the machine, stands still for a while.
    """
    try:
        yield
    except Refused as refused:
        if refused.path != replica.paths.is_active:
            raise
        raise not_active(replica, therefore) from refused


def not_meant(replica: Replica) -> ReplicaDropped:
    """The error to raise when another replica has the place of the one that is meant."""
    return ReplicaDropped(
        f"{replica} is not the replica that this was meant for: that one was dropped, or ZooKeeper "
        "lost it, or it was made again by SYSTEM RESTORE REPLICA"
    )


def lost_error(replica: Replica) -> TableIsReadOnly:
    """The error to raise when the replica is found to be lost."""
    return TableIsReadOnly(
        f"{replica} is lost and is cloning another replica; its server finishes that"
    )


def takes_no_inserts(replica: Replica) -> TableIsReadOnly:
    """The error that the replica takes no inserts. What is known of it is read again next time: it
    may have been cloned.
    """
    replica.memory.insertable = None
    return TableIsReadOnly(
        f"{replica} is not active, or clones another replica, so it takes no inserts; start its "
        "server with `rmt serve`, or wait until that is done"
    )


def take_back_own(
    replica: Replica,
    living: Callable[[], Replica],
    pairs: Iterable[tuple[StagedPart, PartName]],
) -> bool:
    """Turn parts that were given their names, but not promised, into staged ones again. False if it
    is unknown whether the replica still exists: then the parts keep their names until a clean-up
    finds them. `living` is asked for the same replica if the session has ended.

    Why it must be known that the replica exists:

    1. A REPLACE has given its parts their names, and its session ends.
    2. The table is dropped and created again, and its first inserts get the same names.
    3. The REPLACE takes its parts back by name: those of the new table, which are promised.
    """
    if not replica.is_there():
        try:
            now = living()
        except RmtError:
            return False
        is_same = now.definition.creation == replica.definition.creation
        if not is_same or not now.is_there():
            return False
    for staged, part in pairs:
        replica.store.withdraw(part, staged)
    return True
