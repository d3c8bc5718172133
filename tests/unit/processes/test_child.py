"""A child never outlives its owner: the owner is killed at every stage, and nobody is left."""

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from rmt_pipeline.processes.child import Child
from rmt_pipeline.protocol.errors import Unavailable
from tests.support.waiting import until

MARK = "RMT_TEST_CHILD"
"""In the environment of whatever a test starts, however many processes lie between."""

OWNER = """
import sys, time
from rmt_pipeline.processes.child import Child
child = Child([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
time.sleep(1000)
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
)
FAMILY = "import os, time; os.fork(); os.fork(); time.sleep(1000)"
STAGES = 25


@pytest.fixture
def mark(monkeypatch):
    name = uuid.uuid4().hex
    monkeypatch.setenv(MARK, name)
    yield name
    for pid in marked(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(name: str) -> list[int]:
    """Living processes other than this one whose environment has the mark."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (directory / "environ").read_bytes()
            if f"{MARK}={name}".encode() in environment and int(directory.name) != os.getpid():
                found.append(int(directory.name))
    return found


def start_owner(command: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", OWNER, command], stdout=subprocess.PIPE)


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@linux
@pytest.mark.parametrize("command", [STUBBORN, FAMILY], ids=["stubborn", "family"])
def test_a_killed_owner_takes_its_child_and_all_of_its_group_along(mark, command) -> None:
    with start_owner(command) as owner:
        owner.stdout.readline()
        owner.kill()
    until(lambda: marked(mark) == [], lambda: f"these are left: {marked(mark)}")


@linux
def test_an_owner_killed_at_any_stage_of_the_start_leaves_nobody(mark) -> None:
    """From before its guardian runs until long after: the stages are as far apart as the machine
    happens to be slow, so each is a while longer than the one before, until one was too late.
    """
    began_s = time.monotonic()
    with start_owner(STUBBORN) as owner:
        owner.stdout.readline()
        owner.kill()
    whole_s = time.monotonic() - began_s
    for stage in range(STAGES):
        with start_owner(STUBBORN) as owner:
            time.sleep(whole_s * (0.3 + 0.9 * stage / STAGES))
            owner.kill()
    until(lambda: marked(mark) == [], lambda: f"these are left: {marked(mark)}")


@linux
def test_a_fork_of_the_owner_does_not_keep_the_child_alive(mark) -> None:
    forking = OWNER.replace("time.sleep", "import os; os.fork(); time.sleep")
    command = [sys.executable, "-c", forking, STUBBORN]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        child = int(owner.stdout.readline())
        until(lambda: len(marked(mark)) == 4, lambda: f"not four yet: {marked(mark)}")
        owner.kill()
        until(lambda: child not in marked(mark), lambda: "the child lives on")


@linux
def test_a_killed_guardian_takes_its_child_along(mark) -> None:
    child = Child(script(STUBBORN))
    os.kill(child._guardian.pid, signal.SIGKILL)
    until(lambda: marked(mark) == [], lambda: f"these are left: {marked(mark)}")
    assert child.wait()
    assert child.status() == -signal.SIGKILL
    child.kill()


@linux
def test_what_a_child_leaves_behind_in_its_group_ends_with_it(mark) -> None:
    with Child(
        script("import os, sys, time; os.fork() or time.sleep(1000); sys.exit(7)")
    ) as one:
        assert one.wait()
        assert one.status() == 7
    until(lambda: marked(mark) == [], lambda: f"these are left: {marked(mark)}")


WITH_SCRATCH = """
import pathlib, sys, time
from rmt_pipeline.processes.child import Child
child = Child([sys.executable, "-c", *sys.argv[1:]], scratch=pathlib.Path(sys.argv[2]))
time.sleep(1000)
"""
WRITING = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], "deeper").mkdir()
pathlib.Path(sys.argv[1], "deeper", "file").write_text(sys.argv[1])
print(1, flush=True)
"""


@pytest.mark.parametrize("end", ["by itself", "stopped", "killed"])
def test_its_scratch_directory_goes_with_it(tmp_path, end) -> None:
    scratch = tmp_path / "scratch"
    waiting = WRITING if end == "by itself" else f"{WRITING}{STUBBORN}"
    with Child(
        [*script(waiting), str(scratch)], output=subprocess.PIPE, scratch=scratch
    ) as child:
        assert child.output.readline() == b"1\n"
        if end == "stopped":
            child.stop(within_s=0.1)
        elif end == "killed":
            os.kill(child.pid, signal.SIGKILL)
        assert child.wait()
        assert not scratch.exists()
    assert list(tmp_path.iterdir()) == []


@linux
def test_a_killed_owner_leaves_no_scratch_directory(mark, tmp_path) -> None:
    scratch = tmp_path / "scratch"
    command = [sys.executable, "-c", WITH_SCRATCH, f"{WRITING}{STUBBORN}", str(scratch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"1\n"
        assert (scratch / "deeper" / "file").exists()
        owner.kill()
    until(lambda: marked(mark) == [], lambda: f"these are left: {marked(mark)}")
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_directory_of_somebody_else_is_left_alone(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be started"):
        Child(script("pass"), scratch=tmp_path)
    assert (tmp_path / "file").exists()


def test_a_child_is_asked_before_it_is_forced() -> None:
    polite = (
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); print(1, flush=True)"
    )
    with Child(script(f"{polite}; sys.stdin.read()"), output=subprocess.PIPE) as child:
        assert child.output.readline() == b"1\n"
        child.terminate()
        assert child.wait()
        assert child.status() == 3
        child.stop(0.0)


def test_one_that_does_not_listen_is_ended_by_force() -> None:
    deaf = STUBBORN.replace("time.sleep", "print(1, flush=True); time.sleep")
    with Child(script(deaf), output=subprocess.PIPE) as child:
        child.output.readline()
        assert child.status() is None
        child.stop(within_s=0.1)
        assert child.status() == 128 + signal.SIGKILL
        child.stop(within_s=0.1)


def test_its_input_ends_only_with_its_owner() -> None:
    reading = "import sys; print(1, flush=True); sys.stdin.read(); print(2, flush=True)"
    with Child(script(reading), output=subprocess.PIPE) as child:
        assert child.output.readline() == b"1\n"
        assert not child.wait(0.2)


def test_the_pid_is_the_commands_own() -> None:
    with Child(script("import os; print(os.getpid())"), output=subprocess.PIPE) as child:
        assert int(child.output.readline()) == child.pid


def test_signals_that_python_ignores_are_as_a_command_expects_them() -> None:
    pipes = "yes | head -n 1; echo ${PIPESTATUS[0]}"
    with Child(["bash", "-c", pipes], output=subprocess.PIPE) as child:
        assert child.output.read() == b"y\n141\n"


def test_signals_that_the_owner_blocks_are_not_blocked_for_the_command() -> None:
    """ClickHouse in the process, for instance, blocks SIGPIPE."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    try:
        pipes = "yes | head -n 1; echo ${PIPESTATUS[0]}"
        with Child(["bash", "-c", pipes], output=subprocess.PIPE) as child:
            assert child.output.read() == b"y\n141\n"
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_command_that_does_not_exist_says_so() -> None:
    with Child(["/nowhere/at-all"], output=subprocess.PIPE) as child:
        assert b"/nowhere/at-all does not run: No such file" in child.output.read()
        assert child.wait()
        assert child.status() == 127


def test_an_owner_that_can_start_nothing_says_what(monkeypatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Unavailable, match="java cannot be started"):
        Child(["java"])


def test_an_owner_with_too_many_open_files_says_so(monkeypatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(Unavailable, match=r"java cannot be started: .*Too many open files"):
        Child(["java"])
