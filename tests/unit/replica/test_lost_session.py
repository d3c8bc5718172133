"""The server's session, or that of the process that asks, ends right before something is written:
whoever asked reads that in words, and may ask again.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import (
    OutcomeUnknown,
    ReplicaRetired,
    RmtError,
    TableIsReadOnly,
)
from rmt_pipeline.replica.insert.result import InsertInPart
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Check, Delete, Op, Refused
from tests.support.actions import ACTIONS, Action
from tests.support.between_requests import Before
from tests.support.local_replicas import Replicas
from tests.support.more_actions import MORE, WithSource
from tests.unit.replica.test_between_requests import prepared, speaks_through

WRITES_MAX = 150


class BeforeWrite(Before):
    """Counts the multis that assert that a replica is active."""

    def _count(self, ops: Iterable[Op]) -> None:
        if any(isinstance(op, Check) and op.path.endswith("/is_active") for op in ops):
            self._next()

    def multi(self, ops: Sequence[Op]) -> list[str]:
        self._count(ops)
        return super().multi(ops)

    def multi_many(self, multis: Sequence[Sequence[Op]]) -> list[list[str] | Exception]:
        self._count(op for ops in multis for op in ops)
        return super().multi_many(multis)


def of_r1(replicas: Replicas) -> list[Replica]:
    """Of its table, and of the one beside it."""
    tables = [replicas, replicas.source] if isinstance(replicas, WithSource) else [replicas]
    return [table["r1"] for table in tables]


def the_servers(replicas: Replicas) -> None:
    for replica in of_r1(replicas):
        with suppress(Refused):
            replicas.zookeeper.connect().multi([Delete(replica.paths.is_active)])


def his_own(replicas: Replicas) -> None:
    for replica in of_r1(replicas):
        session = replica.session
        replicas.zookeeper.expire(session.session_id)


def told(action: Action, directory: Path, loses: Callable[[Replicas], None]) -> list[RmtError]:
    """What whoever asked for it was told, for each of its writes before which that happens."""
    found: list[RmtError] = []
    for number in range(WRITES_MAX):
        with prepared(directory / str(number), action) as replicas:
            session = replicas["r1"].session
            between = BeforeWrite(session, number, partial(loses, replicas))
            speaks_through(replicas, between)
            answer: RmtError | None = None
            try:
                action.does(replicas)
            except RmtError as error:
                answer = error
            if not between.has_come:
                return found
            if answer is not None:
                found.append(answer)
    raise AssertionError("it never ends")


WRITES_AS_ACTIVE = (
    "a merge",
    "a mutation",
    "an insert",
    "a drop",
    "a part is dropped",
    "partitions are detached",
    "what was detached is attached",
    "a drop of others is carried out",
    "an insert that is there already",
    "an insert for two",
    "an insert in several commits",
    "an ALTER",
    "an ALTER is taken up",
    "a mutation is written",
    "a mutation is waited for",
    "a mutation is killed",
    "a merge is chosen",
    "the log is pulled",
    "a replica catches up",
    "an insert is undone",
    "rows of a partition are replaced",
    "rows are replaced by a condition",
    "a partition is replaced by that of another table",
    "a partition of another table is attached",
    "a partition is moved",
    "a replacement of others is carried out",
)
ACTIVE = [action for action in [*ACTIONS, *MORE] if action.name in WRITES_AS_ACTIVE]


def test_each_is_an_action() -> None:
    assert sorted(action.name for action in ACTIVE) == sorted(WRITES_AS_ACTIVE)


@pytest.mark.parametrize("action", ACTIVE, ids=lambda action: action.name)
def test_whose_server_loses_its_session_is_told_that_the_replica_is_not_active(
    tmp_path: Path, action: Action
) -> None:
    """Or an insert, that some of its commits came before that."""
    errors = told(action, tmp_path, the_servers)
    assert errors
    for error in errors:
        assert isinstance(error, TableIsReadOnly | InsertInPart), error
        assert "is not active" in str(error)


@pytest.mark.parametrize("action", ACTIVE, ids=lambda action: action.name)
def test_who_loses_his_session_is_told_that(tmp_path: Path, action: Action) -> None:
    """Or an insert, that it may have landed: here no later session can ask."""
    errors = told(action, tmp_path, his_own)
    assert errors
    for error in errors:
        assert isinstance(error, ReplicaRetired | OutcomeUnknown), error
        assert "is over" in str(error)
