"""Each multi of the protocol as a function that returns its operations; nothing is sent here.

The functions take texts of nodes, as `protocol.log.codec` and `protocol.nodes` make them, and part
names. The order of operations matters only where the caller asks which one was refused (`Tagged`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.inserts.interpret import Purpose
from rmt_pipeline.protocol.mutations import FinishedMutations
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.zookeeper.batches import op_bytes
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Op,
    Refused,
    SetData,
    absent,
)
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from rmt_pipeline.zookeeper.snapshot import NotedMutations


@dataclass(frozen=True, slots=True)
class Tagged:
    """Operations, each with its purpose and the index of the block that it belongs to
    (None: none).
    """

    ops: tuple[Op, ...]
    tags: tuple[tuple[Purpose, int | None], ...]

    def culprit(self, refused: Refused) -> tuple[Purpose, int | None]:
        """The purpose and block of the operation that was refused."""
        return self.tags[refused.index]


def _tagged(steps: Iterable[tuple[Sequence[Op], Purpose, int | None]]) -> Tagged:
    flat = [(op, purpose, block) for ops, purpose, block in steps for op in ops]
    return Tagged(
        tuple(op for op, _, _ in flat),
        tuple((purpose, block) for _, purpose, block in flat),
    )


# --- insert (spec §2.4, §2.5; design §5)


def allocate_blocks(
    table: TablePaths,
    replica: ReplicaPaths,
    blocks: Sequence[tuple[str, str]],
    insert_id: str,
    *,
    record_version: int | None,
    holder: str,
    is_lost_version: int,
    is_alone: bool = False,
) -> Tagged:
    """Allocate a block number for every (partition id, block id or "") of one insert, or for none.

    `record_version` is the version of the insert's record; None: it has none. `holder` is a name
    that no other allocation has, by which the locks are found when there is no answer. With
    `is_alone` no other insert may be waiting for its quorum.

    The record, the block ids and the quorum are tested here only to save work: what counts is that
    the commit writes their nodes. Of several reasons ZooKeeper reports the first. So the record
    comes first: after an earlier try of this insert, block ids need not be looked at. The quorum
    comes last: rows that are there already do not need it.
    """
    steps = _may_insert(replica, is_lost_version)
    if insert_id and record_version is None:
        steps.append((absent(table.insert(insert_id)), Purpose.INSERT_RECORD, None))
    elif insert_id:
        goes_on = Check(table.insert(insert_id), record_version or 0)
        steps.append(([goes_on], Purpose.INSERT_GOES_ON, None))
    for index, (partition, block_id) in enumerate(blocks):
        steps += [
            (ops, purpose, index)
            for ops, purpose in _allocation(table, partition, block_id, holder)
        ]
    if is_alone:
        steps.append((absent(table.quorum_status), Purpose.QUORUM, None))
    return _tagged(steps)


def _allocation(
    table: TablePaths, partition: str, block_id: str, holder: str
) -> list[tuple[Sequence[Op], Purpose]]:
    data = table.insert_lock_data(holder)
    lock = Create(table.lock_prefix(partition), data, ephemeral=True, sequence=True)
    number: tuple[Sequence[Op], Purpose] = ([lock], Purpose.PARTITION)
    return [(absent(table.block(block_id)), Purpose.BLOCK_ID), number] if block_id else [number]


def _may_insert(
    replica: ReplicaPaths, is_lost_version: int
) -> list[tuple[Sequence[Op], Purpose, int | None]]:
    """Assert that the replica is active and not lost. A replica that clones another sets aside
    every part that its source does not know, and with them the rows of an insert that it had
    accepted meanwhile (spec §11.4).
    """
    return [
        ([Check(replica.is_active)], Purpose.IS_ACTIVE, None),
        ([Check(replica.is_lost, is_lost_version)], Purpose.NOT_LOST, None),
    ]


def create_partition(table: TablePaths, replica: ReplicaPaths, partition: str) -> list[Op]:
    """Create a partition's node, for its first block. The new version of `block_numbers` refuses
    multis that were decided on an older list of all partitions.
    """
    return [
        Check(replica.host),  # exists unless the replica is being dropped
        Create(table.partition(partition)),
        SetData(table.block_numbers),
    ]


@dataclass(frozen=True, slots=True)
class BlockCommit:
    """What a commit writes for one part of an insert.

    `lock` is the path of the lock of its block number, `entry` the text of its log entry, `header`
    that of its node, `block_id` is "" without deduplication. `quorum` is the text of the node that
    stays until enough replicas have the part; None if the part does not have one of its own.
    """

    part: PartName
    lock: str
    entry: bytes
    header: bytes
    block_id: str
    quorum: bytes | None = None


@dataclass(frozen=True, slots=True)
class BlockThere:
    """A block that an insert leaves out because its id is in ZooKeeper already.

    `part` is the name in the id's node when it was read, `version` that node's version.
    `forgotten` is the version that `blocks` had before that read: if `blocks` has another version
    now, ids were forgotten since, and this one may have been created again for another part.
    """

    block_id: str
    part: str
    version: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class RecordChange:
    """What a commit writes about its insert: the record's new `text`, and with `batch` the node of
    this commit, as (number, text). `version` is the version of the record before (None: there was
    none).
    """

    insert_id: str
    text: bytes
    version: int | None
    batch: tuple[int, bytes] | None


def commit_insert(
    table: TablePaths,
    replica: ReplicaPaths,
    blocks: Sequence[BlockCommit],
    change: RecordChange | None,
    *,
    is_lost_version: int,
    quorum_status: bytes | None = None,
    there: Sequence[BlockThere] = (),
    fence: Sequence[Op] = (),
) -> Tagged:
    """Commit parts of an insert, all or none.

    For each part the multi writes the log entry, deletes the lock of its block number, creates the
    block id (so that the same block is refused from then on), adds the part to this replica's
    parts, and creates its quorum node. It also writes the insert's record (`change`). With
    `quorum_status` all parts wait for one quorum, and no other insert may wait; the node above it
    gets another version, which tells this status from that of an earlier insert. `fence` asserts
    that no partition was dropped.

    Deleting the locks also fences: once they are gone, another copy of this multi that is still on
    its way is refused (spec §2.6, §16.2 I4). So does the version of the record: of two tries that
    go on from the same state of the record only one succeeds.

    Block ids that are `there` get another version. A process that has read them before, in order to
    forget them with their parts, is refused, and finds this insert's record when it looks again.
    """
    steps = [*_may_insert(replica, is_lost_version), (fence, Purpose.NOTHING_DROPPED, None)]
    steps += [
        ([Check(table.blocks, version)], Purpose.BLOCK_THERE, None)
        for version in sorted({one.forgotten for one in there})
    ]
    steps += [
        (
            [SetData(table.block(one.block_id), one.part.encode(), one.version)],
            Purpose.BLOCK_THERE,
            None,
        )
        for one in there
    ]
    if change is not None:
        steps += _change_record(table, change)
    for index, block in enumerate(blocks):
        steps += [(ops, purpose, index) for ops, purpose in _commit(table, replica, block)]
    if quorum_status is not None:
        status = Create(table.quorum_status, quorum_status)
        steps.append(([status, SetData(table.quorum)], Purpose.QUORUM, None))
    return _tagged(steps)


def _change_record(
    table: TablePaths, change: RecordChange
) -> list[tuple[Sequence[Op], Purpose, int | None]]:
    path = table.insert(change.insert_id)
    steps: list[tuple[Sequence[Op], Purpose, int | None]]
    if change.version is None:
        steps = [([Create(path, change.text)], Purpose.INSERT_RECORD, None)]
    else:
        going_on = SetData(path, change.text, change.version)
        steps = [([going_on], Purpose.INSERT_GOES_ON, None)]
    if change.batch is not None:
        number, text = change.batch
        batch = Create(table.insert_batch(change.insert_id, number), text)
        steps.append(([batch], Purpose.INSERT_BATCH, None))
    return steps


def _commit(
    table: TablePaths, replica: ReplicaPaths, block: BlockCommit
) -> list[tuple[Sequence[Op], Purpose]]:
    entry = Create(table.log_prefix, block.entry, sequence=True)
    steps: list[tuple[Sequence[Op], Purpose]] = [
        ([entry], Purpose.LOG_ENTRY),
        ([Delete(block.lock)], Purpose.UNLOCK),
    ]
    if block.block_id:
        node = Create(table.block(block.block_id), str(block.part).encode())
        steps.append(([node], Purpose.BLOCK_ID))
    steps.append(([Create(replica.part(block.part), block.header)], Purpose.PART))
    if block.quorum is not None:
        steps.append(([Create(table.quorum_of(block.part), block.quorum)], Purpose.QUORUM))
    return steps


def insert_bytes(
    table: TablePaths, replica: ReplicaPaths, block: BlockCommit, holder: str
) -> int:
    """How many bytes a block takes in the larger one of the insert's two multis."""
    allocation = _allocation(table, block.part.partition, block.block_id, holder)
    commit = _commit(table, replica, block)
    return max(
        sum(op_bytes(op, limits.OP_FRAME_BYTES) for ops, _ in steps for op in ops)
        for steps in (allocation, commit)
    )


