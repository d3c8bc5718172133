"""Hosts that run the production actions: servers, workers, inserting processes, readers.

What `rmt serve`, `rmt worker` and `ServerContext` do around the actions is done here in the same
way, with a simulated session, disk, clock and peers instead of real ones. The actions themselves
are the production code, unmodified.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeVar, cast

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.entries import UnfinishedDrop
from rmt_pipeline.protocol.errors import (
    Conflict,
    MetadataMismatch,
    OutcomeUnknown,
    ReplicaRetired,
    RmtError,
    Unavailable,
    UnknownTable,
    UserError,
)
from rmt_pipeline.protocol.nodes.columns import parse_columns
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.nodes.metadata import parse_metadata
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.protocol.table import Engine, TableDefinition
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.drop import drop_table, resume_drop
from rmt_pipeline.replica.life.start import start
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import Flush, work
from rmt_pipeline.replica.work.pools import POOLS, Pool
from rmt_pipeline.store import layout
from rmt_pipeline.store.frozen import Shadow
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from tests.support.fake_disk import BadSector
from tests.support.fake_peers import FakePeers
from tests.support.schedule import Kind
from tests.support.sim_disk import SimDisk
from tests.support.sim_keeper import SimKeeper
from tests.support.sim_mutator import SimMutator
from tests.support.sim_rows import COLUMNS, VALUE, SimMerger, rows_on
from tests.support.world import Host, Process, Sleep, World

T = TypeVar("T")

TABLE = TablePaths("/tables/t")
RESTART_S = 0.3
RETRY_S = 0.2  # of a loop whose work failed; two seconds in production
TIDY_EVERY_S = (0.5, 5.0)
FOREVER_S = 1e9
LETS_GO_S = (0.0, 0.1, 3.0)  # until a process has noticed that its table was dropped
LASTING = ("server", "worker", "upkeep", *POOLS)  # processes that never end by themselves
SETTINGS = {
    "merge_selecting_sleep_ms": "100",
    "old_parts_lifetime": "1",
    "temporary_directories_lifetime": "60",
    "min_replicated_logs_to_keep": "2",
    "max_replicated_logs_to_keep": "6",
    "finished_mutations_to_keep": "2",
    "merge_with_ttl_timeout": "1",
}

TABLE_SETTINGS = TableSettings.of(SETTINGS)


def definition_of(replica: str, table: TablePaths = TABLE) -> TableDefinition:
    return TableDefinition(
        database="default",
        name=table.root.rpartition("/")[2],
        columns=COLUMNS,
        engine=Engine("MergeTree", table.root, replica),
        order_by=("row",),
        partition_by=("partition",),
        settings=tuple(sorted(SETTINGS.items())),
    )


class SimClock:
    """A host's clock, as one process sees it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    def now_s(self) -> float:
        return self._world.now_s + self._process.host.skew[0]

    def monotonic_s(self) -> float:
        return self._world.now_s

    def sleep_s(self, seconds: float) -> None:
        self._world.sleep_s(seconds)


class SimWaker:
    """The `Waker` protocol for one task."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False
        self._sleep: Sleep | None = None

    def wake(self) -> None:
        self._is_set = True
        if self._sleep is not None:
            self._sleep.wake()

    def wait_s(self, timeout_s: float) -> bool:
        if not self._is_set:
            self._sleep = self._world.wait(timeout_s)
            self._sleep.until_woken()
            self._sleep = None
        woken, self._is_set = self._is_set, False
        return woken


Form = Literal["serve --work", "worker", "runs"]
"""How a host's queues are worked. `serve --work`: by loops of the server's own process, which share
a session, a Replica and its memory, beside the server's own. `worker`: the same loops in a process
beside the server. `runs`: by a process for each pool, and for each clean-up, as Dagster's runs do.
"""
FORMS: tuple[Form, ...] = ("serve --work", "worker", "runs")


@dataclass(slots=True, eq=False)
class Site:
    """A host's part in the table: what `rmt.toml` and the catalog would say."""

    host: Host
    replica: str
    table: TablePaths = TABLE
    root: str = ""
    """The table's directory on the host's disk: of a table that was dropped, until the next one is
    created, which gets another (`Catalog.add`).
    """
    form: Form = "runs"
    is_created: bool = False
    is_out: bool = True
    """It takes no part: not created yet, or dropped."""
    server: Process | None = None
    context: "Context | None" = None
    """The server's own, which holds `is_active`."""
    is_serving: bool = False
    cleaning: int = 0
    """Upkeep loops that are at it."""
    outside: PartStore | None = None
    """The parts as peers and checkers read them."""
    definition: TableDefinition | None = None
    """What the catalog on its disk says; None before the table is made, and once it is dropped."""
    unfinished: UnfinishedDrop | None = None
    """A DROP that the catalog knows to have begun, and not to have ended."""
    dropper: Process | None = None
    """Who is at it: it has the lock."""
    drops: int = 0
    """How often the table was dropped here: processes from before are of another table."""

    @property
    def paths(self) -> ReplicaPaths:
        return self.table.replica(self.replica)

    @property
    def first_definition(self) -> TableDefinition:
        """What the first CREATE TABLE says there."""
        return replace(definition_of(self.replica, self.table), directory=self.root)

    def path(self, part: object) -> str:
        """Of a part's directory on the host's disk."""
        return layout.join(self.root, str(part))

    @property
    def has_left_parts(self) -> bool:
        """A clone has set parts aside. Readers wait until these, or what contains them, are here;
        who does not wait is told.
        """
        names = self.host.disk.list(self.path(layout.DETACHED))
        return any(name.startswith("clone_") for name in names)

    def rows(self, part: object) -> list[str]:
        """Looking at the disk from outside."""
        return rows_on(self.host.disk, self.path(part))


