"""What tests on a real ZooKeeper begin with, unless they say otherwise."""

from pathlib import Path

import pytest

from rmt_pipeline.config import Config
from tests.support.serving import config_at


@pytest.fixture
def config(tmp_path: Path, zookeeper_server) -> Config:
    """Two servers, of which none runs."""
    return config_at(tmp_path, zookeeper_server.hosts)
