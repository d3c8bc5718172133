"""What is left of an insert when some of it is dropped, lost or moved (P37, P38)."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.inserts.rows import InsertRows, Moved, blocks_there, with_missing
from rmt_pipeline.protocol.nodes.records import (
    UNKNOWN_BLOCK,
    InsertBatch,
    InsertRecord,
    MissingRows,
    PartitionRows,
)
from rmt_pipeline.protocol.parts.name import drop_range
from tests.support.protocol import part, parts


def line(partition: str, first: int, last: int | None = None, rows: int = 2) -> PartitionRows:
    return PartitionRows(
        partition, rows, f"{first:032x}", first, first if last is None else last
    )


BLOCKS = (line("a", 3), line("a", 4), line("b", 7))
WHOLE = InsertRows(InsertRecord(0, "r1", "", BLOCKS, 3, 6, "a" * 32, 6))
OLD = InsertRows(
    replace(WHOLE.record, partitions=(line("a", 3, 4, 4), PartitionRows("b", 2, "b" * 32)))
)
IN_PART = InsertRows(
    replace(WHOLE.record, rows=9, batches=1, partitions=()), (InsertBatch(BLOCKS),)
)


def of(rows: InsertRows) -> list[tuple[str, int]]:
    return [(one.partition, one.first) for one in rows.lines]


@pytest.mark.parametrize("rows", [WHOLE, OLD, IN_PART])
def test_a_drop_takes_its_partitions_out_of_an_insert(rows: InsertRows) -> None:
    """P6. A retry then brings back just those. It is as whole as it was."""
    left = rows.after_drop([drop_range("a", 5), drop_range("z", 9)], "rows-")
    assert {one.partition for one in left.lines} == {"b"}
    assert left.record.is_whole == rows.record.is_whole
    assert rows.record.rows_in - left.record.rows_in == (4 if rows is IN_PART else 0)
    left = left.after_drop([drop_range("b", 9)], "rows-")
    assert left.is_nothing == rows.record.is_whole
    assert (rows is not IN_PART) or left.record.rows_in == 0


@pytest.mark.parametrize("rows", [WHOLE, OLD, IN_PART])
def test_what_was_inserted_beside_or_after_what_was_dropped_stays_known(
    rows: InsertRows,
) -> None:
    """P38. A range that ends before blocks 3 and 4, or has one of them, took less than that."""
    for kept in (drop_range("a", 3), drop_range("a", 4), *parts("a_4_4_0 a_0_3_2 c_0_9_3")):
        assert rows.after_drop([kept], "rows-") == rows
    assert of(rows.after_drop(parts("a_3_4_1"), "rows-")) == of(rows)[-1:]
    assert (
        of(rows.after_drop(parts("a_3_3_0 a_4_4_0"), "rows-")) == of(rows)[-1:] or rows is OLD
    )


def test_of_a_record_that_does_not_say_its_blocks_only_a_whole_partition_is_believed() -> None:
    assert OLD.after_drop(parts("b_0_9_3"), "rows-") == OLD
    assert OLD.after_loss(part("b_0_9_3"), "rows-") == OLD


def test_of_several_blocks_the_one_that_is_lost_is_missing() -> None:
    left = WHOLE.after_loss(part("a_3_3_0"), "rows-")
    assert of(left) == [("a", 4), ("b", 7)]
    assert left.record.missing == (MissingRows("a", 2),)
    assert not left.record.is_whole
    assert (left.record.rows_in, left.record.rows_there) == (6, 4)
    assert WHOLE.after_loss(part("a_2_2_0"), "rows-") == WHOLE


@pytest.mark.parametrize("rows", [WHOLE, IN_PART])
def test_when_nothing_of_a_partition_is_left_it_is_missing_as_a_whole(rows: InsertRows) -> None:
    """A retry that is cut in any way brings it back."""
    left = rows
    for lost in parts("a_3_3_0 a_4_4_0"):
        left = left.after_loss(lost, "rows-")
    assert left == rows.after_drop([drop_range("a", 5)], "rows-")
    assert rows.after_loss(part("a_0_9_2"), "rows-") == left


def test_a_drop_of_what_is_left_ends_that_rows_are_missing() -> None:
    left = WHOLE.after_loss(part("a_3_3_0"), "rows-").after_drop([drop_range("a", 9)], "rows-")
    assert left == WHOLE.after_drop([drop_range("a", 9)], "rows-")


def test_nobody_knows_how_much_of_several_blocks_in_one_line_is_lost() -> None:
    """P4. In the format before."""
    left = OLD.after_loss(part("a_3_3_0"), "rows-")
    assert left.record.missing == (MissingRows("a", 0),)
    assert left.lines == OLD.lines
    again = left.after_loss(part("a_4_4_0"), "rows-")
    assert again.record.missing == (MissingRows("a", 0),)
    more = with_missing(again.record.missing, MissingRows("a", 2))
    assert more == (MissingRows("a", 0),), "so many more than nobody knows"
    assert OLD.after_loss(part("a_0_9_2"), "rows-").record.missing == ()


def test_a_replacement_lacks_also_a_partition_of_which_nothing_is_left() -> None:
    """It can't be done again in that alone; but when nothing of it is left."""
    left = WHOLE.after_loss(part("b_7_7_0"), "replace-")
    assert left.record.missing == (MissingRows("b", 2),)
    assert of(left) == [("a", 3), ("a", 4)]
    assert left.after_drop([drop_range("z", 9)], "replace-") == left, "nothing of it went"
    assert left.after_drop([drop_range("b", 9)], "replace-").is_nothing
    first, last = parts("a_3_3_0 a_4_4_0")
    left = left.after_loss(first, "replace-")
    assert left.record.missing
    assert left.after_loss(last, "replace-").is_nothing
    alone = InsertRows(replace(WHOLE.record, partitions=BLOCKS[2:]))
    assert alone.after_loss(part("b_7_7_0"), "replace-").is_nothing


