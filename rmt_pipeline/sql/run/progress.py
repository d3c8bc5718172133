"""How far a statement is: rows and bytes, and a line about them for a person at a terminal."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Self

import pyarrow as pa

FIRST_AFTER_S = 0.5  # a statement that ends sooner needs no line
EVERY_S = 0.1
_ERASE = "\r\x1b[K"
_THOUSANDS = ("", " thousand", " million", " billion", " trillion")
_UNITS = (" B", " KB", " MB", " GB", " TB")


class StatementProgress:
    """Counts what one statement has returned, or taken in, so far. While it is open, it shows that
    on standard error if that is a terminal; it writes nothing to a pipe or a file.
    """

    def __init__(self) -> None:
        self._out = sys.stderr
        self._begun_s = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._share: Callable[[], float] | None = None
        self._waits_for = ""
        self.rows = 0
        self.bytes = 0

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun_s

    def __enter__(self) -> Self:
        if self._out.isatty():
            self._thread = threading.Thread(target=self._show, name="rmt-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Remove the line, and show no other: the terminal is needed for other output."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def add(self, rows: int, size: int) -> None:
        self.rows += rows
        self.bytes += size

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they pass."""
        for batch in batches:
            self.add(batch.num_rows, batch.nbytes)
            yield batch

    def follow(self, share: Callable[[], float]) -> None:
        """Show the share of work that `share` returns: 0 to 1; below 0 when it is not known."""
        self._share = share

    def waits_for(self, what: str) -> None:
        """Show that the statement waits for `what`; "" when that is over."""
        self._waits_for = what

    def words(self) -> str:
        seconds = max(self.elapsed_s, 0.001)
        share = -1.0 if self._share is None else self._share()
        parts = [f"waiting for {self._waits_for}, {seconds:.0f} s"] if self._waits_for else []
        if share > 0:
            parts.append(f"{share:.0%}")
        if self.rows or not parts:
            parts.append(
                f"{quantity(self.rows)} rows, {_size(self.bytes)} "
                f"({quantity(self.rows / seconds)} rows/s., {_size(self.bytes / seconds)}/s.)"
            )
        return f"Progress: {', '.join(parts)}"

    def _show(self) -> None:
        delay_s, shown = FIRST_AFTER_S, False
        while not self._ended.wait(delay_s):
            self._out.write(f"{_ERASE}{self.words()}")
            self._out.flush()
            delay_s, shown = EVERY_S, True
        if shown:
            self._out.write(_ERASE)
            self._out.flush()


def quantity(number: float) -> str:
    """A number as the original's client writes it: 1.20 million."""
    return _scaled(number, _THOUSANDS, whole_below=1000)


def _size(number: float) -> str:
    return _scaled(number, _UNITS, whole_below=0)


def _scaled(number: float, units: tuple[str, ...], *, whole_below: int) -> str:
    if number < whole_below and number == int(number):
        return f"{int(number)}{units[0]}"
    place = 0
    while number >= 1000 and place < len(units) - 1:
        number /= 1000
        place += 1
    return f"{number:.2f}{units[place]}"
