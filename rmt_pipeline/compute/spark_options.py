"""How the Spark that we start is set up."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import rmt_pipeline

APP_NAME = "rmt_pipeline"
CONNECT_PORT = 15002

NICENESS = 10
"""Of the JVMs that we start and their workers: merges yield to who inserts and fetches here."""
CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""They make a process a client of Spark Connect. pyspark sets the last one itself when it opens
such a session, and whatever that process starts inherits it.
"""
SESSION_OPTIONS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Our own sessions hold no data in the JVM: rows live in the Python workers.
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A unit reports its own errors; repeating a task would only repeat them.
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "true",
}
"""Of sessions that we start: classic ones and the server of `rmt spark`."""


def import_path() -> str:
    """What Python workers need in PYTHONPATH to import this package."""
    root = str(Path(rmt_pipeline.__file__).parent.parent)
    before = os.environ.get("PYTHONPATH", "")
    return root if not before else f"{root}{os.pathsep}{before}"


def python_environment(java_home: str | None) -> dict[str, str]:
    """The environment for JVMs that start our Python workers."""
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": import_path(),
    }
    if java_home:
        environment["JAVA_HOME"] = java_home
    return environment


def loopback_options(master: str) -> dict[str, str]:
    """A local session opens its ports on the loopback interface only."""
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
