"""Runs that are forked from a process with the imports done, by a real code server's location."""

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import FileCodePointer
from dagster._core.launcher import WorkerStatus
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import serialize_value

from rmt_pipeline.dagster import launcher
from rmt_pipeline.dagster.launcher import PROCESS_TAG, ForkingRunLauncher, Forks, living_pid
from rmt_pipeline.protocol.errors import Unavailable
from tests.support.waiting import LIMIT_S, until

CODE = """
import os, time
import dagster as dg

@dg.op(config_schema={"seconds": float, "file": str})
def sleep(context):
    until = time.monotonic() + context.op_config["seconds"]
    while time.monotonic() < until and not os.path.exists(context.op_config["file"]):
        time.sleep(0.05)
    context.add_output_metadata({"pid": os.getpid(), "parent": os.getppid()})

@dg.job(executor_def=dg.in_process_executor)
def naps():
    sleep()
"""
EARLY = """
import sys, threading
from multiprocessing.connection import Connection
from rmt_pipeline.dagster import launcher
threading.Thread(target=threading.Event().wait, name="early", daemon=True).start()
launcher.serve_forks(Connection(int(sys.argv[1])))
"""


class Site:
    """An instance with the launcher, and one code location."""

    def __init__(
        self, instance: dg.DagsterInstance, workspace: WorkspaceProcessContext
    ) -> None:
        self.instance, self._workspace = instance, workspace

    def launch(
        self,
        seconds: float = 0.0,
        tags: Mapping[str, str] | None = None,
        *,
        until: Path = Path("/nowhere"),
    ) -> str:
        """A run of so many seconds, or until the file is there."""
        context = self._workspace.create_request_context()
        [location] = context.code_locations
        [repository] = location.get_repositories().values()
        job = repository.get_full_job("naps")
        run = create_run_for_test(
            self.instance,
            job_name="naps",
            run_config={"ops": {"sleep": {"config": {"seconds": seconds, "file": str(until)}}}},
            remote_job_origin=job.get_remote_origin(),
            job_code_origin=job.get_python_origin(),
            tags=dict(tags or {}),
        )
        self.instance.launch_run(run.run_id, context)
        return run.run_id

    def run(self, run_id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run

    def ended(self, run_id: str) -> dg.DagsterRunStatus:
        until(lambda: self.run(run_id).is_finished)
        return self.run(run_id).status

    def pid(self, run_id: str) -> int | None:
        """Of the forked process; None when the run was not forked, or is gone."""
        process = self.run(run_id).tags.get(PROCESS_TAG)
        return None if process is None else living_pid(process)

    def messages(self, run_id: str) -> str:
        return "\n".join(entry.message for entry in self.instance.all_logs(run_id))

    def until_started(self, run_id: str) -> None:
        until(lambda: self.run(run_id).status == dg.DagsterRunStatus.STARTED)

    def warm(self) -> None:
        """Until a run is forked."""
        until(lambda: PROCESS_TAG in self.run(self.done()).tags)

    def done(self) -> str:
        run_id = self.launch()
        assert self.ended(run_id) == dg.DagsterRunStatus.SUCCESS, self.messages(run_id)
        return run_id

    def load_anew(self) -> None:
        self._workspace.create_request_context().reload_code_location("code.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("launcher")
    code = directory / "code.py"
    code.write_text(CODE, encoding="utf-8")
    (directory / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\n"
        f"run_launcher: {{module: {launcher.__name__}, class: {ForkingRunLauncher.__name__}}}\n",
        encoding="utf-8",
    )
    target = PythonFileTarget(str(code), None, str(directory), "code.py")
    with (
        dg.DagsterInstance.from_config(str(directory)) as instance,
        WorkspaceProcessContext(instance, target) as workspace,
    ):
        site = Site(instance, workspace)
        site.warm()
        yield site


def test_a_run_is_forked_and_ends_like_any_other(site: Site) -> None:
    run_id = site.done()
    assert site.run(run_id).tags[PROCESS_TAG]
    until(lambda: site.pid(run_id) is None)


def test_who_launches_a_run_writes_nothing_of_it_once_it_has_begun(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's storage reads a run and writes it whole: the run's first event between the two has
    no tag, and a run without its tag can't be ended.
    """

    def overwritten(*_: object) -> None:
        raise AssertionError("the run writes itself at the same time")

    monkeypatch.setattr(site.instance, "add_run_tags", overwritten)
    run_id = site.launch()
    assert PROCESS_TAG in site.run(run_id).tags
    assert site.ended(run_id) == dg.DagsterRunStatus.SUCCESS


def test_a_run_that_has_ended_is_not_cancelled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its process is there a moment longer."""
    run_id = site.done()
    monkeypatch.setattr(launcher, "living_pid", lambda _: 2**22 + 1)
    assert not site.instance.run_launcher.terminate(run_id)
    assert site.run(run_id).status == dg.DagsterRunStatus.SUCCESS


def test_runs_are_processes_of_their_own(site: Site) -> None:
    runs = [site.launch(LIMIT_S) for _ in range(2)]
    for one in runs:
        site.until_started(one)
    pids = [site.pid(one) for one in runs]
    assert None not in pids
    assert len({os.getpid(), *pids}) == 3
    for one in runs:
        assert site.instance.run_launcher.terminate(one)
    assert [site.ended(one) for one in runs] == [dg.DagsterRunStatus.CANCELED] * 2


def test_a_run_whose_process_is_killed_fails_and_says_so(site: Site) -> None:
    run_id = site.launch(LIMIT_S)
    site.until_started(run_id)
    pid = site.pid(run_id)
    assert pid is not None
    health = site.instance.run_launcher.check_run_worker_health
    assert health(site.run(run_id)).status == WorkerStatus.RUNNING
    os.kill(pid, signal.SIGKILL)
    assert site.ended(run_id) == dg.DagsterRunStatus.FAILURE
    assert "ended unexpectedly by signal 9" in site.messages(run_id)
    found = health(site.run(run_id))
    assert found.status == WorkerStatus.FAILED
    assert str(found.msg).startswith(
        f"its process is gone, number {pid} on host {socket.gethostname()}: "
    )
    assert not site.instance.run_launcher.terminate(run_id)


def test_a_run_that_was_not_forked_and_whose_process_is_killed_fails_and_says_so(
    site: Site,
) -> None:
    """Its code server may be gone, too, or not know: a machine that dies with the first run after a
    start would have it for ever.
    """
    site.load_anew()
    run_id = site.launch(LIMIT_S)
    site.until_started(run_id)
    assert PROCESS_TAG not in site.run(run_id).tags
    health = site.instance.run_launcher.check_run_worker_health
    assert health(site.run(run_id)).status == WorkerStatus.RUNNING
    [pid] = re.findall(r"Started process for run \(pid: (\d+)\)", site.messages(run_id))
    os.kill(int(pid), signal.SIGKILL)
    until(lambda: health(site.run(run_id)).status == WorkerStatus.FAILED)
    assert str(health(site.run(run_id)).msg).startswith(f"its process is gone, number {pid} on")
    until(lambda: site.run(run_id).is_finished)
    site.warm()


def test_a_retry_that_is_not_forked_is_not_taken_for_the_process_of_the_run_that_it_repeats(
    site: Site,
) -> None:
    """Dagster copies the tags of a run to its retry. After a machine has died, the first retry is
    launched in Dagster's way: it was failed as a run whose process is gone, though it went on.
    """
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as gone:
        tags = {PROCESS_TAG: launcher.process_name(gone.pid)}
    site.load_anew()
    run_id = site.launch(LIMIT_S, tags)
    site.until_started(run_id)
    health = site.instance.run_launcher.check_run_worker_health
    assert health(site.run(run_id)).status == WorkerStatus.RUNNING
    assert site.instance.run_launcher.terminate(run_id)
    assert site.ended(run_id) == dg.DagsterRunStatus.CANCELED
    site.warm()


def test_a_process_that_began_after_a_run_told_its_number_is_not_that_of_the_run() -> None:
    ours = os.getpid()
    assert launcher._has_lived_since(ours, time.time())
    assert not launcher._has_lived_since(ours, time.time() - 7 * 86_400)
    with subprocess.Popen(["true"]) as child:
        child.wait()
        assert not launcher._has_lived_since(child.pid, time.time())


def test_code_that_was_loaded_anew_is_what_runs(site: Site, tmp_path: Path) -> None:
    """The runs of the old one go on."""
    may_end = tmp_path / "may end"
    old = site.launch(LIMIT_S, until=may_end)
    site.until_started(old)
    site.load_anew()
    first = site.done()
    assert PROCESS_TAG not in site.run(first).tags
    assert not site.run(old).is_finished
    may_end.touch()
    assert site.ended(old) == dg.DagsterRunStatus.SUCCESS
    site.warm()


def test_threads_that_the_imports_have_left_are_named() -> None:
    """A process with them is not forked: the one below has its own."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="early")
    thread.start()
    assert "early" in launcher.other_threads()
    ended.set()
    thread.join()
    assert "early" not in launcher.other_threads()


def test_a_code_location_with_threads_has_its_runs_the_slow_way(site: Site) -> None:
    ours, theirs = multiprocessing.Pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", EARLY, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
        text=True,
    )
    theirs.close()
    ours.send_bytes(launcher.execute_run_args(site.run(site.done()), site.instance))
    with ours, pytest.raises(EOFError):
        ours.recv_bytes()
    assert "has started threads while it was imported (early)" in child.communicate()[1]


def test_a_process_that_has_the_number_of_another_one_is_not_that() -> None:
    name = launcher.process_name(os.getpid())
    assert living_pid(name) == os.getpid()
    assert living_pid(f"{name}0") is None
    assert living_pid(f"elsewhere{name}") is None


@pytest.fixture
def served() -> Iterator[tuple[Forks, Connection]]:
    """Forks, and the fork server's end of its connection."""
    ours, theirs = multiprocessing.Pipe()
    theirs.send_bytes(b"ready")
    with theirs:
        forks = Forks(ours)
        yield forks, theirs
        forks.close()


def test_an_answer_that_comes_too_late_is_not_that_of_the_next_run(
    served: tuple[Forks, Connection],
) -> None:
    forks, server = served
    server.send_bytes(b"given-up forked")
    server.send_bytes(b"next refused")
    assert not forks.fork("next", b"its arguments")


def test_runs_that_are_launched_at_once_have_their_own_answers(
    served: tuple[Forks, Connection],
) -> None:
    """Schedules, sensors and backfills launch from threads of their own."""
    forks, server = served
    runs = [str(number) for number in range(40)]

    def serve() -> None:
        for _ in runs:
            run = server.recv_bytes().decode()
            server.send_bytes(f"{run} {'refused' if int(run) % 2 else 'forked'}".encode())

    thread = threading.Thread(target=serve)
    thread.start()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda run: forks.fork(run, run.encode()), runs))
    thread.join()
    assert found == [int(run) % 2 == 0 for run in runs]


def test_a_fork_server_that_ends_before_it_answers_leaves_it_unknown(
    served: tuple[Forks, Connection],
) -> None:
    forks, server = served

    def end() -> None:
        server.recv_bytes()
        server.close()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(Unavailable, match="has not answered"):
        forks.fork("a", b"its arguments")
    thread.join()
    assert not forks.fork("b", b"its arguments")


def test_where_no_process_can_be_forked_the_run_goes_dagsters_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the fork server goes on: the next one may be."""

    def start(_: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(ForkProcess, "start", start)
    ours, theirs = socket.socketpair()
    repository = RepositoryPythonOrigin(sys.executable, FileCodePointer("code.py", "naps"))
    origin = JobPythonOrigin("naps", repository)
    with (
        ours,
        Connection(os.dup(ours.fileno())) as asking,
        Connection(theirs.detach()) as server,
    ):
        for run_id in ("a", "b"):
            args = ExecuteRunArgs(origin, run_id, None)
            asking.send_bytes(serialize_value(args).encode())
        ours.shutdown(socket.SHUT_WR)
        launcher._fork_for_each(server)
        assert [asking.recv_bytes() for _ in range(2)] == [b"a refused", b"b refused"]
    assert capsys.readouterr().err.count("no more processes") == 2
