"""Which runs of workers live: ZooKeeper knows, a run's status in Dagster does not.

A run whose process was killed stays STARTED in Dagster's storage for as long as nobody says
otherwise. So every worker keeps an ephemeral node, `/rmt/workers/<server>/<run id>`, and goes
for dead when it has none. What is wrong about that for a moment is harmless: two workers of one
pool are kept apart by their claims.

And which code locations watch a server, `/rmt/watchers/<server>/<location>`: there should be one.
"""

import socket
from contextlib import suppress

import dagster as dg
from dagster._core.storage.runs import SqlRunStorage

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.names import dagster_name
from rmt_pipeline.exchange.secret import ROOT
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.life.create import ensure_ancestors
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Refused

WORKERS = f"{ROOT}/workers"
WATCHERS = f"{ROOT}/watchers"


class Presence:
    """One node, of a run or a watcher. It ends with the process, by `close`, or with the session:
    then `renew` makes it anew in the next one.
    """

    def __init__(self, server: ServerContext, name: str, kind: str = WORKERS) -> None:
        self._server = server
        self._path = f"{kind}/{server.server.name}/{name}"
        self._keeper: Keeper | None = None

    def renew(self) -> None:
        """Costs nothing while the session lives that it was made in. Raises Unavailable,
        OutcomeUnknown.
        """
        keeper = self._server.keeper()
        if keeper is self._keeper:
            return
        ensure_ancestors(keeper, self._path)
        with suppress(Refused):  # ours of the session before: gone soon, and made then
            keeper.multi([Create(self._path, ephemeral=True)])
            self._keeper = keeper

    def close(self) -> None:
        if self._keeper is not None:
            with suppress(RmtError):  # it goes with the session
                self._keeper.multi([Delete(self._path)])


class Watchers:
    """The code locations whose log sensors watch a server."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._ours: dict[str, Presence] = {}

    def others(self, context: dg.SensorEvaluationContext) -> list[str]:
        """Those beside the one that asks, from now on as long as its process lives. A location that
        was loaded anew is the same one. Raises Unavailable, OutcomeUnknown.
        """
        us = _location(context)
        self._ours.setdefault(us, Presence(self._server, us, WATCHERS)).renew()
        server = self._server.server.name
        return sorted(nodes_present(self._server.keeper(), server, WATCHERS) - {us})


def _location(context: dg.SensorEvaluationContext) -> str:
    """Another one for each Dagster: one is what shares a storage of runs."""
    origin = context.code_location_origin
    location = dagster_name("code" if origin is None else origin.location_name)
    runs = context.instance.run_storage
    dagster = runs.get_run_storage_id()[:8] if isinstance(runs, SqlRunStorage) else "unknown"
    return f"{location} on {socket.gethostname()} of Dagster {dagster}"


def nodes_present(keeper: Keeper, server: str, kind: str = WORKERS) -> frozenset[str]:
    """The ids of the runs that work for `server` just now; or its watchers. Raises Unavailable."""
    [found] = keeper.children_many([f"{kind}/{server}"])
    return frozenset(found or ())
