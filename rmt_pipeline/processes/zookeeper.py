"""A real ZooKeeper on this machine, from the jars that PySpark ships: one process on one port."""

import fcntl
import importlib.util
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rmt_pipeline.files import unwritable
from rmt_pipeline.processes.child import Child
from rmt_pipeline.processes.java import JavaCommand, find_java
from rmt_pipeline.processes.server import PROBE_TIMEOUT_S, ChildServer, refuse_used_port
from rmt_pipeline.protocol.errors import BadConfiguration, ZooKeeperUnreachable

START_TIMEOUT_S = 60.0  # 1 to 2 s on an idle machine
CLIENT_ADDRESS = "127.0.0.1"
STOP_TIMEOUT_S = 4.0  # then it is killed: `rmt zookeeper` promises to end within 5 s
HEAP_MB = 192  # 100,000 znodes of 300 bytes take about 60 MB
TICK_MS = 500  # the shortest session is two ticks
SESSION_TIMEOUT_MAX_MS = 60_000
CONNECTIONS_MAX = 1_000  # per client address, which is the same for all clients on a laptop
# Only what ZooKeeper needs: with a class path of all 250 jars it starts 0.6 s later.
_JARS = ("zookeeper-", "netty-", "slf4j-api", "log4j-", "metrics-core", "snappy-java")

_CONFIG = """\
# Written at every start.
dataDir={data}
clientPort={port}
clientPortAddress={address}
tickTime={tick_ms}
maxSessionTimeout={session_timeout_max_ms}
maxClientCnxns={connections_max}
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
forceSync={force_sync}
"""

_LOGGING = """\
# Written at every start.
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}}: %m%n%throwable{{20}}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
# Asking a server that is still loading whether it is ready makes it log an exception.
logger.early.name = org.apache.zookeeper.server.ServerCnxn
logger.early.level = off
logger.unlimited.name = org.apache.zookeeper.server.ServerCnxnFactory
logger.unlimited.level = error
# That it is alone.
logger.main.name = org.apache.zookeeper.server.quorum.QuorumPeerMain
logger.main.level = error
"""


