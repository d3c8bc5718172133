"""What is large holds up nothing that is small: transfers and merges that take simulated time."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from rmt_pipeline.compute.merge.job import MergeJob, MergeOutcome
from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.loop import work
from rmt_pipeline.replica.work.pools import Pool
from rmt_pipeline.store.part_store import PartStore
from rmt_pipeline.store.staging import StagedPart
from tests.simulation.scene import Scene
from tests.support.cluster import TABLE, Context, SimWaker, raise_bugs
from tests.support.executor import Executor
from tests.support.world import Process

LONG_S = 25.0
SOON_S = 2.0


class SlowPeers:
    """Fetches that take long for some parts."""

    def __init__(self, context: Context, slow: Sequence[str]) -> None:
        self._peers = context.tools().peers
        self._clock = context.clock
        self._slow = slow

    def fetch(
        self, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        for request in requests:
            if str(request.part) in self._slow:
                self._clock.sleep_s(LONG_S)
            yield from self._peers.fetch([request], store)


class SlowMerger:
    """Merges that take long for some results."""

    def __init__(self, context: Context, slow: Sequence[str]) -> None:
        self._merger = context.tools().merger
        self._clock = context.clock
        self._slow = slow
        self.began: list[str] = []

    def merge(self, jobs: Sequence[MergeJob]) -> Iterator[MergeOutcome]:
        for job in jobs:
            self.began.append(job.result)
            if job.result in self._slow:
                self._clock.sleep_s(LONG_S)
            yield from self._merger.merge([job])


def worker(
    scene: Scene,
    replica: str,
    pool: Pool,
    tools: Callable[[Context], Tools],
    *,
    select: bool = False,
    linger_s: float | None = None,
) -> Process:
    """A process that works this pool, for ever or until it is idle that long."""

    def run(context: Context) -> None:
        work(
            context.replica,
            tools(context),
            pool,
            waker=SimWaker(scene.world),
            linger_s=linger_s,
            select=select,
            on_flush=raise_bugs,
            should_stop=lambda: False,
        )

    return scene.cluster.spawn(scene.cluster.sites[replica], pool, run)


def with_slow(
    peers: Sequence[str] = (), merges: Sequence[str] = ()
) -> Callable[[Context], Tools]:
    def tools(context: Context) -> Tools:
        fast = context.tools()
        return Tools(
            SlowPeers(context, peers),
            SlowMerger(context, merges),
            fast.mutator,
            spawn=fast.spawn,
        )

    return tools


def claimed(scene: Scene, replica: str) -> int:
    return len(scene.children(TABLE.replica(replica).executing))


def test_a_small_part_is_visible_while_a_large_one_is_fetched() -> None:
    """P12."""
    with Scene() as scene:
        scene.insert("r1", "x")
        worker(scene, "r2", "fetch", with_slow(peers=["a_0_0_0"]))
        scene.let(lambda: claimed(scene, "r2") == 1)
        began_s = scene.world.now_s
        for number, row in enumerate("yz", start=1):
            scene.insert("r1", row)
            inserted_s = scene.world.now_s
            part = f"a_{number}_{number}_0"
            scene.let(lambda part=part: part in scene.parts("r2"))
            assert scene.world.now_s - inserted_s < SOON_S
        assert "a_0_0_0" not in scene.parts("r2")
        scene.let(lambda: "a_0_0_0" in scene.parts("r2"))
        assert scene.world.now_s - began_s >= LONG_S / 2
        assert scene.rows("r2") == ["x", "y", "z"]


def test_who_waits_for_a_transfer_is_not_idle() -> None:
    """P12. However short it lingers: what comes meanwhile is fetched by the same worker."""
    with Scene() as scene:
        scene.insert("r1", "x")
        process = worker(scene, "r2", "fetch", with_slow(peers=["a_0_0_0"]), linger_s=0.1)
        scene.let(lambda: claimed(scene, "r2") == 1)
        later_s = scene.world.now_s + LONG_S / 2
        scene.let(lambda: scene.world.now_s > later_s)
        scene.insert("r1", "y")
        scene.let(lambda: not process.is_alive)
        assert scene.parts("r2") == ["a_0_0_0", "a_1_1_0"]


def test_another_merge_is_assigned_and_made_while_one_runs() -> None:
    """P12. On the replica that is merging, too."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1")
        scene.merge("r1")
        worker(scene, "r1", "merge", with_slow(merges=["a_0_1_1"]), select=True)
        worker(scene, "r1", "fetch", with_slow())
        scene.let(lambda: claimed(scene, "r1") == 1)
        for row in "abcdefgh":
            scene.insert("r1", row)
        inserted_s = scene.world.now_s
        scene.let(lambda: any(name.endswith("_1") for name in scene.parts("r1")))
        assert scene.world.now_s - inserted_s < LONG_S / 2
        assert "a_0_1_1" not in scene.parts("r1")
        scene.let(lambda: "a_0_1_1" in scene.parts("r1"))
        assert scene.rows("r1") == sorted("xyabcdefgh")


