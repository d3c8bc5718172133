"""ON CLUSTER over three servers in this process: what is asked, who does it, what is answered."""

import re
from contextlib import nullcontext

import pytest

from rmt_pipeline.cluster.queue import clean_queue
from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.protocol.errors import (
    Corruption,
    NotOnCluster,
    OutcomeUnknown,
    ReplicaRetired,
    SyntaxProblem,
    Unavailable,
    UnknownCluster,
)
from rmt_pipeline.protocol.nodes.tasks import NamesBefore, Task, TaskOutcome
from rmt_pipeline.protocol.settings.setting import BadSetting
from rmt_pipeline.replica.wait import ANSWER_PAUSES_S, WAIT_SLICE_S
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import work
from rmt_pipeline.replica.work.pools import POOLS
from rmt_pipeline.sql.formats.rows import Done, Rows
from rmt_pipeline.sql.run import on_cluster, tables
from rmt_pipeline.sql.run.on_cluster import FailedOnServer, StillDue
from rmt_pipeline.sql.tasks import task
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Create, Delete
from tests.support.local_replicas import ClockWaker
from tests.support.servers import Server, Servers

CREATE = """CREATE TABLE t ON CLUSTER c (n UInt64)
ENGINE = ReplicatedMergeTree('/tables/{shard}/t', '{replica}') ORDER BY n"""


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch) -> None:
    """A table is active when its server looks, which here is after the statement."""
    monkeypatch.setattr(tables, "ACTIVE_WAIT_S", 0.0)


@pytest.fixture
def servers(tmp_path) -> Servers:
    return Servers(tmp_path)


class Working:
    """Who waits has the servers work meanwhile, one after the other; and time passes."""

    def __init__(self, servers: Servers, running: list[Server]) -> None:
        self.servers, self.running = servers, running

    def __call__(self) -> "Working":
        return self

    def wake(self) -> None: ...

    def wait_s(self, timeout_s: float) -> bool:
        if not sum(server.turn() for server in self.running):
            self.servers.clock.passed_s += timeout_s
        return True


def ask(servers: Servers, running: list[Server], query: str, monkeypatch, **settings: str):
    monkeypatch.setattr(on_cluster, "EventWaker", Working(servers, running))
    with servers.session(**settings) as session:
        return session.execute(query)


