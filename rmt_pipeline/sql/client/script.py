"""Carries out the statements of a person or a script one after the other, and prints their results.

Ctrl-C ends a statement wherever it is. What it had begun is undone, or left as if its process had
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
_END = b"\0"  # not the number of any signal


def run_all(
    session: Session,
    text: str,
    format_name: str | None,
    *,
    ignore_error: bool,
    tells_time: bool = False,
) -> int:
    """Carry out all statements. The exit status is 1 when one failed. Errors go to standard error
    with their code and the statement they belong to. `tells_time`: print rows and seconds after
    each statement.

    Raises KeyboardInterrupt: earlier statements are done, and later ones are not begun.
    """
    status = 0
    pieces = split(text)
    while True:
        piece: Piece | None = None
        try:
            piece = next(pieces, None)
            if piece is None:
                return status
            with _failures_told():
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


class SystemFailed(RmtError):
    """The operating system refused what the statement needs: a disk fails, or is full, or a file
    may not be opened. What the statement had begun is as if its process had died.
    """

    code = "SYSTEM_ERROR"


@contextmanager
def _failures_told() -> Iterator[None]:
    """Raises SystemFailed for an error of the operating system, so that it ends the statement, and
    not a prompt or the rest of a script; but a reader who has closed the pipe wants nothing more.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SystemFailed(str(error)) from error


def report(error: RmtError, piece: Piece | None) -> None:
    """Print on standard error what went wrong, and in which statement of the script."""
    message = f"Code: {error.code}. {error}\n"
    if piece is not None:
        message += f"(in statement {piece.number}: {excerpt(piece.text)})\n"
    sys.stderr.write(message)


def _is_set(piece: Piece) -> bool:
    """Whether this is a SET. After a failed one, later statements must not run without its
    settings, say `insert_quorum`.
    """
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
    if is_terminal:  # the line of progress ends with the first rows
        first = next(batches, None)
        progress.end()
        batches = chain([] if first is None else [first], batches)
    try:
        write_rows(replace(result, batches=batches), chosen, sys.stdout.buffer)
    finally:
        sys.stdout.buffer.flush()  # keeps answers and errors in their order


@contextmanager
def _interruptible(session: SessionContext) -> Iterator[None]:
    """Ctrl-C also ends what DuckDB computes, and becomes a KeyboardInterrupt in any case.

    1. Python's signal handler runs between two instructions of the main thread: not while that
       waits for DuckDB, which looks for signals only at some places, and then raises errors of its
       own.
    2. So a thread is woken at once, through a pipe, and interrupts the computation.
    3. Whatever error the statement then fails with is turned into the KeyboardInterrupt.
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
    """End the listener, after it has handled all signals so far."""
    if listener.is_alive():
        signal.set_wakeup_fd(before)
        os.write(told, _END)
        listener.join()
