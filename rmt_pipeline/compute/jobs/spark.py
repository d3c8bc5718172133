"""Spark: sessions, and jobs whose tasks run units.

Only DataFrames are used, so a classic session (in this process) and Spark Connect (a server) work
alike. A job is `range(n)` in n partitions: task i runs the i-th group of units, on whichever
executor. No rows go through the JVM.

What only some calls need is imported when they are made, for start-up time.
"""

import contextlib
import os
import socket
import sys
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rmt_pipeline.compute.jobs.task import pack, run_tasks, unpack
from rmt_pipeline.compute.units import Unit, UnitFailed, UnitResult
from rmt_pipeline.processes.spark import (
    APP_NAME,
    CONNECT_PORT,
    CONNECT_VARIABLES,
    SESSION_OPTIONS,
    SessionJvm,
    loopback_options,
    python_environment,
)
from rmt_pipeline.protocol.alter.history import stored_columns
from rmt_pipeline.protocol.errors import RmtError, Unavailable
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.system import Clock, SystemClock

if TYPE_CHECKING:
    from rmt_pipeline.compute.read.parts import NamedPart
    from rmt_pipeline.store.part_store import PartStore

CONNECT_TIMEOUT_S = 5.0
JOBS_AT_ONCE_MAX = 4
INTERRUPT_AGAIN_S = 0.5
START_TIMEOUT_S = 120.0  # for a session in a JVM that has started; 3 s on an idle machine
PAUSE_FIRST_S = 2.0  # after a JVM that did not start; doubled with each that follows
PAUSE_MAX_S = 120.0

# A client retries for about 4 s before it takes the server for gone. pyspark's own default is ten
# minutes, also when a process ends and closes its session with a server that is not there.
RETRIES = {"max_retries": 6, "initial_backoff": 50, "max_backoff": 1000}
_LOST = ("SESSION_NOT_FOUND", "SESSION_CLOSED", "SESSION_CHANGED", "SESSION_ALREADY_EXISTS")


@dataclass(slots=True)
class SparkSessions:
    """Opens a Spark session when it is needed, keeps it, and opens another when it has ended.
    Thread-safe.

    Exactly one of these three is given:

    * `remote`: a Spark Connect server (`sc://host:port`);
    * `master`: for a session of this process on that master (`local[2]`, `spark://host:port`);
    * `given`: a session of the caller, of any kind, which is never closed here.

    If no server answers at `remote`, a session of this process on `fallback_master` (if given) is
    used from then on. `java_home` is only for sessions of this process.
    """

    remote: str | None = None
    master: str | None = None
    fallback_master: str | None = None
    given: Any = None
    java_home: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    _session: Any = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        ways = [way for way in (self.remote, self.master, self.given) if way is not None]
        assert len(ways) == 1, "give one of remote, master and given"

    def get(self) -> Any:
        """A live session. Raises Unavailable if the server can't be reached or Spark does not
        start.
        """
        if self.given is not None:
            return self.given
        with self._lock:
            if self._session is None or _has_ended(self._session):
                self._session = self._open()
            return self._session

    def forget_lost(self, session: Any, error: Exception) -> None:
        """After `error`: if the server no longer knows this session, or its JVM has ended, forget
        it, so that the next `get` opens another.
        """
        if self.given is not None:
            return
        remote = self.remote  # another thread may fall back to a master meanwhile
        if remote is None:
            lost = _jvm.has_ended
        else:
            told = any(code in str(error) for code in _LOST)
            lost = told or not _is_reachable(remote)
        if not lost:
            return
        with self._lock:
            if self._session is not session:
                return
            self._session = None
        if remote is None:
            stop_jvm(session)
        else:
            with contextlib.suppress(Exception):
                session.client.close()

    def close(self) -> None:
        """End the session, unless it was `given`, and its JVM, if that is of this process. May be
        called again.
        """
        with self._lock:
            session, self._session = self._session, None
        if session is None:
            return
        if self.remote is None:
            stop_jvm(session)
        else:
            session.stop()

    def _open(self) -> Any:
        if self.remote is None:
            return self._start()
        try:
            return self._connect()
        except Unavailable:
            if self.fallback_master is None:
                raise
        self.remote, self.master = None, self.fallback_master
        return self._start()

    def _connect(self) -> Any:
        from pyspark.sql import SparkSession  # noqa: PLC0415  half a second of import

        assert self.remote is not None
        require_reachable(self.remote)
        try:
            session = SparkSession.builder.remote(self.remote).create()
        except Exception as error:
            raise Unavailable(f"Spark Connect at {self.remote}: {brief(error)}") from error
        limit_retries(session)
        return session

    def _start(self) -> Any:
        assert self.master is not None
        environment = python_environment(self.java_home)
        options = {
            **SESSION_OPTIONS,
            "spark.app.name": APP_NAME,
            "spark.master": self.master,
            "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"],
            "spark.pyspark.python": sys.executable,
            **loopback_options(self.master),
            **self.options,
        }
        try:
            return start_jvm(options, java_home=self.java_home)
        except Unavailable as error:
            raise Unavailable(f"Spark on {self.master}: {error}") from error


