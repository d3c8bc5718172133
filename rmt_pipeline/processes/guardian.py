"""Runs one command for a process that may die at any moment, and then ends that command.

`child` does not import but run this file, `python -I -S guardian.py COMMAND…`, with one end of a
socket as its standard input. The other end is held by the owner alone.

    owner ── socket ── guardian ── pipe (standard input) ── command, leader of its process group

1. The owner ends, however it does: the kernel closes its end, we read the end of the stream, and
   kill the command's whole group. No clock and no cooperation is needed: not the owner's, and not
   that of a command that hangs.
2. The owner died before we were there: the stream has ended already, and we do the same.
3. The owner asks for an orderly end (SIGTERM to us): the group gets the signal, and we wait.
4. The command ends by itself: what it left in its group is killed, and we end as it did.
5. We are killed: on Linux the kernel kills the command (it asked for that before it began). Where
   that does not exist, a command that reads its standard input sees it end.

One thread and no library beyond the standard one's basis: it is there in 15 ms, and the signal of
a parent's death, which Linux ties to the parent's *thread*, is tied to the whole of us.
"""

import contextlib
import os
import select
import signal
import sys
import time

OWNER = 0
GRACE_S = 1.0  # for what the command leaves in its group when it was asked to end
LOOK_EVERY_S = 0.02
COMMAND_NOT_FOUND = 127
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_PR_SET_PDEATHSIG = 1  # Linux, <sys/prctl.h>


def main(command: list[str]) -> None:
    """Never returns."""
    signals = _signals_to_read()
    child = _start(command)
    with contextlib.suppress(OSError):  # the owner has ended: `_watch` sees it at once
        os.write(OWNER, b"%d\n" % child)
    status, asked = _watch(child, signals)
    _end_group(child, GRACE_S if asked else 0.0)
    os._exit(_shell_status(status))


def _signals_to_read() -> int:
    """A descriptor where each signal shows as a byte: nothing happens inside a handler."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in _HANDLED:
        signal.signal(number, lambda *_: None)
    return readable


def _start(command: list[str]) -> int:
    """The command's process: leader of its own group; its input ends when we do."""
    readable, _kept_open = os.pipe()
    guardian = os.getpid()
    child = os.fork()
    if child:
        os.close(readable)
        with contextlib.suppress(OSError):  # it has begun already, and did it itself
            os.setpgid(child, child)
        return child
    try:
        os.setpgid(0, 0)
        os.dup2(readable, 0)
        for number in (
            *_HANDLED,
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores the last two
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(
            signal.SIG_SETMASK, ()
        )  # a library of the owner's may block some
        die_with(guardian)
        os.execvp(command[0], command)  # noqa: S606  the command is the owner's
    except OSError as problem:
        os.write(2, f"{command[0]} does not run: {problem.strerror}\n".encode())
    finally:
        os._exit(COMMAND_NOT_FOUND)


def die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL when this parent ends. Elsewhere than on Linux: nothing."""
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415  start-up: it takes longer than all the rest here

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(COMMAND_NOT_FOUND)


def _watch(child: int, signals: int) -> tuple[int, bool]:
    """Until the command has ended: its status, and whether it was asked to."""
    waiting = select.poll()
    waiting.register(OWNER, select.POLLIN)
    waiting.register(signals, select.POLLIN)
    asked = False
    while True:
        ready = [descriptor for descriptor, _ in waiting.poll()]
        if OWNER in ready:  # it sends nothing, so this is the end of the stream
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
    """The command is gone; whoever it left behind goes too."""
    until_s = time.monotonic() + grace_s
    while time.monotonic() < until_s and _signal_group(leader, 0):
        time.sleep(LOOK_EVERY_S)
    _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: int, number: int) -> bool:
    """Whether there was anybody to get it."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _shell_status(status: int) -> int:
    """What a shell would say: 128 and the number of the signal that ended the command."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.WEXITSTATUS(status)


if __name__ == "__main__":
    main(sys.argv[1:])
