"""A replica's nodes go; with the last replica the whole table goes (spec §11.9)."""

from rmt_pipeline.protocol.errors import Conflict
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Kind, Refused, SetData
from rmt_pipeline.zookeeper.paths import TablePaths

_TRIES = 20  # listings of one node that somebody writes below while it is removed


def drop_replica(keeper: Keeper, table: TablePaths, name: str) -> bool:
    """Remove one replica. True when it was the last one and the table is gone too.

    First `is_lost`, so that a half-removed replica is never cloned; then `host`, whose absence
    says "dropped". Repeating it after any interruption finishes it.
    """
    replica = table.replica(name)
    for op in (SetData(replica.is_lost, b"1"), Delete(replica.host)):
        _quietly(keeper, op)
    delete_tree(keeper, replica.root)
    try:
        if keeper.children(table.replicas):
            return False
    except Refused as refused:
        if refused.kind is Kind.NO_NODE:
            return False
        raise
    return _drop_table(keeper, table)


def _drop_table(keeper: Keeper, table: TablePaths) -> bool:
    try:
        keeper.multi(
            [
                Delete(table.replicas),
                Create(table.dropped),
                Create(table.dropped_lock, ephemeral=True),
            ]
        )
    except Refused:
        return False  # a replica was just created, or somebody else removes the table
    _remove_dropped(keeper, table)
    return True


def remove_leftovers(keeper: Keeper, table: TablePaths) -> None:
    """Finish what a process that died while removing the table's last replica began."""
    try:
        keeper.multi([Create(table.dropped_lock, ephemeral=True)])
    except Refused as refused:
        if refused.kind in (Kind.NODE_EXISTS, Kind.NO_NODE):
            raise Conflict(
                f"{table.root} is being removed by another process; try again in a moment"
            ) from refused
        raise
    _remove_dropped(keeper, table)


def _remove_dropped(keeper: Keeper, table: TablePaths) -> None:
    """The lock goes together with the root: nobody sees a table without either."""
    for name in keeper.children(table.root):
        if f"{table.root}/{name}" != table.dropped:
            delete_tree(keeper, f"{table.root}/{name}")
    keeper.multi([Delete(table.dropped_lock), Delete(table.dropped), Delete(table.root)])


def delete_tree(keeper: Keeper, path: str) -> None:
    """Delete a node and everything below it. What is gone already is fine.

    Somebody who has not noticed yet may still write below it: what came after the listing is
    listed again. Raises Conflict when that does not end.
    """
    for _ in range(_TRIES):
        try:
            names = keeper.children(path)
        except Refused as refused:
            if refused.kind is Kind.NO_NODE:
                return
            raise
        for name in names:
            delete_tree(keeper, f"{path}/{name}")
        try:
            keeper.multi([Delete(path)])
        except Refused as refused:
            if refused.kind is Kind.NOT_EMPTY:
                continue
            if refused.kind is not Kind.NO_NODE:
                raise
        return
    raise Conflict(f"{path} can't be removed: another process keeps writing there; try again")


def _quietly(keeper: Keeper, op: SetData | Delete) -> None:
    try:
        keeper.multi([op])
    except Refused as refused:
        if refused.kind is not Kind.NO_NODE:
            raise
