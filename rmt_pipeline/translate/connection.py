"""A DuckDB connection without access to the network, and to no files but those it is given.

Expressions come from users and from ZooKeeper. They are compiled from an allow-list, so that
nothing else reaches DuckDB. The connection is a second barrier: external access is off, extensions
can't be loaded, Python variables can't be read, and the configuration is locked.
"""

import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from rmt_pipeline.protocol.errors import BadValue, QueryInterrupted, UserError
from rmt_pipeline.system import uninterrupted
from rmt_pipeline.translate import in_python
from rmt_pipeline.types.escapes import duckdb_text

with uninterrupted():  # a Ctrl-C during this import would end the process with a core dump
    import duckdb as duckdb  # noqa: PLC0414  other modules import it from here

MEMORY_BYTES = 512 * 1024 * 1024
THREADS = 2
SLEEP, SLEEP_EACH_ROW = "rmt_sleep", "rmt_sleep_each_row"
SLEEP_MAX_S = 3  # per block of rows, as in the original

_OF_COLUMN = re.compile(r" when casting from source column [^\n]*$")
"""What DuckDB says of where a value is from, in its own names: that of a column of the query, or of
a step in between. The query itself is beside it.
"""

_local = threading.local()


class OutOfMemory(UserError):
    """The query needs more memory than it may use."""

    code = "MEMORY_LIMIT_EXCEEDED"


class Thrown(UserError):
    """The condition of a `throwIf` in the query was true."""

    code = "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"
    MARK = "throwIf: "


class TooSlow(UserError):
    """The query would sleep longer than allowed."""

    code = "TOO_SLOW"
    MARK = "sleepEachRow: "


def open_connection(
    *,
    directories: Iterable[Path] = (),
    memory_bytes: int = MEMORY_BYTES,
    threads: int = THREADS,
    spill_directory: Path | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open a new in-memory database, which the caller closes.

    It may read the files under `directories`, and spill to disk under
    `spill_directory`; with None a query that needs more than `memory_bytes` fails. As in the
    original, times are UTC, NULLs sort last, and dividing a whole number by zero is an error.
    """
    connection = duckdb.connect(":memory:")
    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        "python_enable_replacements": "false",
        "enable_progress_bar": "true",  # needed to ask for the progress of a query
        "enable_progress_bar_print": "false",
        "threads": str(threads),
        "memory_limit": duckdb_text(f"{memory_bytes // 1024}KiB"),
        "TimeZone": "'UTC'",
        "default_null_order": "'NULLS_LAST'",
        "error_on_division_by_zero": "true",
        "temp_directory": duckdb_text(str(spill_directory) if spill_directory else ""),
        "allowed_directories": _list(
            [*directories, *([spill_directory] if spill_directory else [])]
        ),
        "enable_external_access": "false",  # set after the paths, which it freezes
        "lock_configuration": "true",
    }
    for name, value in settings.items():
        connection.execute(f"SET {name} = {value}")
    in_python.add_python_functions(connection)
    for name, sleep in ((SLEEP, _sleep), (SLEEP_EACH_ROW, _sleep_each_row)):
        connection.create_function(
            name, sleep, ["DOUBLE"], "UTINYINT", type="arrow", side_effects=True
        )
    return connection


def _sleep(seconds: pa.ChunkedArray) -> pa.Array:
    """Sleep once for a block of rows, which all have the same constant."""
    time.sleep(seconds[0].as_py())
    return pa.repeat(pa.scalar(0, pa.uint8()), len(seconds))


def _sleep_each_row(seconds: pa.ChunkedArray) -> pa.Array:
    whole = seconds[0].as_py() * len(seconds)
    if whole > SLEEP_MAX_S:
        raise TooSlow(
            f"{TooSlow.MARK}the longest sleep is {SLEEP_MAX_S} seconds for a block of rows, not "
            f"{whole:g} for {len(seconds)}"
        )
    time.sleep(whole)
    return pa.repeat(pa.scalar(0, pa.uint8()), len(seconds))


def thread_connection() -> duckdb.DuckDBPyConnection:
    """Return this thread's own connection, which can read no files and is kept for later
    expressions.
    """
    connection: duckdb.DuckDBPyConnection | None = getattr(_local, "connection", None)
    if connection is None:
        connection = open_connection()
        _local.connection = connection
    return connection


def user_error(problem: duckdb.Error, what: str) -> UserError:
    """Return the UserError for an error of DuckDB during a computation.

    The SQL was compiled from a checked expression, so only values can be wrong: text that is no
    number, an overflow, a division by zero. `what` is the expression or query, for the message.
    """
    shown = what if len(what) <= 300 else f"{what[:300]}..."
    reason = str(problem).split("\nLINE ")[0].split("\n\n")[0].strip()
    reason = _OF_COLUMN.sub("", reason)
    for prefix in ("Invalid Input Error: ", "Conversion Error: ", "Out of Range Error: "):
        reason = reason.removeprefix(prefix)
    for named in (Thrown, TooSlow):
        _, mark, said = reason.partition(named.MARK)
        if mark:
            return named(f"{said}, in {shown}")
    if reason.startswith("INTERRUPT Error"):
        return QueryInterrupted(f"the query was ended: {shown}")
    if isinstance(problem, duckdb.OutOfMemoryException):
        return OutOfMemory(f"not enough memory for {shown}: {reason}")
    if "invalid UTF8 characters" in reason:
        reason = (
            "bytes are left that are no UTF-8 text, which a String holds here: a character was cut "
            "in two. Functions of characters cut none: substringUTF8, leftUTF8, rightUTF8"
        )
    if isinstance(problem, duckdb.BinderException) and "window function" in reason:
        return BadValue(
            "a window function (OVER, runningDifference, neighbor, rowNumberInAllBlocks) inside of "
            "another function of that kind, or in WHERE: compute it in a subquery first"
        )
    return BadValue(f"cannot compute {shown}: {reason}")


def _list(paths: Iterable[Path]) -> str:
    return f"[{', '.join(duckdb_text(str(path)) for path in paths)}]"
