"""Whom REPLACE and MOVE PARTITION wait for on other replicas (P39, §9.6)."""

from contextlib import ExitStack

import pytest

from rmt_pipeline.protocol.errors import Unavailable, Unfinished
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.partitions import from_table
from rmt_pipeline.replica.partitions.from_table import Between
from tests.support.local_replicas import Meanwhile, Replicas, partitioned
from tests.support.lost_answers import before, logs
from tests.support.partitioned import rows, work
from tests.support.two_tables import NOW, SOON, Two, filled, source_of


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


def test_who_can_not_read_the_log_of_the_source_waits_for_that_too(two):
    """It was answered as if the others had it: the rows were in both tables there."""
    filled(two)
    keeper, log = two.s["r1"].session, two.s["r1"].table.log
    children = keeper.children

    def no_answer(path, *watch):
        if path == log:
            raise Unavailable("no answer")
        return children(path, *watch)

    keeper.children = no_answer
    move = Between(
        lambda: two.t["r1"],
        lambda: two.s["r1"],
        "1",
        QuerySettings(alter_sync=2, receive_timeout=5),
        lambda: Meanwhile(two.s.clock, [lambda: work(two.t, "r2")]),
    )
    with pytest.raises(Unfinished, match=r"in the log of /tables/s .* yet: r2\."):
        move.move()


@pytest.mark.parametrize("how", ["move", "attach"])
def test_what_a_partition_had_is_gone_before_others_come_beside_it(two, how):
    """P14. The rows were moved away on r1, which r2 has yet to do in this table, and come back on
    r2: its readers would see them twice.
    """
    away = two.t.table("r1").move_partition
    filled(two, s=())
    away("1", two.s.table("r1"), settings=QuerySettings(alter_sync=0))
    work(two.s, "r2")
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]
    seen = []

    def time_passes():
        seen.append(rows(two.t, "r2"))
        work(two.t, "r2")

    two.t.meanwhile.append(time_passes)
    two.s.meanwhile.append(time_passes)
    if how == "move":
        two.s.table("r2").move_partition("1", two.t.table("r2"))
    else:
        two.t.table("r2").attach_partition("1", two.s.table("r2"))
    assert seen == [[(1, 1), (2, 2)]]
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("when", ["before it reads the source", "before it commits"])
@pytest.mark.parametrize("how", ["move", "attach"])
def test_even_if_they_are_dropped_after_it_has_waited(two, monkeypatch, how, when):
    """P14. The rows are moved away on r1 when r2 has seen that no drop is to come, and r2 brings
    them back before it has taken them away.
    """
    filled(two, s=() if when.endswith("source") else ((1, 10),))
    expected = [(1, 1), (2, 2)] if when.endswith("source") else [(1, 10), (2, 2)]
    waited = from_table.wait_until_here
    seen = []

    def by_another():
        if when.endswith("source"):
            two.t.table("r1").move_partition("1", two.s.table("r1"), settings=NOW)
            work(two.s, "r2")
        else:
            two.t.table("r1").drop_partitions(["1"], settings=NOW)

    def then(*asked):
        monkeypatch.setattr(from_table, "wait_until_here", waited)
        by_another()
        return waited(*asked)

    def time_passes():
        seen.append(rows(two.t, "r2"))
        work(two.t, "r2")

    two.t.meanwhile.append(time_passes)
    two.s.meanwhile.append(time_passes)
    with ExitStack() as stack:
        if when.endswith("source"):
            monkeypatch.setattr(from_table, "wait_until_here", then)
        else:
            stack.enter_context(before(two.t["r2"].keeper, logs, by_another))
        if how == "move":
            two.s.table("r2").move_partition("1", two.t.table("r2"), settings=SOON)
        else:
            two.t.table("r2").attach_partition("1", two.s.table("r2"), settings=SOON)
    assert seen == [[(1, 1), (2, 2)]], "it waited for the drop"
    assert rows(two.t, "r2") == expected
