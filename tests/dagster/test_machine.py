"""A machine with everything on it dies in the middle of a backfill, and starts again."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from examples.flights.dagster_client import DagsterClient
from examples.flights.laptop import WORKSPACE, Everything, write_config
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from tests.support.stays import AT_ONCE, DAYS, LIMIT_S, Stays
from tests.support.time_limit import time_limit
from tests.support.waiting import until

pytestmark = [pytest.mark.dagster, pytest.mark.zookeeper]

TABLE = "default.stays"
LOCATION = "stays"


def kill_all(directory: Path) -> None:
    """SIGKILL to whoever was started for what is in this directory, until there is nobody."""
    while found := _processes(str(directory).encode()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes(word: bytes) -> list[int]:
    """Those with the word in their command or their environment; not who has ended."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_ours = word in (one / "cmdline").read_bytes() + (one / "environ").read_bytes()
            has_ended = (one / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if is_ours and not has_ended and int(one.name) != os.getpid():
                found.append(int(one.name))
    return found


def test_a_machine_that_dies_in_the_middle_of_a_backfill_has_every_row_once(
    tmp_path: Path,
) -> None:
    """ZooKeeper, both servers, Dagster's web server, daemon and code server, and the runs: SIGKILL
    to all of them. Two runs have stored their rows, and the third one is queued, unless Dagster
    began all three in its first look at a pool.
    """
    config = write_config(tmp_path)
    assert config.path is not None
    workspace = tmp_path / "workspace.yaml"
    location = f"relative_path: definitions.py, location_name: {LOCATION}"
    workspace.write_text(f"load_from:\n  - python_file: {{{location}}}\n")
    config.path.write_text(config.path.read_text().replace(str(WORKSPACE), str(workspace)))
    config = load_config(config.path)
    assert config.path is not None
    stays, log = Stays(config, tmp_path), tmp_path / "up.log"
    with (
        time_limit("a backfill", LIMIT_S),
        DagsterClient(f"http://127.0.0.1:{config.dagster.port}") as dagster,
    ):
        with Everything(config.path, log, "--no-spark") as machine:

            def is_ready() -> bool:
                machine.require_alive()
                return dagster.is_ready()

            until(is_ready, log.read_text, limit_s=LIMIT_S)
            keys = [names.replica_key(TABLE, server).path for server in ("r1", "r2")]
            made = dagster.materialize(keys, location=LOCATION)
            until(lambda: _ended(dagster, made), log.read_text, limit_s=LIMIT_S)
            stays.hold()
            backfill = dagster.backfill(["stays"], DAYS, title="three days")
            until(lambda: len(stays.stored()) >= AT_ONCE, log.read_text, limit_s=LIMIT_S)
            kill_all(tmp_path)
        stays.go_on()
        again = tmp_path / "again.log"
        with (
            Everything(config.path, again, "--no-spark"),
            ServerContext.open(config, "r1", purpose="test") as r1,
            ServerContext.open(config, "r2", purpose="test") as r2,
        ):
            until(dagster.is_ready, again.read_text, limit_s=LIMIT_S)
            until(
                lambda: dagster.backfill_state(backfill).is_over,
                again.read_text,
                limit_s=LIMIT_S,
            )
            assert dagster.backfill_state(backfill).succeeded
            for server in (r1, r2):
                stays.until_on(server, again.read_text, *DAYS)


def _ended(dagster: DagsterClient, run_id: str) -> bool:
    [run] = dagster.runs(runIds=[run_id])
    assert run["status"] not in ("FAILURE", "CANCELED"), run
    return bool(run["status"] == "SUCCESS")
