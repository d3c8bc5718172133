"""What it costs to plan and to carry out the clone of a replica with many small parts.

    python -m benchmarks.clone [--parts 10000] [--fetch 500]

In this process, over a ZooKeeper in memory: only our own work is measured, no network and no
transfer. `--fetch` of the parts are really copied, from one directory to another, by the steps of a
fetch pool that has all of them in its queue. Seconds, and parts per second.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.fetch import find_sources
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.upkeep.check import recover_parts
from rmt_pipeline.zookeeper.keeper import Create, SetData
from tests.support.local_replicas import Replicas
from tests.support.parts import clone

T = TypeVar("T")


def timed(what: str, parts: int, action: Callable[[], T]) -> T:
    start = time.perf_counter()
    result = action()
    seconds = time.perf_counter() - start
    print(f"{what:<38} {seconds:8.2f} s {parts / seconds:10.0f} parts/s", flush=True)
    return result


def with_parts(replicas: Replicas, count: int) -> list[PartName]:
    """r1 promises so many parts; all are copies of one on its disk. r2 is lost."""
    source = replicas["r1"]
    first = replicas.insert("r1", 1)
    header, _ = source.keeper.get(source.paths.part(first))
    parts = [first, *(PartName("all", block, block, 0, 0) for block in range(1, count))]
    for part in parts[1:]:
        source.keeper.multi([Create(source.paths.part(part), header)])
        source.store.publish(clone(source.store, first, "attach", str(part)), part)
    lost = replicas["r2"]
    lost.keeper.multi([SetData(lost.paths.is_lost, b"1")])
    return parts


def find_all(replicas: Replicas, parts: list[PartName]) -> None:
    """As a pool does: for as many as it may fetch at once, again and again."""
    for start in range(0, len(parts), limits.FETCHES_MAX):
        batch = parts[start : start + limits.FETCHES_MAX]
        find_sources(replicas["r2"], [(part, "") for part in batch])


def fetch(replicas: Replicas, count: int) -> None:
    executor = replicas.executor("r2", "fetch")
    fetched = 0
    while fetched < count:
        done = executor.step(None).done
        assert done, "nothing was fetched"
        assert not any(one.error for one in done), done
        fetched += len(done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=10_000)
    parser.add_argument("--fetch", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, Replicas(Path(place)) as replicas:
        parts = with_parts(replicas, options.parts)
        lost = replicas["r2"]
        timed("take over the state", len(parts), lambda: clone_if_lost(lost))
        timed("compare the disk", len(parts), lambda: recover_parts(lost))
        timed(
            "find sources of all, batch by batch", len(parts), lambda: find_all(replicas, parts)
        )
        timed(
            f"fetch {options.fetch}, the queue being full",
            options.fetch,
            lambda: fetch(replicas, options.fetch),
        )


if __name__ == "__main__":
    main()