def rows(answer) -> list[tuple[object, ...]]:
    assert isinstance(answer, Rows)
    return [
        values
        for batch in answer.batches
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def select(servers: Servers, query: str) -> list[tuple[object, ...]]:
    with servers.session() as session:
        return rows(session.execute(query))


def start(servers: Servers, *names: str) -> list[Server]:
    return [servers.start(name) for name in names or ("r1", "r2", "r3")]


def test_every_server_makes_the_table_and_answers_with_a_row(servers, monkeypatch):
    running = start(servers)
    answer = ask(servers, running, CREATE, monkeypatch)
    assert [column.name for column in answer.columns] == [
        "host", "port", "status", "error", "num_hosts_remaining", "num_hosts_active",
    ]  # fmt: skip
    assert rows(answer) == [
        ("127.0.0.1", 20001, 0, "", 2, 0),
        ("127.0.0.1", 20002, 0, "", 1, 0),
        ("127.0.0.1", 20003, 0, "", 0, 0),
    ]
    assert all(server.context.catalog.has("default", "t") for server in running)
    assert len({server.uuid_of("t") for server in running}) == 3
    assert servers.zookeeper.nodes.keys() >= {
        "/tables/1/t/replicas/r1",
        "/tables/1/t/replicas/r2",
        "/tables/2/t/replicas/r3",
    }


def test_a_macro_names_the_cluster(servers, monkeypatch):
    running = start(servers)
    answer = ask(servers, running, "CREATE DATABASE d ON CLUSTER '{cluster}'", monkeypatch)
    assert len(rows(answer)) == 3
    assert all("d" in server.context.catalog.databases() for server in running)


def test_statements_are_carried_out_in_their_order(servers, monkeypatch):
    running = start(servers)
    later = {"distributed_ddl_task_timeout": "0"}
    for query in (
        CREATE,
        "DROP TABLE t ON CLUSTER c SYNC",
        CREATE.replace("n UInt64", "n UInt64, s String"),
    ):
        answer = ask(servers, running, query, monkeypatch, **later)
        assert isinstance(answer, Done)
        assert "in the queue of cluster c" in answer.note
    for server in reversed(running):
        assert server.turn() == 3
        definition = server.context.catalog.definition("default", "t")
        assert [column.name for column in definition.columns] == ["n", "s"]


def test_the_database_and_the_settings_of_the_session_go_along(servers, monkeypatch):
    running = start(servers)
    ask(servers, running, "CREATE DATABASE d ON CLUSTER c", monkeypatch)
    monkeypatch.setattr(on_cluster, "EventWaker", Working(servers, running))
    with servers.session(flatten_nested="0") as session:
        session.execute("USE d")
        session.execute(
            "CREATE TABLE t ON CLUSTER c (n UInt64, m Nested(a UInt8)) "
            "ENGINE = ReplicatedMergeTree('/d/{shard}', '{replica}') ORDER BY n"
        )
    for server in running:
        columns = server.context.catalog.definition("d", "t").columns
        assert [column.name for column in columns] == ["n", "m"]


def test_one_replica_of_a_table_alters_it_and_the_others_wait(servers, monkeypatch):
    running = start(servers)
    ask(servers, running, CREATE, monkeypatch)
    ask(
        servers,
        running,
        "ALTER TABLE t ON CLUSTER c ADD COLUMN s String",
        monkeypatch,
        alter_sync="0",
    )
    for root in ("/tables/1/t", "/tables/2/t"):
        assert servers.zookeeper.nodes[f"{root}/metadata"].version == 1
        assert len(servers.zookeeper.nodes[f"{root}/log"].children) == 1


class Queues:
    """Who waits has this server's queues worked meanwhile, if anybody works them; time passes."""

    def __init__(self, servers: Servers, name: str, works: bool = True) -> None:
        self.servers, self.name, self.works, self.waited_s = servers, name, works, 0.0

    def wake(self) -> None: ...

    def wait_s(self, timeout_s: float) -> bool:
        self.waited_s += timeout_s
        self.servers.clock.passed_s += timeout_s
        with self.servers.session(self.name) as session:
            server, clock = session.context.server, self.servers.clock
            for definition in server.catalog.definitions() if self.works else ():
                tools = Tools(server.peers(definition), LocalMerger(clock), LocalMutator(clock))
                for pool in POOLS:
                    work(
                        lambda one=definition: server.replica(one),
                        tools,
                        pool,
                        waker=ClockWaker(clock),
                        linger_s=1.0,
                        select=pool == "merge",
                        on_flush=lambda _: None,
                        should_stop=lambda: False,
                    )
        return True


def asked_of_two(
    servers: Servers,
    monkeypatch,
    query: str,
    *,
    works: bool = True,
    dies: bool = False,
    **settings: str,
) -> tuple[Server, Server, Queues]:
    """r1 carries the statement out, and waits for itself, or dies when it is about to. r2, which
    has a row, is yet to look.
    """
    running = start(servers, "r1", "r2")
    # Time passes at each look of who waits for r1's threads: when they are slow, an hour.
    longest = {"distributed_ddl_task_timeout": "0", "receive_timeout": "1000000"}
    later = {**longest, **settings}
    ask(servers, running, CREATE, monkeypatch, **later)
    for server in running:
        server.turn()
    if query != MUTATION:
        with servers.session("r2") as session:
            session.execute("INSERT INTO t VALUES (1)")
        Queues(servers, "r2").wait_s(0.0)
    ask(servers, running, query, monkeypatch, **later)
    one, other = running

    def wait_s(_: EventWaker, timeout_s: float) -> bool:
        if dies:
            raise ReplicaRetired("killed")
        return Queues(servers, "r1").wait_s(timeout_s)

    with monkeypatch.context() as patch:
        patch.setattr(EventWaker, "wait_s", wait_s)
        with pytest.raises(ReplicaRetired) if dies else nullcontext():
            one.turn()
    waker = other.worker.carrier()._waker = Queues(servers, "r2", works)
    return one, other, waker


def outcome(servers: Servers, name: str) -> TaskOutcome:
    task = servers.queue.task(last_task(servers))
    finished = servers.zookeeper.nodes[task.finished_on(servers.host(name))]
    return TaskOutcome.decode(finished.data)


def last_task(servers: Servers) -> str:
    return max(servers.zookeeper.nodes[servers.queue.root].children)


def seen(servers: Servers, name: str) -> tuple[list[str], int]:
    """What a SELECT there sees: columns, and how many rows."""
    with servers.session(name) as session:
        answer = session.execute("SELECT * FROM t")
        assert isinstance(answer, Rows)
        columns = [column.name for column in answer.columns]
        return columns, sum(batch.num_rows for batch in answer.batches)


MUTATION = "ALTER TABLE t ON CLUSTER c DELETE WHERE n = 1 SETTINGS mutations_sync = 1"
STATEMENTS = {
    "ALTER TABLE t ON CLUSTER c ADD COLUMN s String": (["n", "s"], 1),
    "TRUNCATE TABLE t ON CLUSTER c": (["n"], 0),
    "ALTER TABLE t ON CLUSTER c DROP PARTITION ID 'all'": (["n"], 0),
    MUTATION: (["n"], 0),
}


@pytest.mark.parametrize("query", STATEMENTS)
def test_who_did_not_carry_it_out_answers_when_it_is_so_there_too(servers, monkeypatch, query):
    """A SELECT on such a server, right after the statement, said that there is no column s."""
    _, other, waker = asked_of_two(servers, monkeypatch, query)
    assert seen(servers, "r2") != STATEMENTS[query] or query == MUTATION
    other.turn()
    assert seen(servers, "r2") == STATEMENTS[query]
    assert waker.waited_s > 0, outcome(servers, "r2")
    assert outcome(servers, "r2") == TaskOutcome()


@pytest.mark.parametrize("name", ["r1", "r2"])
@pytest.mark.parametrize("query", STATEMENTS)
def test_who_finds_it_carried_out_by_one_that_died_answers_when_it_is_so_there(
    servers, monkeypatch, query, name
):
    """Another replica, or the same one in its next session: nobody has waited for it there."""
    one, other, _ = asked_of_two(servers, monkeypatch, query, dies=True)
    server = one if name == "r1" else other
    waker = server.worker.carrier()._waker = Queues(servers, name)
    server.turn()
    (columns, count), (wanted, most) = seen(servers, name), STATEMENTS[query]
    assert (columns, outcome(servers, name)) == (wanted, TaskOutcome())
    assert count <= most, "r1 may have no row yet"
    assert waker.waited_s > 0


def test_whose_session_ends_while_it_waits_is_done_with_that_at_once(servers, monkeypatch):
    """Its next session looks at it anew, and comes to the statements after it. It asked for 19 s
    more, although no later session could be asked.
    """
    [one] = running = start(servers, "r1")
    later = {"distributed_ddl_task_timeout": "0"}
    ask(servers, running, CREATE, monkeypatch, **later)
    one.turn()
    ask(
        servers, running, "ALTER TABLE t ON CLUSTER c ADD COLUMN s String", monkeypatch, **later
    )
    waits: list[float] = []

    def wait_s(_: EventWaker, timeout_s: float) -> bool:
        if not waits:
            servers.zookeeper.expire(one.keeper.session_id)
        waits.append(timeout_s)
        return True

    monkeypatch.setattr(EventWaker, "wait_s", wait_s)
    with pytest.raises(ReplicaRetired):
        one.turn()
    assert sum(waits) <= WAIT_SLICE_S + ANSWER_PAUSES_S[0]


@pytest.mark.parametrize("query", STATEMENTS)
def test_who_waits_for_a_queue_that_nobody_works_says_so_in_the_end(
    servers, monkeypatch, query
):
    """It has not failed, and what comes after it is not held up for longer."""
    _, other, waker = asked_of_two(
        servers, monkeypatch, query, works=False, receive_timeout="600"
    )
    other.turn()
    assert outcome(servers, "r2").code == "UNFINISHED", outcome(servers, "r2")
    task = servers.zookeeper.nodes[servers.queue.task(last_task(servers)).root]
    assert waker.waited_s > 0
    assert 600 <= servers.clock.now_s() - task.created_ms / 1000 < 610
    assert seen(servers, "r2") == (["n"], query != MUTATION)


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE t ON CLUSTER c ADD COLUMN s String SETTINGS alter_sync = 0",
        "ALTER TABLE t ON CLUSTER c DROP PARTITION ID 'all' SETTINGS alter_sync = 0",
        "ALTER TABLE t ON CLUSTER c DELETE WHERE n = 1",
    ],
)
def test_who_is_not_to_wait_does_not(servers, monkeypatch, query):
    _, other, waker = asked_of_two(servers, monkeypatch, query, works=False)
    other.turn()
    assert (outcome(servers, "r2"), waker.waited_s) == (TaskOutcome(), 0)


