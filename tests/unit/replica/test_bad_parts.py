"""A part with wrong bytes is set aside and fetched again, and everything else goes on."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.protocol.errors import Corruption, MissingPart, UserError
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.upkeep.check import check_part, differs, recover_parts
from rmt_pipeline.replica.work.execute import Executor
from rmt_pipeline.replica.work.merge import MergeHere, merge_here
from rmt_pipeline.replica.work.step import PartDone
from rmt_pipeline.replica.work.worker import Worker
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.system import EventWaker
from rmt_pipeline.zookeeper.snapshot import queued_entries
from tests.support.local_replicas import Replicas, definition_of

PARTITIONS = (1, 2, 3)


def by_partition(name: str) -> TableDefinition:
    columns = (Column("p", "UInt64"), Column("n", "UInt64"))
    return replace(definition_of(name, columns), partition_by=("p",))


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Two parts in each partition on both replicas, and a merge of each partition in the log."""
    with Replicas(tmp_path, define=by_partition) as opened:
        for value in range(2):
            for partition in PARTITIONS:
                opened.table("r1").insert([{"p": partition, "n": value}])
        opened.step("r1", "fetch")
        opened.step("r2", "fetch")
        for partition in PARTITIONS:
            optimize_partition(opened["r1"], str(partition), final=True, skip_merged=False)
        opened.step("r2", "fetch")
        opened.clock.passed_s += 1000  # nobody is writing them now
        yield opened


BAD = PartName.parse("2_0_0_0")
RESULT = PartName.parse("2_0_1_1")


def files_of(replicas: Replicas, part: PartName = BAD) -> list[Path]:
    return sorted(Path(replicas.stores["r2"].directory(part)).iterdir())


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def flipped_manifest(files: list[Path]) -> None:
    flip(files[1])


def no_manifest(files: list[Path]) -> None:
    files[1].unlink()


def flipped_rows(files: list[Path]) -> None:
    flip(files[0])


def no_rows(files: list[Path]) -> None:
    files[0].unlink()


def half_the_rows(files: list[Path]) -> None:
    os.truncate(files[0], 100)


def no_directory(files: list[Path]) -> None:
    for file in files:
        file.unlink()
    files[0].parent.rmdir()


def empty_directory(files: list[Path]) -> None:
    for file in files:
        file.unlink()


SPOILS: list[Callable[[list[Path]], None]] = [
    flipped_manifest,
    no_manifest,
    flipped_rows,
    no_rows,
    half_the_rows,
    no_directory,
    empty_directory,
]
SEEN_AT_START = [spoil for spoil in SPOILS if spoil is not flipped_rows]
spoiled = pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)


class Pools:
    """Both pools of r2, as its server works them; what they did."""

    def __init__(self, replicas: Replicas, *, select: bool = False) -> None:
        self._replicas = replicas
        self._workers = [
            Worker(replicas["r2"], replicas.tools(), pool, EventWaker(), select=select)
            for pool in ("fetch", "merge")
        ]
        self.done: list[PartDone] = []

    def turn(self) -> None:
        """Nothing is raised: that would stop the pool for a while."""
        for worker in self._workers:
            look, _ = worker.turn()
            self.done += look.step.done
            for batch in look.batches:
                self.done += worker.executor.carry_out(batch)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.turn()
            self._replicas.clock.passed_s += 1

    def made(self) -> list[str]:
        return sorted(str(done.part) for done in self.done if not done.error)


@spoiled
def test_it_is_healed_and_what_does_not_need_it_goes_on(replicas, spoil):
    spoil(files_of(replicas))
    pools = Pools(replicas)
    pools.turn()
    assert {"1_0_1_1", "3_0_1_1"} <= set(pools.made()), "the other merges of the same batch"
    assert "2_0_1_1" not in pools.made()
    pools.turns(8)
    assert str(RESULT) in pools.made()
    assert replicas["r2"].keeper.children(replicas["r2"].paths.queue) == []
    for part in map(PartName.parse, replicas.parts("r2")):
        replicas.stores["r2"].verify(part)
    assert set(replicas.parts("r2")) >= {"1_0_1_1", "2_0_1_1", "3_0_1_1"}
    kept = [name for name in replicas.stores["r2"].detached() if str(BAD) in name]
    assert len(kept) == (spoil not in (no_directory, empty_directory))


@spoiled
def test_a_check_says_what_is_wrong_and_queues_a_fetch(replicas, spoil):
    spoil(files_of(replicas))
    problem = check_part(replicas["r2"], BAD)
    assert problem is not None
    assert str(BAD) in problem
    assert str(BAD) not in replicas.parts("r2")
    [fetched] = [done for done in replicas.step("r2", "fetch").done if done.part == BAD]
    assert fetched.error == ""
    replicas.stores["r2"].verify(BAD)
    assert check_part(replicas["r2"], BAD) is None


@pytest.mark.parametrize("spoil", SEEN_AT_START, ids=lambda spoil: spoil.__name__)
def test_a_start_sets_it_aside_and_queues_a_fetch(replicas, spoil):
    spoil(files_of(replicas))
    recovered = recover_parts(replicas["r2"])
    assert recovered.refetched == (BAD,)
    assert str(BAD) not in replicas.parts("r2")
    Pools(replicas).turns(8)
    assert replicas.stores["r2"].verify(RESULT).rows == 2
    assert len(replicas.parts("r2")) == 9


@spoiled
def test_merges_and_mutations_are_still_assigned(replicas, spoil):
    """A leader looks at the sizes and times of every part."""
    replicas.step("r1")
    Pools(replicas).turns(3)
    for value in range(2, 8):
        replicas.table("r1").insert([{"p": 1, "n": value}])
    replicas.step("r2", "fetch")
    spoil(files_of(replicas, PartName.parse("1_2_2_0")))
    pools = Pools(replicas, select=True)
    pools.turns(20)
    replicas.stores["r2"].verify(PartName.parse("1_2_2_0"))
    assert [name for name in pools.made() if PartName.parse(name).block_max == 7] != []


