"""What happens while a part is inserted that waits for its quorum."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.protocol.nodes.formats import QuorumStatus
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica import quorum
from rmt_pipeline.replica.assign.merges import Nothing
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.readable import ReplicaIsNotInQuorum
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.zookeeper.keeper import Create, Op, Stat
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import ROOT, Replicas, StillClock
from tests.support.lost_answers import before, logs

ONE = PartName("all", 0, 0, 0)
BRIEFLY = {"insert_quorum": "2", "insert_quorum_timeout": "1000"}
ALONE = {**BRIEFLY, "insert_quorum_parallel": "0"}


@pytest.mark.parametrize("number", range(8))
def test_a_part_that_comes_while_mutations_are_assigned_is_not_mutated(
    replicas: Replicas, number: int
) -> None:
    """P41. Its quorum may fail. Then its mutated form would stay, and the same rows, inserted
    again, would be there twice.
    """
    replica, landed = replicas["r1"], list[list[str]]()
    session = replica.session
    multi = session.multi

    def allocated_before_the_mutation_and_lands_later(ops: Sequence[Op]) -> list[str]:
        if not any(map(logs, ops)) or landed:
            return multi(ops)
        replicas.table("r1").mutate("DELETE WHERE n = 2")
        lands = BeforeRequest(session, number, lambda: landed.append(multi(ops)))
        replica.keeper.session = lands
        assert isinstance(assign_mutations(replica), Nothing)
        replica.keeper.session = session
        return landed[0] if lands.has_come else multi(ops)

    session.multi = allocated_before_the_mutation_and_lands_later
    with pytest.raises(QuorumNotReached):
        replicas.table("r1").insert([{"n": 1}], settings=BRIEFLY)
    assert set(replicas.zookeeper.nodes[f"{ROOT}/quorum/parallel"].children) == {"all_0_0_0"}
    assert isinstance(assign_mutations(replica), Nothing)
    replicas.step("r1", "fetch")
    replicas.step("r2", "fetch")
    assert not isinstance(assign_mutations(replica), Nothing)


def publishes(op: Op) -> bool:
    return isinstance(op, Create) and op.path.endswith(f"/parts/{ONE}")


def status_of(replicas: Replicas) -> QuorumStatus:
    return QuorumStatus.decode(replicas.zookeeper.nodes[f"{ROOT}/quorum/status"].data)


def test_who_publishes_late_is_not_counted_for_the_insert_that_came_after(
    tmp_path: Path,
) -> None:
    """1. r2 has fetched a part that waits, and is about to promise it. 2. The quorum of the part
    fails: r1, which has it, is away. 3. Its client inserts the same rows once more, on r3: a node
    of the same name says that they wait, in its first version, too. 4. r2 goes on: the rows would
    be there twice, and nothing would wait for the second insert.
    """
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as replicas:
        with pytest.raises(QuorumNotReached):
            replicas.table("r1").insert([{"n": 1}], settings=ALONE)

        def fails_and_is_said_again() -> None:
            replicas.stop("r1")
            assert quorum.has_failed(replicas["r3"], ONE)
            with pytest.raises(QuorumNotReached):
                replicas.table("r3").insert([{"n": 1}], settings=ALONE)

        with before(replicas["r2"].keeper, publishes, fails_and_is_said_again):
            replicas.step("r2", "fetch")
        assert str(ONE) not in replicas.parts("r2")
        assert [str(one) for one in status_of(replicas).parts] == ["all_1_1_0"]


def test_who_publishes_late_does_not_write_over_the_wait_of_another_insert(
    tmp_path: Path,
) -> None:
    """As above; but the first part has reached its quorum meanwhile, and r2 comes too late for it.
    What it wrote stayed for ever: no other quorum insert could wait alone any more.
    """
    names = ["r1", "r2", "r3", "r4"]
    three = {**ALONE, "insert_quorum": "3"}
    with Replicas(tmp_path, names) as replicas:
        with pytest.raises(QuorumNotReached):
            replicas.table("r1").insert([{"n": 1}], settings=three)

        def reached_and_another_one_waits() -> None:
            for name in ("r3", "r4"):
                replicas.step(name, "fetch")
            with pytest.raises(QuorumNotReached):
                replicas.table("r3").insert([{"n": 2}], settings=three)

        with before(replicas["r2"].keeper, publishes, reached_and_another_one_waits):
            replicas.step("r2", "fetch")
        [entry] = status_of(replicas).entries
        assert (str(entry.part), entry.replicas) == ("all_1_1_0", ("r3",))
        replicas.work_off("r1", "r2")
        assert f"{ROOT}/quorum/status" not in replicas.zookeeper.nodes


def test_a_sequential_reader_does_not_ask_for_what_a_drop_is_to_take(tmp_path: Path) -> None:
    """The row has reached its quorum without r3, which has yet to read of it and of the drop."""
    with Replicas(tmp_path, ("r1", "r2", "r3")) as replicas:
        replicas.meanwhile.append(lambda: replicas.step("r2", "fetch"))
        replicas.table("r1").insert([{"n": 1}], settings=BRIEFLY)
        reader = replicas.table("r3")
        with pytest.raises(ReplicaIsNotInQuorum):
            reader.dataset({"select_sequential_consistency": 1})
        replicas.table("r1").truncate(settings={"alter_sync": "0"})
        replicas.step("r1", "fetch")
        for pulls in (False, True):
            if pulls:
                pull_log(replicas["r3"])
            sequential = reader.dataset({"select_sequential_consistency": 1})
            assert sequential.to_table().num_rows == 0


def test_who_looks_whether_it_failed_is_told_that_the_table_was_dropped(tmp_path: Path) -> None:
    with Replicas(tmp_path) as replicas:
        with pytest.raises(QuorumNotReached):
            replicas.table("r1").insert([{"n": 1}], settings=BRIEFLY)
        replicas.stop("r1")
        replica = replicas["r2"]
        exists_many = replica.session.exists_many

        def late(paths: Sequence[str]) -> list[Stat | None]:
            if replica.table.log in paths:
                replicas.drop("r1", "r2")
            return exists_many(paths)

        replica.session.exists_many = late
        with pytest.raises(ReplicaDropped):
            quorum.has_failed(replica, ONE)


def test_a_failure_that_a_leader_has_dated_before_the_entry_is_known_while_that_is_there(
    replicas: Replicas,
) -> None:
    """Its clock is behind. Transactions tell that the part's entry came before it failed."""
    with pytest.raises(QuorumNotReached):
        replicas.table("r1").insert([{"n": 1}], settings=BRIEFLY)
    replicas.stop("r1")
    replicas.clock.passed_s -= 1000
    replicas.step("r2", "fetch")
    replicas.come_back("r1")
    replicas.step("r1", "fetch")
    replicas.clock.passed_s += 200_000
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    failed = replicas.zookeeper.nodes[f"{ROOT}/quorum/failed_parts"]
    assert failed.children == {str(ONE)}


