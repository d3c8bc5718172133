"""A claim never outlives its work: whatever goes wrong between taking it and giving it back."""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeJob, MergeOutcome
from rmt_pipeline.exchange.peers import FetchRequest
from rmt_pipeline.protocol.errors import NoReplicaHasPart, OutcomeUnknown, Unavailable
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.nodes.records import Attempts, Claim
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import (
    Assigned,
    assign_merge,
    merge_view,
    optimize_partition,
)
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.claims import Holder
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.replica.work import mutate
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.snapshot import queue_snapshot
from tests.support.executor import Executor
from tests.support.local_replicas import DirectPeers, Replicas
from tests.support.lost_answers import before

Matches = Callable[[Op], bool]


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Two parts on r1, with their merge in its queue; r2 has nothing yet."""
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1)
        opened.insert("r1", 2)
        optimize_partition(opened["r1"], "all", final=True, skip_merged=False)
        yield opened


def claims(replica: Replica) -> list[str]:
    return replica.keeper.children(replica.paths.executing)


def told(replica: Replica) -> list[str]:
    """Why entries failed, as people are told."""
    nodes = replica.keeper.children(replica.paths.attempts)
    reads = replica.keeper.get_many([replica.paths.attempts_of(node) for node in nodes])
    return [Attempts.decode(read[0]).last_exception for read in reads if read is not None]


def carried_out(executor: Executor) -> list[PartDone]:
    return [done for batch in executor.look(None).batches for done in executor.carry_out(batch)]


def test_an_error_of_megabytes_is_noted_in_short(replicas, monkeypatch):
    """It may quote a value. Its note would be too large for ZooKeeper, and its pool would end."""

    def fails(_: DirectPeers, requests: Sequence[FetchRequest], __: PartStore) -> Any:
        yield [(one, NoReplicaHasPart("x" * 3_000_000)) for one in requests]

    monkeypatch.setattr(DirectPeers, "fetch", fails)
    replica = replicas["r2"]
    pull_log(replica)
    done = carried_out(Executor(replica, replicas.tools(), "fetch"))
    assert [len(one.error) < 20_000 for one in done] == [True, True]
    assert [one.error for one in done] == told(replica)
    assert "characters more" in done[0].error
    assert claims(replica) == []


class Lossy:
    """A session of which some writes have no answer: the request is lost, or the answer is."""

    def __init__(
        self, replica: Replica, matches: Matches, *, lands: bool, times: int = 1
    ) -> None:
        self.left = times
        self._matches = matches
        self._lands = lands
        self._multi = replica.keeper.multi
        replica.keeper.multi = self.multi  # type: ignore[method-assign]

    def multi(self, ops: Sequence[Op]) -> list[str]:
        if self.left and any(map(self._matches, ops)):
            self.left -= 1
            if self._lands:
                self._multi(ops)
            raise OutcomeUnknown("no answer")
        return self._multi(ops)


def gives_back(op: Op) -> bool:
    return isinstance(op, Delete) and "/executing/" in op.path


def takes(op: Op) -> bool:
    return isinstance(op, Create) and "/executing/" in op.path


def publishes(op: Op) -> bool:
    return isinstance(op, Create) and "/parts/" in op.path


class Raises:
    """A merger in which something breaks that nobody expected."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        raise self._error
        yield


EIO = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("error", [EIO, KeyError("a bug"), Unavailable("gone")], ids=repr)
def test_whatever_a_merger_raises_the_claim_is_given_back_and_the_entry_tried_again(
    replicas, error
):
    executor = replicas.executor("r1", "merge", merger=Raises(error))
    replicas.step("r1", "fetch")
    [failed] = carried_out(executor)
    assert str(error) in failed.error
    assert claims(replicas["r1"]) == []
    assert any(str(error) in text for text in told(replicas["r1"]))
    assert executor.step(None).done == (), "it waits before it is tried again"
    [made] = replicas.step("r1").done
    assert (made.rows, made.error) == (2, "")


def test_a_bug_is_told_from_what_may_happen(replicas):
    replicas.step("r1", "fetch")
    bug = KeyError("a bug")
    [failed] = carried_out(replicas.executor("r1", "merge", merger=Raises(bug)))
    assert failed.bug is bug
    [failed] = carried_out(replicas.executor("r1", "merge", merger=Raises(EIO)))
    assert failed.bug is None
    with pytest.raises(KeyError, match="a bug"):
        replicas.executor("r1", "merge", merger=Raises(bug)).step(None)
    assert claims(replicas["r1"]) == []


def test_an_interrupt_gives_claims_back_and_goes_on_up(replicas):
    with pytest.raises(KeyboardInterrupt):
        replicas.step("r1", merger=Raises(KeyboardInterrupt()))
    assert claims(replicas["r1"]) == []


