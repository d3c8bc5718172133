"""A server dies at every effect of what a Replicated database asks of it: it starts again, and has
the database's tables, each once.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.sql.run.session import Session
from tests.support.databases import DATABASE, LATER, TABLE, Node, Site
from tests.support.hosts import dying

EFFECTS_MAX = 300
FILE_EFFECTS = ("replace", "rename", "unlink", "rmdir", "link")
WIDER = TABLE.replace("n UInt64", "n UInt64, s String")
OTHER = TABLE.replace("d.t", "d.u")


@pytest.fixture(autouse=True)
def _nobody_waits_for_the_disk(monkeypatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def everywhere(
    tmp_path: Path,
    monkeypatch,
    prepare: Callable[[Site], Callable[[Callable], None]],
    survive: Callable[[Site, str], None],
) -> None:
    """`prepare` gives what is to die; `survive` is what comes after it. At each of its effects."""
    for at in range(1, EFFECTS_MAX):
        site = Site(tmp_path / str(at), monkeypatch)
        act = prepare(site)
        ended = False
        with dying(monkeypatch, at, after=False, files=FILE_EFFECTS) as mortal:
            act(mortal)
            ended = True
        for session in list(site.servers.zookeeper.sessions):
            site.servers.zookeeper.expire(session)
        site.nodes.clear()
        site.running.clear()
        survive(site, f"died before effect {at}")
        if ended:
            assert at > 5
            return
    pytest.fail(f"{EFFECTS_MAX} effects, and it has not ended")


def columns(site: Site, *names: str) -> list[dict[str, int]]:
    """The tables of each server, and how many columns they have."""
    return [
        {
            table: len(site.nodes[name].catalog.definition("d", table).columns)
            for table in site.nodes[name].tables()
        }
        for name in names
    ]


def has_all(site: Site, where: str) -> None:
    site.start("r1", "r2")
    site.look()
    site.look()
    assert columns(site, "r1", "r2") == [{"t": 2, "u": 1}] * 2, where
    for node in site.running:
        assert node.tables("d_broken_tables") == [], where
        assert [t.reason for t in node.server.tables.all.values()] == ["", ""], where
    roots = {
        path.split("/replicas/")[0]
        for path in site.servers.zookeeper.nodes
        if path.startswith("/clickhouse/tables/") and "/replicas/" in path
    }
    assert len(roots) == 2, where  # of a table that was dropped, or half made, nothing is left


def say_all(site: Site) -> None:
    """P44. t is dropped and made anew, and u is made."""
    site.say("DROP TABLE d.t", "r2", **LATER)
    site.say(WIDER, "r2", **LATER)
    site.say(OTHER, "r2", **LATER)


def test_statements_of_the_log(tmp_path, monkeypatch):
    def prepare(site: Site):
        site.start("r1", "r2")
        for name in ("r1", "r2"):
            site.say(DATABASE, name)
        site.say(TABLE)
        say_all(site)
        site.nodes["r1"].loop = None
        return site.nodes["r1"].look

    everywhere(tmp_path, monkeypatch, prepare, has_all)


def test_a_new_server(tmp_path, monkeypatch):
    def prepare(site: Site):
        site.start("r2")
        site.say(DATABASE, "r2")
        site.say(TABLE, "r2")
        say_all(site)
        site.look()
        node = Node(site.servers, "r1")
        site.say(DATABASE, "r1")
        return node.look

    everywhere(tmp_path, monkeypatch, prepare, has_all)


def test_create_database(tmp_path, monkeypatch):
    def prepare(site: Site):
        def act(mortal: Callable) -> None:
            with site.servers.session("r1") as session:
                session.context.server.use(mortal(session.context.server.keeper()))
                session.execute(DATABASE)

        return act

    def survive(site: Site, where: str) -> None:
        site.start("r1", "r2")
        for name in ("r1", "r2"):
            site.say(DATABASE.replace("DATABASE d", "DATABASE IF NOT EXISTS d"), name)
        site.say(WIDER)
        site.say(OTHER)
        has_all(Started(site), where)

    everywhere(tmp_path, monkeypatch, prepare, survive)


class Started(Site):
    """Whose servers run already."""

    def __init__(self, site: Site) -> None:
        self.servers, self.nodes, self.running = site.servers, site.nodes, site.running

    def start(self, *names: str) -> None: ...


def test_drop_database(tmp_path, monkeypatch):
    """Of the last replica: nothing is left, here or in ZooKeeper."""

    def prepare(site: Site):
        site.start("r1")
        site.say(DATABASE)
        site.say(TABLE)

        def act(mortal: Callable) -> None:
            with site.servers.session("r1") as session:
                session.context.server.use(mortal(session.context.server.keeper()))
                session.execute("DROP DATABASE d SYNC")

        return act

    def survive(site: Site, where: str) -> None:
        with site.servers.session("r1") as session:
            if "d" in session.context.server.catalog.databases():
                again(session)
            left = [
                path
                for path in site.servers.zookeeper.nodes
                if path.startswith("/databases/") or "/replicas/" in path
                if "task_queue" not in path
            ]
            assert left == [], where
            session.execute(DATABASE)

    everywhere(tmp_path, monkeypatch, prepare, survive)


def again(session: Session) -> None:
    for _ in range(3):
        try:
            session.execute("DROP DATABASE d SYNC")
        except Conflict:
            continue
        return