def test_a_partition_without_rows_says_nothing_of_a_replacement() -> None:
    """It had none to bring: the others stay."""
    empty = line("b", 7, rows=0)
    rows = InsertRows(replace(WHOLE.record, partitions=(*BLOCKS[:2], empty)))
    left = rows.after_drop([drop_range("b", 9)], "replace-")
    assert of(left) == [("a", 3), ("a", 4)]
    assert rows.after_drop([drop_range("a", 9)], "replace-").is_nothing


def test_an_insert_is_nothing_when_it_is_whole_and_has_no_line() -> None:
    assert not WHOLE.is_nothing
    empty = InsertRows(replace(WHOLE.record, partitions=()))
    assert empty.is_nothing
    assert not InsertRows(replace(empty.record, rows_in=5)).is_nothing


def test_how_many_rows_are_lost_is_known_only_if_each_line_is_lost_whole() -> None:
    both = InsertRows(replace(WHOLE.record, partitions=(line("a", 3, 4), *BLOCKS[2:])))
    more = replace(both, batches=(InsertBatch((line("a", 5), line("a", 6))),))
    left = more.after_loss(part("a_4_5_1"), "rows-")
    assert left.record.missing == (MissingRows("a", 0),)
    assert of(left) == [("a", 3), ("b", 7), ("a", 6)]


LOST_BEFORE = replace(IN_PART, record=replace(IN_PART.record, missing=(MissingRows("c", 1),)))


def test_of_an_insert_in_part_the_rows_that_go_are_counted_no_more() -> None:
    """Those that are missing of a partition, too, and of no other one."""
    assert LOST_BEFORE.after_drop([drop_range("a", 9)], "rows-").record.rows_in == 2
    assert LOST_BEFORE.after_drop([drop_range("c", 9)], "rows-").record.rows_in == 5
    left = LOST_BEFORE.after_drop([drop_range("b", 9)], "rows-").record
    assert (left.rows_in, left.missing) == (4, (MissingRows("c", 1),))


