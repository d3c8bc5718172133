"""Two real servers over one ZooKeeper, and scenarios carried out on them."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from examples.flights.ports import free_port
from rmt_pipeline.config import Config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.sql.formats.rows import Done
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.system import SystemClock
from tests.golden.scenario import (
    Answered,
    Outcome,
    Run,
    Step,
    WaitMutations,
    entry_of,
    mutation_of,
    part_of,
)
from tests.support.waiting import LASTING_S, LIMIT_S, until

REPLICAS = ("r1", "r2")
AS_RECORDED = (  # 18.16 stored blocks as they came, and waited for one quorum after the other
    ("optimize_on_insert", "0"),
    ("insert_quorum_parallel", "0"),
)

CONFIG = """
[zookeeper]
hosts = "{zookeeper}"
session_timeout_s = {lasting_s}
[spark]
master = "local[1]"
[servers.r1]
data = "r1"
listen = "127.0.0.1:{port1}"
macros = {{shard = "01", replica = "r1"}}
[servers.r2]
data = "r2"
listen = "127.0.0.1:{port2}"
macros = {{shard = "01", replica = "r2"}}
"""


class Client(Protocol):
    """Carries out one statement on one replica: lines of TSV, or an error's text."""

    def execute(
        self, replica: str, statement: str, settings: Sequence[tuple[str, str]] = ()
    ) -> list[str]:
        """Raises StatementFailed."""
        ...


class StatementFailed(Exception):
    """`cause` is what was raised, when the client is in this process."""

    def __init__(self, message: str, cause: RmtError | None = None) -> None:
        super().__init__(message)
        self.cause = cause


class InProcess:
    """Sessions of this process: quick."""

    def __init__(self, config: Config) -> None:
        self._servers = {name: ServerContext(config, name) for name in REPLICAS}

    def execute(
        self, replica: str, statement: str, settings: Sequence[tuple[str, str]] = ()
    ) -> list[str]:
        out = io.BytesIO()
        try:
            result = Session(self._servers[replica], dict(settings)).execute(statement)
            if not isinstance(result, Done):
                write_rows(result, result.format or "TSV", out)
        except RmtError as error:
            raise StatementFailed(f"Code: {error.code}. {error}", error) from error
        return out.getvalue().decode().splitlines()

    def close(self) -> None:
        for server in self._servers.values():
            server.close()


class CommandLine:
    """`rmt sql`, as other programs call it."""

    def __init__(self, config: Config) -> None:
        assert config.path is not None
        self._config = config.path

    def execute(
        self, replica: str, statement: str, settings: Sequence[tuple[str, str]] = ()
    ) -> list[str]:
        options = [
            option for name, value in settings for option in ("--set", f"{name}={value}")
        ]
        command = rmt(self._config, "sql", "--server", replica, *options, "--format", "TSV")
        done = subprocess.run(
            [*command, statement],
            capture_output=True,
            check=False,
            text=True,
            timeout=LIMIT_S,
        )
        if done.returncode == 0:
            return done.stdout.splitlines()
        assert done.returncode == 1, done
        assert re.match(r"Code: [A-Z_]+\. .+\n\(in statement 1: ", done.stderr), done.stderr
        raise StatementFailed(done.stderr)


def rmt(config: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "rmt_pipeline.cli", "--config", str(config), *arguments]


@contextmanager
def running_servers(directory: Path, zookeeper: str) -> Iterator[Path]:
    """`rmt serve --server r1 --work` and r2's; gives the configuration file. Logs are beside it."""
    ports = {"port1": free_port(), "port2": free_port()}
    config = directory / "rmt.toml"
    config.write_text(CONFIG.format(zookeeper=zookeeper, lasting_s=LASTING_S, **ports))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with ExitStack() as stack:
        for name, port in zip(REPLICAS, ports.values(), strict=True):
            log = stack.enter_context((directory / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                rmt(config, "serve", "--server", name, "--work"),
                stderr=log,
                stdout=log,
                env=environment,
            )
            stack.callback(_stop, process)
            _await_port(port, process, Path(log.name))
        yield config


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or clock.monotonic_s() > deadline_s:
                raise AssertionError(log.read_text()) from None
            clock.sleep_s(0.05)
        else:
            return


# --- one scenario ---


def perform(steps: Sequence[Step], client: Client, root: str) -> Outcome:
    """Carry out a scenario with its tables below `root` in ZooKeeper.

    Raises StatementFailed for a statement that should not have failed.
    """
    outcome = Outcome()
    for step in steps:
        if isinstance(step, WaitMutations):
            _wait_mutations(client)
        else:
            _perform_one(step, client, root, outcome)
    return outcome


def look(outcome: Outcome, expected: Outcome, client: Client, root: str) -> None:
    """Add to `outcome` the parts and logs that `expected` has, once the queues are done."""
    for table, replica in expected.parts:
        if client.execute(replica, f"EXISTS TABLE {table}") == ["1"]:
            client.execute(replica, f"SYSTEM SYNC REPLICA {table}")
    for table, replica in expected.parts:
        outcome.parts[table, replica] = [
            part_of(line)
            for line in client.execute(
                replica,
                "SELECT partition, name, rows FROM system.parts"
                f" WHERE table = '{table}' AND active ORDER BY name",
            )
        ]
    for table in expected.logs:
        nodes = _nodes(client, f"{root}/{table}/log")
        outcome.logs[table] = [entry_of(lines) for lines in nodes.values()]
    for table, mutation in expected.mutations:
        nodes = _nodes(client, f"{root}/{table}/mutations")
        outcome.mutations[table, mutation] = mutation_of(nodes[mutation])


def _perform_one(step: Run, client: Client, root: str, outcome: Outcome) -> None:
    statement = step.statement.replace("{zk}", root).replace("{r}", step.replica)
    try:
        lines = client.execute(step.replica, statement, (*AS_RECORDED, *step.settings))
    except StatementFailed:
        if not step.fails:
            raise
        outcome.answers.append(Answered(step.replica, step.statement, (), failed=True))
        return
    if step.answers or step.fails:
        answer = Answered(step.replica, step.statement, tuple(lines), failed=False)
        outcome.answers.append(answer)


def _wait_mutations(client: Client) -> None:
    query = "SELECT count() FROM system.mutations WHERE NOT is_done"
    until(
        lambda: all(client.execute(replica, query) == ["0"] for replica in REPLICAS),
        lambda: "mutations are not finished",
    )


def _nodes(client: Client, path: str) -> dict[str, list[str]]:
    """The children of a node and the lines that each holds."""
    query = f"SELECT name, value FROM system.zookeeper WHERE path = '{path}' ORDER BY name"
    rows = (line.split("\t") for line in client.execute("r1", query))
    return {name: _untabbed(value).splitlines() for name, value in rows}


_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\", "\\'": "'"}


def _untabbed(value: str) -> str:
    """What a value of TSV stands for."""
    return re.sub(r"\\.", lambda found: _ESCAPES[found[0]], value)
