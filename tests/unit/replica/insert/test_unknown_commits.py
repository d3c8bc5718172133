"""A commit that got no answer has landed, and what it brought has gone on before anybody asks: it
was replaced, rewritten, merged or dropped. Then neither its parts nor its ids tell (spec §2.6).
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import Mock

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown, Unavailable
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert import quorum
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.insert.result import Outcome, QuorumNotReached
from rmt_pipeline.replica.partitions import swap
from rmt_pipeline.replica.upkeep.commit_notes import tidy_notes
from rmt_pipeline.store.dropped import DroppedRanges
from rmt_pipeline.store.marks import Marks
from rmt_pipeline.zookeeper.keeper import Delete
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import before, faulty, logs
from tests.support.partitioned import clean_up, dicts, insert, merge, rows, work

NOW = QuerySettings(alter_sync=0, receive_timeout=0)
PLAIN = QuerySettings(insert_deduplicate=False)
NAMED = QuerySettings()

Later = Callable[[Callable[[], object]], AbstractContextManager[None]]


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=partitioned) as opened:
        insert(opened, (1, 1))
        work(opened)
        yield opened


@pytest.fixture
def later(replicas, monkeypatch) -> Later:
    """The next insert of r1 lands, its answer is lost, and before it asks what became of it
    something happens; the files that leave the table are still on the disk.
    """
    settle = Insertion._settle

    @contextmanager
    def so_late(happens: Callable[[], object]) -> Iterator[None]:
        todo = [happens]

        def late(insertion, replica):
            if insertion.is_pending and todo:
                todo.pop()()
            settle(insertion, replica)

        with monkeypatch.context() as patched, faulty(replicas["r1"].keeper, logs, landed=True):
            patched.setattr(Insertion, "_settle", late)
            patched.setattr(swap, "_leave_disk", lambda *_: None)
            yield
        assert not todo

    return so_late


def put(replicas, *pairs, at="r1", **options):
    return replicas.table(at).replace(dicts(pairs), settings=NOW, **options)


@pytest.mark.parametrize("settings", [PLAIN, NAMED])
def test_what_was_replaced_meanwhile_does_not_come_back(replicas, later, settings):
    with later(lambda: put(replicas, (1, 7), partition="1")):
        result = insert(replicas, (1, 2), settings=settings)
    assert (result.outcome, result.rows) == (Outcome.INSERTED, 1)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 7)]


@pytest.mark.parametrize("settings", [PLAIN, NAMED])
def test_what_a_condition_left_is_not_there_twice(replicas, later, settings):
    """The rows stayed, in a part with another number."""
    with later(lambda: put(replicas, (1, 7), where="n in (1, 7)")):
        result = insert(replicas, (1, 2), settings=settings)
    assert result.rows == 1
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 2), (1, 7)]


@pytest.mark.parametrize("settings", [PLAIN, NAMED])
def test_what_was_merged_and_cleaned_up_is_in(replicas, later, settings):
    """Nobody is told that it is not."""

    def happens():
        merge(replicas)
        clean_up(replicas)

    with later(happens):
        result = insert(replicas, (1, 2), settings=settings)
    assert result.rows == 1
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1), (1, 2)]


def failing(*_args, **_options):
    raise OSError(errno.EIO, "Input/output error")


def test_a_disk_that_fails_behind_the_commit_does_not_make_it_fail(replicas, monkeypatch):
    """A note of what is in by now stays on the disk, and the clean-up finds it there."""
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 1)  # a commit for each partition
    monkeypatch.setattr(Marks, "forget_commits", failing)
    result = insert(replicas, (1, 2), (2, 3), (3, 4))
    assert (result.outcome, result.rows) == (Outcome.INSERTED, 3)
    monkeypatch.undo()
    assert replicas.stores["r1"].marks.commit_notes()
    tidy_notes(replicas["r1"])
    assert replicas.stores["r1"].marks.commit_notes() == {}


def test_a_disk_that_fails_behind_a_replacement_does_not_make_it_fail(replicas, monkeypatch):
    """What was replaced leaves the disk later."""
    monkeypatch.setattr(DroppedRanges, "note", failing)
    assert put(replicas, (1, 7), partition="1").rows_replaced == 1
    monkeypatch.undo()
    work(replicas)
    clean_up(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 7)]
    assert len(replicas.stores["r1"].parts()) == 1


def forget_the_log(replicas):
    """A clean-up that keeps no more than it must."""
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    keeper.multi([Delete(table.log_entry(name)) for name in keeper.children(table.log)])


def test_without_the_log_it_stays_unknown(replicas, later):
    def happens():
        put(replicas, (1, 7), where="n in (1, 7)")
        work(replicas)
        forget_the_log(replicas)

    plain = replace(PLAIN, insert_keeper_max_retries=3)
    with pytest.raises(OutcomeUnknown), later(happens):
        insert(replicas, (1, 2), settings=plain)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 2), (1, 7)]


@pytest.mark.parametrize("is_trimmed", [True, False])
def test_the_log_since_the_insert_tells_enough(replicas, monkeypatch, is_trimmed):
    """The commit did not land, and another number was taken away: it is tried again. It does not
    matter whether the log still has what was there before.
    """
    insert(replicas, (1, 3))  # from here on the process knows how long the log was
    work(replicas)
    if is_trimmed:
        forget_the_log(replicas)
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    settle, todo = Insertion._settle, [lambda lock: keeper.multi([Delete(lock)])]

    def late(insertion, replica):
        if insertion.is_pending and todo:
            todo.pop()(insertion._committing.locks[0])
        settle(insertion, replica)

    with monkeypatch.context() as patched, faulty(keeper, logs, landed=False):
        patched.setattr(Insertion, "_settle", late)
        assert insert(replicas, (1, 2), settings=PLAIN).rows == 1
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1), (1, 2), (1, 3)]
    assert keeper.children(table.partition("1")) == []


def test_a_log_that_grew_by_the_inserts_of_others_tells_enough(replicas, monkeypatch):
    """r1 has been quiet for a while; others inserted, and what they wrote into the log was trimmed.
    Then a commit of r1 does not land, and its session loses the number: it is tried again.
    """
    insert(replicas, (1, 3))
    insert(replicas, (1, 4), at="r2")
    work(replicas)
    forget_the_log(replicas)
    replicas.clock.passed_s += 60
    keeper = replicas["r1"].keeper
    settle, todo = Insertion._settle, [lambda lock: keeper.multi([Delete(lock)])]

    def late(insertion, replica):
        if insertion.is_pending and todo:
            todo.pop()(insertion._committing.locks[0])
        settle(insertion, replica)

    plain = replace(PLAIN, insert_keeper_max_retries=3)
    with monkeypatch.context() as patched, faulty(keeper, logs, landed=False):
        patched.setattr(Insertion, "_settle", late)
        assert insert(replicas, (1, 2), settings=plain).rows == 1
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1), (1, 2), (1, 3), (1, 4)]


def test_what_another_thread_has_found_outdated_stays_so(replicas):
    """It was told that the replica was cloned, while an insert of before was on its way."""
    memory = replicas["r1"].memory
    insert(replicas, (1, 2))
    assert memory.insertable is not None

    def is_refused():
        memory.insertable = None

    with before(replicas["r1"].keeper, logs, is_refused):
        insert(replicas, (1, 3))
    assert memory.insertable is None


@pytest.mark.parametrize("settings", [PLAIN, NAMED])
def test_the_advice_to_say_it_again_is_given_only_where_that_doubles_nothing(
    replicas, monkeypatch, settings
):
    """The rows are in, and no try finds out whether a quorum has them."""
    asked = replace(settings, insert_quorum="2", insert_keeper_max_retries=0)
    with monkeypatch.context() as away:
        away.setattr(quorum, "wait_for_quorum", Mock(side_effect=Unavailable("away")))
        with pytest.raises(QuorumNotReached) as told:
            insert(replicas, (1, 2), settings=asked)
    if settings is PLAIN:
        assert "Do not insert them again" in str(told.value)
        return
    assert "Insert the same data again" in str(told.value)
    work(replicas)
    assert insert(replicas, (1, 2), settings=asked).outcome is Outcome.DUPLICATE
    assert rows(replicas) == [(1, 1), (1, 2)]
