"""Backfill by replacement on two replicas, step by step (P40)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import (
    Conflict,
    Corruption,
    OutcomeUnknown,
    Unavailable,
    UserError,
    ViolatedConstraint,
    ZooKeeperUnreachable,
)
from rmt_pipeline.protocol.inserts.ids import REPLACEMENT
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.forget import what_to_forget
from rmt_pipeline.replica.insert.result import Outcome, QuorumNotReached
from rmt_pipeline.replica.mutations.mutations import release_numbers, take_locks
from rmt_pipeline.replica.partitions import overwrite, swap
from rmt_pipeline.replica.partitions.drop import CannotAssignDrop, submit
from rmt_pipeline.replica.partitions.from_table import EmptySource
from rmt_pipeline.replica.partitions.overwrite import RowsOutside
from rmt_pipeline.replica.partitions.swap import PartitionChanged
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Check, Create, SetData
from tests.support.counting import multis_of
from tests.support.local_replicas import Replicas, definition_of
from tests.support.lost_answers import allocates, before, faulty
from tests.support.partitioned import clean_up, dicts, insert, merge, rows, swaps, work

NOW = QuerySettings(alter_sync=0, receive_timeout=0)
PATIENT = QuerySettings(alter_sync=0, receive_timeout=10)
LASTING = replace(PATIENT, receive_timeout=100_000)
EMPTY = replace(NOW, allow_replace_partition_from_empty_source=True)


def partitioned(replica):
    plain = definition_of(
        replica, (Column("p", "UInt8"), Column("n", "UInt64"), Column("v", "UInt8"))
    )
    return replace(plain, partition_by=("p",))


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=partitioned) as opened:
        for pair in ((1, 1), (1, 2), (2, 3), (3, 4)):
            insert(opened, pair)
        work(opened)
        yield opened


def put(replicas, *pairs, at="r1", settings=NOW, **options):
    return replicas.table(at).replace(dicts(pairs), settings=settings, **options)


def on_both(replicas):
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2")
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    for partition in keeper.children(table.block_numbers):
        assert keeper.children(table.partition(partition)) == []
    for store in replicas.stores.values():
        assert store.staged() == []
    return rows(replicas)


def test_a_partition_gets_exactly_these_rows(replicas):
    result = put(replicas, (1, 7), (1, 8), partition="1")
    assert (result.rows_replaced, result.rows_added, result.is_duplicate) == (2, 2, False)
    assert rows(replicas, "r1") == [(1, 7), (1, 8), (2, 3), (3, 4)]
    assert rows(replicas, "r2") == [(1, 1), (1, 2), (2, 3), (3, 4)]
    assert on_both(replicas) == [(1, 7), (1, 8), (2, 3), (3, 4)]
    assert result.words() == "replaced 2 rows by 2 in 1 partition"


def test_several_partitions_are_replaced_in_one_commit(replicas):
    """All or nothing; one of them gets no row, and one was never there."""
    commits = []
    multi = replicas["r1"].keeper.multi

    def counting(ops):
        commits.append(sum(map(swaps, ops)))
        return multi(ops)

    replicas["r1"].keeper.multi = counting
    result = put(replicas, (1, 7), (9, 9), partition=["1", "3", "9"])
    assert [count for count in commits if count] == [3]
    assert (result.rows_replaced, result.rows_added) == (3, 2)
    assert on_both(replicas) == [(1, 7), (2, 3), (9, 9)]


def test_without_a_target_the_partitions_of_the_rows_are_replaced(replicas):
    put(replicas, (2, 8), (3, 9))
    assert on_both(replicas) == [(1, 1), (1, 2), (2, 8), (3, 9)]
    assert put(replicas).words() == "nothing to replace"


def test_the_whole_table_is_replaced_whatever_is_on_its_way(replicas):
    """Also in a partition that only the log has; no row is read, so no mutation is waited for, and
    what went can be inserted again.
    """
    insert(replicas, (4, 5), at="r2")
    replicas.table("r2").mutate("UPDATE v = 5 WHERE n = 3")
    assert put(replicas, (2, 8), (5, 9), whole=True).rows_added == 2
    assert rows(replicas) == [(2, 8), (5, 9)]
    assert on_both(replicas) == [(2, 8), (5, 9)]
    assert put(replicas, (5, 9), (2, 8), whole=True, at="r2").is_duplicate
    assert insert(replicas, (1, 1)).outcome is Outcome.INSERTED
    assert put(replicas, (2, 8), (5, 9), whole=True).rows_replaced == 3
    assert put(replicas, whole=True, settings=EMPTY).rows_replaced == 2
    assert on_both(replicas) == []


def test_what_a_condition_holds_for_is_replaced_across_partitions(replicas):
    insert(replicas, (1, 10), (2, 11))
    work(replicas)
    result = put(replicas, (1, 2), (3, 3), (5, 1), where="n < 5")
    assert (result.rows_replaced, result.rows_added) == (4, 3)
    assert rows(replicas) == [(1, 2), (1, 10), (2, 11), (3, 3), (5, 1)]
    assert on_both(replicas) == [(1, 2), (1, 10), (2, 11), (3, 3), (5, 1)]


def test_parts_without_such_a_row_are_linked(replicas):
    before = {
        replicas.stores["r1"].manifest(part).files[0].hash
        for part in replicas.stores["r1"].parts()
        if part.partition == "1"
    }
    put(replicas, (1, 9), where="n in (2, 9)")
    after = {
        replicas.stores["r1"].manifest(part).files[0].hash
        for part in replicas.stores["r1"].parts()
        if part.partition == "1"
    }
    assert len(before & after) == 1
    assert on_both(replicas) == [(1, 1), (1, 9), (2, 3), (3, 4)]


@pytest.mark.parametrize("target", [{"partition": "1"}, {"where": "p = 1"}, {}])
@pytest.mark.parametrize("token", ["", "a token"])
def test_the_same_again_changes_nothing(replicas, target, token):
    new = ((1, 7), (1, 8))
    assert not put(replicas, *new, token=token, **target).is_duplicate
    work(replicas)
    log = replicas["r1"].keeper.children(replicas["r1"].table.log)
    optimize_partition(replicas["r1"], "1", final=True, skip_merged=False)
    work(replicas)
    for at in ("r1", "r2"):
        assert put(replicas, *new[::-1], at=at, token=token, **target).is_duplicate
    assert len(replicas["r1"].keeper.children(replicas["r1"].table.log)) <= len(log) + 1
    assert on_both(replicas) == [(1, 7), (1, 8), (2, 3), (3, 4)]


@pytest.mark.parametrize("target", [{"partition": "1"}, {"where": "p = 1"}])
def test_a_token_stands_until_what_it_brought_is_replaced(replicas, target):
    """A, then B, then A again: that is meant."""
    put(replicas, (1, 7), token="a", **target)
    insert(replicas, (1, 50))
    assert put(replicas, (1, 7), token="a", **target).is_duplicate
    work(replicas)
    put(replicas, (1, 8), token="b", **target)
    assert not put(replicas, (1, 7), token="a", **target).is_duplicate
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]
    replicas.table("r2").drop_partitions(["1"], settings=NOW)
    work(replicas)
    assert not put(replicas, (1, 7), token="a", **target).is_duplicate


@pytest.mark.parametrize("goes", ["dropped", "replaced"])
def test_a_token_of_several_partitions_goes_with_one_of_them(replicas, goes):
    """Of a replacement that is known, all that it brought is there."""
    both = (1, 7), (2, 7)
    put(replicas, *both, token="a")
    work(replicas)
    if goes == "dropped":
        replicas.table("r1").drop_partitions(["1"], settings=NOW)
    else:
        put(replicas, (1, 8), partition="1")
    work(replicas)
    assert not put(replicas, *both, token="a").is_duplicate
    assert on_both(replicas) == [*both, (3, 4)]


def test_a_token_stands_when_a_partition_is_dropped_that_it_only_emptied(replicas):
    put(replicas, (1, 7), partition=["1", "2"], token="a")
    work(replicas)
    insert(replicas, (2, 2))
    replicas.table("r1").drop_partitions(["2"], settings=NOW)
    work(replicas)
    assert put(replicas, (1, 7), partition=["1", "2"], token="a").is_duplicate
    assert on_both(replicas) == [(1, 7), (3, 4)]


def test_a_token_of_another_target_is_another_one(replicas):
    put(replicas, (1, 7), partition="1", token="backfill")
    put(replicas, (2, 7), partition="2", token="backfill")
    assert on_both(replicas) == [(1, 7), (2, 7), (3, 4)]


def test_a_token_of_another_condition_is_another_one(replicas):
    put(replicas, (1, 7), where="n = 7", token="backfill")
    assert not put(replicas, (1, 8), where="n = 8", token="backfill").is_duplicate
    assert on_both(replicas) == [(1, 1), (1, 2), (1, 7), (1, 8), (2, 3), (3, 4)]


def test_who_reads_the_record_of_an_earlier_one_and_can_not_names_it(replicas):
    put(replicas, (1, 7), where="n = 7", token="backfill")
    replica = replicas["r1"]
    names = replica.session.children(replica.table.inserts)
    [mine] = [one for one in names if one.startswith(REPLACEMENT)]
    replica.session.multi([SetData(replica.table.insert(mine), b"")])
    with pytest.raises(Corruption, match=rf"remove \S+/{mine} with all below it"):
        put(replicas, (1, 8), where="n = 8")


def test_without_a_token_rows_beside_are_replaced_again(replicas):
    put(replicas, (1, 7), partition="1")
    insert(replicas, (1, 50), at="r2")
    assert not put(replicas, (1, 7), partition="1").is_duplicate
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def test_rows_elsewhere_are_refused_and_nothing_is_changed(replicas):
    with pytest.raises(RowsOutside, match=r"partition 2, which is not among .*: 1"):
        put(replicas, (1, 7), (2, 7), partition="1")
    with pytest.raises(RowsOutside, match="does not hold for 1 of the rows"):
        put(replicas, (1, 7), (1, 8), where="n < 8")
    with pytest.raises(EmptySource, match="allow_replace_partition_from_empty_source"):
        put(replicas, partition="1")
    with pytest.raises(EmptySource, match="those of where p = 1 of"):
        put(replicas, where="p = 1")
    with pytest.raises(EmptySource, match="those of all partitions of"):
        put(replicas, whole=True)
    for two in ({"partition": "1", "where": "n = 7"}, {"whole": True, "where": "n = 7"}):
        with pytest.raises(UserError, match="not both"):
            put(replicas, (1, 7), **two)
    with pytest.raises(UserError, match="q"):
        put(replicas, (1, 7), where="q = 7")
    assert on_both(replicas) == [(1, 1), (1, 2), (2, 3), (3, 4)]


def test_nothing_in_the_place_of_rows_has_to_be_allowed(replicas):
    assert put(replicas, partition="1", settings=EMPTY).rows_replaced == 2
    assert put(replicas, where="p = 2", settings=EMPTY).rows_replaced == 1
    assert put(replicas, where="p = 2", settings=EMPTY).words() == "nothing to replace"
    assert on_both(replicas) == [(3, 4)]


@pytest.mark.parametrize("target", [{"partition": "1"}, {"where": "p = 1"}])
def test_two_at_once_end_as_one_of_them(replicas, target):
    def other():
        put(replicas, (1, 8), (1, 9), at="r2", **target)
        work(replicas)

    with before(replicas["r1"].keeper, allocates, other):
        put(replicas, (1, 7), settings=PATIENT, **target)
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def test_one_after_that_of_another_replica_goes_on(replicas):
    """Each knows the version that its own command has left, and reads it again when it is old."""
    for number in range(3):
        for at in ("r1", "r1", "r2"):
            table = replicas.table(at)
            table.replace(dicts([(1, number)]), partition="1", settings=NOW)
            table.replace(dicts([(1, 10 + number)]), partition="1", settings=NOW)
    work(replicas)
    assert [row for row in rows(replicas, "r2") if row[0] == 1] == [(1, 12)]


def test_threads_of_one_process_replace_at_once_and_forget_what_was_there(replicas):
    """They share what is known of ids, records and the version. One may be refused: then again."""

    def put_again_and_again(partition: int) -> None:
        for number in range(12):
            insert(replicas, (partition, 100 + number))
            replaced = False
            while not replaced:
                with suppress(Conflict):
                    put(replicas, (partition, number), partition=str(partition))
                    replaced = True

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(put_again_and_again, partition) for partition in (1, 2)]:
            done.result()
    for partition in (1, 2):
        assert insert(replicas, (partition, 111)).rows == 1, "what was replaced is forgotten"
    work(replicas)
    there = [(partition, number) for partition in (1, 2) for number in (11, 111)]
    found = rows(replicas, "r1"), rows(replicas, "r2")
    assert [[row for row in each if row[0] in (1, 2)] for each in found] == [there, there]


def test_one_that_comes_first_is_seen_by_one_that_has_its_numbers(replicas):
    with before(
        replicas["r1"].keeper, swaps, lambda: put(replicas, (1, 8), partition="1", at="r2")
    ):
        put(replicas, (1, 7), partition="1")
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def replaces(replicas):
    put(replicas, (1, 8), partition="1", at="r2")
    return [(1, 8), (2, 3), (3, 4)]


def inserts(replicas):
    insert(replicas, (1, 8))
    return [(1, 1), (1, 2), (1, 8), (2, 3), (3, 4)]


@pytest.mark.parametrize(
    ("target", "at", "other"),
    [({"partition": "1"}, swaps, replaces), ({"where": "p = 1"}, allocates, inserts)],
)
def test_one_whose_parts_keep_their_names_does_not_go_on_with_them(replicas, target, at, other):
    """Seeds 1006077 and 1104808. 1. Its parts have the names of their numbers when another comes
    first. 2. It would stage them again, under new numbers or to read the partition once more, and
    has no answer to whether this is still the same table: so they keep their names, for it might be
    another table's parts that it takes. 3. It went on, and said that the table's directory had been
    changed by hand.
    """
    keeper, left = replicas["r1"].keeper, []
    no_answer = faulty(keeper, asks_whether_it_is_there, but=is_a_change, landed=False, times=2)
    comes_first = before(keeper, at, lambda: left.extend(other(replicas)))
    with comes_first, no_answer, pytest.raises(Unavailable, match="Nothing was changed; try"):
        put(replicas, (1, 7), settings=PATIENT, **target)
    work(replicas)
    assert rows(replicas) == left
    put(replicas, (1, 7), settings=PATIENT, **target)
    clean_up(replicas)
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def asks_whether_it_is_there(op):
    return isinstance(op, Check) and op.path.endswith("/replicas/r1")


def is_a_change(op):
    return not isinstance(op, Check)


def test_of_two_with_one_token_at_once_the_later_one_says_that_it_was_done(replicas):
    first = []

    def other():
        first.append(put(replicas, (1, 7), partition="1", token="a", at="r2"))

    with before(replicas["r1"].keeper, swaps, other):
        late = put(replicas, (1, 7), partition="1", token="a")
    assert [first[0].is_duplicate, late.is_duplicate] == [False, True]
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def test_what_a_token_brought_is_told_as_an_insert_is(replicas):
    put(replicas, (1, 7), (1, 8), (2, 9), token="a")
    [told] = [one for one in replicas.table("r1").inserts() if one.record.rows_in == 3]
    assert (told.record.rows, told.record.blocks) == (3, 2)
    assert [(one.partition, one.rows) for one in told.lines] == [("1", 2), ("2", 1)]
    assert [str(part) for part in told.parts] == ["1_3_3_0", "2_2_2_0"]


def test_a_condition_waits_for_numbers_in_flight_below_its_own(replicas):
    """They may be a mutation's, which would pass by the rows that stay."""
    locks = take_locks(replicas["r2"], ["1"], "a mutation")
    with pytest.raises(PartitionChanged, match="number 2 of partition 1 is in flight"):
        put(replicas, (1, 7), where="n = 7")
    release_numbers(replicas["r2"], locks)
    put(replicas, (1, 7), where="n = 7")
    assert on_both(replicas) == [(1, 1), (1, 2), (1, 7), (2, 3), (3, 4)]


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("target", [{"partition": "1"}, {"where": "p = 1"}])
def test_one_without_an_answer_happens_once(replicas, target, landed):
    with faulty(replicas["r1"].keeper, swaps, landed=landed):
        assert not put(replicas, (1, 7), token="a", **target).is_duplicate
    assert put(replicas, (1, 7), token="a", **target).is_duplicate
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def test_one_that_others_come_before_each_time_ends_and_changes_nothing(replicas, monkeypatch):
    """1. It looks at what is there. 2. A merge is assigned. 3. The commit is refused; and so on."""
    monkeypatch.setattr("rmt_pipeline.protocol.limits.DROP_ROUNDS_MAX", 3)
    tries = []

    def late(living, replica, *commit, **since):
        tries.append(commit)
        assert len(tries) < 9, "it goes on for ever"
        replica.keeper.multi(transactions.bump_log(replica.table))
        return submit(living, replica, *commit, **since)

    monkeypatch.setattr(swap, "submit", late)
    with pytest.raises(CannotAssignDrop, match=r"came first 3 times. Nothing was changed"):
        put(replicas, (1, 7), partition="1", token="a")
    monkeypatch.undo()
    assert replicas.stores["r1"].staged() == []
    assert not put(replicas, (1, 7), partition="1", token="a").is_duplicate
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def test_one_that_nobody_answered_is_said_again(replicas, monkeypatch):
    monkeypatch.setattr("rmt_pipeline.replica.partitions.drop.SETTLE_PAUSES_S", ())
    with faulty(replicas["r1"].keeper, swaps, landed=True), pytest.raises(OutcomeUnknown):
        put(replicas, (1, 7), partition="1", token="a")
    monkeypatch.undo()
    assert put(replicas, (1, 7), partition="1", token="a").is_duplicate
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def test_what_is_inserted_while_a_condition_is_read_is_read_too(replicas):
    """Its rows are in the partition before the replacement: none of them is lost."""

    def late():
        insert(replicas, (1, 2), (1, 20), at="r1")

    with before(replicas["r1"].keeper, swaps, late):
        result = put(replicas, (1, 7), where="n in (2, 7)", settings=PATIENT)
    assert result.rows_replaced == 1
    assert on_both(replicas) == [(1, 1), (1, 2), (1, 7), (1, 20), (2, 3), (3, 4)]


