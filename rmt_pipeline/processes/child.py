"""A child process that never outlives this one, even if this one is ended by `kill -9`.

A child is started through a guardian (`guardian.py`), which holds one end of a socket. Only this
process holds the other end. When this process ends, in whatever way, the kernel closes that end,
and the guardian kills the child and everything in its process group. This works on every system,
and nothing has to be called for it.
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
_GUARDIAN_TIMEOUT_S = 60.0  # it takes 15 ms on an idle machine
_KILL_TIMEOUT_S = 10.0  # only a process that waits for a broken disk takes so long to die

_our_ends: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()


def _close_copies() -> None:
    """Called in a fork: close its copies of the sockets, which would keep our children alive after
    this process has ended.
    """
    for end in list(_our_ends):
        end.close()


os.register_at_fork(after_in_child=_close_copies)


class Child:
    """A running command. It runs until it ends by itself, is stopped, or this process ends."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
        scratch: Path | None = None,
    ) -> None:
        """Start the command. `output` is where its standard output and error go, as for
        `subprocess` (None: where ours go). The end of its standard input tells it that it must end.
        It has a session of its own, so that a Ctrl-C at the terminal reaches only this process.
        `scratch`, which may not exist yet, is made for it, and removed once it and everything in
        its process group have ended, whoever ended them.

        A command that does not exist ends with status 127. Raises Unavailable when the system can
        start no further process.
        """
        ours = None
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                self._guardian = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_GUARDIAN), str(scratch or ""), *command],
                    stdin=theirs.fileno(),
                    stdout=output,
                    stderr=None if output is None else subprocess.STDOUT,
                    env=env,
                    cwd=cwd,
                    pass_fds=pass_fds,
                    start_new_session=True,
                )
        except OSError as problem:
            if ours is not None:
                ours.close()
            raise Unavailable(f"{command[0]} cannot be started: {problem}") from problem
        _our_ends.add(ours)
        self._ours = ours
        self.pid = self._read_pid(command[0])

    @property
    def output(self) -> IO[bytes]:
        """What the command writes, if `output` was PIPE. It ends when everything in the command's
        process group has ended. The reader closes it, or leaving the context does.
        """
        assert self._guardian.stdout is not None, "the child was not started with a pipe"
        return self._guardian.stdout

    def status(self) -> int | None:
        """None while the command runs. Then its exit status; or 128 plus the number of the signal
        that ended it; or a negative number if its guardian was killed.
        """
        return self._guardian.poll()

    def terminate(self) -> None:
        """Ask the command, and everything in its process group, to end (SIGTERM)."""
        self._guardian.terminate()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the command to end, for at most `timeout_s`. Whether it has ended."""
        try:
            self._guardian.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, within_s: float) -> None:
        """Ask the command to end; after `within_s` seconds kill it. May be called twice."""
        self.terminate()
        self.wait(within_s)
        self.kill()

    def kill(self) -> None:
        """Kill the command and everything in its process group. May be called twice."""
        self._ours.close()
        self.wait(_KILL_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._guardian.stdout is not None:
            self._guardian.stdout.close()

    def _read_pid(self, program: str) -> int:
        """The command's process id, which the guardian writes as soon as it has forked."""
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
