"""`rmt spark`: the server process."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.processes.spark import NICENESS, ConnectServer, import_path
from rmt_pipeline.protocol.errors import AddressInUse, Unavailable
from tests.support.waiting import BUSY, LIMIT_S

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pathlib import Path
from rmt_pipeline.processes.spark import ConnectServer
server = ConnectServer(Path(sys.argv[2]), port=int(sys.argv[1]), master="local[1]")
server.run_foreground(lambda text: print(text, flush=True))
"""


def test_it_ends_within_five_seconds_of_a_signal_and_leaves_nobody(tmp_path) -> None:
    port, temporary = free_port(), tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(port), str(tmp_path / "connect.log")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": import_path(), "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    with process.stdout:
        announced = process.stdout.readline().decode()
        made = {path.name.partition("-")[0] for path in temporary.glob("*/*")}
        assert made >= {"blockmgr", "spark"}
        assert f"sc://127.0.0.1:{port}" in announced
        assert str(tmp_path / "connect.log") in announced
        started_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
    assert time.monotonic() - started_s < 5 * BUSY
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only there all of 127/8 is the loopback")
def test_it_listens_on_one_address_only(connect_server) -> None:
    socket.create_connection(("127.0.0.1", connect_server.port), 1).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", connect_server.port), 1)


def test_it_yields_to_who_inserts_and_fetches(connect_server) -> None:
    assert os.getpriority(os.PRIO_PROCESS, connect_server.pid) >= min(
        19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
    )


def test_a_port_in_use_is_named_before_anything_starts(tmp_path, connect_server) -> None:
    second = ConnectServer(tmp_path / "second.log", port=connect_server.port)
    with pytest.raises(AddressInUse, match=rf"{connect_server.port}.*remote"):
        second.start()
    assert not (tmp_path / "second.log").exists()


def test_a_server_that_cannot_start_tells_the_end_of_its_log(tmp_path) -> None:
    wrong = ConnectServer(
        tmp_path / "wrong.log", port=free_port(), options={"spark.driver.memory": "nonsense"}
    )
    with pytest.raises(Unavailable, match=r"(?s)wrong\.log.*nonsense"):
        wrong.start()
    assert wrong.pid is None
