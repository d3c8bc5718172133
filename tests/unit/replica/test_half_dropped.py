"""What is left of a replica that somebody died dropping holds nobody up."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.protocol.nodes.formats import PartHeader
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.mutations import assign_mutations
from rmt_pipeline.replica.insert.quorum import TooFewLiveReplicas
from rmt_pipeline.replica.insert.result import InsertResult, Outcome, QuorumNotReached
from rmt_pipeline.replica.missing import why_missing
from rmt_pipeline.replica.mutations.mutations import (
    clean_mutations,
    finalize_mutations,
    load_mutations,
)
from rmt_pipeline.replica.mutations.request import wait_as_asked
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.quorum import FAILED_KEPT_S, clean_quorums, read_quorums
from rmt_pipeline.replica.upkeep.check import check_part, refetch
from rmt_pipeline.replica.upkeep.clean_up import carry_out, plan_clean_up
from rmt_pipeline.replica.upkeep.compare import compare_replicas
from rmt_pipeline.replica.upkeep.lost import replace_lost_parts
from rmt_pipeline.replica.wait import wait_as_asked_for
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from rmt_pipeline.zookeeper.snapshot import claims_and_parts
from tests.support.local_replicas import ROOT, Meanwhile, Replicas
from tests.support.lost_answers import before

HALF = f"{ROOT}/replicas/r2"
ALONE = {"insert_quorum_parallel": "0"}


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """DROP of r2 ended after its `host` was gone."""
    with Replicas(tmp_path) as opened:
        opened.stop("r2")
        keeper = opened["r1"].keeper
        keeper.multi([SetData(f"{HALF}/is_lost", b"1"), Delete(f"{HALF}/host")])
        opened.set(
            min_replicated_logs_to_keep=1,
            max_replicated_logs_to_keep=2,
            finished_mutations_to_keep=1,
        )
        yield opened


@pytest.mark.parametrize("also", [(), ("is_lost",), ("is_lost", "mutation_pointer")])
def test_the_log_is_trimmed(replicas: Replicas, also: tuple[str, ...]) -> None:
    for name in also:
        replicas["r1"].keeper.multi([Delete(f"{HALF}/{name}")])
    for value in range(9):
        replicas.insert("r1", value)
    replicas.step("r1", "fetch")
    cleaned = carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
    assert cleaned.stopped_because == ""
    assert cleaned.log_entries > 0


def test_mutations_are_forgotten(replicas: Replicas) -> None:
    replicas["r1"].keeper.multi([Delete(f"{HALF}/mutation_pointer")])
    replicas.insert("r1", 1)
    replicas.step("r1", "fetch")
    table = replicas.table("r1")
    for value in (2, 3, 4):
        table.mutate(f"DELETE WHERE n = {value}")
    while not all(report.status.is_done for report in table.mutations()):
        carry_out(replicas["r1"], plan_clean_up(replicas["r1"]))
        assign_mutations(replicas["r1"])
        replicas.step("r1", "merge")
    finalize_mutations(replicas["r1"], load_mutations(replicas["r1"]))
    clean_mutations(replicas["r1"])
    assert len(replicas.zookeeper.nodes[f"{ROOT}/mutations"].children) == 1


def half_drop(replicas: Replicas, name: str) -> None:
    """The process that drops the replica dies when `host` and `is_lost` are gone, and `parts` is
    not.
    """
    replicas.stop(name)
    paths = replicas["r1"].table.replica(name)
    replicas["r1"].keeper.multi([Delete(paths.host), Delete(paths.is_lost)])


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path, ["r1", "r2", "r3"]) as opened:
        yield opened


def quorum_insert(
    replicas: Replicas, value: int = 1, at: str = "r1", **settings: str
) -> InsertResult:
    asked = {"insert_quorum": "2", "insert_quorum_timeout": "1000", **settings}
    return replicas.table(at).insert([{"n": value}], settings=asked)


def test_a_replica_whose_drop_was_cut_off_holds_nothing_for_a_duplicate(
    three: Replicas,
) -> None:
    """The rows reached their quorum on r1 and r3. Of these only r1 is still a replica when the
    insert is sent again to r2, which has yet to fetch them.
    """
    three.meanwhile.append(lambda: three.step("r3", "fetch"))
    assert quorum_insert(three).rows == 1
    half_drop(three, "r3")
    with pytest.raises(QuorumNotReached):
        quorum_insert(three, at="r2")
    three.meanwhile.append(lambda: three.step("r2", "fetch"))
    assert quorum_insert(three, at="r2").outcome is Outcome.DUPLICATE


def test_a_replica_whose_drop_was_cut_off_holds_nothing_for_the_insert_itself(
    three: Replicas,
) -> None:
    def fetch_and_go() -> None:
        three.step("r3", "fetch")
        half_drop(three, "r3")

    three.meanwhile += [fetch_and_go, lambda: three.step("r2", "fetch")]
    assert quorum_insert(three).outcome is Outcome.INSERTED
    assert three.meanwhile == [], "it did not wait for r2"


def test_rows_that_only_a_half_dropped_replica_has_are_on_too_few(three: Replicas) -> None:
    """They are not gone before its nodes are: until then they do not count as dropped."""
    assert quorum_insert(three, at="r3", insert_quorum="0").rows == 1
    half_drop(three, "r3")
    with pytest.raises(QuorumNotReached):
        quorum_insert(three)


def test_a_replica_whose_drop_was_cut_off_is_not_waited_for(three: Replicas) -> None:
    """Else no other insert that waits alone could begin until somebody finishes the drop."""
    with pytest.raises(QuorumNotReached):
        quorum_insert(three, **ALONE, insert_quorum="3")
    half_drop(three, "r3")
    assert clean_quorums(three["r1"]) == 0, "r2 has yet to fetch the rows"
    three.step("r2", "fetch")
    assert clean_quorums(three["r1"]) == 1
    three.meanwhile.append(lambda: three.step("r2", "fetch"))
    assert quorum_insert(three, 2, **ALONE).rows == 1


def test_it_counts_for_no_majority(three: Replicas) -> None:
    """Else nobody could insert with a quorum until somebody finishes the drop."""
    for name in ("r2", "r3"):
        half_drop(three, name)
    assert quorum_insert(three, insert_quorum="auto").outcome is Outcome.INSERTED


def test_an_insert_does_not_begin_to_wait_for_one_whose_server_still_runs(
    three: Replicas,
) -> None:
    """It is active as long as that server's session lives, and never fetches the rows."""
    three["r1"].keeper.multi([Delete(three["r1"].table.replica("r3").host)])
    with pytest.raises(TooFewLiveReplicas, match="wants 3 replicas, and 2 of 2 are active"):
        quorum_insert(three, insert_quorum="3")
    assert three.parts("r1") == [], "nothing was inserted"


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("many", [1, 2], ids=["one part", "two parts"])
def test_it_does_not_count_itself_for_a_quorum(three: Replicas, when: str, many: int) -> None:
    """Its server has not heard of the drop yet, and fetches."""
    for value in range(many):
        with pytest.raises(QuorumNotReached):
            quorum_insert(three, value, insert_quorum_timeout="0")
    host = three["r1"].table.replica("r2").host
    late = three["r2"]
    drop = partial(three["r1"].keeper.multi, [Delete(host)])
    if when == "before":
        drop()
        three.step("r2", "fetch")
    else:
        with before(late.keeper, lambda op: op.path == late.paths.part("all_0_0_0"), drop):
            three.step("r2", "fetch")
    waiting = read_quorums(three["r1"]).entries()
    assert [entry.replicas for entry in waiting] == many * [("r1",)]
    three.step("r3", "fetch")
    assert read_quorums(three["r1"]).entries() == ()


