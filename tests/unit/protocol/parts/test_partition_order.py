"""The order of what one OPTIMIZE or TRUNCATE writes is the one that ClickHouse 18.16 was seen to
write.
"""

import pytest

from rmt_pipeline.protocol.parts.partition_order import order_of_optimize, order_of_truncate

TWELVE = sorted(str(number) for number in range(12))
SIXTEEN = sorted(str(number) for number in range(16))


@pytest.mark.parametrize(
    ("partitions", "recorded"),
    [
        (TWELVE, "9 8 7 6 4 2 11 5 3 1 10 0"),
        (SIXTEEN, "8 7 10 9 0 1 3 5 11 12 15 13 14 2 4 6"),
    ],
)
def test_merges_of_all_partitions_come_as_recorded(partitions, recorded):
    """The second table of hashes has grown once."""
    assert " ".join(order_of_optimize(partitions)) == recorded


@pytest.mark.parametrize(
    ("partitions", "recorded"),
    [
        (TWELVE, "0 11 1 2 3 4 5 6 7 8 9 10"),
        (SIXTEEN, "11 12 13 14 15 0 1 2 3 4 5 6 7 8 9 10"),
    ],
)
def test_drops_of_all_partitions_come_as_recorded(partitions, recorded):
    assert " ".join(order_of_truncate(partitions)) == recorded


def test_no_partition_is_left_out_however_many_there_are():
    for count in (0, 1, 13, 14, 29, 30, 1_000, 30_000):
        many = [f"2018{number:05}" for number in range(count)]
        assert sorted(order_of_optimize(many)) == many
        assert sorted(order_of_truncate(many)) == many
