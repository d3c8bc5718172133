"""What is wrong with what is no log entry, in words, at each limit (spec §0.4.1)."""

import pytest

from rmt_pipeline.protocol.log.rules import (
    columns_defect,
    header_defect,
    merge_defect,
    mutation_defect,
    replacement_defect,
)
from rmt_pipeline.protocol.text import TIME_MAX
from tests.support.protocol import part, parts


@pytest.mark.parametrize(
    ("create_time", "source_replica", "quorum", "defect"),
    [
        (0, "r1", 0, None),
        (TIME_MAX, "", 3, None),
        (-1, "r1", 0, "create_time -1 is outside what the format can hold"),
        (TIME_MAX + 1, "r1", 0, "create_time 4294967296 is outside what the format can hold"),
        (1, "a\nb", 0, r"the replica's name 'a\nb' has a newline in it"),
        (1, "r1", -1, "a quorum of -1 replicas"),
    ],
)
def test_headers(create_time, source_replica, quorum, defect) -> None:
    assert header_defect(create_time, source_replica, quorum) == defect


@pytest.mark.parametrize(
    ("sources", "result", "defect"),
    [
        ("0_0_0 1_1_0", "0_1_1", None),
        ("0_0_0", "0_0_1", None),
        ("", "0_0_1", "a merge into all_0_0_1 without sources"),
        *(
            (
                sources,
                result,
                f"a merge into all_{result}, {what} its source all_{source} obsolete",
            )
            for what in ["which does not make"]
            for sources, result, source in [
                ("0_0_0 0_1_1", "0_1_1", "0_1_1"),
                ("0_0_0 2_2_0", "0_1_1", "2_2_0"),
                ("0_0_0 1_1_2", "0_1_1", "1_1_2"),
            ]
        ),
    ],
)
def test_merges(sources: str, result: str, defect: str | None) -> None:
    assert merge_defect(tuple(parts(sources)), part(result)) == defect


def test_columns_to_deduplicate_by() -> None:
    assert columns_defect(True, ("a",)) is columns_defect(True, ()) is None
    assert columns_defect(False, ()) is None
    assert columns_defect(False, ("a",)) == (
        "columns ('a',) to deduplicate by, without deduplication"
    )


@pytest.mark.parametrize(
    ("source", "result", "is_one"),
    [
        ("0_1_1", "0_1_1_5", True),
        ("0_1_1_5", "0_1_1_6", True),
        ("0_1_1_5", "0_1_1_5", False),
        ("0_1_1_5", "0_1_1_4", False),
        ("0_1_1", "p_0_1_1_5", False),
        ("0_1_1", "1_1_1_5", False),
        ("0_1_1", "0_2_1_5", False),
        ("0_1_1", "0_1_2_5", False),
    ],
)
def test_mutations(source: str, result: str, is_one: bool) -> None:
    mine, made = part(source), part(result)
    words = f"a mutation of {mine} to {made}, which is not a later version of it"
    assert mutation_defect(mine, made) == (None if is_one else words)


@pytest.mark.parametrize(
    ("part_range", "counts", "defect"),
    [
        ("0_0_0", (1, 1, 1), None),
        ("0_4_999999999_999999999", (0, 0, 0), None),
        ("0_1_0", (1, 1, 1), "a replacement of all_0_1_0, which is not a drop range"),
        ("0_0_0", (2, 1, 1), "2 source parts, 1 new parts and 1 checksums"),
        ("0_0_0", (1, 2, 1), "1 source parts, 2 new parts and 1 checksums"),
        ("0_0_0", (1, 1, 2), "1 source parts, 1 new parts and 2 checksums"),
    ],
)
def test_replacements(part_range: str, counts: tuple[int, int, int], defect) -> None:
    assert replacement_defect(part(part_range), counts) == defect
