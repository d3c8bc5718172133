"""Scenarios of spec §16 that need several replicas, with the production actions."""

from collections.abc import Iterator, Sequence

import pytest

from rmt_pipeline.protocol.errors import (
    Corruption,
    OutcomeUnknown,
    ReplicaAlreadyExists,
    ReplicaIsAlreadyActive,
    TableIsReadOnly,
)
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import AlterMetadata
from rmt_pipeline.protocol.nodes.formats import ReplicaAddress
from rmt_pipeline.protocol.nodes.records import Attempts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.assign.merges import Assigned
from rmt_pipeline.replica.insert.result import InsertCancelled, Outcome
from rmt_pipeline.replica.life.clone import clone_if_lost
from rmt_pipeline.replica.life.create import create_replica
from rmt_pipeline.replica.life.start import activate
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.check import (
    UNANNOUNCED_S,
    check_part,
    look_at_disk,
    recover_parts,
    refetch,
)
from rmt_pipeline.replica.work.step import Step
from rmt_pipeline.store.manifest import Manifest
from rmt_pipeline.zookeeper.keeper import Create, Delete, Op, SetData
from tests.simulation.replacing import put
from tests.simulation.scene import (
    Scene,
    commits,
    fetch_step,
    inserting,
    inserting_blocks,
    moves_pointer,
    publishes,
)
from tests.support.cluster import TABLE, Context, SimWaker, definition_of
from tests.support.executor import Executor
from tests.support.fake_peers import FakePeers


def test_an_insert_appears_in_the_log_the_ids_and_the_parts_at_once() -> None:
    """I1."""
    with Scene() as scene:
        held = scene.hold("r1", inserting("x"), commits)
        places = (TABLE.log, TABLE.blocks, TABLE.inserts, TABLE.replica("r1").parts)
        assert [scene.children(place) for place in places] == [[], [], [], []]
        assert len(scene.children(TABLE.partition("a"))) == 1, "its number is in flight"
        scene.release(held)
        assert [len(scene.children(place)) for place in places] == [1, 1, 1, 1]
        assert scene.children(TABLE.partition("a")) == []


def test_two_replicas_that_commit_the_same_rows_at_once_insert_them_once() -> None:
    """I2. The loser's number is a hole, and merges span it."""
    with Scene() as scene:
        held = scene.hold("r1", inserting("x"), commits)
        assert scene.insert("r2", "x").outcome is Outcome.INSERTED
        assert scene.release(held).outcome is Outcome.DUPLICATE
        scene.insert("r1", "y")
        assert len(scene.children(TABLE.log)) == 2
        scene.work("r1", "r2")
        assert isinstance(scene.merge("r1"), Assigned)
        scene.work("r1", "r2")
        assert scene.rows("r1") == scene.rows("r2") == ["x", "y"]
        assert [part for part in scene.parts("r1") if part.startswith("a_1_2_1")] == ["a_1_2_1"]


def test_an_insert_whose_blocks_were_there_already_is_recorded_too() -> None:
    """A retry of it that is cut into other blocks is answered, and inserts nothing."""
    with Scene() as scene:
        scene.insert("r1", "x", "y")
        both = scene.do("r1", inserting_blocks(["x", "y"], ["z"]))
        assert (both.outcome, both.rows) == (Outcome.RESUMED, 1)
        again = scene.do("r1", inserting_blocks(["z"]))
        assert again.outcome is Outcome.DUPLICATE
        cut = scene.do("r2", inserting_blocks(["x"], ["y"], ["z"]))
        assert cut.outcome is Outcome.DUPLICATE
        assert again.insert_id in scene.children(TABLE.inserts)


def test_what_is_dropped_while_it_is_in_flight_is_cancelled() -> None:
    """D2. The lock is what a DROP takes away."""
    with Scene() as scene:
        held = scene.hold("r1", inserting("x"), commits)
        [lock] = scene.children(TABLE.partition("a"))
        scene.do(
            "r2",
            lambda context: context.keeper().multi([Delete(f"{TABLE.partition('a')}/{lock}")]),
        )
        scene.release(held)
        [(_, error)] = scene.world.ended_by
        assert isinstance(error, InsertCancelled)
        assert scene.parts("r1") == scene.children(TABLE.log) == []
        assert [name for name in scene.on_disk("r1") if name.startswith("a_")] == []


def test_ones_own_entry_is_not_fetched_while_its_insert_is_on_its_way() -> None:
    """I14. The disk has the part and ZooKeeper not yet: it is neither missing nor unknown."""
    with Scene() as scene:
        scene.hold("r1", inserting("x"), commits)
        seen = scene.do("r1", lambda context: look_at_disk(context.replica()))
        assert [str(part) for part in seen.unexpected] == ["a_0_0_0"]
        assert seen.in_flight == frozenset(seen.unexpected)


