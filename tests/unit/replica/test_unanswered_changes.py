"""Mutations and ALTERs whose requests get no answer: each is there once or not at all, who asked
knows which, and no number of theirs holds anybody up.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.alter.commands import (
    AddColumn,
    AlterCommand,
    ClearColumn,
    DropColumn,
)
from rmt_pipeline.protocol.errors import (
    NoNextSession,
    OutcomeUnknown,
    ReplicaRetired,
    Unavailable,
)
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.alter.request import request_alter
from rmt_pipeline.replica.mutations.mutations import (
    MutationUnsettled,
    UnknownMutation,
    allocate_numbers,
    create_mutation,
    kill_mutation,
    load_mutations,
)
from rmt_pipeline.replica.mutations.request import request_mutation
from rmt_pipeline.replica.partitions.drop import drop_partitions
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, Refused, SetData
from tests.support.local_replicas import ClockWaker, Replicas, by_tens, in_memory
from tests.support.lost_answers import allocates, before, faulty, logs, unlocks

DELETE = "DELETE WHERE n = 1"
TRIES = 3
QUERY = QuerySettings(insert_keeper_max_retries=TRIES - 1, alter_sync=0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Rows in two partitions."""
    with Replicas(tmp_path, define=by_tens) as made:
        for name in ("r1", "r2"):
            made[name].update_definition = in_memory(made[name])
        made.insert("r1", 1, 2)
        made.insert("r1", 11, 12)
        yield made


def writes_mutation(op: Op) -> bool:
    return isinstance(op, Create) and "/mutations/" in op.path


def submits(op: Op) -> bool:
    return isinstance(op, Create) and "/alters/" in op.path


def fences(op: Op) -> bool:
    return isinstance(op, SetData) and op.path.endswith("/alters")


def locks(replicas: Replicas) -> list[str]:
    """As others see them, after anything at all was asked in the session of r1."""
    replicas["r1"].keeper.exists(replicas["r1"].table.root)
    keeper, table = replicas["r2"].keeper, replicas["r2"].table
    return [
        name
        for partition in keeper.children(table.block_numbers)
        for name in keeper.children(table.partition(partition))
    ]


def mutate(replicas: Replicas, living: Callable[[], Replica] | None = None) -> str:
    return request_mutation(living or (lambda: replicas["r1"]), parse_commands(DELETE), QUERY)


def replicas_version(replicas: Replicas) -> int:
    return replicas["r2"].keeper.get(replicas["r2"].table.replicas)[1].version


def mutations(replicas: Replicas) -> list[str]:
    return list(load_mutations(replicas["r2"]).entries)


@contextmanager
def kept(keeper: Any, hit: Callable[[Op], bool]) -> Iterator[list[Sequence[Op]]]:
    """The first multi that has such an operation is lost on its way; it is given, and may still
    arrive.
    """
    multi = keeper.multi
    sent: list[Sequence[Op]] = []

    def lost(ops: Sequence[Op]) -> list[str]:
        if not sent and any(map(hit, ops)):
            sent.append(ops)
            raise OutcomeUnknown("no answer")
        return multi(ops)  # type: ignore[no-any-return]

    keeper.multi = lost
    try:
        yield sent
    finally:
        keeper.multi = multi


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("at", [allocates, writes_mutation])
def test_a_mutation_is_created_once_whatever_gets_no_answer(replicas, at, landed):
    with faulty(replicas["r1"].keeper, at, landed=landed):
        created = mutate(replicas)
    assert mutations(replicas) == [created]
    assert locks(replicas) == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_mutation_whose_question_gets_no_answer_either_is_created_once(replicas, landed):
    keeper = replicas["r1"].keeper
    with (
        faulty(keeper, unlocks, but=writes_mutation, landed=landed),
        faulty(keeper, writes_mutation, landed=True),
    ):
        created = mutate(replicas)
    assert mutations(replicas) == [created]
    assert locks(replicas) == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_mutation_of_no_partition_is_created_once(tmp_path, landed):
    with Replicas(tmp_path) as empty:
        with faulty(empty["r1"].keeper, writes_mutation, landed=landed):
            created = create_mutation(empty["r1"], DELETE)
        assert list(load_mutations(empty["r2"]).entries) == [created]


def test_a_mutation_without_an_answer_is_told_from_others(replicas):
    earlier = request_mutation(
        lambda: replicas["r1"], parse_commands("DELETE WHERE n = 11"), QUERY
    )
    with faulty(replicas["r1"].keeper, writes_mutation, landed=True):
        mine = mutate(replicas)
    assert mutations(replicas) == [earlier, mine]


