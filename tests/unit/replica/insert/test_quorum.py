"""An insert that is answered when so many replicas have its rows (spec §2.7, §16.2 I10 to I13)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.exchange.peers import Fetched, FetchRequest
from rmt_pipeline.protocol.errors import OutcomeUnknown
from rmt_pipeline.protocol.nodes.formats import AddedParts, QuorumEntry, QuorumStatus
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.table import TableSettings
from rmt_pipeline.replica import quorum
from rmt_pipeline.replica.assign.merges import Assigned, Nothing, optimize_partition
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.quorum import (
    QuorumFailed,
    TooFewLiveReplicas,
    UnsatisfiedQuorum,
)
from rmt_pipeline.replica.insert.result import Outcome, QuorumNotReached
from rmt_pipeline.replica.life.drop import drop_replica
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.store.part_store import PartStore
from tests.support.local_replicas import ROOT, DirectPeers, Replicas, by_tens
from tests.support.lost_answers import before
from tests.support.quorums import ALONE, BRIEFLY, QUORUM, children, has_rows, insert, sends_one

ONE = PartName("all", 0, 0, 0)


# --- reached ----------------------------------------------------------------------------------


def test_it_is_answered_when_the_peer_has_the_rows(two: Replicas) -> None:
    seen: list[bytes] = []

    def fetch() -> None:
        seen.append(two.zookeeper.nodes[f"{QUORUM}/parallel/{ONE}"].data)
        assert two.parts("r2") == []
        two.step("r2", "fetch")

    two.meanwhile.append(fetch)
    result = insert(two)
    assert result.outcome is Outcome.INSERTED
    assert seen == [QuorumEntry(ONE, 2, ("r1",)).encode()]
    assert two.parts("r2") == [str(ONE)]
    assert children(two, "parallel") == set()
    assert has_rows(two, "r2") == [1]


def test_two_of_three_are_enough_and_all_three_are_waited_for(three: Replicas) -> None:
    three.meanwhile.append(lambda: three.step("r3", "fetch"))
    assert insert(three, 1).rows == 1
    assert three.parts("r2") == []

    def one_of_two() -> None:
        three.step("r3", "fetch")
        assert children(three, "parallel") == {"all_1_1_0"}

    three.meanwhile += [one_of_two, lambda: three.step("r2", "fetch")]
    assert insert(three, 2, insert_quorum="3").rows == 1
    assert has_rows(three, "r2") == has_rows(three, "r3") == [1, 2]


def test_auto_is_the_majority(three: Replicas) -> None:
    three.meanwhile.append(lambda: three.step("r3", "fetch"))
    result = three.table("r1").insert([{"n": 1}], quorum="auto", settings={})
    assert result.rows == 1
    assert three.meanwhile == []


def test_who_fetches_is_counted_with_the_part_and_not_before(three: Replicas) -> None:
    """P41. Nobody counts who does not have the part, at no moment."""

    def look(_: object) -> None:
        nodes = three.zookeeper.nodes
        node = nodes.get(f"{QUORUM}/parallel/{ONE}")
        if node is not None:
            named = QuorumEntry.decode(node.data).replicas
            have = [name for name in ("r1", "r2", "r3") if str(ONE) in three.parts(name)]
            assert sorted(named) == sorted(have)

    three.zookeeper.on_commit(look)
    three.meanwhile += [lambda: three.step("r3", "fetch"), lambda: three.step("r2", "fetch")]
    assert insert(three, insert_quorum="3").rows == 1


def test_two_that_get_it_at_once_are_both_counted(three: Replicas) -> None:
    """1. r2 reads that r1 has it. 2. r3 has it, and says so. 3. r2 would say: r1 and I."""
    counts = f"{QUORUM}/parallel/{ONE}"

    def fetch() -> None:
        with before(
            three["r2"].keeper,
            lambda op: op.path == counts,
            lambda: three.step("r3", "fetch"),
        ):
            three.step("r2", "fetch")

    three.meanwhile.append(fetch)
    assert insert(three, insert_quorum="3").rows == 1
    assert has_rows(three, "r2") == has_rows(three, "r3") == [1]


def test_a_duplicate_waits_for_the_quorum_of_the_first(two: Replicas) -> None:
    """I11."""
    with pytest.raises(QuorumNotReached):
        insert(two)
    with pytest.raises(QuorumNotReached, match="on r1"):
        insert(two)
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    assert insert(two).outcome is Outcome.DUPLICATE
    assert two.meanwhile == []
    assert has_rows(two, "r2") == [1]


def test_a_duplicate_on_another_replica_waits_too(three: Replicas) -> None:
    with pytest.raises(QuorumNotReached):
        insert(three)
    three.meanwhile.append(lambda: three.step("r3", "fetch"))
    assert insert(three, at="r2").outcome is Outcome.DUPLICATE


def test_a_duplicate_of_rows_that_had_no_quorum_waits_until_they_are_on_two(
    two: Replicas,
) -> None:
    """Stricter than the original: what is acknowledged with two is on two."""
    assert insert(two, insert_quorum="0").rows == 1
    with pytest.raises(QuorumNotReached):
        insert(two)
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    assert insert(two).outcome is Outcome.DUPLICATE


def test_rows_that_may_leave_again_are_no_answer_to_who_asks_for_no_quorum(
    two: Replicas,
) -> None:
    """If their quorum failed they were gone, and he was told that they are there."""
    with pytest.raises(QuorumNotReached):
        insert(two)
    with pytest.raises(QuorumNotReached):
        insert(two, insert_quorum="0")
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    assert insert(two, insert_quorum="0").outcome is Outcome.DUPLICATE


def test_a_block_of_another_insert_is_waited_for(two: Replicas) -> None:
    """Two inserts of one row each, without a quorum, and then one of both: nothing of it is new."""
    rows = [{"n": 1}, {"n": 2}]
    for row in rows:
        two.table("r1").insert([row])
    more = {**BRIEFLY, "max_insert_block_size": "1", "min_insert_block_size_rows": "1"}
    with pytest.raises(QuorumNotReached):
        two.table("r1").insert(rows, settings=more)
    two.step("r2", "fetch")
    assert two.table("r1").insert(rows, settings=more).outcome is Outcome.DUPLICATE


def test_an_insert_of_which_nothing_is_new_holds_nobody_up(two: Replicas) -> None:
    rows = [{"n": 1}, {"n": 2}]
    for row in rows:
        two.table("r1").insert([row])
    two.step("r2", "fetch")
    more = {**ALONE, "max_insert_block_size": "1", "min_insert_block_size_rows": "1"}
    assert two.table("r1").insert(rows, settings=more).outcome is Outcome.DUPLICATE
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    assert insert(two, 3, **ALONE).rows == 1


# --- not reached ------------------------------------------------------------------------------


def test_too_few_live_replicas_leave_no_trace(two: Replicas) -> None:
    """I10."""
    two.stop("r2")
    before = set(two.zookeeper.nodes)
    with pytest.raises(TooFewLiveReplicas, match="wants 2 replicas, and 1 of 2 are active"):
        insert(two)
    assert set(two.zookeeper.nodes) == before
    assert two.stores["r1"].staged() == []
    assert insert(two, insert_quorum="0").rows == 1


def test_a_quorum_of_more_than_there_are_is_refused(two: Replicas) -> None:
    with pytest.raises(TooFewLiveReplicas):
        insert(two, insert_quorum="3")


def test_when_the_time_is_over_it_says_who_has_the_rows_and_how_to_find_out(
    two: Replicas,
) -> None:
    with pytest.raises(OutcomeUnknown, match=r"all_0_0_0 is on r1.*parts_awaiting_quorum") as e:
        insert(two)
    assert e.value.code == "UNKNOWN_STATUS_OF_INSERT"
    assert has_rows(two, "r1") == [1]
    two.step("r2", "fetch")
    assert children(two, "parallel") == set(), "it is reached all the same"


def test_without_deduplication_nobody_is_told_to_insert_again(two: Replicas) -> None:
    """They would be there twice."""
    with pytest.raises(QuorumNotReached, match="Do not insert them again"):
        insert(two, insert_deduplicate="0")

    table, server = two.table("r1"), two["r1"]
    two._replicas["r1"] = two._connected("r1")

    def server_away() -> None:
        two.zookeeper.expire(server.keeper.session_id)
        two.step("r2", "fetch")

    two.meanwhile.append(server_away)
    with pytest.raises(QuorumFailed, match="Insert only the rows that are missing"):
        table.insert([{"n": 2}], settings={**BRIEFLY, "insert_deduplicate": "0"})


def test_rows_that_wait_are_not_merged_and_afterwards_they_are(two: Replicas) -> None:
    """I13."""
    with pytest.raises(QuorumNotReached):
        insert(two, 1)
    two.insert("r1", 2)
    refused = optimize_partition(two["r1"], "all", final=True, skip_merged=False)
    assert isinstance(refused, Nothing)
    assert "waits for its quorum" in refused.reason
    two.step("r2", "fetch")
    merged = optimize_partition(two["r1"], "all", final=True, skip_merged=False)
    assert isinstance(merged, Assigned)


def test_a_part_that_waits_is_not_mutated(two: Replicas) -> None:
    with pytest.raises(QuorumNotReached):
        insert(two, 1)
    two.table("r1").mutate("DELETE WHERE n = 1")
    two.step("r1", "fetch")
    assert isinstance(assign_mutations(two["r1"]), Nothing)
    two.step("r2", "fetch")
    assert not isinstance(assign_mutations(two["r1"]), Nothing)


# --- failed -----------------------------------------------------------------------------------


def failed(replicas: Replicas) -> None:
    """Nobody fetched the part of r1 in time, and its server is gone."""
    with pytest.raises(QuorumNotReached):
        insert(replicas)
    replicas.stop("r1")
    replicas.step("r2", "fetch")


def test_a_part_that_no_active_replica_has_has_failed(two: Replicas) -> None:
    """I12."""
    failed(two)
    nodes = two.zookeeper.nodes
    assert children(two, "failed_parts") == {str(ONE)}
    assert children(two, "parallel") == set()
    assert nodes[f"{ROOT}/blocks"].children == set()
    assert nodes[f"{ROOT}/inserts"].children == set()
    assert not any(nodes[f"{ROOT}/replicas/r2/{one}"].children for one in ("queue", "attempts"))


def test_who_comes_back_to_it_sets_it_aside(two: Replicas) -> None:
    """I12."""
    failed(two)
    two.come_back("r1")
    assert two.parts("r1") == []
    assert two.stores["r1"].detached() == [f"noquorum_{ONE}"]
    two.step("r1", "fetch")
    assert two.zookeeper.nodes[f"{ROOT}/replicas/r1/queue"].children == set()
    assert has_rows(two, "r1") == []
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    assert insert(two).outcome is Outcome.INSERTED
    assert has_rows(two, "r1") == has_rows(two, "r2") == [1]


def test_all_who_look_for_it_give_it_up(three: Replicas) -> None:
    failed(three)
    three.step("r3", "fetch")
    for name in ("r2", "r3"):
        assert three.zookeeper.nodes[f"{ROOT}/replicas/{name}/queue"].children == set()
        assert three.parts(name) == []


def test_who_is_active_again_has_not_failed(two: Replicas) -> None:
    with pytest.raises(QuorumNotReached):
        insert(two)
    two.stop("r1")
    two.come_back("r1")
    two.step("r2", "fetch")
    assert children(two, "failed_parts") == set()
    assert has_rows(two, "r2") == [1]


def test_who_becomes_active_while_it_is_decided_has_not_failed(
    two: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. r2 sees that r1 is away. 2. r1 is back, and has the part. 3. r2 says that it failed."""
    with pytest.raises(QuorumNotReached):
        insert(two)
    pull_log(two["r2"])
    two.stop("r1")
    right = quorum.what_to_forget

    def meanwhile(*args: Any, **options: Any) -> Any:
        if two["r1"].session.is_retired:
            two.come_back("r1")
        return right(*args, **options)

    monkeypatch.setattr(quorum, "what_to_forget", meanwhile)
    assert not quorum.has_failed(two["r2"], ONE)
    assert children(two, "failed_parts") == set()


