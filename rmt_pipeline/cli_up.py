"""`rmt up`: everything on one machine, from a Procfile; and `rmt dagster`.

Every process is one of `rmt`'s own commands, so each can also be run alone. Nobody outlives us:
each child is told by the kernel when its parent is gone, however that ended.
"""

import ctypes
import os
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import urllib3
from honcho.environ import Procfile, parse_procfile
from honcho.manager import Manager
from honcho.printer import Message, Printer
from honcho.process import Popen, Process

from rmt_pipeline.config import Config
from rmt_pipeline.processes.zookeeper import answers
from rmt_pipeline.protocol.errors import BadConfiguration, Unavailable
from rmt_pipeline.system import Clock, SystemClock

READY_TIMEOUT_S = 180.0
PROBE_EVERY_S = 0.25
PROBE_TIMEOUT_S = 2.0
_PR_SET_PDEATHSIG = 1  # Linux, <sys/prctl.h>


@dataclass(frozen=True, slots=True)
class Service:
    """One line of the Procfile. `ready` says whether it answers; `where` tells people."""

    name: str
    command: list[str]
    ready: Callable[[], bool]
    where: str


def services(config: Config, *, dagster: bool, spark: bool, work: bool) -> list[Service]:
    """In the order in which they become ready."""
    found = []
    # ZooKeeper starts at the same time, on a machine that starts everything else as well.
    patience = ["--connect-timeout-s", f"{READY_TIMEOUT_S:g}"]
    if config.zookeeper.embedded:
        port = config.zookeeper.port
        found.append(
            Service(
                "zookeeper",
                _rmt(config, "zookeeper"),
                partial(answers, "127.0.0.1", port),
                f"127.0.0.1:{port}",
            )
        )
    for name, server in config.servers.items():
        found.append(
            Service(
                name,
                _rmt(config, "serve", name, *patience, *(["--work"] if work else [])),
                partial(_responds, f"http://{server.advertised_address}/health"),
                f"http://{server.advertised_address}/health, /metrics",
            )
        )
    if spark and config.spark.is_ours:
        port = config.spark.port
        found.append(
            Service(
                "spark",
                _rmt(config, "spark"),
                partial(_accepts, port),
                f"sc://127.0.0.1:{port}",
            )
        )
    if dagster:
        url = f"http://127.0.0.1:{config.dagster.port}"
        found.append(
            Service(
                "dagster",
                _rmt(config, "dagster", "--wait"),
                partial(_responds, f"{url}/server_info"),
                url,
            )
        )
    return found


def procfile(wanted: list[Service]) -> str:
    return "".join(f"{one.name}: exec {shlex.join(one.command)}\n" for one in wanted)


def run_up(config: Config, *, dagster: bool, spark: bool, work: bool) -> int:
    """Run until Ctrl-C, SIGTERM, or the first process that ends by itself: then all end.

    The exit status: 0 when it was asked to end. Raises BadConfiguration.
    """
    if dagster:
        workspace_of(config)  # better said now than by a child, after a minute
    wanted = services(config, dagster=dagster, spark=spark, work=work)
    manager = _Manager(wanted, SystemClock())
    parsed: Procfile = parse_procfile(procfile(wanted))
    for name, command in parsed.processes.items():
        manager.add_process(name, command, env=_environment(config))
    manager.loop()
    if manager.asked_to_end:
        return 0
    manager.tell("one process ended by itself (see above), so all were ended")
    return 1


def become_dagster(config: Config, *, wait: bool) -> None:
    """Replace this process by `dagster dev`. Returns never; raises BadConfiguration."""
    workspace = workspace_of(config)
    if wait:
        _wait_for_servers(config, SystemClock())
    # For start-up time: importing Dagster takes longer than all that `rmt up` does itself.
    from rmt_pipeline.dagster import instance  # noqa: PLC0415

    home = config.dagster.home
    instance.prepare_home(home)
    special = instance.environment(config.servers)
    environment = {**_environment(config), **special, "DAGSTER_HOME": str(home)}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # else Dagster ignores what our parent ignored
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace)]
    command += ["-h", "127.0.0.1", "-p", str(config.dagster.port)]
    os.execve(sys.executable, command, environment)  # noqa: S606


