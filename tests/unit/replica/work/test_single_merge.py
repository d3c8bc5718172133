"""execute_merges_on_single_replica_time_threshold: who merges, who waits, and for how long."""

import pytest

from rmt_pipeline.protocol.merges.picker import chosen_replica
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import Assigned, optimize_partition
from rmt_pipeline.replica.work.queue_status import queue_status
from tests.support.local_replicas import Replicas

PART = PartName.parse("all_0_1_1")


def test_every_replica_chooses_the_same_one_and_all_are_chosen():
    names = ["r1", "r2", "r3"]
    found = set()
    for block in range(50):
        part = PartName("all", block, block + 1, 1)
        chosen = {
            chosen_replica(names[::step], me, "/t", part) for me in names for step in (1, -1)
        }
        assert len(chosen) == 1
        found |= chosen
    assert found == set(names)


@pytest.mark.parametrize("active", [[], ["r1"], ["r2", "r3"]])
def test_alone_or_away_everybody_merges(active):
    assert chosen_replica(active, "r1", "/t", PART) is None


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path) as opened:
        opened.set(execute_merges_on_single_replica_time_threshold=60)
        yield opened


def merge_assigned(replicas: Replicas) -> tuple[str, str]:
    """Two parts on both replicas and their merge in the log: who is chosen for it, who is not."""
    for value in (1, 2):
        replicas.insert("r1", value)
    replicas.step("r2", "fetch")
    outcome = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(outcome, Assigned)
    assert outcome.result == PART
    chosen = chosen_replica(["r1", "r2"], "r1", replicas["r1"].table.root, PART)
    return ("r1", "r2") if chosen == "r1" else ("r2", "r1")


def test_the_others_wait_and_then_fetch(replicas):
    chosen, other = merge_assigned(replicas)
    waits = replicas.step(other)
    assert waits.done == ()
    [(_, reason)] = waits.waiting
    assert reason == f"replica {chosen} was chosen to merge {PART}; waiting to fetch it"
    assert queue_status(replicas[other]).ready["merge"] == 0

    [made] = replicas.step(chosen).done
    assert (made.kind, made.error) == ("MERGE_PARTS", "")
    [fetched] = replicas.step(other).done
    assert (fetched.kind, fetched.source_replica, fetched.rows) == ("FETCH", chosen, 2)
    assert fetched.part == PART


def test_when_it_takes_too_long_everybody_merges(replicas):
    _, other = merge_assigned(replicas)
    assert replicas.step(other).done == ()
    replicas.clock.sleep_s(60)
    [made] = replicas.step(other).done
    assert (made.kind, made.error) == ("MERGE_PARTS", "")


def test_when_the_chosen_one_goes_away_the_others_merge_at_once(replicas):
    chosen, other = merge_assigned(replicas)
    assert replicas.step(other).done == ()
    replicas[chosen].keeper.close()
    replicas.clock.sleep_s(3.1)
    [made] = replicas.step(other).done
    assert (made.kind, made.error) == ("MERGE_PARTS", "")


def test_without_the_setting_everybody_merges(replicas):
    merge_assigned(replicas)
    replicas.set()
    for name in ("r1", "r2"):
        assert [done.kind for done in replicas.step(name).done] == ["MERGE_PARTS"]