def release_locks(locks: Iterable[str]) -> list[Op]:
    """Give block numbers back. This also settles a commit that got no answer: it deletes the same
    locks, so only one of the two can succeed.
    """
    return [Delete(lock) for lock in locks]


# --- log → queue (spec §3) -------------------------------------------------------------------


def pull(
    replica: ReplicaPaths,
    entries: Sequence[bytes],
    *,
    here: Sequence[PartName],
    pointer: int,
    pointer_version: int,
    is_lost_version: int,
) -> list[Op]:
    """Copy log entries to the queue and move the log pointer behind them, in one multi (spec §16.3
    Q2).

    `entries` are the texts to queue. Log entries that are passed by are not among them; the multi
    asserts that the parts that they brought are `here`. The pointer's version makes two processes
    that pull exclude each other, that of `is_lost` asserts that the replica is not becoming a
    clone, and `is_active` that the clean-up keeps what our pointer has not passed.
    """
    return [
        Check(replica.is_active),
        Check(replica.is_lost, is_lost_version),
        *(Check(replica.part(part)) for part in here),
        *(Create(replica.queue_prefix, entry, sequence=True) for entry in entries),
        SetData(replica.log_pointer, str(pointer).encode(), pointer_version),
    ]


# --- queue → parts (design §4) ---------------------------------------------------------------


