"""When a kill took hold, replica by replica."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.killed import KillReport, wait_for_kill
from rmt_pipeline.replica.mutations.mutations import (
    UnknownMutation,
    create_mutation,
    kill_mutation,
)
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.keeper import Delete, Op
from tests.support.executor import Executor
from tests.support.local_replicas import Replicas, by_tens
from tests.support.lost_answers import before


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """A part in each of two partitions on two replicas, and a third one that is away."""
    with Replicas(tmp_path, ("r1", "r2", "r3"), define=by_tens) as made:
        for value in (1, 11):
            made.insert("r1", value)
        while made.step("r2", "fetch").did_something:
            pass
        made["r3"].keeper.close()
        yield made


class Working:
    """Whoever waits sees r2 carry out an entry of its queue meanwhile."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def wake(self) -> None: ...

    def wait_s(self, timeout_s: float) -> bool:
        self._replicas.clock.passed_s += timeout_s
        self._replicas.step("r2", "merge")
        return False


def killed(replicas: Replicas, partition: str) -> MutationEntry:
    """A mutation of this partition that was killed once its entry was in both queues."""
    r1 = replicas["r1"]
    mutation = create_mutation(r1, "DELETE WHERE n = 1", [partition])
    entry = MutationEntry.decode(r1.keeper.get(r1.table.mutation(mutation))[0])
    assign_mutations(r1)
    for name in ("r1", "r2"):
        pull_log(replicas[name])
    kill_mutation(r1, mutation)
    return entry


def hold(replicas: Replicas, entry: MutationEntry, timeout_s: float) -> KillReport:
    return wait_for_kill(replicas["r1"], entry, timeout_s=timeout_s, waker=Working(replicas))


def test_each_replica_is_looked_at_until_its_queue_has_nothing_of_it(replicas):
    entry = killed(replicas, "0")
    replicas.clock.passed_s += 1000.0  # what the clock says matters to nobody
    assert hold(replicas, entry, 0.0) == KillReport({}, ("r1", "r2"), ("r3",))
    replicas.step("r1", "merge")
    assert hold(replicas, entry, 9.0).words() == (
        "r1 after 0.0 s, r2 after 0.2 s, r3 when it is active again"
    )
    began_s = replicas.clock.passed_s
    hold(replicas, entry, 9.0)
    assert replicas.clock.passed_s == began_s, "nobody is waited for any more"


def test_what_is_queued_of_other_mutations_holds_nothing_up(replicas):
    """Of one in another partition, and of a later one of the same partition; and a fetch."""
    first = killed(replicas, "0")
    for name in ("r1", "r2"):
        replicas.step(name, "merge")
    killed(replicas, "0")
    killed(replicas, "1")
    replicas.insert("r1", 2)
    pull_log(replicas["r2"])
    at_once = KillReport({"r1": 0.0, "r2": 0.0}, (), ("r3",))
    assert hold(replicas, first, 0.0) == at_once


def test_who_waits_no_longer_is_told_who_is_not_there_yet(replicas):
    entry = killed(replicas, "0")
    assert hold(replicas, entry, 0.2).words() == (
        "r2 after 0.2 s, r1 not yet, r3 when it is active again"
    )


def test_a_replica_that_is_dropped_meanwhile_is_not_waited_for(replicas):
    entry = killed(replicas, "0")
    replicas.step("r1", "merge")

    class Dropping(Working):
        def wait_s(self, timeout_s: float) -> bool:
            replicas.drop("r2")
            replicas.clock.passed_s += timeout_s
            return False

    report = wait_for_kill(replicas["r1"], entry, timeout_s=9.0, waker=Dropping(replicas))
    assert report.words() == "r1 after 0.0 s, r3 when it is active again"


def test_a_failed_mutation_is_still_to_be_begun_while_it_waits(replicas):
    """One that is killed may be tried at once, so a pool with one looks again."""
    r1 = replicas["r1"]
    create_mutation(r1, "DELETE WHERE n = 1", ["0"])
    assign_mutations(r1)
    pull_log(r1)
    executor = Executor(r1, replicas.tools(), "merge")
    [node] = r1.keeper.children(r1.paths.queue)
    for _ in range(9):
        executor._backoff.failed(node, r1.clock.monotonic_s())
    look = executor.look(None)
    assert (look.batches, look.step.left) == ((), 1)


def test_of_two_who_kill_a_mutation_at_once_one_finds_none(replicas):
    r1 = replicas["r1"]
    mutation = create_mutation(r1, "DELETE WHERE n = 1", ["0"])
    path = r1.table.mutation(mutation)

    def kills(op: Op) -> bool:
        return isinstance(op, Delete) and op.path == path

    with (
        before(r1.keeper, kills, lambda: kill_mutation(replicas["r2"], mutation)),
        pytest.raises(UnknownMutation, match=mutation),
    ):
        kill_mutation(r1, mutation)
