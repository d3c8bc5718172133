"""A clean-up makes room, also while something else needs room or can't be done. What else goes on
while a disk takes nothing.
"""

import errno
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.readable import ReadableParts, readable_parts
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.marks import Marks
from rmt_pipeline.store.part_store import PartStore
from tests.support.local_replicas import Replicas, by_tens


@pytest.mark.parametrize("why", ["the disk is full", "nothing is pulled"])
def test_while_a_lost_part_can_not_be_replaced_what_is_old_goes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A full disk stayed full: only what is removed makes room for the empty part."""
    with Replicas(tmp_path, ["r1"]) as replicas:
        replica, store = replicas["r1"], replicas.stores["r1"]
        lost, *old = (replicas.insert("r1", number) for number in range(3))
        shutil.rmtree(store.directory(lost))
        check_part(replica, lost)
        replicas.step("r1", "fetch")
        optimize_partition(replica, "all", final=True, skip_merged=False)
        replicas.step("r1", "merge")
        replicas.clock.passed_s += 10_000
        plan = plan_clean_up(replica)
        assert set(plan.parts.remove) == set(old)
        with monkeypatch.context() as patch:
            if why == "the disk is full":
                patch.setattr(store, "begin", Mock(side_effect=DiskFull("no space left")))
            else:
                store.marks.stop(Background.PULLING_REPLICATION_LOG)
            cleaned = carry_out(replica, plan)
        assert (set(cleaned.parts), cleaned.lost) == (set(old), ())
        assert ("no space left" in cleaned.stopped_because) == (why == "the disk is full")
        store.marks.go_on(Background.PULLING_REPLICATION_LOG)
        assert carry_out(replica, plan_clean_up(replica)).lost == (lost,)


def two_merges(replicas: Replicas) -> tuple[str, str]:
    """Queued, each of a partition; of the first one a source is broken. What they make."""
    replica, store = replicas["r1"], replicas.stores["r1"]
    parts = [replicas.insert("r1", value) for value in (1, 2, 11, 12)]
    for partition in ("0", "1"):
        optimize_partition(replica, partition, final=True, skip_merged=False)
    (Path(store.directory(parts[0])) / "part.json").write_text("?")
    store.forget_all()
    return "0_0_1_1", "1_0_1_1"


def test_a_broken_part_that_a_full_disk_can_not_note_stops_no_other_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool did nothing at all any more."""
    with Replicas(tmp_path, ["r1"], define=by_tens) as replicas:
        broken, whole = two_merges(replicas)
        monkeypatch.setattr(Marks, "give_up", Mock(side_effect=DiskFull("no space left")))
        replicas.step("r1", "merge")
        assert whole in replicas.parts("r1")
        assert broken not in replicas.parts("r1")
        monkeypatch.undo()
        replicas.step("r1", "merge")
        assert "0_0_0_0" not in replicas.parts("r1"), "it is given up, and to be fetched"


def test_a_broken_part_of_which_the_disk_keeps_no_copy_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Replicas(tmp_path, ["r1"], define=by_tens) as replicas:
        two_merges(replicas)
        failing = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
        monkeypatch.setattr(PartStore, "detach_copy", failing)
        problem = check_part(replicas["r1"], PartName("0", 0, 0, 0))
        assert problem is not None
        assert "; it could not be set aside: [Errno 5] Input/output error" in problem
        assert "0_0_0_0" not in replicas.parts("r1")


def test_a_mark_that_the_disk_can_not_forget_fails_no_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After errors the system lets nobody write to a disk any more; what is there can be read."""
    with Replicas(tmp_path, ["r1"]) as replicas:
        part = replicas.insert("r1", 1)
        marks = replicas.stores["r1"].marks
        marks.give_up(part)
        noted_s = marks.given_up_s(part)
        assert noted_s is not None
        replicas.clock.passed_s += noted_s - replicas.clock.now_s() + 10_000
        failing = Mock(side_effect=OSError(errno.EROFS, "Read-only file system"))
        with monkeypatch.context() as broken:
            broken.setattr(LocalDisk, "remove_tree", failing)
            assert readable_parts(replicas["r1"]) == ReadableParts((part,), ())
        assert failing.called
        readable_parts(replicas["r1"])
        assert marks.given_up() == []