def begin_drop(replicas: Replicas, name: str) -> None:
    """The process that drops the replica dies right behind the removal of `host`."""
    replicas.stop(name)
    paths = replicas["r1"].table.replica(name)
    replicas["r1"].keeper.multi([SetData(paths.is_lost, b"1"), Delete(paths.host)])


def lasting(**settings: int) -> QuerySettings:
    """Whoever is waited for is waited for long, also when away."""
    long = {"receive_timeout": 1000, "replication_wait_for_inactive_replica_timeout": 1000}
    return QuerySettings(**{**long, **settings})


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_drop_of_all_rows_does_not_wait_for_it(three: Replicas, when: str) -> None:
    three.insert("r1", 1)
    three.work_off()
    steps: list[Callable[[], object]] = [lambda: three.work_off("r1", "r2")]
    if when == "before":
        begin_drop(three, "r3")
    else:
        steps.append(lambda: begin_drop(three, "r3"))
    three.table("r1").truncate(settings={"alter_sync": 0})
    r1 = three["r1"]
    path = r1.table.log_entry(r1.keeper.children(r1.table.log)[-1])
    entries = [(path, r1.keeper.get(path)[0])]
    wait_as_asked_for(lambda: r1, entries, lasting(alter_sync=2), Meanwhile(three.clock, steps))
    assert three.clock.passed_s < 10


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_mutation_does_not_wait_for_it(three: Replicas, when: str) -> None:
    three.insert("r1", 1)
    three.work_off()

    def mutate() -> None:
        for name in ("r1", "r2"):
            pull_log(three[name])
            assign_mutations(three[name])
            three.work_off(name)
        for name in ("r1", "r2"):
            three.work_off(name)
            finalize_mutations(three[name], load_mutations(three[name]))

    steps: list[Callable[[], object]] = [mutate]
    if when == "before":
        begin_drop(three, "r3")
    else:
        steps.append(lambda: begin_drop(three, "r3"))
    mutation = three.table("r1").mutate("DELETE WHERE n = 1")
    waker = Meanwhile(three.clock, steps)
    wait_as_asked(lambda: three["r1"], mutation, lasting(), 2, waker)
    assert three.clock.passed_s < 10


