"""The resource `engine`: opens sessions on the servers that a configuration file names."""

import atexit
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import dagster as dg
from pydantic import Field

from rmt_pipeline.config import Config, load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.failures import try_again
from rmt_pipeline.table import Table

Kept = TypeVar("Kept")

CONFIG_PATH_HELP = (
    "The rmt.toml. Empty: the file that RMT_CONFIG names, else ./rmt.toml, else the default."
)


class _Standing:
    """What sensors keep from tick to tick: one session for each server and its configuration."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers: dict[str, ServerContext] = {}
        self._things: dict[tuple[str, Callable[[ServerContext], Any]], Any] = {}

    def get(self, config: Config, server: str, make: Callable[[ServerContext], Any]) -> Any:
        with self._lock:
            known = self._servers.get(server)
            if known is None or known.config != config:
                self._forget(server)
                known = ServerContext.open(config, server, purpose="sensor")
                self._servers[server] = known
                gc.freeze()  # loaded definitions stay: no tick waits while they are scanned
            if (server, make) not in self._things:
                self._things[server, make] = make(known)
            return self._things[server, make]

    def close(self) -> None:
        with self._lock:
            for server in list(self._servers):
                self._forget(server)

    def _forget(self, server: str) -> None:
        known = self._servers.pop(server, None)
        for key in [key for key in self._things if key[0] == server]:
            del self._things[key]
        if known is not None:
            known.close()


STANDING = _Standing()
atexit.register(STANDING.close)
atexit.register(gc.unfreeze)  # else DuckDB prints all its types as leaked when the process ends


class EngineResource(dg.ConfigurableResource[None]):
    """The servers of one rmt.toml. It opens nothing before `server` is called."""

    config_path: str = Field(default="", description=CONFIG_PATH_HELP)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        try_again(context)

    @contextmanager
    def server(self, name: str, purpose: str = "dagster") -> Iterator[ServerContext]:
        """A session for the tables of one server, open as long as the `with` block runs.

        `purpose` names this process in claims. Raises BadConfiguration, UserError when there is no
        such server, and ZooKeeperUnreachable at the first use.
        """
        with ServerContext.open(self.config_path or None, name, purpose=purpose) as server:
            yield server

    def standing(self, name: str, make: Callable[[ServerContext], Kept]) -> Kept:
        """Return what `make` makes of the server, from a session that is kept until this process
        ends or the configuration changes: a sensor's next tick goes on where the last one stopped.

        Only one thread at a time may use it, which holds for a sensor's ticks. Raises what `server`
        raises.
        """
        config = load_config(self.config_path or None)
        return cast("Kept", STANDING.get(config, name, make))


def table_named(server: ServerContext, full_name: str) -> Table:
    """The table `database.table`; without a database, one of `default`. Raises UnknownTable."""
    database, dot, name = full_name.partition(".")
    return server.table(name, database) if dot else server.table(database)
