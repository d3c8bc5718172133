"""What tables cost ZooKeeper while nothing is done with them.

    python -m benchmarks.idle [--tables 1 50] [--seconds 60] [--settle 30]

Two `rmt serve --work` over one ZooKeeper, both with the same empty tables but for one row each.
Requests that ZooKeeper receives each second, pings of the sessions among them: each server has two
sessions, and each of those pings every third of its timeout.
"""

import argparse
import time
from dataclasses import replace

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active


def idle(tables: int, settle_s: float, seconds: float) -> float:
    """Requests a second."""
    with (
        Cluster(work=True) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        for number in range(tables):
            one = definition(f"idle{number:03}")
            for server in (r1, r2):
                server.create_table(replace(one))
        for number in range(tables):
            table = r1.table(f"idle{number:03}")
            wait_active(table, r2.table(f"idle{number:03}"))
            table.insert(small(number))
        r1.close()
        r2.close()
        time.sleep(settle_s)
        before, began = cluster.requests(), time.perf_counter()
        time.sleep(seconds)
        return (cluster.requests() - before) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=30.0)
    options = parser.parse_args()
    print(f"{'tables':>8} {'requests/s':>12} {'per table and server':>22}")
    for tables in options.tables:
        rate = idle(tables, options.settle, options.seconds)
        print(f"{tables:8} {rate:12.2f} {rate / tables / 2:22.2f}", flush=True)


if __name__ == "__main__":
    main()