def claim(
    replica: ReplicaPaths,
    claims: Sequence[tuple[str, bytes]],
    *,
    executing_version: int,
    is_lost_version: int,
) -> list[Op]:
    """Claim queue entries, if they are still queued. `claims` are (queue node, text of the claim).

    Each claim changes the version of `executing`, so that of two workers that have read the same
    claims, and compared their entries with these, only one succeeds.
    """
    serial, *creations = claim_pulled(replica, claims, executing_version=executing_version)
    return [
        Check(replica.is_lost, is_lost_version),
        serial,
        *(Check(replica.queue_entry(node)) for node, _ in claims),
        *creations,
    ]


def claim_pulled(
    replica: ReplicaPaths, claims: Sequence[tuple[str, bytes]], *, executing_version: int
) -> list[Op]:
    """Claim queue entries in the multi that makes them (`pull`), see `claim`."""
    return [
        SetData(replica.executing, b"", executing_version),
        *(Create(replica.claim(node), data, ephemeral=True) for node, data in claims),
    ]


def confirm_claim(replica: ReplicaPaths, node: str, part: PartName) -> list[Op]:
    """Assert that the claim exists and the part is not promised; changes nothing. Then no other
    process touches the part's directory. A multi, because a read could be answered from an older
    state.
    """
    return [Check(replica.claim(node)), *absent(replica.part(part))]


