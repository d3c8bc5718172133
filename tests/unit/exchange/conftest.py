"""A replica that has parts, one that gets them, and who fetches."""

import pytest

from rmt_pipeline.exchange.client import PartClient
from rmt_pipeline.exchange.connections import Timeouts
from tests.support.exchange import SECRET, store_at


@pytest.fixture
def source(tmp_path):
    return store_at(tmp_path / "source")


@pytest.fixture
def target(tmp_path):
    return store_at(tmp_path / "target")


@pytest.fixture
def client():
    client = PartClient(SECRET, Timeouts(connect_s=5, receive_s=20))
    yield client
    client.connections.close()
