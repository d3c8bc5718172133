"""A server's context: its tables, read once and again after every change by any process, and its
name in claims.
"""

import errno
import os
import resource
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from rmt_pipeline.catalog import contents
from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.context import ServerContext
from rmt_pipeline.dagster.record.unrecorded import Unrecorded
from rmt_pipeline.dagster.work.watching import MergeWatch, MutationWatch, QueueWatch
from rmt_pipeline.exchange.guard import Guard
from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.errors import (
    Conflict,
    DiskFull,
    ReplicaAlreadyExists,
    TableAlreadyExists,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.server.listener import _Visitor
from rmt_pipeline.sql.define.table import define_table
from rmt_pipeline.sql.run.session import Session
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.syntax.statements.nodes import CreateTable
from rmt_pipeline.syntax.statements.parse import parse
from rmt_pipeline.zookeeper.keeper import Create, Op
from tests.support.exchange import ENDPOINT, Sender, address, put, store_at
from tests.support.local_replicas import StillClock
from tests.support.local_session import create, local_session
from tests.support.lost_answers import before
from tests.support.waiting import until

PART = PartName("2013", 0, 0, 0)
MADE = "CREATE TABLE {} (n UInt64) ENGINE = ReplicatedMergeTree('/tables/{}', 'r1') ORDER BY n"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with local_session(tmp_path) as opened:
        for name in ("a", "b", "c"):
            create(opened, MADE.format(name, name))
        yield opened


@pytest.fixture
def server(session: Session) -> ServerContext:
    return session.context.server


@pytest.fixture
def read(server: ServerContext, monkeypatch) -> list[str]:
    """The names of the tables whose definitions are read from the disk, as they are read."""
    found: list[str] = []
    original = contents.read_table

    def noted(file: Path, database: str, name: str) -> TableDefinition:
        found.append(name)
        return original(file, database, name)

    server.tables()
    monkeypatch.setattr(contents, "read_table", noted)
    return found


def add(catalog: Catalog, name: str) -> None:
    catalog.add(replace(catalog.definition("default", "a"), name=name, uuid=f"of {name}"))


def names_of(server: ServerContext) -> list[str]:
    return [table.definition_then.name for table in server.tables()]


def test_a_table_that_the_disk_has_no_room_for_leaves_nothing_in_zookeeper(
    session, server, monkeypatch
):
    def full(path, _):
        raise DiskFull(f"no space left to write {path}")

    monkeypatch.setattr(contents, "stage_file", full)
    with pytest.raises(DiskFull):
        session.execute(MADE.format("d", "d"))
    assert server.keeper().exists("/tables/d") is None


def test_nothing_is_read_while_the_catalog_stays_as_it_is(server, read):
    assert server.tables() == server.tables()
    assert names_of(server) == ["a", "b", "c"]
    assert not read


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda catalog: add(catalog, "d"), ["a", "b", "c", "d"]),
        (
            lambda catalog: catalog.rename_tables([(("default", "a"), ("default", "z"))]),
            ["b", "c", "z"],
        ),
        (lambda catalog: catalog.detach("default", "b"), ["a", "c"]),
    ],
)
def test_what_another_process_changes_is_seen(
    server, change: Callable[[Catalog], object], after
):
    names_of(server)
    change(Catalog(server.catalog.data))
    assert names_of(server) == after


def test_a_table_that_was_altered_has_its_new_definition(server):
    server.tables()
    known = server.catalog.definition("default", "b")
    Catalog(server.catalog.data).save(replace(known, comment="altered"))
    assert [table.definition_then.comment for table in server.tables()] == ["", "altered", ""]


def test_a_damaged_file_that_is_mended_in_place_is_a_table_again(server):
    file = server.catalog.data / "metadata" / "default" / "b.json"
    whole = file.read_bytes()
    add(server.catalog, "d")
    with file.open("r+b") as damaged:
        damaged.write(b"?")
    assert names_of(server) == ["a", "c", "d"]
    with file.open("r+b") as mended:
        mended.write(whole)
    assert names_of(server) == ["a", "b", "c", "d"]


