"""What another process is about to promise is not unknown: nobody sets it aside (spec §16.6 F10).

All of it is old here: that a part is young is only the last reason to leave it alone.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import (
    UNANNOUNCED_S,
    check_part,
    idle_ones,
    look_at_disk,
    recover_parts,
)
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op
from tests.support.local_replicas import Replicas

PART = PartName.parse("all_1_1_0")


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """The second of two parts is on disk, and not promised."""
    with Replicas(tmp_path, ["r1"]) as opened:
        opened.insert("r1", 1)
        assert opened.insert("r1", 2) == PART
        opened.step("r1", "fetch")
        replica = opened["r1"]
        replica.keeper.multi([Delete(replica.paths.part(PART))])
        opened.clock.passed_s += UNANNOUNCED_S + 1000
        yield opened


def queued(replica: Replica) -> Op:
    """A worker died between the disk and ZooKeeper; the entry is still to be carried out."""
    entry = GetPart(create_time=1, source_replica="", part=PART)
    return Create(replica.paths.queue_prefix, encode(entry), sequence=True)


def claimed(replica: Replica) -> Op:
    """A worker is about to publish it."""
    return Create(replica.paths.claim("queue-9"), Claim("w", (PART,)).encode(), ephemeral=True)


def numbered(replica: Replica) -> Op:
    """An insert is about to commit: its block number is in flight."""
    return Create(f"{replica.table.partition('all')}/block-0000000001", ephemeral=True)


@pytest.mark.parametrize("sign", [queued, claimed, numbered])
def test_what_is_under_way_stays_where_it_is(replicas, sign):
    replica = replicas["r1"]
    replica.keeper.multi([sign(replica)])
    assert look_at_disk(replica).in_flight == {PART}
    assert recover_parts(replica).detached == ()
    carry_out(replica, plan_clean_up(replica))
    assert replica.store.has(PART)
    assert replica.store.detached() == []


def test_what_nothing_says_is_under_way_is_set_aside(replicas):
    replica = replicas["r1"]
    assert look_at_disk(replica).in_flight == frozenset()
    assert [name for name, _ in recover_parts(replica).detached] == [f"detached/ignored_{PART}"]


def test_a_part_made_while_the_clock_was_ahead_is_left_alone_no_longer_than_others(replicas):
    """Else it would stay until the clock gets there: hours or days."""
    replica = replicas["r1"]
    replicas.clock.passed_s -= 86_400
    assert look_at_disk(replica).in_flight == {PART}
    replicas.clock.passed_s += UNANNOUNCED_S - 1
    assert look_at_disk(replica).in_flight == {PART}
    replicas.clock.passed_s += 2
    assert look_at_disk(replica).in_flight == frozenset()


def test_an_insert_that_commits_between_two_looks_is_not_taken_for_missing(
    replicas, monkeypatch
):
    """F9. ZooKeeper is asked first, then the disk: the other way round, a part that comes in
    between is missing on disk and promised.
    """
    replica, late = replicas["r1"], PartName.parse("all_2_2_0")
    get_many, verify = type(replica.keeper).get_many, PartStore.verify

    def commit_once() -> None:
        monkeypatch.undo()
        assert replicas.insert("r1", 3) == late

    def asked(keeper: Any, paths: Any) -> Any:
        found = get_many(keeper, paths)
        commit_once()
        return found

    def looked(store: PartStore, part: PartName) -> Any:
        try:
            return verify(store, part)
        finally:
            commit_once()

    monkeypatch.setattr(type(replica.keeper), "get_many", asked)
    monkeypatch.setattr(PartStore, "verify", looked)
    assert check_part(replica, late) is None
    assert str(late) in replicas.parts("r1")


def test_an_entry_that_waits_holds_up_none_of_a_hundred_others(tmp_path):
    """Q8. It fails no attempt, and runs when what it waits for is over."""
    with Replicas(tmp_path) as replicas:
        parts = [replicas.insert("r1", value) for value in range(101)]
        r2 = replicas["r2"]
        busy = Claim("somebody", (parts[0],)).encode()
        node = Create(r2.paths.claim("queue-elsewhere"), busy, ephemeral=True)
        r2.keeper.multi([node])
        while (step := replicas.step("r2", "fetch")).did_something:
            assert not any(done.error for done in step.done)
        assert replicas.parts("r2") == sorted(map(str, parts[1:]))
        [(_, reason)] = step.waiting
        assert reason == "another entry, queue-elsewhere, is producing all_0_0_0"
        assert r2.keeper.children(r2.paths.attempts) == []
        r2.keeper.multi([Delete(node.path)])
        assert [done.part for done in replicas.step("r2", "fetch").done] == [parts[0]]


def test_what_is_promised_or_claimed_is_not_removed(replicas):
    replica, promised = replicas["r1"], PartName.parse("all_0_0_0")
    assert idle_ones(replica, [promised, PART]) == [PART]
    replica.keeper.multi([claimed(replica)])
    assert idle_ones(replica, [promised, PART]) == []
