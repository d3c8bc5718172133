"""A commit of an insert that was sent and has no known result yet."""

from dataclasses import dataclass

from rmt_pipeline.protocol.inserts.interpret import Evidence
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.blocks import PartitionBlocks, StagedBlock
from rmt_pipeline.replica.insert.record import InsertProgress
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.marks import CommitNote
from rmt_pipeline.zookeeper.keeper import Keeper
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.transactions import BlockCommit


@dataclass(frozen=True, slots=True)
class Pending:
    """Until it is settled, neither its parts nor its locks may be removed. The locks belong to the
    session of `keeper`.
    """

    blocks: tuple[tuple[StagedBlock, BlockCommit], ...]
    groups: tuple[PartitionBlocks, ...]
    progress: InsertProgress | None
    note: CommitNote | None
    keeper: Keeper
    log_begin: int
    """A number that the log had not passed when the commit was sent."""
    creation: str
    """Of the replica: a table that ZooKeeper loses is made again, with another log."""

    @property
    def parts(self) -> list[PartName]:
        return [commit.part for _, commit in self.blocks]

    @property
    def locks(self) -> list[str]:
        return [commit.lock for _, commit in self.blocks]

    def evidence(self, replica: Replica) -> Evidence:
        """Look for what only this commit can have written. All of it appeared at once, but the
        parts and ids may have gone or changed since: merged and removed, dropped, or replaced by
        parts that have some of the rows. The log tells what is true, as long as it goes back to
        when the commit was sent.
        """
        keeper, table = replica.keeper, replica.table
        keeper.sync(table.root)
        ours = {str(part).encode() for part in self.parts}
        parts = [replica.paths.part(part) for part in self.parts]
        ids = [table.block(block.block_id) for block, _ in self.blocks if block.block_id]
        part_node = any(stat is not None for stat in keeper.exists_many(parts))
        block_id = any(read is not None and read[0] in ours for read in keeper.get_many(ids))
        if part_node or block_id:
            return Evidence(locks_deleted=False, part_node=part_node, block_id=block_id)
        names, stat = keeper.children_stat(table.log)
        since = [name for name in names if sequence_number(name) >= self.log_begin]
        entries = keeper.get_many([table.log_entry(name) for name in since])
        written = {commit.entry for _, commit in self.blocks}
        return Evidence(
            locks_deleted=False,
            log_entry=any(read is not None and read[0] in written for read in entries),
            log_is_whole=replica.creation == self.creation
            and None not in entries
            and len(entries) == stat.next_sequence - self.log_begin,
        )
