"""Who is asked for a part when the first that was asked could not send it."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.errors import NoReplicaHasPart, Unavailable
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.fetch import PartSource, find_sources
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import check_part
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.executor import Executor
from tests.support.local_replicas import DirectPeers, Replicas

LATER_S = 120.0  # longer than any pause between two tries


class CutOff(DirectPeers):
    """Some of them can't be reached from here. `asked` are all that were asked, in order."""

    def __init__(self, replicas: Replicas, *away: str) -> None:
        super().__init__(replicas.stores)
        self.away = set(away)
        self.asked: list[str] = []
        self.told: list[tuple[PartName, bool]] = []

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        for request in requests:
            name = request.endpoint.rpartition("/")[2]
            self.asked.append(name)
            self.told.append((request.part, request.recovers))
            if name in self.away:
                yield [(request, Unavailable(f"{name} does not answer"))]
            else:
                yield from super().fetch([request], store)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """A part that r1 inserted and r2 has fetched; r3 has it to fetch."""
    with Replicas(tmp_path, ("r1", "r2", "r3")) as opened:
        opened.insert("r1", 1, 2)
        opened.step("r2", "fetch")
        yield opened


def process_of_r3(replicas: Replicas, peers: CutOff) -> Executor:
    clock = replicas.clock
    tools = Tools(peers, LocalMerger(clock), LocalMutator(clock))
    return Executor(replicas["r3"], tools, "fetch")


def work(
    replicas: Replicas, peers: CutOff, *, tries: int, executor: Executor | None = None
) -> None:
    """r3's queue, by one process."""
    executor = executor or process_of_r3(replicas, peers)
    for _ in range(tries):
        pull_log(replicas["r3"])
        executor.step(None)
        replicas.clock.passed_s += LATER_S


def test_a_part_is_fetched_from_whoever_else_has_it_when_its_writer_can_t_send_it(replicas):
    """The writer is active in ZooKeeper; only from here it can't be reached."""
    peers = CutOff(replicas, "r1")
    work(replicas, peers, tries=2)
    assert peers.asked == ["r1", "r2"]
    assert replicas.parts("r3") == ["all_0_0_0"]


def test_a_part_that_contains_it_is_fetched_when_the_only_one_that_has_it_can_t_send_it(
    replicas,
):
    """1. r1 promises the part and can't send it. 2. r2 has merged it, and cleaned up."""
    replicas.insert("r1", 3)
    replicas.step("r2", "fetch")
    optimize_partition(replicas["r2"], "all", final=True, skip_merged=False)
    replicas.step("r2", "merge")
    two = replicas["r2"]
    two.keeper.multi([Delete(two.paths.part(one)) for one in ("all_0_0_0", "all_1_1_0")])
    work(replicas, CutOff(replicas, "r1"), tries=3)
    assert replicas.parts("r3") == ["all_0_1_1"]


def test_a_part_that_contains_it_is_asked_of_those_that_have_not_failed(replicas):
    """Both have nothing else. r1, which comes first, can't send it."""
    replicas.insert("r1", 3)
    replicas.step("r2", "fetch")
    optimize_partition(replicas["r2"], "all", final=True, skip_merged=False)
    for name in ("r1", "r2"):
        replicas.step(name, "fetch")
        replicas.step(name, "merge")
        has = replicas[name]
        has.keeper.multi([Delete(has.paths.part(one)) for one in ("all_0_0_0", "all_1_1_0")])
    work(replicas, CutOff(replicas, "r1"), tries=3)
    assert replicas.parts("r3") == ["all_0_1_1"]


def test_all_that_have_a_part_are_asked_by_turns_until_one_sends_it(replicas):
    peers = CutOff(replicas, "r1", "r2")
    work(replicas, peers, tries=5)
    assert peers.asked == ["r1", "r2", "r1", "r2", "r1"]
    peers.away.clear()
    work(replicas, peers, tries=1)
    assert replicas.parts("r3") == ["all_0_0_0"]


def test_who_can_t_send_a_part_is_asked_again_when_what_others_have_may_not_be_taken(replicas):
    """r2 has a part that contains it, of which the log says nothing yet."""
    peers = CutOff(replicas, "r1")
    executor = process_of_r3(replicas, peers)
    work(replicas, peers, tries=1, executor=executor)
    two = replicas["r2"]
    parts = two.paths.part("all_0_0_0"), two.paths.part("all_0_5_1")
    two.keeper.multi([Delete(parts[0]), Create(parts[1])])
    peers.away.clear()
    work(replicas, peers, tries=2, executor=executor)
    assert peers.asked == ["r1", "r1"]
    assert replicas.parts("r3") == ["all_0_0_0"]


