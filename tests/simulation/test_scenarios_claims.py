"""Scenarios about claims and clones: what may happen between the reads of who decides."""

from collections import deque
from collections.abc import Sequence

from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.work.step import Step
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData
from tests.simulation.scene import Scene, claims, fetch_step, publishes
from tests.support.cluster import TABLE, Context
from tests.support.executor import Executor
from tests.support.lost_answers import faulty


def test_two_workers_that_saw_the_same_claims_do_not_both_take_what_overlaps() -> None:
    """P10, Q5. Both entries are fetched as the one part that contains them."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1")
        scene.merge("r1")
        scene.work("r1")
        for part in ("a_0_0_0", "a_1_1_0"):
            gone = Delete(TABLE.replica("r1").part(part))
            scene.do("r1", lambda context, op=gone: context.keeper().multi([op]))
        scene.pull("r2")
        first = scene.queue("r2")[0]
        one = scene.hold("r2", fetch_step, claims)

        def all_but_the_first(context: Context) -> Step:
            executor = Executor(context.replica(), context.tools(), "fetch")
            executor._backoff.failed(first, context.clock.monotonic_s())
            return executor.step(None)

        two = scene.hold("r2", all_but_the_first, publishes)
        assert len(scene.children(TABLE.replica("r2").executing)) == 1
        assert scene.release(one).done == ()
        scene.release(two)
        scene.work("r2")
        assert scene.parts("r2") == ["a_0_1_1"]
        assert scene.queue("r2") == []


def test_an_entry_whose_claim_ended_while_it_was_read_is_not_taken_again() -> None:
    """P9, P10. Its claim was listed before, its part is listed after."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.pull("r2")
        held = scene.hold("r2", fetch_step, publishes)

        def late(context: Context) -> Step:
            keeper = context.keeper()
            get_many = keeper.get_many

            def slow(paths: Sequence[str]) -> object:
                if any("/executing/" in path for path in paths) and held.process.is_alive:
                    held.waker.wake()
                    scene.world.sleep_s(1.0)
                return get_many(paths)

            keeper.get_many = slow  # type: ignore[method-assign]
            return Executor(context.replica(), context.tools(), "fetch").step(None)

        assert scene.do("r2", late).done == ()
        assert scene.parts("r2") == ["a_0_0_0"]


def test_what_the_source_of_a_clone_does_meanwhile_is_missing_from_nothing() -> None:
    """C4. It merges between the two listings; sources that are gone do not come back."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1", "r2")
        scene.merge("r1")
        scene.pull("r1")
        lost = SetData(TABLE.replica("r2").is_lost, b"1")
        scene.do("r2", lambda context: context.keeper().multi([lost]))
        for part in scene.parts("r2"):
            gone = Delete(TABLE.replica("r2").part(part))
            scene.do("r2", lambda context, op=gone: context.keeper().multi([op]))
        source = TABLE.replica("r1")

        def clone(context: Context) -> None:
            keeper = context.keeper()
            children, merged = keeper.children, []

            def asked(path: str, *args: object) -> list[str]:
                found = children(path, *args)
                if path in (source.queue, source.parts) and not merged:
                    merged.append(path)
                    scene.cluster.spawn(scene.cluster.sites["r1"], "merge", merge_and_forget)
                    scene.world.sleep_s(30.0)
                return found

            keeper.children = asked  # type: ignore[method-assign]
            clone_if_lost(context.replica())

        scene.do("r2", clone)
        assert scene.parts("r1") == ["a_0_1_1"]
        scene.work("r2")
        assert scene.parts("r2") == ["a_0_1_1"]
        assert scene.queue("r2") == []


def merge_and_forget(context: Context) -> None:
    """The entry that is queued, and then the parts that it covers."""
    Executor(context.replica(), context.tools(), "merge").step(None)
    context.clock.sleep_s(20.0)
    carry_out(context.replica(), plan_clean_up(context.replica()))


def gives_back(op: Op) -> bool:
    return isinstance(op, Delete) and "/executing/" in op.path


def held_claims(context: Context) -> list[str]:
    return context.keeper().children(context.replica().paths.executing)


def test_a_claim_without_an_answer_does_not_stay_while_its_session_lives() -> None:
    """P10. Nobody knows whether it is there, and nobody works at it."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.pull("r2")

        def unlucky(context: Context) -> list[str]:
            for landed in (False, True):
                with faulty(context.keeper(), claims, landed=landed):
                    assert fetch_step(context).done == ()
            return held_claims(context)

        assert scene.do("r2", unlucky) == []
        scene.work("r2")
        assert scene.parts("r2") == ["a_0_0_0"]


def test_a_claim_that_is_given_back_without_an_answer_does_not_stay() -> None:
    """P10. The entry failed, and the note of it got no answer."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.pull("r2")

        def unlucky(context: Context) -> list[str]:
            tools = context.tools()
            tools.peers.fetch = lambda requests, _: [  # type: ignore[method-assign]
                [(one, Unavailable("nobody answers"))] for one in requests
            ]
            executor = Executor(context.replica(), tools, "fetch")
            for landed, times in ((True, 1), (False, 2)):
                context.clock.sleep_s(1.0)
                with faulty(context.keeper(), gives_back, landed=landed, times=times):
                    [failed] = executor.step(None).done
                    assert failed.error == "nobody answers"
                    held_claims(context)  # any contact: what was left is seen to, if it can be
            return held_claims(context)

        assert scene.do("r2", unlucky) == []


def test_of_two_results_that_differ_one_is_published() -> None:
    """Spec §5.4. Nobody had it when both of them looked."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1", "r2")
        scene.merge("r1")
        scene.pull("r1")
        scene.pull("r2")

        def merge(context: Context) -> Step:
            return Executor(context.replica(), context.tools(), "merge").step(None)

        def merge_otherwise(context: Context) -> Step:
            tools = context.tools()
            tools.merger.merged = lambda rows: sorted(rows, reverse=True)
            return Executor(context.replica(), tools, "merge").step(None)

        held = scene.hold("r1", merge, publishes)
        [first] = scene.do("r2", merge_otherwise).done
        assert first.error == ""
        [second] = scene.release(held).done
        assert second.differs
        assert "differs from replica r2's" in second.error
        assert "a_0_1_1" not in scene.parts("r1")


def test_after_a_result_that_differs_theirs_is_fetched() -> None:
    """Spec §5.4."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1", "r2")
        scene.merge("r1")
        scene.work("r1")
        scene.pull("r2")

        def merge_otherwise(context: Context) -> list[tuple[str, bool]]:
            tools = context.tools()
            tools.merger.merged = lambda rows: sorted(rows, reverse=True)
            executor = Executor(context.replica(), tools, "merge")
            [first] = executor.step(None).done
            context.clock.sleep_s(1.0)
            [second] = executor.step(None).done
            return [(one.kind, one.differs) for one in (first, second)]

        done = scene.do("r2", merge_otherwise)
        assert done == [("MERGE_PARTS", True), ("FETCH", False)]
        assert scene.rows("r1") == scene.rows("r2") == ["x", "y"]


def test_what_is_late_of_a_session_that_is_over_never_comes() -> None:
    """As ZooKeeper has it: else a claim that nobody holds would stay for ever."""
    with Scene() as scene:
        session = scene.world.connect(scene.cluster.sites["r1"].host.processes[0])
        scene.world.expire(session)
        late = deque([[Create("/late", ephemeral=True)] for _ in range(20)])
        scene.world.late_writes[session.session_id] = late
        scene.world.land_late(session)
        assert "/late" not in scene.world.zookeeper.nodes
