"""A replica that comes when its restored table works (`restore`)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Conflict, MissingPart, RmtError
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.announce import become_another
from rmt_pipeline.replica.life.create import at_version, check_structure, still_this_table
from rmt_pipeline.replica.life.disk_parts import DiskParts
from rmt_pipeline.replica.life.restoring import NothingToRestore, Restored, alone
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.alter_transactions import read_at_once
from rmt_pipeline.zookeeper.batches import batches
from rmt_pipeline.zookeeper.keeper import (
    Check,
    Create,
    Delete,
    Op,
    Refused,
    absent,
)


def join_late(replica: Replica, creator: bytes, disk: DiskParts) -> Restored:
    """Join a table that is there without this replica, as a new replica does: it clones. Its parts
    that are equal to another replica's stay. Its other parts are set aside: the numbers in
    their names may belong to other parts by now.

    It holds the lock, and asserts that nothing is being restored:

    1. This process finds ZooKeeper empty, and nothing being restored. 2. Another process of the
    same replica begins to restore it: now the table has replicas, and this one is waited for.
    3. This process takes that for a table to join, and sets aside what the other one announces.
    """
    keeper, table = replica.session, replica.table
    names, stat = keeper.children_stat(table.replicas)
    same_table = still_this_table(keeper, table, names)
    read = read_at_once(keeper, [table.metadata, table.columns])
    if read is None:
        raise Conflict(f"{table.root} is being dropped; try again")
    (metadata, metadata_stat), (columns, _) = read
    if replica.name in names:
        raise NothingToRestore(
            f"{replica} is in ZooKeeper already, and clones another replica when its server runs"
        )
    there = at_version(keeper, table, replica.definition, metadata_stat.version)

    def joined(now: TableDefinition) -> TableDefinition:
        check_structure(now, metadata, columns, table.root)
        return replace(now, metadata_version=there.metadata_version, history=there.history)

    equal = _equal_elsewhere(replica, names, disk)
    aside: list[tuple[PartName, str]] = []
    unchanged = [*same_table, Check(table.replicas, stat.version), *absent(table.restoring)]
    try:
        with _told_in_errors(aside), alone(keeper, table, unchanged):
            creation = become_another(replica, joined)
            ops: list[Op] = [
                *same_table,
                *transactions.create_replica(
                    replica.paths,
                    is_lost=True,
                    metadata=metadata,
                    columns=columns,
                    metadata_version=metadata_stat.version,
                    creator=creator,
                    creation=creation,
                ),
                transactions.announce_replica(table, replica.name, stat.version),
            ]
            promises = [
                Create(replica.paths.part(part), disk.parts[part].header().encode())
                for part in sorted(equal)
            ]
            together = next(batches([*ops, *promises], bytes_max=limits.MULTI_BYTES_MAX))
            aside.extend(_set_aside(replica, equal, disk))  # one by one: it may end in an error
            replica.store.marks.forget_log_seen()
            keeper.multi([*together, Delete(table.restoring_lock)])
    except Refused as refused:
        raise Conflict(
            f"{replica}: the table's replicas changed while it joined; say it again{_too(aside)}"
        ) from refused
    stay = sorted(equal)[: len(together) - len(ops)]
    return Restored(
        parts=len(stay),
        rows=sum(disk.parts[part].rows for part in stay),
        inserts=0,
        left_out=tuple((str(part), reason) for part, reason in (*disk.left_out, *aside)),
        joined=True,
    )


@contextmanager
def _told_in_errors(aside: Sequence[tuple[PartName, str]]) -> Iterator[None]:
    """Whatever error comes when these parts were set aside says so: they are not on the disk any
    more when it is said again, and no answer would tell of their rows. Refused is told elsewhere.
    """
    try:
        yield
    except Refused:
        raise
    except RmtError as error:
        error.args = (f"{error}{_too(aside)}",)
        raise


def _too(aside: Sequence[tuple[PartName, str]]) -> str:
    """The words of an error that tell of these parts; "" for none."""
    return "".join(f"; {part} was left out: {reason}" for part, reason in aside)


def _equal_elsewhere(
    replica: Replica, names: Iterable[str], disk: DiskParts
) -> frozenset[PartName]:
    """Return the parts of this disk of which another replica promises an equal one."""
    others = [replica.table.replica(name) for name in names if name != replica.name]
    asked = [(part, other.part(part)) for part in disk.parts for other in others]
    reads = replica.session.get_many([path for _, path in asked])
    return frozenset(
        part
        for (part, _), read in zip(asked, reads, strict=True)
        if read is not None
        and PartHeader.decode(read[0]).difference(disk.parts[part].header()) is None
    )


def _set_aside(
    replica: Replica, stay: Collection[PartName], disk: DiskParts
) -> Iterator[tuple[PartName, str]]:
    """Remove all parts but those that stay from the table: what a larger one covers is deleted, the
    rest goes to `detached/`. Yields those that had rows of the table, with the reason.
    """
    store, covering = replica.store, PartSet(stay)
    for part in store.parts():
        if part in stay:
            continue
        # raises if the session has ended: then another process joins, and brings parts of its own
        replica.session.exists(replica.table.restoring_lock)
        if covering.containing(part) is not None:
            store.remove(part)
            continue
        with suppress(MissingPart):
            store.detach(part, "ignored")
        if part in disk.parts:
            rows = disk.parts[part].rows
            yield part, f"no other replica has it: its {rows} rows are set aside in detached/"
    for one in disk.dropped:
        store.drops.forget(one)
