"""What a look knows of the claims: those that this process has taken it does not list."""

from collections.abc import Sequence
from typing import Any

import pytest

from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work.carry import Batch
from rmt_pipeline.replica.work.execute import Executor
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from rmt_pipeline.zookeeper.snapshot import queue_snapshot
from tests.support.local_replicas import Replicas
from tests.unit.replica.test_looks import (
    Spying,
    filled,
    known_queue,
    listings,
    nodes,
    replicas,
)

__all__ = ["filled", "replicas"]  # fixtures


@pytest.fixture
def claimed(replicas: Replicas, filled: Replica) -> tuple[Executor, Batch]:
    """The executor of r2 that has claimed one entry, and what it is to carry out; another entry was
    pulled since.
    """
    executor = replicas.executor("r2", "fetch")
    [batch] = executor.look(None).batches
    replicas.insert("r1", 5)
    pull_log(filled)
    return executor, batch


def claims_seen(replica: Replica, keeper: Any = None) -> dict[str, Claim]:
    """The claims as who looks sees them."""
    known = replica.memory.queue
    queue = known_queue(replica)
    seen = queue_snapshot(keeper or replica.keeper, replica.paths, known, queue=queue)
    return dict(seen.claims)


def claims_there(replica: Replica) -> dict[str, Claim]:
    nodes = replica.keeper.children(replica.paths.executing)
    reads = replica.keeper.get_many([replica.paths.claim(node) for node in nodes])
    return {
        node: Claim.decode(read[0])
        for node, read in zip(nodes, reads, strict=True)
        if read is not None
    }


def claim_of_another(replica: Replica) -> Create:
    """The claim of another process, of an entry that is queued here."""
    node = nodes(replica)[-1]
    part = PartName("all", 900, 900, 0)
    return Create(replica.paths.claim(node), Claim("another process", (part,)).encode())


def test_what_this_process_has_claimed_is_known_without_a_listing(
    filled: Replica, claimed: tuple[Executor, Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is carried out, and when it was published: one request tells all."""
    executor, batch = claimed
    spying = Spying(filled.keeper)
    assert claims_seen(filled, spying) == claims_there(filled)
    assert len(claims_there(filled)) == 2
    assert len(list(executor.carry_out(batch))) == 2
    assert claims_seen(filled, spying) == claims_there(filled) == {}
    assert spying.listed == []
    listed = listings(filled, monkeypatch)
    [after] = executor.look(None, queue=known_queue(filled)).batches
    assert len(after.tasks) == 1
    assert not {filled.paths.executing, filled.paths.parts, filled.paths.queue} & set(listed)


@pytest.mark.parametrize("late", [False, True])
def test_the_claim_of_another_process_is_not_missed(
    filled: Replica, claimed: tuple[Executor, Batch], *, late: bool
) -> None:
    """Also when as many claims were given back as it has taken, and while the look reads."""
    _, batch = claimed
    ops: list[Op] = [claim_of_another(filled)]
    ops += [Delete(filled.paths.claim(node)) for node in list(batch.left)[:1]]
    spying = Spying(filled.keeper)
    if late:
        spying.before_get[filled.paths.executing] = lambda: filled.keeper.multi(ops)
    else:
        filled.keeper.multi(ops)
    assert claims_seen(filled, spying) == claims_there(filled)
    assert len(claims_there(filled)) == 2
    assert filled.paths.executing in spying.listed
    spying.listed.clear()
    assert claims_seen(filled, spying) == claims_there(filled)
    assert spying.listed == [], "what was listed is known"


def test_claims_that_were_listed_while_ours_was_taken_are_not_counted_twice(
    filled: Replica, claimed: tuple[Executor, Batch]
) -> None:
    """1. Our claim lands. 2. Another loop lists it. 3. We note it: were it one change more, the
    claim of somebody else would pass for it.
    """
    del claimed
    known, paths = filled.memory.queue, filled.paths
    before = known.claimed(paths)
    ours = Claim("this process", (PartName("all", 901, 901, 0),))
    filled.keeper.multi([Create(paths.claim("queue-0000000900"), ours.encode())])
    assert claims_seen(filled) == claims_there(filled)
    session = filled.keeper.session_id
    known.claims_changed(paths, before, session, came={"queue-0000000900": ours})
    filled.keeper.multi([claim_of_another(filled)])
    assert claims_seen(filled) == claims_there(filled)


def test_a_claim_that_was_gone_when_it_was_read_is_none_and_its_part_is_seen(
    filled: Replica, claimed: tuple[Executor, Batch]
) -> None:
    """It ended while the claims were read: the parts are read after that."""
    _, batch = claimed
    known, paths, [node, *_] = filled.memory.queue, filled.paths, list(batch.left)
    [part, *_] = batch.left[node].produces
    known.claims.forget([paths.executing])
    spying = Spying(filled.keeper)
    publication = [
        Create(paths.part(part)),
        Delete(paths.queue_entry(node)),
        Delete(paths.claim(node)),
    ]
    spying.before_get[paths.claim(node)] = lambda: filled.keeper.multi(publication)
    seen = queue_snapshot(spying, paths, known, queue=known_queue(filled))
    assert node in seen.entries, "it was still queued before"
    assert node not in seen.claims
    assert part in seen.parts
    assert claims_seen(filled) == claims_there(filled)


def test_claims_of_one_session_another_one_lists(
    replicas: Replicas, filled: Replica, claimed: tuple[Executor, Batch]
) -> None:
    """It may be behind: what it counts may be others' changes, and not that one."""
    del claimed
    spying = Spying(replicas.zookeeper.connect())
    assert claims_seen(filled, spying) == claims_there(filled)
    assert filled.paths.executing in spying.listed


def test_what_another_thread_notes_while_it_is_read_does_not_hide_what_others_did(
    filled: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. Another process claims an entry, and a part comes. 2. We read the counts. 3. A thread of
    ours writes and notes a claim and a part of its own: as many changes as those counts have. So
    what is compared must have been known before the counts were read.
    """
    known, paths, session = filled.memory.queue, filled.paths, filled.keeper.session_id
    claims_seen(filled)
    other, part, ours = claim_of_another(filled), PartName("all", 700, 700, 0), nodes(filled)[0]
    claims, parts = known.claimed(paths), known.listed(paths)
    right = filled.keeper.get_many

    def noted_late(asked: Sequence[str]) -> Any:
        reads = right(asked)
        if paths.executing in asked:
            monkeypatch.undo()
            made, claim = PartName("all", 800, 800, 0), Claim("ours", ())
            filled.keeper.multi(
                [Create(paths.part(made)), Create(paths.claim(ours), claim.encode())]
            )
            known.claims_changed(paths, claims, session, came={ours: claim})
            known.published(paths, parts, [made], session)
        return reads

    filled.keeper.multi([other, Create(paths.part(part))])
    monkeypatch.setattr(filled.keeper, "get_many", noted_late)
    seen = queue_snapshot(filled.keeper, paths, known, queue=known_queue(filled))
    assert other.path.rpartition("/")[2] in seen.claims
    assert part in seen.parts
