"""Which merges OPTIMIZE assigns, and what it refuses."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import CannotAssignOptimize
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign import optimize as assign
from rmt_pipeline.replica.assign.merges import Assigned, optimize_partition
from rmt_pipeline.replica.assign.optimize import OptimizeRequest
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.store.part_store import PartStore
from tests.support.executor import Executor
from tests.support.local_replicas import DirectPeers, Replicas, by_tens

AT_ONCE = {"alter_sync": 0}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Two parts in each of two partitions."""
    with Replicas(tmp_path, ("r1",), define=by_tens) as made:
        for value in (1, 2, 11, 12):
            made.insert("r1", value)
        yield made


def optimize(replicas: Replicas, partition: str | None = None, *, final: bool = False):
    found = replicas.table("r1").optimize(partition, final=final, settings=AT_ONCE)
    return [str(part) for part in found]


def test_without_a_partition_one_merge_is_assigned_wherever_it_is_best(replicas):
    assert optimize(replicas) in (["0_0_1_1"], ["1_0_1_1"])


def test_final_without_a_partition_is_a_merge_in_each(replicas):
    assert optimize(replicas, final=True) == ["1_0_1_1", "0_0_1_1"]  # as the original


@pytest.mark.parametrize("final", [False, True])
def test_with_a_partition_it_is_merged_and_no_other_one(replicas, final):
    assert optimize(replicas, "1", final=final) == ["1_0_1_1"]


@pytest.mark.parametrize("final", [False, True])
def test_a_partition_that_never_had_a_row_has_nothing_to_merge(replicas, final):
    """As in the original: a script that goes over days need not know which of them have rows."""
    assert optimize(replicas, "7", final=final) == []
    settings = {**AT_ONCE, "optimize_throw_if_noop": 1}
    with pytest.raises(
        CannotAssignOptimize, match=r"no partition with the id 7; there are: 0, 1$"
    ):
        replicas.table("r1").optimize("7", final=final, settings=settings)


class Meanwhile(DirectPeers):
    """Something happens while it fetches."""

    def __init__(self, replicas: Replicas, act: Callable[[], object]) -> None:
        super().__init__(replicas.stores)
        self._act = act

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        self._act()
        yield from super().fetch(requests, store)


@pytest.mark.parametrize(
    ("who", "is_between", "made"),
    [
        ("r1", False, ["0_0_2_1"]),
        ("r2", False, ["0_0_1_1"]),
        ("r1", True, ["0_0_1_1"]),
        ("r2", True, []),
    ],
)
def test_final_beside_a_fetch_of_the_partition_takes_what_is_there(
    tmp_path: Path, who: str, is_between: bool, made: list[str]
):
    """Of the replica that is asked, as in the original: of three parts r2 fetches the last one, or
    the one between, across which nothing may be merged. (Then r1 has the first two.)
    """
    with Replicas(tmp_path, define=by_tens) as replicas:
        replicas.insert("r1", 1)
        if not is_between:
            replicas.insert("r1", 2)
        replicas.work_off()
        replicas.insert("r1", 3)
        if is_between:
            replicas.insert("r2", 4)
        found: list[str] = []

        def optimize() -> None:
            settings = {**AT_ONCE, "receive_timeout": 0}
            assigned = replicas.table(who).optimize("0", final=True, settings=settings)
            found.extend(map(str, assigned))
            replicas.step("r1")

        pull_log(replicas["r2"])
        clock = replicas.clock
        tools = Tools(Meanwhile(replicas, optimize), LocalMerger(clock), LocalMutator(clock))
        [done] = Executor(replicas["r2"], tools, "fetch").step(None).done
        assert (done.error, found) == ("", made)
        replicas.work_off()
        assert replicas.parts("r1") == replicas.parts("r2")
        for name in ("r1", "r2"):
            rows = replicas.table(name).dataset().to_table()["n"].to_pylist()
            assert sorted(rows) == ([1, 3, 4] if is_between else [1, 2, 3])


@pytest.mark.parametrize("is_slow", [False, True])
def test_more_parts_than_an_entry_can_name_are_merged_one_lot_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_slow: bool
):
    """An entry is a node of ZooKeeper, which takes less than 1 MiB."""
    monkeypatch.setattr(limits, "MERGE_NAMES_BYTES_MAX", 2 * len("0_0_0_0 "))
    with Replicas(tmp_path, define=by_tens) as replicas:
        for value in range(5):
            replicas.insert("r2", value)
        made = optimize_r2(replicas, "0", goes_s=1000 if is_slow else 0)
        assert made == ([] if is_slow else ["0_0_4_4"])
        keeper, table = replicas["r1"].keeper, replicas["r1"].table
        log = [keeper.get(table.log_entry(name))[0] for name in keeper.children(table.log)]
        entries = [entry for entry in map(decode, log) if isinstance(entry, MergeParts)]
        assert {len(entry.sources) for entry in entries} == {2}
        replicas.work_off()
        assert sorted(replicas.table("r2").dataset().to_table()["n"].to_pylist()) == [*range(5)]


def test_only_a_merge_of_a_whole_partition_takes_tombstones_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An older version may be in the parts that are left."""
    monkeypatch.setattr(limits, "MERGE_NAMES_BYTES_MAX", 2 * len("0_0_0_0 "))
    with Replicas(tmp_path, ("r1",), define=by_tens) as replicas:
        for value in range(3):
            replicas.insert("r1", value)
        r1 = replicas["r1"]

        def clean_up() -> tuple[bool, bool]:
            found = optimize_partition(r1, "0", final=True, skip_merged=False, cleanup=True)
            newest = r1.keeper.children(r1.table.log)[-1]
            entry = decode(r1.keeper.get(r1.table.log_entry(newest))[0])
            assert isinstance(entry, MergeParts)
            replicas.work_off()
            return isinstance(found, Assigned), entry.cleanup

        assert clean_up() == (False, False)
        assert clean_up() == (True, True)


def in_the_way(replicas: Replicas, partitions: int) -> None:
    """r2 has the first and the last part of each partition, and is to fetch the one between."""
    for first in range(0, 10 * partitions, 10):
        replicas.insert("r2", first)
        replicas.insert("r1", first + 1)
        replicas.insert("r2", first + 2)


def optimize_r2(replicas: Replicas, partition: str | None, goes_s: float) -> list[str]:
    """With a `receive_timeout` of 100 s; after these seconds r2 fetches what is in the way."""

    class Passing:
        def wake(self) -> None:
            pass

        def wait_s(self, timeout_s: float) -> bool:
            replicas.clock.sleep_s(min(timeout_s, 1))
            if replicas.clock.passed_s >= goes_s:
                replicas.work_off("r2")
            return False

    wanted = OptimizeRequest(partition, final=True, deduplicate=False, deduplicate_by=())
    query = QuerySettings(alter_sync=0, receive_timeout=100)
    return [
        str(part) for part in assign.optimize(lambda: replicas["r2"], wanted, query, Passing)
    ]


def test_what_goes_out_of_the_way_in_the_last_wait_is_merged(tmp_path: Path):
    with Replicas(tmp_path, define=by_tens) as replicas:
        in_the_way(replicas, 1)
        assert optimize_r2(replicas, "0", goes_s=95) == ["0_0_2_1"]
        assert replicas.clock.passed_s < 100


def test_many_partitions_wait_no_longer_than_one(tmp_path: Path):
    with Replicas(tmp_path, define=by_tens) as replicas:
        in_the_way(replicas, 3)
        assert optimize_r2(replicas, None, goes_s=1000) == []
        assert replicas.clock.passed_s == 100