def test_numbers_that_never_come_are_no_mutation_and_it_is_said_so(replicas):
    with (
        faulty(replicas["r1"].keeper, allocates, landed=True, times=TRIES),
        pytest.raises(Unavailable, match="when it was asked for block numbers"),
    ):
        mutate(replicas)
    assert mutations(replicas) == []
    assert locks(replicas) == []


def test_a_mutation_that_may_be_there_is_not_said_to_have_failed(replicas):
    """And what was sent can't arrive any more once its numbers are given back."""
    keeper = replicas["r1"].keeper
    with (
        kept(keeper, writes_mutation) as sent,
        faulty(keeper, unlocks, but=writes_mutation, landed=False, times=TRIES + 1),
        pytest.raises(MutationUnsettled, match="DELETE WHERE n = 1 was created is not known"),
    ):
        mutate(replicas)
    assert locks(replicas) == []
    with pytest.raises(Refused):
        keeper.multi(sent[0])
    assert mutations(replicas) == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_mutation_is_settled_in_another_session(replicas, landed):
    """The first one is over before anybody could ask in it."""
    one = replicas["r1"]
    keeper = one.keeper

    def living() -> Replica:
        if not one.session.is_retired:
            return one
        if another.keeper.exists(one.paths.is_active) is None:  # its server has a new one, too
            another.session.multi([Create(one.paths.is_active, b"", ephemeral=True)])
        return another

    another = replace(one, keeper=replicas.zookeeper.connect(), memory=Memory())
    with (
        before(keeper, unlocks, keeper.close, alone=True),
        faulty(keeper, writes_mutation, landed=landed),
    ):
        created = mutate(replicas, living)
    assert mutations(replicas) == [created]


def test_a_mutation_that_is_killed_before_its_creator_hears_of_it_is_not_created_again(
    replicas,
):
    keeper = replicas["r1"].keeper

    def kill() -> None:
        [created] = mutations(replicas)
        kill_mutation(replicas["r2"], created)

    with (
        before(keeper, unlocks, kill, alone=True),
        faulty(keeper, writes_mutation, landed=True),
        pytest.raises(UnknownMutation, match="killed, or finished and forgotten"),
    ):
        mutate(replicas)
    assert mutations(replicas) == []
    assert locks(replicas) == []


@pytest.mark.parametrize("others", [0, 1])
def test_a_mutation_that_is_gone_before_another_session_asks_is_not_created_again(
    replicas, others
):
    """It was finished on every replica, and forgotten. An UPDATE would count twice."""
    one = replicas["r1"]
    another = replace(one, keeper=replicas.zookeeper.connect(), memory=Memory())

    def goes() -> None:
        one.keeper.close()
        [created] = mutations(replicas)
        replicas["r2"].keeper.multi(
            transactions.remove_mutations(one.table, [created], replicas_version(replicas))
        )
        for _ in range(others):
            create_mutation(replicas["r2"], DELETE)

    with (
        before(one.keeper, unlocks, goes, alone=True),
        faulty(one.keeper, writes_mutation, landed=True),
        pytest.raises(UnknownMutation, match="killed, or finished and forgotten"),
    ):
        mutate(replicas, lambda: another if one.session.is_retired else one)
    assert len(mutations(replicas)) == others


def test_a_mutation_that_another_one_came_before_is_created_behind_it(replicas):
    """The first one never landed, and the number that it would have had is that of the other."""
    one = replicas["r1"]
    another = replace(one, keeper=replicas.zookeeper.connect(), memory=Memory())

    def other() -> None:
        one.keeper.close()
        another.session.multi(
            [Create(one.paths.is_active, b"", ephemeral=True)]
        )  # its server's
        create_mutation(replicas["r2"], "DELETE WHERE n = 11")

    with (
        before(one.keeper, unlocks, other, alone=True),
        faulty(one.keeper, writes_mutation, landed=False),
    ):
        created = mutate(replicas, lambda: another if one.session.is_retired else one)
    assert mutations(replicas) == ["0000000000", created]


def test_a_mutation_before_which_another_one_comes_gets_the_numbers_behind_it(replicas):
    """Its own were taken before, and are given back."""
    another = "DELETE WHERE n = 11"
    with before(
        replicas["r1"].keeper, writes_mutation, lambda: create_mutation(replicas["r2"], another)
    ):
        created = mutate(replicas)
    found = load_mutations(replicas["r2"]).entries
    assert list(found) == ["0000000000", created]
    first, second = (dict(entry.block_numbers) for entry in found.values())
    assert first.keys() == second.keys() == {"0", "1"}
    assert all(first[partition] < second[partition] for partition in first)
    assert locks(replicas) == []


