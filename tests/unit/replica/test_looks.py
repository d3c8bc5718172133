"""A look reads what may have changed, and is as right as one that reads everything."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import OutcomeUnknown, ReplicaDropped
from rmt_pipeline.protocol.log.entry import MergeParts, result_of
from rmt_pipeline.protocol.parts.name import PartName, merged
from rmt_pipeline.protocol.queue.view import QueueView
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.replica import Memory, Replica
from rmt_pipeline.replica.work.pools import queue_facts
from rmt_pipeline.zookeeper import known
from rmt_pipeline.zookeeper.keeper import (
    Create,
    Delete,
    Keeper,
    Op,
    Refused,
    SetData,
    Stat,
    Watch,
)
from rmt_pipeline.zookeeper.known import Queued
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, list_queue, parts_now, queue_snapshot
from rmt_pipeline.zookeeper.trees import delete_tree
from tests.support.local_replicas import Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    with Replicas(tmp_path) as opened:
        opened.insert("r1", 1)
        opened.insert("r1", 2)
        yield opened


class Spying:
    """A keeper that tells how often names were listed, and lets something happen before a read."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.listed: list[str] = []
        self.before_get: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._keeper, name)

    def children_stat(self, path: str, *watch: Watch | None) -> tuple[list[str], Stat]:
        self.listed.append(path)
        return self._keeper.children_stat(path, *watch)

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            self.before_get.pop(path, lambda: None)()
        return self._keeper.get_many(paths)


def look(replica: Replica, keeper: Any = None) -> QueueSnapshot:
    return queue_snapshot(keeper or replica.keeper, replica.paths, replica.memory.queue)


def test_parts_are_listed_again_only_if_some_came_or_went(replicas: Replicas) -> None:
    replica = replicas["r1"]
    spying = Spying(replica.keeper)
    first = look(replica, spying)
    del spying.listed[:]
    again = look(replica, spying)
    assert spying.listed == []
    assert again.parts is first.parts
    part = replicas.insert("r1", 3)
    changed = look(replica, spying)
    assert spying.listed == [replica.paths.parts]
    assert set(changed.parts) - set(first.parts) == {part}
    assert part not in first.parts
    assert changed.parts.current is not first.parts.current


def test_one_that_came_and_one_that_went_are_as_many_as_before(replicas: Replicas) -> None:
    replica = replicas["r1"]
    [one, other] = look(replica).parts
    made = PartName(one.partition, 7, 7, 0)
    replica.keeper.multi([Delete(replica.paths.part(one)), Create(replica.paths.part(made))])
    assert set(look(replica).parts) == {other, made}
    replica.keeper.multi([Delete(replica.paths.part(made)), Create(replica.paths.part(made))])
    assert set(parts_now(replica.keeper, replica.paths, replica.memory.queue)) == {other, made}


def test_what_becomes_a_part_during_a_look_is_in_the_queue_or_among_the_parts(
    replicas: Replicas,
) -> None:
    """1. The queue is listed. 2. Its entry is carried out. 3. It is gone when it is to be read, and
    its part, which was not there at the look before, must be seen.
    """
    replica = replicas["r2"]
    look(replica)
    replicas.step("r2", "fetch")
    part = replicas.insert("r1", 3)
    replicas.step("r2", "merge")  # pulls
    assert part not in look(replica).parts
    [node] = replica.keeper.children(replica.paths.queue)
    replica.memory.queue.entries.forget([node])
    spying = Spying(replica.keeper)
    spying.before_get[replica.paths.queue_entry(node)] = lambda: replicas.step("r2", "fetch")
    seen = look(replica, spying)
    assert spying.before_get == {}
    assert not seen.entries
    assert part in seen.parts


