"""Spark's JVM for sessions of this process: begun once at a time, and gone when it did not begin.

`spark-submit` is a script here, so that it can fail in every way: what is started is ours to end.
"""

import os
import threading
from collections.abc import Callable

import pytest

from rmt_pipeline.compute.jobs import spark
from rmt_pipeline.compute.jobs.spark import PAUSE_FIRST_S, PAUSE_MAX_S, start_jvm
from rmt_pipeline.processes import spark as processes
from rmt_pipeline.processes.spark import START_TIMEOUT_S, SessionJvm
from rmt_pipeline.protocol.errors import Unavailable
from tests.support.waiting import until
from tests.unit.processes.test_child import linux, mark, marked

__all__ = ["mark"]  # a fixture

ANSWERING = """
printf '\\0\\0\\0\\007\\0\\0\\0\\003abc' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec sleep 1000
"""
HANGING = "echo $$ >> {file}; sleep 1000 & wait"
ENDING = "exit 0"


class Clock:
    """`flies_once`: from then on nobody has any time left."""

    def __init__(self, flies_once: Callable[[], bool] = lambda: False) -> None:
        self.at_s = 1000.0
        self._flies_once = flies_once

    def monotonic_s(self) -> float:
        return self.at_s

    def now_s(self) -> float:
        return self.at_s

    def sleep_s(self, seconds: float) -> None:
        threading.Event().wait(0.01)
        self.at_s += START_TIMEOUT_S if self._flies_once() else seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Of the pauses between attempts."""
    clock = Clock()
    monkeypatch.setattr(spark, "_jvm", spark._OwnJvm(clock))
    return clock


@pytest.fixture
def submits(monkeypatch, tmp_path):
    """What `spark-submit` does, instead of starting a JVM."""

    def does(text: str) -> None:
        script = tmp_path / "bin" / "spark-submit"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/bash\n{text}\n")
        script.chmod(0o755)
        monkeypatch.setattr(processes, "spark_home", lambda: tmp_path)

    return does


def test_port_and_secret_are_what_the_jvm_wrote(submits) -> None:
    submits(ANSWERING)
    with SessionJvm({}) as jvm:
        assert (jvm.port, jvm.secret) == (7, "abc")


def test_what_a_jvm_puts_into_temporary_files_goes_with_it(
    submits, monkeypatch, tmp_path
) -> None:
    temporary = tmp_path / "a directory"
    temporary.mkdir()
    monkeypatch.setattr(processes.tempfile, "gettempdir", lambda: str(temporary))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    options = tmp_path / "options"
    submits(f'echo "$SPARK_SUBMIT_OPTS" > {options}{ANSWERING}')
    with SessionJvm({}):
        [scratch] = temporary.iterdir()
        assert options.read_text() == f"-Djava.io.tmpdir='{scratch}' -Dmine=1\n"
    assert list(temporary.iterdir()) == []


@linux
def test_one_that_hangs_is_ended_with_all_it_started(submits, mark, tmp_path) -> None:
    """pyspark itself would wait for it for ever."""
    pids = tmp_path / "pids"
    submits(HANGING.format(file=pids))
    jvm = SessionJvm({}, clock=Clock(lambda: pids.exists() and pids.read_text() != ""))
    with pytest.raises(Unavailable, match="did not answer within"):
        jvm.start()
    assert pids.read_text().count("\n") == 1
    until(lambda: marked(mark) == [], lambda: f"these are left: {marked(mark)}")


def test_one_that_ends_without_an_answer_is_noticed_whatever_its_status(submits) -> None:
    """pyspark itself waits for ever when the status is 0."""
    submits(ENDING)
    with pytest.raises(Unavailable, match="ended with status 0"):
        SessionJvm({}).start()


@linux
def test_attempts_that_fail_are_further_and_further_apart(
    submits, clock, mark, tmp_path
) -> None:
    submits(f"echo tried >> {tmp_path / 'tries'}; exit 1")
    pauses = []
    for number in range(1, 10):
        began_s = clock.at_s
        while (tmp_path / "tries").exists() is False or (
            (tmp_path / "tries").read_text().count("\n") < number
        ):
            with pytest.raises(Unavailable):
                start_jvm({})
            clock.at_s += 0.5
        pauses.append(clock.at_s - began_s)
    assert pauses[1] == pytest.approx(PAUSE_FIRST_S, abs=1)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(PAUSE_MAX_S, abs=1)
    assert marked(mark) == []


@linux
def test_of_many_who_want_a_session_at_once_one_tries(submits, clock, mark, tmp_path) -> None:
    submits(f"echo tried >> {tmp_path / 'tries'}; sleep 0.3; exit 1")

    def want() -> None:
        with pytest.raises(Unavailable):
            start_jvm({})

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "tries").read_text() == "tried\n"
    assert marked(mark) == []


def test_what_the_attempt_needed_is_out_of_the_environment_again(submits, clock) -> None:
    before = dict(os.environ)
    submits(ENDING)
    with pytest.raises(Unavailable):
        start_jvm({})
    assert dict(os.environ) == before
