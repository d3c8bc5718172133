"""`rmt status` and `rmt reload` say in words how tables are doing."""

import io
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.cli import status
from rmt_pipeline.cli.status import run_reload, run_status
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import Unavailable, UserError
from tests.support.serving import Served, create, definition_of, insert
from tests.support.waiting import LIMIT_S, until

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def root(chroot) -> str:
    return f"{chroot}/status/t"


@pytest.fixture
def context(config, root):
    """r1, with its table; the table's other replica is on r2."""
    with ServerContext.open(config, "r1") as context:
        for name in ("r1", "r2"):
            create(config, context.keeper(), definition_of(root, name), name)
        yield context


def test_it_tells_what_runs_what_waits_and_who_is_behind(config, context, root, capsys):
    with Served(config) as server:
        server.until(server.is_active)
        insert(context.table("t"), b"one", b"two")
        assert run_status(config, None) == 1, "r2 is not running"
    out = capsys.readouterr().out
    one, two = out.split("server r2: ")
    assert f"server r1: running at {config.server('r1').listen}\n  default.t: active\n" in one
    assert f"replica r1 of {root}" in one
    assert "replicas: 1 of 2 active; not active: r2" in one
    assert "log: 2 entries behind" in one, "its own inserts, which nobody pulled"
    assert "queue: empty" in one
    assert "parts: 2 active, 2 in all" in one
    assert two.startswith("not running: nothing answers at ")
    assert "Connection refused); start it with `rmt serve --server r2`" in two
    assert "default.t: not served: it takes no writes" in two
    assert "log: 2 entries behind" in two
    here = config.server("r1").listen
    assert (
        f"\nwho may ask:\n  r1: {here} (http) answers this host alone: parts and control" in two
    )
    assert "Dagster's UI, if it runs: 127.0.0.1:3000 answers this host alone" in two


def test_a_server_that_is_frozen_is_not_said_to_be_stopped(config, context, capsys):
    address = config.server("r2").listen_address
    with socket.create_server((address.host, address.port)):  # which the kernel answers for
        assert run_status(config, "r2") == 1
    out = capsys.readouterr().out
    assert out.startswith(f"server r2: does not answer at {address}: it is frozen, or has more")
    assert "default.t: not served: it takes no writes" in out


def test_a_server_that_takes_us_for_a_stranger_is_not_said_to_be_stopped(
    config, context, capsys
):
    with Served(replace(config, monitoring=replace(config.monitoring, token=("other",)))):
        assert run_status(
            replace(config, exchange=replace(config.exchange, secret=("x",))), "r1"
        )
    out = capsys.readouterr().out
    assert "server r1: something answers at " in out
    assert "401: it does not accept our secret" in out
    assert "not running" not in out


def test_of_several_zookeepers_one_that_is_frozen_is_not_waited_for(config, context, capsys):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        frozen = f"127.0.0.1:{silent.getsockname()[1]}"
        hosts = f"{frozen},{config.zookeeper_hosts}"
        several = replace(config, zookeeper=replace(config.zookeeper, hosts=hosts))
        assert run_status(several, "r1") == 1, "r1 is not running"
        with silent.accept()[0] as connection:
            assert connection.recv(4) == b"srvr"
        with pytest.raises(BlockingIOError):
            silent.accept()
    out = capsys.readouterr().out
    assert "replicas: 0 of 2 active" in out
    assert f"ZooKeeper at {frozen}: does not answer: it is frozen, or has more to do" in out
    assert f"ZooKeeper at {config.zookeeper_hosts.partition('/')[0]}: standalone, " in out


def test_what_is_known_is_told_while_others_are_waited_for(config, context, monkeypatch):
    told = io.StringIO()

    def how_it_is(_config, server):
        if server.name == "r2":
            until(lambda: "server r1: something answers at" in told.getvalue(), told.getvalue)
        return Unavailable("nobody")

    monkeypatch.setattr(status.control, "how_it_is", how_it_is)
    monkeypatch.setattr(sys, "stdout", told)
    assert run_status(config, None) == 1


def test_it_tells_why_a_table_is_read_only(config, root, capsys):
    Catalog(config.server("r1").data).add(definition_of(root))
    with Served(config) as server:
        server.until(lambda: "no nodes" in (server.table() or {"reason": ""})["reason"])
        assert run_status(config, "r1") == 1
        assert run_reload(config, "r1") == 1
    out = capsys.readouterr().out
    assert "default.t: read-only: " in out
    assert "has no nodes at" in out
    assert "(the server looks again in " in out
    assert f"{root}/replicas/r1 is gone from ZooKeeper" in out
    assert "refused" not in out
    assert "r2" not in out


def test_all_well_is_status_0(config, context, capsys):
    with Served(config) as server:
        server.until(server.is_active)
        assert run_status(config, "r1") == 0
        assert run_reload(config, "r1") == 0
    assert capsys.readouterr().out.endswith("default.t: active\n")


def test_a_detached_table_is_told_from_one_that_nobody_serves(config, context, capsys):
    with Served(config) as first, Served(config, "r2") as second:
        for server in (first, second):
            server.until(server.is_active)
        context.detach_table("default", "t")
        first.until(lambda: first.table() is None)
        first.until(lambda: context.keeper().exists(f"{root_of(second)}/replicas/r1/detached"))
        assert run_status(config, None) == 0
    one, two = capsys.readouterr().out.split("server r2: ")
    assert "default.t: detached: ATTACH TABLE takes it up again\n  " in one
    assert "replicas: 1 of 2 active; not active: r1 (detached)" in two
    with Served(config) as first:  # its next start takes it up again
        first.until(first.is_active)
        assert context.keeper().exists(f"{root_of(first)}/replicas/r1/detached") is None


def root_of(server: Served) -> str:
    table = server.table()
    assert table is not None
    return str(table["zookeeper_path"])


def test_reload_of_a_server_that_does_not_run_says_so(config, context):
    with pytest.raises(Unavailable, match="cannot be asked"):
        run_reload(config, "r1")
    with pytest.raises(UserError, match="no server 'r9'"):
        run_status(config, "r9")


def test_the_command_prints_to_standard_output(config, context):
    command = [sys.executable, "-m", "rmt_pipeline.cli", "--config", str(config.path), "status"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("server r1: not running")
