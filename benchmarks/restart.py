"""How long a server takes to be active again with many parts and a long queue, and its memory.

    python -m benchmarks.restart [--parts 10000] [--entries 10000]

`rmt serve r1` is killed, and started again over a table with so many parts on its disk and so many
entries in its queue. Until `/health` says that every table may be read and written; the peak of the
process's memory until then, and after ten more seconds.
"""

import argparse
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, small, wait_active
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import Create, Op
from rmt_pipeline.zookeeper.restore_transactions import skip_numbers
from tests.support.parts import clone

BYTES = 512 * 1024


def fill(table: Table, parts: int, entries: int) -> None:
    """Copies of the table's only part, by hard links and without fsync, and fetches of parts that
    nobody has.
    """
    replica = table.replica
    store = PartStore(table.store.disk, ids=replica.ids, durable=False)
    keeper = replica.keeper
    [first] = store.parts()
    header = store.manifest(first).header().encode()
    copies = [PartName(first.partition, block, block, 0) for block in range(1, parts)]
    for part in copies:
        store.publish(clone(store, first, "insert", "copy"), part)
    partition = replica.table.partition(first.partition)
    prefix = replica.table.lock_prefix(first.partition)
    while (stat := keeper.exists(partition)) is not None and stat.next_sequence < (
        parts + entries
    ):
        keeper.multi(skip_numbers(partition, prefix, stat.next_sequence, 200, stat.version))
    for batch in batches(list(_nodes(replica, copies, header, entries)), bytes_max=BYTES):
        keeper.multi(batch)


def _nodes(
    replica: Replica, copies: list[PartName], header: bytes, entries: int
) -> Iterator[Op]:
    for part in copies:
        yield Create(replica.paths.part(part), header)
    now_s = int(replica.clock.now_s())
    for block in range(len(copies) + 1, len(copies) + 1 + entries):
        part = PartName(copies[0].partition, block, block, 0)
        entry = GetPart(create_time=now_s, source_replica="r2", part=part)
        yield Create(replica.paths.queue_prefix, encode(entry), sequence=True)


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return int(found["VmHWM"].split()[0]) / 1024


def cpu_s(pid: int) -> float:
    """What counts on a machine that is busy with other things."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=10_000)
    options = parser.parse_args()
    with Cluster(work=False) as cluster:
        with cluster.context("r1") as r1:
            r1.create_table(definition("restarted"))
            table = r1.table("restarted")
            wait_active(table)
            table.insert(small(0))
            fill(table, options.parts, options.entries)
        os.kill(cluster.pid("r1"), signal.SIGKILL)
        began = time.perf_counter()
        cluster.serve("r1")
        seconds = time.perf_counter() - began
        peak, busy = peak_mb(cluster.pid("r1")), cpu_s(cluster.pid("r1"))
        time.sleep(10)
        later = peak_mb(cluster.pid("r1"))
    print(f"{options.parts} parts, {options.entries} queue entries: ", end="")
    print(f"active after {seconds:.1f} s, of which {busy:.1f} s CPU; {peak:.0f} MB, ", end="")
    print(f"{later:.0f} MB ten seconds later")


if __name__ == "__main__":
    main()
