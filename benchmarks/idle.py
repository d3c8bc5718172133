"""What tables cost ZooKeeper while nothing is done with them.

    python -m benchmarks.idle [--tables 1 50] [--seconds 60] [--settle 30 180] [--who]

Two `rmt serve --work` over one ZooKeeper, both with the same empty tables but for one row each.
Requests that ZooKeeper receives each second, so long after the last insert, pings of the sessions
among them: each server has three sessions, and each of those pings every third of its timeout.
`--who`: by server, kind and node.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active

SHOWN = 12


def idle(tables: int, settle_s: Sequence[float], seconds: float, *, who: bool) -> None:
    with (
        Cluster(work=True, relayed=who) as cluster,
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
        settled_s = time.perf_counter()
        for wait_s in settle_s:
            time.sleep(max(0.0, settled_s + wait_s - time.perf_counter()))
            for relay in cluster.asked.values():
                relay.taken()
            before, began = cluster.requests(), time.perf_counter()
            time.sleep(seconds)
            rate = (cluster.requests() - before) / (time.perf_counter() - began)
            load = os.getloadavg()[0]
            print(
                f"{tables:8} {wait_s:8.0f} {rate:12.2f} {rate / tables / 2:22.3f} {load:6.1f}",
                flush=True,
            )
            for name, relay in cluster.asked.items():
                for what, count in relay.taken().most_common(SHOWN):
                    print(f"    {name} {count / seconds:8.2f}  {what}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, nargs="+", default=[30.0])
    parser.add_argument("--who", action="store_true")
    options = parser.parse_args()
    print(
        f"{'tables':>8} {'after s':>8} {'requests/s':>12} {'per table and server':>22} {'load':>6}"
    )
    for tables in options.tables:
        idle(tables, options.settle, options.seconds, who=options.who)


if __name__ == "__main__":
    main()
