"""Each multi of the protocol as a function that returns its operations; nothing is sent here.

The functions take bytes that `protocol.log.codec` and `protocol.nodes` made, and part names; the
order of operations matters only where a refusal is attributed to one of them (`Tagged`).
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
    """Operations, each with what it is for and the index of the block it belongs to."""

    ops: tuple[Op, ...]
    tags: tuple[tuple[Purpose, int | None], ...]

    def culprit(self, refused: Refused) -> tuple[Purpose, int | None]:
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
    """A block number for every (partition id, block id or "") of one insert, or for none.

    `record_version` is that of the insert's record; None: it has none. `holder` finds the locks
    again when there is no answer: no other allocation has this name. Testing record and ids already
    here only saves work: the guarantee is that the commit writes them. The record comes first: when
    there was another try, ids of blocks need not be looked at. So it is with `is_alone`, that no
    insert waits for its quorum: it comes last, for what is there already has no need of it.
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
    """The replica is active, and not lost: one that clones another sets aside every part that its
    source does not know, so an insert that it took meanwhile would be gone (spec §11.4).
    """
    return [
        ([Check(replica.is_active)], Purpose.IS_ACTIVE, None),
        ([Check(replica.is_lost, is_lost_version)], Purpose.NOT_LOST, None),
    ]


def create_partition(table: TablePaths, replica: ReplicaPaths, partition: str) -> list[Op]:
    """The first block of a partition: bumping `block_numbers` tells who lists all partitions."""
    return [
        Check(replica.host),  # the table is not being dropped
        Create(table.partition(partition)),
        SetData(table.block_numbers),
    ]


@dataclass(frozen=True, slots=True)
class BlockCommit:
    """One part of an insert: its lock, log entry, node and block id ("" without deduplication).
    `quorum` is the node that stays until enough replicas have the part, if it has one of its own.
    """

    part: PartName
    lock: str
    entry: bytes
    header: bytes
    block_id: str
    quorum: bytes | None = None


@dataclass(frozen=True, slots=True)
class BlockThere:
    """A block that is not inserted again: its id, and what part that named when it was read. Then
    or before that the node above had the version `forgotten`: it tells whether ids were forgotten
    since, and this one may be there again for another part.
    """

    block_id: str
    part: str
    version: int
    forgotten: int


@dataclass(frozen=True, slots=True)
class RecordChange:
    """What a commit writes of its insert: the record, whose version was `version` (None: there was
    none), and with `batch` the node of this commit, as (number, text).
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
) -> Tagged:
    """Everything of one commit at once: for each part that it is in the log, that its number is no
    longer in flight, that the same block is refused from now on, that we have it, and that it waits
    for a quorum; and what is then in the table of the insert. With `quorum_status` all parts wait
    together, and no other insert does.

    Deleting the locks also fences: once they are gone, a copy of this multi that is still under way
    can't land (spec §2.6, §16.2 I4). So does the version of the record: of two tries that go on
    from one place only one does.

    Ids that are `there` get another version: whoever has read them before, to forget them with
    their parts, is refused, and finds the record of this insert when he looks again.
    """
    steps = _may_insert(replica, is_lost_version)
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
        steps.append(([status], Purpose.QUORUM, None))
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
    """What a block takes of a packet, in the larger one of the two multis."""
    allocation = _allocation(table, block.part.partition, block.block_id, holder)
    commit = _commit(table, replica, block)
    return max(
        sum(op_bytes(op, limits.OP_FRAME_BYTES) for ops, _ in steps for op in ops)
        for steps in (allocation, commit)
    )


def release_locks(locks: Iterable[str]) -> list[Op]:
    """Give numbers back. Also settles a commit without answer: only one of them can succeed."""
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
    """Copies of log entries and the pointer behind them, together (spec §16.3 Q2). What the others
    of these log entries would bring is `here`.

    The pointer's version makes two pullers exclude each other; `is_lost` that the replica is
    not being cloned; `is_active` that the cleaner respects our pointer.
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
    """Take queue entries that are still there. Whoever claims bumps the version of `executing`,
    so that two workers who read the same claims can't both pass the future-parts rules.
    """
    return [
        Check(replica.is_lost, is_lost_version),
        SetData(replica.executing, b"", executing_version),
        *(Check(replica.queue_entry(node)) for node, _ in claims),
        *(Create(replica.claim(node), data, ephemeral=True) for node, data in claims),
    ]