def test_ticks_of_sensors_read_no_definition_while_no_table_changes(server, read):
    queues, merges, mutations = QueueWatch(server), MergeWatch(server), MutationWatch(server)
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = None
        for _ in range(2):
            read.clear()
            unrecorded = Unrecorded(server, instance, cursor)
            assert not queues.wait(dict, until=unrecorded.there, wait_s=0).needed
            unrecorded.told()
            cursor = unrecorded.cursor()
            merges.wait(dict, wait_s=0)
            mutations.wait(dict, wait_s=0)
    assert not read


def test_what_works_an_entry_is_named_as_people_would(session, server):
    replica = server.tables()[0].replica
    assert replica.worker == f"client on {socket.gethostname()}, process {os.getpid()}"


def test_fetches_of_all_tables_share_the_connections_to_a_peer(server, tmp_path):
    """Idle ones, too: else a server with a thousand tables would keep a thousand open."""
    source = store_at(tmp_path / "source")
    put(source, PART, {"data-00000.parquet": b"bytes"})
    with Sender(source, guard=Guard((server.secret(),))) as sender:
        request = FetchRequest(address(sender.port), ENDPOINT, PART)
        opened = [server.peers(table.definition) for table in server.tables()]
        for table, peers in zip(server.tables(), opened, strict=True):
            [[(_, staged)]] = peers.fetch([request], table.store)
            assert isinstance(staged, StagedPart)
        assert len(_accepted(sender)) == 1
        for peers in opened:
            peers.close()
        server.close()
        until(lambda: not _accepted(sender))


def test_nothing_is_kept_of_tables_that_another_process_dropped(session, server):
    """A process that works for months would keep the manifests of all tables there ever were."""
    session.execute("INSERT INTO a VALUES (1)")
    table = server.table("a")
    [part] = table.store.parts()
    assert table.replica.store.manifest_read(part) is not None
    table.store.disk.remove_tree("")
    create(session, MADE.format("d", "d"))
    assert table.store.manifest_read(part) is None
    assert table.definition.uuid not in server._replicas
    assert server.table("b").definition.uuid in server._replicas
    assert table.store.names() == frozenset(), "its directory was not made again"
    assert not Path(table.store.disk.local_path("")).exists()


def test_a_table_more_is_not_looked_for_with_all_others(server, monkeypatch):
    """A server with ten thousand tables would look for a directory fifty million times."""
    looked_at = []
    monkeypatch.setattr(Path, "exists", lambda path: looked_at.append(path) or path.is_dir())
    table = server.table("a").definition
    for number in range(100):
        server.store(replace(table, name=f"t{number}", uuid=str(uuid.UUID(int=number))))
    assert len(looked_at) <= 3 * 100


def _accepted(sender: Sender) -> list[_Visitor]:
    return [*sender._listener._visitors]


def defined(session: Session, name: str, path: str) -> TableDefinition:
    statement = parse(MADE.format(name, path))
    assert isinstance(statement, CreateTable)
    return define_table(statement.table, statement.syntax, session.context.database)


def test_a_table_that_was_renamed_before_its_server_saw_it_keeps_its_replica(session, server):
    """A CREATE of its old name finds a replica that nobody has used, as one of which the answer was
    lost. Two tables of one replica would take each other's parts for lost.
    """
    assert server.create_table(defined(session, "d", "d"))
    server.rename_tables((("default", "d"), ("default", "e")))
    with pytest.raises(ReplicaAlreadyExists, match=r"is this server's table default\.e"):
        server.create_table(defined(session, "d", "d"))
    assert not server.catalog.has("default", "d")
    server.rename_tables((("default", "e"), ("default", "d")))
    assert not server.create_table(defined(session, "d", "d"), if_not_exists=True)