class EmbeddedZooKeeper(ChildServer):
    """One ZooKeeper server, a child of this process. Its data stay when it ends.

    With `force_sync=False` it answers before a write is on the disk. That is several times faster,
    but acknowledged writes may be lost when the machine (not merely the process) dies. For tests.

    `start` raises AddressInUse, BadConfiguration (another ZooKeeper has the data directory, or it
    can't be written), DiskFull, NoJava, ZooKeeperUnreachable (it ended, or did not answer in time;
    names the log).
    """

    start_timeout_s = START_TIMEOUT_S
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        java: JavaCommand | None = None,
        force_sync: bool = True,
        settings: str = "",
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`settings`: more lines for its configuration file; `properties`: system properties of its
        JVM.
        """
        super().__init__()
        self.data_dir = data_dir.absolute()
        self.port = port
        self._java = java
        self._force_sync = force_sync
        self._settings = settings
        self._properties = properties

    @property
    def hosts(self) -> str:
        """`address:port`, for clients."""
        return f"{CLIENT_ADDRESS}:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "zookeeper.log"

    def _launch(self) -> Child:
        java = self._java or find_java()
        try:
            return self._launch_with(java)
        except OSError as error:
            raise unwritable(self.data_dir, error) from error

    def _launch_with(self, java: JavaCommand) -> Child:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        lock = _lock(self.data_dir)
        try:
            refuse_used_port(
                CLIENT_ADDRESS,
                self.port,
                section="zookeeper",
                in_use=self._who_has_the_port,
            )
            return self._run(java, lock)
        finally:
            os.close(lock)  # the server inherited it, and holds it until it ends

    def _who_has_the_port(self, problem: OSError) -> str:
        if answers(CLIENT_ADDRESS, self.port):
            return (
                f"a ZooKeeper already answers at {self.hosts}: use that one "
                f'([zookeeper] embedded = false, hosts = "{self.hosts}"), stop it, '
                "or set another [zookeeper] port in rmt.toml"
            )
        return (
            f"cannot listen on {self.hosts} ({problem.strerror}); stop the program that uses "
            "the port, or set another [zookeeper] port in rmt.toml"
        )

    def _run(self, java: JavaCommand, lock: int) -> Child:
        config = self.data_dir / "zoo.cfg"
        config.write_text(
            _CONFIG.format(
                data=self.data_dir / "data",
                port=self.port,
                address=CLIENT_ADDRESS,
                tick_ms=TICK_MS,
                session_timeout_max_ms=SESSION_TIMEOUT_MAX_MS,
                connections_max=CONNECTIONS_MAX,
                force_sync="yes" if self._force_sync else "no",
            )
            + self._settings
        )
        logging = self.data_dir / "log4j2.properties"
        logging.write_text(_LOGGING.format(log=self.log_file))
        command = [
            str(java.path),
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",  # one small heap: the least memory, and pauses of milliseconds
            "-XX:TieredStopAtLevel=1",  # the second compiler pays only after some 20,000 writes
            "-XX:+ExitOnOutOfMemoryError",  # a dead server is noticed, a half-dead one is not
            f"-Dlog4j2.configurationFile={logging}",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.nio.numWorkerThreads=0",  # else each packet goes through two threads more
            *(f"-D{name}={value}" for name, value in self._properties.items()),
            "-cp",
            os.pathsep.join(map(str, _jars())),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",  # it purges, others don't
            str(config),
        ]
        with (self.data_dir / "zookeeper.out").open("wb") as out:
            return Child(command, output=out, cwd=self.data_dir, pass_fds=(lock,))

    def _answers(self) -> bool:
        return answers(CLIENT_ADDRESS, self.port)

    def _announcement(self) -> str:
        return f"ZooKeeper answers at {self.hosts} (log: {self.log_file})"

    def _late(self) -> ZooKeeperUnreachable:
        return ZooKeeperUnreachable(
            f"ZooKeeper did not answer at {self.hosts} within {START_TIMEOUT_S:.0f} s "
            f"of its start; see {self.log_file}"
        )

    def _ended(self, status: int) -> ZooKeeperUnreachable:
        return ZooKeeperUnreachable(
            f"ZooKeeper at {self.hosts} ended by itself with status {status}"
            f"{self._last_words()}; see {self.log_file} and zookeeper.out beside it"
        )

    def _last_words(self) -> str:
        for file in (self.log_file, self.data_dir / "zookeeper.out"):
            try:
                lines = file.read_text(errors="replace").splitlines()
            except OSError:
                continue
            errors = [line for line in lines if "rror" in line or "xception" in line]
            if errors:
                return f": {errors[-1].strip()[:300]}"
        return ""


def answers(address: str, port: int) -> bool:
    """Whether a ZooKeeper at this address serves requests: it has loaded its data."""
    answer = b""
    try:
        with socket.create_connection((address, port), PROBE_TIMEOUT_S) as connection:
            connection.sendall(b"srvr")  # "ruok" is answered before the data are loaded
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode:" in answer


def _lock(data_dir: Path) -> int:
    """Lock the data directory, which two servers would destroy; returns the locked file descriptor.

    The server inherits the open file and with it the lock, which is therefore held until the server
    ends, even if this process dies before.
    """
    descriptor = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(descriptor)
        raise BadConfiguration(
            f"another ZooKeeper uses {data_dir}; stop it, or set [zookeeper] data in rmt.toml "
            "to another directory"
        ) from problem
    return descriptor


def _jars() -> list[Path]:
    package = importlib.util.find_spec("pyspark")
    directory = Path(package.origin or "").parent / "jars" if package else Path("pyspark/jars")
    found = sorted(jar for jar in directory.glob("*.jar") if jar.name.startswith(_JARS))
    if not any(jar.name.startswith("zookeeper-") for jar in found):
        raise ZooKeeperUnreachable(
            f"{directory} has no zookeeper jar, so there is none to start; install the PySpark "
            "that ships its jars (`pip install pyspark`), or set [zookeeper] hosts in rmt.toml"
        )
    return found