def finish_entry(replica: ReplicaPaths, node: str) -> list[Op]:
    """Remove a queue entry that needs no work: its part, or a covering one, is here (§5.1.2)."""
    return [Delete(replica.queue_entry(node))]


def publish_part(
    replica: ReplicaPaths,
    node: str,
    part: PartName,
    header: bytes,
    *,
    nobody_has: Sequence[Op],
    counted: Sequence[Op] = (),
) -> list[Op]:
    """Promise `part`, remove its queue entry and claim, and count this replica for the part's
    quorum (`counted`).

    `nobody_has` asserts that no other replica has the part, if none had it when we looked, which
    keeps two replicas from publishing different bytes under one name (spec §5.4). If a DROP has
    removed the entry meanwhile, its deletion, which comes first, is refused, and with it
    everything.
    """
    return [
        Delete(replica.queue_entry(node)),
        Delete(replica.claim(node)),
        *nobody_has,
        Create(replica.part(part), header),
        *counted,
    ]


def refetch_part(
    replica: ReplicaPaths,
    part: PartName,
    entry: bytes,
    *,
    is_lost_version: int,
    is_lost: bytes,
    noted: NotedMutations,
) -> list[Op]:
    """Stop promising `part`, whose bytes are missing or wrong here, and queue a fetch of it (spec
    §5.9.1). Setting `is_lost` to its own value gives it a new version, so that a replica that is
    cloning this one is refused.

    Until the part is fetched, parts that it covers are read again, which may lack mutations that
    `part` had. So the note of finished mutations is cleared, and they are determined anew.
    """
    ops: list[Op] = [
        SetData(replica.is_lost, is_lost, is_lost_version),
        SetData(replica.mutation_pointer, b"", noted.pointer_version),
        Delete(replica.part(part)),
        Create(replica.queue_prefix, entry, sequence=True),
    ]
    if noted.finished.beyond:
        ops.append(Delete(replica.finished_mutations))
    return ops


def forget_covered(
    replica: ReplicaPaths, part: PartName, covering: PartName, *, is_lost_version: int
) -> list[Op]:
    """Stop promising a part, because we promise one that covers it. Its bytes are removed
    afterwards (spec §10.5).

    That `covering` covers it was found some time ago. `is_lost_version` was read before that; it
    changes whenever this replica gives up a part (`refetch_part`) or takes over another replica's
    state.
    """
    return [
        Check(replica.is_lost, is_lost_version),
        Check(replica.part(covering)),
        Delete(replica.part(part)),
    ]


# --- assigning -------------------------------------------------------------------------------


def assign(
    table: TablePaths,
    replica: ReplicaPaths,
    entries: Sequence[bytes],
    *,
    log_version: int,
    is_lost_version: int,
) -> list[Op]:
    """Write entries for merges or mutations to the log. The version of `log` serialises all
    assignments of the table; inserts do not change it (spec §6.3).

    The replica's parts and queue were read after the log had been pulled under `is_lost_version`.
    The version changes in two cases in which that reading may lack a part:

    * the replica became a clone, which moved its log pointer back: parts of the log were neither
      queued nor among the parts;
    * the replica gave up a part: it was missing from the queue, which was read first, and then from
      the parts.
    """
    return [
        Check(replica.is_active),
        Check(replica.is_lost, is_lost_version),
        SetData(table.log, b"", log_version),
        *(Create(table.log_prefix, entry, sequence=True) for entry in entries),
    ]


def bump_log(table: TablePaths) -> list[Op]:
    """Change the version of `log`: an assignment that is on its way with an older version is
    refused.
    """
    return [SetData(table.log)]


# --- mutations (spec §7) ----------------------------------------------------------------------