def test_who_comes_when_nobody_is_answered_any_more_waits_for_nothing(servers, monkeypatch):
    """It was away, and goes through all that it has missed."""
    query = "ALTER TABLE t ON CLUSTER c ADD COLUMN s String"
    _, other, waker = asked_of_two(
        servers, monkeypatch, query, works=False, receive_timeout="300"
    )
    servers.clock.passed_s += 301
    other.turn()
    assert (outcome(servers, "r2"), waker.waited_s) == (TaskOutcome(), 0)


@pytest.mark.parametrize("how", ["DROP", "DETACH"])
def test_nobody_waits_for_a_table_that_is_not_there_any_more(servers, monkeypatch, how):
    query = "ALTER TABLE t ON CLUSTER c ADD COLUMN s String"
    _, other, waker = asked_of_two(servers, monkeypatch, query, works=False)

    def removed(timeout_s: float) -> bool:
        with servers.session("r2") as session:
            session.execute(f"{how} TABLE IF EXISTS t")
        servers.clock.passed_s += timeout_s
        waker.waited_s += timeout_s
        return True

    waker.wait_s = removed
    other.turn()
    assert outcome(servers, "r2").code in ("", "UNKNOWN_TABLE")
    assert waker.waited_s < 10


def test_who_waits_stops_with_its_server(servers, monkeypatch):
    query = "ALTER TABLE t ON CLUSTER c ADD COLUMN s String"
    _, other, waker = asked_of_two(servers, monkeypatch, query, works=False)
    carrier = other.worker.carrier()
    carrier._should_stop = lambda: waker.waited_s > 0
    with pytest.raises(Unavailable, match="the server is stopping"):
        other.turn()
    carrier._should_stop, waker.works = lambda: False, True
    assert other.turn() == 1
    assert outcome(servers, "r2") == TaskOutcome()
    assert seen(servers, "r2") == (["n", "s"], 1)


