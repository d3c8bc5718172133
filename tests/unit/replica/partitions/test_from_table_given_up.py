"""ATTACH PARTITION FROM beside a part that is found broken between any two of its requests (P9,
§9.6): from one request to the next it goes from the parts to the queue.
"""

from dataclasses import replace
from functools import partial

import pytest

from rmt_pipeline.protocol.errors import Conflict, Unavailable
from rmt_pipeline.protocol.log.entry import virtual_parts
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.caught_up import caught_up
from rmt_pipeline.replica.replica import Memory
from rmt_pipeline.replica.upkeep.check import refetch
from tests.support.between_requests import BeforeRequest
from tests.support.local_replicas import Replicas, partitioned
from tests.support.partitioned import insert, rows, work
from tests.support.two_tables import Two, filled, source_of

ALL = [(1, 10), (1, 11), (1, 12)]


def gives_up_one(replicas, partition="1", process=None):
    """Of the replica r1, the first part of a partition."""
    promised = map(PartName.parse, replicas.parts("r1"))
    part = next(one for one in promised if one.partition == partition)
    replicas.stores["r1"].remove(part)
    assert refetch(process or replicas["r1"], part) is not None


def taken_beside(tmp_path, number, of, take, *, is_another=False):
    """Whether the request of this number came. `is_another` process gives up parts, before and
    then: what the one that takes remembers of the queue is old.
    """
    with Replicas(tmp_path / "s", define=source_of) as s:
        two = Two(s, Replicas(tmp_path / "t", define=partitioned, beside=s))
        filled(two, t=())
        two.attach()
        work(two.t)
        insert(two.s, (1, 12))
        if is_another:
            insert(two.s, (2, 2))
            insert(two.t, (2, 2))
            work(two.t)
        work(two.s)
        replicas = {"s": two.s, "t": two.t}[of]
        keeper = replicas["r1"].keeper
        right = keeper.session
        process = None
        if is_another:
            session = replicas.zookeeper.connect()
            process = replace(replicas["r1"], keeper=session, memory=Memory())
            gives_up_one(replicas, "2", process)
        keeper.session = between = BeforeRequest(
            right, number, partial(gives_up_one, replicas, "1", process)
        )
        try:
            take(two)
        except (Conflict, Unavailable):
            keeper.session = right
            assert between.has_come
            work(two.s)
            work(two.t)
            take(two)
        keeper.session = right
        work(two.s)
        work(two.t)
        found = rows(two.t, "r1"), rows(two.t, "r2")
        wanted = [*ALL, *[(2, 2)] * is_another]
        assert found == (wanted, wanted), f"before request {number} of {of}"
        return between.has_come


@pytest.mark.parametrize("take", [Two.attach, Two.replace])
@pytest.mark.parametrize("of", ["s", "t"])
def test_a_part_that_is_given_up_meanwhile_is_not_left_out_nor_doubled(tmp_path, of, take):
    number = 0
    while taken_beside(tmp_path / str(number), number, of, take):
        number += 1
    assert number


@pytest.mark.parametrize("take", [Two.attach, Two.replace])
@pytest.mark.parametrize("of", ["s", "t"])
def test_nor_is_one_that_another_process_gives_up(tmp_path, of, take):
    number = 0
    while taken_beside(tmp_path / str(number), number, of, take, is_another=True):
        number += 1
    assert number


def test_who_has_caught_up_sees_a_part_that_is_given_up_meanwhile(tmp_path):
    """The queue is as it was known, and the parts are listed anew."""
    part, number, has_come = PartName.parse("1_0_0_0"), 0, True
    while has_come:
        number += 1
        with Replicas(tmp_path / f"{number}", define=partitioned) as replicas:
            assert insert(replicas, (1, 10)).parts == (part,)
            work(replicas)
            replica = replicas["r1"]
            caught_up(replica)
            replica.memory.queue.parts.forget([replica.paths.parts])
            keeper, right = replica.keeper, replica.keeper.session
            process = replace(replica, keeper=replicas.zookeeper.connect(), memory=Memory())
            keeper.session = between = BeforeRequest(
                right, number, partial(gives_up_one, replicas, "1", process)
            )
            _, snapshot = caught_up(replica)
            keeper.session, has_come = right, between.has_come
            queued = [one for each in snapshot.entries.values() for one in virtual_parts(each)]
            assert part in snapshot.parts or part in queued, f"before request {number}"
    assert number > 3
