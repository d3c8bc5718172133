"""What goes wrong with one table or database of a server, or for a moment: the others are served
all the same, and it is tried again.
"""

import errno
import os
import shutil
from dataclasses import replace

import pytest

from rmt_pipeline.catalog.replicated import ReplicatedDatabase, encode_replicated
from rmt_pipeline.cli.status import _print_tables, _table_lines, _ZooKeeper
from rmt_pipeline.config import Address
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import DiskFull, Unavailable
from rmt_pipeline.server.status import Counters, server_status
from rmt_pipeline.server.supervisor import Supervisor
from rmt_pipeline.server.tables import RETRY_LATER_S, Identity, Tables
from rmt_pipeline.server.tasks import TaskLoop, TaskLoops
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.system import EventWaker, RandomIds
from rmt_pipeline.zookeeper.keeper import SetData
from tests.support.local_replicas import StillClock
from tests.support.local_session import TABLE, create, session_with_two_tables


@pytest.fixture
def session(tmp_path):
    with session_with_two_tables(tmp_path) as opened:
        yield opened


@pytest.fixture
def tables(session) -> Tables:
    identity = Identity("r1", "2", Address("127.0.0.1", 1))
    catalog = session.context.server.catalog
    return Tables(catalog, StillClock(), RandomIds(), identity, lambda: None)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_table_whose_directory_the_disk_refuses_holds_up_no_other(
    session, tables, monkeypatch, number
):
    server = session.context.server
    directory = server.catalog.table_directory(server.catalog.definition("default", "t"))
    shutil.rmtree(directory)
    mkdir, keeper = os.mkdir, server.keeper()

    def refuse(path, *more):
        if str(path) == str(directory):
            raise OSError(number, os.strerror(number), path)
        mkdir(path, *more)

    with monkeypatch.context() as failing:
        failing.setattr(os, "mkdir", refuse)
        tables.follow_catalog(keeper)
        tables.look(keeper)
    assert list(tables.all) == [("default", "u")]
    assert [one.definition.name for one in tables.replicas()] == ["u"]
    [damaged] = tables.damaged
    assert "default.t" in damaged
    tables.look(keeper)
    assert list(tables.all) == [("default", "u")], "not at each look"
    assert tables.next_look_s() is not None
    tables.clock.passed_s += RETRY_LATER_S
    tables.look(keeper)
    assert sorted(tables.all) == [("default", "t"), ("default", "u")]
    assert tables.damaged == ()


def test_a_table_whose_disk_fails_later_hides_no_other_status(session, tables, monkeypatch):
    server = session.context.server
    directory = server.catalog.table_directory(server.catalog.definition("default", "t"))
    keeper, listed = server.keeper(), LocalDisk.list
    tables.follow_catalog(keeper)
    tables.look(keeper)
    assert server_status("r1", keeper, tables).healthy

    def refuse(disk, path):
        if disk.root == str(directory):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return listed(disk, path)

    monkeypatch.setattr(LocalDisk, "list", refuse)
    status = server_status("r1", keeper, tables)
    assert not status.healthy
    [reason] = status.not_ready
    assert reason.startswith("default.t is read-only: its directory can't be read: ")


def test_a_table_whose_directory_is_gone_later_is_not_healthy(session, tables):
    server = session.context.server
    keeper = server.keeper()
    tables.follow_catalog(keeper)
    tables.look(keeper)
    definition = server.catalog.definition("default", "t")
    shutil.rmtree(server.catalog.table_directory(definition))
    [reason] = server_status("r1", keeper, tables).not_ready
    assert reason.startswith("default.t is read-only: its directory can't be read: ")


def test_a_number_that_is_none_in_zookeeper_hides_no_other_one(session, tables):
    keeper = session.context.server.keeper()
    tables.follow_catalog(keeper)
    tables.look(keeper)
    keeper.multi([SetData("/tables/t/replicas/r1/log_pointer", b"none")])
    t, u = server_status("r1", keeper, tables).tables
    assert (t.log_lag, t.queue_size) == (None, 0)
    assert (u.log_lag, u.queue_size) == (0, 0)


def test_a_data_directory_that_is_gone_is_said(session, tables, monkeypatch):
    def gone(_):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    keeper = session.context.server.keeper()
    tables.follow_catalog(keeper)
    tables.look(keeper)
    monkeypatch.setattr(shutil, "disk_usage", gone)
    status = server_status("r1", keeper, tables)
    assert not status.healthy
    assert [
        problem for problem in status.damaged if "the data directory can't be read" in problem
    ]
    assert len(status.tables) == 2


