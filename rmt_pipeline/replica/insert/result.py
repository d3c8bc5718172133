"""The identity of an insert, its outcome, and the errors that are final."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rmt_pipeline.protocol.errors import (
    Conflict,
    MissingPart,
    OutcomeUnknown,
    RmtError,
    UserError,
    YetToDrop,
)
from rmt_pipeline.protocol.inserts import ids as block_ids
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.store.staging import StagedPart


class Slowed(NamedTuple):
    """For how many seconds an insert was held back before it began, and why."""

    seconds: float
    because: str

    def words(self) -> str:
        """Return words to append to a sentence on the insert's outcome, "" if it did not wait."""
        if not self.seconds:
            return ""
        return f"; it waited {self.seconds:.2f} s first, because {self.because}"


NOT_SLOWED = Slowed(0.0, "")


class InsertCancelled(Conflict):
    """A DROP or TRUNCATE deleted the lock of the insert's block number, or the insert's record was
    removed by hand: nothing was inserted, or only what the error says.
    """

    code = "QUERY_WAS_CANCELLED"


class OtherRows(UserError):
    """A token names an insert that is in the table in part, and the given rows are not those of
    that insert.
    """


class OtherBlocks(OtherRows):
    """Some blocks that the insert had in a partition are lost, others are in, and the same rows
    come cut into other blocks now. The error says what is in.
    """


class InsertInPart(OutcomeUnknown):
    """An insert that is too large for one commit ended before it was whole. The same insert, sent
    again, goes on from what is in the table, which is known.
    """

    code = "UNFINISHED"


class QuorumNotReached(OutcomeUnknown):
    """The rows are in the table; whether as many replicas have them as the insert asked for is not
    known.
    """


class Outcome(StrEnum):
    """What became of an insert: its rows were inserted; or the table had all of them already; or it
    had some, and the rest is inserted now; or the insert had no rows.
    """

    INSERTED = "inserted"
    DUPLICATE = "duplicate"
    RESUMED = "resumed"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class InsertIdentity:
    """What makes two inserts the same one. An empty `insert_id` or `token`, or `by_block` False,
    switches that level of deduplication off.
    """

    insert_id: str
    token: str = ""
    by_block: bool = True


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What an insert did. `duplicates` are pairs: the partition's id, and what had the rows
    already: the name of a part, or an earlier try of the same insert.
    """

    outcome: Outcome
    rows: int
    rows_duplicate: int
    parts: tuple[PartName, ...]
    duplicates: tuple[tuple[str, str], ...]
    insert_id: str
    duplicate_of: InsertRecord | None = None
    slowed: Slowed = NOT_SLOWED

    def words(self) -> str:
        return f"{self._what_became_of_it()}{self.slowed.words()}"

    def _what_became_of_it(self) -> str:
        match self.outcome:
            case Outcome.EMPTY:
                return "nothing to insert"
            case Outcome.INSERTED:
                rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
                parts = "1 part" if len(self.parts) == 1 else f"{len(self.parts)} parts"
                return f"inserted {rows} as {parts}"
            case Outcome.RESUMED:
                return (
                    f"inserted {self.rows} rows as {len(self.parts)} parts; {self.rows_duplicate} "
                    "rows were there already"
                )
            case Outcome.DUPLICATE if self.duplicate_of is not None:
                first = self.duplicate_of
                by = f" by run {first.run_id}" if first.run_id else ""
                return (
                    f"duplicate of insert {self.insert_id}, "
                    f"inserted on {first.replica} at unix time {first.created_s}{by}"
                )
            case Outcome.DUPLICATE:
                return f"duplicate: all {len(self.duplicates)} blocks were there already"


def retryable(error: RmtError) -> bool:
    """Whether calling `run` again, perhaps with a new session, can succeed. It can't if the staged
    bytes are gone (MissingPart: a clean-up has swept them, because the clock of the host jumped),
    nor if the time is over in which other replicas should have fetched the rows. An ATTACH which
    finds a drop that came meanwhile gives back what it took (YetToDrop).
    """
    return not isinstance(error, InsertCancelled | MissingPart | QuorumNotReached | YetToDrop)


def block_id_of(part: StagedPart, identity: InsertIdentity, ordinal: int) -> str:
    """Return the id by which a block is recognized when it is inserted again (spec §2.3), made from
    the insert's token and the block's position in the insert, or from the block's rows. "" if
    blocks are not deduplicated.
    """
    if not identity.by_block:
        return ""
    partition = part.manifest.partition_id
    if identity.token:
        return block_ids.token_block_id(partition, identity.token, ordinal)
    return block_ids.block_id(partition, part.manifest.content_hash)


def identity_of(
    staged: Sequence[StagedPart], token: str, query: QuerySettings, window: int
) -> InsertIdentity:
    """Return what identifies an insert. `window` is how many insert ids the table remembers; 0
    switches deduplication off. Without a token an insert is identified by its rows as they were
    given, whatever blocks they were cut into and however optimize_on_insert merged them.
    """
    if not query.insert_deduplicate or window == 0 or not staged:
        return InsertIdentity(insert_id="", by_block=False)
    if token:
        return InsertIdentity(block_ids.insert_id_of_token(token), token)
    row_hash = sum(part.source.row_hash for part in staged) % 2**128
    rows = sum(part.source.rows for part in staged)
    return InsertIdentity(block_ids.insert_id_of_rows(row_hash, rows))
