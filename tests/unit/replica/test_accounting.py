"""The engine's own guard: rows that a merge or mutation covers add up, or it does not happen."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.merge.job import MergeDone, MergeJob, MergeOutcome
from rmt_pipeline.compute.mutate.job import MutateJob, MutateOutcome
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import MergeParts, MutatePart
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Engine, TableDefinition
from rmt_pipeline.replica import accounting
from rmt_pipeline.replica.accounting import RowsDoNotAddUp
from rmt_pipeline.replica.assign import mutations
from rmt_pipeline.replica.assign.merges import (
    OUTDATED,
    Assigned,
    Nothing,
    assign_merge,
    merge_view,
    optimize_partition,
)
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import check_part, refetch
from rmt_pipeline.store.staging import StagedPart
from rmt_pipeline.zookeeper import transactions
from rmt_pipeline.zookeeper.keeper import Create, SetData
from tests.support.executor import Executor
from tests.support.local_replicas import ROOT, Replicas, definition_of

FIRST, SECOND, THIRD = (PartName.parse(f"all_{number}_{number}_0") for number in range(3))


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Three rows in three parts, on r1; r2 has nothing yet."""
    with Replicas(tmp_path) as opened:
        for value in range(3):
            opened.insert("r1", value)
        yield opened


def write(replicas: Replicas, entry: MergeParts) -> None:
    """Into the log, as an engine with a bug would."""
    replica = replicas["r1"]
    replica.keeper.multi([Create(replica.table.log_prefix, encode(entry), sequence=True)])


def merge_over(*sources: PartName) -> MergeParts:
    return MergeParts(
        create_time=1_700_000_000,
        source_replica="r1",
        sources=sources,
        result=PartName.parse("all_0_2_1"),
    )


def reasons(replicas: Replicas, name: str) -> list[str]:
    replica = replicas[name]
    nodes = replica.keeper.children(replica.paths.attempts)
    reads = replica.keeper.get_many([replica.paths.attempts_of(node) for node in nodes])
    return [Attempts.decode(read[0]).last_exception for read in reads if read is not None]


def test_a_merge_over_a_part_that_it_does_not_read_is_not_decided(replicas):
    """By whatever bug the one who decides has overlooked it."""
    replica = replicas["r1"]
    view = merge_view(replica)
    before = replica.keeper.children(replica.table.log)
    with pytest.raises(RowsDoNotAddUp, match=r"all_0_2_1 covers 1 parts .*: all_1_1_0\. Their"):
        assign_merge(replica, view, [FIRST, THIRD])
    assert replica.keeper.children(replica.table.log) == before


def test_nor_over_one_that_is_only_queued(replicas):
    replica = replicas["r1"]
    [file] = replica.store.files(SECOND)
    Path(file).unlink()
    assert check_part(replica, SECOND) is not None
    assert str(SECOND) not in replicas.parts("r1")
    view = merge_view(replica)
    with pytest.raises(RowsDoNotAddUp, match="all_1_1_0"):
        assign_merge(replica, view, [FIRST, THIRD])


def test_a_part_that_a_queued_drop_takes_may_be_covered(replicas):
    """1. r1 has to fetch the second part again. 2. r2 drops it; on r1 the drop is queued behind the
    fetch. 3. r1 assigns a merge of its neighbours, which waits for the drop on every replica.
    """
    replicas.work_off("r1", "r2")
    replica = replicas["r1"]
    [file] = replica.store.files(SECOND)
    Path(file).unlink()
    assert check_part(replica, SECOND) is not None
    replicas.table("r2").drop_part(SECOND, settings=QuerySettings(alter_sync=0))
    outcome = assign_merge(replica, merge_view(replica), [FIRST, THIRD])
    assert isinstance(outcome, Assigned)
    replicas.work_off("r1", "r2")
    for name in ("r1", "r2"):
        current = replicas[name].store
        assert str(outcome.result) in replicas.parts(name)
        assert str(SECOND) not in replicas.parts(name)
        assert current.manifest(outcome.result).rows == 2


def test_what_was_decided_on_another_state_is_outdated_and_no_bug(replicas):
    """1. What there is is looked at. 2. Somebody else assigns a merge, and it is pulled. 3. That is
    in the queue, and in none of the parts that were looked at. The log refuses it in any case.
    """
    replica = replicas["r1"]
    view = merge_view(replica)
    assert isinstance(assign_merge(replica, merge_view(replica), [FIRST, SECOND]), Assigned)
    pull_log(replica)
    outcome = assign_merge(replica, view, [FIRST, SECOND, THIRD])
    assert outcome == Nothing(OUTDATED, changed=True)


def test_nor_is_one_that_would_lose_rows_in_the_state_of_now(replicas):
    """Something was decided since: the log refuses it, whatever it covers now."""
    replica = replicas["r1"]
    view = merge_view(replica)
    replica.keeper.multi(transactions.bump_log(replica.table))
    outcome = assign_merge(replica, view, [FIRST, THIRD])
    assert outcome == Nothing(OUTDATED, changed=True)


