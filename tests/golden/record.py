"""Records what ClickHouse does: `python -m tests.golden.record SCENARIO.sql…` writes each
reference.

Needs Debian's package `clickhouse-server`. Two servers over one ZooKeeper carry the statements out.
"""

import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.clickhouse import ClickHouse
from examples.flights.ports import free_port
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from tests.golden.cluster import AS_RECORDED, REPLICAS, StatementFailed, perform
from tests.golden.scenario import Answered, Outcome, Run, steps_of

CREATED = re.compile(r"CREATE TABLE (\w+)", re.IGNORECASE)


class Original:
    """The `Client` of two ClickHouse servers."""

    def __init__(self, servers: dict[str, ClickHouse]) -> None:
        self._servers = servers

    def execute(
        self, replica: str, statement: str, settings: Sequence[tuple[str, str]] = ()
    ) -> list[str]:
        try:
            known = {
                name: value for name, value in settings if (name, value) not in AS_RECORDED
            }
            answer = self._servers[replica].query(statement, **known)
        except RuntimeError as error:
            raise StatementFailed(str(error)) from error
        return answer.splitlines()


def reference(answers: Sequence[Answered], tables: Sequence[str], client: Original) -> str:
    lines: list[str] = []
    for answer in answers:
        lines.append(f"# {answer.replica} {answer.statement}")
        lines += ["ERROR"] if answer.failed else answer.lines
    for table in tables:
        for replica in REPLICAS:
            lines.append(f"# parts {table} {replica}")
            lines += client.execute(
                replica,
                "SELECT partition, name, rows FROM system.parts"
                f" WHERE table = '{table}' AND active ORDER BY name",
            )
    return "\n".join(lines) + "\n"


def record(file: Path, client: Original) -> None:
    steps = list(steps_of(file.read_text()))
    created = (
        CREATED.match(step.statement)
        for step in steps
        if isinstance(step, Run) and not step.fails
    )
    tables = sorted({match[1] for match in created if match is not None})
    try:
        outcome: Outcome = perform(steps, client, f"/recorded/{file.stem}")
        file.with_suffix(".reference").write_text(reference(outcome.answers, tables, client))
    finally:
        for replica in REPLICAS:
            for table in tables:
                client.execute(replica, f"DROP TABLE IF EXISTS {table}")


def main(files: Sequence[str]) -> None:
    directory = Path(tempfile.mkdtemp(prefix="rmt-record-"))
    with EmbeddedZooKeeper(directory / "zookeeper", port := free_port()), ExitStack() as stack:
        servers = {
            name: stack.enter_context(ClickHouse(name, directory, port)) for name in REPLICAS
        }
        client = Original(servers)
        for name in files:
            try:
                record(Path(name), client)
            except StatementFailed as failed:
                print(f"{name}: {failed}", file=sys.stderr)
            else:
                print(f"{name}: recorded")


if __name__ == "__main__":
    main(sys.argv[1:])
