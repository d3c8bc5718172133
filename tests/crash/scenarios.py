"""Short scenarios, one per action. The effects of the processes whose names begin with `owner` are
the places where a fault may strike.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rmt_pipeline.replica.assign import optimize_partition
from tests.simulation.checkers import what_is_left, what_is_missing
from tests.simulation.ledger import ClientInsert
from tests.simulation.run import CALM_STEPS_MAX, LATER_S, Run, build
from tests.simulation.workload import Size, Workload, clean_up
from tests.support.cluster import Context
from tests.support.schedule import Strike

SIZE = Size(hosts=2, partitions=2, clients=0, inserts_each=0, rows_max=2)
REST_STEPS_MAX = 1500


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prepare` runs without faults, `act` with them."""

    owner: str
    prepare: Callable[[Run], None]
    act: Callable[[Run], None]
    workers: int = 1
    switch: float = 0.0
    """How often another process runs in between."""

    def play(self, schedule: Strike) -> Run:
        schedule.switch = self.switch
        run = build(schedule, replace(SIZE, workers=self.workers))
        with schedule.truce():
            self.prepare(run)
        self.act(run)
        rest(run)
        return run


def rest(run: Run) -> bool:
    """Until nothing is left to do; in vain when a fault has struck and nobody cares yet."""
    return run.world.run(REST_STEPS_MAX, lambda: what_is_left(run.cluster, run.ledger) is None)


def boot(run: Run, *replicas: str) -> None:
    run.cluster.boot(*(replicas or run.cluster.sites))
    assert run.world.run(CALM_STEPS_MAX, lambda: what_is_missing(run.cluster) is None)


def insert(run: Run, *, number: int = 0, at: str = "r1", block_rows_max: int = 0) -> None:
    rows = {
        partition: [f"{number:03}.{partition}.{row}" for row in range(2)] for partition in "ab"
    }
    one = ClientInsert(
        number, rows, token="", gives_up=False, block_rows_max=block_rows_max or 2
    )
    workload = Workload(run.cluster, run.ledger, SIZE)
    workload.spawn_insert(one, at=run.cluster.sites[at])


def three_inserts(run: Run) -> None:
    boot(run)
    for number, at in enumerate(("r1", "r2", "r1")):
        insert(run, number=number, at=at)
        assert rest(run)


def insert_first_again(run: Run) -> None:
    """The rows of the first insert once more, on the other replica, cut in another way."""
    del run.ledger.inserts[0]
    insert(run, number=0, at="r2", block_rows_max=1)


def assign(run: Run) -> None:
    def optimize(context: Context) -> None:
        optimize_partition(context.replica(), "a", final=True, skip_merged=False)

    run.cluster.spawn(run.cluster.sites["r1"], "optimize", optimize)


def merged(run: Run) -> None:
    three_inserts(run)
    assign(run)
    assert rest(run)


def clean(run: Run) -> None:
    run.world.now_s += LATER_S
    run.cluster.spawn(run.cluster.sites["r1"], "clean up", clean_up)


def only_r1(run: Run) -> None:
    boot(run, "r1")
    for number in range(3):
        insert(run, number=number)
        assert rest(run)
    assign(run)
    assert rest(run)


def join_r2(run: Run) -> None:
    run.cluster.boot("r2")


def start_over(run: Run) -> None:
    """The server of r1 comes back to a disk that lost a part and has one that nobody knows."""
    host = run.cluster.sites["r1"].host
    for process in list(host.processes):
        run.world.end_process(process, kill_others=True)
    first, second, *_ = sorted(name for name in host.disk.list("") if name.startswith("a_"))
    host.disk.remove_tree(first)
    host.disk.rename(second, "a_77_77_0")
    run.world.now_s += LATER_S


SCENARIOS: dict[str, Scenario] = {
    "create": Scenario("h1/server", lambda run: None, lambda run: run.cluster.boot("r1", "r2")),
    "join and clone": Scenario("h2/server", only_r1, join_r2),
    "insert": Scenario("h1/insert 0.1", boot, insert),
    "insert again elsewhere": Scenario("h2/insert 0.1", three_inserts, insert_first_again),
    "pull and fetch": Scenario("h2/fetch", boot, insert),
    "assign": Scenario("h1/optimize", three_inserts, assign),
    "merge": Scenario("h1/merge", three_inserts, assign),
    "merge on the follower": Scenario("h2/merge", three_inserts, assign),
    "two fetch": Scenario("h2/fetch", boot, insert, workers=2, switch=0.4),
    "two merge": Scenario("h2/merge", three_inserts, assign, workers=2, switch=0.4),
    "clean up": Scenario("h1/clean up", merged, clean),
    "start over": Scenario("h1/server", three_inserts, start_over),
}
