"""Dagster's daemon, which looks for backfills every five seconds.

`python -m rmt_pipeline.dagster.daemon run …` is `dagster-daemon run …`, and `… dev …` is `dagster
dev …` with such a daemon. Dagster's own looks every thirty, and has no setting for it: after a
click in the UI half a minute may pass before the first run.
"""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from dagster._cli import cli as dagster_cli
from dagster._cli import dev
from dagster._daemon import controller
from dagster._daemon.cli import cli as daemon_cli
from dagster_shared.ipc import open_ipc_subprocess

BACKFILLS_EVERY_S = 5
"""As often as sensors tick. Without a backfill a look is three small queries."""
_DAGSTERS_OWN = "dagster._daemon"


def main(arguments: Sequence[str]) -> None:
    """Returns never."""
    if list(arguments[:1]) == ["dev"]:
        dev.open_ipc_subprocess = _with_our_daemon  # type: ignore[attr-defined]
        dagster_cli(list(arguments), auto_envvar_prefix="DAGSTER_CLI")
    else:
        controller.DEFAULT_DAEMON_INTERVAL_SECONDS = BACKFILLS_EVERY_S
        daemon_cli(list(arguments), obj={})


def _with_our_daemon(parts: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """What `dagster dev` starts as modules: the web server, and this one for the daemon."""
    ours = [__spec__.name if part == _DAGSTERS_OWN else part for part in parts]
    return open_ipc_subprocess(ours, **options)


if __name__ == "__main__":
    main(sys.argv[1:])
