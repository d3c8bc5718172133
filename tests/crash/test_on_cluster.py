"""A server dies at every effect of a statement ON CLUSTER, on its disk and in ZooKeeper: it begins
again, and in the end the statement has happened once on each server, whatever came in between.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmt_pipeline.protocol.nodes.tasks import TaskOutcome
from rmt_pipeline.sql.run import tables as table_statements
from rmt_pipeline.sql.tasks import task as task_module
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.hosts import dying
from tests.support.servers import Server, Servers

EFFECTS_MAX = 200
FILE_EFFECTS = ("replace", "rename", "unlink", "rmdir", "link")
LATER = {"distributed_ddl_task_timeout": "0", "alter_sync": "0", "mutations_sync": "0"}

CREATE = """CREATE TABLE t ON CLUSTER c (n UInt64)
ENGINE = ReplicatedMergeTree('/tables/{shard}/t', '{replica}') ORDER BY n"""
OTHER = CREATE.replace("TABLE t", "TABLE u").replace("/t'", "/u'")
PRIVATE = "CREATE TABLE t ON CLUSTER c (n UInt64) ENGINE = MergeTree ORDER BY n"


@dataclass(frozen=True)
class Scenario:
    query: str
    before: tuple[str, ...] = (CREATE,)
    effects_min: int = 5


SCENARIOS = {
    "create": Scenario(CREATE, (), 8),
    "create of one copy": Scenario(PRIVATE, (), 8),
    "create database": Scenario("CREATE DATABASE d ON CLUSTER c", ()),
    "drop": Scenario("DROP TABLE t ON CLUSTER c SYNC", effects_min=15),
    "drop of two": Scenario(
        "DROP TABLE t, u ON CLUSTER c", (CREATE, OTHER)
    ),
    "detach": Scenario("DETACH TABLE t ON CLUSTER c"),
    "attach": Scenario("ATTACH TABLE t ON CLUSTER c", (CREATE, "DETACH TABLE t ON CLUSTER c")),
    "rename": Scenario("RENAME TABLE t TO v ON CLUSTER c"),
    "rename in a circle": Scenario(
        "RENAME TABLE t TO v, u TO t, v TO u ON CLUSTER c", (CREATE, OTHER)
    ),
    "exchange": Scenario("EXCHANGE TABLES t AND u ON CLUSTER c", (CREATE, OTHER)),
    "rename database": Scenario(
        "RENAME DATABASE d TO e ON CLUSTER c",
        ("CREATE DATABASE d ON CLUSTER c", CREATE.replace("TABLE t", "TABLE d.t")),
    ),
    "drop database": Scenario(
        "DROP DATABASE d ON CLUSTER c",
        ("CREATE DATABASE d ON CLUSTER c", CREATE.replace("TABLE t", "TABLE d.t")),
    ),
    "alter": Scenario("ALTER TABLE t ON CLUSTER c ADD COLUMN s String"),
    "alter of one copy": Scenario("ALTER TABLE t ON CLUSTER c ADD COLUMN s String", (PRIVATE,)),
    "setting": Scenario("ALTER TABLE t ON CLUSTER c MODIFY SETTING parts_to_throw_insert = 7"),
    "mutation": Scenario("ALTER TABLE t ON CLUSTER c DELETE WHERE n = 1"),
    "truncate": Scenario("TRUNCATE TABLE t ON CLUSTER c"),
    "two commands": Scenario(
        "ALTER TABLE t ON CLUSTER c DROP PARTITION ID 'all', DROP PARTITION ID 'all'"
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch) -> None:
    monkeypatch.setattr(table_statements, "ACTIVE_WAIT_S", 0.0)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def ask(servers: Servers, query: str) -> None:
    with servers.session("r3", **LATER) as session:
        session.execute(query)


def prepared(directory: Path, scenario: Scenario) -> tuple[Servers, Server, Server]:
    """What comes before has been done everywhere; each table has had a row; r1 is down."""
    servers = Servers(directory)
    r1, r2, r3 = [servers.start(name) for name in ("r1", "r2", "r3")]
    for query in scenario.before:
        ask(servers, query)
        for server in (r1, r2, r3):
            server.turn()
    keeper = servers.zookeeper.connect()
    for root in roots(servers):
        lock = keeper.multi(
            [
                Create(f"{root}/block_numbers/all"),
                Create(f"{root}/block_numbers/all/block-", sequence=True),
                Create(f"{root}/block_numbers/all/block-", sequence=True),
            ]
        )
        keeper.multi([Delete(lock[1]), Delete(lock[2])])
    servers.kill(r1)
    ask(servers, scenario.query)
    return servers, r2, r3


def roots(servers: Servers) -> list[str]:
    nodes = servers.zookeeper.nodes
    return sorted(
        path.removesuffix("/block_numbers") for path in nodes if path.endswith("/block_numbers")
    )


def state(servers: Servers, *running: Server) -> dict[str, object]:
    """What the servers have, and how often what was asked for happened to each table."""
    nodes = servers.zookeeper.nodes
    found: dict[str, object] = {
        server.name: [
            (name, [c.name for c in one.columns], [s for s in one.settings if s[0] != "uuid"])
            for name, one in (
                (one.full_name, one) for one in server.context.catalog.definitions()
            )
        ]
        + server.context.catalog.databases()
        for server in running
    }
    tables = [
        (
            len(nodes[f"{root}/log"].children),
            len(nodes[f"{root}/mutations"].children),
            nodes[f"{root}/metadata"].version,
            sorted(nodes[f"{root}/replicas"].children),
        )
        for root in roots(servers)
    ]
    task = max(nodes[servers.queue.root].children)
    outcomes = {
        name: TaskOutcome.decode(
            nodes[servers.queue.task(task).finished_on(servers.host(name))].data
        )
        for name in ("r1", "r2", "r3")
    }
    return found | {"tables": sorted(tables), "outcomes": outcomes}


def undisturbed(directory: Path, scenario: Scenario) -> dict[str, object]:
    servers, r2, r3 = prepared(directory, scenario)
    r1 = servers.start("r1")
    for server in (r1, r2, r3):
        server.turn()
    found = state(servers, r1, r2, r3)
    assert found["outcomes"] == {name: TaskOutcome() for name in ("r1", "r2", "r3")}
    return found


def cut_off_everywhere(
    tmp_path: Path, monkeypatch, scenario: Scenario
) -> Iterator[tuple[Servers, Server, Server, str]]:
    """A world for each place where r1 can die, its session over. It dies before an effect: after
    one nothing is else than before the next.
    """
    for at in range(1, EFFECTS_MAX):
        servers, r2, r3 = prepared(tmp_path / str(at), scenario)
        r1 = Server(servers, "r1")
        ended = False
        with dying(monkeypatch, at, after=False, files=FILE_EFFECTS) as mortal:
            r1.worker.keeper = mortal(r1.keeper)
            r1.worker.announce()
            r1.look()
            r1.worker.turn()
            ended = True
        if ended:
            assert at > scenario.effects_min, f"the statement has only {at - 1} effects"
            return
        servers.kill(r1)
        yield servers, r2, r3, f"died before effect {at}"
    pytest.fail(f"{EFFECTS_MAX} effects, and it has not ended")


@pytest.mark.parametrize("name", SCENARIOS)
def test_who_died_begins_again_and_it_happens_once(tmp_path, monkeypatch, name):
    scenario = SCENARIOS[name]
    wanted = undisturbed(tmp_path / "undisturbed", scenario)
    for servers, r2, r3, where in cut_off_everywhere(tmp_path, monkeypatch, scenario):
        r1 = servers.start("r1")
        for server in (r1, r2, r3):
            server.turn()
        assert state(servers, r1, r2, r3) == wanted, where
        assert r1.turn() == 0


@pytest.mark.parametrize("name", ["alter", "mutation", "truncate", "two commands"])
def test_another_replica_takes_over_and_it_happens_once(tmp_path, monkeypatch, name):
    scenario = SCENARIOS[name]
    wanted = undisturbed(tmp_path / "undisturbed", scenario)
    for servers, r2, r3, where in cut_off_everywhere(tmp_path, monkeypatch, scenario):
        for server in (r3, r2):
            server.turn()
        r1 = servers.start("r1")
        r1.turn()
        assert state(servers, r1, r2, r3) == wanted, where


def test_a_table_that_was_created_since_is_not_dropped_for_the_old_one(tmp_path, monkeypatch):
    survived = 0
    for servers, _, _, where in cut_off_everywhere(tmp_path, monkeypatch, SCENARIOS["drop"]):
        with servers.session("r1") as session:
            catalog = session.context.server.catalog
            dropped = not catalog.has("default", "t") and not catalog.is_dropping(
                "default", "t"
            )
            if dropped:
                session.execute(CREATE.replace("ON CLUSTER c ", ""))
        r1 = servers.start("r1")
        r1.turn()
        assert r1.context.catalog.has("default", "t") == dropped, where
        survived += dropped
    assert survived >= 2


@pytest.mark.parametrize("name", ["alter", "mutation", "truncate", "setting"])
def test_another_table_that_has_the_name_since_is_left_alone(tmp_path, monkeypatch, name):
    scenario = Scenario(SCENARIOS[name].query, (CREATE, OTHER))
    refused = 0
    for servers, _, _, where in cut_off_everywhere(tmp_path, monkeypatch, scenario):
        task = max(servers.zookeeper.nodes[servers.queue.root].children)
        paths = servers.queue.task(task)
        had_begun = paths.begun_on(servers.host("r1")) in servers.zookeeper.nodes
        is_done = paths.finished_on(servers.host("r1")) in servers.zookeeper.nodes
        with servers.session("r1") as session:
            session.execute("EXCHANGE TABLES t AND u")
        other = touched(servers, "/tables/1/u")
        r1 = servers.start("r1")
        settings = r1.context.catalog.definition("default", "t").settings
        r1.turn()
        if had_begun and not is_done:
            assert touched(servers, "/tables/1/u") == other, where
            assert r1.context.catalog.definition("default", "t").settings == settings, where
            finished = servers.zookeeper.nodes[paths.finished_on(servers.host("r1"))].data
            assert TaskOutcome.decode(finished).code == "UNFINISHED", where
            refused += 1
    assert refused >= 2


def touched(servers: Servers, root: str) -> tuple[int, int]:
    """How many entries are in the log of this table, and how many mutations."""
    nodes = servers.zookeeper.nodes
    return len(nodes[f"{root}/log"].children), len(nodes[f"{root}/mutations"].children)


def test_the_marks_are_what_makes_it_happen_once(tmp_path, monkeypatch):
    """A bug planted: without them, what was done is done again."""
    monkeypatch.setattr(task_module, "MarkedKeeper", lambda keeper, _: keeper)
    scenario = SCENARIOS["truncate"]
    wanted = undisturbed(tmp_path / "undisturbed", scenario)
    assert is_ever_else(tmp_path, monkeypatch, scenario, wanted)


def is_ever_else(
    tmp_path: Path, monkeypatch, scenario: Scenario, wanted: dict[str, object]
) -> bool:
    for servers, r2, r3, _ in cut_off_everywhere(tmp_path, monkeypatch, scenario):
        r1 = servers.start("r1")
        for server in (r1, r2, r3):
            server.turn()
        if state(servers, r1, r2, r3) != wanted:
            return True
    return False


@pytest.mark.parametrize("name", ["drop", "create database", "drop database"])
def test_the_names_before_are_what_makes_it_happen_once(tmp_path, monkeypatch, name):
    """A bug planted: without them, who begins again fails, since it is done."""
    monkeypatch.setattr(task_module.StatementCarrier, "_has_happened", lambda *_: False)
    scenario = SCENARIOS[name]
    wanted = undisturbed(tmp_path / "undisturbed", scenario)
    assert is_ever_else(tmp_path, monkeypatch, scenario, wanted)


@pytest.mark.parametrize("made_again", [False, True])
def test_tables_made_since_are_not_dropped_with_their_database(
    tmp_path, monkeypatch, made_again
):
    """`made_again`: the database was dropped before its server died, and another has its name."""
    survived = 0
    scenario = SCENARIOS["drop database"]
    create = CREATE.replace("ON CLUSTER c ", "").replace("TABLE t", "TABLE d.s")
    create = create.replace("/t'", "/s'")
    for servers, _, _, where in cut_off_everywhere(tmp_path, monkeypatch, scenario):
        task = servers.queue.task(max(servers.zookeeper.nodes[servers.queue.root].children))
        nodes, host = servers.zookeeper.nodes, servers.host("r1")
        if task.begun_on(host) not in nodes or task.finished_on(host) in nodes:
            continue
        with servers.session("r1") as session:
            is_gone = "d" not in session.context.server.catalog.databases()
            if is_gone != made_again:
                continue
            session.execute("CREATE DATABASE IF NOT EXISTS d")
            session.execute(create)
        r1 = servers.start("r1")
        r1.turn()
        assert r1.context.catalog.has("d", "s"), where
        outcome = TaskOutcome.decode(nodes[task.finished_on(host)].data)
        assert outcome.code == "UNFINISHED", where
        assert "d.s" in outcome.message, where
        survived += 1
    assert survived >= 1
