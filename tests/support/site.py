"""Two running servers, as tests of Dagster's code see them."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import dagster as dg

from examples.flights import source
from examples.flights.laptop import Everything
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import RmtIOManager
from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.replica.upkeep.lag import lag_of
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import Flush, work
from rmt_pipeline.replica.work.pools import POOLS
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table
from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class Site:
    """Two servers that run, each with its table; queues are worked by nobody but the test."""

    config: Config
    processes: Everything
    engine: EngineResource
    definitions: dg.Definitions
    r1: ServerContext
    r2: ServerContext

    def work_off(self, on_flush: Callable[[Flush], None] = lambda _: None) -> None:
        """Both servers carry out whatever is left, r1 first, without Dagster and without Spark."""
        until(lambda: not any(_work_off(server, on_flush) for server in (self.r1, self.r2)))

    def io_manager(self, server: str = "r1") -> RmtIOManager:
        return RmtIOManager(server=server, config_path=str(self.config.path))

    @contextmanager
    def having(self, table: str, create: str = "") -> Iterator[Session]:
        """r1 has the table while the block runs, and nobody after it; without `create` the block
        makes it.
        """
        session = Session(self.r1)
        if create:
            session.execute(create)
        try:
            yield session
        finally:
            self.r1.drop_table("default", table)

    def rows(self, server: ServerContext) -> int:
        table = server.table(source.TABLE.name)
        return sum(part.manifest.rows for part in table.parts())


def _work_off(server: ServerContext, on_flush: Callable[[Flush], None]) -> bool:
    """Whether there was anything."""
    table = server.table(source.TABLE.name)
    replica = table.replica
    if not (lag_of(replica).entries or replica.keeper.children(replica.paths.queue)):
        return False
    work_through(server, table, on_flush)
    return True


def work_through(
    server: ServerContext, table: Table, on_flush: Callable[[Flush], None] = lambda _: None
) -> None:
    """What the server's queue of the table has, until nothing more can be done at once."""
    with closing(server.peers(table.definition)) as peers:
        for pool in POOLS:
            work(
                lambda: table.replica,
                Tools(peers, LocalMerger(server.clock), LocalMutator(server.clock)),
                pool,
                waker=EventWaker(),
                linger_s=0.1,
                on_flush=on_flush,
                should_stop=lambda: False,
            )