def test_settings_of_a_table_are_altered_on_every_server(servers, monkeypatch):
    running = start(servers)
    ask(servers, running, CREATE, monkeypatch)
    query = "ALTER TABLE t ON CLUSTER c MODIFY SETTING parts_to_throw_insert = 7"
    ask(servers, running, query, monkeypatch)
    for server in running:
        definition = server.context.catalog.definition("default", "t")
        assert dict(definition.settings)["parts_to_throw_insert"] == "7"


def test_a_snapshot_is_made_by_every_server(servers, monkeypatch):
    running = start(servers)
    ask(servers, running, CREATE, monkeypatch)
    shadows = [server.context.server.data / "shadow" for server in running]
    ask(servers, running, "ALTER TABLE t ON CLUSTER c FREEZE WITH NAME 'n'", monkeypatch)
    assert all((shadow / "n" / "data" / "default" / "t").is_dir() for shadow in shadows)
    ask(servers, running, "SYSTEM UNFREEZE ON CLUSTER c WITH NAME 'n'", monkeypatch)
    assert [list(shadow.iterdir()) for shadow in shadows] == [[], [], []]


def test_a_servers_error_is_the_answers(servers, monkeypatch):
    running = start(servers)
    with servers.session("r2") as session:
        session.execute("CREATE DATABASE d")
    with pytest.raises(FailedOnServer) as raised:
        ask(servers, running, "CREATE DATABASE d ON CLUSTER c", monkeypatch)
    assert raised.value.code == "DATABASE_ALREADY_EXISTS"
    words = str(raised.value)
    assert "r2 (127.0.0.1:20002): database 'd' already exists" in words
    assert "r1 (127.0.0.1:20001): done" in words
    answer = ask(
        servers,
        running,
        "CREATE DATABASE d ON CLUSTER c",
        monkeypatch,
        distributed_ddl_output_mode="never_throw",
    )
    assert [(row[2], row[3]) for row in rows(answer)] == [
        (82, "Code: DATABASE_ALREADY_EXISTS. database 'd' already exists")
    ] * 3


