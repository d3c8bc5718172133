"""Merges: our kernel against others', one large merge, many small ones, memory, engines.

    python -m benchmarks.merges [selection] [kernels] [large] [small] [engines] [memory]

All of them by default. Ratios are within one run: all contenders take turns on the same files.
`large`, `small`, `engines` and `memory` go through a Spark Connect server with two cores, warm.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from examples.flights.ports import free_port  # noqa: E402
from rmt_pipeline.compute.jobs.merge import SparkMerger  # noqa: E402  after the path is set
from rmt_pipeline.compute.jobs.spark import SparkSessions  # noqa: E402
from rmt_pipeline.compute.merge.job import MergeDone, MergeJob, Merger, SourcePart  # noqa: E402  after the path is set
from rmt_pipeline.compute.merge.plan import shape_of, unit_source  # noqa: E402
from rmt_pipeline.compute.merge.unit import run_unit  # noqa: E402
from rmt_pipeline.compute.units import Unit  # noqa: E402
from rmt_pipeline.processes.java import find_java  # noqa: E402
from rmt_pipeline.processes.spark import ConnectServer, import_path  # noqa: E402
from rmt_pipeline.protocol.merges.predicate import MergePredicate, mergeable_runs  # noqa: E402
from rmt_pipeline.protocol.merges.selector import MergeablePart, SelectorSettings  # noqa: E402
from rmt_pipeline.protocol.parts.name import PartName  # noqa: E402
from rmt_pipeline.protocol.parts.set import PartSet  # noqa: E402
from rmt_pipeline.protocol.table import Column, Engine, EngineKind, TableDefinition  # noqa: E402
from rmt_pipeline.store.hashes.checksums import hash_hex  # noqa: E402
from rmt_pipeline.store.hashes.rows import hash_table  # noqa: E402
from rmt_pipeline.store.manifest import Manifest, PartColumn, PartFile  # noqa: E402
from rmt_pipeline.store.parquet import to_parquet  # noqa: E402
from rmt_pipeline.system import RandomIds, SystemClock  # noqa: E402
from tests.support.protocol import select_merge  # noqa: E402

ROUNDS = 5
CORES = 2
SELECTION_PARTS = 10_000
COLUMNS = (
    Column("id", "Int64"),
    Column("time", "DateTime64(6)"),
    Column("city", "String"),
    Column("user", "String"),
    Column("price", "Float64"),
)


def table_of(kind: EngineKind = "MergeTree") -> TableDefinition:
    engine = Engine(kind, "/bench", "r1")
    return TableDefinition("default", "bench", COLUMNS, engine, order_by=("id",))


def rows(seed: int, count: int, *, ids: int) -> pa.Table:
    """Sorted by id, which is random: every part has every key range."""
    random = np.random.default_rng(seed)
    cities = pa.array([f"city number {city}" for city in range(100)])
    users = np.char.add(
        "user-", np.char.zfill(random.integers(0, 5 * 10**6, count).astype("U7"), 7)
    )
    seconds = 1_700_000_000 + random.integers(0, 86_400, count)
    return pa.table(
        {
            "id": np.sort(random.integers(0, ids, count)),
            "time": pa.array(seconds * 10**6, pa.timestamp("us", "UTC")),
            "city": cities.take(pa.array(random.integers(0, 100, count))),
            "user": users,
            "price": np.round(random.lognormal(3, 1, count), 2),
        }
    )


def write_part(root: Path, name: str, table: pa.Table) -> SourcePart:
    """As an insert does."""
    directory = root / name
    directory.mkdir(parents=True)
    data = to_parquet(table, sorted_by=["id"]).to_pybytes()
    (directory / "data-00000.parquet").write_bytes(data)
    hashes = hash_table(table)
    manifest = Manifest(
        columns=tuple(PartColumn(column.name, column.type) for column in COLUMNS),
        rows=table.num_rows,
        bytes_on_disk=len(data),
        partition_id="all",
        partition="tuple()",
        key_bounds=(),
        files=(PartFile("data-00000.parquet", len(data), hash_hex(data)),),
        row_hash=hashes.row_hash,
        column_hashes=hashes.column_hashes,
        content_hash=hashes.content_hash,
        created_s=1,
    )
    return SourcePart(name, str(directory), manifest)


def parts(
    root: Path, count: int, rows_each: int, *, ids: int = 10**9, first: int = 1
) -> list[SourcePart]:
    return [
        write_part(root, f"all_{number}_{number}_0", rows(number, rows_each, ids=ids))
        for number in range(first, first + count)
    ]


def files_of(sources: Sequence[SourcePart]) -> list[str]:
    return [
        f"{source.directory}/{file.name}"
        for source in sources
        for file in source.manifest.files
    ]


def run(
    merger: Merger, root: Path, merges: Sequence[Sequence[SourcePart]], table: TableDefinition
) -> tuple[float, list[MergeDone]]:
    """Seconds from asking to the last outcome; the results are thrown away."""
    root = Path(tempfile.mkdtemp(dir=root))
    jobs = []
    for number, sources in enumerate(merges):
        staging = root / str(number)
        staging.mkdir()
        jobs.append(MergeJob(f"all_{number}", tuple(sources), str(staging), table, 1))
    started_s = time.perf_counter()
    outcomes = list(merger.merge(jobs))
    seconds = time.perf_counter() - started_s
    shutil.rmtree(root)
    for outcome in outcomes:
        assert isinstance(outcome, MergeDone), outcome
    return seconds, outcomes  # type: ignore[return-value]


def take_turns(
    contenders: dict[str, Callable[[], float]], rounds: int = ROUNDS
) -> dict[str, float]:
    """The best of each, after one round to warm up: what else the machine does only adds."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            seconds = contender()
            if number:
                found[name].append(seconds)
    return {name: min(times) for name, times in found.items()}


