"""How many mutations there may be, and of how many partitions and parts one may be."""

from contextlib import closing
from dataclasses import replace

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.context import ServerContext
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import TooManyMutations, TooManyPartitions
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import MergeParts, MutatePart
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica.assign.merges import Nothing
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import (
    create_mutation,
    finalize_mutations,
    load_mutations,
    status_of_mutations,
)
from rmt_pipeline.replica.mutations.request import request_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.work import carry
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.syntax.mutation import parse_commands
from rmt_pipeline.system import SystemClock
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.executor import Executor

pytestmark = pytest.mark.zookeeper

PARTITIONS = 3_000


def having(replica: Replica, **settings: object) -> Replica:
    """The same one with other settings, remembering nothing."""
    given = {name: str(value) for name, value in settings.items()}
    return replace(replica, settings=TableSettings.of(given), memory=Memory())


class Counting:
    """A keeper that counts the operations of multis."""

    def __init__(self, keeper) -> None:
        self._keeper = keeper
        self.multis: list[int] = []

    def __getattr__(self, name):
        return getattr(self._keeper, name)

    def multi(self, ops):
        self.multis.append(len(ops))
        return self._keeper.multi(ops)


# --- many partitions


@pytest.fixture
def partitions(table) -> list[str]:
    names = [f"{number:032x}" for number in range(PARTITIONS)]
    replica = table.replica
    nodes = [Create(replica.table.partition(name)) for name in names]
    for start in range(0, PARTITIONS, 1000):
        replica.keeper.multi(nodes[start : start + 1000])
    return names


def numbers_in_flight(replica: Replica, names: list[str]) -> int:
    listed = replica.keeper.children_many([replica.table.partition(name) for name in names])
    return sum(len(found or ()) for found in listed)


def test_a_mutation_of_thousands_of_partitions_takes_its_numbers_in_several_multis(
    table, partitions, monkeypatch
):
    """P29."""
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 100_000)
    keeper = Counting(table.replica.session)
    replica = replace(table.replica, keeper=keeper, memory=Memory())
    mutation = create_mutation(replica, "DELETE WHERE 1")
    assert len(keeper.multis) > 10
    assert max(keeper.multis) < 500
    entry = load_mutations(replica).entries[mutation]
    assert entry.block_numbers == tuple((name, 0) for name in partitions)
    assert numbers_in_flight(replica, partitions) == 0
    [status] = status_of_mutations(replica, load_mutations(replica))
    assert status.is_done
    assert finalize_mutations(replica, load_mutations(replica)) == (mutation,)


def test_a_partition_that_appears_between_two_multis_is_not_missed(
    table, partitions, monkeypatch
):
    """P29."""
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 100_000)

    class Growing(Counting):
        def multi(self, ops):
            if len(self.multis) == 3:
                self._keeper.multi(
                    transactions.create_partition(replica.table, replica.paths, "new")
                )
            return super().multi(ops)

    replica = table.replica
    found = replace(replica, keeper=Growing(replica.session), memory=Memory())
    mutation = create_mutation(found, "DELETE WHERE 1")
    entry = load_mutations(found).entries[mutation]
    assert {name for name, _ in entry.block_numbers} == {*partitions, "new"}
    assert dict(entry.block_numbers)["new"] == 0
    assert entry.version_in(partitions[0]) == 1, "its first number was given back"
    assert numbers_in_flight(found, [*partitions, "new"]) == 0


def test_a_mutation_whose_text_is_too_long_says_so(table, partitions, monkeypatch):
    monkeypatch.setattr(limits, "NODE_BYTES_MAX", 10_000)
    with pytest.raises(TooManyPartitions, match="say IN PARTITION, a part of them at a time"):
        create_mutation(table.replica, "DELETE WHERE 1")
    assert numbers_in_flight(table.replica, partitions) == 0
    assert load_mutations(table.replica).entries == {}


