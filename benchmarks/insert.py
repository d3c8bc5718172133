"""Inserts: small ones, of one and of many clients, one into many partitions, duplicates; ZooKeeper
requests.

    python -m benchmarks.insert [--clients 8] [--rounds 5] [--ensemble] [--profile]

Many clients are threads of one process, unpaced. With `--ensemble`, ZooKeeper is three servers. With `--profile`: where one client's time goes.

Beside ClickHouse's server of Debian's package, when it is installed, over the same ZooKeeper and in
the same run; else beside the figures of 2 cores that the design was made with.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from benchmarks.clickhouse import ClickHouse, clickhouse_directory, executable
from benchmarks.cluster import Cluster
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition
from rmt_pipeline.table import Table

SMALL_INSERTS = 300
ROWS = 10
PARTITIONS = 100
CLICKHOUSE_SMALL_S, CLICKHOUSE_PARTITIONS_S = 1 / 150, 0.56


def definition(name: str, partition_by: tuple[str, ...] = ()) -> TableDefinition:
    return TableDefinition(
        database="default",
        name=name,
        columns=(Column("k", "Int64"), Column("v", "String"), Column("p", "Int64")),
        engine=Engine("MergeTree", f"/bench/{name}", "{replica}"),
        order_by=("k",),
        partition_by=partition_by,
        settings=(("parts_to_delay_insert", "100000"), ("parts_to_throw_insert", "100000")),
    )


def small(number: int) -> pa.Table:
    keys = range(number * ROWS, (number + 1) * ROWS)
    return pa.table({"k": list(keys), "v": ["some text"] * ROWS, "p": [1] * ROWS})


def many_partitions(seed: int) -> pa.Table:
    numbers = list(range(1000))
    return pa.table(
        {
            "k": numbers,
            "v": [str(seed)] * 1000,
            "p": [number % PARTITIONS for number in numbers],
        }
    )


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def together(clients: int, first: int, insert: Callable[[int], object]) -> float:
    """Inserts a second of so many clients, each as fast as it goes."""
    with ThreadPoolExecutor(clients) as pool:
        seconds = timed(lambda: list(pool.map(insert, range(first, first + SMALL_INSERTS))))
    return SMALL_INSERTS / seconds


def profile() -> None:
    with Cluster(work=False) as cluster, cluster.context("r1") as server:
        server.create_table(definition("small"))
        table = server.table("small")
        wait_active(table)
        for number in range(20):
            table.insert(small(number))
        with cProfile.Profile() as profiled:
            for number in range(20, 20 + SMALL_INSERTS):
                table.insert(small(number))
    pstats.Stats(profiled).sort_stats("tottime").print_stats(40)


def ours(clients: int, rounds: int, ensemble: bool) -> dict[str, float]:
    with Cluster(work=False, ensemble=ensemble) as cluster, cluster.context("r1") as server:
        server.create_table(definition("small"))
        server.create_table(definition("parted", ("p",)))
        small_table, parted = server.table("small"), server.table("parted")
        wait_active(small_table, parted)
        for number in range(20):
            small_table.insert(small(number))
        before = cluster.requests()
        times = [
            timed(partial(small_table.insert, small(number)))
            for number in range(20, 20 + SMALL_INSERTS)
        ]
        per_insert = (cluster.requests() - before) / SMALL_INSERTS
        many = [
            together(clients, 1000 * number, lambda one: small_table.insert(small(one)))
            for number in range(1, rounds + 1)
        ]
        before = cluster.requests()
        duplicate = timed(lambda: small_table.insert(small(25)))
        duplicate_requests = cluster.requests() - before
        parted.insert(many_partitions(0))
        partitions = [
            timed(partial(parted.insert, many_partitions(seed))) for seed in range(1, 6)
        ]
    return {
        "small p50": statistics.median(times),
        "small per second": SMALL_INSERTS / sum(times),
        "per second, many clients": statistics.median(many),
        "100 partitions": statistics.median(partitions),
        "requests per small insert": per_insert,
        "duplicate": duplicate,
        "requests per duplicate": duplicate_requests,
    }


def wait_active(*tables: Table) -> None:
    for table in tables:
        while table.replica.keeper.exists(table.replica.paths.is_active) is None:
            time.sleep(0.05)


@contextmanager
def worked_pair(
    name: str, *, ensemble: bool = False, traced: bool = False
) -> Iterator[tuple[Cluster, ServerContext, Table]]:
    """Two servers that work, with a table of that name on both: r1, and its table."""
    with (
        Cluster(work=True, ensemble=ensemble, traced=traced) as cluster,
        cluster.context("r1") as r1,
        cluster.context("r2") as r2,
    ):
        for server in (r1, r2):
            server.create_table(definition(name))
        table = r1.table(name)
        wait_active(table, r2.table(name))
        yield cluster, r1, table


def theirs(clients: int, rounds: int, ensemble: bool) -> dict[str, float]:
    if executable() is None:
        return {"small p50": CLICKHOUSE_SMALL_S, "100 partitions": CLICKHOUSE_PARTITIONS_S}
    with (
        Cluster(work=False, ensemble=ensemble) as cluster,
        clickhouse_directory() as directory,
        ClickHouse("r1", directory, cluster.zookeeper_port) as server,
    ):
        for name, parted in (("small", ""), ("parted", "PARTITION BY p")):
            server.query(
                f"CREATE TABLE {name} (k Int64, v String, p Int64) ENGINE = "
                f"ReplicatedMergeTree('/clickhouse/{name}', 'r1') {parted} ORDER BY k"
            )
        times = [
            timed(partial(server.query, _values("small", small(number))))
            for number in range(SMALL_INSERTS)
        ]
        many = [
            together(
                clients,
                1000 * number,
                lambda one: server.query(_values("small", small(one))),
            )
            for number in range(1, rounds + 1)
        ]
        partitions = [
            timed(partial(server.query, _values("parted", many_partitions(seed))))
            for seed in range(1, 6)
        ]
    return {
        "small p50": statistics.median(times[20:]),
        "per second, many clients": statistics.median(many),
        "100 partitions": statistics.median(partitions),
    }


def _values(name: str, rows: pa.Table) -> str:
    values = ",".join(f"({row['k']},'{row['v']}',{row['p']})" for row in rows.to_pylist())
    return f"INSERT INTO {name} VALUES {values}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ensemble", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.profile:
        profile()
        return
    mine = ours(options.clients, options.rounds, options.ensemble)
    peer = theirs(options.clients, options.rounds, options.ensemble)
    print(f"{'':32} {'ours':>10} {'ClickHouse':>10} {'ratio':>6}")
    for name, value in mine.items():
        other = peer.get(name)
        if "per" in name:
            beside = f"{other:10.1f} {value / other:6.2f}" if other else ""
            print(f"{name:32} {value:10.1f} {beside}")
            continue
        shown = f"{other * 1000:7.1f} ms {value / other:6.2f}" if other else ""
        print(f"{name:32} {value * 1000:7.1f} ms {shown}")


if __name__ == "__main__":
    main()
