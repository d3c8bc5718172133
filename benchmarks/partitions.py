"""What commands on partitions cost: a drop of many parts, a replacement by hard links, and days that
are replaced one by one beside days that are inserted.

    python -m benchmarks.partitions [--parts 10000] [--linked 1000] [--days 365] [--rows 1000]
    python -m benchmarks.partitions --servers [--only drop] [--mb 1000] [--fetched 64]

Two replicas in this process on real disks, over a fake ZooKeeper: what is measured is this program
and the disk; of ZooKeeper the number of multis and the bytes of the largest one are told.

With `--servers` on two `rmt serve --work` over a ZooKeeper, all of it or one of `--only`:

drop     from the statement until neither promises a part any more, and until no directory is left;
         the packets that ZooKeeper got
replace  `--linked` parts of `--mb` together go from one table to another by hard links
days     one after the other, inserted and replaced, through the Python API
fetch    `--fetched` parts by the part exchange, by FETCH PARTITION, and by the ATTACH of parts that
         the other replica does not have

Beside the time the CPU is told that this process and the servers took: it counts on a machine that
is busy with other things.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.catchup import fill as fill_in_log
from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active
from benchmarks.restart import cpu_s
from benchmarks.restart import fill as fill_by_links
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, Engine
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.store.disk import SETTLED_NS
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.batches import batches, op_bytes
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.local_replicas import Replicas, definition_of

NOW = QuerySettings(alter_sync=0, receive_timeout=0)
MANY = {"parts_to_throw_insert": 10**6, "parts_to_delay_insert": 10**6}
TEXT_BYTES = 64
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


# --- on servers -------------------------------------------------------------------------------


class Servers:
    """Two of them, and tables that both have."""

    def __init__(self, cluster: Cluster, contexts: dict[str, ServerContext]) -> None:
        self.cluster = cluster
        self.contexts = contexts

    def tables(self, name: str, partition_by: tuple[str, ...] = ()) -> dict[str, Table]:
        for context in self.contexts.values():
            context.create_table(definition(name, partition_by))
        tables = {server: context.table(name) for server, context in self.contexts.items()}
        wait_active(*tables.values())
        for table in tables.values():
            table.store.marks.stop(Background.MERGES)
        return tables

    @contextmanager
    def timed(self, title: str) -> Iterator[None]:
        used_s = {name: cpu_s(self.cluster.pid(name)) for name in self.contexts}
        mine_s, began_s = time.process_time(), time.perf_counter()
        yield
        seconds = time.perf_counter() - began_s
        used = ", ".join(
            f"{name} {cpu_s(self.cluster.pid(name)) - before_s:.1f} s"
            for name, before_s in used_s.items()
        )
        mine_s = time.process_time() - mine_s
        print(f"{title}: {seconds:.2f} s; CPU here {mine_s:.1f} s, {used}", flush=True)


@contextmanager
def on_servers() -> Iterator[Servers]:
    with (
        Cluster(work=True) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        yield Servers(cluster, {"r1": r1, "r2": r2})


def drop_on_servers(servers: Servers, asked: argparse.Namespace) -> None:
    cluster, parts = servers.cluster, asked.parts
    tables = servers.tables("dropped")
    tables["r1"].insert(small(0), quorum=2)
    for table in tables.values():
        fill_by_links(table, parts, 0)
    keeper, paths = servers.contexts["r1"].keeper(), tables["r1"].replica.table
    ids = [Create(paths.block(f"all_{n}"), f"all_{n}_{n}_0".encode()) for n in range(1, parts)]
    for batch in batches(ids, bytes_max=limits.MULTI_BYTES_MAX):
        keeper.multi(batch)

    before = cluster.requests()
    with servers.timed(f"DROP PARTITION of {parts} parts, and all directories are gone"):
        began_s = time.perf_counter()
        tables["r1"].drop_partitions(["all"], settings=NOW)
        told("  it is in the log", time.perf_counter() - began_s)
        promising, polls = dict(tables), 0
        while promising:
            found = keeper.exists_many([one.replica.paths.parts for one in promising.values()])
            polls += len(found)
            for name, stat in zip([*promising], found, strict=True):
                if stat is not None and not stat.children_count:
                    del promising[name]
                    told(f"  {name} promises none any more", time.perf_counter() - began_s)
            time.sleep(0.02)
        asked_of_it = cluster.requests() - before - polls
        while any(table.store.parts() for table in tables.values()):
            time.sleep(0.1)
    print(f"  {asked_of_it} packets to ZooKeeper")


def of_size(size: int, text_bytes: int = TEXT_BYTES) -> pa.Table:
    """As `small`, but so many bytes that nothing compresses."""
    values = [os.urandom(text_bytes // 2).hex() for _ in range(size // (text_bytes // 2))]
    count = len(values)
    return pa.table({"k": [*range(count)], "v": values, "p": [1] * count})


def as_written(table: Table) -> None:
    """Parts that are links of one file become as those that were inserted, merged or fetched: each
    has a file of its own, and is known to be whole. Else each link to one would be a change to all,
    and the replacement read all bytes of all parts. What has just been written nobody notes as
    whole: the next write may be within the same tick of the clock.
    """
    store = table.store
    for part in store.parts():
        for file in store.manifest(part).files:
            path = Path(f"{store.directory(part)}/{file.name}")
            copy = path.with_name("copy")
            shutil.copyfile(path, copy)
            copy.rename(path)
    time.sleep(2 * SETTLED_NS / 1e9)
    for part in store.parts():
        store.verify_changed(part)


def replace_on_servers(servers: Servers, asked: argparse.Namespace) -> None:
    """Twice: the second time what comes replaces as many parts."""
    source, replaced = servers.tables("source"), servers.tables("replaced")
    source["r1"].insert(of_size(asked.mb * 10**6 // asked.linked), quorum=2)
    for table in source.values():
        fill_by_links(table, asked.linked, 0)
        as_written(table)
    size = sum(part.manifest.bytes_on_disk for part in source["r1"].parts())
    for what in ("nothing", f"{asked.linked} parts"):
        title = f"REPLACE PARTITION of {what} by {asked.linked} parts of {size / 10**6:.0f} MB"
        with servers.timed(f"{title}, on both replicas"):
            began_s = time.perf_counter()
            replaced["r1"].replace_partition("all", source["r1"], settings=NOW)
            told("  here", time.perf_counter() - began_s)
            replaced["r2"].sync()
    found = {name: len(table.parts()) for name, table in replaced.items()}
    assert found == dict.fromkeys(servers.contexts, asked.linked), found


def days_on_servers(servers: Servers, asked: argparse.Namespace) -> None:
    [table, _] = servers.tables("days", ("p",)).values()
    for first in (0, 1):  # what is loaded with the first of each
        table.insert(a_day(asked.days, first, asked.rows))
        table.replace(a_day(asked.days, first + 2, asked.rows), partition=str(asked.days))
    for title, put in (
        ("inserted", lambda day: table.insert(a_day(day, 0, asked.rows))),
        ("replaced", lambda day: table.replace(a_day(day, 7, asked.rows), partition=str(day))),
        ("replaced, which changes nothing,", None),
    ):
        again = put or (
            lambda day: table.replace(a_day(day, 7, asked.rows), partition=str(day))
        )
        before = servers.cluster.requests()
        with servers.timed(f"{asked.days} days of {asked.rows} rows {title} one by one"):
            for day in range(asked.days):
                again(day)
        packets = (servers.cluster.requests() - before) / asked.days
        print(f"  {packets:.1f} packets to ZooKeeper for each")


def a_day(number: int, first: int, rows: int) -> pa.Table:
    return pa.table(
        {"k": [*range(first, first + rows)], "v": ["some text"] * rows, "p": [number] * rows}
    )


def fetch_on_servers(servers: Servers, asked: argparse.Namespace) -> None:
    sent, fetched = servers.tables("sent"), servers.tables("fetched")
    sent["r1"].insert(of_size(asked.mb * 10**6 // 10 // asked.fetched), quorum=2)
    sent["r2"].store.marks.stop(Background.FETCHES)
    fill_in_log(sent["r1"].replica, asked.fetched, in_log=True)
    size = sum(part.manifest.bytes_on_disk for part in sent["r1"].parts())
    of = f"{asked.fetched} parts of {size / 10**6:.0f} MB"
    with servers.timed(f"the part exchange sends {of}"):
        sent["r2"].store.marks.go_on(Background.FETCHES)
        until_there(sent["r2"], asked.fetched)
    with servers.timed(f"FETCH PARTITION of {of}"):
        fetched["r1"].fetch_partition(sent["r1"].replica.table.root, "all")
    with servers.timed(f"ATTACH PARTITION of {of}, which the other replica fetches"):
        began_s = time.perf_counter()
        fetched["r1"].attach("all")
        told("  here", time.perf_counter() - began_s)
        until_there(fetched["r2"], asked.fetched)


def until_there(table: Table, parts: int) -> None:
    replica = table.replica
    while True:
        stat = replica.keeper.exists(replica.paths.parts)
        if stat is not None and stat.children_count == parts:
            return
        time.sleep(0.02)


ON_SERVERS = {
    "drop": drop_on_servers,
    "replace": replace_on_servers,
    "days": days_on_servers,
    "fetch": fetch_on_servers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--parts", type=int, default=10_000, help="of the partition dropped")
    parser.add_argument("--linked", type=int, default=1000, help="parts that are replaced")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--rows", type=int, default=1000, help="of a day")
    parser.add_argument("--mb", type=int, default=1000, help="of the parts that are linked")
    parser.add_argument("--fetched", type=int, default=64, help="parts of a tenth of --mb")
    parser.add_argument("--servers", action="store_true", help="on two servers")
    parser.add_argument("--only", choices=ON_SERVERS, help="on two servers")
    asked = parser.parse_args()
    if asked.servers:
        with on_servers() as servers:
            for name, measure in ON_SERVERS.items():
                if asked.only in (None, name):
                    measure(servers, asked)
        return
    with tempfile.TemporaryDirectory() as place:
        drop_many(Path(place) / "drop", asked.parts)
        replace_linked(Path(place) / "replace", asked.linked)
        replace_days(Path(place) / "days", asked.days, asked.rows)


if __name__ == "__main__":
    main()
