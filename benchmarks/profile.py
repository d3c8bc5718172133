"""Where the processor's time of a small insert goes: milliseconds of each process, by thread, and with
`--spy` a profile of each.

    python -m benchmarks.profile [--inserts 1000] [--rate 100] [--spy DIRECTORY]

Two `rmt serve --work` over one ZooKeeper and one client, as in `benchmarks.replication`, with merges
going on and Spark there. What a server has started (Spark's JVM, its Python workers) has lines of
its own. `--spy` needs py-spy (`pip install py-spy`); it writes a line for each stack, with how often
it was seen, for a flame graph or `sort`. Processor time hardly depends on what else the machine does.
"""

import argparse
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.insert import small, worked_pair
from benchmarks.replication import delays_ms, paced

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
THREADS_SHOWN = 8
SHOWN_MIN_MS = 0.05
WARM_UP = 100
SPY_S = 600


def family(pid: int) -> list[tuple[int, str]]:
    """The process and all that it has begun, with the name of each one's program."""
    parents: dict[int, tuple[int, str]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                name, _, fields = (
                    (process / "stat").read_text().partition("(")[2].rpartition(")")
                )
            except OSError:
                continue  # it has ended
            parents[int(process.name)] = int(fields.split()[1]), name
    found = [pid]
    for one in found:
        found += [child for child, (parent, _) in parents.items() if parent == one]
    return [(one, parents[one][1]) for one in found if one in parents]


def spent(pid: int) -> Counter[tuple[str, str]]:
    """Ticks of the processor in programs ("user") and for them ("system"), and how often the
    processor went to another thread, each by thread. All others are ours: of us only what we do.
    """
    counted: Counter[tuple[str, str]] = Counter()
    for one, program in [(pid, "")] if pid == os.getpid() else family(pid):
        for task in Path(f"/proc/{one}/task").iterdir():
            try:
                stat = (task / "stat").read_text()
                status = (task / "status").read_text()
            except OSError:
                continue
            name, fields = stat.partition("(")[2].rpartition(")")[0], stat.rpartition(")")[2]
            thread = f"{name} {task.name}" if one == pid else f"{program} (process {one})"
            counted["user", thread] += int(fields.split()[11])
            counted["system", thread] += int(fields.split()[12])
            counted["switches", thread] += sum(
                int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line
            )
    return counted


def show(who: str, times: Mapping[tuple[str, str], int], count: int) -> None:
    of: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    for (what, thread), number in times.items():
        of[what] += number
        if what != "switches":
            threads[thread] += number
    user, system = (of[what] * TICK_MS / count for what in ("user", "system"))
    switches = of["switches"] / count
    print(f"{who:12} {user + system:8.2f} {user:8.2f} {system:8.2f} {switches:9.1f}")
    for thread, number in threads.most_common(THREADS_SHOWN):
        if number * TICK_MS / count >= SHOWN_MIN_MS:
            print(f"    {number * TICK_MS / count:6.2f}  {thread}")


@contextmanager
def spied(directory: Path | None, pids: Mapping[str, int]) -> Iterator[None]:
    """Each of them profiled into a file of `directory`."""
    with ExitStack() as running:
        if directory is not None:
            spy = shutil.which("py-spy")
            assert spy is not None, "pip install py-spy"
            directory.mkdir(parents=True, exist_ok=True)
            for name, pid in pids.items():
                file = str(directory / f"{name}.txt")
                how = ["-r", "200", "-d", str(SPY_S), "-t", "-g", "-f", "raw", "--nonblocking"]
                command = [spy, "record", *how, "-o", file, "-p", str(pid)]
                process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                running.callback(process.wait, 30)
                running.callback(process.send_signal, signal.SIGINT)
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inserts", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--spy", type=Path)
    options = parser.parse_args()
    with worked_pair("busy") as (cluster, r1, table):
        paced(WARM_UP, 50, lambda number: table.insert(small(number)))
        table.optimize(final=True, settings={"alter_sync": 2})  # Spark runs from now on
        old = set(r1.keeper().children(table.replica.paths.parts))
        servers = {f"server {name}": cluster.pid(name) for name in ("r1", "r2")}
        pids = {"inserter": os.getpid(), **servers}
        with spied(options.spy, pids):
            pids["ZooKeeper"] = cluster.zookeeper_pid()
            before = {name: spent(pid) for name, pid in pids.items()}
            asked = cluster.requests()
            reached = paced(
                options.inserts,
                options.rate,
                lambda number: table.insert(small(1000 + number)),
            )
            after = {name: spent(pid) for name, pid in pids.items()}
            requests = (cluster.requests() - asked) / options.inserts
        delays = delays_ms(r1.keeper(), table.replica.table, "r1", "r2", without=old)
        p50, p99 = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
        print(f"{reached:.0f} inserts/s, {requests:.1f} requests each", end="; ")
        print(f"on the peer after p50 {p50} ms, p99 {p99} ms")
        print(f"{'ms per insert':12} {'all':>7} {'user':>8} {'system':>8} {'switches':>9}")
        for name, times in after.items():
            times.subtract(before[name])
            show(name, times, options.inserts)


if __name__ == "__main__":
    main()