def test_what_a_session_began_is_not_begun_again_by_the_next_one_of_the_process() -> None:
    """P10, C12. The merge goes on; its result is published under a new claim."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1")
        scene.merge("r1")
        scene.pull("r1")
        mergers: list[SlowMerger] = []

        def tools(context: Context) -> Tools:
            made = with_slow(merges=["a_0_1_1"])(context)
            assert isinstance(made.merger, SlowMerger)
            mergers.append(made.merger)
            return made

        process = worker(scene, "r1", "merge", tools)
        scene.let(lambda: claimed(scene, "r1") == 1)
        began_s = scene.world.now_s
        [session] = process.sessions
        scene.world.expire(session)
        scene.let(lambda: "a_0_1_1" in scene.parts("r1"))
        assert scene.world.now_s - began_s < LONG_S + SOON_S
        [merger] = mergers
        assert merger.began == ["a_0_1_1"]
        assert scene.on_disk("r1") == ["a_0_0_0", "a_0_1_1", "a_1_1_0"]


def test_what_a_worker_has_made_that_died_is_published_by_the_next_one() -> None:
    """P10, C12. Its rows are those that the entry wants, and its bytes are whole."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1")
        scene.merge("r1")
        scene.pull("r1")

        def merge_and_die(context: Context) -> None:
            replica = context.replica()
            [session] = context.process.sessions

            def dies(staged: StagedPart, part: PartName) -> None:
                scene.world.expire(session)
                raise KeyboardInterrupt(staged.directory, part)

            replica.store.publish = dies  # type: ignore[method-assign]
            work_once(context)

        def work_once(context: Context) -> list[str]:
            tools = with_slow()(context)
            Executor(context.replica(), tools, "merge").step(None)
            assert isinstance(tools.merger, SlowMerger)
            return tools.merger.began

        with pytest.raises(KeyboardInterrupt):
            scene.do("r1", merge_and_die)
        [left] = [one for one in scene.on_disk("r1") if one.startswith("tmp_")]
        assert "a_0_1_1" in left
        assert scene.do("r1", work_once) == []
        assert "a_0_1_1" in scene.parts("r1")
        assert scene.rows("r1") == ["x", "y"]
        assert scene.on_disk("r1") == ["a_0_0_0", "a_0_1_1", "a_1_1_0"]


@pytest.mark.parametrize("lost", ["a_0_0_0", "a_0_0_0/data-00000.parquet"])
def test_what_a_peer_s_disk_has_lost_is_healed_there_and_holds_up_no_other_fetch(lost):
    """The peer finds it when it is asked; who asked gets it elsewhere."""
    with Scene(hosts=3) as scene:
        scene.insert("r1", "x")
        scene.work("r3")
        scene.insert("r1", "y")
        scene.cluster.sites["r1"].host.disk.lose(lost)
        scene.pull("r2")
        scene.step("r2", "fetch")
        assert scene.parts("r2") == ["a_1_1_0"]
        scene.let(lambda: scene.parts("r1") == ["a_1_1_0"])
        scene.work("r2", "r1", "r3")
        assert [scene.rows(name) for name in ("r1", "r2", "r3")] == [["x", "y"]] * 3
