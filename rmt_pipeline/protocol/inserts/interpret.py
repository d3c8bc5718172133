"""What the result of an insert's two multis means (spec §2.5, §2.6; design §5).

A multi is refused because of one operation. What that operation was for (`Purpose`), which block
of the insert it belongs to, and ZooKeeper's reason together say what happened. Each outcome is a
class of its own whose docstring says what the insert does next. `FindOut` and `settle` are for the
third outcome, no answer at all.
"""

from dataclasses import dataclass
from enum import StrEnum


class Purpose(StrEnum):
    """What an operation of an insert's multi asserts or does."""

    IS_ACTIVE = "this replica is active"
    HOST = "this replica was not started anew"
    NOT_LOST = "this replica is not being cloned from another"
    PARTITION = "a block number in the partition"
    LOG_ENTRY = "the part is in the log"
    UNLOCK = "the block number is no longer in flight"
    BLOCK_ID = "the same block is refused from now on"
    BLOCK_THERE = "the same block, which is not inserted again, is there still"
    PART = "this replica has the part"
    INSERT_RECORD = "the same insert is answered from now on"
    INSERT_GOES_ON = "nobody has gone on with the same insert meanwhile"
    INSERT_BATCH = "what this commit puts into the table is known"
    QUORUM = "the insert waits for its quorum"
    NOTHING_DROPPED = "no partition was dropped since an ATTACH looked"


@dataclass(frozen=True, slots=True)
class DuplicateBlock:
    """Block `block` is in the table already. Roll back; allocate again without it."""

    block: int


@dataclass(frozen=True, slots=True)
class BlockGone:
    """A block that was left out because the table had it has since been dropped or lost, or is in
    another part now; or a partition was dropped since an ATTACH looked. Roll back; look again.
    """


@dataclass(frozen=True, slots=True)
class DuplicateInsert:
    """The insert has a record. Roll back, read it, and answer by it or go on from it."""


@dataclass(frozen=True, slots=True)
class InsertMoved:
    """Another try of the same insert has put something into the table since its record was read,
    or the record was removed. Roll back; read it again and go on from there.
    """