def test_a_mutation_without_its_numbers_is_not_created(replicas):
    """Somebody has removed the locks by hand: merges may go across the numbers by now."""
    keeper, table = replicas["r2"].keeper, replicas["r2"].table

    def removed() -> None:
        partitions = [table.partition(name) for name in keeper.children(table.block_numbers)]
        ops = [Delete(f"{one}/{name}") for one in partitions for name in keeper.children(one)]
        keeper.multi(ops)

    with (
        before(replicas["r1"].keeper, writes_mutation, removed),
        pytest.raises(Refused, match="/block_numbers/0/block-"),
    ):
        mutate(replicas)
    assert mutations(replicas) == []


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("at", [allocates, writes_mutation])
def test_an_interrupted_mutation_leaves_no_lock(replicas, at, landed):
    keeper = replicas["r1"].keeper
    with (
        faulty(keeper, at, landed=landed, error=KeyboardInterrupt()),
        pytest.raises(KeyboardInterrupt),
    ):
        mutate(replicas)
    assert locks(replicas) == []


def test_numbers_of_batches_before_one_that_is_refused_are_given_back(replicas, monkeypatch):
    """1. A number is allocated in the first partition. 2. Another partition appears, so that the
    batch with the second one is refused. 3. The first number holds nobody up.
    """
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 1)
    keeper, table = replicas["r1"].keeper, replicas["r1"].table

    def in_the_second(op: Op) -> bool:
        return allocates(op) and op.path.startswith(table.partition("1"))

    appears = transactions.create_partition(table, replicas["r2"].paths, "2")
    with before(keeper, in_the_second, lambda: replicas["r2"].keeper.multi(appears)):
        assert allocate_numbers(replicas["r1"], None) is None
    assert keeper.children_many([table.partition(one) for one in "012"]) == [[], [], []]


def test_numbers_given_back_without_an_answer_do_not_stay(replicas):
    """Of the partitions but the first, whose number goes with the entry."""
    with faulty(replicas["r1"].keeper, unlocks, but=writes_mutation, landed=False):
        created = mutate(replicas)
    assert mutations(replicas) == [created]
    assert locks(replicas) == []


# --- ALTER ---


