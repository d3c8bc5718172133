"""What an insert is called, what became of it, and what can go wrong with it for good."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rmt_pipeline.protocol import blocks as block_ids
from rmt_pipeline.protocol.errors import Conflict, RmtError
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.protocol.records import InsertRecord
from rmt_pipeline.protocol.settings import QuerySettings
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart


class InsertCancelled(Conflict):
    """A DROP or TRUNCATE took the insert's block number away: nothing was inserted."""

    code = "QUERY_WAS_CANCELLED"


class Outcome(StrEnum):
    INSERTED = "inserted"
    DUPLICATE = "duplicate"
    RESUMED = "resumed"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class InsertIdentity:
    """What makes two inserts the same. Empty strings switch a level of deduplication off."""

    insert_id: str
    token: str = ""
    by_block: bool = True


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What an insert did. `duplicates` are (partition id, name of the part that had it)."""

    outcome: Outcome
    rows: int
    rows_duplicate: int
    parts: tuple[PartName, ...]
    duplicates: tuple[tuple[str, str], ...]
    insert_id: str
    duplicate_of: InsertRecord | None = None

    def words(self) -> str:
        match self.outcome:
            case Outcome.EMPTY:
                return "nothing to insert"
            case Outcome.INSERTED:
                return f"inserted {self.rows} rows as {len(self.parts)} parts"
            case Outcome.RESUMED:
                return (
                    f"inserted {self.rows} rows as {len(self.parts)} parts; {self.rows_duplicate} "
                    f"rows in {len(self.duplicates)} blocks were there already"
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
    """Whether another `run`, perhaps with a new session, can succeed."""
    return not isinstance(error, InsertCancelled)


def block_id_of(part: StagedPart, identity: InsertIdentity, ordinal: int) -> str:
    if not identity.by_block:
        return ""
    partition = part.manifest.partition_id
    if identity.token:
        return block_ids.token_block_id(partition, identity.token, ordinal)
    return block_ids.block_id(partition, part.manifest.content_hash)


def partition_sums(staged: Sequence[StagedPart]) -> tuple[tuple[str, int, str], ...]:
    """Per partition its rows and the sum of row hashes: what this insert put there."""
    sums: dict[str, tuple[int, int]] = {}
    for part in staged:
        manifest = part.manifest
        rows, row_hash = sums.get(manifest.partition_id, (0, 0))
        sums[manifest.partition_id] = (
            rows + manifest.rows,
            (row_hash + manifest.row_hash) % 2**128,
        )
    return tuple(
        (partition, rows, f"{row_hash:032x}")
        for partition, (rows, row_hash) in sorted(sums.items())
    )


def identity_of(
    staged: Sequence[StagedPart], token: str, query: QuerySettings, window: int
) -> InsertIdentity:
    """`window` is replicated_deduplication_window. Without a token an insert is known by its rows
    as they were given: however they were cut into blocks, and those optimized.
    """
    if not query.insert_deduplicate or window == 0 or not staged:
        return InsertIdentity(insert_id="", by_block=False)
    if token:
        return InsertIdentity(block_ids.insert_id_of_token(token), token)
    row_hash = sum(part.source.row_hash for part in staged) % 2**128
    rows = sum(part.source.rows for part in staged)
    return InsertIdentity(block_ids.insert_id_of_rows(row_hash, rows))


def with_rows(staged: Iterable[StagedPart], store: PartStore) -> list[StagedPart]:
    """The parts of which optimize_on_insert left any row; the others are thrown away."""
    kept = []
    for part in staged:
        if part.manifest.rows:
            kept.append(part)
        else:
            store.discard(part)
    return kept
