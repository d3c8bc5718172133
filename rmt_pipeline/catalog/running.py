"""The statements that run now on this server's tables: for system.processes and KILL QUERY.

A statement runs in the process that executes it. Each has a file in the server's directory, which
is locked while it runs, so that every process of this host can see it; the file of one that died is
not locked. KILL QUERY makes a file beside it, for which a thread of the process that runs it looks.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from rmt_pipeline.protocol.errors import CannotKill

LOOK_EVERY_S = 0.1
IDLE_LOOKS_MAX = 20  # then the thread ends
ABANDONED_S = 60.0
QUERY_CHARACTERS_MAX = 100_000  # the rest is not shown: rows of an INSERT may be many
_KILL = ".kill"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunningStatement:
    """What the file of a statement says. `started_s` is in seconds since 1970."""

    query_id: str
    query: str
    user: str
    database: str
    started_s: float
    pid: int


def running_directory(data: Path) -> Path:
    """Where the files are, of the server whose directory is `data`."""
    return data / "tmp" / "statements"


class StatementNote:
    """The file of one statement, from its beginning to `end`. Where the directory can't be written
    there is none, and the statement runs unseen.
    """

    def __init__(
        self, directory: Path, statement: RunningStatement, interrupt: Callable[[], None]
    ) -> None:
        self._interrupt = interrupt
        self._path = directory / statement.query_id
        self._descriptor = -1
        self._lock = threading.RLock()  # the garbage collector may call `end` at any place
        shown = replace(statement, query=statement.query[:QUERY_CHARACTERS_MAX])
        with suppress(OSError):
            self._descriptor = _created(self._path)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            os.write(self._descriptor, json.dumps(asdict(shown)).encode())
            _WATCH.add(self)

    def look(self) -> None:
        """Interrupt the statement if it is to be killed, but not one that comes after it."""
        with self._lock:
            if self._descriptor >= 0 and self._path.with_suffix(_KILL).exists():
                self._interrupt()

    def end(self) -> None:
        """The statement has ended. May be called twice."""
        _WATCH.remove(self)
        with self._lock:
            if self._descriptor < 0:
                return
            _remove(self._path)
            os.close(self._descriptor)
            self._descriptor = -1

    def until_read(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; the statement has ended when they are read."""
        return _Read(self, batches)


class _Read(Iterator[T]):
    """The rows of a statement, which ends with them, or when nobody has them any more: a generator
    that was never begun would not notice.
    """

    def __init__(self, note: StatementNote, batches: Iterable[T]) -> None:
        self._note = note
        self._left = iter(batches)

    def __next__(self) -> T:
        try:
            return next(self._left)
        except BaseException:
            self._note.end()
            raise

    def __del__(self) -> None:
        self._note.end()


def _remove(path: Path) -> None:
    for one in (path, path.with_suffix(_KILL)):
        with suppress(OSError):
            one.unlink(missing_ok=True)


def _created(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


class _Watch:
    """The thread that looks which of this process's statements are to be killed. It ends when none
    has run for a while.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # as above
        self._notes: set[StatementNote] = set()
        self._runs = False
        self._rest = threading.Event()  # nobody sets it

    def add(self, note: StatementNote) -> None:
        with self._lock:
            self._notes.add(note)
            begins, self._runs = not self._runs, True
        if begins:
            try:
                threading.Thread(target=self._run, name="rmt-kill-query", daemon=True).start()
            except RuntimeError:  # there are too many: the next statement tries it again
                self._runs = False

    def remove(self, note: StatementNote) -> None:
        with self._lock:
            self._notes.discard(note)

    def _run(self) -> None:
        idle = 0
        while self._goes_on(idle):
            self._rest.wait(LOOK_EVERY_S)
            idle = 0 if self._look() else idle + 1

    def _goes_on(self, idle: int) -> bool:
        with self._lock:
            self._runs = idle <= IDLE_LOOKS_MAX or bool(self._notes)
            return self._runs

    def _look(self) -> bool:
        with self._lock:
            notes = list(self._notes)
        for note in notes:
            note.look()
        return bool(notes)


_WATCH = _Watch()


def running_statements(data: Path, now_s: float) -> Iterator[tuple[RunningStatement, bool]]:
    """Every statement that runs, and whether it is to be killed. Removes files that dead processes
    have left.
    """
    try:
        paths = sorted(running_directory(data).iterdir())
    except FileNotFoundError:
        return
    names = {path.name for path in paths}
    for path in paths:
        if path.suffix == _KILL:
            continue
        with suppress(OSError, ValueError, TypeError):  # it has just ended, or begun
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _is_left(descriptor):
                    if now_s - os.fstat(descriptor).st_mtime > ABANDONED_S:
                        _remove(path)
                    continue
                said = json.loads(os.read(descriptor, os.fstat(descriptor).st_size))
            finally:
                os.close(descriptor)
            yield RunningStatement(**said), f"{path.name}{_KILL}" in names


def _is_left(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_running(data: Path, query_id: str) -> bool:
    """Whether the statement, which ran, runs still: its process lives and has not ended it."""
    try:
        descriptor = os.open(running_directory(data) / query_id, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _is_left(descriptor)
    finally:
        os.close(descriptor)


def ask_to_end(data: Path, query_id: str) -> bool:
    """Have a statement killed; returns whether it runs still. Raises CannotKill."""
    if not is_running(data, query_id):
        return False
    file = (running_directory(data) / query_id).with_suffix(_KILL)
    try:
        file.touch()
    except OSError as error:
        raise CannotKill(
            f"the query {query_id} can't be killed: {error}. The account that runs it can do that"
        ) from error
    if is_running(data, query_id):
        return True
    file.unlink(missing_ok=True)  # it ended meanwhile, and nobody else would remove this
    return False
