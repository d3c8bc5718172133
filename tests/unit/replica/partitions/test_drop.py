"""DROP PARTITION, DROP PART and TRUNCATE on two replicas, step by step (spec §9.2, §16.5)."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.protocol.errors import (
    OutcomeUnknown,
    ReplicaRetired,
    TableIsReadOnly,
    Unavailable,
    Unfinished,
)
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.forget import forget, what_to_forget_at_once
from rmt_pipeline.replica.insert.insert import Insertion, ensure_partitions
from rmt_pipeline.replica.insert.result import InsertCancelled, Outcome
from rmt_pipeline.replica.partitions import drop as dropping
from rmt_pipeline.replica.partitions.drop import BadPartition, NoSuchPart
from rmt_pipeline.replica.partitions.inside import parts_inside, stop_making
from rmt_pipeline.replica.partitions.swap import Change, Wanted, swap
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import recover_parts
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import FetchNote
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create, Delete, Refused, SetData
from rmt_pipeline.zookeeper.snapshot import parts_now
from tests.support.local_replicas import Meanwhile, Replicas, partitioned
from tests.support.lost_answers import before, faulty, logs, unlocks
from tests.support.mortal_disk import Died
from tests.support.partitioned import insert, on_disk, rows, work

NOW = QuerySettings(alter_sync=0)
UNKNOWN_IDS = QuerySettings(insert_deduplicate=False)


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=partitioned) as opened:
        yield opened


def drop(replicas, *partitions, at="r1", **options):
    return replicas.table(at).drop_partitions(partitions, settings=NOW, **options)


def drops(op):
    """The multi that decides a drop, or a replica's last step of it."""
    return isinstance(op, Create) and b"drop\n" in op.data


def test_a_dropped_partition_is_gone_on_every_replica_and_on_their_disks(replicas):
    """D1. Also on one that never had it."""
    insert(replicas, (1, 1), (2, 2))
    insert(replicas, (1, 3))
    assert [str(one) for one in drop(replicas, "1")] == ["1_0_1_999999999_999999999"]
    assert rows(replicas, "r1") == [(1, 1), (1, 3), (2, 2)]
    work(replicas)
    for name in ("r1", "r2"):
        assert rows(replicas, name) == [(2, 2)]
        assert on_disk(replicas, name) == ["2_0_0_0"]
        assert replicas[name].keeper.children(replicas[name].paths.queue) == []


def test_a_partition_that_never_had_a_row_is_not_dropped(replicas):
    insert(replicas, (1, 1))
    log = replicas["r1"].keeper.children(replicas["r1"].table.log)
    assert drop(replicas, "2", "no-such") == ()
    assert replicas["r1"].keeper.children(replicas["r1"].table.log) == log
    assert replicas["r1"].keeper.children(replicas["r1"].table.partition("1")) == []


def test_a_partition_in_which_no_number_was_taken_is_in_no_truncate_s_way(replicas):
    """Somebody made the partition, and has not come to insert."""
    insert(replicas, (1, 1))
    ensure_partitions(replicas["r1"], {"2"})
    table = replicas.table("r1")
    assert [str(one) for one in table.truncate(settings=NOW)] == ["1_0_0_999999999_999999999"]
    keeper, paths = replicas["r1"].keeper, replicas["r1"].table
    assert keeper.children(paths.partition("1")) == keeper.children(paths.partition("2")) == []


@pytest.mark.parametrize("name", ["", "1_0", "a/b"])
def test_what_no_partition_can_be_called_is_refused(replicas, name):
    """It would be a drop that does nothing, and says so nowhere."""
    insert(replicas, (1, 1))
    with pytest.raises(
        BadPartition, match=r"is not the id of a partition.* Nothing was dropped"
    ):
        drop(replicas, "1", name)
    assert rows(replicas, "r1") == [(1, 1)]


def test_truncate_drops_every_partition_at_one_moment(replicas):
    insert(replicas, *((p, p) for p in range(5)))
    commits = []
    multi = replicas["r2"].keeper.multi

    def counting(ops):
        commits.append(sum(map(drops, ops)))
        return multi(ops)

    replicas["r2"].keeper.multi = counting
    assert len(replicas.table("r2").truncate(settings=NOW)) == 5
    assert [one for one in commits if one] == [5]
    replicas["r2"].keeper.multi = multi
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == []


