"""Dagster's daemon, which looks for backfills every five seconds; and `dagster dev`, which starts a
code server that was killed again.

`python -m rmt_pipeline.dagster.daemon run …` is `dagster-daemon run …`, and `… dev …` is `dagster
dev …` with such a daemon. Dagster's own looks every thirty, and has no setting for it: after a
click in the UI half a minute may pass before the first run.
"""

import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc  # type: ignore[import-untyped]
from dagster._cli import cli as dagster_cli
from dagster._cli import dev
from dagster._cli.proxy_server_manager import ProxyServerManager
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._daemon import controller
from dagster._daemon.cli import cli as daemon_cli
from dagster._grpc.client import DagsterGrpcClient
from dagster_shared.ipc import open_ipc_subprocess

BACKFILLS_EVERY_S = 5
"""As often as sensors tick. Without a backfill a look is three small queries."""
_DAGSTERS_OWN = "dagster._daemon"
CODE_SERVERS_EVERY_S = 5.0
"""How often each code server is asked whether it lives: one message over a local socket."""
RELOAD_TIMEOUT_S = 180
"""A code server loads its definitions in seconds, on a busy machine in a minute."""

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    """Returns never."""
    if list(arguments[:1]) == ["dev"]:
        dev.open_ipc_subprocess = _with_our_daemon  # type: ignore[attr-defined]
        dev.ProxyServerManager = WatchedCodeServers  # type: ignore[attr-defined]
        dagster_cli(list(arguments), auto_envvar_prefix="DAGSTER_CLI")
    else:
        controller.DEFAULT_DAEMON_INTERVAL_SECONDS = BACKFILLS_EVERY_S
        daemon_cli(list(arguments), obj={})


def _with_our_daemon(parts: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """What `dagster dev` starts as modules: the web server, and this one for the daemon."""
    ours = [__spec__.name if part == _DAGSTERS_OWN else part for part in parts]
    return open_ipc_subprocess(ours, **options)


class WatchedCodeServers(ProxyServerManager):
    """The code servers of `dagster dev`, each of which is two processes: one that has the user's
    code, and one that stands before it, starts it, and starts it anew when it is to load the code
    again. Dagster notices when the second one dies, and never when the first one does: after a kill
    (out of memory, say) no sensor, schedule or run works until somebody presses Reload in the UI.
    This asks for that reload.
    """

    def __enter__(self) -> Self:
        super().__enter__()
        self._is_over = threading.Event()
        for spec in self.get_code_server_specs():
            server = spec["grpc_server"]
            client = DagsterGrpcClient(
                host=server.get("host", "localhost"),
                port=server.get("port"),
                socket=server.get("socket"),
            )
            watching = (client, str(server["location_name"]))
            threading.Thread(target=self._watch, args=watching, daemon=True).start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        super().__exit__(exception_type, exception_value, traceback)

    def _watch(self, client: DagsterGrpcClient, location: str) -> None:
        while not self._is_over.wait(CODE_SERVERS_EVERY_S):
            if not _is_killed(client):
                continue
            _log.warning("the code server of %s is gone; it is started again", location)
            try:
                client.reload_code(timeout=RELOAD_TIMEOUT_S)
            except DagsterUserCodeUnreachableError as error:
                # Also when all went well: the old process can't be told to end any more.
                _log.debug("reload of %s: %s", location, error)


def _is_killed(client: DagsterGrpcClient) -> bool:
    """Whether the process before the user's code answers that it can't reach that one. A code
    server that is only slow is not meant, nor one that is gone as a whole.
    """
    try:
        client.ping("")
    except DagsterUserCodeUnreachableError as error:
        cause = error.__cause__
        return (
            isinstance(cause, grpc.RpcError)
            and cause.code() is grpc.StatusCode.UNKNOWN
            and grpc.StatusCode.UNAVAILABLE.name in (cause.details() or "")
        )
    return False


if __name__ == "__main__":
    main(sys.argv[1:])
