"""Mutations: DELETE and UPDATE of some rows against DuckDB; parts that no command is for.

    python benchmarks/mutations.py [rewrite] [untouched]

All of them by default. `rewrite`: 5 million rows in 10 parts, file by file, on as many threads for
either side; both are warm. `untouched`: 1,000 small parts without a row that matches: how many
are recognised per second.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402  after the path is set

from benchmarks.merges import (  # noqa: E402
    CORES,
    files_of,
    line,
    parts,
    table_of,
    take_turns,
    timed,
    title,
    verdict,
)
from rmt_pipeline.compute.merge_job import SourcePart  # noqa: E402
from rmt_pipeline.compute.mutate import LocalMutator  # noqa: E402
from rmt_pipeline.compute.mutate_job import MutateDone, MutateJob, Untouched  # noqa: E402
from rmt_pipeline.system import SystemClock  # noqa: E402

PARTS, ROWS_EACH = 10, 500_000
RATIO_MAX = 1.2
SMALL_PARTS, SMALL_ROWS = 1_000, 200
UNTOUCHED_PER_S_MIN = 2_000

DELETE = "DELETE WHERE id % 100 = 7"
UPDATE = "UPDATE price = price * 1.1 WHERE id % 100 = 7"
AS_DUCKDB = {
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
    for command in (DELETE, UPDATE):
        found = take_turns(
            {
                "ours": lambda command=command: timed(
                    lambda: ours(pool, root, sources, command)
                ),
                "DuckDB": lambda command=command: timed(
                    lambda: duckdbs(root, sources, command)
                ),
            }
        )
        ratio = found["ours"] / found["DuckDB"]
        line(command, found["ours"], found["DuckDB"], ratio, verdict(ratio <= RATIO_MAX))


def untouched(root: Path, pool: ProcessPoolExecutor) -> None:
    sources = parts(root / "small", SMALL_PARTS, SMALL_ROWS)
    least = sources[0].manifest
    command = "DELETE WHERE user = 'nobody'"
    assert least.rows == SMALL_ROWS
    found = take_turns({"ours": lambda: timed(lambda: ours(pool, root, sources, command))})
    rate = SMALL_PARTS / found["ours"]
    title("Parts that no command is for", "parts", "seconds", "parts/s", "wanted", "")
    line(
        SMALL_PARTS,
        found["ours"],
        rate,
        UNTOUCHED_PER_S_MIN,
        verdict(rate >= UNTOUCHED_PER_S_MIN),
    )


def main() -> None:
    wanted = sys.argv[1:] or ["rewrite", "untouched"]
    root = Path(tempfile.mkdtemp(prefix="rmt-mutations-"))
    try:
        with ProcessPoolExecutor(CORES) as pool:
            for name in wanted:
                {"rewrite": rewrite, "untouched": untouched}[name](root, pool)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