@pytest.mark.parametrize("kept", parts("c_0_9_3 c_2_9_999999999_999999999 d_0_9_999999999_9"))
def test_what_is_missing_as_a_whole_goes_with_its_whole_partition_alone(kept) -> None:
    assert LOST_BEFORE.after_drop([kept], "rows-") == LOST_BEFORE


def test_lines_that_never_came_in_are_taken_out_of_the_count() -> None:
    left = IN_PART.without_lines(BLOCKS[:1])
    assert (of(left), left.record.rows_in) == ([("a", 4), ("b", 7)], 4)
    assert IN_PART.without_lines(()) == IN_PART
    assert IN_PART.without_lines(BLOCKS).record.rows_in == 0
    few = replace(IN_PART, record=replace(IN_PART.record, rows_in=1))
    assert few.without_lines(BLOCKS).record.rows_in == 0, "never less than none"
    left = WHOLE.without_lines(BLOCKS[:1])
    assert (of(left), left.record.rows_in) == ([("a", 4), ("b", 7)], 6), (
        "nobody goes on with it"
    )


@pytest.mark.parametrize(
    ("known", "more", "both"), [(None, 3, 3), (None, 0, 0), (2, 3, 5), (2, 0, 0), (0, 3, 0)]
)
def test_counts_of_missing_rows_add_up_unless_one_is_unknown(known, more, both) -> None:
    before = [MissingRows("b", 7)] + [MissingRows("a", known)] * (known is not None)
    assert with_missing(before, MissingRows("a", more)) == (
        MissingRows("a", both),
        MissingRows("b", 7),
    )


def test_lines_of_parts_that_have_not_moved_keep_their_own_numbers() -> None:
    own = BLOCKS[0]._replace(own_first=3, own_last=3)
    moved = Moved.of([("a_4_4_0", part("a_9_9_0"))])
    assert moved.lines([own]) == (own,)
    [gone] = moved.lines([own._replace(first=4, last=4)])
    assert (gone.first, gone.own_first, gone.own_last) == (9, UNKNOWN_BLOCK, UNKNOWN_BLOCK)


def test_a_retry_with_every_block_that_is_in_brings_the_others() -> None:
    lines = [line("a", 3), line("a", 4), line("a", 9)._replace(row_hash=BLOCKS[0].row_hash)]
    there = [one.content for one in lines]
    assert blocks_there(lines, [*there, (1, "f" * 32, 1)]) == {0, 1, 2}
    assert blocks_there(lines[:2], [there[2], there[1], there[2]]) == {0, 1}
    assert blocks_there(lines, there) is None, "then nothing would be missing"
    assert blocks_there(lines, [there[0], there[1], (3, "f" * 32, 3)]) is None
    more_given = BLOCKS[0]._replace(given=5).content
    assert blocks_there(lines[:1], [more_given, (1, "f" * 32, 1)]) is None


@pytest.mark.parametrize("one", [line("a", 3, 4), line("a", UNKNOWN_BLOCK)])
def test_a_line_of_several_blocks_tells_nothing_of_a_part_of_them(one: PartitionRows) -> None:
    assert blocks_there([one], [one.content, (1, "f" * 32, 1)]) is None


def test_rows_that_move_keep_their_inserts() -> None:
    moved = Moved.of(
        [
            ("a_3_4_1", part("a_9_9_0")),
            ("b_7_7_0", part("b_8_8_0")),
            ("b_7_7_0", part("b_9_9_0")),
        ]
    )
    assert [(one.first, one.last) for one in IN_PART.renumbered(moved).lines] == [
        (9, 9),
        (9, 9),
        (8, 9),
    ]
    assert moved.part(part("a_4_4_0")) == part("a_9_9_0")
    assert moved.part(part("a_5_5_0")) == part("a_5_5_0")
    assert moved.part(part("b_4_4_0")) == part("b_4_4_0"), "numbers are each partition's own"
    assert Moved.of([("", part("a_9_9_0")), ("a_9_9_0", part("a_9_9_0"))]).to == {}
    assert OLD.renumbered(moved).lines[1] == OLD.lines[1]