def test_what_another_replica_inserts_while_a_condition_is_read_is_not_lost(replicas):
    """Its number is below that of the replacement: its entry would go from the queue unseen."""

    def late():
        insert(replicas, (1, 20), at="r2")

    with (
        before(replicas["r1"].keeper, allocates, late),
        pytest.raises(PartitionChanged, match="has yet to get 1_2_2_0"),
    ):
        put(replicas, (1, 7), where="n in (2, 7)")
    assert on_both(replicas) == [(1, 1), (1, 2), (1, 20), (2, 3), (3, 4)]


def test_a_reader_does_not_wait_for_what_a_queued_replacement_takes(replicas):
    """Seed 1106448. 1. A reader lists a part, and a replacement takes it. 2. The reader misses it
    on the disk, and marks it as given up; that is refused, for the part is not promised any more.
    The mark stays. 3. While the replacement's entry was queued, readers took its range for a part
    that brings these rows back, and failed with "it is fetched again".
    """
    replica = replicas["r1"]
    [replaced, _] = [part for part in replica.store.parts() if part.partition == "1"]
    put(replicas, (1, 7), partition="1")
    replica.store.marks.give_up(replaced)
    pull_log(replica)
    assert replica.keeper.children(replica.paths.queue), "the entry is carried out already"
    with replicas.table("r1").snapshot({"broken_parts_wait_ms": 0}) as snapshot:
        assert replaced not in [part.name for part in snapshot.parts]
    assert rows(replicas) == [(1, 7), (2, 3), (3, 4)]


