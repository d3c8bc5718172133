"""A process that we start, and that never outlives us.

Whoever starts a JVM ends it, whatever happens to itself, `kill -9` included. So a child is started
through a guardian (`guardian.py`), which holds one end of a socket of which we alone hold the
other: when we end, in whatever way, the kernel closes ours, and the guardian kills the child and
everything in its process group. The same on every system; nothing has to be called.
"""

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from rmt_pipeline.protocol.errors import Unavailable

_GUARDIAN = Path(__file__).with_name("guardian.py")
_GUARDIAN_TIMEOUT_S = 60.0  # it is there in 15 ms on an idle machine
_KILL_TIMEOUT_S = 10.0  # a process that is killed and does not end waits for a broken disk

_our_ends: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def _close_copies() -> None:
    """A fork of ours without an exec has a copy of every socket, and would keep our children
    alive after us.
    """
    for end in list(_our_ends):
        end.close()


os.register_at_fork(after_in_child=_close_copies)


class Child:
    """One command, running until it ends, `stop`, or the end of this process."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Starts it. `output`: where its standard output and error go, as `subprocess` has it
        (None: where ours go). Its standard input ends when it must end. It leads a session of its
        own: a Ctrl-C at the terminal is ours to handle.

        A command that does not exist ends with status 127. Raises Unavailable when this machine
        starts no processes any more.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._guardian = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_GUARDIAN), *command],
                    stdin=theirs.fileno(),
                    stdout=output,
                    stderr=None if output is None else subprocess.STDOUT,
                    env=env,
                    cwd=cwd,
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
        except OSError as problem:
            ours.close()
            raise Unavailable(f"{command[0]} cannot be started: {problem}") from problem
        _our_ends.add(ours)
        self._ours = ours
        self.pid = self._read_pid(command[0])

    @property
    def output(self) -> IO[bytes]:
        """What it writes, if `output` was PIPE; it ends when everything in its group has ended. The
        reader closes it, or the end of the context.
        """
        assert self._guardian.stdout is not None, "the child was not started with a pipe"
        return self._guardian.stdout

    def status(self) -> int | None:
        """None while it runs; then its exit status, 128 and the number of the signal that ended
        it, or less than zero when its guardian was killed.
        """
        return self._guardian.poll()

    def terminate(self) -> None:
        """Ask it, and everything in its group, to end (SIGTERM)."""
        self._guardian.terminate()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has ended, at the latest after `timeout_s`."""
        try:
            self._guardian.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, within_s: float) -> None:
        """Ask it to end; after `within_s` end it by force. Idempotent."""
        self.terminate()
        self.wait(within_s)
        self.kill()

    def kill(self) -> None:
        """End it and everything in its group by force, now. Idempotent."""
        self._ours.close()
        self.wait(_KILL_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._guardian.stdout is not None:
            self._guardian.stdout.close()

    def _read_pid(self, program: str) -> int:
        """The command's, which the guardian says as soon as it has forked."""
        self._ours.settimeout(_GUARDIAN_TIMEOUT_S)
        said = b""
        try:
            while not said.endswith(b"\n"):
                chunk = self._ours.recv(20)
                if not chunk:
                    raise ConnectionResetError("its guardian ended")
                said += chunk
        except OSError as problem:
            self.kill()
            raise Unavailable(f"{program} cannot be started: {problem}") from problem
        return int(said)
