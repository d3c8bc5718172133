"""Dagster's daemon, which looks for backfills every five seconds and ends as soon as it is asked
to; and `dagster dev`, which restarts a code server that was killed.

`python -m rmt_pipeline.dagster.daemon run …` is `dagster-daemon run …`, and `… dev …` is `dagster
dev …` with such a daemon. Dagster's own daemon looks for backfills every thirty seconds and has no
setting for it: after a click in the UI, half a minute may pass before the first run.
"""

import logging
import os
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
from dagster_shared.ipc import open_ipc_subprocess, send_ipc_shutdown_message

BACKFILLS_EVERY_S = 5
"""As often as sensors tick. When there is no backfill, a look costs three small queries."""
_DAGSTERS_OWN = "dagster._daemon"
CODE_SERVERS_EVERY_S = 5.0
"""How often each code server is asked whether it lives: one message over a local socket."""
RELOAD_TIMEOUT_S = 180
"""How long a reload may take. A code server loads its definitions in seconds, on a busy machine in
a minute.
"""

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> None:
    """Run the command that `arguments` name. Never returns."""
    if list(arguments[:1]) == ["dev"]:
        dev.open_ipc_subprocess = _with_our_daemon  # type: ignore[attr-defined]
        dev.ProxyServerManager = WatchedCodeServers  # type: ignore[attr-defined]
        dagster_cli(list(arguments), auto_envvar_prefix="DAGSTER_CLI")
    else:
        controller.DEFAULT_DAEMON_INTERVAL_SECONDS = BACKFILLS_EVERY_S
        controller.DagsterDaemonController = PromptDaemon  # type: ignore[misc]
        daemon_cli(list(arguments), obj={})


def _with_our_daemon(parts: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a module that `dagster dev` needs: the web server as it is, and this module instead of
    Dagster's daemon.
    """
    ours = [__spec__.name if part == _DAGSTERS_OWN else part for part in parts]
    return open_ipc_subprocess(ours, **options)


class PromptDaemon(controller.DagsterDaemonController):
    """Dagster's daemon. Asked to end, it does not wait for the sensors' ticks, which may take 40 s,
    and says nothing of them: they fail because the servers that they watch end at the same time.
    """

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        is_asked = isinstance(exception_value, KeyboardInterrupt)
        if is_asked:
            logging.disable()
        super().__exit__(exception_type, exception_value, traceback)  # type: ignore[arg-type]
        if is_asked:
            self._instance.run_launcher.dispose()  # the runs are asked to end
            os._exit(0)  # a tick's thread can't be ended otherwise


class WatchedCodeServers(ProxyServerManager):
    """The code servers of `dagster dev`, each of which is restarted when its user code is killed.

    A code server is two processes. The inner one has the user's code. The outer one starts it,
    passes questions on to it, and starts it again when the code is to be reloaded. Dagster notices
    when the outer process dies, but never when the inner one does: after a kill (out of memory,
    say), no sensor, schedule or run works until a person presses Reload in the UI. This class asks
    for that reload.
    """

    def __enter__(self) -> Self:
        super().__enter__()
        self._is_over = threading.Event()
        dev.send_ipc_shutdown_message = self._end_process  # type: ignore[attr-defined, assignment]
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
        dev.send_ipc_shutdown_message = send_ipc_shutdown_message  # type: ignore[attr-defined]
        super().__exit__(exception_type, exception_value, traceback)

    def _end_process(self, pipe: int) -> None:
        """Ask a process of `dagster dev` to end. Code servers that are gone now were asked to."""
        self._is_over.set()
        send_ipc_shutdown_message(pipe)

    def _watch(self, client: DagsterGrpcClient, location: str) -> None:
        while not self._is_over.wait(CODE_SERVERS_EVERY_S):
            if not _is_killed(client) or self._is_over.is_set():
                continue
            _log.warning("the code server of %s is gone; it is started again", location)
            try:
                client.reload_code(timeout=RELOAD_TIMEOUT_S)
            except DagsterUserCodeUnreachableError as error:
                # This comes after a good reload too: the outer process could not tell the dead one
                # to end.
                _log.debug("reload of %s: %s", location, error)


def _is_killed(client: DagsterGrpcClient) -> bool:
    """Whether the outer process answers that it can't reach the inner one, which has the user's
    code. False for a code server that is only slow, and for one whose outer process is gone as
    well.
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
