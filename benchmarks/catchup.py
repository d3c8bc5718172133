"""How fast a follower that was away catches up, and how a new replica is cloned: many small parts.

    python -m benchmarks.catchup [--parts 2000] [--profile]

A real ZooKeeper and a real server that sends parts; the follower's fetch pool runs in this process.
Seconds, parts a second, and ZooKeeper requests per part. `log`: the parts are in the log, as after
inserts. `clone`: the follower is lost, and takes over the other's state first.
"""

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import recover_parts
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import Flush, work
from rmt_pipeline.system import EventWaker, SystemClock
from rmt_pipeline.zookeeper.keeper import Create, Op, SetData
from tests.support.parts import clone

TOGETHER = 200
SHOWN = 45


def fill(source: Replica, count: int, *, in_log: bool) -> None:
    """The source has so many parts, copies of its first; the log tells of them."""
    [first] = source.store.parts()
    header, _ = source.keeper.get(source.paths.part(first))
    parts = [PartName(first.partition, block, block, 0) for block in range(1, count)]
    for start in range(0, len(parts), TOGETHER):
        ops: list[Op] = []
        for part in parts[start : start + TOGETHER]:
            ops.append(Create(source.paths.part(part), header))
            entry = GetPart(create_time=0, source_replica=source.name, part=part)
            if in_log:
                ops.append(Create(source.table.log_entry("log-"), encode(entry), sequence=True))
            source.store.publish(clone(source.store, first, "attach", str(part)), part)
        source.keeper.multi(ops)


def catch_up(follower: ServerContext, name: str, count: int) -> None:
    table, clock, done = follower.table(name), SystemClock(), [0]
    waker = EventWaker()

    def flushed(flush: Flush) -> None:
        done[0] += sum(not one.error for one in flush.parts)
        waker.wake()  # else the loop would wait for the log, and not ask whether to stop

    peers = follower.peers(table.definition)
    try:
        work(
            lambda: follower.replica(table.definition),
            Tools(peers, LocalMerger(clock), LocalMutator(clock)),
            "fetch",
            waker=waker,
            linger_s=None,
            on_flush=flushed,
            should_stop=lambda: (
                done[0] >= count - 1
                and len(table.replica.store.parts()) >= count
                and not table.replica.keeper.children(table.replica.paths.queue)
            ),
        )
    finally:
        peers.close()


def measured(
    what: str, cluster: Cluster, count: int, action: Callable[[], None], *, profile: bool
) -> None:
    profiler = cProfile.Profile() if profile else None
    before, began_s = cluster.requests(), time.perf_counter()
    if profiler is None:
        action()
    else:
        profiler.runcall(action)
    seconds = time.perf_counter() - began_s
    requests = (cluster.requests() - before) / count
    print(
        f"{what:8} {count:7} parts {seconds:8.2f} s {count / seconds:8.0f} parts/s "
        f"{requests:6.2f} requests per part",
        flush=True,
    )
    if profiler is not None:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(SHOWN)


def run(count: int, *, cloned: bool, profile: bool) -> None:
    with (
        Cluster(work=False) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        name = "cloned" if cloned else "behind"
        for server in (r1, r2):
            server.create_table(definition(name))
        table = r1.table(name)
        wait_active(table, r2.table(name))
        table.insert(small(0))
        fill(table.replica, count, in_log=not cloned)

        def follow() -> None:
            if cloned:
                lost = r2.replica(r2.table(name).definition)
                lost.keeper.multi([SetData(lost.paths.is_lost, b"1")])
                clone_if_lost(lost)
                recover_parts(lost)
            catch_up(r2, name, count)

        measured("clone" if cloned else "log", cluster, count, follow, profile=profile)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=2000)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for cloned in (False, True):
        run(options.parts, cloned=cloned, profile=options.profile)


if __name__ == "__main__":
    main()
