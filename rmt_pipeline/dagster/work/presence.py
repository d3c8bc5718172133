"""Which runs of workers live, and which code locations watch a server, as ZooKeeper knows it.

A run whose process was killed stays STARTED in Dagster's storage until another process reports its
end. So every worker keeps an ephemeral node, `/rmt/workers/<server>/<run id>`, and a run without
one counts as dead. A wrong answer for a moment is harmless: claims keep two workers of one pool
apart.

Each code location that watches a server keeps `/rmt/watchers/<server>/<location>`: there should be
one.
"""

import socket
from contextlib import suppress

import dagster as dg

from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.names import dagster_name
from rmt_pipeline.exchange.secret import ROOT
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.life.create import ensure_ancestors
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Refused

WORKERS = f"{ROOT}/workers"
WATCHERS = f"{ROOT}/watchers"


class Presence:
    """The ephemeral node of one run or watcher. `close` removes it, and so does the end of the
    process or of the session; after a lost session, `renew` makes the node again in the next one.
    """

    def __init__(self, server: ServerContext, name: str, kind: str = WORKERS) -> None:
        self._server = server
        self._path = f"{kind}/{server.server.name}/{name}"
        self._keeper: Keeper | None = None

    def renew(self) -> None:
        """Make sure that the node exists. Makes no request as long as the session lives in which
        the node was made. Raises Unavailable, OutcomeUnknown.
        """
        keeper = self._server.keeper()
        if keeper is self._keeper:
            return
        ensure_ancestors(keeper, self._path)
        with suppress(Refused):  # our node of the last session, which ends soon
            keeper.multi([Create(self._path, ephemeral=True)])
            self._keeper = keeper

    def close(self) -> None:
        if self._keeper is not None:
            with suppress(RmtError):  # the node ends with the session
                self._keeper.multi([Delete(self._path)])


class Watchers:
    """The code locations whose log sensors watch a server."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._ours: dict[str, Presence] = {}

    def others(self, context: dg.SensorEvaluationContext) -> list[str]:
        """The locations that watch the server beside the one that asks, which counts as a watcher
        itself from now on, as long as its process lives. A location that was reloaded is still the
        same one. Raises Unavailable, OutcomeUnknown.
        """
        us = _location(context)
        self._ours.setdefault(us, Presence(self._server, us, WATCHERS)).renew()
        server = self._server.server.name
        return sorted(nodes_present(self._server.keeper(), server, WATCHERS) - {us})


def _location(context: dg.SensorEvaluationContext) -> str:
    """The name of this code location. It differs between two Dagster installations, which are told
    apart by the storage of their runs.
    """
    # For start-up time: it loads SQLAlchemy, a quarter of what a code location would load.
    from dagster._core.storage.runs import SqlRunStorage  # noqa: PLC0415

    origin = context.code_location_origin
    location = dagster_name("code" if origin is None else origin.location_name)
    runs = context.instance.run_storage
    dagster = runs.get_run_storage_id()[:8] if isinstance(runs, SqlRunStorage) else "unknown"
    return f"{location} on {socket.gethostname()} of Dagster {dagster}"


def nodes_present(keeper: Keeper, server: str, kind: str = WORKERS) -> frozenset[str]:
    """The ids of the runs that work for `server` now, or the names of its watchers. Raises
    Unavailable.
    """
    [found] = keeper.children_many([f"{kind}/{server}"])
    return frozenset(found or ())
