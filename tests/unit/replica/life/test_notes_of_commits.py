"""The notes of a large insert's commits: where a replacement brings a merged part, where the disk
is full, and where a foreign file lies among them.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.insert import Insertion
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.marks import Marks
from tests.support.local_replicas import by_tens
from tests.support.lost_answers import dies_at_a_commit, faulty, logs
from tests.support.mortal_disk import Died
from tests.support.restoring import Disaster

VALUES = (1, 2, 11, 12, 21, 22, 31, 32, 41, 42)


@pytest.fixture
def two(tmp_path):
    with Disaster(tmp_path, define=by_tens) as disaster:
        yield disaster


def clean_up(two: Disaster, name: str, after_s: float) -> None:
    two.clock.passed_s += after_s
    carry_out(two[name], plan_clean_up(two[name]))


@pytest.mark.parametrize("token", ["", "mine"])
@pytest.mark.parametrize("replaces", [True, False])
def test_a_replacement_may_bring_a_part_across_a_number_that_never_landed(
    two, monkeypatch, token, replaces
):
    """1. r2 inserts or replaces in partition 0; r1 has not fetched that. 2. r1 notes a commit and
    dies before it is sent. 3. r2 merges across its number, and removes the sources. 4. r1 comes
    back and carries the entry of step 1 out by fetching the merged part. 5. ZooKeeper loses all.
    The rows of step 2 are not there, so an insert that is said again has to bring them.
    """
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 1)
    two.insert_again("r2", 3)
    two.live_on()
    if replaces:
        two.table("r2").replace([{"n": 5}], partition="0", settings={"alter_sync": 0})
    else:
        two.insert_again("r2", 5)
    with dies_at_a_commit(two["r1"]):
        two.insert_again("r1", *VALUES, token=token)
    two.stop("r1")
    two.insert_again("r2", 4)
    two.work_off("r2")
    optimize_partition(two["r2"], "0", final=True, skip_merged=False)
    two.work_off("r2")
    for after_s in (200, 200, 200, 400, 0, 0):
        clean_up(two, "r2", after_s)
    two.live_on()
    there = [5, 4] if replaces else [3, 5, 4]
    assert two.values("r1") == Counter(there)
    two.wipe()
    for name in ("r1", "r2"):
        two.restore(name)
    two.live_on()
    two.insert_again("r1", *VALUES, token=token)
    two.live_on()
    for name in ("r1", "r2"):
        assert two.values(name) == Counter([*VALUES, *there]), name


@pytest.fixture
def partly_dropped(two, monkeypatch) -> Disaster:
    """Of an insert the first commit, of partitions 0 and 1, landed; the next one died. Partition 0
    was dropped since: the note has to be written anew, without it.
    """
    with monkeypatch.context() as patch:
        patch.setattr(
            Insertion, "_next_batch", lambda insertion, _: [*insertion._todo.values()][:2]
        )
        died = faulty(two["r1"].session, logs, landed=False, error=Died(), after=1)
        with died, pytest.raises(Died):
            two.insert_again("r1", 1, 11, 21, 31, token="mine")
    two.table("r1").drop_partitions(["0"], settings={"alter_sync": 0})
    two.clock.passed_s += 1000
    return two


def refuse(*_: object) -> None:
    raise DiskFull("no space left")


def test_a_full_disk_at_a_note_does_not_keep_clean_up_from_staging(partly_dropped, monkeypatch):
    partly_dropped.work_off()
    replica = partly_dropped["r1"]
    stray = replica.store.begin("merge", "1_0_1_1").directory
    os.utime(replica.store.disk.local_path(stray), (1, 1))
    partly_dropped.clock.passed_s += 100_000
    monkeypatch.setattr(Marks, "note_commit", refuse)
    assert carry_out(replica, plan_clean_up(replica)).directories == (stray,)


def test_a_full_disk_at_a_note_does_not_keep_a_merge_from_its_name(partly_dropped, monkeypatch):
    """It is written already, and its name takes no room. Its sources give theirs back."""
    partly_dropped.insert_again("r1", 12)
    partly_dropped.work_off("r1")
    optimize_partition(partly_dropped["r1"], "1", final=True, skip_merged=False)
    monkeypatch.setattr(Marks, "note_commit", refuse)
    for _ in range(3):
        partly_dropped.step("r1", "merge")
    merged = [part for part in partly_dropped["r1"].store.parts() if part.level]
    assert [part.partition for part in merged] == ["1"]


def test_a_foreign_file_among_the_notes_is_left_alone(two):
    two.insert_again("r1", 1)
    two.insert_again("r1", 2)
    two.work_off()
    directory = Path(two["r1"].store.disk.local_path("in_part"))
    directory.mkdir(exist_ok=True)
    (directory / ".nfs0000000001").write_bytes(b"")
    optimize_partition(two["r1"], "0", final=True, skip_merged=False)
    two.work_off("r1")
    assert any(part.level for part in two["r1"].store.parts())
    assert two["r1"].store.marks.commit_notes() == {}
    assert not two["r1"].store.marks.is_in_part("mine")