def test_an_entry_is_pulled_once_however_many_pull() -> None:
    """Q2. Copies and pointer are one multi."""
    with Scene() as scene:
        for row in "xyz":
            scene.insert("r1", row)
        held = scene.hold("r2", lambda context: pull_log(context.replica()), moves_pointer)
        assert scene.pull("r2") == 3
        assert scene.release(held).entries == 0
        assert len(scene.queue("r2")) == 3
        assert scene.nodes[TABLE.replica("r2").log_pointer].data == b"3"


def test_a_gap_in_the_log_is_an_error_and_never_skipped() -> None:
    """Q3."""
    with Scene() as scene:
        for row in "xyz":
            scene.insert("r1", row)
        middle = f"{TABLE.log}/{scene.children(TABLE.log)[1]}"
        scene.do("r1", lambda context: context.keeper().multi([Delete(middle)]))
        with pytest.raises(Corruption, match="log-0000000001 is missing"):
            scene.pull("r2")
        assert scene.nodes[TABLE.replica("r2").log_pointer].data != b"3"


def test_a_larger_part_that_was_fetched_makes_the_smaller_entries_no_work() -> None:
    """Q6, F2. They stay in the queue until they are found to be done, one by one."""
    with Scene() as scene:
        for row in "xyz":
            scene.insert("r1", row)
        scene.work("r1")
        assert isinstance(scene.merge("r1"), Assigned)
        scene.work("r1")
        for part in ("a_0_0_0", "a_1_1_0", "a_2_2_0"):
            path = TABLE.replica("r1").part(part)
            scene.do("r1", lambda context, path=path: context.keeper().multi([Delete(path)]))
        scene.pull("r2")
        first = scene.step("r2", "fetch")
        assert [str(done.part) for done in first.done] == ["a_0_2_1"]
        assert len(scene.queue("r2")) == 3
        assert scene.step("r2", "fetch").finished_without_work == 3
        assert scene.queue("r2") == []
        assert scene.rows("r2") == ["x", "y", "z"]


def test_an_entry_that_waits_fails_no_attempt_and_stops_nobody() -> None:
    """Q8."""
    with Scene() as scene:
        for row in "xy":
            scene.insert("r1", row)
        scene.work("r1")
        scene.merge("r1")
        scene.insert("r1", "z")
        scene.pull("r2")
        scene.step("r2", "fetch")
        assert scene.rows("r2") == ["x", "y", "z"]
        assert scene.children(TABLE.replica("r2").attempts) == []


def test_who_nobody_can_serve_says_so_and_is_served_when_the_part_is_back() -> None:
    """F5. A part that only an inactive replica has is waited for, never given up."""
    with Scene() as scene:
        scene.insert("r1", "x")
        site, active = scene.cluster.sites["r1"], TABLE.replica("r1").is_active
        sessions = [session for process in site.host.processes for session in process.sessions]
        scene.cluster.switch_off(site, for_s=50)
        for session in sessions:
            scene.world.expire(session)
        scene.pull("r2")
        [done] = scene.step("r2", "fetch").done
        assert "no active replica" in done.error
        [attempts] = scene.children(TABLE.replica("r2").attempts)
        noted = Attempts.decode(scene.nodes[TABLE.replica("r2").attempts_of(attempts)].data)
        assert (noted.tries, "no active replica" in noted.last_exception) == (1, True)
        scene.let(lambda: active in scene.nodes and site.is_serving)
        scene.work("r2")
        assert scene.rows("r2") == ["x"]


def test_a_broken_part_is_fetched_again_and_its_sources_stay_away() -> None:
    """F4."""
    with Scene() as scene:
        for row in "xy":
            scene.insert("r1", row)
        scene.work("r1", "r2")
        scene.merge("r1")
        scene.work("r1", "r2")
        disk = scene.cluster.sites["r2"].host.disk
        [file] = [name for name in disk.list("a_0_1_1") if name.startswith("data")]
        disk.rot(f"a_0_1_1/{file}", scene.world.rng)
        part = next(iter(scene.run.finished.active(scene.cluster.sites["r2"])))
        said = scene.do("r2", lambda context: check_part(context.replica(), part))
        assert said is not None
        assert "a_0_1_1" not in scene.parts("r2")
        assert len(scene.queue("r2")) == 1
        scene.work("r2")
        assert scene.rows("r2") == ["x", "y"]
        assert [name for name in disk.list("detached") if "a_0_1_1" in name] != []