@pytest.mark.parametrize("how", ["its disk is not there", "its disk is full"])
def test_a_table_whose_directory_can_not_be_made_hides_no_other(
    session, monkeypatch, capsys, how
):
    """From commands and Dagster's sensors, which open all tables of a server."""
    server = session.context.server
    directory = server.catalog.table_directory(server.catalog.definition("default", "t"))
    shutil.rmtree(directory)
    if how == "its disk is full":
        mkdir = os.mkdir

        def refuse(path, *more):
            if str(path) == str(directory):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            mkdir(path, *more)

        monkeypatch.setattr(os, "mkdir", refuse)
    else:
        directory.symlink_to(directory.with_name("not mounted"))
    fresh = ServerContext(server.config, "r1")
    fresh.use(server.keeper())
    monkeypatch.setattr(ServerContext, "open", lambda *_, **__: fresh)
    words = r"default\.t is left out: its directory can't be made"
    with pytest.warns(UserWarning, match=words):
        tables = fresh.tables()
    assert [table.definition.name for table in tables] == ["u"]
    with pytest.warns(UserWarning, match=words):
        is_well = _print_tables(_ZooKeeper(server.config), server.server, Unavailable("down"))
    assert not is_well
    assert "default.u: " in capsys.readouterr().out


def test_a_table_that_is_made_meanwhile_is_not_taken_for_one_that_fails(
    session, monkeypatch, capsys
):
    listed = ServerContext.tables

    def listed_just_before(server):
        found = listed(server)
        create(session, TABLE.format("new"))
        return found

    server = session.context.server
    monkeypatch.setattr(ServerContext, "tables", listed_just_before)
    fresh = ServerContext(server.config, "r1")
    fresh.use(server.keeper())
    monkeypatch.setattr(ServerContext, "open", lambda *_, **__: fresh)
    monkeypatch.setattr(_ZooKeeper, "require", lambda *_: None)
    assert _print_tables(_ZooKeeper(server.config), server.server, Unavailable("down"))
    assert "default.new" not in capsys.readouterr().out


def test_a_database_that_is_dropped_during_a_look_does_not_end_the_server(
    session, tables, monkeypatch
):
    server = session.context.server
    server.catalog.create_database("d")
    listed = server.catalog.databases

    def databases():
        found = listed()
        if "d" in found:
            server.catalog.drop_database("d")
        return found

    keeper = server.keeper()
    tables.follow_catalog(keeper)
    monkeypatch.setattr(server.catalog, "databases", databases)
    tables.look(keeper)
    assert len(tables.replicas()) == 2


def test_statements_of_a_database_are_not_forgotten_if_there_is_no_thread_for_them(
    session, monkeypatch
):
    server = session.context.server
    database = ReplicatedDatabase("/databases/d", "1", "r1", "Replicated(…)")
    server.catalog.create_database("d", replicated=encode_replicated(database))
    loops, started = TaskLoops(server.config, "r1", server.catalog), []

    def start(loop):
        if not started:
            started.append("failed")
            raise RuntimeError("can't start new thread")
        started.append(loop)

    monkeypatch.setattr(TaskLoop, "start", start)
    with pytest.raises(RuntimeError):
        loops.follow_catalog()
    loops.follow_catalog()
    assert started == ["failed", loops._databases["d", database]]


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), DiskFull("no space left to write it")]
)
def test_a_look_that_fails_once_does_not_end_the_server(session, tables, error):
    """For example the one that ends a RENAME of a process that died."""
    looks = [0]

    class Loops:
        def follow(self, served):
            looks[0] += 1
            if looks[0] == 2:
                raise error

        def stop(self): ...

    keeper = session.context.server.keeper()
    keeper.session_timeout_s = 10.0
    Supervisor(
        tables,
        EventWaker(),
        Counters(),
        open_session=lambda: keeper,
        loops=Loops(),
        should_stop=lambda: looks[0] > 3,
    ).run()
    assert looks[0] >= 4


def test_a_table_with_a_setting_of_a_newer_version_holds_up_no_other(session, tables):
    """After a downgrade. Each of its settings was checked by the version that took it."""
    server = session.context.server
    server.catalog.update_table(
        server.catalog.definition("default", "t"),
        lambda known: replace(known, settings=(("new_in_a_later_version", "1"),)),
    )
    keeper = server.keeper()
    tables.follow_catalog(keeper)
    tables.look(keeper)
    assert [one.definition.name for one in tables.replicas()] == ["u"]
    assert "new_in_a_later_version" in tables.all["default", "t"].reason
    lines = list(_table_lines(server.table("t"), Unavailable("not running")))
    assert "new_in_a_later_version" in lines[-1]
