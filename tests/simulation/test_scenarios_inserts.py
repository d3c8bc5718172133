"""Scenarios of inserts that are too large for one commit, and of what inserts leave in a session
that goes on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import OutcomeUnknown, TableIsReadOnly
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.insert.result import InsertInPart, InsertResult, Outcome
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.zookeeper.keeper import Delete
from tests.simulation.dropping import drop
from tests.simulation.scene import Scene, commits
from tests.support.cluster import SETTINGS, TABLE, Context
from tests.support.lost_answers import allocates, before, faulty, logs, unlocks
from tests.support.sim_rows import stage_rows

ONCE = QuerySettings(insert_keeper_max_retries=0)
Blocks = Mapping[str, Sequence[Sequence[str]]]
WHOLE: Blocks = {"a": [["a0", "a1"]], "b": [["b0", "b1"]]}
CUT: Blocks = {"a": [["a0"], ["a1"]], "b": [["b0"], ["b1"]]}
ROWS = ["a0", "a1", "b0", "b1"]


def inserting(
    blocks: Blocks, token: str = "a token", settings: QuerySettings | None = None
) -> Callable[[Context], InsertResult]:
    def insert(context: Context) -> InsertResult:
        now_s = int(context.clock.now_s())
        staged = [
            stage_rows(context.store, partition, rows, created_s=now_s)
            for partition, cut in blocks.items()
            for rows in cut
        ]
        return context.table().commit(staged, token=token, settings=settings)

    return insert


@contextmanager
def one_partition_in_each_commit() -> Iterator[None]:
    fits, limits.INSERT_BYTES_MAX = limits.INSERT_BYTES_MAX, 1
    try:
        yield
    finally:
        limits.INSERT_BYTES_MAX = fits


def ends_in_part(scene: Scene) -> None:
    """A DROP cancels its second commit."""

    def insert(context: Context) -> None:
        keeper, seen = context.keeper(), []

        def drop() -> None:
            [lock] = scene.children(TABLE.partition("b"))
            keeper.multi([Delete(f"{TABLE.partition('b')}/{lock}")])

        def second(op: object) -> bool:
            seen.extend([op] if logs(op) else [])  # type: ignore[arg-type]
            return len(seen) > 1

        with before(keeper, second, drop):
            inserting(WHOLE, settings=ONCE)(context)

    with one_partition_in_each_commit(), pytest.raises(InsertInPart, match="2 of 4 rows"):
        scene.do("r1", insert)


def logged(scene: Scene) -> int:
    return len(scene.children(TABLE.log))


def rows_everywhere(scene: Scene) -> list[str]:
    scene.work("r1", "r2")
    assert scene.rows("r1") == scene.rows("r2")
    return scene.rows("r1")


def test_a_retry_that_is_cut_otherwise_inserts_what_is_missing() -> None:
    """P37. Although ids of blocks have aged; and the retry's own are those of other rows."""
    with Scene() as scene:
        ends_in_part(scene)
        for block_id in scene.children(TABLE.blocks):
            scene.do(
                "r2",
                lambda context, one=block_id: context.keeper().multi(
                    [Delete(TABLE.block(one))]
                ),
            )
        result = scene.do("r2", inserting(CUT))
        assert (result.outcome, result.rows, result.rows_duplicate) == (Outcome.RESUMED, 2, 2)
        assert rows_everywhere(scene) == ROWS
        assert scene.do("r1", inserting(CUT)).outcome is Outcome.DUPLICATE


def test_an_insert_in_part_is_not_forgotten() -> None:
    """P22, P37."""

    def forget(context: Context) -> str:
        settings = TableSettings.of({**SETTINGS, "replicated_deduplication_window": "1"})
        replica = replace(context.replica(), settings=settings)
        return carry_out(replica, plan_clean_up(replica)).words()

    with Scene() as scene:
        ends_in_part(scene)
        for number in range(3):
            scene.do("r2", inserting({"a": [[f"x{number}"]]}, token=f"other {number}"))
        assert "is in part: 2 of 4 rows" in scene.do("r2", forget)
        assert len(scene.children(TABLE.inserts)) == 2
        scene.do("r2", inserting(CUT))
        assert rows_everywhere(scene) == [*ROWS, "x0", "x1", "x2"]


