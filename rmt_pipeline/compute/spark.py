"""Spark: sessions, and jobs whose tasks are units. The only module that imports pyspark.

Nothing here needs more than DataFrames, so that a classic session (in this process) and Spark
Connect (somewhere else) are the same. A job is `range(n)` in n partitions: task i carries out
the i-th group of units, whichever executor it lands on. No rows go through the JVM.
"""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rmt_pipeline.compute.kernel_task import pack, run_tasks, unpack
from rmt_pipeline.compute.spark_options import (
    APP_NAME,
    CONNECT_PORT,
    CONNECT_VARIABLES,
    NICENESS,
    SESSION_OPTIONS,
    loopback_options,
    python_environment,
)
from rmt_pipeline.compute.units import Unit, UnitFailed, UnitResult
from rmt_pipeline.protocol.alter_history import stored_columns
from rmt_pipeline.protocol.errors import RmtError, Unavailable
from rmt_pipeline.protocol.table import TableDefinition

if TYPE_CHECKING:
    from rmt_pipeline.compute.read_parts import NamedPart
    from rmt_pipeline.store.part_store import PartStore

CONNECT_TIMEOUT_S = 5.0
JOBS_AT_ONCE_MAX = 4
INTERRUPT_AGAIN_S = 0.5

# How long a client asks again before it believes that the server is gone: about 4 s. pyspark's
# own answer is ten minutes, also when a process ends and says good-bye to a server that is away.
RETRIES = {"max_retries": 6, "initial_backoff": 50, "max_backoff": 1000}
_LOST = ("SESSION_NOT_FOUND", "SESSION_CLOSED", "SESSION_CHANGED", "SESSION_ALREADY_EXISTS")


@dataclass(slots=True)
class SparkSessions:
    """How to get a session: kept, and made again when it has ended. Thread-safe.

    `remote`: a Spark Connect server (`sc://host:port`). `master`: a session of this process on
    that master (`local[2]`, `spark://host:port`). `given`: somebody else's session, of any
    kind, never closed here. Exactly one of the three. `java_home` is for `master` alone.
    `fallback_master`: where no server answers at `remote`, a session of this process on that
    master is used from then on.
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
        """A live session. Raises Unavailable when the server can't be reached."""
        if self.given is not None:
            return self.given
        with self._lock:
            if self._session is None or _has_ended(self._session):
                self._session = self._open()
            return self._session

    def forget_lost(self, session: Any, error: Exception) -> None:
        """After `error`: if the server no longer knows this session, the next `get` makes one."""
        if self.remote is None:
            return
        if not any(code in str(error) for code in _LOST) and _is_reachable(self.remote):
            return
        with self._lock:
            if self._session is session:
                self._session = None
        with contextlib.suppress(Exception):
            session.client.close()

    def close(self) -> None:
        """End the session, unless somebody else gave it. Idempotent."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
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
            raise Unavailable(f"Spark Connect at {self.remote}: {_brief(error)}") from error
        limit_retries(session)
        return session

    def _start(self) -> Any:
        from pyspark.sql import SparkSession  # noqa: PLC0415

        builder = SparkSession.builder.appName(APP_NAME).master(self.master)
        environment = python_environment(self.java_home)
        options = {
            **SESSION_OPTIONS,
            "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"],
            "spark.pyspark.python": sys.executable,
            **loopback_options(self.master or ""),
            **self.options,
        }
        for name, value in options.items():
            builder = builder.config(name, value)
        for name in CONNECT_VARIABLES:  # a master was asked for; inherited ones say otherwise
            os.environ.pop(name, None)
        try:
            with _set_in_environment(environment), ThreadPoolExecutor(1) as thread:
                return thread.submit(_niced, builder.getOrCreate).result()
        except Exception as error:
            raise Unavailable(f"Spark on {self.master}: {_brief(error)}") from error


def limit_retries(session: Any) -> None:
    """A Connect session that gives up on a server that is gone after `RETRIES`."""
    from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415

    session.client.set_retry_policies([DefaultPolicy(**RETRIES)])


def require_reachable(remote: str) -> None:
    """Raises Unavailable at once where pyspark would try for ten minutes."""
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


def _niced(start: Callable[[], Any]) -> Any:
    """In a thread that ends after it: on Linux niceness is a thread's, and the JVM inherits it."""
    if sys.platform == "linux":
        now = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(now, NICENESS))
    return start()


