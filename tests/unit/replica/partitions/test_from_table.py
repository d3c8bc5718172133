"""REPLACE, ATTACH … FROM and MOVE PARTITION on two replicas, step by step (P39, §9.6, §16.5)."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import Conflict, OutcomeUnknown, Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column, Engine
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.result import InsertCancelled, Outcome, QuorumNotReached
from rmt_pipeline.replica.partitions import drop as dropping
from rmt_pipeline.replica.partitions import from_table
from rmt_pipeline.replica.partitions import swap as swapping
from rmt_pipeline.replica.partitions.from_table import CannotReplace, EmptySource
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep import lost
from rmt_pipeline.replica.upkeep.check import check_part, recover_parts
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import allocates, before, faulty, logs
from tests.support.mortal_disk import Died
from tests.support.partitioned import insert, on_disk, rows, swaps, work
from tests.support.two_tables import NOW, SOON, Two, filled, source_of

COLUMNS = (Column("p", "UInt8"), Column("n", "UInt64"))


def inodes(store, part):
    return [Path(path).stat().st_ino for path in store.files(part)]


ROUND_TRIPS = ("get", "exists", "children", "children_stat", "sync", "multi")
PIPELINED = ("get_many", "exists_many", "children_many", "multi_many")


def test_a_replacement_is_seventeen_round_trips_to_zookeeper(two, monkeypatch):
    """An insert is two. Two of these are after the commit: nobody waits for them."""
    filled(two)
    two.replace()
    keeper, trips = two.t["r1"].keeper, []

    def counting(name, right):
        def ask(what, *rest, **named):
            if name in ROUND_TRIPS or what:  # nothing is asked where nothing is to be
                trips.append((name, what))
            return right(what, *rest, **named)

        return ask

    for name in (*ROUND_TRIPS, *PIPELINED):
        monkeypatch.setattr(keeper, name, counting(name, getattr(keeper, name)))
    two.replace()
    assert len(trips) <= 17, trips


def test_a_replaced_partition_has_the_rows_of_the_other_table_on_every_replica(two):
    """Here at once; there when the entry is carried out, as hard links of the own copy."""
    filled(two)
    taken = two.replace()
    assert (taken.rows, taken.rows_gone) == (2, 1)
    assert rows(two.t, "r1") == [(1, 10), (1, 11), (2, 2)]
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]
    done = work(two.t)
    assert {one.kind for one in done} == {"REPLACE_RANGE"}
    for name in ("r1", "r2"):
        assert rows(two.t, name) == [(1, 10), (1, 11), (2, 2)]
        assert sorted(on_disk(two.t, name)) == ["1_2_2_0", "1_3_3_0", "2_0_0_0"]
        assert inodes(two.t.stores[name], PartName.parse("1_2_2_0")) == inodes(
            two.s.stores[name], PartName.parse("1_0_0_0")
        )
        assert two.t[name].keeper.children(two.t[name].paths.queue) == []
    assert rows(two.s, "r1") == [(1, 10), (1, 11)]
    assert two.t["r1"].keeper.children(two.t["r1"].table.partition("1")) == []


def test_the_log_says_it_as_the_original(two):
    filled(two)
    two.replace()
    keeper, table = two.t["r1"].keeper, two.t["r1"].table
    text = keeper.get(table.log_entry(keeper.children(table.log)[-1]))[0].decode()
    assert "REPLACE_RANGE\ndrop_range_name: 1_0_1_999999999_999999999\n" in text
    assert "from_database: default\nfrom_table: s\n" in text
    assert "source_parts: ['1_0_0_0','1_1_1_0']\nnew_parts: ['1_2_2_0','1_3_3_0']\n" in text


def test_a_replica_without_the_source_fetches_what_it_lacks(two):
    filled(two)
    insert(two.s, (1, 12))
    work(two.s, "r1")
    two.replace()
    two.t["r2"].other_store = lambda *_: None
    work(two.t)
    assert rows(two.t, "r2") == [(1, 10), (1, 11), (1, 12), (2, 2)]


def test_an_own_copy_with_other_bytes_is_not_used(two):
    """D9. Of a table that is not replicated another replica may have another part of the name."""
    filled(two)
    two.replace()
    store, part = two.s.stores["r2"], PartName.parse("1_0_0_0")
    store.remove(part)
    other = insert(two.s, (1, 77), at="r2").parts[0]
    Path(store.directory(other)).rename(store.directory(part))
    work(two.t)
    assert rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


def test_a_partition_that_was_never_there_is_replaced_too(two):
    filled(two, t=())
    two.replace()
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11)]


def test_an_empty_source_is_refused_unless_that_is_allowed(two):
    """The original's #23727 and #104939: rows that a misspelt partition took away."""
    filled(two, s=((3, 3),))
    with pytest.raises(EmptySource, match="allow_replace_partition_from_empty_source = 1"):
        two.replace()
    assert rows(two.t, "r1") == [(1, 1), (2, 2)]
    allowed = replace(NOW, allow_replace_partition_from_empty_source=True)
    assert two.replace(settings=allowed).rows_gone == 1
    two.replace("7", settings=allowed)
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(2, 2)]
    assert two.t["r1"].keeper.children(two.t["r1"].table.partition("1")) == []


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"columns": (COLUMNS[0], Column("n", "UInt32"))}, "n is UInt32 .*, UInt64 in"),
        ({"columns": (*COLUMNS, Column("x", "UInt8"))}, "x is UInt8 .*, none in"),
        ({"columns": COLUMNS[::-1]}, "orders of columns: n, p and p, n"),
        ({"partition_by": ("p + 1",)}, r"PARTITION BY: \(p \+ 1\) and \(p\)"),
        ({"order_by": ("p", "n")}, r"ORDER BY: \(p, n\) and \(n\)"),
        ({"primary_key": ()}, r"PRIMARY KEY: \(\) and \(n\)"),
    ],
)
def test_tables_that_differ_are_told_how(two, change, difference):
    two.t["r1"].definition = replace(two.t["r1"].definition, **change)
    with pytest.raises(CannotReplace, match=difference):
        two.replace()
    with pytest.raises(CannotReplace, match="are one table"):
        two.s.table("r1").replace_partition("1", two.s.table("r1"), settings=NOW)


