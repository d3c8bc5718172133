"""What was known before a request is believed where the nodes that it reads prove it, and nowhere
else: a decision on an older queue could do an entry twice, or miss one.
"""

from collections.abc import Callable, Sequence

import pytest

from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from rmt_pipeline.zookeeper.snapshot import Foreknown, queue_snapshot
from tests.unit.replica.test_looks import Spying, another_entry, filled, look, nodes, replicas

__all__ = ["filled", "replicas"]  # fixtures

CHANGES: dict[str, Callable[[Replica], Sequence[Op]]] = {
    "an entry comes": lambda replica: [another_entry(replica)],
    "an entry goes": lambda replica: [Delete(replica.paths.queue_entry(nodes(replica)[0]))],
    "one comes and one goes": lambda replica: [
        another_entry(replica),
        Delete(replica.paths.queue_entry(nodes(replica)[0])),
    ],
    "an entry is claimed": lambda replica: [
        Create(replica.paths.claim(nodes(replica)[0]), Claim("another", ()).encode())
    ],
    "a part comes": lambda replica: [Create(f"{replica.paths.parts}/all_7_7_0")],
}


def foreknown(replica: Replica) -> Foreknown:
    look(replica)
    found = Foreknown.now(replica.paths, replica.memory.queue)
    assert found is not None
    return found


def test_what_is_proven_is_what_a_look_finds(filled: Replica) -> None:
    known = foreknown(filled)
    found = known.snapshot(filled.keeper, filled.keeper.get_many(known.paths), None)
    assert found is not None
    seen = look(filled)
    assert found.entries == seen.entries != {}
    assert (found.claims, set(found.parts)) == (seen.claims, set(seen.parts))
    assert (found.is_lost, found.is_lost_version) == (seen.is_lost, seen.is_lost_version)


@pytest.mark.parametrize("change", CHANGES)
def test_what_somebody_else_changes_meanwhile_is_not_proven(
    filled: Replica, change: str
) -> None:
    known = foreknown(filled)
    filled.keeper.multi(CHANGES[change](filled))
    reads = filled.keeper.get_many(known.paths)
    assert known.snapshot(filled.keeper, reads, None) is None


@pytest.mark.parametrize("gone", ["is_lost", "queue", "executing", "parts"])
def test_a_replica_of_which_a_node_is_gone_is_dropped(filled: Replica, gone: str) -> None:
    """Whichever of them the one who drops it has removed first."""
    known, path = foreknown(filled), getattr(filled.paths, gone)
    spying = Spying(filled.keeper)
    right = spying.get_many

    def get_many(paths):
        found = right(paths)
        return [None if one == path else read for one, read in zip(paths, found, strict=True)]

    spying.get_many = get_many  # type: ignore[method-assign]
    assert known.snapshot(filled.keeper, get_many(known.paths), None) is None
    with pytest.raises(ReplicaDropped):
        queue_snapshot(spying, filled.paths, filled.memory.queue)  # type: ignore[arg-type]
