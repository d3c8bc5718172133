"""The one way for a replica to begin, after a creation, a crash or a lost session (spec §11.4).

    failed quorums ──► activate ──► clone if lost ──► compare disk and promises ──► open for work

Every step may be repeated. A server that dies in between begins here again.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from rmt_pipeline.protocol.errors import ReplicaDropped, ReplicaIsAlreadyActive, RmtError
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress, number_of
from rmt_pipeline.replica.alter.apply import take_up
from rmt_pipeline.replica.life.clone import (
    Cloned,
    ReplicaStatusChanged,
    clone_if_lost,
    mark_lost_if_log_is_gone,
)
from rmt_pipeline.replica.life.create import check_structure
from rmt_pipeline.replica.life.restore import require_not_restoring
from rmt_pipeline.replica.quorum import set_aside_failed
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import Recovered, recover_parts
from rmt_pipeline.replica.upkeep.rewound import require_log_as_seen, require_no_namesake
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.alter_transactions import as_of_one_moment
from rmt_pipeline.zookeeper.keeper import Check, Delete, RefusalKind, Refused, absent


@dataclass(frozen=True, slots=True)
class Started:
    """What happened when a replica began. `cloned` is None if it was not lost, and kept its own
    queue.
    """

    cloned: Cloned | None
    recovered: Recovered


def start(
    replica: Replica, *, identity: str, incarnation: str, address: ReplicaAddress
) -> Started:
    """Make the replica active in this session and ready to work.

    `identity` names the server for good, `incarnation` this process: an `is_active` of the same
    server and another incarnation is a leftover, since the server makes sure that it runs only
    once. Raises ReplicaIsAlreadyActive, ReplicaDropped, MetadataMismatch, TooManyUnexpectedParts
    (the disk knows what ZooKeeper does not: a person decides), BeingRestored, ReplicaStatusChanged
    (call again).
    """
    require_not_restoring(replica)
    _check_exists(replica)
    require_log_as_seen(replica)
    set_aside_failed(replica)  # before another replica asks us for one of them
    activate(replica, identity, incarnation, address)
    with inactive_if_it_fails(replica):
        set_aside_failed(replica)  # and those that failed just before we were active
        # a restore began before we were active, or is refused because we are
        require_not_restoring(replica)
        mark_lost_if_log_is_gone(replica)
        cloned = clone_if_lost(replica)
        recovered = recover_parts(replica)
    return Started(cloned, recovered)


@contextmanager
def inactive_if_it_fails(replica: Replica) -> Iterator[None]:
    """Wraps what an active replica does before it works. If that fails it is not active any more:
    no inserts until a person has decided, all replicas are there, or the disk works again; and
    nobody is to wait for a replica that does not work.
    """
    try:
        yield
    except Exception:
        with suppress(RmtError):
            _deactivate(replica)
        raise


def _check_exists(replica: Replica) -> None:
    """Check that the local definition is what this replica last applied (spec §11.2). All nodes are
    read as of one moment, since a worker of this host, whose definition is on the disk, may apply
    an ALTER meanwhile.
    """
    paths = replica.paths
    metadata, columns, version, host = as_of_one_moment(
        replica.keeper, [paths.metadata, paths.columns, paths.metadata_version, paths.host]
    )
    if host is None or metadata is None or columns is None:
        raise ReplicaDropped(
            f"{replica} has no nodes at {paths.root} in ZooKeeper, so it is read-only. If "
            "ZooKeeper lost its data: SYSTEM RESTORE REPLICA "
            f"{replica.definition.full_name}, or rmt restore, on the server of each replica makes "
            "it again from the parts on their disks. If the replica was dropped: DROP the table "
            "here"
        )
    _adopt_creation(replica, host[1].version)
    # older versions of the product had none
    applied = 0 if version is None else number_of(version[0])
    known = replica.definition.metadata_version
    if known < applied:  # the catalog is older: it is from a backup
        replica.definition = take_up(
            replica, metadata[0].decode(), columns[0].decode(), applied
        )
    elif known == applied or not _was_altered(replica, known):
        require_log_as_seen(replica)  # ZooKeeper may have forgotten ALTERs as well
        check_structure(replica.definition, metadata[0], columns[0], paths.root)


def _adopt_creation(replica: Replica, host_version: int) -> None:
    """Adopt the creation of the replica that is in ZooKeeper, if it is this table's: after a
    restore it is another one than before. A replica whose creation was not noted, because it is
    older than such notes, is taken for this table's, if it was not made active since we looked.
    """
    mine = replica.definition.creation
    if not mine:
        return
    found = require_no_namesake(replica)
    if found is None:
        paths = replica.paths
        noted = [Check(paths.host, host_version), *transactions.note_creation(paths, mine)]
        replica.session.multi(noted)
    elif found.creation != mine:
        replica.become(
            replica.update_definition(lambda known: replace(known, restored=found.restored))
        )


def _was_altered(replica: Replica, version: int) -> bool:
    """Whether the table had the ALTER that made the local definition. Then the worker that carried
    it out here died between the disk and ZooKeeper: it is repeated, from the queue, or from another
    replica's if this one has to clone it (spec §8.2).
    """
    stat = replica.keeper.exists(replica.table.metadata)
    return stat is not None and stat.version >= version


def activate(
    replica: Replica, identity: str, incarnation: str, address: ReplicaAddress
) -> None:
    """Make the replica active: announce that it lives and where. Other replicas see that vanish
    when our session ends.

    The multi asserts that the table is not being restored:

    1. A server that starts has read that the table is not being restored.
    2. A restore begins, and this replica is announced; another one is waited for.
    3. An insert into this replica, were it active now, would take numbers that the other one has
       for parts which it has yet to announce.

    Raises ReplicaIsAlreadyActive, BeingRestored, ReplicaStatusChanged (call again), Refused.
    """
    keeper, paths = replica.keeper, replica.paths
    mine = f"{identity}\n{incarnation}\n".encode()
    host, read, detached = keeper.get_many([paths.host, paths.is_active, paths.detached])
    if read is not None:
        if not read[0].startswith(f"{identity}\n".encode()):
            raise _already_active(replica, read[0])
        # Each activation gives `host` another version: the node may be another server's by now.
        still = [] if host is None else [Check(paths.host, host[1].version)]
        try:
            keeper.multi([Delete(paths.is_active, read[1].version), *still])
        except Refused as refused:
            if refused.kind is not RefusalKind.NO_NODE:
                raise _already_active(replica, b"") from refused
    try:
        ops = transactions.activate(paths, mine, address.encode())
        ops += absent(replica.table.restoring)
        keeper.multi([*ops, *([Delete(paths.detached)] if detached is not None else [])])
    except Refused as refused:
        if refused.path == replica.table.restoring:
            require_not_restoring(replica)
            raise ReplicaStatusChanged(
                f"{replica}: the table was restored while its server started; it starts over"
            ) from refused
        if refused.kind is RefusalKind.NODE_EXISTS:
            raise _already_active(replica, b"") from refused
        raise


def _deactivate(replica: Replica) -> None:
    """Take our `is_active` back, unless it is another server's: SYSTEM RESTART REPLICA may have
    removed ours since.
    """
    keeper, paths = replica.keeper, replica.paths
    host, active = keeper.exists_many([paths.host, paths.is_active])
    if host is None or active is None or active.ephemeral_owner != keeper.session_id:
        return
    with suppress(Refused):
        keeper.multi([Delete(paths.is_active), Check(paths.host, host.version)])


def _already_active(replica: Replica, holder: bytes) -> ReplicaIsAlreadyActive:
    who = holder.decode(errors="replace").strip().replace("\n", ", ") or "another process"
    return ReplicaIsAlreadyActive(
        f"{replica} is active in another process ({who}): two servers must not serve one replica. "
        "Stop the other one, or give this table another replica name"
    )
