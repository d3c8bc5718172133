"""There is no answer from ZooKeeper, or the session ends, when a command is in the log and is only
waited for. Whoever gave it must not be told that nothing was changed: given again, an UPDATE counts
twice.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import (
    NoNextSession,
    OutcomeUnknown,
    ReplicaRetired,
    RmtError,
    Unavailable,
    Unfinished,
)
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import finalize_mutations, load_mutations
from rmt_pipeline.replica.wait import ANSWER_PAUSES_S
from rmt_pipeline.zookeeper.keeper import Create, Keeper, Op
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import Replicas, in_memory
from tests.unit.replica.test_wait import COMMANDS, two_inserts

STEPS_MAX = 20
ALL = QuerySettings(alter_sync=2, mutations_sync=2, receive_timeout=1000)


def commits(op: Op) -> bool:
    return isinstance(op, Create) and (
        "/log/log-" in op.path or op.path.endswith("/mutations/")
    )


class AfterTheCommit(BeforeRequest):
    """Counts the requests that follow the first multi that writes to the log or a mutation."""

    def __init__(self, session: Keeper, number: int, happens: Callable[[], object]) -> None:
        super().__init__(session, number, happens)
        self.has_committed = False
        self.is_workers = False
        """Whether a worker of r1 asks, not the command."""
        self.silence: RmtError | None = None
        """In place of each answer."""

    def _next(self, *told: object) -> None:
        if self.has_committed and not self.is_workers:
            super()._next(*told)
            if self.silence is not None:
                raise self.silence

    def multi(self, ops: Sequence[Op]) -> list[str]:
        try:
            created = super().multi(ops)
        except Unavailable as error:
            raise OutcomeUnknown(str(error)) from error
        self.has_committed = self.has_committed or any(map(commits, ops))
        return created


def prepared(directory: Path, command: str) -> Replicas:
    replicas = Replicas(directory)
    two_inserts(replicas)
    for name in ("r1", "r2"):
        replicas[name].update_definition = in_memory(replicas[name])
    if command == "ATTACH":
        replicas.table("r1").drop_partitions(
            ["all"], detach=True, settings=QuerySettings(alter_sync=0)
        )
    replicas.work_off()
    replicas.meanwhile = [lambda: work(replicas)] * 50
    return replicas


def work(replicas: Replicas) -> None:
    """What the workers of both do while r1 waits."""
    session: Any = replicas["r1"].session
    session.is_workers = True
    assign_mutations(replicas["r1"])
    replicas.work_off()
    for name in ("r1", "r2"):
        finalize_mutations(replicas[name], load_mutations(replicas[name]))
    session.is_workers = False


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_is_not_answered_then_the_command_is_done(
    tmp_path: Path, command: str
) -> None:
    errors = itertools.cycle([Unavailable("no answer; try again"), ReplicaRetired("over")])
    number = 0
    for step in range(STEPS_MAX):
        with prepared(tmp_path / str(step), command) as replicas:
            r1: Any = replicas["r1"]
            session = AfterTheCommit(r1.session, number, partial(raises, next(errors)))
            r1.keeper.session = session
            COMMANDS[command](replicas.table("r1"), ALL)
            assert session.has_committed
            if not session.has_come:
                break
        number += step
    assert 1 < step < STEPS_MAX


def raises(error: RmtError) -> None:
    raise error


@pytest.mark.parametrize("command", COMMANDS)
def test_while_nothing_is_answered_it_is_waited_for_and_then_said_that_it_is_done(
    tmp_path: Path, command: str
) -> None:
    with prepared(tmp_path, command) as replicas:
        r1: Any = replicas["r1"]
        session = AfterTheCommit(r1.session, 0, lambda: None)
        session.silence = Unavailable("no answer; try again")
        r1.keeper.session = session
        replicas.meanwhile = []
        with pytest.raises(Unfinished, match="no answer from ZooKeeper: no answer; try again"):
            COMMANDS[command](replicas.table("r1"), ALL)
        assert replicas.clock.passed_s >= sum(ANSWER_PAUSES_S)
        session.silence = None


@pytest.mark.parametrize("command", COMMANDS)
def test_what_goes_on_in_no_other_session_ends_at_once(tmp_path: Path, command: str) -> None:
    """A statement ON CLUSTER: what became of it is looked at anew in the next session, and others
    wait for that.
    """
    with prepared(tmp_path, command) as replicas:
        r1: Any = replicas["r1"]
        session = AfterTheCommit(r1.session, 0, lambda: None)
        session.silence = NoNextSession("over")
        r1.keeper.session = session
        replicas.meanwhile = []
        began_s = replicas.clock.passed_s
        with pytest.raises(NoNextSession):
            COMMANDS[command](replicas.table("r1"), ALL)
        assert replicas.clock.passed_s == began_s
        session.silence = None


@pytest.mark.parametrize("command", ["DROP PARTITION", "REPLACE", "UPDATE"])
def test_who_was_active_before_an_outage_is_waited_for_after_it(
    tmp_path: Path, command: str
) -> None:
    """His server is about to have its next session, but has none when the command's has begun."""

    def outage() -> None:
        for name in ("r1", "r2"):
            replicas.stop(name)
        replicas.come_back("r1")

    def works(name: str) -> None:
        assign_mutations(replicas[name])
        replicas.work_off(name)
        finalize_mutations(replicas[name], load_mutations(replicas[name]))

    def comes_back() -> None:
        replicas.come_back("r2")
        works("r2")

    with prepared(tmp_path, command) as replicas:
        active = QuerySettings(
            alter_sync=3,
            mutations_sync=3,
            receive_timeout=1000,
            replication_wait_for_inactive_replica_timeout=1000,
        )
        replicas.meanwhile = [outage, lambda: None, partial(works, "r1"), comes_back]
        COMMANDS[command](replicas.table("r1"), active)
        assert replicas.meanwhile == []