class _OwnJvm:
    """The JVM of this process's classic sessions; pyspark can have only one in a process.

    At most one attempt to start it is made at a time. A failed attempt leaves nothing behind; after
    it there is a pause, which doubles with each further failure.
    """

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.Lock()
        self.running: SessionJvm | None = None
        self._clock = clock
        self._pause_s = 0.0
        self._not_before_s = 0.0
        self._why = ""

    @property
    def has_ended(self) -> bool:
        running = self.running
        return running is not None and running.has_ended

    def require_no_pause(self) -> None:
        """Raises Unavailable during the pause after a failed attempt."""
        left_s = self._not_before_s - self._clock.monotonic_s()
        if left_s > 0:
            raise Unavailable(f"{self._why}; it is tried again in {left_s:.0f} s")

    def failed(self, error: Exception) -> None:
        """Begin the pause after a failed attempt."""
        self._pause_s = min(max(2 * self._pause_s, PAUSE_FIRST_S), PAUSE_MAX_S)
        self._not_before_s = self._clock.monotonic_s() + self._pause_s
        self._why = brief(error)

    def started(self, jvm: SessionJvm) -> None:
        """Note that the JVM runs, so that the next pause is a short one again."""
        self.running = jvm
        self._pause_s = 0.0


_jvm = _OwnJvm(SystemClock())


def start_jvm(options: Mapping[str, str], *, java_home: str | None = None) -> Any:
    """A classic session of this process, in a JVM that ends with the process, however that ends. If
    the process has such a session already, from other code too, that one gets these options.

    Raises Unavailable if it can't be started; at once during the pause after a failed attempt.
    """
    from pyspark import SparkContext  # noqa: PLC0415  half a second of import

    with _jvm.lock:
        if _jvm.has_ended:
            _forget_jvm()
        if SparkContext._gateway is not None:  # noqa: SLF001  pyspark offers nothing else
            try:
                return _session_with(options, java_home)
            except Exception as error:
                raise Unavailable(brief(error)) from error
        _jvm.require_no_pause()
        jvm = SessionJvm(options, java_home=java_home)
        try:
            jvm.start()
            return _begin_in(jvm, options, java_home)
        except BaseException as error:
            jvm.stop()
            _forget_jvm()
            if not isinstance(error, Exception):
                raise
            _jvm.failed(error)
            raise Unavailable(brief(error)) from error


def _begin_in(jvm: SessionJvm, options: Mapping[str, str], java_home: str | None) -> Any:
    """The first session of a JVM that has just started. A JVM that hangs is killed, which ends the
    call that waits for it.
    """
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    _forget_connect()
    there = {"PYSPARK_GATEWAY_PORT": str(jvm.port), "PYSPARK_GATEWAY_SECRET": jvm.secret}
    with _set_in_environment(there):
        gateway = launch_gateway()  # connects to what these two name, launches nothing
    killer = threading.Timer(START_TIMEOUT_S, jvm.kill)
    killer.daemon = True
    killer.start()
    try:
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
        session = _session_with(options, java_home)
    finally:
        killer.cancel()
    _jvm.started(jvm)
    return session


def _forget_connect() -> None:
    """Remove the variables for Spark Connect from the environment: a classic session is wanted."""
    for name in CONNECT_VARIABLES:
        os.environ.pop(name, None)


def _session_with(options: Mapping[str, str], java_home: str | None) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    _forget_connect()
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    with _set_in_environment(python_environment(java_home)):  # names the workers' Python
        return builder.getOrCreate()


def stop_jvm(session: Any) -> None:
    """End a classic session, and its JVM if `start_jvm` started that."""
    with _jvm.lock:
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # pyspark warns if the JVM is gone
            session.stop()
        jvm, _jvm.running = _jvm.running, None
        if jvm is not None:
            jvm.stop()
            _forget_jvm()


def _forget_jvm() -> None:
    """Make pyspark forget the JVM, which it keeps in its classes for the life of the process."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    _jvm.running = None
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001


def limit_retries(session: Any) -> None:
    """Make a Connect session give up after `RETRIES` if its server is gone."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415

    session.client.set_retry_policies([DefaultPolicy(**RETRIES)])


