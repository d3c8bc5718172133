"""One logical insert: staged parts → two multis → in the log, or a duplicate (design §5).

    staged ──allocate──► numbered ──publish on disk──► published ──commit──► in the log
       ▲                                                  │
       └───────── withdraw (nothing landed) ◄─────────────┘

The first multi allocates a block number for every part, the second commits every part, so that an
insert is in all its partitions or in none. An insert that does not fit into one multi goes this way
several times, with some of its partitions each time; the module `record` describes what is known of
it meanwhile. A commit that got no answer is settled by a write that excludes it, never by a read
alone (spec §2.6, §16.2 I3, I4).
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaDropped, YetToDrop
from rmt_pipeline.protocol.inserts import interpret as meaning
from rmt_pipeline.protocol.inserts.interpret import Evidence, Purpose
from rmt_pipeline.protocol.nodes.formats import QuorumStatus
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.caught_up import nothing_to_drop
from rmt_pipeline.replica.insert.blocks import (
    PartitionBlocks,
    StagedBlock,
    commit_of,
    group_bytes,
)
from rmt_pipeline.replica.insert.pending import Pending
from rmt_pipeline.replica.insert.quorum import QuorumWait, Span, unsatisfied
from rmt_pipeline.replica.insert.record import (
    InsertProgress,
    Known,
    commit_note,
    forget_whole,
    progress,
    read_record,
)
from rmt_pipeline.replica.insert.result import (
    InsertCancelled,
    InsertIdentity,
    InsertResult,
    OtherBlocks,
    OtherRows,
    Outcome,
    block_id_of,
)
from rmt_pipeline.replica.insert.steps import (
    InsertStep,
    Note,
    Publish,
    Send,
    StepRefused,
    Steps,
    in_step,
)
from rmt_pipeline.replica.replica import Insertable, Replica, lost_error, takes_no_inserts
from rmt_pipeline.store.part_log import PartEvent
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.system import Waker
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Op, RefusalKind, Refused
from rmt_pipeline.zookeeper.paths import sequence_number
from rmt_pipeline.zookeeper.snapshot import gone
from rmt_pipeline.zookeeper.strays import Stray, give_back, seen_to
from rmt_pipeline.zookeeper.transactions import BlockCommit, BlockThere, Tagged

_IN_STEP_BLOCKS_MAX, _IN_STEP_BYTES_MAX = 8, 1 << 20
"""A larger insert is committed by its own thread: others would wait for its files."""
_BLOCKS_NAMED_MAX = 20  # how many of the blocks in the table an error names
_LOG_KNOWN_S = 10.0  # how old may be what is known of the log: each 30 s a clean-up trims it


@dataclass(slots=True)
class Insertion:
    """An insert under way. `run` may be called again, with the replica of a new session, after any
    error but a UserError or InsertCancelled: it goes on where the last call stopped.
    """

    identity: InsertIdentity
    record: InsertRecord
    """The record as it is before any commit of the insert."""
    _todo: dict[str, PartitionBlocks]
    _rows_total: int
    waits: QuorumWait | None = None
    waker: Waker | None = None
    """The waker of the thread that calls `run`. If it is given, a small insert may be committed in
    step with others of this process.
    """
    command_id: str = ""
    """The id of the ATTACH PARTITION command whose parts these are; "" for an insert."""
    _known: Known | None = None
    _committing: Pending | None = None
    _parts: list[tuple[PartName, int]] = field(default_factory=list)
    _duplicates: list[tuple[str, str, int]] = field(default_factory=list)
    _answer: InsertRecord | None = None
    """The record of a whole insert that had these rows before, so that this one is a duplicate."""

    @classmethod
    def of(
        cls,
        staged: Sequence[StagedPart],
        identity: InsertIdentity,
        *,
        replica: Replica,
        run_id: str,
        waits: "QuorumWait | None" = None,
        waker: Waker | None = None,
    ) -> "Insertion":
        """Prepare an insert of the parts `staged`, which are in the order of the data. A block that
        the insert contains twice is kept once; a part of which optimize_on_insert left no row is
        thrown away.
        """
        groups: dict[str, PartitionBlocks] = {}
        twice: list[tuple[str, str, int]] = []
        seen: set[str] = set()
        ordinal = 0
        for part in staged:
            partition = part.manifest.partition_id
            group = groups.setdefault(partition, PartitionBlocks(partition))
            group.given += part.source.rows
            if not part.manifest.rows:
                replica.store.discard(part)
                continue
            block_id = block_id_of(part, identity, ordinal)
            block = StagedBlock(part, block_id, ordinal)
            ordinal += 1
            if block_id and block_id in seen:
                twice.append((partition, "this insert", part.manifest.rows))
                replica.store.discard(part)
                continue
            seen.add(block_id)
            group.blocks.append(block)
        if not any(group.blocks for group in groups.values()):
            groups = {}
        record = InsertRecord(
            created_s=int(replica.clock.now_s()),
            replica=replica.name,
            run_id=run_id,
            partitions=(),
            blocks=0,
            rows=sum(part.source.rows for part in staged),
            row_hash=f"{sum(part.source.row_hash for part in staged) % 2**128:032x}",
            rows_in=0,
        )
        rows = sum(part.manifest.rows for part in staged)
        return cls(identity, record, groups, rows, waits, waker, _duplicates=twice)

    @classmethod
    def attaching(
        cls, parts: Sequence[tuple[StagedPart, str]], replica: Replica
    ) -> "Insertion":
        """Prepare to attach detached parts, each given with its block id, or "" (spec §9.5). They
        write no record of an insert: only their block ids tell that they are in the table already.
        """
        groups: dict[str, PartitionBlocks] = {}
        for ordinal, (part, block_id) in enumerate(parts):
            partition = part.manifest.partition_id
            group = groups.setdefault(partition, PartitionBlocks(partition))
            group.given += part.source.rows
            checksum = part.manifest.files_hash.hex().upper()
            group.blocks.append(StagedBlock(part, block_id, ordinal, checksum))
        rows = sum(part.manifest.rows for part, _ in parts)
        now_s = int(replica.clock.now_s())
        nothing = InsertRecord(now_s, replica.name, "", (), 0, rows, "", 0)
        identity = InsertIdentity(insert_id="", by_block=False)
        return cls(identity, nothing, groups, rows, command_id=replica.new_entry_id())

    @property
    def is_pending(self) -> bool:
        """Whether a commit was sent whose result is not known: its parts must not be removed."""
        return self._committing is not None

    @property
    def pending_parts(self) -> list[PartName]:
        """The parts that are in the table if the commit of unknown result landed."""
        return [] if self._committing is None else self._committing.parts

    @property
    def in_part(self) -> str:
        """A text that says how many rows are in the table and what to do about the others, if some
        are in and others, as far as is known, are not. Otherwise "".
        """
        if not self.identity.insert_id:
            rows, total = sum(rows for _, rows in self._parts), self._rows_total
            remedy = (
                "Deduplication is switched off for this insert or table: inserted again, these "
                "rows would be there twice. Insert only the partitions that are missing"
            )
            return f"{rows} of {total} rows are in. {remedy}" if 0 < rows < total else ""
        if self._known is None or self._known.record.is_whole:
            return ""
        record = self._known.record
        missing = ", ".join(one.partition for one in record.missing)
        cut = (
            f"cut into the same blocks, for some of partition {missing} are in"
            if missing
            else "cut in any way"
        )
        return (
            f"{record.rows_there} of {record.rows} rows, those of {len(self._known.partitions)} "
            "partitions, are in. Insert the same rows again (with the same token, if it had one), "
            f"on any replica and {cut}: only what is missing is inserted then"
        )

    def run(self, replica: Replica) -> InsertResult:
        """Carry out the insert. Raises OutcomeUnknown, ReplicaRetired, Unavailable (call again),
        InsertCancelled; OtherRows if an insert of the same id is in the table in part and had other
        rows, or had the same rows cut into other blocks so that it can't be told which are missing.

        However it ends, it leaves no lock behind while the session lives, except those of a commit
        that is pending: if there will be no other call, `let_go` removes these.
        """
        self._settle(replica)
        if self.waits is not None and not self._parts:
            self.waits.require(replica)
        while self._todo:
            if self._is_alone:
                self._wait(replica)
            self._commit_batch(replica, self._next_batch(replica))
        self._wait(replica)
        return self._result()

    @property
    def is_waiting(self) -> bool:
        """Whether rows of it are in the table, and it is not known yet that a quorum has them."""
        return self.waits is not None and self.waits.is_waiting

    def abandon(self, store: PartStore) -> None:
        """Throw away the parts that are staged and not committed."""
        assert not self.is_pending, "a commit without answer may have landed"
        for group in self._todo.values():
            group.discard(store)
        self._todo.clear()

    def let_go(self, store: PartStore) -> None:
        """Give the insert up: `run` is not called again. A commit of unknown result may have
        landed, so its parts stay on the disk; its locks are deleted as soon as ZooKeeper answers.
        """
        if self._committing is None:
            self.abandon(store)
        else:
            strays = [Stray(lock) for lock in self._committing.locks]
            self._committing.keeper.strays.leave(strays)

    @property
    def _is_alone(self) -> bool:
        return self.waits is not None and self.waits.is_alone

    def _wait(self, replica: Replica) -> None:
        if self.waits is not None:
            self.waits.wait(replica, self.identity.insert_id)

    # --- one batch ---

    def _next_batch(self, replica: Replica) -> list[PartitionBlocks]:
        """Return the partitions of the next commit: as many as fit into both multis, at least one.
        A partition is never divided, so that a retry which cuts its rows into other blocks finds
        all of it in the table or nothing.
        """
        if len(self._todo) == 1:
            return [*self._todo.values()]
        batch: list[PartitionBlocks] = []
        sizes: dict[tuple[int, ...], int] = {}
        size = len(self.record.encode()) + limits.OP_BYTES_OVERHEAD
        for group in self._todo.values():
            size += group_bytes(replica, group, self.waits, sizes)
            if batch and size > limits.INSERT_BYTES_MAX:
                break
            batch.append(group)
        return batch

    def _commit_batch(self, replica: Replica, batch: list[PartitionBlocks]) -> None:
        """Allocate block numbers for these partitions and commit them. Return without a commit if
        ZooKeeper refused it for a reason that another round can deal with, such as a block that is
        in the table already.

        What is read before the first step, or after a refusal, is read here, in the insert's own
        thread: none of those that are committed in step with it waits for that.
        """
        blocks = [block for group in batch for block in group.blocks]
        blocks.sort(key=lambda block: block.ordinal)  # the log has them in the data's order
        is_small = (
            len(blocks) <= _IN_STEP_BLOCKS_MAX
            and sum(block.staged.manifest.bytes_on_disk for block in blocks)
            <= _IN_STEP_BYTES_MAX
        )
        waker = self.waker if is_small and not self._is_alone else None
        insertable = _not_lost(replica)
        if blocks:
            ensure_partitions(replica, {block.staged.manifest.partition_id for block in blocks})
        try:
            in_step(replica, self._steps(replica, insertable, batch, blocks), waker)
        except StepRefused as refused:
            explain = refused.explain
        else:
            return
        explain()

    def _steps(
        self,
        replica: Replica,
        insertable: Insertable,
        batch: list[PartitionBlocks],
        blocks: list[StagedBlock],
    ) -> Steps:
        locks = (yield from self._allocate(replica, insertable, blocks)) if blocks else []
        insert_id = self.identity.insert_id
        note = None
        try:
            step = self._progress(batch, blocks, locks) if insert_id else None
            note = None if step is None else commit_note(replica, insert_id, step, self._known)
            if note is not None:
                replica.store.marks.note_commit(insert_id, note)
            commits = yield from self._publish(replica, blocks, locks)
        except BaseException:
            give_back(replica.keeper, [Stray(lock) for lock in locks])
            if note is not None:
                replica.store.marks.forget_commits(insert_id, [note])
            raise
        log_begin, creation = insertable.log_begin, replica.creation
        sent = Pending(commits, tuple(batch), step, note, replica.keeper, log_begin, creation)
        # A commit without blocks has no locks by which `_settle` could tell whether it landed. It
        # need not: if it wrote a record, the next round is refused by that, and reads it.
        if blocks:
            self._committing = sent
        fence = self._fence(replica, batch, locks) if self.command_id else ()
        tagged = transactions.commit_insert(
            replica.table,
            replica.paths,
            [commit for _, commit in commits],
            None if step is None else step.change,
            is_lost_version=insertable.is_lost_version,
            quorum_status=self._status(replica, commits),
            there=[there for group in batch for _, there in group.there],
            fence=fence,
        )
        try:
            results: list[str] = yield Send(tagged.ops)
        except Refused as refused:
            self._withdraw(replica)
            give_back(replica.keeper, [Stray(lock) for lock in locks])
            explain = partial(self._explain_commit, replica, batch, tagged, refused)
            raise StepRefused(explain) from refused
        except ReplicaDropped:
            # Nothing was written. Do not withdraw: the parts' names and the locks may by now be
            # those of a new table of the same name.
            self._committing = None
            raise
        else:
            logged = zip(results, tagged.tags, strict=True)
            entries = [path for path, (purpose, _) in logged if purpose is Purpose.LOG_ENTRY]
            if entries and replica.memory.insertable is not None:
                end, now_s = sequence_number(entries[-1]) + 1, replica.clock.monotonic_s()
                replica.memory.insertable = replace(insertable, log_begin=end, seen_s=now_s)
            self._committing = sent
            yield Note(self._committed(replica))

    def _fence(
        self, replica: Replica, batch: Sequence[PartitionBlocks], locks: Sequence[str]
    ) -> Sequence[Op]:
        """Look for drops, as an ATTACH does last, since to publish parts may take seconds."""
        try:
            return nothing_to_drop(replica, [group.partition for group in batch])
        except YetToDrop:
            self._withdraw(replica)
            give_back(replica.keeper, [Stray(lock) for lock in locks])
            raise
        except ReplicaDropped:
            self._committing = None  # as of a commit
            raise

    def _status(
        self, replica: Replica, commits: Sequence[tuple[StagedBlock, BlockCommit]]
    ) -> bytes | None:
        """Return the content of the node in which all parts of the commit wait for their quorum.
        None without quorum, and with insert_quorum_parallel, where each part has a node of its own.
        """
        if self.waits is None or not self._is_alone or not commits:
            return None
        entries = [self.waits.entry(commit.part, replica.name) for _, commit in commits]
        return QuorumStatus(tuple(filter(None, entries))).encode()

    def _progress(
        self,
        batch: Sequence[PartitionBlocks],
        blocks: Sequence[StagedBlock],
        locks: Sequence[str],
    ) -> InsertProgress:
        """Return the change to the insert's record that this commit makes. `locks` are those of the
        `blocks`, which are all those of the batch.
        """
        numbers = {
            block.ordinal: sequence_number(lock)
            for block, lock in zip(blocks, locks, strict=True)
        }
        lines = [
            line
            for group in batch
            for line in group.lines([numbers[block.ordinal] for block in group.blocks])
        ]
        return progress(
            self.record,
            self._known,
            self.identity.insert_id,
            lines,
            blocks=len(locks),
            rows=sum(group.given for group in batch if not group.is_completed),
            is_last=len(batch) == len(self._todo),
        )

    def _allocate(
        self, replica: Replica, insertable: Insertable, blocks: Sequence[StagedBlock]
    ) -> Generator[InsertStep, Any, list[str]]:
        """Allocate a block number for each block and return their locks' paths."""
        partitions = {block.staged.manifest.partition_id for block in blocks}
        holder = replica.new_holder()
        tagged = transactions.allocate_blocks(
            replica.table,
            replica.paths,
            [(block.staged.manifest.partition_id, block.block_id) for block in blocks],
            self.identity.insert_id,
            record_version=None if self._known is None else self._known.version,
            holder=holder,
            is_lost_version=insertable.is_lost_version,
            is_alone=self._is_alone,
        )
        strays = [
            Stray(replica.table.partition(partition), holder, is_parent=True)
            for partition in sorted(partitions)
        ]
        try:
            with seen_to(replica.keeper, strays):
                results: list[str] = yield Send(tagged.ops)
        except Refused as refused:
            explain = partial(self._explain_allocation, replica, blocks, tagged, refused)
            raise StepRefused(explain) from refused
        return [
            path
            for path, (purpose, _) in zip(results, tagged.tags, strict=True)
            if purpose is Purpose.PARTITION
        ]

    def _explain_allocation(
        self, replica: Replica, blocks: Sequence[StagedBlock], tagged: Tagged, refused: Refused
    ) -> None:
        """Return if another round can succeed; otherwise raise what the caller must know."""
        purpose, index = tagged.culprit(refused)
        match meaning.interpret_allocation(refused.kind.value, purpose, index):
            case meaning.DuplicateInsert() | meaning.InsertMoved():
                self._learn(replica)
            case meaning.DuplicateBlock():
                self._take_out_duplicates(replica, blocks)
            case meaning.PartitionMissing(block):
                partition = blocks[block].staged.manifest.partition_id
                replica.memory.partitions.forget([partition])
            case meaning.NotActive():
                raise takes_no_inserts(replica) from refused
            case meaning.QuorumBusy():
                raise unsatisfied(replica) from refused
            case meaning.TableGone() | meaning.Unexpected() | meaning.FindOut():
                raise refused

    def _explain_commit(
        self,
        replica: Replica,
        batch: Sequence[PartitionBlocks],
        tagged: Tagged,
        refused: Refused,
    ) -> None:
        """As `_explain_allocation`."""
        purpose, index = tagged.culprit(refused)
        match meaning.interpret_commit(refused.kind.value, purpose, index):
            case meaning.DuplicateInsert() | meaning.InsertMoved():
                self._learn(replica)
            case meaning.DuplicateBlock():
                return  # another insert committed it between our two multis; the next round sees it
            case meaning.BlockGone():
                self._look_for_ids(batch)
            case meaning.NotActive():
                raise takes_no_inserts(replica) from refused
            case meaning.Cancelled():
                raise InsertCancelled(
                    f"insert into {replica} was cancelled: a concurrent DROP or TRUNCATE of a "
                    "partition took its block number; nothing was inserted by this commit. Insert "
                    "again if that is meant"
                ) from refused
            case meaning.QuorumBusy():
                raise unsatisfied(replica) from refused
            case meaning.TableGone() | meaning.Unexpected() | meaning.FindOut():
                raise refused

    # --- disk ---

    def _publish(
        self, replica: Replica, blocks: Sequence[StagedBlock], locks: Sequence[str]
    ) -> Generator[InsertStep, Any, tuple[tuple[StagedBlock, BlockCommit], ...]]:
        """Give the staged parts the names of their numbers, before ZooKeeper promises them."""
        create_time = int(replica.clock.now_s())
        commits = [
            (block, commit_of(replica, block, lock, create_time, self.waits))
            for block, lock in zip(blocks, locks, strict=True)
        ]
        try:
            yield Publish([(block.staged, commit.part) for block, commit in commits])
        except BaseException:
            if replica.is_there():
                for block, commit in commits:
                    replica.store.withdraw(commit.part, block.staged)
            raise
        return tuple(commits)

    def _withdraw(self, replica: Replica) -> None:
        """Turn the published parts back into staged ones: their commit will never land."""
        if self._committing is not None:
            for block, commit in self._committing.blocks:
                replica.store.withdraw(commit.part, block.staged)
            if (note := self._committing.note) is not None:
                replica.store.marks.forget_commits(self.identity.insert_id, [note])
        self._committing = None

    def _committed(self, replica: Replica) -> list[PartEvent]:
        """Take note that the commit landed. Return what is to be written into the part log."""
        assert self._committing is not None
        events = [
            PartEvent(
                "NewPart",
                str(commit.part),
                replica.clock.now_s(),
                max(0.0, replica.clock.now_s() - block.staged.manifest.created_s),
                block.staged.manifest.rows,
                block.staged.manifest.bytes_on_disk,
                insert_id=self.identity.insert_id,
                run_id=self.record.run_id,
                command="ATTACH PARTITION" if self.command_id else "",
                entry_id=self.command_id,
            )
            for block, commit in self._committing.blocks
        ]
        replica.memory.inserted.add(len(self._committing.blocks))
        self._parts += [
            (commit.part, block.staged.manifest.rows)
            for block, commit in self._committing.blocks
        ]
        if self.waits is not None:
            self.waits.began(self._committing.parts)
        for group in self._committing.groups:
            del self._todo[group.partition]
            self._left_out(replica, group)
        if self._committing.progress is not None:
            self._known = self._committing.progress.known
            if self._known.record.is_whole and self._known.record.batches:
                forget_whole(replica, self.identity.insert_id, self._known.record)
        self._committing = None
        return events

    # --- a commit of unknown result ---

    def _settle(self, replica: Replica) -> None:
        """Find out whether the commit without an answer landed; if not, make sure it never will.

        The commit deletes its locks, and so does the multi that is sent here: only one of the two
        can succeed. Raises OutcomeUnknown if this multi gets no answer either: the question stays
        open.
        """
        if self._committing is None:
            return
        try:
            replica.keeper.multi(transactions.release_locks(self._committing.locks))
            evidence = Evidence(locks_deleted=True)
        except Refused as refused:
            if refused.kind is not RefusalKind.NO_NODE:
                raise
            evidence = self._committing.evidence(replica)
        match meaning.settle(evidence):
            case meaning.Committed():
                replica.store.part_log.note(self._committed(replica))
            case meaning.NotCommitted():
                sent = self._committing
                self._withdraw(replica)
                if not evidence.locks_deleted:  # a DROP took one, the others are there
                    give_back(sent.keeper, [Stray(lock) for lock in sent.locks])
                    staged = [block.staged for block, _ in sent.blocks]
                    self._require_still_here(replica, staged)
            case meaning.StillUnknown():
                raise OutcomeUnknown(f"{replica}: whether an insert landed is still not known")

    @staticmethod
    def _require_still_here(replica: Replica, staged: Sequence[StagedPart]) -> None:
        """Raise InsertCancelled if the parts have left the disk."""
        if all(replica.store.staged_at(one.directory) for one in staged):
            return
        raise InsertCancelled(
            f"insert into {replica} was cancelled, and its parts have left the disk; nothing of "
            "this commit was inserted. Insert again"
        )

    # --- what is in the table already ---

    def _learn(self, replica: Replica) -> None:
        """Read the insert's record, and leave out the partitions and blocks that are in the table.
        Raises OtherRows, InsertCancelled.

        If the record is gone, it was forgotten between the two requests: the insert is no duplicate
        any more.
        """
        insert_id = self.identity.insert_id
        known = read_record(replica, insert_id)
        if known is None:
            for group in self._todo.values():
                group.look_again()
            before, self._known = self._known, None
            if before is not None and before.record.rows_in < before.record.rows:
                raise InsertCancelled(
                    f"the record of insert {insert_id} into {replica} was removed while the "
                    f"insert was running: {before.record.rows_in} of {before.record.rows} rows are "
                    "in, and the others were not inserted. Inserted again, those that are in "
                    "would be there twice: insert only the partitions that are missing"
                )
            return
        given = [line for group in self._todo.values() for line in group.given_lines()]
        known = known.said_again(self.record, given)
        is_other = known.record.row_hash != self.record.row_hash
        if not known.record.is_whole and is_other:
            raise OtherRows(
                f"insert {insert_id} into {replica} is in part, {known.record.rows_there} of its "
                f"{known.record.rows} rows, and the {self.record.rows} rows that are inserted now "
                "under its name are not those (or columns were altered since): nothing was "
                "inserted. Insert the rows that it had; or others, under another token"
            )
        if self.waits is not None and self._known is not None:
            open_lines = (one for one in self._known.lines if one.partition in self._todo)
            self.waits.found_no_more(map(Span.of_rows, open_lines))
        if self.waits is not None:
            self.waits.found(map(Span.of_rows, known.lines))
        self._known = known
        self._answer = known.record if known.record.is_whole else None
        incomplete = {one.partition for one in known.record.missing}
        for name, group in [*self._todo.items()]:
            if name in incomplete:
                self._complete(replica, group, known)
            elif name in known.partitions or is_other:
                # The insert of this id is whole, or has this partition: other rows under the same
                # token count as a retry of it.
                self._is_there(replica, self._todo.pop(name))
            else:
                group.look_again()

    def _complete(self, replica: Replica, group: PartitionBlocks, known: Known) -> None:
        """Leave out those blocks of the partition that are in the table, while others of it are
        missing. Raises OtherBlocks if it can't be told which of the given blocks those are.
        """
        partition, record = group.partition, known.record
        lines = [line for line in known.lines if line.partition == partition]
        lines.sort(key=lambda line: line.first)
        if group.leave_out(lines, self.identity.token, known.version):
            return
        there = ", ".join(
            f"{line.rows_given} rows as {partition}_{line.first}_{line.last}"
            for line in lines[:_BLOCKS_NAMED_MAX]
        )
        more = len(lines) - _BLOCKS_NAMED_MAX
        [missing] = [one.rows for one in record.missing if one.partition == partition]
        raise OtherBlocks(
            f"insert {self.identity.insert_id} into {replica} had rows in partition {partition} of "
            f"which {missing or 'some'} are lost: their quorum failed, or no replica had them any "
            f"more. Others are there: {there}{f' and {more} more blocks' * (more > 0)}. The "
            f"{group.given} rows of it that are inserted now are cut into other blocks, and which "
            "of them these are can't be told: nothing was inserted by this commit. Insert the same "
            "rows again, cut as before (in the same order, with the same max_insert_block_size): "
            "just what is missing is inserted then. Or drop the partition and insert again, cut in "
            "any way; or replace it: INSERT OVERWRITE"
        )

    def _is_there(self, replica: Replica, group: PartitionBlocks) -> None:
        """Report the whole partition as a duplicate: the insert that has the record brought all of
        it.
        """
        self._duplicates.append(
            (
                group.partition,
                f"insert {self.identity.insert_id}",
                sum(block.rows for block in group.all_blocks()),
            )
        )
        group.discard(replica.store)

    def _left_out(self, replica: Replica, group: PartitionBlocks) -> None:
        """Report as duplicates those blocks of the partition that the table had already, now that
        its other blocks are committed.
        """
        ours = f"insert {self.identity.insert_id}"
        self._duplicates += [
            *((group.partition, there.part, block.rows) for block, there in group.there),
            *((group.partition, ours, block.rows) for block in group.ours),
        ]
        group.blocks = []
        group.discard(replica.store)

    def _look_for_ids(self, groups: Iterable[PartitionBlocks]) -> None:
        """Commit again the blocks that were found by their ids: some may have left the table."""
        for group in groups:
            parts = [PartName.try_parse(there.part) for _, there in group.there]
            if self.waits is not None:
                self.waits.found_no_more(map(Span.of_part, filter(None, parts)))
            group.look_for_ids()

    def _take_out_duplicates(self, replica: Replica, blocks: Sequence[StagedBlock]) -> None:
        """Leave out the blocks whose id belongs to a committed part, and remember which part that
        is.
        """
        with_id = [block for block in blocks if block.block_id]
        above, *reads = replica.keeper.get_many(
            [replica.table.blocks, *(replica.table.block(block.block_id) for block in with_id)]
        )
        for block, read in zip(with_id, reads, strict=True):
            if read is None or above is None:
                continue
            group = self._todo[block.staged.manifest.partition_id]
            group.blocks.remove(block)
            there = BlockThere(
                block.block_id, read[0].decode(), read[1].version, above[1].version
            )
            group.there.append((block, there))
            part = PartName.try_parse(there.part)
            if part is not None and self.waits is not None:
                self.waits.found([Span.of_part(part)])

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
            duplicate_of=None if self._parts else self._answer,
        )