@pytest.mark.parametrize("parts", [1, 2])
def test_what_fails_while_it_is_fetched_is_published_by_nobody(
    three: Replicas, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """1. r3 gets the bytes of r1. 2. r1 is gone: r2 looks for the part, and says that it failed. 3.
    r3 would publish it. Who inserted the rows was told to insert them again: they would be there
    twice.
    """
    for value in range(parts):
        with pytest.raises(QuorumNotReached):
            insert(three, value)
    right = DirectPeers.fetch

    def fetch(
        self: DirectPeers, requests: Sequence[FetchRequest], store: PartStore
    ) -> Iterator[Sequence[Fetched]]:
        fetched = list(right(self, requests, store))
        monkeypatch.undo()
        three.stop("r1")
        three.step("r2", "fetch")
        yield from fetched

    monkeypatch.setattr(DirectPeers, "fetch", fetch)
    three.step("r3", "fetch")
    assert children(three, "failed_parts") == {f"all_{n}_{n}_0" for n in range(parts)}
    assert three.parts("r3") == []
    assert three.zookeeper.nodes[f"{ROOT}/replicas/r3/queue"].children == set()
    assert three.stores["r3"].staged() == []
    assert list(three.stores["r3"].parts()) == []


def test_of_several_blocks_those_that_failed_can_be_inserted_again(two: Replicas) -> None:
    """The record of the insert says no more than that its rows are between these blocks."""
    blocks = {**BRIEFLY, "max_insert_block_size": "1", "min_insert_block_size_rows": "1"}
    rows = [{"n": 1}, {"n": 2}]
    with pytest.raises(QuorumNotReached):
        two.table("r1").insert(rows, settings=blocks)
    two.stop("r1")
    pull_log(two["r2"])
    assert quorum.has_failed(two["r2"], ONE)
    two.come_back("r1")
    two.step("r2", "fetch")
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    result = two.table("r1").insert(rows, settings=blocks)
    assert (result.rows, result.rows_duplicate) == (1, 1)
    assert has_rows(two, "r1") == has_rows(two, "r2") == [1, 2]


def test_what_was_inserted_again_has_not_failed(two: Replicas) -> None:
    """1. Of three blocks the one in the middle fails. 2. It is inserted again. 3. The insert is
    said once more: the failed part is between its blocks, and none of it is missing.
    """
    blocks = {**BRIEFLY, "max_insert_block_size": "1", "min_insert_block_size_rows": "1"}
    rows = [{"n": 1}, {"n": 2}, {"n": 3}]
    with pytest.raises(QuorumNotReached):
        two.table("r1").insert(rows, settings=blocks)
    two.stop("r1")
    pull_log(two["r2"])
    assert quorum.has_failed(two["r2"], PartName("all", 1, 1, 0))
    two.come_back("r1")
    two.step("r2", "fetch")
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    assert two.table("r1").insert(rows, settings=blocks).rows == 1
    assert two.table("r1").insert(rows, settings=blocks).outcome is Outcome.DUPLICATE
    assert two.table("r2").insert(rows, settings=blocks).outcome is Outcome.DUPLICATE
    assert has_rows(two, "r1") == has_rows(two, "r2") == [1, 2, 3]


def test_a_duplicate_that_waits_is_told_that_it_failed(three: Replicas) -> None:
    """The first one is said again at another replica, and fails while that one waits."""
    with pytest.raises(QuorumNotReached):
        insert(three)

    def away() -> None:
        three.stop("r1")
        three.step("r3", "fetch")

    three.meanwhile.append(away)
    with pytest.raises(QuorumFailed, match="all_0_0_0 failed"):
        insert(three, at="r2")


def test_who_waits_is_told_that_it_failed(two: Replicas) -> None:
    """The server is away, and the process that inserts is not: it has a session of its own."""
    server = two["r1"]
    table = two.table("r1")
    two._replicas["r1"] = two._connected("r1")

    def away() -> None:
        two.zookeeper.expire(server.keeper.session_id)
        two.step("r2", "fetch")

    two.meanwhile.append(away)
    with pytest.raises(QuorumFailed, match="all_0_0_0 failed") as told:
        table.insert([{"n": 1}], settings=BRIEFLY)
    assert told.value.code == "UNKNOWN_STATUS_OF_INSERT"


def trimmed(replicas: Replicas) -> None:
    """Nothing is left in the log of what was there before."""
    replicas.set(min_replicated_logs_to_keep=1, max_replicated_logs_to_keep=2)
    for value in range(2, 9):
        replicas.clock.sleep_s(1.0)
        replicas.insert("r1", value)
        replicas.step("r2", "fetch")
        replicas.step("r1", "fetch")
    clean(replicas)


def clean(replicas: Replicas) -> None:
    carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))