def test_partitions_that_were_looked_at_are_not_looked_at_again(table, partitions):
    replica = table.replica
    create_mutation(replica, "DELETE WHERE 1")
    lock = Create(replica.table.lock_prefix(partitions[7]), b"", ephemeral=True, sequence=True)
    replica.keeper.multi([lock])  # a later number: it holds up nothing
    asked: list[int] = []

    class Asked(Counting):
        def children_many(self, paths):
            asked.append(len(paths))
            return self._keeper.children_many(paths)

    found = replace(replica, keeper=Asked(replica.session), memory=Memory())
    mutations = load_mutations(found)
    for _ in range(2):
        assert all(one.is_done for one in status_of_mutations(found, mutations))
    assert [count for count in asked if count == PARTITIONS] == [PARTITIONS]


# --- many mutations


def test_too_many_unfinished_mutations_are_refused(table):
    table.insert([{"n": 1}])
    replica = having(
        table.replica, number_of_mutations_to_throw=2, number_of_mutations_to_delay=0
    )
    commands = parse_commands("DELETE WHERE n = 7")
    for _ in range(2):
        request_mutation(lambda: replica, commands, QuerySettings())
    with pytest.raises(TooManyMutations, match="has 2 unfinished mutations") as refused:
        request_mutation(lambda: replica, commands, QuerySettings())
    assert "number_of_mutations_to_throw is 2" in str(refused.value)
    assert len(load_mutations(replica).entries) == 2


def test_many_unfinished_mutations_slow_new_ones_down(table):
    table.insert([{"n": 1}])
    slept: list[float] = []

    class Sleeper(SystemClock):
        def sleep_s(self, seconds: float) -> None:
            slept.append(seconds)

    replica = having(
        table.replica,
        number_of_mutations_to_delay=1,
        number_of_mutations_to_throw=5,
        min_delay_to_mutate_ms=100,
        max_delay_to_mutate_ms=500,
    )
    replica = replace(replica, clock=Sleeper())
    for _ in range(3):
        request_mutation(lambda: replica, parse_commands("DELETE WHERE n = 7"), QuerySettings())
    assert slept == [0.1, 0.2]


# --- many parts


def queued(replica: Replica) -> list[str]:
    """What is to be merged and mutated; our own inserts are queued as well."""
    pull_log(replica)
    nodes = replica.keeper.children(replica.paths.queue)
    reads = replica.keeper.get_many([replica.paths.queue_entry(node) for node in nodes])
    entries = [decode(read[0]) for read in reads if read is not None]
    return [str(one.result) for one in entries if isinstance(one, MergeParts | MutatePart)]


@pytest.fixture
def no_part_is_small(monkeypatch) -> None:
    """Each takes a turn of its own."""
    monkeypatch.setattr(limits, "SMALL_MUTATION_BYTES", -1)


@pytest.mark.usefixtures("no_part_is_small")
def test_no_more_entries_are_assigned_than_the_queue_takes(table):
    for number in range(5):
        table.insert([{"n": number}])
    mutation = create_mutation(table.replica, "DELETE WHERE n = 7")
    version = load_mutations(table.replica).entries[mutation].version_in("all")
    replica = having(table.replica, max_replicated_mutations_in_queue=3)
    assigned = assign_mutations(replica)
    assert isinstance(assigned, list)
    parts = [f"all_{number}_{number}_0_{version}" for number in range(5)]
    assert [str(one.result) for one in assigned] == parts[:3]
    refusal = assign_mutations(replica)
    assert isinstance(refusal, Nothing)
    assert "3 mutations are queued (0 of them failing)" in refusal.reason
    assert queued(replica) == parts[:3]


def test_small_parts_are_many_in_one_turn(table, monkeypatch):
    monkeypatch.setattr(limits, "SMALL_MUTATIONS_PER_SLOT", 2)
    for number in range(5):
        table.insert([{"n": number}])
    create_mutation(table.replica, "DELETE WHERE n = 7")
    assigned = assign_mutations(having(table.replica, max_replicated_mutations_in_queue=2))
    assert isinstance(assigned, list)
    assert len(assigned) == 4


