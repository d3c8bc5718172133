"""New parts are claimed in the multi that copies their entries from the log, if nothing else is to
be done: who waits for an insert on this replica waits for one write less.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import GetPart, LogEntry
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work import execute, worker
from rmt_pipeline.replica.work.carry import Batch, Tools
from rmt_pipeline.replica.work.worker import Worker
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, SetData
from tests.support.counting import multis_of, once
from tests.support.local_replicas import DirectPeers, Replicas


@pytest.fixture
def follower(replicas: Replicas) -> Worker:
    """The fetch pool of r2, which knows its queue since it has fetched two inserts."""
    tools = replicas.tools()
    here = Tools(DirectPeers(replicas.stores), tools.merger, tools.mutator, lambda run: run())
    replicas.clock.passed_s += 10
    pool = Worker(replicas["r2"], here, "fetch", EventWaker(), select=False, is_endless=True)
    for number in (1, 2):
        replicas.insert("r1", number)
        turned(pool)
    assert pool.replica.memory.pointer is not None
    assert pool.replica.memory.pointer.next_queued == 2
    return pool


def turned(pool: Worker) -> list[Batch]:
    """What a turn begins, once it is done."""
    look, _ = pool.turn(progress=True)
    for batch in look.batches:
        assert [done.error for done in pool.executor.carry_out(batch)] == [""] * len(
            batch.tasks
        )
    return list(look.batches)


def claims_of(replica: Replica) -> dict[str, tuple[PartName, ...]]:
    nodes = replica.keeper.children(replica.paths.executing)
    return {
        node: Claim.decode(replica.keeper.get(replica.paths.claim(node))[0]).parts
        for node in nodes
    }


def makes_a_claim(replica: Replica) -> Callable[[Op], bool]:
    return lambda op: isinstance(op, Create) and op.path.startswith(replica.paths.executing)


def test_new_parts_are_claimed_with_the_pull(replicas, follower):
    multis = multis_of(follower.replica.keeper)
    for number in (3, 4):
        replicas.insert("r1", number)
    turned(follower)
    assert len(multis) == 2, "one to pull and to claim, one to publish"
    assert {"all_2_2_0", "all_3_3_0"} < set(replicas.parts("r2"))
    assert not claims_of(follower.replica)
    assert not follower.replica.keeper.children(follower.replica.paths.queue)


@pytest.mark.parametrize(
    ("beside", "begun"), [(PartName("all", 90, 91, 1), 1), (PartName("all", 0, 99, 9), 0)]
)
def test_a_claim_that_came_meanwhile_is_respected(replicas, follower, beside, begun):
    """The entries are copied all the same; whether they may run beside it, a look finds out."""
    replica = follower.replica
    claim = Claim("another worker", (beside,)).encode()
    path = replica.paths.claim("queue-0000000900")

    def claimed() -> None:
        replica.keeper.multi(
            [SetData(replica.paths.executing), Create(path, claim, ephemeral=True)]
        )

    replicas.insert("r1", 3)
    multis = multis_of(replica.keeper, once(claimed, makes_a_claim(replica)))
    assert len(turned(follower)) == begun
    assert any(op.path == replica.paths.log_pointer for op in multis[1]), "without claims"
    assert set(claims_of(replica)) == {"queue-0000000900"}
    assert len(replica.keeper.children(replica.paths.queue)) == 1 - begun


def test_an_entry_that_got_another_number_is_not_claimed_by_that_of_a_stranger(
    replicas, follower
):
    """Whoever adds to a queue changes what a pull asserts. Should anybody not do so, the claim is
    given back, and a look begins.
    """
    replica = follower.replica
    known = replicas.parts("r2")[0]
    entry = encode(GetPart(create_time=0, source_replica="r1", part=PartName.parse(known)))
    seen: list[dict[str, tuple[PartName, ...]]] = []

    def added() -> None:
        replica.keeper.multi([Create(replica.paths.queue_prefix, entry, sequence=True)])

    replicas.insert("r1", 3)
    multis_of(replica.keeper, once(added, makes_a_claim(replica)))
    look, _ = follower.turn()
    for node, parts in claims_of(replica).items():
        text, _ = replica.keeper.get(replica.paths.queue_entry(node))
        promised = decode(text)
        assert isinstance(promised, GetPart)
        assert parts == (promised.part,)
        seen.append({node: parts})
    for batch in look.batches:
        list(follower.executor.carry_out(batch))
    assert "all_2_2_0" in replicas.parts("r2")
    assert not claims_of(replica)


def test_a_queue_that_somebody_else_has_changed_is_looked_at(replicas, follower):
    """As a part that was lost is queued, or what a drop covers removed: the look decides."""
    replica = follower.replica
    replicas.insert("r1", 3)
    version = replica.keeper.exists(replica.paths.is_lost).version
    gone = GetPart(create_time=0, source_replica="", part=PartName("all", 2, 2, 0))
    replica.keeper.multi(
        [
            SetData(replica.paths.is_lost, b"0", version),
            Create(replica.paths.queue_prefix, encode(gone), sequence=True),
        ]
    )
    turned(follower)
    turned(follower)
    assert "all_2_2_0" in replicas.parts("r2")
    assert not claims_of(replica)
    assert not replica.keeper.children(replica.paths.queue)


def test_what_another_loop_has_pulled_meanwhile_is_looked_at(replicas, follower, monkeypatch):
    """From the same pointer, and more than we do: the nodes that we expect come before what is in
    the queue by now.
    """
    replica, beside = follower.replica, follower.executor.beside
    looked_at: list[list[str]] = []
    tools = replicas.tools()
    here = Tools(DirectPeers(replicas.stores), tools.merger, tools.mutator, lambda run: run())
    other = Worker(replica, here, "fetch", EventWaker(), select=False)

    def view(entries: Mapping[str, LogEntry], *read: Any) -> QueueView:
        looked_at.append([*entries])
        return QueueView(entries, *read)

    def after_another_loop() -> tuple[str, ...]:
        monkeypatch.undo()
        turned(other)
        replicas.insert("r1", 4)
        pull_log(replica)
        replica.memory.pull_batch = 1
        monkeypatch.setattr(execute, "QueueView", view)
        return beside()

    replicas.insert("r1", 3)
    monkeypatch.setattr(follower.executor, "beside", after_another_loop)
    turned(follower)
    turned(follower)
    assert looked_at
    assert all(nodes == sorted(nodes) for nodes in looked_at)
    assert {"all_2_2_0", "all_3_3_0"} < set(replicas.parts("r2"))
    assert not claims_of(replica)
    assert not replica.keeper.children(replica.paths.queue)


def test_a_turn_that_fails_after_the_pull_holds_no_claim(replicas, follower, monkeypatch):
    replicas.insert("r1", 3)

    def fails(*_: object, **__: object) -> None:
        assert claims_of(follower.replica)
        raise Unavailable("no answer")

    monkeypatch.setattr(worker.Worker, "_look", fails)
    with pytest.raises(Unavailable):
        follower.turn()
    assert not claims_of(follower.replica)
    monkeypatch.undo()
    turned(follower)
    assert "all_2_2_0" in replicas.parts("r2")


def test_an_entry_whose_source_does_not_have_the_part_is_left_to_a_look(replicas, follower):
    part = replicas.insert("r1", 3)
    peer = replicas["r1"]
    peer.keeper.multi([Delete(peer.paths.part(part))])
    multis = multis_of(follower.replica.keeper)
    look, _ = follower.turn()
    assert not look.batches
    assert not any(map(makes_a_claim(follower.replica), multis[0]))
    assert isinstance(multis[0][-1], SetData | Check)


def test_what_is_made_for_an_earlier_session_is_not_claimed(replicas, follower):
    replicas.insert("r1", 3)
    look, _ = follower.turn(elsewhere=[PartName("all", 2, 2, 0)])
    assert not look.batches
    assert not claims_of(follower.replica)