def test_a_disk_that_fails_while_parts_are_fetched_holds_no_claim(replicas, monkeypatch):
    def fetch(*_: object) -> Iterator[object]:
        raise EIO
        yield

    monkeypatch.setattr(DirectPeers, "fetch", fetch)
    done = replicas.step("r2", "fetch").done
    assert len(done) == 2
    assert all("Input/output error" in failed.error for failed in done)
    assert claims(replicas["r2"]) == []


def test_a_disk_that_fails_when_a_part_is_published_holds_no_claim(replicas, monkeypatch):
    def publish(*_: object) -> None:
        raise EIO

    monkeypatch.setattr(type(replicas.stores["r1"]), "publish", publish)
    [failed] = replicas.step("r1").done
    assert "Input/output error" in failed.error
    assert claims(replicas["r1"]) == []


def test_an_unreadable_list_of_mutations_holds_no_claim(replicas, monkeypatch):
    replicas.step("r1")
    replicas.table("r1").mutate("DELETE WHERE n = 1")
    assert assign_mutations(replicas["r1"])

    def load(_: Replica) -> None:
        raise Unavailable("no answer")

    with monkeypatch.context() as broken:
        broken.setattr(mutate, "load_mutations", load)
        [failed] = replicas.step("r1").done
    assert failed.error == "no answer"
    assert claims(replicas["r1"]) == []
    [made] = replicas.step("r1").done
    assert (made.rows, made.error) == (1, "")


@pytest.mark.parametrize("lands", [True, False])
def test_a_claim_without_an_answer_is_not_kept(replicas, lands):
    """P10. It may be ours, or may come: it is given back, and the entry taken anew."""
    replica = replicas["r1"]
    lossy = Lossy(replica, takes, lands=lands)
    assert replicas.step("r1").done == ()
    assert lossy.left == 0
    assert claims(replica) == []
    [made] = replicas.step("r1").done
    assert (made.rows, made.error) == (2, "")


def test_claims_of_another_are_not_taken_for_ours(replicas):
    """P10. Ours has no answer; what is there was claimed by another worker of this session."""
    replica = replicas["r1"]
    replicas.step("r1", "fetch")
    other = replicas.executor("r1", "merge")
    multi = replica.keeper.multi
    began = []

    def lost(ops: Sequence[Op]) -> list[str]:
        if any(map(takes, ops)) and not began:
            began.append(ops)
            replica.keeper.multi = multi  # type: ignore[method-assign]
            [batch] = other.look(None).batches
            began.append(batch)
            raise OutcomeUnknown("no answer")
        return multi(ops)

    replica.keeper.multi = lost  # type: ignore[method-assign]
    mine = replicas.executor("r1", "merge").look(None)
    assert len(began) == 2, "the other one has claimed"
    assert mine.batches == ()
    assert len(claims(replica)) == 1
    assert [one.error for one in other.carry_out(began[1])] == [""]


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_a_claim_that_is_given_back_without_an_answer_is_given_back_again(
    replicas, lands, times
):
    replica = replicas["r1"]
    lossy = Lossy(replica, gives_back, lands=lands, times=times)
    [failed] = replicas.step("r1", merger=Raises(Unavailable("nobody computes"))).done
    assert failed.error == "nobody computes"
    for _ in range(times):  # each contact with ZooKeeper is a try
        claims(replica)
    assert lossy.left < times
    assert claims(replica) == []


def test_a_claim_that_nobody_takes_back_goes_as_soon_as_somebody_answers(replicas):
    replica = replicas["r1"]
    lossy = Lossy(replica, gives_back, lands=False, times=1000)
    replicas.step("r1", merger=Raises(Unavailable("nobody computes")))
    assert replicas.zookeeper.nodes[replica.paths.executing].children
    lossy.left = 0
    assert claims(replica) == []


@pytest.mark.parametrize("lands", [True, False])
def test_a_publication_without_an_answer_is_settled_and_the_session_goes_on(replicas, lands):
    replica = replicas["r1"]
    lossy = Lossy(replica, publishes, lands=lands)
    [made] = replicas.step("r1").done
    assert lossy.left == 0
    assert (made.rows, made.error) == (2, "")
    assert "all_0_1_1" in replicas.parts("r1")
    assert claims(replica) == []
    assert replicas.stores["r1"].verify(made.part).rows == 2


