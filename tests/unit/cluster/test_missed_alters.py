"""ALTERs of a Replicated database that a server has missed: it catches up, or says so."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from rmt_pipeline.cluster.database import skip_to
from rmt_pipeline.cluster.worker import TaskWorker
from rmt_pipeline.protocol.errors import Conflict, TableIsReadOnly
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import AlterMetadata, GetPart
from rmt_pipeline.protocol.nodes.tasks import TaskOutcome
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.alter.apply import apply_alter_metadata
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.server.tasks import NotCaughtUp
from rmt_pipeline.sql.define.show_create import create_query
from rmt_pipeline.sql.run.on_cluster import FailedOnServer
from rmt_pipeline.zookeeper.keeper import Create, SetData
from rmt_pipeline.zookeeper.paths import TablePaths, sequence_number
from tests.support.databases import (
    DATABASE,
    LATER,
    PATHS,
    TABLE,
    Site,
    forgets,
    part,
    started,
)
from tests.support.fake_keeper import FakeKeeper

MANY_COLUMNS = TABLE.replace("n UInt64", "n UInt64, m UInt64, k UInt64 DEFAULT n")


@contextmanager
def cut_off(site: Site, name: str, monkeypatch) -> Iterator[None]:
    """The server makes the database with its tables, and is cut off before it notes that; it comes
    back behind the block.
    """

    def cut(*_: object) -> None:
        raise Conflict("cut off")

    site.start(name)
    with monkeypatch.context() as patch:
        patch.setattr("rmt_pipeline.server.tasks.skip_to", cut)
        with pytest.raises(Conflict, match="cut off"):
            site.say(DATABASE, name)
    late = site.running.pop()
    yield
    late.loop = late.worker = None
    site.running.append(late)
    with suppress(NotCaughtUp):  # as the loop: it goes on
        late.look()


def takes_up(site: Site, name: str, table: str = "t") -> TableDefinition:
    """The table on the server once it has worked off the ALTERs of its queue."""
    context = site.servers.session(name).context.server
    replica = context.replica(context.catalog.definition("d", table))
    pull_log(replica)
    for node in sorted(replica.keeper.children(replica.paths.queue)):
        entry = decode(replica.keeper.get(replica.paths.queue_entry(node))[0])
        if isinstance(entry, AlterMetadata):
            apply_alter_metadata(replica, node, entry)
    return context.catalog.definition("d", table)


def alter(site: Site, change: str, *, by: str) -> None:
    """The ALTER is done in the shard of server `by`, and the table's record tells what came of it,
    as the next statement has it do.
    """
    site.say(f"ALTER TABLE d.t {change}", by, alter_sync="0", **LATER)
    site.look()
    takes_up(site, by)
    site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", by, **LATER)
    site.look()


@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN s String, MODIFY ORDER BY (n, s), ADD INDEX i m TYPE minmax GRANULARITY 1",
        "MODIFY COLUMN k REMOVE DEFAULT, MODIFY COLUMN m String FIRST, RENAME COLUMN k TO o",
        "MODIFY TTL toDateTime(n) + INTERVAL 1 DAY",
        "MODIFY SETTING parts_to_throw_insert = 8",
    ],
)
def test_a_new_server_that_was_cut_off_has_what_was_altered_meanwhile(
    site, monkeypatch, change
):
    """It is alone in its shard, where nobody else carries the ALTER out."""
    started(site, "r1")
    site.say(MANY_COLUMNS)
    with cut_off(site, "r3", monkeypatch):
        alter(site, change, by="r1")
    assert create_query(takes_up(site, "r3")) == create_query(takes_up(site, "r1"))


@pytest.mark.parametrize("change", ["ADD COLUMN s String", "DROP COLUMN k"])
@pytest.mark.parametrize("comes", ["r1", "r2"])
def test_who_comes_to_a_shard_that_has_missed_an_alter_has_it(site, change, comes):
    """1. r1, alone in its shard, loses its disk. 2. An ALTER is done in the other shard, and is
    cleaned from the log. 3. r1 comes back, or r2 is new: the shard's nodes are as they were before
    the ALTER, and the table's record is as it is after it.
    """
    started(site, "r1", "r3")
    site.say(MANY_COLUMNS)
    site.stop("r1")
    shutil.rmtree(site.servers.config.server("r1").data)
    alter(site, change, by="r3")
    forgets(site)
    site.start(comes)
    with suppress(TableIsReadOnly):  # it is altered as soon as it is active
        site.say(DATABASE, comes)
    site.look()
    assert create_query(takes_up(site, comes)) == create_query(takes_up(site, "r3"))
    assert site.nodes[comes].loop.waits_for == ""


def test_a_slow_server_makes_a_table_that_others_of_its_shard_have_altered_already(site):
    """It comes to the CREATE when the shard's nodes are those after the ALTER."""
    started(site, "r1", "r2", "r3")
    slow = site.running.pop(0)
    site.say(TABLE, "r2", **LATER)
    site.look()
    site.say("ALTER TABLE d.t ADD COLUMN s String", "r2", alter_sync="0", **LATER)
    site.look()
    slow.look()
    task = PATHS.queue.task("query-0000000000")
    outcome = site.servers.zookeeper.nodes[task.finished_on("1|r1")]
    assert TaskOutcome.decode(outcome.data) == TaskOutcome()
    assert [one.name for one in slow.catalog.definition("d", "t").columns] == ["n", "s"]


