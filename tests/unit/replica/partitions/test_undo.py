"""An insert undone: exactly its rows, on every replica, once."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from rmt_pipeline.cli import inserts as cli
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown, Unavailable, Unfinished, UserError
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.nodes.records import NO_BLOCK, InsertRecord
from rmt_pipeline.protocol.parts.name import PartName, merged
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.replica.partitions import undo as undo_module
from rmt_pipeline.replica.partitions.drop import PartIsLocked
from rmt_pipeline.replica.partitions.overwrite import RowsLost
from rmt_pipeline.replica.partitions.undo import CannotUndo, UnknownInsert
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.zookeeper.keeper import Create, SetData
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import before, faulty, logs
from tests.support.partitioned import insert, on_disk, rows, work

NOW = QuerySettings(alter_sync=0)
BY_ROW = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=partitioned) as opened:
        yield opened


def undo(replicas, result, at="r1"):
    return replicas.table(at).undo(result.insert_id, settings=NOW)


def drops(op):
    """The multi that decides it."""
    return logs(op) and b"drop\n" in op.data


def active(replicas):
    return [str(part.name) for part in replicas.table("r2").parts()]


def log_of(replicas):
    return replicas["r1"].keeper.children(replicas["r1"].table.log)


def ids_of(replicas):
    replica = replicas["r1"]
    return sorted(
        [
            *replica.keeper.children(replica.table.blocks),
            *replica.keeper.children(replica.table.inserts),
        ]
    )


@pytest.mark.parametrize("token", ["", "a token"])
def test_its_rows_go_on_every_replica_and_can_be_inserted_again(replicas, token):
    insert(replicas, (1, 1), (2, 2), token=token and "another")
    known = ids_of(replicas)
    wrong = insert(replicas, (1, 3), (3, 3), token=token)
    work(replicas)
    plan = replicas.table("r2").plan_undo(wrong.insert_id)
    assert (plan.rows, [*map(str, plan.parts)], plan.refusal) == (2, ["1_1_1_0", "3_0_0_0"], "")
    assert "2 rows now are in 2 parts (1_1_1_0, 3_0_0_0)" in plan.words()
    assert rows(replicas) == [(1, 1), (1, 3), (2, 2), (3, 3)]  # nothing was done yet
    undone = undo(replicas, wrong, at="r2")
    assert (undone.rows, undone.parts, undone.size_bytes) == (
        2,
        plan.parts,
        plan.size_bytes,
    )
    assert ids_of(replicas) == known
    work(replicas)
    assert ids_of(replicas) == known
    for name in ("r1", "r2"):
        assert rows(replicas, name) == [(1, 1), (2, 2)]
        assert on_disk(replicas, name) == ["1_0_0_0", "2_0_0_0"]
    again = insert(replicas, (1, 3), (3, 3), token=token)
    assert again.outcome is Outcome.INSERTED
    work(replicas)
    assert rows(replicas, "r2") == [(1, 1), (1, 3), (2, 2), (3, 3)]


def test_it_is_undone_once(replicas):
    wrong = insert(replicas, (1, 1))
    undo(replicas, wrong)
    with pytest.raises(UnknownInsert, match="it was undone"):
        undo(replicas, wrong, at="r2")
    with pytest.raises(UnknownInsert, match="no insert 'no-such'"):
        replicas.table("r1").undo("no-such")


def test_it_is_waited_for_as_alter_sync_says(replicas):
    wrong = insert(replicas, (1, 1))
    impatient = QuerySettings(alter_sync=1, receive_timeout=0)
    with pytest.raises(Unfinished, match="have not done it yet: r1"):
        replicas.table("r1").undo(wrong.insert_id, settings=impatient)
    work(replicas)
    assert rows(replicas, "r1") == []


def test_what_was_inserted_again_before_the_drop_is_carried_out_stays(replicas):
    wrong = insert(replicas, (1, 1))
    undo(replicas, wrong)
    assert insert(replicas, (1, 1)).outcome is Outcome.INSERTED
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1)]
    assert insert(replicas, (1, 1)).outcome is Outcome.DUPLICATE


def test_parts_of_its_own_that_were_merged_go(replicas):
    insert(replicas, (1, 1))
    wrong = insert(replicas, (1, 2), (1, 3), (1, 4), settings=BY_ROW)
    insert(replicas, (1, 5))
    merge(replicas, "1_1_1_0", "1_3_3_0")
    assert active(replicas) == ["1_0_0_0", "1_1_3_1", "1_4_4_0"]
    assert undo(replicas, wrong).rows == 3
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1), (1, 5)]


def merge(replicas, first, last):
    """The parts between these two become one, everywhere."""
    replica = replicas["r1"]
    low, high = PartName.parse(first), PartName.parse(last)
    sources = tuple(
        part
        for part in replicas.stores["r1"].parts()
        if part.partition == low.partition
        and low.block_min <= part.block_min
        and part.block_max <= high.block_max
    )
    entry = MergeParts(
        create_time=0,
        source_replica="r1",
        entry_id="",
        result=merged(sources),
        sources=sources,
    )
    replica.keeper.multi([Create(replica.table.log_prefix, encode(entry), sequence=True)])
    work(replicas)


def test_rows_that_were_merged_with_others_are_refused(replicas):
    insert(replicas, (1, 1))
    wrong = insert(replicas, (1, 2), (2, 2))
    log = log_of(replicas)
    optimize_partition(replicas["r1"], "1", final=False, skip_merged=False)
    before_it = rows(replicas)
    with pytest.raises(CannotUndo, match="are going to be merged with those of other inserts"):
        undo(replicas, wrong)
    work(replicas)
    with pytest.raises(CannotUndo, match=r"into 1_0_1_1.*DELETE WHERE.*Nothing was changed"):
        undo(replicas, wrong, at="r2")
    assert rows(replicas, "r2") == before_it
    assert len(log_of(replicas)) == len(log) + 1  # the merge
    assert insert(replicas, (1, 2), (2, 2)).outcome is Outcome.DUPLICATE


def test_rows_that_were_merged_with_later_ones_are_refused(replicas):
    wrong = insert(replicas, (1, 1))
    insert(replicas, (1, 2))
    optimize_partition(replicas["r1"], "1", final=False, skip_merged=False)
    work(replicas)
    with pytest.raises(CannotUndo, match=r"into 1_0_1_1.*Nothing was changed"):
        undo(replicas, wrong)
    assert rows(replicas) == [(1, 1), (1, 2)]


def test_a_merge_that_is_assigned_meanwhile_is_seen(replicas):
    insert(replicas, (1, 1))
    wrong = insert(replicas, (1, 2))
    work(replicas)
    with (
        before(
            replicas["r2"].keeper,
            drops,
            lambda: optimize_partition(replicas["r1"], "1", final=False, skip_merged=False),
        ),
        pytest.raises(CannotUndo, match="going to be merged"),
    ):
        undo(replicas, wrong, at="r2")
    work(replicas)
    assert rows(replicas, "r2") == [(1, 1), (1, 2)]


def test_rows_that_were_mutated_go_and_no_others(replicas):
    insert(replicas, (1, 1))
    wrong = insert(replicas, (1, 2), (1, 3))
    replicas.table("r1").mutate("DELETE WHERE n = 3", settings=QuerySettings(mutations_sync=0))
    assign_mutations(replicas["r1"])
    work(replicas)
    assert active(replicas) == ["1_0_0_0_2", "1_1_1_0_2"]
    plan = replicas.table("r1").plan_undo(wrong.insert_id)
    assert plan.rows == 1
    undo(replicas, wrong)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1)]


def test_a_part_that_is_being_mutated_is_for_later(replicas):
    wrong = insert(replicas, (1, 2), (1, 3))
    replicas.table("r1").mutate("DELETE WHERE n = 3", settings=QuerySettings(mutations_sync=0))
    assign_mutations(replicas["r1"])
    with pytest.raises(PartIsLocked, match="Try again"):
        undo(replicas, wrong)
    work(replicas)
    undo(replicas, wrong)
    work(replicas)
    assert rows(replicas, "r2") == []


def test_a_part_that_is_not_here_yet_is_for_later(replicas):
    """Its rows were not removed: they are still to be fetched."""
    wrong = insert(replicas, (1, 2))
    pull_log(replicas["r2"])
    with pytest.raises(PartIsLocked, match=r"1_0_0_0 is not here yet\. Try again"):
        undo(replicas, wrong, at="r2")
    work(replicas)
    undo(replicas, wrong, at="r2")
    work(replicas)
    assert rows(replicas, "r1") == []


def test_rows_that_another_insert_had_are_that_one_s(replicas):
    """Between the first and the last block that has rows of it are the blocks of a third insert."""
    insert(replicas, (1, 1), settings=BY_ROW)
    insert(replicas, (1, 2), settings=BY_ROW)
    wrong = insert(replicas, (1, 1), (1, 3), settings=BY_ROW)
    lines = record_of(replicas, wrong).partitions
    held = {(line.first, line.last, line.own_first, line.own_last) for line in lines}
    assert held == {(0, 0, NO_BLOCK, NO_BLOCK), (2, 2, 2, 2)}
    undo(replicas, wrong)
    work(replicas)
    assert rows(replicas, "r2") == [(1, 1), (1, 2)]


def test_a_plan_says_which_run_inserted_it(replicas):
    ours = insert(replicas, (1, 1), run_id="nightly")
    mine = insert(replicas, (1, 2))
    table = replicas.table("r1")
    assert " 1 rows on r1 by run nightly at " in table.plan_undo(ours.insert_id).words()
    assert " 1 rows on r1 at " in table.plan_undo(mine.insert_id).words()


def test_partitions_without_a_row_of_it_go_with_the_first_commit(replicas, monkeypatch):
    """The last one has an entry: so it is found out whether it happened when nobody answers."""
    for p in range(12):
        insert(replicas, (p, 1), settings=BY_ROW)
    wrong = insert(
        replicas,
        *((p, n) for p in range(12) for n in ((1, 2) if p in (0, 5) else (1,))),
        settings=BY_ROW,
    )
    work(replicas)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 1200)
    multi = replicas["r1"].keeper.multi
    record = replicas["r1"].table.insert(wrong.insert_id)
    empty = []

    def noting(ops):
        if any(op.path == record for op in ops):
            empty.append(not any(map(drops, ops)))
        return multi(ops)

    replicas["r1"].keeper.multi = noting
    assert undo(replicas, wrong).rows == 2
    assert len(empty) > 1
    assert empty == sorted(empty, reverse=True)
    work(replicas)
    assert rows(replicas, "r2") == [(p, 1) for p in range(12)]


def test_an_insert_that_brought_nothing_is_not_undone(replicas):
    insert(replicas, (1, 1), settings=BY_ROW)
    insert(replicas, (1, 2), settings=BY_ROW)
    nothing = insert(replicas, (1, 1), (1, 2), settings=BY_ROW)
    with pytest.raises(CannotUndo, match="no rows of its own"):
        undo(replicas, nothing)
    assert rows(replicas) == [(1, 1), (1, 2)]


def record_of(replicas, result):
    replica = replicas["r1"]
    [read] = replica.keeper.get_many([replica.table.insert(result.insert_id)])
    return InsertRecord.decode(read[0])


def test_an_insert_that_shared_its_rows_can_be_said_again_too(replicas):
    """The rows that both had go with the first one; the second would be answered as a duplicate of
    rows that are not there.
    """
    first = insert(replicas, (1, 1), settings=BY_ROW)
    both = insert(replicas, (1, 1), (2, 2), settings=BY_ROW)
    undo(replicas, first)
    again = insert(replicas, (1, 1), (2, 2), settings=BY_ROW)
    assert (again.outcome, again.rows) == (Outcome.RESUMED, 1)
    assert again.insert_id == both.insert_id
    work(replicas)
    assert rows(replicas, "r2") == [(1, 1), (2, 2)]


def test_an_insert_that_shared_rows_of_a_partition_lacks_them(replicas):
    """It has other rows there: it is not taken for whole, and brings back what went."""
    first = insert(replicas, (1, 1), settings=BY_ROW)
    both = insert(replicas, (1, 1), (1, 2), settings=BY_ROW)
    undo(replicas, first)
    work(replicas)
    assert record_of(replicas, both).missing == (("1", 1),)
    again = insert(replicas, (1, 1), (1, 2), settings=BY_ROW)
    assert (again.outcome, again.rows) == (Outcome.RESUMED, 1)
    work(replicas)
    assert rows(replicas, "r2") == [(1, 1), (1, 2)]
    assert insert(replicas, (1, 1), settings=BY_ROW).outcome is Outcome.DUPLICATE


def test_a_replacement_whose_rows_were_there_and_were_undone_is_done_again(replicas):
    """Of one of its two partitions it can't be, and that is said."""
    inserts = [insert(replicas, (1, 1)), insert(replicas, (2, 2))]
    work(replicas)

    def replaced():
        return replicas.table("r1").replace(
            [{"p": 1, "n": 1}, {"p": 2, "n": 2}], token="t", settings=NOW
        )

    assert replaced().is_duplicate
    undo(replicas, inserts[0])
    work(replicas)
    with pytest.raises(RowsLost, match=r"1 rows in partition 1 are lost.* was undone"):
        replaced()
    undo(replicas, inserts[1])
    work(replicas)
    assert not replaced().is_duplicate
    assert rows(replicas) == [(1, 1), (2, 2)]


