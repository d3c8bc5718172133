"""Which runs of workers live: ZooKeeper knows, a run's status in Dagster does not.

A run whose process was killed stays STARTED in Dagster's storage for as long as nobody says
otherwise. So every worker keeps an ephemeral node, `/rmt/workers/<server>/<run id>`, and goes
for dead when it has none. What is wrong about that for a moment is harmless: two workers of one
pool are kept apart by their claims.
"""

from contextlib import suppress

from rmt_pipeline.context import ServerContext
from rmt_pipeline.exchange.secret import ROOT
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.life.create import ensure_ancestors
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Refused

_WORKERS = f"{ROOT}/workers"


class Presence:
    """One run's node. It ends with the process, by `close`, or with the session: then `renew` makes
    it anew in the next one.
    """

    def __init__(self, server: ServerContext, run_id: str) -> None:
        self._server = server
        self._path = f"{_directory(server.server.name)}/{run_id}"
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


def present_runs(keeper: Keeper, server: str) -> frozenset[str]:
    """The ids of the runs that work for `server` just now. Raises Unavailable."""
    [names] = keeper.children_many([_directory(server)])
    return frozenset(names or ())


def _directory(server: str) -> str:
    return f"{_WORKERS}/{server}"
