import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.processes.java import JavaCommand
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper, answers
from rmt_pipeline.protocol.errors import AddressInUse, BadConfiguration, ZooKeeperUnreachable
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.lasting import lasting
from tests.support.waiting import BUSY, until

pytestmark = pytest.mark.zookeeper

KEPT = 3
"""Snapshots, `autopurge.snapRetainCount`; each with the log that follows it."""
FOREGROUND = """
import sys
from pathlib import Path
from tests.support.lasting import lasting
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
server = EmbeddedZooKeeper(Path(sys.argv[1]), int(sys.argv[2]))
server.run_foreground(lambda text: print(text, flush=True))
print("ended in order", flush=True)
"""


def test_data_outlive_the_server(tmp_path: Path) -> None:
    for number in range(2):
        with EmbeddedZooKeeper(tmp_path, free_port()) as server:
            keeper = lasting(server.hosts)
            if number == 0:
                keeper.multi([Create("/kept", b"1")])
            assert keeper.get("/kept")[0] == b"1"
            keeper.close()


def test_what_the_newest_snapshots_have_is_not_kept_in_older_files(tmp_path: Path) -> None:
    """Else the disk of who inserts for a year is full."""
    server = EmbeddedZooKeeper(
        tmp_path, free_port(), force_sync=False, settings="snapCount=50\n"
    )
    with server:
        keeper = lasting(server.hosts)
        for number in range(1000):
            keeper.multi([Create(f"/{number}", b"")])
        keeper.close()
    files = tmp_path / "data" / "version-2"
    before = len(list(files.iterdir()))
    assert before > 4 * KEPT, "otherwise nothing is to go"
    with server:  # purges at its start, and every hour from then on; and then makes one more
        until(lambda: len(list(files.iterdir())) <= 2 * KEPT + 4)
        keeper = lasting(server.hosts)
        assert len(keeper.children("/")) > 1000, "all, and /zookeeper"
        keeper.close()


def test_a_port_in_use_is_named_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = EmbeddedZooKeeper(tmp_path, port)
        with pytest.raises(AddressInUse, match=rf"127\.0\.0\.1:{port} .*rmt\.toml"):
            server.start()


def test_a_zookeeper_that_is_already_there_is_recognised(
    zookeeper_server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    server = EmbeddedZooKeeper(tmp_path, zookeeper_server.port)
    with pytest.raises(AddressInUse, match="a ZooKeeper already answers"):
        server.start()


def test_two_servers_never_share_a_data_directory(zookeeper_server: EmbeddedZooKeeper) -> None:
    server = EmbeddedZooKeeper(zookeeper_server.data_dir, free_port())
    with pytest.raises(BadConfiguration, match="another ZooKeeper uses"):
        server.start()


def test_a_server_that_does_not_start_says_why_and_where_to_read_more(tmp_path: Path) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\necho 'Error: no heap today' >&2\nexit 3\n")
    broken.chmod(0o755)
    server = EmbeddedZooKeeper(tmp_path, free_port(), java=JavaCommand(broken, {}, 17))
    with pytest.raises(
        ZooKeeperUnreachable, match=r"status 3: Error: no heap today; see .*zookeeper\.log"
    ):
        server.start()
    assert server.pid is None


def test_a_server_killed_from_outside_can_be_started_again(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path, free_port())
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    server.start()
    assert answers("127.0.0.1", server.port)
    server.stop()
    server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_foreground_it_ends_within_5_s_of_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    port = free_port()
    command = [sys.executable, "-c", FOREGROUND, str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert f"127.0.0.1:{port}" in process.stdout.readline()
        start = time.monotonic()
        process.send_signal(number)
        assert process.stdout.read() == "ended in order\n"
        assert process.wait() == 0
        assert time.monotonic() - start < 5 * BUSY
    assert not answers("127.0.0.1", port)


def test_a_signal_during_the_start_is_heard(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FOREGROUND, str(tmp_path), str(free_port())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "zookeeper.out").exists():
            time.sleep(0.01)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert time.monotonic() - start < 5 * BUSY


@pytest.mark.parametrize("stage", ["starting", "answering"])
def test_a_killed_owner_leaves_no_java_and_no_lock(tmp_path: Path, stage: str) -> None:
    port = free_port()
    command = [sys.executable, "-c", FOREGROUND, str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if stage == "starting":
            until((tmp_path / "zookeeper.out").exists)
        else:
            assert process.stdout is not None
            assert f"127.0.0.1:{port}" in process.stdout.readline()
        process.kill()

    def is_left() -> list[str]:
        return [one.decode() for one in command_lines() if str(tmp_path).encode() in one]

    until(lambda: is_left() == [], lambda: f"these are left: {is_left()}")

    def starts() -> bool:
        """Neither the port nor the directory is held: who ends lets them go a moment after he has
        no command line any more.
        """
        with suppress(BadConfiguration), EmbeddedZooKeeper(tmp_path, port):
            return answers("127.0.0.1", port)
        return False

    until(starts)


def command_lines() -> Iterator[bytes]:
    """Of all processes; one that ends meanwhile has none."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield file.read_bytes()
