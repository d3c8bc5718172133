"""Spark does what `make test` keeps its classes of: else each JVM would read them anew, which takes
twice the processor time and fails no other test.
"""

from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.spark import SparkSessions
from tests.support.spark_classes import run_a_task

pytestmark = pytest.mark.spark


def test_the_task_whose_classes_are_kept_is_run(connect: SparkSessions, tmp_path: Path) -> None:
    assert run_a_task(connect.get(), tmp_path) == 2
