"""How much of a packet the blocks of an insert take."""

from dataclasses import replace

import pyarrow as pa
import pytest

from rmt_pipeline.compute.insert import blocks
from rmt_pipeline.protocol.inserts.quorum import Quorum
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