def test_a_failed_part_is_forgotten_when_nobody_can_come_across_it(two: Replicas) -> None:
    failed(two)
    two.come_back("r1")
    two.step("r1", "fetch")
    trimmed(two)
    assert children(two, "failed_parts") == {str(ONE)}, "who waited may not know yet"
    two.clock.sleep_s(200_000.0)
    clean(two)
    assert children(two, "failed_parts") == set()


def test_a_failed_part_is_known_while_its_entry_is_in_the_log(two: Replicas) -> None:
    failed(two)
    two.come_back("r1")
    two.step("r1", "fetch")
    two.clock.sleep_s(200_000.0)
    clean(two)
    assert children(two, "failed_parts") == {str(ONE)}


def test_a_failed_part_is_known_until_who_had_it_has_come_back(two: Replicas) -> None:
    failed(two)
    for value in range(2, 9):
        two.clock.sleep_s(1.0)
        two.insert("r2", value)
    two["r2"].settings = TableSettings.of(
        {"min_replicated_logs_to_keep": 1, "max_replicated_logs_to_keep": 2}
    )
    two.clock.sleep_s(200_000.0)
    two.step("r2", "fetch")
    carry_out(two["r2"], plan_clean_up(two["r2"]))
    carry_out(two["r2"], plan_clean_up(two["r2"]))
    assert f"{ROOT}/log/log-0000000000" not in two.zookeeper.nodes
    assert children(two, "failed_parts") == {str(ONE)}, "r1 has it still"


