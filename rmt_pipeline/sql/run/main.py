"""`rmt sql`: statements from the command line or standard input, answers to standard output.

Heavy modules are loaded when a statement needs them: `SELECT 1` must not wait for Spark, nor
SHOW TABLES for DuckDB.
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
from rmt_pipeline.sql.formats.rows import Done, Result
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.lexer import excerpt
from rmt_pipeline.syntax.statements.split import Piece, split

FAILED = 1


def run(  # noqa: PLR0917  as `rmt sql` takes them
    config: Config,
    server: str,
    settings: Mapping[str, str],
    format: str | None,  # noqa: A002  as the option is called
    ignore_error: bool,
    text: str | None,
) -> int:
    """Carry out the statements of `text`, or of standard input when it is None.

    Returns the exit status: 1 when a statement failed. Errors go to standard error with their
    code and the statement they belong to. With `ignore_error` the statements after one that
    failed are carried out too.
    """
    _do_without_pandas()
    warnings.showwarning = _warn
    stdin = sys.stdin.buffer
    if text is None:
        # Rows of a binary format may follow INSERT … FORMAT: every byte must come through.
        text = stdin.read().decode("utf-8", "surrogateescape")
        rows_from: BinaryIO | None = None
    else:
        rows_from = None if stdin.isatty() else stdin
    try:
        with Session.open(config, server, settings) as session:
            session.context.stdin = rows_from
            return _run_all(session, text, format, ignore_error=ignore_error)
    except RmtError as error:  # before the first statement
        _report(error, None)
        return FAILED
    except BrokenPipeError:
        # The reader of our answers has seen enough. Python would complain again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """As people read it, without the line of the program that says so."""
    sys.stderr.write(f"Warning: {message}\n")


def _do_without_pandas() -> None:
    """PyArrow looks for pandas when it makes its first array, and loads it where it is installed:
    half a second, and no statement needs it. What it does not find now it does not look for again.
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
    """While it is in `sys.meta_path`, pandas is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _run_all(
    session: Session, text: str, format_name: str | None, *, ignore_error: bool
) -> int:
    status = 0
    pieces = split(text)
    while True:
        piece: Piece | None = None
        try:
            piece = next(pieces, None)
            if piece is None:
                return status
            _write(session.execute(piece), format_name)
        except RmtError as error:
            status = FAILED
            _report(error, piece)
            if piece is None or not ignore_error:
                return status
            if _is_set(piece):
                sys.stderr.write(
                    "The rest of the script is not carried out: it was to run with these settings\n"
                )
                return status


def _is_set(piece: Piece) -> bool:
    """What a SET guards, `insert_quorum` say, does not run unguarded."""
    return Cursor(piece.source, piece.start, piece.stop).at_word("SET")


def _write(result: Result, format_name: str | None) -> None:
    if isinstance(result, Done):
        note = result.note or (result.at_terminal if sys.stderr.isatty() else "")
        if note:
            sys.stderr.write(f"{note}\n")
        return
    from rmt_pipeline.sql.formats.write import write_rows  # noqa: PLC0415  start-up

    chosen = result.format or format_name
    if chosen is None:
        chosen = "PrettyCompact" if sys.stdout.isatty() else "TSV"
    try:
        write_rows(result, chosen, sys.stdout.buffer)
    finally:
        sys.stdout.buffer.flush()  # answers and errors stay in the order they came


def _report(error: RmtError, piece: Piece | None) -> None:
    message = f"Code: {error.code}. {error}\n"
    if piece is not None:
        message += f"(in statement {piece.number}: {excerpt(piece.text)})\n"
    sys.stderr.write(message)
