"""Which parts a TTL merge takes, and why it may not come now (spec §13): one case for each rule."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE, MERGE_TTL_RECOMPRESS
from rmt_pipeline.protocol.merges.ttl import TtlPart, TtlSettings, select_ttl_merge, ttl_merges
from rmt_pipeline.protocol.ttl import PartTtl, TtlRule, TtlTimes
from tests.support.protocol import part

DELETE = TtlRule("delete", "d")
COLUMN = TtlRule("column", "c", column="v")
RECOMPRESS = TtlRule("recompress", "r", codec="NONE")
NOW_S = 1000
SETTINGS = TtlSettings((DELETE,), NOW_S, bytes_max=100, parts_max=3, pause_s=50)


def run_of(text: str, rule: TtlRule = DELETE) -> list[TtlPart]:
    """`min-max` of each part, each of ten bytes; with `*` if not all of its rows wait; `?` for one
    that is older than the rule.
    """
    found = []
    for number, word in enumerate(text.split()):
        times: tuple[TtlTimes, ...] = ()
        if word != "?":
            least, greatest = map(int, word.rstrip("*").split("-"))
            times = (TtlTimes(rule.key, least, greatest, not word.endswith("*")),)
        found.append(TtlPart(part(f"{number}_{number}_0"), 10, PartTtl(times)))
    return found


def taken(runs: list[list[TtlPart]], settings: TtlSettings) -> list[tuple[str, str]]:
    """Which blocks, and the first word of for what, or of why not."""
    return [
        (
            " ".join(str(one.part.block_min) for one in found.parts),
            found.refusal.reason if found.refusal else found.what.split()[0],
        )
        for found in ttl_merges(runs, settings)
    ]


@pytest.mark.parametrize(
    ("run", "merges"),
    [
        ("900-1000", [("0", "all"), ("0", "rows")]),
        ("900-1001", [("0", "rows")]),
        ("1000-1001", [("0", "rows")]),
        ("1001-1002", []),
        ("0-0*", []),
        ("900-999*", [("0", "rows")]),
        ("1-2000 5-2000 9-2000 7-2000", [("0 1 2", "rows"), ("3", "rows")]),
        ("9-2000 0-0* 5-2000", [("2", "rows"), ("0", "rows")]),
        ("9-2000 7-2000 5-2000 3-2000", [("1 2 3", "rows"), ("0", "rows")]),
        ("9-2000 1000-2000 5-2000", [("0 1 2", "rows")]),
        ("9-2000 1001-2000 5-2000", [("2", "rows"), ("0", "rows")]),
        ("?", [("0", "the")]),
    ],
)
def test_neighbours_that_are_due_go_together_the_most_urgent_first(run, merges) -> None:
    assert taken([run_of(run)], SETTINGS) == merges


def test_parts_of_another_run_are_no_neighbours() -> None:
    one, other = (
        run_of("9-2000"),
        [
            replace(found, part=part(f"{9 + at}_{9 + at}_0"))
            for at, found in enumerate(run_of("8-2000 7-2000"))
        ],
    )
    assert taken([one, other], SETTINGS) == [("9 10", "rows"), ("0", "rows")]


@pytest.mark.parametrize(
    ("bytes_max", "merges"),
    [
        (20, [("0 1", "rows"), ("2", "rows")]),
        (19, [("0", "rows"), ("1", "rows"), ("2", "rows")]),
        (30, [("0 1 2", "rows")]),
        (9, [(block, "10 bytes are more than the 9 allowed now") for block in "012"]),
    ],
)
def test_sources_together_are_as_large_as_they_may_be(bytes_max, merges) -> None:
    run = run_of("7-2000 8-2000 9-2000")
    assert taken([run], replace(SETTINGS, bytes_max=bytes_max)) == merges


def test_what_goes_as_a_whole_may_be_of_any_size_and_at_any_time() -> None:
    run = [replace(one, ttl=replace(one.ttl, deleted_s=NOW_S)) for one in run_of("7-8 7-8 7-8")]
    settings = replace(SETTINGS, bytes_max=9, only_drop_parts=True)
    assert taken([run], settings) == [("0 1 2", "all")]
    assert taken([run_of("7-2000")], settings) == []


@pytest.mark.parametrize(("ago_s", "rest_s"), [(49, 1), (50, 0), (51, 0)])
def test_a_partition_rests_after_such_a_merge_and_others_do_not(ago_s, rest_s) -> None:
    [due, last] = run_of("7-2000 0-0*")
    merged = replace(last, ttl=replace(last.ttl, deleted_s=NOW_S - ago_s))
    words = f"partition all had such a merge {ago_s} s ago; the next may come in {rest_s} s"
    assert taken([[due, merged]], SETTINGS) == [("0", words if rest_s else "rows")]
    chosen = select_ttl_merge([[due, merged]], SETTINGS)
    assert (chosen is None) == bool(rest_s)
    elsewhere = replace(merged, part=part("b_1_1_0"))
    assert taken([[due], [elsewhere]], SETTINGS) == [("0", "rows")]


@pytest.mark.parametrize(
    ("codec", "times", "is_due"),
    [("", "7-1000", True), ("NONE", "7-1000", False), ("", "7-1001", False)],
)
def test_a_codec_is_due_once_and_rests_by_itself(codec: str, times: str, is_due: bool) -> None:
    settings = replace(SETTINGS, rules=(RECOMPRESS,), recompression_pause_s=70)
    [one] = run_of(times, RECOMPRESS)
    one = replace(one, ttl=replace(one.ttl, codec=codec, deleted_s=NOW_S))
    assert taken([[one]], settings) == [("0", "another")] * is_due
    late = replace(one, ttl=replace(one.ttl, recompressed_s=NOW_S - 69))
    words = "partition all had such a merge 69 s ago; the next may come in 1 s"
    assert taken([[late]], settings) == [("0", words)] * is_due


def test_kinds_of_merges() -> None:
    [column] = run_of("7-8", COLUMN)
    found = select_ttl_merge([[column]], replace(SETTINGS, rules=(COLUMN,)))
    assert found is not None
    assert (found.merge_type, found.due_s, found.size_bytes) == (MERGE_TTL_DELETE, 7, 10)
    [plain] = run_of("7-8", RECOMPRESS)
    found = select_ttl_merge([[plain]], replace(SETTINGS, rules=(RECOMPRESS,)))
    assert found is not None
    assert (found.merge_type, found.due_s) == (MERGE_TTL_RECOMPRESS, 8)


def test_a_part_without_rows_or_a_table_without_rules_has_nothing_to_do() -> None:
    [old] = run_of("?")
    assert taken([[replace(old, has_rows=False)]], SETTINGS) == []
    with_codec = replace(old, ttl=PartTtl(codec="NONE"))
    assert taken([[with_codec]], replace(SETTINGS, rules=())) == []
