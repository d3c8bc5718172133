"""What commands on partitions cost: a drop of many parts, a replacement by hard links, and days that
are replaced one by one beside days that are inserted.

    python -m benchmarks.partitions [--parts 10000] [--linked 1000] [--days 60] [--rows 1000]

Two replicas in this process on real disks, over a fake ZooKeeper: what is measured is this program
and the disk; of ZooKeeper the number of multis and the bytes of the largest one are told.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, Engine
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.batches import op_bytes
from tests.support.local_replicas import Replicas, definition_of

NOW = QuerySettings(alter_sync=0, receive_timeout=0)
MANY = {"parts_to_throw_insert": 10**6, "parts_to_delay_insert": 10**6}
COLUMNS = (Column("p", "UInt32"), Column("n", "UInt64"))


@dataclass
class Multis:
    count: int = 0
    largest_bytes: int = 0
    last_s: float = 0.0
    """When the last one was answered (monotonic): what it does everybody sees then."""


@contextmanager
def counted(replicas: Replicas) -> Iterator[Multis]:
    """The multis of both replicas' sessions."""
    found = Multis()
    rights = []
    for name in ("r1", "r2"):
        keeper: Any = replicas[name].keeper
        multi = keeper.multi

        def counting(ops: Any, multi: Callable[[Any], list[str]] = multi) -> list[str]:
            found.count += 1
            size = sum(op_bytes(op, limits.OP_FRAME_BYTES) for op in ops)
            found.largest_bytes = max(found.largest_bytes, size)
            try:
                return multi(ops)
            finally:
                found.last_s = time.monotonic()

        keeper.multi = counting
        rights.append((keeper, multi))
    try:
        yield found
    finally:
        for keeper, multi in rights:
            keeper.multi = multi


def table_of(name: str) -> Callable[[str], Any]:
    def define(replica: str) -> Any:
        return replace(
            definition_of(replica, COLUMNS),
            name=name,
            engine=Engine("MergeTree", f"/tables/{name}", replica),
            partition_by=("p",),
        )

    return define


def fill(replicas: Replicas, partition: int, parts: int, rows: int) -> None:
    """So many parts in one partition, as one insert in blocks of that size."""
    replicas.set(**MANY)
    small = QuerySettings(max_insert_block_size=rows, min_insert_block_size_rows=rows)
    for start in range(0, parts, 500):
        count = min(500, parts - start) * rows
        values = pa.array(range(start * rows, start * rows + count), pa.uint64())
        data = pa.table({"p": pa.array([partition] * count, pa.uint32()), "n": values})
        staged = replicas.table("r1")
        for at in range(0, count, 90 * rows):  # fewer than would be joined to larger blocks
            staged.insert(data.slice(at, 90 * rows), settings=small)


def work(replicas: Replicas, *names: str) -> None:
    for name in names or ("r1", "r2"):
        pull_log(replicas[name])
        executor = replicas.executor(name, "fetch")
        while executor.step(None).did_something:
            pass


def told(title: str, seconds: float, multis: Multis | None = None) -> None:
    size = (
        ""
        if multis is None
        else f", {multis.count} multis of at most {multis.largest_bytes} bytes"
    )
    print(f"{title}: {seconds:.2f} s{size}", flush=True)


def drop_many(directory: Path, parts: int) -> None:
    with Replicas(directory, define=table_of("t")) as replicas:
        fill(replicas, 1, parts, 1)
        work(replicas)
        with counted(replicas) as multis:
            began = time.monotonic()
            replicas.table("r1").drop_partitions(["1"], settings=NOW)
            work(replicas)
            gone_s = time.monotonic()
            told(
                f"DROP PARTITION of {parts} parts, promised by no replica",
                multis.last_s - began,
                multis,
            )
            told("  and their directories gone", gone_s - began)
        assert replicas.parts("r1") == replicas.parts("r2") == []


def replace_linked(directory: Path, parts: int) -> None:
    with Replicas(directory / "s", define=table_of("s")) as s:
        t = Replicas(directory / "t", define=table_of("t"), beside=s)
        fill(s, 1, parts, 10)
        work(s, "r2")
        fill(t, 1, 100, 10)
        work(t, "r2")
        with counted(t) as multis:
            began = time.monotonic()
            t.table("r1").replace_partition("1", s.table("r1"), settings=NOW)
            here = time.monotonic() - began
            told(f"REPLACE PARTITION of {parts} parts by hard links, here", here, multis)
            began = time.monotonic()
            work(t, "r2")
            told("  and on the other replica", time.monotonic() - began)
        assert len(t.parts("r1")) == len(t.parts("r2")) == parts


def replace_days(directory: Path, days: int, rows: int) -> None:
    def day(number: int, first: int) -> pa.Table:
        values = pa.array(range(first, first + rows), pa.uint64())
        return pa.table({"p": pa.array([number] * rows, pa.uint32()), "n": values})

    with Replicas(directory, define=table_of("t")) as replicas:
        table = replicas.table("r1")
        for first in (0, 1):  # what is loaded with the first of each
            table.insert(day(days, first))
            table.replace(day(days, first + 2), partition=str(days), settings=NOW)
        began = time.monotonic()
        for number in range(days):
            table.insert(day(number, 0))
        inserted = time.monotonic() - began
        told(f"{days} days of {rows} rows inserted", inserted)
        work(replicas)
        began = time.monotonic()
        for number in range(days):
            table.replace(day(number, 7), partition=str(number), settings=NOW)
        replaced = time.monotonic() - began
        told(f"  and replaced one by one, {replaced / inserted:.1f} times that", replaced)
        began = time.monotonic()
        for number in range(days):
            assert table.replace(
                day(number, 7), partition=str(number), settings=NOW
            ).is_duplicate
        told("  and once more, which changes nothing", time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--parts", type=int, default=10_000, help="of the partition dropped")
    parser.add_argument("--linked", type=int, default=1000, help="parts that are replaced")
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--rows", type=int, default=1000, help="of a day")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        drop_many(Path(place) / "drop", asked.parts)
        replace_linked(Path(place) / "replace", asked.linked)
        replace_days(Path(place) / "days", asked.days, asked.rows)


if __name__ == "__main__":
    main()
