"""The resource `engine`: from a configuration file to the servers in it."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
from pydantic import Field

from rmt_pipeline.context import ServerContext
from rmt_pipeline.table import Table


class EngineResource(dg.ConfigurableResource[None]):
    """The servers of one rmt.toml. Nothing is opened before `server` is called."""

    config_path: str = Field(
        default="",
        description="The rmt.toml. Empty: what RMT_CONFIG names, else the default.",
    )

    @contextmanager
    def server(self, name: str, purpose: str = "dagster") -> Iterator[ServerContext]:
        """A session for the tables of one server, as long as the block runs.

        `purpose` names this process in claims. Raises BadConfiguration, UserError when there is
        no such server; ZooKeeperUnreachable at the first use.
        """
        with ServerContext.open(self.config_path or None, name, purpose=purpose) as server:
            yield server


def table_named(server: ServerContext, full_name: str) -> Table:
    """`database.table`; without a database, the default one. Raises UnknownTable."""
    database, dot, name = full_name.partition(".")
    return server.table(name, database) if dot else server.table(database)
