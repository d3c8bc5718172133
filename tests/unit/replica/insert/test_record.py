"""What is known of an insert that is in part, after the same insert was sent again."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.nodes.records import InsertRecord, MissingRows, PartitionRows
from rmt_pipeline.replica.insert.record import Known

ROWS = f"{70:032x}"  # the sum of the hashes of all rows, as they were given
OTHERS = f"{71:032x}"


def line(partition: str, rows: int, row_hash: int, *blocks: int) -> PartitionRows:
    """Of the first and the last of these blocks."""
    return PartitionRows(partition, rows, f"{row_hash:032x}", blocks[0], blocks[-1])


ALONE = (line("0", 2, 10, 0), line("0", 3, 20, 1), line("1", 5, 40, 0))
TOGETHER = (line("0", 5, 30, 0, 1), line("1", 5, 40, 0))
"""The same rows in three blocks, and in two, one of them merged of two."""


def known(
    lines: tuple[PartitionRows, ...],
    *missing: tuple[str, int],
    row_hash: str,
    rows: int = 12,
    rows_in: int = 10,
) -> Known:
    """12 rows were given, as far as that is known, of which 10 are in."""
    gone = tuple(MissingRows(*one) for one in missing)
    record = InsertRecord(0, "r1", "", (), len(lines), rows, row_hash, rows_in, 1, gone)
    return Known(record, 3, lines)


AGAIN = InsertRecord(0, "r2", "", (), 0, 12, ROWS, 0)


def missing(found: Known) -> list[tuple[str, int]]:
    return [(one.partition, one.rows) for one in found.record.missing]


@pytest.mark.parametrize("given", [ALONE, TOGETHER])
@pytest.mark.parametrize("there", [ALONE, TOGETHER])
def test_a_record_that_was_put_together_from_parts_learns_from_what_is_sent_again(there, given):
    """How many rows there are in all, and that a partition has all of its rows, however they were
    cut and are cut now.
    """
    before = known(there, ("0", 0), ("1", 0), row_hash="", rows=10)
    found = before.said_again(AGAIN, given)
    assert (found.record.rows, found.record.row_hash) == (12, ROWS)
    assert missing(found) == []
    assert (found.version, found.lines) == (3, there)


@pytest.mark.parametrize(
    "given",
    [(line("0", 6, 30, 0), line("1", 5, 40, 1)), (line("0", 5, 31, 0), line("1", 5, 40, 1))],
    ids=["another count", "another sum"],
)
def test_a_partition_with_other_rows_than_are_sent_still_misses_some(given):
    found = known(TOGETHER, ("0", 0), ("1", 0), row_hash="", rows=10).said_again(AGAIN, given)
    assert missing(found) == [("0", 0)]


def test_no_record_has_fewer_rows_in_all_than_are_in():
    """What is sent under the token of an insert that was put together may be less."""
    before = known(TOGETHER, ("0", 0), row_hash="", rows=10)
    assert before.said_again(replace(AGAIN, rows=4), ALONE).record.rows == 10


@pytest.mark.parametrize(
    ("there", "gone", "left"),
    [
        (ALONE, ("0", 0), []),
        (TOGETHER, ("0", 0), [("0", 0)]),
        (TOGETHER, ("1", 0), []),
        (ALONE, ("0", 2), [("0", 2)]),
    ],
    ids=["each block", "some blocks may be lost", "of another partition", "so many are lost"],
)
def test_a_record_that_the_insert_wrote_believes_its_own_lines_alone(there, gone, left):
    """Of a line that spans blocks some may be lost, and the line stays as it was."""
    found = known(there, gone, row_hash=ROWS).said_again(replace(AGAIN, rows=99), ALONE)
    assert missing(found) == left
    assert found.record.rows == 12


@pytest.mark.parametrize(
    "before",
    [
        known(TOGETHER, row_hash="", rows=10),
        known(TOGETHER, row_hash=ROWS, rows=10),
        known(TOGETHER, ("0", 0), row_hash=OTHERS),
    ],
    ids=["whole, of parts", "whole", "of other rows"],
)
def test_what_is_whole_or_had_other_rows_learns_nothing(before):
    assert before.said_again(AGAIN, ALONE) is before
