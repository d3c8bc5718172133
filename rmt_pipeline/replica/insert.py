"""One logical insert: staged parts → two multis → in the log, or a duplicate (design §5).

    staged ──allocate──► numbered ──publish on disk──► published ──commit──► in the log
       ▲                                                  │
       └───────── withdraw (nothing landed) ◄─────────────┘

The first multi allocates a block number for every part, the second commits every part, so that an
insert is in all its partitions or in none. A commit without answer is settled by a write that
excludes it, never by a read alone (spec §2.6, §16.2 I3, I4).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rmt_pipeline.protocol import interpret as meaning
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.entries import GetPart
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.interpret import Evidence, Purpose
from rmt_pipeline.protocol.log_entry import encode
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.protocol.records import InsertRecord
from rmt_pipeline.replica.insert_result import (
    InsertCancelled,
    InsertIdentity,
    InsertResult,
    Outcome,
    block_id_of,
    partition_sums,
)
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.writable import not_lost_version, read_only
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Keeper, Kind, Refused
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.strays import Stray, give_back, seen_to
from rmt_pipeline.zookeeper.transactions import BlockCommit, Tagged


@dataclass(slots=True)
class _Block:
    staged: StagedPart
    block_id: str


@dataclass(frozen=True, slots=True)
class _Committing:
    """A commit that was sent: until it is settled nothing of it may be cleaned up. Its locks are
    `keeper`'s.
    """

    blocks: tuple[tuple[_Block, BlockCommit], ...]
    with_record: bool
    keeper: Keeper

    @property
    def locks(self) -> list[str]:
        return [commit.lock for _, commit in self.blocks]


@dataclass(slots=True)
class Insertion:
    """An insert on its way. `run` may be called again, with the replica of a new session, after
    any error but a UserError or InsertCancelled: it goes on where the last call stopped.
    """

    identity: InsertIdentity
    record: InsertRecord
    _todo: list[_Block]
    _rows_total: int
    _committing: _Committing | None = None
    _parts: list[tuple[PartName, int]] = field(default_factory=list)
    _duplicates: list[tuple[str, str, int]] = field(default_factory=list)
    _is_recorded: bool = False

    @classmethod
    def of(
        cls,
        staged: Sequence[StagedPart],
        identity: InsertIdentity,
        *,
        replica: Replica,
        run_id: str,
    ) -> "Insertion":
        """`staged` in the order of the data. A block that is twice in one insert is kept once."""
        todo: list[_Block] = []
        twice: list[tuple[str, str, int]] = []
        seen: set[str] = set()
        for ordinal, part in enumerate(staged):
            block_id = block_id_of(part, identity, ordinal)
            if block_id and block_id in seen:
                twice.append((part.manifest.partition_id, "this insert", part.manifest.rows))
                replica.store.discard(part)
                continue
            seen.add(block_id)
            todo.append(_Block(part, block_id))
        record = InsertRecord(
            created_s=int(replica.clock.now_s()),
            replica=replica.name,
            run_id=run_id,
            partitions=partition_sums(staged),
            blocks=len(staged),
        )
        rows = sum(part.manifest.rows for part in staged)
        return cls(identity, record, todo, rows, _duplicates=twice)

    @property
    def is_pending(self) -> bool:
        """Whether a commit was sent whose result is not known: nothing may be thrown away."""
        return self._committing is not None

    def run(self, replica: Replica) -> InsertResult:
        """Raises OutcomeUnknown, ReplicaRetired, Unavailable (call again), InsertCancelled.

        However it ends, no lock stays while the session lives, but those of a commit that is
        pending: `let_go` sees to these when there will be no other call.
        """
        self._settle(replica)
        while self._todo:
            batch = self._todo[: limits.INSERT_BLOCKS_PER_MULTI_MAX]
            duplicate = self._commit_batch(
                replica, batch, is_last=len(batch) == len(self._todo)
            )
            if duplicate is not None:
                self.abandon(replica.store)
                return duplicate
        if self._duplicates and self.identity.insert_id and not self._is_recorded:
            self._record(replica)
        return self._result()

    def abandon(self, store: PartStore) -> None:
        """Throw away what was staged and not committed."""
        assert not self.is_pending, "a commit without answer may have landed"
        for block in self._todo:
            store.discard(block.staged)
        self._todo.clear()

    def let_go(self, store: PartStore) -> None:
        """Nobody will run it again. Of a commit whose result is not known the bytes are kept, for
        it may have landed, and the locks do not stay longer than until ZooKeeper answers.
        """
        if self._committing is None:
            self.abandon(store)
        else:
            strays = [Stray(lock) for lock in self._committing.locks]
            self._committing.keeper.strays.leave(strays)

    # --- one batch ---

    def _commit_batch(
        self, replica: Replica, batch: list[_Block], *, is_last: bool
    ) -> InsertResult | None:
        """One allocation and one commit. An InsertResult when the whole insert is a duplicate."""
        locks = self._allocate(replica, batch)
        if isinstance(locks, InsertResult):
            return locks
        if locks is None:
            return None  # duplicates were taken out; look again at what is left
        try:
            commits = self._publish(replica, batch, locks)
            tagged = transactions.commit_insert(
                replica.table,
                replica.paths,
                [commit for _, commit in commits],
                self.identity.insert_id if is_last else "",
                self.record.encode(),
                is_lost_version=not_lost_version(replica),
            )
        except BaseException:
            give_back(replica.keeper, [Stray(lock) for lock in locks])
            raise
        self._committing = _Committing(commits, is_last, replica.keeper)
        try:
            replica.keeper.multi(tagged.ops)
        except Refused as refused:
            self._withdraw(replica)
            give_back(replica.keeper, [Stray(lock) for lock in locks])
            self._explain_commit(replica, tagged, refused)
            return None
        self._committed()
        return None

    def _record(self, replica: Replica) -> None:
        """The blocks that were left were there already, so no commit wrote the record: without it
        a retry that is cut into other blocks would be another insert.
        """
        table, paths, text = replica.table, replica.paths, self.record.encode()
        lost = not_lost_version(replica)
        tagged = transactions.commit_insert(
            table, paths, [], self.identity.insert_id, text, is_lost_version=lost
        )
        try:
            replica.keeper.multi(tagged.ops)
        except Refused as refused:
            self._explain_commit(replica, tagged, refused)
        self._is_recorded = True

    def _allocate(
        self, replica: Replica, batch: list[_Block]
    ) -> list[str] | InsertResult | None:
        partitions = {block.staged.manifest.partition_id for block in batch}
        self._ensure_partitions(replica, partitions)
        holder = replica.new_holder()
        tagged = transactions.allocate_blocks(
            replica.table,
            replica.paths,
            [(block.staged.manifest.partition_id, block.block_id) for block in batch],
            self.identity.insert_id if not self._parts else "",
            holder=holder,
            is_lost_version=not_lost_version(replica),
        )
        strays = [
            Stray(replica.table.partition(partition), holder, is_parent=True)
            for partition in sorted(partitions)
        ]
        try:
            with seen_to(replica.keeper, strays):
                results = replica.keeper.multi(tagged.ops)
        except Refused as refused:
            return self._explain_allocation(replica, batch, tagged, refused)
        return [
            path
            for path, (purpose, _) in zip(results, tagged.tags, strict=True)
            if purpose is Purpose.PARTITION
        ]

    def _explain_allocation(
        self, replica: Replica, batch: list[_Block], tagged: Tagged, refused: Refused
    ) -> InsertResult | None:
        """None when another round can succeed; raise what the caller must know otherwise."""
        purpose, index = tagged.culprit(refused)
        match meaning.interpret_allocation(refused.kind.value, purpose, index):
            case meaning.DuplicateInsert():
                return self._duplicate_insert(replica)
            case meaning.DuplicateBlock():
                self._take_out_duplicates(replica, batch)
                return None
            case meaning.PartitionMissing(block):
                replica.memory.partitions.forget([batch[block].staged.manifest.partition_id])
                return None
            case meaning.NotActive():
                raise read_only(replica) from refused
            case meaning.TableGone() | meaning.Unexpected() | meaning.FindOut():
                raise refused

    def _explain_commit(self, replica: Replica, tagged: Tagged, refused: Refused) -> None:
        """Return when another round can succeed; raise what the caller must know otherwise."""
        purpose, index = tagged.culprit(refused)
        match meaning.interpret_commit(refused.kind.value, purpose, index):
            case meaning.DuplicateBlock() | meaning.DuplicateInsert():
                return  # committed by others between our two multis; the next round sees it
            case meaning.NotActive():
                raise read_only(replica) from refused
            case meaning.Cancelled():
                self.abandon(replica.store)
                raise InsertCancelled(
                    f"insert into {replica} was cancelled: a concurrent DROP or TRUNCATE of a "
                    "partition took its block number; nothing was inserted. Insert again if that "
                    "is meant"
                ) from refused
            case (
                meaning.QuorumBusy()
                | meaning.TableGone()
                | meaning.Unexpected()
                | meaning.FindOut()
            ):
                raise refused

    # --- disk ---

    def _publish(
        self, replica: Replica, batch: list[_Block], locks: Sequence[str]
    ) -> tuple[tuple[_Block, BlockCommit], ...]:
        """Give the parts the names of their numbers. The disk first: what is announced is there."""
        create_time = int(replica.clock.now_s())
        commits = []
        for block, lock in zip(batch, locks, strict=True):
            manifest = block.staged.manifest
            number = sequence_number(lock)
            part = PartName(manifest.partition_id, number, number, 0)
            entry = GetPart(
                create_time=create_time,
                source_replica=replica.name,
                block_id=block.block_id,
                part=part,
            )
            header = manifest.header().encode()
            commits.append(
                (block, BlockCommit(part, lock, encode(entry), header, block.block_id))
            )
        try:
            replica.store.publish_all(
                [(block.staged, commit.part) for block, commit in commits]
            )
        except BaseException:
            for block, commit in commits:
                replica.store.withdraw(commit.part, block.staged)
            raise
        return tuple(commits)

    def _withdraw(self, replica: Replica) -> None:
        """The commit did not land and never will: the parts become staged again."""
        assert self._committing is not None
        for block, commit in self._committing.blocks:
            replica.store.withdraw(commit.part, block.staged)
        self._committing = None

    def _committed(self) -> None:
        assert self._committing is not None
        self._parts += [
            (commit.part, block.staged.manifest.rows)
            for block, commit in self._committing.blocks
        ]
        del self._todo[: len(self._committing.blocks)]
        self._is_recorded = self._is_recorded or self._committing.with_record
        self._committing = None

    # --- not knowing ---

    def _settle(self, replica: Replica) -> None:
        """Find out whether the commit that got no answer landed; afterwards it never will.

        The commit deletes its locks, and so does this multi: only one of them can succeed. Raises
        OutcomeUnknown when this multi has no answer either: the question stays open.
        """
        if self._committing is None:
            return
        try:
            replica.keeper.multi(transactions.release_locks(self._committing.locks))
            evidence = Evidence(locks_deleted=True)
        except Refused as refused:
            if refused.kind is not Kind.NO_NODE:
                raise
            evidence = self._evidence(replica)
        match meaning.settle(evidence):
            case meaning.Committed():
                self._committed()
            case meaning.NotCommitted():
                self._withdraw(replica)
            case meaning.StillUnknown():
                raise OutcomeUnknown(f"{replica}: whether an insert landed is still not known")

    def _evidence(self, replica: Replica) -> Evidence:
        """What only this commit can have written. It all appeared at once, but some of it may be
        gone again: the part merged and removed, the ids dropped with their partition.
        """
        assert self._committing is not None
        replica.keeper.sync(replica.table.root)
        blocks = self._committing.blocks
        ours = {str(commit.part).encode() for _, commit in blocks}
        parts = [replica.paths.part(commit.part) for _, commit in blocks]
        ids = [replica.table.block(block.block_id) for block, _ in blocks if block.block_id]
        found = replica.keeper.exists_many(parts)
        reads = replica.keeper.get_many(ids)
        return Evidence(
            locks_deleted=False,
            part_node=any(stat is not None for stat in found),
            block_id=any(read is not None and read[0] in ours for read in reads),
        )

    # --- duplicates ---

    def _take_out_duplicates(self, replica: Replica, batch: list[_Block]) -> None:
        """Blocks whose id is taken by a committed part: leave them out, remember by which."""
        with_id = [block for block in batch if block.block_id]
        reads = replica.keeper.get_many(
            [replica.table.block(block.block_id) for block in with_id]
        )
        for block, read in zip(with_id, reads, strict=True):
            if read is None:
                continue
            manifest = block.staged.manifest
            self._duplicates.append((manifest.partition_id, read[0].decode(), manifest.rows))
            self._todo.remove(block)
            replica.store.discard(block.staged)

    def _duplicate_insert(self, replica: Replica) -> InsertResult | None:
        [read] = replica.keeper.get_many([replica.table.insert(self.identity.insert_id)])
        if read is None:
            return None  # forgotten between the two requests: it is no duplicate any more
        return InsertResult(
            outcome=Outcome.DUPLICATE,
            rows=0,
            rows_duplicate=self._rows_total,
            parts=(),
            duplicates=(),
            insert_id=self.identity.insert_id,
            duplicate_of=InsertRecord.decode(read[0]),
        )

    def _ensure_partitions(self, replica: Replica, partitions: set[str]) -> None:
        known = replica.memory.partitions.of(partitions)
        for partition in sorted(partitions - known.keys()):
            ops = transactions.create_partition(replica.table, replica.paths, partition)
            try:
                replica.keeper.multi(ops)
            except Refused as refused:
                if refused.kind is not Kind.NODE_EXISTS:
                    raise
            replica.memory.partitions.learn({partition: None})

    def _result(self) -> InsertResult:
        rows = sum(rows for _, rows in self._parts)
        rows_duplicate = sum(rows for _, _, rows in self._duplicates)
        if self._parts:
            outcome = Outcome.RESUMED if self._duplicates else Outcome.INSERTED
        else:
            outcome = Outcome.DUPLICATE if self._duplicates else Outcome.EMPTY
        return InsertResult(
            outcome=outcome,
            rows=rows,
            rows_duplicate=rows_duplicate,
            parts=tuple(part for part, _ in self._parts),
            duplicates=tuple((partition, part) for partition, part, _ in self._duplicates),
            insert_id=self.identity.insert_id,
        )
