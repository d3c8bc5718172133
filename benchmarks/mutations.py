"""Mutations: DELETE and UPDATE of some rows against DuckDB; parts that no command is for; assigning.

    python benchmarks/mutations.py [rewrite] [untouched] [assigning]

All of them by default. `rewrite`: 5 million rows in 10 parts, file by file, on as many threads for
either side; both are warm. `untouched`: 10,000 small parts of which 10 have rows that match: how
many are looked at and cloned per second. `assigning`: a mutation of 10,000 parts written to the log.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402  after the path is set
import pyarrow as pa  # noqa: E402

from benchmarks.cluster import Cluster  # noqa: E402
from benchmarks.merges import (  # noqa: E402
    CORES,
    files_of,
    line,
    parts,
    rows,
    table_of,
    take_turns,
    timed,
    title,
    verdict,
    write_part,
)
from rmt_pipeline.compute.jobs.mutate import LocalMutator  # noqa: E402
from rmt_pipeline.compute.merge.job import SourcePart  # noqa: E402
from rmt_pipeline.compute.mutate.job import MutateDone, MutateJob, Untouched  # noqa: E402
from rmt_pipeline.context import ServerContext  # noqa: E402
from rmt_pipeline.protocol.parts.name import PartName  # noqa: E402
from rmt_pipeline.protocol.settings.query import QuerySettings  # noqa: E402
from rmt_pipeline.replica.assign.mutations import assign_mutations  # noqa: E402
from rmt_pipeline.replica.mutations.mutations import create_mutation  # noqa: E402
from rmt_pipeline.replica.pull_log import pull_log  # noqa: E402
from rmt_pipeline.replica.replica import Memory  # noqa: E402
from rmt_pipeline.store.disk import LocalDisk  # noqa: E402
from rmt_pipeline.store.part_store import PartStore  # noqa: E402
from rmt_pipeline.system import RandomIds, SystemClock  # noqa: E402
from rmt_pipeline.zookeeper.keeper import Keeper  # noqa: E402
from rmt_pipeline.zookeeper.snapshot import queue_snapshot  # noqa: E402
from tests.support.parts import clone  # noqa: E402

PARTS, ROWS_EACH = 10, 500_000
RATIO_MAX = 1.2
MANY_PARTS, DISTINCT_PARTS, SMALL_ROWS, MATCHING = 10_000, 100, 200, 10
UNTOUCHED_PER_S_MIN = 2_000
ASSIGN_S_MAX = 10
NEEDLE, NEEDLE_ID = "user-2500000x", 10**12
UNTOUCHED = {
    "least and greatest value": f"id = {NEEDLE_ID}",
    "a look at the column": f"user = '{NEEDLE}'",
    "DuckDB": f"endsWith(user, '{NEEDLE[-5:]}')",
}

DELETE = "DELETE WHERE id % 100 = 7"
UPDATE = "UPDATE price = price * 1.1 WHERE id % 100 = 7"
DELETE_TEXT = "DELETE WHERE endsWith(user, '07')"
AS_DUCKDB = {
    DELETE_TEXT: "SELECT * FROM read_parquet('{file}') WHERE NOT (suffix(user, '07'))",
    DELETE: "SELECT * FROM read_parquet('{file}') WHERE NOT (id % 100 = 7)",
    UPDATE: (
        "SELECT * REPLACE (CASE WHEN id % 100 = 7 THEN price * 1.1 ELSE price END AS price) "
        "FROM read_parquet('{file}')"
    ),
}


def mutate_some(work: tuple[str, Sequence[SourcePart], str]) -> list[bool]:
    """One process's share: for each part whether it was written. What was made stays until the
    end: removing it is slower than recognising that nothing is to be done.
    """
    root, sources, command = work
    staging_root = Path(tempfile.mkdtemp(dir=root))
    jobs = []
    for source in sources:
        staging = staging_root / source.name
        staging.mkdir()
        job = MutateJob(
            f"{source.name}_99", source, str(staging), table_of(), (command,), ("0",), 1
        )
        jobs.append(job)
    outcomes = list(LocalMutator(SystemClock()).mutate(jobs))
    for outcome in outcomes:
        assert isinstance(outcome, MutateDone | Untouched), outcome
    return [isinstance(outcome, MutateDone) for outcome in outcomes]


def ours(
    pool: ProcessPoolExecutor, root: Path, sources: Sequence[SourcePart], command: str
) -> list[bool]:
    shares = [(str(root), sources[core::CORES], command) for core in range(CORES)]
    return [written for share in pool.map(mutate_some, shares) for written in share]


def duckdbs(root: Path, sources: Sequence[SourcePart], command: str) -> None:
    with duckdb.connect(config={"threads": CORES}) as connection:
        for file in files_of(sources):
            connection.execute(
                f"COPY ({AS_DUCKDB[command].format(file=file)}) TO '{root}/duckdb.parquet' "
                "(FORMAT parquet, COMPRESSION zstd)"
            )


def rewrite(root: Path, pool: ProcessPoolExecutor) -> None:
    sources = parts(root / "large", PARTS, ROWS_EACH)
    title(
        f"{PARTS} parts of {ROWS_EACH} rows rewritten, {CORES} cores: median seconds",
        *("command", "ours", "DuckDB", "ratio", f"at most {RATIO_MAX}"),
    )
    for command in (DELETE, UPDATE, DELETE_TEXT):
        found = take_turns(
            {
                "ours": partial(timed, partial(ours, pool, root, sources, command)),
                "DuckDB": partial(timed, partial(duckdbs, root, sources, command)),
            }
        )
        ratio = found["ours"] / found["DuckDB"]
        line(command, found["ours"], found["DuckDB"], ratio, verdict(ratio <= RATIO_MAX))


def many_parts(root: Path, matching: int) -> list[SourcePart]:
    """Small parts under many names: hard links of a few. The first ones have the needle."""
    plain = parts(root / "made", DISTINCT_PARTS, SMALL_ROWS)
    needles = rows(7, SMALL_ROWS, ids=10**9)
    needles = needles.set_column(0, "id", pa.array([NEEDLE_ID] * SMALL_ROWS))
    needles = needles.set_column(3, "user", pa.array([NEEDLE] * SMALL_ROWS))
    needle = write_part(root / "made", "all_0_0_0", needles)
    store = root / "store"
    found = []
    for number in range(1, MANY_PARTS + 1):
        source = needle if number <= matching else plain[number % DISTINCT_PARTS]
        name = f"all_{number}_{number}_0"
        (store / name).mkdir(parents=True)
        for file in files_of([source]):
            os.link(file, store / name / Path(file).name)
        found.append(SourcePart(name, str(store / name), source.manifest))
    return found


def clone_some(work: tuple[str, Sequence[SourcePart], str]) -> tuple[int, int]:
    """One process's share of recognising and cloning: how many were cloned, how many written."""
    root, sources, command = work
    store = PartStore(LocalDisk(Path(root) / "store"), ids=RandomIds(), durable=False)
    jobs, stagings = [], {}
    for source in sources:
        staging = store.begin("mutate", f"{source.name}_99")
        job = MutateJob(
            *(f"{source.name}_99", source, staging.local_path(""), table_of()),
            *((command,), ("0",), 1),
        )
        jobs.append(job)
        stagings[job.result] = staging
    cloned = written = 0
    for outcome in LocalMutator(SystemClock()).mutate(jobs):
        if isinstance(outcome, Untouched):
            job, staging = outcome.job, stagings[outcome.job.result]
            store.clone_into(staging, PartName.parse(job.source.name), job.unchanged())
            cloned += 1
        else:
            assert isinstance(outcome, MutateDone), outcome
            written += 1
    return cloned, written


