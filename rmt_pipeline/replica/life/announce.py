"""The second step of a restore (`replica.life.restore`): the nodes of one replica in ZooKeeper are
made what its disk says.

1. The replica's nodes are created if they are not there, with a new `creation`, by which a process
   that remembers the earlier nodes knows that these are others. What an older copy of ZooKeeper
   says of its log pointer, its structure and whether it was lost is reset.
2. Its queue is emptied, and so are the claims: they are of another time.
3. Its promises become the parts on the disk: promises of other parts are deleted, wrong headers
   replaced, missing ones made. Parts that are covered by larger ones are promised as well: clean-up
   removes them in its time.
4. Numbers of blocks and mutations that its parts have are skipped, so that they are not given out
   again. A sequence in ZooKeeper can't be set, so nodes are made and deleted until it is there.
5. Ids of blocks, records of ALTERs and records of inserts are made, as far as parts tell of them
   (`replica.life.known_inserts`).
6. The node `T/restoring/<replica>`, which was empty, gets what the other replicas have to know.

Two processes may announce it at once, or one that was believed to be dead. So each one begins by
giving `T/restoring/<replica>` a new version, and each of its multis asserts that, as its first
operation (the `guard`): whoever begins last is alone, and nothing of the others lands any more.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, repeat

from rmt_pipeline.protocol.alter.history import AlterRecord
from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.protocol.inserts import ids
from rmt_pipeline.protocol.nodes.columns import columns_text
from rmt_pipeline.protocol.nodes.metadata import metadata_text
from rmt_pipeline.protocol.nodes.records import (
    Announced,
    AnnouncedTry,
    Restoring,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.disk_parts import DiskParts
from rmt_pipeline.replica.life.known_inserts import names_earlier, remember_inserts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.part_store import HELD_TOGETHER_MAX
from rmt_pipeline.zookeeper import restore_transactions, transactions
from rmt_pipeline.zookeeper.batches import repeat_guarded
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Keeper,
    Op,
    RefusalKind,
    Refused,
    SetData,
)

# the most that are listed in the node: each server reads it every few seconds
_UNSEEN_MAX = 5000
_SKIPPED, _SKIPS_TOGETHER = 100, 20  # numbers in one request: the fastest, when it was measured


def announce(replica: Replica, creator: bytes, disk: DiskParts) -> int:
    """Make the replica's nodes what its disk says. Return how many inserts with a token are known
    again. Nothing is done if the replica has announced its parts already. Raises Conflict if
    another process was faster, or the replica was dropped; MissingPart if a part has left the disk
    since it was looked at: look again.
    """
    keeper, table = replica.session, replica.table
    path = table.restoring_replica(replica.name)
    [restoring, read] = keeper.get_many([table.restoring, path])
    if restoring is None or read is None or read[0]:
        return 0
    version = read[1].version + 1
    guard = Check(path, version)
    log = Restoring.decode(restoring[0]).log
    # The disk has noted how long the log was. That was another log, and longer than this one.
    replica.store.marks.forget_log_seen()
    try:
        keeper.multi([SetData(path, b"", read[1].version)])
        _ensure_replica(replica, creator, guard, log)
        repeat_guarded(keeper, guard, lambda: _queue_ops(replica))
        _promise_parts(replica, guard, disk)
        for partition, number in sorted(disk.numbers.items()):
            _skip_numbers(replica, guard, partition, number)
        _skip(keeper, guard, table.mutations, f"{table.mutations}/", disk.mutations)
        repeat_guarded(keeper, guard, lambda: _record_ops(replica, disk))
        inserts = remember_inserts(replica, guard, disk)
        if disk.left_out and keeper.exists(replica.paths.force_restore_data) is None:
            keeper.multi([guard, Create(replica.paths.force_restore_data)])
        told = [
            AnnouncedTry(one, disk.small[one].insert_id, disk.small[one].created_s)
            for one in sorted(disk.unseen)[-_UNSEEN_MAX:]
        ]
        announced = Announced(
            tuple(disk.dropped),
            tuple(one.part for one in told if one.insert_id == ids.BY_ROWS),
            tuple(one for one in told if one.insert_id != ids.BY_ROWS),
        )
        keeper.multi([SetData(path, announced.encode(), version)])
    except Refused as refused:
        raise Conflict(
            f"{replica}: another process restores it, or somebody drops it: {refused}. Say it again"
        ) from refused
    return inserts


def become_another(
    replica: Replica, joined: Callable[[TableDefinition], TableDefinition] = lambda now: now
) -> str:
    """Make this another replica in the server's catalog, and return the name of the node that says
    so in ZooKeeper: the versions and numbers of all nodes begin anew, and a process that lives
    through a restore still remembers the earlier ones. `joined` makes the definition that of a
    table that is there, in the same change, or raises.

    The catalog comes first, after the disk was looked at. An ALTER that such a process has taken up
    by then, and made parts with, is announced; and it takes up no other one (`alter.apply`): the
    server would find a structure that ZooKeeper does not know, and not start.

    For a process that is alone (the guard of `announce`, or the lock of who joins). Raises Conflict
    if the catalog has changed since it read the definition: so did somebody who was alone later.
    Workers would take the catalog's word for a replica that ZooKeeper does not get.
    """
    return _become(replica, replica.ids.new_id(), joined)


def _become(
    replica: Replica,
    restored: str,
    joined: Callable[[TableDefinition], TableDefinition] = lambda now: now,
) -> str:
    before = replica.definition.restored

    def become(now: TableDefinition) -> TableDefinition:
        if now.restored not in (before, restored):
            raise Conflict(
                f"{now.full_name}: another process has begun to restore it meanwhile; say it again"
            )
        return replace(joined(now), restored=restored)

    replica.become(replica.update_definition(become))
    return replica.definition.creation


def _become_another_there(replica: Replica) -> list[Op]:
    """Do the same for a replica that ZooKeeper has: return what replaces its node, unless an
    earlier try of this restore has made it.
    """
    keeper, paths = replica.session, replica.paths
    [names] = keeper.children_many([paths.creations])
    found = replica.definition.of_creation(names or ())
    if found is None:
        return transactions.note_creation(paths, become_another(replica))
    node = paths.creation(found.creation)
    restoring, made = keeper.exists_many([replica.table.restoring, node])
    if (
        restoring is not None
        and made is not None
        and made.created_zxid < restoring.created_zxid
    ):
        return [Delete(node), Create(paths.creation(become_another(replica)))]
    _become(replica, found.restored)
    return []


def _ensure_replica(replica: Replica, creator: bytes, guard: Op, log: int) -> None:
    keeper, table, paths = replica.session, replica.table, replica.paths
    is_new = keeper.exists(paths.root) is None
    if is_new:
        creation = become_another(replica)
    else:
        keeper.multi([guard, *_become_another_there(replica)])
    metadata, columns = texts_of(replica)
    version = replica.definition.metadata_version
    if is_new:
        stat = keeper.exists(table.replicas)
        ops = transactions.create_replica(
            paths,
            is_lost=False,
            metadata=metadata,
            columns=columns,
            metadata_version=version,
            creator=creator,
            creation=creation,
        )
        announce = transactions.announce_replica(
            table, replica.name, 0 if stat is None else stat.version
        )
        keeper.multi([guard, *ops, announce])
    reset = restore_transactions.reset_replica(
        paths, metadata=metadata, columns=columns, version=version, log=log
    )
    keeper.multi([guard, *reset])
    with suppress(Refused):
        keeper.multi([guard, Delete(paths.finished_mutations)])


def _queue_ops(replica: Replica) -> list[Op]:
    """Claims, too: a process that has one means the replica of before, and can't take it back."""
    paths = replica.paths
    queue, attempts, claims = replica.session.children_many(
        [paths.queue, paths.attempts, paths.executing]
    )
    return [
        *(Delete(paths.queue_entry(node)) for node in queue or ()),
        *(Delete(paths.attempts_of(node)) for node in attempts or ()),
        *(Delete(paths.claim(node)) for node in claims or ()),
    ]


