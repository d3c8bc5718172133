"""What the steps of a restore share: its outcome, and the lock of who opens a table or joins it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Conflict, UserError
from rmt_pipeline.zookeeper.keeper import (
    Create,
    Keeper,
    Op,
    Refused,
)
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.strays import seen_to

CHANGED = "{}: a replica came, or was dropped, while it was opened; try again"


class NothingToRestore(UserError):
    """ZooKeeper has the replica, and all that its disk has seen of it."""

    code = "REPLICA_STATUS_CHANGED"


@dataclass(frozen=True, slots=True)
class Restored:
    """What one call did. `waits_for`: replicas that have yet to announce their parts; empty when
    the table is whole. `left_out`: parts of this disk that are not in the table, with the reason;
    `given_up`: of all replicas, when this call `opened` the table. `joined`: the table was there
    already, and this replica clones another one.
    """

    parts: int
    rows: int
    inserts: int
    left_out: tuple[tuple[str, str], ...] = ()
    given_up: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    joined: bool = False
    opened: bool = False

    def words(self) -> str:
        told = [f"{self.rows} rows in {self.parts} parts of this disk are in ZooKeeper"]
        if self.joined:
            told[0] += ", which other replicas have, too; the rest is cloned from them"
        if self.inserts:
            told.append(f"{self.inserts} inserts are known again")
        told += [f"{part} was left out: {reason}" for part, reason in self.left_out]
        told += list(self.given_up)
        if self.waits_for:
            told.append(
                f"read-only until it is restored on {', '.join(self.waits_for)}, too; a replica "
                "that is gone for good: SYSTEM DROP REPLICA"
            )
        if self.opened:
            told.append(
                "the table is open: a DROP or DETACH, a mutation or an ALTER that no replica had "
                "carried out is not known any more, and a mutation may be in some parts only: look "
                "at the rows, and say it again"
            )
        return "; ".join(told)


def at_work(refused: Refused) -> Conflict:
    """The error for who finds the lock held."""
    return Conflict(
        f"{refused.path} is there: another process opens or joins the table, or one that died: "
        "then its ZooKeeper session ends soon. Try again in a moment"
    )


@contextmanager
def alone(keeper: Keeper, table: TablePaths, asserted: Sequence[Op]) -> Iterator[None]:
    """Hold `T/restoring_lock`, so that no other process opens the table, joins it, or begins to
    restore it. The last multi inside deletes the lock. Raises Conflict while another process has
    it, and Refused if what is `asserted` does not hold.
    """
    lock = keeper.strays.marked(table.restoring_lock, keeper.session_id)
    try:
        with seen_to(keeper, [lock]):
            keeper.multi([*asserted, Create(lock.path, lock.mark.encode(), ephemeral=True)])
    except Refused as refused:
        if refused.path == lock.path:
            raise at_work(refused) from refused
        raise
    try:
        yield
    except BaseException:
        keeper.strays.leave([lock])
        raise


def awaited(keeper: Keeper, table: TablePaths) -> tuple[str, ...]:
    """Return the replicas that have yet to announce their parts; none if the table is open."""
    [names] = keeper.children_many([table.restoring])
    if names is None:
        return ()
    reads = keeper.get_many([table.restoring_replica(name) for name in names])
    return tuple(
        name
        for name, read in zip(names, reads, strict=True)
        if read is not None and not read[0]
    )
