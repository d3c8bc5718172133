"""Whom REPLACE and MOVE PARTITION wait for on other replicas (P39, §9.6)."""

import pytest

from rmt_pipeline.protocol.errors import Unfinished
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.partitions.from_table import Between
from tests.support.local_replicas import Meanwhile, Replicas, partitioned
from tests.support.partitioned import rows, work
from tests.support.two_tables import Two, filled, source_of


@pytest.fixture
def two(tmp_path):
    with Replicas(tmp_path / "s", define=source_of) as s:
        yield Two(s, Replicas(tmp_path / "t", define=partitioned, beside=s))


def test_others_are_waited_for_as_alter_sync_says(two):
    filled(two)
    two.replace(settings=QuerySettings(alter_sync=1, receive_timeout=0))
    with pytest.raises(Unfinished, match=r"have not done it yet: r2\."):
        two.replace(settings=QuerySettings(alter_sync=2, receive_timeout=0))


@pytest.mark.parametrize("late", ["s", "t"])
def test_others_are_waited_for_in_both_tables_of_a_move(two, late):
    """Whichever of the two is late: the other one's queue is worked off meanwhile."""
    filled(two)
    prompt = two.t if late == "s" else two.s
    move = Between(
        lambda: two.t["r1"],
        lambda: two.s["r1"],
        "1",
        QuerySettings(alter_sync=2, receive_timeout=5),
        lambda: Meanwhile(two.s.clock, [lambda: work(prompt)]),
    )
    with pytest.raises(
        Unfinished, match=rf"in the log of \S*/{late} .* have not done it yet: r2\."
    ):
        move.move()
    moved = late == "s"
    assert rows(two.t, "r2") == [(1, 1), *([(1, 10), (1, 11)] if moved else []), (2, 2)]
    assert rows(two.s, "r2") == ([(1, 10), (1, 11)] if moved else [])


@pytest.mark.parametrize("how", ["move", "attach"])
def test_what_a_partition_had_is_gone_before_others_come_beside_it(two, monkeypatch, how):
    """P14. The rows were moved away on r1, which r2 has yet to do in this table, and come back on
    r2: its readers would see them twice.
    """
    away = two.t.table("r1").move_partition
    filled(two, s=())
    away("1", two.s.table("r1"), settings=QuerySettings(alter_sync=0))
    work(two.s, "r2")
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]
    seen = []

    def time_passes(_, seconds):
        seen.append(rows(two.t, "r2"))
        work(two.t, "r2")

    monkeypatch.setattr(type(two.t.clock), "sleep_s", time_passes)
    if how == "move":
        two.s.table("r2").move_partition("1", two.t.table("r2"))
    else:
        two.t.table("r2").attach_partition("1", two.s.table("r2"))
    assert seen == [[(1, 1), (2, 2)]]
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]
