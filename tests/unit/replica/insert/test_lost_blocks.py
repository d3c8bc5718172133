"""An insert of several blocks of one partition, of which one is lost, and which is repeated: each
row is there once, or an error says which are and what to do (P37, P41).
"""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica import quorum
from rmt_pipeline.replica.insert.report import InsertState
from rmt_pipeline.replica.insert.result import (
    InsertInPart,
    InsertResult,
    OtherBlocks,
    OtherRows,
    Outcome,
    QuorumNotReached,
)
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.zookeeper.keeper import Delete, Op
from tests.support.local_replicas import ROOT, Replicas
from tests.support.lost_answers import before, faulty, logs

ROWS = [{"n": n} for n in range(6)]
TWOS = {"max_insert_block_size": "2", "min_insert_block_size_rows": "1"}
THREES = {"max_insert_block_size": "3", "min_insert_block_size_rows": "1"}
ONES = {"max_insert_block_size": "1", "min_insert_block_size_rows": "1"}
WHOLE: Mapping[str, str] = {}
CUTS = {"same": TWOS, "larger": THREES, "smaller": ONES, "whole": WHOLE}
QUORUM = {"insert_quorum": "2", "insert_quorum_timeout": "1000"}


def rows(replicas: Replicas, name: str) -> list[int]:
    found = replicas.table(name).dataset({"broken_parts_wait_ms": 0}).to_table()
    return sorted(found.column("n").to_pylist())


def insert(
    replicas: Replicas, cut: Mapping[str, str] = TWOS, at: str = "r1", **options: Any
) -> InsertResult:
    return replicas.table(at).insert(options.pop("rows", ROWS), settings=cut, **options)


def fetch(replicas: Replicas) -> None:
    """Whatever had failed is tried again."""
    replicas.clock.sleep_s(100.0)
    for name in ("r1", "r2"):
        replicas.step(name, "fetch")


def lose(replicas: Replicas, *parts: PartName) -> None:
    """No replica has them any more, and they become empty ones."""
    for name, part in product(("r1", "r2"), parts):
        shutil.rmtree(replicas.stores[name].directory(part))
        check_part(replicas[name], part)
    fetch(replicas)
    assert replace_lost_parts(replicas["r1"]) == parts
    fetch(replicas)


def fail(replicas: Replicas, *parts: PartName) -> None:
    """Nobody had fetched them when the server that inserted them went away."""
    pull_log(replicas["r2"])
    replicas.stop("r1")
    for part in parts:
        assert quorum.has_failed(replicas["r2"], part)
    replicas.come_back("r1")
    fetch(replicas)


def block(number: int) -> PartName:
    return PartName("all", number, number, 0)


def first_run(replicas: Replicas, what: str, token: str) -> set[int]:
    """Three blocks; the rows that are lost of them."""
    if what == "failed":
        with pytest.raises(QuorumNotReached):
            insert(replicas, {**TWOS, **QUORUM}, token=token)
        fail(replicas, block(1))
        return {2, 3}
    if what == "quorum":
        replicas.meanwhile.append(lambda: replicas.step("r2", "fetch"))
        insert(replicas, {**TWOS, **QUORUM}, token=token)
    else:
        insert(replicas, token=token)
    fetch(replicas)
    if what == "lost":
        lose(replicas, block(1))
        return {2, 3}
    if what == "all lost":
        lose(replicas, *map(block, range(3)))
        return set(range(6))
    return set()


def reports(replicas: Replicas) -> dict[str, InsertState]:
    return {one.insert_id: one.state for one in replicas.table("r1").inserts()}


