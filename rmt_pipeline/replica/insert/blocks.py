"""The blocks of an insert, grouped by partition: what the insert's commit writes for each block
once it has its number, and how many bytes of a multi's packet that takes.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.inserts.ids import completing_block_id
from rmt_pipeline.protocol.inserts.rows import blocks_there
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import AttachPart, GetPart, LogEntry
from rmt_pipeline.protocol.nodes.records import (
    AS_STORED,
    NO_BLOCK,
    UNKNOWN_BLOCK,
    PartitionRows,
    partition_line,
)
from rmt_pipeline.protocol.parts.name import BLOCK_NUMBER_MAX, PartName
from rmt_pipeline.replica.insert.quorum import QuorumWait
from rmt_pipeline.replica.insert.result import InsertIdentity, block_id_of
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.transactions import BlockCommit, BlockThere

_LINE_BYTES = 128  # of the record's line for a block that the table has already


@dataclass(slots=True)
class StagedBlock:
    """One block of an insert: a part that is staged in the store under a temporary name, and the id
    by which the same block is recognized when it is inserted again.
    """

    staged: StagedPart
    block_id: str
    ordinal: int = 0
    """The position of the block among all blocks of the insert."""
    checksum: str = ""
    """The checksum of a detached part that is being attached, "" for an insert. A replica that has
    the same part detached can attach its own copy instead of fetching it (spec §9.5).
    """

    @property
    def rows(self) -> int:
        return self.staged.manifest.rows

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the texts that differ from block to block. Blocks that are alike in these
        take the same number of bytes.
        """
        numbers = self.rows, self.staged.source.rows
        return (
            len(self.staged.manifest.partition_id),
            len(self.block_id),
            *map(_digits, numbers),
        )

    def line(self, first: int, last: int, own: int = NO_BLOCK) -> PartitionRows:
        """Return the block's line in the record of the insert: its rows are in the block numbers
        `first` to `last`. `own` is the block number that holds these rows and no others, if they
        got one.
        """
        rows, given = self.rows, self.staged.source.rows
        row_hash = f"{self.staged.manifest.row_hash:032x}"
        partition = self.staged.manifest.partition_id
        of = AS_STORED if given == rows else given
        if first == UNKNOWN_BLOCK:
            own = UNKNOWN_BLOCK
        return PartitionRows(partition, rows, row_hash, first, last, own, own, of)


@dataclass(slots=True)
class PartitionBlocks:
    """The blocks of one partition that are still to be committed; one multi commits them all.

    `given` is how many rows the insert brought, before optimize_on_insert merged them. Two kinds of
    blocks are not inserted again, because the table has them: those that other inserts have
    brought, found by their block ids (`there`), and, if `is_completed`, those that an earlier try
    of this insert has brought while others of its blocks are missing (`ours`). Their staged parts
    are kept until the commit, because the table may have lost these blocks by then.
    """

    partition: str
    blocks: list[StagedBlock] = field(default_factory=list)
    given: int = 0
    there: list[tuple[StagedBlock, BlockThere]] = field(default_factory=list)
    ours: list[StagedBlock] = field(default_factory=list)
    is_completed: bool = False

    def lines(self, numbers: Sequence[int]) -> list[PartitionRows]:
        """Return the lines that the commit adds to the insert's record. `numbers` are the block
        numbers of `blocks`.
        """
        lines = [
            block.line(number, number, number)
            for block, number in zip(self.blocks, numbers, strict=True)
        ]
        for block, there in self.there:
            part = PartName.try_parse(there.part)
            known = (UNKNOWN_BLOCK,) * 2 if part is None else (part.block_min, part.block_max)
            lines.append(block.line(*known))
        return lines or [PartitionRows(self.partition, 0, f"{0:032x}")]

    def all_blocks(self) -> list[StagedBlock]:
        """Return every block of the partition, in the order of the data."""
        found = [*self.blocks, *(block for block, _ in self.there), *self.ours]
        return sorted(found, key=lambda block: block.ordinal)

    def given_lines(self) -> list[PartitionRows]:
        """Return a line for every block of the partition, in the order of the data, to compare
        their rows; the lines name no real block numbers.
        """
        return [block.line(0, 0) for block in self.all_blocks()]

    def look_again(self) -> None:
        """Start over: every block is to be committed again, until it is found in the table."""
        self.blocks = self.all_blocks()
        self.there, self.ours, self.is_completed = [], [], False

    def look_for_ids(self) -> None:
        """Commit again the blocks that were found by their ids; the table may have lost them."""
        self.blocks += [block for block, _ in self.there]
        self.blocks.sort(key=lambda block: block.ordinal)
        self.there = []

    def leave_out(self, lines: Sequence[PartitionRows], token: str, version: int) -> bool:
        """Leave out the blocks that are in the table already, when other blocks of the same insert
        are missing. `lines` are the record's lines of this partition, `version` is the record's
        version. Return False if it can't be told which of the blocks are in.

        A block id that is made of a token contains the block's position. If the rows come in
        another order than before, a missing block could get the id that a block in the table has.
        So the blocks that are left get ids made with the record's version, which are unique: only
        one commit of this insert can go on from that version.
        """
        self.look_again()
        found = blocks_there(lines, [line.content for line in self.given_lines()])
        if found is None:
            return False
        self.is_completed = True
        self.ours = [block for at, block in enumerate(self.blocks) if at in found]
        self.blocks = [block for at, block in enumerate(self.blocks) if at not in found]
        for block in self.blocks if token else ():
            block.block_id = completing_block_id(self.partition, token, block.ordinal, version)
        return True

    def discard(self, store: PartStore) -> None:
        """Remove the staged parts, or leave to the clean-up what the disk refuses."""
        for block in self.all_blocks():
            with suppress(OSError):
                store.discard(block.staged)


