"""A replacement that was asked for here, and has happened here, is not queued here, once nothing is
left to do for it (P39). And what is known of records of inserts, which saves reading them.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import ZooKeeperUnreachable
from rmt_pipeline.protocol.nodes.formats import QuorumEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.forget import what_to_forget
from rmt_pipeline.replica.partitions import swap
from rmt_pipeline.replica.partitions.swap import Change, Wanted
from rmt_pipeline.replica.pull_log import PutOff, pull_log
from rmt_pipeline.zookeeper.keeper import Create, Delete, SetData
from tests.support.local_replicas import Replicas, definition_of
from tests.support.lost_answers import before, faulty
from tests.support.partitioned import clean_up, dicts, insert, on_disk, rows, swaps, work

NOW = QuerySettings(alter_sync=0, receive_timeout=0)
EMPTY = replace(NOW, allow_replace_partition_from_empty_source=True)
ALL = QuerySettings(alter_sync=2, receive_timeout=0)


def partitioned(replica):
    plain = definition_of(replica, (Column("p", "UInt8"), Column("n", "UInt64")))
    return replace(plain, partition_by=("p",))


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=partitioned) as opened:
        for pair in ((1, 1), (1, 2), (2, 3), (3, 4)):
            insert(opened, pair)
        work(opened)
        pull_log(opened["r1"])
        opened["r1"].memory.passes_by = True
        yield opened


def put(replicas, *pairs, partition, settings=NOW):
    return replicas.table("r1").replace(dicts(pairs), partition=partition, settings=settings)


def queued(replicas, name="r1"):
    return replicas[name].keeper.children(replicas[name].paths.queue)


def pulled(replicas):
    """How many entries the pointer of the first replica moves over, and how many are queued."""
    found = pull_log(replicas["r1"])
    return found.entries, found.queued


def test_what_left_nothing_to_do_is_passed_by(replicas):
    put(replicas, (1, 7), partition="1")
    put(replicas, (2, 8), partition="2")
    assert pulled(replicas) == (2, 0)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 7), (2, 8), (3, 4)]


def test_who_tells_people_of_commands_carries_it_out(replicas):
    replicas["r1"].memory.passes_by = False
    put(replicas, (1, 7), partition="1")
    assert pulled(replicas) == (1, 1)
    assert [done.kind for done in work(replicas, "r1")] == ["REPLACE_RANGE"]


def test_whose_directories_are_there_still_is_carried_out(replicas):
    """He who asked died behind the commit; and of another one all is done."""
    with (
        faulty(replicas["r1"].keeper, swaps, landed=True, error=KeyboardInterrupt()),
        pytest.raises(KeyboardInterrupt),
    ):
        put(replicas, (1, 7), partition="1")
    put(replicas, (2, 8), partition="2")
    assert len(on_disk(replicas, "r1")) == 5
    pull_log(replicas["r1"])
    assert len(queued(replicas)) == 1
    work(replicas)
    assert [one.partition for one in replicas["r1"].store.drops.ranges()] == ["1", "2"]
    clean_up(replicas)
    assert len(on_disk(replicas, "r1")) == 3
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 7), (2, 8), (3, 4)]


def test_whose_ids_are_there_still_is_carried_out(replicas, monkeypatch):
    """They did not fit into the multi."""
    monkeypatch.setattr(swap, "with_forgetting", lambda _replica, ops, _dropped: (ops, True))
    put(replicas, (1, 7), partition="1")
    assert pulled(replicas) == (1, 1)
    work(replicas)
    assert insert(replicas, (1, 1)).rows == 1
    assert rows(replicas, "r1") == [(1, 1), (1, 7), (2, 3), (3, 4)]


def test_whose_rows_somebody_waits_for_is_carried_out(replicas):
    """Nobody waits for a quorum of what is gone."""
    put(replicas, (1, 7), partition="1")
    table = replicas["r1"].table
    waits = table.quorum_of("1_0_0_0")
    entry = QuorumEntry(PartName.parse("1_0_0_0"), 2, ("r1",))
    replicas["r1"].keeper.multi([Create(waits, entry.encode())])
    assert pulled(replicas) == (1, 1)
    work(replicas)
    assert replicas["r1"].keeper.exists(waits) is None


def test_whose_new_part_is_gone_again_is_queued(replicas):
    [part] = put(replicas, (1, 7), partition="1").parts
    work(replicas, "r2")
    replicas["r1"].keeper.multi([Delete(replicas["r1"].paths.part(part))])
    assert pulled(replicas) == (1, 1)
    replicas["r1"].store.remove(part)
    work(replicas)
    assert rows(replicas, "r1") == [(1, 7), (2, 3), (3, 4)]


def test_rows_whose_entry_was_put_off_do_not_come_back_once_they_are_replaced(replicas):
    """1. A row is inserted here, and its entry put off. 2. It is replaced. 3. The entry is pulled:
    its part is not here, and another replica has it still.
    """
    put_off = PutOff()
    insert(replicas, (1, 5))
    pull_log(replicas["r1"], put_off=put_off)
    work(replicas, "r2")
    put(replicas, (1, 7), partition="1")
    assert pulled(replicas) == (1, 0)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 7), (2, 3), (3, 4)]


@pytest.mark.parametrize("new", [((1, 7),), ()])
def test_who_was_cloned_since_from_one_that_is_behind_carries_it_out(replicas, new):
    """What was replaced is queued here again."""
    work(replicas)
    put(replicas, *new, partition="1", settings=EMPTY)
    assert cloned_again(replicas) == "r2"
    assert pulled(replicas) == (1, 1)
    work(replicas, "r1")
    assert rows(replicas, "r1") == [*new, (2, 3), (3, 4)]
    work(replicas)
    assert rows(replicas, "r2") == [*new, (2, 3), (3, 4)]


def test_who_reads_the_log_of_before_once_more_carries_it_out(tmp_path):
    """Cloned from one that has read nothing: what was replaced is in the log before it."""
    with Replicas(tmp_path, ["r1", "r2", "r3"], define=partitioned) as three:
        insert(three, (1, 1), at="r3")
        insert(three, (2, 2), at="r3")
        work(three, "r1")
        put(three, (1, 7), partition="1")
        assert cloned_again(three) == "r2"
        three["r1"].memory.pull_batch = 10
        assert pulled(three) == (3, 3)
        work(three, "r1")
        assert rows(three, "r1") == [(1, 7), (2, 2)]


@pytest.mark.parametrize("is_disk_lost", [False, True])
def test_what_a_clone_has_got_back_goes_with_the_entry(replicas, is_disk_lost):
    """Also what has no directory any more, and would be fetched once more."""
    work(replicas)
    put(replicas, partition="1", settings=EMPTY)
    cloned_again(replicas)
    while replicas.executor("r1", "fetch").step(None).did_something:
        pass
    assert rows(replicas, "r1") == [(1, 1), (1, 2), (2, 3), (3, 4)]
    for part in replicas.stores["r1"].parts() if is_disk_lost else ():
        if part.partition == "1":
            replicas.stores["r1"].remove(part)
    assert pulled(replicas) == (1, 1)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(2, 3), (3, 4)]


def cloned_again(replicas) -> str:
    """From whom, once the first replica was marked lost and has started again."""
    first = replicas["r1"]
    first.keeper.multi([SetData(first.paths.is_lost, b"1")])
    replicas.stop("r1")
    cloned = replicas.come_back("r1").cloned
    replicas["r1"].memory.passes_by = True
    assert cloned is not None
    return cloned.source


def test_what_cannot_be_read_stops_nobody_who_pulls(replicas):
    """Who carries the entry out says so."""
    put(replicas, (1, 7), partition="1")
    table = replicas["r1"].table
    replicas["r1"].keeper.multi([Create(table.quorum_status, b"nonsense")])
    assert pulled(replicas) == (1, 1)


def test_what_was_answered_has_happened_though_zookeeper_is_away_at_once(replicas):
    away = []

    def living():
        if away:
            raise ZooKeeperUnreachable("away")
        return replicas["r1"]

    def sent(op):
        away.extend([op] * swaps(op))
        return False

    with suppress(AssertionError), before(replicas["r1"].keeper, sent, lambda: None):
        swapped = swap.swap(living, Wanted((Change("1"),)))
    assert away
    assert [str(part) for part in swapped.gone] == ["1_0_0_0", "1_1_1_0"]


def test_who_waits_for_all_does_not_wait_for_the_one_where_it_has_happened(replicas):
    replicas.stop("r2")
    settings = replace(ALL, alter_sync=3)
    assert put(replicas, (1, 7), partition="1", settings=settings).rows_added == 1


# --- records ----------------------------------------------------------------------------------


@pytest.fixture
def records_read(replicas, monkeypatch) -> list[str]:
    """The names of the records that were read."""
    found: list[str] = []
    keeper, table = replicas["r1"].keeper, replicas["r1"].table
    get_many = type(keeper).get_many

    def noted(self, paths):
        parent = f"{table.inserts}/"
        found.extend(path.removeprefix(parent) for path in paths if path.startswith(parent))
        return get_many(self, paths)

    monkeypatch.setattr(type(keeper), "get_many", noted)
    return found


def whole(partition: str) -> PartName:
    return PartName.parse(f"{partition}_0_998_999999999_999999999")


def forgotten(replicas, partition: str) -> list[str]:
    """The records that go with the partition."""
    table = replicas["r1"].table
    ops = [op for some in what_to_forget(replicas["r1"], [whole(partition)]) for op in some]
    return sorted(op.path for op in ops if op.path.startswith(f"{table.inserts}/"))


def test_records_of_other_partitions_are_read_once(replicas, records_read):
    assert len(forgotten(replicas, "1")) == 2
    assert len(records_read) == 4
    records_read.clear()
    assert len(forgotten(replicas, "2")) == 1
    assert len(records_read) == 1
    put(replicas, (1, 7), partition="1")
    records_read.clear()
    assert len(forgotten(replicas, "3")) == 1
    assert len(records_read) == 1


def test_a_record_that_went_and_came_again_is_read_again(replicas):
    """With one token, and rows of another partition; both elsewhere."""
    insert(replicas, (1, 20), token="twice")
    assert len(forgotten(replicas, "3")) == 1
    replicas.table("r2").drop_partitions(["1"], settings=NOW)
    insert(replicas, (3, 21), token="twice", at="r2")
    assert len(forgotten(replicas, "3")) == 2


@pytest.mark.parametrize("at", ["r1", "r2"])
def test_a_record_that_was_replaced_here_and_came_again_is_read_again(replicas, at):
    """That of a replacement comes in one write, and has the partitions that its rows have."""
    replicas.table("r1").replace(dicts([(1, 20)]), token="twice", settings=NOW)
    assert len(forgotten(replicas, "3")) == 1
    put(replicas, (1, 8), partition="1")
    work(replicas)
    replicas.table(at).replace(dicts([(3, 21)]), token="twice", settings=NOW)
    work(replicas, at)
    assert len(forgotten(replicas, "3")) == 1


@pytest.fixture
def ids_listed(replicas) -> Iterator[list[str]]:
    """The node of the ids, each time that the first replica lists it."""
    keeper, node = replicas["r1"].keeper, replicas["r1"].table.blocks
    right = keeper.session
    found: list[str] = []

    class Listing:
        def __getattr__(self, name):
            return getattr(right, name)

        def children_stat(self, path, watch=None):
            found.extend([path] * (path == node))
            return right.children_stat(path, watch)

    keeper.session = Listing()
    yield found
    keeper.session = right


def test_ids_are_listed_once_as_long_as_only_this_session_replaces(replicas, ids_listed):
    for number in range(7, 10):
        put(replicas, (1, number), partition="1")
    assert len(ids_listed) == 1
    insert(replicas, (2, 20), at="r2")
    put(replicas, (1, 10), partition="1")
    assert len(ids_listed) == 2


@pytest.mark.parametrize("at", ["r1", "r2"])
def test_ids_that_came_since_they_were_listed_go_with_their_rows(replicas, at):
    put(replicas, (1, 7), partition="1")
    insert(replicas, (1, 9), at=at)
    put(replicas, (1, 8), partition="1")
    assert insert(replicas, (1, 9)).rows == 1
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 8), (1, 9), (2, 3), (3, 4)]


def test_a_record_of_which_a_partition_was_dropped_is_read_again(replicas):
    """A retry brings that one back."""
    insert(replicas, (5, 1), (6, 1))
    replicas.table("r1").drop_partitions(["5"], settings=NOW)
    work(replicas)
    replicas["r1"].memory.records = type(replicas["r1"].memory.records)()
    assert len(forgotten(replicas, "6")) == 1
    insert(replicas, (5, 1), (6, 1))
    assert forgotten(replicas, "5")
