"""What it costs to read all parts whole: CHECK TABLE beside sha256sum, and the scrub at its default rate.

    python -m benchmarks.scrub [--parts 6] [--rows 4000000] [--rounds 3]

One table in this process, on a real disk; the same files for both, which the page cache has. Of each
the fastest of some rounds, taken in turns, and the least CPU, which counts on a busy machine. Then
the scrub for some seconds, and the CPU that it took.
"""

import argparse
import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rmt_pipeline.exchange.bandwidth import Bandwidth
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.upkeep.scrub import check_whole, checked_parts
from rmt_pipeline.system import SystemClock
from tests.support.local_replicas import Replicas

SCRUBBED_S = 10.0


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_s: float


def cost_of(what: Callable[[], object], whose: int) -> Cost:
    began_s, before_s = time.perf_counter(), _cpu_s(whose)
    what()
    return Cost(time.perf_counter() - began_s, _cpu_s(whose) - before_s)


def _cpu_s(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def check(replicas: Replicas) -> None:
    assert not any(one.problem for one in checked_parts(replicas["r1"]))


def sha256sum(files: list[str]) -> None:
    subprocess.run(["sha256sum", *files], check=True, stdout=subprocess.DEVNULL)


def scrubbed(replicas: Replicas) -> float:
    """The share of a core, while it reads as fast as it does when nobody sets anything."""
    clock, replica = SystemClock(), replicas["r1"]
    rate = Bandwidth(lambda: TableSettings().scrub_bytes_per_second, clock)
    began_s, cpu_s = time.perf_counter(), time.process_time()
    ends_s = began_s + SCRUBBED_S

    def pace(size: int) -> None:
        wait_s = rate.wait_s(size)
        if time.perf_counter() > ends_s:
            raise TimeoutError
        clock.sleep_s(wait_s)

    try:
        for part in replica.store.parts():
            check_whole(replica, part, pace)
    except TimeoutError:
        pass
    return (time.process_time() - cpu_s) / (time.perf_counter() - began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--parts", type=int, default=6)
    parser.add_argument("--rows", type=int, default=4_000_000, help="of a part")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, Replicas(Path(place)) as replicas:
        chance = random.Random(1)
        for _ in range(asked.parts):
            numbers = pa.py_buffer(chance.randbytes(8 * asked.rows))
            column = pa.Array.from_buffers(pa.uint64(), asked.rows, [None, numbers])
            replicas.table("r1").insert(pa.table({"n": column}))
        store = replicas["r1"].store
        files = [path for part in store.parts() for path in store.files(part)]
        size = sum(Path(path).stat().st_size for path in files)
        theirs, ours = [], []
        for _ in range(asked.rounds):
            theirs.append(cost_of(lambda: sha256sum(files), resource.RUSAGE_CHILDREN))
            ours.append(cost_of(lambda: check(replicas), resource.RUSAGE_SELF))
        print(f"{size / 1e6:.0f} MB")
        for name, costs in (("sha256sum", theirs), ("CHECK TABLE", ours)):
            seconds, cpu_s = min(one.seconds for one in costs), min(one.cpu_s for one in costs)
            print(f"{name:12} {size / 1e6 / seconds:6.0f} MB/s, {cpu_s:.2f} s CPU")
        faster = min(one.seconds for one in theirs) / min(one.seconds for one in ours)
        less = min(one.cpu_s for one in theirs) / min(one.cpu_s for one in ours)
        print(f"CHECK TABLE is {faster:.2f} times as fast; by CPU {less:.2f} times")
        print(f"the scrub at its default rate: {100 * scrubbed(replicas):.1f} % of a core")


if __name__ == "__main__":
    main()
