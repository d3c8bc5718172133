"""How soon a peer has what was inserted, and how many ZooKeeper requests it takes.

    python -m benchmarks.replication [--inserts 1000] [--rate 50] [--slowest 0] [--ensemble]

Two `rmt serve --work` over one ZooKeeper, or three of them (`--ensemble`); the delay of a part is from its node among the inserter's
parts to its node among the follower's, by ZooKeeper's own clock. ClickHouse's server of Debian's
package, when it is installed, is measured in the same way in the same run.

With `--slowest N`, the servers note what they do (`benchmarks.traced`); for the N parts of the one
client that took longest, prints where their time went.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Collection

from benchmarks.clickhouse import BUSY, busy_pair, executable
from benchmarks.cluster import Cluster
from benchmarks.insert import small, worked_pair
from benchmarks.traced import read_steps, slowest
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.paths import TablePaths

SETTLE_S = 30.0

Times = dict[str, tuple[int, int]]
"""By the name of a part, when each of the two had it, in milliseconds."""


def paced(count: int, rate: float, action: Callable[[int], object]) -> float:
    """Do it `count` times, at most `rate` times a second; how many a second it were."""
    start = time.perf_counter()
    for number in range(count):
        action(number)
        wait = start + (number + 1) / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
    return count / (time.perf_counter() - start)


def delays_ms(
    keeper: Keeper,
    table: TablePaths,
    leader: str,
    follower: str,
    *,
    without: Collection[str] = (),
) -> list[int]:
    """Of the parts that both have, how much later the follower had each; ascending."""
    return _delays_ms(times_of(keeper, table, leader, follower, without=without))


def _delays_ms(times: Times) -> list[int]:
    return sorted(there_ms - here_ms for here_ms, there_ms in times.values())


def times_of(
    keeper: Keeper,
    table: TablePaths,
    leader: str,
    follower: str,
    *,
    without: Collection[str] = (),
) -> Times:
    """Of the parts that both have."""
    first, second = table.replica(leader), table.replica(follower)
    deadline = time.monotonic() + SETTLE_S
    while keeper.children(second.queue) and time.monotonic() < deadline:
        time.sleep(0.1)
    names = sorted(set(keeper.children(first.parts)) & set(keeper.children(second.parts)))
    names = [name for name in names if name not in without]
    ours = keeper.exists_many([first.part(name) for name in names])
    theirs = keeper.exists_many([second.part(name) for name in names])
    return {
        name: (here.created_ms, there.created_ms)
        for name, here, there in zip(names, ours, theirs, strict=True)
        if here is not None and there is not None
    }


def show(name: str, delays: list[int], rate: float, requests: float | None) -> None:
    p50, p99 = statistics.median(delays), delays[int(len(delays) * 0.99)]
    asked = "" if requests is None else f"{requests:8.1f}"
    print(f"{name:24} {rate:8.0f} {p50:8.1f} {p99:8.1f} {len(delays):8} {asked}", flush=True)


def show_times(name: str, times: Times, rate: float, requests: float) -> None:
    """Of all parts, and of those that were inserted: results of merges bring no rows that are not
    visible yet.
    """
    show(name, _delays_ms(times), rate, requests)
    inserted = {part: both for part, both in times.items() if not PartName.parse(part).level}
    show("  without merged parts", _delays_ms(inserted), rate, None)


def ours(count: int, rate: float, shown: int, ensemble: bool) -> None:
    with worked_pair("busy", ensemble=ensemble, traced=bool(shown)) as (cluster, r1, table):
        for number in range(50):
            table.insert(small(number))
        keeper = r1.keeper()
        table.optimize(
            final=True, settings={"alter_sync": 2}
        )  # Spark runs on both servers from now on
        old = set(keeper.children(table.replica.paths.parts))
        before = cluster.requests()
        reached = paced(count, rate, lambda number: table.insert(small(1000 + number)))
        times = times_of(keeper, table.replica.table, "r1", "r2", without=old)
        requests = (cluster.requests() - before - 2 * len(times)) / count
        show_times("ours, one client", times, reached, requests)
        if shown:
            by_delay = sorted(times.items(), key=lambda one: one[1][0] - one[1][1])
            slowest(
                {part: (here / 1000, there / 1000) for part, (here, there) in by_delay[:shown]},
                read_steps(cluster.trace("r1")),
                read_steps(cluster.trace("r2")),
            )
            return

        old = set(keeper.children(table.replica.paths.parts))
        before = cluster.requests()
        threads = [
            threading.Thread(
                target=paced,
                args=(
                    count // 4,
                    1e9,
                    lambda number, base=base: table.insert(small(base + number)),
                ),
            )
            for base in (100_000, 200_000, 300_000, 400_000)
        ]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        reached = (count // 4 * 4) / (time.perf_counter() - start)
        times = times_of(keeper, table.replica.table, "r1", "r2", without=old)
        requests = (cluster.requests() - before - 2 * len(times)) / (count // 4 * 4)
        show_times("ours, four clients", times, reached, requests)


def theirs(count: int, rate: float, ensemble: bool) -> None:
    with (
        Cluster(work=False, ensemble=ensemble) as cluster,
        cluster.context("r1") as context,
        busy_pair(cluster.zookeeper_port, "ORDER BY k") as (one, _),
    ):
        before = cluster.requests()
        reached = paced(
            count,
            rate,
            lambda number: one.query(f"INSERT INTO busy VALUES ({number},'some text',1)"),
        )
        times = times_of(context.keeper(), BUSY, "r1", "r2")
        requests = (cluster.requests() - before - 2 * len(times)) / count
        show_times("ClickHouse, one client", times, reached, requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inserts", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--slowest", type=int, default=0)
    parser.add_argument("--ensemble", action="store_true")
    options = parser.parse_args()
    columns = ("inserts/s", "p50 ms", "p99 ms", "parts", "requests")
    print(f"{'':24} " + " ".join(f"{name:>8}" for name in columns))
    ours(options.inserts, options.rate, options.slowest, options.ensemble)
    if executable() is not None and not options.slowest:
        theirs(options.inserts, options.rate, options.ensemble)


if __name__ == "__main__":
    main()