def failed_parts(replicas: Replicas) -> set[str]:
    return set(replicas.zookeeper.nodes[f"{ROOT}/quorum/failed_parts"].children)


def test_who_is_dropped_while_it_is_decided_does_not_have_the_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. r2 sees that r3 is active. 2. r3 is dropped. 3. r2 would list its parts."""
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as three:
        with pytest.raises(QuorumNotReached):
            three.table("r1").insert([{"n": 1}], settings=BRIEFLY)
        three.stop("r1")
        keeper, parts = three["r2"].keeper, three["r3"].paths.parts
        right = keeper.children_many

        def late(paths: Sequence[str]) -> list[list[str] | None]:
            if parts in paths:
                monkeypatch.undo()
                drop_replica(three["r3"].session, three["r3"].table, "r3")
            return right(paths)

        monkeypatch.setattr(keeper, "children_many", late)
        assert quorum.has_failed(three["r2"], ONE)
        assert failed_parts(three) == {str(ONE)}


@pytest.mark.parametrize("who", ["our clock", "ZooKeeper's"])
def test_a_failed_part_is_known_although_a_clock_is_days_ahead(
    replicas: Replicas, who: str
) -> None:
    """Who waits for it would be answered as if enough replicas had had it."""
    with pytest.raises(QuorumNotReached):
        replicas.table("r1").insert([{"n": 1}], settings=BRIEFLY)
    replicas.stop("r1")
    replicas.step("r2", "fetch")
    replicas.come_back("r1")
    replicas.set(min_replicated_logs_to_keep=1, max_replicated_logs_to_keep=2)
    for value in range(2, 9):
        replicas.insert("r1", value)
        replicas.work_off()

    def clean() -> None:
        carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))

    clean()
    ahead = StillClock(replicas.clock.passed_s + 200_000.0)
    if who == "our clock":
        replicas["r1"].clock = ahead
    else:
        replicas.zookeeper.clock = ahead
    clean()
    assert failed_parts(replicas) == {str(ONE)}
    replicas["r1"].clock = replicas.zookeeper.clock = ahead
    clean()
    assert failed_parts(replicas) == set()
