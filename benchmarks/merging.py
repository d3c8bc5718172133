"""Small merges on two replicas: how many a second are assigned, made and published, and what a client
that inserts meanwhile notices of them.

    python -m benchmarks.merging [--merges 300] [--parts 10] [--rate 20] [--seconds 10] [--spy DIRECTORY] [--who]

Two `rmt serve --work` over one ZooKeeper, and one client, which inserts at a steady rate: first while
merges are stopped by hand, then while both replicas merge what was inserted before. That is one
merge of so many parts in each of many partitions. A merge counts when both replicas have published
its result, by ZooKeeper's own clock; the rate is that from the first merge to the last.

Processor time and requests are told per merge and for all processes of a server: they hardly depend
on what else the machine does. Beside ClickHouse's server of Debian's package, when it is installed,
in the same way and in the same run. `--spy` is as in `benchmarks.profile`; `--who` tells what each of our
servers asks of ZooKeeper.
"""

import argparse
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.clickhouse import BUSY, busy_pair, executable
from benchmarks.cluster import Cluster
from benchmarks.insert import definition, timed, wait_active
from benchmarks.profile import TICK_MS, show, spent, spied
from benchmarks.replication import paced
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.paths import TablePaths

PARTITIONS_AT_ONCE = 100
ROWS = 10
SHOWN = 15
SERVERS = ("r1", "r2")
LOOK_EVERY_S = 0.5
WARM_UP = 40
WAIT_S = 40.0
APART = 1_000_000
"""The partition that the client inserts into while merges are counted."""


def rows_of(partitions: range, seed: int) -> pa.Table:
    numbers = [partition for partition in partitions for _ in range(ROWS)]
    keys = range(seed * len(numbers), (seed + 1) * len(numbers))
    return pa.table({"k": list(keys), "v": ["some text"] * len(numbers), "p": numbers})


def merged_s(keeper: Keeper, table: TablePaths) -> dict[str, float]:
    """The results of merges that both replicas have published, and when the later one did."""
    promised = [set(keeper.children(table.replica(name).parts)) for name in SERVERS]
    names = [name for name in set.intersection(*promised) if PartName.parse(name).level]
    stats = [
        keeper.exists_many([table.replica(server).part(name) for name in names])
        for server in SERVERS
    ]
    return {
        name: max(one.created_ms, other.created_ms) / 1000
        for name, one, other in zip(names, *stats, strict=True)
        if one is not None and other is not None
    }


def have_all(keeper: Keeper, table: TablePaths) -> bool:
    """Whether both replicas have the same parts."""
    one, other = (keeper.children(table.replica(name).parts) for name in SERVERS)
    return one == other


