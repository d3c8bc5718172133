"""A part that was dropped by its name leaves its numbers. Merges go across them, and what they make
need not contain it: it may have too small a level. Nothing takes the one for a contradiction of the
other, as long as the dropped part is still somewhere.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    assign_merge,
    merge_view,
    optimize_partition,
)
from rmt_pipeline.replica.insert.report import insert_reports
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import check_part
from tests.support.local_replicas import Replicas

NOW = QuerySettings(alter_sync=0)
ACROSS = "all_0_4_1"
DROPPED = PartName("all", 1, 3, 1)
FIRST = PartName("all", 1, 1, 0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """With `all_0_0_0`, `all_1_1_0` to `all_3_3_0`, and `all_4_4_0`."""
    with Replicas(tmp_path) as opened:
        for value in range(5):
            opened.insert("r1", value)
        opened.work_off()
        yield opened


def merged(replicas: Replicas) -> None:
    """The part that is to be dropped; on r1."""
    view = merge_view(replicas["r1"])
    sources = [PartName("all", number, number, 0) for number in (1, 2, 3)]
    assert isinstance(assign_merge(replicas["r1"], view, sources), Assigned)
    replicas.work_off("r1")


def dropped_and_merged_across(replicas: Replicas, part: PartName = DROPPED) -> None:
    """On r1."""
    replicas.table("r1").drop_part(part, settings=NOW)
    replicas.work_off("r1")
    across = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert isinstance(across, Assigned)
    replicas.work_off("r1")


def rows(replicas: Replicas, name: str) -> list[int]:
    return sorted(replicas.table(name).dataset().to_table().column("n").to_pylist())


def test_a_part_that_is_broken_while_its_drop_is_queued_stops_nothing(
    replicas: Replicas,
) -> None:
    """P12. It is to be fetched again, by an entry that comes behind its drop and behind the merge
    across it.
    """
    merged(replicas)
    replicas.work_off("r2")
    dropped_and_merged_across(replicas)
    behind = replicas["r2"]
    pull_log(behind)
    behind.store.remove(DROPPED)
    assert check_part(behind, DROPPED) is not None
    assert len(behind.keeper.children(behind.paths.queue)) == 3
    replicas.work_off("r2")
    assert behind.keeper.children(behind.paths.queue) == []
    assert rows(replicas, "r2") == rows(replicas, "r1") == [0, 4]


def test_who_has_yet_to_drop_what_is_broken_may_merge_across_it(replicas: Replicas) -> None:
    """Also a part of level 0, which what is merged contains: then its rows are not missed."""
    replicas.table("r1").drop_part(FIRST, settings=NOW)
    behind = replicas["r2"]
    pull_log(behind)
    behind.store.remove(FIRST)
    assert check_part(behind, FIRST) is not None
    across = optimize_partition(behind, "all", final=True, skip_merged=False)
    assert isinstance(across, Assigned)
    replicas.work_off()
    assert rows(replicas, "r2") == rows(replicas, "r1") == [0, 2, 3, 4]


def test_who_is_behind_tells_of_inserts(replicas: Replicas) -> None:
    """It has yet to make what is dropped then."""
    merged(replicas)
    dropped_and_merged_across(replicas)
    told = insert_reports(replicas["r2"])
    assert {str(part) for one in told for part in one.coming} == {ACROSS}


def test_while_a_reader_holds_it_inserts_go_on(replicas: Replicas) -> None:
    merged(replicas)
    with replicas.table("r1").snapshot() as snapshot:
        dropped_and_merged_across(replicas)
        assert replicas["r1"].store.has(DROPPED)
        replicas.clock.passed_s += 100  # parts are counted again
        replicas.insert("r1", 5)
        assert str(DROPPED) in {str(part.name) for part in snapshot.parts}
    assert rows(replicas, "r1") == [0, 4, 5]
