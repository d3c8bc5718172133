"""A table is dropped and created again in its place while somebody is between two steps: what was
meant for the old one does not come into the new one.
"""

from collections.abc import Callable

import pytest

from rmt_pipeline.protocol.alter.commands import AddColumn
from rmt_pipeline.protocol.errors import ReplicaDropped, UnknownTable
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.life.clone import ReplicaStatusChanged, clone_if_lost
from rmt_pipeline.replica.life.start import Started, start
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.layout import StageKind
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import Staging
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.through import BoundKeeper
from tests.support.local_replicas import ROOT, Replicas
from tests.support.lost_answers import allocates, before, logs

WHERE = f"{ROOT}/log", f"{ROOT}/blocks", f"{ROOT}/inserts", f"{ROOT}/replicas/r1/parts"
ONE_ROW_PER_BLOCK = {"max_insert_block_size": 1, "min_insert_block_size_rows": 0}


def again(replicas: Replicas, *then: Callable[[], object]) -> Callable[[], None]:
    def happens() -> None:
        replicas.create_again("r1", "r2")
        for step in then:
            step()

    return happens


def number_in_flight(replicas: Replicas) -> Callable[[], None]:
    """An insert into the new table is under way, and was given number 0."""

    def takes() -> None:
        table = replicas["r1"].table
        session = replicas.zookeeper.connect()
        session.multi([Create(table.partition("all"))])
        lock = Create(table.lock_prefix("all"), ephemeral=True, sequence=True)
        session.multi([lock])

    return takes


def publishes(op: Op) -> bool:
    return isinstance(op, Create) and "/parts/" in op.path


def written(replicas: Replicas) -> list[list[str]]:
    keeper = replicas["r1"].keeper
    return [keeper.children(path) for path in WHERE]


def claimed_by_another(replicas: Replicas, name: str) -> Callable[[], None]:
    """The first queue entry of this replica, as of a worker of the new table."""

    def claims() -> None:
        replica = replicas[name]
        pull_log(replica)
        [first, *_] = replica.keeper.children(replica.paths.queue)
        session = replicas.zookeeper.connect()
        session.multi([Create(replica.paths.claim(first), ephemeral=True)])

    return claims


def rows(replicas: Replicas, name: str) -> list[int]:
    found = replicas.table(name).dataset().to_table().to_pylist()
    return sorted(row["n"] for row in found)


def test_an_insert_between_disk_and_zookeeper_is_not_committed_to_the_new_table(replicas):
    """P42. The new one promises nothing that it does not have, and the insert under way keeps its
    number.
    """
    old = replicas.table("r1")
    happens = again(replicas, number_in_flight(replicas))
    with before(old.replica.keeper, logs, happens), pytest.raises(UnknownTable):
        old.insert([{"n": 1}])
    assert written(replicas) == [[], [], [], []]
    assert len(replicas["r1"].keeper.children(f"{ROOT}/block_numbers/all")) == 1


def test_an_insert_takes_no_number_of_the_new_table(replicas):
    """P42."""
    old = replicas.table("r1")
    with before(old.replica.keeper, allocates, again(replicas)), pytest.raises(UnknownTable):
        old.insert([{"n": 1}])
    assert written(replicas) == [[], [], [], []]


def test_an_insert_that_finds_its_files_gone_leaves_the_new_table_s_where_they_are(
    replicas, monkeypatch
):
    """It was about to give its parts their names: of two one is that of a new part by now."""
    old, publish_all = replicas.table("r1"), type(replicas["r1"].store).publish_all
    waiting = [again(replicas, lambda: replicas.insert("r1", 7))]

    def late(store: object, pairs: object) -> None:
        if waiting:
            waiting.pop()()
        publish_all(store, pairs)

    monkeypatch.setattr(type(replicas["r1"].store), "publish_all", late)
    with pytest.raises(UnknownTable):
        old.insert([{"n": 1}, {"n": 2}], settings=ONE_ROW_PER_BLOCK)
    assert rows(replicas, "r1") == [7]


def test_a_part_that_was_fetched_is_not_published_in_the_new_table(replicas):
    replicas.insert("r1", 1)
    old = replicas.executor("r2", "fetch")
    pull_log(replicas["r2"])
    happens = again(
        replicas, lambda: replicas.insert("r1", 7), claimed_by_another(replicas, "r2")
    )
    with before(replicas["r2"].keeper, publishes, happens), pytest.raises(ReplicaDropped):
        old.step(None)
    assert replicas.parts("r2") == []
    replica = replicas["r2"]
    [node] = replica.keeper.children(replica.paths.executing)
    replica.keeper.multi([Delete(replica.paths.claim(node))])
    replicas.step("r2", "fetch")
    assert rows(replicas, "r2") == [7]


def test_a_fetch_that_is_late_leaves_nothing_where_the_next_table_will_be(
    replicas, monkeypatch
):
    """P42. It was claimed before the drop. A part that the next table never had would keep that
    read-only: ZooKeeper would look older than the disk.
    """
    replicas.insert("r1", 1)
    old, begin = replicas.executor("r2", "fetch"), PartStore.begin
    pull_log(replicas["r2"])
    waiting = [lambda: replicas.drop("r2")]

    def late(store: PartStore, kind: StageKind, hint: str) -> Staging:
        while waiting:
            waiting.pop()()
        return begin(store, kind, hint)

    monkeypatch.setattr(PartStore, "begin", late)
    with pytest.raises(ReplicaDropped):
        old.step(None)
    replicas.drop("r1")
    replicas.create("r1", "r2")
    replicas.insert("r1", 7)
    replicas.step("r2", "fetch")
    assert rows(replicas, "r2") == [7]


