"""What an attempt has fetched or made that died before it published is taken by the next one."""

import dataclasses
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.compute.mutate.job import MutateJob, MutateOutcome
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.log.codec import decode, encode
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.mutations.mutations import kill_mutation, load_mutations
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.replica import Memory
from rmt_pipeline.replica.work.carry import YOUNG_S, Tools
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.replica.work.step import Step
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Delete, SetData
from tests.support.executor import Executor
from tests.support.local_replicas import DirectPeers, Replicas


class Counted(DirectPeers):
    """Fetches and mutates; `asked` is what was asked for."""

    def __init__(self, replicas: Replicas) -> None:
        super().__init__(replicas.stores)
        self._mutator = LocalMutator(replicas.clock)
        self.asked: list[str] = []

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        self.asked += [str(request.part) for request in requests]
        return super().fetch(requests, store)

    def mutate(self, jobs: Sequence[MutateJob]) -> Iterator[MutateOutcome]:
        self.asked += [job.result for job in jobs]
        return self._mutator.mutate(jobs)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1, 2)
        yield opened


def step(replicas: Replicas, name: str, pool: Pool) -> tuple[Step, list[str]]:
    """By another process than before; what it asked for."""
    replica = replicas[name]
    pull_log(replica)
    counted = Counted(replicas)
    tools = Tools(counted, LocalMerger(replicas.clock), counted)
    return Executor(replica, tools, pool).step(None), counted.asked