@contextlib.contextmanager
def _set_in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """The JVM inherits our environment when it starts; afterwards ours is as before."""
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


def _brief(error: BaseException) -> str:
    """The first line of a Java stack trace, at most."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:500]


def run_jobs(
    sessions: SparkSessions, jobs: Sequence[Sequence[Sequence[Unit]]], *, tag: str
) -> Generator[UnitResult, None, None]:
    """Run jobs of tasks of units; the results of each job as it finishes.

    Jobs run at the same time and share the cores, so that a large merge does not hold back
    small ones. Every unit has exactly one result: when Spark itself fails (a worker was killed,
    the server went away, `cancel`), its units' results say so. `tag` names the jobs for
    `cancel`: letters, digits, "-" and "_". Whoever closes the iterator ends the jobs. Raises
    Unavailable when there is no session.
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
    """Nobody waits for these any more. Nothing happens to those that have ended."""
    unfinished = [job for job in jobs if not job.cancel()]
    while unfinished := list(wait(unfinished, timeout=0).not_done):
        with contextlib.suppress(Exception):  # the server is gone: then the jobs end as well
            session.interruptTag(tag)
        wait(unfinished, timeout=INTERRUPT_AGAIN_S)  # one that was just starting had no tag yet


def _run_job(session: Any, tasks: Sequence[Sequence[Unit]], tag: str) -> list[UnitResult]:
    packed = pack(tasks)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        return run_tasks(packed, batches)

    session.addTag(tag)  # tags belong to the thread
    try:
        numbers = session.range(0, len(packed), 1, len(packed))
        return unpack(numbers.mapInArrow(run, "result binary").toArrow())
    finally:
        session.removeTag(tag)


def _failed(tasks: Sequence[Sequence[Unit]], error: Exception) -> Iterator[UnitResult]:
    known = isinstance(error, RmtError)
    name = type(error).__name__ if known else Unavailable.__name__
    message = str(error) if known else f"Spark: {_brief(error)}"
    for units in tasks:
        for unit in units:
            yield UnitFailed(unit.merge, unit.ordinal, name, message)


def cancel(sessions: SparkSessions, tag: str) -> None:
    """Stop the jobs with this tag, if there are any; their units fail as Unavailable."""
    sessions.get().interruptTag(tag)


def read_parts(
    session: Any,
    store: "PartStore",
    parts: "Sequence[NamedPart]",
    definition: TableDefinition,
) -> Any:
    """A DataFrame of these parts with the table's columns of now. Files that have just these
    columns are Spark's own to read; rows of others are converted in tasks.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: PLC0415

    from rmt_pipeline.compute.read_parts import (  # noqa: PLC0415
        converted_batches,
        part_files,
        signed_schema,
    )

    columns = stored_columns(definition)
    schema = from_arrow_schema(signed_schema(columns))
    found = part_files(store, parts, definition)
    files = [path for part in found if part.constants == () for path in part.paths]
    sources = [part.source for part in found if part.constants != ()]
    if not files and not sources:
        return session.createDataFrame([], schema)
    frame = session.read.schema(schema).parquet(*files) if files else None
    if sources:
        numbers = session.range(0, len(sources), 1, len(sources))
        convert = partial(converted_batches, sources, columns, to_arrow_schema(schema))
        converted = numbers.mapInArrow(convert, schema)
        frame = converted if frame is None else frame.unionAll(converted)
    return frame