@pytest.mark.parametrize("token", ["", "a token"])
def test_what_was_dropped_can_be_inserted_again_and_nothing_else(replicas, token):
    """I7. The same insert again brings back just the partition that is gone, said anywhere."""
    pairs = ((1, 1), (2, 2))
    insert(replicas, *pairs, token=token)
    drop(replicas, "1", at="r2")
    again = insert(replicas, *pairs, at="r2", token=token)
    assert (again.outcome, again.rows, again.rows_duplicate) == (Outcome.RESUMED, 1, 1)
    assert insert(replicas, *pairs, token=token).outcome is Outcome.DUPLICATE
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1), (2, 2)]
    drop(replicas, "1", "2")
    work(replicas)
    assert insert(replicas, *pairs, token=token).outcome is Outcome.INSERTED


def test_a_block_whose_rows_another_insert_had_can_be_inserted_again(replicas):
    """The second insert had nothing to add to partition 1. Its record goes with these rows too."""
    insert(replicas, (1, 1))
    insert(replicas, (1, 1), (2, 2), token="a token")
    drop(replicas, "1")
    again = insert(replicas, (1, 1), (2, 2), token="a token")
    assert (again.rows, again.rows_duplicate) == (1, 1)


def test_a_block_whose_rows_a_later_drop_leaves_is_known_still(replicas):
    """The insert has blocks 1 and 2 of the partition, and the first one was another insert's."""
    [first] = insert(replicas, (1, 1)).parts
    both = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)
    [second] = insert(replicas, (1, 1), (1, 2), settings=both, token="").parts
    replicas.table("r1").drop_part(second, settings=NOW)
    work(replicas)
    assert insert(replicas, (1, 1), (1, 2), settings=both).outcome is Outcome.DUPLICATE
    assert str(first) in on_disk(replicas, "r1")


def test_what_is_inserted_while_a_drop_is_decided_stays_known(replicas):
    """Its number is greater than the one that ends the range, and it commits first."""
    insert(replicas, (1, 1))
    late = [(1, 2), (2, 2)]
    with before(replicas["r2"].keeper, drops, lambda: insert(replicas, *late)):
        drop(replicas, "1", at="r2")
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 2), (2, 2)]
    assert insert(replicas, *late).outcome is Outcome.DUPLICATE
    assert insert(replicas, (1, 2)).outcome is Outcome.DUPLICATE


@pytest.mark.parametrize("settings", [None, UNKNOWN_IDS], ids=["known by id", "without ids"])
def test_an_insert_in_flight_is_cancelled_by_a_drop(replicas, settings):
    """D2. Otherwise it would commit below a drop that is in the log already."""
    insert(replicas, (1, 1))
    with (
        before(replicas["r1"].keeper, logs, lambda: drop(replicas, "1", at="r2")),
        pytest.raises(InsertCancelled, match="concurrent DROP"),
    ):
        insert(replicas, (1, 2), settings=settings)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == []
    assert on_disk(replicas, "r1") == on_disk(replicas, "r2") == []
    insert(replicas, (1, 2), settings=settings)
    work(replicas)
    assert rows(replicas, "r2") == [(1, 2)]


def test_an_insert_with_a_later_number_is_not_cancelled(replicas, monkeypatch):
    """1. A drop takes its number. 2. An insert takes the next one. 3. The drop cancels inserts."""
    insert(replicas, (1, 1))
    right = dropping.cancel_inserts

    def then(*args):
        monkeypatch.undo()
        with before(replicas["r2"].keeper, logs, lambda: right(*args)):
            insert(replicas, (1, 2), at="r2")

    monkeypatch.setattr(dropping, "cancel_inserts", then)
    drop(replicas, "1")
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 2)]


def test_what_was_committed_without_an_answer_and_dropped_is_not_inserted_anew(
    replicas, monkeypatch
):
    """It was in the table, and the drop came after it."""
    insert(replicas, (2, 2))
    settle = Insertion._settle

    def late(insertion, replica):
        if insertion.is_pending:
            drop(replicas, "1", at="r2")
            work(replicas)
        settle(insertion, replica)

    monkeypatch.setattr(Insertion, "_settle", late)
    with faulty(replicas["r1"].keeper, logs, landed=True):
        assert insert(replicas, (1, 1)).rows == 1
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(2, 2)]


