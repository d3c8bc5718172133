"""One large part from a replica to another, beside what a copy and its hash cost.

    python -m benchmarks.exchange [--mb 500] [--rounds 5]

Over loopback, from an `rmt serve` into a store of this process, which hashes what arrives; beside it
`cp` and then `sha256sum` of the same file. Nothing is synced, in neither. By turns; the medians.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.cluster import Cluster
from benchmarks.insert import definition, timed, wait_active
from benchmarks.partitions import of_size
from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import RandomIds

TEXT_BYTES = 100_000  # few rows, which one block takes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with Cluster(work=False) as cluster, cluster.context("r1") as r1:
        r1.create_table(definition("sent"))
        table = r1.table("sent")
        wait_active(table)
        table.insert(of_size(options.mb * 10**6, TEXT_BYTES))
        replica = table.replica
        [part] = replica.store.parts()
        [file] = replica.store.files(part)
        address = ReplicaAddress.decode(replica.keeper.get(replica.paths.host)[0])
        request = FetchRequest(address, replica.paths.root, part)
        peers = r1.peers(table.definition)
        exchanged, copied = [], []
        with tempfile.TemporaryDirectory(dir=cluster.directory) as place:
            store = PartStore(LocalDisk(place), ids=RandomIds())
            copying = f"cp {file} {place}/copy && sha256sum {place}/copy"
            for _ in range(options.rounds + 1):  # the first one is not counted
                began_s = time.perf_counter()
                [[(_, staged)]] = peers.fetch([request], store)
                exchanged.append(time.perf_counter() - began_s)
                assert isinstance(staged, StagedPart), staged
                store.discard(staged)
                copied.append(timed(lambda: subprocess.check_output(copying, shell=True)))
        peers.close()
        size_mb = Path(file).stat().st_size / 1e6
    ours, theirs = (statistics.median(each[1:]) for each in (exchanged, copied))
    print(f"one part of {size_mb:.0f} MB, load {os.getloadavg()[0]:.1f}")
    print(f"  exchange         {ours:6.2f} s {size_mb / ours:6.0f} MB/s")
    print(f"  cp and sha256sum {theirs:6.2f} s {size_mb / theirs:6.0f} MB/s")
    print(f"  of their speed   {theirs / ours:6.2f}")


if __name__ == "__main__":
    main()
