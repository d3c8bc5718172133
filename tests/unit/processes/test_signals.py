"""A SIGTERM or Ctrl-C at the worst moment: while the main thread has just begun to wait, and holds
the lock of what it waits for.
"""

import subprocess
import sys

import pytest

STRUCK = """
import os, signal, sys, threading

wait, struck = threading.Condition.wait, []


def wait_and_be_struck(condition, timeout=None):
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and not struck and callable(signal.getsignal(signal.SIGTERM)):
        struck.append(True)
        os.kill(os.getpid(), signal.SIGTERM)
    return wait(condition, timeout)


threading.Condition.wait = wait_and_be_struck
"""
SWITCH = """
from rmt_pipeline.server.process import StopSwitch, stopped_by_signals

switch = StopSwitch()
with stopped_by_signals(switch):
    assert switch.wait_s(1000)
"""
GROUP = """
from rmt_pipeline.processes.group import Group

group = Group(["one"], sys.stderr)
group.run()
assert group.asked_to_end
"""
SERVER = """
from rmt_pipeline.processes.server import ChildServer


class Child:
    pid = 0

    def status(self):
        return None

    def stop(self, within_s):
        pass


class Server(ChildServer):
    start_timeout_s = stop_timeout_s = 1.0

    def _launch(self):
        return Child()

    def _answers(self):
        return True

    def _announcement(self):
        return "here"

    def _late(self): ...

    def _ended(self, status): ...


Server().run_foreground(print)
"""
TIMEOUT_S = 60.0  # for a process that would never end


@pytest.mark.parametrize("waits", [SWITCH, GROUP, SERVER])
def test_who_has_just_begun_to_wait_ends(waits: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"{STRUCK}\n{waits}\nassert struck\nprint('ended')"],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.stdout.endswith(b"ended\n"), ended.stderr