def test_a_source_that_has_yet_to_get_rows_is_waited_for(two):
    """Else MOVE would drop what another replica has inserted."""
    filled(two)
    insert(two.s, (1, 12), at="r2")
    for statement in (two.replace, two.attach, two.move):
        with pytest.raises(Unavailable, match="has yet to carry out queue-"):
            statement()
    asked_s = two.s.clock.passed_s
    with pytest.raises(Unavailable, match="has yet to carry out queue-"):
        two.move(settings=replace(NOW, receive_timeout=7))
    assert two.s.clock.passed_s >= asked_s + 7
    work(two.s)
    two.move()
    assert (1, 12) in rows(two.t, "r1")
    two.s.table("r1").drop_partitions(["1"], settings=NOW)


def test_attached_parts_come_beside_what_is_there_and_once(two):
    filled(two)
    assert two.attach().rows == 2
    assert two.attach(at="r2").already == tuple(map(PartName.parse, ["1_0_0_0", "1_1_1_0"]))
    work(two.t)
    for name in ("r1", "r2"):
        assert rows(two.t, name) == [(1, 1), (1, 10), (1, 11), (2, 2)]
    assert two.attach(settings=replace(NOW, insert_deduplicate=False)).rows == 2
    two.t.table("r1").drop_partitions(["1"], settings=NOW)
    work(two.t)
    assert two.attach().rows == 2, "what was dropped can be attached again"


def attached_before(two, monkeypatch):
    """One part more has come. Ids do not fit beside its drop: r2 forgets them when it is done."""
    monkeypatch.setattr(dropping, "with_forgetting", lambda replica, ops, dropped: (ops, True))
    filled(two, t=())
    two.attach()
    work(two.t)
    insert(two.s, (1, 12))
    work(two.s)
    return lambda: two.t.table("r2").drop_partitions(["1"], settings=NOW)


def test_what_was_dropped_is_attached_again_also_while_its_ids_are_there(two, monkeypatch):
    attached_before(two, monkeypatch)()
    work(two.t, "r1")
    assert two.attach().rows == 3
    assert len(two.attach().already) == 3
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11), (1, 12)]


def test_what_is_dropped_between_two_looks_is_attached_again_too(two, monkeypatch):
    two.t.meanwhile.append(lambda: work(two.t, "r1"))
    with before(two.t["r1"].keeper, allocates, attached_before(two, monkeypatch)):
        assert two.attach(settings=SOON).rows == 3
    assert rows(two.t, "r1") == [(1, 10), (1, 11), (1, 12)]