def confirm_claim(replica: ReplicaPaths, node: str, part: PartName) -> list[Op]:
    """Changes nothing; refused unless the claim stands and the part is not promised: then nobody
    else touches its directory. A read could be of the past.
    """
    return [Check(replica.claim(node)), *absent(replica.part(part))]


def finish_entry(replica: ReplicaPaths, node: str) -> list[Op]:
    """An entry that needs no work: its part, or a covering one, is here (spec §5.1.2)."""
    return [Delete(replica.queue_entry(node))]


def publish_part(
    replica: ReplicaPaths,
    node: str,
    part: PartName,
    header: bytes,
    *,
    nobody_has: Sequence[str],
    counted: Sequence[Op] = (),
) -> list[Op]:
    """We have `part`, and its queue entry and claim are gone; and who waits for a quorum counts us.

    `nobody_has` are part nodes of the other replicas that were absent when nobody had the part:
    asserting it keeps two replicas from publishing different bytes under one name (spec §5.4).
    When a DROP removed the entry meanwhile, the first delete refuses everything.
    """
    return [
        Delete(replica.queue_entry(node)),
        Delete(replica.claim(node)),
        *(op for path in nobody_has for op in absent(path)),
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
    """Our bytes of `part` are gone or wrong: no longer promise it, and queue a fetch
    (spec §5.9.1). Setting `is_lost` to its own value invalidates who is cloning us.

    Until the fetch has come, parts that it covered are read again, and a mutation that it had
    seen they may not have seen: which mutations are finished is to be found out anew.
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
    """No longer promise a part, because we promise one that covers it. Its bytes go afterwards
    (spec §10.5).

    That was read some time ago. `is_lost_version`, read before it, changes whenever a part of
    ours is given up (`refetch_part`) or another replica's state is taken over.
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
    """New merges or mutations. The version of `log` serialises every assignment of the table;
    inserts never touch it (spec §6.3).

    What the replica has and has queued was read after the log had been pulled under
    `is_lost_version`. It has another one when a clone has moved the pointer back since: then parts
    that are in the log were in neither. Or when a part was given up: then it may have been seen
    neither in the queue, which was read first, nor among the parts.
    """
    return [
        Check(replica.is_active),
        Check(replica.is_lost, is_lost_version),
        SetData(table.log, b"", log_version),
        *(Create(table.log_prefix, entry, sequence=True) for entry in entries),
    ]


def bump_log(table: TablePaths) -> list[Op]:
    """Excludes an assignment that is still under way under a version that was read before."""
    return [SetData(table.log)]


# --- mutations (spec §7) ----------------------------------------------------------------------


def lock_partitions(
    table: TablePaths, partitions: Sequence[str], holder: str, *, version: int | None = None
) -> list[Op]:
    """A number in each partition, for `holder`, as no other allocation is called. With `version`,
    only if no partition was added since.
    """
    data = table.other_lock_data(holder)
    locks: list[Op] = [
        Create(table.lock_prefix(partition), data, ephemeral=True, sequence=True)
        for partition in partitions
    ]
    return locks if version is None else [*locks, Check(table.block_numbers, version)]


def create_mutation(table: TablePaths, entry: bytes, version: int, lock: str) -> list[Op]:
    """The version of `mutations` encloses the allocation of the numbers: ids and numbers grow
    together in every partition. Deleting the `lock` of one ("": there is none) also fences: once
    it is gone, a copy of this multi that is still under way can't land.
    """
    ops: list[Op] = [
        SetData(table.mutations, b"", version),
        Create(f"{table.mutations}/", entry, sequence=True),
    ]
    return [*ops, *release_locks([lock] if lock else [])]


def bump_mutations(table: TablePaths, version: int) -> list[Op]:
    """Excludes a mutation that is still under way under this version."""
    return [SetData(table.mutations, b"", version)]


def note_finished(
    replica: ReplicaPaths, finished: FinishedMutations, noted: NotedMutations
) -> list[Op]:
    """What this replica has finished, if nobody has noted anything since `noted` was read, and it
    neither was cloned nor gave up a part: then smaller data versions may have come back.
    """
    path, beyond = replica.finished_mutations, finished.encode_beyond()
    ops: list[Op] = [
        Check(replica.is_lost, noted.is_lost_version),
        SetData(replica.mutation_pointer, finished.pointer.encode(), noted.pointer_version),
    ]
    if finished.beyond:
        ops.append(SetData(path, beyond) if noted.finished.beyond else Create(path, beyond))
    elif noted.finished.beyond:
        ops.append(Delete(path))
    return ops


def remove_mutations(table: TablePaths, ids: Sequence[str], replicas_version: int) -> list[Op]:
    """Forget mutations that every replica has done, unless a replica was added or removed since
    that was found out (spec §7.6).
    """
    return [
        Check(table.replicas, replicas_version),
        *(Delete(table.mutation(one)) for one in ids),
    ]


# --- forgetting (spec §10) --------------------------------------------------------------------


def mark_lost(replica: ReplicaPaths, host_version: int) -> list[Op]:
    """Note that an inactive replica is lost, since it is too far behind for the log to be kept for
    it; refused when it came back meanwhile, which changes `host`.
    """
    return [Check(replica.host, host_version), SetData(replica.is_lost, b"1")]


def trim_log(
    table: TablePaths,
    names: Sequence[str],
    *,
    hosts: Sequence[tuple[str, int]],
    replicas_version: int,
) -> list[Op]:
    """Remove log entries, asserting that nobody who was taken for lost came back, and that no
    replica was added, since the decision.
    """
    return [
        Check(table.replicas, replicas_version),
        *(Check(table.replica(name).host, version) for name, version in hosts),
        *(Delete(table.log_entry(name)) for name in names),
    ]


def remove_node(path: str) -> list[Op]:
    """Remove one node that nothing else depends on, whichever version it has."""
    return [Delete(path)]


def remove_ids(parent: str, version: int, ops: Sequence[Op]) -> list[Op]:
    """Removals of children of `parent`, if nobody has removed any since it had that version. Who
    removes some gives it another one; an id that is there again was removed before.
    """
    return [SetData(parent, b"", version), *ops]


def remove_insert(table: TablePaths, insert_id: str, batches: int, version: int) -> list[Op]:
    """The record of an insert, if it is still the one that was looked at."""
    return [
        *(Delete(table.insert_batch(insert_id, number)) for number in range(batches)),
        Delete(table.insert(insert_id), version),
    ]


# --- life of tables and replicas (spec §11) ---------------------------------------------------


def create_table(
    table: TablePaths, replica_name: str, metadata: bytes, columns: bytes
) -> list[Op]:
    """The shared nodes of a new table, without its first replica (spec §11.1)."""
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
    """One replica's nodes. One that joins a table is lost: it clones another (spec §11.1)."""
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
    """What everybody who writes for the replica asserts (`zookeeper.through`). Without a uuid: of a
    definition that no catalog has, nothing.
    """
    nodes: list[Op] = [Create(replica.creations), Create(replica.creation(creation))]
    return nodes if creation else []


def announce_replica(table: TablePaths, replica_name: str, replicas_version: int) -> Op:
    """Bumps `replicas`: who lists the replicas and acts on the list notices a new one."""
    return SetData(
        table.replicas, f"last added replica: {replica_name}".encode(), replicas_version
    )


def activate(replica: ReplicaPaths, identifier: bytes, address: bytes) -> list[Op]:
    """Rewriting `host` proves to everybody who remembered its version that we came back."""
    return [
        Create(replica.is_active, identifier, ephemeral=True),
        SetData(replica.host, address),
    ]
