"""Processes that live through a restore, in their sessions, with what they remember of the nodes of
before. Versions and numbers begin anew: what was true of a node is said of another one by now.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import (
    Conflict,
    OutcomeUnknown,
    ReplicaDropped,
    TableIsReadOnly,
)
from rmt_pipeline.protocol.mutations import Mutations
from rmt_pipeline.protocol.nodes.columns import columns_text
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.nodes.metadata import metadata_text
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.alter.apply import take_up
from rmt_pipeline.replica.assign.merges import (
    Nothing,
    assign_merge,
    merge_view,
    optimize_partition,
)
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.life import announce
from rmt_pipeline.replica.life.restore import restore
from rmt_pipeline.replica.life.restoring import NothingToRestore
from rmt_pipeline.replica.life.start import activate, start
from rmt_pipeline.replica.mutations.mutations import (
    create_mutation,
    finalize_mutations,
    load_mutations,
    take_numbers,
)
from rmt_pipeline.replica.partitions import swap
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.work import mutate
from rmt_pipeline.table import Table
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.executor import Executor
from tests.support.local_session import rows, session_with_numbers
from tests.support.lost_answers import faulty, logs
from tests.support.restoring import Disaster


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Disaster]:
    with Disaster(tmp_path) as disaster:
        yield disaster


def made_again(two: Disaster, *, gone: str = "", started: bool = True) -> None:
    """Somebody deletes the table's nodes, or those of the replica `gone`, and it is restored. No
    session ends.
    """
    two.note()
    two.clock.passed_s += 1000
    table = two["r1"].table
    delete_tree(two.zookeeper.connect(), table.replica(gone).root if gone else table.root)
    names = [gone] if gone else ["r1", "r2"]
    for name in names:
        two.restore(name)
    for name in names if started else ():
        two.start(name)


def old_table(two: Disaster, replica: Replica) -> Table:
    """Of a process that goes on with this."""
    table = two.table(replica.name)
    table._replica = lambda: replica
    return table


def test_a_worker_that_lived_through_it_takes_no_entry_for_one_of_before(two: Disaster) -> None:
    """1. The worker of r2, in its session, has fetched what its first queue node asked for.
    2. The table is restored. 3. A node of the same name asks for what r2 lacks: it is not done
    because that of before is.
    """
    for value in (1, 2):
        two.insert("r1", value)
    worker, executor = two["r2"], two.executor("r2", "fetch")
    pull_log(worker)
    assert len(executor.step(None).done) == 2
    optimize_partition(two["r1"], "all", final=True, skip_merged=False)
    two.step("r1")
    two.step("r2")
    lacking = two.insert("r1", 3)
    made_again(two)
    pull_log(two["r2"])  # another process of its server
    assert two.queue("r2") == ["queue-0000000000", "queue-0000000001"]
    two.clock.passed_s += 60
    for one in (executor, Executor(worker, two.tools(), "fetch")):
        with pytest.raises(ReplicaDropped, match="made again by SYSTEM RESTORE REPLICA"):
            one.step(None)
    assert len(two.queue("r2")) == 2
    two.work_off()
    assert str(lacking) in two.parts("r2")
    assert two.queue("r2") == []


def test_no_log_entry_is_passed_over_by_who_remembers_a_pointer_of_before(
    two: Disaster,
) -> None:
    """What it remembers is ahead of the new pointer, and of the same version."""
    for value in (1, 2, 3):
        two.insert("r1", value)
    two.work_off()
    old = two["r2"]
    made_again(two)
    two.insert("r1", 4)
    pointer, now = old.memory.pointer, old.keeper.get(old.paths.log_pointer)
    assert pointer is not None
    assert pointer.index is not None
    for _ in range(pointer.version - now[1].version):
        two.zookeeper.connect().multi([SetData(old.paths.log_pointer, now[0])])
    for value in (5, 6, 7):
        two.insert("r1", value)
    with pytest.raises(ReplicaDropped):
        pull_log(old)
    two.work_off()
    assert two.values("r2") == Counter(range(1, 8))


def test_nothing_is_inserted_while_a_replica_that_was_restored_is_cloned(two: Disaster) -> None:
    """`is_lost` is of version 0 again, and says that it is lost."""
    two.insert("r1", 1)
    two.work_off()
    old = two["r1"]
    known = old.memory.insertable
    assert known is not None
    made_again(two, gone="r1", started=False)
    now = two.connect("r1")
    made = now.definition.of_creation(now.keeper.children(now.paths.creations))
    assert made is not None
    now.become(made)
    activate(now, "r1", "2", ReplicaAddress("r1", 9009, 9000, "default", "t"))
    # it has just looked
    old.memory.insertable = replace(known, seen_s=two.clock.monotonic_s())
    with pytest.raises(ReplicaDropped):
        old_table(two, old).insert([{"n": 2}])
    now.session.multi([Delete(now.paths.is_active)])
    two.start("r1")
    two.work_off()
    assert two.values("r1") == two.values("r2") == Counter([1])


def test_the_log_of_a_table_that_is_made_again_tells_nothing_of_earlier_commits(
    two: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit lands, and gets no answer. A replacement leaves its row, in another part. Then the
    table is restored: its log is whole, and knows nothing of that commit.
    """
    two.insert("r1", 1)
    two.work_off()
    settle = Insertion._settle

    def late(insertion: Insertion, replica: Replica) -> None:
        if insertion.is_pending and replica.definition == before:
            quick = QuerySettings(alter_sync=0, receive_timeout=0)
            two.table("r1").replace([{"n": 7}], where="n in (1, 7)", settings=quick)
            two.work_off()
            made_again(two)
        settle(insertion, two["r1"])

    before, table = two["r1"].definition, two.table("r1")
    plain = QuerySettings(insert_deduplicate=False, insert_keeper_max_retries=2)
    with monkeypatch.context() as patched, faulty(two["r1"].keeper, logs, landed=True):
        patched.setattr(Insertion, "_settle", late)
        patched.setattr(swap, "_leave_disk", lambda *_: None)
        with pytest.raises(OutcomeUnknown):
            table.insert([{"n": 2}], settings=plain)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([2, 7])


