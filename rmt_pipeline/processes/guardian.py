"""Runs one command for a process that may die at any moment, and then ends that command.

`child` does not import this file but runs it, `python -I -S guardian.py SCRATCH COMMAND…`, with one
end of a socket as standard input. Only the owner holds the other end. SCRATCH, if it is not empty,
is a directory that is made for the command and removed when its whole group has ended.

    owner ── socket ── guardian ── pipe (standard input) ── command, leader of its process group

1. The owner ends, in whatever way: the kernel closes its end of the socket, the guardian reads the
   end of the stream, and kills the command's whole process group. This needs no clock, and no help
   from the owner or from a command that hangs.
2. The owner died before the guardian was ready: the stream has ended already, and it does the same.
3. The owner wants an orderly end (SIGTERM to the guardian): the group gets the signal, and the
   guardian waits for it.
4. The command ends by itself: what it left in its group is killed, and the guardian ends with the
   same status.
5. The guardian is killed: on Linux the kernel kills the command, which asked for that before it
   began. Elsewhere a command that reads its standard input sees it end.

The guardian has one thread and imports little, so it is ready in 15 ms. One thread also matters
because Linux ties the signal of a parent's death to the parent's *thread*.
"""

import contextlib
import os
import select
import signal
import sys
import time

OWNER = 0
GRACE_S = 1.0  # for what the command leaves in its group after it was asked to end
LOOK_EVERY_S = 0.02
COMMAND_NOT_FOUND = 127
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_PR_SET_PDEATHSIG = 1  # Linux, <sys/prctl.h>


def main(scratch: str, command: list[str]) -> None:
    """Never returns."""
    if scratch:
        os.mkdir(scratch, 0o700)  # noqa: PTH102  start-up: pathlib takes longer than all else
    signals = _signals_to_read()
    child = _start(command)
    with contextlib.suppress(OSError):  # the owner has ended: `_watch` notices at once
        os.write(OWNER, b"%d\n" % child)
    status, asked = _watch(child, signals)
    _end_group(child, GRACE_S if asked else 0.0)
    if scratch:
        import shutil  # noqa: PLC0415  start-up

        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(_shell_status(status))


def _signals_to_read() -> int:
    """A descriptor on which each signal appears as a byte, so that handlers need not
    do anything.
    """
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in _HANDLED:
        signal.signal(number, lambda *_: None)
    return readable


def _start(command: list[str]) -> int:
    """Start the command as the leader of its own process group; its input ends with
    this process.
    """
    readable, _kept_open = os.pipe()
    guardian = os.getpid()
    child = os.fork()
    if child:
        os.close(readable)
        with contextlib.suppress(OSError):  # the child was faster, and did it itself
            os.setpgid(child, child)
        return child
    try:
        os.setpgid(0, 0)
        os.dup2(readable, 0)
        for number in (
            *_HANDLED,
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores the last two; the command should not
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the owner may have blocked some
        die_with(guardian)
        os.execvp(command[0], command)  # noqa: S606  the owner chose the command
    except OSError as problem:
        os.write(2, f"{command[0]} does not run: {problem.strerror}\n".encode())
    finally:
        os._exit(COMMAND_NOT_FOUND)


def die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when this parent ends. Does nothing on other systems
    than Linux.
    """
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415  start-up: it takes longer than everything else here

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before this was asked for
        os._exit(COMMAND_NOT_FOUND)


def _watch(child: int, signals: int) -> tuple[int, bool]:
    """Wait until the command has ended. Its status, and whether the owner had asked it to end."""
    waiting = select.poll()
    waiting.register(OWNER, select.POLLIN)
    waiting.register(signals, select.POLLIN)
    asked = False
    while True:
        ready = [descriptor for descriptor, _ in waiting.poll()]
        if OWNER in ready:  # the owner sends nothing, so this is the end of the stream
            _signal_group(child, signal.SIGKILL)
            waiting.unregister(OWNER)
        if signals in ready:
            numbers = os.read(signals, 100)
            if any(number != signal.SIGCHLD for number in numbers):
                asked = True
                _signal_group(child, signal.SIGTERM)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status, asked


def _end_group(leader: int, grace_s: float) -> None:
    """The command has ended: end what it left in its process group."""
    until_s = time.monotonic() + grace_s
    while time.monotonic() < until_s and _signal_group(leader, 0):
        time.sleep(LOOK_EVERY_S)
    _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: int, number: int) -> bool:
    """Send a signal to a process group. Whether there was a process in it."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _shell_status(status: int) -> int:
    """The status as a shell has it: 128 plus the number of the signal that ended the command."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
