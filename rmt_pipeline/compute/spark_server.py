"""A Spark Connect server on this machine (`rmt spark`): one JVM, one port on the loopback.

Its Python workers run with this Python and this package, so that units need no installation.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

from rmt_pipeline.compute.spark_options import (
    APP_NAME,
    CONNECT_PORT,
    CONNECT_VARIABLES,
    NICENESS,
    SESSION_OPTIONS,
    loopback_options,
    python_environment,
)
from rmt_pipeline.protocol.errors import AddressInUse, BadConfiguration, Unavailable
from rmt_pipeline.system import Clock, SystemClock

START_TIMEOUT_S = 120.0  # 5 s on an idle machine
STOP_TIMEOUT_S = 3.5  # then SIGKILL: `rmt spark` promises to end within 5 s
PROBE_INTERVAL_S = 0.1
LOG_TAIL_CHARACTERS = 2000
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """One Spark Connect server, a child process of this one; `master` is where it computes.

    `java_home` is a Java that can run Spark (`zookeeper.java.find_java`), else JAVA_HOME or the
    PATH decide. `log_file` takes what Spark has to say; it is written anew at every start.
    """

    def __init__(
        self,
        log_file: Path,
        *,
        port: int = CONNECT_PORT,
        master: str = "local[*]",
        java_home: str | None = None,
        options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.port = port
        self.master = master
        self.log_file = log_file.absolute()
        self._java_home = java_home
        self._options = dict(options or {})
        self._clock = clock or SystemClock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `SparkSessions(remote=…)` takes."""
        return f"sc://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Returns when the server accepts connections, or when `cancelled` says so.

        Raises AddressInUse, BadConfiguration (a port that this user may not open), Unavailable
        (it ended, or did not answer in time; the message has the end of the log).
        """
        assert self._process is None, "started already"
        self._refuse_used_port()
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("wb") as log:
            self._process = self._launch(log)
        try:
            self._await_port(cancelled)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and its Python workers, by force if need be. Idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def run_foreground(self, announce: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT; then end within 5 s. For the main thread.

        `announce` is told where the server answers. Raises what `start` raises, and Unavailable
        if the server ends by itself.
        """
        asked_to_stop = threading.Event()

        def on_signal(number: int, frame: FrameType | None) -> None:
            del number, frame
            asked_to_stop.set()

        before = {
            number: signal.signal(number, on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            self.start(cancelled=asked_to_stop.is_set)
            if not asked_to_stop.is_set():
                announce(f"Spark Connect answers at {self.url} (log: {self.log_file})")
            while not asked_to_stop.wait(0.2):
                self._raise_if_ended()
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _refuse_used_port(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except PermissionError as problem:
                raise BadConfiguration(
                    f"this user may not listen on port {self.port}; "
                    "set [spark] port in rmt.toml to one above 1023"
                ) from problem
            except OSError as problem:
                raise AddressInUse(
                    f"port {self.port} is in use ({problem.strerror}): if a Spark Connect server "
                    f'has it, use that one ([spark] remote = "{self.url}"); else stop what has '
                    "it, or set another [spark] port in rmt.toml"
                ) from problem

    def _launch(self, log: IO[bytes]) -> "subprocess.Popen[bytes]":
        home = spark_home()
        options = {
            **SESSION_OPTIONS,
            **loopback_options(self.master),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            **self._options,
        }
        # The script ends in `exec java`: its process is the JVM's.
        command = ["nice", "-n", str(NICENESS), str(home / "bin" / "spark-submit")]
        command += ["--class", _CLASS, "--name", APP_NAME]
        command += ["--master", self.master]
        for name, value in options.items():
            command += ["--conf", f"{name}={value}"]
        environment = {**os.environ, **python_environment(self._java_home)}
        environment["SPARK_HOME"] = str(home)
        for name in CONNECT_VARIABLES:
            environment.pop(name, None)  # they would make the server a client
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            # A Ctrl-C at the terminal is ours to handle: the server then ends by our SIGTERM.
            start_new_session=True,
        )

    def _await_port(self, cancelled: Callable[[], bool]) -> None:
        deadline_s = self._clock.monotonic_s() + START_TIMEOUT_S
        while not cancelled():
            self._raise_if_ended()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                if self._clock.monotonic_s() > deadline_s:
                    raise Unavailable(
                        f"Spark Connect did not answer at {self.url} within "
                        f"{START_TIMEOUT_S:.0f} s; see {self.log_file}"
                    ) from None
                self._clock.sleep_s(PROBE_INTERVAL_S)
            else:
                return

    def _raise_if_ended(self) -> None:
        assert self._process is not None
        status = self._process.poll()
        if status is None:
            return
        tail = self.log_file.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
        raise Unavailable(
            f"Spark Connect ended with status {status}; the end of {self.log_file}:\n{tail}"
        )


def spark_home() -> Path:
    """Where pip put Spark. Raises Unavailable when it did not."""
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        raise Unavailable(
            "the package pyspark is not installed: pip install 'pyspark[connect]'"
        )
    return Path(package.origin).parent