@pytest.mark.parametrize("times", [1, 3])
def test_a_condition_is_tried_again_when_parts_go_before_they_are_read(
    replicas, monkeypatch, times
):
    """They were merged, and clean-up has removed them: never MissingPart, which is no answer."""
    wait_until_here, left = overwrite.wait_until_here, [times]

    def parts_go(*asked):
        found = wait_until_here(*asked)
        if left[0]:
            left[0] -= 1
            insert(replicas, (1, 1), (1, left[0] + 20))
            merge(replicas)
            clean_up(replicas)
        return found

    monkeypatch.setattr(overwrite, "wait_until_here", parts_go)
    if times == 1:
        put(replicas, (1, 7), where="n = 1 or n = 7", settings=LASTING)
        assert on_both(replicas) == [(1, 2), (1, 7), (1, 20), (2, 3), (3, 4)]
    else:
        with pytest.raises(PartitionChanged, match="nothing was changed, try again"):
            put(replicas, (1, 7), where="n = 1 or n = 7")


def test_a_replica_that_lags_behind_waits_before_it_reads(replicas):
    insert(replicas, (1, 20), at="r2")
    with pytest.raises(Unavailable, match="has yet to carry out"):
        put(replicas, (1, 7), where="p = 1")
    work(replicas)
    put(replicas, (1, 7), where="p = 1")
    assert on_both(replicas) == [(1, 7), (2, 3), (3, 4)]


