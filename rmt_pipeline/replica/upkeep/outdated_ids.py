"""Ids of blocks and records of inserts that are too old, or too many, for the window within which a
repeated insert is recognized (spec §10).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits, retention
from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.inserts.ids import REPLACEMENT
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.retention import Written
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import cut
from rmt_pipeline.zookeeper.keeper import Op, Refused


@dataclass(frozen=True, slots=True)
class OutdatedIds:
    """Ids of blocks and records of inserts that would be forgotten, and why the others stay."""

    blocks: retention.IdRetention
    blocks_version: int
    """The version of their parent before they were listed: it changes when some are removed."""
    inserts: retention.IdRetention
    inserts_version: int
    inserts_in_part: tuple[tuple[str, InsertRecord], ...]
    """Inserts that are in part stay, however old: the same insert, sent again, finds what is in."""
    unreadable: tuple[str, ...] = ()
    """What is wrong with records that can't be read. They may be of inserts in part, so they
    stay."""


def find_outdated(replica: Replica) -> OutdatedIds:
    """Return what the replica's window lets go of, as it is now in ZooKeeper."""
    window = replica.deduplication_window
    seconds, now_s = (
        replica.settings.replicated_deduplication_window_seconds,
        replica.clock.now_s(),
    )
    blocks, blocks_version = _created(replica, replica.table.blocks)
    whole, in_part, unreadable, inserts_version = _inserts(replica)
    return OutdatedIds(
        blocks=retention.outdated_ids(
            blocks, window=window, window_seconds=seconds, now_s=now_s
        ),
        blocks_version=blocks_version,
        inserts=retention.outdated_records(
            whole, blocks, window=window, window_seconds=seconds, now_s=now_s
        ),
        inserts_version=inserts_version,
        inserts_in_part=in_part,
        unreadable=unreadable,
    )


def _created(replica: Replica, parent: str) -> tuple[dict[str, Written], int]:
    """When each child of `parent` was created, and the version that `parent` had before these were
    read.
    """
    names, listed = replica.keeper.children_stat(parent)
    stats = replica.keeper.exists_many([f"{parent}/{name}" for name in names])
    created = {
        name: Written(stat.created_zxid, stat.created_ms)
        for name, stat in zip(names, stats, strict=True)
        if stat is not None
    }
    return created, listed.version


def _inserts(
    replica: Replica,
) -> tuple[dict[str, Written], tuple[tuple[str, InsertRecord], ...], tuple[str, ...], int]:
    """Return when each record of a whole insert was last written, the records of inserts that are
    in part, what is wrong with those that can't be read, and the version that their parent had
    before they were read. Only a record with batches below it can be of an insert in part.

    An insert that was in part for a week ages from the moment when it became whole: the client that
    completed it may have got no answer, and repeats it.
    """
    parent = replica.table.inserts
    names, listed = replica.keeper.children_stat(parent)
    stats = replica.keeper.exists_many([f"{parent}/{name}" for name in names])
    found = {name: stat for name, stat in zip(names, stats, strict=True) if stat is not None}
    large = [name for name, stat in found.items() if stat.children_count]
    records, unreadable = _records(replica, large)
    in_part = {name: one for name, (one, _) in records.items() if not one.is_whole}
    whole = {
        name: Written(stat.modified_zxid, stat.modified_ms)
        for name, stat in found.items()
        if name not in in_part and name not in unreadable
    }
    return whole, tuple(in_part.items()), tuple(unreadable.values()), listed.version


def _records(
    replica: Replica, names: Sequence[str]
) -> tuple[dict[str, tuple[InsertRecord, int]], dict[str, str]]:
    """Return those of these records that are there, with the versions of their nodes; and what is
    wrong with those that can't be read, such as one that a newer version of this product wrote.
    """
    paths = [replica.table.insert(name) for name in names]
    records: dict[str, tuple[InsertRecord, int]] = {}
    unreadable: dict[str, str] = {}
    for name, path, read in zip(names, paths, replica.keeper.get_many(paths), strict=True):
        try:
            if read is not None:
                records[name] = InsertRecord.decode(read[0]), read[1].version
        except Corruption as error:
            unreadable[name] = f"{path} can't be read, and stays: {error}"
    return records, unreadable


def forget_ids(replica: Replica, ids: OutdatedIds) -> tuple[int, int, tuple[str, ...]]:
    """Remove outdated ids and records; return how many ids of blocks went, how many records of
    inserts, and what is wrong with records that can't be read. Records are removed only if all the
    ids were: an id must not be there longer than its record (`retention.outdated_records`).
    """
    block_ids = _remove_blocks(replica, ids)
    if block_ids < len(ids.blocks.remove):
        return block_ids, 0, ids.unreadable
    insert_ids, unreadable = _remove_inserts(replica, ids)
    return block_ids, insert_ids, (*ids.unreadable, *unreadable)


def _remove_blocks(replica: Replica, ids: OutdatedIds) -> int:
    paths = map(replica.table.block, ids.blocks.remove)
    todo = [transactions.remove_node(path) for path in paths]
    return _remove_ids(replica, replica.table.blocks, ids.blocks_version, todo)


def _remove_inserts(replica: Replica, ids: OutdatedIds) -> tuple[int, tuple[str, ...]]:
    """Remove outdated records of inserts. Each is read again first: an insert in part, which a
    retry may continue, keeps its record. A replacement is never continued.
    """
    table = replica.table
    records, unreadable = _records(replica, ids.inserts.remove)
    todo = [
        transactions.remove_insert(table, insert_id, record.batches, version)
        for insert_id, (record, version) in records.items()
        if record.is_whole or insert_id.startswith(REPLACEMENT)
    ]
    removed = _remove_ids(replica, table.inserts, ids.inserts_version, todo)
    return removed, tuple(unreadable.values())


def _remove_ids(
    replica: Replica, parent: str, version: int, todo: Sequence[Sequence[Op]]
) -> int:
    """Remove ids that were old when `parent` had that version; return how many went. The multi
    asserts that none was removed since:

    1. A plan names an id.
    2. Another replica's clean-up removes it.
    3. The same rows are inserted once more, as new ones: the id is there again, as young as can be.
    4. The plan is carried out: the next retry of that insert would double its rows.
    """
    removed = 0
    for some in cut(todo, len, limits.CLEAN_UP_OPS_PER_MULTI_MAX):
        ops = [op for one in some for op in one]
        try:
            replica.keeper.multi(transactions.remove_ids(parent, version, ops))
        except Refused:
            break  # another replica is cleaning up: leave the rest for the next time
        version += 1
        removed += len(some)
    return removed


def forget_outdated_ids(replica: Replica) -> None:
    """Do what a clean-up does about ids. A table with a single copy does it before each insert that
    is deduplicated: so it remembers exactly as many as its window says, as the original does,
    without waiting for a clean-up.
    """
    stats = replica.keeper.exists_many([replica.table.blocks, replica.table.inserts])
    # Records are removed after ids, by a multi of their own, to which it may not have come.
    if any(stat and stat.children_count > replica.deduplication_window for stat in stats):
        forget_ids(replica, find_outdated(replica))
