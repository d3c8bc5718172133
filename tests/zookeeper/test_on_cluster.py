"""ON CLUSTER, and a Replicated database, over three real servers, one of which is killed while it
carries statements out.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.config import Config, load_config
from rmt_pipeline.processes.zookeeper import EmbeddedZooKeeper
from rmt_pipeline.sql.run.on_cluster import StillDue
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.zookeeper.keeper import Refused
from tests.support.serving import SHORT_S
from tests.support.waiting import LASTING_S, until
from tests.zookeeper.test_sql_session import ask

pytestmark = pytest.mark.zookeeper

SHARDS = (("r1", "r2"), ("r3",))


@pytest.fixture
def config(zookeeper_server: EmbeddedZooKeeper, tmp_path: Path, chroot: str) -> Config:
    lines = ["[zookeeper]", f'hosts = "{zookeeper_server.hosts}"']
    lines += [f"session_timeout_s = {LASTING_S}", f"connect_timeout_s = {LASTING_S}"]
    for number, shard in enumerate(SHARDS, 1):
        for name in shard:
            lines += [
                f"[servers.{name}]",
                f"data = '{name}'",
                f"listen = '127.0.0.1:{free_port()}'",
                f"macros = {{shard = '{number}', replica = '{name}', cluster = 'c'}}",
            ]
    lines += ["[clusters.c]", f"shards = {[list(shard) for shard in SHARDS]}"]
    lines += ["[distributed_ddl]", f"path = '{chroot}/task_queue/ddl'"]
    file = tmp_path / "rmt.toml"
    file.write_text("\n".join(lines))
    return load_config(file)


MORTAL = "r2"
"""Who is killed, and whose sessions are over soon after that."""


@contextmanager
def serving(config: Config, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """`rmt serve`, killed at the end."""
    assert config.path is not None
    file = config.path
    if name == MORTAL:
        text = file.read_text()
        file = file.with_name("mortal.toml")
        file.write_text(
            text.replace(f"session_timeout_s = {LASTING_S}", f"session_timeout_s = {SHORT_S}")
        )
    command = [sys.executable, "-m", "rmt_pipeline.cli", "--config", str(file)]
    log = (config.server(name).data.parent / f"{name}.log").open("ab")
    process = subprocess.Popen([*command, "serve", "--server", name, "--work"], stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def running(session: Session) -> int:
    return int(ask(session, "SELECT sum(is_active) FROM system.clusters")[0])


def test_a_statement_reaches_every_server_and_one_that_is_killed_goes_on(
    config: Config, chroot: str
):
    root = f"{chroot}/tables/{{shard}}"
    with ExitStack() as opened:
        processes = {
            name: opened.enter_context(serving(config, name)) for name in ("r1", "r2", "r3")
        }
        session = opened.enter_context(Session.open(config, "r1"))
        until(lambda: running(session) == 3)
        answer = ask(
            session,
            f"CREATE TABLE t ON CLUSTER '{{cluster}}' (n UInt64) "
            f"ENGINE = ReplicatedMergeTree('{root}/t', '{{replica}}') ORDER BY n",
        )
        assert sorted(line.split()[2] for line in answer) == ["0", "0", "0"]
        session.execute("INSERT INTO t SELECT number FROM numbers(10)")
        ask(session, "ALTER TABLE t ON CLUSTER c ADD COLUMN s String DEFAULT 'x'")
        assert ask(session, "SELECT count(), any(s) FROM t") == ["10\tx"]

        session.execute("SET distributed_ddl_task_timeout = 0")
        for number in range(12):
            create = f"CREATE TABLE u{number} ON CLUSTER c (n UInt64) "
            create += (
                f"ENGINE = ReplicatedMergeTree('{root}/u{number}', '{{replica}}') ORDER BY n"
            )
            session.execute(create)
            if number % 3 == 0:
                session.execute(f"DROP TABLE u{number} ON CLUSTER c SYNC")
        session.execute("TRUNCATE TABLE t ON CLUSTER c")
        queue = "SELECT countIf(status = 'Finished') FROM system.distributed_ddl_queue"
        port = config.server("r2").listen_address.port
        until(lambda: int(ask(session, f"{queue} WHERE port = {port}")[0]) >= 5)
        os.kill(processes[MORTAL].pid, signal.SIGKILL)
        processes[MORTAL].wait()

        until(lambda: running(session) == 2)
        session.execute("SET distributed_ddl_task_timeout = 1")
        with pytest.raises(StillDue, match="its server does not run: start it with rmt serve"):
            session.execute("CREATE DATABASE d ON CLUSTER c")

        opened.enter_context(serving(config, "r2"))
        until(lambda: int(ask(session, queue)[0]) == 20 * 3)
        bad = "SELECT port, query, exception_text FROM system.distributed_ddl_queue"
        assert ask(session, f"{bad} WHERE exception_code != 0") == []
        wanted = sorted(["t", *(f"u{n}" for n in range(12) if n % 3)])
        for name in ("r1", "r2", "r3"):
            with Session.open(config, name) as there:
                assert ask(there, "SHOW TABLES") == wanted
                assert ask(there, "EXISTS DATABASE d") == ["1"]
        assert ask(session, "SELECT count() FROM t") == ["0"]


def test_a_replicated_database_comes_back_on_a_server_that_was_killed_and_on_a_new_one(
    config: Config, chroot: str
):
    database = (
        f"CREATE DATABASE d ENGINE = Replicated('{chroot}/d', '{{shard}}', '{{replica}}')"
    )
    with ExitStack() as opened:
        processes = {name: opened.enter_context(serving(config, name)) for name in ("r1", "r2")}
        session = opened.enter_context(Session.open(config, "r1"))
        other = opened.enter_context(Session.open(config, "r2"))
        until(lambda: running(session) == 2)
        for each in (session, other):
            each.execute(database)
            each.execute("SYSTEM SYNC DATABASE REPLICA d")
        path = f"'{chroot}/{{uuid}}/{{shard}}', '{{replica}}'"
        table = f"(n UInt64) ENGINE = ReplicatedMergeTree({path}) ORDER BY n"
        answer = ask(session, f"CREATE TABLE d.t {table}")
        assert [line.split("\t")[2] for line in answer] == ["OK", "OK"]
        session.execute("INSERT INTO d.t SELECT number FROM numbers(10)")
        session.execute("SYSTEM SYNC DATABASE REPLICA d")
        ask(session, "ALTER TABLE d.t ADD COLUMN s String DEFAULT 'x'")

        session.execute("SET distributed_ddl_task_timeout = 0")
        for number in range(8):
            session.execute(f"CREATE TABLE d.u{number} {table}")
            if number % 2:
                session.execute(f"DROP TABLE d.u{number}")
        until(lambda: "u0" in ask(other, "SHOW TABLES FROM d"))
        os.kill(processes[MORTAL].pid, signal.SIGKILL)
        processes[MORTAL].wait()
        session.execute("DROP TABLE d.u0")
        session.execute("DROP TABLE d.t")
        session.execute(f"CREATE TABLE d.t {table.replace('UInt64', 'UInt64, k String')}")
        session.execute("ALTER TABLE d.t ADD COLUMN m UInt8")

        opened.enter_context(serving(config, "r2"))
        opened.enter_context(serving(config, "r3"))
        until(lambda: running(session) == 3)
        late = opened.enter_context(Session.open(config, "r3"))
        late.execute(database)  # a busy server takes it up later, and that is said
        wanted = ["t", "u2", "u4", "u6"]
        for each in (session, other, late):
            each.execute("SYSTEM SYNC DATABASE REPLICA d")
            assert ask(each, "SHOW TABLES FROM d") == wanted
            until(
                lambda each=each: (
                    [line.split("\t")[0] for line in ask(each, "DESCRIBE TABLE d.t")]
                    == ["n", "k", "m"]
                )
            )
            assert ask(each, "SHOW DATABASES") == ["d", "default", "system"]
        assert ask(session, "SELECT count() FROM d.t") == ["0"]
        for each in (session, other, late):
            each.execute("DROP DATABASE d SYNC")
        with pytest.raises(Refused):
            session.context.server.keeper().get(f"{chroot}/d")
