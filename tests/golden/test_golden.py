"""What two of our servers do with the scenarios is what two ClickHouse servers did."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.config import Config
from tests.golden.cluster import (
    Client,
    CommandLine,
    InProcess,
    StatementFailed,
    look,
    perform,
)
from tests.golden.scenario import DIRECTORY, Run, differences, reference_of, steps_of

pytestmark = [pytest.mark.zookeeper, pytest.mark.spark]

NAMES = sorted(path.stem for path in DIRECTORY.glob("*.sql"))


@pytest.fixture(scope="module")
def in_process(two_servers: Config) -> Iterator[Client]:
    client = InProcess(two_servers)
    yield client
    client.close()


def play(name: str, client: Client, observer: Client, root: str) -> None:
    """Carried out by `client`, looked at by `observer`."""
    steps = list(steps_of((DIRECTORY / f"{name}.sql").read_text()))
    expected = reference_of((DIRECTORY / f"{name}.reference").read_text())
    # Only an OPTIMIZE … FINAL or a mutation leaves no choice of parts (README.md).
    forced = any(
        not isinstance(step, Run) or "FINAL" in step.statement.upper() for step in steps
    )
    try:
        actual = perform(steps, client, root)
        look(actual, expected, observer, root)
    except StatementFailed as failed:
        raise failed.cause or failed from None
    finally:
        for table, replica in expected.parts:
            observer.execute(replica, f"DROP TABLE IF EXISTS {table} SYNC")
    assert differences(expected, actual, forced=forced) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_ends_as_it_did_in_the_original(name, in_process):
    play(name, in_process, in_process, f"/golden/{name}")


def test_the_command_line_does_the_same(two_servers, in_process):
    play("19_bad_definitions", CommandLine(two_servers), in_process, "/golden/cli")