class Context:
    """What `ServerContext` is to a process: a session that is renewed, and the replica on it."""

    def __init__(
        self,
        cluster: "Cluster",
        site: Site,
        process: Process,
        session: Callable[[], SimKeeper] | None = None,
    ) -> None:
        """`session`: of another context of the process, for another table."""
        self.process = process
        self.site = site
        self.clock = SimClock(process)
        self._session = session
        self._cluster = cluster
        self._keeper: SimKeeper | None = None
        self._replica: Replica | None = None
        self._meant: TableDefinition | None = None
        self._store: PartStore | None = None

    @property
    def store(self) -> PartStore:
        """In the directory of the table that is meant. Raises UnknownTable, as `definition`."""
        if self._store is None:
            self._store = self.store_of(self.definition)
        return self._store

    def store_of(self, definition: TableDefinition) -> PartStore:
        return PartStore(SimDisk(self.process), definition.directory, ids=self._cluster.world)

    @property
    def definition(self) -> TableDefinition:
        """As `ServerContext` has it: of a table that was dropped it is what it was. Raises
        UnknownTable once another one has its name.
        """
        now, meant = self.site.definition, self._meant
        if meant is not None:
            if now is not None and now.uuid != meant.uuid:
                raise UnknownTable("the table was dropped and created again")
            return now or meant
        if now is None and self.site.drops:
            raise UnknownTable("the table was dropped")
        self._meant = now
        return now or self.site.first_definition

    def beside(self, other: "Cluster") -> "Context":
        """The other table of the same server, in the same session."""
        return Context(other, other.sites[self.site.replica], self.process, self.keeper)

    def update_definition(
        self, change: Callable[[TableDefinition], TableDefinition]
    ) -> TableDefinition:
        """The real catalog's is tested with crashes of its own: here it is one effect."""

        def save() -> TableDefinition:
            if self.site.drops and self.site.definition is None:
                raise UnknownTable("the table was dropped")
            self.site.definition = change(self.definition)
            return self.site.definition

        world = self._cluster.world
        return world.effect(self.process, Kind.DISK, "save", "the definition", save)

    def keeper(self) -> SimKeeper:
        if self._session is not None:
            return self._session()
        if self._keeper is None or self._keeper.is_retired:
            self._keeper = SimKeeper(self.process)
            self._replica = None
        return self._keeper

    def replica(self) -> Replica:
        keeper = self.keeper()
        known, definition = self._replica, self.definition
        if known is None or known.session is not keeper or known.definition != definition:
            self._replica = Replica(
                definition=definition,
                keeper=keeper,
                store=self.store,
                clock=self.clock,
                ids=self._cluster.world,
                settings=TABLE_SETTINGS,
                worker=str(self.process),
                memory=Memory(),
                update_definition=self.update_definition,
            )
            self.process.means.add(self._replica.creation)
        assert self._replica is not None
        return self._replica

    def close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()

    def table(self) -> Table:
        meant = self.definition

        def replica() -> Replica:
            if self.definition.uuid != meant.uuid:
                raise UnknownTable("the table was dropped and created again")
            return self.replica()

        return Table(
            meant,
            self.store,
            replica=replica,
            current=lambda: self.definition,
            peers=lambda: nullcontext(self.tools().peers),
            frozen=Shadow(self.store.disk, clock=self.clock, ids=self._cluster.world).of_table(
                "data/default/t"
            ),
            clock=self.clock,
            new_waker=lambda: SimWaker(self._cluster.world),
        )

    def tools(self) -> Tools:
        return Tools(
            FakePeers(self.process, self._cluster.serving, self._cluster.check_broken),
            SimMerger(self.process),
            SimMutator(self.process),
            spawn=self.process.spawn,
        )


