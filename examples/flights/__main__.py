"""`make demo`: a year of flights through Dagster onto two replicas, checked, and shut down again.

Starts what `rmt up` starts, on free ports below rmt-data/demo; launches two backfills as the UI
would; waits until the sensors have replicated and merged everything; then reads both replicas. Exit
status 0 only when every promise was kept.
"""

import argparse
import contextlib
import datetime as dt
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.flights import report, source
from examples.flights.dagster_client import Backfill, DagsterClient, DagsterRefused
from examples.flights.laptop import Ended, Everything, write_config
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster import names
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.system import Clock, SystemClock
from rmt_pipeline.table import Table

TABLE = source.TABLE.full_name
DEADLINE_S = 600.0
QUIET_S = 13.0
"""Without a change for two rounds of the merge sensors (5 s each) and a start of their workers (3
s).
"""
REPEATED_DAYS = 90
REPEATED_BLOCK_ROWS = 300
"""A third of a day, so that the repeated inserts are cut into other blocks than the first ones."""


class DemoFailed(Exception):
    """The demo cannot go on; the message says where to look."""


@dataclass(slots=True)
class Demo:
    """The running demo: its connections, and when it began."""

    config: Config
    dagster: DagsterClient
    processes: Everything
    r1: Table
    r2: Table
    clock: Clock
    started_s: float

    def say(self, text: str) -> None:
        elapsed_s = self.clock.monotonic_s() - self.started_s
        print(f"{elapsed_s:6.1f} s  {text}", flush=True)

    def wait(self, what: str, done: Callable[[], bool], *, every_s: float = 1.0) -> None:
        """Wait until `done`. Raises DemoFailed when that takes too long, and Ended when `rmt up`
        has ended.
        """
        while not done():
            self.processes.require_alive()
            if self.clock.monotonic_s() - self.started_s > DEADLINE_S:
                raise DemoFailed(
                    f"{what}: not done after {DEADLINE_S:g} s; see {self.processes.log}"
                )
            self.clock.sleep_s(every_s)


def empty_directory(directory: Path) -> None:
    """Empty the directory. Raises DemoFailed when it has something that no demo made."""
    if directory.exists():
        if any(directory.iterdir()) and not (directory / "rmt.toml").is_file():
            raise DemoFailed(f"{directory} was not made by a demo: name another --directory")
        shutil.rmtree(directory)
    directory.mkdir(parents=True)


def run_demo(demo: Demo) -> bool:
    """Run the demo and print what happens, line by line. Returns whether every promise was kept."""
    demo.say("two replicas of the table flights, by Dagster's assets r1_replica and r2_replica")
    _materialize_replicas(demo)
    days = _days()
    demo.say(f"backfill of {len(days)} days on r1; sensors replicate and merge meanwhile")
    first = demo.dagster.backfill(["flights"], days, title="the year on r1")
    _follow(demo, [first], enough=lambda: report.standing(demo.r1).rows >= source.FLIGHTS_COUNT)
    again = days[:REPEATED_DAYS]
    demo.say(
        f"backfill of {len(again)} of these days again, on r2, in blocks of "
        f"{REPEATED_BLOCK_ROWS} rows"
    )
    config = {"server": "r2", "max_insert_block_size": REPEATED_BLOCK_ROWS}
    second = demo.dagster.backfill(
        ["flights"],
        again,
        title="three months again, on r2",
        run_config={"ops": {"flights": {"config": config}}},
    )
    _follow(demo, [first, second])
    demo.say("waiting until nothing is left to replicate or merge")
    _settle(demo)
    return _report(demo, repeated=len(again))


def _days() -> list[str]:
    first = dt.date.fromisoformat(source.FIRST_DAY)
    end = dt.date.fromisoformat(source.END_DAY)
    return [str(first + dt.timedelta(n)) for n in range((end - first).days)]


def _materialize_replicas(demo: Demo) -> None:
    keys = [names.replica_key(TABLE, server).path for server in ("r1", "r2")]
    run_id = demo.dagster.materialize(keys)
    demo.wait("creating the table", lambda: _succeeded(demo, run_id), every_s=0.5)


def _succeeded(demo: Demo, run_id: str) -> bool:
    [run] = demo.dagster.runs(runIds=[run_id])
    if run["status"] in ("FAILURE", "CANCELED"):
        raise DemoFailed(
            f"run {run_id} of {run['jobName']} ended as {run['status']}; "
            f"see {demo.processes.log}"
        )
    return bool(run["status"] == "SUCCESS")


