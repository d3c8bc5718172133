"""Runs that begin in a tenth of a second: Dagster's launcher, with the imports done beforehand.

Dagster's own launcher starts an interpreter for each run, which imports Dagster and the code
location anew: some three seconds of a core before a worker first looks at its queue. Here one
process per code location has imported everything already, and forks for each run:

    daemon ── fork server (one thread, imports done) ── fork ── run

1. The first run after a start, or after the code location was reloaded, is launched in Dagster's
   way, and meanwhile the fork server for that load of the code is made. A run is also launched in
   Dagster's way whenever there is no fork server.
2. A run carries its process in a tag, so any process of this host can end it, or say whether it
   lives. The run itself writes the tag, before anything else. The daemon can't do it: Dagster's
   storage reads a run and writes it back with the tag, and so the daemon's write and the run's
   first event could overwrite each other.
3. When the run is forked and has its tag, the fork server answers the daemon, several of whose
   threads launch runs.
4. When no process can be forked, the fork server answers that too, and the run is launched in
   Dagster's way.
5. An answer may come after the daemon has given up on it. Each answer names its run, so the daemon
   does not take it for the answer about the next one.
6. When a run's process ends and the run has not, the run is failed, with what ended the process.
7. When the daemon ends, in whatever way, the fork server and its runs end too (`processes.child`).
8. When the code location is reloaded, its old fork server forks no more, and ends with its last
   run.

This is for code locations that Dagster itself has started on this host, as `dagster dev` does. Code
locations on a host and port have their runs there. The launcher is named in dagster.yaml, and works
on Linux, where a process of one thread can be forked safely.
"""

import gc
import json
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

from dagster import DagsterEventType, DagsterInstance, DagsterRun, DefaultRunLauncher, job, op
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.workspace.context import IWorkspaceProcessContext
from dagster._grpc.types import ExecuteRunArgs, GetCurrentRunsResult
from dagster._serdes import ConfigurableClassData, deserialize_value, serialize_value
from dagster._utils.hosted_user_process import recon_job_from_origin

from rmt_pipeline.processes.child import Child
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.system import SystemClock

PROCESS_TAG = ".dagster/rmt_process"
"""The tag of a run that was forked: host, process and when the process began, as `process_name`
writes it. Empty: the run was not forked. The UI hides tags that begin like this one.
"""