def _digits(number: int) -> int:
    return len(str(number))


def blocks_together(
    replica: Replica, part: StagedPart, identity: InsertIdentity, waits: QuorumWait | None
) -> int:
    """Return how many blocks like this one fit into a multi. An insert may not have more of them in
    one partition, because one multi commits a whole partition.
    """
    block = StagedBlock(part, block_id_of(part, identity, 0))
    of_record = limits.OP_BYTES_OVERHEAD * 4
    return (limits.MULTI_BYTES_MAX - of_record) // _block_bytes(replica, block, waits)


def group_bytes(
    replica: Replica,
    group: PartitionBlocks,
    waits: QuorumWait | None,
    sizes: dict[tuple[int, ...], int],
) -> int:
    """Return how many bytes of a packet the blocks of one partition take, in the larger one of the
    insert's two multis. `sizes` caches the sizes of this insert's blocks, by their `lengths`.
    """
    size = len(group.there) * (limits.OP_BYTES_OVERHEAD + _LINE_BYTES)
    for block in group.blocks:
        lengths = block.lengths
        if lengths not in sizes:
            sizes[lengths] = _block_bytes(replica, block, waits)
        size += sizes[lengths]
    return size


def _block_bytes(replica: Replica, block: StagedBlock, waits: QuorumWait | None) -> int:
    """Return how many bytes of a packet the block takes, in the larger one of the two multis, with
    its line in the record. Its wait for a quorum is counted as a node of its own, which is larger
    than its share of a node that all parts of the insert have in common.
    """
    lock = replica.table.lock(block.staged.manifest.partition_id, BLOCK_NUMBER_MAX)
    commit = commit_of(replica, block, lock, 0, waits)
    if waits is not None and (entry := waits.entry(commit.part, replica.name)):
        commit = replace(commit, quorum=entry.encode())
    line = len(partition_line(block.line(*(BLOCK_NUMBER_MAX,) * 3)))
    holder = replica.new_holder()
    return line + transactions.insert_bytes(replica.table, replica.paths, commit, holder)


def commit_of(
    replica: Replica, block: StagedBlock, lock: str, create_time: int, waits: QuorumWait | None
) -> BlockCommit:
    """Return what the second multi of an insert writes for one block, whose number is that of its
    `lock`: the log entry, the part's header, and the quorum node if the part waits for one of its
    own.
    """
    manifest = block.staged.manifest
    number = sequence_number(lock)
    part = PartName(manifest.partition_id, number, number, 0)
    entry: LogEntry = GetPart(
        create_time=create_time,
        source_replica=replica.name,
        block_id=block.block_id,
        quorum=0 if waits is None or waits.required < 2 else waits.required,
        part=part,
    )
    if block.checksum:
        entry = AttachPart(
            create_time=create_time,
            source_replica=replica.name,
            part=part,
            checksum=block.checksum,
        )
    header = manifest.header().encode()
    waiting = None if waits is None or waits.is_alone else waits.entry(part, replica.name)
    quorum = None if waiting is None else waiting.encode()
    return BlockCommit(part, lock, encode(entry), header, block.block_id, quorum)