def test_what_replaced_nothing_was_attached(two):
    """§9.6. Where nothing ever was a REPLACE is an ATTACH: the next one does not double its rows.
    What came in the place of others has no id, and can be attached.
    """
    filled(two, t=((2, 2),))
    assert two.replace().rows == 2
    assert two.attach().already == tuple(map(PartName.parse, ["1_0_0_0", "1_1_1_0"]))
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]
    assert two.replace().rows == 2
    assert two.attach().rows == 2
    work(two.t)
    for name in ("r1", "r2"):
        assert rows(two.t, name) == [(1, 10), (1, 10), (1, 11), (1, 11), (2, 2)]


def test_a_replacement_of_nothing_brings_all_whatever_ids_are_there(two, monkeypatch):
    """In the order of the source; what has its id there already comes without one."""
    filled(two, t=((2, 2),))
    monkeypatch.setattr(from_table, "from_table_block_id", lambda _, __, name, ___: f"1_{name}")
    keeper, table = two.t["r1"].keeper, two.t["r1"].table
    keeper.multi([Create(table.block("1_1_0_0_0"), b"1_0_0_0")])
    first, last = two.replace().parts
    assert rows(two.t, "r1") == [(1, 10), (1, 11), (2, 2)]
    stores = two.s.stores["r1"], two.t.stores["r1"]
    assert inodes(stores[1], first) == inodes(stores[0], PartName.parse("1_0_0_0"))
    assert keeper.get(table.block("1_1_1_1_0"))[0] == str(last).encode()


def test_a_part_is_attached_once_by_two_at_once(two):
    filled(two)
    with before(two.t["r1"].keeper, swaps, lambda: two.attach(at="r2")):
        taken = two.attach()
    assert (taken.rows, len(taken.already)) == (0, 2)
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 1), (1, 10), (1, 11), (2, 2)]


def test_a_moved_partition_is_in_one_table_at_any_moment(two):
    """D7. One multi, where the original has two, so nothing is left to be resumed."""
    filled(two)
    seen = []
    multi = two.t["r1"].keeper.multi

    def watching(ops):
        result = multi(ops)
        seen.append((rows(two.s, "r1"), rows(two.t, "r1")))
        return result

    two.t["r1"].keeper.multi = watching
    assert two.move().rows == 2
    two.t["r1"].keeper.multi = multi
    assert {len(s) + len(t) for s, t in seen} == {4}
    assert two.move().parts == ()
    work(two.t)
    work(two.s)
    for name in ("r1", "r2"):
        assert rows(two.s, name) == []
        assert rows(two.t, name) == [(1, 1), (1, 10), (1, 11), (2, 2)]
        assert on_disk(two.s, name) == []


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("statement", ["replace", "attach", "move"])
def test_a_statement_without_an_answer_happens_once(two, statement, landed):
    filled(two)
    with faulty(two.t["r1"].keeper, swaps, landed=landed):
        getattr(two, statement)()
    work(two.t)
    work(two.s)
    expected = [(1, 10), (1, 11), (2, 2)]
    if statement != "replace":
        expected = [(1, 1), *expected]
    for name in ("r1", "r2"):
        assert rows(two.t, name) == expected
        assert rows(two.s, name) == ([] if statement == "move" else [(1, 10), (1, 11)])
    for table in (two.s["r1"].table, two.t["r1"].table):
        assert two.t["r1"].keeper.children(table.partition("1")) == []