def untouched(root: Path, pool: ProcessPoolExecutor) -> None:
    sources = many_parts(root / "many", MATCHING)
    title(
        f"{MANY_PARTS} parts, {MATCHING} of them with rows that are meant: looked at and cloned",
        *("told by", "condition", "seconds", "parts/s", f"at least {UNTOUCHED_PER_S_MIN}"),
    )
    for told_by, condition in UNTOUCHED.items():
        share = [
            (str(root / "many"), sources[core::CORES], f"DELETE WHERE {condition}")
            for core in range(CORES)
        ]
        seconds, found = [], [(0, 0)]
        for _ in range(3):
            started_s = time.perf_counter()
            found = list(pool.map(clone_some, share))
            seconds.append(time.perf_counter() - started_s)
        cloned, written = (sum(counts) for counts in zip(*found, strict=True))
        assert (cloned, written) == (MANY_PARTS - MATCHING, MATCHING), (cloned, written)
        rate = MANY_PARTS / min(seconds)
        line(
            *(told_by, condition, min(seconds), rate),
            verdict(rate >= UNTOUCHED_PER_S_MIN),
        )


class Counting:
    """A keeper that counts what it is asked for."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.operations = self.packets = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._keeper, name)
        if name not in ("get", "get_many", "exists", "exists_many", "children", "multi"):
            return found

        def counted(asked: Any, *rest: Any) -> Any:
            many = len(asked) if not isinstance(asked, str) else 1
            self.operations += many
            self.packets += 1 if name == "multi" else many
            return found(asked, *rest)

        return counted


def assigning(_root: Path, _pool: ProcessPoolExecutor) -> None:
    """A table of many parts on a running server with a real ZooKeeper; nobody works its queue."""
    settings = {
        "max_replicated_mutations_in_queue": MANY_PARTS,
        "max_replicated_merges_in_queue": MANY_PARTS,
        "parts_to_delay_insert": 2 * MANY_PARTS,
        "parts_to_throw_insert": 2 * MANY_PARTS,
    }
    definition = replace(
        table_of(), settings=tuple((name, str(value)) for name, value in settings.items())
    )
    with Cluster(work=False) as cluster, ServerContext.open(cluster.config, "r1") as server:
        server.create_table(definition)
        table = server.table("bench")
        while table.replica.keeper.exists(table.replica.paths.is_active) is None:
            time.sleep(0.1)
        table.insert(rows(1, 10, ids=100))
        [first] = table.parts()
        query = QuerySettings(insert_deduplicate=False)
        for _ in range(0, MANY_PARTS, 500):
            staged = [clone(table.store, first.name, "insert", "all") for _ in range(500)]
            table.commit(staged, settings=query)
        pull_log(table.replica)
        create_mutation(table.replica, "DELETE WHERE id = -1")
        keeper: Any = Counting(table.replica.keeper)
        replica = replace(table.replica, keeper=keeper, memory=Memory())
        queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
        keeper.operations = keeper.packets = 0
        started_s = time.perf_counter()
        assigned = assign_mutations(replica)
        seconds = time.perf_counter() - started_s
        assert isinstance(assigned, list)
        each = keeper.operations / len(assigned)
        title(
            "Mutations assigned",
            *("parts", "seconds", f"under {ASSIGN_S_MAX}", "operations/part", "at most 2"),
            "packets",
        )
        line(
            *(len(assigned), seconds, verdict(seconds < ASSIGN_S_MAX)),
            *(each, verdict(each <= 2), keeper.packets),
        )


BENCHMARKS = {"rewrite": rewrite, "untouched": untouched, "assigning": assigning}


def main() -> None:
    wanted = sys.argv[1:] or list(BENCHMARKS)
    root = Path(tempfile.mkdtemp(prefix="rmt-mutations-"))
    try:
        with ProcessPoolExecutor(CORES) as pool:
            for name in wanted:
                BENCHMARKS[name](root, pool)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
