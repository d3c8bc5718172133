"""Inserts: small ones, one into many partitions, duplicates; ZooKeeper requests; rows per second.

    python benchmarks/insert.py

Beside ClickHouse's server of Debian's package, when it is installed, over the same ZooKeeper and in
the same run; else beside the figures of 2 cores that the design was made with.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks.clickhouse import ClickHouse, executable
from benchmarks.cluster import Cluster
from rmt_pipeline.protocol.table import Column, Engine, TableDefinition

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


def ours() -> dict[str, float]:
    with Cluster(work=False) as cluster, cluster.context("r1") as server:
        server.create_table(definition("small"))
        server.create_table(definition("parted", ("p",)))
        small_table, parted = server.table("small"), server.table("parted")
        wait_active(small_table, parted)
        for number in range(20):
            small_table.insert(small(number))
        before = cluster.requests()
        times = [
            timed(lambda n=number: small_table.insert(small(n)))
            for number in range(20, 20 + SMALL_INSERTS)
        ]
        per_insert = (cluster.requests() - before) / SMALL_INSERTS
        before = cluster.requests()
        duplicate = timed(lambda: small_table.insert(small(25)))
        duplicate_requests = cluster.requests() - before
        parted.insert(many_partitions(0))
        partitions = [
            timed(lambda s=seed: parted.insert(many_partitions(s))) for seed in range(1, 6)
        ]
    return {
        "small p50": statistics.median(times),
        "small per second": SMALL_INSERTS / sum(times),
        "100 partitions": statistics.median(partitions),
        "requests per small insert": per_insert,
        "duplicate": duplicate,
        "requests per duplicate": duplicate_requests,
    }


def wait_active(*tables: object) -> None:
    for table in tables:
        while table.replica.keeper.exists(table.replica.paths.is_active) is None:
            time.sleep(0.05)


def theirs() -> dict[str, float]:
    if executable() is None:
        return {"small p50": CLICKHOUSE_SMALL_S, "100 partitions": CLICKHOUSE_PARTITIONS_S}
    with Cluster(work=False) as cluster:
        directory = Path(tempfile.mkdtemp(prefix="rmt-bench-clickhouse-"))
        with ClickHouse("r1", directory, cluster.zookeeper_port) as server:
            for name, parted in (("small", ""), ("parted", "PARTITION BY p")):
                server.query(
                    f"CREATE TABLE {name} (k Int64, v String, p Int64) ENGINE = "
                    f"ReplicatedMergeTree('/clickhouse/{name}', 'r1') {parted} ORDER BY k"
                )
            times = [
                timed(lambda n=number: server.query(_values("small", small(n))))
                for number in range(SMALL_INSERTS)
            ]
            partitions = [
                timed(lambda s=seed: server.query(_values("parted", many_partitions(s))))
                for seed in range(1, 6)
            ]
    return {
        "small p50": statistics.median(times[20:]),
        "100 partitions": statistics.median(partitions),
    }


def _values(name: str, rows: pa.Table) -> str:
    values = ",".join(f"({row['k']},'{row['v']}',{row['p']})" for row in rows.to_pylist())
    return f"INSERT INTO {name} VALUES {values}"


def main() -> None:
    mine, peer = ours(), theirs()
    print(f"{'':32} {'ours':>10} {'ClickHouse':>10} {'ratio':>6}")
    for name, value in mine.items():
        if "per" in name:
            print(f"{name:32} {value:10.1f}")
            continue
        other = peer.get(name)
        shown = f"{other * 1000:7.1f} ms {value / other:6.2f}" if other else ""
        print(f"{name:32} {value * 1000:7.1f} ms {shown}")


if __name__ == "__main__":
    main()