LONG = "x" * 250  # longer, as a file name, than there may be


@pytest.mark.parametrize(
    "query",
    [
        CREATE.replace("TABLE t", f"TABLE {LONG}"),
        f"DROP TABLE {LONG} ON CLUSTER c",
        f"TRUNCATE TABLE {LONG} ON CLUSTER c",
        f"RENAME TABLE t TO {LONG} ON CLUSTER c",
        f"CREATE DATABASE {LONG} ON CLUSTER c",
        f"DROP DATABASE {LONG} ON CLUSTER c",
        "DROP TABLE broken ON CLUSTER c",
    ],
)
def test_a_name_that_no_table_has_holds_up_no_other_statement(servers, monkeypatch, query):
    running = start(servers)
    for server in running:
        broken = server.context.catalog.data / "metadata" / "default" / "broken.json"
        broken.write_text("no definition")
    with pytest.raises(FailedOnServer, match=r"too long for a file name|broken"):
        ask(servers, running, query, monkeypatch)
    answer = ask(servers, running, "CREATE DATABASE d ON CLUSTER c", monkeypatch)
    assert [row[2] for row in rows(answer)] == [0, 0, 0]


def test_a_server_that_does_not_run_is_named_and_does_it_when_it_starts(servers, monkeypatch):
    running = start(servers, "r1", "r3")
    with pytest.raises(StillDue) as raised:
        ask(servers, running, CREATE, monkeypatch)
    assert raised.value.code == "TIMEOUT_EXCEEDED"
    words = str(raised.value)
    assert (
        "r2 (127.0.0.1:20002): still due, and its server does not run: start it with rmt serve"
        in words
    )
    assert 180 <= servers.clock.passed_s < 190
    late = servers.start("r2")
    assert late.turn() == 1
    assert late.context.catalog.has("default", "t")
    assert late.turn() == 0


def test_a_statement_s_own_settings_say_how_long_it_is_waited_for(servers, monkeypatch):
    running = start(servers)
    ask(servers, running, CREATE, monkeypatch)
    for statement in ("TRUNCATE TABLE t ON CLUSTER c", "ALTER TABLE t ON CLUSTER c FREEZE"):
        own = f"{statement} SETTINGS distributed_ddl_task_timeout = 0"
        assert "is in the queue" in str(ask(servers, running, own, monkeypatch))
        wrong = f"{statement} SETTINGS distributed_ddl_output_mode = 'loud'"
        with pytest.raises(BadSetting, match="'loud' is no distributed_ddl_output_mode"):
            ask(servers, running, wrong, monkeypatch)


@pytest.mark.parametrize(
    ("mode", "statuses"),
    [
        ("null_status_on_timeout", [0, 0, None]),
        ("never_throw", [0, 0, None]),
        ("throw_only_active", [0, 0]),
        ("null_status_on_timeout_only_active", [0, 0]),
    ],
)
def test_output_modes_without_an_error(servers, monkeypatch, mode, statuses):
    running = start(servers, "r1", "r3")
    answer = ask(servers, running, CREATE, monkeypatch, distributed_ddl_output_mode=mode)
    assert [row[2] for row in rows(answer)] == statuses


