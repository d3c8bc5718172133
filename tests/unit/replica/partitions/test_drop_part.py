"""DROP PART on two replicas (spec §9.4)."""

from collections.abc import Iterator

import pytest

from rmt_pipeline.protocol.background import Background
from rmt_pipeline.protocol.inserts.ids import insert_id_of_token
from rmt_pipeline.protocol.log.entry import DropPart
from rmt_pipeline.protocol.nodes.records import InsertRecord, PartitionRows
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.assign.merges import optimize_partition
from rmt_pipeline.replica.insert.record import read_record
from rmt_pipeline.replica.insert.result import Outcome
from rmt_pipeline.replica.partitions.drop import NoSuchPart, PartIsLocked
from rmt_pipeline.replica.partitions.inside import in_no_part
from rmt_pipeline.replica.pull_log import pull_log
from rmt_pipeline.zookeeper.keeper import Create
from tests.support.local_replicas import Replicas, partitioned
from tests.support.lost_answers import before
from tests.support.partitioned import insert, on_disk, rows, work

NOW = QuerySettings(alter_sync=0)


@pytest.fixture
def replicas(tmp_path) -> Iterator[Replicas]:
    with Replicas(tmp_path, define=partitioned) as opened:
        yield opened


def drops(op):
    return isinstance(op, Create) and b"drop\n" in op.data


def test_a_part_is_dropped_by_its_name_alone(replicas):
    """§9.4. What was inserted beside it stays, and is known still."""
    first, second = (insert(replicas, (1, n)).parts[0] for n in (1, 2))
    replicas.table("r1").drop_part(first, settings=NOW)
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [(1, 2)]
    assert insert(replicas, (1, 2)).outcome is Outcome.DUPLICATE
    assert insert(replicas, (1, 1)).outcome is Outcome.INSERTED
    with pytest.raises(NoSuchPart, match="no active part 1_0_0_0"):
        replicas.table("r1").drop_part(first, settings=NOW)
    assert str(second) in on_disk(replicas, "r2")


def test_a_part_of_an_insert_in_several_blocks_is_dropped_and_does_not_come_twice(replicas):
    """The record of the insert knows the partition, not the block: it stays."""
    small = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)
    result = insert(replicas, (1, 1), (1, 2), settings=small, token="a token")
    assert len(result.parts) == 2
    replicas.table("r1").drop_part(result.parts[0], settings=NOW)
    work(replicas)
    assert insert(replicas, (1, 1), (1, 2), token="a token").outcome is Outcome.DUPLICATE
    assert len(rows(replicas, "r1")) == 1


@pytest.mark.parametrize("token", ["", "a token"])
@pytest.mark.parametrize("is_worked", [True, False])
def test_when_all_parts_of_an_insert_are_dropped_one_by_one_it_can_be_said_again(
    replicas, token, is_worked
):
    """Also if no replica has carried out the drop of the others, and however it is cut."""
    small = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)
    pairs = ((1, 1), (1, 2), (1, 3))
    parts = insert(replicas, *pairs, settings=small, token=token).parts
    insert(replicas, (1, 9))
    for number, part in enumerate(parts, start=1):
        replicas.table("r1").drop_part(part, settings=NOW)
        if is_worked:
            work(replicas)
        if number < len(parts):
            again = insert(replicas, *pairs, token=token, settings=small)
            assert again.outcome is Outcome.DUPLICATE, number
    assert insert(replicas, *pairs, token=token).outcome is Outcome.INSERTED
    work(replicas)
    assert rows(replicas, "r1") == rows(replicas, "r2") == [*pairs, (1, 9)]


def test_a_part_that_is_being_merged_is_not_dropped(replicas):
    """D10, D4."""
    [first] = insert(replicas, (1, 1)).parts
    insert(replicas, (1, 2))
    optimize_partition(replicas["r1"], "1", final=True, skip_merged=False)
    with pytest.raises(PartIsLocked, match="already going to become part of 1_0_1_1"):
        replicas.table("r1").drop_part(first, settings=NOW)
    work(replicas)
    with pytest.raises(NoSuchPart, match="it became part of 1_0_1_1"):
        replicas.table("r1").drop_part(first, settings=NOW)


def test_a_merge_that_is_assigned_at_the_same_time_comes_first(replicas):
    """D4: the version of the log lets one of them win."""
    [first] = insert(replicas, (1, 1)).parts
    insert(replicas, (1, 2))

    def merge():
        optimize_partition(replicas["r1"], "1", final=True, skip_merged=False)

    work(replicas)
    with before(replicas["r2"].keeper, drops, merge), pytest.raises(PartIsLocked):
        replicas.table("r2").drop_part(first, settings=NOW)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_who_is_behind_does_not_take_a_block_that_is_to_come_for_one_that_went(
    replicas, monkeypatch, is_stopped
):
    """r2 has the drops of the two first blocks of an insert, and not yet the third, which a retry
    brought after them. Its record would be forgotten, and a retry bring the third once more.
    """
    small = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=1)
    parts = insert(replicas, (1, 1), (1, 2), settings=small, token="a token").parts
    work(replicas)
    for part in parts:
        replicas.table("r1").drop_part(part, settings=NOW)
        pull_log(replicas["r2"])
    keeper, table = replicas["r1"].session, replicas["r1"].table
    path = table.insert(insert_id_of_token("a token"))
    assert keeper.exists(path) is None, "both are gone"
    [came] = insert(replicas, (1, 3)).parts
    lines = [PartitionRows("1", 1, f"{n:032x}", n, n, n, n) for n in (0, 1, came.block_min)]
    record = InsertRecord(0, "r1", "", tuple(lines), 3, 3, f"{9:032x}", 3)
    keeper.multi([Create(path, record.encode())])
    if is_stopped:
        replicas.stores["r2"].marks.stop(Background.PULLING_REPLICATION_LOG)
    executor = replicas.executor("r2", "fetch")
    while executor.step(None).did_something:
        pass
    left = read_record(replicas["r1"], insert_id_of_token("a token"))
    assert left is not None
    assert came.block_min in {line.first for line in left.lines}
    assert parts[0] not in map(PartName.parse, replicas.parts("r2"))


def test_of_many_blocks_and_drops_each_is_looked_up(monkeypatch):
    """Of an insert of thousands of blocks, all of which are being dropped one by one."""
    blocks = [PartName("1", number, number, 0) for number in range(500)]
    queue = [DropPart(create_time=0, source_replica="r1", part=one) for one in blocks[:400]]
    right, asked = PartName.contains, [0]

    def counted(one: PartName, other: PartName) -> bool:
        asked[0] += 1
        return right(one, other)

    monkeypatch.setattr(PartName, "contains", counted)
    assert in_no_part(blocks, (PartSet(blocks[:450]),), queue) == blocks[:400] + blocks[450:]
    assert asked[0] <= 10 * len(blocks)