def test_rows_that_a_replacement_wrote_anew_are_refused(replicas):
    wrong = insert(replicas, (1, 1))
    replicas.table("r1").replace([{"p": 1, "n": 9}], where="n = 9", settings=NOW)
    work(replicas)
    with pytest.raises(CannotUndo, match="other rows of the parts that had them were replaced"):
        undo(replicas, wrong)
    assert rows(replicas) == [(1, 1), (1, 9)]


def test_a_replacement_is_no_insert(replicas):
    insert(replicas, (1, 1))
    replicas.table("r1").replace([{"p": 1, "n": 9}], where="n = 9", token="t", settings=NOW)
    work(replicas)
    [replacement] = [one for one in ids_of(replicas) if one.startswith("replace-")]
    with pytest.raises(CannotUndo, match="replace them once more"):
        replicas.table("r1").undo(replacement)


@pytest.mark.parametrize("landed", [True, False])
def test_without_an_answer_it_is_found_out(replicas, landed):
    insert(replicas, (1, 1))
    wrong = insert(replicas, (1, 2), (2, 2))
    with faulty(replicas["r1"].keeper, drops, landed=landed):
        assert undo(replicas, wrong).rows == 2
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 1)]
    assert insert(replicas, (1, 2), (2, 2)).outcome is Outcome.INSERTED


