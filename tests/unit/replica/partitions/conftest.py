"""Two tables of two replicas each, beside each other."""

from collections.abc import Iterator

import pytest

from tests.support.local_replicas import Replicas, partitioned
from tests.support.two_tables import Two, source_of


@pytest.fixture
def two(tmp_path) -> Iterator[Two]:
    with Replicas(tmp_path / "s", define=source_of) as s:
        yield Two(s, Replicas(tmp_path / "t", define=partitioned, beside=s))