def test_rows_that_stay_do_not_pass_by_a_mutation(replicas):
    """They would have greater numbers than it, and never be changed."""
    replicas.table("r2").mutate("UPDATE v = 5 WHERE n = 1")
    with pytest.raises(PartitionChanged, match="mutations before it that are not finished"):
        put(replicas, (1, 7), where="n in (2, 7)")
    put(replicas, (3, 8), partition="3")
    work(replicas)
    assert assign_mutations(replicas["r1"])
    work(replicas)
    put(replicas, (1, 7), where="n in (2, 7)")
    assert on_both(replicas) == [(1, 1), (1, 7), (2, 3), (3, 8)]
    found = replicas.table("r2").dataset().to_table().to_pylist()
    assert [row["v"] for row in found if row["n"] == 1] == [5]


def test_rows_with_columns_that_this_replica_does_not_know_yet_are_not_rewritten(replicas):
    """They would lose them."""
    store = replicas.stores["r1"]
    [part] = [one for one in store.parts() if one.partition == "3"]
    newer = replace(store.manifest(part), metadata_version=1)
    Path(store.directory(part), "part.json").write_bytes(newer.encode())
    with pytest.raises(PartitionChanged, match="an ALTER that this replica has yet to take up"):
        put(replicas, (1, 7), where="n in (4, 7)")
    replicas["r1"].definition = replace(replicas["r1"].definition, metadata_version=1)
    put(replicas, (1, 7), where="n in (4, 7)")
    assert rows(replicas) == [(1, 1), (1, 2), (1, 7), (2, 3)]