def _promise_parts(replica: Replica, guard: Op, disk: DiskParts) -> None:
    """Make the promises those of the parts on the disk. Each part is pinned while it is promised:

    1. A clean-up finds A covered, and stops promising it. Its process stands still.
    2. ZooKeeper loses the table. This process finds A on the disk.
    3. The clean-up goes on: A is not promised, so it removes A.
    4. This process promises A.

    Whoever removes a part locks it before he looks at what is promised. So either A can't be pinned
    here, or he finds its promise. Raises MissingPart for a part that is gone, or goes just now.
    """
    keeper, paths, wanted = replica.session, replica.paths, disk.promised

    def wrong() -> list[Op]:
        [names] = keeper.children_many([paths.parts])
        known = {name: PartName.try_parse(name) for name in sorted(names or ())}
        return [Delete(paths.part(name)) for name, part in known.items() if part not in wanted]

    def missing(some: Sequence[PartName]) -> list[Op]:
        ops: list[Op] = []
        reads = keeper.get_many([paths.part(part) for part in some])
        for part, read in zip(some, reads, strict=True):
            path, header = paths.part(part), wanted[part].header().encode()
            if read is None:
                ops.append(Create(path, header))
            elif read[0] != header:
                ops.append(SetData(path, header))
        return ops

    repeat_guarded(keeper, guard, wrong)
    todo = sorted(wanted)
    for start in range(0, len(todo), HELD_TOGETHER_MAX):
        some = todo[start : start + HELD_TOGETHER_MAX]
        with replica.store.pin(some):
            repeat_guarded(keeper, guard, partial(missing, some))


