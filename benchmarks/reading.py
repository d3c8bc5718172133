"""What it costs that no broken byte is answered: reading parts with and without the check.

    python -m benchmarks.reading [ROWS [SECONDS]]

Each run with the check has one without beside it, now before, now after it, and what is told is the
median of what they differ by, in processor time and in wall time, with the middle half of all
differences. `itself` is the same without any check: nothing below what it shows is told from zero.
`again`: a process that has read the parts before. `noted`: one that has not, of parts that another
one has found whole. `first`: nobody has, so the bytes are hashed, once per host. `cold`: no byte of
the files is in the page cache. Judged is what a scan costs, and not what is paid once per host, nor
a count, which reads no rows.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from rmt_pipeline.context import ServerContext
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store import layout
from tests.support.local_session import create, local_session, rows

ROWS = 4_000_000
PARTS = 10
SECONDS = 150.0
PAIRS_MIN = 4
ALLOWED = 0.05  # of processor time and of wall time
QUERIES = {
    "one column": "SELECT sum(n) FROM t",
    "all columns": "SELECT sum(n), max(s), sum(f) FROM t",
    "count": "SELECT count() FROM t",
}
UNCHECKED = " SETTINGS check_parts_before_reading = 0"
NO_SCANS = ("count", "first")


@dataclass(frozen=True, slots=True)
class Took:
    """One run, in seconds."""

    processor: float
    wall: float


def took(run: Callable[[], object]) -> Took:
    processor, wall = time.process_time(), time.perf_counter()
    run()
    return Took(time.process_time() - processor, time.perf_counter() - wall)


def forget(context: ServerContext, *, notes: bool) -> None:
    """What this process knows of parts, and what any process has noted."""
    store = context.table("t").store
    if notes:
        for part in store.parts():
            (Path(store.directory(part)) / layout.WHOLE).unlink(missing_ok=True)
    context._stores.clear()  # noqa: SLF001  as a new process begins


def drop_from_cache(context: ServerContext) -> None:
    """What is on the disk already, that is: who wrote it has to have synced it."""
    store = context.table("t").store
    for part in store.parts():
        for path in Path(store.directory(part)).iterdir():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def fill(session: Session, row_count: int) -> int:
    """Bytes of the table."""
    create(
        session,
        "CREATE TABLE t (n UInt64, s String, f Float64) "
        "ENGINE = ReplicatedMergeTree('/tables/t', 'r1') ORDER BY n",
    )
    each = row_count // PARTS
    for number in range(PARTS):
        session.execute(
            f"INSERT INTO t SELECT number + {number * each} AS n, hex(number * 1000003 % 998244353)"
            f" AS s, sin(number) AS f FROM system.numbers LIMIT {each}"
        )
    os.sync()
    store = session.context.server.table("t").store
    return sum(store.manifest(part).bytes_on_disk for part in store.parts())


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared: the query with `checked` behind it, and without the check."""

    name: str
    query: str
    checked: str
    before: Callable[[], None]
    """Each run, with the check or without."""


def cases(context: ServerContext) -> list[Case]:
    def warm() -> None:
        pass

    def cold() -> None:
        drop_from_cache(context)

    def noted() -> None:
        forget(context, notes=False)

    def first() -> None:
        forget(context, notes=True)

    def cold_first() -> None:
        first()
        cold()

    found = []
    for name, query in QUERIES.items():
        found += [
            Case(f"{name}, itself", query, UNCHECKED, warm),
            Case(f"{name}, again", query, "", warm),
            Case(f"{name}, noted", query, "", noted),
            Case(f"{name}, again, cold", query, "", cold),
        ]
    query = QUERIES["all columns"]
    found.append(Case("all columns, first", query, "", first))
    found.append(Case("all columns, first, cold", query, "", cold_first))
    return found


def one_pair(session: Session, case: Case, *, checked_first: bool) -> tuple[Took, Took]:
    """Without the check, and with it."""
    found = []
    settings = (UNCHECKED, case.checked)
    for setting in reversed(settings) if checked_first else settings:
        case.before()
        found.append(took(partial(rows, session, case.query + setting)))
    plain, checked = reversed(found) if checked_first else found
    return plain, checked


def told(pairs: list[tuple[float, float]]) -> tuple[float, str]:
    """By how much of the plain run's median, and in words."""
    plain = median(one for one, _ in pairs)
    differences = [other - one for one, other in pairs]
    low, middle, high = quantiles(differences, n=4)
    share = middle / plain
    return share, (
        f"{plain * 1000:7.1f} ms {middle * 1000:+7.2f} ms ({low * 1000:+.2f} to "
        f"{high * 1000:+.2f}) {share:+7.1%}"
    )


def main() -> int:
    row_count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    with tempfile.TemporaryDirectory() as directory, local_session(Path(directory)) as session:
        size = fill(session, row_count)
        all_cases = cases(session.context.server)
        pairs: dict[str, list[tuple[Took, Took]]] = {case.name: [] for case in all_cases}
        end = time.monotonic() + seconds
        rounds = 0
        while time.monotonic() < end or rounds <= PAIRS_MIN:
            rows(session, QUERIES["all columns"])  # notes are there, whoever removed them
            for case in all_cases:  # in turn: who runs beside us meanwhile is in all of them
                pair = one_pair(session, case, checked_first=bool(rounds % 2))
                if rounds:
                    pairs[case.name].append(pair)
            rounds += 1
        print(
            f"{row_count} rows, {PARTS} or more parts, {size / 1e6:.0f} MB; {rounds - 1} pairs"
        )
        print(f"{'':28} without, processor      more (middle half)        | the same, wall")
        over = []
        for name, found in pairs.items():
            processor, words = told([(one.processor, other.processor) for one, other in found])
            wall, wall_words = told([(one.wall, other.wall) for one, other in found])
            print(f"{name:26} {words}  | {wall_words}")
            is_scan = not any(word in name for word in NO_SCANS)
            if max(processor, wall) > ALLOWED and is_scan:
                over.append(name)
    print(f"above {ALLOWED:.0%}: {'; '.join(over) or 'none'}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
