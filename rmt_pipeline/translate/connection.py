"""A DuckDB connection that can reach no network and no files but those it is given.

Expressions come from users and from ZooKeeper. They are compiled from an allow-list, so that
nothing else ever reaches DuckDB; this is the second wall: external access is off, extensions
cannot be loaded, Python variables cannot be read, and the configuration is locked.
"""

import threading
from collections.abc import Iterable
from pathlib import Path

import duckdb

from rmt_pipeline.protocol.errors import BadValue, UserError
from rmt_pipeline.types.escapes import duckdb_text

MEMORY_BYTES = 512 * 1024 * 1024
THREADS = 2

_local = threading.local()


class OutOfMemory(UserError):
    """The query needs more memory than it may have."""

    code = "MEMORY_LIMIT_EXCEEDED"


def open_connection(
    *,
    files: Iterable[Path] = (),
    directories: Iterable[Path] = (),
    memory_bytes: int = MEMORY_BYTES,
    threads: int = THREADS,
    spill_directory: Path | None = None,
) -> duckdb.DuckDBPyConnection:
    """A new in-memory database; the caller closes it.

    It may read the `files` and what is under the `directories`, and spill to disk under
    `spill_directory`; without one a query that needs more than `memory_bytes` fails. Times are
    UTC, NULLs sort last, division by zero of whole numbers is an error: as in the original.
    """
    connection = duckdb.connect(":memory:")
    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "python_enable_replacements": "false",
        "enable_progress_bar": "false",
        "threads": str(threads),
        "memory_limit": duckdb_text(f"{memory_bytes // 1024}KiB"),
        "TimeZone": "'UTC'",
        "default_null_order": "'NULLS_LAST'",
        "error_on_division_by_zero": "true",
        "temp_directory": duckdb_text(str(spill_directory) if spill_directory else ""),
        "allowed_paths": _list(files),
        "allowed_directories": _list(
            [*directories, *([spill_directory] if spill_directory else [])]
        ),
        "enable_external_access": "false",  # after the paths: it freezes them
        "lock_configuration": "true",
    }
    for name, value in settings.items():
        connection.execute(f"SET {name} = {value}")
    return connection


def thread_connection() -> duckdb.DuckDBPyConnection:
    """This thread's own connection without any files, kept for its next expression."""
    connection: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if connection is None:
        connection = open_connection()
        _local.connection = connection
    return connection


def forget_thread_connection() -> None:
    """Closes this thread's connection, if it has one; the next use opens another."""
    connection: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if connection is not None:
        connection.close()
        _local.connection = None


def user_error(problem: duckdb.Error, what: str) -> UserError:
    """What DuckDB refused while it computed, as the user's mistake that it is.

    The SQL is compiled from a checked expression, so what remains are values: text that is no
    number, an overflow, a division by zero. `what` is the expression or query, for the message.
    """
    shown = what if len(what) <= 300 else f"{what[:300]}..."
    reason = str(problem).split("\nLINE ")[0].split("\n\n")[0].strip()
    for prefix in ("Invalid Input Error: ", "Conversion Error: ", "Out of Range Error: "):
        reason = reason.removeprefix(prefix)
    if isinstance(problem, duckdb.OutOfMemoryException):
        return OutOfMemory(f"not enough memory for {shown}: {reason}")
    return BadValue(f"cannot compute {shown}: {reason}")


def _list(paths: Iterable[Path]) -> str:
    return f"[{', '.join(duckdb_text(str(path)) for path in paths)}]"