@pytest.mark.parametrize("landed", [True, False])
def test_a_drop_without_an_answer_is_in_the_log_once(replicas, landed):
    insert(replicas, (1, 1))
    with faulty(replicas["r1"].keeper, drops, landed=landed):
        [dropped] = drop(replicas, "1")
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    assert dropped.block_max == (0 if landed else 1)
    assert len(keeper.children(table.log)) == 2
    assert keeper.children(table.partition("1")) == []


def test_a_drop_without_an_answer_is_looked_for_in_the_log_as_it_is_now(replicas, monkeypatch):
    """A read may come from a server that has not heard of the drop yet, and it would be said once
    more; but not behind a write, also if that is refused.
    """
    insert(replicas, (1, 1))
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    before_the_drop = keeper.children_stat(table.log)
    real, written = keeper.children_stat, []

    def late(path, *watch):
        return real(path, *watch) if written else before_the_drop

    with faulty(keeper, drops, landed=True):
        multi = keeper.multi

        def unanswered(ops):
            monkeypatch.setattr(keeper, "children_stat", late)
            written[:] = [] if any(map(drops, ops)) else [ops]
            return multi(ops)

        monkeypatch.setattr(keeper, "multi", unanswered)
        drop(replicas, "1")
    monkeypatch.undo()
    assert len(keeper.children(table.log)) == 2


@pytest.mark.parametrize("landed", [True, False])
def test_a_drop_whose_session_is_lost_with_the_answer_is_in_the_log_once(replicas, landed):
    """The next session says what became of it, once there is one."""
    insert(replicas, (1, 1))
    replica, looks = replicas["r1"], []

    def living():
        looks.append(1)
        if len(looks) in (3, 4):  # of those that settle it
            raise Unavailable("no session yet")
        return replica

    with faulty(replica.keeper, drops, landed=landed):
        [dropped] = dropping.drop_partitions(
            living, ["1"], NOW, lambda: Meanwhile(replicas.clock, [])
        )
    assert dropped.block_max == (0 if landed else 1)
    assert len(replica.keeper.children(replica.table.log)) == 2
    assert replica.keeper.children(replica.table.partition("1")) == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_drop_of_a_part_without_an_answer_is_in_the_log_once(replicas, landed):
    [part] = insert(replicas, (1, 1)).parts
    with faulty(replicas["r1"].keeper, drops, landed=landed):
        replicas.table("r1").drop_part(part, settings=NOW)
    assert len(replicas["r1"].keeper.children(replicas["r1"].table.log)) == 2


def test_a_drop_is_found_in_the_log_also_by_who_has_no_answer_to_that_at_first(replicas):
    [part] = insert(replicas, (1, 1)).parts
    keeper, log = replicas["r1"].keeper, replicas["r1"].table.log

    def excludes(op):
        return isinstance(op, SetData) and op.path == log

    with (
        faulty(keeper, drops, landed=True),
        faulty(keeper, excludes, landed=False, but=drops),
    ):
        replicas.table("r1").drop_part(part, settings=NOW)
    assert len(keeper.children(log)) == 2
    assert replicas.clock.slept


def test_a_drop_of_a_part_that_arrives_after_it_was_said_again_is_refused(
    replicas, monkeypatch
):
    """It got no answer, and was found nowhere."""
    [part] = insert(replicas, (1, 1)).parts
    keeper = replicas["r1"].keeper
    multi, late = keeper.multi, []

    def arrives_late(ops):
        if not any(map(drops, ops)):
            return multi(ops)
        late.append(ops)
        if len(late) == 1:
            raise OutcomeUnknown("no answer")
        with pytest.raises(Refused):
            multi(late[0])
        return multi(ops)

    monkeypatch.setattr(keeper, "multi", arrives_late)
    replicas.table("r1").drop_part(part, settings=NOW)
    assert len(late) == 2


