"""What tests of statements share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.sql.run.session import Session
from tests.support.local_session import local_session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with local_session(tmp_path) as opened:
        yield opened
