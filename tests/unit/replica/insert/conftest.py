"""What tests of inserts begin with, unless they say otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_replicas import Replicas


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as opened:
        yield opened


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as opened:
        yield opened