_ANSWER_TIMEOUT_S = 30.0  # a fork and its tag take milliseconds on an idle machine
_END_TIMEOUT_S = 3.0  # for the fork server and its runs, when the daemon ends
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
        """Start the run. Raises Unavailable when the run may have been started, but that is not
        known.
        """
        run = context.dagster_run
        if context.workspace is not None:
            self._workspace = context.workspace.process_context
        server = self._fork_server_of(context)
        if server is not None and server.fork(run, self._instance):
            self._run_ids.add(run.run_id)
        else:
            if PROCESS_TAG in run.tags:  # a retry has the tags of the run that it repeats
                self._instance.add_run_tags(run.run_id, {PROCESS_TAG: ""})
            super().launch_run(context)

    def terminate(self, run_id: str) -> bool:
        run = self._instance.get_run_by_id(run_id) if self.has_instance else None
        process = None if run is None else run.tags.get(PROCESS_TAG)
        if run is None or not process:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        pid = living_pid(process)
        if pid is None or run.is_finished:  # a finished run would stay CANCELING
            return False
        self._instance.report_run_canceling(run)
        os.kill(pid, signal.SIGINT)
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the run's process lives. When that can't be found out, the run counts as running,
        as all runs do with Dagster's launcher.
        """
        process = run.tags.get(PROCESS_TAG)
        if not process:
            return self._health_in_its_code_server(run)
        if living_pid(process) is not None or not _is_of_this_host(process):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        host, number, _ = process.split(":")
        return _process_is_gone(number, host)

    def _health_in_its_code_server(self, run: DagsterRun) -> CheckRunHealthResult:
        """The health of a run that was not forked: whether its process is there, if it has said
        which one that is and its code server is on this host; else as its code server tells it. A
        code server that was restarted answers that it has no such run, and then the run has failed.

        The run counts as running in these cases: the code server can't be reached, and may have the
        run; it does not answer this question, as `dagster code-server`, which loads code anew in
        another process; or this process has not loaded the location again, and so could not retry
        the run.
        """
        if not self._has_loaded(run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        pid = self._pid_that_is_gone(run)
        if pid is not None:
            return _process_is_gone(pid, socket.gethostname())
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

    def _pid_that_is_gone(self, run: DagsterRun) -> str | None:
        """The number of the run's process as the run itself has told it, if that process is gone or
        another one has its number by now. None also if nobody can know that here.
        """
        code_server = json.loads(run.tags.get(GRPC_INFO_TAG, "{}"))
        if "socket" not in code_server or sys.platform != "linux":
            return None
        told = self._instance.event_log_storage.get_logs_for_run(
            run.run_id, of_type=DagsterEventType.ENGINE_EVENT
        )
        for entry in told:
            pid = entry.get_dagster_event().engine_event_data.metadata.get("pid")
            if pid is not None:  # the first one is that of the run, others are of its steps
                number = str(pid.value)
                return None if _has_lived_since(int(number), entry.timestamp) else number
        return None

    def _has_loaded(self, run: DagsterRun) -> bool:
        if self._workspace is None or run.remote_job_origin is None:
            return True  # nothing was launched: the location was loaded at the start
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
        """The fork server for this run's load of the code; None when none can fork now. One that
        has ended is not replaced before the code is reloaded; the daemon's log has the reason why
        it ended.
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
            with suppress(Unavailable):  # this machine can start no more processes
                self._servers[name] = ForkServer(load, run, self._instance)
            return None


class ForkServer:
    """The daemon's side of the fork server of one load of a code location. `load` is the id of the
    code server, which changes with each load.
    """

    def __init__(self, load: str, first: DagsterRun, instance: DagsterInstance) -> None:
        """Start the process and return at once; its imports take seconds. `first` is a run that
        tells what to import; it is not forked here. Raises Unavailable.
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
        """Whether the run was forked. Raises Unavailable when that is not known."""
        try:
            return self._forks.fork(run.run_id, execute_run_args(run, instance))
        except Unavailable as problem:
            raise Unavailable(
                f"whether run {run.run_id} was started is not known: the process that forks runs "
                f"({self._child.pid}) {problem}; launch it again when it has not begun"
            ) from problem

    def has_ended(self) -> bool:
        """Whether the process has ended. If so, what belongs to it is closed too."""
        if self._child.status() is None:
            return False
        self.stop()
        return True

    def retire(self) -> None:
        """Fork no more. Runs that it has forked go on."""
        self._forks.close()

    def stop(self) -> None:
        """End the process and its runs."""
        self._forks.close()
        self._child.stop(_END_TIMEOUT_S)


class Forks:
    """The daemon's end of the connection to a fork server. Its threads take turns at launching
    runs.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._is_ready = False

    def fork(self, run_id: str, args: bytes) -> bool:
        """Whether the run was forked; if so, it has its tag. Raises Unavailable when that is not
        known.
        """
        with self._lock:
            if not self._can_fork() or not self.send(args):
                return False
            end_s = time.monotonic() + _ANSWER_TIMEOUT_S
            while (answer := self._receive(end_s - time.monotonic())) is not None:
                of_run, _, became = answer.decode().partition(" ")
                if of_run == run_id:  # else a late answer about an earlier run
                    return became == _FORKED
        raise Unavailable("has not answered")

    def send(self, message: bytes) -> bool:
        """Send a message; False when the fork server has closed the connection."""
        try:
            self._connection.send_bytes(message)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Close the connection, after the fork that is under way."""
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
    """The argument that `dagster api execute_run` takes for this run."""
    assert run.job_code_origin is not None
    args = ExecuteRunArgs(run.job_code_origin, run.run_id, instance.get_ref())
    return serialize_value(args).encode()


def process_name(pid: int) -> str:
    """A name for a living process that no other process ever has. Raises OSError."""
    return f"{socket.gethostname()}:{pid}:{_began(pid)}"


def living_pid(name: str) -> int | None:
    """The process of that name; None when it is gone, or on another host."""
    pid = int(name.split(":")[1])
    try:
        return pid if process_name(pid) == name else None
    except OSError:
        return None


def _process_is_gone(pid: str, host: str) -> CheckRunHealthResult:
    return CheckRunHealthResult(
        WorkerStatus.FAILED,
        f"its process is gone, number {pid} on host {host}: it was killed, perhaps for want of "
        "memory, or the host was started again",
    )


def _has_lived_since(pid: int, time_s: float) -> bool:
    """Whether there is a process of that number that began before then: seconds since the epoch."""
    try:
        ticks = int(_began(pid))
    except OSError:
        return False
    since_start_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return SystemClock().now_s() - since_start_s <= time_s


def _is_of_this_host(name: str) -> bool:
    return name.split(":", 1)[0] == socket.gethostname()


def _began(pid: int) -> str:
    """When the process began, in ticks since the machine's start: field 22 of stat in proc(5). Its
    second field is a name in parentheses, which may contain blanks and parentheses itself. Raises
    OSError, also for a zombie, which counts as gone.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    state, *more = fields.rpartition(")")[2].split()
    if state in ("Z", "X"):
        raise ProcessLookupError(pid)
    return more[18]


