"""The blocks of an insert, by partition: what each becomes with its number, and how much of a
packet it takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import AttachPart, GetPart, LogEntry
from rmt_pipeline.protocol.nodes.records import NO_BLOCK, PartitionRows, partition_line
from rmt_pipeline.protocol.parts.name import BLOCK_NUMBER_MAX, PartName
from rmt_pipeline.replica.insert.quorum import QuorumWait
from rmt_pipeline.replica.insert.result import InsertIdentity, block_id_of
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.transactions import BlockCommit


@dataclass(slots=True)
class StagedBlock:
    staged: StagedPart
    block_id: str
    checksum: str = ""
    """Of a detached part that is attached: others may have it too (spec §9.5)."""


@dataclass(slots=True)
class PartitionBlocks:
    """The blocks of one partition that are still to be committed; one multi commits them all.

    `rows` are stored, `row_hash` is the sum of their hashes; `given` is how many rows came in,
    before optimize_on_insert merged them.
    """

    partition: str
    blocks: list[StagedBlock] = field(default_factory=list)
    rows: int = 0
    row_hash: int = 0
    given: int = 0
    elsewhere: list[int] = field(default_factory=list)
    """First and last numbers of the parts that had blocks of it already."""

    def add(self, part: StagedPart) -> None:
        self.rows += part.manifest.rows
        self.row_hash = (self.row_hash + part.manifest.row_hash) % 2**128
        self.given += part.source.rows

    def line(self, numbers: Sequence[int]) -> PartitionRows:
        """`numbers` are those of its blocks, one after the other: of one multi."""
        row_hash = f"{self.row_hash:032x}"
        known = [*numbers, *self.elsewhere]
        if not known:
            return PartitionRows(self.partition, self.rows, row_hash)
        held = min(known), max(known)
        own = (numbers[0], numbers[-1]) if numbers else (NO_BLOCK, NO_BLOCK)
        return PartitionRows(self.partition, self.rows, row_hash, *held, *own)

    def discard(self, store: PartStore) -> None:
        for block in self.blocks:
            store.discard(block.staged)


def blocks_together(
    replica: Replica, part: StagedPart, identity: InsertIdentity, waits: QuorumWait | None
) -> int:
    """How many blocks like this one fit into a multi. A partition must not have more."""
    block = StagedBlock(part, block_id_of(part, identity, 0))
    of_record = limits.OP_BYTES_OVERHEAD * 4
    return (limits.MULTI_BYTES_MAX - of_record) // _block_bytes(replica, block, waits)


def group_bytes(replica: Replica, group: PartitionBlocks, waits: QuorumWait | None) -> int:
    blocks = sum(_block_bytes(replica, block, waits) for block in group.blocks)
    return len(partition_line(group.line([BLOCK_NUMBER_MAX, BLOCK_NUMBER_MAX]))) + blocks


def _block_bytes(replica: Replica, block: StagedBlock, waits: QuorumWait | None) -> int:
    """How many bytes of a packet the block takes, in the larger one of the two multis. Its wait for
    a quorum counts as a node of its own, which is more than its share of a common one.
    """
    lock = replica.table.lock(block.staged.manifest.partition_id, BLOCK_NUMBER_MAX)
    commit = commit_of(replica, block, lock, 0, waits)
    if waits is not None and (entry := waits.entry(commit.part, replica.name)):
        commit = replace(commit, quorum=entry.encode())
    return transactions.insert_bytes(replica.table, replica.paths, commit, replica.new_holder())


def commit_of(
    replica: Replica, block: StagedBlock, lock: str, create_time: int, waits: QuorumWait | None
) -> BlockCommit:
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
