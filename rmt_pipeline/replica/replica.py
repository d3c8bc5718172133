"""One replica of one table, put together: where it is agreed, where its bytes are, who it is."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmt_pipeline.hints import Hints
from rmt_pipeline.protocol.errors import RmtError, TableIsReadOnly
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
from rmt_pipeline.zookeeper.keeper import Check, Keeper, Op, Stat
from rmt_pipeline.zookeeper.known import CountedChildren, KnownQueue
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.through import BoundKeeper


class Total:
    """What was added since it was made: nothing is lost between two threads. Thread-safe."""

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
class Pointer:
    """How far the log was pulled (None: never), with the versions that guard pulling on."""

    index: int | None
    version: int
    is_lost_version: int


@dataclass(frozen=True, slots=True)
class PartCounts:
    """Parts on disk: all active ones, the fullest partition's active ones, and outdated ones of
    the partition that has most of them.
    """

    active: int
    partition: str
    in_partition: int
    outdated_partition: str
    outdated: int


_NO_MUTATIONS = Mutations({})


@dataclass(frozen=True, slots=True)
class KnownRecords(CountedChildren):
    """The records of inserts, by name; and of some, which are whole, every partition that they will
    ever have rows of.
    """

    created_zxid: int = -1
    children_version: int = -1
    names: tuple[str, ...] = ()
    partitions: tuple[tuple[str, frozenset[str]], ...] = ()

    def wanted(self, partitions: Collection[str], but: str) -> list[str]:
        """Those that may have rows of these partitions, without one."""
        known = dict(self.partitions)
        return [
            name
            for name in self.names
            if name != but and (name not in known or not known[name].isdisjoint(partitions))
        ]

    def now(self, stat: Stat, names: Sequence[str]) -> "KnownRecords":
        """As they are listed now. If a node had gone and come again, more would have changed than
        the names say: then nothing is known of any.
        """
        changes = len(frozenset(self.names).symmetric_difference(names))
        is_told = stat.created_zxid == self.created_zxid and (
            stat.children_version - self.children_version == changes
        )
        there = frozenset(names) if is_told else frozenset()
        kept = tuple(one for one in self.partitions if one[0] in there)
        return KnownRecords(stat.created_zxid, stat.children_version, tuple(names), kept)

    def changed(
        self, session: int, *, came: Sequence[str], went: Collection[str]
    ) -> "KnownRecords":
        """By this session, which has changed nothing else. A name that comes again is of another
        record.
        """
        return replace(
            self,
            children_version=self.children_version + len(came) + len(went),
            names=(*(name for name in self.names if name not in went), *came),
            partitions=tuple(one for one in self.partitions if one[0] not in went),
            session=session,
        )

    def learnt(self, found: Mapping[str, frozenset[str]]) -> "KnownRecords":
        """With these; of one that has none nothing is known."""
        told = {name: partitions for name, partitions in found.items() if partitions}
        if told.items() <= dict(self.partitions).items():
            return self
        return replace(self, partitions=tuple((dict(self.partitions) | told).items()))


@dataclass(slots=True)
class Memory:
    """What this process remembers only to save requests. Losing all of it changes nothing.

    All loops of a process share it, so any field may be another one at any moment. A field is
    an immutable value, which is replaced as a whole and looked at once by whoever decides, or
    an object with a lock of its own (`Hints`, `Kills`), or made of such; nothing else. Below each
    one stands why it is safe to act on it when it is old.
    """

    partitions: Hints[str, None] = field(default_factory=Hints)
    """Partitions whose node in `block_numbers` was seen. Without it an allocation is refused."""
    not_lost_version: int | None = None
    """The version of `is_lost` when it was seen to be "0". Inserts check that it still has it."""
    queue: KnownQueue = field(default_factory=KnownQueue)
    """Queue entries by node: true for ever. And the parts as they were listed last, which whoever
    looks takes for what there is only if the stat that he reads says so.
    """
    pointer: Pointer | None = None
    """Our log pointer as we left it. A pull that copies something with an outdated one is refused;
    whoever has to know that nothing is left to copy does not look here (`pull_log`, `afresh`).
    """
    addresses: Hints[str, tuple[float, bytes]] = field(default_factory=Hints)
    """Peers that were active, when (monotonic), and their addresses. A fetch from an old one fails
    and is tried again.
    """
    inserted: Total = field(default_factory=Total)
    """Parts that this process has inserted."""
    parts_counted: tuple[float, PartCounts, int] | None = None
    """When parts were counted last (monotonic), how many there were, and how many had been
    `inserted` before: to slow inserts down.
    """
    active: tuple[float, tuple[str, ...]] | None = None
    """When it was asked last (monotonic) which replicas are active, and the answer: to choose who
    merges. When two choose differently both merge, or both wait until the others have.
    """
    runs: Hints[PartName, WeighedRun] = field(default_factory=Hints)
    """Runs by their first parts, as they were weighed last. They serve to choose a merge; whether
    it may be is looked at anew.
    """
    fetch_instead: Hints[PartName, None] = field(default_factory=Hints)
    """Results of merges that came out differently here: fetched from who published them. Who does
    not know it makes the same once more.
    """
    loaded: Mutations = _NO_MUTATIONS
    """Mutations as some thread loaded them last, for their entries, which never change."""
    checked: Hints[tuple[str, str], None] = field(default_factory=Hints)
    """Mutations and partitions in which no smaller number was in flight: none comes any more."""
    records: KnownRecords = field(default_factory=KnownRecords)
    """Records of inserts that were read before. An insert has rows of the same partitions for ever,
    and which nodes are the same ones is told by the stat that is read.
    """
    kills: Kills = field(default_factory=Kills)
    inserts: "Together[Sequence[Op], list[str]]" = field(default_factory=Together)
    """Multis of inserts that wait for one that is under way. They are not lost: who sent them does
    not return before.
    """
    passes_by: bool = False
    """Set by a loop that never ends: nobody is told here of replacements that left nothing to do.
    They are not queued then (`pull_log`).
    """
    pull_batch: int = 1
    """Log entries per pull: starts at one and doubles, so that huge entries get through."""


UpdateDefinition = Callable[[Callable[[TableDefinition], TableDefinition]], TableDefinition]
"""Change the definition on this host's disk: what the given function makes of it. Atomic,
durable; the answer is what it is now.
"""


def _no_catalog(_: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
    raise AssertionError("this replica was made without a catalog: nothing can be altered")


OtherStore = Callable[[str, str], PartStore | None]
"""The parts of another table of this server, by database and name; None when there is none."""


def _no_other_tables(_database: str, _name: str) -> None:
    return None


@dataclass(slots=True)
class Replica:
    """Bound to one ZooKeeper session through `keeper`; a new session needs a new Replica.

    Whatever session it is made with: nothing of it is written into a namesake that was created
    since. `worker` names this process in claims, for people; `user` is the account that asks. An
    ALTER needs a new Replica too.
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
    """The node that says which replica is meant; "" of a definition that no catalog has."""

    def __post_init__(self) -> None:
        name = self.definition.creation
        self.creation = self.paths.creation(name) if name else ""
        if self.creation:
            self.keeper = BoundKeeper(self.session, self.paths.root, self.creation)

    def become(self, definition: TableDefinition) -> None:
        """Its nodes were made again: nothing that is remembered of those before is true of them."""
        self.definition, self.memory = definition, Memory()
        self.__post_init__()

    @property
    def session(self) -> Keeper:
        """What `keeper` writes through. For whoever asks whether it is still the same one."""
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
        """Whether it is a table of one copy that remembers as many inserts as it says itself."""
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
        """Whether this replica is in ZooKeeper for certain. Else its directory may be another
        table's by now, in which a part of that has the name of ours.
        """
        try:
            self.keeper.multi([Check(self.paths.root)])
        except RmtError:
            return False
        return True

    def new_holder(self) -> str:
        """A new name, unlike all others, for who takes a block number or a claim."""
        return f"{self.worker} {self.ids.new_id()}"

    def new_entry_id(self) -> str:
        """Of what somebody asks for: who, for people, is behind the id."""
        return f"{self.ids.new_id()} {self.user}".strip()

    def __str__(self) -> str:
        return f"{self.definition.full_name} (replica {self.name})"


def lost_error(replica: Replica) -> TableIsReadOnly:
    """What whoever finds it lost is told."""
    return TableIsReadOnly(
        f"{replica} is lost and is cloning another replica; its server finishes that"
    )


def take_back_own(
    replica: Replica,
    living: Callable[[], Replica],
    pairs: Iterable[tuple[StagedPart, PartName]],
) -> bool:
    """Parts that were given their names, and not announced, become staged again. False when nobody
    can tell whether the replica is still there: they keep their names, until a clean-up finds them.
    `living`: asked for the same replica if the session has ended.

    1. A REPLACE has given its parts their names, and its session ends. 2. The table is dropped and
    created again, and its first inserts have the same names. 3. The REPLACE takes its parts back:
    by name, those of the new table, which are promised.
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
