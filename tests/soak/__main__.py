"""`python -m tests.soak --minutes n`: two servers that work, a ZooKeeper, a Spark, clients that
insert, read, optimize and delete; all but Spark are killed, stopped and started again, and the
servers' clocks jump. At the end the tables must be what the histories say, and no process is left.

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
import time
from collections.abc import Callable
from pathlib import Path

import urllib3

from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.server import free_port
from rmt_pipeline.processes.spark import ConnectServer
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from tests.soak.client import KEYS_PER_CLIENT, keys_of
from tests.soak.history import judge, read_histories

SERVERS = ("r1", "r2")
CLIENTS = 4
SKEWS_S = (-3600.0, 0.0, 5.0, 3600.0, 86400.0)
GONE_WITHIN_S = 30.0
MARK = "RMT_SOAK"  # in the environment of every process of a soak
FAULTS_EVERY_S = (3.0, 9.0)
READY_S = 120.0
SETTLES_S = 300.0
SESSION_TIMEOUT_S = 4
TABLE = (
    "CREATE TABLE t (key Int64, part Int64, text String) "
    "ENGINE = ReplicatedMergeTree('/soak/{table}', '{replica}') "
    "PARTITION BY part ORDER BY key "
    "SETTINGS old_parts_lifetime = 20, merge_selecting_sleep_ms = 500"
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

    def __init__(self, directory: Path, seed: int, *, own_jvm: bool) -> None:
        self.directory = directory
        self.own_jvm = own_jvm
        os.environ[MARK] = directory.name
        self.rng = random.Random(seed)
        self.ports = {name: free_port() for name in SERVERS}
        self.zookeeper = EmbeddedZooKeeper(directory / "zookeeper", free_port())
        self.spark = ConnectServer(
            directory / "spark.log",
            port=free_port(),
            java_home=find_java().env.get("JAVA_HOME"),
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.struck: list[str] = []
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

    # --- processes ---

    def begin(self) -> None:
        self.zookeeper.start()
        if not self.own_jvm:
            self.spark.start()
        for name in SERVERS:
            self.serve(name)
            self._until(lambda name=name: self._answers(name), f"{name} to answer")
            self._rmt("sql", "--server", name, TABLE)
            self._until(lambda name=name: self._is_writable(name), f"{name} to be active")

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
            *(["--operates"] if number == 0 else []),
        )

    @property
    def histories(self) -> list[Path]:
        return sorted(self.directory.glob("history-*"))

    def _start(self, name: str, module: str, *arguments: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**os.environ, "RMT_CONFIG": str(self.file)},
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
        client = self.rng.randrange(CLIENTS)
        what = self.rng.choice(("kill", "kill", "freeze", "zookeeper", "client", "clock"))
        self.struck.append(what)
        if what == "kill":
            self._kill(server)
            time.sleep(self.rng.uniform(0.0, 6.0))
            self._no_jvm_is_left_over()
            self.serve(server)
        elif what == "clock":
            (self.directory / f"skew-{server}").write_text(str(self.rng.choice(SKEWS_S)))
        elif what == "freeze":
            self.processes[server].send_signal(signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.5, 2.0 * SESSION_TIMEOUT_S))
            self.processes[server].send_signal(signal.SIGCONT)
        elif what == "zookeeper":
            self.zookeeper.stop()
            time.sleep(self.rng.uniform(0.0, 3.0))
            self.zookeeper.start()
        else:
            self._kill(f"client-{client}")
            self.insert(client, seconds_left)

    def _no_jvm_is_left_over(self) -> None:
        """Of the servers that have one, each has at most one; who was killed has none."""
        living = sum(self.processes[name].poll() is None for name in SERVERS)
        most = living if self.own_jvm else 1
        self._until(
            lambda: len(self._running("SparkSubmit")) <= most,
            f"at most {most} JVMs for Spark",
            within_s=GONE_WITHIN_S,
        )

    def _running(self, *words: str) -> list[str]:
        """Command lines of Java processes with these words; without words, of all processes of
        this soak but ourselves.
        """
        found = []
        mark = f"{MARK}={self.directory.name}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                is_ours = mark in (process / "environ").read_bytes().split(b"\0")
                is_wanted = not words or (
                    "java" in command.split(" ")[0] and all(word in command for word in words)
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
            if time.monotonic() < end_s:
                self.strike(end_s - time.monotonic())
        for name, process in self.processes.items():
            if name.startswith("client"):
                status = process.wait(READY_S)
                assert status == 0, f"{name} ended with {status}; see its log"

    # --- the end ---

    def tables(self) -> dict[str, tuple[int, ...]]:
        """What each server holds when all queues are empty."""
        for name in SERVERS:
            if self.processes[name].poll() is not None:
                raise AssertionError(f"{name} ended by itself; see its log")
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
        if not self.own_jvm:
            self.spark.stop()
        self.zookeeper.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own-jvm", action="store_true", help="a JVM in each server")
    options = parser.parse_args()
    soak = Soak(
        Path(tempfile.mkdtemp(prefix="rmt-soak-")), options.seed, own_jvm=options.own_jvm
    )
    print(f"histories and logs are in {soak.directory}", flush=True)
    try:
        soak.begin()
        soak.run(options.minutes * 60)
        tables = soak.tables()
    finally:
        soak.end()
    soak.nothing_is_left()
    verdict = judge(*read_histories(soak.histories), tables)
    faults = ", ".join(f"{soak.struck.count(what)} {what}" for what in sorted(set(soak.struck)))
    print(f"faults: {faults or 'none'}")
    print(verdict.words())
    return 0 if verdict.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