def die_at_publishing(
    replicas: Replicas, name: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The one directory that is left of it."""
    store = replicas.stores[name]

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            step(replicas, name, pool)
    [left] = store.staged()
    return left


def test_a_part_that_was_fetched_is_not_asked_for_again(replicas, monkeypatch):
    die_at_publishing(replicas, "r2", "fetch", monkeypatch)
    done, asked = step(replicas, "r2", "fetch")
    assert [(str(one.part), one.error) for one in done.done] == [("all_0_0_0", "")]
    assert asked == []
    assert replicas.parts("r2") == ["all_0_0_0"]
    assert replicas.stores["r2"].staged() == []
    assert replicas.table("r2").dataset().to_table().column("n").to_pylist() == [1, 2]


def test_what_may_be_left_is_listed_once_in_a_session_and_for_entries_that_are_not_young(
    replicas, monkeypatch
):
    """The table's directory may have tens of thousands of parts, and a busy replica fetches a few
    at a time.
    """
    replica, store = replicas["r2"], replicas.stores["r2"]
    listings, real = [], store.staged
    monkeypatch.setattr(store, "staged", lambda: listings.append(1) or real())
    executor = Executor(
        replica,
        Tools(Counted(replicas), LocalMerger(replicas.clock), Counted(replicas)),
        "fetch",
    )
    for waits_s, listed in ((0.0, 1), (YOUNG_S - 1, 1), (YOUNG_S, 2)):
        replicas.clock.passed_s += waits_s
        pull_log(replica)
        assert executor.step(None).done
        assert len(listings) == listed
        replicas.insert("r1", 3 + len(listings), int(waits_s))
    assert len(replicas.parts("r2")) == 3


def test_what_a_merge_may_have_left_is_listed_once_in_a_session_too(replicas, monkeypatch):
    """A merge costs what it merges, not the number of parts that the table has."""
    replica, store = replicas["r1"], replicas.stores["r1"]
    listings, real = [], store.staged
    tools = Tools(Counted(replicas), LocalMerger(replicas.clock), Counted(replicas))
    executor = Executor(replica, tools, "merge")
    for waits_s, listed in ((0.0, 1), (YOUNG_S - 1, 1), (YOUNG_S, 2)):
        replicas.insert("r1", 10 + int(waits_s))
        optimize_partition(replica, "all", final=True, skip_merged=False)
        replicas.clock.passed_s += waits_s
        pull_log(replica)
        with monkeypatch.context() as patch:
            patch.setattr(store, "staged", lambda: listings.append(1) or real())
            assert [one.error for one in executor.step(None).done] == [""]
        assert len(listings) == listed
    assert "all_0_3_3" in replicas.parts("r1")


def test_one_that_has_its_name_already_neither(replicas, monkeypatch):
    """It died between the disk and ZooKeeper."""
    replica, store = replicas["r2"], replicas.stores["r2"]
    real = store.publish

    def dies(staged, part):
        real(staged, part)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            step(replicas, "r2", "fetch")
    assert replicas.parts("r2") == []
    assert step(replicas, "r2", "fetch")[1] == []
    assert replicas.parts("r2") == ["all_0_0_0"]
    assert store.verify(*store.parts()).rows == 2
    assert replica.keeper.children(replica.paths.executing) == []


@pytest.mark.parametrize("harm", ["torn", "other rows"])
def test_a_fetched_part_that_is_not_the_promised_one_is_fetched_again(
    replicas, monkeypatch, harm
):
    left = die_at_publishing(replicas, "r2", "fetch", monkeypatch)
    store = replicas.stores["r2"]
    directory = Path(store.directory(*replicas.stores["r1"].parts())).parent / left
    if harm == "torn":
        data = directory / "data-00000.parquet"
        data.write_bytes(data.read_bytes()[:-1])
    else:
        theirs = replicas.stores["r1"].verify(*replicas.stores["r1"].parts())
        other = dataclasses.replace(theirs, row_hash=theirs.row_hash ^ 1)
        (directory / "part.json").write_bytes(other.encode())
    done, asked = step(replicas, "r2", "fetch")
    assert asked == ["all_0_0_0"]
    assert [one.error for one in done.done] == [""]
    assert replicas.table("r2").dataset().to_table().column("n").to_pylist() == [1, 2]


def test_one_that_the_disk_can_t_read_is_fetched_again(replicas, monkeypatch):
    """Else no fetch would come past it until a clean-up sweeps it."""
    left = die_at_publishing(replicas, "r2", "fetch", monkeypatch)
    disk = replicas.stores["r2"].disk
    read = type(disk).read

    def unreadable(self, path):
        if left in path:
            raise OSError(errno.EIO, "input/output error")
        return read(self, path)

    monkeypatch.setattr(type(disk), "read", unreadable)
    done, asked = step(replicas, "r2", "fetch")
    assert asked == ["all_0_0_0"]
    assert [one.error for one in done.done] == [""]


def mutation_dies(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas.table("r1").mutate("DELETE WHERE n = 1")
    assert assign_mutations(replicas["r1"])
    step(replicas, "r1", "fetch")
    die_at_publishing(replicas, "r1", "merge", monkeypatch)


def test_a_part_that_was_mutated_is_not_mutated_again(replicas, monkeypatch):
    mutation_dies(replicas, monkeypatch)
    done, asked = step(replicas, "r1", "merge")
    assert [(str(one.part), one.error) for one in done.done] == [("all_0_0_0_1", "")]
    assert asked == []
    assert replicas.table("r1").dataset().to_table().column("n").to_pylist() == [2]


def test_what_a_killed_mutation_has_made_is_not_taken(replicas, monkeypatch):
    """The entry stays and is carried out without it: the part gets its name and keeps its rows."""
    mutation_dies(replicas, monkeypatch)
    replica = replicas["r1"]
    [killed] = load_mutations(replica).entries
    kill_mutation(replica, killed)
    done, asked = step(replicas, "r1", "merge")
    assert [(str(one.part), one.error) for one in done.done] == [("all_0_0_0_1", "")]
    assert asked == ["all_0_0_0_1"]
    assert replicas.table("r1").dataset().to_table().column("n").to_pylist() == [1, 2]


def test_what_was_merged_for_another_time_is_not_taken(replicas, monkeypatch):
    """An entry of the same parts that was written later: other rows may have expired by then."""
    replica = replicas["r1"]
    replicas.insert("r1", 3)
    optimize_partition(replica, "all", final=True, skip_merged=False)
    die_at_publishing(replicas, "r1", "merge", monkeypatch)
    [node] = replica.keeper.children(replica.paths.queue)
    path = replica.paths.queue_entry(node)
    entry = decode(replica.keeper.get(path)[0])
    later = dataclasses.replace(entry, create_time=entry.create_time + 60)
    replica.keeper.multi([SetData(path, encode(later))])
    replica.memory = Memory()
    [done] = step(replicas, "r1", "merge")[0].done
    assert done.error == ""
    assert replicas.stores["r1"].manifest(done.part).created_s == later.create_time


def test_what_was_merged_of_other_parts_is_not_taken(replicas, monkeypatch):
    """An entry of the same name: a part between its sources has gone since."""
    replica = replicas["r1"]
    for value in (3, 4):
        replicas.insert("r1", value)
    optimize_partition(replica, "all", final=True, skip_merged=False)
    die_at_publishing(replicas, "r1", "merge", monkeypatch)
    [node] = replica.keeper.children(replica.paths.queue)
    path = replica.paths.queue_entry(node)
    entry = decode(replica.keeper.get(path)[0])
    first, gone, last = entry.sources
    fewer = dataclasses.replace(entry, sources=(first, last))
    keeper = replica.keeper
    keeper.multi([SetData(path, encode(fewer)), Delete(replica.paths.part(gone))])
    replica.memory = Memory()
    [done] = step(replicas, "r1", "merge")[0].done
    assert (str(done.part), done.error) == ("all_0_2_1", "")
    assert replicas.table("r1").dataset().to_table().column("n").to_pylist() == [1, 2, 4]
