"""Publishing many parts at once: with one sync of the disk, and one multi (spec §5.4).

For small parts that were fetched, and for clones, which cost a hard link each: publishing them one
by one would take longer than getting them. Special cases are left to `publish`, part by part: a
part that another replica has and with which it was not compared, a directory that has the name
already, an entry that is gone. `publish` may also follow any failure here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired, RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.answered import answered
from rmt_pipeline.replica.publish import Published, publish
from rmt_pipeline.replica.quorum import count_us
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import cut, op_bytes
from rmt_pipeline.zookeeper.keeper import Op, Refused
from rmt_pipeline.zookeeper.paths import ReplicaPaths


@dataclass(frozen=True, slots=True)
class Ready:
    """A staged part for the claimed queue entry `node`; the rest is as for `publish`."""

    node: str
    part: PartName
    staged: StagedPart
    is_theirs: bool = False
    awaited: tuple[PartName, ...] = ()


def publish_batch(
    replica: Replica, ready: Sequence[Ready]
) -> Iterator[tuple[Ready, Published | Exception]]:
    """Publish the parts; yields what became of each. A part that fails does so alone. Raises
    ReplicaRetired as `publish` does; parts that were not reported by then stay for the next
    attempt.
    """
    others = [] if all(one.is_theirs for one in ready) else _others(replica)
    together: set[PartName] = set()
    plain = [(one, _ops(replica, others, one)) for one in _plain(replica, others, ready)]
    for some in cut(plain, lambda one: sum(map(op_bytes, one[1])), limits.MULTI_BYTES_MAX):
        if _publish_plain(replica, some):
            together |= {one.part for one, _ in some}
    for one in ready:
        if one.part in together:
            manifest = one.staged.manifest
            yield one, Published(one.part, manifest.rows, manifest.bytes_on_disk)
            continue
        try:
            published = publish(
                replica,
                one.node,
                one.part,
                one.staged,
                is_theirs=one.is_theirs,
                awaited=one.awaited,
            )
        except ReplicaRetired:
            raise
        except Exception as error:  # noqa: BLE001  of this part alone
            yield one, error
        else:
            yield one, published


def _others(replica: Replica) -> list[ReplicaPaths]:
    names = replica.keeper.children(replica.table.replicas)
    return [replica.table.replica(name) for name in names if name != replica.name]


def _plain(
    replica: Replica, others: Sequence[ReplicaPaths], ready: Sequence[Ready]
) -> list[Ready]:
    """Those parts whose name is free on the disk, and that either no other replica has or were
    compared with what another one has.
    """
    ours = [one for one in ready if not one.is_theirs]
    paths = [other.part(one.part) for one in ours for other in others]
    taken = {
        path
        for path, stat in zip(paths, replica.keeper.exists_many(paths), strict=True)
        if stat is not None
    }
    return [
        one
        for one in ready
        if (one.is_theirs or not any(other.part(one.part) in taken for other in others))
        and not replica.store.is_taken(one.part)
    ]


def _ops(replica: Replica, others: Sequence[ReplicaPaths], one: Ready) -> list[Op]:
    return transactions.publish_part(
        replica.paths,
        one.node,
        one.part,
        one.staged.manifest.header().encode(),
        nobody_has=[] if one.is_theirs else [other.part(one.part) for other in others],
    )


def _publish_plain(replica: Replica, with_ops: Sequence[tuple[Ready, list[Op]]]) -> bool:
    """Publish these parts together, each with its operations. Returns whether all of them are
    published. If not, none is promised or there was no answer, and `publish` finds out which.
    """
    if len(with_ops) < 2:
        return False
    plain = [one for one, _ in with_ops]
    counted = count_us(replica, [part for one in plain for part in one.awaited])
    if counted.failed:
        return False
    ops = [op for _, mine in with_ops for op in mine]
    try:
        replica.store.publish_all([(one.staged, one.part) for one in plain])
    except (RmtError, OSError):
        return False
    known = replica.memory.queue
    before, queued = known.listed(replica.paths), known.queued(replica.paths)
    claims = known.claimed(replica.paths)
    try:
        answered(replica, [*ops, *counted.ops])
    except (Refused, OutcomeUnknown):
        return False
    parts = [one.part for one in plain]
    session = replica.keeper.session_id
    known.published(replica.paths, before, parts, session)
    went = {one.node for one in plain}
    known.changed(replica.paths, queued, session, went=went)
    known.claims_changed(replica.paths, claims, session, went=went)
    return True
