"""What is taken from the log: entries of others are queued, what was inserted here is here."""

import math

import pytest

from rmt_pipeline.protocol import limits
from rmt_pipeline.protocol.errors import Timeout
from rmt_pipeline.protocol.log.codec import encode
from rmt_pipeline.protocol.log.entry import GetPart
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.partitions.from_table import is_behind
from rmt_pipeline.replica.pull_log import PUT_OFF_MAX, PUT_OFF_S, Pulled, PutOff, pull_log
from rmt_pipeline.replica.sync import SyncMode, sync_replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import ClockWaker, Replicas


def queued(replicas: Replicas, name: str) -> list[str]:
    return replicas[name].keeper.children(replicas[name].paths.queue)


def counts(pulled: Pulled) -> tuple[int, int]:
    return pulled.entries, pulled.queued


def test_what_was_inserted_here_is_not_queued_here(replicas: Replicas) -> None:
    replicas.insert("r1", 1)
    replicas.insert("r1", 2)
    assert counts(pull_log(replicas["r1"])) == (2, 0)
    assert queued(replicas, "r1") == []
    assert counts(pull_log(replicas["r2"])) == (2, 2)
    assert counts(pull_log(replicas["r1"], afresh=True)) == (0, 0)


def test_between_others_entries_too(replicas: Replicas) -> None:
    replicas["r1"].memory.pull_batch = 10
    theirs = [replicas.insert("r2", 1)]
    replicas.insert("r1", 2)
    theirs.append(replicas.insert("r2", 3))
    assert counts(pull_log(replicas["r1"])) == (3, 2)
    replicas.work_off("r1")
    assert set(map(str, theirs)) < set(replicas.parts("r1"))


def test_a_part_that_is_gone_again_is_queued_with_all_that_were_read_with_it(
    replicas: Replicas,
) -> None:
    """As after a refetch, or when it was merged and removed before the log was read."""
    replica = replicas["r1"]
    replica.memory.pull_batch = 10
    replicas.insert("r1", 1)
    gone = replicas.insert("r1", 2)
    replicas.step("r2", "fetch")
    replicas.step("r2", "fetch")
    replica.store.remove(gone)
    replica.keeper.multi([Delete(replica.paths.part(gone))])
    assert counts(pull_log(replica)) == (2, 2)
    replicas.work_off("r1")
    assert queued(replicas, "r1") == []
    assert str(gone) in replicas.parts("r1")
    assert replica.store.has(gone)


def test_who_waits_for_a_quorum_finds_the_entry_in_the_queue(replicas: Replicas) -> None:
    replica = replicas["r1"]
    part = PartName.parse("all_0_0_0")
    entry = GetPart(create_time=0, source_replica="r1", part=part, quorum=2)
    replica.keeper.multi(
        [
            Create(replica.paths.part(part)),
            Create(replica.table.log_entry("log-"), encode(entry), sequence=True),
        ]
    )
    assert counts(pull_log(replica)) == (1, 1)


def test_an_entry_that_cannot_be_read_is_queued_and_stops_no_pull(replicas: Replicas) -> None:
    replica = replicas["r1"]
    replica.keeper.multi([Create(replica.table.log_entry("log-"), b"junk", sequence=True)])
    assert counts(pull_log(replica)) == (1, 1)


def pointer(replicas: Replicas, name: str) -> int:
    return int(replicas[name].keeper.get(replicas[name].paths.log_pointer)[0])


def test_what_was_inserted_here_moves_the_pointer_once_for_many(replicas: Replicas) -> None:
    replica, put_off = replicas["r1"], PutOff()
    pull_log(replica)
    began = pointer(replicas, "r1")
    for number in range(5):
        replicas.insert("r1", number)
        assert counts(pull_log(replica, put_off=put_off)) == (0, 0)
        replicas.clock.passed_s += PUT_OFF_S / 10
    assert pointer(replicas, "r1") == began
    replicas.clock.passed_s = put_off.due_s
    assert counts(pull_log(replica, put_off=put_off)) == (5, 0)
    assert pointer(replicas, "r1") == began + 5
    assert counts(pull_log(replica, put_off=put_off)) == (0, 0)


def test_what_comes_behind_what_was_put_off_is_queued_at_once(replicas: Replicas) -> None:
    replica, put_off = replicas["r1"], PutOff()
    pull_log(replica)
    replica.memory.pull_batch = 10
    replicas.insert("r1", 1)
    assert counts(pull_log(replica, put_off=put_off)) == (0, 0)
    theirs = replicas.insert("r2", 2)
    replicas.insert("r1", 3)
    assert counts(pull_log(replica, put_off=put_off)) == (3, 1)
    replicas.work_off("r1")
    assert str(theirs) in replicas.parts("r1")


def test_no_more_is_put_off_than_one_multi_has_room_for(replicas: Replicas) -> None:
    replica, put_off = replicas["r1"], PutOff()
    pull_log(replica)
    began = pointer(replicas, "r1")
    for number in range(PUT_OFF_MAX):
        replicas.insert("r1", number)
        assert counts(pull_log(replica, put_off=put_off)) == (0, 0)
    replicas.insert("r1", 1_000_000)
    assert counts(pull_log(replica, put_off=put_off)) == (PUT_OFF_MAX + 1, 0)
    assert pointer(replicas, "r1") == began + PUT_OFF_MAX + 1