def test_the_same_is_true_of_mutations_that_are_decided(replicas, monkeypatch):
    replica = replicas["r1"]
    replicas.table("r1").mutate("DELETE WHERE n = 1")
    real = mutations.queue_snapshot

    def overtaken(*arguments):
        monkeypatch.undo()
        seen = real(*arguments)
        replicas.table("r1").mutate("DELETE WHERE n = 2")
        assert isinstance(assign_mutations(replica), list)
        pull_log(replica)
        return seen

    monkeypatch.setattr(mutations, "queue_snapshot", overtaken)
    assert assign_mutations(replica) == Nothing(OUTDATED)


def test_what_is_in_the_log_all_the_same_is_made_and_not_published(replicas):
    write(replicas, merge_over(FIRST, THIRD))
    [failed] = replicas.step("r1").done
    assert "all_0_2_1 covers 1 parts that are in none of its 2 sources" in failed.error
    assert any("all_1_1_0" in text for text in reasons(replicas, "r1")), "last_exception"
    assert replicas.parts("r1") == ["all_0_0_0", "all_1_1_0", "all_2_2_0"]
    assert replicas["r1"].keeper.children(replicas["r1"].paths.executing) == []
    [kept] = replicas.stores["r1"].staged()
    assert "all_0_2_1" in kept
    rows = sum(replicas.stores["r1"].manifest(part).rows for part in (FIRST, SECOND, THIRD))
    assert rows == 3


def test_the_same_is_true_of_mutations(replicas):
    """Somebody promises a part in the range of the result while that is made."""
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    [made] = replicas.step("r1").done
    replica = replicas["r1"]
    replicas.table("r1").mutate("DELETE WHERE n = 1")
    assert assign_mutations(replica)

    class Meanwhile(LocalMutator):
        def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
            stray = replica.paths.part(replace(made.part, mutation=1))
            replica.keeper.multi([Create(stray, b"")])
            yield from super().mutate(jobs)

    replicas.step("r1", "fetch")
    tools = replicas.tools()
    mutator = Meanwhile(replicas.clock)
    executor = Executor(replica, replace(tools, mutator=mutator), "merge")
    [failed] = executor.step(None).done
    assert "all_0_2_1_3 covers 1 parts that are in none of its 1 sources" in failed.error
    assert "all_0_2_1_1" in failed.error


class Forgets:
    """A kernel with a bug that its own sums do not show: it says what its manifest says."""

    def __init__(self, replicas: Replicas) -> None:
        self._merger = LocalMerger(replicas.clock)

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for outcome in self._merger.merge(jobs):
            assert isinstance(outcome, MergeDone)
            yield replace(outcome, manifest=replace(outcome.manifest, row_hash=7))


def test_a_result_with_other_rows_than_zookeeper_has_of_its_sources_is_not_published(replicas):
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    [failed] = replicas.step("r1", merger=Forgets(replicas)).done
    assert f"the hash {7:032x}, those of its 3 sources" in failed.error
    assert replicas.parts("r1") == ["all_0_0_0", "all_1_1_0", "all_2_2_0"]


def test_what_does_not_add_up_is_set_aside_and_made_anew(replicas):
    """A kept result is as good as a new one, except for this one."""
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    for copy in ("", "_try1"):
        [failed] = replicas.step("r1", merger=Forgets(replicas)).done
        aside = f"rows-do-not-add-up_all_0_2_1{copy}"
        assert f"set aside as detached/{aside}. " in failed.error
        assert replicas.stores["r1"].staged() == []
        assert aside in replicas.stores["r1"].detached()
    [made] = replicas.step("r1").done
    assert (made.error, made.rows) == ("", 3)


def test_who_has_other_rows_than_another_replica_has_published_fetches_those(replicas):
    """Nothing is set aside: ours is not published anyway."""
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    replicas.step("r2", "fetch")
    [made] = replicas.step("r2").done
    assert made.error == ""
    replicas.step("r1", merger=Forgets(replicas))
    assert replicas.stores["r1"].detached() == []


def test_parts_of_another_partition_are_not_covered():
    a, b = PartName.parse("a_0_0_0"), PartName.parse("b_0_0_0")
    there = accounting._There((a, b), ["a_1_1_0", "b_1_1_0"])
    assert there.of("a") == [a, PartName.parse("a_1_1_0")]