def test_a_replica_that_was_made_anew_has_none_of_its_old_parts(replicas: Replicas) -> None:
    """As many came and went as before: the node tells that it is another one."""
    replica = replicas["r1"]
    parts = replica.paths.parts
    before = look(replica).parts
    names = sorted(map(str, before))
    keeper = replica.keeper
    keeper.multi([*(Delete(f"{parts}/{name}") for name in names), Delete(parts)])
    with pytest.raises(ReplicaDropped):
        look(replica)
    others = [PartName("all", block, block, 0) for block in range(50, 50 + len(names))]
    keeper.multi([Create(parts), *(Create(replica.paths.part(one)) for one in others)])
    assert set(look(replica).parts) == set(others)


def listings(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths whose children are listed from now on."""
    listed: list[str] = []
    for name in ("children", "children_stat"):
        right = getattr(replica.keeper, name)
        monkeypatch.setattr(
            replica.keeper,
            name,
            lambda path, *a, right=right: listed.append(path) or right(path, *a),
        )
    return listed


def fetch(replicas: Replicas, *values: int) -> PartName:
    part = replicas.insert("r1", *values)
    replicas.step("r2", "fetch")
    return part


def test_what_this_session_has_published_is_known_without_a_listing(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, and several in one multi."""
    replica = replicas["r2"]
    fetch(replicas, 3)
    before = set(look(replica).parts)
    listed = listings(replica, monkeypatch)
    one = fetch(replicas, 4)
    two = {replicas.insert("r1", 5), replicas.insert("r1", 6)}
    replica.memory.pull_batch = 10
    replicas.step("r2", "fetch")
    seen = look(replica).parts
    assert replica.paths.parts not in listed
    assert set(seen) == before | {one} | two == set(map(PartName.parse, replicas.parts("r2")))
    assert sorted(map(str, seen.current)) == sorted(replicas.parts("r2"))


def test_a_change_of_others_beside_ours_is_not_missed(replicas: Replicas) -> None:
    """As many changes as were ours, or more: after one of ours each makes the count another."""
    replica = replicas["r2"]
    fetch(replicas, 3)
    for number, late in enumerate((False, True), 60):
        look(replica)
        theirs = PartName("all", number, number, 0)
        if not late:
            replica.keeper.multi([Create(replica.paths.part(theirs))])
        ours = fetch(replicas, number)
        if late:
            replica.keeper.multi([Create(replica.paths.part(theirs))])
        assert {theirs, ours} <= set(look(replica).parts)


def test_parts_that_were_listed_while_ours_was_published_are_not_counted_twice(
    replicas: Replicas,
) -> None:
    """1. Our multi lands. 2. Another loop lists the parts, ours among them. 3. We note ours: were
    it one change more, one of somebody else would pass for it.
    """
    replica = replicas["r2"]
    fetch(replicas, 3)
    look(replica)
    known, paths = replica.memory.queue, replica.paths
    before = known.listed(paths)
    ours, theirs = (PartName("all", block, block, 0) for block in (70, 71))
    replica.keeper.multi([Create(paths.part(ours))])
    assert ours in look(replica).parts
    known.published(paths, before, [ours], replica.keeper.session_id)
    replica.keeper.multi([Create(paths.part(theirs))])
    assert {ours, theirs} <= set(look(replica).parts)


def inserted_beside(replicas: Replicas, number: int) -> PartName:
    """A part of r1 that another process has inserted there, and its server has pulled."""
    part = replicas.insert("r1", number)
    pull_log(replicas["r1"])
    return part


def test_what_others_inserted_here_is_known_without_a_listing_once_it_was_pulled(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The multi that moves the pointer has asserted it."""
    replica = replicas["r1"]
    pull_log(replica)
    before = set(look(replica).parts)
    listed = listings(replica, monkeypatch)
    came = {inserted_beside(replicas, number) for number in range(3, 6)}
    assert set(look(replica).parts) == before | came
    came.add(inserted_beside(replicas, 6))
    seen = look(replica).parts
    assert replica.paths.parts not in listed
    assert set(seen) == before | came == set(map(PartName.parse, replicas.parts("r1")))
    assert sorted(map(str, seen.current)) == sorted(replicas.parts("r1"))


def test_as_many_changes_as_parts_are_known_to_have_come_are_not_always_these(
    replicas: Replicas,
) -> None:
    """Others add and remove beside them."""
    replica = replicas["r1"]
    pull_log(replica)
    paths = replica.paths
    for number, (came, went) in enumerate(((1, 0), (0, 1), (1, 1), (2, 1)), 10):
        there = sorted(look(replica).parts)
        ours = inserted_beside(replicas, number)
        others = [
            PartName("all", 10 * number + one, 10 * number + one, 0) for one in range(came)
        ]
        ops: list[Op] = [Create(paths.part(one)) for one in others]
        replica.keeper.multi(ops + [Delete(paths.part(one)) for one in there[:went]])
        assert set(look(replica).parts) == {*there[went:], *others, ours}
    replica.keeper.multi([Delete(paths.part(ours))])
    [theirs] = [PartName("all", 500, 500, 0)]
    replica.keeper.multi([Create(paths.part(theirs))])
    assert theirs in look(replica).parts
    assert ours not in look(replica).parts


def test_of_parts_that_are_known_to_have_come_fewer_changes_than_that_are_others(
    replicas: Replicas,
) -> None:
    """1. Ours is asserted. 2. It goes, and another one comes: three changes, and one part more, as
    if ours alone had come.
    """
    replica = replicas["r1"]
    pull_log(replica)
    there = set(look(replica).parts)
    ours = inserted_beside(replicas, 3)
    theirs = PartName("all", 500, 500, 0)
    paths = replica.paths
    replica.keeper.multi([Delete(paths.part(ours)), Create(paths.part(theirs))])
    assert set(look(replica).parts) == {*there, theirs}


def test_a_part_that_went_before_the_parts_were_listed_did_not_come_after(
    replicas: Replicas,
) -> None:
    """1. Ours lands. 2. It goes. 3. Another loop lists the parts. 4. We note ours: were that since
    the listing, the next one of somebody else would pass for it.
    """
    replica = replicas["r2"]
    fetch(replicas, 3)
    look(replica)
    known, paths = replica.memory.queue, replica.paths
    before = known.listed(paths)
    ours, theirs = (PartName("all", block, block, 0) for block in (70, 71))
    replica.keeper.multi([Create(paths.part(ours))])
    replica.keeper.multi([Delete(paths.part(ours))])
    there = set(look(replica).parts)
    known.published(paths, before, [ours], replica.keeper.session_id)
    replica.keeper.multi([Create(paths.part(theirs))])
    assert set(look(replica).parts) == {*there, theirs}


def test_what_two_loops_published_at_once_is_known_of_both(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = replicas["r2"]
    fetch(replicas, 3)
    there = set(look(replica).parts)
    known, paths = replica.memory.queue, replica.paths
    before = known.listed(paths)
    parts = [PartName("all", block, block, 0) for block in (70, 71)]
    for part in parts:
        replica.keeper.multi([Create(paths.part(part))])
        known.published(paths, before, [part], replica.keeper.session_id)
    listed = listings(replica, monkeypatch)
    assert set(look(replica).parts) == {*there, *parts}
    assert paths.parts not in listed


def test_what_one_session_added_another_one_lists(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be behind: what it counts may be others' changes, and not that one."""
    replica = replicas["r2"]
    fetch(replicas, 3)
    look(replica)
    fetch(replicas, 4)
    session = replicas.zookeeper.connect()
    spying = Spying(session)
    look(replica, spying)
    assert spying.listed == [replica.paths.parts]


def test_a_clone_while_the_queue_is_read_is_noticed_by_who_acts_on_what_is_not_queued(
    replicas: Replicas,
) -> None:
    replica = replicas["r1"]
    _, stat = replica.keeper.get(replica.paths.is_lost)
    spying = Spying(replica.keeper)

    def cloned() -> None:
        replica.keeper.multi([SetData(replica.paths.is_lost, b"0")])

    spying.before_get[replica.paths.executing] = cloned
    assert look(replica, spying).is_lost_version == stat.version
    assert spying.before_get == {}


def test_a_look_at_what_was_listed_just_now_is_one_request(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = replicas["r2"]
    fetch(replicas, 3)
    look(replica)
    part = replicas.insert("r1", 4)
    pull_log(replica)
    names = replica.keeper.children(replica.paths.queue)
    listed, reads = listings(replica, monkeypatch), []
    real = replica.keeper.get_many
    monkeypatch.setattr(
        replica.keeper, "get_many", lambda paths: reads.append(tuple(paths)) or real(paths)
    )
    seen = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue, queue=names)
    assert part in [result_of(entry) for entry in seen.entries.values()]
    assert listed == []
    assert len([asked for asked in reads if asked]) == 1


def test_who_pulls_again_knows_where_it_was_but_for_who_acts_on_there_being_nothing(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = replicas["r2"]
    while pull_log(replica).entries:
        pass
    reads: list[str] = []
    real = replica.keeper.get_many
    monkeypatch.setattr(
        replica.keeper, "get_many", lambda paths: reads.extend(paths) or real(paths)
    )
    assert pull_log(replica).entries == 0
    assert replica.paths.log_pointer not in reads
    assert pull_log(replica, afresh=True).entries == 0
    assert replica.paths.log_pointer in reads


def test_a_reader_lists_the_parts_again_only_if_some_came_or_went(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = replicas["r1"]
    listed = listings(replica, monkeypatch)
    first = readable_parts(replica)
    del listed[:]
    assert readable_parts(replica) == first
    assert listed == []
    part = replicas.insert("r1", 3)
    del listed[:]
    assert readable_parts(replica).active == (*first.active, part)
    assert listed == [replica.paths.parts]


def test_who_reads_from_a_replica_that_was_dropped_is_told_so(replicas: Replicas) -> None:
    replica = replicas["r1"]
    delete_tree(replica.keeper, replica.paths.parts)
    with pytest.raises(ReplicaDropped):
        readable_parts(replica)


def test_a_queue_that_went_with_a_drop_is_not_taken_for_a_known_one(replicas: Replicas) -> None:
    """Whoever drops the replica has died in between: the nodes beside it are there still."""
    replica = replicas["r2"]
    pull_log(replica)
    names = tuple(replica.keeper.children(replica.paths.queue))
    queued = Queued(0, 0, names, session=replica.keeper.session_id)
    look(replica)
    delete_tree(replica.keeper, replica.paths.queue)
    known = replica.memory.queue
    with pytest.raises(ReplicaDropped):
        queue_snapshot(replica.keeper, replica.paths, known, queue=queued)


def test_what_our_hands_publish_between_glance_and_look_is_not_finished_once_more(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed in the queue, and its part is there when the parts are read."""
    replicas.insert("r1", 3)
    replica = replicas["r2"]
    replica.memory.pull_batch = 10
    pull_log(replica)
    executor = replicas.executor("r2", "fetch")
    [batch] = executor.look(None).batches
    names = executor.glance(None)
    assert len(names) == 3
    assert len(list(executor.carry_out(batch))) == 3
    refused: list[Refused] = []
    right = replica.keeper.multi

    def multi(ops: Sequence[Op]) -> list[str]:
        try:
            return right(ops)
        except Refused as one:
            refused.append(one)
            raise

    monkeypatch.setattr(replica.keeper, "multi", multi)
    look = executor.look(None, queue=names)
    assert refused == []
    assert not look.batches
    assert not look.step.did_something


# --- a queue that was filled here


@pytest.fixture
def filled(replicas: Replicas) -> Replica:
    """Its queue was listed once, and two entries were pulled since; what is known is used up by no
    listing.
    """
    replica = replicas["r2"]
    replicas.work_off("r2")
    list_queue(replica.keeper, replica.paths, replica.memory.queue, None)
    replicas.insert("r1", 3)
    replicas.insert("r1", 4)
    replica.memory.pull_batch = 10
    assert pull_log(replica).queued == 2
    return replica


def known_queue(replica: Replica) -> Queued:
    queued = replica.memory.queue.queued(replica.paths)
    assert queued is not None
    return queued


def look_as_known(replica: Replica, keeper: Any = None) -> list[str]:
    """The nodes of the queue, as who looks has them who knew them."""
    seen = queue_snapshot(
        keeper or replica.keeper,
        replica.paths,
        replica.memory.queue,
        queue=known_queue(replica),
    )
    return [*seen.entries]


def nodes(replica: Replica) -> list[str]:
    return replica.keeper.children(replica.paths.queue)


def another_entry(replica: Replica) -> Op:
    """What another process of this replica pulls."""
    [*_, last] = nodes(replica)
    data, _ = replica.keeper.get(replica.paths.queue_entry(last))
    return Create(f"{replica.paths.queue}/queue-", data, sequence=True)


def test_a_queue_that_was_filled_here_is_not_listed(
    replicas: Replicas, filled: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = listings(filled, monkeypatch)
    executor = replicas.executor("r2", "fetch")
    queue = executor.glance(lambda: None)
    assert isinstance(queue, Queued)
    [batch] = executor.look(lambda: None, queue=queue).batches
    assert filled.paths.queue not in listed
    assert len(batch.left) == len(queue.names) == 2
    assert nodes(filled) == [*queue.names]


def test_what_was_fetched_is_not_in_the_queue_as_it_is_known(
    replicas: Replicas, filled: Replica
) -> None:
    """One by one, and several in one multi; and what comes after it is."""
    replicas.insert("r1", *range(100))
    pull_log(filled)
    executor = replicas.executor("r2", "fetch")
    [batch, *_] = executor.look(None).batches
    left = nodes(filled)
    for _ in executor.carry_out(batch):
        spying = Spying(filled.keeper)
        assert look_as_known(filled, spying) == nodes(filled)
        left = nodes(filled)
    assert left == []
    assert not known_queue(filled).names
    replicas.insert("r1", 5)
    pull_log(filled)
    spying = Spying(filled.keeper)
    assert look_as_known(filled, spying) == nodes(filled)
    assert len(nodes(filled)) == 1
    assert spying.listed == []


@pytest.mark.parametrize("change", ["add", "remove", "both", "last"])
@pytest.mark.parametrize("early", [True, False])
def test_what_another_process_changes_in_the_queue_is_seen(
    filled: Replica, change: str, *, early: bool
) -> None:
    """Before the look, or while it reads; also when there are as many as before, or one went and
    the same number came.
    """
    replica = filled
    [first, last] = nodes(replica)
    add, remove = another_entry(replica), Delete(replica.paths.queue_entry(first))
    ops: dict[str, list[Op]] = {
        "add": [add],
        "remove": [remove],
        "both": [remove, add],
        "last": [add, Delete(replica.paths.queue_entry(last))],
    }
    spying = Spying(replica.keeper)
    if early:
        replica.keeper.multi(ops[change])
    else:
        spying.before_get[replica.paths.queue] = lambda: replica.keeper.multi(ops[change])
    assert look_as_known(replica, spying) == nodes(replica)
    assert spying.before_get == {}
    assert spying.listed == [replica.paths.queue]
    assert look_as_known(replica, spying) == nodes(replica)
    assert len(spying.listed) == 1, "what was listed is known"


def test_what_others_queue_beside_ours_is_not_missed(
    replicas: Replicas, filled: Replica
) -> None:
    """Before ours and after it; ours is one change more than was known, and so they are more."""
    for value, late in enumerate((False, True), 10):
        look_as_known(filled)
        theirs = another_entry(filled)
        if not late:
            filled.keeper.multi([theirs])
        replicas.insert("r1", value)
        assert pull_log(filled).queued == 1
        if late:
            filled.keeper.multi([theirs])
        assert look_as_known(filled) == nodes(filled)


def test_a_queue_that_was_listed_while_it_was_filled_is_not_counted_twice(
    filled: Replica,
) -> None:
    """1. Our multi lands. 2. Another loop lists the queue, ours in it. 3. We note ours: were it one
    change more, one of somebody else would pass for it.
    """
    known, paths = filled.memory.queue, filled.paths
    before = known.queued(paths)
    [ours] = filled.keeper.multi([another_entry(filled)])
    list_queue(filled.keeper, paths, known, None)
    known.changed(paths, before, filled.keeper.session_id, came=[ours.rpartition("/")[2]])
    filled.keeper.multi([another_entry(filled)])
    assert look_as_known(filled) == nodes(filled)


def test_a_queue_that_one_session_filled_another_one_lists(
    replicas: Replicas, filled: Replica
) -> None:
    """It may be behind: what it counts may be others' changes, and not that one."""
    spying = Spying(replicas.zookeeper.connect())
    assert look_as_known(filled, spying) == nodes(filled)
    assert filled.paths.queue in spying.listed


def test_of_a_pull_without_an_answer_nothing_is_known(
    replicas: Replicas, filled: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have happened, or happen later, when the queue has been looked at."""
    replicas.insert("r1", 5)
    right, late = filled.keeper.multi, []

    def unanswered(ops: Sequence[Op]) -> list[str]:
        late.append(ops)
        raise OutcomeUnknown("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(filled.keeper, "multi", unanswered)
        with pytest.raises(OutcomeUnknown):
            pull_log(filled)
    assert look_as_known(filled) == nodes(filled)
    right(late[0])
    assert look_as_known(filled) == nodes(filled)
    assert len(nodes(filled)) == 3


def test_the_queue_of_a_replica_that_was_made_anew_is_another_one(filled: Replica) -> None:
    """As many came and went as in the old one."""
    queue, keeper, stat = filled.paths.queue, filled.keeper, filled.keeper.exists
    count = stat(queue).children_version
    other = another_entry(filled)
    keeper.multi([*(Delete(f"{queue}/{node}") for node in nodes(filled)), Delete(queue)])
    keeper.multi([Create(queue), *[other] * count])
    assert stat(queue).children_version == count
    assert look_as_known(filled) == nodes(filled)


def test_who_knows_the_queue_waits_for_what_others_do_to_it(
    replicas: Replicas, filled: Replica
) -> None:
    fired: list[str] = []
    executor = replicas.executor("r2", "fetch")
    queue = executor.glance(lambda: fired.append("glance"))
    assert isinstance(queue, Queued)
    assert [*queue.names] == nodes(filled)
    filled.keeper.multi([another_entry(filled)])
    assert fired == ["glance"]


def test_a_long_queue_is_not_kept(
    replicas: Replicas, filled: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be copied whole for each entry that comes or goes."""
    monkeypatch.setattr(known, "QUEUE_KNOWN_MAX", 2)
    replicas.insert("r1", 5)
    pull_log(filled)
    assert filled.memory.queue.queued(filled.paths) is None
    executor = replicas.executor("r2", "fetch")
    assert executor.glance(lambda: None) == tuple(nodes(filled))
    assert filled.memory.queue.queued(filled.paths) is None


def test_who_has_the_part_is_read_with_the_claims(
    replicas: Replicas, filled: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not there then is asked for once more when it is wanted."""
    host, absent = filled.table.replica("r1").host, []
    real, reads = filled.keeper.get_many, []

    def get_many(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        reads.append([*paths])
        found = real(paths)
        if host in paths and not absent:
            absent.append(host)
            found[paths.index(host)] = None
        return found

    monkeypatch.setattr(filled.keeper, "get_many", get_many)
    replicas.clock.passed_s += 60
    executor = replicas.executor("r2", "fetch")
    queue = executor.glance(lambda: None)
    look = executor.look(lambda: None, queue=queue)
    assert [len(batch.left) for batch in look.batches] == [2]
    [together, again] = [asked for asked in reads if host in asked]
    assert filled.paths.executing in together
    assert again == [host]


def test_a_part_is_looked_at_when_its_size_is_asked_for_and_once(replicas: Replicas) -> None:
    """Of hundreds of merges that are queued, with a hundred sources each, one look needs few."""
    parts = [PartName("all", number, number, 0) for number in (90, 91, 92)]
    entry = MergeParts(tuple(parts), merged(parts), create_time=1, source_replica="r1")
    view = QueueView({"queue-0000000000": entry}, {}, parts)
    asked: list[PartName] = []
    facts = queue_facts(replicas["r1"], view, lambda _, part: asked.append(part))
    assert asked == []
    assert facts.sizes.get(parts[1], 7) == facts.sizes.get(parts[1], 7) == 7
    assert asked == [parts[1]]
    assert facts.sizes.get(PartName("all", 95, 95, 0)) is None, "it is not this replica's"
    assert asked == [parts[1]]


def test_for_fetches_nobody_looks_at_the_sources_of_merges(replicas: Replicas) -> None:
    """A fetch pool looks whenever a merge is published, and needs no size."""
    part = replicas.insert("r1", 3)
    entry = MergeParts((part,), merged([part]), create_time=1, source_replica="r1")
    view = QueueView({"queue-0000000000": entry}, {}, [part])
    asked: list[PartName] = []
    facts = queue_facts(replicas["r1"], view, lambda _, part: asked.append(part), merging=False)
    assert facts.sizes == {}


def test_a_part_whose_manifest_is_known_is_not_looked_at_again(replicas: Replicas) -> None:
    """Before it is merged it is: `fetch_or_merge`."""
    part, replica = replicas.insert("r1", 3), replicas["r1"]
    size = replica.store.manifest(part).bytes_on_disk
    view = QueueView({}, {}, [part])
    asked: list[PartName] = []
    facts = queue_facts(replica, view, lambda _, part: asked.append(part))
    assert dict(facts.sizes) == {part: size}
    assert asked == []


def test_a_reader_sees_what_another_process_was_told_before_it_began(
    replicas: Replicas,
) -> None:
    """Its server of the ensemble has yet to hear of it."""
    behind = replicas.zookeeper.connect(lag=lambda unseen: unseen)
    reader = replace(replicas["r1"], keeper=behind, memory=Memory())
    table = replicas.table("r1")
    table._reader.replica = lambda: reader
    assert behind.exists(reader.paths.parts) is not None
    replicas.insert("r1", 3)
    with table.snapshot() as snapshot:
        assert sum(part.manifest.rows for part in snapshot.parts) == 3


def test_what_two_threads_did_to_the_queue_at_once_is_known_of_both(filled: Replica) -> None:
    """In its order, although the one whose entry came last was the first to note it."""
    known, paths, session = filled.memory.queue, filled.paths, filled.keeper.session_id
    gone = nodes(filled)[0]
    before = known_queue(filled)
    first, second = (
        filled.keeper.multi([another_entry(filled)])[0].rpartition("/")[2] for _ in range(2)
    )
    filled.keeper.multi([Delete(paths.queue_entry(gone))])
    known.changed(paths, before, session, came=[second])
    known.changed(paths, before, session, went={gone})
    known.changed(paths, before, session, came=[first])
    spying = Spying(filled.keeper)
    assert look_as_known(filled, spying) == nodes(filled)
    assert [*known_queue(filled).names] == nodes(filled)
    assert spying.listed == []
