"""`rmt up`: everything on one machine; and `rmt dagster`.

Every process is one of `rmt`'s own commands, so each can also be run alone. All of them end with
this process, however it ends (`processes.child`).
"""

import json
import os
import shlex
import shutil
import signal
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import urllib3

from rmt_pipeline.config import Config, ServerConfig
from rmt_pipeline.config.load import FILE_NAME
from rmt_pipeline.exchange.control import health, peer_of
from rmt_pipeline.processes.group import Group
from rmt_pipeline.processes.server import accepts, refuse_used_port
from rmt_pipeline.processes.zookeeper import answers
from rmt_pipeline.protocol.errors import BadConfiguration, Unavailable
from rmt_pipeline.system import Clock, SystemClock

READY_TIMEOUT_S = 180.0
PROBE_EVERY_S = 0.25
PROBE_TIMEOUT_S = 2.0
ADDRESS = "127.0.0.1"
"""The address of Dagster's web server."""
_SPEAKER = "rmt"


@dataclass(frozen=True, slots=True)
class Service:
    """One process. `ready` returns whether it answers; `where` is its address, for people."""

    name: str
    command: list[str]
    ready: Callable[[], bool]
    where: str


def services(config: Config, *, dagster: bool, spark: bool, work: bool) -> list[Service]:
    """The processes, in the order in which they become ready."""
    found = []
    # ZooKeeper starts at the same time as all else, so its start may take a while.
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
                _rmt(
                    config, "serve", "--server", name, *patience, *(["--work"] if work else [])
                ),
                partial(_serves, config, server),
                f"{peer_of(config, server)}/health, /metrics",
            )
        )
    if spark and config.spark.is_ours:
        port = config.spark.port
        found.append(
            Service(
                "spark",
                _rmt(config, "spark"),
                partial(accepts, "127.0.0.1", port),
                f"sc://127.0.0.1:{port}",
            )
        )
    if dagster:
        url = f"http://{ADDRESS}:{config.dagster.port}"
        found.append(
            Service(
                "dagster",
                _rmt(config, "dagster", "--wait"),
                partial(_responds, f"{url}/server_info"),
                url,
            )
        )
    return found


def run_up(config: Config, *, dagster: bool, spark: bool, work: bool) -> int:
    """Run until Ctrl-C, SIGTERM, or until the first process ends by itself: then all are ended.

    The exit status is 0 when the end was asked for. Raises BadConfiguration, AddressInUse.
    """
    if dagster:  # better an error now than one from a child after a minute
        locations_of(config)
        _refuse_used_port(config)
    wanted = services(config, dagster=dagster, spark=spark, work=work)
    group = Group([_SPEAKER, *(one.name for one in wanted)], sys.stderr)
    try:
        for one in wanted:
            group.start(one.name, one.command, _environment(config))
        threading.Thread(
            target=_report,
            args=[group, wanted, first_steps(config), SystemClock()],
            name="rmt-ready",
            daemon=True,
        ).start()
        group.run()
    finally:
        group.stop()
    if group.asked_to_end:
        return 0
    group.tell(_SPEAKER, "one process ended by itself (see above), so all were ended")
    return 1


def become_dagster(config: Config, *, wait: bool) -> None:
    """Replace this process by `dagster dev` with our daemon. Never returns. Raises
    BadConfiguration, AddressInUse.
    """
    locations = locations_of(config)
    _refuse_used_port(config)
    if wait:
        _wait_for_servers(config, SystemClock())
    # For start-up time: importing Dagster takes longer than all that `rmt up` does itself.
    from rmt_pipeline.dagster import instance  # noqa: PLC0415

    home = config.dagster.home
    instance.prepare_home(home)
    special = instance.environment(config.servers)
    environment = {**_environment(config), **special, "DAGSTER_HOME": str(home)}
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # else Dagster ignores what our parent does
    command = [sys.executable, "-m", "rmt_pipeline.dagster.daemon", "dev", *locations]
    command += ["-h", ADDRESS, "-p", str(config.dagster.port)]
    os.execve(sys.executable, command, environment)  # noqa: S606


def locations_of(config: Config) -> list[str]:
    """The arguments that tell `dagster dev` the code locations. They name a workspace.yaml; there
    are none when Dagster is to read the pyproject.toml of the current directory. Raises
    BadConfiguration when there is neither.
    """
    named, here = config.dagster.workspace, Path.cwd()
    workspace = named or here / "workspace.yaml"
    if workspace.is_file():
        return ["-w", str(workspace)]
    tool = {} if named else _tools(here / "pyproject.toml")
    if project := tool.get("dg", {}).get("project"):
        return ["-w", str(_workspace_of_project(config, project))]
    if "dagster" in tool:
        return []
    remedy = (
        "correct it"
        if named
        else "go to the directory of your Dagster project, or name its workspace.yaml in rmt.toml"
    )
    raise BadConfiguration(
        f"[dagster] workspace: there is no {workspace}, which says where your definitions are; "
        f"{remedy}"
    )


