"""An insert of more partitions than one packet of a real ZooKeeper takes."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.nodes.records import InsertRecord
from rmt_pipeline.protocol.settings.query import QuerySettings
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.replica.insert.result import Outcome
from tests.support.lost_answers import logs
from tests.support.mortal_disk import Died
from tests.support.serving import definition_of, table_of_one_server

pytestmark = pytest.mark.zookeeper

PARTITIONS = 1_000
ROWS = [{"n": n, "p": f"a partition with a long name {n}"} for n in range(PARTITIONS)]
WHOLE = QuerySettings(max_partitions_per_insert_block=0)
OTHER_CUT = replace(WHOLE, max_insert_block_size=300, min_insert_block_size_rows=300)


def partitioned(root):
    columns = (Column("n", "UInt64"), Column("p", "String"))
    return replace(definition_of(root), columns=columns, partition_by=("p",))


@pytest.fixture
def table(alone, chroot):
    with table_of_one_server(alone, f"{chroot}/t", partitioned) as found:
        yield found


def test_a_large_insert_that_dies_between_its_commits_is_completed_by_a_retry(table):
    """P37. Hundreds of partitions go into each commit, and the packet is not too large."""
    keeper = table.replica.keeper
    multi, sizes = keeper.multi, []

    def dies_at_the_second(ops):
        if any(map(logs, ops)):
            sizes.append(sum(map(logs, ops)))
            if len(sizes) == 2:
                raise Died
        return multi(ops)

    keeper.multi = dies_at_the_second
    with pytest.raises(Died):
        table.insert(ROWS, settings=WHOLE)
    assert 500 < sizes[0] < PARTITIONS, "as many as a packet takes"
    assert sum(part.manifest.rows for part in table.parts()) == sizes[0]
    result = table.insert(list(reversed(ROWS)), settings=OTHER_CUT)
    keeper.multi = multi
    assert (result.outcome, result.rows) == (Outcome.RESUMED, PARTITIONS - sizes[0])
    parts = table.parts()
    assert sum(part.manifest.rows for part in parts) == PARTITIONS
    assert len({part.name.partition for part in parts}) == PARTITIONS
    [name] = keeper.children(table.replica.table.inserts)
    record = InsertRecord.decode(keeper.get(table.replica.table.insert(name))[0])
    assert (record.is_whole, record.rows_in) == (True, PARTITIONS)