def test_nobody_knowing_leaves_what_may_be_in_the_table(two, monkeypatch):
    filled(two)
    monkeypatch.setattr("rmt_pipeline.replica.partitions.drop.SETTLE_PAUSES_S", ())
    with (
        faulty(two.t["r1"].keeper, swaps, landed=True),
        pytest.raises(OutcomeUnknown, match="not known"),
    ):
        two.move()
    work(two.t)
    work(two.s)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 1), (1, 10), (1, 11), (2, 2)]
    assert rows(two.s, "r1") == rows(two.s, "r2") == []


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("statement", ["replace", "move"])
def test_a_start_after_a_death_shows_nothing_that_was_replaced(
    two, statement, landed, is_merged
):
    """D6, the original's #107605: replaced parts that were active again after a restart. Copies
    that nobody has announced say nothing about the disk, whatever their level.
    """
    filled(two)
    if is_merged:
        two.s.table("r1").optimize("1", final=True, settings=NOW)
        work(two.s)
    for replicas in (two.s, two.t):
        replicas.set(replicated_max_ratio_of_wrong_parts="0")
    with (
        faulty(two.t["r1"].keeper, swaps, landed=landed, error=Died()),
        pytest.raises(Died),
    ):
        getattr(two, statement)()
    two.t.clock.passed_s += 1e6
    for replicas in (two.s, two.t):
        for name in ("r1", "r2"):
            assert recover_parts(replicas[name]).detached == () or not landed
    if not landed:
        assert rows(two.t, "r1") == [(1, 1), (2, 2)]
        getattr(two, statement)()
    work(two.t)
    work(two.s)
    expected = [(1, 10), (1, 11), (2, 2)]
    if statement == "move":
        expected = [(1, 1), *expected]
    for name in ("r1", "r2"):
        assert rows(two.t, name) == expected
        assert len(on_disk(two.t, name)) == len(expected) - is_merged
        assert rows(two.s, name) == ([] if statement == "move" else [(1, 10), (1, 11)])
    if landed:
        assert two.t.stores["r1"].detached() == two.s.stores["r1"].detached() == []


@pytest.mark.parametrize("statement", ["replace", "attach", "move"])
def test_what_another_engine_has_merged_is_to_be_merged_still(tmp_path, statement):
    """It has rows of one key, of which this table's engine keeps the last. A part that is
    alone and was merged is passed by, by FINAL and, if that is set, by OPTIMIZE FINAL.
    """

    def replacing(replica):
        engine = Engine("ReplacingMergeTree", "/tables/t", replica)
        return replace(partitioned(replica), engine=engine)

    with Replicas(tmp_path / "s", define=source_of) as s:
        two = Two(s, Replicas(tmp_path / "t", define=replacing, beside=s))
        filled(two, s=((1, 10), (1, 11)), t=())
        insert(two.s, (1, 10), token="once more")
        two.s.table("r1").optimize("1", final=True, settings=NOW)
        work(two.s)
        assert rows(two.s, "r1") == [(1, 10), (1, 10), (1, 11)]
        getattr(two, statement)()
        work(two.t)
        settings = replace(NOW, optimize_skip_merged_partitions=True)
        two.t.table("r1").optimize("1", final=True, settings=settings)
        work(two.t)
        assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11)]


def test_a_copy_of_what_was_merged_is_merged(two):
    filled(two)
    two.s.table("r1").optimize("1", final=True, settings=NOW)
    work(two.s)
    assert [part.level for part in two.replace().parts] == [1]


def test_who_dies_once_he_has_carried_a_replacement_out_starts_again(two):
    """D6. ZooKeeper has forgotten what went, and the entry; the directories are there: the disk was
    told before.
    """
    filled(two)
    two.t.set(replicated_max_ratio_of_wrong_parts="0")
    two.replace()
    pull_log(two.t["r2"])

    def ends(op):
        return isinstance(op, Create) and "/r2/parts/1_2_2_0" in op.path

    with faulty(two.t["r2"].session, ends, landed=True, error=Died()), pytest.raises(Died):
        two.t.step("r2", "fetch")
    assert two.t["r2"].keeper.children(two.t["r2"].paths.queue) == []
    assert on_disk(two.t, "r2") == ["1_0_0_0", "1_2_2_0", "1_3_3_0", "2_0_0_0"]
    two.t.clock.passed_s += 1e6
    assert recover_parts(two.t["r2"]).detached == ()
    assert rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


def test_who_is_refused_at_the_end_of_a_replacement_takes_back_what_it_brought(two):
    """A drop, say, has taken the entry: what came under its names is no part."""
    filled(two)
    two.replace()
    r2 = two.t["r2"]
    pull_log(r2)

    def ends(op):
        return isinstance(op, Create) and "/r2/parts/1_2_2_0" in op.path

    def entry_goes():
        [node] = r2.keeper.children(r2.paths.queue)
        two.s.zookeeper.connect().multi([Delete(r2.paths.queue_entry(node))])

    with before(r2.session, ends, entry_goes):
        two.t.executor("r2", "fetch").step(None)
    assert on_disk(two.t, "r2") == ["1_0_0_0", "2_0_0_0"]
    assert rows(two.t, "r2") == [(1, 1), (2, 2)]