def test_a_drop_that_is_late_says_nothing_of_parts_of_the_next_table(replicas):
    store, gone = replicas.stores["r1"], PartName("all", 0, 7, 999_999_999)
    replicas.drop("r1", "r2")
    with pytest.raises(FileNotFoundError):
        store.drops.note(gone)
    replicas.create("r1", "r2")
    assert replicas.stores["r1"].drops.ranges() == []


def test_a_merge_is_not_published_in_the_new_table(replicas):
    def merge() -> None:
        optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)

    def two_parts(*values: int) -> None:
        for value in values:
            replicas.insert("r1", value)
        replicas.step("r1", "fetch")
        merge()
        pull_log(replicas["r1"])

    two_parts(1, 2)
    old = replicas.executor("r1", "merge")
    happens = again(replicas, lambda: two_parts(7, 8), claimed_by_another(replicas, "r1"))
    with before(replicas["r1"].keeper, publishes, happens), pytest.raises(ReplicaDropped):
        old.step(None)
    assert replicas.parts("r1") == ["all_0_0_0", "all_1_1_0"]
    assert rows(replicas, "r1") == [7, 8]


def test_a_mutation_is_not_created_in_the_new_table(replicas):
    old = replicas["r1"]

    def creates(op: Op) -> bool:
        return isinstance(op, SetData) and op.path == f"{ROOT}/mutations"

    with before(old.keeper, creates, again(replicas)), pytest.raises(ReplicaDropped):
        create_mutation(old, "DELETE WHERE n = 7")
    assert replicas["r1"].keeper.children(f"{ROOT}/mutations") == []


def test_an_alter_is_not_done_to_the_new_table(replicas):
    old, query = replicas["r1"], QuerySettings(alter_sync=0)
    with before(old.keeper, logs, again(replicas)), pytest.raises(ReplicaDropped):
        request_alter(
            lambda: old, lambda _: [AddColumn(Column("x", "Int8"))], query, EventWaker
        )
    assert replicas["r1"].keeper.get(f"{ROOT}/columns")[1].version == 0


def test_a_clean_up_removes_nothing_of_the_new_table(replicas):
    """Neither log entries, which others have yet to copy, nor ids of blocks: the same rows have the
    same.
    """

    def fill() -> None:
        for value in range(6):
            replicas.insert("r1", value)
            pull_log(replicas["r1"])

    replicas.set(
        min_replicated_logs_to_keep=1,
        max_replicated_logs_to_keep=1,
        replicated_deduplication_window=1,
    )
    fill()
    pull_log(replicas["r2"])
    old = replicas["r1"]
    plan = plan_clean_up(old)
    assert plan.log.remove
    assert plan.ids.blocks.remove
    again(replicas, fill)()
    with pytest.raises(ReplicaDropped):
        carry_out(old, plan)
    assert [len(names) for names in written(replicas)] == [6, 6, 6, 6]


def test_a_source_that_was_created_again_is_not_taken_over(replicas):
    """P42. Its new namesake has nothing yet: who took it for the old one would be whole, without
    rows.
    """
    replicas.insert("r1", 1)
    lost = replicas["r2"]
    lost.keeper.multi([SetData(lost.paths.is_lost, b"1")])

    def ends(op: Op) -> bool:
        return isinstance(op, SetData) and op.path == lost.paths.is_lost

    def create_r1_again() -> None:
        with pytest.raises(Exception, match="no other replica"):
            replicas.create_again("r1")

    with before(lost.keeper, ends, create_r1_again), pytest.raises(ReplicaStatusChanged):
        clone_if_lost(lost)
    assert lost.keeper.get(lost.paths.is_lost)[0] == b"1"


def start_again(replica: Replica) -> Started:
    address = ReplicaAddress(replica.name, 9009, 9000, "default", "t")
    return start(replica, identity=replica.name, incarnation="2", address=address)


def test_a_server_does_not_serve_the_namesake_of_its_replica(replicas):
    old = replicas["r1"]
    again(replicas)()
    with pytest.raises(ReplicaDropped, match="another one was created in its place"):
        start_again(old)


def test_a_replica_from_before_this_was_noted_is_taken_for_the_one_of_the_catalog(replicas):
    old = replicas["r1"]
    creation = old.paths.creation(old.definition.uuid)
    old.session.multi([Delete(creation), Delete(old.paths.creations)])
    with pytest.raises(ReplicaDropped):
        replicas.insert("r1", 1)
    start_again(old)
    assert old.keeper.children(old.paths.creations) == [old.definition.uuid]
    replicas.insert("r1", 1)
    assert rows(replicas, "r1") == [1]


def test_each_write_says_which_replica_it_means_and_asks_for_nothing_more(replicas):
    """One check in each multi, no request more."""
    replica = replicas["r1"]
    assert isinstance(replica.keeper, BoundKeeper)
    sent: list[Op] = []
    multi = replica.session.multi

    def counted(ops: list[Op]) -> list[str]:
        sent.append(ops[0])
        return multi(ops)

    replica.session.multi = counted
    replicas.insert("r1", 1)
    assert len(sent) == 3, "a new partition, the numbers, the commit"
    assert {op.path for op in sent} == {replica.paths.creation(replica.definition.uuid)}
