"""When what failed is tried again."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import Corruption, OutcomeUnknown
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.backoff import (
    RETRY_FIRST_S,
    RETRY_MAX_S,
    Backoff,
    longest_wait_s,
    record_failure,
)
from rmt_pipeline.zookeeper.keeper import RefusalKind, Refused
from rmt_pipeline.zookeeper.paths import ReplicaPaths, TablePaths
from tests.support.protocol import merge, mutate

MERGE, MUTATION = merge("0_0_0 1_1_0"), mutate("2_2_0", "2_2_0_5")
ENTRIES = {"merge": MERGE, "mutate": MUTATION}


def replica_with(*mutations: str, **settings: str) -> Any:
    """As much of one as is asked for here."""
    keeper = SimpleNamespace(children=lambda _: list(mutations))
    return SimpleNamespace(
        keeper=keeper, table=TablePaths("/t"), settings=TableSettings.of(settings)
    )


def test_the_pause_doubles_up_to_the_longest() -> None:
    backoff = Backoff()
    pauses = []
    for _ in range(5):
        backoff.failed("mutate", 0.0, longest_s=0.5)
        pauses.append(backoff.next_s(0.0, 0.0))
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_what_need_not_wait_any_more_asks_for_no_look() -> None:
    """It may run, or runs, or waits for something else: asked at once, again and again, in vain."""
    backoff = Backoff()
    backoff.failed("merge", 0.0)
    assert backoff.next_s(0.05, 0.06) == pytest.approx(0.04)
    assert backoff.next_s(0.05, 0.5) == 0.0, "it became free after the look"
    assert backoff.next_s(RETRY_FIRST_S, 0.2) is None
    backoff.failed("mutate", 0.2)
    assert backoff.next_s(0.2, 0.2) == pytest.approx(RETRY_FIRST_S)


def test_a_mutation_pauses_as_long_as_its_setting_says_and_others_a_minute() -> None:
    assert longest_wait_s(replica_with(), MERGE) == RETRY_MAX_S
    assert longest_wait_s(replica_with(), MUTATION) == 300
    short = replica_with(max_postpone_time_for_failed_mutations_ms="2000")
    assert longest_wait_s(short, MUTATION) == 2
    never = replica_with(max_postpone_time_for_failed_mutations_ms="0")
    assert longest_wait_s(never, MUTATION) == RETRY_FIRST_S


def test_a_kill_has_failed_mutations_tried_at_once_and_nothing_else() -> None:
    """P36."""
    backoff = Backoff()
    for node in ENTRIES:
        for _ in range(9):
            backoff.failed(node, 0.0)
    backoff.notice_kills(replica_with("0000000001", "0000000002"), ENTRIES)
    assert "mutate" in backoff.waiting(1.0)
    backoff.notice_kills(replica_with("0000000001", "0000000002", "0000000003"), ENTRIES)
    assert "mutate" in backoff.waiting(1.0), "a new one is no reason"
    backoff.notice_kills(replica_with("0000000001", "0000000003"), ENTRIES)
    assert "mutate" not in backoff.waiting(1.0)
    assert "merge" in backoff.waiting(1.0)


class AlwaysTooLate:
    """The note of a failure is there whenever it is to be created, and gone whenever to be set."""

    def __init__(self) -> None:
        self.refused = 0

    def get_many(self, paths: Sequence[str]) -> list[None]:
        return [None for _ in paths]

    def multi(self, ops: Any) -> None:
        self.refused += 1
        raise Refused(RefusalKind.NO_NODE, ops[-1].path, len(ops) - 1)


@pytest.mark.parametrize("is_claimed", [True, False])
def test_a_note_that_comes_and_goes_meanwhile_is_lost_and_its_claim_is_not_kept(is_claimed):
    given_back: list[str] = []
    holder = SimpleNamespace(give_back=given_back.extend) if is_claimed else None
    keeper = AlwaysTooLate()
    replica: Any = SimpleNamespace(
        keeper=keeper,
        paths=ReplicaPaths("/t/replicas/r1"),
        clock=SimpleNamespace(now_s=lambda: 0.0),
    )
    record_failure(replica, "queue-0000000007", 2, "no space", holder=holder)
    assert keeper.refused == 2
    assert given_back == ["queue-0000000007"] * is_claimed


class Answers:
    """ZooKeeper with the note of a failure, which answers each write as it is told."""

    def __init__(self, noted: bytes | Exception | None, *answers: Exception | None) -> None:
        self.noted = noted
        self.answers = list(answers)
        self.sent: list[list[str]] = []

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes] | None]:
        if isinstance(self.noted, Exception):
            raise self.noted
        return [None if self.noted is None else (self.noted,) for _ in paths]

    def multi(self, ops: Any) -> None:
        self.sent.append([type(op).__name__ for op in ops])
        self.tries = Attempts.decode(ops[-1].data).tries
        if (answer := self.answers.pop(0)) is not None:
            raise answer


NOTED = Attempts(4, "", 0, "").encode()
NOTE, CLAIM = "/t/replicas/r1/attempts/queue-7", "/t/replicas/r1/executing/queue-7"
MADE = Refused(RefusalKind.NODE_EXISTS, NOTE, 1)
GONE = Refused(RefusalKind.NO_NODE, CLAIM, 0)
LOST = OutcomeUnknown("no answer")


@pytest.mark.parametrize("is_claimed", [True, False])
@pytest.mark.parametrize(
    ("noted", "answers", "sent", "left"),
    [
        (None, [None], "Create", ""),
        (None, [MADE, None], "Create SetData", ""),
        (NOTED, [None], "SetData", ""),
        (Corruption("?"), [MADE, None], "Create SetData", ""),
        (None, [GONE], "Create", ""),
        (None, [LOST], "Create", "queue-7"),
        (NOTED, [LOST], "SetData", "queue-7"),
    ],
)
def test_a_failure_is_noted_in_one_request_and_its_claim_given_back_with_it(
    noted, answers, sent, left, is_claimed
) -> None:
    """A claim whose end has no answer is left to those who may find it ended."""
    told: list[str] = []
    holder: Any = SimpleNamespace(leave=told.extend, give_back=pytest.fail)
    keeper = Answers(noted, *answers)
    replica: Any = SimpleNamespace(
        keeper=keeper,
        paths=ReplicaPaths("/t/replicas/r1"),
        clock=SimpleNamespace(now_s=lambda: 0.0),
    )
    record_failure(replica, "queue-7", 2, "no space", holder=holder if is_claimed else None)
    claim = ["Delete"] * is_claimed
    assert keeper.sent == [[*claim, write] for write in sent.split()]
    assert keeper.tries == (5 if noted == NOTED else 2), "other processes have tried, too"
    assert told == [left] * (is_claimed and bool(left))


def test_every_peer_gets_its_turn_before_one_is_asked_again() -> None:
    backoff = Backoff()
    assert backoff.peers_failed("get") == frozenset()
    for peer, asked_last in (("r2", {"r2"}), ("r3", {"r2", "r3"}), ("r2", {"r2"})):
        backoff.failed("get", 0.0, peer=peer)
        assert backoff.peers_failed("get") == asked_last
    backoff.failed("get", 0.0)
    assert backoff.peers_failed("get") == {"r2"}, "it failed here, at nobody"
    backoff.forgive("get")
    assert backoff.peers_failed("get") == frozenset()
    backoff.forgive("nobody has tried it")
    assert not backoff.has_failed("nobody has tried it")


def test_what_left_the_queue_has_not_failed() -> None:
    backoff = Backoff()
    assert not backoff.has_any
    backoff.failed("merge", 1.0)
    backoff.failed("mutate", 1.0)
    backoff.keep_only(frozenset({"merge"}))
    assert (backoff.has_failed("merge"), backoff.has_failed("mutate")) == (True, False)
    assert backoff.failed("mutate", 1.0) == 1
    backoff.keep_only(frozenset())
    assert not backoff.has_any


def test_it_waits_just_as_long_as_it_is_told() -> None:
    backoff = Backoff()
    backoff.failed("merge", 1.0)
    for now_s, waits in ((1.0, True), (1.05, True), (1.0 + RETRY_FIRST_S, False)):
        assert backoff.waiting(now_s) == (frozenset({"merge"}) if waits else frozenset())