def workspace_of(config: Config) -> Path:
    """The workspace.yaml with the code locations. Raises BadConfiguration when it is not there."""
    named = config.dagster.workspace
    workspace = named or Path.cwd() / "workspace.yaml"
    if workspace.is_file():
        return workspace
    remedy = "correct it" if named else "go to where yours is, or name it in rmt.toml"
    raise BadConfiguration(
        f"[dagster] workspace: there is no {workspace}, which says where your definitions are; "
        f"{remedy}"
    )


def _wait_for_servers(config: Config, clock: Clock) -> None:
    deadline_s = clock.monotonic_s() + READY_TIMEOUT_S
    for name, server in config.servers.items():
        while not _responds(f"http://{server.advertised_address}/health"):
            if clock.monotonic_s() > deadline_s:
                raise Unavailable(f"server {name} did not come up in {READY_TIMEOUT_S:g} s")
            clock.sleep_s(PROBE_EVERY_S)


def _rmt(config: Config, *arguments: str) -> list[str]:
    given = ["--config", str(config.path)] if config.path is not None else []
    return [sys.executable, "-m", "rmt_pipeline.cli", *given, *arguments]


def _environment(config: Config) -> dict[str, str]:
    """For our children: their output comes line by line, and they read the same configuration."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("RMT_CONFIG", None)
    if config.path is not None:
        environment["RMT_CONFIG"] = str(config.path)
    return environment


def _responds(url: str) -> bool:
    """Whether somebody answers HTTP there, whatever the status."""
    try:
        urllib3.request("GET", url, timeout=PROBE_TIMEOUT_S, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return True


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PROBE_TIMEOUT_S).close()
    except OSError:
        return False
    return True


class _Manager(Manager):  # type: ignore[misc]  # honcho has no types
    """honcho's, that writes to standard error and says what is ready."""

    def __init__(self, wanted: list[Service], clock: Clock) -> None:
        super().__init__(Printer(sys.stderr))
        self._process_ctor = _Process
        self._wanted = wanted
        self._clock_s = clock
        self._ended = threading.Event()

    @property
    def asked_to_end(self) -> bool:
        return self.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)

    def loop(self) -> None:
        super().loop()
        self._ended.set()

    def tell(self, text: str) -> None:
        self._system_print(f"{text}\n")

    def _start(self) -> None:
        super()._start()  # forks: no thread of ours may run before
        threading.Thread(target=self._report, name="rmt-ready", daemon=True).start()

    def _report(self) -> None:
        deadline_s = self._clock_s.monotonic_s() + READY_TIMEOUT_S
        for service in self._wanted:
            while not service.ready():
                late = self._clock_s.monotonic_s() > deadline_s
                if late or self._terminating or self._ended.wait(PROBE_EVERY_S):
                    if late:
                        self._line(f"{service.name} is not ready after {READY_TIMEOUT_S:g} s")
                    return
            self._line(f"{service.name} is ready: {service.where}")
        self._line("everything is ready. Ctrl-C ends it. Try:  " + _first_steps(self._wanted))

    def _line(self, text: str) -> None:
        now = datetime.now().astimezone()  # noqa: TID251  for people, beside honcho's own lines
        self.events.put(Message("line", f"{text}\n", now, "rmt", None))


def _first_steps(wanted: list[Service]) -> str:
    server = next((one.name for one in wanted if "serve" in one.command), "NAME")
    return f"rmt sql --server {server} 'SHOW TABLES';  rmt status"


class _Process(Process):  # type: ignore[misc]  # honcho has no types
    """honcho's runner of one command, which dies with its parent and takes the command along."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._child_ctor = partial(Popen, preexec_fn=partial(_die_with_parent, signal.SIGTERM))

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:
        _die_with_parent(signal.SIGKILL)
        super().run(events, ignore_signals)


def _die_with_parent(number: int) -> None:
    """Ask the kernel for a signal when the parent ends. Elsewhere than on Linux: nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