@pytest.mark.parametrize(
    ("error", "raised"),
    [(OutcomeUnknown("no answer"), Unavailable), (ReplicaRetired("over"), ReplicaRetired)],
    ids=["no answer", "the session ended"],
)
def test_nothing_is_dropped_while_an_insert_in_flight_may_still_commit(replicas, error, raised):
    """D2. It is not known to be cancelled: below a drop that is in the log it would commit."""
    insert(replicas, (1, 1))
    keeper, table = replicas["r1"].keeper, replicas["r1"].table

    def drop_elsewhere():
        with (
            faulty(replicas["r2"].session, unlocks, landed=False, error=error),
            pytest.raises(raised),
        ):
            drop(replicas, "1", at="r2")

    with before(keeper, logs, drop_elsewhere):
        insert(replicas, (1, 2))
    assert len(keeper.children(table.log)) == 2
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1), (1, 2)]
    replicas["r2"].keeper.exists("/")  # a session that lives sees to what it left
    assert keeper.children(table.partition("1")) == []


def test_the_number_of_a_mutation_in_flight_stays(replicas):
    """It would be refused, and take new numbers: a drop holds up nobody but inserts."""
    insert(replicas, (1, 1))
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    [lock] = keeper.multi(transactions.lock_partitions(table, ["1"], "a mutation"))
    drop(replicas, "1", at="r2")
    assert keeper.exists(lock) is not None


@pytest.mark.parametrize("is_read", [False, True])
def test_a_number_that_is_given_back_while_it_is_looked_at_is_no_insert_in_flight(
    replicas, monkeypatch, is_read
):
    """Before it is read what the number is for, or after that: then it can't be cancelled."""
    insert(replicas, (1, 1))
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    number = Create(
        table.lock_prefix("1"), table.insert_lock_data("x"), ephemeral=True, sequence=True
    )
    [lock] = keeper.multi([number])
    get_many = replicas["r2"].keeper.get_many

    def late(paths):
        read = get_many(paths)
        if lock in paths:
            keeper.multi([Delete(lock)])
        return read if is_read else get_many(paths)

    monkeypatch.setattr(replicas["r2"].keeper, "get_many", late)
    assert [str(one) for one in drop(replicas, "1", at="r2")] == ["1_0_1_999999999_999999999"]
    assert keeper.exists(lock) is None


def test_two_drops_at_once_come_one_after_the_other(replicas):
    """D5. The one whose numbers were taken first is decided anew on what the other has made."""
    insert(replicas, (1, 1), settings=UNKNOWN_IDS)
    with before(replicas["r1"].keeper, drops, lambda: drop(replicas, "1", at="r2")):
        [dropped] = drop(replicas, "1")
    assert dropped.block_max == 2
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    assert keeper.children(table.partition("1")) == [], "no number is held any more"
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == []


def test_a_merge_that_is_published_after_its_range_was_dropped_is_thrown_away(replicas):
    """D1. Its queue entry is gone, and so is what it made."""
    for n in range(2):
        insert(replicas, (1, n))
    optimize_partition(replicas["r1"], "1", final=True, skip_merged=False)

    def publishes(op):
        return isinstance(op, Create) and op.path.endswith("/parts/1_0_1_1")

    def drop_here():
        drop(replicas, "1", at="r2")
        assert [one.kind for one in replicas.step("r1", "fetch").done] == ["DROP_RANGE"]

    pull_log(replicas["r1"])
    with before(replicas["r1"].keeper, publishes, drop_here):
        [done] = replicas.executor("r1", "merge").step(None).done
    assert "is gone" in done.error
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == []
    assert on_disk(replicas, "r1") == replicas.stores["r1"].detached() == []


def test_a_fetch_of_what_is_dropped_meanwhile_brings_nothing_back(replicas):
    """G5."""
    insert(replicas, (1, 1))

    def drop_here():
        drop(replicas, "1")
        assert [one.kind for one in replicas.step("r2", "fetch").done] == ["DROP_RANGE"]

    def publishes(op):
        return isinstance(op, Create) and op.path.endswith("/r2/parts/1_0_0_0")

    pull_log(replicas["r2"])
    with before(replicas["r2"].keeper, publishes, drop_here):
        [done] = replicas.executor("r2", "fetch").step(None).done
    assert "is gone" in done.error
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == []
    assert on_disk(replicas, "r2") == []