def test_output_modes_without_rows(servers, monkeypatch):
    running = start(servers, "r1", "r3")
    none = {"distributed_ddl_output_mode": "none"}
    with pytest.raises(StillDue):
        ask(servers, running, CREATE, monkeypatch, **none)
    only = {"distributed_ddl_output_mode": "none_only_active"}
    query = "CREATE DATABASE e ON CLUSTER c"
    assert ask(servers, running, query, monkeypatch, **only) == Done()


def test_a_negative_timeout_waits_as_long_as_it_takes(servers, monkeypatch):
    running = start(servers, "r1", "r3")
    late: list[Server] = []

    class Patient(Working):
        def wait_s(self, timeout_s: float) -> bool:
            if self.servers.clock.passed_s > 10_000 and not late:
                late.append(self.servers.start("r2"))
                self.running.extend(late)
            self.servers.clock.passed_s += 500
            return super().wait_s(timeout_s)

    monkeypatch.setattr(on_cluster, "EventWaker", Patient(servers, running))
    with servers.session(distributed_ddl_task_timeout="-1") as session:
        assert len(rows(session.execute(CREATE))) == 3
    assert servers.clock.passed_s > 10_000


def test_an_unknown_output_mode_is_refused_before_anything_is_asked(servers, monkeypatch):
    with pytest.raises(BadSetting, match="null_status_on_timeout"):
        ask(servers, [], CREATE, monkeypatch, distributed_ddl_output_mode="always")
    assert servers.queue.root not in servers.zookeeper.nodes


def test_an_unknown_cluster_is_refused_with_those_that_there_are(servers, monkeypatch):
    with pytest.raises(UnknownCluster, match=r"no cluster 'x' .*clusters: c"):
        ask(servers, [], CREATE.replace("CLUSTER c", "CLUSTER x"), monkeypatch)


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO t ON CLUSTER c VALUES (1)",
        "SHOW CREATE TABLE t ON CLUSTER c",
        "DESCRIBE TABLE t ON CLUSTER c",
        "SYSTEM DROP REPLICA ON CLUSTER c 'r2' FROM TABLE t",
        "CREATE TABLE t ON CLUSTER c ENGINE = MergeTree ORDER BY n AS SELECT 1 AS n",
    ],
)
def test_what_cannot_be_on_cluster_says_so(servers, monkeypatch, query):
    with pytest.raises(NotOnCluster, match="ON CLUSTER"):
        ask(servers, [], query, monkeypatch)
    assert servers.queue.root not in servers.zookeeper.nodes


def test_on_cluster_twice_is_a_mistake(servers, monkeypatch):
    with pytest.raises(SyntaxProblem, match="only once"):
        ask(servers, [], "DROP TABLE a ON CLUSTER c, b ON CLUSTER c", monkeypatch)


def test_system_clusters_shows_shards_replicas_and_who_runs(servers):
    start(servers, "r1", "r3")
    columns = "shard_num, replica_num, server, port, is_local, is_active"
    assert select(servers, f"SELECT {columns} FROM system.clusters ORDER BY port") == [
        (1, 1, "r1", 20001, 1, 1),
        (1, 2, "r2", 20002, 0, 0),
        (2, 1, "r3", 20003, 0, 1),
    ]


def test_system_distributed_ddl_queue_shows_each_server_of_each_statement(servers, monkeypatch):
    running = start(servers, "r1", "r3")
    with pytest.raises(StillDue):
        ask(servers, running, "CREATE DATABASE d ON CLUSTER c", monkeypatch)
    columns = "entry, cluster, query, port, status, exception_code, initiator_port"
    query = f"SELECT {columns} FROM system.distributed_ddl_queue ORDER BY port"
    text = "CREATE DATABASE d ON CLUSTER c"
    assert select(servers, query) == [
        ("query-0000000000", "c", text, 20001, "Finished", 0, 20001),
        ("query-0000000000", "c", text, 20002, "Inactive", None, 20001),
        ("query-0000000000", "c", text, 20003, "Finished", 0, 20001),
    ]


