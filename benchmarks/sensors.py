"""How soon a peer has what was inserted when Dagster's sensors and their lingering runs replicate.

    python -m benchmarks.sensors [--inserts 400] [--rate 20] [--idle 6]

Everything that `rmt up` starts. Busy: a steady stream of inserts; the parts of its second half count,
when the workers linger. Idle: one insert each time that no worker has run for a while. The delay is
from the part's node among the inserter's parts to its node among the follower's (ZooKeeper's clock).
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.insert import definition, small, wait_active
from benchmarks.replication import delays_ms, paced, show
from examples.flights.dagster_client import DagsterClient
from examples.flights.laptop import Everything, write_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.table import Table

RUNNING = ["QUEUED", "NOT_STARTED", "STARTING", "STARTED"]


def busy(table: Table, inserts: int, rate: float) -> None:
    keeper, paths = table.replica.keeper, table.replica.table
    half = inserts // 2
    paced(half, rate, lambda number: table.insert(small(number)))
    before = set(keeper.children(paths.replica("r1").parts))
    reached = paced(half, rate, lambda number: table.insert(small(half + number)))
    delays = delays_ms(keeper, paths, "r1", "r2", without=before)
    show("busy, lingering runs", delays, reached, None)


def idle(table: Table, dagster: DagsterClient, times: int) -> None:
    keeper, paths = table.replica.keeper, table.replica.table
    delays: list[int] = []
    for number in range(times):
        while dagster.runs(statuses=RUNNING):
            time.sleep(0.5)
        time.sleep(1 + number * 0.7)  # not in step with the sensors' ticks
        before = set(keeper.children(paths.replica("r1").parts))
        table.insert(small(1_000_000 + number))
        while not set(keeper.children(paths.replica("r2").parts)) - before:
            time.sleep(0.05)
        delays += delays_ms(keeper, paths, "r1", "r2", without=before)
    show("idle, a run is started", sorted(delays), 0, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inserts", type=int, default=400)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--idle", type=int, default=6)
    options = parser.parse_args()
    columns = ("inserts/s", "p50 ms", "p99 ms", "parts")
    print(f"{'':24} " + " ".join(f"{name:>8}" for name in columns))
    with tempfile.TemporaryDirectory(prefix="rmt-bench-") as directory:
        config = write_config(Path(directory))
        assert config.path is not None
        with (
            Everything(config.path, Path(directory) / "up.log"),
            DagsterClient(f"http://127.0.0.1:{config.dagster.port}") as dagster,
            ServerContext.open(config, "r1", purpose="benchmark") as r1,
            ServerContext.open(config, "r2", purpose="benchmark") as r2,
        ):
            while not dagster.is_ready():
                time.sleep(0.5)
            for server in (r1, r2):
                server.create_table(definition("busy"))
            table = r1.table("busy")
            wait_active(table, r2.table("busy"))
            table.insert(small(999_999))
            busy(table, options.inserts, options.rate)
            idle(table, dagster, options.idle)


if __name__ == "__main__":
    main()