def test_who_links_while_a_part_is_lost_looks_again_and_links_what_is_not(two):
    """What was linked before is thrown away: perhaps it is the part that was lost."""
    filled(two)
    two.replace()
    r2, lost = two.t["r2"], []
    pull_log(r2)

    def ends(op):
        return isinstance(op, Create) and "/r2/parts/1_2_2_0" in op.path

    def another_is_lost():
        lost.append(r2.table.lost_part_count)
        two.t.zookeeper.connect().multi([SetData(r2.table.lost_part_count)])

    with before(r2.session, ends, another_is_lost):
        two.t.executor("r2", "fetch").step(None)
    assert len(lost) == 1
    assert rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


def test_what_a_crash_left_is_not_set_aside_by_a_clean_up(two):
    """The entry is in the log, and nobody has pulled it yet."""
    filled(two)
    with (
        faulty(two.t["r1"].keeper, swaps, landed=True, error=Died()),
        pytest.raises(Died),
    ):
        two.replace()
    two.t.clock.passed_s += 1e6
    carry_out(two.t["r1"], plan_clean_up(two.t["r1"]))
    assert two.t.stores["r1"].detached() == []
    work(two.t)
    carry_out(two.t["r1"], plan_clean_up(two.t["r1"]))
    assert on_disk(two.t, "r1") == ["1_2_2_0", "1_3_3_0", "2_0_0_0"]


def test_a_drop_and_a_replacement_at_once_end_as_one_after_the_other(two):
    """D3, the original's #94123: a drop that took parts which came into the log after it."""
    filled(two)
    drop = two.t.table("r2").drop_partitions
    with before(two.t["r1"].keeper, swaps, lambda: drop(["1"], settings=NOW)):
        two.replace()
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


def test_parts_that_are_attached_while_a_drop_is_decided_come_after_it(two):
    """The other order of #94123: numbers taken before the drop's, committed after it."""
    filled(two)
    drop = two.t.table("r2").drop_partitions
    two.t.meanwhile.append(lambda: work(two.t, "r1"))
    with before(two.t["r1"].keeper, swaps, lambda: drop(["1"], settings=NOW)):
        taken = two.attach(settings=SOON)
    assert all(part.block_min > 2 for part in taken.parts)
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


@pytest.mark.parametrize("when", ["numbers are taken", "it is committed"])
def test_two_replacements_at_once_end_as_one_of_them(two, monkeypatch, when):
    """D5. Whether the log moves after it was looked at, or before: parts that the other one has
    brought have greater numbers than those that go.
    """
    filled(two)
    right = swapping.cancel_inserts

    def other():
        insert(two.s, (1, 12), at="r2")
        work(two.s, "r2")
        two.replace(at="r2")

    def then(*args):
        monkeypatch.setattr(swapping, "cancel_inserts", right)
        other()
        right(*args)

    if when == "it is committed":
        with before(two.t["r1"].keeper, swaps, other):
            two.replace()
    else:
        monkeypatch.setattr(swapping, "cancel_inserts", then)
        two.replace()
        assert swapping.cancel_inserts is right
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]


def test_an_insert_in_flight_is_cancelled_and_a_later_one_stays(two):
    filled(two)
    with (
        before(two.t["r1"].keeper, logs, lambda: two.replace(at="r2")),
        pytest.raises(InsertCancelled),
    ):
        insert(two.t, (1, 5))
    insert(two.t, (1, 5))
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 5), (1, 10), (1, 11), (2, 2)]


def test_what_was_replaced_can_be_inserted_again_and_nothing_else(two):
    filled(two)
    two.replace(at="r2")
    assert insert(two.t, (1, 1)).outcome is Outcome.INSERTED
    assert insert(two.t, (2, 2)).outcome is Outcome.DUPLICATE


def test_a_merge_of_what_is_replaced_is_thrown_away(two):
    """D1."""
    filled(two, t=((1, 1), (1, 2)))
    optimize_partition(two.t["r1"], "1", final=True, skip_merged=False)
    pull_log(two.t["r1"])

    def publishes(op):
        return isinstance(op, Create) and op.path.endswith("/parts/1_0_1_1")

    with before(two.t["r1"].keeper, publishes, two.replace):
        [done] = two.t.executor("r1", "merge").step(None).done
    assert "is gone" in done.error
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11)]


