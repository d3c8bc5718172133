"""The files of examples/production, run on this machine: what is said of them in docs/deploy.md,
with other addresses and directories, and nothing else changed.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from examples.flights.dagster_client import DagsterClient
from examples.flights.ports import free_port
from rmt_pipeline.config import Config, load_config
from rmt_pipeline.processes.child import Child
from rmt_pipeline.processes.server import accepts
from tests.support import postgres
from tests.support.waiting import LIMIT_S, until

FILES = Path(__file__).parents[2] / "examples" / "production"
ETC = ("rmt.toml", "workspace.yaml")
SERVERS = ("r1", "r2")
WAIT_S = 3 * LIMIT_S  # dozens of processes, each of which starts others
STOP_WITHIN_S = 30.0
ENDS_MAX = 10


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is: `substitutes` are what this machine has instead of what files say."""

    root: Path
    substitutes: Mapping[str, str]

    def of(self, text: str) -> str:
        for there, here in self.substitutes.items():
            text = text.replace(there, here)
        return text


@dataclass
class Production:
    """Its units, each started and stopped by its name, as systemd does."""

    place: Place
    dagster: DagsterClient
    config: Config
    ports: Mapping[str, int]
    ended: list[str] = field(default_factory=list)
    """Units that ended by themselves."""
    _running: dict[str, Child] = field(default_factory=dict)

    def start(self, *units: str) -> None:
        for unit in units:
            command, environment, directory = self._command(unit)
            with (self.place.root / f"{unit}.log").open("ab") as log:
                self._running[unit] = Child(command, output=log, env=environment, cwd=directory)

    def stop(self, *units: str) -> None:
        """In order (SIGTERM): as KillSignal says."""
        for unit in units:
            self._running.pop(unit).stop(STOP_WITHIN_S)

    def kill(self, *units: str) -> None:
        """As by a power failure."""
        for unit in units:
            self._running.pop(unit).kill()

    def stop_all(self) -> None:
        with ExitStack() as stack:
            for unit in list(self._running):
                stack.callback(self.stop, unit)

    def locations_answer(self) -> bool:
        return all(accepts("127.0.0.1", self.ports[f"rmt-location@{name}"]) for name in SERVERS)

    def log(self, unit: str) -> str:
        return (self.place.root / f"{unit}.log").read_text(errors="replace")

    def until(self, what: str, done: Callable[[], object], limit_s: float = WAIT_S) -> None:
        """What has ended by itself meanwhile is started again (Restart=always), some times."""

        def is_done() -> bool:
            for unit, process in list(self._running.items()):
                if process.status() is not None:
                    self.ended.append(unit)
                    said = f"{unit} ends again and again:\n{self.log(unit)[-3000:]}"
                    assert self.ended.count(unit) < ENDS_MAX, said
                    self.start(unit)
            return bool(done())

        until(is_done, lambda: f"{what} did not come", limit_s=limit_s)

    def wait_for_run(self, run_id: str) -> None:
        def is_over() -> bool:
            [run] = self.dagster.runs(runIds=[run_id])
            assert run["status"] not in ("FAILURE", "CANCELED"), run
            return bool(run["status"] == "SUCCESS")

        self.until(f"the end of run {run_id}", is_over)

    def _command(self, unit: str) -> tuple[list[str], dict[str, str], Path]:
        template, at, name = unit.partition("@")
        lines = [
            line.split("=", 1)
            for line in (FILES / f"{template}{at}.service").read_text().splitlines()
            if "=" in line
        ]
        said = {key: self.place.of(value.replace("%i", name)) for key, value in lines}
        environment = {
            **os.environ,
            **dict(
                self.place.of(value.replace("%i", name)).split("=", 1)
                for key, value in lines
                if key == "Environment"
            ),
        }
        if "EnvironmentFile" in said:
            secrets = Path(said["EnvironmentFile"]).read_text()
            environment |= dict(line.split("=", 1) for line in secrets.splitlines())
        command = shlex.split(said["ExecStart"])
        if "--port" in command:
            command[command.index("--port") + 1] = str(self.ports[unit])
        directory = Path(said.get("WorkingDirectory", self.place.root))
        return command, environment, directory


@contextmanager
def production(root: Path, zookeeper: str, storage: postgres.Postgres, spark: str):
    """Its files, for these servers; `spark` is a Spark Connect server's address. Nothing is
    started; what the block has started is ended.
    """
    ports = {
        "dagster-webserver": free_port(),
        **{f"rmt-location@{name}": free_port() for name in SERVERS},
    }
    substitutes = {
        "zk1.example:2181,zk2.example:2181,zk3.example:2181": zookeeper,
        **{f"{name}.example:9009": f"127.0.0.1:{free_port()}" for name in SERVERS},
        **{
            f"host: {name}.example, port: 4000": f"host: 127.0.0.1, port: "
            f"{ports[f'rmt-location@{name}']}"
            for name in SERVERS
        },
        "pg.example": "127.0.0.1",
        "port: 5432": f"port: {storage.port}",
        "0.0.0.0": "127.0.0.1",
        "/opt/rmt/bin": str(Path(sys.executable).parent),
        "/opt/rmt/project": str(root / "project"),
        "/etc/rmt": str(root / "etc"),
        "/var/lib/rmt": str(root / "rmt"),
        "/var/lib/dagster": str(root / "dagster"),
        "[spark]\n": f'[spark]\nremote = "{spark}"\n',
    }
    place = Place(root, substitutes)
    for directory in ("project", "etc", "rmt", "dagster"):
        (root / directory).mkdir()
    for name in ETC:
        (root / "etc" / name).write_text(place.of((FILES / name).read_text()))
    secret = f"DAGSTER_POSTGRES_PASSWORD={postgres.PASSWORD}\n"
    (root / "etc" / "secrets").write_text(secret)
    instance = place.of((FILES / "dagster.yaml").read_text())
    (root / "dagster" / "dagster.yaml").write_text(instance)
    shutil.copy(FILES / "definitions.py", root / "project")
    config = load_config(root / "etc" / "rmt.toml")
    url = f"http://127.0.0.1:{ports['dagster-webserver']}"
    with DagsterClient(url) as dagster:
        running = Production(place, dagster, config, ports)
        try:
            yield running
        finally:
            running.stop_all()
