"""A look reads what may have changed, and is as right as one that reads everything."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmt_pipeline.protocol.errors import ReplicaDropped
from rmt_pipeline.protocol.log.entry import result_of
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.life.drop import delete_tree
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.replica.readable import readable_parts
from rmt_pipeline.replica.replica import Replica
from rmt_pipeline.zookeeper.keeper import Create, Delete, Keeper, Op, Refused, SetData, Stat
from rmt_pipeline.zookeeper.snapshot import QueueSnapshot, parts_now, queue_snapshot
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

    def children_stat(self, path: str) -> tuple[list[str], Stat]:
        self.listed.append(path)
        return self._keeper.children_stat(path)

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
    assert seen.entries == ()
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
    seen = queue_snapshot(replica.keeper, replica.paths, replica.memory.queue, names=names)
    assert part in [result_of(entry) for _, entry in seen.entries]
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
    assert reads == []
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
