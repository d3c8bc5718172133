"""What it costs that no broken byte is answered: reading parts with and without the check.

    python -m benchmarks.reading [ROWS]

Processor time, the least of some. `first`: the bytes are hashed (a file that somebody has written to since it was known to be whole);
`noted`: a process reads parts that another has found whole; `again`: the same process once more.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rmt_pipeline.context import ServerContext
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store import layout
from tests.support.local_session import create, local_session, rows

ROWS = 4_000_000
PARTS = 10
REPEATS = 7
QUERIES = {
    "one column": "SELECT sum(n) FROM t",
    "all columns": "SELECT sum(n), max(s), sum(f) FROM t",
    "count": "SELECT count() FROM t",
}
UNCHECKED = " SETTINGS check_parts_before_reading = 0"


def best_ms(run: Callable[[], object], before: Callable[[], object]) -> float:
    found = []
    for _ in range(REPEATS):
        before()
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return min(found) * 1000


def forget(context: ServerContext, *, notes: bool) -> None:
    """What this process knows of parts, and what any process has noted."""
    store = context.table("t").store
    if notes:
        for part in store.parts():
            (Path(store.directory(part)) / layout.WHOLE).unlink(missing_ok=True)
    context._stores.clear()  # noqa: SLF001  as a new process begins


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
    store = session.context.server.table("t").store
    return sum(store.manifest(part).bytes_on_disk for part in store.parts())


def main() -> None:
    row_count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as directory, local_session(Path(directory)) as session:
        size = fill(session, row_count)
        context = session.context.server
        print(f"{row_count} rows, {PARTS} or more parts, {size / 1e6:.0f} MB")
        for name, query in QUERIES.items():
            plain = best_ms(partial(rows, session, query + UNCHECKED), lambda: None)
            again = best_ms(partial(rows, session, query), lambda: None)
            noted = best_ms(partial(rows, session, query), lambda: forget(context, notes=False))
            first = best_ms(partial(rows, session, query), lambda: forget(context, notes=True))
            print(
                f"{name:12} unchecked {plain:7.1f} ms   again {again:7.1f} ms "
                f"({again / plain - 1:+.1%})   noted {noted:7.1f} ms ({noted / plain - 1:+.1%})   "
                f"first {first:7.1f} ms"
            )


if __name__ == "__main__":
    main()