def test_one_that_failed_runs_alone_so_that_its_neighbours_do_not_fail_with_it(tmp_path):
    class PickyMerger:
        """Raises what no caller expects when a certain merge is among the jobs."""

        def __init__(self, replicas: Replicas) -> None:
            self._merger = LocalMerger(replicas.clock)

        def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
            if any(job.result == "all_0_1_1" for job in jobs):
                raise EIO
            yield from self._merger.merge(jobs)

    with Replicas(tmp_path) as replicas:
        for value in range(4):
            replicas.insert("r1", value)
        replica = replicas["r1"]
        for sources in ("all_0_0_0 all_1_1_0", "all_2_2_0 all_3_3_0"):
            assign(replica, sources)
        replicas.step("r1", "fetch")
        executor = replicas.executor("r1", "merge", merger=PickyMerger(replicas))
        executor.step(None)
        replicas.clock.sleep_s(1)
        done = {str(one.part): one.error for one in executor.step(None).done}
        assert done["all_2_3_1"] == ""
        assert "Input/output error" in done["all_0_1_1"]


def assign(replica: Replica, sources: str) -> None:
    parts = [PartName.parse(name) for name in sources.split()]
    assert isinstance(assign_merge(replica, merge_view(replica), parts), Assigned)


def test_claims_are_told_apart_by_the_worker_that_holds_them(replicas):
    """Also of one process: people see which of its hands it is."""
    replicas.step("r1", "fetch")
    replica = replicas["r1"]
    executor = replicas.executor("r1", "merge")
    [batch] = executor.look(None).batches
    [node] = claims(replica)
    text = replica.keeper.get(replica.paths.claim(node))[0].decode()
    assert f"worker: {replica.worker}" in text
    assert isinstance(batch.tasks[0].entry, MergeParts)


def test_a_failure_without_an_answer_takes_no_claim_of_another_away(replicas):
    """1. The failure is noted and the claim given back; the answer is lost. 2. Another process
    claims the entry. 3. The first one makes sure that it holds nothing any more.
    """
    replica, other = (
        replicas["r1"],
        replace(replicas["r1"], keeper=replicas.zookeeper.connect(), worker="another"),
    )
    replicas.step("r1", "fetch")
    real = replica.keeper.multi
    taken: list[Holder] = []

    def multi(ops: Sequence[Op]) -> list[str]:
        answer = real(ops)
        if not taken and any(map(gives_back, ops)):
            snapshot = queue_snapshot(other.keeper, other.paths, other.memory.queue)
            taken.append(Holder.new(other))
            assert taken[0].take(snapshot, dict.fromkeys(snapshot.entries, ()))
            raise OutcomeUnknown("no answer")
        return answer

    replica.keeper.multi = multi
    [failed] = carried_out(replicas.executor("r1", "merge", merger=Raises(EIO)))
    assert str(EIO) in failed.error
    assert replica.keeper.exists(replica.table.root) is not None, "any contact will do"
    assert len(claims(other)) == 1
    other.keeper.close()
    assert claims(replica) == []


def test_a_merge_is_published_although_another_replica_is_dropped_at_this_moment(tmp_path):
    """1. r1 has merged, and has seen that r3 has no such part. 2. r3 is dropped. 3. r1 publishes:
    it is looked at once more who has it.
    """
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as three:
        three.insert("r1", 1)
        three.insert("r1", 2)
        optimize_partition(three["r1"], "all", final=True, skip_merged=False)
        three.step("r1", "fetch")

        def dropped() -> None:
            three.stop("r3")
            drop_replica(three["r2"].keeper, three["r2"].table, "r3")

        with before(three["r1"].keeper, publishes, dropped):
            [made] = three.step("r1").done
        assert made.error == ""
        assert "all_0_1_1" in three.parts("r1")


def lost_to(replica: Replica, *claims_beside: Sequence[Op]) -> list[Sequence[Op]]:
    """The multis that claim here from now on; one of `claims_beside` lands before each of the first
    ones, as if another pool of this process were faster.
    """
    right, left, claimed = replica.keeper.multi, list(claims_beside), []

    def slower(ops: Sequence[Op]) -> list[str]:
        if any(map(takes, ops)):
            claimed.append(ops)
            if left:
                right([SetData(replica.paths.executing, b""), *left.pop(0)])
        return right(ops)

    replica.keeper.multi = slower  # type: ignore[method-assign]
    return claimed


def claim_of(replica: Replica, number: int, part: PartName) -> Create:
    path = replica.paths.claim(f"queue-{number:010d}")
    return Create(path, Claim("another pool", (part,)).encode())


def test_a_merge_is_claimed_in_the_same_look_when_the_fetch_pool_is_faster(replicas):
    """A busy fetch pool claims more often than a merge pool looks at its sources, and no merge
    would ever begin.
    """
    replica = replicas["r1"]
    replicas.step("r1", "fetch")
    beside = [
        [claim_of(replica, 900 + n, PartName("all", 90 + n, 90 + n, 0))] for n in range(3)
    ]
    claimed = lost_to(replica, *beside)
    executor = replicas.executor("r1", "merge")
    [batch] = executor.look(None).batches
    assert len(claimed) == 4
    assert [one.error for one in executor.carry_out(batch)] == [""]
    assert len(claims(replica)) == 3, "those of the other pool"


