"""`rmt check`, and what `rmt status` tells of a table beside its queue."""

import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.cli import parts as check
from rmt_pipeline.cli.status import _table_lines
from rmt_pipeline.protocol.errors import Unavailable, UnknownTable, UserError
from rmt_pipeline.zookeeper.four_letters import ServerLoad, server_load
from tests.support.local_replicas import Replicas, by_tens
from tests.support.local_session import commands_use, session_with_numbers

SRVR = """Zookeeper version: 3.9.2
Latency min/avg/max: 0/0.5/12
Received: {}
Sent: 120
Connections: 3
Outstanding: 2
Zxid: 0x1f
Mode: standalone
Node count: 77
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    with session_with_numbers(tmp_path) as session:
        for number in range(3):
            session.execute(f"INSERT INTO t VALUES ({number})")
        opened = session.context.server
        commands_use(monkeypatch, opened)
        yield opened


def run(server, table=None, partition="", part="") -> int:
    return check.run_check(server.config, "r1", table, partition, part)


def test_what_is_whole_is_status_0(server, capsys):
    assert run(server) == 0
    assert capsys.readouterr().out.startswith("default.t: 3 parts, ")


def test_what_is_broken_is_named_and_is_status_1(server, capsys):
    store = server.table("t").store
    [file] = [path for path in store.files(store.parts()[1]) if path.endswith(".parquet")]
    data = bytearray(Path(file).read_bytes())
    data[len(data) // 2] ^= 1
    Path(file).write_bytes(bytes(data))
    assert run(server, "t", part="all_0_0_0") == 0
    assert run(server, "default.t") == 1
    out = capsys.readouterr().out
    assert "default.t: all_1_1_0 is broken: " in out
    assert "1 broken" in out


def test_what_is_not_there_is_no_success(server):
    with pytest.raises(UserError, match="no active part all_7_7_0"):
        run(server, "t", part="all_7_7_0")
    with pytest.raises(UserError, match="in a partition 2019"):
        run(server, "t", partition="2019")
    with pytest.raises(UnknownTable):
        run(server, "nowhere")


def test_progress_is_for_a_terminal(server, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert run(server, "t", partition="all") == 0
    assert "default.t: 2 of 3 parts" in capsys.readouterr().err


def test_status_tells_lag_in_seconds_znodes_and_differences(tmp_path):
    with Replicas(tmp_path) as two:
        two.insert("r1", 1)
        two.clock.passed_s += 30
        lines = "\n".join(_table_lines(two.table("r2"), Unavailable("down")))
        assert "log: 1 entry behind; the oldest part that it lacks is 30 s old" in lines
        assert "1 partition: all; r1, r2 have entries left" in lines
        assert "znodes: log 1, blocks 1," in lines
        assert "r2/parts 0" in lines
        two.work_off()
        lines = "\n".join(_table_lines(two.table("r2"), Unavailable("down")))
        assert "log: up to date\n" in lines
        assert "differences: none" in lines
        assert "r2/parts 1" in lines


def test_status_names_the_partition_with_most_parts(tmp_path):
    with Replicas(tmp_path, ["r1"], define=by_tens) as one:

        def told() -> str:
            lines = _table_lines(one.table("r1"), Unavailable("down"))
            return next(line for line in lines if "parts:" in line and "active" in line)

        one.insert("r1", 1)
        assert told() == "  parts: 1 active, 1 in all"
        for value in (11, 12, 21):
            one.insert("r1", value)
        assert told() == "  parts: 4 active, 4 in all; in 3 partitions, most in 1: 2"


def test_requests_per_second_are_those_since_it_was_asked_before():
    first, second = (
        ServerLoad.parsed(SRVR.format(n), at) for n, at in ((100, 5.0), (160, 7.0))
    )
    assert first is not None
    assert second is not None
    assert second.requests_per_s(first) == 30
    assert second.requests_per_s(replace(second, asked_s=5.0)) == 0, "nobody asked for anything"
    assert first.requests_per_s(replace(second, asked_s=1.0)) == 25, "it was started again"
    assert (first.mode, first.outstanding, first.nodes) == ("standalone", 2, 77)
    whole = SRVR.format(1).splitlines(keepends=True)
    for told in ("Mode:", "Received:", "Outstanding:", "Node count:"):
        rest = "".join(line for line in whole if not line.startswith(told))
        assert len(rest) < len(SRVR.format(1))
        assert ServerLoad.parsed(rest, 1) is None, f"it does not say {told}"
    assert (
        ServerLoad.parsed("srvr is not executed because it is not in the whitelist.", 1) is None
    )


def test_who_never_stops_talking_is_no_server_of_ours():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refused = []

        def babble() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    for _ in range(100_000):
                        connection.sendall(b"x" * 4096)
                except OSError:
                    refused.append(True)

        thread = threading.Thread(target=babble)
        thread.start()
        assert server_load("127.0.0.1", listener.getsockname()[1], 5.0) is None
        thread.join()
    assert refused == [True]


def test_a_server_is_asked_without_a_session():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(4) == b"srvr"
                connection.sendall(SRVR.format(100).encode())

        thread = threading.Thread(target=serve)
        thread.start()
        load = server_load("127.0.0.1", listener.getsockname()[1], 5.0)
        thread.join()
    assert load is not None
    assert load.received == 100
    with pytest.raises(OSError, match="refused"):
        server_load("127.0.0.1", 1, 0.5)
