"""How long a code location takes to load, beside an empty one, and a tick with work to answer, and
what its memory does.

    python -m benchmarks.location [--ticks 1000] [--tables 1]

`dagster api grpc` of the shipped location with both servers of one ZooKeeper. Before each tick of r2's
log sensor one insert through r1 has brought it an entry to fetch, so that the tick asks for a worker;
nobody starts it. Every so often this process works the queue off, as the worker would.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import dagster as dg
from dagster._core.remote_representation.code_location import CodeLocation
from dagster._core.remote_representation.handle import RepositoryHandle
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active
from benchmarks.restart import cpu_s
from examples.flights.ports import free_port
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import instance
from rmt_pipeline.processes.server import accepts
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import work
from rmt_pipeline.system import EventWaker
from rmt_pipeline.table import Table

SENSOR = "log_r2"
LOCATION = "location"
WORK_OFF_EVERY = 50
TOLD_EVERY = 100


EMPTY = "import dagster as dg\n\ndefs = dg.Definitions()\n"


@contextmanager
def code_server(
    config: Path, home: Path, port: int, *definitions: str
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        **instance.ENVIRONMENT,
        "RMT_CONFIG": str(config),
        "RMT_REPLICA": "r1,r2",
        "RMT_TABLES": "default.t0",
        "DAGSTER_HOME": str(home),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled once
    command = [sys.executable, "-m", "dagster", "api", "grpc", *definitions]
    with (home / "location.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-p", str(port), "--location-name", LOCATION],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def wait_until_it_listens(port: int) -> None:
    """It does when the code is loaded."""
    while not accepts("127.0.0.1", port):
        time.sleep(0.05)


def loads(config: Path, home: Path) -> None:
    """In turns: the first is for the compiler, and for the machine's memory of files."""
    empty = home / "empty.py"
    empty.write_text(EMPTY, encoding="utf-8")
    for turn in range(3):
        for name, definitions in (
            ("an empty one", ("-f", str(empty))),
            ("ours", ("-m", "assets.definitions")),
        ):
            port = free_port()
            begun_s = time.perf_counter()
            with code_server(config, home, port, *definitions) as process:
                wait_until_it_listens(port)
                seconds = time.perf_counter() - begun_s
                if turn:
                    print(
                        f"{name:12} loaded after {seconds:.1f} s, {cpu_s(process.pid):.1f} s of "
                        f"processor time, {rss_mb(process.pid):.0f} MB, "
                        f"load {os.getloadavg()[0]:.1f}",
                        flush=True,
                    )


def rss_mb(pid: int) -> float:
    [line] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) / 1024


def work_off(server: ServerContext, tables: Sequence[Table]) -> None:
    for table in tables:
        with closing(server.peers(table.definition)) as peers:
            work(
                partial(getattr, table, "replica"),
                Tools(peers, LocalMerger(server.clock), LocalMutator(server.clock)),
                "fetch",
                waker=EventWaker(),
                linger_s=0.2,
                on_flush=lambda _: None,
                should_stop=lambda: False,
            )


def ticks(
    location: CodeLocation,
    opened: dg.DagsterInstance,
    pid: int,
    servers: tuple[ServerContext, ServerContext],
    options: argparse.Namespace,
) -> None:
    names = [f"t{number}" for number in range(options.tables)]
    inserted, fetching = ([server.table(name) for name in names] for server in servers)
    repository = RepositoryHandle.from_location("__repository__", location)
    took: list[float] = []
    print(
        f"{'ticks':>6} {'p50 ms':>7} {'p99 ms':>7} {'max ms':>7} {'CPU ms':>7} {'RSS MB':>7} {'load':>5}"
    )
    used_s = cpu_s(pid)
    for number in range(1, options.ticks + 1):
        inserted[number % len(names)].insert(small(number))
        begun_s = time.perf_counter()
        data = location.get_sensor_execution_data(
            opened, repository, SENSOR, time.time(), None, None, None, None
        )
        took.append(time.perf_counter() - begun_s)
        assert data.run_requests, data.skip_message
        if number % WORK_OFF_EVERY == 0:
            work_off(servers[1], fetching)
        if number in (1, 10) or number % TOLD_EVERY == 0:
            told = sorted(took)
            figures = (statistics.median(told), told[int(len(told) * 0.99)], told[-1])
            print(
                f"{number:>6} "
                + " ".join(f"{seconds * 1000:>7.0f}" for seconds in figures)
                + f" {(cpu_s(pid) - used_s) / len(took) * 1000:>7.0f} {rss_mb(pid):>7.1f}"
                + f" {os.getloadavg()[0]:>5.1f}",
                flush=True,
            )
            took.clear()
            used_s = cpu_s(pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=1_000)
    parser.add_argument("--tables", type=int, default=1)
    options = parser.parse_args()
    port = free_port()
    with (
        tempfile.TemporaryDirectory(prefix="rmt-bench-") as directory,
        Cluster(work=False) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        home = Path(directory)
        instance.prepare_home(home)
        for server in (r1, r2):
            for number in range(options.tables):
                server.create_table(definition(f"t{number}"))
        wait_active(*(server.table("t0") for server in (r1, r2)))
        config = cluster.directory / "rmt.toml"
        loads(config, home)
        with (
            code_server(config, home, port, "-m", "assets.definitions") as process,
            dg.DagsterInstance.from_config(str(home)) as opened,
        ):
            wait_until_it_listens(port)
            target = GrpcServerTarget("127.0.0.1", port, None, LOCATION)
            with WorkspaceProcessContext(opened, target) as context:
                location = context.create_request_context().get_code_location(LOCATION)
                ticks(location, opened, process.pid, (r1, r2), options)


if __name__ == "__main__":
    main()