def test_another_table_at_the_path_is_not_taken_for_one_that_has_missed_an_alter(site):
    """A path that is typed may be that of a table which is none of the database's."""
    started(site, "r1", "r3")
    typed = "ReplicatedMergeTree('/x/{shard}', '{replica}y')"
    with site.servers.session("r3") as session:
        session.execute(f"CREATE TABLE x (n UInt64, k String) ENGINE = {typed} ORDER BY n")
    with pytest.raises(FailedOnServer, match=r"2\|r3: .*differs"):
        site.say(f"CREATE TABLE d.t (n UInt64) ENGINE = {typed.replace('y', 'z')} ORDER BY n")
    for _ in range(2):
        with pytest.raises(NotCaughtUp, match="differs"):
            site.nodes["r3"].look()
    assert len(site.nodes["r3"].catalog.definition("default", "x").columns) == 2
    assert site.servers.zookeeper.connect().children("/x/2/alters") == []


def test_what_was_altered_is_there_when_the_table_is_detached_at_once(site, monkeypatch):
    started(site, "r1")
    site.say(TABLE)
    with cut_off(site, "r3", monkeypatch):
        site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", **LATER)
        site.look()
        site.say("DETACH TABLE d.t PERMANENTLY", **LATER)
        site.look()
    [one] = site.nodes["r3"].catalog.detached("d")
    assert ("parts_to_throw_insert", "9") in one.definition.settings


def test_rows_are_not_touched_by_what_a_server_has_missed(site, monkeypatch):
    """It says what it has missed: which ALTERs that were is not known any more."""
    started(site, "r1")
    site.say(MANY_COLUMNS)
    with cut_off(site, "r3", monkeypatch):
        part(site, "r3")
        alter(site, "RENAME COLUMN m TO o", by="r1")
    assert [column.name for column in takes_up(site, "r3").columns] == ["n", "m", "k"]
    with pytest.raises(NotCaughtUp, match="Repeat each of them with IF EXISTS or IF NOT"):
        site.nodes["r3"].look()
    site.say("ALTER TABLE d.t RENAME COLUMN IF EXISTS m TO o", alter_sync="0", **LATER)
    site.look()
    assert [column.name for column in takes_up(site, "r3").columns] == ["n", "o", "k"]


def test_the_pointer_stays_before_what_is_not_worked_off(site, monkeypatch):
    """Who is cut off in a statement comes back to it."""
    started(site, "r1")
    [node] = site.running
    site.running.clear()
    site.say(TABLE, **LATER)
    turn = TaskWorker.turn

    def cut_off_in_the_log(worker: TaskWorker) -> int:
        if worker.is_open:  # of statements ON CLUSTER
            return turn(worker)
        raise Conflict("cut off")

    keeper = site.servers.zookeeper.connect()
    before, _ = keeper.get(PATHS.log_ptr("1|r1"))
    with monkeypatch.context() as patch:
        patch.setattr(TaskWorker, "turn", cut_off_in_the_log)
        with pytest.raises(Conflict, match="cut off"):
            node.look()
    assert keeper.get(PATHS.log_ptr("1|r1"))[0] == before
    node.look()
    assert keeper.get(PATHS.log_ptr("1|r1"))[0] == b"0"
    assert node.tables() == ["t"]


