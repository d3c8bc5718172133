"""Worlds drawn from seeds: storm, calm, every promise. `make simulate SEEDS=n` runs more."""

import pytest

from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.result import InsertResult, Outcome
from tests.simulation import run
from tests.simulation.checkers import Finished
from tests.simulation.ledger import answered_of
from tests.support.schedule import Swarm

SEEDS = 180
PER_TEST = 20
FIRST = 1


def must_hold(seed: int) -> None:
    schedule = Swarm(seed)
    failure = run.failure_of(schedule)
    if failure is not None:
        run.remember(seed, str(failure[0]))
        pytest.fail(run.report(seed, schedule, failure))


@pytest.mark.parametrize("seed", run.regressions() or [0])
def test_what_failed_once_never_fails_again(seed: int) -> None:
    must_hold(seed)


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PER_TEST))
def test_every_promise_holds_in_every_world(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        must_hold(seed)


def trace_of(seed: int) -> list[object]:
    world = run.build(Swarm(seed)).world
    world.run(run.STORM_STEPS)
    world.end()
    return list(world.trace)


def test_the_same_seed_gives_the_same_trace() -> None:
    first = trace_of(7)
    assert len(first) > run.STORM_STEPS
    assert trace_of(7) == first
    assert trace_of(8) != first


def test_dropping_a_fault_leaves_those_before_it_where_they_were() -> None:
    schedule = Swarm(10)
    run.failure_of(schedule)
    numbers = [number for number, _ in schedule.struck]
    assert len(numbers) > 4, "seed 10 has become too quiet for this test"
    kept = frozenset(numbers[:3])
    again = Swarm(10, only=kept)
    run.failure_of(again)
    assert again.struck == schedule.struck[:3]


def test_the_canary_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checker that can't be satisfied must be heard of, with its seed and its faults."""

    def canary(finished: Finished) -> None:
        assert not finished.ledger.inserts, "the canary is dead"

    monkeypatch.setattr(run, "CHECKERS", (*run.CHECKERS, canary))
    monkeypatch.setattr(run, "SHRINK_ROUNDS_MAX", 3)
    schedule = Swarm(1)
    failure = run.failure_of(schedule)
    assert failure is not None
    text = run.report(1, schedule, failure)
    assert "seed 1 fails: the canary is dead" in text
    assert "faults that matter" in text


def test_regressions_are_remembered_once(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "REGRESSIONS", run.Path(str(tmp_path)) / "regressions.txt")
    assert run.regressions() == []
    run.remember(5, "rows are missing\nmore")
    run.remember(5, "rows are missing")
    run.remember(3, "other")
    assert run.regressions() == [5, 3]


def test_a_quorum_is_checked_for_the_blocks_that_the_answer_may_be_about() -> None:
    """A record in batches does not say in its head where the rows were found."""
    first, again = PartName.parse("a_3_3_0"), PartName.parse("a_10_10_0")
    record = InsertRecord(1, "r2", "", (), blocks=1, rows=1, row_hash="", rows_in=1, batches=1)

    def duplicate(of: str) -> InsertResult:
        return InsertResult(Outcome.DUPLICATE, 0, 1, (), (("a", of),), "rows-1", record)

    by_record = duplicate("insert rows-1")
    assert answered_of(by_record, [first], set()) == [first]
    assert answered_of(by_record, [first, again], set()) == [first, again], "dropped meanwhile"
    assert answered_of(by_record, [first, again], {first}) == [again], "dropped before"
    assert answered_of(duplicate("a_3_3_0"), [first, again], set()) == [first]
    assert answered_of(duplicate("a_10_10_0"), [first, again], set()) == [again]
    made = InsertResult(Outcome.INSERTED, 1, 0, (again,), (), "rows-1")
    assert answered_of(made, [first, again], set()) == [again]
