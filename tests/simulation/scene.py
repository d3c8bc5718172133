"""A small world without faults and without workers, in which a test says step by step what happens:
the scenarios of spec §16 that need several replicas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.result import InsertResult
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import Step
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create, Op, SetData
from tests.simulation.between import Tables
from tests.simulation.checkers import what_is_missing
from tests.simulation.expiring import Ttl
from tests.simulation.run import build, forgetful, live_on, with_another_table
from tests.simulation.size import Size
from tests.support.cluster import TABLE, Context, Form, SimWaker
from tests.support.executor import Executor
from tests.support.fake_keeper import Node
from tests.support.schedule import Fault, Strike
from tests.support.sim_rows import rows_on, stage_rows
from tests.support.world import Broken, Process

T = TypeVar("T")
STEPS_MAX = 3000


@dataclass(eq=False)
class Held:
    """A process that waits before its first multi that `at` recognises."""

    process: Process
    results: list[Any]
    waker: SimWaker
    is_waiting: bool = False


@dataclass(eq=False)
class Scene:
    """All replicas are there when it begins. `form`: of every site, if not what the run draws."""

    hosts: int = 2
    form: Form | None = None
    ttl: Ttl | None = None
    value_ttl: Ttl | None = None
    results: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = Size(
            hosts=self.hosts,
            partitions=1,
            clients=0,
            inserts_each=0,
            rows_max=1,
            workers=0,
            ttl=self.ttl,
            value_ttl=self.value_ttl,
        )
        self._forgetful = forgetful()
        self.run = build(Strike(Fault.KILL_BEFORE), size)
        self.world, self.cluster = self.run.world, self.run.cluster

    def __enter__(self) -> Self:
        self._forgetful.__enter__()
        for site in self.cluster.sites.values():
            site.form = self.form or site.form
        try:
            self.boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.world.end()
        self._forgetful.__exit__(None, None, None)

    @property
    def nodes(self) -> dict[str, Node]:
        return self.world.zookeeper.nodes

    def boot(self, *replicas: str) -> None:
        self.cluster.boot(*(replicas or self.cluster.sites))
        assert self.world.run(STEPS_MAX, lambda: what_is_missing(self.cluster) is None)

    def let(self, condition: Callable[[], bool]) -> None:
        """Run the world until the condition holds."""
        assert self.world.run(STEPS_MAX, condition, every=1), "it does not come to that"

    # --- doing ---

    def do(self, replica: str, action: Callable[[Context], T]) -> T:
        """What a process on the replica's host does from begin to end; its error is raised."""
        ended: list[T] = []
        before = len(self.world.ended_by)
        process = self.cluster.spawn(
            self.cluster.sites[replica], "action", lambda context: ended.append(action(context))
        )
        try:
            self.let(lambda: not process.is_alive)
        except Broken as broken:
            raise broken.__cause__ or broken from None
        if not ended:
            raise self.world.ended_by[before][1]
        return ended[0]

    def hold(
        self, replica: str, action: Callable[[Context], Any], at: Callable[[Op], bool]
    ) -> Held:
        """Begin an action and stop it right before its first multi with such an operation."""
        held = Held(None, [], SimWaker(self.world))  # type: ignore[arg-type]

        def run(context: Context) -> None:
            keeper = context.keeper()
            multi = keeper.multi

            def stopping(ops: Sequence[Op]) -> list[str]:
                if not held.is_waiting and any(map(at, ops)):
                    held.is_waiting = True
                    held.waker.wait_s(1e6)
                return multi(ops)

            keeper.multi = stopping  # type: ignore[method-assign]
            held.results.append(action(context))

        held.process = self.cluster.spawn(self.cluster.sites[replica], "held", run)
        self.let(lambda: held.is_waiting)
        return held

    def release(self, held: Held) -> Any:
        held.waker.wake()
        self.let(lambda: not held.process.is_alive)
        return held.results[0] if held.results else None

    def insert(self, replica: str, *rows: str, token: str = "") -> InsertResult:
        return self.do(replica, inserting(*rows, token=token))

    def pull(self, replica: str) -> int:
        return self.do(replica, lambda context: pull_log(context.replica()).entries)

    def step(self, replica: str, pool: Pool) -> Step:
        return self.do(
            replica,
            lambda context: Executor(context.replica(), context.tools(), pool).step(None),
        )

    def work(self, *replicas: str) -> None:
        """Pull and carry out everything that can be, on these replicas, in their order."""
        for replica in replicas:
            self.pull(replica)
            for pool in ("fetch", "merge"):
                while self.step(replica, pool).did_something:
                    pass

    def merge(self, replica: str) -> Any:
        return self.do(replica, merging)

    def live_on(self) -> None:
        """Everybody comes to work, the world comes to rest, and every check looks."""
        for cluster, _ in self.run.books:
            cluster.workers = 1
            for site in cluster.sites.values():
                cluster.boot_workers(site)
        live_on(self.run)

    def another_table(self) -> Tables:
        """On all hosts."""
        self.run.tables = tables = with_another_table(self.cluster, self.run.ledger)
        for site in tables.target.sites.values():
            site.form = "runs"
        tables.target.boot(*tables.target.sites)
        assert self.world.run(STEPS_MAX, lambda: what_is_missing(tables.target) is None)
        return tables

    # --- looking ---

    def children(self, path: str) -> list[str]:
        return sorted(self.nodes[path].children)

    def parts(self, replica: str) -> list[str]:
        return self.children(TABLE.replica(replica).parts)

    def queue(self, replica: str) -> list[str]:
        return self.children(TABLE.replica(replica).queue)

    def rows(self, replica: str) -> list[str]:
        disk = self.cluster.sites[replica].host.disk
        active = PartSet(map(PartName.parse, self.parts(replica)))
        return sorted(row for part in active for row in rows_on(disk, part))

    def on_disk(self, replica: str) -> list[str]:
        return self.cluster.sites[replica].host.disk.list("")


def inserting(*rows: str, token: str = "") -> Callable[[Context], InsertResult]:
    return inserting_blocks(rows, token=token)


def inserting_blocks(
    *blocks: Sequence[str], token: str = ""
) -> Callable[[Context], InsertResult]:
    def insert(context: Context) -> InsertResult:
        now_s = int(context.clock.now_s())
        staged = [stage_rows(context.store, "a", rows, created_s=now_s) for rows in blocks]
        return context.table().commit(staged, token=token)

    return insert


def commits(op: Op) -> bool:
    return isinstance(op, Create) and op.path.startswith(f"{TABLE.log}/")


def writes_mutation(op: Op) -> bool:
    return isinstance(op, SetData) and op.path == TABLE.mutations


def locks(op: Op) -> bool:
    """Takes a number in a partition."""
    return isinstance(op, Create) and op.path.startswith(f"{TABLE.block_numbers}/")


def publishes(op: Op) -> bool:
    return isinstance(op, Create) and "/parts/" in op.path


def new_partition() -> list[Op]:
    return transactions.create_partition(TABLE, TABLE.replica("r2"), "b")


def merging(context: Context) -> Any:
    return optimize_partition(context.replica(), "a", final=True, skip_merged=False)


def fetch_step(context: Context) -> Step:
    return Executor(context.replica(), context.tools(), "fetch").step(None)


def moves_pointer(op: Op) -> bool:
    return isinstance(op, SetData) and op.path.endswith("/log_pointer")


def claims(op: Op) -> bool:
    return isinstance(op, Create) and "/executing/" in op.path