@dataclass(slots=True)
class Cluster:
    """A table on some hosts of a world."""

    world: World
    workers: int = 1
    """Of each pool, on each host."""
    table: TablePaths = TABLE
    root: str = ""
    """Where its parts are on the disks of the hosts; also before the names of its processes."""
    sites: dict[str, Site] = field(init=False)
    incarnations: int = 0
    beside: "Cluster | None" = None
    """Another table of these hosts, whose parts are served, too."""
    ttl: str = ""
    """With which the table is created."""
    value_ttl: str = ""
    """With which its column of values is, which there is then."""

    def __post_init__(self) -> None:
        self.sites = {
            f"r{number}": Site(
                host,
                f"r{number}",
                self.table,
                self.root,
                outside=PartStore(host.disk, self.root, ids=self.world),
            )
            for number, host in enumerate(self.world.hosts.values(), start=1)
        }

    def boot(self, *replicas: str) -> None:
        """These hosts start their servers and workers, and again whenever one of them ends."""
        for replica in replicas:
            site = self.sites[replica]
            site.is_out = False
            self._keep_running(site, "server", self._serve)

    def boot_workers(self, site: Site) -> None:
        """The first worker of each pool is as the site's form says, others are runs."""
        together = self.workers > 0 and site.form != "runs"
        if together and site.form == "worker":
            self._keep_running(site, "worker", self._work_together)
        if self.workers and site.form == "runs":
            self._keep_running(site, "upkeep", self._tidy)
        for _ in range(self.workers - together):
            for pool in POOLS:
                self._keep_running(
                    site, pool, lambda context, pool=pool: self._work(context, pool)
                )

    def spawn(self, site: Site, name: str, run: Callable[[Context], None]) -> Process:
        """One process with one task. An RmtError ends it, as it would end a command."""
        process = self.world.start_process(site.host, f"{self.root} {name}".lstrip())

        def body() -> None:
            context = Context(self, site, process)
            run(context)
            context.close()
            self.world.end_process(process, kill_others=True)

        process.spawn(body)
        return process

    def restart_everything(self) -> None:
        for site in self.sites.values():
            self.switch_off(site, for_s=0.0)

    def switch_off(self, site: Site, *, for_s: float) -> None:
        """Every process of the host ends, and none begins before that time is over."""
        site.host.down_until_s = self.world.now_s + for_s
        for process in list(site.host.processes):
            self.world.end_process(process, kill_others=True)

    def end_passing(self, site: Site) -> None:
        """Every process of the host ends, but those that never end by themselves."""
        for process in list(site.host.processes):
            if not self._is_lasting(process):
                self.world.end_process(process, kill_others=True)

    def _is_lasting(self, process: Process) -> bool:
        return process.name.removeprefix(f"{self.root} ") in LASTING

    def drop_table(self, site: Site) -> Process:
        """DROP TABLE of this server. Who dies in it is gone on with, as by the server."""

        def run(context: Context) -> None:
            keeper, definition = context.keeper(), context.definition
            drop_table(self._catalog(context), keeper, definition, context.store_of)

        process = self.spawn(site, "drop table", run)
        process.on_end.append(lambda: self._finish_drop(site))
        return process

    def _finish_drop(self, site: Site) -> None:
        """The server looks for drops that were cut off, until there is none."""
        soonest_s = max(self.world.now_s, site.host.down_until_s)
        if site.unfinished is not None:
            self.world.at(
                soonest_s + self.world.rng.uniform(0.0, RESTART_S), lambda: self._look(site)
            )

    def _look(self, site: Site) -> None:
        def run(context: Context) -> None:
            name = definition_of(site.replica, self.table).name
            resume_drop(
                self._catalog(context),
                context.keeper(),
                "default",
                name,
                context.store_of,
            )

        if site.unfinished is not None:
            process = self.spawn(site, "finish drop", run)
            process.on_end.append(lambda: self._finish_drop(site))

    def _catalog(self, context: Context) -> Catalog:
        return cast("Catalog", SimCatalog(self, context))

    def let_go(self, site: Site) -> None:
        """The table was dropped: no process begins for it any more, and those that live end once
        they have noticed.
        """
        site.drops += 1
        site.is_out, site.is_created, site.is_serving = True, False, False
        for process in site.host.processes:
            if self._is_lasting(process):
                soon_s = self.world.now_s + self.world.rng.choice(LETS_GO_S)
                self.world.at(
                    soon_s,
                    lambda process=process: self.world.end_process(process, kill_others=True),
                )

    def is_down(self, site: Site) -> bool:
        return site.host.down_until_s > self.world.now_s

    def serving(self, endpoint: str) -> PartStore | None:
        for site in self.sites.values():
            if site.paths.root == endpoint:
                return site.outside if self._can_answer(site) else None
        return None if self.beside is None else self.beside.serving(endpoint)

    def check_broken(self, endpoint: str, part: PartName) -> None:
        """A server that finds a part broken while it sends it has it checked."""
        for site in self.sites.values():
            server, context = site.server, site.context
            if site.paths.root != endpoint or server is None or not context:
                continue
            if server.is_alive and site.is_serving:
                server.spawn(lambda context=context: self._check(context, part))

    def _check(self, context: Context, part: PartName) -> None:
        """As the server's thread for it does, with the server's own Replica."""
        try:
            check_part(context.replica(), part)
        except (RmtError, BadSector) as error:
            self.world.note(str(context.process), "part check failed", str(error)[:200])

    def _can_answer(self, site: Site) -> bool:
        server = site.server
        return (
            site.is_serving
            and server is not None
            and server.is_alive
            and server.frozen_until_s <= self.world.now_s
        )

    def _keep_running(self, site: Site, name: str, run: Callable[[Context], None]) -> None:
        if site.is_out:
            return
        drops = site.drops

        def begin(context: Context) -> None:
            if site.drops != drops:
                raise UnknownTable("the table was dropped before the process began")
            run(context)

        process = self.spawn(site, name, begin)

        def again() -> None:
            soonest_s = max(self.world.now_s, site.host.down_until_s)
            if site.drops == drops:
                self.world.at(
                    soonest_s + self.world.rng.uniform(0.0, RESTART_S),
                    lambda: site.drops == drops and self._keep_running(site, name, run),
                )

        process.on_end.append(again)

    # --- what the processes do ---

    def _serve(self, context: Context) -> None:
        """As `rmt serve`: make the replica active and answer peers; start over with
        each session.
        """
        site, process = context.site, context.process
        site.server, site.context = process, context
        process.on_end.append(lambda: self._served(site, process))
        self.incarnations += 1
        incarnation, drops = str(self.incarnations), site.drops
        while not site.is_created:
            if site.drops != drops:
                raise UnknownTable("the table was dropped")
            try:
                definition = self._wanted(site)
                creator = f"{definition.full_name}|{site.replica}".encode()
                self._created(site, create_replica(context.keeper(), definition, creator))
                self.boot_workers(site)
            except (Unavailable, OutcomeUnknown, ReplicaRetired, Conflict, MetadataMismatch):
                context.close()
                context.clock.sleep_s(0.1)
        if self.workers and site.form == "serve --work":
            process.spawn(lambda: self._work_together(Context(self, site, process)))
        while True:
            waker = SimWaker(self.world)
            try:
                replica = context.replica()
                start(
                    replica,
                    identity=site.replica,
                    incarnation=incarnation,
                    address=ReplicaAddress(
                        site.host.name, 9009, 9000, "default", replica.definition.name
                    ),
                )
                keeper = replica.session  # not the next one, when this is over
                assert isinstance(keeper, SimKeeper)
                keeper.on_retired(waker.wake)
                site.is_serving = site.server is process and not keeper.is_retired
                while not keeper.is_retired:
                    waker.wait_s(60.0)
            except UserError:
                raise
            except (RmtError, BadSector) as error:
                self.world.note(str(process), "starts over after", str(error)[:200])
            self._served(site, process)
            context.close()
            context.clock.sleep_s(0.1)

    def _created(self, site: Site, definition: TableDefinition) -> None:
        site.definition, site.root = definition, definition.directory
        site.outside = PartStore(site.host.disk, site.root, ids=self.world)
        site.is_created = True

    def _wanted(self, site: Site) -> TableDefinition:
        """What CREATE TABLE says there: the columns and TTL that the table has, if there is one."""
        uuid = self.world.new_id()
        directory = f"{self.root}~{uuid}" if site.drops else site.root
        definition = replace(
            definition_of(site.replica, self.table),
            uuid=uuid,
            directory=directory,
            ttl=self.ttl,
            columns=(*COLUMNS, *[replace(VALUE, ttl=self.value_ttl)] * bool(self.value_ttl)),
        )
        nodes = self.world.zookeeper.nodes
        columns, metadata = nodes.get(self.table.columns), nodes.get(self.table.metadata)
        if columns is None or metadata is None:
            return definition
        definition = definition.with_columns(parse_columns(columns.data.decode()))
        return replace(definition, ttl=parse_metadata(metadata.data.decode()).ttl)

    @staticmethod
    def _served(site: Site, process: Process) -> None:
        if site.server is process:  # else there is the one of the next table already
            site.is_serving = False

    def _work_together(self, context: Context) -> None:
        """As `QueueLoops`: a thread for each loop, which share the context, and go on after errors;
        only while the table is served.
        """
        for name, loop in self.loops.items():
            context.process.spawn(lambda name=name, loop=loop: self._go_on(context, name, loop))
        self.world.wait(FOREVER_S).until_woken()

    def _go_on(self, context: Context, name: str, loop: Callable[[Context], None]) -> None:
        while True:
            if context.site.is_serving:
                try:
                    loop(context)
                except (RmtError, BadSector) as error:
                    who = f"{context.process} {name}"
                    self.world.note(who, "paused", f"{type(error).__name__}: {error}"[:300])
                    self.world.ended_by.append((who, error))
            context.clock.sleep_s(RETRY_S)

    @property
    def loops(self) -> Mapping[str, Callable[[Context], None]]:
        """What `serve --work` and `rmt worker` run as threads of one process, for one table."""
        pools = {pool: lambda context, pool=pool: self._work(context, pool) for pool in POOLS}
        return MappingProxyType({**pools, "upkeep": self._tidy})

    def _work(self, context: Context, pool: Pool) -> None:
        together = context.process.name.removeprefix(f"{self.root} ") not in POOLS
        work(
            context.replica,
            context.tools(),
            pool,
            waker=SimWaker(self.world),
            linger_s=None,
            select=pool == "merge",
            on_flush=raise_bugs,
            should_stop=lambda: together and not context.site.is_serving,
        )

    def _tidy(self, context: Context) -> None:
        """As the upkeep loop does."""
        context.clock.sleep_s(self.world.rng.uniform(*TIDY_EVERY_S))
        context.site.cleaning += 1
        try:
            replica = context.replica()
            carry_out(replica, plan_clean_up(replica))
        finally:
            context.site.cleaning -= 1


