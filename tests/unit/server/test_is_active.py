"""What a server does about an `is_active` that is gone while its session lives, and about a look at
its tables that fails.
"""

import errno
import os

import pytest
from structlog.testing import CapturingLogger

from rmt_pipeline.catalog.catalog import Catalog
from rmt_pipeline.config import Address
from rmt_pipeline.protocol.errors import AccessDenied, DiskFull
from rmt_pipeline.server import supervisor as supervisor_module
from rmt_pipeline.server import tables as tables_module
from rmt_pipeline.server.status import Counters
from rmt_pipeline.server.supervisor import FAILS_MAX_S, Supervisor
from rmt_pipeline.server.tables import Identity, Tables
from rmt_pipeline.system import EventWaker, RandomIds
from rmt_pipeline.zookeeper.keeper import Delete, Keeper, Op, Stat, Watch
from rmt_pipeline.zookeeper.through import ThroughKeeper
from tests.support.fake_keeper import FakeZooKeeper
from tests.support.local_replicas import StillClock
from tests.support.local_session import session_with_numbers, session_with_two_tables
from tests.support.lost_answers import faulty

ACTIVE = "/tables/t/replicas/r1/is_active"


class Deaf(ThroughKeeper[Keeper]):
    """No watch of `is_active` ever fires."""

    asked = 0

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self.asked += path == ACTIVE
        return self.session.exists(path, None if path == ACTIVE else watch)


@pytest.fixture
def session(tmp_path):
    with session_with_numbers(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("period_s", [60, 7])
def test_without_its_watch_it_is_asked_for_after_a_while(session, period_s):
    if period_s != 60:
        setting = f"zookeeper_session_expiration_check_period = {period_s}"
        session.execute(f"ALTER TABLE t MODIFY SETTING {setting}")
    server, clock = session.context.server, StillClock()
    keeper = Deaf(server.keeper())
    identity = Identity("r1", "2", Address("127.0.0.1", 1))
    tables = Tables(server.catalog, clock, RandomIds(), identity, lambda: None)
    tables.follow_catalog(keeper)
    tables.look(keeper)
    asked = keeper.asked
    keeper.multi([Delete(ACTIVE)])
    clock.passed_s += period_s - 1
    tables.look(keeper)
    assert keeper.asked == asked, "a look is no request"
    assert keeper.exists(ACTIVE) is None
    clock.passed_s += 1
    tables.look(keeper)
    assert keeper.exists(ACTIVE) is not None
    assert tables.replica_of("/tables/t/replicas/r1") is not None


@pytest.mark.parametrize("lasts_s", [0.9 * FAILS_MAX_S, 1.1 * FAILS_MAX_S])
def test_a_look_that_fails_for_a_moment_does_not_end_the_server(session, monkeypatch, lasts_s):
    """As when the process has too many files open. What lasts does, and somebody has to see it."""
    server, clock = session.context.server, StillClock()
    identity = Identity("r1", "2", Address("127.0.0.1", 1))
    tables = Tables(server.catalog, clock, RandomIds(), identity, lambda: None)
    looks, has_session = [0], False

    def version():
        if not has_session:  # the look before it
            return Catalog.version(server.catalog)
        looks[0] += 1
        if looks[0] <= 3:
            clock.passed_s += lasts_s / 2
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "metadata")
        return Catalog.version(server.catalog)

    log = CapturingLogger()
    monkeypatch.setattr(supervisor_module, "log", log)
    monkeypatch.setattr(server.catalog, "version", version)
    keeper = server.keeper()
    keeper.session_timeout_s = 10.0

    def opened():
        nonlocal has_session
        has_session = True
        return keeper

    supervisor = Supervisor(
        tables,
        EventWaker(),
        Counters(),
        open_session=opened,
        loops=None,
        should_stop=lambda: looks[0] > 4,
    )
    if lasts_s > FAILS_MAX_S:
        with pytest.raises(OSError, match="Too many open files"):
            supervisor.run()
        return
    supervisor.run()
    assert looks == [5]
    assert [table.definition.name for table in tables.all.values()] == ["t"]
    [warning] = [one for one in log.calls if one.method_name == "warning"]
    assert "Too many open files" in warning.kwargs["reason"]


