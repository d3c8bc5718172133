"""Many tables at rest: between two nets they cost nothing, and a net costs one request for 20."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.compute.jobs.merge import LocalMerger
from rmt_pipeline.compute.jobs.mutate import LocalMutator
from rmt_pipeline.protocol.errors import AccessDenied
from rmt_pipeline.protocol.table import TableDefinition
from rmt_pipeline.replica.work.carry import Tools
from rmt_pipeline.replica.work.net import FORGET_S, VALID_S, SafetyNet
from rmt_pipeline.replica.work.pools import POOLS, Pool
from rmt_pipeline.replica.work.worker import SAFETY_NET_S, Worker
from rmt_pipeline.system import EventWaker
from tests.support.counting import Counting
from tests.support.denied import Denied
from tests.support.local_replicas import DirectPeers, Replicas, definition_of

TABLES = 40
NODES = 6
STEP_S = 10
AN_HOUR_S = 3600


class Server:
    """Tables of one session, and the loops of both pools of each, with one net."""

    def __init__(self, tables: list[Replicas]) -> None:
        self.clock = tables[0].clock
        self.asked: Counter[str] = Counter()
        net = SafetyNet(self.clock)
        self.workers: list[Worker] = []
        for one in tables:
            replica: Any = one["r1"]
            tools = Tools(
                DirectPeers(one.stores),
                LocalMerger(one.clock),
                LocalMutator(one.clock),
                spawn=lambda run: run(),
            )
            replica.keeper.session = Counting(replica.keeper.session, self.asked)
            for pool in POOLS:
                self.workers.append(self._worker(replica, tools, pool, net))

    @staticmethod
    def _worker(replica: Any, tools: Tools, pool: Pool, net: SafetyNet) -> Worker:
        is_merge = pool == "merge"
        return Worker(
            replica, tools, pool, EventWaker(), select=is_merge, is_endless=True, net=net
        )

    def for_s(self, seconds: int, each: Callable[[], None] = lambda: None) -> None:
        """Every loop whose time has come, or that was woken, every ten seconds."""
        for _ in range(seconds // STEP_S):
            for worker in self.workers:
                with suppress(AccessDenied):
                    look, _ = worker.turn()
                    for batch in look.batches:
                        list(worker.executor.carry_out(batch))
            each()
            self.clock.passed_s += STEP_S


def another(number: int, replica: str) -> TableDefinition:
    one = definition_of(replica)
    engine = replace(one.engine, zookeeper_path=f"{one.engine.zookeeper_path}{number}")
    return replace(one, name=f"t{number}", engine=engine, uuid=f"{one.uuid}-{number}")


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[list[Replicas]]:
    with ExitStack() as opened:
        found: list[Replicas] = []
        for number in range(TABLES):
            define, beside = partial(another, number), found[0] if found else None
            one = Replicas(tmp_path / str(number), define=define, beside=beside)
            found.append(opened.enter_context(one))
            one.insert("r1", 1)
        yield found


def test_tables_at_rest_cost_one_request_for_twenty_of_them_at_each_net(
    tables: list[Replicas],
) -> None:
    server = Server(tables)
    server.for_s(600)
    server.asked.clear()
    asked_at: list[int] = []
    server.for_s(AN_HOUR_S, lambda: asked_at.append(server.asked.total()))
    a_net = -(-TABLES * NODES // 128)
    nets = AN_HOUR_S / VALID_S
    assert asked_at[-1] <= nets * a_net, server.asked
    assert set(server.asked) == {"get_many r1/mutation_pointer"}
    quiet = sum(one == other for one, other in pairwise(asked_at))
    assert quiet >= len(asked_at) - 1 - nets


def test_no_two_loops_look_at_everything_at_the_same_time(tables: list[Replicas]) -> None:
    server = Server(tables[:3])
    server.for_s(STEP_S)
    times_s = [worker._all_next_s for worker in server.workers]
    assert len(set(times_s)) == len(times_s) == 6
    assert max(times_s) <= SAFETY_NET_S


def test_what_no_watch_has_told_of_is_found_by_the_net(tables: list[Replicas]) -> None:
    server = Server(tables)
    server.for_s(600)
    tables[0].zookeeper.forget_watches()
    for one in tables[:2]:
        one.insert("r2", 2)
    server.for_s(STEP_S)
    assert [len(one.parts("r1")) for one in tables[:3]] != [2, 2, 1]
    server.for_s(int(SAFETY_NET_S))
    assert [len(one.parts("r1")) for one in tables[:3]] == [2, 2, 1]


def test_whenever_a_watch_is_missed_it_costs_no_more_than_the_net_says(
    tables: list[Replicas],
) -> None:
    """Other tables have it read at other times, and what was read is believed for a while."""
    server, inserted = Server(tables[:8]), 1
    server.for_s(600)
    for number in range(8):
        server.for_s(STEP_S * number)
        tables[0].zookeeper.forget_watches()
        for one in tables[:8]:
            one.insert("r2", 100 + number)
        inserted += 1
        server.for_s(int(SAFETY_NET_S))
        counts = {one.table("r1").dataset().count_rows() for one in tables[:8]}
        assert counts == {inserted}


def test_a_merge_that_no_watch_has_told_of_is_found_by_the_net(
    tables: list[Replicas],
) -> None:
    """Nothing of an insert here comes into the queue, and nothing changes after it."""
    server = Server(tables[:1])
    server.for_s(600)
    tables[0].zookeeper.forget_watches()
    for value in range(100, 110):
        tables[0].insert("r1", value)
    server.for_s(int(3 * SAFETY_NET_S))
    assert any(part.startswith("all_0_10_") for part in tables[0].parts("r1"))


def test_a_table_that_may_not_be_read_keeps_no_other_one_from_the_net(
    tables: list[Replicas],
) -> None:
    server = Server(tables[:2])
    server.for_s(600)
    for one in tables[:2]:
        replica: Any = one["r1"]
        replica.keeper.session = Denied(replica.keeper.session, tables[1]["r1"].table.log)
    tables[0].zookeeper.forget_watches()
    tables[0].insert("r2", 2)
    server.for_s(int(SAFETY_NET_S))
    assert len(tables[0].parts("r1")) == 2


def test_a_table_that_nobody_asks_about_any_more_is_not_read(tables: list[Replicas]) -> None:
    """The others are, beside the one whose time has come."""
    one, other = tables[0]["r1"], tables[1]["r1"]
    net, clock, asked = SafetyNet(tables[0].clock), tables[0].clock, list[str]()
    net.look(one)
    net.look(other)
    session = one.keeper.session
    get_many = session.get_many

    def listening(paths):  # type: ignore[no-untyped-def]
        asked.extend(paths)
        return get_many(paths)

    session.get_many = listening  # type: ignore[method-assign]
    for _ in range(int(FORGET_S / VALID_S) - 1):
        clock.passed_s += VALID_S
        asked.clear()
        net.look(one)
        assert {one.paths.queue, other.paths.queue} <= set(asked)
    clock.passed_s += VALID_S
    asked.clear()
    net.look(one)
    assert one.paths.queue in asked
    assert other.paths.queue not in asked