def until(what: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + WAIT_S
    while not what():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


@contextmanager
def inserting(insert: Callable[[int], object], rate: float) -> Iterator[list[float]]:
    """One client at that rate; yields the milliseconds of its inserts."""
    times: list[float] = []
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            paced(1, rate, lambda _: times.append(1000 * timed(lambda: insert(len(times)))))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield times
    finally:
        is_over.set()
        thread.join()


def p50_and_p99(times: list[float]) -> str:
    ordered = sorted(times)
    return f"p50 {statistics.median(ordered):.1f} ms, p99 {ordered[len(ordered) * 99 // 100]:.1f} ms"


@dataclass(frozen=True, slots=True)
class Table:
    """A table on two servers. `let_merge` stops or starts the merges of both; `pids` are the
    processes whose work is told.
    """

    paths: TablePaths
    insert: Callable[[pa.Table], object]
    let_merge: Callable[[bool], None]
    pids: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Spent:
    """What so many inserts, and what else was done meanwhile, cost the servers and ZooKeeper."""

    inserts_ms: list[float]
    requests: int
    times: Mapping[str, Counter[tuple[str, str]]]

    def ms(self, name: str) -> float:
        """Of the processor, in this process and all that it has begun."""
        ticks = (number for (what, _), number in self.times[name].items() if what != "switches")
        return sum(ticks) * TICK_MS


@contextmanager
def spending(
    cluster: Cluster, bench: Table, rate: float, first: int
) -> Iterator[Callable[[], Spent]]:
    """One client at that rate; yields what tells the costs, once it has ended."""
    before = {name: spent(pid) for name, pid in bench.pids.items()}
    asked, apart = cluster.requests(), range(APART, APART + 1)

    def so_far() -> Spent:
        times = {name: spent(pid) for name, pid in bench.pids.items()}
        for name, of_process in times.items():
            of_process.subtract(before[name])
        return Spent(inserts_ms, cluster.requests() - asked, times)

    with inserting(
        lambda number: bench.insert(rows_of(apart, first + number)), rate
    ) as inserts_ms:
        yield so_far


def measure(
    options: argparse.Namespace,
    cluster: Cluster,
    keeper: Keeper,
    bench: Table,
    spy: Path | None,
) -> None:
    """Print what was measured."""
    table = bench.paths
    for seed in range(options.parts):
        for first in range(0, options.merges, PARTITIONS_AT_ONCE):
            last = min(first + PARTITIONS_AT_ONCE, options.merges)
            bench.insert(rows_of(range(first, last), seed))
    assert until(lambda: have_all(keeper, table)), "the follower never caught up"
    with spending(cluster, bench, options.rate, 0) as so_far:
        time.sleep(options.seconds)
        alone = so_far()
    assert until(lambda: have_all(keeper, table)), "the follower never caught up"
    old = set(merged_s(keeper, table))

    def are_merged() -> bool:
        names = merged_s(keeper, table).keys() - old
        counted = [name for name in names if not name.startswith(f"{APART}_")]
        return len(counted) >= int(options.merges)

    with spied(spy, bench.pids), spending(cluster, bench, options.rate, 10**6) as so_far:
        for relay in cluster.asked.values():
            relay.taken()
        bench.let_merge(True)
        is_done = until(are_merged)
        beside = so_far()
    times = sorted(
        published_s for name, published_s in merged_s(keeper, table).items() if name not in old
    )
    count, inserts = len(times), len(beside.inserts_ms)
    rate = (count - 1) / (times[-1] - times[0])
    print(
        f"  {count} merges of {options.parts} parts: {rate:.1f}/s{'' if is_done else ', not all'}"
    )
    print(
        f"  inserts without merges: {p50_and_p99(alone.inserts_ms)} ({len(alone.inserts_ms)})"
    )
    print(f"  inserts beside merges:  {p50_and_p99(beside.inserts_ms)} ({inserts})")
    share = inserts / len(alone.inserts_ms)
    requests = beside.requests - share * alone.requests
    print(
        f"  without what as many inserts cost alone, per merge: {requests / count:.1f} requests;"
    )
    net_ms = {name: beside.ms(name) - share * alone.ms(name) for name in bench.pids}
    told = ", ".join(f"{name} {ms / count:.1f}" for name, ms in net_ms.items())
    print(f"  milliseconds of the processor: {told}; load {os.getloadavg()[0]:.1f}")
    for name, relay in cluster.asked.items():
        for what, number in relay.taken().most_common(SHOWN):
            print(f"    {name} {number / count:6.2f}  {what}")
    print("  by thread, with the inserts:")
    print(f"{'':12} {'all':>8} {'user':>8} {'system':>8} {'switches':>9}")
    for name, of_process in beside.times.items():
        show(name, of_process, count)


def ours(options: argparse.Namespace) -> None:
    with (
        Cluster(work=True, relayed=options.who) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        servers = (r1, r2)
        for server in servers:
            server.create_table(definition("busy", ("p",)))
        tables = [server.table("busy") for server in servers]
        wait_active(*tables)
        paced(WARM_UP, 20, lambda number: tables[0].insert(rows_of(range(1), -1 - number)))
        tables[0].optimize(final=True, settings={"alter_sync": 2})

        def let_merge(on: bool) -> None:
            for table in tables:
                marks = table.replica.store.marks
                (marks.go_on if on else marks.stop)(Background.MERGES)

        let_merge(False)
        pids = {f"server {name}": cluster.pid(name) for name in SERVERS}
        pids["ZooKeeper"] = cluster.zookeeper_pid()
        bench = Table(tables[0].replica.table, tables[0].insert, let_merge, pids)
        measure(options, cluster, r1.keeper(), bench, options.spy)


def theirs(options: argparse.Namespace) -> None:
    clauses = (
        "PARTITION BY p ORDER BY k SETTINGS parts_to_delay_insert = 100000, "
        "parts_to_throw_insert = 100000"
    )
    with (
        Cluster(work=False) as cluster,
        cluster.context("r1") as context,
        busy_pair(cluster.zookeeper_port, clauses) as servers,
    ):

        def let_merge(on: bool) -> None:
            for server in servers:
                server.query(f"SYSTEM {'START' if on else 'STOP'} MERGES")

        let_merge(False)

        def insert(rows: pa.Table) -> None:
            values = ",".join(
                f"({','.join(map(repr, row.values()))})" for row in rows.to_pylist()
            )
            servers[0].query(f"INSERT INTO busy VALUES {values}")

        pids = {f"server {server.name}": server.pid for server in servers}
        pids["ZooKeeper"] = cluster.zookeeper_pid()
        bench = Table(BUSY, insert, let_merge, pids)
        measure(options, cluster, context.keeper(), bench, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--merges", type=int, default=300)
    parser.add_argument("--parts", type=int, default=10, help="of each merge")
    parser.add_argument(
        "--rate", type=float, default=20.0, help="inserts of the client a second"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of inserts without merges")
    parser.add_argument("--spy", type=Path)
    parser.add_argument("--who", action="store_true")
    parser.add_argument("--only", choices=["ours", "theirs"], help="beside nobody else")
    options = parser.parse_args()
    if options.only != "theirs":
        print("ours")
        ours(options)
    if options.only != "ours" and executable() is not None:
        print("ClickHouse")
        theirs(options)


if __name__ == "__main__":
    main()
