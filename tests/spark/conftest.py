"""One Spark of each kind for the whole run: they take seconds to start."""

from collections.abc import Iterator

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.compute.jobs.spark import SparkSessions
from rmt_pipeline.processes.java import find_java
from rmt_pipeline.processes.spark import ConnectServer


@pytest.fixture(scope="session")
def java_home() -> str:
    return find_java().env["JAVA_HOME"]


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory, java_home) -> Iterator[ConnectServer]:
    log = tmp_path_factory.mktemp("spark") / "connect.log"
    with ConnectServer(log, port=free_port(), master="local[2]", java_home=java_home) as server:
        yield server


@pytest.fixture(scope="session")
def connect(connect_server) -> Iterator[SparkSessions]:
    sessions = SparkSessions(remote=connect_server.url)
    sessions.get()  # small merges do not wait for it
    yield sessions
    sessions.close()
