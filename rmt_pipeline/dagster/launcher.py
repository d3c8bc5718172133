"""Runs that begin in a tenth of a second: Dagster's launcher, with the imports done beforehand.

Dagster's own launcher starts an interpreter for each run, which imports Dagster and the code
location anew: some three seconds of a core, before a worker's first look at its queue. Here a
process per code location has imported everything, and forks for each run:

    daemon ── fork server (one thread, imports done) ── fork ── run

1. The first run after a start, or after the code location was loaded anew, goes Dagster's way; the
   fork server for that load of the code is made meanwhile. So does every run when there is none.
2. A run has its process in a tag: any process of this host can end it, or say whether it lives.
   The run writes it itself, before anything else: Dagster's storage reads a run, and writes it with
   the tag; were it the daemon that does, it and the run's first event would overwrite each other.
3. The run is forked and has its tag: the daemon is told so. Several of its threads launch runs.
4. No process can be forked: the daemon is told that too, and the run goes Dagster's way.
5. An answer comes after the daemon has given it up: it names its run, so nobody takes it for that
   of the next one.
6. A run's process ends, and the run has not: it is failed, with what ended the process.
7. The daemon ends, however it does: fork server and runs end with it (`processes.child`).
8. The code location is loaded anew: its fork server forks no more, and ends with its last run.

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
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from dagster import DagsterInstance, DagsterRun, DefaultRunLauncher, job, op
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster._grpc.types import ExecuteRunArgs, GetCurrentRunsResult
from dagster._serdes import ConfigurableClassData, deserialize_value, serialize_value
from dagster._utils.hosted_user_process import recon_job_from_origin

from rmt_pipeline.processes.child import Child
from rmt_pipeline.protocol.errors import Unavailable

PROCESS_TAG = ".dagster/rmt_process"
"""Of a run that was forked: host, process and when that began, as `process_name` writes it. The UI
hides tags that begin like this one.
"""

_ANSWER_TIMEOUT_S = 30.0  # a fork and its tag take milliseconds on an idle machine
_END_TIMEOUT_S = 3.0  # for runs that end with the daemon
_READY = b"ready"
_FORKED = "forked"
_REFUSED = "refused"
_FORKING = multiprocessing.get_context("fork")


class ForkingRunLauncher(DefaultRunLauncher):
    """`run_launcher: {module: rmt_pipeline.dagster.launcher, class: ForkingRunLauncher}`."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._lock = threading.Lock()
        self._servers: dict[str, ForkServer] = {}
        self._retired: list[ForkServer] = []
        self._workspace: IWorkspaceProcessContext[Any] | None = None

    def launch_run(self, context: LaunchRunContext) -> None:
        """Raises Unavailable when the run may have been started, and nobody knows."""
        run = context.dagster_run
        if context.workspace is not None:
            self._workspace = context.workspace.process_context
        server = self._fork_server_of(context)
        if server is not None and server.fork(run, self._instance):
            self._run_ids.add(run.run_id)
        else:
            super().launch_run(context)

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        process = None if run is None else run.tags.get(PROCESS_TAG)
        if run is None or process is None:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        pid = living_pid(process)
        if pid is None or run.is_finished:  # what has ended well would be cancelled for ever
            return False
        self._instance.report_run_canceling(run)
        os.kill(pid, signal.SIGINT)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """A run of which nobody knows counts as running, as all do with Dagster's launcher."""
        process = run.tags.get(PROCESS_TAG)
        if process is None:
            return self._health_in_its_code_server(run)
        if living_pid(process) is not None or not _is_of_this_host(process):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {process} is gone")

    def _health_in_its_code_server(self, run: DagsterRun) -> CheckRunHealthResult:
        """Of a run that was not forked: a code server that was started again says that it has no
        such run. One that can't be reached may have it; so may `dagster code-server`, which loads
        code anew in another process, and does not answer this question. As long as this process has
        not loaded the location again the run counts as running: it could not be retried.
        """
        if not self._has_loaded(run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        client = self._get_grpc_client_for_termination(run.run_id)  # type: ignore[no-untyped-call]
        if client is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        try:
            found = deserialize_value(client.get_current_runs(), GetCurrentRunsResult)
        except DagsterUserCodeUnreachableError:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        if found.serializable_error_info or run.run_id in found.current_runs:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(
            WorkerStatus.FAILED,
            "its code location was started again, and does not have this run any more",
        )

    def _has_loaded(self, run: DagsterRun) -> bool:
        if self._workspace is None or run.remote_job_origin is None:
            return True  # nothing was launched by this process: it was loaded when that began
        name = run.remote_job_origin.location_name
        entry = self._workspace.create_request_context().get_location_entry(name)
        return entry is not None and entry.code_location is not None

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
        self._forks = Forks(Connection(ours.detach()))
        self._forks.send(execute_run_args(first, instance))

    def fork(self, run: DagsterRun, instance: DagsterInstance) -> bool:
        """False when nothing was forked. Raises Unavailable when that is not known."""
        try:
            return self._forks.fork(run.run_id, execute_run_args(run, instance))
        except Unavailable as problem:
            raise Unavailable(
                f"whether run {run.run_id} was started is not known: the process that forks runs "
                f"({self._child.pid}) {problem}; launch it again when it has not begun"
            ) from problem

    def has_ended(self) -> bool:
        """If so, it is done with."""
        if self._child.status() is None:
            return False
        self.stop()
        return True

    def retire(self) -> None:
        """Fork no more. What runs goes on."""
        self._forks.close()

    def stop(self) -> None:
        """End it, and what runs."""
        self._forks.close()
        self._child.stop(_END_TIMEOUT_S)


class Forks:
    """The daemon's end of the connection to a fork server; its threads launch one after another."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_ready = False

    def fork(self, run_id: str, args: bytes) -> bool:
        """Whether the run was forked; then it has its tag. Raises Unavailable when that is not
        known.
        """
        with self._lock:
            if not self._can_fork() or not self.send(args):
                return False
            end_s = time.monotonic() + _ANSWER_TIMEOUT_S
            while (answer := self._receive(end_s - time.monotonic())) is not None:
                of_run, _, became = answer.decode().partition(" ")
                if of_run == run_id:  # else of an earlier one, too late
                    return became == _FORKED
        raise Unavailable("has not answered")

    def send(self, message: bytes) -> bool:
        """False when nobody is there any more."""
        try:
            self._connection.send_bytes(message)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Waits for a run that is being forked."""
        with self._lock:
            self._connection.close()

    def _can_fork(self) -> bool:
        self._is_ready = self._is_ready or self._receive(0.0) == _READY
        return self._is_ready

    def _receive(self, timeout_s: float) -> bytes | None:
        try:
            is_there = self._connection.poll(max(timeout_s, 0.0))
            return self._connection.recv_bytes() if is_there else None
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


def _is_of_this_host(name: str) -> bool:
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
    """The code location, and what Dagster and Arrow import in a process's first run only."""
    import pandas as pd  # noqa: F401, PLC0415  start-up: so does Arrow, for the first values
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
    runs: dict[Any, tuple[Any, bytes]] = {}
    beginning: dict[Any, bytes] = {}
    asking: list[Any] = [connection]
    while asking or runs:
        ready: list[Any] = wait([*asking, *runs, *beginning])
        for one in ready:
            if one in beginning:
                one.close()
                _answer(connection, beginning.pop(one), _FORKED)
            elif one in runs:
                _look_how_it_ended(*runs.pop(one))
            else:
                try:
                    args = connection.recv_bytes()
                except (EOFError, OSError):
                    asking.clear()
                    continue
                try:
                    run, begun = _forked(args)
                except OSError as problem:
                    sys.stderr.write(f"a run is started the slow way: {problem}\n")
                    _answer(connection, args, _REFUSED)
                    continue
                runs[run.sentinel] = run, args
                beginning[begun] = args


def _forked(args: bytes) -> tuple[Any, Connection]:
    """A run's process, and what ends when it has its tag, or has ended before. Raises OSError when
    this machine starts no processes any more.
    """
    begun, begins = _FORKING.Pipe(duplex=False)
    with begins:
        run = _FORKING.Process(target=_run, args=[args, begins])
        run.start()
    return run, begun


def _answer(connection: Connection, args: bytes, became: str) -> None:
    run_id = deserialize_value(args.decode(), ExecuteRunArgs).run_id
    with suppress(OSError):  # nobody asks any more
        connection.send_bytes(f"{run_id} {became}".encode())


def _run(args: bytes, begins: Connection) -> None:
    """In a process of its own: its tag, then what `dagster api execute_run` does."""
    from dagster._cli.api import execute_run_command  # noqa: PLC0415  start-up: it is there

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else every run has the same numbers
    asked = deserialize_value(args.decode(), ExecuteRunArgs)
    with begins, _instance_of(asked) as instance:
        instance.add_run_tags(asked.run_id, {PROCESS_TAG: process_name(os.getpid())})
    execute_run_command.main([args.decode()], standalone_mode=False)


def _look_how_it_ended(run: Any, args: bytes) -> None:
    run.join()
    if run.exitcode:
        with suppress(OSError):  # no process can be started: run monitoring sees what is gone
            _FORKING.Process(target=_say_how_it_ended, args=[args, run.exitcode]).start()


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
