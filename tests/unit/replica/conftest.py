"""What tests of replicas begin with, unless they say otherwise."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_replicas import Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """r1 and r2 of one empty table."""
    with Replicas(tmp_path) as opened:
        yield opened