def test_a_table_that_is_altered_while_it_is_read_is_told(replicas):
    def alter():
        insert(replicas, (1, 8))
        replicas["r1"].definition = replace(replicas["r1"].definition, metadata_version=1)

    with (
        before(replicas["r1"].keeper, allocates, alter),
        pytest.raises(Conflict, match="was altered while rows of it were read"),
    ):
        put(replicas, (1, 7), where="n = 7", settings=PATIENT)


def test_rows_that_stay_are_older_than_a_constraint_and_those_that_come_are_not(replicas):
    replicas.table("r1").insert(dicts([(4, 10), (4, 11)]))
    for name in ("r1", "r2"):
        known = replicas[name].definition
        replicas[name].definition = replace(known, constraints=("c CHECK n < 9",))
    put(replicas, (4, 7), where="n = 10 OR n = 7")
    assert rows(replicas) == [(1, 1), (1, 2), (2, 3), (3, 4), (4, 7), (4, 11)]
    with pytest.raises(
        ViolatedConstraint, match=r"row 1: the CONSTRAINT c CHECK n < 9 .* n = 9;"
    ):
        put(replicas, (4, 9), where="n = 9")


def test_inserts_whose_rows_stay_stay_known_and_those_replaced_do_not(replicas):
    """A retry of an insert must not double rows that are there."""
    put(replicas, (1, 9), where="n in (2, 9)")
    assert insert(replicas, (1, 1)).outcome is Outcome.DUPLICATE
    work(replicas)
    assert insert(replicas, (1, 1)).outcome is Outcome.DUPLICATE
    put(replicas, (1, 7), partition="1")
    assert insert(replicas, (1, 1)).outcome is Outcome.INSERTED
    assert on_both(replicas) == [(1, 1), (1, 7), (2, 3), (3, 4)]