def test_a_failed_quorum_is_forgotten_although_its_nodes_know_the_part(three: Replicas) -> None:
    with pytest.raises(QuorumNotReached):
        quorum_insert(three, insert_quorum="3", insert_quorum_parallel="0")
    [part] = three.stores["r1"].parts()
    three.step("r3")
    table = three["r1"].table
    keeper = three["r1"].keeper
    keeper.multi([Create(table.quorum_failed(part))])
    keeper.multi([Delete(three["r1"].paths.part(part))])
    for name in ("r2", "r3"):
        peer = table.replica(name)
        for node in keeper.children(peer.queue):
            if name == "r2":
                keeper.multi([Delete(peer.queue_entry(node))])
    for name in keeper.children(table.log):
        keeper.multi([Delete(table.log_entry(name))])
    three.clock.passed_s += 2 * FAILED_KEPT_S
    clean_quorums(three["r1"])
    assert keeper.exists(table.quorum_failed(part)) is not None, "r3 is to fetch it"
    half_drop(three, "r3")
    clean_quorums(three["r1"])
    assert keeper.exists(table.quorum_failed(part)) is None


@pytest.mark.parametrize("drop", [half_drop, begin_drop])
def test_a_part_that_only_it_promises_is_lost(
    three: Replicas, drop: Callable[[Replicas, str], None]
) -> None:
    """It will never serve it. Else reads and merges on the others would wait for it for ever."""
    part = three.insert("r1", 1)
    three.insert("r1", 2)
    three.work_off()
    drop(three, "r3")
    for name in ("r1", "r2"):
        shutil.rmtree(three.stores[name].directory(part))
        check_part(three[name], part)
    for name in ("r1", "r2"):
        three.step(name, "fetch")
    assert "is lost: no replica (r1, r2) has it" in str(why_missing(three["r1"], [part]))
    assert replace_lost_parts(three["r1"]) == (part,)
    three.clock.sleep_s(100.0)
    three.work_off("r1", "r2")
    for name in ("r1", "r2"):
        assert three.table(name).dataset().to_table().to_pylist() == [{"n": 2}]


def test_other_bytes_that_it_promises_are_not_waited_for(three: Replicas) -> None:
    """It made a merge otherwise than the rest. Nobody can fetch its bytes any more."""
    for value in (1, 2):
        three.insert("r1", value)
    three.work_off()
    three.table("r1").optimize(final=True, settings=QuerySettings(alter_sync=0))
    three.work_off("r3")
    keeper, paths = three["r1"].keeper, three["r1"].table.replica("r3")
    merged = PartName("all", 0, 1, 1)
    header = PartHeader.decode(keeper.get(paths.part(merged))[0])
    other = replace(header, hash_of_uncompressed_files=bytes(16))
    keeper.multi([SetData(paths.part(merged), other.encode())])
    begin_drop(three, "r3")
    three.work_off("r1", "r2")
    for name in ("r1", "r2"):
        assert str(merged) in three.parts(name)


def test_its_rows_are_not_compared(three: Replicas) -> None:
    three.insert("r1", 1)
    three.work_off("r1", "r2")
    begin_drop(three, "r3")
    compared = compare_replicas(three["r1"])
    assert (compared.different, compared.behind) == ((), ())


@pytest.mark.parametrize("gone", ["executing", "parts"])
def test_who_looks_at_what_is_left_is_told_that_it_was_dropped(
    replicas: Replicas, gone: str
) -> None:
    replica = replicas["r1"]
    half = replica.table.replica("r2")
    assert claims_and_parts(replica.keeper, half).names == frozenset()
    replica.keeper.multi([Delete(f"{HALF}/{gone}")])
    with pytest.raises(ReplicaDropped):
        claims_and_parts(replica.keeper, half)


def test_who_is_being_dropped_himself_gives_no_part_up(replicas: Replicas) -> None:
    """His parts go after his `is_lost`."""
    replica, part = replicas["r1"], replicas.insert("r1", 1)
    shutil.rmtree(replica.store.directory(part))
    replica.keeper.multi([Delete(replica.paths.is_lost)])
    assert refetch(replica, part) is None