def test_who_skips_a_statement_is_not_at_it_any_more(site):
    """1. r3 is at an ALTER, and its request to note it as done is lost. 2. The ALTER is in the
    table's record: r3 skips it. 3. While r3 were at it, the log could not be cleaned.
    """
    started(site, "r1", "r3")
    site.say(TABLE)
    task = PATHS.queue.task("query-0000000000")
    mine, another = site.servers.zookeeper.connect(), site.servers.zookeeper.connect()
    mine.multi([Create(task.active_on("2|r3"), ephemeral=True)])
    skip_to(another, PATHS, "2|r3", 0)  # a process before this one may be at it still
    assert mine.children(task.active) == ["2|r3"]
    skip_to(mine, PATHS, "2|r3", 0)
    assert mine.children(task.active) == []


@pytest.mark.parametrize(
    "change", ["ADD COLUMN s String", "MODIFY SETTING max_parts_in_total = 9"]
)
@pytest.mark.parametrize("after", ["", "EXCHANGE TABLES d.t AND d.v"])
def test_an_alter_that_the_record_knows_of_is_not_carried_out_again(site, change, after):
    """1. r1 carries an ALTER out, and tells the record when it has taken it up. 2. r3 is new: it
    makes the table as the record has it, and is at no ALTER before.
    """
    started(site, "r1", "r2")
    site.say(TABLE)
    site.say(TABLE.replace("d.t", "d.v"))
    site.say(f"ALTER TABLE d.t {change}", alter_sync="0", **LATER)
    if after:
        site.say(after, **LATER)
    site.look()
    name = "v" if after else "t"
    takes_up(site, "r1", name)
    site.look()
    site.start("r3")
    site.say(DATABASE, "r3")
    task = PATHS.queue.task("query-0000000002")
    outcome = site.servers.zookeeper.nodes[task.finished_on("2|r3")]
    assert TaskOutcome.decode(outcome.data) == TaskOutcome()
    assert task.begun_on("2|r3") not in site.servers.zookeeper.nodes
    altered, here = (
        site.nodes[name].catalog.definition("d", "v" if after else "t") for name in ("r1", "r3")
    )
    assert create_query(here) == create_query(altered)


@pytest.mark.parametrize("is_away", [False, True])
def test_what_somebody_needs_of_the_log_is_not_cleaned_for_what_comes_after_it(site, is_away):
    """An ALTER that no record knows of; and what a running server has not come to. Once both are
    done with it, or that one is away, the log is cleaned.
    """
    few = replace(site.servers.config.distributed_ddl, max_tasks_in_queue=1)
    site.servers.config = replace(site.servers.config, distributed_ddl=few)
    started(site, "r1", "r2", "r3")
    site.say(TABLE)
    site.say("ALTER TABLE d.t ADD COLUMN s String", alter_sync="0", **LATER)
    site.look()
    slow = site.running.pop()
    for number in range(3):
        site.say(TABLE.replace("d.t", f"d.v{number}"), **LATER)
        clean(site)
    assert logged(site) == [1, 2, 3, 4]  # of the table's record
    takes_up(site, "r1")
    clean(site)
    assert logged(site) == [2, 3, 4]  # of r3
    site.running.append(slow)
    if is_away:
        site.stop("r3")
    clean(site)
    assert logged(site) == [4]


def test_an_alter_that_nobody_could_carry_out_is_not_kept_in_the_log(site):
    few = replace(site.servers.config.distributed_ddl, max_tasks_in_queue=1)
    site.servers.config = replace(site.servers.config, distributed_ddl=few)
    started(site, "r1", "r3")
    site.say(TABLE)
    with pytest.raises(FailedOnServer):
        site.say("ALTER TABLE d.t DROP COLUMN s")
    site.say(TABLE.replace("d.t", "d.v"))
    clean(site)
    assert logged(site) == [2]


def clean(site: Site) -> None:
    """All look when it is time to clean the log."""
    for _ in range(2):
        for node in site.running:
            if node.loop is not None:
                node.loop._cleaned_at_s = float("-inf")
            node.look()


def logged(site: Site) -> list[int]:
    nodes = site.servers.zookeeper.connect().children(PATHS.queue.root)
    return [sequence_number(node) for node in nodes]


@pytest.mark.parametrize("change", ["RENAME COLUMN m TO o", "DROP COLUMN m"])
def test_rows_of_others_of_the_shard_are_not_touched_by_who_has_none(site, change):
    """1. r1, which has rows, is away until an ALTER is done in the other shard and cleaned from the
    log. 2. r2 is new in its shard, and has no rows yet.
    """
    started(site, "r1", "r3")
    site.say(MANY_COLUMNS)
    site.say("INSERT INTO d.t (n, m) VALUES (1, 7)")
    shard = site.nodes["r1"].catalog.definition("d", "t").engine.zookeeper_path
    site.stop("r1")
    alter(site, change, by="r3")
    forgets(site)
    site.start("r2")
    with suppress(NotCaughtUp, TableIsReadOnly):
        site.say(DATABASE, "r2")
    with pytest.raises(NotCaughtUp, match="Repeat each of them with IF EXISTS or IF NOT"):
        site.nodes["r2"].look()
    assert site.servers.zookeeper.connect().children(f"{shard}/alters") == []
    assert [one.name for one in takes_up(site, "r2").columns] == ["n", "m", "k"]


