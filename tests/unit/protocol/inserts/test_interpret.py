"""What a refused or unanswered insert means (spec §2.5, §2.6)."""

import pytest

from rmt_pipeline.protocol.inserts.interpret import (
    Cancelled,
    Committed,
    DuplicateBlock,
    DuplicateInsert,
    Evidence,
    FindOut,
    InsertMoved,
    NotActive,
    NotCommitted,
    PartitionMissing,
    Purpose,
    QuorumBusy,
    StillUnknown,
    TableGone,
    Unexpected,
    interpret_allocation,
    interpret_commit,
    settle,
)


@pytest.mark.parametrize(
    ("refused", "purpose", "block", "outcome"),
    [
        ("node exists", Purpose.BLOCK_ID, 3, DuplicateBlock(3)),
        ("node exists", Purpose.INSERT_RECORD, None, DuplicateInsert()),
        ("bad version", Purpose.INSERT_GOES_ON, None, InsertMoved()),
        ("no node", Purpose.INSERT_GOES_ON, None, InsertMoved()),
        ("no node", Purpose.PARTITION, 2, PartitionMissing(2)),
        ("no node", Purpose.IS_ACTIVE, None, NotActive()),
        ("bad version", Purpose.HOST, None, NotActive()),
        ("bad version", Purpose.NOT_LOST, None, NotActive()),
        ("no node", Purpose.BLOCK_ID, 0, TableGone()),
        ("no node", Purpose.INSERT_RECORD, None, TableGone()),
        ("node exists", Purpose.PARTITION, 1, Unexpected("node exists", Purpose.PARTITION, 1)),
        ("no node", Purpose.PART, 1, Unexpected("no node", Purpose.PART, 1)),
        (None, Purpose.PARTITION, 1, FindOut()),
    ],
)
def test_why_no_block_numbers_were_allocated(refused, purpose, block, outcome) -> None:
    """P7."""
    assert interpret_allocation(refused, purpose, block) == outcome


@pytest.mark.parametrize(
    ("refused", "purpose", "block", "outcome"),
    [
        ("node exists", Purpose.BLOCK_ID, 3, DuplicateBlock(3)),
        ("node exists", Purpose.INSERT_RECORD, None, DuplicateInsert()),
        ("bad version", Purpose.INSERT_GOES_ON, None, InsertMoved()),
        ("no node", Purpose.INSERT_GOES_ON, None, InsertMoved()),
        ("node exists", Purpose.QUORUM, 0, QuorumBusy()),
        ("no node", Purpose.UNLOCK, 2, Cancelled(2)),
        ("no node", Purpose.IS_ACTIVE, None, NotActive()),
        ("bad version", Purpose.IS_ACTIVE, None, NotActive()),
        ("no node", Purpose.HOST, None, NotActive()),
        ("bad version", Purpose.HOST, None, NotActive()),
        ("bad version", Purpose.NOT_LOST, None, NotActive()),
        ("no node", Purpose.LOG_ENTRY, 0, TableGone()),
        ("no node", Purpose.PART, 0, TableGone()),
        ("no node", Purpose.BLOCK_ID, 0, TableGone()),
        ("node exists", Purpose.PART, 1, Unexpected("node exists", Purpose.PART, 1)),
        (
            "node exists",
            Purpose.INSERT_BATCH,
            None,
            Unexpected("node exists", Purpose.INSERT_BATCH, None),
        ),
        ("not empty", Purpose.UNLOCK, 1, Unexpected("not empty", Purpose.UNLOCK, 1)),
        (None, Purpose.UNLOCK, 1, FindOut()),
    ],
)
def test_why_nothing_was_committed(refused, purpose, block, outcome) -> None:
    """P7. The table of spec §2.5."""
    assert interpret_commit(refused, purpose, block) == outcome


def test_a_lock_that_we_could_delete_was_not_deleted_by_the_commit() -> None:
    """P5."""
    assert settle(Evidence(locks_deleted=True)) == NotCommitted()


@pytest.mark.parametrize("trace", ["part_node", "block_id", "log_entry"])
def test_any_trace_of_the_commit_proves_it_once_the_locks_are_gone(trace: str) -> None:
    """P5. The part's node alone may have been cleaned up after a merge (spec §16.2 I5)."""
    assert settle(Evidence(locks_deleted=False, **{trace: True})) == Committed()


def test_no_lock_and_no_entry_in_the_log_means_that_nothing_landed() -> None:
    """P5. If the log does not go back to the commit, nothing is proved."""
    assert settle(Evidence(locks_deleted=False, log_is_whole=True)) == NotCommitted()
    assert settle(Evidence(locks_deleted=False)) == StillUnknown()


def test_without_an_answer_to_the_question_nothing_is_known() -> None:
    """P5. Whatever a read said: the write may still be under way."""
    assert settle(Evidence(locks_deleted=None)) == StillUnknown()
    assert settle(Evidence(locks_deleted=None, part_node=True)) == StillUnknown()


def test_a_commit_beside_its_own_locks_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="although its locks were there"):
        settle(Evidence(locks_deleted=True, log_entry=True))