def test_a_second_server_of_a_replica_is_refused_and_ones_own_leftover_removed() -> None:
    """C13."""
    with Scene() as scene:
        address = ReplicaAddress("h1", 9009, 9000, "default", "t")
        with pytest.raises(ReplicaIsAlreadyActive, match="is active in another process"):
            scene.do(
                "r1", lambda context: activate(context.replica(), "stranger", "1", address)
            )
        scene.do("r1", lambda context: activate(context.replica(), "r1", "again", address))


def test_an_address_that_changed_is_written_at_activation() -> None:
    """C16."""
    with Scene() as scene:
        moved = ReplicaAddress("elsewhere", 9009, 9000, "default", "t")
        scene.do("r1", lambda context: activate(context.replica(), "r1", "again", moved))
        assert ReplicaAddress.decode(scene.nodes[TABLE.replica("r1").host].data) == moved


def test_a_replica_name_that_is_taken_is_refused() -> None:
    """C14. And leaves nothing behind."""
    with Scene() as scene:
        before = scene.nodes.keys()
        with pytest.raises(ReplicaAlreadyExists, match="already exists"):
            scene.do(
                "r2",
                lambda context: create_replica(context.keeper(), definition_of("r1"), b"other"),
            )
        assert scene.nodes.keys() == before


