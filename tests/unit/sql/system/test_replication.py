"""system.replication_queue says why an entry waits, by the rules that workers go by."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.log.entry import MutatePart, result_of
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.sql.system.replication import REPLICATION_QUEUE, _queue_rows
from rmt_pipeline.store import layout
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, queue_snapshot
from tests.support.local_replicas import Replicas

PARTS = 16
"""So many slots leave fewer than the 20 that a mutation wants to be free."""


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """The queue of r1 has a mutation of each part."""
    with Replicas(tmp_path, ["r1"]) as opened:
        for number in range(PARTS):
            opened.insert("r1", number)
        create_mutation(opened["r1"], "DELETE WHERE n = 100")
        assign_mutations(opened["r1"])
        pull_log(opened["r1"])
        yield opened


def of_all_but_one(replica: Replica) -> QueueSnapshot:
    """All mutations are claimed but the last one."""
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    mutations = [one for one in snapshot.entries if isinstance(one[1], MutatePart)]
    assert len(mutations) == PARTS
    claims = {
        node: Claim("somebody", (part,))
        for node, entry in mutations[:-1]
        if (part := result_of(entry)) is not None
    }
    return replace(snapshot, entries=tuple(mutations), claims=claims)


def reasons(replicas: Replicas) -> list[object]:
    at = [name for name, _ in REPLICATION_QUEUE].index("postpone_reason")
    replica = replicas["r1"]
    return [row[at] for row in _queue_rows(replica, of_all_but_one(replica))]


def test_small_mutations_share_a_slot(replicas: Replicas) -> None:
    assert reasons(replicas) == [""] * PARTS


def test_others_take_one_each(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALL_MUTATION_BYTES", -1)
    *claimed, waiting = reasons(replicas)
    assert claimed == [""] * (PARTS - 1)
    assert "with 15 of 32 slots taken" in str(waiting)


def test_looking_mends_nothing(replicas: Replicas) -> None:
    """A part that can't be read is given up by whoever works with it, not by a SELECT."""
    parts, store = replicas.parts("r1"), replicas.stores["r1"]
    (Path(store.directory(store.parts()[0])) / layout.MANIFEST).write_bytes(b"damaged")
    assert len(reasons(replicas)) == PARTS
    assert replicas.parts("r1") == parts
