"""system.replication_queue says why an entry waits, by the rules that workers go by."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.log.entry import MutatePart, result_of
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.sql.system.replication import (
    REPLICAS,
    REPLICATION_QUEUE,
    _queue_rows,
    _replica_row,
)
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
    mutations = [one for one in snapshot.entries.items() if isinstance(one[1], MutatePart)]
    assert len(mutations) == PARTS
    claims = {
        node: Claim("somebody", (part,))
        for node, entry in mutations[:-1]
        if (part := result_of(entry)) is not None
    }
    return replace(snapshot, entries=dict(mutations), claims=claims)


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


def test_what_is_queued_and_not_here_is_a_delay(tmp_path: Path) -> None:
    """As old as its insert: the row of system.replicas, as alerts read it."""
    at = [name for name, _ in REPLICAS].index("absolute_delay")
    with Replicas(tmp_path) as two:
        two.insert("r1", 1)
        pull_log(two["r2"])
        two.clock.passed_s += 600
        assert _replica_row(two["r2"])[at] == 600


def test_a_part_that_was_given_up_is_to_be_checked_until_it_is_here_again(
    tmp_path: Path,
) -> None:
    at = [name for name, _ in REPLICAS].index("parts_to_check")
    with Replicas(tmp_path) as two:
        two.insert("r1", 1)
        two.work_off("r2")
        replica, [part] = two["r2"], [PartName.parse(name) for name in two.parts("r2")]
        assert _replica_row(replica)[at] == 0
        shutil.rmtree(two.stores["r2"].directory(part))
        assert check_part(replica, part)
        assert _replica_row(replica)[at] == 1
        two.work_off("r2")
        assert two.parts("r2") == [str(part)]
        assert _replica_row(replica)[at] == 0