@pytest.mark.usefixtures("no_part_is_small")
def test_entries_that_fail_do_not_keep_others_from_being_assigned(table):
    for number in range(5):
        table.insert([{"n": number}])
    create_mutation(table.replica, "DELETE WHERE n = 7")
    replica = having(table.replica, max_replicated_mutations_in_queue=2)
    assert isinstance(assign_mutations(replica), list)
    pull_log(replica)
    failed = Attempts(3, "no room", 1, "").encode()
    for node in replica.keeper.children(replica.paths.queue):
        replica.keeper.multi([Create(replica.paths.attempts_of(node), failed)])
    more = assign_mutations(replica)
    assert isinstance(more, list)
    assert len(more) == 2
    assert len(queued(replica)) == 4


def test_parts_that_a_merge_takes_are_left_to_it(table):
    for number in range(4):
        table.insert([{"n": number}])
    table.optimize(settings={"alter_sync": 0})
    create_mutation(table.replica, "DELETE WHERE n = 7")
    assert isinstance(assign_mutations(table.replica), Nothing)
    assert queued(table.replica) == ["all_0_3_1"]


def test_an_idle_pool_takes_a_mutation_however_many_slots_it_wants_free(table):
    table.insert([{"n": 1}])
    create_mutation(table.replica, "DELETE WHERE n = 7")
    replica = having(
        table.replica,
        number_of_free_entries_in_pool_to_execute_mutation=limits.MERGES_MAX + 1,
    )
    assert isinstance(assign_mutations(replica), list)


def test_many_entries_are_written_in_few_multis(table, monkeypatch):
    for number in range(7):
        table.insert([{"n": number}])
    create_mutation(table.replica, "DELETE WHERE n = 7")
    monkeypatch.setattr(limits, "MUTATIONS_PER_MULTI_MAX", 3)
    keeper = Counting(table.replica.session)
    replica = replace(table.replica, keeper=keeper, memory=Memory())
    assigned = assign_mutations(replica)
    assert isinstance(assigned, list)
    assert len(assigned) == 7
    checks = 3  # the replica is active, was not cloned, and nobody assigned anything meanwhile
    written = [count - checks for count in keeper.multis if count > checks]
    assert written[-3:] == [3, 3, 1]
    assert len({one.log_entry for one in assigned}) == 7
    assert queued(replica) == [str(one.result) for one in assigned]


@pytest.mark.parametrize(
    ("bytes_and_parts", "multis"),
    [
        ((limits.MULTI_BYTES_MAX, 128), {1}),
        ((5500, 128), {2, 3}),  # all are claimed at once; as long as the paths are
        ((limits.MULTI_BYTES_MAX, 4), {2}),
    ],
)
def test_parts_that_only_get_another_name_are_published_together(
    alone, table, monkeypatch, bytes_and_parts, multis
):
    """P31."""
    for number in range(6):
        table.insert([{"n": number}])
    create_mutation(table.replica, "DELETE WHERE n = 7")
    assigned = assign_mutations(table.replica)
    assert isinstance(assigned, list)
    pull_log(table.replica)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", bytes_and_parts[0])
    monkeypatch.setattr(carry, "MADE_TOGETHER_MAX", bytes_and_parts[1])
    keeper = Counting(table.replica.session)
    replica = replace(table.replica, keeper=keeper, memory=Memory())
    clock = SystemClock()
    with (
        ServerContext.open(alone, "r1") as context,
        closing(context.peers(table.definition)) as peers,
    ):
        tools = Tools(peers, LocalMerger(clock), LocalMutator(clock))
        step = Executor(replica, tools, "merge").step(None)
    assert [done.error for done in step.done] == [""] * 6
    claim, *published = keeper.multis
    assert claim == 2 + 2 * 6
    assert sum(published) == 4 * 6
    assert len(published) in multis
    assert [part.name for part in table.parts()] == [one.result for one in assigned]
    assert table.store.staged() == []