def lock_partitions(
    table: TablePaths,
    partitions: Sequence[str],
    holder: str,
    *,
    version: int | None = None,
    commands: int | None = None,
) -> list[Op]:
    """Allocate a block number in each partition. `holder` is a name that no other allocation has.
    With `version`, of `block_numbers`, only if no partition was added since; with `commands`, the
    version of `alter_partition_version`, only if no command on partitions came since.
    """
    data = table.other_lock_data(holder)
    locks: list[Op] = [
        Create(table.lock_prefix(partition), data, ephemeral=True, sequence=True)
        for partition in partitions
    ]
    asserted = ((table.block_numbers, version), (table.alter_partition_version, commands))
    return [*locks, *(Check(path, known) for path, known in asserted if known is not None)]


def create_mutation(table: TablePaths, entry: bytes, version: int, lock: str) -> list[Op]:
    """Create a mutation, if `mutations` still has the version that was read before its block
    numbers were allocated: so in every partition a mutation with a greater id has a greater number.

    The multi deletes `lock`, the lock of one of its numbers ("": there is none), which also fences:
    once it is gone, another copy of this multi that is still on its way is refused.
    """
    ops: list[Op] = [
        SetData(table.mutations, b"", version),
        Create(f"{table.mutations}/", entry, sequence=True),
    ]
    return [*ops, *release_locks([lock] if lock else [])]


def bump_mutations(table: TablePaths, version: int) -> list[Op]:
    """Change the version of `mutations`: a mutation that is on its way with this version is
    refused.
    """
    return [SetData(table.mutations, b"", version)]


def note_finished(
    table: TablePaths,
    replica: ReplicaPaths,
    finished: FinishedMutations,
    noted: NotedMutations,
) -> list[Op]:
    """Note which mutations this replica has finished, unless another process has noted some since
    `noted` was read, or the replica became a clone or gave up a part since: both may have brought
    back parts with smaller data versions. So do other replicas while the table is restored: then
    nothing is noted.
    """
    path, beyond = replica.finished_mutations, finished.encode_beyond()
    ops: list[Op] = [
        *absent(table.restoring),
        Check(replica.is_lost, noted.is_lost_version),
        SetData(replica.mutation_pointer, finished.pointer.encode(), noted.pointer_version),
    ]
    if finished.beyond:
        ops.append(SetData(path, beyond) if noted.finished.beyond else Create(path, beyond))
    elif noted.finished.beyond:
        ops.append(Delete(path))
    return ops


def remove_mutations(table: TablePaths, ids: Sequence[str], replicas_version: int) -> list[Op]:
    """Remove mutations that every replica has finished, unless a replica was added or removed since
    we read what they have finished (spec §7.6).
    """
    return [
        Check(table.replicas, replicas_version),
        *(Delete(table.mutation(one)) for one in ids),
    ]


# --- forgetting (spec §10) --------------------------------------------------------------------


def mark_lost(replica: ReplicaPaths, host_version: int) -> list[Op]:
    """Mark an inactive replica as lost, because it is too far behind for the log to be kept for it.
    Refused if it became active meanwhile, which changes `host`.
    """
    return [Check(replica.host, host_version), SetData(replica.is_lost, b"1")]


def trim_log(
    table: TablePaths,
    names: Sequence[str],
    *,
    hosts: Sequence[tuple[str, int]],
    replicas_version: int,
) -> list[Op]:
    """Remove log entries. `hosts`, (replica, version of its `host`), asserts that no replica that
    counted as lost became active since the decision, `replicas_version` that none was added.
    """
    return [
        Check(table.replicas, replicas_version),
        *(Check(table.replica(name).host, version) for name, version in hosts),
        *(Delete(table.log_entry(name)) for name in names),
    ]


def remove_node(path: str) -> list[Op]:
    """Remove one node on which nothing else depends, whichever version it has."""
    return [Delete(path)]


