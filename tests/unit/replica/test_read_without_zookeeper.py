"""ZooKeeper is away: reads go on from what the server last knew, and say so."""

import re
import socket
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from examples.flights.ports import free_port
from rmt_pipeline.cli.main import main
from rmt_pipeline.cli.status import run_status
from rmt_pipeline.config import load_config
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol.errors import (
    Corruption,
    MissingPart,
    ReplicaRetired,
    RmtError,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.readable import note_active
from rmt_pipeline.replica.reading import ReadWithoutZooKeeper
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store import layout
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper.connect import connect
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper
from tests.support.local_replicas import Replicas
from tests.support.local_session import NUMBERS, create, rows, session_with_numbers


@pytest.fixture(autouse=True)
def a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody listens nobody answers, however long one waits: less than readers do is enough
    to see what they do then.
    """

    def connect_soon(hosts: str, *, connect_timeout_s: float, **others: Any) -> KazooKeeper:
        return connect(hosts, connect_timeout_s=min(connect_timeout_s, 0.2), **others)

    monkeypatch.setattr("rmt_pipeline.zookeeper.connect.connect", connect_soon)


@pytest.fixture
def directory(tmp_path) -> Path:
    """Of server r1, which has gone, as ZooKeeper has; the table `t` has three rows, `u` none."""
    with session_with_numbers(tmp_path) as session:
        create(session, NUMBERS.replace("TABLE t", "TABLE u").replace("/t'", "/u'"))
        session.execute("INSERT INTO t VALUES (1), (2)")
        session.execute("INSERT INTO t VALUES (3)")
        note_active(session.context.server.table("t").replica)
    file = tmp_path / "rmt.toml"
    file.write_text(
        f'[zookeeper]\nhosts = "127.0.0.1:{free_port()}"\nconnect_timeout_s = 20\n'
        f"{file.read_text()}"
    )
    return tmp_path


@pytest.fixture
def context(directory) -> Iterator[ServerContext]:
    with ServerContext.open(directory / "rmt.toml", "r1") as opened:
        yield opened


def test_a_dataset_is_what_the_server_last_knew_and_says_so(context):
    with pytest.warns(ReadWithoutZooKeeper, match=r"default\.t is read without ZooKeeper"):
        dataset = context.table("t").dataset()
    assert sorted(dataset.to_table().column("n").to_pylist()) == [1, 2, 3]


def test_who_reads_does_not_wait_as_long_as_others(context, monkeypatch):
    waits_s: list[float] = []

    def fail(_hosts: str, *, connect_timeout_s: float, **_: object) -> None:
        waits_s.append(connect_timeout_s)
        raise ZooKeeperUnreachable(f"no ZooKeeper answered within {connect_timeout_s:g} s")

    monkeypatch.setattr("rmt_pipeline.zookeeper.connect.connect", fail)
    with pytest.warns(ReadWithoutZooKeeper):
        context.table("t").dataset()
    assert waits_s == [3.0], "not the 20 s"


def test_who_asks_again_does_not_wait_again(context, monkeypatch):
    monkeypatch.setattr("rmt_pipeline.context.AWAY_S", 600.0)
    with pytest.warns(ReadWithoutZooKeeper):
        context.table("t").dataset()

    def fail(*_: object, **__: object) -> None:
        pytest.fail("it waits for ZooKeeper again")

    monkeypatch.setattr("rmt_pipeline.zookeeper.connect.connect", fail)
    with pytest.warns(ReadWithoutZooKeeper), context.table("t").snapshot() as snapshot:
        assert len(snapshot.parts) == 2


def test_who_does_not_wait_again_says_the_same(context, monkeypatch):
    """A reason that changes with each look would be logged with each look."""
    monkeypatch.setattr("rmt_pipeline.context.AWAY_S", 600.0)
    said = []
    for _ in range(2):
        with pytest.raises(ZooKeeperUnreachable) as error:
            context.keeper(0.1)
        said.append(str(error.value))
    assert said[0] == said[1]
    assert "within 0.1 s" in said[0]


def test_select_goes_on(context):
    with Session(context) as session, pytest.warns(ReadWithoutZooKeeper):
        assert rows(session, "SELECT sum(n) FROM t") == [(6,)]


def rmt(directory: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process. Returns its exit status."""
    monkeypatch.setattr(
        "sys.argv", ["rmt", "--config", str(directory / "rmt.toml"), *arguments]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_on_the_command_line_the_warning_is_a_line(directory, monkeypatch, capfd):
    query = ("--format", "TSV", "SELECT count() FROM t")
    assert rmt(directory, monkeypatch, "sql", *query) == 0
    out, err = capfd.readouterr()
    assert out == "3\n"
    assert err.startswith("Warning: default.t is read without ZooKeeper")
    assert err.count("\n") == 1


COMMANDS = (
    "queue",
    "merges",
    "mutations",
    "inserts",
    "check",
    "cleanup",
    "restore",
    "reload",
    "force-restore-data t",
    "explain merges t",
    "sql INSERT\u00a0INTO\u00a0t\u00a0VALUES\u00a0(4)",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_whoever_waits_for_zookeeper_is_told_why_and_waits_once(
    directory, monkeypatch, capfd, command
):
    """Not once for each table: a server may have hundreds."""
    waits_s: list[float] = []

    def fail(_hosts: str, *, connect_timeout_s: float, **_: object) -> None:
        waits_s.append(connect_timeout_s)
        raise ZooKeeperUnreachable(f"no ZooKeeper answered within {connect_timeout_s:g} s")

    monkeypatch.setattr("rmt_pipeline.zookeeper.connect.connect", fail)
    words = [word.replace("\u00a0", " ") for word in command.split(" ")]
    assert rmt(directory, monkeypatch, *words) == 1
    assert waits_s == [3.0, 17.0]
    told, error = capfd.readouterr().err.splitlines()[:2]
    assert told == (
        "Warning: still trying, for up to 17 s more: no ZooKeeper answered within 3 s"
    )
    assert error.startswith("Code: NO_ZOOKEEPER. ")


def test_system_replicas_waits_once_and_has_a_row_for_each_table(context, monkeypatch):
    waits_s: list[float] = []

    def fail(_hosts: str, *, connect_timeout_s: float, **_: object) -> None:
        waits_s.append(connect_timeout_s)
        raise ZooKeeperUnreachable(f"no ZooKeeper answered within {connect_timeout_s:g} s")

    monkeypatch.setattr("rmt_pipeline.zookeeper.connect.connect", fail)
    with Session(context) as session:
        found = rows(
            session, "SELECT table, is_readonly, zookeeper_exception FROM system.replicas"
        )
    words = "no ZooKeeper answered within 3 s"
    assert sorted(found) == [("t", 1, words), ("u", 1, words)]
    assert waits_s == [3.0]


def test_what_is_broken_is_not_answered_then_either(context):
    store = context.table("t").store
    file = Path(store.directory(store.parts()[0])) / layout.data_file(0)
    data = bytearray(file.read_bytes())
    data[40] ^= 1
    file.write_bytes(data)
    told = pytest.raises(RmtError, match=r"0_0_0.*has hash")
    with told, pytest.warns(ReadWithoutZooKeeper):
        context.table("t").dataset({"broken_parts_wait_ms": 0})


def test_what_was_given_up_is_not_left_out_of_the_answer(context):
    """It was broken, and was not fetched again before ZooKeeper went."""
    store = context.table("t").store
    [part, other] = store.parts()
    store.marks.give_up(part)
    store.marks.note_active([other])
    with pytest.raises(MissingPart, match=f"part {part}"):
        context.table("t").dataset()
    with pytest.warns(ReadWithoutZooKeeper):
        left = context.table("t").dataset({"skip_broken_parts": True})
    assert left.to_table().num_rows == 1


@pytest.fixture
def cut_off(tmp_path) -> Iterator[Table]:
    """Two parts, with the rows 1 and 2; ZooKeeper has gone."""
    with Replicas(tmp_path, ["r1"]) as replicas:
        for n in (1, 2):
            replicas.insert("r1", n)
        note_active(replicas["r1"])
        table = replicas.table("r1")
        table._reader.replica = partial(unreachable, table)
        yield table


def unreachable(table: Table) -> NoReturn:
    raise ZooKeeperUnreachable(f"no ZooKeeper answered for {table.definition.full_name}")


def numbers(table: Table, **settings: bool) -> list[int]:
    with pytest.warns(ReadWithoutZooKeeper):
        return table.dataset(settings).to_table().column("n").to_pylist()


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_what_is_gone_or_broken_is_named_with_what_to_do(cut_off, damage):
    first, _ = cut_off.store.parts()
    if damage == "gone":
        assert cut_off.store.remove(first)
    else:
        tear(cut_off, first)
    with pytest.raises(MissingPart if damage == "gone" else Corruption) as raised:
        numbers(cut_off)
    words = str(raised.value)
    assert words.startswith(f"default.t: part {first}, ")
    assert "again when ZooKeeper answers (no ZooKeeper answered for default.t)" in words
    assert "skip_broken_parts = 1" in words
    assert raised.value.part == first


def test_what_is_gone_or_broken_is_left_out_on_demand(cut_off):
    first, second = cut_off.store.parts()
    tear(cut_off, first)
    assert numbers(cut_off, skip_broken_parts=True) == [2]
    assert cut_off.store.remove(second)
    assert numbers(cut_off, skip_broken_parts=True) == []


def test_what_the_server_merged_meanwhile_is_read_merged(cut_off, monkeypatch):
    """This process does not reach ZooKeeper; the server does, and goes on with its work."""
    store = cut_off.store
    gone, left = store.parts()
    pin = store.pin

    def pin_late(parts: Iterable[PartName]) -> AbstractContextManager[None]:
        if store.has(gone):
            assert store.marks.note_active([left])
            assert store.remove(gone)
        return pin(parts)

    monkeypatch.setattr(store, "pin", pin_late)
    assert numbers(cut_off) == [2]
    assert numbers(cut_off, skip_broken_parts=True) == [2]


def tear(table: Table, part: PartName) -> None:
    file = Path(table.store.directory(part)) / layout.data_file(0)
    file.write_bytes(file.read_bytes()[:-1])


def test_a_list_that_is_torn_is_none(context):
    mark = Path(context.table("t").store.disk.local_path(layout.ACTIVE_SEEN))
    mark.write_bytes(mark.read_bytes()[:-3])
    with pytest.raises(ZooKeeperUnreachable):
        context.table("t").dataset()


def test_a_session_that_ends_is_opened_again_before_anything_old_is_read(tmp_path):
    with session_with_numbers(tmp_path) as session:
        session.execute("INSERT INTO t VALUES (1)")
        table = session.context.server.table("t")
        good, ended = table._reader.replica, []

        def reader():
            if not ended:
                ended.append(True)
                raise ReplicaRetired("the session is over")
            return good()

        table._reader.replica = reader
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert table.dataset().to_table().num_rows == 1


def test_status_says_from_when_the_reads_are(directory, capsys):
    config = ServerContext.open(directory / "rmt.toml", "r1").config
    assert run_status(config, None) == 1
    told = capsys.readouterr().out
    assert "default.t: no ZooKeeper, nothing can be written" in told
    assert re.search(r"reads go on from the parts that the server knew at \S+: 2\n", told)
    assert told.count("nothing can be written: no ZooKeeper answered") == 1
    assert "default.u: no ZooKeeper, nothing can be read\n" in told


def test_status_waits_once_for_a_zookeeper_that_is_frozen(directory, capsys, monkeypatch):
    monkeypatch.setattr("rmt_pipeline.cli.status.PROBE_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        file = directory / "rmt.toml"
        before = load_config(file).zookeeper_hosts
        here = f"127.0.0.1:{silent.getsockname()[1]}"
        file.write_text(file.read_text().replace(before, here))
        assert run_status(load_config(file), None) == 1
        said = []
        with suppress(BlockingIOError):
            while True:
                with silent.accept()[0] as connection:
                    said.append(connection.recv(4))
    assert said == [b"srvr"], "it is asked how it is, and then for nothing"
    told = capsys.readouterr().out
    assert (
        f"default.t: no ZooKeeper, nothing can be written: no ZooKeeper answered at {here}"
        in told
    )
    assert re.search(r"reads go on from the parts that the server knew at \S+: 2\n", told)
    assert f"ZooKeeper at {here}: does not answer: it is frozen, or has more to do" in told
