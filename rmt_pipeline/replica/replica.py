"""One replica of one table, put together: where it is agreed, where its bytes are, who it is."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.protocol.settings import TableSettings
from rmt_pipeline.protocol.size_limits import SizeLimits
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.kills import Kills
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import Clock, IdSource
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.snapshot import KnownEntries


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


@dataclass(slots=True)
class Memory:
    """What this process remembers only to save requests. Losing all of it changes nothing."""

    partitions: set[str] = field(default_factory=set)
    """Partitions whose node in `block_numbers` was seen."""
    not_lost_version: int | None = None
    """The version of `is_lost` when it was seen to be "0". Inserts check that it still has it."""
    entries: KnownEntries = field(default_factory=KnownEntries)
    pointer: Pointer | None = None
    """Our log pointer as we left it; a pull that finds it outdated is refused, and reads it."""
    addresses: dict[str, tuple[float, bytes]] = field(default_factory=dict)
    """Peers that were active, when (monotonic), and their addresses."""
    parts_counted: tuple[float, PartCounts] | None = None
    """When parts were counted last (monotonic), and how many there were."""
    active: tuple[float, tuple[str, ...]] | None = None
    """When it was asked last (monotonic) which replicas are active, and the answer."""
    fetch_instead: set[PartName] = field(default_factory=set)
    """Results of merges that came out differently here: fetched from who published them."""
    loaded: Mutations = field(default_factory=lambda: Mutations({}))
    """Mutations as some thread loaded them last, for their entries, which never change."""
    checked: dict[str, set[str]] = field(default_factory=dict)
    """By mutation, the partitions in which no smaller number was in flight: none comes any more."""
    kills: Kills = field(default_factory=Kills)
    pull_batch: int = 1
    """Log entries per pull: starts at one and doubles, so that huge entries get through."""


UpdateDefinition = Callable[[Callable[[TableDefinition], TableDefinition]], TableDefinition]
"""Change the definition on this host's disk: what the given function makes of it. Atomic,
durable; the answer is what it is now.
"""


def _no_catalog(_: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
    raise AssertionError("this replica was made without a catalog: nothing can be altered")


@dataclass(slots=True)
class Replica:
    """Bound to one ZooKeeper session through `keeper`; a new session needs a new Replica.

    `worker` names this process in claims, for people. An ALTER needs a new Replica too.
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

    @property
    def name(self) -> str:
        return self.definition.engine.replica

    @property
    def table(self) -> TablePaths:
        return TablePaths(self.definition.engine.zookeeper_path)

    @property
    def paths(self) -> ReplicaPaths:
        return self.table.replica(self.name)

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

    def new_holder(self) -> str:
        """A name for who holds a number or a claim, for people; no other one is called so."""
        return f"{self.worker} {self.ids.new_id()}"

    def __str__(self) -> str:
        return f"{self.definition.full_name} (replica {self.name})"
