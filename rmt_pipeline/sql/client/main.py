"""`rmt sql`: statements from the command line or standard input, answers to standard output.

Heavy modules are loaded when a statement needs them: `SELECT 1` must not wait for Spark, nor SHOW
TABLES for DuckDB.
"""

import os
import sys
import warnings
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from typing import BinaryIO

import pyarrow as pa

from rmt_pipeline.config import Config
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.sql.client.script import FAILED, report, run_all
from rmt_pipeline.sql.run.session import Session


def run(  # noqa: PLR0917  as `rmt sql` takes them
    config: Config,
    server: str,
    settings: Mapping[str, str],
    format: str | None,  # noqa: A002  as the option is called
    ignore_error: bool,
    text: str | None,
) -> int:
    """Carry out the statements of `text`; if it is None, those of standard input, or at a terminal
    those that are typed at the prompt.

    Returns the exit status: 1 when a statement failed. Errors go to standard error with their code
    and the statement they belong to. With `ignore_error`, the statements after one that failed are
    carried out too, unless that one was a SET. Raises KeyboardInterrupt.
    """
    _do_without_pandas()
    warnings.simplefilter("always", UserWarning)  # for each statement, not only for the first
    stdin = sys.stdin.buffer
    if text is None and sys.stdin.isatty() and sys.stdout.isatty():
        return _converse(config, server, settings, format)
    if text is None:
        # Rows of a binary format may follow INSERT … FORMAT: every byte must come through.
        text = stdin.read().decode("utf-8", "surrogateescape")
        rows_from: BinaryIO | None = None
    else:
        rows_from = None if stdin.isatty() else stdin
    try:
        with Session.open(config, server, settings) as session:
            session.context.stdin = rows_from
            return run_all(session, text, format, ignore_error=ignore_error)
    except RmtError as error:  # the session could not be opened
        report(error, None)
        return FAILED
    except BrokenPipeError:
        # The reader has closed the pipe. Without this, Python reports it again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _converse(
    config: Config, server: str, settings: Mapping[str, str], format_name: str | None
) -> int:
    from rmt_pipeline.sql.client.prompt import converse  # noqa: PLC0415  start-up: prompt_toolkit

    try:
        return converse(config, server, settings, format_name)
    except RmtError as error:
        report(error, None)
        return FAILED


def _do_without_pandas() -> None:
    """Keep PyArrow from loading pandas. PyArrow looks for pandas when it makes its first array, and
    loads it if it is installed: that takes half a second, and no statement needs it. If pandas is
    not found then, PyArrow does not look for it again.
    """
    if "pandas" in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


class _Hidden(MetaPathFinder):
    """While this is in `sys.meta_path`, pandas seems not to be installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name)