def require_reachable(remote: str) -> None:
    """Raises Unavailable if no server listens at `remote`; pyspark would try for ten minutes."""
    address = urlsplit(remote.replace("sc://", "http://", 1))
    host, port = address.hostname or "127.0.0.1", address.port or CONNECT_PORT
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise Unavailable(
            f"no Spark Connect server at {remote} ({error}); start one with `rmt spark`, or "
            "set spark.remote or spark.master in the configuration"
        ) from error


def _is_reachable(remote: str) -> bool:
    try:
        require_reachable(remote)
    except Unavailable:
        return False
    return True


@contextlib.contextmanager
def _set_in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables while the context lasts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _has_ended(session: Any) -> bool:
    if hasattr(session, "is_stopped"):  # Connect
        return bool(session.is_stopped)
    return session.sparkContext._jsc is None  # noqa: SLF001  classic offers nothing else


def brief(error: BaseException) -> str:
    """The first line of the error's text, without the Java stack trace that may follow."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:500]


def run_jobs(
    sessions: SparkSessions, jobs: Sequence[Sequence[Sequence[Unit]]], *, tag: str
) -> Generator[UnitResult, None, None]:
    """Run jobs, each of several tasks, each of several units. Yields the results of each job when
    it has ended.

    Jobs run at the same time and share the cores, so that a large merge does not hold up small
    ones. Every unit has exactly one result: if Spark itself fails (a worker was killed, the server
    is gone, the job was interrupted), that is a UnitFailed. Closing the iterator stops the jobs
    that still run; Spark knows them by `tag`, which has letters, digits, "-" and "_". Raises
    Unavailable if there is no session.
    """
    session = sessions.get()
    with ThreadPoolExecutor(JOBS_AT_ONCE_MAX, thread_name_prefix="spark-job") as pool:
        running = {pool.submit(_run_job, session, tasks, tag): tasks for tasks in jobs}
        try:
            for done in as_completed(running):
                error = done.exception()
                if error is None:
                    yield from done.result()
                elif isinstance(error, Exception):
                    sessions.forget_lost(session, error)
                    yield from _failed(running[done], error)
                else:
                    raise error
        finally:
            _stop(session, running, tag)


def _stop(session: Any, jobs: Iterable["Future[list[UnitResult]]"], tag: str) -> None:
    """Stop the jobs that have not ended, and wait until they have."""
    unfinished = [job for job in jobs if not job.cancel()]
    while unfinished := list(wait(unfinished, timeout=0).not_done):
        with contextlib.suppress(Exception):  # if the server is gone, the jobs end too
            session.interruptTag(tag)
        wait(unfinished, timeout=INTERRUPT_AGAIN_S)  # a job that just starts has no tag yet


def _run_job(session: Any, tasks: Sequence[Sequence[Unit]], tag: str) -> list[UnitResult]:
    packed = pack(tasks)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        return run_tasks(packed, batches)

    session.addTag(tag)  # for jobs of this thread
    try:
        numbers = session.range(0, len(packed), 1, len(packed))
        return unpack(numbers.mapInArrow(run, "result binary").toArrow())
    finally:
        session.removeTag(tag)


def _failed(tasks: Sequence[Sequence[Unit]], error: Exception) -> Iterator[UnitResult]:
    known = isinstance(error, RmtError)
    name = type(error).__name__ if known else Unavailable.__name__
    message = str(error) if known else f"Spark: {brief(error)}"
    for units in tasks:
        for unit in units:
            yield UnitFailed(unit.merge, unit.ordinal, name, message)


def read_parts(
    session: Any,
    store: "PartStore",
    parts: "Sequence[NamedPart]",
    definition: TableDefinition,
) -> Any:
    """A DataFrame of these parts with the table's current columns. Spark itself reads the files
    that have just these columns; the rows of other parts are converted in tasks.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415

    from rmt_pipeline.compute.read.parts import converted_batches, part_files, signed_schema  # noqa: PLC0415

    columns = stored_columns(definition)
    schema = from_arrow_schema(signed_schema(columns))
    found = part_files(store, parts, definition)
    files = [path for part in found if part.constants == () for path in part.paths]
    sources = [part.source for part in found if part.constants != ()]
    if not files and not sources:
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema).option("parquet.page.verify-checksum.enabled", "true")
    frame = reader.parquet(*files) if files else None
    if sources:
        numbers = session.range(0, len(sources), 1, len(sources))
        convert = partial(converted_batches, sources, columns, to_arrow_schema(schema))
        converted = numbers.mapInArrow(convert, schema)
        frame = converted if frame is None else frame.unionAll(converted)
    return frame
