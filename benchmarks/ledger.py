"""Events of parts: how many a second Dagster's storage takes, and how soon the UI's pages of a table
with many of them open.

    python -m benchmarks.ledger [--partitions 2000] [--parts 20000] [--flush 1000]

SQLite, as a new home has it, and a table on one server of a real ZooKeeper. Parts are recorded in
flushes as a worker does it: all of one partition, each of another one, as a stream of small flushes.
The table has as many parts as partitions; all others are said to be there, as merged ones once were.
Then a web server over the same home, and Chromium, when it is installed: seconds until a page says
what it is for, the first time and the second.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pyarrow as pa
import urllib3

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, wait_active
from examples.flights.ports import free_port
from rmt_pipeline.dagster import instance, names
from rmt_pipeline.dagster.record.ledger import Recorder
from rmt_pipeline.dagster.record.storage import one_transaction
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.report import Origin
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.table import Table

TABLE = "default.many"
SERVER = "r1"
PER_INSERT = 100
SMALL_FLUSH = 4
TOGETHER = 16
LIMIT_MS = 30_000.0
GROUP = "/locations/assets.definitions/asset-groups/many"
PARTS, PARTITIONS = (
    f"/assets/{'/'.join(key(TABLE, SERVER).path)}"
    for key in (names.parts_key, names.partitions_key)
)


def fill(table: Table, partitions: int) -> None:
    for first in range(0, partitions, PER_INSERT):
        keys = list(range(first, min(first + PER_INSERT, partitions)))
        table.insert(pa.table({"k": keys, "v": ["some text"] * len(keys), "p": keys}))


def fetched(partition: int, block: int) -> PartDone:
    return PartDone(
        part=PartName(str(partition), block, block, 0),
        kind="FETCH",
        rows=10,
        size_bytes=2_000,
        source_replica="r2",
        lag_s=0.03,
        seconds=0.01,
    )


class _Inserted:
    """Each part is of an insert of its own, by a run of its own: what the page shows most of."""

    def of(
        self, replica: Replica, parts: Iterable[PartName]
    ) -> Mapping[PartName, Sequence[Origin]]:
        del replica
        return {part: [Origin(uuid.uuid4().hex, str(uuid.uuid4()))] for part in parts}


def record(
    table: Table, home: Path, flushes: Sequence[Sequence[PartDone]], together: int = 1
) -> float:
    """Parts a second, in a run of its own. `together`: so many flushes are one transaction, as
    those of a worker's tables are.
    """
    seconds = 0.0

    @dg.op
    def records(context: dg.OpExecutionContext) -> None:
        nonlocal seconds
        recorder = Recorder(context, table, SERVER, _Inserted())
        begun_s = time.perf_counter()
        for first in range(0, len(flushes), together):
            with one_transaction(context.instance):
                for flush in flushes[first : first + together]:
                    recorder.parts(flush)
        seconds = time.perf_counter() - begun_s

    @dg.job
    def job() -> None:
        records()

    quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    with dg.DagsterInstance.from_config(str(home)) as opened:
        assert job.execute_in_process(instance=opened, run_config=quiet).success
    return sum(map(len, flushes)) / seconds


def written(table: Table, home: Path, options: argparse.Namespace) -> None:
    def shape(words: str, flushes: list[list[PartDone]], together: int = 1) -> None:
        rate = record(table, home, flushes, together)
        print(f"{words:44} {rate:>9.0f} parts/s   load {os.getloadavg()[0]:.1f}", flush=True)

    count, size = options.partitions, options.flush
    together = [
        [fetched(1, 10 + first + at) for at in range(size)]
        for first in range(0, options.parts, size)
    ]
    shape("of one partition", together)
    small = [
        [fetched(2, 10 + SMALL_FLUSH * at + n) for n in range(SMALL_FLUSH)] for at in range(25)
    ]
    shape(f"of one partition, {SMALL_FLUSH} to a flush", small)
    of_many = [
        [fetched(2, 1000 + SMALL_FLUSH * at + n) for n in range(SMALL_FLUSH)]
        for at in range(10 * TOGETHER)
    ]
    shape(f"the same, {TOGETHER} flushes at once", of_many, TOGETHER)
    apart = [
        [fetched(number, 100) for number in range(first, min(first + size, count))]
        for first in range(0, count, size)
    ]
    shape("each of another partition", apart)


@contextmanager
def web_server(config: Path, home: Path) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        **instance.ENVIRONMENT,
        "RMT_CONFIG": str(config),
        "RMT_REPLICA": SERVER,
        "RMT_TABLES": TABLE,
        "DAGSTER_HOME": str(home),
    }
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml"]
    with (home / "webserver.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "-h", "127.0.0.1", "-p", str(port)],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        while not answers(f"{url}/server_info"):
            assert process.poll() is None, (home / "webserver.log").read_text()
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    try:
        return urllib3.request("GET", url, retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def pages(url: str) -> None:
    from playwright.sync_api import Error, Page, sync_playwright

    def says(text: str) -> Callable[[Page], object]:
        return lambda page: page.get_by_text(text).filter(visible=True).first.wait_for()

    looked_at: list[tuple[str, str, Callable[[Page], object]]] = [
        ("the table's lineage", f"{GROUP}/lineage", says(f"{SERVER}_partitions")),
        ("parts, overview", f"{PARTS}?view=overview", says("Plots")),
        ("parts, events", f"{PARTS}?view=events", says("dagster/row_count")),
        ("partitions, overview", f"{PARTITIONS}?view=overview", says("row hash")),
        ("partitions, all of them", f"{PARTITIONS}?view=partitions", says("17")),
        ("partitions, events", f"{PARTITIONS}?view=events", says("row hash")),
        (
            "partitions, one of them",
            f"{PARTITIONS}?view=partitions&partition=17",
            says("row hash"),
        ),
        ("the catalog", "/assets", says("many")),
        ("runs", "/runs", says("job")),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(LIMIT_MS)
        page.goto(url)
        says("Overview")(page)  # the program itself is loaded once
        for words, path, is_there in looked_at:
            took = []
            for _ in range(2):
                begun_s = time.perf_counter()
                page.goto(url + path)
                try:
                    is_there(page)
                except Error:
                    took.append("not seen")
                else:
                    took.append(f"{time.perf_counter() - begun_s:.2f} s")
            shown = " ".join(f"{one:>9}" for one in took)
            print(f"{words:44} {shown}   load {os.getloadavg()[0]:.1f}", flush=True)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--parts", type=int, default=20_000)
    parser.add_argument("--flush", type=int, default=1_000)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rmt-bench-") as directory,
        Cluster(work=False) as cluster,
        cluster.context(SERVER) as server,
    ):
        home = Path(directory)
        instance.prepare_home(home)
        server.create_table(definition("many", ("p",)))
        table = server.table("many")
        wait_active(table)
        fill(table, options.partitions)
        written(table, home, options)
        if shutil.which("chromium") is None:
            print("no chromium on the PATH (Debian: apt install chromium): pages not opened")
            return
        with web_server(cluster.directory / "rmt.toml", home) as url:
            pages(url)


if __name__ == "__main__":
    main()