@pytest.mark.parametrize("left", ["nothing", "half a manifest", "no data", "half of the data"])
def test_what_an_attempt_that_died_has_staged_stops_nobody(left: str) -> None:
    """Q14. Nor is it taken for the part, whatever its manifest says."""
    with Scene() as scene:
        scene.insert("r1", "x")
        site = scene.cluster.sites["r2"]
        theirs, disk = scene.cluster.sites["r1"].host.disk, site.host.disk
        attempt = "tmp_fetch_a_0_0_0_0123456789abcdef0123456789abcdef"
        disk.make_directory(attempt)
        for name in theirs.list("a_0_0_0") if left != "nothing" else ():
            data = theirs.read(f"a_0_0_0/{name}")
            assert data is not None
            if name == "part.json":
                whole = left != "half a manifest"
                disk.write(f"{attempt}/{name}", [data if whole else data[: len(data) // 2]])
            elif left == "half of the data":
                disk.write(f"{attempt}/{name}", [data[: len(data) // 2]])
        scene.work("r2")
        assert scene.rows("r2") == ["x"]
        assert site.outside is not None
        assert site.outside.verify(PartName("a", 0, 0, 0)).rows == 1


def test_a_session_that_ends_gives_its_claims_back() -> None:
    """C12. What it was about to publish is refused, and somebody else does it."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.pull("r2")
        executing = TABLE.replica("r2").executing
        held = scene.hold("r2", fetch_step, publishes)
        assert len(scene.children(executing)) == 1
        [session] = held.process.sessions
        scene.world.expire(session)
        assert scene.children(executing) == []
        scene.work("r2")
        scene.release(held)
        assert scene.rows("r2") == ["x"]
        assert scene.queue("r2") == []


def test_a_batch_of_huge_entries_is_pulled_one_by_one() -> None:
    """Q4. ZooKeeper takes no multi above 1 MB; the fake one asserts it."""
    with Scene() as scene:
        huge = [
            encode(
                AlterMetadata(
                    version, False, "x" * 400_000, "", source_replica="r1", create_time=version
                )
            )
            for version in range(1, 7)
        ]
        for entry in huge:
            log_it = Create(TABLE.log_prefix, entry, sequence=True)
            scene.do("r1", lambda context, op=log_it: context.keeper().multi([op]))
        assert scene.pull("r2") == len(huge)
        queue = TABLE.replica("r2").queue
        assert [scene.nodes[f"{queue}/{name}"].data for name in scene.queue("r2")] == huge


def test_a_young_part_that_nobody_promised_is_left_alone() -> None:
    """F10. Its insert may still find out that it landed; an old one is set aside."""
    with Scene() as scene:
        scene.insert("r1", "x")
        [session] = scene.hold("r1", inserting("y"), commits).process.sessions
        scene.world.expire(session)
        assert scene.children(TABLE.partition("a")) == [], "number 1 was given out, and is free"
        scene.cluster.sites["r1"].host.disk.copy("a_0_0_0", "a_1_1_0")
        scene.do("r1", lambda context: recover_parts(context.replica()))
        assert "a_1_1_0" in scene.on_disk("r1")
        scene.world.now_s += UNANNOUNCED_S + 60
        scene.do("r1", lambda context: recover_parts(context.replica()))
        assert "a_1_1_0" not in scene.on_disk("r1")


def test_a_part_that_only_the_lost_replica_has_stays() -> None:
    """C6. Whom it clones still wants to fetch it."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.pull("r2")
        lost = SetData(TABLE.replica("r1").is_lost, b"1")
        scene.do("r1", lambda context: context.keeper().multi([lost]))
        cloned = scene.do("r1", lambda context: clone_if_lost(context.replica()))
        assert cloned is not None
        assert cloned.detached == ()
        scene.work("r2")
        assert scene.rows("r2") == scene.rows("r1") == ["x"]


def test_a_part_that_its_source_does_not_know_is_set_aside_by_a_clone() -> None:
    """C5. It may hold rows that were dropped while the replica was lost."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.insert("r1", "y")
        scene.work("r1", "r2")
        dropped = Delete(TABLE.replica("r1").part("a_0_0_0"))
        scene.do("r1", lambda context: context.keeper().multi([dropped]))
        lost = SetData(TABLE.replica("r2").is_lost, b"1")
        scene.do("r2", lambda context: context.keeper().multi([lost]))
        cloned = scene.do("r2", lambda context: clone_if_lost(context.replica()))
        assert cloned is not None
        assert [str(part) for part in cloned.detached] == ["a_0_0_0"]
        assert scene.parts("r2") == ["a_1_1_0"]
        assert "a_0_0_0" not in scene.on_disk("r2")


def test_a_worker_whose_session_ended_removes_nothing_that_was_published_since() -> None:
    """P10, C12."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.pull("r2")
        waker, arrived = SimWaker(scene.world), []

        def slow_step(context: Context) -> Step:
            tools = context.tools()

            def fetch(*args: object) -> Iterator[object]:
                for found in FakePeers.fetch(tools.peers, *args):
                    arrived.append(found)
                    waker.wait_s(1e6)
                    yield found

            tools.peers.fetch = fetch
            return Executor(context.replica(), tools, "fetch").step(None)

        process = scene.cluster.spawn(scene.cluster.sites["r2"], "slow", slow_step)
        scene.let(lambda: bool(arrived))
        [session] = process.sessions
        scene.world.expire(session)
        scene.work("r2")
        waker.wake()
        scene.let(lambda: not process.is_alive)
        assert scene.parts("r2") == ["a_0_0_0"]
        assert scene.rows("r2") == ["x"]


def test_what_was_published_without_an_answer_is_left_for_the_next_one() -> None:
    """P10. When the claim is given back, somebody else may be about to promise the same bytes."""
    with Scene() as scene:
        scene.insert("r1", "x")
        scene.pull("r2")

        def unlucky_step(context: Context) -> Step:
            keeper = context.keeper()
            multi = keeper.multi

            def without_answer(ops: Sequence[Op]) -> list[str]:
                if any(map(publishes, ops)):
                    raise OutcomeUnknown("the request is lost")
                done = multi(ops)
                if any(isinstance(op, Delete) and "/executing/" in op.path for op in ops):
                    scene.cluster.workers = 1
                    scene.cluster.boot_workers(scene.cluster.sites["r2"])
                    scene.world.sleep_s(5.0)
                return done

            keeper.multi = without_answer
            return Executor(context.replica(), context.tools(), "fetch").step(None)

        [failed] = scene.do("r2", unlucky_step).done
        assert failed.error == "the request is lost"
        assert scene.parts("r2") == ["a_0_0_0"]
        assert scene.rows("r2") == ["x"]


def test_a_replica_that_was_marked_lost_takes_no_insert() -> None:
    """C5. A clone would set aside what its source does not know."""
    with Scene() as scene:
        held = scene.hold("r2", inserting("x"), commits)
        lost = SetData(TABLE.replica("r2").is_lost, b"1")
        scene.do("r1", lambda context: context.keeper().multi([lost]))
        assert scene.release(held) is None
        [(_, error)] = scene.world.ended_by
        assert isinstance(error, TableIsReadOnly)
        assert scene.children(TABLE.log) == []


def test_what_a_replacement_brought_is_looked_at_again_before_it_is_lost() -> None:
    """1. A replacement is in the log, and has yet to be carried out where its part is. 2. That one
    can't be read for a moment, and is given up: its fetch comes after the replacement.
    """

    def fails(part: PartName) -> Manifest:
        raise Corruption("input/output error", part=part)

    with Scene() as scene:
        scene.insert("r1", "x")
        scene.do("r1", put(scene.run.ledger, {"a": ["y"]}))
        [brought] = set(scene.parts("r1")) - {"a_0_0_0"}
        part = PartName.parse(brought)
        assert scene.do("r1", lambda context: refetch(context.replica(), part, fails))
        scene.pull("r1")
        scene.step("r1", "fetch")
        assert scene.rows("r1") == ["y"]