def test_old_and_too_many_statements_are_removed_but_for_those_that_are_at_work(
    servers, monkeypatch
):
    running = start(servers)
    for number in range(4):
        query = f"CREATE DATABASE d{number} ON CLUSTER c"
        ask(servers, running, query, monkeypatch)
        servers.clock.passed_s += 100
    keeper = servers.zookeeper.connect()
    busy = servers.queue.task("query-0000000001").active_on("somebody")
    keeper.multi([Create(busy, ephemeral=True)])
    now_s = servers.clock.now_s()

    def cleaned(lifetime_s: int, tasks_max: int) -> list[str]:
        found = clean_queue(
            keeper, servers.queue, now_s=now_s, lifetime_s=lifetime_s, tasks_max=tasks_max
        )
        return [name[-1] for name in found]

    assert cleaned(lifetime_s=1000, tasks_max=10) == []
    assert cleaned(lifetime_s=350, tasks_max=10) == ["0"]
    assert cleaned(lifetime_s=1000, tasks_max=1) == ["2"]
    keeper.multi([Delete(busy)])
    assert cleaned(lifetime_s=1000, tasks_max=1) == ["1"]
    assert keeper.children(servers.queue.root) == ["query-0000000003"]


def with_a_statement(servers, monkeypatch):
    """r1, which has not begun with the first statement of the queue; its nodes; who r1 is there."""
    [server] = start(servers, "r1")
    query = "CREATE DATABASE d ON CLUSTER c"
    ask(servers, [], query, monkeypatch, distributed_ddl_task_timeout="0")
    return server, servers.queue.task("query-0000000000"), servers.host("r1")


@pytest.mark.parametrize("lost", [1, 2])
def test_a_server_whose_last_word_lands_late_does_not_stay_at_work(servers, monkeypatch, lost):
    """1. That it has done a statement has no answer. 2. It begins once more: at that moment the
    request lands. 3. It is done already, and the server is at work on nothing: else nobody would
    remove the statement as long as the session lives; also when it is not told that it is done.
    """
    server, paths, host = with_a_statement(servers, monkeypatch)
    keeper, late = server.keeper, []
    multi = keeper.multi

    def unanswered(ops):
        touched = {op.path for op in ops}
        if paths.finished_on(host) in touched and len(late) < lost:
            late.append(ops)
            raise OutcomeUnknown("no answer")
        if touched == {paths.active_on(host)} and len(late) == 1 and isinstance(ops[0], Create):
            multi(late[0])
        return multi(ops)

    keeper.multi = unanswered
    for _ in range(lost):
        with pytest.raises(OutcomeUnknown):
            server.turn()
    assert server.turn() == (lost == 1)
    assert keeper.children(paths.finished) == [host]
    assert keeper.children(paths.active) == []


@pytest.mark.parametrize("later", [Unavailable, OutcomeUnknown])
def test_what_may_happen_still_is_not_said_to_have_failed(servers, monkeypatch, later):
    """Its write has no answer, and the connection breaks each time that it is tried again."""
    [server] = start(servers, "r1")
    wait = {"distributed_ddl_task_timeout": "0"}
    ask(servers, [], CREATE, monkeypatch, **wait)
    assert server.turn() == 1
    ask(servers, [], "TRUNCATE TABLE t ON CLUSTER c", monkeypatch, **wait)
    right, errors = task.StatementCarrier._run, [OutcomeUnknown, later, later]

    def broken(*args):
        if errors:
            raise errors.pop(0)("no answer")
        return right(*args)

    monkeypatch.setattr(task.StatementCarrier, "_run", broken)
    with pytest.raises(OutcomeUnknown, match="no answer"):
        server.turn()
    finished = servers.queue.task("query-0000000001").finished_on(servers.host("r1"))
    assert server.keeper.exists(finished) is None
    assert server.turn() == 1
    assert TaskOutcome.decode(server.keeper.get(finished)[0]) == TaskOutcome()