class NoWait:
    """A waker: what an ALTER waits for is done meanwhile."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def wake(self) -> None:
        raise AssertionError("nobody watches here")

    def wait_s(self, timeout_s: float) -> bool:
        self._replicas.clock.sleep_s(timeout_s)
        self._replicas.step("r1", "fetch")
        return False


def alter(replicas: Replicas, *commands: AlterCommand) -> None:
    request_alter(lambda: replicas["r1"], lambda _: commands, QUERY, lambda: NoWait(replicas))


def add(name: str) -> AddColumn:
    return AddColumn(Column(name, "Int64", "DEFAULT", "n * 2"))


def widened(replicas: Replicas) -> None:
    alter(replicas, add("x"))
    for name in ("r1", "r2"):
        replicas.step(name, "fetch")


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("at", [allocates, submits])
def test_an_alter_is_submitted_once_whatever_gets_no_answer(replicas, at, landed):
    widened(replicas)
    with (
        contextlib.suppress(Unavailable),  # without numbers nothing is sent
        faulty(replicas["r1"].keeper, at, landed=landed),
    ):
        alter(replicas, DropColumn("x"))
    if at is allocates:
        alter(replicas, DropColumn("x"))
    assert replicas["r2"].keeper.children(replicas["r2"].table.alters)[1:] == ["0000000002"]
    assert len(mutations(replicas)) == 1
    assert locks(replicas) == []


def test_a_submission_that_is_not_found_is_fenced_off(replicas):
    """P34. Or it arrives when its ALTER was decided anew, or given up."""
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    get_many = keeper.get_many
    late: list[BaseException] = []
    with kept(keeper, submits) as sent:

        def arrives(paths: Sequence[str]) -> Any:
            if sent and not late and paths[0] == table.metadata:
                try:
                    replicas["r2"].keeper.multi(sent[0])
                except Refused as refused:
                    late.append(refused)
            return get_many(paths)

        keeper.get_many = arrives  # type: ignore[method-assign]
        alter(replicas, add("x"))
    assert len(late) == 1
    assert keeper.children(table.alters) == ["0000000001"]


def test_an_alter_before_which_another_one_comes_is_decided_anew(replicas):
    """Once this replica has taken up the other one."""

    def other() -> None:
        request_alter(
            lambda: replicas["r2"], lambda _: [add("y")], QUERY, lambda: NoWait(replicas)
        )

    with before(replicas["r1"].keeper, submits, other):
        alter(replicas, add("x"))
    keeper, table = replicas["r2"].keeper, replicas["r2"].table
    assert keeper.children(table.alters) == ["0000000001", "0000000002"]
    assert {b"`x`" in keeper.get(table.columns)[0], b"`y`" in keeper.get(table.columns)[0]} == {
        True
    }


def test_an_alter_whose_table_has_lost_a_node_is_refused(replicas):
    """By whatever accident. It is not tried again and again as if another one had come first."""
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    with (
        before(keeper, submits, lambda: keeper.multi([Delete(table.alters)])),
        pytest.raises(Refused, match=f"{table.alters}: no node"),
    ):
        alter(replicas, add("x"))


def test_an_alter_is_settled_in_another_session(replicas):
    widened(replicas)
    one = replicas["r1"]
    keeper = one.keeper
    another = replace(one, keeper=replicas.zookeeper.connect(), memory=Memory())
    with before(keeper, fences, keeper.close, alone=True), faulty(keeper, submits, landed=True):
        submitted = request_alter(
            lambda: another if one.session.is_retired else one,
            lambda _: [DropColumn("x")],
            QUERY,
            lambda: NoWait(replicas),
        )
    assert submitted is not None
    assert submitted.mutation_id == mutations(replicas)[0]


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("command", [DropColumn("x"), add("y")])
def test_an_alter_without_an_answer_is_waited_for_as_itself(replicas, command, is_trimmed):
    """Not as an earlier one, nor with a mutation of somebody else. Who finds that its entry is not
    in the log any more has waited long enough: every replica has copied it.
    """
    widened(replicas)
    mutate(replicas)
    keeper, table = replicas["r1"].keeper, replicas["r1"].table

    def trims() -> None:
        entries = [f"{table.log}/{name}" for name in keeper.children(table.log)]
        keeper.multi([Delete(path) for path in entries])

    trimming = (
        before(keeper, fences, trims, alone=True) if is_trimmed else contextlib.nullcontext()
    )
    with trimming, faulty(keeper, submits, landed=True):
        submitted = request_alter(
            lambda: replicas["r1"],
            lambda _: [command],
            QUERY,
            lambda: NoWait(replicas),
        )
    assert submitted is not None
    is_dropping = isinstance(command, DropColumn)
    assert submitted.mutation_id == (mutations(replicas)[-1] if is_dropping else "")
    if is_trimmed:
        assert submitted.log_entry == f"{table.log}/log-0000000000"
    else:
        assert keeper.get(submitted.log_entry)[0] == submitted.data


def test_an_alter_that_may_be_there_is_not_said_to_have_failed(replicas):
    """Its mutation's numbers are given back all the same: what was sent can't arrive any more."""
    widened(replicas)
    keeper = replicas["r1"].keeper
    with (
        kept(keeper, submits) as sent,
        faulty(keeper, fences, but=submits, landed=False, times=8),
        pytest.raises(OutcomeUnknown, match="whether ALTER 2 is in the log is not known"),
    ):
        alter(replicas, DropColumn("x"))
    assert locks(replicas) == []
    with pytest.raises(Refused):
        keeper.multi(sent[0])


def test_what_is_cleared_in_some_partitions_is_a_mutation_of_these_alone(replicas):
    """Of the others nothing waits for it, and their numbers are given back."""
    widened(replicas)
    replicas.insert("r1", 21)
    alter(replicas, ClearColumn("x", "0"), ClearColumn("x", "2"))
    [entry] = load_mutations(replicas["r2"]).entries.values()
    assert [partition for partition, _ in entry.block_numbers] == ["0", "2"]
    assert locks(replicas) == []


def test_an_alter_that_is_refused_gives_its_numbers_back(replicas):
    widened(replicas)
    one = replicas["r1"]
    inactive = [Delete(one.paths.is_active)]
    with (
        before(one.keeper, submits, lambda: one.keeper.multi(inactive)),
        pytest.raises(Unavailable),
    ):
        alter(replicas, DropColumn("x"))
    assert locks(replicas) == []


def test_a_retired_session_is_not_asked_again_for_ever(replicas):
    def living() -> Replica:
        raise ReplicaRetired("over")

    with pytest.raises(ReplicaRetired):
        mutate(replicas, living)


def alter_once(replicas: Replicas, living: Callable[[], Replica]) -> None:
    add = AddColumn(Column("s", "String"))
    request_alter(living, lambda _: [add], QUERY, lambda: ClockWaker(replicas.clock))


def drop_once(replicas: Replicas, living: Callable[[], Replica]) -> None:
    drop_partitions(living, ["0"], QUERY, lambda: ClockWaker(replicas.clock))


@pytest.mark.parametrize(("change", "commit"), [(alter_once, submits), (drop_once, logs)])
def test_what_may_be_settled_in_no_other_session_stays_unknown_at_once(
    replicas, change, commit
):
    """A statement ON CLUSTER: its server finds out in its next session, and others wait for it."""

    def living() -> Replica:
        if sent:
            raise NoNextSession("over")
        return replicas["r1"]

    with kept(replicas["r1"].keeper, commit) as sent, pytest.raises(OutcomeUnknown):
        change(replicas, living)
    assert replicas.clock.slept == []