def test_no_merge_that_was_chosen_before_the_table_was_open_goes_across_what_others_brought(
    two: Disaster,
) -> None:
    """1. r1 has announced its parts, and r2 is waited for. A worker of r1 sees what may be merged:
    nothing is between two parts of r1. 2. r2 brings a part between them, the table is opened, and
    r1 is active. 3. The worker writes its merge into the log.
    """
    first = two.insert("r1", 1)
    two.insert("r2", 2)
    last = two.insert("r1", 3)
    two.wipe()
    two.restore("r1")
    worker = two["r1"]
    made = worker.definition.of_creation(worker.keeper.children(worker.paths.creations))
    assert made is not None
    worker.become(made)
    view = merge_view(worker)
    two.restore("r2")
    two.start("r1")
    assert isinstance(assign_merge(worker, view, [first, last]), Nothing)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2, 3])


def test_a_mutation_is_not_taken_for_one_of_before(two: Disaster) -> None:
    """Its id is given out again, and its commands are others."""
    two.insert("r1", 1)
    two.work_off()
    old = two["r1"]
    before = create_mutation(old, "UPDATE n = 5 WHERE n = 1")
    load_mutations(old)
    made_again(two)
    assert create_mutation(two["r1"], "UPDATE n = 6 WHERE n = 1") == before
    assert isinstance(assign_mutations(two["r1"]), list)
    pull_log(two["r1"])
    with pytest.raises(ReplicaDropped):
        Executor(old, two.tools(), "merge").step(None)
    two.work_off("r1")
    assert two.values("r1") == Counter([6])


