"""A Dagster of real processes that a test ends and starts again: its daemon, and a code location on
a port, as in production, or two of each; SQLite, and no web server: tests ask the instance.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.storage.dagster_run import DagsterRun
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget

from examples.flights.ports import free_port
from rmt_pipeline.dagster.instance import ENVIRONMENT, prepare_home
from rmt_pipeline.processes.child import Child
from rmt_pipeline.processes.server import accepts
from tests.support.waiting import until

LOCATION, DAEMON = "location", "daemon"
OTHER_LOCATION, OTHER_DAEMON = "other-location", "other-daemon"
OVER = (
    BulkActionStatus.COMPLETED,
    BulkActionStatus.COMPLETED_SUCCESS,
    BulkActionStatus.COMPLETED_FAILED,
    BulkActionStatus.FAILED,
    BulkActionStatus.CANCELED,
)


class RealDagster:
    """`start` and `kill` its LOCATION or its DAEMON, or the other one of each. A kill is SIGKILL
    to the process and all that it has started. `other`: what the other location has.
    """

    def __init__(self, directory: Path, definitions: Path, other: Path | None = None) -> None:
        self.home = directory / "home"
        prepare_home(self.home)
        settings = self.home / "dagster.yaml"
        shipped = settings.read_text()
        settings.write_text(
            shipped.replace("poll_interval_seconds: 15", "poll_interval_seconds: 1").replace(
                "start_timeout_seconds: 180", "start_timeout_seconds: 60"
            )
        )
        self.instance = dg.DagsterInstance.from_config(str(self.home))
        self._directory = directory
        self._definitions = {LOCATION: definitions}
        if other is not None:
            self._definitions[OTHER_LOCATION] = other
        self._ports = {name: free_port() for name in self._definitions}
        self._running: dict[str, Child] = {}
        servers = [
            f"  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: {name}}}\n"
            for name, port in self._ports.items()
        ]
        (directory / "workspace.yaml").write_text("".join(["load_from:\n", *servers]))

    def start(self, name: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            environment = {**os.environ, **ENVIRONMENT, "DAGSTER_HOME": str(self.home)}
            self._running[name] = Child(self._command(name), output=log, env=environment)
        if name in self._ports:
            until(partial(self._answers, name), self.logs)

    def _answers(self, location: str) -> bool:
        assert self._running[location].status() is None, self.logs()
        return accepts("127.0.0.1", self._ports[location])

    def kill(self, name: str) -> None:
        self._running.pop(name).kill()

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)
        self.instance.dispose()

    def backfill(self, asset: str, keys: Sequence[str]) -> str:
        """What a click in the UI does; its id."""
        target = GrpcServerTarget("127.0.0.1", self._ports[LOCATION], None, LOCATION)
        with WorkspaceProcessContext(self.instance, target) as workspace:
            asked = PartitionBackfill.from_asset_partitions(
                backfill_id=uuid4().hex[:8],
                asset_graph=workspace.create_request_context().asset_graph,
                partition_names=keys,
                asset_selection=[dg.AssetKey(asset)],
                backfill_timestamp=dg._time.get_current_timestamp(),
                tags={},
                dynamic_partitions_store=self.instance,
                all_partitions=False,
                title=None,
                description=None,
                run_config=None,
            )
        self.instance.add_backfill(asked)
        return asked.backfill_id

    def is_over(self, backfill_id: str) -> bool:
        found = self.instance.get_backfill(backfill_id)
        assert found is not None
        return found.status in OVER

    def succeeded(self, backfill_id: str) -> bool:
        found = self.instance.get_backfill(backfill_id)
        return found is not None and found.status is BulkActionStatus.COMPLETED_SUCCESS

    def ticks(self, sensor: str) -> list[str]:
        """What the newest ones said."""
        return [
            tick.skip_reason or ""
            for state in self.instance.all_instigator_state()
            if state.name == sensor
            for tick in self.instance.get_ticks(
                state.instigator_origin_id, state.selector_id, limit=20
            )
        ]

    def said(self, backfill_id: str) -> str:
        """By its runs; those of workers and sensors beside it are not asked."""
        its_own = dg.RunsFilter(tags=DagsterRun.tags_for_backfill_id(backfill_id))
        return "\n".join(
            entry.message
            for run in self.instance.get_runs(its_own)
            for entry in self.instance.all_logs(run.run_id)
        )

    def log_of(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def logs(self) -> str:
        """The end of what its processes wrote, for who waits in vain."""
        files = sorted(self._directory.glob("*.log"))
        return "\n".join(f"{file.name}:\n{file.read_text()[-2000:]}" for file in files)

    def _command(self, name: str) -> list[str]:
        if name not in self._ports:
            workspace = str(self._directory / "workspace.yaml")
            module = "rmt_pipeline.dagster.daemon"
            return [sys.executable, "-m", module, "run", "--workspace", workspace]
        server = [sys.executable, "-m", "dagster", "api", "grpc", "--host", "127.0.0.1"]
        server += ["--port", str(self._ports[name]), "--location-name", name]
        return [*server, "--python-file", str(self._definitions[name])]


@contextmanager
def real_dagster(
    directory: Path, definitions: Path, other: Path | None = None
) -> Iterator[RealDagster]:
    """Its location answers, both of them if there is an `other`, and its daemon runs."""
    directory.mkdir()
    running = RealDagster(directory, definitions, other)
    try:
        running.start(LOCATION)
        if other is not None:
            running.start(OTHER_LOCATION)
        running.start(DAEMON)
        yield running
    finally:
        running.close()