@dataclass(frozen=True, slots=True)
class PartitionMissing:
    """Block `block` is the first of its partition. Create the partition, allocate again."""

    block: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The lock of `block` is gone: a DROP cancelled the insert, or our session is over.

    Nothing was written. Roll back; a new try allocates new numbers, after the DROP.
    """

    block: int


@dataclass(frozen=True, slots=True)
class NotActive:
    """This replica is not active (`is_active` is gone or not the one we saw), or it is lost and is
    being cloned from another one. Roll back; the table is read-only here until its server has
    started over.
    """


@dataclass(frozen=True, slots=True)
class QuorumBusy:
    """Another insert waits for its quorum, and quorum inserts of this table run one at a time."""


@dataclass(frozen=True, slots=True)
class TableGone:
    """A node is missing that exists as long as the table or this replica does: that was dropped."""


@dataclass(frozen=True, slots=True)
class Unexpected:
    """No rule explains this refusal. Roll back and report it: it is a bug, or a person changed
    nodes in ZooKeeper by hand.
    """

    kind: str
    purpose: Purpose
    block: int | None


@dataclass(frozen=True, slots=True)
class FindOut:
    """There was no answer: the write may have landed, or may still land. Keep everything; make
    a conflicting write (delete the locks), read what is there, and ask `settle`.
    """


AllocationOutcome = (
    DuplicateBlock
    | DuplicateInsert
    | InsertMoved
    | PartitionMissing
    | NotActive
    | QuorumBusy
    | TableGone
    | Unexpected
)
CommitOutcome = (
    DuplicateBlock
    | BlockGone
    | DuplicateInsert
    | InsertMoved
    | Cancelled
    | NotActive
    | QuorumBusy
    | TableGone
    | Unexpected
)


def interpret_allocation(
    refused: str | None, purpose: Purpose, block: int | None
) -> AllocationOutcome | FindOut:
    """Why no block numbers were allocated. `refused` None: there was no answer.

    Without an answer the numbers may have been allocated. Then their locks, whose names we do not
    know, stay as long as this session, and no parts can be merged across them. Find out by listing
    the partition's locks of this session, or end the session.
    """
    if refused is None:
        return FindOut()
    match refused, purpose, block:
        case "node exists", Purpose.BLOCK_ID, int(index):
            return DuplicateBlock(index)
        case "node exists", Purpose.INSERT_RECORD, _:
            return DuplicateInsert()
        case (("no node" | "bad version"), Purpose.INSERT_GOES_ON, _):
            return InsertMoved()
        case "no node", Purpose.PARTITION, int(index):
            return PartitionMissing(index)
        case "node exists", Purpose.QUORUM, _:
            return QuorumBusy()
        case (
            ("no node" | "bad version"),
            (Purpose.IS_ACTIVE | Purpose.HOST | Purpose.NOT_LOST),
            _,
        ):
            return NotActive()
        case "no node", (Purpose.BLOCK_ID | Purpose.INSERT_RECORD), _:
            return TableGone()
        case _:
            return Unexpected(refused, purpose, block)


def interpret_commit(
    refused: str | None, purpose: Purpose, block: int | None
) -> CommitOutcome | FindOut:
    """Why nothing of the insert was committed. `refused` None: there was no answer."""
    if refused is None:
        return FindOut()
    match refused, purpose, block:
        case "node exists", Purpose.BLOCK_ID, int(index):
            # Two inserts of the block passed the test at allocation: the first to commit wins
            # (spec §2.8, I2).
            return DuplicateBlock(index)
        case "node exists", Purpose.INSERT_RECORD, _:
            return DuplicateInsert()
        case (("no node" | "bad version"), Purpose.INSERT_GOES_ON, _):
            return InsertMoved()
        case "node exists", Purpose.QUORUM, _:
            return QuorumBusy()
        case (("no node" | "bad version"), Purpose.BLOCK_THERE | Purpose.NOTHING_DROPPED, _):
            return BlockGone()
        case "no node", Purpose.UNLOCK, int(index):
            return Cancelled(index)
        case (
            ("no node" | "bad version"),
            (Purpose.IS_ACTIVE | Purpose.HOST | Purpose.NOT_LOST),
            _,
        ):
            return NotActive()
        case "no node", _, _:
            return TableGone()
        case _:
            return Unexpected(refused, purpose, block)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was found after a commit without an answer.

    `locks_deleted`: the multi that deletes all of the insert's locks succeeded (True), was refused
    because one of them was gone (False), or had no answer either (None). The others were read after
    that and after a sync; each says whether there is a part node of the insert, a block id that
    names one of its parts, or a log entry of ours.
    `log_is_whole`: all entries were read that were written since the commit was sent.
    """

    locks_deleted: bool | None
    part_node: bool = False
    block_id: bool = False
    log_entry: bool = False
    log_is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit landed. Go on as if it had been answered."""


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The commit did not land, and never will. Roll back; a new try allocates new numbers."""


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """It can't be found out now. Keep the bytes and say so to the client; `start`
    settles it later.
    """


def settle(evidence: Evidence) -> Committed | NotCommitted | StillUnknown:
    """Whether the commit happened (claim P5; spec §2.6, §16.2 I3 to I5).

    The commit deletes the locks too, so only one of it and the multi that deletes the locks can
    succeed. If the latter did, the commit never will. If it was refused, some lock was gone before:
    then a commit that is still under way can't land any more, and what is in ZooKeeper now is the
    whole truth. The commit leaves several traces at once; each of them proves it. That there are no
    parts and ids proves nothing:

    1. A commit lands, and gets no answer. It has no ids: deduplication is off.
    2. A replacement with a condition writes the rows that stay anew, among them those of this
       commit. Its part is gone.
    3. If this was taken for a commit that did not land, the rows would be inserted once more.

    The log does prove it: an entry stays when what it brought is dropped. If it no longer goes back
    to the commit, nobody can tell.
    """
    if evidence.locks_deleted is None:
        return StillUnknown()
    ours = evidence.part_node or evidence.block_id or evidence.log_entry
    if evidence.locks_deleted:
        assert not ours, f"committed although its locks were there: {evidence}"
        return NotCommitted()
    if ours:
        return Committed()
    return NotCommitted() if evidence.log_is_whole else StillUnknown()
