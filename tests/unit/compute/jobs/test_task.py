"""The Python worker of Spark in which tasks run."""

import subprocess
import sys

WORKER = """
import gc
from rmt_pipeline.compute.jobs.task import begin_task
before = len(gc.get_objects())
begin_task()
frozen = gc.get_freeze_count()
assert frozen >= before, (frozen, before)
more = [[] for _ in range(1000)]
begin_task()
assert gc.get_freeze_count() == frozen  # what later tasks make is looked through
"""


def test_the_collection_of_garbage_between_tasks_does_not_look_through_loaded_modules() -> None:
    subprocess.run([sys.executable, "-c", WORKER], check=True)
