"""What tests on a real ZooKeeper begin with, unless they say otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.config import Config
from rmt_pipeline.table import Table
from tests.support.serving import config_at, table_of_one_server


@pytest.fixture
def config(tmp_path: Path, zookeeper_server) -> Config:
    """Two servers, of which none runs."""
    return config_at(tmp_path, zookeeper_server.hosts)


@pytest.fixture
def alone(tmp_path: Path, zookeeper_server) -> Config:
    """One server, which runs for who wants its `table`."""
    return config_at(tmp_path, zookeeper_server.hosts, data={"r1": "r1"})


@pytest.fixture
def table(alone: Config, chroot: str) -> Iterator[Table]:
    """An empty one on that server, which works no queue."""
    with table_of_one_server(alone, f"{chroot}/t") as found:
        yield found