def test_peers_are_told_what_brings_back_what_was_lost(replicas):
    """A part that r3 had, and one that it never had."""
    peers = CutOff(replicas)
    work(replicas, peers, tries=1)
    shutil.rmtree(replicas.stores["r3"].directory(PartName("all", 0, 0, 0)))
    check_part(replicas["r3"], PartName("all", 0, 0, 0))
    replicas.insert("r1", 3)
    work(replicas, peers, tries=1)
    assert [recovers for _, recovers in peers.told] == [False, False, True]
    assert str(peers.told[-1][0]) == "all_0_0_0"


def test_nobody_fetches_from_himself(replicas: Replicas) -> None:
    """Whatever an entry says of who had the part first."""
    part = replicas.insert("r1", 1)
    replicas.step("r2", "fetch")
    found = find_sources(replicas["r1"], [(part, "r1")])[part]
    assert isinstance(found, PartSource)
    assert found.replica == "r2"


@pytest.mark.parametrize(("larger", "smaller"), [("r1", "r2"), ("r2", "r1")])
def test_of_all_that_contain_it_the_largest_is_fetched(
    replicas: Replicas, larger: str, smaller: str
) -> None:
    part, keeper = PartName("all", 0, 0, 0), replicas["r3"].keeper
    header, _ = keeper.get(replicas["r1"].paths.part(part))
    for name, last in ((larger, 2), (smaller, 1)):
        paths = replicas[name].paths
        merged = paths.part(PartName("all", 0, last, last))
        keeper.multi([Delete(paths.part(part)), Create(merged, header)])
    found = find_sources(replicas["r3"], [(part, "r1")])[part]
    assert isinstance(found, PartSource)
    assert (found.replica, str(found.part)) == (larger, "all_0_2_2")


@pytest.mark.parametrize("op", [Delete, lambda host: SetData(host, b"")])
def test_who_is_dropped_while_he_is_looked_at_is_no_source(replicas: Replicas, op) -> None:
    """Also when another replica of his name was made since, which has no address yet."""
    part, keeper = PartName("all", 0, 0, 0), replicas["r3"].keeper
    keeper.multi([op(replicas["r1"].paths.host)])
    found = find_sources(replicas["r3"], [(part, "r1")])[part]
    assert isinstance(found, PartSource)
    assert found.replica == "r2"
    keeper.multi([op(replicas["r2"].paths.host)])
    assert isinstance(find_sources(replicas["r3"], [(part, "r1")])[part], NoReplicaHasPart)


def test_who_became_active_since_he_was_seen_has_another_address_than_then(replicas) -> None:
    """1. r3 sees that r1 is not active, and has no address yet. 2. r1 becomes active."""
    part, r1 = PartName("all", 0, 0, 0), replicas["r1"].paths
    replicas.clock.passed_s += 1
    seen = {r1.is_active: None, r1.host: (b"", replicas["r1"].keeper.get(r1.host)[1])}
    found = find_sources(replicas["r3"], [(part, "r1")], seen=seen)[part]
    assert isinstance(found, PartSource)
    assert found.request.address.host == "r1"


def test_who_has_failed_has_not_begun_all(replicas: Replicas) -> None:
    """There is something to try again, so a change of the queue is looked at."""
    executor = process_of_r3(replicas, CutOff(replicas, "r1", "r2"))
    pull_log(replicas["r3"])
    [batch] = executor.look(None).batches
    assert executor.has_begun_all
    assert any(done.error for done in executor.carry_out(batch))
    assert not executor.has_begun_all


@pytest.mark.parametrize("broken", [False, True])
def test_a_part_of_which_only_the_name_was_promised_is_fetched_if_its_bytes_fit_together(
    replicas: Replicas, broken: bool
) -> None:
    """Somebody made its node by hand, for bytes that were brought back."""
    r1 = replicas["r1"]
    [part] = r1.store.parts()
    for name in ("r1", "r2"):
        r1.keeper.multi([SetData(replicas[name].paths.part(part), b"")])
        if broken:
            [file] = (one.name for one in replicas.stores[name].manifest(part).files)
            Path(replicas.stores[name].directory(part), file).write_bytes(b"no parquet")
    replicas.step("r3", "fetch")
    assert replicas.parts("r3") == ([] if broken else [str(part)])