@pytest.mark.parametrize("what", ["insert", "given up"])
def test_rows_that_come_to_another_replica_meanwhile_are_not_touched(site, monkeypatch, what):
    """1. r1 and r2 are away until an ALTER is done in the other shard and cleaned from the log.
    2. r2 finds no rows in the shard. 3. Rows are inserted on r1; or their part, which r1 has given
    up, is put back there. 4. r2 submits the ALTER: their values would be dropped with the column.
    """
    started(site, "r1", "r2", "r3")
    site.say(MANY_COLUMNS)
    shard = TablePaths(site.nodes["r1"].catalog.definition("d", "t").engine.zookeeper_path)
    for name in ("r1", "r2"):
        site.stop(name)
    alter(site, "DROP COLUMN m", by="r3")
    forgets(site)
    site.start("r1", "r2")
    site.nodes["r1"].server.turn()
    site.nodes["r1"].server.look()
    multi, left = FakeKeeper.multi, [lambda: site.say("INSERT INTO d.t (n, m) VALUES (1, 7)")]
    if what == "given up":
        entry = encode(GetPart(create_time=0, source_replica="", part=PartName("all", 0, 0, 0)))
        queued = Create(shard.replica("r1").queue_prefix, entry, sequence=True)
        site.servers.zookeeper.connect().multi([queued])
        left.clear()

    def submits(keeper, ops):
        if left and any(isinstance(op, SetData) and op.path == shard.metadata for op in ops):
            left.pop()()
        return multi(keeper, ops)

    monkeypatch.setattr(FakeKeeper, "multi", submits)
    with pytest.raises(NotCaughtUp, match="Repeat each of them with IF EXISTS or IF NOT"):
        site.nodes["r2"].look()
    assert left == []
    assert site.servers.zookeeper.connect().children(shard.alters) == []


def test_alters_that_undo_each_other_are_not_kept_in_the_log(site):
    """1. Two are in the queue of the table's replicas, and told to the record by nobody. 2. They
    are taken up, and the table is what it was before.
    """
    few = replace(site.servers.config.distributed_ddl, max_tasks_in_queue=1)
    site.servers.config = replace(site.servers.config, distributed_ddl=few)
    started(site, "r1")
    site.say(TABLE)
    site.say("ALTER TABLE d.t ADD COLUMN s String", alter_sync="0", **LATER)
    site.look()
    takes_up(site, "r1")
    site.say("ALTER TABLE d.t DROP COLUMN s", alter_sync="0", **LATER)
    site.look()
    takes_up(site, "r1")
    site.say(TABLE.replace("d.t", "d.v"), **LATER)
    clean(site)
    assert logged(site) == [3]


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_shard_that_has_had_fewer_alters_tells_the_record_of_the_next_one(site, forgotten):
    """1. A table has had ALTERs, and r3, alone in its shard, makes it as it is now: without any.
    2. r1 is away. 3. r3 carries an ALTER out. 4. The log is cleaned. A record after more ALTERs
    need not know of this one, which would be taken back.
    """
    started(site, "r1")
    site.say(TABLE)
    for column in "ab":
        site.say(f"ALTER TABLE d.t ADD COLUMN {column} String", alter_sync="0", **LATER)
        site.look()
        takes_up(site, "r1")
        site.look()
    site.start("r3")
    site.say(DATABASE, "r3")
    site.stop("r1")
    site.say("ALTER TABLE d.t ADD COLUMN s String", "r3", alter_sync="0", **LATER)
    site.look()
    altered = takes_up(site, "r3")
    site.look()
    if forgotten:
        site.say("ALTER TABLE d.t MODIFY SETTING parts_to_throw_insert = 9", "r3", **LATER)
        forgets(site)
        site.look()
        assert takes_up(site, "r3").columns == altered.columns
    record = site.servers.zookeeper.nodes[PATHS.table("t")].data
    assert [column.name for column in altered.columns] == ["n", "a", "b", "s"]
    assert b"`s` String" in record