def test_an_insert_of_more_than_one_commit_goes_some_partitions_at_a_time(
    replicas, monkeypatch
):
    insert(replicas, (1, 100))
    wrong = insert(replicas, *((p, p) for p in range(12)), token="t")
    sizes = []
    multi = replicas["r1"].keeper.multi

    def counting(ops):
        if any(map(drops, ops)):
            sizes.append(sum(map(drops, ops)))
        return multi(ops)

    replicas["r1"].keeper.multi = counting
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 6000)
    undone = undo(replicas, wrong)
    assert undone.rows == 12
    assert len(undone.parts) == 12
    assert sum(sizes) == 12
    assert len(sizes) > 1
    work(replicas)
    assert rows(replicas, "r2") == [(1, 100)]
    with pytest.raises(UnknownInsert):
        undo(replicas, wrong)


def test_dying_between_two_commits_leaves_what_can_be_undone_or_inserted(replicas, monkeypatch):
    wrong = insert(replicas, *((p, p) for p in range(12)), token="t")
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 6000)
    multi = replicas["r1"].keeper.multi
    left = [1]

    def dies(ops):
        if any(map(drops, ops)):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        return multi(ops)

    replicas["r1"].keeper.multi = dies
    with pytest.raises(KeyboardInterrupt):
        undo(replicas, wrong)
    replicas["r1"].keeper.multi = multi
    work(replicas)
    there = rows(replicas, "r2")
    assert 0 < len(there) < 12
    assert replicas.table("r2").plan_undo(wrong.insert_id).rows == len(there)
    undo(replicas, wrong, at="r2")
    work(replicas)
    assert rows(replicas, "r1") == []


