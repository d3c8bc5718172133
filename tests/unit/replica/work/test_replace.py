"""What a replica that carries out a replacement does with what a peer sends, or does not send."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.replica.partitions import swap
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.part_store import PartStore
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import faulty
from tests.support.mortal_disk import Died
from tests.support.partitioned import clean_up, insert, on_disk, rows, swaps, work
from tests.support.parts import CountedIds
from tests.support.two_tables import Two, filled, source_of

LATER_S = 120.0  # longer than any pause between two tries


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    """r1 has replaced a partition. r2 has no copy of the source, and has to fetch both parts."""
    with Replicas(tmp_path / "s", define=source_of) as s:
        both = Two(s, Replicas(tmp_path / "t", define=partitioned, beside=s))
        filled(both)
        both.replace()
        both.t["r2"].other_store = lambda *_: None
        yield both


def test_nothing_is_replaced_as_long_as_a_peer_can_not_send_a_part(two: Two, tmp_path) -> None:
    """It says why, and its next try has both."""
    theirs = Path(two.t.stores["r1"].directory(PartName.parse("1_3_3_0")))
    shutil.move(theirs, tmp_path / "away")
    [done] = two.t.step("r2", "fetch").done
    assert "1_3_3_0" in done.error
    assert done.bug is None
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]
    assert two.t.stores["r2"].staged() == []
    shutil.move(tmp_path / "away", theirs)
    two.t.clock.passed_s += LATER_S
    work(two.t, "r2")
    assert rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


def test_nothing_is_replaced_by_another_part_of_the_same_name(two: Two) -> None:
    """It is whole, and has other rows than ZooKeeper promises."""
    r1 = two.t.stores["r1"]
    theirs = Path(r1.directory(PartName.parse("1_3_3_0")))
    shutil.rmtree(theirs)
    shutil.copytree(r1.directory(PartName.parse("1_2_2_0")), theirs)
    two.t.stores["r1"] = PartStore(r1.disk, ids=CountedIds())  # reads anew
    [done] = two.t.step("r2", "fetch").done
    assert "1_3_3_0 arrived from r1 and is not what ZooKeeper has for it" in done.error
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]
    assert two.t.stores["r2"].staged() == []


def test_a_larger_part_is_not_taken_before_its_own_entry_is_here(two: Two) -> None:
    """r1 has merged both, and r2 has yet to read that in the log: a drop may come before it."""
    pull_log(two.t["r2"])
    optimize_partition(two.t["r1"], "1", final=True, skip_merged=False)
    work(two.t, "r1")
    two.t.clock.passed_s += 1000
    carry_out(two.t["r1"], plan_clean_up(two.t["r1"]))
    [done] = two.t.executor("r2", "fetch").step(None).done
    assert "1_2_3_1 can't be taken yet: 1_2_3_1 is not known here" in done.error
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]
    two.t.clock.passed_s += LATER_S
    work(two.t, "r2")
    assert two.t.parts("r2") == ["1_2_3_1", "2_0_0_0"]
    assert rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


def test_what_it_took_may_be_inserted_again_once_its_own_replica_has_carried_it_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many rows go for their ids to go in the same multi. Who said it died when it was decided,
    and nobody else has carried it out yet.
    """
    monkeypatch.setattr(swap, "with_forgetting", lambda _replica, ops, _gone: (ops, False))
    with Replicas(tmp_path / "s", define=source_of) as s:
        both = Two(s, Replicas(tmp_path / "t", define=partitioned, beside=s))
        filled(both)
        with faulty(both.t["r1"].keeper, swaps, landed=True, error=Died()), pytest.raises(Died):
            both.replace()
        work(both.t, "r1")
        assert rows(both.t, "r1") == [(1, 10), (1, 11), (2, 2)]
        assert insert(both.t, (1, 1)).outcome is Outcome.INSERTED
        work(both.t)
        assert rows(both.t, "r1") == rows(both.t, "r2") == [(1, 1), (1, 10), (1, 11), (2, 2)]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "it fails"), Unavailable("no answer")])
@pytest.mark.parametrize("command", ["drop", "replace"])
def test_what_can_not_leave_the_disk_now_was_dropped_all_the_same(
    two: Two, monkeypatch: pytest.MonkeyPatch, command: str, error: Exception
) -> None:
    """It is told as what it is, and a clean-up removes the rest."""
    table, gone = two.t, {"drop": "2_0_0_0", "replace": "1_0_0_0"}[command]
    if command == "drop":
        work(table)
        table.table("r1").drop_partitions(["2"], settings=QuerySettings(alter_sync=0))
    with monkeypatch.context() as patch:
        patch.setattr(PartStore, "remove_all", Mock(side_effect=error))
        [done] = table.step("r2", "fetch").done
    assert (done.error, [str(one) for one in done.sources]) == ("", [gone])
    assert gone in on_disk(table, "r2")
    clean_up(table)
    assert gone not in on_disk(table, "r2")
