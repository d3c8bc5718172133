"""Makes a new DAGSTER_HOME: `python -m rmt_pipeline.dagster.instance HOME`, run before Dagster
starts.
"""

import importlib.resources
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import dagster as dg

SERVERS_VARIABLE = "RMT_REPLICA"
ENVIRONMENT = {
    # Waiting sensors occupy a thread each, in both processes; the default is six on two cores.
    "DAGSTER_GRPC_MAX_WORKERS": "32",
    "DAGSTER_CODE_SERVER_MAX_WORKERS": "32",
    # A tick waits 40 s for ZooKeeper and then still has to answer; the default is 60 s.
    "DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS": "90",
    # A run starts with an answer of its code location, which is late on a busy machine. After the
    # default of 60 s Dagster fails the run, but the run still begins.
    "DAGSTER_GRPC_TIMEOUT_SECONDS": "180",
    # A backfill waits while its code location restarts; else it fails, and ends its runs.
    "DAGSTER_BACKFILL_RETRY_DEFINITION_CHANGED_ERROR": "yes",
    "DAGSTER_DISABLE_TELEMETRY": "yes",
}
"""The environment variables that every Dagster process of ours needs."""


def environment(servers: Iterable[str]) -> dict[str, str]:
    """ENVIRONMENT and RMT_REPLICA, which keeps its value if it is set, and names `servers`
    otherwise.
    """
    named = os.environ.get(SERVERS_VARIABLE, ",".join(servers))
    return {**ENVIRONMENT, SERVERS_VARIABLE: named}


def prepare_home(home: Path) -> None:
    """Make `home` a Dagster instance. Calling it again changes nothing, and an existing
    dagster.yaml stays as it is.

    Two processes that open a new SQLite instance at once break it for good (dagster issue 27390),
    so one process makes its tables here, before any other starts.
    """
    home.mkdir(parents=True, exist_ok=True)
    configuration = home / "dagster.yaml"
    if not configuration.exists():
        shipped = importlib.resources.files("rmt_pipeline.dagster").joinpath("dagster.yaml")
        configuration.write_text(shipped.read_text(encoding="utf-8"), encoding="utf-8")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs_count()


if __name__ == "__main__":
    prepare_home(Path(sys.argv[1]).absolute())