def remove_ids(parent: str, version: int, ops: Sequence[Op]) -> list[Op]:
    """Remove children of `parent` by `ops`, if none were removed since `parent` had this version.

    Each removal changes the version. An id that was created again since it was read was removed in
    between, so its new node can't be taken for the old one.
    """
    return [SetData(parent, b"", version), *ops]


def remove_insert(table: TablePaths, insert_id: str, batches: int, version: int) -> list[Op]:
    """Remove the record of an insert and the nodes of its commits, if it still has this version."""
    return [
        *(Delete(table.insert_batch(insert_id, number)) for number in range(batches)),
        Delete(table.insert(insert_id), version),
    ]


# --- life of tables and replicas (spec §11) ---------------------------------------------------


def create_table(
    table: TablePaths, replica_name: str, metadata: bytes, columns: bytes
) -> list[Op]:
    """Create the shared nodes of a new table, without those of its first replica (spec §11.1)."""
    return [
        Create(table.root),
        Create(table.metadata, metadata),
        Create(table.columns, columns),
        Create(table.log),
        Create(table.blocks),
        Create(f"{table.root}/async_blocks"),
        Create(table.inserts),
        Create(table.block_numbers),
        Create(f"{table.root}/nonincrement_block_numbers"),
        Create(f"{table.root}/leader_election"),
        Create(f"{table.root}/leader_election/leader_election-0", b"all (multiple leaders Ok)"),
        Create(f"{table.root}/temp"),
        Create(f"{table.root}/temp/abandonable_lock-insert"),
        Create(f"{table.root}/temp/abandonable_lock-other"),
        Create(table.replicas, f"last added replica: {replica_name}".encode()),
        Create(table.quorum),
        Create(table.quorum_parallel),
        Create(table.quorum_last_part),
        Create(table.quorum_failed_parts),
        Create(table.mutations),
        Create(table.alters),
        Create(table.alter_partition_version),
        Create(f"{table.root}/pinned_part_uuids"),
        Create(table.lost_part_count),
        Create(table.lost_parts),
    ]


def create_replica(
    replica: ReplicaPaths,
    *,
    is_lost: bool,
    metadata: bytes,
    columns: bytes,
    metadata_version: int,
    creator: bytes,
    creation: str,
) -> list[Op]:
    """Create a replica's nodes. One that joins a table begins as lost, so it clones another
    (§11.1).
    """
    return [
        Create(replica.root),
        Create(replica.host),
        Create(replica.log_pointer),
        Create(replica.queue),
        Create(replica.parts),
        Create(replica.flags),
        Create(replica.is_lost, b"1" if is_lost else b"0"),
        Create(replica.metadata, metadata),
        Create(replica.columns, columns),
        Create(replica.metadata_version, str(metadata_version).encode()),
        Create(replica.min_unprocessed_insert_time),
        Create(replica.max_processed_insert_time),
        Create(replica.mutation_pointer),
        Create(replica.creator_info, creator),
        Create(replica.executing),
        Create(replica.attempts),
        *note_creation(replica, creation),
    ]


def note_creation(replica: ReplicaPaths, creation: str) -> list[Op]:
    """Create the node that every write for this replica asserts (`zookeeper.through`). `creation`
    is "" for a definition that is in no catalog; then nothing is created.
    """
    nodes: list[Op] = [Create(replica.creations), Create(replica.creation(creation))]
    return nodes if creation else []


def announce_replica(table: TablePaths, replica_name: str, replicas_version: int) -> Op:
    """Change the version of `replicas`, so that a process that acts on an older list of replicas is
    refused.
    """
    return SetData(
        table.replicas, f"last added replica: {replica_name}".encode(), replicas_version
    )


def activate(replica: ReplicaPaths, identifier: bytes, address: bytes) -> list[Op]:
    """Make the replica active. Writing `host` changes its version: a process that has read it while
    the replica was inactive is refused.
    """
    return [
        Create(replica.is_active, identifier, ephemeral=True),
        SetData(replica.host, address),
    ]
