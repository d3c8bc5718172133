"""Statements of a person or a script: carried out one after the other, with what they see of it.

Ctrl-C ends a statement wherever it is. What it had begun is undone, or is as if its process had
died, which every action allows for at any moment.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.sql.formats.rows import Done, Result
from rmt_pipeline.sql.formats.write import write_rows
from rmt_pipeline.sql.run.context import SessionContext
from rmt_pipeline.sql.run.progress import StatementProgress
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.lexer import excerpt
from rmt_pipeline.syntax.statements.split import Piece, split

FAILED = 1
_END = b"\0"  # no signal has that number


def run_all(
    session: Session,
    text: str,
    format_name: str | None,
    *,
    ignore_error: bool,
    tells_time: bool = False,
) -> int:
    """The exit status: 1 when a statement failed. Errors go to standard error with their code and
    the statement they belong to. `tells_time`: rows and seconds after each statement.

    Raises KeyboardInterrupt: the statements that were done are done, the others are not begun.
    """
    status = 0
    pieces = split(text)
    while True:
        piece: Piece | None = None
        try:
            piece = next(pieces, None)
            if piece is None:
                return status
            _carry_out(session, piece, format_name, tells_time=tells_time)
        except RmtError as error:
            status = FAILED
            report(error, piece)
            if piece is None or not ignore_error:
                return status
            if _is_set(piece):
                sys.stderr.write(
                    "The rest of the script is not carried out: it was to run with these settings\n"
                )
                return status


def report(error: RmtError, piece: Piece | None) -> None:
    """Tell a person on standard error what went wrong, and in which statement of a script."""
    message = f"Code: {error.code}. {error}\n"
    if piece is not None:
        message += f"(in statement {piece.number}: {excerpt(piece.text)})\n"
    sys.stderr.write(message)


def _is_set(piece: Piece) -> bool:
    """What a SET guards, `insert_quorum` say, does not run unguarded."""
    return Cursor(piece.source, piece.start, piece.stop).at_word("SET")


def _carry_out(
    session: Session, piece: Piece, format_name: str | None, *, tells_time: bool
) -> None:
    context = session.context
    with StatementProgress() as progress, _interruptible(context):
        context.progress = progress
        result = session.execute(piece)
        if isinstance(result, Done):
            progress.end()
        _write(result, format_name, progress, says_ok=tells_time)
    if tells_time:
        rows = f"{progress.rows} row{'' if progress.rows == 1 else 's'} in set"
        sys.stdout.write(f"\n{rows}. Elapsed: {progress.elapsed_s:.3f} sec.\n\n")
        sys.stdout.flush()


def _write(
    result: Result, format_name: str | None, progress: StatementProgress, *, says_ok: bool
) -> None:
    if isinstance(result, Done):
        note = result.note or (result.at_terminal if sys.stderr.isatty() else "")
        if note:
            sys.stderr.write(f"{note}\n")
        elif says_ok:
            sys.stdout.write("Ok.\n")
        return
    is_terminal = sys.stdout.isatty()
    chosen = result.format or format_name or ("PrettyCompact" if is_terminal else "TSV")
    batches = progress.counted(result.batches)
    if is_terminal:  # the first rows end the line about them
        first = next(batches, None)
        progress.end()
        batches = chain([] if first is None else [first], batches)
    try:
        write_rows(replace(result, batches=batches), chosen, sys.stdout.buffer)
    finally:
        sys.stdout.buffer.flush()  # answers and errors stay in the order they came


@contextmanager
def _interruptible(session: SessionContext) -> Iterator[None]:
    """Ctrl-C ends also what DuckDB computes, and is a KeyboardInterrupt whatever becomes of it.

    1. Python's handler of a signal runs between two instructions of the main thread: not while it
       waits for DuckDB, which itself looks for signals at some places only, and then raises what it
       likes.
    2. So a thread is told at once, through a pipe, and interrupts what computes.
    3. What the statement fails with after that is the interruption, however it calls itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = threading.Event()
    waiting, told = os.pipe()
    os.set_blocking(told, False)

    def listen() -> None:
        while (number := os.read(waiting, 1)) != _END:
            if number == bytes([signal.SIGINT]):
                heard.set()
                session.interrupt()

    listener = threading.Thread(target=listen, name="rmt-interrupt", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield
    except Exception as error:
        _end(told, listener, before)
        if heard.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        _end(told, listener, before)
        os.close(waiting)
        os.close(told)


def _end(told: int, listener: threading.Thread, before: int) -> None:
    """The listener has heard all that came until now."""
    if listener.is_alive():
        signal.set_wakeup_fd(before)
        os.write(told, _END)
        listener.join()
