"""The small reads: what each finds of every state that its nodes can be in, and what goes between
two of its requests.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import Corruption, ReplicaDropped
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import DropRange
from rmt_pipeline.protocol.nodes.formats import QuorumEntry
from rmt_pipeline.protocol.nodes.records import Claim
from rmt_pipeline.protocol.parts.name import PartName, drop_range
from rmt_pipeline.zookeeper import snapshot
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from rmt_pipeline.zookeeper.known import KnownQueue
from rmt_pipeline.zookeeper.paths import TablePaths, ancestors, log_entry_name
from tests.support.asked import Asking
from tests.support.fake_keeper import FakeKeeper, FakeZooKeeper
from tests.support.local_replicas import StillClock

TABLE = TablePaths("/t")
REPLICA = TABLE.replica("r1")
ONE, TWO, THREE = (PartName("all", number, number, 0) for number in (1, 2, 3))


@pytest.fixture
def keeper() -> FakeKeeper:
    return FakeZooKeeper(StillClock()).connect()


def made(keeper: FakeKeeper, nodes: Mapping[str, bytes]) -> None:
    """These nodes, and those above them."""
    above = {one: b"" for path in nodes for one in ancestors(path)}
    missing = [path for path in {**above, **nodes} if keeper.exists(path) is None]
    for path in sorted(missing):
        keeper.multi([Create(path, nodes.get(path, b""))])


def before(keeper: FakeKeeper, name: str, path: str, happens: Callable[[], object]) -> None:
    """Something happens before this request, the next time that it asks for this path."""
    right = getattr(keeper, name)

    def request(asked: Any, *more: Any) -> Any:
        if path == asked or path in asked:
            setattr(keeper, name, right)
            happens()
        return right(asked, *more)

    setattr(keeper, name, request)


def replica_nodes(name: str, **nodes: bytes) -> dict[str, bytes]:
    root = TABLE.replica(name).root
    return {root: b"", **{f"{root}/{node}": data for node, data in nodes.items()}}


def test_the_state_of_a_replica_in_words(keeper: FakeKeeper) -> None:
    states: dict[str, dict[str, bytes]] = {
        "active": {"is_active": b"", "is_lost": b"1", "detached": b"detached"},
        "inactive": {"is_lost": b"0"},
        "detached": {"is_lost": b"0", "detached": b"detached"},
        "lost": {"is_lost": b"1"},
        "dropped, lost": {"is_lost": b"1", "detached": b"dropped"},
        "dropped": {"detached": b"dropped"},
    }
    for number, nodes in enumerate([*states.values(), {}]):
        made(keeper, replica_nodes(f"r{number}", **nodes))
    found = snapshot.replica_states(keeper, TABLE)
    assert found == dict(zip([f"r{n}" for n in range(7)], [*states, "inactive"], strict=True))


def test_who_lives_and_who_stays(keeper: FakeKeeper) -> None:
    """What is left of a replica that is being dropped has no host."""
    made(keeper, replica_nodes("r1", host=b"h", is_active=b""))
    made(keeper, replica_nodes("r2", host=b"h"))
    made(keeper, replica_nodes("r3", is_active=b""))
    assert snapshot.living_replicas(keeper, TABLE) == {"r1": True, "r2": False, "r3": True}
    assert snapshot.staying_replicas(keeper, TABLE) == {"r1": True, "r2": False}


def test_who_else_promises_a_part(keeper: FakeKeeper) -> None:
    made(keeper, replica_nodes("r1", host=b"h") | {TABLE.replica("r1").part(ONE): b"mine"})
    made(keeper, replica_nodes("r2", host=b"h") | {TABLE.replica("r2").part(ONE): b"header"})
    made(keeper, replica_nodes("r3", host=b"h") | {TABLE.replica("r3").part(TWO): b"header"})
    made(keeper, replica_nodes("r4") | {TABLE.replica("r4").part(ONE): b"nobody can fetch it"})
    version, found = snapshot.promised_elsewhere(keeper, TABLE, "r1", [ONE, TWO])
    assert version == 0
    assert found == {
        ONE: {"r2": b"header", "r3": None},
        TWO: {"r2": None, "r3": b"header"},
    }


def test_which_parts_wait_for_their_quorum_or_lack_it(keeper: FakeKeeper) -> None:
    made(keeper, {"/t": b""})
    assert snapshot.awaiting_quorum(keeper, TABLE) == frozenset()
    made(keeper, {TABLE.quorum_of(ONE): b"", TABLE.quorum_failed(TWO): b""})
    assert snapshot.awaiting_quorum(keeper, TABLE) == {ONE, TWO}
    made(keeper, {TABLE.quorum_status: QuorumEntry(THREE, 2, ("r1",)).encode()})
    assert snapshot.awaiting_quorum(keeper, TABLE) == {ONE, TWO, THREE}


def test_a_part_whose_quorum_fails_meanwhile_is_not_taken_for_one_that_has_it(
    keeper: FakeKeeper,
) -> None:
    """It goes from those that wait to those that failed at one moment, between two requests."""
    entry = QuorumEntry(ONE, 2, ("r1",))
    made(keeper, {TABLE.quorum_status: entry.encode(), TABLE.quorum_failed_parts: b""})
    requests: list[str] = []

    def counted(right: Any) -> Any:
        def request(paths: Sequence[str]) -> Any:
            if len(requests) == 1:
                fails = [Delete(TABLE.quorum_status), Create(TABLE.quorum_failed(ONE))]
                keeper.multi(fails)
            requests.extend(paths[:1])
            return right(paths)

        return request

    for name in ("get_many", "children_many"):
        setattr(keeper, name, counted(getattr(keeper, name)))
    assert snapshot.awaiting_quorum(keeper, TABLE) == {ONE}
    assert len(requests) == 2


def test_which_block_numbers_are_not_in_the_log_yet(keeper: FakeKeeper) -> None:
    made(keeper, {TABLE.lock("1", 7): b"", TABLE.lock("1", 12): b"", TABLE.partition("2"): b""})
    assert snapshot.committing_blocks(keeper, TABLE, ["1", "2", "3"]) == {
        "1": {7, 12},
        "2": set(),
        "3": set(),
    }


def test_parts_of_some_partitions_are_not_those_of_others_that_begin_like_them(
    keeper: FakeKeeper,
) -> None:
    parts = [PartName(partition, 1, 1, 0) for partition in ("1", "11", "2")]
    made(keeper, {REPLICA.part(part): b"" for part in parts})
    assert set(snapshot.active_parts(keeper, REPLICA)) == set(parts)
    assert snapshot.active_parts(keeper, REPLICA, ["1"]) == (parts[0],)
    assert set(snapshot.active_parts(keeper, REPLICA, ["1", "2"])) == {parts[0], parts[2]}
    assert snapshot.active_parts(keeper, REPLICA, []) == ()


def test_what_a_replica_has_noted_as_finished_and_with_which_versions(
    keeper: FakeKeeper,
) -> None:
    with pytest.raises(ReplicaDropped):
        snapshot.noted_mutations(keeper, REPLICA)
    made(keeper, {REPLICA.is_lost: b"0"})
    with pytest.raises(ReplicaDropped):
        snapshot.noted_mutations(keeper, REPLICA)
    made(keeper, {REPLICA.mutation_pointer: b""})
    keeper.multi([SetData(REPLICA.mutation_pointer, b"0000000001"), SetData(REPLICA.is_lost)])
    keeper.multi([SetData(REPLICA.is_lost, b"0")])
    noted = snapshot.noted_mutations(keeper, REPLICA)
    assert (noted.pointer_version, noted.is_lost_version) == (1, 2)
    assert [f"000000000{n}" in noted.finished for n in (1, 2, 3)] == [True, False, False]
    beyond = b"finished mutations format version: 1\n0000000003\n"
    made(keeper, {REPLICA.finished_mutations: beyond})
    noted = snapshot.noted_mutations(keeper, REPLICA)
    assert [f"000000000{n}" in noted.finished for n in (1, 2, 3)] == [True, False, True]
    keeper.multi([Delete(REPLICA.is_lost)])
    with pytest.raises(ReplicaDropped):
        snapshot.noted_mutations(keeper, REPLICA)


def dropped(number: int) -> DropRange:
    dropped_range = drop_range("all", number + 1)
    return DropRange(dropped_range, create_time=1_700_000_000, source_replica="r1")


def test_what_a_replica_has_yet_to_do_is_what_it_has_not_copied_and_then_its_queue(
    keeper: FakeKeeper,
) -> None:
    entries = [dropped(number) for number in range(4)]
    logged = {TABLE.log_entry(log_entry_name(n)): encode(entries[n]) for n in range(3)}
    queued = {REPLICA.queue_entry("queue-0000000000"): encode(entries[3])}
    made(keeper, {**logged, **queued, REPLICA.log_pointer: b"1"})
    read = partial(snapshot.entries_to_come, keeper, TABLE, REPLICA)
    assert read(KnownQueue()) == [entries[1], entries[2], entries[3]]
    keeper.multi([SetData(REPLICA.log_pointer, b"")])
    assert read(KnownQueue()) == entries
    goes = TABLE.log_entry(log_entry_name(1))
    before(keeper, "get_many", goes, lambda: keeper.multi([Delete(goes)]))
    assert read(KnownQueue()) == [entries[0], entries[2], entries[3]]


def whole(keeper: FakeKeeper) -> None:
    """A replica with one entry, one claim and one part."""
    nodes = {REPLICA.is_lost: b"0", REPLICA.queue_entry("queue-0000000000"): encode(dropped(1))}
    made(keeper, {**nodes, **CLAIMED})


def test_who_looks_without_the_claims_sees_none_and_reads_first_whether_it_was_cloned(
    keeper: FakeKeeper,
) -> None:
    """He relies on there being no other entries: so also when the queue is listed once more."""
    whole(keeper)
    known = KnownQueue()
    snapshot.sweep_snapshot(keeper, REPLICA, known)
    assert known.queued(REPLICA) is not None, "it has listed the queue, and need not again"
    seen = snapshot.queue_snapshot(keeper, REPLICA, known)
    assert seen.claims != {}
    snapshot.list_queue(keeper, REPLICA, known, None)
    assert snapshot.sweep_snapshot(keeper, REPLICA, known).claims == {}
    keeper.multi([Create(REPLICA.queue_entry("queue-0000000001"), encode(dropped(2)))])
    session = Asking(keeper)
    swept = snapshot.sweep_snapshot(session, REPLICA, known)
    assert list(swept.names) == ["queue-0000000000", "queue-0000000001"]
    at = session.asked.index(f"children and stat {REPLICA.queue}")
    assert session.asked[at - 1] == f"get {REPLICA.is_lost}"
    assert not any("children" in one and REPLICA.executing in one for one in session.asked)


def test_an_entry_that_can_not_be_read_is_named(keeper: FakeKeeper) -> None:
    whole(keeper)
    node = REPLICA.queue_entry("queue-0000000007")
    made(keeper, {node: b"format version: 4\nhello\n"})
    with pytest.raises(Corruption, match=node):
        snapshot.queue_snapshot(keeper, REPLICA, KnownQueue())


def test_an_entry_that_does_not_say_when_it_was_made_is_as_old_as_its_node(
    keeper: FakeKeeper,
) -> None:
    """So the original wrote them long ago."""
    text = b"format version: 1\nsource replica: r1\ndrop\nall_0_1_999999999_999999999\n"
    made(keeper, {REPLICA.queue_entry("queue-0000000000"): text})
    [entry] = snapshot.queued_entries(keeper, REPLICA, KnownQueue()).values()
    assert entry.create_time == int(StillClock().now_s())


CLAIM = REPLICA.claim("queue-0000000001")
CLAIMED = {CLAIM: Claim("worker", (ONE, TWO)).encode(), REPLICA.part(THREE): b""}


def test_what_is_claimed_and_what_is_promised_is_not_free(keeper: FakeKeeper) -> None:
    made(keeper, {REPLICA.executing: b"", REPLICA.part(THREE): b""})
    four = PartName("all", 4, 4, 0)
    view = snapshot.claims_and_parts(keeper, REPLICA)
    assert (view.claimed, view.names) == (frozenset(), {str(THREE)})
    assert snapshot.free_parts(keeper, REPLICA, [ONE, THREE, four]) == [ONE, four]
    made(keeper, CLAIMED)
    view = snapshot.claims_and_parts(keeper, REPLICA)
    assert (view.claimed, view.names) == ({ONE, TWO}, {str(THREE)})
    assert snapshot.free_parts(keeper, REPLICA, [ONE, THREE, four]) == [four]


def test_what_is_published_while_claims_are_read_is_not_free(keeper: FakeKeeper) -> None:
    """The claim is gone when it is read, and the part came after the parts were listed."""
    made(keeper, CLAIMED)
    publication = [Delete(CLAIM), Create(REPLICA.part(ONE))]
    before(keeper, "get_many", CLAIM, lambda: keeper.multi(publication))
    view = snapshot.claims_and_parts(keeper, REPLICA)
    assert (view.claimed, view.names) == (frozenset(), {str(ONE), str(THREE)})


@pytest.mark.parametrize("read", [snapshot.claims_and_parts, snapshot.free_parts])
def test_who_asks_what_is_free_sees_what_others_did_before(read: Any) -> None:
    zookeeper = FakeZooKeeper(StillClock())
    other, keeper = zookeeper.connect(), zookeeper.connect(lambda behind: behind)
    made(other, {REPLICA.executing: b"", REPLICA.parts: b""})
    keeper.sync("/")
    other.multi([Create(REPLICA.part(ONE))])
    if read is snapshot.free_parts:
        assert read(keeper, REPLICA, [ONE]) == []
    else:
        assert not read(keeper, REPLICA).is_free(ONE)


READS: list[Callable[[FakeKeeper], object]] = [
    lambda keeper: snapshot.claims_and_parts(keeper, REPLICA),
    lambda keeper: snapshot.parts_now(keeper, REPLICA, KnownQueue()),
    lambda keeper: snapshot.list_queue(keeper, REPLICA, KnownQueue(), None),
    lambda keeper: snapshot.queued_entries(keeper, REPLICA, KnownQueue()),
    lambda keeper: snapshot.sweep_snapshot(keeper, REPLICA, KnownQueue()),
    lambda keeper: snapshot.queue_snapshot(keeper, REPLICA, KnownQueue()),
    lambda keeper: snapshot.free_parts(keeper, REPLICA, [ONE]),
]


@pytest.mark.parametrize("read", READS)
def test_a_replica_that_is_gone_is_said_to_be_dropped(
    keeper: FakeKeeper, read: Callable[[FakeKeeper], object]
) -> None:
    with pytest.raises(ReplicaDropped, match="SYSTEM RESTORE REPLICA"):
        read(keeper)


@pytest.mark.parametrize("gone", ["executing", "parts"])
def test_one_of_which_either_node_is_gone_has_no_claims_and_parts(
    keeper: FakeKeeper, gone: str
) -> None:
    made(keeper, {REPLICA.executing: b"", REPLICA.parts: b""})
    keeper.multi([Delete(getattr(REPLICA, gone))])
    with pytest.raises(ReplicaDropped):
        snapshot.claims_and_parts(keeper, REPLICA)


def test_parts_that_are_known_are_not_listed_while_the_counts_prove_them(
    keeper: FakeKeeper,
) -> None:
    """And they are read from a replica that is there."""
    made(keeper, {REPLICA.part(ONE): b""})
    known = KnownQueue()
    assert set(snapshot.parts_now(keeper, REPLICA, known)) == {ONE}
    session = Asking(keeper)
    assert set(snapshot.parts_now(session, REPLICA, known)) == {ONE}
    assert not any("children" in one for one in session.asked)
    keeper.multi([Create(REPLICA.part(TWO))])
    for _ in range(2):
        assert set(snapshot.parts_now(session, REPLICA, known)) == {ONE, TWO}
        listings = [one for one in session.asked if "children" in one]
        assert listings == [f"children and stat {REPLICA.parts}"]
    keeper.multi([Delete(REPLICA.part(one)) for one in (ONE, TWO)] + [Delete(REPLICA.parts)])
    with pytest.raises(ReplicaDropped):
        snapshot.parts_now(keeper, REPLICA, known)


def test_entries_are_in_the_order_of_the_queue_whichever_were_read_before(
    keeper: FakeKeeper,
) -> None:
    """One that another thread has pulled may be known while an earlier one is not."""
    nodes = [f"queue-000000000{number}" for number in range(4)]
    entries = {REPLICA.queue_entry(node): encode(dropped(1)) for node in nodes}
    made(keeper, {REPLICA.is_lost: b"0", **CLAIMED, **entries})
    known = KnownQueue()
    before = snapshot.queue_snapshot(keeper, REPLICA, known, queue=[nodes[0], nodes[2]])
    assert list(before.entries) == [nodes[0], nodes[2]]
    look = partial(snapshot.queue_snapshot, keeper, REPLICA, known, before=before)
    assert list(look(queue=nodes).entries) == nodes
    assert list(look(queue=nodes[:3]).entries) == nodes[:3]
    assert list(look(queue=nodes[1:]).entries) == nodes[1:], "one went, and one came before it"
    assert list(look(queue=nodes[:1]).entries) == nodes[:1]
