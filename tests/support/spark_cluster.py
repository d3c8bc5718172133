"""A standalone Spark cluster on this machine's loopback: PySpark's own master and workers."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from examples.flights.ports import free_port
from rmt_pipeline.processes.spark import python_environment, spark_home

START_TIMEOUT_S = 300  # 3 s on an idle machine


@contextlib.contextmanager
def cluster(directory: Path, workers: int, java_home: str) -> Iterator[str]:
    """A cluster of workers with one core each; gives the master's URL."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        start(
            stack,
            directory / "master.log",
            java_home,
            "org.apache.spark.deploy.master.Master",
            f"--host 127.0.0.1 --port {port} --webui-port {free_port()}".split(),
        )
        wait_for(lambda: answers(port), directory / "master.log")
        for number in range(workers):
            log = directory / f"worker-{number}.log"
            start(
                stack,
                log,
                java_home,
                "org.apache.spark.deploy.worker.Worker",
                [
                    *f"--host 127.0.0.1 --cores 1 --memory 1g --webui-port {free_port()}".split(),
                    *("--work-dir", str(directory / f"work-{number}"), master),
                ],
            )
            wait_for(lambda log=log: "Successfully registered" in log.read_text(), log)
        yield master


def start(
    stack: contextlib.ExitStack, log: Path, java_home: str, name: str, arguments: list[str]
) -> None:
    home = spark_home()
    process = subprocess.Popen(
        [str(home / "bin" / "spark-class"), name, *arguments],
        stdout=stack.enter_context(log.open("wb")),
        stderr=subprocess.STDOUT,
        env={**os.environ, **python_environment(java_home), "SPARK_HOME": str(home)},
    )
    stack.callback(stop, process)


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(ready, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not ready():
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.1)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
