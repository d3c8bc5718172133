"""SYSTEM RESTORE DATABASE REPLICA dies at every effect that it has: said again, on each server, the
database is there with all its tables.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from rmt_pipeline.catalog.replicated import replicated_database
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.sql.run.databases import restore_lost
from rmt_pipeline.zookeeper.keeper import Refused
from tests.crash.test_replicated_database import OTHER, TABLE, columns, everywhere, with_both
from tests.support.between_requests import BeforeRequest
from tests.support.databases import Site
from tests.unit.cluster.test_lost_database import lose_zookeeper

REQUESTS_MAX = 60


class Slow(BeforeRequest):
    """What a server's context takes for a session."""

    @property
    def is_retired(self) -> bool:
        return bool(self.session.is_retired)


def lost(site: Site) -> None:
    """Each server has t and u; and v, which is detached for good."""
    with_both(site)
    site.say(TABLE.replace("d.t", "d.v"))
    site.say("DETACH TABLE d.v PERMANENTLY")
    lose_zookeeper(site)


def restore(site: Site, name: str, mortal: Callable = lambda keeper: keeper) -> None:
    """In a process of its own, which does not wait for the server."""
    with site.servers.session(name) as session:
        server = session.context.server
        server.use(mortal(server.keeper()))
        found = replicated_database(server.catalog, "d")
        assert found is not None
        with suppress(NothingToRestore):
            assert restore_lost(server, "d", found) == ""


def is_there(site: Site, where: str) -> None:
    """On both servers, and statements about its tables are carried out on both."""
    for name in ("r1", "r2"):
        restore(site, name)
    site.start("r1", "r2")
    site.look()
    assert columns(site, "r1", "r2") == [{"t": 1, "u": 2}] * 2, where
    site.say("ATTACH TABLE d.v", "r2")
    site.say(OTHER.replace("d.u", "d.w"))
    site.look()
    assert columns(site, "r1", "r2") == [{"t": 1, "u": 2, "v": 1, "w": 1}] * 2, where
    assert [node.tables("d_broken_tables") for node in site.running] == [[], []], where


@pytest.mark.parametrize("who", ["r1", "r2"])
def test_whoever_comes_next_goes_on(tmp_path, monkeypatch, who):
    """r2 comes when r1 has restored it. Whoever dies, its server looks before it is said again."""

    def prepare(site: Site):
        lost(site)
        if who == "r2":
            restore(site, "r1")
        return partial(restore, site, who)

    def survive(site: Site, where: str) -> None:
        site.start(who)
        with suppress(Exception):  # it says what is to be done
            site.look()
        site.stop(who)
        is_there(site, where)

    everywhere(tmp_path, monkeypatch, prepare, survive, effects_min=3)


@pytest.mark.parametrize("other", ["r1", "r2"])
def test_two_that_restore_it_at_once_end_as_one(tmp_path, monkeypatch, other):
    """Between any two requests of r1 the database is restored on r2, or by another process of r1;
    its server has looked by then.
    """
    for number in range(REQUESTS_MAX):
        site = Site(tmp_path / str(number), monkeypatch)
        lost(site)
        sessions: list[Slow] = []

        def meanwhile(site: Site = site) -> None:
            restore(site, other)
            site.start(other)
            site.look()
            site.stop(other)

        def slow(keeper, number: int = number, sessions=sessions, meanwhile=meanwhile):
            sessions.append(Slow(keeper, number, meanwhile))
            return sessions[0]

        with suppress(Refused):
            restore(site, "r1", slow)
        is_there(site, f"{other} came before request {number}")
        if not sessions[0].has_come:
            break
    assert 5 < number < REQUESTS_MAX - 1
