"""Several children that end together, and whose output is printed line by line with their names."""

import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TextIO

from rmt_pipeline.processes.child import Child
from rmt_pipeline.system import SystemClock, told_signals

STOP_TIMEOUT_S = 5.0  # then they are killed
LAST_WORDS_S = 1.0  # to read the last output; a process of another group may keep the pipe open
_COLOURS = (36, 33, 32, 35, 34, 31)  # ANSI codes


class Group:
    """A group of children: `start` each, then `run`. Only `tell` and `wait_s` may be called from
    other threads than the main one.
    """

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        """`names`: all that will appear in the output; the longest gives the width of
        their column.
        """
        self._out = out
        self._clock = SystemClock()
        self._width = max(map(len, names))
        self._colours = dict(zip(names, _COLOURS * len(names), strict=False))
        self._children: dict[str, Child] = {}
        self._readers: list[threading.Thread] = []
        self._speaking = threading.Lock()
        self._over = threading.Event()
        self.asked_to_end = False

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start a child. Raises Unavailable."""
        child = Child(command, output=subprocess.PIPE, env=env)
        self._children[name] = child
        self.tell(name, f"{name} started (pid={child.pid})")
        reader = threading.Thread(
            target=self._read, args=[name, child], name=f"rmt-{name}", daemon=True
        )
        self._readers.append(reader)
        reader.start()

    def wait_s(self, seconds: float) -> bool:
        """Wait; returns True at once when the group begins to end. From any thread."""
        return self._over.wait(seconds)

    def run(self) -> None:
        """Run until SIGINT, SIGTERM, or until the first child ends; then end all of them."""

        def tell(_: signal.Signals) -> None:
            self.asked_to_end = True
            self._over.set()

        with told_signals(tell):
            try:
                self._over.wait()
            finally:
                self.stop()

    def stop(self) -> None:
        """Ask all children to end, and kill those that have not after STOP_TIMEOUT_S. The one that
        was started first is asked when the others have ended, which may need it until then.
        """
        self._over.set()
        children = list(self._children.values())
        self._end(children[1:])
        self._end(children[:1])
        for reader in self._readers:
            reader.join(LAST_WORDS_S)

    def _end(self, children: Sequence[Child]) -> None:
        for child in children:
            child.terminate()
        until_s = self._clock.monotonic_s() + STOP_TIMEOUT_S
        for child in children:
            child.wait(max(0.0, until_s - self._clock.monotonic_s()))
        for child in children:
            child.kill()

    def tell(self, name: str, line: str) -> None:
        """Print a line under a name. From any thread."""
        now = datetime.now().astimezone()  # noqa: TID251  printed for people
        prefix = f"{now:%H:%M:%S} {name:{self._width}} | "
        if self._out.isatty():
            prefix = f"\x1b[{self._colours.get(name, 0)}m{prefix}\x1b[0m"
        with self._speaking:
            self._out.write(f"{prefix}{line}\n")
            self._out.flush()

    def _read(self, name: str, child: Child) -> None:
        """Print a child's output until everything in its process group has ended."""
        try:
            with child.output as lines:
                for line in lines:
                    self.tell(name, line.decode(errors="replace").rstrip("\r\n"))
            child.wait()
            self.tell(name, f"{name} stopped (status={child.status()})")
        finally:
            self._over.set()
