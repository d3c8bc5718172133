"""Runs that begin in a tenth of a second: Dagster's launcher, with the imports done beforehand.

Dagster's own launcher starts an interpreter for each run, which imports Dagster and the code
location anew: some three seconds of a core, before a worker's first look at its queue. Here a
process per code location has imported everything, and forks for each run:

    daemon ── fork server (one thread, imports done) ── fork ── run

1. The first run after a start, or after the code location was loaded anew, goes Dagster's way; the
   fork server for that load of the code is made meanwhile. So does every run when there is none.
2. A run has its process in a tag: any process of this host can end it, or say whether it lives.
3. A run's process ends without the run's end: the fork server says so in its log, and fails it.
4. The daemon ends, however it does: fork server and runs end with it (`processes.child`).
5. The code location is loaded anew: its fork server forks no more, and ends with its last run.

For code locations that Dagster itself has started on this host, as `dagster dev` does: others, on a
host and port, have their runs where they are. Named in dagster.yaml; on Linux, where a process
of one thread can be forked safely.
"""

import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRun, DefaultRunLauncher, job, op
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClassData, deserialize_value, serialize_value
from dagster._utils.hosted_user_process import recon_job_from_origin

from rmt_pipeline.processes.child import Child
from rmt_pipeline.protocol.errors import Unavailable

PROCESS_TAG = "rmt/process"
"""Of a run that was forked: host, process and when that began, as `ProcessName` writes it."""

_ANSWER_TIMEOUT_S = 20.0  # a fork takes milliseconds on an idle machine
_END_TIMEOUT_S = 3.0  # for runs that end with the daemon
_READY = b"ready"


class ForkingRunLauncher(DefaultRunLauncher):
    """`run_launcher: {module: rmt_pipeline.dagster.launcher, class: ForkingRunLauncher}`."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._lock = threading.Lock()
        self._servers: dict[str, ForkServer] = {}
        self._retired: list[ForkServer] = []

    def launch_run(self, context: LaunchRunContext) -> None:
        """Raises Unavailable when the run may have been started, and nobody knows."""
        run = context.dagster_run
        server = self._fork_server_of(context)
        process = None if server is None else server.fork(run, self._instance)
        if process is None:
            super().launch_run(context)
        else:
            self._instance.add_run_tags(run.run_id, {PROCESS_TAG: process})
            self._run_ids.add(run.run_id)

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        process = None if run is None else run.tags.get(PROCESS_TAG)
        if run is None or process is None:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        pid = living_pid(process)
        if pid is None:
            return False
        self._instance.report_run_canceling(run)
        os.kill(pid, signal.SIGINT)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Runs that were not forked count as running: as with Dagster's launcher, nobody knows."""
        process = run.tags.get(PROCESS_TAG)
        if process is None or living_pid(process) is not None or not is_of_this_host(process):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {process} is gone")

    def dispose(self) -> None:
        with self._lock:
            servers = [*self._servers.values(), *self._retired]
            self._servers, self._retired = {}, []
        for one in servers:
            one.stop()

    def _fork_server_of(self, context: LaunchRunContext) -> "ForkServer | None":
        """None: there is none that could fork now. One that has ended is not made again before the
        code is loaded anew: its reason is in the daemon's log.
        """
        run = context.dagster_run
        if sys.platform != "linux" or run.job_code_origin is None or context.workspace is None:
            return None
        assert run.remote_job_origin is not None
        name = run.remote_job_origin.repository_origin.code_location_origin.location_name
        location = context.workspace.get_code_location(name)
        if not isinstance(location, GrpcServerCodeLocation) or not location.client.socket:
            return None
        load = location.client.get_server_id()
        with self._lock:
            self._retired = [one for one in self._retired if not one.has_ended()]
            there = self._servers.get(name)
            if there is not None and there.load == load:
                return there
            if there is not None:
                there.retire()
                self._retired.append(there)
            with suppress(Unavailable):  # this machine starts no processes any more
                self._servers[name] = ForkServer(load, run, self._instance)
            return None


class ForkServer:
    """The process of one load of a code location; this is the daemon's side of it. `load` is the
    code server's id, another one after each load.
    """

    def __init__(self, load: str, first: DagsterRun, instance: DagsterInstance) -> None:
        """Returns at once; what it has to import takes seconds. `first`: a run that says what; it
        is not forked here. Raises Unavailable.
        """
        assert first.job_code_origin is not None
        self.load = load
        ours, theirs = socket.socketpair()
        with theirs:
            command = [
                first.job_code_origin.executable_path or sys.executable,
                "-m",
                __spec__.name,
                str(theirs.fileno()),
            ]
            self._child = Child(command, pass_fds=[theirs.fileno()])
        self._connection = Connection(ours.detach())
        self._is_ready = False
        self._send(execute_run_args(first, instance))

    def fork(self, run: DagsterRun, instance: DagsterInstance) -> str | None:
        """The name of the run's process; None when nothing was forked. Raises Unavailable when that
        is not known.
        """
        if not self._can_fork() or not self._send(execute_run_args(run, instance)):
            return None
        answer = self._receive(_ANSWER_TIMEOUT_S)
        if answer is None:
            raise Unavailable(
                f"whether run {run.run_id} was started is not known: the process that forks runs "
                f"({self._child.pid}) has not answered; launch it again when it has not begun"
            )
        return process_name(int(answer))

    def has_ended(self) -> bool:
        """If so, it is done with."""
        if self._child.status() is None:
            return False
        self.stop()
        return True

    def retire(self) -> None:
        """Fork no more. What runs goes on."""
        self._connection.close()

    def stop(self) -> None:
        """End it, and what runs."""
        self._connection.close()
        self._child.stop(_END_TIMEOUT_S)

    def _can_fork(self) -> bool:
        self._is_ready = self._is_ready or self._receive(0.0) == _READY
        return self._is_ready

    def _send(self, message: bytes) -> bool:
        try:
            self._connection.send_bytes(message)
        except OSError:
            return False
        return True

    def _receive(self, timeout_s: float) -> bytes | None:
        try:
            return self._connection.recv_bytes() if self._connection.poll(timeout_s) else None
        except (OSError, EOFError):
            return None