def test_a_merge_that_is_assigned_while_it_is_replaced_comes_first(two):
    """The version of the log: the parts that go are looked at anew."""
    filled(two, t=((1, 1), (1, 2)))

    def merge():
        optimize_partition(two.t["r2"], "1", final=True, skip_merged=False)
        work(two.t)

    with before(two.t["r1"].keeper, swaps, merge):
        assert [str(part) for part in two.replace().gone] == ["1_0_1_1"]
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 10), (1, 11)]


def test_a_source_that_is_merged_meanwhile_is_moved_whole(two):
    filled(two)

    def merge():
        optimize_partition(two.s["r2"], "1", final=True, skip_merged=False)
        work(two.s)

    with before(two.t["r1"].keeper, swaps, merge):
        assert two.move().rows == 2
    work(two.t)
    work(two.s)
    assert rows(two.t, "r2") == [(1, 1), (1, 10), (1, 11), (2, 2)]
    assert rows(two.s, "r1") == rows(two.s, "r2") == []


def test_a_source_that_gets_rows_meanwhile_is_moved_whole(two):
    filled(two)

    def late():
        insert(two.s, (1, 12), at="r2")
        work(two.s)

    with before(two.t["r1"].keeper, swaps, late):
        two.move()
    work(two.s)
    work(two.t)
    assert rows(two.s, "r1") == rows(two.s, "r2") == [(1, 12)]
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 1), (1, 10), (1, 11), (2, 2)]


def test_new_parts_that_others_have_merged_are_taken_merged(two):
    filled(two)
    two.replace()
    optimize_partition(two.t["r1"], "1", final=True, skip_merged=False)
    work(two.t, "r1")
    two.t.clock.passed_s += 1000
    carry_out(two.t["r1"], plan_clean_up(two.t["r1"]))
    two.t["r2"].other_store = lambda *_: None
    work(two.t)
    assert rows(two.t, "r2") == [(1, 10), (1, 11), (2, 2)]
    assert two.t.parts("r2") == ["1_2_3_1", "2_0_0_0"]


def test_a_new_part_that_was_dropped_is_not_waited_for(two):
    """D5, #28864: who has dropped it can't give it any more."""
    filled(two)
    taken = two.replace()
    two.t.table("r1").drop_part(taken.parts[0], settings=NOW)
    work(two.t, "r1")
    two.t["r2"].other_store = lambda *_: None
    work(two.t)
    assert rows(two.t, "r1") == rows(two.t, "r2") == [(1, 11), (2, 2)]


def test_a_range_that_is_dropped_takes_the_replacement_along(two):
    filled(two)
    two.replace()
    two.t.table("r1").drop_partitions(["1"], settings=NOW)
    work(two.t, "r2")
    assert rows(two.t, "r2") == [(2, 2)]
    work(two.t)
    assert rows(two.t, "r1") == [(2, 2)]


@pytest.mark.parametrize("statement", ["replace", "attach", "move"])
def test_no_number_is_held_once_a_statement_has_ended(two, statement):
    """Whether something was there, and comes, or not: a merge would wait for who holds one."""
    filled(two, t=((2, 2),))
    allowed = replace(NOW, allow_replace_partition_from_empty_source=True)
    for partition in ("1", "1", "2", "7"):
        getattr(two, statement)(partition, settings=allowed)
    for table in (two.s["r1"].table, two.t["r1"].table):
        keeper = two.t["r1"].keeper
        partitions = keeper.children(table.block_numbers)
        assert [keeper.children(table.partition(one)) for one in partitions] == [
            [] for _ in partitions
        ]


def test_so_many_parts_that_they_fit_into_no_packet_are_refused(two, monkeypatch):
    filled(two)
    monkeypatch.setattr(swapping.limits, "MULTI_BYTES_MAX", 1000)
    with pytest.raises(swapping.PartsDoNotFit, match="2 parts that come and 1 that go"):
        two.replace()
    monkeypatch.undo()
    assert rows(two.t, "r1") == [(1, 1), (2, 2)]
    assert on_disk(two.t, "r1") == ["1_0_0_0", "2_0_0_0"]
    assert two.t.stores["r1"].staged() == []
    assert two.t["r1"].keeper.children(two.t["r1"].table.partition("1")) == []