@dataclass(frozen=True, slots=True)
class SimCatalog:
    """What `drop_table` asks of the catalog: each change is one effect of the world, and the lock
    goes with its process. The real one is tested with crashes of its own.
    """

    cluster: Cluster
    context: Context

    @contextmanager
    def begin_drop(
        self, definition: TableDefinition, replica_czxid: int
    ) -> Iterator[UnfinishedDrop]:
        site, process = self.context.site, self.context.process

        def begin() -> UnfinishedDrop:
            if site.definition is None or site.definition.uuid != definition.uuid:
                raise UnknownTable("the table was dropped")
            site.dropper, site.definition = process, None
            site.unfinished = UnfinishedDrop(definition, replica_czxid)
            self.cluster.let_go(site)
            return site.unfinished

        yield self._saved("begin", begin)

    @contextmanager
    def resume_drop(self, database: str, name: str) -> Iterator[UnfinishedDrop | None]:
        del database, name
        site, process = self.context.site, self.context.process

        def take() -> UnfinishedDrop | None:
            if site.dropper is not None and site.dropper.is_alive:
                raise Conflict("another process is at it")
            site.dropper = process
            return site.unfinished

        yield self._saved("resume", take)

    def end_drop(self, definition: TableDefinition) -> None:
        del definition

        def end() -> None:
            self.context.site.unfinished = None

        self._saved("end", end)

    def _saved(self, what: str, change: Callable[[], T]) -> T:
        world = self.cluster.world
        return world.effect(self.context.process, Kind.DISK, what, "the drop", change)


def raise_bugs(flush: Flush) -> None:
    """What production tells people of and tries again breaks a simulated world."""
    for done in flush.parts:
        if done.bug is not None:
            raise done.bug


def names(sites: Sequence[Site]) -> list[str]:
    return [site.replica for site in sites]
