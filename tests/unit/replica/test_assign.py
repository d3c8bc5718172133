"""What is decided about the table is decided on what the replica still is."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign import merges as assign
from rmt_pipeline.replica.assign import mutations as assign_mutations
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    Nothing,
    assign_merge,
    choose_merge,
    merge_view,
    optimize_partition,
)
from rmt_pipeline.replica.assign.optimize import OptimizeRequest, optimize
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.upkeep.check import refetch
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import Replicas, by_tens

FIRST, SECOND, THIRD = (PartName.parse(f"all_{number}_{number}_0") for number in range(3))


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, ("r1", "r2", "r3")) as opened:
        yield opened


def follow(replicas: Replicas, *names: str) -> None:
    for name in names:
        while replicas.step(name, "fetch").did_something:
            pass


def become_a_clone(replica: Replica) -> None:
    replica.keeper.multi([SetData(replica.paths.is_lost, b"1")])
    assert clone_if_lost(replica) is not None


def once_after(
    module: object, name: str, happens: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = getattr(module, name), [happens]

    def called(*given, **named):
        found = real(*given, **named)
        if left:
            left.pop()()
        return found

    monkeypatch.setattr(module, name, called)


def test_a_clone_while_a_merge_is_chosen_hides_no_part_from_it(replicas, monkeypatch):
    """1. What r1 has is read: the first and the third part; the second one is in flight. 2. It is
    committed, and r1 pulls it. 3. r1 becomes a clone of r2, which has not pulled it: the second
    part is in the log, and r1 has it neither in its queue nor among its parts. 4. What r1 has is
    read again. A merge of first and third would cover the second.
    """
    r1, r3 = replicas["r1"], replicas["r3"]
    replicas.insert("r1", 0)
    lock = Create(r3.table.lock_prefix("all"), ephemeral=True, sequence=True)
    [in_flight] = r3.keeper.multi([lock])
    replicas.insert("r1", 2)
    follow(replicas, "r1", "r2")
    entry = encode(GetPart(create_time=1, source_replica="r3", part=SECOND))
    commit = [Delete(in_flight), Create(r3.table.log_prefix, entry, sequence=True)]
    once_after(assign, "queue_snapshot", lambda: r3.keeper.multi(commit), monkeypatch)
    once_after(assign, "pull_log", lambda: become_a_clone(r1), monkeypatch)

    view = merge_view(r1)
    assert view.predicate.merge_range([FIRST, THIRD]) is None, "it looks as if it could be"
    outcome = assign_merge(r1, view, [FIRST, THIRD])
    assert isinstance(outcome, Nothing)
    assert outcome.changed
    assert merge_view(r1).predicate.merge_range([FIRST, THIRD]) is not None


def test_a_mutation_that_is_written_between_two_reads_of_a_view_is_seen(replicas, monkeypatch):
    """M4. 1. A mutation holds its number, 1, and is not written yet; the blocks 0 and 2 are there.
    2. One of the two is read: the numbers that are held, or the mutations. 3. It is written, and
    gives its number back. 4. The other one is read. A merge of both blocks would do to the second
    what is meant for the first.
    """
    r1, r3 = replicas["r1"], replicas["r3"]
    replicas.insert("r1", 0)
    lock = Create(r3.table.lock_prefix("all"), ephemeral=True, sequence=True)
    [held] = r3.keeper.multi([lock])
    replicas.insert("r1", 2)
    follow(replicas, "r1")
    _, stat = r3.keeper.get(r3.table.mutations)
    entry = MutationEntry(1, "r3", (("all", 1),), "DELETE WHERE n = 2")
    writes = [transactions.create_mutation(r3.table, entry.encode(), stat.version, held)]

    def write_it() -> None:
        if writes:
            r3.keeper.multi(writes.pop())

    once_after(assign, "committing_blocks", write_it, monkeypatch)
    once_after(assign, "load_mutations", write_it, monkeypatch)
    view = merge_view(r1)
    assert writes == []
    assert view.predicate.merge_range([FIRST, THIRD]) is not None


def test_one_that_comes_after_the_last_look_is_refused_by_zookeeper(replicas, monkeypatch):
    r1 = replicas["r1"]
    for value in range(2):
        replicas.insert("r1", value)
    follow(replicas, "r1", "r2")
    view = merge_view(r1)
    once_after(assign, "covered_now", lambda: become_a_clone(r1), monkeypatch)
    outcome = assign_merge(r1, view, [FIRST, SECOND])
    assert isinstance(outcome, Nothing)
    assert outcome.changed
    assert isinstance(assign_merge(r1, merge_view(r1), [FIRST, SECOND]), Assigned)


def test_no_part_is_mutated_whose_merge_a_clone_has_hidden(replicas, monkeypatch):
    """The merge is in the log, so the mutated part would lie across its result."""
    r1, r2 = replicas["r1"], replicas["r2"]
    for value in range(2):
        replicas.insert("r1", value)
    follow(replicas, "r1", "r2")
    create_mutation(r1, "DELETE WHERE n = 0")
    assert isinstance(assign_merge(r2, merge_view(r2), [FIRST, SECOND]), Assigned)
    r2.keeper.multi([SetData(r2.paths.log_pointer, b"2")])  # as if it had not pulled that
    for node in r2.keeper.children(r2.paths.queue):
        r2.keeper.multi([Delete(r2.paths.queue_entry(node))])
    once_after(assign_mutations, "pull_log", lambda: become_a_clone(r1), monkeypatch)
    outcome = assign_mutations.assign_mutations(r1)
    assert isinstance(outcome, Nothing)


def test_a_part_that_is_given_up_between_two_listings_does_not_look_like_a_bug(
    replicas, monkeypatch
):
    """1. The queue is listed. 2. The part goes from the parts to the queue. 3. The parts are
    listed: it is in neither.
    """
    r1 = replicas["r1"]
    for value in range(3):
        replicas.insert("r1", value)
    follow(replicas, "r1")
    view = merge_view(r1)
    [file] = r1.store.files(SECOND)
    Path(file).unlink()
    assert refetch(r1, SECOND) is not None
    outcome = assign_merge(r1, view, [FIRST, THIRD])
    assert isinstance(outcome, Nothing)
    assert outcome.changed


def leave(replicas: Replicas) -> None:
    """All that there is is dropped, and off the disk of r1."""
    replicas.table("r1").truncate(settings={"alter_sync": "0"})
    follow(replicas, "r1")
    assert not replicas["r1"].store.parts()


def test_what_a_statement_took_since_it_was_listed_is_not_optimized(replicas, monkeypatch):
    """1. OPTIMIZE lists the parts. 2. A drop, or a replacement, takes them, off the disk too. 3. It
    asks for their sizes: nothing is broken, there is nothing to merge any more.
    """
    replicas.insert("r1", 0)
    replicas.insert("r1", 1)
    once_after(assign, "merge_view", lambda: leave(replicas), monkeypatch)
    outcome = optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
    assert outcome == Nothing("partition all: the partition has no parts")


def test_a_part_that_can_not_be_optimized_is_fetched_first(replicas):
    """It is promised, and not here: whoever asks waits for the queue, and asks again."""
    replicas.insert("r1", 0)
    replicas.insert("r1", 1)
    follow(replicas, "r2")
    r1 = replicas["r1"]
    shutil.rmtree(r1.store.directory(FIRST))
    outcome = optimize_partition(r1, "all", final=True, skip_merged=False)
    assert isinstance(outcome, Nothing)
    assert outcome.changed, outcome
    follow(replicas, "r1")
    assert isinstance(optimize_partition(r1, "all", final=True, skip_merged=False), Assigned)


@pytest.mark.parametrize("partition", [None, "all"])
@pytest.mark.parametrize("final", [False, True])
def test_optimize_deduplicates_with_and_without_final(replicas, partition, final):
    """OPTIMIZE TABLE t DEDUPLICATE chooses the merge by itself; it says what that has to do."""
    replicas.insert("r1", 0)
    replicas.insert("r1", 1)
    r1 = replicas["r1"]
    wanted = OptimizeRequest(partition, final, deduplicate=True, deduplicate_by=("n",))
    optimize(lambda: r1, wanted, QuerySettings(alter_sync=0), EventWaker)
    name = r1.keeper.children(r1.table.log)[-1]
    entry = decode(r1.keeper.get(f"{r1.table.log}/{name}")[0])
    assert (entry.deduplicate, entry.deduplicate_by) == (True, ("n",))


def test_what_a_statement_took_since_it_was_listed_is_not_chosen(replicas, monkeypatch):
    """As above, for the merges that a server looks for by itself: a run that was weighed before is
    not weighed again, and TTL asks for more of its parts.
    """
    replicas.insert("r1", 0)
    replicas.insert("r1", 1)
    r1 = replicas["r1"]
    monkeypatch.setattr(assign, "ttl_rules", lambda _: ("a rule",))
    monkeypatch.setattr(assign, "select_ttl_merge", lambda *_: None)
    view = merge_view(r1)
    choose_merge(r1, view, aggressive=False)
    leave(replicas)
    assert isinstance(choose_merge(r1, view, aggressive=False), Nothing)


def test_what_a_statement_took_since_it_was_seen_is_mutated_by_nobody(replicas, monkeypatch):
    """1. The source of a mutation is there. 2. A drop takes it. 3. Its size is asked for."""
    replicas.insert("r1", 0)
    create_mutation(replicas["r1"], "DELETE WHERE n = 0")
    once_after(PartStore, "has", lambda: leave(replicas), monkeypatch)
    outcome = assign_mutations.assign_mutations(replicas["r1"])
    assert isinstance(outcome, Nothing)


def test_a_run_is_weighed_once_as_long_as_its_parts_are_the_same(replicas, monkeypatch):
    """Weighing one reads the manifests of its parts."""
    weighed: list[int] = []
    right = assign._known_manifests

    def counted(replica, run):
        weighed.append(len(run))
        return right(replica, run)

    monkeypatch.setattr(assign, "_known_manifests", counted)
    for value in range(3):
        replicas.insert("r1", value)
        for _ in range(2):
            choose_merge(replicas["r1"], merge_view(replicas["r1"]), aggressive=False)
    assert weighed == [1, 2, 3]


@pytest.mark.parametrize(("room", "assigned"), [(1, 0), (2, 1), (3, 2), (9, 3)])
def test_merges_that_are_queued_leave_less_room_for_mutations(
    tmp_path, monkeypatch, room: int, assigned: int
):
    """Here each takes a slot, as a large one does."""
    monkeypatch.setattr(assign_mutations, "slots_of", lambda *_: 1.0)
    with Replicas(tmp_path, define=by_tens) as replicas:
        for value in (1, 2, 11, 21, 31):
            replicas.insert("r1", value)
        r1 = replicas["r1"]
        optimize_partition(r1, "0", final=True, skip_merged=False)
        create_mutation(r1, "DELETE WHERE n > 0")
        replicas.set(max_replicated_merges_in_queue=str(room))
        outcome = assign_mutations.assign_mutations(r1)
        if assigned:
            assert [one.result.partition for one in outcome] == ["1", "2", "3"][:assigned]
        else:
            assert isinstance(outcome, Nothing)
            assert "1 merges and mutations are queued" in outcome.reason