def _tools(project: Path) -> dict[str, Any]:
    """The section [tool] of a pyproject.toml; empty if there is no such file."""
    try:
        read: dict[str, Any] = tomllib.loads(project.read_text(encoding="utf-8")).get(
            "tool", {}
        )
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise BadConfiguration(f"{project}: {error}") from error
    return read


def _workspace_of_project(config: Config, project: Mapping[str, Any]) -> Path:
    """A workspace file in Dagster's home for a project that `create-dagster` has made. It names the
    code location as `dg dev` does; `dagster dev` alone gives it another name, and warns of that.
    """
    here = Path.cwd()
    location = {
        "module_name": project.get("code_location_target_module")
        or f"{project['root_module']}.definitions",
        "location_name": project.get("code_location_name") or here.name,
        "working_directory": str(here),
    }
    # workspace.yaml may be the user's own.
    file = config.dagster.home / "project_workspace.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"load_from": [{"python_module": location}]}, indent=2)  # YAML, too
    file.write_text(text, encoding="utf-8")
    return file


def _refuse_used_port(config: Config) -> None:
    """Raises AddressInUse when the port of Dagster's web server is taken. Dagster's daemon would
    wait for ever for a web server that can't start.
    """
    port = config.dagster.port

    def in_use(problem: OSError) -> str:
        return (
            f"Dagster's web server can't listen on {ADDRESS}:{port} ({problem.strerror}): end "
            "what has that port, another Dagster maybe, or set another [dagster] port in rmt.toml"
        )

    refuse_used_port(ADDRESS, port, section="dagster", in_use=in_use)


def _wait_for_servers(config: Config, clock: Clock) -> None:
    deadline_s = clock.monotonic_s() + READY_TIMEOUT_S
    for name, server in config.servers.items():
        while not _serves(config, server):
            if clock.monotonic_s() > deadline_s:
                raise Unavailable(f"server {name} did not come up in {READY_TIMEOUT_S:g} s")
            clock.sleep_s(PROBE_EVERY_S)


def _rmt(config: Config, *arguments: str) -> list[str]:
    given = ["--config", str(config.path)] if config.path is not None else []
    return [sys.executable, "-m", "rmt_pipeline.cli", *given, *arguments]


def _environment(config: Config) -> dict[str, str]:
    """The environment of our children: unbuffered output, and the configuration that this process
    reads.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("RMT_CONFIG", None)
    if config.path is not None:
        environment["RMT_CONFIG"] = str(config.path)
    return environment


def _serves(config: Config, server: ServerConfig) -> bool:
    """Whether the server answers `/health`, whatever the answer is."""
    try:
        health(config, server, PROBE_TIMEOUT_S)
    except Unavailable:
        return False
    return True


def _responds(url: str) -> bool:
    """Whether an HTTP server answers at `url`, whatever the status."""
    try:
        urllib3.request("GET", url, timeout=PROBE_TIMEOUT_S, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return True


def _report(group: Group, wanted: list[Service], steps: str, clock: Clock) -> None:
    """Print which services are ready, in their order, until the end begins; then what to try."""
    deadline_s = clock.monotonic_s() + READY_TIMEOUT_S
    for service in wanted:
        while not service.ready():
            if group.wait_s(PROBE_EVERY_S):
                return
            if clock.monotonic_s() > deadline_s:
                late = f"{service.name} is not ready after {READY_TIMEOUT_S:g} s"
                group.tell(_SPEAKER, late)
                return
        group.tell(_SPEAKER, f"{service.name} is ready: {service.where}")
    group.tell(_SPEAKER, f"everything is ready. Ctrl-C ends it. Try:  {steps}")


def first_steps(config: Config) -> str:
    """What to type first, in another terminal in the same directory."""
    server, rmt = next(iter(config.servers), "NAME"), _typed(config)
    return f"{rmt} sql --server {server} 'SHOW TABLES';  {rmt} status"


def _typed(config: Config) -> str:
    """`rmt` with its path, unless PATH has it, and with its configuration, unless it is found
    there.
    """
    program = Path(sys.executable).with_name("rmt")
    words = [str(_from_here(program))]
    if shutil.which("rmt") == str(program):
        words = ["rmt"]
    elif not program.is_file():
        words = [sys.executable, "-m", "rmt_pipeline.cli"]
    if config.path is not None and config.path != Path.cwd() / FILE_NAME:
        words += ["--config", str(_from_here(config.path))]
    return shlex.join(words)


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
