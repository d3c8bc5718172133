"""Block numbers that an insert leaves when it ends in a way that nobody wished for. The session
lives on: it is that of a server, and merges of the partition wait for every lock.
"""

import errno
from functools import partial

import pytest

from rmt_pipeline.protocol.errors import MissingPart, OutcomeUnknown, TableIsReadOnly
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.result import InsertCancelled
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete
from rmt_pipeline.zookeeper.strays import Stray
from tests.support.lost_answers import allocates, before, faulty, logs, unlocks

ROWS = [{"n": 1}, {"n": 2}]
ONCE = QuerySettings(insert_keeper_max_retries=0)


def locks(replicas):
    """As others see them."""
    keeper, table = replicas["r2"].keeper, replicas["r2"].table
    return [
        name
        for partition in keeper.children(table.block_numbers)
        for name in keeper.children(table.partition(partition))
    ]


def make_contact(replicas):
    """Anything at all is asked in the session."""
    replica = replicas["r1"]
    assert replica.keeper.exists(replica.table.root) is not None


def rows_of(replicas):
    return sum(part.manifest.rows for part in replicas.table("r1").parts())


def gone_inactive(replicas):
    """Right before the commit, the replica is not active any more: it is refused."""
    replica = replicas["r1"]
    gone = Delete(replica.paths.is_active)
    return before(replica.keeper, logs, lambda: replica.keeper.multi([gone]))


@pytest.mark.parametrize("landed", [True, False])
def test_an_allocation_without_answer_leaves_no_lock(replicas, landed):
    keeper = replicas["r1"].keeper
    with faulty(keeper, allocates, landed=landed), pytest.raises(OutcomeUnknown):
        replicas.table("r1").insert(ROWS, settings=ONCE)
    make_contact(replicas)
    assert locks(replicas) == []
    assert rows_of(replicas) == 0


@pytest.mark.parametrize("landed", [True, False])
def test_an_insert_without_identity_is_not_told_to_be_sent_again(replicas, landed):
    """Nobody would know it again: these rows would be there twice."""
    plain = QuerySettings(insert_keeper_max_retries=0, insert_deduplicate=False)
    keeper = replicas["r1"].keeper
    with (
        faulty(keeper, logs, landed=landed),
        pytest.raises(OutcomeUnknown, match=r"could be there twice\. .* has all_0_0_0"),
    ):
        replicas.table("r1").insert(ROWS, settings=plain)
    assert rows_of(replicas) == (2 if landed else 0)
    with (
        faulty(keeper, logs, landed=landed),
        pytest.raises(OutcomeUnknown, match="answered as a duplicate"),
    ):
        replicas.table("r1").insert(ROWS, settings=ONCE)


def test_the_next_try_takes_the_lock_of_the_first_away(replicas):
    """In the same session: it is not ended for one answer that did not come."""
    session = replicas["r1"].keeper.session_id
    with faulty(replicas["r1"].keeper, allocates, landed=True):
        result = replicas.table("r1").insert(ROWS)
    assert [str(part) for part in result.parts] == ["all_1_1_0"]
    assert replicas["r1"].keeper.session_id == session
    assert locks(replicas) == []


def test_the_lock_of_another_insert_in_this_session_is_not_taken_away(replicas):
    """Of the same table and partition, allocated by another thread and in use."""
    table = replicas.table("r1")
    keeper = replicas["r1"].keeper

    def another():
        with faulty(keeper, allocates, landed=True), pytest.raises(OutcomeUnknown):
            replicas.table("r1").insert([{"n": 3}], settings=ONCE)
        make_contact(replicas)
        assert len(locks(replicas)) == 1

    with before(keeper, logs, another):
        assert table.insert(ROWS).rows == 2
    assert locks(replicas) == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_result_stays_unknown_leaves_no_lock(replicas, landed):
    keeper = replicas["r1"].keeper
    with (
        faulty(keeper, logs, landed=landed),
        pytest.raises(OutcomeUnknown, match="is not known"),
    ):
        replicas.table("r1").insert(ROWS, settings=ONCE)
    make_contact(replicas)
    assert locks(replicas) == []
    assert replicas.table("r1").insert(ROWS).rows == (0 if landed else 2)
    assert rows_of(replicas) == 2


def test_a_refused_commit_gives_its_numbers_back(replicas):
    with gone_inactive(replicas), pytest.raises(TableIsReadOnly):
        replicas.table("r1").insert(ROWS, settings=ONCE)
    assert locks(replicas) == []


@pytest.mark.parametrize("landed", [True, False])
def test_numbers_that_are_given_back_without_an_answer_do_not_stay(replicas, landed):
    keeper = replicas["r1"].keeper
    with (
        gone_inactive(replicas),
        faulty(keeper, unlocks, but=logs, landed=landed),
        pytest.raises(TableIsReadOnly),
    ):
        replicas.table("r1").insert(ROWS, settings=ONCE)
    make_contact(replicas)
    assert locks(replicas) == []