def serve_forks(connection: Connection) -> None:
    """The main function of the fork server: import, then fork for each run, until the daemon has
    closed the connection and no run is left.

    It may have only one thread of Python. A fork copies only the thread that forks, and a lock that
    another thread holds at that moment stays locked in the copy for ever. The threads of NumPy's
    and Arrow's libraries are idle, and have handlers for forks.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # these signals are meant for the runs
    _import_all(deserialize_value(connection.recv_bytes().decode(), ExecuteRunArgs))
    gc.collect()
    gc.freeze()  # else the collector writes into pages that all runs share
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
    """The names of this process's Python threads except the one that calls."""
    us = threading.current_thread()
    return [one.name for one in threading.enumerate() if one is not us]


def _import_all(args: ExecuteRunArgs) -> None:
    """Import the code location, and what Dagster and Arrow import only in a process's first run."""
    import pandas as pd  # noqa: F401, PLC0415  start-up: Arrow imports it with its first values
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
    """Start a process for a run. Return it, and a connection that closes when the run has its tag
    or has ended before that. Raises OSError when this machine can start no more processes.
    """
    begun, begins = _FORKING.Pipe(duplex=False)
    with begins:
        run = _FORKING.Process(target=_run, args=[args, begins])
        run.start()
    return run, begun


def _answer(connection: Connection, args: bytes, became: str) -> None:
    run_id = deserialize_value(args.decode(), ExecuteRunArgs).run_id
    with suppress(OSError):  # the daemon has closed the connection
        connection.send_bytes(f"{run_id} {became}".encode())


def _run(args: bytes, begins: Connection) -> None:
    """Run in the forked process: write the run's tag, then do what `dagster api
    execute_run` does.
    """
    from dagster._cli.api import execute_run_command  # noqa: PLC0415  start-up: imported already

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # else every run draws the same random numbers
    asked = deserialize_value(args.decode(), ExecuteRunArgs)
    with begins, _instance_of(asked) as instance:
        instance.add_run_tags(asked.run_id, {PROCESS_TAG: process_name(os.getpid())})
    execute_run_command.main([args.decode()], standalone_mode=False)


def _look_how_it_ended(run: Any, args: bytes) -> None:
    run.join()
    if run.exitcode:
        with suppress(OSError):  # no process can be started: run monitoring finds the dead run
            _FORKING.Process(target=_say_how_it_ended, args=[args, run.exitcode]).start()


def _say_how_it_ended(args: bytes, status: int) -> None:
    """Fail the run if it has not finished, since its process has ended."""
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
