"""What an insert costs a server that has many tables: milliseconds of processor time, in one of them,
while nothing is done with the others.

    python -m benchmarks.tables [--tables 1 20 200] [--inserts 500] [--rate 50]

Two `rmt serve --work` over one ZooKeeper, anew for each number of tables. The clock starts when the
servers have looked at all of them (two minutes). Memory is a server's, told before the inserts.
"""

import argparse
import os
import statistics
import time

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, timed, wait_active
from benchmarks.model import memory_mb
from benchmarks.profile import TICK_MS, spent
from benchmarks.replication import delays_ms, paced

SETTLE_S = 120.0
WARM_UP = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 20, 200])
    parser.add_argument("--inserts", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50)
    options = parser.parse_args()
    print("tables  insert p50  on the peer p50  ms of r1  of r2  ZooKeeper  requests  MB of r1")
    for tables in options.tables:
        measure(tables, options.inserts, options.rate)


def measure(tables: int, inserts: int, rate: float) -> None:
    with (
        Cluster(work=True) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        names = [f"table{number:03}" for number in range(tables)]
        for name in names:
            for server in (r1, r2):
                server.create_table(definition(name))
        for name in names:
            wait_active(r1.table(name), r2.table(name))
        table = r1.table(names[0])
        paced(WARM_UP, rate, lambda number: table.insert(small(number)))
        time.sleep(SETTLE_S)
        memory = memory_mb(cluster.pid("r1"))
        old = set(r1.keeper().children(table.replica.paths.parts))
        pids = (cluster.pid("r1"), cluster.pid("r2"), cluster.zookeeper_pid())
        before, asked = [ticks(pid) for pid in pids], cluster.requests()
        times: list[float] = []
        paced(
            inserts,
            rate,
            lambda number: times.append(timed(lambda: table.insert(small(1000 + number)))),
        )
        used = [ticks(pid) - ago for pid, ago in zip(pids, before, strict=True)]
        requests = (cluster.requests() - asked) / inserts
        delays = delays_ms(r1.keeper(), table.replica.table, "r1", "r2", without=old)
        of_r1, of_r2, of_zookeeper = (one * TICK_MS / inserts for one in used)
        print(
            f"{tables:6} {statistics.median(times) * 1000:8.1f} ms {statistics.median(delays):13.0f} ms"
            f" {of_r1:9.2f} {of_r2:6.2f} {of_zookeeper:10.2f} {requests:9.1f} {memory:9.0f}"
            f"   load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


def ticks(pid: int) -> int:
    """Of the processor, in the programs of a process and of all that it has begun, and for them."""
    return sum(count for (what, _), count in spent(pid).items() if what != "switches")


if __name__ == "__main__":
    main()
