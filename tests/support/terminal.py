"""A process of `rmt` on a pseudo-terminal, and who types there."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

WITHIN_S = 120.0  # whatever the machine is busy with
FIRST, SAYS = "SELECT 6 * number FROM numbers(8);", "42"
"""Who is to be interrupted says this first. A signal during DuckDB's import aborts the process,
and on a busy machine a statement's progress is told before that import has ended.
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`rmt …` with a pseudo-terminal as its input and both its outputs."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._main, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(directory)}
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rmt_pipeline.cli", *arguments],
            stdin=child,
            stdout=child,
            stderr=child,
            env=environment,
            start_new_session=True,
        )
        os.close(child)
        self._seen = ""

    def types(self, text: str) -> None:
        os.write(self._main, text.encode())

    def until(self, wanted: str) -> str:
        """What is written up to and with `wanted`, without colours and movements."""
        deadline_s = time.monotonic() + WITHIN_S
        while wanted not in self._seen:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"no {wanted!r} in {self._seen!r}"
            if select.select([self._main], [], [], min(left_s, 1.0))[0]:
                self._read(wanted)
        before, found, self._seen = self._seen.partition(wanted)
        return before + found

    def _read(self, wanted: str) -> None:
        try:
            written = os.read(self._main, 65536)
        except OSError:  # the other side is closed
            raise AssertionError(f"no {wanted!r} before the end: {self._seen!r}") from None
        self._seen += _ESCAPES.sub("", written.decode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """If it still runs: a test has failed."""
        if self.process.poll() is None:
            self.process.kill()
            self.ends()

    def ends(self) -> int:
        """The status, as a shell says it. A Python that was interrupted while it executed a text,
        as the first import of a module with dataclasses does, ends itself by the same signal at
        its exit, whatever status it was asked for.
        """
        status = self.process.wait(WITHIN_S)
        os.close(self._main)
        return status if status >= 0 else 128 - status