@pytest.mark.parametrize("forgets", [True, False])
def test_what_went_before_an_error_is_said(replicas, monkeypatch, forgets):
    """Whichever: it read that nothing was changed, or nothing of what was."""
    wrong = insert(replicas, *((p, p) for p in range(12)), token="t")
    work(replicas)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 6000)
    left, fitting = [], undo_module._fitting

    def ids_do_not_fit(*given):
        left.append(replace(fitting(*given), leaves_ids=True))
        return left[-1]

    def fails(*_):
        raise OutcomeUnknown("nobody there")

    error = Unavailable("no answer. Nothing was changed")
    with monkeypatch.context() as patch:
        if not forgets:
            patch.setattr(undo_module, "_fitting", ids_do_not_fit)
            patch.setattr(undo_module, "forget_lost", fails)
        with (
            faulty(replicas["r1"].keeper, drops, landed=False, error=error, after=1),
            pytest.raises(
                Unavailable, match=r"parts \(.* are dropped, .* rest .* no answer"
            ) as told,
        ):
            undo(replicas, wrong)
    assert ("a duplicate of them: nobody there" in str(told.value)) is not forgets
    work(replicas)
    assert 0 < len(rows(replicas, "r2")) < 12
    undo(replicas, wrong)
    work(replicas)
    assert rows(replicas, "r2") == []