def test_a_start_after_a_death_in_the_middle_shows_nothing_that_was_dropped(replicas):
    """D6. ZooKeeper knows nothing of it any more, and the directories are there still."""
    for n in range(3):
        insert(replicas, (1, n))
    replicas.set(replicated_max_ratio_of_wrong_parts="0")
    drop(replicas, "1")

    def dies(*_):
        raise Died

    store = replicas.stores["r1"]
    remove, store.remove_all = store.remove_all, dies
    pull_log(replicas["r1"])
    with pytest.raises(Died):
        replicas.executor("r1", "fetch").step(None)
    store.remove_all = remove
    assert replicas.parts("r1") == []
    assert len(on_disk(replicas, "r1")) == 3
    replicas.clock.passed_s += 1000
    recovered = recover_parts(replicas["r1"])
    assert recovered.detached == ()
    assert on_disk(replicas, "r1") == []
    assert store.detached() == []


def test_what_a_reader_holds_goes_when_it_lets_go(replicas):
    [part] = insert(replicas, (1, 1)).parts
    store = replicas.stores["r1"]
    with store.pin([part]):
        drop(replicas, "1")
        work(replicas)
        replicas.clock.passed_s += 1000
        carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
        assert on_disk(replicas, "r1") == [str(part)]
    assert store.drops.ranges() != []
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert on_disk(replicas, "r1") == []
    replicas.clock.passed_s = 1e9  # the disk's clock is the host's
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert store.drops.ranges() == store.detached() == []


def test_what_is_to_be_detached_is_not_replaced_before_it_was(replicas):
    """The queue has the DETACH still when somebody replaces the partition: its rows would be
    nowhere.
    """
    insert(replicas, (1, 1))
    drop(replicas, "1", detach=True)
    replica = replicas["r1"]
    wanted = Wanted((Change("1", (), replaces=True),))
    with pytest.raises(
        Unavailable, match=r"queue-\d+, which detaches what is replaced; nothing"
    ):
        swap(lambda: replica, wanted)
    work(replicas)
    assert replicas.stores["r1"].detached() == ["1_0_0_0"]
    insert(replicas, (1, 2))
    swap(lambda: replica, wanted)
    assert rows(replicas, "r1") == []


def test_a_detached_partition_is_kept_by_every_replica_that_had_it(replicas):
    """§9.3. Once, however often its replica dies over it."""
    insert(replicas, (1, 1))
    insert(replicas, (1, 2))
    work(replicas)
    drop(replicas, "1", detach=True)
    with faulty(replicas["r1"].keeper, forgets_parts, landed=False, times=4):
        pull_log(replicas["r1"])
        assert replicas.executor("r1", "fetch").step(None).done[0].error
    replicas.clock.passed_s += 100
    work(replicas)
    for name in ("r1", "r2"):
        assert replicas.stores[name].detached() == ["1_0_0_0", "1_1_1_0"]
        assert rows(replicas, name) == []


def forgets_parts(op):
    return isinstance(op, Delete) and "/parts/" in op.path


def forgets(op):
    return isinstance(op, Delete) and "/blocks/" in op.path


def test_ids_are_forgotten_many_at_a_time(replicas, monkeypatch):
    monkeypatch.setattr(dropping, "with_forgetting", lambda replica, ops, dropped: (ops, True))
    for n in range(30):
        insert(replicas, (1, n))
    drop(replicas, "1")
    keeper = replicas["r1"].keeper
    real, commits = keeper.multi_many, []

    def counting(multis):
        commits.extend(sum(map(forgets, ops)) for ops in multis)
        return real(multis)

    monkeypatch.setattr(keeper, "multi_many", counting)
    work(replicas, "r1")
    assert [one for one in commits if one] == [30]
    assert insert(replicas, (1, 7)).outcome is Outcome.INSERTED


