"""The engine of Dagster's assets and checks, over the servers of local sessions."""

from collections.abc import Iterator
from contextlib import contextmanager

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.engine import EngineResource

SERVERS: list[ServerContext] = []
"""The last one is asked, whatever name is."""


class LocalEngine(EngineResource):
    @contextmanager
    def server(self, name: str, purpose: str = "test") -> Iterator[ServerContext]:
        yield SERVERS[-1]