def test_a_failed_part_is_known_while_somebody_is_still_to_look_for_it(three: Replicas) -> None:
    """To whom it would be a part whose rows all are waiting for, and nobody has."""
    failed(three)
    pull_log(three["r3"])
    three.come_back("r1")
    trimmed(three)
    three.clock.sleep_s(200_000.0)
    clean(three)
    assert f"{ROOT}/log/log-0000000000" not in three.zookeeper.nodes
    assert children(three, "failed_parts") == {str(ONE)}
    three.step("r3", "fetch")
    clean(three)
    assert children(three, "failed_parts") == set()


# --- one at a time ----------------------------------------------------------------------------


def test_one_insert_waits_alone(two: Replicas) -> None:
    def look_and_fetch() -> None:
        status = two.zookeeper.nodes[f"{QUORUM}/status"].data
        assert QuorumStatus.decode(status).entries == (QuorumEntry(ONE, 2, ("r1",)),)
        assert status == QuorumEntry(ONE, 2, ("r1",)).encode(), "the original's text"
        with pytest.raises(UnsatisfiedQuorum, match="all_0_0_0"):
            insert(two, 2, **ALONE)
        two.step("r2", "fetch")

    two.meanwhile.append(look_and_fetch)
    assert insert(two, **ALONE).rows == 1
    assert f"{QUORUM}/status" not in two.zookeeper.nodes
    last = two.zookeeper.nodes[f"{QUORUM}/last_part"].data
    assert AddedParts.decode(last) == AddedParts((ONE,))


