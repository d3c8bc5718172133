"""What a second copy costs: an insert with a quorum of two, against the time until a peer has it.

    python -m benchmarks.quorum [--inserts 200] [--rate 20]

Two `rmt serve --work` over one ZooKeeper. By turns inserts that ask for no quorum, and inserts that
wait for two, so that whatever else the machine does is the same for both. Of the first how much
later than the inserter the follower has each part, by ZooKeeper's own clock; of both how long a
client waits for its answer.
"""

import argparse
import statistics
import time

from benchmarks.insert import small, worked_pair
from benchmarks.replication import delays_ms, paced

WARM = 50


def show(name: str, ms: list[float]) -> None:
    ordered = sorted(ms)
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    print(f"{name:36} {p50:8.1f} {p99:8.1f} {len(ordered):8}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inserts", type=int, default=200, help="of each kind")
    parser.add_argument("--rate", type=float, default=20.0)
    options = parser.parse_args()
    with worked_pair("quorum") as (_, r1, table):
        for number in range(WARM):
            table.insert(small(number), quorum=2)
        keeper = r1.keeper()
        waited: dict[int, list[float]] = {0: [], 2: []}
        unasked: set[str] = set()

        def insert(number: int, quorum: int) -> None:
            started = time.perf_counter()
            done = table.insert(small(number), quorum=quorum)
            waited[quorum].append(1000 * (time.perf_counter() - started))
            if not quorum:
                unasked.update(map(str, done.parts))

        print(f"{'milliseconds':36} {'p50':>8} {'p99':>8} {'inserts':>8}")
        paced(
            2 * options.inserts,
            options.rate,
            lambda number: insert(1_000 + number, 2 * (number % 2)),
        )
        others = set(keeper.children(table.replica.paths.parts)) - unasked
        delays = delays_ms(keeper, table.replica.table, "r1", "r2", without=others)
        show("until the peer has it", [float(ms) for ms in delays])
        show("an insert, no quorum", waited[0])
        show("an insert, quorum of two", waited[2])
        visible = statistics.median(delays) + statistics.median(waited[0])
        ratio = statistics.median(waited[2]) / visible
        print(f"quorum of two: {ratio:.2f} times an insert and the time until the peer has it")


if __name__ == "__main__":
    main()