@pytest.mark.parametrize("target", [{"partition": "1"}, {"where": "p = 1"}, {}])
def test_a_token_whose_rows_were_there_already_is_known(replicas, target):
    """What others insert beside them since is not taken away by a retry."""
    assert put(replicas, (1, 1), (1, 2), token="a", **target).is_duplicate
    insert(replicas, (1, 50))
    assert put(replicas, (1, 1), (1, 2), token="a", **target).is_duplicate
    assert on_both(replicas) == [(1, 1), (1, 2), (1, 50), (2, 3), (3, 4)]
    replicas.table("r1").drop_partitions(["1"], settings=NOW)
    work(replicas)
    assert not put(replicas, (1, 1), (1, 2), token="a", **target).is_duplicate
    assert on_both(replicas) == [(1, 1), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("then", ["replaced", "dropped"])
def test_a_token_whose_rows_go_while_they_are_found_there_is_done(replicas, then):
    def other():
        if then == "replaced":
            put(replicas, (1, 9), partition="1", at="r2")
        else:
            replicas.table("r2").drop_partitions(["1"], settings=NOW)
        work(replicas)

    with before(replicas["r1"].keeper, records, other):
        result = put(replicas, (1, 1), (1, 2), partition="1", token="a", settings=PATIENT)
    assert not result.is_duplicate
    assert on_both(replicas) == [(1, 1), (1, 2), (2, 3), (3, 4)]


def records(op):
    return isinstance(op, Create) and "/inserts/" in op.path


@pytest.mark.parametrize("merged", [False, True])
def test_rows_that_stay_and_are_dropped_can_be_inserted_again(replicas, merged):
    """They have other numbers since. In their old part or with another insert's rows."""
    if merged:
        optimize_partition(replicas["r1"], "1", final=True, skip_merged=False)
        work(replicas)
    put(replicas, (1, 9), where="n = 9")
    work(replicas)
    store = replicas.stores["r1"]
    kept = [part for part in active(replicas) if store.manifest(part).sources]
    for part in kept:
        replicas.table("r1").drop_part(part, settings=NOW)
    work(replicas)
    assert rows(replicas, "r1") == [(1, 9), (2, 3), (3, 4)]
    for pair in ((1, 1), (1, 2)):
        assert insert(replicas, pair).outcome is Outcome.INSERTED
        assert insert(replicas, pair).outcome is Outcome.DUPLICATE
    assert insert(replicas, (2, 3)).outcome is Outcome.DUPLICATE
    assert on_both(replicas) == [(1, 1), (1, 2), (1, 9), (2, 3), (3, 4)]


def active(replicas):
    return [one.name for one in replicas.table("r1").parts() if one.name.partition == "1"]


@pytest.mark.parametrize("fits", [True, False])
def test_rows_that_stay_and_are_lost_are_known_to_be(replicas, monkeypatch, fits):
    """Also when their ids did not fit beside the replacement."""
    if not fits:
        monkeypatch.setattr(swap, "with_renumbering", lambda replica, ops, moved: (ops, True))
    put(replicas, (1, 9), where="n in (2, 9)")
    work(replicas)
    kept = min(active(replicas))
    _, *gone = what_to_forget(replicas["r1"], [kept], are_lost=True)
    assert sorted(len(ops) for ops in gone) == [1, 1], "its id and its record"


@pytest.mark.parametrize("target", [{"partition": "1"}, {}])
def test_rows_that_a_mutation_has_yet_to_change_are_not_the_same(replicas, target):
    """1. A DELETE is written. 2. The rows are put there again, while they are there still.
    3. It is carried out: it came before them, so it takes none of them.
    """
    replicas.table("r2").mutate("DELETE WHERE n = 1")
    assert not put(replicas, (1, 1), (1, 2), **target).is_duplicate
    work(replicas)
    assign_mutations(replicas["r1"])
    assert on_both(replicas) == [(1, 1), (1, 2), (2, 3), (3, 4)]


def test_rows_of_a_condition_that_a_mutation_has_yet_to_change_are_not_the_same(replicas):
    replicas.table("r2").mutate("DELETE WHERE n = 1")
    with pytest.raises(PartitionChanged, match="mutations before it that are not finished"):
        put(replicas, (1, 1), where="n = 1")
    assert assign_mutations(replicas["r1"])
    work(replicas)
    put(replicas, (1, 1), where="n = 1")
    assert on_both(replicas) == [(1, 1), (1, 2), (2, 3), (3, 4)]


def test_a_mutation_of_other_partitions_does_not_keep_rows_from_being_the_same(replicas):
    replicas.table("r2").mutate("DELETE IN PARTITION ID '2' WHERE n = 3")
    assert put(replicas, (1, 1), where="n = 1").is_duplicate


def test_a_token_stands_that_brought_no_row(replicas):
    """Not even the entry that carries it out here forgets it: what others insert later stays."""
    put(replicas, partition="1", token="a", settings=EMPTY)
    work(replicas)
    insert(replicas, (1, 50))
    assert put(replicas, partition="1", token="a", settings=EMPTY).is_duplicate
    assert on_both(replicas) == [(1, 50), (2, 3), (3, 4)]
    replicas.table("r2").drop_partitions(["1"], settings=NOW)
    work(replicas)
    insert(replicas, (1, 51))
    assert not put(replicas, partition="1", token="a", settings=EMPTY).is_duplicate
    assert on_both(replicas) == [(2, 3), (3, 4)]


def replacing(replica):
    plain = partitioned(replica)
    return replace(plain, engine=replace(plain.engine, kind="ReplacingMergeTree"))


def test_rows_that_come_are_newer_than_those_that_stay(tmp_path):
    """Of rows of one key an engine keeps the one that was put there last."""
    with Replicas(tmp_path, define=replacing) as replicas:
        replicas.table("r1").insert([{"p": 1, "n": 1, "v": 1}])
        new = [{"p": 1, "n": 1, "v": 2}]
        replicas.table("r1").replace(new, where="v = 2", settings=NOW)
        work(replicas)
        optimize_partition(replicas["r1"], "1", final=True, skip_merged=False)
        work(replicas)
        for name in ("r1", "r2"):
            assert replicas.table(name).dataset().to_table().to_pylist() == new


def test_rows_that_wait_for_their_quorum_are_not_numbered_anew(replicas):
    """1. r1 inserts; r2 knows of the part. 2. r1 replaces by a condition: the part is gone, its
    rows stay under another number. 3. r2 finds that nobody has the part: its quorum failed, and its
    insert is forgotten. 4. Said again, it doubles the rows. So the second step waits.
    """
    asked = {"settings": {"insert_quorum": 2, "insert_quorum_timeout": 0}}
    with pytest.raises(QuorumNotReached):
        insert(replicas, (1, 50), **asked)
    pull_log(replicas["r2"])
    with pytest.raises(Unavailable, match="quorum"):
        put(replicas, (1, 9), where="n in (2, 9)")
    replicas.executor("r2", "fetch").step(None)
    work(replicas)
    put(replicas, (1, 9), where="n in (2, 9)")
    work(replicas)
    assert insert(replicas, (1, 50), **asked).outcome is Outcome.DUPLICATE
    assert on_both(replicas) == [(1, 1), (1, 9), (1, 50), (2, 3), (3, 4)]


def collapsing(replica):
    plain = definition_of(
        replica, (Column("p", "UInt8"), Column("n", "UInt64"), Column("sign", "Int8"))
    )
    engine = replace(plain.engine, kind="CollapsingMergeTree", sign_column="sign")
    return replace(plain, partition_by=("p",), engine=engine)


def test_of_rows_that_cancel_each_other_nothing_is_left_on_the_disk(tmp_path):
    with Replicas(tmp_path, define=collapsing) as replicas:
        table = replicas.table("r1")
        table.insert([{"p": 1, "n": 1, "sign": 1}])
        both = [{"p": 1, "n": 2, "sign": 1}, {"p": 1, "n": 2, "sign": -1}]
        assert table.replace(both, partition="1", settings=EMPTY).rows_replaced == 1
        work(replicas)
        for name in ("r1", "r2"):
            assert replicas.table(name).dataset().to_table().num_rows == 0
            assert replicas.stores[name].staged() == []


def test_nothing_is_written_where_nothing_comes_and_nothing_goes(replicas):
    """Nor is a merge that is being decided refused because of it."""
    multis = multis_of(replicas["r1"].keeper)
    may_be_empty = replace(NOW, allow_replace_partition_from_empty_source=True)
    result = put(replicas, where="n = 99", settings=may_be_empty)
    assert (result.rows_replaced, result.rows_added, result.is_duplicate) == (0, 0, False)
    assert multis == []


def test_what_was_staged_goes_also_while_zookeeper_is_silent(replicas, monkeypatch):
    """The error is the one that ended it."""
    replica, is_silent = replicas["r1"], [False]

    def living():
        if is_silent[0]:
            raise ZooKeeperUnreachable("no ZooKeeper answers")
        return replica

    def silent(*_):
        is_silent[0] = True
        raise Unavailable("the connection broke")

    monkeypatch.setattr(overwrite, "swap", silent)
    asked = overwrite.Overwrite(dicts([(1, 7)]), partitions=("1",))
    with pytest.raises(Unavailable, match="the connection broke"):
        overwrite.overwrite(living, asked, NOW, EventWaker)
    assert replica.store.staged() == []


@pytest.mark.parametrize("earlier", ["a drop", "a replacement"])
def test_a_token_that_changed_nothing_stands_when_others_carry_out_what_came_before(
    replicas, earlier
):
    """They see to the ids and records of what it took: rows that were inserted beside the token's
    went when it was repeated.
    """
    if earlier == "a drop":
        replicas.table("r1").drop_partitions(["1"], settings=NOW)
    else:
        put(replicas, partition="1", settings=EMPTY)
    work(replicas, "r1")
    assert put(replicas, partition="1", token="a", settings=EMPTY).is_duplicate
    insert(replicas, (1, 10))
    work(replicas)
    assert put(replicas, partition="1", token="a", settings=EMPTY).is_duplicate
    assert (1, 10) in on_both(replicas)
    replicas.table("r1").drop_partitions(["1"], settings=NOW)
    work(replicas)
    insert(replicas, (1, 11))
    assert not put(replicas, partition="1", token="a", settings=EMPTY).is_duplicate


@pytest.mark.parametrize("quorum", ["2", "auto"])
def test_a_quorum_is_refused_as_nobody_would_wait_for_it(replicas, quorum):
    """It was answered as if so many replicas had the rows."""
    before_it = rows(replicas, "r1")
    with pytest.raises(UserError, match=f"insert_quorum = {quorum}.*alter_sync = 2"):
        put(replicas, (1, 7), partition="1", settings=replace(NOW, insert_quorum=quorum))
    assert rows(replicas, "r1") == before_it
    assert replicas.stores["r1"].staged() == []
    put(replicas, (1, 7), partition="1", settings=replace(NOW, insert_quorum="1"))
