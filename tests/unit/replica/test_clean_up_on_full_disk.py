"""A clean-up makes room, also while something else needs room or can't be done."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.errors import DiskFull
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from tests.support.local_replicas import Replicas


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