def test_who_fails_says_that_another_replica_may_not(servers, monkeypatch):
    [server] = start(servers, "r1")
    wait = {"distributed_ddl_task_timeout": "0"}
    ask(servers, [], CREATE, monkeypatch, **wait)
    assert server.turn() == 1
    ask(servers, [], "TRUNCATE TABLE t ON CLUSTER c", monkeypatch, **wait)

    def broken(*_):
        raise Unavailable("no answer")

    monkeypatch.setattr(task.StatementCarrier, "_run", broken)
    assert server.turn() == 1
    finished = servers.queue.task("query-0000000001").finished_on(servers.host("r1"))
    told = TaskOutcome.decode(server.keeper.get(finished)[0])
    assert told.code == "NETWORK_ERROR"
    assert "Another replica of the table may carry it out" in told.message


def test_a_begin_that_lands_when_the_statement_is_done_does_not_stay(servers, monkeypatch):
    """1. A server's request that it begins has no answer, and what it has said before, that it is
    done, lands. 2. It hears that it is done. 3. The request lands after that.
    """
    server, paths, host = with_a_statement(servers, monkeypatch)
    keeper, late = server.keeper, []
    multi = keeper.multi

    def unanswered(ops):
        if ops[0].path == paths.active_on(host) and not late:
            late.append(ops)
            raise OutcomeUnknown("no answer")
        return multi(ops)

    keeper.multi = unanswered
    with pytest.raises(OutcomeUnknown):
        server.turn()
    assert len(keeper.strays) == 1  # seen to before anything else is done in the session
    assert server.turn() == 1


def test_the_texts_are_read_back():
    """P43."""
    task = Task("CREATE\n'x'", ("a:1", "[::1]:2"), "a:1", "id", "d", (("s", "a = 'b'\n"),))
    assert Task.decode(task.encode()) == task
    for outcome in (TaskOutcome(), TaskOutcome("UNKNOWN_TABLE", "no\nt"), TaskOutcome("X", "")):
        assert TaskOutcome.decode(outcome.encode()) == outcome
    names = NamesBefore((("d", "t\t", "u"), ("d", "", "")))
    assert NamesBefore.decode(names.encode()) == names
    with pytest.raises(Corruption, match="a name has"):
        NamesBefore.decode(b"names: 1\nd\tt\n")
    assert re.match(rb"60\nno\\nt\n", TaskOutcome("UNKNOWN_TABLE", "no\nt").encode())


def test_a_replica_that_was_dropped_elsewhere_holds_up_nothing(servers, monkeypatch):
    """It is the first to look at an ALTER of the table that it has still, and began with it again
    and again: what came after that was never carried out there.
    """
    one, other = start(servers, "r1", "r2")
    later = {"distributed_ddl_task_timeout": "0"}
    ask(servers, [one, other], CREATE, monkeypatch, **later)
    one.turn()
    other.turn()
    servers.kill(other)
    with servers.session("r1") as session:
        session.execute("SYSTEM DROP REPLICA 'r2' FROM TABLE t")
    for query in (
        "ALTER TABLE t ON CLUSTER c ADD COLUMN s String SETTINGS alter_sync = 0",
        "CREATE DATABASE d ON CLUSTER c",
    ):
        ask(servers, [one, other], query, monkeypatch, **later)
    again = servers.start("r2")
    assert again.turn() == 2
    alter = servers.queue.task(sorted(servers.zookeeper.nodes[servers.queue.root].children)[-2])
    told = TaskOutcome.decode(
        servers.zookeeper.nodes[alter.finished_on(servers.host("r2"))].data
    )
    assert "If somebody dropped it on purpose, DROP TABLE here too" in told.message
    assert "d" in again.context.catalog.databases()
    assert one.turn() == 2
    assert "r1" in servers.zookeeper.nodes["/tables/1/t/replicas"].children
    assert outcome(servers, "r1") == TaskOutcome()
    assert len(servers.zookeeper.nodes["/tables/1/t/log"].children) == 1, "r1 has altered it"
