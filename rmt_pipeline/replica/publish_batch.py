"""Publishing many parts at once: with one sync of the disk, and one multi (spec §5.4).

For small parts that were fetched or merged, and for clones, which cost a hard link each: publishing
them one by one would take longer than getting them. Special cases are left to `publish`, part by
part: a part that is not what another replica has published, a directory that has the name already,
an entry that is gone. `publish` may also follow any failure here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaRetired, RmtError
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.answered import answered
from rmt_pipeline.replica.publish import (
    Difference,
    Published,
    compared_elsewhere,
    publish,
)
from rmt_pipeline.replica.quorum import count_us
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.batches import cut, op_bytes
from rmt_pipeline.zookeeper.keeper import Op, Refused


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
    free = [one for one in ready if not replica.store.is_taken(one.part)]
    plain = _with_ops(replica, free) if len(free) > 1 else []
    together: set[PartName] = set()
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


def _with_ops(replica: Replica, ready: Sequence[Ready]) -> list[tuple[Ready, list[Op]]]:
    """The operations that publish each part, without those that differ from what another replica
    has published.
    """
    ours = {one.part: one.staged.manifest.header() for one in ready if not one.is_theirs}
    compared = compared_elsewhere(replica, ours) if ours else {}
    return [
        (one, _ops(replica, one, nobody_has))
        for one in ready
        if not isinstance(nobody_has := compared.get(one.part, []), Difference)
    ]


def _ops(replica: Replica, one: Ready, nobody_has: Sequence[Op]) -> list[Op]:
    header = one.staged.manifest.header().encode()
    return transactions.publish_part(
        replica.paths, one.node, one.part, header, nobody_has=nobody_has
    )


def _publish_plain(replica: Replica, with_ops: Sequence[tuple[Ready, list[Op]]]) -> bool:
    """Publish these parts together, each with its operations. Returns whether all of them are
    published. If not, none is promised or there was no answer, and `publish` finds out which.

    Other replicas make the same merges at the same moment. If one of them publishes a part between
    our comparison and our multi, all parts are compared once more.
    """
    if len(with_ops) < 2:
        return False
    plain = [one for one, _ in with_ops]
    counted = count_us(replica, [part for one in plain for part in one.awaited])
    if counted.failed:
        return False
    try:
        replica.store.publish_all([(one.staged, one.part) for one in plain])
    except (RmtError, OSError):
        return False
    for _ in range(limits.PUBLISH_ROUNDS_MAX):
        try:
            _announce(replica, plain, [op for _, ops in with_ops for op in ops], counted.ops)
        except OutcomeUnknown:
            return False
        except Refused as refused:
            with_ops = _again(replica, with_ops, refused)
            if len(with_ops) < len(plain):
                return False
        else:
            return True
    return False


def _again(
    replica: Replica, with_ops: Sequence[tuple[Ready, list[Op]]], refused: Refused
) -> list[tuple[Ready, list[Op]]]:
    """The parts, which are on the disk under their names, compared once more with what other
    replicas have; none if the refusal is about anything else. Those that differ are left out, and
    `publish` takes their names away.
    """
    paths = {op.path for _, ops in with_ops for op in ops}
    if refused.path not in paths or refused.path.startswith(f"{replica.paths.root}/"):
        return []
    return _with_ops(replica, [one for one, _ in with_ops])


def _announce(
    replica: Replica, plain: Sequence[Ready], ops: Sequence[Op], counted: Sequence[Op]
) -> None:
    """Send the multi that publishes the parts, and remember what it changed. Raises what
    `answered` does.
    """
    known, paths = replica.memory.queue, replica.paths
    before, queued, claims = known.listed(paths), known.queued(paths), known.claimed(paths)
    answered(replica, [*ops, *counted])
    session, went = replica.keeper.session_id, {one.node for one in plain}
    known.published(paths, before, [one.part for one in plain], session)
    known.changed(paths, queued, session, went=went)
    known.claims_changed(paths, claims, session, went=went)