def test_rows_that_wait_for_their_quorum_do_not_move(two):
    """Their insert would be told that it failed, and said again: they were in both tables."""
    filled(two)
    asked = {"settings": {"insert_quorum": 2, "insert_quorum_timeout": 0}}
    with pytest.raises(QuorumNotReached):
        insert(two.s, (1, 12), **asked)
    with pytest.raises(Unavailable, match=r"1_\d+_\d+_0 of .* waits for its quorum"):
        two.move()
    work(two.s)
    two.move()
    assert (1, 12) in rows(two.t, "r1")


def test_parts_that_are_covered_anew_all_the_time_are_not_looked_at_for_ever(two, monkeypatch):
    """Each look finds some, and none of them goes: somebody gives up parts meanwhile."""
    filled(two)
    monkeypatch.setattr(swapping, "fit_together", lambda ops: isinstance(ops[0], Create))
    monkeypatch.setattr(swapping, "_forget_covered", lambda sides, looked: True)
    with pytest.raises(Conflict, match="merged all the time"):
        two.replace()
    monkeypatch.undo()
    assert rows(two.t, "r1") == [(1, 1), (2, 2)]


BROUGHT = PartName.parse("1_2_2_0")


def lost_at_first(two):
    """r1 has lost what it took from the other table, for good; r2 has yet to take it."""
    filled(two)
    two.replace()
    two.t.step("r1", "fetch")
    shutil.rmtree(two.t.stores["r1"].directory(BROUGHT))
    check_part(two.t["r1"], BROUGHT)
    two.t.step("r1", "fetch")


def settled(two):
    for _ in range(3):
        for name in ("r2", "r1"):
            two.t.step(name, "fetch")
            replace_lost_parts(two.t[name])
        two.t.clock.sleep_s(100.0)
    for name in ("r1", "r2"):
        assert two.t[name].keeper.children(two.t[name].paths.queue) == []
    return rows(two.t, "r1"), rows(two.t, "r2")


@pytest.mark.parametrize("has_pulled", [False, True])
def test_a_part_is_not_lost_that_another_replica_has_a_copy_of(two, has_pulled):
    """And has not looked for yet, whether it knows of the replacement or not."""
    lost_at_first(two)
    if has_pulled:
        pull_log(two.t["r2"])
    assert replace_lost_parts(two.t["r1"]) == ()
    both = [(1, 10), (1, 11), (2, 2)]
    assert settled(two) == (both, both)


def test_it_is_lost_when_that_one_has_looked_in_vain(two):
    """What it finds later is not taken: the part has no rows by then."""
    lost_at_first(two)
    right = two.t["r2"].other_store
    two.t["r2"].other_store = lambda *_: None
    two.t.step("r2", "fetch")
    assert replace_lost_parts(two.t["r1"]) == (BROUGHT,)
    two.t["r2"].other_store = right
    both = [(1, 11), (2, 2)]
    assert settled(two) == (both, both)


def test_a_part_that_is_lost_while_another_replica_links_its_copy_is_lost_there_too(
    two, monkeypatch
):
    """1. r2 has looked in vain. 2. r1 looks who has the part, or makes it. 3. r2 has a copy now,
    and links it. 4. r1 replaces the part. 5. r2 is about to promise it, with its rows.
    """
    lost_at_first(two)
    right = two.t["r2"].other_store
    two.t["r2"].other_store = lambda *_: None
    two.t.step("r2", "fetch")
    two.t["r2"].other_store = right
    two.t.clock.sleep_s(100.0)
    looked = lost._look(two.t["r1"], BROUGHT, pull_log(two.t["r1"], afresh=True).log_version)
    assert looked is not None
    assert not looked.making
    promised = two.t["r2"].paths.part(BROUGHT)

    def promises(op):
        return isinstance(op, Create) and op.path == promised

    found = []

    def replaced():
        with monkeypatch.context() as patch:
            patch.setattr(lost, "_look", lambda *_: looked)
            found.append(replace_lost_parts(two.t["r1"]))

    with before(two.t["r2"].keeper, promises, replaced):
        two.t.step("r2", "fetch")
    assert found == [(BROUGHT,)]
    both = [(1, 11), (2, 2)]
    assert settled(two) == (both, both)