def ensure_partitions(replica: Replica, partitions: set[str]) -> None:
    """Make sure that block numbers can be allocated in each of these partitions: create the nodes
    of those that are new. Raises ReplicaDropped.
    """
    known = replica.memory.partitions.of(partitions)
    new = sorted(partitions - known.keys())
    multis = [transactions.create_partition(replica.table, replica.paths, one) for one in new]
    for partition, result in zip(new, replica.keeper.multi_many(multis), strict=True):
        if isinstance(result, Refused) and result.kind is RefusalKind.NO_NODE:
            raise gone(replica.paths) from result
        if isinstance(result, Exception) and not isinstance(result, Refused):
            raise result
        replica.memory.partitions.learn({partition: None})


def _not_lost(replica: Replica) -> Insertable:
    """Return what is known of this replica, which is not lost. Reads the nodes once per session,
    and after a pause, in which others may have written much into the log. Raises TableIsReadOnly,
    ReplicaDropped.
    """
    known, now_s = replica.memory.insertable, replica.clock.monotonic_s()
    if known is not None and now_s - known.seen_s < _LOG_KNOWN_S:
        return known
    read, log = replica.keeper.get_many([replica.paths.is_lost, replica.table.log])
    if read is None or log is None:
        raise gone(replica.paths)
    if read[0] == b"1":
        raise lost_error(replica)
    known = Insertable(read[1].version, log[1].next_sequence, now_s)
    replica.memory.insertable = known
    return known