@pytest.mark.parametrize("what", ["quorum", "failed", "lost", "all lost"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("token", ["", "a token"])
def test_each_row_is_there_once_or_an_error_says_which_are(
    replicas: Replicas, token: str, cut: str, what: str
) -> None:
    """Never a duplicate of which rows are missing."""
    lost, at = first_run(replicas, what, token), "r2" if token else "r1"
    there = sorted(set(range(6)) - lost)
    assert rows(replicas, "r1") == rows(replicas, "r2") == there
    for _ in range(2):
        if cut != "same" and len(lost) == 2:
            with pytest.raises(
                OtherBlocks, match=r"of which 2 are lost.* 2 rows as all_0_0, 2 ro"
            ):
                insert(replicas, CUTS[cut], at, token=token)
            fetch(replicas)
            assert rows(replicas, "r1") == rows(replicas, "r2") == there
        else:
            result = insert(replicas, CUTS[cut], at, token=token)
            assert result.rows + result.rows_duplicate == 6
            fetch(replicas)
            assert rows(replicas, "r1") == rows(replicas, "r2") == [*range(6)]
    insert(replicas, token=token)
    fetch(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [*range(6)]
    for again in CUTS.values():
        assert insert(replicas, again, at, token=token).outcome is Outcome.DUPLICATE


def test_what_has_rows_missing_says_so_until_they_are_back(replicas: Replicas) -> None:
    """However old its record is, it is not forgotten, and clean-up names it."""
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    [(insert_id, state)] = reports(replicas).items()
    assert state is InsertState.IN_PART
    replicas.clock.passed_s += 1_000_000
    replicas.insert("r1", 100)
    replicas.set(replicated_deduplication_window="1")
    done = carry_out(replicas["r2"], plan_clean_up(replicas["r2"]))
    assert (done.block_ids, done.insert_ids) == (2, 0)
    assert f"{insert_id}, begun on r1, is in part: 4 of 6 rows: insert the same" in done.words()
    assert "cut into the same blocks" in done.words()
    assert insert(replicas, token="a token").rows == 2
    assert reports(replicas)[insert_id] is InsertState.DONE
    assert rows(replicas, "r1") == [*range(6), 100]


@pytest.mark.parametrize("token", ["", "a token"])
def test_blocks_that_come_in_another_order_are_the_same(replicas: Replicas, token: str) -> None:
    """Ids by token count blocks: the missing one has the id of one that is there."""
    insert(replicas, token=token)
    fetch(replicas)
    lose(replicas, block(1))
    turned = [*ROWS[2:4], *ROWS[4:], *ROWS[:2]]
    result = insert(replicas, token=token, rows=turned)
    assert (result.outcome, result.rows, result.rows_duplicate) == (Outcome.RESUMED, 2, 4)
    assert rows(replicas, "r1") == [*range(6)]


def test_what_comes_back_has_no_other_token_s_ids(replicas: Replicas) -> None:
    """Whatever number that one begins with."""
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    for number in range(4):
        others = [{"n": 100 * (number + 1) + n} for n in range(6)]
        insert(replicas, token=f"{number}:a token", rows=others)
    assert insert(replicas, token="a token").rows == 2
    assert {*range(6)} <= {*rows(replicas, "r1")}


def test_other_rows_under_the_token_are_refused_while_some_are_missing(
    replicas: Replicas,
) -> None:
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    with pytest.raises(OtherRows, match="4 of its 6 rows, and the 5 rows"):
        insert(replicas, token="a token", rows=ROWS[:5])
    assert rows(replicas, "r1") == [0, 1, 4, 5]


def test_after_a_drop_of_the_partition_it_may_be_cut_in_any_way(replicas: Replicas) -> None:
    """As the error says."""
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    replicas.table("r1").truncate(settings={"alter_sync": "0"})
    fetch(replicas)
    assert insert(replicas, ONES, token="a token").outcome is Outcome.INSERTED
    assert rows(replicas, "r1") == [*range(6)]


def test_one_block_after_another_is_lost_and_comes_back(replicas: Replicas) -> None:
    insert(replicas, token="a token")
    for lost in (block(1), block(0), block(3)):
        fetch(replicas)
        lose(replicas, lost)
        assert insert(replicas, token="a token").rows == 2
        assert rows(replicas, "r1") == [*range(6)]
        assert insert(replicas, ONES, token="a token").outcome is Outcome.DUPLICATE


def test_what_was_inserted_between_its_blocks_is_not_forgotten(replicas: Replicas) -> None:
    """1. One of two blocks fails, and is inserted again after another insert. 2. That one's block
    is lost. The insert around it has lost nothing.
    """
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    replicas.insert("r1", 100)
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(3))
    for cut in CUTS.values():
        assert insert(replicas, cut, token="a token").outcome is Outcome.DUPLICATE
    assert replicas.insert("r1", 100) == block(5)
    assert rows(replicas, "r1") == [*range(6), 100]


def test_two_who_bring_it_back_at_once_bring_it_once(replicas: Replicas) -> None:
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    with before(
        replicas["r1"].keeper, logs, lambda: insert(replicas, at="r2", token="a token")
    ):
        assert insert(replicas, token="a token").outcome is Outcome.DUPLICATE
    fetch(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [*range(6)]


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_that_brings_it_back_and_has_no_answer_is_settled(
    replicas: Replicas, landed: bool
) -> None:
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    with faulty(replicas["r1"].keeper, logs, landed=landed):
        assert insert(replicas, token="a token").rows == 2
    assert rows(replicas, "r1") == [*range(6)]


@pytest.mark.parametrize("lose_it", [lose, fail])
def test_a_block_that_is_lost_while_another_insert_relies_on_it_is_inserted(
    replicas: Replicas, lose_it: Callable[..., None]
) -> None:
    """1. An insert finds that one of its two blocks is there, as another insert's. 2. That one is
    lost. 3. It commits: not without the rows that it was not to insert.
    """
    quorum_of = {**QUORUM, **TWOS} if lose_it is fail else TWOS
    try:
        insert(replicas, quorum_of, rows=ROWS[:2])
    except QuorumNotReached:
        assert lose_it is fail
    else:
        fetch(replicas)
    meanwhile = before(replicas["r2"].keeper, logs, lambda: lose_it(replicas, block(0)))
    with meanwhile:
        result = insert(replicas, rows=ROWS[:4], at="r2")
    assert result.rows == 4
    fetch(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [*range(4)]


@pytest.mark.parametrize("lose_it", [lose, fail])
def test_who_relies_on_a_block_while_it_is_forgotten_has_rows_missing(
    replicas: Replicas, lose_it: Callable[..., None]
) -> None:
    """1. What is to be forgotten with a block was read. 2. Another insert finds it there, and
    commits. 3. The block is lost: that insert, too, lacks its rows.
    """
    quorum_of = {**QUORUM, **TWOS} if lose_it is fail else TWOS
    try:
        insert(replicas, quorum_of, rows=ROWS[:2])
    except QuorumNotReached:
        assert lose_it is fail
    else:
        fetch(replicas)

    def forgets(op: Op) -> bool:
        return isinstance(op, Delete) and op.path.startswith(f"{ROOT}/blocks/")

    def other() -> None:
        with suppress(QuorumNotReached):
            insert(replicas, rows=ROWS[:4], at="r2")

    who = "r2" if lose_it is fail else "r1"
    with before(replicas[who].keeper, forgets, other):
        with suppress(AssertionError):  # what it found has changed: the next call does it
            lose_it(replicas, block(0))
        fetch(replicas)
        replace_lost_parts(replicas["r1"])
    fetch(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [2, 3]
    assert insert(replicas, rows=ROWS[:4]).rows == 2
    assert rows(replicas, "r1") == [*range(4)]


@pytest.mark.parametrize("cut", ["same", "smaller"])
def test_what_another_insert_brought_is_missing_in_both(replicas: Replicas, cut: str) -> None:
    insert(replicas, rows=ROWS[:2])
    insert(replicas, rows=ROWS[:4])
    fetch(replicas)
    lose(replicas, block(0))
    if cut == "smaller":
        with pytest.raises(OtherBlocks):
            insert(replicas, CUTS[cut], rows=ROWS[:4])
    assert insert(replicas, rows=ROWS[:4]).rows == 2
    assert insert(replicas, rows=ROWS[:2]).outcome is Outcome.DUPLICATE
    assert rows(replicas, "r1") == [*range(4)]


def test_ids_are_not_there_longer_than_the_record_that_they_belong_to(
    replicas: Replicas,
) -> None:
    """1. An insert in two blocks. 2. Inserts that bring no block of their own, and have records.
    3. Clean-up. 4. The first one, cut otherwise.
    """
    for row in ROWS:
        insert(replicas, rows=[row])
    insert(replicas, rows=ROWS[2:], token="a token")
    for some in (ROWS[:3], ROWS[:4], ROWS[:5]):
        replicas.clock.passed_s += 1
        assert insert(replicas, ONES, rows=some).outcome is Outcome.DUPLICATE
    replicas.set(replicated_deduplication_window="3")
    carry_out(replicas["r2"], plan_clean_up(replicas["r2"]))
    again = insert(replicas, ONES, rows=ROWS[2:], token="a token")
    assert again.outcome is Outcome.DUPLICATE


@pytest.mark.parametrize("token", ["", "a token"])
def test_a_block_that_is_twice_in_one_insert_is_kept_once_unless_a_token_tells_them_apart(
    tmp_path: Path, token: str
) -> None:
    with Replicas(tmp_path) as replicas:
        rows = [{"n": 1}, {"n": 1}, {"n": 2}]
        done = replicas.table("r1").insert(rows, token=token, settings=ONES)
        there = replicas.table("r1").dataset().to_table().column("n").to_pylist()
        assert sorted(there) == ([1, 1, 2] if token else [1, 2])
        assert (done.rows, done.rows_duplicate) == ((3, 0) if token else (2, 1))
        assert replicas.stores["r1"].staged() == []


def test_who_gives_up_before_they_are_back_is_told_how_to_cut_the_rows(
    replicas: Replicas,
) -> None:
    insert(replicas, token="a token")
    fetch(replicas)
    lose(replicas, block(1))
    keeper, inactive = replicas["r1"].keeper, [Delete(replicas["r1"].paths.is_active)]
    words = "cut into the same blocks, for some of partition all are in: only"
    with (
        before(keeper, logs, lambda: keeper.multi(inactive)),
        pytest.raises(InsertInPart, match=words),
    ):
        insert(replicas, {**TWOS, "insert_keeper_max_retries": "0"}, token="a token")