def test_a_listing_is_used_for_a_while_and_then_made_anew(replicas, monkeypatch):
    replica = replicas["r1"]
    entry = MutatePart(
        create_time=1, source_replica="r1", source=FIRST, result=replace(FIRST, mutation=5)
    )
    right, listed = accounting._There.now, []

    def now(one):
        listed.append(replica.clock.monotonic_s())
        return right(one)

    monkeypatch.setattr(accounting._There, "now", now)
    accounts = accounting.Accounts(replica)
    for pause_s in (0.0, accounting.LISTED_VALID_S, 0.001):
        replicas.clock.sleep_s(pause_s)
        accounts.require(entry, cast("StagedPart", None))
    first, second = listed
    assert second - first > accounting.LISTED_VALID_S


def test_no_more_than_ten_of_them_are_kept(replicas):
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    for _ in range(11):
        [failed] = replicas.step("r1", merger=Forgets(replicas)).done
    assert "what was made is thrown away: " in failed.error
    assert replicas.stores["r1"].staged() == []
    assert len(replicas.stores["r1"].detached()) == 10


def test_one_that_is_gone_before_it_is_set_aside_is_told_as_that(replicas, monkeypatch):
    """A clean-up that takes its directory for a leftover was faster."""
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    store = replicas["r1"].store

    def goes_first(staged, part, reason):
        store.discard(staged)
        monkeypatch.undo()
        return store.detach_staged(staged, part, reason)

    monkeypatch.setattr(store, "detach_staged", goes_first)
    [failed] = replicas.step("r1", merger=Forgets(replicas)).done
    assert "what was made is gone" in failed.error
    assert store.staged() == store.detached() == []


def test_a_part_that_is_given_up_between_two_listings_is_covered_all_the_same(
    replicas, monkeypatch
):
    """1. The queue is listed. 2. A part that a merge has overlooked is found broken, and goes from
    the parts to the queue. 3. The parts are listed: it is in neither.
    """
    replica = replicas["r1"]
    write(replicas, merge_over(FIRST, THIRD))
    pull_log(replica)
    real, left = accounting.queued_entries, [1]

    def listed(keeper, paths, known):
        found = real(keeper, paths, known)
        if left:
            left.pop()
            Path(replica.store.files(SECOND)[0]).unlink()
            assert refetch(replica, SECOND) is not None
        return found

    monkeypatch.setattr(accounting, "queued_entries", listed)
    [failed] = replicas.step("r1").done
    assert not left
    assert "all_0_2_1 covers 1 parts that are in none of its 2 sources" in failed.error
    assert replicas.parts("r1") == ["all_0_0_0", "all_2_2_0"]


def test_a_mutation_over_a_part_that_it_does_not_read_is_not_decided(replicas, monkeypatch):
    """By whatever bug the one who decides has overlooked it."""
    replica = replicas["r1"]
    replicas.table("r1").mutate("DELETE WHERE n = 1")
    log = replica.keeper.children(replica.table.log)
    real = mutations.queue_snapshot

    def overlooked(*arguments):
        seen = real(*arguments)
        stray = replica.paths.part(replace(FIRST, mutation=2))
        replica.keeper.multi([Create(stray, b"")])
        return seen

    monkeypatch.setattr(mutations, "queue_snapshot", overlooked)
    with pytest.raises(RowsDoNotAddUp, match=r"all_0_0_0_3 covers 1 parts .*: all_0_0_0_2\."):
        assign_mutations(replica)
    assert replica.keeper.children(replica.table.log) == log


def test_what_adds_up_is_published(replicas):
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    [made] = replicas.step("r1").done
    assert (made.error, made.rows) == ("", 3)


def test_of_sources_that_say_nothing_in_zookeeper_no_sum_is_made(replicas):
    """The node of one was made by hand, for bytes that were brought back."""
    replica = replicas["r1"]
    write(replicas, merge_over(FIRST, SECOND, THIRD))
    replica.keeper.multi([SetData(replica.paths.part(SECOND), b"")])
    [made] = replicas.step("r1").done
    assert (made.error, made.rows) == ("", 3)


def test_where_rows_may_go_nothing_is_compared_with_what_they_were(replicas):
    """A merge that deduplicates leaves rows out, and its sum is another one."""
    write(replicas, replace(merge_over(FIRST, SECOND, THIRD), deduplicate=True))
    [made] = replicas.step("r1", merger=Forgets(replicas)).done
    assert made.error == ""
    assert "all_0_2_1" in replicas.parts("r1")


def test_nor_where_the_engine_leaves_rows_out(tmp_path):
    """Of two rows with one key a ReplacingMergeTree keeps the later one."""

    def replacing(replica: str) -> TableDefinition:
        engine = Engine("ReplacingMergeTree", ROOT, replica)
        return replace(definition_of(replica), engine=engine)

    with Replicas(tmp_path, ["r1"], define=replacing) as replicas:
        replicas.insert("r1", 1, 2)
        replicas.insert("r1", 2, 3)
        optimize_partition(replicas["r1"], "all", final=True, skip_merged=False)
        [made] = replicas.step("r1").done
        assert (made.error, made.rows) == ("", 3)