def timed(action: Callable[[], Any]) -> float:
    started_s = time.perf_counter()
    action()
    return time.perf_counter() - started_s


def line(*cells: object) -> None:
    print(
        "| "
        + " | ".join(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
        + " |",
        flush=True,
    )


def title(text: str, *columns: str) -> None:
    print(f"\n{text}\n", flush=True)
    line(*columns)
    line(*("---" for _ in columns))


def verdict(ok: bool) -> str:
    return "yes" if ok else "NO"


# The kernels, one thread each, on all ten parts. Compared by processor seconds: each is a task of
# Spark among others, and a machine that does something else as well does not change the result.


def duckdb_sorts(files: list[str], target: str, threads: int) -> None:
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.execute(
            f"COPY (SELECT * FROM read_parquet({files!r}) ORDER BY id) "
            f"TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
        )


def pyarrow_sorts(files: list[str], target: str) -> None:
    table = pa.concat_tables([pq.read_table(file, use_threads=False) for file in files])
    order = pc.sort_indices(table, [("id", "ascending")])
    pq.write_table(table.take(order), target, compression="zstd", use_dictionary=["city"])


POLARS = """
import json, sys, time
import polars as pl
files, target, rounds = json.loads(sys.argv[1])
times = []
for _ in range(rounds + 1):
    started = time.process_time()
    frame = pl.concat([pl.scan_parquet(file) for file in files])
    frame.sort("id").sink_parquet(target, compression="zstd", compression_level=1)
    times.append(time.process_time() - started)
print(json.dumps(min(times[1:])))
"""


def polars_sorts(files: list[str], target: str) -> float:
    """In a process of its own: Polars counts its threads once."""
    command = [sys.executable, "-c", POLARS, json.dumps([files, target, ROUNDS])]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    output = subprocess.run(command, env=environment, check=True, capture_output=True).stdout
    return float(json.loads(output))


def kernels(root: Path) -> None:
    sources = parts(root / "kernels", 10, 500_000)
    files = files_of(sources)
    target = str(root / "kernel.parquet")
    job = MergeJob("all_1_10_1", tuple(sources), str(root), table_of(), 1)
    unit_sources = tuple(unit_source(source, table_of()) for source in sources)

    def ours() -> None:
        Path(target).unlink(missing_ok=True)
        run_unit(Unit(0, 0, shape_of(job), unit_sources, target), SystemClock())

    def hashes() -> None:
        hash_table(pq.read_table(target, read_dictionary=["city"]))

    def reading() -> None:
        pq.read_table(target, read_dictionary=["city"])

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    found = take_turns(
        {
            "ours": lambda: worked(ours),
            "hashes": lambda: worked(hashes) - worked(reading),
            "DuckDB": lambda: worked(lambda: duckdb_sorts(files, target, 1)),
            "pyarrow": lambda: worked(lambda: pyarrow_sorts(files, target)),
        }
    )
    found["Polars"] = polars_sorts(files, target)
    title("Kernels: 10 sorted parts of 500,000 rows", "kernel", "processor s", "of DuckDB")
    names = {
        "ours": "ours: numpy merges runs, Arrow reads, gathers and writes; row hashes, SHA-256",
        "hashes": "— of which row hashes, which the others do not have",
    }
    for name, seconds in found.items():
        line(names.get(name, name), seconds, seconds / found["DuckDB"])


def worked(action: Callable[[], Any]) -> float:
    """Processor seconds of this process."""
    started_s = time.process_time()
    action()
    return time.process_time() - started_s


# Choosing


def selection() -> None:
    """Which merge is worth it, in one partition of 10,000 parts."""
    random = np.random.default_rng(1)
    sizes = {
        "all as inserted": random.integers(10_000, 20_000, SELECTION_PARTS),
        "of every size": np.exp(random.uniform(8, 25, SELECTION_PARTS)).astype(np.int64),
        "ever smaller": np.geomspace(10**11, 10**4, SELECTION_PARTS).astype(np.int64),
        "nothing to merge": 10 ** np.resize([11, 4], SELECTION_PARTS),
    }
    title(
        f"Selection over {SELECTION_PARTS:,} parts of one partition",
        "sizes", "ms", "parts chosen", "goal", "met",
    )  # fmt: skip
    for name, bytes_of_parts in sizes.items():
        run_of_parts = [
            MergeablePart(
                PartName("all", number, number, 0), int(size), SELECTION_PARTS - number
            )
            for number, size in enumerate(bytes_of_parts)
        ]
        select = partial(select_merge, [run_of_parts], SelectorSettings(), 150 * 2**30)
        found = select()
        ms = 1000 * statistics.median(timed(select) for _ in range(ROUNDS))
        line(name, ms, len(found.parts) if found else 0, "< 50", verdict(ms < 50))
    names = [PartName("all", number, number, 0) for number in range(SELECTION_PARTS)]
    predicate = MergePredicate(PartSet(names), {"all": frozenset()}, PartSet(names), {}, 0)
    ms = 1000 * statistics.median(
        timed(lambda: mergeable_runs(predicate, PartSet(names))) for _ in range(ROUNDS)
    )
    line("before it, which may be merged", ms, "", "", "")


# Spark


def large(root: Path, merger: Merger) -> None:
    sources = parts(root / "large", 10, 500_000)
    files = files_of(sources)
    size = sum(source.manifest.bytes_on_disk for source in sources)
    target = str(root / "duckdb.parquet")
    found = take_turns(
        {
            "spark": lambda: run(merger, root, [sources], table_of())[0],
            "duckdb": lambda: timed(lambda: duckdb_sorts(files, target, CORES)),
        }
    )
    found["chdb"] = chdb_merges(files, root)
    title(
        f"One merge of 10 parts, 5 million rows, {size / 1e6:.0f} MB",
        "what", "seconds", "ours / theirs", "goal", "met",
    )  # fmt: skip
    ours = found["spark"]
    line("Spark, units over key ranges", ours, "", "", "")
    for name, text, goal in (
        ("duckdb", f"DuckDB COPY … ORDER BY, {CORES} threads", 0.9),
        ("chdb", "chdb OPTIMIZE FINAL, ZSTD", 0.5),
    ):
        ratio = ours / found[name]
        line(text, found[name], ratio, f"≤ {goal}", verdict(ratio <= goal))


CHDB = """
import json, sys, time
from chdb import session
files, directory, rounds, cores = json.loads(sys.argv[1])
chdb = session.Session(directory)
times = []
for _ in range(rounds):
    chdb.query("DROP TABLE IF EXISTS t SYNC")
    chdb.query('''CREATE TABLE t (id Int64 CODEC(ZSTD(1)), time DateTime64(6) CODEC(ZSTD(1)),
        city LowCardinality(String) CODEC(ZSTD(1)), user String CODEC(ZSTD(1)),
        price Float64 CODEC(ZSTD(1))) ENGINE = MergeTree ORDER BY id''')
    chdb.query("SYSTEM STOP MERGES t")
    for file in files:
        chdb.query(f"INSERT INTO t SELECT * FROM file('{file}', Parquet) "
                   "SETTINGS max_insert_block_size = 1000000, min_insert_block_size_rows = 1000000")
    parts = int(str(chdb.query("SELECT count() FROM system.parts WHERE table = 't' AND active")))
    assert parts == len(files), parts
    chdb.query("SYSTEM START MERGES t")
    started = time.perf_counter()
    chdb.query("OPTIMIZE TABLE t FINAL")
    times.append(time.perf_counter() - started)
print(json.dumps(sorted(times)[rounds // 2]))
"""


def chdb_merges(files: list[str], root: Path) -> float:
    arguments = json.dumps([files, str(root / "chdb"), 3, CORES])
    output = subprocess.run(
        [sys.executable, "-c", CHDB, arguments], check=True, capture_output=True
    ).stdout
    return float(json.loads(output))


def small(root: Path, merger: Merger) -> None:
    merges = [parts(root / "small", 10, 1000, first=10 * number + 1) for number in range(100)]
    seconds = take_turns({"spark": lambda: run(merger, root, merges, table_of())[0]})["spark"]
    title("100 merges of 10 parts of 1,000 rows, one job", "seconds", "merges/s", "goal", "met")
    line(seconds, 100 / seconds, "≥ 30", verdict(100 / seconds >= 30))


def engines(root: Path, merger: Merger) -> None:
    sources = parts(root / "engines", 10, 500_000, ids=500_000)
    kinds: list[EngineKind] = ["MergeTree", "ReplacingMergeTree", "SummingMergeTree"]
    found = take_turns(
        {
            kind: partial(lambda kind: run(merger, root, [sources], table_of(kind))[0], kind)
            for kind in kinds
        }
    )
    title(
        "10 parts, 5 million rows, 90% of them duplicates",
        "engine", "seconds", "of the plain merge", "goal", "met",
    )  # fmt: skip
    for kind, seconds in found.items():
        ratio = seconds / found["MergeTree"]
        goal = kind == "ReplacingMergeTree"
        line(
            kind, seconds, ratio, "≤ 1.0" if goal else "", verdict(ratio <= 1.0) if goal else ""
        )


def memory(root: Path, merger: Merger, server: ConnectServer) -> None:
    sources = parts(root / "memory", 10, 5_000_000)
    size = sum(source.manifest.bytes_on_disk for source in sources)
    Path("/proc/self/clear_refs").write_text(
        "5", encoding="ascii"
    )  # forget our own peak so far
    seconds, _ = run(merger, root, [sources], table_of())
    title(
        f"Memory while merging 50 million rows, {size / 1e6:.0f} MB, {seconds:.1f} s",
        "process", "peak MB", "goal", "met",
    )  # fmt: skip
    peaks = [("Spark's server (driver)", peak_mb(server.pid))]
    for number, pid in enumerate(workers(server.pid)):
        peaks.append((f"Python worker {number}", peak_mb(pid)))
    peaks.append(("this process", peak_mb(os.getpid())))
    for name, peak in peaks:
        if not peak:
            continue
        line(name, peak, "< 1000", verdict(peak < 1000))


def peak_mb(pid: int | None) -> int:
    """0 for a process that has ended."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    peaks = [text.split()[1] for text in status.splitlines() if text.startswith("VmHWM")]
    return int(peaks[0]) // 1024 if peaks else 0


def workers(server: int | None) -> list[int]:
    """Processes that descend from the server: the daemon that forks workers, and those."""
    parents = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(directory.name)] = int(
                (directory / "stat").read_text().rpartition(")")[2].split()[1]
            )
        except OSError:
            continue
    found = {server}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(pid for pid in found if pid != server and pid is not None)
        found |= more


def main(chosen: set[str]) -> None:
    os.environ["PYTHONPATH"] = import_path()
    print(
        f"{platform.node()}: {platform.machine()}, {os.cpu_count()} cores, pyarrow {pa.__version__}, duckdb {duckdb.__version__}"
    )
    root = Path(tempfile.mkdtemp(prefix="rmt-bench-"))
    try:
        if "selection" in chosen:
            selection()
        if "kernels" in chosen:
            kernels(root)
        if not chosen - {"selection", "kernels"}:
            return
        java_home = find_java().env["JAVA_HOME"]
        log = root / "connect.log"
        with ConnectServer(
            log, port=free_port(), master=f"local[{CORES}]", java_home=java_home
        ) as server:
            sessions = SparkSessions(remote=server.url)
            merger = SparkMerger(sessions, RandomIds())
            if "large" in chosen:
                large(root, merger)
            if "small" in chosen:
                small(root, merger)
            if "engines" in chosen:
                engines(root, merger)
            if "memory" in chosen:
                memory(root, merger, server)
            sessions.close()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main(set(sys.argv[1:]) or {"selection", "kernels", "large", "small", "engines", "memory"})