def test_what_went_before_it_was_refused_is_said(replicas, monkeypatch):
    """1. Some partitions go. 2. Rows of the others are merged with those of another insert."""
    insert(replicas, *((p, 100) for p in range(12)))
    wrong = insert(replicas, *((p, p) for p in range(12)), token="t")
    work(replicas)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 6000)
    multi, decided = replicas["r1"].keeper.multi, []

    def merged_then(ops):
        if any(map(drops, ops)):
            decided.append(sum(map(drops, ops)))
        if len(decided) == 2:
            monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 60000)
            for p in range(12):
                optimize_partition(replicas["r2"], str(p), final=False, skip_merged=False)
        return multi(ops)

    replicas["r1"].keeper.multi = merged_then
    with pytest.raises(CannotUndo, match=r"parts \(0_1_1_0, .* of it were dropped") as error:
        undo(replicas, wrong)
    replicas["r1"].keeper.multi = multi
    assert "Nothing was changed" not in str(error.value)
    work(replicas)
    assert len(rows(replicas)) == 24 - decided[0]


def test_what_it_has_in_a_partition_goes_at_once(replicas, monkeypatch):
    """Between its blocks there is another insert's, for one was lost and is there again."""
    wrong = insert(replicas, (1, 1), (1, 2), token="t", settings=BY_ROW)
    work(replicas)
    lose(replicas, "1_0_0_0")
    insert(replicas, (1, 100))
    insert(replicas, (1, 1), (1, 2), token="t", settings=BY_ROW)
    work(replicas)
    assert rows(replicas) == [(1, 1), (1, 2), (1, 100)]
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 1)
    dies = faulty(replicas["r1"].keeper, drops, landed=True, error=KeyboardInterrupt())
    with dies, pytest.raises(KeyboardInterrupt):
        undo(replicas, wrong)
    monkeypatch.undo()
    work(replicas)
    insert(replicas, (1, 1), (1, 2), token="t", settings=BY_ROW)
    work(replicas)
    assert rows(replicas) == [(1, 1), (1, 2), (1, 100)]


def test_its_rows_can_be_inserted_once_it_is_answered_although_its_ids_did_not_fit(
    replicas, monkeypatch
):
    """No replica has carried it out yet, and nobody is told that they are there."""
    wrong = insert(replicas, (1, 1), (1, 2), settings=BY_ROW)
    work(replicas)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 1)
    undo(replicas, wrong)
    monkeypatch.undo()
    again = insert(replicas, (1, 1), (1, 2), settings=BY_ROW)
    assert again.outcome is Outcome.INSERTED
    work(replicas)
    assert rows(replicas) == rows(replicas, "r2") == [(1, 1), (1, 2)]


def test_who_could_not_forget_its_ids_is_told_that_it_is_not_finished(replicas, monkeypatch):
    """It is in the log: it was an error after which nothing is changed."""
    wrong = insert(replicas, (1, 1), (1, 2), settings=BY_ROW)
    work(replicas)

    def fails(*_):
        raise OutcomeUnknown("no answer")

    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 1)
    monkeypatch.setattr(undo_module, "forget_lost", fails)
    with pytest.raises(Unfinished, match=r"in the log .* a duplicate of them: no answer"):
        undo(replicas, wrong)
    monkeypatch.undo()
    work(replicas)
    assert rows(replicas) == rows(replicas, "r2") == []


