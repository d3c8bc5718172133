"""How much of a packet the blocks of an insert take, and which of them are left out."""

from dataclasses import replace

import pyarrow as pa
import pytest

from rmt_pipeline.compute.insert import blocks
from rmt_pipeline.protocol.inserts.quorum import Quorum
from rmt_pipeline.protocol.log.codec import decode
from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.replica.insert.blocks import PartitionBlocks, StagedBlock, group_bytes
from rmt_pipeline.replica.insert.quorum import QuorumWait
from rmt_pipeline.replica.insert.result import InsertIdentity, block_id_of
from rmt_pipeline.system import EventWaker
from tests.support.local_replicas import Replicas, partitioned


@pytest.mark.parametrize("insert_quorum", ["0", "2"])
@pytest.mark.parametrize("token", ["", "named"])
def test_a_block_is_as_large_as_others_of_its_lengths(tmp_path, insert_quorum, token):
    """What is known of one serves for others, and for none that takes more or less."""
    numbers = [n for n in range(300) for _ in range(n % 3 * 7 + 1)]
    rows = pa.table(
        {
            "p": pa.array([n % 128 for n in numbers], pa.uint8()),
            "n": pa.array(numbers, pa.uint64()),
        }
    )
    with Replicas(tmp_path, define=partitioned) as replicas:
        replica = replicas["r1"]
        identity = InsertIdentity(insert_id="one", by_block=True, token=token)
        query = QuerySettings(max_partitions_per_insert_block=0)
        quorum = Quorum.of(replace(query, insert_quorum=insert_quorum))
        waits = QuorumWait(quorum, EventWaker())
        groups = []
        for number, block in enumerate(blocks.blocks_of([rows], replica.definition, query)):
            staged = blocks.stage(block, replica.store, insert_id="one", run_id="", created_s=0)
            one = StagedBlock(staged, block_id_of(staged, identity, number), number)
            groups.append(PartitionBlocks(block.partition_id, [one]))
        sizes: dict[tuple[int, ...], int] = {}
        weighed = [group_bytes(replica, group, waits, sizes) for group in groups]
        assert weighed == [group_bytes(replica, group, waits, {}) for group in groups]
        assert 1 < len(sizes) < len(groups)


@pytest.mark.parametrize("there", [(), (0,), (0, 1), (1, 2), (2,)])
def test_what_is_in_is_looked_for_among_all_blocks_each_time(tmp_path, there):
    """The record said that the first block is in. Read again, it says that others are, as others
    were brought by another process, or the first was lost: nothing of before may be left.
    """
    with Replicas(tmp_path, define=partitioned) as replicas:
        replica = replicas["r1"]
        identity = InsertIdentity(insert_id="one", by_block=True, token="")
        rows = [pa.table({"p": pa.array([7], pa.uint8()), "n": [n]}) for n in range(3)]
        one = QuerySettings(max_insert_block_size=1, min_insert_block_size_rows=0)
        given = []
        for number, block in enumerate(blocks.blocks_of(rows, replica.definition, one)):
            staged = blocks.stage(block, replica.store, insert_id="one", run_id="", created_s=0)
            given.append(StagedBlock(staged, block_id_of(staged, identity, number), number))
        assert len(given) == 3
        group = PartitionBlocks("7", [*given])
        assert group.leave_out([given[0].line(0, 0, 0)], identity.token, 1)
        assert (group.ours, group.blocks) == (given[:1], given[1:])
        assert group.leave_out([given[at].line(at, at, at) for at in there], identity.token, 2)
        assert group.ours == [given[at] for at in there]
        assert group.blocks == [one for at, one in enumerate(given) if at not in there]


def test_the_log_has_the_blocks_in_the_order_of_the_data(tmp_path):
    """And not by partition: a replica that follows sees the first rows first."""
    with Replicas(tmp_path, define=partitioned) as replicas:
        rows = pa.table({"p": pa.array([7, 8] * 3, pa.uint8()), "n": range(6)})
        twos = {"max_insert_block_size": "2", "min_insert_block_size_rows": "1"}
        result = replicas.table("r1").insert(rows, settings=twos)
        table, keeper = replicas["r1"].table, replicas["r1"].keeper
        log = keeper.get_many(
            [table.log_entry(name) for name in sorted(keeper.children(table.log))]
        )
        logged = [str(decode(data).part) for data, _ in filter(None, log)]
        assert logged == [f"{partition}_{n}_{n}_0" for n in range(3) for partition in (7, 8)]
        assert [str(part) for part in result.parts] == logged
        record = InsertRecord.decode(keeper.get(table.insert(result.insert_id))[0])
        lines = [(line.partition, line.first, line.last) for line in record.partitions]
        assert sorted(lines) == [
            (str(partition), n, n) for partition in (7, 8) for n in range(3)
        ]
