"""Merges that do not go well: nothing wrong is published, and what comes next puts it right."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeDone, MergeJob, MergeOutcome
from rmt_pipeline.protocol.errors import DiskFull, Unavailable
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.mutations.mutations import create_mutation
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.disk import LocalDisk
from rmt_pipeline.store.layout import MANIFEST
from tests.support.local_replicas import Replicas

RESULT = PartName.parse("all_0_1_1")


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    """Two parts on two replicas, with a row that is in both, and their merge in the log."""
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1, 2)
        opened.insert("r1", 2, 3)
        opened.step("r2", "fetch")
        optimize_partition(opened["r1"], "all", final=True, skip_merged=False)
        yield opened


class Deduplicating:
    """A merger of another version: its results have fewer rows."""

    def __init__(self, replicas: Replicas) -> None:
        self._merger = LocalMerger(replicas.clock)

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for job, outcome in zip(
            jobs,
            self._merger.merge([replace(job, deduplicate=True) for job in jobs]),
            strict=True,
        ):
            yield replace(outcome, job=job)


class OtherOrder:
    """A merger of another version: its results have the rows in another order."""

    def __init__(self, replicas: Replicas) -> None:
        self._merger = LocalMerger(replicas.clock)

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for outcome in self._merger.merge(jobs):
            assert isinstance(outcome, MergeDone)
            yield replace(outcome, manifest=replace(outcome.manifest, content_hash=7))


class Losing:
    """A merger whose disk loses a source once it has been read."""

    def __init__(self, replicas: Replicas, lost: PartName) -> None:
        self._merger = LocalMerger(replicas.clock)
        self._directory = replicas.stores["r1"].directory(lost)

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for outcome in self._merger.merge(jobs):
            shutil.rmtree(self._directory)
            yield outcome


def staged(replicas: Replicas, name: str) -> list[str]:
    return replicas.stores[name].staged()


def test_a_result_that_differs_is_thrown_away_and_theirs_is_fetched(replicas):
    [made] = replicas.step("r1").done
    assert (made.rows, made.rows_in, made.bytes_in > 0) == (4, 4, True)
    executor = replicas.executor("r2", "merge", merger=Deduplicating(replicas))
    replicas.step("r2", "fetch")
    [failed] = executor.step(None).done
    theirs = replicas.stores["r1"].manifest(RESULT).header().hash_of_uncompressed_files.hex()
    assert failed.differs
    assert "differs from replica r1's in its " in failed.error
    assert f"theirs {theirs}; ours is thrown away, theirs is fetched" in failed.error
    assert staged(replicas, "r2") == []
    assert not replicas.stores["r2"].has(RESULT)
    assert str(RESULT) not in replicas.parts("r2")

    replicas.clock.sleep_s(1)
    [fetched] = executor.step(None).done
    assert (fetched.kind, fetched.rows, fetched.rows_in) == ("FETCH", 4, 0)
    assert replicas.stores["r2"].verify(RESULT) == replicas.stores["r1"].verify(RESULT)
    assert replicas.stores["r2"].detached() == []


@pytest.mark.parametrize("is_dropped", [True, False])
def test_what_differed_is_made_here_once_nobody_promises_it_any_more(replicas, is_dropped):
    """Who had published the other one is gone for good before it was fetched. If he is only away,
    he comes back with his.
    """
    replicas.step("r1")
    executor = replicas.executor("r2", "merge", merger=OtherOrder(replicas))
    replicas.step("r2", "fetch")
    [failed] = executor.step(None).done
    assert failed.differs
    replicas.stop("r1")
    if is_dropped:
        drop_replica(replicas["r2"].session, replicas["r2"].table, "r1")
    made = []
    for _ in range(3):
        replicas.clock.sleep_s(60)
        made += [one for one in executor.step(None).done if not one.error]
    assert [one.kind for one in made] == ["MERGE_PARTS"] * is_dropped


def test_a_result_that_differs_can_be_kept_to_be_looked_at(replicas):
    replicas.set(detach_not_byte_identical_parts=1)
    replicas.step("r1")
    [failed] = replicas.step("r2", merger=Deduplicating(replicas)).done
    kept = f"detached/merge-not-byte-identical_{RESULT}"
    assert f"ours is set aside as {kept}, theirs is fetched" in failed.error
    assert replicas.stores["r2"].detached() == [f"merge-not-byte-identical_{RESULT}"]


def test_whoever_publishes_first_is_right(replicas):
    """Nobody had it: then there is nothing to differ from."""
    [made] = replicas.step("r2", merger=OtherOrder(replicas)).done
    assert (made.error, made.rows) == ("", 4)
    [failed] = replicas.step("r1").done
    assert failed.differs


def test_what_a_merge_has_read_and_is_gone_since_is_not_counted(replicas):
    """The result is whole all the same."""
    lost = PartName.parse("all_0_0_0")
    [made] = replicas.step("r1", merger=Losing(replicas, lost)).done
    assert (made.error, made.rows, made.rows_in) == ("", 4, 2)
    assert replicas.stores["r1"].has(RESULT)


def test_a_source_with_other_bytes_is_set_aside_fetched_again_and_merged(replicas):
    source = PartName.parse("all_0_0_0")
    [file] = map(Path, replicas.stores["r2"].files(source))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)

    [failed] = replicas.step("r2").done
    assert f"part {source}: " in failed.error
    assert "its manifest says" in failed.error
    assert not failed.differs
    assert staged(replicas, "r2") == []
    assert replicas.parts("r2") == ["all_1_1_0"]
    assert replicas.stores["r2"].detached() == [f"broken_{source}"]

    [fetched] = replicas.step("r2", "fetch").done
    assert (fetched.part, fetched.source_replica) == (source, "r1")
    [made] = replicas.step("r2").done
    assert (made.kind, made.rows, made.error) == ("MERGE_PARTS", 4, "")


class LosesARow:
    """A kernel with a bug."""

    def __init__(self, replicas: Replicas) -> None:
        self._merger = LocalMerger(replicas.clock)

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for job in jobs:
            [first, *_] = job.sources
            less = replace(first, manifest=replace(first.manifest, row_hash=0))
            lying = replace(job, sources=(less, *job.sources[1:]))
            for outcome in self._merger.merge([lying]):
                yield replace(outcome, job=job)


def test_when_rows_are_not_conserved_nothing_is_published(replicas):
    [failed] = replicas.step("r1", merger=LosesARow(replicas)).done
    assert str(RESULT) in failed.error
    assert "Nothing was published" in failed.error
    assert replicas.parts("r1") == ["all_0_0_0", "all_1_1_0"]
    assert staged(replicas, "r1") == []


def test_a_full_disk_is_noticed_before_the_merge(replicas, monkeypatch):
    store = replicas.stores["r1"]
    size = sum(store.manifest(part).bytes_on_disk for part in store.parts())
    needed = int(1.1 * size)
    monkeypatch.setattr(LocalDisk, "free_bytes", lambda _: needed - 1)
    executor = replicas.executor("r1", "merge")
    replicas["r1"].settings = replace(
        replicas["r1"].settings, max_bytes_to_merge_at_max_space_in_pool=1
    )
    replicas.step("r1", "fetch")
    [failed] = executor.step(None).done
    assert f"merging into {RESULT} needs {needed} bytes beside its sources" in failed.error
    assert f"{needed - 1} are free" in failed.error
    assert staged(replicas, "r1") == []
    monkeypatch.undo()
    replicas.clock.sleep_s(1)
    [made] = executor.step(None).done
    assert made.error == ""


class GoesAway:
    """Writes a little, and then there is nobody to compute."""

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for job in jobs:
            (Path(job.staging) / "data-00000.parquet").write_bytes(b"half")
        raise Unavailable("nobody to compute")
        yield


def test_a_merge_that_ends_half_way_leaves_nothing(replicas):
    [failed] = replicas.step("r1", merger=GoesAway()).done
    assert failed.error == "nobody to compute"
    assert staged(replicas, "r1") == []


class Killed(BaseException):
    """As if the process ended."""


class DiesHalfWay:
    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeDone]:
        (Path(jobs[0].staging) / "data-00000.parquet").write_bytes(b"half")
        raise Killed
        yield


def test_a_merge_that_is_killed_leaves_a_directory_that_is_swept(replicas, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr("rmt_pipeline.store.staging.Staging.abandon", lambda _: None)
        with pytest.raises(Killed):
            replicas.step("r1", merger=DiesHalfWay())
    [left] = staged(replicas, "r1")
    assert left.startswith(f"tmp_merge_{RESULT}_")
    replica = replicas["r1"]
    [made] = replicas.step("r1").done  # Q14: at once, beside it
    assert (made.part, made.error) == (RESULT, "")
    assert replica.store.verify(RESULT).rows == 4
    assert staged(replicas, "r1") == [left]
    modified_s, _ = replica.store.staged_at(left)
    replicas.clock.passed_s += modified_s - replicas.clock.now_s()
    assert carry_out(replica, plan_clean_up(replica)).directories == ()
    replicas.clock.passed_s += replica.settings.temporary_directories_lifetime + 1
    assert carry_out(replica, plan_clean_up(replica)).directories == (left,)
    assert staged(replicas, "r1") == []


def test_a_source_that_is_gone_is_fetched_as_the_result(replicas):
    replicas.step("r1")
    source = PartName.parse("all_0_0_0")
    assert replicas.stores["r2"].remove(source)
    assert replicas.step("r2").done == ()
    assert str(source) not in replicas.parts("r2"), "it is not promised any more"
    [fetched] = replicas.step("r2").done
    assert (fetched.kind, fetched.part, fetched.error) == ("FETCH", RESULT, "")


@pytest.mark.parametrize("kind", ["merge", "mutate"])
def test_a_disk_that_is_full_when_the_manifest_is_written_fails_that_part_alone(
    replicas, monkeypatch, kind
):
    """It is tried again after a pause, and nothing is left of the first try."""
    if kind == "mutate":
        replicas.work_off()
        create_mutation(replicas["r1"], "DELETE WHERE n = 1", ["all"])
        assign_mutations(replicas["r1"])
    right = LocalDisk.write

    def write(disk, path, chunks):
        if f"tmp_{kind}_" in path and path.endswith(MANIFEST):
            raise DiskFull("no space left")
        return right(disk, path, chunks)

    executor = replicas.executor("r1", "merge")
    pull_log(replicas["r1"])
    monkeypatch.setattr(LocalDisk, "write", write)
    [failed] = executor.step(None).done
    assert failed.error == "no space left"
    assert staged(replicas, "r1") == []
    paths = replicas["r1"].paths
    [entry] = replicas["r1"].keeper.children(paths.queue)
    noted = Attempts.decode(replicas["r1"].keeper.get(paths.attempts_of(entry))[0])
    assert (noted.tries, noted.last_exception) == (1, "no space left")
    monkeypatch.undo()
    replicas.clock.sleep_s(1)
    [made] = executor.step(None).done
    assert made.error == ""