def lose(replicas, name):
    """No replica has the part any more, and it becomes an empty one."""
    part = PartName.parse(name)
    for replica in ("r1", "r2"):
        shutil.rmtree(replicas.stores[replica].directory(part))
        check_part(replicas[replica], part)
    fetch(replicas)
    assert replace_lost_parts(replicas["r1"]) == (part,)
    fetch(replicas)


def fetch(replicas):
    """Whatever had failed is tried again."""
    replicas.clock.sleep_s(100.0)
    for name in ("r1", "r2"):
        replicas.step(name, "fetch")


def test_an_insert_that_is_in_part_is_undone(replicas, monkeypatch):
    """Whoever was at it and comes back is refused, or begins anew: nothing of it stays behind."""
    monkeypatch.setattr(limits, "INSERT_BYTES_MAX", 1500)
    commits = []
    multi = replicas["r1"].keeper.multi

    def dies(ops):
        if any(map(logs, ops)):
            commits.append(1)
            if len(commits) == 2:
                raise KeyboardInterrupt
        return multi(ops)

    replicas["r1"].keeper.multi = dies
    with pytest.raises(KeyboardInterrupt):
        insert(replicas, *((p, p) for p in range(6)), token="t")
    replicas["r1"].keeper.multi = multi
    assert 0 < len(rows(replicas)) < 6
    [insert_id] = [one for one in ids_of(replicas) if one.startswith("token-")]
    replicas.table("r1").undo(insert_id, settings=NOW)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == []
    assert ids_of(replicas) == []
    assert insert(replicas, *((p, p) for p in range(6)), token="t").rows == 6


def test_a_record_of_an_older_version_does_not_say_what_is_its_own(replicas):
    wrong = insert(replicas, (1, 1))
    replica = replicas["r1"]
    path = replica.table.insert(wrong.insert_id)
    text = record_of(replicas, wrong).encode()
    older = text.replace(b"version: 4", b"version: 3").replace(b"\t0\t0\t0\t0\n", b"\t0\t0\n")
    assert older != text
    replica.keeper.multi([SetData(path, older)])
    with pytest.raises(CannotUndo, match="older version"):
        undo(replicas, wrong)
    assert rows(replicas) == [(1, 1)]


@pytest.fixture
def typed(replicas, monkeypatch):
    """`rmt undo …`: the exit status."""

    @contextmanager
    def opened(config, server, purpose):
        yield []

    tables = [(None, replicas.table(name)) for name in ("r1", "r2")]
    for _, table in tables:
        table.undo = partial(table.undo, settings=NOW)  # nobody works the queues meanwhile
    monkeypatch.setattr(cli, "opened_servers", opened)
    monkeypatch.setattr(cli, "tables_of", lambda contexts, table: tables)

    def run(insert_id="", token="", **options):
        return cli.run_undo(
            None, None, None, insert_id, token, **{"is_meant": False, **options}
        )

    return run


def test_typed_it_is_said_first_and_done_when_it_is_meant(replicas, typed, capsys):
    insert(replicas, (1, 1))
    wrong = insert(replicas, (1, 2), token="t")
    work(replicas)
    assert typed(token="t") == 0
    said = capsys.readouterr().out
    assert said.startswith(f"default.t: insert {wrong.insert_id}, 1 rows on r1 at ")
    assert said.endswith("nothing was changed: --yes undoes it\n")
    assert said.count("\n") == 2  # of one table, whose second replica says the same
    assert rows(replicas) == [(1, 1), (1, 2)]
    with pytest.raises(UserError, match="which insert"):
        typed()
    with pytest.raises(UnknownInsert):
        typed("no-such", is_meant=True)
    assert typed(wrong.insert_id, is_meant=True) == 0
    assert "is undone: 1 rows in 1 part (1_1_1_0) are dropped" in capsys.readouterr().out
    work(replicas)
    assert rows(replicas, "r2") == [(1, 1)]


def test_typed_it_says_why_not(replicas, typed, capsys):
    insert(replicas, (1, 1))
    wrong = insert(replicas, (1, 2))
    optimize_partition(replicas["r1"], "1", final=False, skip_merged=False)
    assert typed(wrong.insert_id, is_meant=True) == 1
    assert (
        "are going to be merged with those of other inserts into 1_0_1_1"
        in capsys.readouterr().out
    )
