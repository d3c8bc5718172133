"""Starts Spark's JVMs: the Connect server (`rmt spark`), and the JVM of a session in this process;
and configures Spark in them.

Their Python workers run with this Python and this package, so that nothing needs to be installed.
"""

import importlib.util
import os
import secrets
import shlex
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import rmt_pipeline
from rmt_pipeline.files import unwritable
from rmt_pipeline.processes.child import Child
from rmt_pipeline.processes.server import ChildServer, accepts, refuse_used_port
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.system import Clock

APP_NAME = "rmt_pipeline"
CONNECT_PORT = 15002

NICENESS = 10
"""The niceness of the JVMs and their workers, so that merges yield to inserts and fetches."""
CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables that make a process a client of Spark Connect. pyspark sets the last one itself when it
opens such a session, and child processes inherit it.
"""
SESSION_OPTIONS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Our own sessions hold no data in the JVM: rows live in the Python workers.
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A unit reports its own errors; repeating a task would only repeat them.
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "true",
}
"""Options for the sessions that we start: classic ones, and the server of `rmt spark`."""

START_TIMEOUT_S = 120.0  # 5 s on an idle machine
STOP_TIMEOUT_S = 3.5  # then it is killed: `rmt spark` promises to end within 5 s
LOG_TAIL_CHARACTERS = 2000
_CONNECT_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_GATEWAY_APPLICATION = "pyspark-shell"


def import_path() -> str:
    """The PYTHONPATH with which Python workers can import this package."""
    root = str(Path(rmt_pipeline.__file__).parent.parent)
    before = os.environ.get("PYTHONPATH", "")
    return root if not before else f"{root}{os.pathsep}{before}"


def python_environment(java_home: str | None) -> dict[str, str]:
    """The environment for JVMs that start our Python workers."""
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": import_path(),
    }
    if java_home:
        environment["JAVA_HOME"] = java_home
    return environment


def loopback_options(master: str) -> dict[str, str]:
    """Options by which a local session opens its ports on the loopback interface only."""
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class ConnectServer(ChildServer):
    """One Spark Connect server, a child process of this one; `master` is where it computes.

    `java_home` is a Java that can run Spark (`java.find_java`); else JAVA_HOME or the PATH decide.
    `log_file` gets Spark's log, and is overwritten at every start.

    `start` raises AddressInUse, BadConfiguration (a port that this user may not open, a log that
    can't be written), DiskFull, Unavailable (it ended, or did not answer in time; the message has
    the end of the log).
    """

    start_timeout_s = START_TIMEOUT_S
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        log_file: Path,
        *,
        port: int = CONNECT_PORT,
        master: str = "local[*]",
        java_home: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.port = port
        self.master = master
        self.log_file = log_file.absolute()
        self._java_home = java_home
        self._options = dict(options or {})

    @property
    def url(self) -> str:
        """The address for `SparkSessions(remote=…)`."""
        return f"sc://127.0.0.1:{self.port}"

    def _launch(self) -> Child:
        refuse_used_port("127.0.0.1", self.port, section="spark", in_use=self._who_has_the_port)
        options = {
            **SESSION_OPTIONS,
            **loopback_options(self.master),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.master": self.master,
            **self._options,
        }
        arguments = ["--class", _CONNECT_CLASS, "--name", APP_NAME]
        try:
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
            log_file = self.log_file.open("wb")
        except OSError as error:
            raise unwritable(self.log_file, error) from error
        with log_file as log:
            return _start_jvm(
                _spark_submit(options, *arguments),
                _environment(self._java_home),
                _new_scratch(),
                output=log,
            )

    def _who_has_the_port(self, problem: OSError) -> str:
        return (
            f"port {self.port} is in use ({problem.strerror}): if a Spark Connect server "
            f'has it, use that one ([spark] remote = "{self.url}"); else stop what has '
            "it, or set another [spark] port in rmt.toml"
        )

    def _answers(self) -> bool:
        return accepts("127.0.0.1", self.port)

    def _announcement(self) -> str:
        return f"Spark Connect answers at {self.url} (log: {self.log_file})"

    def _late(self) -> Unavailable:
        return Unavailable(
            f"Spark Connect did not answer at {self.url} within {START_TIMEOUT_S:.0f} s; "
            f"see {self.log_file}"
        )

    def _ended(self, status: int) -> Unavailable:
        tail = self.log_file.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
        return Unavailable(
            f"Spark Connect ended with status {status}; the end of {self.log_file}:\n{tail}"
        )


class SessionJvm(ChildServer):
    """The JVM of a classic session of this process. pyspark would start one by itself, but without
    a time limit, and it could outlive this process if that is killed at the wrong moment.

    The JVM writes its address into a file, as it does for pyspark's own launcher; `port` and
    `secret` are what that file says. `options` are those that a JVM needs when it starts.
    """

    start_timeout_s = START_TIMEOUT_S
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        options: Mapping[str, str],
        *,
        java_home: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock)
        self._options = dict(options)
        self._java_home = java_home
        self._said = Path()
        self.port = 0
        self.secret = ""

    def _launch(self) -> Child:
        scratch = _new_scratch()
        self._said = scratch / "gateway"
        environment = _environment(self._java_home)
        environment["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(self._said)
        environment["SPARK_CONNECT_MODE"] = "0"
        command = _spark_submit(self._options, _GATEWAY_APPLICATION)
        return _start_jvm(command, environment, scratch)

    def _answers(self) -> bool:
        """Read the file of the JVM, which it writes under another name and renames: the port in
        four bytes, then the secret behind its length, in the format of Java's DataOutput.
        """
        try:
            said = self._said.read_bytes()
        except FileNotFoundError:
            return False
        port, length = struct.unpack_from("!ii", said)
        self.port, self.secret = port, said[8 : 8 + length].decode()
        return True

    def _announcement(self) -> str:
        return f"Spark answers at port {self.port}"

    def _late(self) -> Unavailable:
        return Unavailable(
            f"Spark's JVM did not answer within {START_TIMEOUT_S:.0f} s of its start"
        )

    def _ended(self, status: int) -> Unavailable:
        return Unavailable(
            f"Spark's JVM ended with status {status}; its output is on standard error"
        )


def _spark_submit(options: Mapping[str, str], *arguments: str) -> list[str]:
    """The command that starts a JVM. The script ends with `exec java`, so its process
    is the JVM's.
    """
    command = ["nice", "-n", str(NICENESS), str(spark_home() / "bin" / "spark-submit")]
    for name, value in options.items():
        command += ["--conf", f"{name}={value}"]
    return [*command, *arguments]


def _new_scratch() -> Path:
    """A directory for one JVM, which is made and removed with it. Raises Unavailable when no
    directory for temporary files can be written, since the disk is full, say.
    """
    try:
        parent = Path(tempfile.gettempdir())
    except OSError as error:
        raise Unavailable(f"Spark can't be started: {error.strerror}; set TMPDIR") from error
    return parent / f"rmt-spark-{secrets.token_hex(8)}"


def _start_jvm(
    command: list[str],
    environment: dict[str, str],
    scratch: Path,
    output: IO[bytes] | None = None,
) -> Child:
    """Start a JVM that puts its temporary files into `scratch`. Spark removes what it makes there
    only when it ends in good order, and a native library of it never.
    """
    options = f"-Djava.io.tmpdir={shlex.quote(str(scratch))}"
    before = environment.get("SPARK_SUBMIT_OPTS", "")
    environment["SPARK_SUBMIT_OPTS"] = f"{options} {before}".rstrip()
    return Child(command, output=output, env=environment, scratch=scratch)


def _environment(java_home: str | None) -> dict[str, str]:
    environment = {**os.environ, **python_environment(java_home)}
    environment["SPARK_HOME"] = str(spark_home())
    for name in CONNECT_VARIABLES:
        environment.pop(name, None)  # these would make the JVM a client
    return environment


def spark_home() -> Path:
    """The directory in which pip installed Spark. Raises Unavailable if there is none."""
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise Unavailable(
            "the package pyspark is not installed: pip install 'pyspark[connect]'"
        )
    return Path(package.origin).parent