def _skip_numbers(replica: Replica, guard: Op, partition: str, number: int) -> None:
    keeper, table = replica.session, replica.table
    path = table.partition(partition)
    if keeper.exists(path) is None:
        try:
            keeper.multi(transactions.create_partition(table, replica.paths, partition))
        except Refused as refused:
            if refused.kind is not RefusalKind.NODE_EXISTS:
                raise
    _skip(keeper, guard, path, table.lock_prefix(partition), number)


def _skip(keeper: Keeper, guard: Op, parent: str, prefix: str, number: int) -> None:
    """Make sure that ZooKeeper gives out no number up to this one: parts of a disk have them."""
    while True:
        stat = keeper.exists(parent)
        if stat is None or stat.next_sequence > number:
            return
        counts = _cut(number + 1 - stat.next_sequence)
        firsts = accumulate(counts, initial=stat.next_sequence)
        multis = [
            [
                guard,
                *restore_transactions.skip_numbers(
                    parent, prefix, first, count, stat.version + ordinal
                ),
            ]
            for ordinal, (first, count) in enumerate(zip(firsts, counts, strict=False))
        ]
        for result in keeper.multi_many(multis):
            if isinstance(result, Refused) and result.index > 0:
                continue  # another process gives out, or skips, numbers: look again
            if isinstance(result, Exception):
                raise result


def _cut(count: int) -> list[int]:
    """How many numbers to skip in each of several requests that are sent together."""
    whole, rest = divmod(min(count, _SKIPPED * _SKIPS_TOGETHER), _SKIPPED)
    return [*repeat(_SKIPPED, whole), *([rest] if rest else [])]


def _record_ops(replica: Replica, disk: DiskParts) -> list[Op]:
    """Return what makes the ids of blocks, by which an insert without a token is known, and the
    records of ALTERs, which are needed to read parts that are older than these.

    The same rows may be in two blocks: of the first one another replica knows that it was dropped.
    So an id names the last one, whichever of their replicas comes first. If that may be of a try
    that died, it is named when it is known that it stays (`known_inserts.name_what_came_again`).
    """
    table, definition = replica.table, replica.definition
    wanted: dict[str, bytes] = {}
    blocks: dict[str, PartName] = {}
    for part, manifest in sorted(disk.small.items()):
        if manifest.insert_id == ids.BY_ROWS:
            path = table.block(ids.block_id(part.partition, manifest.content_hash))
            wanted[path] = str(part).encode()
            if part not in disk.unseen:
                blocks[path] = part
    for version in sorted({change.version for change in definition.history}):
        changes = tuple(one for one in definition.history if one.version == version)
        record = AlterRecord(
            int(replica.clock.now_s()), replica.name, "", "restored from a disk", changes
        )
        wanted[table.alter(version)] = record.encode()
    paths = sorted(wanted)
    ops: list[Op] = []
    for path, read in zip(paths, replica.session.get_many(paths), strict=True):
        if read is None:
            ops.append(Create(path, wanted[path]))
        elif path in blocks and names_earlier(read[0], blocks[path]):
            ops.append(SetData(path, wanted[path], read[1].version))
    return ops


def texts_of(replica: Replica) -> tuple[bytes, bytes]:
    """Return `metadata` and `columns` of the replica, as its nodes in ZooKeeper have them."""
    definition = replica.definition
    return metadata_text(definition).encode(), columns_text(definition.columns).encode()