def test_a_create_without_an_answer_is_said_again(session, server):
    """Its replica is there, and no table of this server's has it."""
    made = replace(server.expanded(defined(session, "d", "d")), uuid="of the first")
    create_replica(server.keeper(), made, server._creator(made))
    assert server.create_table(defined(session, "d", "d"))
    assert server.catalog.definition("default", "d").uuid == "of the first"


def test_of_two_that_make_one_table_at_two_paths_the_second_one_makes_no_nodes(session, server):
    second = ServerContext(server.config, "r1", clock=StillClock())
    second.use(server.keeper())

    def makes(op: Op) -> bool:
        return isinstance(op, Create) and op.path == "/tables/d"

    def beside() -> None:
        with pytest.raises(Conflict, match=r"has been making table default\.d for 60 s"):
            second.create_table(defined(session, "d", "other"))

    with before(server.keeper(), makes, beside):
        assert server.create_table(defined(session, "d", "d"))
    with pytest.raises(TableAlreadyExists):
        second.create_table(defined(session, "d", "other"))
    assert server.keeper().exists("/tables/other") is None
    assert not [one.name for one in (server.catalog.data / "metadata/.staging").iterdir()]


@pytest.mark.parametrize("takes_it", ["another CREATE", "RENAME"])
def test_who_makes_a_table_waits_for_who_is_giving_its_name_away(session, server, takes_it):
    with (
        ThreadPoolExecutor() as threads,
        server.catalog.making("default", "d") as is_ours,
    ):
        assert is_ours
        made = threads.submit(
            server.create_table, defined(session, "d", "other"), if_not_exists=True
        )
        until(made.running)
        if takes_it == "RENAME":
            server.catalog.rename_tables([(("default", "a"), ("default", "d"))])
        else:
            add(server.catalog, "d")
    assert made.result() is False
    assert server.keeper().exists("/tables/other") is None


def descriptors() -> list[int]:
    """The open files of this process."""
    return [int(one.name) for one in Path("/proc/self/fd").iterdir()]


def test_who_waits_for_a_name_holds_no_file_for_each_look(session, server):
    """It looks twelve hundred times. In a server nothing else could be opened meanwhile."""
    opened: list[int] = []

    class Clock(StillClock):
        def sleep_s(self, seconds: float) -> None:
            opened.append(len(descriptors()))
            super().sleep_s(seconds)

    second = ServerContext(server.config, "r1", clock=Clock())
    second.use(server.keeper())
    with server.catalog.making("default", "d") as is_ours:
        assert is_ours
        with pytest.raises(Conflict):
            second.create_table(defined(session, "d", "d"))
    assert len(opened) > 1000
    assert max(opened) < min(opened) + 20


def test_more_tables_are_renamed_at_once_than_the_usual_limit_of_open_files(server):
    """The new name of each is held meanwhile."""
    for number in range(200):
        add(server.catalog, f"t{number}")
    moves = [(("default", f"t{one}"), ("default", f"u{one}")) for one in range(200)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(descriptors()) + 50, limits[1]))
    try:
        server.rename_tables(*moves)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert server.catalog.has("default", "u199")


def test_a_table_that_is_there_is_not_waited_for(session, server):
    """Nor is anything written, as at each start of a code location: the disk may be full."""
    second = ServerContext(server.config, "r1", clock=StillClock())
    second.use(server.keeper())
    with server.catalog.making("default", "a") as is_ours:
        assert is_ours
        assert not second.create_table(defined(session, "a", "a"), if_not_exists=True)


def test_what_was_made_is_no_failure_because_its_name_can_not_be_given_back(
    server, monkeypatch
):
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with server.catalog.making("default", "d") as is_ours:
        assert is_ours
        monkeypatch.setattr(Path, "unlink", fails)
    monkeypatch.undo()
    with server.catalog.making("default", "d") as is_ours:
        assert is_ours