def _follow(
    demo: Demo, backfill_ids: Sequence[str], *, enough: Callable[[], bool] | None = None
) -> None:
    """Print a line whenever something has changed, until the backfills are over or it is `enough`.

    Dagster's daemon looks at backfills only every few seconds, so the rows change before the days
    do.
    """
    shown = ""

    def is_over() -> bool:
        nonlocal shown
        backfills = [demo.dagster.backfill_state(one) for one in backfill_ids]
        days = ", ".join(f"{one.done}/{one.partitions}" for one in backfills)
        line = f"days {days}   {_standing(demo)}"
        if line != shown:
            demo.say(line)
            shown = line
        for one in backfills:
            if one.is_over and not one.succeeded:
                raise DemoFailed(_why(one, demo))
        return all(one.is_over for one in backfills) or (enough is not None and enough())

    demo.wait("the backfill", is_over, every_s=2.0)


def _why(backfill: Backfill, demo: Demo) -> str:
    return (
        f"the backfill ended as {backfill.status} with {backfill.failed} failed days"
        f"{': ' + backfill.error if backfill.error else ''}; see {demo.processes.log}"
    )


def _standing(demo: Demo) -> str:
    words = []
    for name, table in (("r1", demo.r1), ("r2", demo.r2)):
        now = report.standing(table)
        words.append(f"{name}: {now.rows} rows in {now.parts} parts, queue {now.queue}")
    return "   ".join(words)


def _settle(demo: Demo) -> None:
    """Wait until both replicas are equal, none is behind, and nothing has changed for QUIET_S
    seconds.
    """
    seen, since_s = "", demo.clock.monotonic_s()

    def is_quiet() -> bool:
        nonlocal seen, since_s
        now = _standing(demo)
        if now != seen:
            demo.say(now)
            seen, since_s = now, demo.clock.monotonic_s()
        comparison = compare_replicas(demo.r1.replica)
        if comparison.behind or comparison.different:
            since_s = demo.clock.monotonic_s()
        return demo.clock.monotonic_s() - since_s >= QUIET_S

    demo.wait("replicating and merging everything", is_quiet)


def _report(demo: Demo, *, repeated: int) -> bool:
    demo.say("reading every row of both replicas")
    replicas = [report.held(demo.r1), report.held(demo.r2)]
    refused = report.refused_on(demo.config.dagster.home, "r2")
    found = report.findings(
        replicas, compare_replicas(demo.r1.replica), repeated=repeated, refused=refused
    )
    delays = report.delays(demo.r1, demo.r2)
    print()
    for finding in found:
        print(f"  {'yes' if finding.kept else 'NO ':3}  {finding.promise}: {finding.found}")
    print(
        f"\n  replication delay over {delays.count} parts: p50 {delays.p50_ms} ms, "
        f"p99 {delays.p99_ms} ms, at most {delays.max_ms} ms"
        f"\n  {demo.clock.monotonic_s() - demo.started_s:.0f} seconds in all, processes included"
    )
    return all(finding.kept for finding in found)


@contextlib.contextmanager
def _running(directory: Path, clock: Clock) -> Iterator[Demo]:
    started_s = clock.monotonic_s()
    config = write_config(directory)
    assert config.path is not None
    with (
        Everything(config.path, directory / "up.log") as processes,
        DagsterClient(f"http://127.0.0.1:{config.dagster.port}") as dagster,
        ServerContext.open(config, "r1", purpose="demo") as r1,
        ServerContext.open(config, "r2", purpose="demo") as r2,
    ):
        demo = Demo(
            config,
            dagster,
            processes,
            r1.table_of(r1.expanded(source.TABLE)),
            r2.table_of(r2.expanded(source.TABLE)),
            clock,
            started_s,
        )
        demo.say(f"starting ZooKeeper, two servers, Spark and Dagster; log: {processes.log}")
        demo.wait("starting Dagster", dagster.is_ready)
        demo.say(f"all are up; Dagster's UI is at http://127.0.0.1:{config.dagster.port}")
        yield demo
        demo.say("ending what was started")
    demo.say("ended")


def main() -> int:
    """Run the whole demo in one directory. Returns the exit code, which is 0 when every promise was
    kept.
    """
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("rmt-data/demo"),
        help="where the demo's data goes; emptied first (default: rmt-data/demo)",
    )
    directory = parser.parse_args().directory.absolute()
    try:
        empty_directory(directory)
        with _running(directory, SystemClock()) as demo:
            kept = run_demo(demo)
    except (DemoFailed, Ended, DagsterRefused, RmtError) as error:
        print(f"the demo failed: {error}", file=sys.stderr)
        return 1
    rmt = _short(Path(sys.executable).with_name("rmt"))
    print(
        f"\nTo open these tables in Dagster's UI:  {rmt} --config {_short(directory)}/rmt.toml up"
    )
    print("To begin with your own:                make dev")
    return 0 if kept else 1


def _short(path: Path) -> Path:
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path


if __name__ == "__main__":
    sys.exit(main())