def test_an_insert_of_several_parts_waits_for_all_of_them(two: Replicas) -> None:
    """The original commits them one by one; here the insert is in as a whole."""
    blocks = {**ALONE, "max_insert_block_size": "1", "min_insert_block_size_rows": "1"}
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    result = two.table("r1").insert([{"n": 1}, {"n": 2}], settings=blocks)
    assert len(result.parts) == 2
    assert f"{QUORUM}/status" not in two.zookeeper.nodes
    last = AddedParts.decode(two.zookeeper.nodes[f"{QUORUM}/last_part"].data)
    assert last == AddedParts((PartName("all", 1, 1, 0),))


def test_an_insert_that_waits_alone_counts_one_after_the_other(three: Replicas) -> None:
    three.meanwhile += [lambda: three.step("r2", "fetch"), lambda: three.step("r3", "fetch")]
    assert insert(three, **{**ALONE, "insert_quorum": "3"}).rows == 1
    assert has_rows(three, "r2") == has_rows(three, "r3") == [1]


def test_who_has_one_of_its_parts_is_not_counted_for_the_others(
    two: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends_one(monkeypatch, ONE)
    blocks = {**ALONE, "max_insert_block_size": "1", "min_insert_block_size_rows": "1"}
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    with pytest.raises(QuorumNotReached):
        two.table("r1").insert([{"n": 1}, {"n": 2}], settings=blocks)
    assert two.parts("r2") == [str(ONE)]
    assert quorum.read_quorums(two["r1"]).parts() == {ONE, PartName("all", 1, 1, 0)}


def test_the_same_insert_again_is_no_previous_one(two: Replicas) -> None:
    with pytest.raises(QuorumNotReached):
        insert(two, **ALONE)
    with pytest.raises(QuorumNotReached):
        insert(two, **ALONE)
    two.meanwhile.append(lambda: two.step("r2", "fetch"))
    assert insert(two, **ALONE).outcome is Outcome.DUPLICATE


def test_a_failed_one_holds_nobody_up(two: Replicas) -> None:
    with pytest.raises(QuorumNotReached):
        insert(two, **ALONE)
    two.stop("r1")
    two.step("r2", "fetch")
    assert f"{QUORUM}/status" not in two.zookeeper.nodes
    assert children(two, "failed_parts") == {str(ONE)}
    two.come_back("r1")
    two.meanwhile.append(lambda: two.step("r1", "fetch"))
    assert insert(two, 2, "r2", **ALONE).rows == 1


def test_a_drop_ends_the_waiting(two: Replicas) -> None:
    """The insert was in before the drop."""

    def drop() -> None:
        two.table("r1").truncate(settings={"alter_sync": "0"})
        two.step("r1", "fetch")

    two.meanwhile.append(drop)
    assert insert(two, **ALONE).rows == 1
    assert f"{QUORUM}/status" not in two.zookeeper.nodes
    assert has_rows(two, "r1") == []


@pytest.mark.parametrize("settings", [BRIEFLY, ALONE])
def test_a_drop_of_other_rows_ends_no_waiting(tmp_path: Path, settings: dict[str, str]) -> None:
    with Replicas(tmp_path, define=by_tens) as two:
        two.insert("r1", 51)

        def drop() -> None:
            two.table("r1").drop_partitions(["5"], settings={"alter_sync": "0"})
            two.step("r1", "fetch")

        two.meanwhile.append(drop)
        with pytest.raises(QuorumNotReached):
            insert(two, **settings)
        assert has_rows(two, "r1") == [1]
        assert quorum.read_quorums(two["r1"]).parts() == {PartName("0", 0, 0, 0)}


def test_a_replica_that_was_dropped_is_not_waited_for_for_ever(three: Replicas) -> None:
    """Others may insert again, and nobody is told that the rows are on two."""
    with pytest.raises(QuorumNotReached):
        insert(three, **ALONE)
    for name in ("r2", "r3"):
        three.stop(name)
        drop_replica(three["r1"].keeper, three["r1"].table, name)
    assert quorum.clean_quorums(three["r1"]) == 1
    assert f"{QUORUM}/status" not in three.zookeeper.nodes
    assert quorum.clean_quorums(three["r1"]) == 0
    assert has_rows(three, "r1") == [1]


@pytest.mark.parametrize("settings", [BRIEFLY, ALONE])
def test_one_that_was_dropped_and_had_the_rows_makes_nobody_wait_longer(
    three: Replicas, settings: dict[str, str]
) -> None:
    """A clean-up counts who is there only to end a waiting: two of two are not three."""
    with pytest.raises(QuorumNotReached):
        insert(three, **{**settings, "insert_quorum": "3"})
    three.step("r3", "fetch")
    three.stop("r3")
    drop_replica(three["r1"].keeper, three["r1"].table, "r3")
    assert quorum.clean_quorums(three["r1"]) == 0
    three.step("r2", "fetch")
    assert quorum.read_quorums(three["r1"]).parts() == frozenset()
