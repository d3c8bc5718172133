"""A command that can't be carried out now is tried again; who waits is told why, and nobody waits
for what only a person can mend.
"""

import re
import warnings
from collections.abc import Callable
from functools import partial
from itertools import accumulate, takewhile

import pytest

from rmt_pipeline.protocol.errors import (
    Conflict,
    NoNextSession,
    OutcomeUnknown,
    ReplicaDropped,
    RmtError,
    TableIsReadOnly,
)
from rmt_pipeline.protocol.refusal import ReadOnlyReason
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.tries import StillTrying, Tries
from rmt_pipeline.zookeeper.keeper import Delete
from tests.support.local_replicas import Replicas, StillClock

READ_ONLY = TableIsReadOnly("t is not active")


@pytest.fixture
def replicas(tmp_path):
    with Replicas(tmp_path) as opened:
        yield opened


def tries_of(clock: StillClock, why: Callable[[], ReadOnlyReason | None]) -> Tries:
    return Tries("INSERT into t", QuerySettings(), clock, why)


def inactive(replicas: Replicas) -> None:
    """Nobody may write to r1; the session of who inserts lives."""
    replicas.zookeeper.connect().multi([Delete(replicas["r1"].paths.is_active)])


def pause_until_ended(tries: Tries, *, is_pending: bool = False) -> RmtError:
    while (ended := tries.pause(READ_ONLY, is_pending=is_pending)) is None:
        pass
    return ended


def stopped() -> ReadOnlyReason:
    return ReadOnlyReason("Server r1 does not run")


def test_an_insert_into_a_read_only_table_says_within_a_second_or_two_why_it_waits(replicas):
    inactive(replicas)
    clock, told_at = replicas.clock, []

    def tell(words: object, *_: object, **__: object) -> None:
        told_at.append((str(words), clock.monotonic_s()))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = tell
        with pytest.raises(TableIsReadOnly, match="not active"):
            replicas.table("r1").insert([{"n": 1}])
    [(words, told_s)] = told_at
    assert "INSERT into default.t waits, and is tried again for up to" in words
    assert "not active" in words
    assert told_s < 1.5
    assert clock.monotonic_s() > 60, "it was tried again, as the settings say"
    assert replicas.stores["r1"].staged() == []


@pytest.mark.parametrize("most", [5, 1030, 10**6, 2**64 - 1])
def test_any_number_of_retries_may_be_asked_for(replicas, most):
    """Numbers with thousands of digits were computed, which ended each INSERT."""
    asked = {"insert_keeper_max_retries": most}
    assert replicas.table("r1").insert([{"n": 1}], settings=asked).rows == 1
    tries = Tries("INSERT into t", QuerySettings(**asked), replicas.clock)
    for _ in range(5):
        assert tries.pause(READ_ONLY) is None
    assert replicas.clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert (tries.pause(READ_ONLY) is None) == (most > 5)


@pytest.mark.parametrize("is_pending", [False, True])
def test_what_goes_on_in_no_other_session_is_not_tried_again(replicas, is_pending):
    """An ATTACH ON CLUSTER, whose session ended, was tried for minutes, and held up all others."""
    tries, over = Tries("ATTACH", QuerySettings(), replicas.clock), NoNextSession("over")
    assert tries.pause(over, is_pending=is_pending) is over
    assert replicas.clock.slept == []


def test_an_insert_into_a_replica_that_was_dropped_fails_at_once(replicas):
    table = replicas.table("r1")
    inactive(replicas)
    drop_replica(replicas.zookeeper.connect(), replicas["r1"].table, "r1")
    with pytest.raises(ReplicaDropped):
        table.insert([{"n": 1}])
    assert replicas.clock.slept == [0.1], "it looks once more"
    assert replicas.stores["r1"].staged() == []


def test_what_only_a_person_can_mend_is_not_waited_for():
    clock = StillClock()
    tries = tries_of(
        clock, partial(ReadOnlyReason, "Server r1 says why: 9 parts are broken", True)
    )
    ended = pause_until_ended(tries)
    assert isinstance(ended, TableIsReadOnly)
    assert str(ended) == "t is not active. Server r1 says why: 9 parts are broken"
    assert clock.monotonic_s() < 1.5


def test_what_was_sent_without_an_answer_is_tried_to_the_end():
    """Only a later try can tell whether it landed."""
    clock = StillClock()
    tries = tries_of(clock, partial(ReadOnlyReason, "broken", True))
    with pytest.warns(StillTrying, match="broken"):
        pause_until_ended(tries, is_pending=True)
    assert clock.monotonic_s() > 60


def test_each_reason_is_told_once():
    tries = tries_of(StillClock(), stopped)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for error in [READ_ONLY] * 12 + [OutcomeUnknown("no answer")] * 20:
            ended = tries.pause(error)
    assert ended is not None
    first, second = (str(one.message) for one in told)
    assert first.endswith("t is not active. Server r1 does not run")
    assert second.endswith("no answer")


def test_how_long_it_is_tried_again_is_what_is_left_of_all_pauses():
    clock = StillClock()
    with pytest.warns(StillTrying) as told:
        pause_until_ended(tries_of(clock, stopped))
    said = re.search(r"for up to (\d+) s", str(told[0].message))
    assert said is not None
    paused_before = sum(takewhile(lambda so_far: so_far < 1.0, accumulate(clock.slept)))
    assert float(said[1]) == pytest.approx(sum(clock.slept), abs=1.0 + paused_before)


def test_a_short_wait_is_not_worth_a_word():
    tries = tries_of(StillClock(), stopped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert tries.pause(Conflict("somebody was faster")) is None


def test_optimize_says_that_the_table_is_read_only(replicas):
    inactive(replicas)
    with pytest.raises(TableIsReadOnly, match="not active, so it assigns no merges"):
        replicas.table("r1").optimize(final=True)


def test_without_retries_the_first_error_is_the_last_and_says_why():
    query = QuerySettings(insert_keeper_max_retries=0)
    ended = Tries("INSERT into t", query, StillClock(), stopped).pause(READ_ONLY)
    assert str(ended) == "t is not active. Server r1 does not run"
