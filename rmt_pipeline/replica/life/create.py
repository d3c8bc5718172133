"""A table's nodes in ZooKeeper: the first replica makes them, the others join them (spec §11.1)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.history import history_of
from rmt_pipeline.protocol.alter.texts import same_columns, without_comments
from rmt_pipeline.protocol.errors import (
    AccessDenied,
    Conflict,
    MetadataMismatch,
    ReplicaAlreadyExists,
    ReplicaIsActive,
    UserError,
)
from rmt_pipeline.protocol.nodes.columns import columns_text, parse_columns, require_writable
from rmt_pipeline.protocol.nodes.metadata import (
    metadata_mismatch,
    metadata_text,
    parse_metadata,
)
from rmt_pipeline.protocol.nodes.tasks import DATABASE_MARK
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.life.detach import DROPPED
from rmt_pipeline.replica.life.drop import (
    drop_put_away,
    drop_replica,
    drop_table_without_replicas,
    remove_leftovers,
)
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.alter_transactions import alter_records, read_at_once
from rmt_pipeline.zookeeper.keeper import Check, Create, Keeper, Op, RefusalKind, Refused
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths, ancestors

_CHANGED = (RefusalKind.BAD_VERSION, RefusalKind.NODE_EXISTS, RefusalKind.NO_NODE)


def create_replica(
    keeper: Keeper, definition: TableDefinition, creator: bytes
) -> TableDefinition:
    """Make the table if there is none, and this replica of it. Return the definition to remember,
    which includes the history of earlier ALTERs.

    `creator` identifies this call: repeated after a lost answer, it finds its own pristine replica
    and succeeds. Raises MetadataMismatch, ReplicaAlreadyExists, TooManyColumns, PathInUse; nothing
    is left then.
    """
    table = TablePaths(definition.engine.zookeeper_path)
    if keeper.exists(table.replicas) is None:
        require_apart(keeper, table.root)  # before any node is made there
    ensure_ancestors(keeper, table.root)
    for _ in range(limits.CREATE_TABLE_ROUNDS_MAX):
        if keeper.exists(table.replicas) is None:
            if keeper.exists(table.dropped) is not None:
                remove_leftovers(keeper, table)
                continue
            require_apart(keeper, table.root)
            if _create_first(keeper, table, definition, creator):
                return definition
            _require_free(keeper, table)
            continue
        try:
            joined = _join(keeper, table, definition, creator)
        except Refused as refused:
            if refused.kind not in _CHANGED:
                raise
            continue  # another replica came, or the last one went: look again
        if joined is not None:
            return joined
    raise Conflict(
        f"{table.root}: others created and dropped the table "
        f"{limits.CREATE_TABLE_ROUNDS_MAX} times while we tried; try again"
    )


def ensure_ancestors(keeper: Keeper, path: str) -> None:
    """Make the nodes above `path` that are missing. Raises OutcomeUnknown."""
    above = ancestors(path)
    stats = keeper.exists_many(above)
    for missing in (one for one, stat in zip(above, stats, strict=True) if stat is None):
        try:
            keeper.multi([Create(missing)])
        except Refused as refused:
            if refused.kind is not RefusalKind.NODE_EXISTS:
                raise


class PathInUse(UserError):
    """The path of a table or a database in ZooKeeper is below another one's, or has other nodes
    below it.
    """


def require_apart(keeper: Keeper, root: str) -> None:
    """Raises PathInUse if a table's, or a Replicated database's, path is above this one. Once the
    nodes above exist, what is none there does not become one.
    """
    above = ancestors(root)
    tables = keeper.exists_many([TablePaths(path).block_numbers for path in above])
    for path, text, table in zip(above, _texts(keeper, above), tables, strict=True):
        is_database = text.startswith(DATABASE_MARK)
        if is_database or table is not None:
            what = "Replicated database" if is_database else "table"
            raise PathInUse(
                f"{root} is below {path}, which is the path of a {what}: their nodes would mix. "
                "Choose a path beside that one"
            )


def _texts(keeper: Keeper, paths: Sequence[str]) -> list[bytes]:
    """What is in these nodes; nothing if one is not there. Nor if it is not for us to read: it may
    be an administrator's, who has given us a node below it.
    """
    try:
        return [b"" if read is None else read[0] for read in keeper.get_many(paths)]
    except AccessDenied:
        if len(paths) == 1:
            return [b""]
        return [text for path in paths for text in _texts(keeper, [path])]


def _require_free(keeper: Keeper, table: TablePaths) -> None:
    """Raises PathInUse if the path is there, but is no table's, nor one's that is being removed."""
    try:
        names = keeper.children(table.root)
    except Refused:
        return
    if not {"replicas", "dropped"}.intersection(names):
        more = ", …" if len(names) > 3 else ""
        what = f"has {', '.join(names[:3])}{more} below it" if names else "is empty"
        raise PathInUse(
            f"{table.root} in ZooKeeper is not the path of a table, but of other nodes: it {what}. "
            "Give this table another path, or remove the node if nothing needs it"
        )


def _create_first(
    keeper: Keeper, table: TablePaths, definition: TableDefinition, creator: bytes
) -> bool:
    metadata = metadata_text(definition).encode()
    columns = columns_text(definition.columns).encode()
    twice = 2 * [metadata, columns]  # once for the table and once for the replica
    require_writable(definition.columns, twice)
    name = definition.engine.replica
    try:
        keeper.multi(
            [
                *transactions.create_table(table, name, metadata, columns),
                *transactions.create_replica(
                    table.replica(name),
                    is_lost=False,
                    metadata=metadata,
                    columns=columns,
                    metadata_version=0,
                    creator=creator,
                    creation=definition.creation,
                ),
            ]
        )
    except Refused as refused:
        if refused.kind is RefusalKind.NODE_EXISTS:
            return False  # another replica was first, or an older table is still being removed
        raise
    return True


def require_fits(keeper: Keeper, definition: TableDefinition) -> None:
    """Raises MetadataMismatch if other replicas have the table with another structure, so that
    `create_replica` would be refused; not if all of them were dropped, for then the table goes.
    """
    table = TablePaths(definition.engine.zookeeper_path)
    [names] = keeper.children_many([table.replicas])
    others = [name for name in names or () if name != definition.engine.replica]
    read = read_at_once(keeper, [table.metadata, table.columns])
    if others and read is not None and _put_away(keeper, table, others) is None:
        (metadata, _), (columns, _) = read
        check_structure(definition, metadata, columns, table.root)


def _join(
    keeper: Keeper, table: TablePaths, definition: TableDefinition, creator: bytes
) -> TableDefinition | None:
    """Join the existing table; None, or Refused, if it changed while it was looked at, so that the
    caller looks again.
    """
    if _remove_put_away(keeper, table):
        return None
    names, replicas = keeper.children_stat(table.replicas)
    same_table = still_this_table(keeper, table, names)
    read = read_at_once(keeper, [table.metadata, table.columns])
    if read is None:
        return None
    (metadata, metadata_stat), (columns, _) = read
    check_structure(definition, metadata, columns, table.root)
    joined = at_version(keeper, table, definition, metadata_stat.version)
    [awaited] = keeper.children_many([table.restoring])
    if not names and not awaited:  # its last replica was dropped by a process that died
        drop_table_without_replicas(keeper, table)
        return None
    replica = table.replica(definition.engine.replica)
    if replica.name in names:
        root, host = keeper.exists_many([replica.root, replica.host])
        if host is None:  # the process that dropped it died, or is still at it
            if root is not None:
                drop_replica(keeper, table, replica.name, made_in=root.created_zxid)
            return None
        if _is_pristine(keeper, table, definition.engine.replica, creator):
            return joined.with_creation(_creation_of(keeper, replica) or joined.creation)
        raise ReplicaAlreadyExists(
            f"replica {replica.name!r} of {table.root} already exists; give this table another "
            "replica name in its ENGINE, or ATTACH it on the server that created it. If that "
            "server is gone for good: SYSTEM DROP REPLICA "
            f"{replica.name!r} FROM ZKPATH {table.root!r}"
        )
    keeper.multi(
        [
            *same_table,
            *transactions.create_replica(
                replica,
                is_lost=True,
                metadata=metadata,
                columns=columns,
                metadata_version=metadata_stat.version,
                creator=creator,
                creation=definition.creation,
            ),
            transactions.announce_replica(table, replica.name, replicas.version),
        ]
    )
    return joined


def still_this_table(keeper: Keeper, table: TablePaths, names: Iterable[str]) -> list[Op]:
    """Return a check, for a replica that joins, that the table read from now on is the one that had
    these replicas. The version of `replicas` does not prove it:

    1. The process that creates r2 reads the table's columns.
    2. r1, the only replica, drops the table, which is created again with other columns: all
       versions are what they were.
    3. r2 is in that table, with the columns of the one before, for good.

    No replica's creation outlives its table. If no replica's creation was noted, nothing can be
    asserted.
    """
    replicas = [table.replica(name) for name in names]
    listed = keeper.children_many([one.creations for one in replicas])
    noted = (
        Check(one.creation(creation))
        for one, creations in zip(replicas, listed, strict=True)
        for creation in creations or ()
    )
    return list(islice(noted, 1))


def _remove_put_away(keeper: Keeper, table: TablePaths) -> bool:
    """Remove a table whose every replica was dropped and is kept only so that it can be taken back,
    or is being removed: the new table gets its path. Return False if the table is in use or has no
    replicas; True: look again. Raises Conflict while another process removes one of them.
    """
    notes = _put_away(keeper, table, keeper.children(table.replicas))
    if not notes:
        return False
    try:
        for name, version in notes.items():
            drop_put_away(keeper, table, name, version)
    except ReplicaIsActive:
        return False  # it was taken back just now
    return True


def _put_away(
    keeper: Keeper, table: TablePaths, names: Sequence[str]
) -> dict[str, int | None] | None:
    """For each of these replicas, if all of them were dropped, the version of the note that says
    so; None for one that is being removed. None if the table is in use.
    """
    paths = [table.replica(name) for name in names]
    reads = keeper.get_many([path for one in paths for path in (one.host, one.detached)])
    notes: dict[str, int | None] = {}
    for name, host, note in zip(names, reads[::2], reads[1::2], strict=True):
        if note is not None and note[0] == DROPPED.encode():
            notes[name] = note[1].version
        elif host is None:
            notes[name] = None
        else:
            return None
    return notes


def at_version(
    keeper: Keeper, table: TablePaths, definition: TableDefinition, version: int
) -> TableDefinition:
    """Return the definition as ALTER `version` made it, with the history before it."""
    history = history_of(alter_records(keeper, table, version)) if version else ()
    return replace(definition, metadata_version=version, history=history)


def check_structure(
    definition: TableDefinition, metadata: bytes, columns: bytes, where: str
) -> None:
    """Raise MetadataMismatch naming the difference in structure, if there is one (spec §0.4.11)."""
    mine = parse_metadata(metadata_text(definition))
    difference = metadata_mismatch(mine, parse_metadata(metadata.decode()))
    if difference is not None:
        raise MetadataMismatch(
            f"table {definition.full_name} differs from {where} in ZooKeeper: {difference}"
        )
    theirs = parse_columns(columns.decode())
    ours = parse_columns(columns_text(definition.columns))
    if same_columns(ours, theirs):
        return
    ours, theirs = without_comments(ours), without_comments(theirs)
    for position, (our, their) in enumerate(zip(ours, theirs, strict=False), start=1):
        if our != their:
            raise MetadataMismatch(
                f"table {definition.full_name} differs from {where} in ZooKeeper: "
                f"column {position} is `{our.name}` {our.type} here, "
                f"`{their.name}` {their.type} there"
            )
    raise MetadataMismatch(
        f"table {definition.full_name} differs from {where} in ZooKeeper: "
        f"it has {len(ours)} columns here, {len(theirs)} there"
    )


def _creation_of(keeper: Keeper, replica: ReplicaPaths) -> str:
    """Return the creation of the replica; "" if it was not noted."""
    [names] = keeper.children_many([replica.creations])
    return names[0] if names else ""


def _is_pristine(keeper: Keeper, table: TablePaths, name: str, creator: bytes) -> bool:
    """Whether the replica is our own, from a call whose answer was lost: never activated, and
    empty.
    """
    replica = table.replica(name)
    reads = keeper.get_many([replica.creator_info, replica.host, replica.log_pointer])
    values = [read[0] if read is not None else None for read in reads]
    if values != [creator, b"", b""]:
        return False
    return keeper.children_many([replica.queue, replica.parts]) == [[], []]