def execute_run_args(run: DagsterRun, instance: DagsterInstance) -> bytes:
    """What `dagster api execute_run` is given."""
    assert run.job_code_origin is not None
    args = ExecuteRunArgs(run.job_code_origin, run.run_id, instance.get_ref())
    return serialize_value(args).encode()


def process_name(pid: int) -> str:
    """Of a living process: no other one ever has the same name. Raises OSError."""
    return f"{socket.gethostname()}:{pid}:{_began(pid)}"


def living_pid(name: str) -> int | None:
    """None when the process is gone, or on another host."""
    pid = int(name.split(":")[1])
    try:
        return pid if process_name(pid) == name else None
    except OSError:
        return None


def is_of_this_host(name: str) -> bool:
    return name.split(":", 1)[0] == socket.gethostname()


def _began(pid: int) -> str:
    """In ticks since the machine's start; proc(5), field 22 of stat. Its second field is a name in
    parentheses, which may have blanks and parentheses itself. A zombie is gone.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    state, *more = fields.rpartition(")")[2].split()
    if state in ("Z", "X"):
        raise ProcessLookupError(pid)
    return more[18]


def serve_forks(connection: Connection) -> None:
    """The process itself: import, then fork for each run, until nobody can ask and none is left.

    One thread of Python: a fork copies only the one that forks, and whatever lock another one holds
    at that moment stays locked in the copy for ever. Those of NumPy's and Arrow's libraries idle,
    and have handlers for a fork.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # those are for the runs
    _import_all(deserialize_value(connection.recv_bytes().decode(), ExecuteRunArgs))
    gc.collect()
    gc.freeze()  # the collector would write into pages that all runs share
    others = other_threads()
    if others:
        sys.stderr.write(
            "runs are started the slow way: the code location has started threads while it was "
            f"imported ({', '.join(others)}); start them in resources or assets instead\n"
        )
        return
    connection.send_bytes(_READY)
    _fork_for_each(connection)


def other_threads() -> list[str]:
    """The names of this process's threads of Python but the one that calls."""
    us = threading.current_thread()
    return [one.name for one in threading.enumerate() if one is not us]


def _import_all(args: ExecuteRunArgs) -> None:
    """The code location, and what Dagster imports in the first run of a process only."""
    from dagster._cli import api  # noqa: F401, PLC0415  start-up: the daemon never needs it

    @op
    def nothing() -> None: ...

    @job
    def first_run() -> None:
        nothing()

    recon_job_from_origin(args.job_origin).get_definition()
    with _instance_of(args):
        quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
        first_run.execute_in_process(run_config=quiet)


def _fork_for_each(connection: Connection) -> None:
    forking = multiprocessing.get_context("fork")
    runs: dict[Any, tuple[Any, bytes]] = {}
    asking: list[Any] = [connection]
    while asking or runs:
        ended = [one for one in wait([*asking, *runs]) if one is not connection]
        for sentinel in ended:
            run, args = runs.pop(sentinel)
            run.join()
            if run.exitcode:
                forking.Process(target=_say_how_it_ended, args=[args, run.exitcode]).start()
        if asking and connection.poll():
            try:
                args = connection.recv_bytes()
            except (EOFError, OSError):
                asking.clear()
                continue
            run = forking.Process(target=_run, args=[args])
            run.start()
            runs[run.sentinel] = run, args
            connection.send_bytes(str(run.pid).encode())


def _run(args: bytes) -> None:
    """In a process of its own: what `dagster api execute_run` does."""
    from dagster._cli.api import execute_run_command  # noqa: PLC0415  start-up: it is there

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else every run has the same numbers
    execute_run_command.main([args.decode()], standalone_mode=False)


def _say_how_it_ended(args: bytes, status: int) -> None:
    """The run's process ended, and the run may not have."""
    asked = deserialize_value(args.decode(), ExecuteRunArgs)
    with _instance_of(asked) as instance:
        run = instance.get_run_by_id(asked.run_id)
        if run is None or run.is_finished:
            return
        ended = f"by signal {-status}" if status < 0 else f"with exit status {status}"
        instance.report_run_failed(run, f"The run's process ended unexpectedly {ended}.")


def _instance_of(args: ExecuteRunArgs) -> DagsterInstance:
    assert args.instance_ref is not None
    return DagsterInstance.from_ref(args.instance_ref)


if __name__ == "__main__":
    serve_forks(Connection(int(sys.argv[1])))