def test_no_part_is_mutated_as_a_table_that_is_made_again_says(
    two: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A worker of r1 begins to mutate a part, which r2 has mutated. 2. ZooKeeper loses the
    table, and r1 begins to make it again. 3. The worker reads which mutations there are: none. A
    part with rows as they were must not get the mutated part's name on the disk: it is taken for
    the right one when r1 is restored.
    """
    two.insert("r1", 1)
    two.work_off()
    create_mutation(two["r2"], "UPDATE n = 5 WHERE n = 1")
    assert isinstance(assign_mutations(two["r2"]), list)
    two.step("r2")
    assert two.values("r2") == Counter([5])
    pull_log(two["r1"])

    def dies(*_: object) -> list[Op]:
        raise Conflict("it dies here")

    def load(replica: Replica) -> Mutations:
        two.note()
        delete_tree(two.zookeeper.connect(), replica.table.root)
        with monkeypatch.context() as dying:
            dying.setattr(announce, "_queue_ops", dies)
            with pytest.raises(Conflict):
                two.restore("r1")
        return load_mutations(replica)

    worker = Executor(two["r1"], two.tools(), "merge")
    with monkeypatch.context() as patch:
        patch.setattr(mutate, "load_mutations", load)
        with pytest.raises(ReplicaDropped):
            worker.step(None)
    two.clock.passed_s += 1000
    for name in ("r1", "r2"):
        two.restore(name)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([5])


def test_no_mutation_gets_its_numbers_while_the_table_is_restored(two: Disaster) -> None:
    """r1 is made again, and its server knows that; r2 has yet to say that it has a block of a
    greater number. The mutation would not be for that one.
    """
    two.insert("r1", 1)
    two.insert("r2", 2)
    two.wipe()
    two.restore("r1")
    one = two.connect("r1")
    made = one.definition.of_creation(one.keeper.children(one.paths.creations))
    assert made is not None
    one.become(made)
    with pytest.raises(TableIsReadOnly, match="not active, so it gets no block number"):
        create_mutation(one, "DELETE WHERE n > 0")
    two.restore("r2")
    two.live_on()
    create_mutation(two["r1"], "DELETE WHERE n > 0")
    assert isinstance(assign_mutations(two["r1"]), list)
    two.work_off()
    assert two.values("r1") == two.values("r2") == Counter()


def test_an_alter_that_another_process_takes_up_meanwhile_is_restored(two: Disaster) -> None:
    """It is on the disk before that is told of. Else the server would find that its table has more
    columns than ZooKeeper knows, and would not start any more.
    """
    two.insert("r1", 1)
    two.wipe()
    one = two.connect("r1")
    before = one.definition
    added = before.with_columns((*before.columns, Column("m", "Int64")))
    newer = replace(added, metadata_version=1)

    def update(change: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
        return change(newer)

    one.update_definition = update
    restore(one, b"r1")
    columns, _ = one.session.get(one.paths.columns)
    assert b"`m` Int64" in columns
    assert one.session.get(one.paths.metadata_version)[0] == b"1"


@pytest.mark.parametrize("late", ["one is waited for", "it is open", "its server runs"])
@pytest.mark.parametrize("older", [False, True])
def test_an_alter_of_before_that_is_taken_up_afterwards_stops_no_server(
    two: Disaster, late: str, older: bool
) -> None:
    """A process had read the entry when ZooKeeper lost the table, or went back. What it takes up
    after the replica was announced would not be in ZooKeeper.
    """
    two.insert("r1", 1)
    old = replace(two["r1"], keeper=two.zookeeper.connect())
    added = old.definition.with_columns((*old.definition.columns, Column("m", "Int64")))
    metadata, columns = metadata_text(added), columns_text(added.columns)

    def of_the_catalog(change: Callable[[TableDefinition], TableDefinition]) -> TableDefinition:
        return two["r1"].update_definition(change)

    old.update_definition = of_the_catalog

    def take_up_late() -> None:
        with suppress(ReplicaDropped):
            take_up(old, metadata, columns, 1)

    if older:
        two.note()
        two["r1"].store.marks.note_log_seen(100)
        two["r2"].store.marks.note_log_seen(100)
        for name in ("r1", "r2"):
            two.stop(name)
            two.connect(name)
    else:
        delete_tree(two.zookeeper.connect(), two["r1"].table.root)
    two.clock.passed_s += 1000
    two.restore("r1")
    if late == "one is waited for":
        take_up_late()
    two.restore("r2")
    if late == "it is open":
        take_up_late()
    two.start("r1")
    if late == "its server runs":
        take_up_late()
        two.stop("r1")
        two.start("r1")
    two.live_on()
    assert two["r1"].definition.columns == added.columns[:1]
    assert two.values("r2") == Counter([1])


def test_no_mutation_is_noted_as_finished_because_one_of_before_was(two: Disaster) -> None:
    """A number that is in flight may be smaller than its own."""
    two.insert("r1", 1)
    two.work_off()
    old = two["r1"]
    create_mutation(old, "UPDATE n = 5 WHERE n = 777")
    assert (
        finalize_mutations(old, load_mutations(old)) == ()
    )  # the part has yet to be rewritten
    made_again(two)
    [lock] = take_numbers(two["r1"], ["all"], "an insert in flight").values()
    mutation = create_mutation(two["r1"], "UPDATE n = 5 WHERE n = 777")
    assert isinstance(assign_mutations(two["r1"]), list)
    two.work_off("r1")
    with pytest.raises(ReplicaDropped):
        finalize_mutations(old, load_mutations(old))
    now = two["r1"]
    assert finalize_mutations(now, load_mutations(now)) == ()
    now.keeper.multi([Delete(lock)])
    assert finalize_mutations(now, load_mutations(now)) == (mutation,)


def test_no_claim_of_before_keeps_a_merge_waiting(two: Disaster) -> None:
    """1. ZooKeeper goes back. 2. A worker of r2 claims what the older copy's queue asks for. 3. r2
    is restored, and that queue is gone; the worker, whose session lives on, can't take its claim
    back, because it means the replica of before.
    """
    part = two.insert("r1", 1)
    pull_log(two["r2"])
    copy = dict(two.zookeeper.nodes)
    two.insert("r1", 2)
    two.note()
    two.clock.passed_s += 1000
    two.zookeeper.go_back(copy)
    paths, worker = two["r2"].paths, two.zookeeper.connect()
    claim = Claim("a worker", (part,))
    worker.multi(
        [Create(paths.claim(min(worker.children(paths.queue))), claim.encode(), ephemeral=True)]
    )
    for name in ("r1", "r2"):
        two.restore(name)
    two.live_on()
    assert worker.children(paths.executing) == []
    optimize_partition(two["r1"], "all", final=True, skip_merged=False)
    two.work_off()
    assert two.parts("r1") == two.parts("r2")
    assert two.values("r2") == Counter([1, 2])


@pytest.mark.parametrize("opened", [False, True])
def test_no_mutation_is_noted_as_finished_because_its_rows_have_yet_to_come(
    two: Disaster, monkeypatch: pytest.MonkeyPatch, opened: bool
) -> None:
    """An older copy of ZooKeeper has the mutation. r1 is restored, and r2, which has the row, is
    waited for: a worker of r1 finds nothing to change. It notes that at once, or when the table is
    `opened`. Were the mutation finished, it would be forgotten.
    """
    two.insert("r2", 1)
    mutation = create_mutation(two["r2"], "UPDATE n = 5 WHERE n = 1")
    copy = dict(two.zookeeper.nodes)
    two.insert("r2", 2)
    two.note()
    two.clock.passed_s += 1000
    two.zookeeper.go_back(copy)
    two.restore("r1")
    worker = two.connect("r1")
    note = transactions.note_finished

    def late(*what: Any) -> list[Op]:
        if opened:
            two.restore("r2")
            two.start("r1")
        return note(*what)

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "note_finished", late)
        assert finalize_mutations(worker, load_mutations(worker)) == ()
    if not opened:
        two.restore("r2")
    for name in ("r1", "r2"):
        two.start(name)
    two.work_off()
    assert isinstance(assign_mutations(two["r2"]), list)
    two.work_off()
    assert two.values("r1") == two.values("r2") == Counter([2, 5])
    now = two["r1"]
    assert finalize_mutations(now, load_mutations(now)) == (mutation,)


def test_a_session_that_lived_through_it_goes_on_with_what_is_there_now(tmp_path: Path) -> None:
    """It asks the catalog, which its server's start has told of it."""
    with session_with_numbers(tmp_path) as session:
        session.execute("INSERT INTO t VALUES (1)")
        server = session.context.server
        before = server.replica(server.catalog.definition("default", "t"))
        delete_tree(before.session, before.table.root)
        definition = before.definition
        assert "1 rows in 1 parts" in server.restore(definition).words()
        address = ReplicaAddress("r1", 9009, 9000, "default", "t")
        served = replace(before, memory=Memory())  # its server's own
        start(served, identity="r1", incarnation="2", address=address)
        now = server.replica(server.catalog.definition("default", "t"))
        assert now.session is before.session
        assert now.memory is not before.memory
        session.execute("INSERT INTO t VALUES (2)")
        session.execute("ALTER TABLE t DELETE WHERE n = 3")
        assert rows(session, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]
        assert now.definition.creation != definition.creation
        with pytest.raises(NothingToRestore):
            server.restore(now.definition)


def test_a_restore_that_is_repeated_leaves_one_replica_that_its_table_means(
    two: Disaster,
) -> None:
    """Each call has an id of its own; whose nodes were made first is adopted by the start."""
    two.insert("r1", 1)
    made_again(two, started=False)
    there = two["r1"].keeper.children(two["r1"].paths.creations)
    for _ in range(2):
        with suppress(NothingToRestore):
            two.restore("r1")
    assert two["r1"].keeper.children(two["r1"].paths.creations) == there
    two.live_on()
    assert two["r1"].definition.creation == there[0]
    made_again(two)
    assert [two["r1"].definition.creation] != there
    assert two.values("r1") == Counter([1])


@pytest.mark.parametrize("started", [False, True])
def test_a_drop_that_a_process_of_before_notes_takes_nothing_when_it_is_lost_again(
    two: Disaster, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    """It notes the drop on the disk when the table is made again, with what was to be dropped. The
    range ends with a number that nobody knows any more, and rows that come now get smaller ones.
    """
    two.insert("r1", 1)
    two.work_off()
    old, prefix = two["r1"], two["r1"].table.lock_prefix("all")
    for _ in range(3):
        [lock] = old.session.multi([Create(prefix, sequence=True)])
        old.session.multi([Delete(lock)])
    two.table("r1").drop_partitions(["all"], settings={"alter_sync": 0})
    note = old.store.drops.note

    def late(dropped: PartName) -> None:
        made_again(two)
        note(dropped)

    monkeypatch.setattr(old.store.drops, "note", late)
    with pytest.raises(ReplicaDropped):
        two.step("r1", "fetch")
    [dropped] = two["r1"].store.drops.ranges()
    later = two.insert("r1", 2)
    assert dropped.contains(later)
    two.work_off()
    if started:
        two.start("r1")
    else:
        carry_out(two["r1"], plan_clean_up(two["r1"]))
    assert two["r1"].store.drops.ranges() == []
    two.wipe()
    for name in ("r1", "r2"):
        two.restore(name)
    two.live_on()
    assert two.values("r1") == two.values("r2") == Counter([1, 2])
