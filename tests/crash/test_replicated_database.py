"""A server dies at every effect of what a Replicated database asks of it: it starts again, and has
the database's tables, each once.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmt_pipeline.cluster.queue import clean_queue
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.sql.run.session import Session
from tests.support.databases import DATABASE, LATER, PATHS, TABLE, Node, Site
from tests.support.hosts import dying

EFFECTS_MAX = 300
FILE_EFFECTS = ("replace", "rename", "unlink", "rmdir", "link")
WIDER = TABLE.replace("n UInt64", "n UInt64, s String")
OTHER = TABLE.replace("d.t", "d.u")


def everywhere(
    tmp_path: Path,
    monkeypatch,
    prepare: Callable[[Site], Callable[[Callable], None]],
    survive: Callable[[Site, str], None],
    effects_min: int = 5,
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
            assert at > effects_min
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


def rename_all(site: Site) -> None:
    """In the end t has two columns and u one, as after `say_all`."""
    site.say("EXCHANGE TABLES d.t AND d.u", "r2", **LATER)
    site.say("RENAME TABLE d.u TO d.v", "r2", **LATER)
    site.say("DETACH TABLE d.v PERMANENTLY", "r2", **LATER)
    site.say("ATTACH TABLE d.v", "r2", **LATER)
    site.say("RENAME TABLE d.v TO d.u", "r2", **LATER)


def with_both(site: Site) -> None:
    site.start("r1", "r2")
    for name in ("r1", "r2"):
        site.say(DATABASE, name)
    site.say(TABLE)
    site.say(WIDER.replace("d.t", "d.u"))


def test_statements_that_rename_and_detach(tmp_path, monkeypatch):
    def prepare(site: Site):
        with_both(site)
        rename_all(site)
        site.nodes["r1"].loop = None
        return site.nodes["r1"].look

    everywhere(tmp_path, monkeypatch, prepare, has_all)


@pytest.mark.parametrize("statements", [1, 3])
def test_what_was_renamed_or_detached_is_found_by_comparing(tmp_path, monkeypatch, statements):
    """The log is forgotten while r1 is away, with the first ones of the statements in it."""

    def prepare(site: Site):
        with_both(site)
        said: list[str] = []
        for query in (
            "EXCHANGE TABLES d.t AND d.u",
            "RENAME TABLE d.u TO d.v",
            "DETACH TABLE d.v PERMANENTLY",
        )[:statements]:
            said.append(query)
            site.say(query, "r2", **LATER)
        site.running.remove(site.nodes["r1"])
        site.look()
        keeper, now_s = site.servers.zookeeper.connect(), site.servers.clock.now_s()
        clean_queue(keeper, PATHS.queue, now_s=now_s, lifetime_s=10**6, tasks_max=0)
        node = site.nodes["r1"]
        node.loop, node.worker = None, None
        return node.look

    def survive(site: Site, where: str) -> None:
        site.start("r1", "r2")
        site.look()
        site.look()
        if statements > 1:
            site.say("ATTACH TABLE d.v", "r2")
            site.say("RENAME TABLE d.v TO d.u", "r1")
        has_all(Started(site), where)

    everywhere(tmp_path, monkeypatch, prepare, survive)


@pytest.mark.parametrize(
    ("query", "after"),
    [
        ("EXCHANGE TABLES d.t AND d.u", {"t": 2, "u": 1}),
        ("RENAME TABLE d.t TO d.v", {"u": 2, "v": 1}),
        ("DETACH TABLE d.t PERMANENTLY", {"u": 2}),
    ],
)
def test_who_asks_dies(tmp_path, monkeypatch, query, after):
    """It is said everywhere or nowhere."""
    seen: list[bool] = []

    def prepare(site: Site):
        with_both(site)

        def act(mortal: Callable) -> None:
            with site.servers.session("r2", **LATER) as session:
                session.context.server.use(mortal(session.context.server.keeper()))
                session.execute(query)

        return act

    def survive(site: Site, where: str) -> None:
        site.start("r1", "r2")
        site.look()
        site.look()
        one, other = columns(site, "r1", "r2")
        assert one == other, where
        assert one in ({"t": 1, "u": 2}, after), where
        seen.append(one == after)
        assert site.nodes["r1"].tables("d_broken_tables") == [], where

    everywhere(tmp_path, monkeypatch, prepare, survive, effects_min=0)
    assert set(seen) == {False, True}


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