def test_failures_of_two_sessions_are_not_one_that_lasts(session, monkeypatch):
    """No look succeeds, before them or between them: the first session ends before its second."""
    server, clock = session.context.server, StillClock()
    identity = Identity("r1", "2", Address("127.0.0.1", 1))
    tables = Tables(server.catalog, clock, RandomIds(), identity, lambda: None)
    ending, looks = FakeZooKeeper(clock).connect(), [0]

    def version():
        looks[0] += 1
        if looks[0] == 2:
            ending.close()
        if looks[0] <= 3:
            clock.passed_s += 1.1 * FAILS_MAX_S
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "metadata")
        return Catalog.version(server.catalog)

    monkeypatch.setattr(server.catalog, "version", version)
    ending.session_timeout_s = 10.0
    Supervisor(
        tables,
        EventWaker(),
        Counters(),
        open_session=lambda: server.keeper() if looks[0] > 1 else ending,
        loops=None,
        should_stop=lambda: looks[0] > 3,
    ).run()
    assert looks == [4]


def served(session) -> tuple[Tables, StillClock]:
    """The tables as a server has them that has just come into the session."""
    server, clock = session.context.server, StillClock()
    identity = Identity("r1", "2", Address("127.0.0.1", 1))
    tables = Tables(server.catalog, clock, RandomIds(), identity, lambda: None)
    tables.follow_catalog(server.keeper())
    return tables, clock


@pytest.mark.parametrize("landed", [False, True])
def test_a_table_that_is_detached_without_an_answer_is_not_active_for_long(session, landed):
    """Else others wait for its replica for as long as the session lives, and nobody notes that it
    is detached.
    """
    server, (tables, _) = session.context.server, served(session)
    keeper = server.keeper()
    tables.look(keeper)
    assert keeper.exists(ACTIVE) is not None
    server.catalog.detach("default", "t")

    def leaves(op: Op) -> bool:
        return isinstance(op, Delete) and op.path == ACTIVE

    with faulty(keeper, leaves, landed=landed):
        tables.follow_catalog(keeper)
    tables.look(keeper)
    assert keeper.exists(ACTIVE) is None
    assert keeper.get(f"{ACTIVE.rpartition('/')[0]}/detached")[0] == b"detached"


@pytest.mark.parametrize("error", [DiskFull("no space"), OSError(errno.EIO, "the disk")])
@pytest.mark.parametrize("note", ["remember_log", "remember_replicas", "note_active"])
def test_a_table_of_which_nothing_can_be_noted_on_the_disk_is_not_active(
    session, monkeypatch, note, error
):
    """Its server does not serve it: others would wait for it, and clients insert here."""

    def fails(_: object) -> None:
        raise error

    keeper, (tables, clock) = session.context.server.keeper(), served(session)
    with monkeypatch.context() as failing:
        failing.setattr(tables_module, note, fails)
        tables.look(keeper)
    assert tables.replicas() == []
    assert keeper.exists(ACTIVE) is None
    clock.passed_s += tables.next_look_s()
    tables.look(keeper)
    assert len(tables.replicas()) == 1
    assert keeper.exists(ACTIVE) is not None


def test_a_table_that_could_not_begin_is_not_active_when_it_is_detached(session, monkeypatch):
    """That it is not was not answered. It would be for as long as the session lives."""
    server, (tables, _) = session.context.server, served(session)
    keeper = server.keeper()

    def leaves(op: Op) -> bool:
        return isinstance(op, Delete) and op.path == ACTIVE

    def fails(_: object) -> None:
        raise DiskFull("no space")

    monkeypatch.setattr(tables_module, "remember_log", fails)
    with faulty(keeper, leaves, landed=False, after=1):  # of an earlier process
        tables.look(keeper)
    assert keeper.exists(ACTIVE) is not None
    server.catalog.detach("default", "t")
    tables.follow_catalog(keeper)
    assert keeper.exists(ACTIVE) is None


def test_a_detached_table_of_which_nothing_can_be_told_keeps_no_other_from_that(
    tmp_path, monkeypatch
):
    with session_with_two_tables(tmp_path) as session:
        server, clock = session.context.server, StillClock()
        keeper = server.keeper()
        keeper.multi([Delete(f"/tables/{name}/replicas/r1/is_active") for name in "tu"])
        server.catalog.detach("default", "t")
        server.catalog.detach("default", "u", permanently=True)
        identity = Identity("r1", "2", Address("127.0.0.1", 1))
        tables = Tables(server.catalog, clock, RandomIds(), identity, lambda: None)
        note = tables_module.note_detached

        def denied(keeper, definition, words):
            if definition.name == "t":
                raise AccessDenied("not for us")
            note(keeper, definition, words)

        monkeypatch.setattr(tables_module, "note_detached", denied)
        tables.follow_catalog(keeper)
        tables.look(keeper)
        assert keeper.get("/tables/u/replicas/r1/detached")[0] == b"detached permanently"
        monkeypatch.undo()
        clock.passed_s += tables.next_look_s()
        tables.look(keeper)
        assert keeper.get("/tables/t/replicas/r1/detached")[0] == b"detached"