def test_of_two_tries_that_go_on_from_one_place_only_one_does() -> None:
    """P37. One stands before its second commit while the other completes the insert."""
    with Scene() as scene, one_partition_in_each_commit():
        seen: list[object] = []

        def second(op: object) -> bool:
            seen.extend([op] if commits(op) else [])  # type: ignore[arg-type]
            return len(seen) > 1

        held = scene.hold("r1", inserting(WHOLE), second)
        result = scene.do("r2", inserting(CUT))
        assert (result.rows, result.rows_duplicate) == (2, 2)
        first = scene.release(held)
        assert (first.rows, first.rows_duplicate) == (2, 2)
        assert rows_everywhere(scene) == ROWS


def test_what_is_dropped_of_an_insert_in_part_does_not_leave_it_in_part() -> None:
    """P37. 1. Partition a of {a, b} is in. 2. It is dropped. 3. b is in: all of it was inserted.
    Else its record stayed for ever, and people were told to say it again, by which what they had
    dropped would come back.
    """
    with Scene() as scene, one_partition_in_each_commit():
        seen: list[object] = []

        def second(op: object) -> bool:
            seen.extend([op] if commits(op) else [])  # type: ignore[arg-type]
            return len(seen) > 1

        held = scene.hold("r1", inserting(WHOLE), second)
        scene.do("r2", drop("a"))
        assert scene.release(held).rows == 4
        [record] = scene.children(TABLE.inserts)
        assert InsertRecord.decode(scene.nodes[TABLE.insert(record)].data).is_whole
        assert rows_everywhere(scene) == ["b0", "b1"]


def test_two_cuts_of_one_token_at_once_insert_it_once() -> None:
    """P37. Ids by token count blocks: the first one of another cut is called as the first of this
    one, and has other rows.
    """
    with Scene() as scene:
        held = scene.hold("r1", inserting(CUT), commits)
        scene.do("r2", inserting(WHOLE))
        assert scene.release(held).outcome is Outcome.DUPLICATE
        assert rows_everywhere(scene) == ROWS


def in_flight(scene: Scene) -> list[str]:
    return [lock for one in "ab" for lock in scene.children(TABLE.partition(one))]


def test_a_refused_commit_gives_its_numbers_back_while_its_session_lives() -> None:
    def refused(context: Context) -> list[str]:
        keeper, gone = context.keeper(), Delete(TABLE.replica("r1").is_active)
        with before(keeper, logs, lambda: keeper.multi([gone])), pytest.raises(TableIsReadOnly):
            inserting(WHOLE, settings=ONCE)(context)
        return in_flight(scene)

    with Scene() as scene:
        assert scene.do("r1", refused) == []


def test_what_has_no_answer_leaves_no_number_in_a_session_that_goes_on() -> None:
    """P5. The allocation, and the commit of who gives up. The last contact is any request."""

    def unanswered(context: Context) -> list[str]:
        keeper = context.keeper()
        for what, landed in ((allocates, True), (logs, False)):
            token = f"{what.__name__} {landed}"
            with faulty(keeper, what, landed=landed), pytest.raises(OutcomeUnknown):
                inserting(WHOLE, token=token, settings=ONCE)(context)
            assert keeper.exists(TABLE.root) is not None
            assert in_flight(scene) == [], token
        return in_flight(scene)

    with Scene() as scene:
        assert scene.do("r1", unanswered) == []


def test_numbers_that_are_given_back_without_an_answer_are_not_held() -> None:
    """P5. After a commit that was refused."""

    def refused(context: Context) -> list[str]:
        keeper, gone = context.keeper(), Delete(TABLE.replica("r1").is_active)
        with (
            before(keeper, logs, lambda: keeper.multi([gone])),
            faulty(keeper, unlocks, but=logs, landed=False),
            pytest.raises(TableIsReadOnly),
        ):
            inserting(WHOLE, settings=ONCE)(context)
        assert keeper.exists(TABLE.root) is not None
        return in_flight(scene)

    with Scene() as scene:
        assert scene.do("r1", refused) == []