def test_a_fetch_is_claimed_in_the_same_look_when_the_merge_pool_is_faster(replicas):
    """Else an insert waits for another look, just when merges begin and everything is slow."""
    replica = replicas["r2"]
    pull_log(replica)
    beside = [[claim_of(replica, 900, PartName("all", 90, 95, 1))]]
    claimed = lost_to(replica, *beside)
    executor = replicas.executor("r2", "fetch")
    [batch] = executor.look(None).batches
    assert len(claimed) == 2
    assert not {one.error for one in executor.carry_out(batch)} - {""}
    assert len(claims(replica)) == 1, "that of the other pool"


def test_a_fetch_is_not_claimed_again_beside_what_excludes_it(replicas):
    """Another pool has claimed a part that overlaps, or the entry; or the entry is gone."""
    replica = replicas["r2"]
    pull_log(replica)
    node = min(replica.keeper.children(replica.paths.queue))
    number = int(node.rpartition("-")[2])
    for beside in (
        claim_of(replica, 900, PartName("all", 0, 5, 2)),
        claim_of(replica, number, PartName("all", 0, 0, 0)),
    ):
        lost_to(replica, [beside])
        assert replicas.executor("r2", "fetch").look(None).batches == ()
        replica.keeper.multi([Delete(beside.path)])
    lost_to(replica, [Delete(replica.paths.queue_entry(node))])
    assert replicas.executor("r2", "fetch").look(None).batches == ()


def test_what_is_published_during_a_look_is_not_left_to_others(replicas):
    """Else the next look reads all claims, as it does while it waits for another worker."""
    replica, executor = replicas["r2"], replicas.executor("r2", "fetch")
    pull_log(replica)
    [batch] = executor.look(None).batches
    right: Any = replica.keeper.get_many

    def read(paths: Sequence[str]) -> list[Any]:
        found: list[Any] = right(paths)
        if replica.paths.parts in paths and batch.left:
            assert [done.error for done in executor.carry_out(batch)] == ["", ""]
        return found

    replica.keeper.get_many = read  # type: ignore[method-assign]
    look = executor.look(None)
    assert not batch.left
    assert not look.batches
    assert look.step.left == 0


def test_a_merge_is_not_claimed_again_beside_what_excludes_it(replicas):
    """Another pool makes a part that overlaps the result; and one that has claimed the merge."""
    replica = replicas["r1"]
    replicas.step("r1", "fetch")
    [node] = replica.keeper.children(replica.paths.queue)
    number = int(node.rpartition("-")[2])
    for beside in (
        claim_of(replica, 900, PartName("all", 0, 5, 2)),
        claim_of(replica, number, PartName("all", 0, 1, 1)),
    ):
        lost_to(replica, [beside])
        assert replicas.executor("r1", "merge").look(None).batches == ()
        assert [replica.paths.claim(one) for one in claims(replica)] == [beside.path]
        replica.keeper.multi([Delete(beside.path)])


def test_a_merge_is_not_claimed_again_without_its_sources(replicas):
    """A source was lost meanwhile; it is fetched again."""
    replica = replicas["r1"]
    replicas.step("r1", "fetch")
    lost_to(replica, [Delete(replica.paths.part(PartName("all", 0, 0, 0)))])
    assert replicas.executor("r1", "merge").look(None).batches == ()
    assert claims(replica) == []


def test_a_claim_is_tried_a_few_times_in_a_look(replicas):
    replica = replicas["r1"]
    replicas.step("r1", "fetch")
    claimed = lost_to(replica, *[[]] * 20)
    assert replicas.executor("r1", "merge").look(None).batches == ()
    assert 2 <= len(claimed) <= 10
    assert claims(replica) == []


def test_an_entry_that_went_meanwhile_is_not_claimed_and_nothing_else_is_wrong(
    replicas: Replicas,
) -> None:
    """Another worker has finished it, or a drop took it."""
    replica = replicas["r1"]
    pull_log(replica)
    snapshot = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue)
    [node] = snapshot.entries
    replica.keeper.multi([Delete(replica.paths.queue_entry(node))])
    assert Holder.new(replica).take(snapshot, {node: (PartName("all", 0, 1, 1),)}) is False
    assert claims(replica) == []


def test_batches_that_are_carried_out_are_not_kept(replicas: Replicas) -> None:
    executor = replicas.executor("r2", "fetch")
    for value in range(3, 6):
        replicas.insert("r1", value)
        pull_log(replicas["r2"])
        assert carried_out(executor)
        executor.look(None)
    assert executor._begun == []