def test_who_acts_on_there_being_nothing_left_copies_what_another_put_off(
    replicas: Replicas,
) -> None:
    replica, put_off = replicas["r1"], PutOff()
    pull_log(replica)
    began = pointer(replicas, "r1")
    replicas.insert("r1", 1)
    pull_log(replica, put_off=put_off)
    assert counts(pull_log(replica, afresh=True)) == (1, 0)
    replicas.clock.passed_s = put_off.due_s
    pulled = pull_log(replica, put_off=put_off)
    assert counts(pulled) == (0, 0)
    assert pulled.pointer == pointer(replicas, "r1") == began + 1


def test_what_another_has_copied_meanwhile_is_due_no_more(replicas: Replicas) -> None:
    """Else whoever waits for the moment looks for ever, without a pause."""
    replica, put_off = replicas["r1"], PutOff()
    pull_log(replica, put_off=put_off)
    replicas.insert("r1", 1)
    pull_log(replica, put_off=put_off)
    assert put_off.due_s < math.inf
    pull_log(replica, afresh=True)
    pull_log(replica, put_off=put_off)
    assert put_off.due_s == math.inf


def test_a_part_that_goes_while_its_entry_is_put_off_is_queued(replicas: Replicas) -> None:
    replica, put_off = replicas["r1"], PutOff()
    pull_log(replica)
    gone = replicas.insert("r1", 1)
    replicas.step("r2", "fetch")
    pull_log(replica, put_off=put_off)
    replica.store.remove(gone)
    replica.keeper.multi([Delete(replica.paths.part(gone))])
    replicas.clock.passed_s = put_off.due_s
    assert counts(pull_log(replica, put_off=put_off)) == (1, 1)
    replicas.work_off("r1")
    assert replica.store.has(gone)


@pytest.mark.parametrize("decides", ["sync", "is behind"])
def test_who_acts_on_an_empty_queue_does_not_believe_a_pointer_that_is_remembered(
    replicas: Replicas, decides: str
) -> None:
    """Another process of this replica took another one's state over, and put the pointer back: what
    is in the log behind it is in no queue.
    """
    replicas.insert("r1", 1)
    r2 = replicas["r2"]
    pull_log(r2)
    assert counts(pull_log(r2)) == (0, 0)
    [node] = queued(replicas, "r2")
    ops = [Delete(r2.paths.queue_entry(node)), SetData(r2.paths.log_pointer, b"0")]
    replicas.zookeeper.connect().multi([*ops, SetData(r2.paths.is_lost, b"0")])
    if decides == "is behind":
        assert is_behind(r2, ["all"])
    else:
        with pytest.raises(Timeout):
            sync_replica(r2, SyncMode.DEFAULT, 0.0, ClockWaker(replicas.clock))
    assert len(queued(replicas, "r2")) == 1


def test_who_never_pulled_begins_with_the_first_entry_that_is_there(
    replicas: Replicas,
) -> None:
    """Its pointer is empty until then, as of a replica of the original (spec §4.1)."""
    replica = replicas["r2"]
    parts = [replicas.insert("r1", value) for value in range(3)]
    first, *_ = replica.keeper.children(replica.table.log)
    replica.keeper.multi(
        [SetData(replica.paths.log_pointer, b""), Delete(replica.table.log_entry(first))]
    )
    assert counts(pull_log(replica, afresh=True)) == (2, 2)
    replicas.work_off("r2")
    assert replicas.parts("r2") == list(map(str, parts[1:]))


def test_an_entry_that_is_larger_than_a_multi_should_be_is_pulled_by_itself(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in range(3):
        replicas.insert("r1", value)
    monkeypatch.setattr(limits, "MULTI_BYTES_MAX", 1)
    replicas["r2"].memory.pull_batch = 10
    assert counts(pull_log(replicas["r2"], afresh=True)) == (3, 3)


def test_a_log_is_followed_beyond_a_billion_entries(replicas: Replicas) -> None:
    """The count of changes of its children goes on below zero by then."""
    billion = 2**30
    log, nodes = replicas["r1"].table.log, replicas.zookeeper.nodes
    nodes[log] = nodes[log].with_children(frozenset(), billion - 2, 0)
    for name in ("r1", "r2"):
        pointer = replicas[name].paths.log_pointer
        replicas[name].keeper.multi([SetData(pointer, str(billion - 2).encode())])
    values = [replicas.insert("r1", value) for value in range(5)]
    assert nodes[log].stat.children_version < 0
    replicas.work_off()
    assert replicas.parts("r2") == sorted(map(str, values))
    pulled = pull_log(replicas["r2"], afresh=True)
    assert pulled.pointer == billion + 3
    sync_replica(replicas["r2"], SyncMode.STRICT, 0.0, ClockWaker(replicas.clock))
