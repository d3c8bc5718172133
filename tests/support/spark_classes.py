"""Spark's classes as Java keeps them once it has read them: with this archive a JVM of Spark starts
with half the processor time. `make test` makes it, once, beside the packages of its environment:

    python -m tests.support.spark_classes

Without it the tests do the same, later.
"""

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from examples.flights.ports import free_port
from rmt_pipeline.processes.java import JavaCommand, find_java
from rmt_pipeline.processes.spark import ConnectServer, spark_home
from rmt_pipeline.protocol.errors import RmtError

OPTIONS = "SPARK_SUBMIT_OPTS"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
ENDS_WITHIN_S = 180.0  # it writes the archive when it ends


def archive(java: JavaCommand) -> Path:
    """Its file: of this Java and these files of Spark, and of no others."""
    jars = sorted((spark_home() / "jars").glob("*.jar"))
    seen = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars]
    of = repr((str(java.path.resolve()), java.path.stat().st_mtime_ns, seen))
    name = f"spark-classes-{hashlib.sha256(of.encode()).hexdigest()[:16]}.jsa"
    return Path(sys.prefix) / name


def use() -> None:
    """Let the JVMs that this process and its children start read the archive, if there is one."""
    with suppress(RmtError, OSError):  # no Java, no Spark: the tests that need one say so
        file = archive(find_java())
        given = os.environ.get(OPTIONS, "")
        if file.exists() and str(file) not in given:
            os.environ[OPTIONS] = f"{given} -XX:SharedArchiveFile={file} {QUIET}".lstrip()


def make() -> None:
    """From the classes of a Connect server that has run a task of Python and written a file."""
    # Only here: each process that runs tests imports this module, and would load pyarrow with it.
    from rmt_pipeline.compute.jobs.spark import SparkSessions  # noqa: PLC0415

    java = find_java()
    file = archive(java)
    if file.exists():
        return
    with tempfile.TemporaryDirectory(dir=file.parent) as directory:
        made = Path(directory, "archive.jsa")
        os.environ[OPTIONS] = f"-XX:ArchiveClassesAtExit={made} {QUIET}"
        server = ConnectServer(
            Path(directory, "connect.log"),
            port=free_port(),
            master="local[1]",
            java_home=java.env.get("JAVA_HOME"),
        )
        server.stop_timeout_s = ENDS_WITHIN_S
        with server:
            sessions = SparkSessions(remote=server.url)
            run_a_task(sessions.get(), Path(directory))
            sessions.close()
        if made.exists():
            made.replace(file)


def run_a_task(session: Any, directory: Path) -> int:
    """What needs most of the classes that tests need. The number of rows that were written."""
    numbers = session.range(0, 2, 1, 1)
    mapped = numbers.mapInArrow(lambda batches: batches, "id long")
    mapped.write.parquet(f"{directory}/rows")
    return session.read.parquet(f"{directory}/rows").count()


if __name__ == "__main__":
    try:
        make()
    except Exception as error:  # noqa: BLE001  whatever it is, the tests go on without
        sys.stderr.write(f"Spark's classes are read anew by each test: {error}\n")