def test_an_id_that_was_relied_on_meanwhile_does_not_keep_those_beside_it(
    replicas, monkeypatch
):
    """All are refused for the sake of one, and then each goes alone."""
    monkeypatch.setattr(dropping, "with_forgetting", lambda replica, ops, dropped: (ops, True))
    for n in range(3):
        insert(replicas, (1, n))
    drop(replicas, "1")
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    [first, *_] = keeper.children(table.blocks)
    data, _ = keeper.get(table.block(first))
    real, commits = keeper.multi_many, []

    def relied_on(multis):
        if not commits:
            keeper.multi([SetData(table.block(first), data)])
        commits.append([sum(map(forgets, ops)) for ops in multis])
        return real(multis)

    monkeypatch.setattr(keeper, "multi_many", relied_on)
    work(replicas, "r1")
    assert commits[:2] == [[3], [1, 1, 1, 0, 0, 0]]
    assert keeper.children(table.blocks) == keeper.children(table.inserts) == []


def test_ids_of_a_partition_that_can_not_fit_are_not_read_by_who_asks(replicas, monkeypatch):
    for n in range(3):
        insert(replicas, (1, n))
    keeper, reads = replicas["r1"].keeper, []
    real = keeper.get_many
    monkeypatch.setattr(keeper, "get_many", lambda paths: reads.extend(paths) or real(paths))
    replica, dropped = replicas["r1"], [PartName.parse("1_0_2_999999999_999999999")]
    assert what_to_forget_at_once(replica, dropped, bytes_max=700) is None
    assert reads == [replica.table.blocks, replica.table.inserts]
    assert len(what_to_forget_at_once(replica, dropped, bytes_max=10_000)) == 2 + 6
    assert what_to_forget_at_once(replica, dropped, bytes_max=1500) is None  # with the records


def test_readers_do_not_wait_for_manifests_to_be_counted(replicas, monkeypatch):
    insert(replicas, (1, 1), (1, 2))
    insert(replicas, (1, 3))
    drop(replicas, "1")
    right, promised = PartStore.counts, []

    def counts(store, part):
        promised.append(replicas.parts("r1"))
        return right(store, part)

    monkeypatch.setattr(PartStore, "counts", counts)
    [done] = [one for one in work(replicas, "r1") if one.kind == "DROP_RANGE"]
    assert promised == [[], []]
    assert (done.rows_in, len(done.sources)) == (3, 2)


def test_who_relies_on_an_id_while_it_is_read_has_no_rows_of_it_any_more(replicas, monkeypatch):
    """Else his record would say for ever that rows are there which were dropped."""
    insert(replicas, (1, 1))
    replica, others = replicas["r1"], []
    real = replica.keeper.get_many

    def relied_on(paths):
        if not others and any("/blocks/" in path for path in paths):
            others.append("r2")
            insert(replicas, (1, 1), (2, 2), at="r2")
        return real(paths)

    monkeypatch.setattr(replica.keeper, "get_many", relied_on)
    forget(replica, [PartName.parse("1_0_0_999999999_999999999")])
    monkeypatch.undo()
    assert others == ["r2"]
    keeper, table = replica.keeper, replica.table
    [record] = [keeper.get(table.insert(one))[0] for one in keeper.children(table.inserts)]
    assert InsertRecord.decode(record).partition_ids() == ("2",)
    assert [name[:2] for name in keeper.children(table.blocks)] == ["2_"]


def test_fetches_of_what_is_dropped_are_stopped_and_of_nothing_else(replicas):
    """Not of what comes later, nor from another table to `detached/`; and not what a fetch has left
    that died.
    """
    insert(replicas, (1, 1))
    replica, told = replicas["r2"], []
    dropped = PartName.parse("1_0_1_999999999_999999999")
    with ExitStack() as fetching:
        for part, root in (
            ("1_0_0_0", "/tables/t"),
            ("1_5_5_0", "/tables/t"),
            ("1_0_0_0", "/u"),
        ):
            staging = replica.store.begin("fetch", part)
            fetching.callback(staging.abandon)
            note = FetchNote(0.0, 1, f"{root}/replicas/r1", "http", "h", 1, "uri")
            fetching.enter_context(staging.noted(note))
            told.append(staging)
        left = replica.store.begin("fetch", "1_0_0_0")
        fetching.callback(left.abandon)
        stop_making(replica, dropped)
        assert left.asked_to_stop() == ""
        assert ["1_0_0_0 was dropped" in one.asked_to_stop() for one in told] == [
            True,
            False,
            False,
        ]
        assert [one.asked_to_stop() for one in told[1:]] == ["", ""]


