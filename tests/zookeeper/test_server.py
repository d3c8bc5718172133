"""A server on a real ZooKeeper: it serves, loses what it stands on, and starts over by itself."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import urllib3

from examples.flights.ports import free_port
from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.catalog.directory import claim_data_directory
from rmt_pipeline.cli.status import run_status
from rmt_pipeline.exchange.client import PartClient
from rmt_pipeline.exchange.connections import Peer
from rmt_pipeline.exchange.control import reload_tables
from rmt_pipeline.exchange.secret import exchange_secret
from rmt_pipeline.protocol.errors import (
    AddressInUse,
    BadConfiguration,
    ReplicaIsAlreadyActive,
    RmtError,
    Unavailable,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.server.process import StopSwitch, serve_until
from rmt_pipeline.system import RandomIds
from rmt_pipeline.zookeeper.keeper import Create, Delete
from rmt_pipeline.zookeeper.paths import TablePaths
from tests.support.exchange import put, store_at
from tests.support.lasting import lasting
from tests.support.proxy import Proxy
from tests.support.serving import SHORT_S, Served, config_at, create, definition_of, forget
from tests.support.waiting import BUSY, LIMIT_S, until

pytestmark = pytest.mark.zookeeper

PART = PartName("2013", 0, 0, 0)


@pytest.fixture
def keeper(zookeeper_server):
    opened = lasting(zookeeper_server.hosts)
    yield opened
    opened.close()


@pytest.fixture
def root(chroot) -> str:
    return f"{chroot}/server/t"


def secret_of(keeper) -> str:
    return exchange_secret(keeper, RandomIds())


def test_a_table_that_another_process_makes_is_active_at_once(config, keeper, root):
    with Served(config) as server:
        create(config, keeper, definition_of(root))
        server.until(server.is_active)
        paths = TablePaths(root).replica("r1")
        address = ReplicaAddress.decode(keeper.get(paths.host)[0])
        assert f"{address.scheme}://{address.host}:{address.port}" == server.url
        assert keeper.get(paths.is_active)[0].startswith(b"r1 ")
        assert server.table()["queue_size"] == 0
        assert server.health()["status"] == "ok"


def test_reload_returns_when_the_new_table_is_active(config, keeper, root):
    with Served(config) as server:
        peer = Peer("http", "127.0.0.1", config.server("r1").listen_address.port)
        create(config, keeper, definition_of(root))
        assert reload_tables(peer, secret_of(keeper)) == {"default.t": ""}
        with pytest.raises(Unavailable, match="401"):
            reload_tables(peer, "wrong")
        server.stop()
        with pytest.raises(Unavailable, match="cannot be asked"):
            reload_tables(peer, secret_of(keeper))


def test_a_dropped_table_is_let_go_and_may_come_again(config, keeper, root):
    definition, table = definition_of(root), TablePaths(root)
    with Served(config) as server:
        create(config, keeper, definition)
        server.until(server.is_active)
        forget(Catalog(config.server("r1").data))
        drop_replica(keeper, table, "r1")
        create(config, keeper, definition)
        server.until(lambda: keeper.exists(table.replica("r1").is_active))
        server.until(server.is_active)
        forget(Catalog(config.server("r1").data))
        server.until(lambda: server.table() is None)
        assert keeper.exists(table.replica("r1").is_active) is None


def test_an_altered_table_stays_active(config, keeper, root):
    with Served(config) as server:
        create(config, keeper, definition_of(root))
        server.until(server.is_active)
        before = keeper.exists(TablePaths(root).replica("r1").is_active)
        catalog = Catalog(config.server("r1").data)
        catalog.save(replace(definition_of(root), comment="altered"))
        peer = Peer("http", "127.0.0.1", config.server("r1").listen_address.port)
        assert reload_tables(peer, secret_of(keeper)) == {"default.t": ""}
        assert keeper.exists(TablePaths(root).replica("r1").is_active) == before


def test_one_server_may_hold_two_replicas_of_one_path(config, keeper, root):
    with Served(config) as server:
        create(config, keeper, definition_of(root, "a", "t1"))
        create(config, keeper, definition_of(root, "b", "t2"))
        server.until(lambda: server.is_active("t1") and server.is_active("t2"))


def test_a_table_that_cannot_start_says_why_and_keeps_nobody_else(config, keeper, root):
    with Served(config) as server:
        Catalog(config.server("r1").data).add(definition_of(f"{root}-nowhere", name="lost"))
        create(config, keeper, definition_of(root))
        server.until(server.is_active)
        server.until(lambda: server.table("lost")["reason"].count("no nodes at"))
        assert server.health()["status"] == "read-only"


def test_a_definition_that_cannot_be_read_keeps_nobody_else(config, keeper, root):
    data = config.server("r1").data
    Catalog(data)
    (data / "metadata" / "default" / "broken.json").write_text("{")
    with Served(config) as server:
        create(config, keeper, definition_of(root))
        server.until(server.is_active)
        assert server.table("broken") is None


def test_a_removed_is_active_comes_back(config, keeper, root):
    path = TablePaths(root).replica("r1").is_active
    with Served(config) as server:
        create(config, keeper, definition_of(root))
        server.until(server.is_active)
        first = keeper.exists(path)
        keeper.multi([Delete(path)])
        server.until(lambda: keeper.exists(path))
        assert keeper.exists(path).created_zxid > first.created_zxid
        server.until(server.is_active)


def test_after_a_lost_session_it_is_read_only_and_then_starts_over(
    tmp_path, zookeeper_server, keeper, root
):
    path = TablePaths(root).replica("r1").is_active
    with Proxy("127.0.0.1", zookeeper_server.port) as proxy:
        config = config_at(tmp_path, proxy.hosts, session_timeout_s=SHORT_S)
        with Served(config) as server:
            create(config, keeper, definition_of(root))
            server.until(server.is_active)
            first = server.health()["session"]
            proxy.drop_requests()
            server.until(lambda: server.table()["readonly"])
            assert server.health()["session"] == ""
            assert server.health()["status"] == "no session"
            assert "session" in server.table()["reason"]
            server.until(lambda: keeper.exists(path) is None)
            proxy.pass_everything()
            proxy.cut()
            server.until(server.is_active)
            assert server.health()["session"] not in ("", first)
            assert keeper.exists(path) is not None


def test_it_stops_promptly_while_zookeeper_is_away(tmp_path, zookeeper_server, keeper, root):
    with Proxy("127.0.0.1", zookeeper_server.port) as proxy:
        config = config_at(tmp_path, proxy.hosts, session_timeout_s=SHORT_S)
        with Served(config) as server:
            create(config, keeper, definition_of(root))
            server.until(server.is_active)
            proxy.drop_requests()
            server.until(lambda: server.table()["readonly"])
            assert server.stop() < 5 * BUSY


def test_parts_are_served_even_without_a_session(tmp_path, zookeeper_server, keeper, root):
    with Proxy("127.0.0.1", zookeeper_server.port) as proxy:
        config = config_at(tmp_path, proxy.hosts, session_timeout_s=SHORT_S)
        definition = definition_of(root)
        with Served(config) as server:
            create(config, keeper, definition)
            server.until(server.is_active)
            directory = Catalog(config.server("r1").data).table_directory(definition)
            put(store_at(directory), PART, {"data-00000.parquet": b"rows"})
            proxy.drop_requests()
            server.until(lambda: server.table()["readonly"])
            client = PartClient(secret_of(keeper))
            endpoint = TablePaths(root).replica("r1").root
            address = ReplicaAddress.decode(keeper.get(f"{endpoint}/host")[0])
            client.fetch(address, endpoint, PART, store_at(tmp_path / "target"))
            client.connections.close()


def test_a_part_found_broken_is_queued_for_a_fetch(config, keeper, root, tmp_path):
    paths = TablePaths(root).replica("r1")
    definition = definition_of(root)
    with Served(config) as server:
        create(config, keeper, definition)
        server.until(server.is_active)
        store = store_at(Catalog(config.server("r1").data).table_directory(definition))
        put(store, PART, {"data-00000.parquet": b"rows"})
        keeper.multi([Create(paths.part(PART))])
        Path(store.files(PART)[0]).write_bytes(b"rowz")
        client = PartClient(secret_of(keeper))
        address = ReplicaAddress.decode(keeper.get(paths.host)[0])
        with pytest.raises(Unavailable, match="broken"):
            client.fetch(address, paths.root, PART, store_at(tmp_path / "target"))
        client.connections.close()
        server.until(lambda: keeper.exists(paths.part(PART)) is None)
        (node,) = keeper.children(paths.queue)
        assert str(PART).encode() in keeper.get(paths.queue_entry(node))[0]

        def metrics_of() -> str:
            return urllib.request.urlopen(f"{server.url}/metrics").read().decode()

        broken = 'rmt_parts_broken_total{database="default",replica="r1",table="t"} 1.0'
        server.until(lambda: broken in metrics_of())
        metrics = metrics_of()
        assert "rmt_sends_refused_total 1.0" in metrics
        assert 'rmt_readonly{database="default",replica="r1",table="t"} 0.0' in metrics
        assert 'rmt_parts_given_up{database="default",replica="r1",table="t"} 1.0' in metrics
        assert server.health()["status"] == "broken parts"
        assert server.table()["broken"] == [str(PART)]


def test_the_same_server_does_not_run_twice(config):
    twin = StopSwitch()
    twin.ask()  # should it start after all, it ends at once
    with Served(config), pytest.raises(ReplicaIsAlreadyActive, match="r1 runs already"):
        serve_until(twin, config, "r1")


def test_a_copy_of_a_server_does_not_take_its_place(
    config, tmp_path, keeper, root, zookeeper_server
):
    path = TablePaths(root).replica("r1").is_active
    with Served(config) as server:
        create(config, keeper, definition_of(root))
        server.until(server.is_active)
        shutil.copytree(tmp_path / "r1", tmp_path / "copied" / "r1")
        copied = config_at(
            tmp_path / "copied", zookeeper_server.hosts, session_timeout_s=SHORT_S
        )
        before, problem = keeper.exists(path), None
        while problem is None:
            problem = gives_up(Served(copied))
        assert isinstance(problem, ReplicaIsAlreadyActive)
        assert "r1 " in str(problem)
        assert keeper.exists(path) == before
        assert server.is_active()


def gives_up(copy: Served) -> RmtError | None:
    """Why it does in its first session; None if a busy machine has ended that: later it waits."""

    def session() -> str:
        return str((copy.health() or {}).get("session", ""))

    with copy:
        until(lambda: session() or not copy.is_running)
        first = session()
        until(lambda: not copy.is_running or session() not in ("", first))
    return copy.ended()


def test_a_port_in_use_is_named_with_its_key(config):
    port = config.server("r1").listen_address.port
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(AddressInUse, match=rf"port {port} .*\[servers\.r1\] listen"),
    ):
        serve_until(StopSwitch(), config, "r1")


def test_the_directory_of_another_server_is_refused(config, tmp_path, zookeeper_server):
    with Served(config):
        pass
    other = config_at(tmp_path, zookeeper_server.hosts, data={"r2": "r1"})
    with pytest.raises(BadConfiguration, match="data directory of server 'r1', not of 'r2'"):
        Served(other, "r2").__enter__()


def test_it_gives_up_when_it_is_told_how_long_to_wait_for_zookeeper(tmp_path):
    hosts = f"127.0.0.1:{free_port()}"
    config = config_at(tmp_path, hosts)
    with pytest.raises(ZooKeeperUnreachable, match=rf"no session in .*{hosts}.*rmt zookeeper"):
        serve_until(StopSwitch(), config, "r1", connect_timeout_s=0.5)


def test_a_first_start_without_zookeeper_goes_on_trying_and_says_so(
    tmp_path, zookeeper_server, capsys
):
    """Nothing is on the disk yet, and nobody knows the secret: looking is all that one may do."""
    with Proxy("127.0.0.1", zookeeper_server.port) as proxy:
        proxy.drop_requests()
        config = config_at(tmp_path, proxy.hosts, connect_timeout_s=2)
        with Served(config) as server:
            server.until(lambda: server.health()["waiting"])
            [reason] = server.health()["waiting"]
            assert server.health()["status"] == "no session"
            assert f"goes on trying: no ZooKeeper answered at {proxy.hosts}" in reason
            assert ready(server) == (503, f"{reason}\n")
            assert run_status(config, "r1") == 1
            assert reason in capsys.readouterr().out
            proxy.pass_everything()
            server.until(lambda: server.health()["status"] == "ok")
            assert ready(server) == (200, "ready\n")
        with Served(config) as server:
            server.until(lambda: server.health()["status"] == "ok")


@pytest.mark.parametrize("work", [False, True])
def test_a_start_without_zookeeper_serves_what_is_on_the_disk_until_it_comes(
    tmp_path, zookeeper_server, keeper, root, work
):
    with Proxy("127.0.0.1", zookeeper_server.port) as proxy:
        config = config_at(tmp_path, proxy.hosts, connect_timeout_s=2)
        with Served(config) as server:
            create(config, keeper, definition_of(f"{root}/t"))
            create(config, keeper, definition_of(f"{root}/u", name="u"))
            server.until(lambda: server.is_active("t") and server.is_active("u"))
        proxy.drop_requests()
        with Served(config, work=work) as server:
            server.until(lambda: server.health()["waiting"])
            tables = server.health()["tables"]
            assert [table["table"] for table in tables] == ["t", "u"]
            for table in tables:
                assert table["readonly"]
                assert "goes on trying: no ZooKeeper answered" in table["reason"]
            forget(Catalog(config.server("r1").data), name="u")
            server.until(lambda: server.table("u") is None)
            proxy.pass_everything()
            server.until(server.is_active)
            assert ready(server) == (200, "ready\n")


def test_a_directory_of_another_zookeeper_is_refused_when_that_comes(
    tmp_path, zookeeper_server, keeper
):
    with Proxy("127.0.0.1", zookeeper_server.port) as proxy:
        config = config_at(tmp_path, proxy.hosts, connect_timeout_s=2)
        claim_data_directory(config.server("r1").data, "r1", "another")
        proxy.drop_requests()
        server = Served(config)
        with server:
            server.until(lambda: server.health()["waiting"])
            proxy.pass_everything()
            error = server.ended()
        assert isinstance(error, BadConfiguration)
        assert "belongs to the ZooKeeper cluster another" in str(error)


def test_ctrl_c_ends_a_server_that_waits_for_zookeeper(tmp_path):
    config = config_at(tmp_path, f"127.0.0.1:{free_port()}", connect_timeout_s=2)
    with rmt(config, "serve", "--server", "r1") as process:
        served = Served(config)
        served.until(lambda: (served.health() or {}).get("waiting"))
        process.send_signal(signal.SIGINT)
        _, lines = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert lines.count("no ZooKeeper session; trying again") == 1


def ready(server: Served) -> tuple[int, str]:
    """What `/ready` answers."""
    answer = urllib3.request("GET", f"{server.url}/ready", timeout=LIMIT_S, retries=False)
    return answer.status, answer.data.decode()


def rmt(config, *arguments: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "rmt_pipeline.cli",
        "--config",
        str(config.path),
        *arguments,
    ]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_within_five_seconds(config, keeper, root, number):
    path = TablePaths(root).replica("r1").is_active
    create(config, keeper, definition_of(root))
    # As a shell script starts a program in the background: with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = rmt(config, "serve", "--server", "r1")
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        served = Served(config)
        served.until(served.is_active)
        rss_mb = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096 >> 20
        began_s = time.monotonic()
        os.kill(process.pid, number)
        _, lines = process.communicate(timeout=LIMIT_S)
        assert time.monotonic() - began_s < 5 * BUSY
    assert process.returncode == 0
    assert keeper.exists(path) is None
    assert rss_mb < 200, "idle"
    assert "table active" in lines
    assert f"ending signal={number.name}" in lines


def test_an_error_at_the_start_is_one_line_and_status_1(config):
    port = config.server("r1").listen_address.port
    with (
        socket.create_server(("127.0.0.1", port)),
        rmt(config, "serve", "--server", "r1") as process,
    ):
        _, lines = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    (line,) = lines.splitlines()
    assert line.startswith(f"Code: ADDRESS_IN_USE. port {port} ")
