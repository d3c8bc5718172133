"""`python -m tests.soak --minutes n`: two servers that work, an ensemble of three ZooKeepers, a
Spark, clients that insert, read, optimize, delete, and give commands on a partition. Any process is
killed or frozen, the servers' clocks jump, their disks are full, and lose files and bits while they
are read. At the end the tables must be what the histories say, and no process, thread, file or node
may be left.

With `--own-jvm` each server has a JVM of its own for Spark, which must end when that is killed.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import urllib3

from examples.flights.ports import free_port
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.spark import ConnectServer
from rmt_pipeline.protocol.errors import RmtError, Unavailable
from rmt_pipeline.replica.upkeep.check import UNANNOUNCED_S
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from tests.soak import disks
from tests.soak.client import KEYS_PER_CLIENT, keys_of
from tests.soak.commander import SOURCE
from tests.soak.damage import Damage
from tests.soak.history import judge, read_histories
from tests.soak.leftovers import Held, files_left, grown, nodes_left
from tests.support.ensemble import MEMBERS, Ensemble

SERVERS = ("r1", "r2")
CLIENTS = 6
OPERATOR, READER = 0, CLIENTS - 1
FAULTS = (
    "kill",
    "kill",
    "freeze",
    "client",
    "clock",
    "zookeeper stopped",
    "zookeeper killed",
    "zookeeper frozen",
    "one zookeeper killed",
    "one zookeeper frozen",
    "damage",
    "damage",
    "damage",
    "full disk",
    "full disk",
    "spark",
)
SPARK_STARTS_MAX = 3
FULL_S = (1.0, 10.0)
FULL_LEFT = (0, 0, 4096, 65_536)  # bytes that are free on a full disk
SKEWS_S = (-3600.0, 0.0, 5.0, 3600.0, 86400.0)
GONE_WITHIN_S = 30.0
MARK = "RMT_SOAK"  # in the environment of every process of a soak
WHOSE = "RMT_SOAK_PROCESS"  # and of all that one of them has started
FAULTS_EVERY_S = (3.0, 9.0)
READY_S = 120.0
SETTLES_S = 300.0
LEFT_S = UNANNOUNCED_S + 120.0  # a part that a process died with is left alone for so long
SESSION_TIMEOUT_S = 4
TABLE = (
    "CREATE TABLE t (key Int64, part Int64, text String) "
    "ENGINE = ReplicatedMergeTree('/soak/{table}', '{replica}') "
    "PARTITION BY part ORDER BY key "
    "SETTINGS old_parts_lifetime = 20, merge_selecting_sleep_ms = 500, "
    "cleanup_delay_period = 5, cleanup_delay_period_random_add = 2, max_cleanup_delay_period = 10, "
    "temporary_directories_lifetime = 60, max_replicated_logs_to_keep = 100, "
    "finished_mutations_to_keep = 10, replicated_deduplication_window = 10000"
)
CONFIG = """
[zookeeper]
hosts = "{hosts}"
session_timeout_s = {session_timeout_s}
connect_timeout_s = 10
[spark]
{spark}
[servers.r1]
data = "r1"
listen = "127.0.0.1:{r1}"
macros = {{shard = "01", replica = "r1"}}
[servers.r2]
data = "r2"
listen = "127.0.0.1:{r2}"
macros = {{shard = "01", replica = "r2"}}
"""


class Soak:
    """All processes of one soak, in one directory that stays when something is wrong."""

    def __init__(self, directory: Path, seed: int, *, own_jvm: bool, small_disks: bool) -> None:
        self.directory = directory
        self.own_jvm = own_jvm
        self.small_disks = small_disks
        if small_disks:
            for name in SERVERS:
                disks.mount(directory / name)
        os.environ[MARK] = directory.name
        self.rng = random.Random(seed)
        self.ports = {name: free_port() for name in SERVERS}
        self.zookeeper = Ensemble(directory)
        self.spark = ConnectServer(
            directory / "spark.log",
            port=free_port(),
            java_home=find_java().env.get("JAVA_HOME"),
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.struck: list[str] = []
        self.to_strike: list[str] = []
        self.spark_starts = threading.Thread()
        self.held: dict[str, Held] = {}
        self.log_max = 0
        self.file = directory / "rmt.toml"
        self.file.write_text(
            CONFIG.format(
                hosts=self.zookeeper.hosts,
                spark='master = "local[2]"' if own_jvm else f"port = {self.spark.port}",
                session_timeout_s=SESSION_TIMEOUT_S,
                **self.ports,
            )
        )
        self.config = load_config(self.file)
        self.damage = Damage(self.config, self.rng)

    # --- processes ---

    def begin(self) -> None:
        self.zookeeper.start()
        if not self.own_jvm:
            self._start_spark()
        for name in SERVERS:
            self.serve(name)
            self._until(lambda name=name: self._answers(name), f"{name} to answer")
            self._rmt("sql", "--server", name, TABLE)
            self._rmt("sql", "--server", name, TABLE.replace("TABLE t", f"TABLE {SOURCE}"))
            self._until(lambda name=name: self._is_writable(name), f"{name} to be active")
            self.held[name] = Held.by(self.processes[name].pid)

    def serve(self, name: str) -> None:
        skew = str(self.directory / f"skew-{name}")
        self._start(name, "tests.soak.server", skew, "serve", "--server", name, "--work")

    def insert(self, number: int, seconds: float) -> None:
        inserts, _ = read_histories(self.histories)
        mine = [key for insert in inserts for key in insert.keys]
        first = max(
            (
                key + 1 - number * KEYS_PER_CLIENT
                for key in mine
                if key // KEYS_PER_CLIENT == number
            ),
            default=0,
        )
        self._start(
            f"client-{number}",
            "tests.soak.client",
            *("--config", str(self.file), "--client", str(number), "--first", str(first)),
            *("--history", str(self.directory / f"history-{number}")),
            *("--seconds", str(seconds)),
            *(["--operates"] if number == OPERATOR else []),
            *(["--reads"] if number == READER else []),
        )

    @property
    def histories(self) -> list[Path]:
        return sorted(self.directory.glob("history-*"))

    def _start(self, name: str, module: str, *arguments: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**os.environ, "RMT_CONFIG": str(self.file), WHOSE: name},
                stdout=log,
                stderr=log,
            )

    def _rmt(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "rmt_pipeline.cli", "--config", str(self.file)]
        subprocess.run([*command, *arguments], check=True, timeout=READY_S)

    # --- faults ---

    def strike(self, seconds_left: float) -> None:
        """One fault, of those that the cluster must survive."""
        server = self.rng.choice(SERVERS)
        if not self.to_strike:  # each of them, before any comes again
            self.to_strike = self.rng.sample(FAULTS, len(FAULTS))
        what = self.to_strike.pop()
        self.struck.append(what)
        if what == "kill":
            self._kill(server)
            time.sleep(self.rng.uniform(0.0, 6.0))
            self._no_jvm_is_left_over()
            self.serve(server)
        elif what == "clock":
            self._set_clock(server, self.rng.choice(SKEWS_S))
        elif what == "freeze":
            self._freeze(self.processes[server].pid)
        elif what == "damage":
            self.damage.do(server, [name for name in SERVERS if name != server])
        elif what == "full disk":
            self._fill(server)
        elif what == "spark":
            self._strike_spark()
        elif "zookeeper" in what:
            self._strike_zookeeper(what)
        else:
            self._strike_client(self.rng.randrange(CLIENTS), seconds_left)

    def _set_clock(self, server: str, skew_s: float) -> None:
        (self.directory / f"skew-{server}").write_text(str(skew_s))

    def _freeze(self, *processes: int | None) -> None:
        pids = [pid for pid in processes if pid is not None]
        assert len(pids) == len(processes)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.5, 2.0 * SESSION_TIMEOUT_S))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def _fill(self, server: str) -> None:
        """Sometimes its server starts on it."""
        if not self.small_disks:
            return
        with disks.filled(self.directory / server, self.rng.choice(FULL_LEFT)):
            time.sleep(self.rng.uniform(*FULL_S))
            if self.rng.random() < 0.3:
                self._kill(server)
                self.serve(server)
                time.sleep(self.rng.uniform(*FULL_S))

    def _strike_zookeeper(self, what: str) -> None:
        """All three, or one of them."""
        struck = range(MEMBERS)
        if what.startswith("one"):
            struck = [self.rng.choice(struck)]
        if what.endswith("frozen"):
            self._freeze(*(self.zookeeper.members[number].pid for number in struck))
            return
        if what.endswith("killed"):
            for number in struck:
                self.zookeeper.kill(number)
        else:
            self.zookeeper.stop()
        time.sleep(self.rng.uniform(0.0, 2.0 * SESSION_TIMEOUT_S))
        self.zookeeper.start(struck)

    def _strike_spark(self) -> None:
        """It takes a minute to start again on a busy machine: other faults do not wait for it."""
        if self.own_jvm or self.spark_starts.is_alive():
            return
        if self.spark.pid is not None and self.rng.random() < 0.5:
            self._freeze(self.spark.pid)
        else:
            self.spark.kill()
            self.spark.stop()
            self.spark_starts = threading.Thread(target=self._start_spark)
            self.spark_starts.start()

    def _start_spark(self) -> None:
        for _ in range(SPARK_STARTS_MAX):
            with contextlib.suppress(Unavailable):
                return self.spark.start()
        return None

    def _strike_client(self, number: int, seconds_left: float) -> None:
        name = f"client-{number}"
        if self.rng.random() < 0.3:
            self._freeze(self.processes[name].pid)
        else:
            self._kill(name)
            self.insert(number, seconds_left)

    def _no_jvm_is_left_over(self) -> None:
        """A server that lives has at most one (where there is no other Spark, one of its own); who
        was killed has none.
        """
        for name in SERVERS:
            most = int(self.processes[name].poll() is None)
            jvms = partial(self._running, "SparkSubmit", f"{WHOSE}={name}")
            self._until(
                lambda jvms=jvms, most=most: len(jvms()) <= most,
                f"at most {most} JVMs for Spark of {name}",
                within_s=GONE_WITHIN_S,
            )

    def _running(self, program: str = "", variable: str = "") -> list[str]:
        """Java processes with this word, which have the variable in their environment; without
        words, all processes of this soak but ourselves.
        """
        found = []
        wanted = {f"{MARK}={self.directory.name}".encode(), variable.encode()} - {b""}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                is_ours = wanted <= {*(process / "environ").read_bytes().split(b"\0")}
                is_wanted = not program or (
                    "java" in command.split(" ")[0] and program in command
                )
                if is_ours and is_wanted and int(process.name) != os.getpid():
                    found.append(f"{process.name} {command[:200]}")
        return found

    def nothing_is_left(self) -> None:
        self._until(
            lambda: not self._running(),
            "every process to be gone: " + "; ".join(self._running()),
            within_s=GONE_WITHIN_S,
        )

    def _kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait(30)

    def run(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        for number in range(CLIENTS):
            self.insert(number, seconds)
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, self.rng.uniform(*FAULTS_EVERY_S)))
            self._mind()
            if time.monotonic() < end_s:
                self.strike(end_s - time.monotonic())
                self._look_at_the_log()
        for name, process in self.processes.items():
            if name.startswith("client"):
                status = process.wait(READY_S)
                assert status == 0, f"{name} ended with {status}; see its log"

    def _mind(self) -> None:
        """No server ends by itself, also if it finds no ZooKeeper when it starts."""
        for name in self.processes.keys() & {*SERVERS}:
            assert self.processes[name].poll() is None, f"{name} ended by itself; see its log"

    def _look_at_the_log(self) -> None:
        with contextlib.suppress(RmtError), ServerContext.open(self.config, "r1") as context:
            replica = context.table("t").replica
            entries = len(replica.keeper.children(replica.table.log))
            self.log_max = max(self.log_max, entries)

    # --- the end ---

    def nothing_is_kept(self) -> None:
        """Clean-up comes by itself, and takes what the faults have left."""
        for name in SERVERS:
            self._until_none(f"on {name}", lambda name=name: self._left(name))

    def _left(self, name: str) -> Iterable[str]:
        with ServerContext.open(self.config, name) as context:
            yield from files_left(context)
            yield from nodes_left(context.table("t").replica, SERVERS)
        yield from grown(self.held[name], Held.by(self.processes[name].pid))

    def _until_none(self, where: str, left: Callable[[], Iterable[str]]) -> None:
        found: list[str] = []

        def is_none() -> bool:
            found[:] = left()
            return not found

        try:
            self._until(is_none, "nothing to be left", within_s=LEFT_S)
        except AssertionError:
            raise AssertionError(f"left {where}: {'; '.join(found)[:2000]}") from None

    def tables(self) -> dict[str, tuple[int, ...]]:
        """What each server holds when all queues are empty."""
        for name in SERVERS:
            self._set_clock(name, 0.0)
        for name in SERVERS:
            self._until(lambda name=name: self._is_writable(name), f"{name} to be active")
        with ServerContext.open(self.config, "r1") as one:
            self._until(lambda: self._is_even(one), "the queues to be empty")
        for name in SERVERS:
            with ServerContext.open(self.config, name) as context:
                self._until(
                    lambda context=context: self._is_mutated(context),
                    f"{name} to finish its mutations",
                )
        with ServerContext.open(self.config, "r1") as one:
            different = compare_replicas(one.table("t").replica).different
            assert different == (), f"row hashes differ in {different}"
        found = {}
        for name in SERVERS:
            with ServerContext.open(self.config, name) as context:
                found[name] = keys_of(context)
        return found

    @staticmethod
    def _is_even(context: ServerContext) -> bool:
        try:
            return not compare_replicas(context.table("t").replica).behind
        except RmtError:
            return False

    @staticmethod
    def _is_mutated(context: ServerContext) -> bool:
        try:
            return all(one.status.is_done for one in context.table("t").mutations())
        except RmtError:
            return False

    def _is_writable(self, name: str) -> bool:
        self._mind()
        try:
            with ServerContext.open(self.config, name) as context:
                replica = context.table("t").replica
                return replica.keeper.exists(replica.paths.is_active) is not None
        except RmtError:
            return False

    def _answers(self, name: str) -> bool:
        try:
            url = f"http://127.0.0.1:{self.ports[name]}/health"
            urllib3.request("GET", url, timeout=5, retries=False)
        except urllib3.exceptions.HTTPError:
            return False
        return True

    @staticmethod
    def _until(
        condition: Callable[[], bool], what: str, *, within_s: float = SETTLES_S
    ) -> None:
        deadline_s = time.monotonic() + within_s
        while not condition():
            if time.monotonic() >= deadline_s:
                raise AssertionError(f"waited {within_s:.0f} s for {what}, in vain")
            time.sleep(0.3)

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)
        if self.spark_starts.is_alive():
            self.spark_starts.join()
        if not self.own_jvm:
            self.spark.stop()
        self.zookeeper.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own-jvm", action="store_true", help="a JVM in each server")
    options = parser.parse_args()
    small_disks = disks.go_inside("tests.soak", sys.argv[1:])
    if not small_disks:
        print("no disk will be full: this machine lets no user mount a small one (unshare)")
    directory = Path(tempfile.mkdtemp(prefix="rmt-soak-"))
    soak = Soak(directory, options.seed, own_jvm=options.own_jvm, small_disks=small_disks)
    print(f"histories and logs are in {directory}", flush=True)
    is_right = False
    try:
        soak.begin()
        soak.run(options.minutes * 60)
        tables = soak.tables()
        verdict = judge(*read_histories(soak.histories), tables)
        print(f"faults: {counted(soak.struck)}; disks: {counted(soak.damage.done)}")
        print(f"the log had {soak.log_max} entries at most")
        print(verdict.words(), flush=True)
        soak.nothing_is_kept()
        is_right = verdict.is_right
    finally:
        soak.end()
        if small_disks and not is_right:
            for name in SERVERS:
                disks.keep(directory / name)
    soak.nothing_is_left()
    return 0 if is_right else 1


def counted(names: Iterable[str]) -> str:
    counts = sorted(Counter(names).items())
    return ", ".join(f"{count} {name}" for name, count in counts) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