def test_what_has_no_answer_twice_is_tried_again(replicas):
    keeper = replicas["r1"].session
    with faulty(keeper, unlocks, but=logs, landed=False, times=3):
        with gone_inactive(replicas), pytest.raises(TableIsReadOnly):
            replicas.table("r1").insert(ROWS, settings=ONCE)
        for _ in range(2):
            make_contact(replicas)
            assert len(locks(replicas)) == 1
    make_contact(replicas)
    assert locks(replicas) == []


def drop_one(replica):
    """As a DROP takes the first number that is held."""
    partition = replica.table.partition("all")
    [first, *_] = replica.keeper.children(partition)
    replica.keeper.multi([Delete(f"{partition}/{first}")])


def test_of_several_numbers_of_which_a_drop_took_one_the_others_are_given_back(replicas):
    replica = replicas["r1"]

    small = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)
    with (
        before(replica.keeper, logs, partial(drop_one, replica)),
        pytest.raises(InsertCancelled),
    ):
        replicas.table("r1").insert(ROWS, settings=small)
    assert locks(replicas) == []


def test_of_a_commit_without_answer_of_which_a_drop_took_a_number_the_others_are_given_back(
    replicas,
):
    """The drop made sure that the commit never lands. Who asks is refused because of its number."""
    replica = replicas["r1"]

    small = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)
    with (
        before(replica.keeper, unlocks, partial(drop_one, replica)),
        faulty(replica.keeper, logs, landed=False),
    ):
        assert replicas.table("r1").insert(ROWS, settings=small).rows == 2
    assert locks(replicas) == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "the disk is gone"), KeyboardInterrupt()])
def test_an_error_of_any_kind_between_the_two_multis_leaves_no_lock(
    replicas, monkeypatch, error
):
    def fails(*_):
        raise error

    monkeypatch.setattr(PartStore, "publish_all", fails)
    with pytest.raises(type(error)):
        replicas.table("r1").insert(ROWS)
    assert locks(replicas) == []


@pytest.mark.parametrize("at", [allocates, logs])
@pytest.mark.parametrize("landed", [True, False])
def test_an_interrupted_wait_for_an_answer_leaves_no_lock(replicas, at, landed):
    keeper = replicas["r1"].keeper
    with (
        faulty(keeper, at, landed=landed, error=KeyboardInterrupt()),
        pytest.raises(KeyboardInterrupt),
    ):
        replicas.table("r1").insert(ROWS)
    make_contact(replicas)
    assert locks(replicas) == []
    assert replicas.table("r1").insert(ROWS).rows == (0 if at is logs and landed else 2)
    assert rows_of(replicas) == 2


def test_a_lock_of_another_session_is_never_taken_for_ones_own(replicas):
    """Whatever is written in it: only the session that made a lock may take it for left over."""
    ours, theirs, table = replicas["r1"].keeper, replicas["r2"].keeper, replicas["r2"].table
    with faulty(ours, allocates, landed=True), pytest.raises(OutcomeUnknown):
        replicas.table("r1").insert(ROWS, settings=ONCE)
    [name] = locks(replicas)
    data = theirs.get(f"{table.partition('all')}/{name}")[0]
    theirs.multi([Create(table.lock_prefix("all"), data, ephemeral=True, sequence=True)])
    make_contact(replicas)
    assert locks(replicas) == ["block-0000000001"]


def test_nor_one_that_has_the_name_of_ours_in_a_table_that_was_made_anew(replicas):
    """1. A lock is given back, without an answer. 2. The table is dropped and created again, and
    counts from the start. 3. Another session gets that number. 4. Ours sees to what it left.
    """
    ours, theirs, table = replicas["r1"].keeper, replicas["r2"].keeper, replicas["r2"].table
    replicas.table("r1").insert(ROWS)
    path = table.lock("all", 0)
    ours.strays.leave([Stray(path)])
    theirs.multi([Create(path, b"of another table", ephemeral=True)])
    make_contact(replicas)
    assert locks(replicas) == ["block-0000000000"]
    assert len(ours.strays) == 0


def test_an_insert_whose_bytes_were_swept_is_not_tried_again(replicas, monkeypatch):
    """The clock has jumped, and a clean-up took what was staged: no retry can bring it back."""
    replica = replicas["r1"]
    publish, tries = PartStore.publish_all, []

    def swept(store, pairs):
        tries.append(len(pairs))
        store.sweep(keep=(), older_than_s=0, now_s=1e12)
        publish(store, pairs)

    with monkeypatch.context() as patch:
        patch.setattr(PartStore, "publish_all", swept)
        with pytest.raises(MissingPart, match="can't be published"):
            replicas.table("r1").insert(ROWS)
    assert tries == [1]
    assert locks(replicas) == []
    assert replicas.parts("r1") == replica.keeper.children(replica.table.log) == []
    assert replicas.table("r1").insert(ROWS).rows == len(ROWS)
