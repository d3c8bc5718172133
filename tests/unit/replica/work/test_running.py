"""What runs is seen from beside it: which merges, by whom, for how long, how far they are."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.merge.job import MergeJob
from rmt_pipeline.compute.progress import Progress, UnitProgress
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.work.running import RunningMerge, running_merges
from tests.support.local_replicas import Replicas, two_parts

RESULT = PartName("all", 0, 1, 1)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with two_parts(tmp_path) as made:
        optimize_partition(made["r1"], "all", final=True, skip_merged=False)
        yield made


class Beside(LocalMerger):
    """Before it merges, somebody looks."""

    def __init__(self, replicas: Replicas, looks: Callable[[MergeJob], object]) -> None:
        super().__init__(replicas.clock)
        self._looks = looks

    def merge(self, jobs: Sequence[MergeJob]):  # type: ignore[no-untyped-def]
        for job in jobs:
            self._looks(job)
        return super().merge(jobs)


def seen_while_it_runs(
    replicas: Replicas, first: Callable[[RunningMerge], object] = lambda _: None
) -> list[list[RunningMerge]]:
    """What is seen at once, and after `first` and three seconds."""
    found = list[list[RunningMerge]]()

    def look(_: MergeJob) -> None:
        found.append(running_merges(replicas["r1"]))
        for one in found[0]:
            first(one)
        replicas.clock.passed_s += 3
        found.append(running_merges(replicas["r1"]))

    replicas.step("r1", merger=Beside(replicas, look))
    return found


def test_a_merge_whose_source_breaks_meanwhile_hides_nothing_else(replicas: Replicas) -> None:
    seen = list[list[RunningMerge]]()

    def look(_: MergeJob) -> None:
        source = replicas.stores["r1"].directory(PartName("all", 0, 0, 0))
        (Path(source) / "part.json").write_text("{}")
        seen.append(running_merges(replicas["r1"]))

    replicas.step("r1", merger=Beside(replicas, look))
    assert seen == [[]]


def test_a_merge_is_seen_while_it_runs_and_not_before_or_after(replicas: Replicas) -> None:
    assert running_merges(replicas["r1"]) == []
    [at_once], [later] = seen_while_it_runs(replicas)
    assert running_merges(replicas["r1"]) == []
    assert at_once.result == RESULT
    assert (at_once.rows, at_once.is_mutation) == (6, False)
    assert at_once.worker.startswith("test of r1 ")
    store = replicas.stores["r1"]
    manifests = [store.manifest(part) for part in at_once.sources]
    assert at_once.bytes_on_disk == sum(one.bytes_on_disk for one in manifests)
    assert at_once.bytes_uncompressed == sum(one.bytes_uncompressed for one in manifests)
    assert (at_once.done, at_once.share_done) == (Progress(), 0.0)
    assert at_once.elapsed_s < 1
    assert later.elapsed_s == at_once.elapsed_s + 3


def test_how_far_it_is_is_what_its_units_have_told(replicas: Replicas) -> None:
    def tell(one: RunningMerge) -> None:
        UnitProgress(f"{one.directory}/rows", 0).tell(Progress(3, 30, 2, 20))

    _, [later] = seen_while_it_runs(replicas, tell)
    assert later.done == Progress(3, 30, 2, 20)
    assert later.share_done == 0.5


def test_one_whose_sources_are_gone_is_none_any_more(replicas: Replicas) -> None:
    """It was published between two looks, and a clean-up came after it."""
    store = replicas.stores["r1"]

    def gone(one: RunningMerge) -> None:
        directory = Path(store.directory(one.sources[0]))
        directory.rename(directory.with_name("elsewhere"))

    [before], after = seen_while_it_runs(replicas, gone)
    assert before.result == RESULT
    assert after == []


def test_what_is_fetched_is_not_merged_and_what_an_attempt_left_is_none(
    replicas: Replicas,
) -> None:
    replicas.stores["r1"].begin("fetch", str(RESULT))
    replicas.stores["r1"].begin("merge", "all_5_6_1")
    assert running_merges(replicas["r1"]) == []
    [[one], _] = seen_while_it_runs(replicas)
    assert one.result == RESULT