def test_a_drop_is_waited_for_as_alter_sync_says(replicas):
    insert(replicas, (1, 1))
    impatient = QuerySettings(alter_sync=1, receive_timeout=0)
    with pytest.raises(Unfinished, match="have not done it yet: r1"):
        replicas.table("r1").drop_partitions(["1"], settings=impatient)
    work(replicas)
    assert rows(replicas, "r1") == []


def test_so_is_one_of_a_part(replicas):
    [part] = insert(replicas, (1, 1)).parts
    impatient = QuerySettings(alter_sync=1, receive_timeout=0)
    with pytest.raises(Unfinished, match="have not done it yet: r1"):
        replicas.table("r1").drop_part(part, settings=impatient)


def test_a_replica_that_is_not_active_takes_no_drop(replicas):
    insert(replicas, (1, 1))
    replica = replicas["r1"]
    replica.keeper.multi([Delete(replica.paths.is_active)])
    with pytest.raises(TableIsReadOnly, match="not active"):
        drop(replicas, "1")
    assert replica.keeper.children(replica.table.partition("1")) == []


def test_a_name_of_a_part_is_a_name(replicas):
    with pytest.raises(NoSuchPart):
        replicas.table("r1").drop_part(PartName.parse("7_0_0_0"), settings=NOW)


@pytest.mark.parametrize("statement", ["drop", "replace"])
def test_a_merge_that_runs_inside_is_stopped_not_waited_for(replicas, statement):
    for n in range(2):
        insert(replicas, (1, n))
    optimize_partition(replicas["r1"], "1", final=True, skip_merged=False)
    pull_log(replicas["r1"])

    class Running(LocalMerger):
        def merge(self, jobs):
            if statement == "drop":
                drop(replicas, "1")
                replicas.step("r1", "fetch")
            else:
                replicas.table("r1").replace([{"p": 1, "n": 7}], partition="1", settings=NOW)
            return super().merge(jobs)

    merger = Running(replicas.clock)
    [done] = replicas.executor("r1", "merge", merger=merger).step(None).done
    assert "1_0_1_1 was dropped, with 1_0_" in done.error
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 7)] * (statement != "drop")
    assert replicas.stores["r1"].staged() == []


def test_of_what_goes_no_manifest_is_read_and_checked_anew(replicas, monkeypatch):
    """Of thousands of parts that alone would take longer than all the rest of a drop."""
    for n in range(3):
        insert(replicas, (1, n))
    work(replicas)
    for name in ("r1", "r2"):
        for part in replicas.stores[name].parts():
            replicas.stores[name]._read.forget(part)  # as another process, which has read none
    drop(replicas, "1")
    monkeypatch.setattr(Manifest, "decode", lambda _: pytest.fail("a manifest was decoded"))
    [one, other] = work(replicas)
    assert (one.rows_in, other.rows_in) == (3, 3)
    assert one.bytes_in > 300
    assert on_disk(replicas, "r1") == on_disk(replicas, "r2") == []


def test_what_a_removal_that_died_has_left_is_in_nobodys_way(replicas):
    insert(replicas, (1, 1))
    work(replicas)
    disk = replicas.stores["r1"].disk
    disk.make_directory("delete_tmp_1_0_0_0")
    disk.write("delete_tmp_1_0_0_0/left", [b"1"])
    drop(replicas, "1")
    work(replicas)
    assert [name for name in disk.list("") if "1_0_0_0" in name and "was" not in name] == []


def test_a_larger_part_than_what_is_dropped_is_no_defect(replicas):
    """Of a part that was merged since, the merged one stays."""
    for n in range(2):
        insert(replicas, (9, n))
    optimize_partition(replicas["r1"], "9", final=True, skip_merged=False)
    work(replicas)
    replica, dropped = replicas["r1"], PartName.parse("9_0_0_0")
    there = parts_now(replica.keeper, replica.paths, replica.memory.queue)
    assert PartName.parse("9_0_1_1") in there.names("9")
    assert parts_inside(replica, there, dropped, "a test") == (dropped,)
