"""What a small insert asks of ZooKeeper: each request of the inserter and of both replicas, by what
it is for.

    python -m benchmarks.requests [--inserts 100] [--rates 0 10 50]

Two `rmt serve` over one ZooKeeper; the inserter and the work of both replicas are in this process,
where each request of theirs is counted as it is handed to kazoo (pings are not). No merge is
assigned: what is left of the merge pools is that they look. A rate of 0 is as fast as it goes.
Counts depend on how many inserts one look finds, and hardly on what else the machine does.
"""

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.asking import named
from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active
from benchmarks.replication import paced
from rmt_pipeline.context import ServerContext
from tests.support.local_work import working

WARM_UP = 20
SETTLE_S = 60.0
SERVERS = ("r1", "r2")


class Requests:
    """Counts those of sessions in this process, while it is told to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[tuple[str, str]] = Counter()

    def watch(self, who: str, context: ServerContext) -> None:
        keeper: Any = context.keeper()
        client = keeper._client  # noqa: SLF001  below every keeper of ours
        right: Callable[..., Any] = client._call  # noqa: SLF001

        def call(request: Any, pending: Any) -> Any:
            role = f"{who} {_pool(threading.current_thread().name)}".strip()
            with self._lock:
                self._counted[role, named(request.type, request.serialize())] += 1
            return right(request, pending)

        client._call = call  # noqa: SLF001

    def taken(self) -> Counter[tuple[str, str]]:
        with self._lock:
            counted, self._counted = self._counted, Counter()
        return counted


def _pool(thread: str) -> str:
    return thread.partition(" ")[0] if " of " in thread else ""


@contextmanager
def replicating(cluster: Cluster, requests: Requests) -> Iterator[Callable[[int], object]]:
    """A table on both servers, worked in this process; what inserts into it."""
    with cluster.context("r1") as r1, cluster.context("r2") as r2, cluster.context("r1") as one:
        for server in (r1, r2):
            server.create_table(definition("asked"))
        table = one.table("asked")
        wait_active(table, r2.table("asked"))
        for who, context in (("server r1", r1), ("server r2", r2), ("inserter", one)):
            requests.watch(who, context)
        with (
            working(r1, r1.table("asked").definition, select=False),
            working(r2, r2.table("asked").definition, select=False),
        ):
            yield lambda number: table.insert(small(number))


def settled(cluster: Cluster) -> bool:
    """Both replicas have the same parts, and nothing to do."""
    with cluster.context("r1") as looking:
        keeper, paths = looking.keeper(), looking.table("asked").replica.table
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s:
            queued = [keeper.children(paths.replica(name).queue) for name in SERVERS]
            parts = [keeper.children(paths.replica(name).parts) for name in SERVERS]
            if not any(queued) and parts[0] == parts[1]:
                time.sleep(0.5)
                return True
            time.sleep(0.1)
    return False


def show(rate: float, reached: float, count: int, counted: Counter[tuple[str, str]]) -> None:
    total = counted.total() / count
    asked = f"{rate:.0f}/s asked" if rate else "unpaced"
    print(f"\n{count} inserts, {asked}, {reached:.0f}/s: {total:.2f} requests per insert")
    for who in sorted({role for role, _ in counted}):
        of_role = sum(number for (role, _), number in counted.items() if role == who)
        print(f"  {who:16} {of_role / count:6.2f}")
        for (role, purpose), number in counted.most_common():
            if role == who and number * 50 >= count:
                print(f"    {number / count:6.2f}  {purpose}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inserts", type=int, default=100)
    parser.add_argument("--rates", type=float, nargs="+", default=[0, 10, 50])
    options = parser.parse_args()
    requests = Requests()
    with Cluster(work=False) as cluster, replicating(cluster, requests) as insert:
        paced(WARM_UP, 20, insert)
        for number, rate in enumerate(options.rates, 1):
            assert settled(cluster), "the follower never caught up"
            requests.taken()
            base = number * 1_000_000
            reached = paced(
                options.inserts,
                rate or 1e9,
                partial(lambda base, one: insert(base + one), base),
            )
            assert settled(cluster), "the follower never caught up"
            show(rate, reached, options.inserts, requests.taken())


if __name__ == "__main__":
    main()
