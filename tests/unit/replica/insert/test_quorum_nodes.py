"""What becomes of the nodes of parts that wait for a quorum when their entries change."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.nodes.formats import AddedParts, QuorumEntry, QuorumStatus
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.result import QuorumNotReached
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.quorum import Quorums, has_failed
from rmt_pipeline.zookeeper.keeper import Check, Create, Delete, Op, SetData
from rmt_pipeline.zookeeper.paths import TablePaths
from rmt_pipeline.zookeeper.snapshot import awaiting_quorum
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import Replicas
from tests.support.quorums import children, insert

T = TablePaths("/t")
ONE, TWO, BEFORE = (PartName("all", n, n, 0) for n in (5, 6, 4))
ABOVE, STATUS, LAST = 2, 3, 7
"""The versions of their nodes."""


def waits(part: PartName, *replicas: str, required: int = 2) -> QuorumEntry:
    return QuorumEntry(part, required, replicas)


def quorums(*alone: QuorumEntry, beside: tuple[QuorumEntry, ...] = ()) -> Quorums:
    return Quorums(
        T,
        ABOVE,
        (QuorumStatus(alone), STATUS) if alone else None,
        (AddedParts((BEFORE,)), LAST),
        {entry.part: (entry, number) for number, entry in enumerate(beside, start=11)},
    )


def last_is(*parts: PartName) -> SetData:
    return SetData(T.quorum_last_part, AddedParts.of(parts).encode(), LAST)


def with_r2(*parts: PartName):
    return lambda entry: entry.with_replica("r2") if entry.part in parts else entry


def without(*parts: PartName):
    return lambda entry: None if entry.part in parts else entry


BOTH = (waits(ONE, "r1"), waits(TWO, "r1"))
SAME = Check(T.quorum, ABOVE)
GONE = Delete(T.quorum_status, STATUS)


@pytest.mark.parametrize(
    ("found", "change", "ops"),
    [
        (quorums(), with_r2(ONE), []),
        (quorums(*BOTH), with_r2(), []),
        (quorums(waits(ONE, "r1")), with_r2(ONE), [SAME, GONE, last_is(ONE)]),
        (
            quorums(*BOTH),
            with_r2(ONE),
            [
                SAME,
                SetData(
                    T.quorum_status,
                    QuorumStatus((waits(ONE, "r1", "r2"), waits(TWO, "r1"))).encode(),
                    STATUS,
                ),
            ],
        ),
        (quorums(*BOTH), with_r2(ONE, TWO), [SAME, GONE, last_is(ONE, TWO)]),
        (quorums(*BOTH), without(ONE, TWO), [SAME, GONE]),
        (
            quorums(*BOTH),
            without(ONE),
            [
                SAME,
                SetData(T.quorum_status, QuorumStatus((waits(TWO, "r1"),)).encode(), STATUS),
            ],
        ),
        (
            quorums(waits(ONE, "r1", "r2"), waits(TWO, "r1")),
            without(TWO),
            [SAME, GONE, last_is(ONE)],
        ),
    ],
    ids=[
        "nobody waits",
        "nothing changes",
        "the last one is counted",
        "one of two parts is counted",
        "both parts are counted",
        "both fail",
        "one of two parts fails",
        "what is left was reached",
    ],
)
def test_an_insert_that_waits_alone(found: Quorums, change, ops: list[Op]) -> None:
    assert found.changed(change) == ops


def test_who_waits_alone_and_who_waits_beside_others_wait() -> None:
    both = quorums(BOTH[0], beside=(BOTH[1],))
    assert (both.entries(), both.parts()) == (BOTH, {ONE, TWO})
    assert quorums(BOTH[0]).entries() == BOTH[:1]
    assert quorums().entries() == ()


def test_those_that_wait_beside_each_other() -> None:
    third = PartName("all", 7, 7, 0)
    found = quorums(beside=(*BOTH, waits(third, "r1", required=3)))
    assert found.changed(with_r2(ONE, third)) == [
        Delete(T.quorum_of(ONE), 11),
        SetData(T.quorum_of(third), waits(third, "r1", "r2", required=3).encode(), 13),
    ]
    assert found.changed(without(TWO)) == [Delete(T.quorum_of(TWO), 12)]


@pytest.mark.parametrize(("enough", "goes"), [(1, True), (2, False), (9, False)])
def test_so_many_are_enough_whatever_was_asked_for(enough: int, goes: bool) -> None:
    same = lambda entry: entry  # noqa: E731
    alone, beside = quorums(waits(ONE, "r1")), quorums(beside=(waits(ONE, "r1"),))
    assert alone.changed(same, enough=enough) == [SAME, GONE, last_is(ONE)] * goes
    assert beside.changed(same, enough=enough) == [Delete(T.quorum_of(ONE), 11)] * goes


def test_without_a_last_part_none_is_noted() -> None:
    """A table of before there was one."""
    found = replace(quorums(waits(ONE, "r1")), last=None)
    assert found.changed(with_r2(ONE)) == [SAME, GONE]


@pytest.mark.parametrize(
    ("alone", "dropped", "ops"),
    [
        ((), BEFORE, [SetData(T.quorum_last_part, AddedParts(()).encode(), LAST)]),
        ((), ONE, []),
        (BOTH[:1], ONE, [SAME, GONE]),
        (BOTH[:1], TWO, []),
        (
            (waits(ONE, "r1", "r2"), waits(TWO, "r1")),
            PartName("all", 6, 6, 0),
            [SAME, GONE, last_is(ONE)],
        ),
        (
            BOTH,
            BEFORE,
            [SetData(T.quorum_last_part, AddedParts(()).encode(), LAST)],
        ),
    ],
)
def test_what_is_dropped_waits_no_more(alone, dropped: PartName, ops: list[Op]) -> None:
    assert quorums(*alone).without(dropped) == ops


@pytest.mark.parametrize("name", ["all_0_0_0", "all_0_1_1"])
def test_what_somebody_has_in_a_part_that_contains_it_has_not_failed(
    two: Replicas, name: str
) -> None:
    """Nor are the ids of its insert forgotten: repeated, the rows would be there twice."""
    with pytest.raises(QuorumNotReached):
        insert(two)
    pull_log(two["r2"])
    two.stop("r1")
    two["r2"].session.multi([Create(two["r2"].paths.part(PartName.parse(name)), b"")])
    assert not has_failed(two["r2"], PartName("all", 0, 0, 0))
    assert children(two, "failed_parts") == set()
    assert two["r2"].keeper.children(two["r2"].table.inserts)


@pytest.mark.parametrize("request_number", range(2))
def test_a_part_whose_quorum_fails_between_two_reads_is_told(two, request_number):
    """It goes from the waiting ones to those that failed, and is never in neither."""
    keeper, table = two.zookeeper.connect(), two["r1"].table
    keeper.multi([Create(table.quorum_status, QuorumStatus((waits(ONE, "r1"),)).encode())])

    def fails():
        keeper.multi([Delete(table.quorum_status), Create(table.quorum_failed(ONE))])

    session = BeforeRequest(two.zookeeper.connect(), request_number, fails)
    assert awaiting_quorum(session, table) == {ONE}
