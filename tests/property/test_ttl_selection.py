"""Laws of the choice of TTL merges."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.log.entry import MERGE_TTL_DELETE, MERGE_TTL_RECOMPRESS
from rmt_pipeline.protocol.merges.ttl import TtlPart, TtlSettings, select_ttl_merge, ttl_merges
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.ttl import PartTtl, TtlRule, TtlTimes, codec_of, is_unknown

DELETE = TtlRule("delete", "d")
WHERE = TtlRule("where", "e", where="x")
COLUMN = TtlRule("column", "c", column="v")
RECOMPRESS = TtlRule("recompress", "r", codec="NONE")
NOW_S = 1000

times = st.tuples(st.integers(0, 2000), st.integers(0, 2000), st.booleans())


def ttl_times(rule: TtlRule, drawn: tuple[int, int, bool]) -> TtlTimes:
    one, other, every = drawn
    least, greatest = sorted((one, other)) if min(one, other) else (max(one, other),) * 2
    return TtlTimes(rule.key, least, greatest, every=every and least > 0)


@st.composite
def ttls(draw: st.DrawFn, rules: tuple[TtlRule, ...]) -> PartTtl:
    known = draw(st.lists(st.sampled_from(rules), unique=True)) if rules else []
    return PartTtl(
        tuple(ttl_times(rule, draw(times)) for rule in known),
        draw(st.sampled_from(["", "NONE"])),
        draw(st.sampled_from([0, 600, 950])),
        draw(st.sampled_from([0, 600, 950])),
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[TtlPart]], TtlSettings]:
    rules = tuple(
        draw(st.lists(st.sampled_from([DELETE, WHERE, COLUMN, RECOMPRESS]), unique=True))
    )
    runs = []
    for number, length in enumerate(draw(st.lists(st.integers(1, 5), max_size=4))):
        runs.append(
            [
                TtlPart(
                    PartName.parse(f"p{number % 2}_{10 * number + at}_{10 * number + at}_0"),
                    draw(st.integers(1, 50)),
                    draw(ttls(rules)),
                )
                for at in range(length)
            ]
        )
    found = TtlSettings(
        rules,
        NOW_S,
        bytes_max=draw(st.integers(1, 120)),
        parts_max=draw(st.integers(1, 4)),
        pause_s=100,
        recompression_pause_s=300,
        only_drop_parts=draw(st.booleans()),
    )
    return runs, found


@settings(deadline=None, max_examples=300)
@given(tables())
def test_what_is_selected_is_due_and_within_the_limits(drawn) -> None:
    """P20."""
    runs, given_settings = drawn
    found = select_ttl_merge(runs, given_settings)
    if found is None:
        return
    run = next(run for run in runs if found.parts[0] in run)
    first = run.index(found.parts[0])
    assert tuple(run[first : first + len(found.parts)]) == found.parts
    assert len(found.parts) <= max(1, given_settings.parts_max)
    whole = all(is_expired(part, given_settings) for part in found.parts)
    assert whole or found.size_bytes <= given_settings.bytes_max
    if found.merge_type == MERGE_TTL_RECOMPRESS:
        for part in found.parts:
            assert codec_of([part.ttl], given_settings.rules, NOW_S) != part.ttl.codec
        return
    assert found.merge_type == MERGE_TTL_DELETE
    if all(is_unknown(part.ttl, given_settings.rules) for part in found.parts):
        return
    assert whole or not given_settings.only_drop_parts
    for part in found.parts:
        assert any(
            0 < times.min_s <= NOW_S for times in part.ttl.times if times.rule != RECOMPRESS.key
        )
    if not whole:
        assert all(part.ttl.deleted_s != 950 for part in in_partition(runs, found))


def is_expired(part: TtlPart, given_settings: TtlSettings) -> bool:
    removing = [part.ttl.of(rule) for rule in given_settings.rules if rule.removes_rows]
    return any(one is not None and one.every and one.max_s <= NOW_S for one in removing)


def in_partition(runs, found):
    partition = found.parts[0].part.partition
    return [part for run in runs for part in run if part.part.partition == partition]


@settings(deadline=None, max_examples=200)
@given(tables())
def test_a_part_that_is_expired_as_a_whole_does_not_wait(drawn) -> None:
    """P20. Whatever is due besides, and however large it is."""
    runs, given_settings = drawn
    if any(is_expired(part, given_settings) for run in runs for part in run):
        found = select_ttl_merge(runs, given_settings)
        assert found is not None
        assert all(is_expired(part, given_settings) for part in found.parts)


@settings(deadline=None, max_examples=200)
@given(tables())
def test_merging_what_is_due_again_and_again_ends(drawn) -> None:
    """P20. What a merge has looked at is not due any more: nothing is rewritten for ever."""
    runs, given_settings = drawn
    free = replace(given_settings, pause_s=0, recompression_pause_s=0, bytes_max=10_000)
    for _ in range(100):
        found = select_ttl_merge(runs, free)
        if found is None:
            return
        runs = [merged(run, found, free) for run in runs]
    raise AssertionError("a hundred merges of a dozen parts, and still one is due")


def merged(run: list[TtlPart], found, given_settings: TtlSettings) -> list[TtlPart]:
    """The run with the result of a merge in it: times of what is left, the codec of now."""
    if found.parts[0] not in run:
        return run
    first, count = run.index(found.parts[0]), len(found.parts)
    known = [part.ttl for part in found.parts]
    left = []
    for rule in given_settings.rules:
        kept = [one.of(rule) for one in known]
        waiting = [
            one.max_s
            for one in kept
            if one is not None and (one.max_s > NOW_S or rule.kind == "recompress")
        ]
        least, greatest = (max(min(waiting), 1), max(waiting)) if waiting else (0, 0)
        left.append(TtlTimes(rule.key, min(least, greatest), greatest, every=False))
    codec = codec_of(known, given_settings.rules, NOW_S)
    part = TtlPart(
        found.parts[0].part, found.size_bytes, PartTtl(tuple(left), codec, NOW_S, NOW_S)
    )
    return [*run[:first], part, *run[first + count :]]


@settings(deadline=None, max_examples=200)
@given(tables())
def test_every_due_part_is_explained_once_for_each_reason(drawn) -> None:
    """P20."""
    runs, given_settings = drawn
    found = list(ttl_merges(runs, given_settings))
    for what in {one.what for one in found}:
        parts = [part.part for one in found if one.what == what for part in one.parts]
        assert len(parts) == len(set(parts))
    for one in found:
        for left, right in pairwise(one.parts):
            assert left.part.block_max < right.part.block_min


def row_of_parts(*expires_s: int) -> list[TtlPart]:
    return [
        TtlPart(
            PartName.parse(f"p_{at}_{at}_0"),
            10,
            PartTtl((TtlTimes(DELETE.key, one, one + 5000, every=True),)),
        )
        for at, one in enumerate(expires_s)
    ]


def test_the_part_that_waits_longest_comes_first_with_its_neighbours() -> None:
    """P20."""
    runs = [row_of_parts(500, 400, 300, 2000, 600)]
    limits = TtlSettings((DELETE,), NOW_S, bytes_max=20, parts_max=2)
    found = [[part.part.block_min for part in one.parts] for one in ttl_merges(runs, limits)]
    assert found == [[1, 2], [0], [4]]


def test_a_partition_rests_after_a_ttl_merge() -> None:
    """P20."""
    one, other = row_of_parts(500, 400)
    rested = replace(other, ttl=replace(other.ttl, deleted_s=950))
    limits = TtlSettings((DELETE,), NOW_S, bytes_max=100, pause_s=100)
    assert select_ttl_merge([[one, rested]], limits) is None
    (refused,) = ttl_merges([[one, rested]], limits)
    assert refused.refusal is not None
    assert refused.refusal.reason == (
        "partition p had such a merge 50 s ago; the next may come in 50 s"
    )
    assert select_ttl_merge([[one, rested]], replace(limits, now_s=1050)) is not None
