"""The blocks of an insert, by partition: what each becomes with its number, and how much of a
packet it takes.
"""

from collections.abc import Sequence
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

_LINE_BYTES = 128  # of a block that is in already, in the record


@dataclass(slots=True)
class StagedBlock:
    """A block of an insert that lies in the store under a temporary name, and the id by which the
    same block is known when it is inserted again.
    """

    staged: StagedPart
    block_id: str
    ordinal: int = 0
    """Among all blocks of the insert."""
    checksum: str = ""
    """Of a detached part that is attached: others may have it too (spec §9.5)."""

    @property
    def rows(self) -> int:
        return self.staged.manifest.rows

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the texts that differ from block to block: blocks alike in these weigh the same."""
        numbers = self.rows, self.staged.source.rows
        return (
            len(self.staged.manifest.partition_id),
            len(self.block_id),
            *map(_digits, numbers),
        )

    def line(self, first: int, last: int, own: int = NO_BLOCK) -> PartitionRows:
        """Its line in the record of the insert: its rows are in the blocks `first` to `last`, and
        alone in block `own`, if they got one of their own.
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

    `given` is how many rows came in, before optimize_on_insert merged them. What is not inserted
    again is kept until the commit, for it may be gone by then: blocks that other inserts have
    brought, by their ids (`there`), and with `is_completed` those that an earlier try of this one
    has brought, of which others are missing (`ours`).
    """

    partition: str
    blocks: list[StagedBlock] = field(default_factory=list)
    given: int = 0
    there: list[tuple[StagedBlock, BlockThere]] = field(default_factory=list)
    ours: list[StagedBlock] = field(default_factory=list)
    is_completed: bool = False

    def lines(self, numbers: Sequence[int]) -> list[PartitionRows]:
        """What the commit brings of the insert; `numbers` are those of its blocks."""
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
        """In their order."""
        found = [*self.blocks, *(block for block, _ in self.there), *self.ours]
        return sorted(found, key=lambda block: block.ordinal)

    def given_lines(self) -> list[PartitionRows]:
        """What all its blocks, in their order, would bring, wherever that is."""
        return [block.line(0, 0) for block in self.all_blocks()]

    def look_again(self) -> None:
        """Nothing of it is known to be in."""
        self.blocks = self.all_blocks()
        self.there, self.ours, self.is_completed = [], [], False

    def look_for_ids(self) -> None:
        """What other inserts had brought is not known to be in any more."""
        self.blocks += [block for block, _ in self.there]
        self.blocks.sort(key=lambda block: block.ordinal)
        self.there = []

    def leave_out(self, lines: Sequence[PartitionRows], token: str, version: int) -> bool:
        """The blocks that are in, of an insert of which others are missing; `version` is that of
        its record. False: which these are can't be told.

        Ids by token count blocks: those of blocks that are in may be what these had, were they in
        another order. No other commit of this insert goes on from this version.
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
        for block in self.all_blocks():
            store.discard(block.staged)


def _digits(number: int) -> int:
    return len(str(number))


def blocks_together(
    replica: Replica, part: StagedPart, identity: InsertIdentity, waits: QuorumWait | None
) -> int:
    """How many blocks like this one fit into a multi. A partition must not have more."""
    block = StagedBlock(part, block_id_of(part, identity, 0))
    of_record = limits.OP_BYTES_OVERHEAD * 4
    return (limits.MULTI_BYTES_MAX - of_record) // _block_bytes(replica, block, waits)


def group_bytes(
    replica: Replica,
    group: PartitionBlocks,
    waits: QuorumWait | None,
    sizes: dict[tuple[int, ...], int],
) -> int:
    """How many bytes of a multi's packet the blocks of one partition take, in the larger one of the
    insert's two multis. `sizes` are of blocks of this insert that were weighed before.
    """
    for block in group.blocks:
        if block.lengths not in sizes:
            sizes[block.lengths] = _block_bytes(replica, block, waits)
    blocks = sum(sizes[block.lengths] for block in group.blocks)
    return blocks + len(group.there) * (limits.OP_BYTES_OVERHEAD + _LINE_BYTES)


def _block_bytes(replica: Replica, block: StagedBlock, waits: QuorumWait | None) -> int:
    """How many bytes of a packet the block takes, in the larger one of the two multis, with its
    line in the record. Its wait for a quorum counts as a node of its own, which is more than its
    share of a common one.
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
    """What the second multi of an insert writes for one block, whose number is that of its `lock`:
    the log entry, the part's header, and its quorum when it waits for one.
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
