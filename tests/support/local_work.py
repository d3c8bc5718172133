"""Queues worked in threads of the test, by the production loop, merging in this process."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.merge.job import Merger
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import Flush, work
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.system import EventWaker, SystemClock
from tests.support.waiting import LIMIT_S


@contextmanager
def working(
    context: ServerContext,
    definition: TableDefinition,
    pools: Sequence[Pool] = ("fetch", "merge"),
    *,
    merger: Merger | None = None,
    select: bool = True,
) -> Iterator[list[PartDone]]:
    """What `serve --work` does for one table, while the block runs; what was done, as it comes.

    An error of a loop is raised at the end.
    """
    stop = threading.Event()
    wakers = [EventWaker() for _ in pools]
    done: list[PartDone] = []
    errors: list[BaseException] = []
    clock = SystemClock()

    def flushed(flush: Flush) -> None:
        done.extend(flush.parts)
        for part in flush.parts:
            if part.bug is not None:
                raise part.bug

    def run(pool: Pool, waker: EventWaker) -> None:
        peers = context.peers(definition)
        try:
            work(
                lambda: context.replica(definition),
                Tools(peers, merger or LocalMerger(clock), LocalMutator(clock)),
                pool,
                waker=waker,
                linger_s=None,
                select=select and pool == "merge",
                on_flush=flushed,
                should_stop=stop.is_set,
            )
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            peers.close()

    threads = [
        threading.Thread(
            target=run, args=(pool, waker), name=f"{pool} of {context.server.name}"
        )
        for pool, waker in zip(pools, wakers, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for waker in wakers:
            waker.wake()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not any(thread.is_alive() for thread in threads), "a loop did not end"
    if errors:
        raise errors[0]