def test_a_mutation_is_created_although_the_part_on_which_it_is_tried_is_bad(replicas):
    """It is tried on the next one."""
    bad = PartName.parse("1_0_0_0")
    flipped_manifest(files_of(replicas, bad))
    assert replicas.table("r2").mutate("DELETE WHERE n = 1", settings={"mutations_sync": "0"})
    with pytest.raises(UserError, match="nowhere"):
        replicas.table("r2").mutate("DELETE WHERE nowhere = 1")


def test_a_part_that_nobody_else_has_holds_up_only_what_needs_it(replicas):
    flipped_manifest(files_of(replicas))
    r1 = replicas["r1"]
    replicas.stores["r1"].remove(BAD)
    assert check_part(r1, BAD) is not None
    pools = Pools(replicas)
    pools.turns(5)
    assert {"1_0_1_1", "3_0_1_1"} <= set(pools.made())
    assert str(BAD) not in replicas.parts("r2")
    said = {str(done.part): done.error for done in pools.done if done.error}
    assert re.search(f"no (active )?replica .*has {BAD}", said[str(BAD)])
    assert [name for name in replicas.stores["r2"].detached() if str(BAD) in name] != []


def test_ten_copies_that_were_set_aside_before_stop_no_healing(replicas):
    for _ in range(10):
        replicas.stores["r2"].detach_copy(BAD, "broken")
    flipped_rows(files_of(replicas))
    problem = check_part(replicas["r2"], BAD)
    assert problem is not None
    assert "could not be set aside" in problem
    assert str(BAD) not in replicas.parts("r2")


def test_a_disk_that_cannot_read_a_file_has_a_broken_part(replicas, monkeypatch):
    read = LocalDisk.chunks
    bad = str(files_of(replicas)[0])

    def failing(self: LocalDisk, path: str) -> Iterator[bytes]:
        if self.local_path(path) == bad:
            raise OSError(errno.EIO, "Input/output error", bad)
        return read(self, path)

    monkeypatch.setattr(LocalDisk, "chunks", failing)
    problem = check_part(replicas["r2"], BAD)
    assert problem is not None
    assert "Input/output error" in problem
    assert str(BAD) not in replicas.parts("r2")


def test_who_reads_it_has_it_fetched_again(replicas):
    flipped_manifest(files_of(replicas))
    with pytest.raises(Corruption, match="it is fetched again"):
        replicas.table("r2").files()
    assert str(BAD) not in replicas.parts("r2")
    no_directory_of = PartName.parse("3_0_0_0")
    replicas.stores["r2"].remove(no_directory_of)
    with pytest.raises(MissingPart, match="it is fetched again"):
        replicas.table("r2").files()
    assert str(no_directory_of) not in replicas.parts("r2")


def test_what_another_check_has_healed_meanwhile_is_not_given_up(replicas, monkeypatch):
    """Both found it broken; one was faster, and the part is fetched by now."""
    flipped_rows(files_of(replicas))
    store, verify = replicas.stores["r2"], PartStore.verify

    def overtaken(self: PartStore, part: PartName) -> Manifest:
        monkeypatch.setattr(PartStore, "verify", verify)
        with pytest.raises(Corruption) as found:
            verify(self, part)
        assert check_part(replicas["r2"], part) is not None
        replicas.step("r2", "fetch")
        verify(store, part)
        raise found.value

    monkeypatch.setattr(PartStore, "verify", overtaken)
    assert check_part(replicas["r2"], BAD) is None
    assert str(BAD) in replicas.parts("r2")
    store.verify(BAD)


def test_a_source_that_goes_before_the_merge_begins_stops_only_this_merge(replicas):
    replica = replicas["r2"]
    merges = [
        MergeHere(entry)
        for entry in queued_entries(
            replica.keeper, replica.paths, replica.memory.queue
        ).values()
        if isinstance(entry, MergeParts)
    ]
    assert len(merges) == len(PARTITIONS)
    replicas.stores["r2"].remove(BAD)
    outcomes = dict(merge_here(replicas["r2"], LocalMerger(replicas.clock), merges, ()))
    failed = [part for part, outcome in outcomes.items() if isinstance(outcome, Corruption)]
    assert failed == [RESULT]
    assert len(outcomes) == len(PARTITIONS)
    assert str(BAD) not in replicas.parts("r2")


def test_whatever_reads_a_bad_part_has_it_fetched_again_and_the_pool_goes_on(
    replicas, monkeypatch
):
    replica = replicas["r2"]
    worker = Worker(replica, replicas.tools(), "merge", EventWaker(), select=False)

    def reads(self: object, *_: object) -> None:
        replica.store.verify(BAD)
        raise Corruption("something else")

    monkeypatch.setattr(Executor, "look", reads)
    with pytest.raises(Corruption, match="something else"):
        worker.turn()
    flipped_rows(files_of(replicas))
    look, _ = worker.turn()
    [told] = look.step.done
    assert (told.part, told.kind) == (BAD, "CHECK_PART")
    assert "has hash" in told.error
    assert str(BAD) not in replicas.parts("r2")


def test_a_promise_by_hand_that_says_nothing_of_the_bytes_is_kept(replicas: Replicas) -> None:
    """Of bytes that a person has brought back."""
    assert differs(replicas["r2"], BAD, b"") is None
    replicas.stores["r2"].remove(BAD)
    assert "is not on disk" in (differs(replicas["r2"], BAD, b"") or "")
