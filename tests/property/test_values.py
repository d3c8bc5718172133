"""Laws of part names, part sets, texts and ids."""

from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.inserts.ids import block_id, token_block_id
from rmt_pipeline.protocol.parts.name import PartName, gap, merged, mutated
from rmt_pipeline.protocol.parts.set import Added, HasCovering, Intersects, PartSet
from rmt_pipeline.protocol.text import (
    escape,
    format_time,
    parse_time,
    quote,
    quote_all,
    unescape,
    unquote,
    unquote_all,
)
from tests.support.strategies import (
    History,
    close_names,
    histories,
    part_names,
    partitions,
    texts,
    times,
)


@given(part_names())
def test_a_name_is_read_back(part: PartName) -> None:
    """P1."""
    assert PartName.parse(str(part)) == part


@given(st.text(max_size=30))
def test_a_text_is_a_name_or_it_is_not(text: str) -> None:
    """P1. What is read is what would be written."""
    part = PartName.try_parse(text)
    assert part is None or str(part) == text


@given(close_names(), close_names(), close_names())
@settings(max_examples=500)
def test_contains_is_a_partial_order(a: PartName, b: PartName, c: PartName) -> None:
    """P2."""
    assert a.contains(a)
    if a.contains(b) and b.contains(a):
        assert a == b
    if a.contains(b) and b.contains(c):
        assert a.contains(c)
    if a.contains(b):
        assert not a.disjoint(b)
    assert a.disjoint(b) == b.disjoint(a)


@given(histories())
def test_names_of_one_history_contain_each_other_or_are_disjoint(history: History) -> None:
    """P2."""
    for a in history.names:
        for b in history.names:
            assert a.disjoint(b) or a.contains(b) or b.contains(a), f"{a} {b}"


@given(st.lists(part_names(), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_merging_and_mutating_make_their_sources_obsolete(
    found: list[PartName], version: int
) -> None:
    """P2."""
    sources = [PartName("p", part.block_min, part.block_max, part.level) for part in found]
    result = merged(sources)
    assert all(result.contains(source) and result != source for source in sources)
    assume(version > result.data_version)
    assert mutated(result, version).contains(result)


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_of_adding_does_not_matter(history: History, drawn) -> None:
    """P3."""
    shuffled = list(history.names)
    drawn.shuffle(shuffled)
    held = PartSet()
    for part in shuffled:
        before = set(held)
        outcome = held.add(part)
        held.check()
        match outcome:
            case Added(replaced):
                assert set(held) == before - set(replaced) | {part}
                assert all(part.contains(one) for one in replaced)
            case HasCovering(covering):
                assert covering in before
                assert covering.contains(part)
                assert set(held) == before
            case Intersects():
                raise AssertionError(f"{part} intersects in a history")
    assert held == history.active == PartSet(history.names)


@given(st.lists(close_names(), max_size=12), close_names())
@settings(max_examples=300)
def test_every_question_to_a_set_is_a_question_to_its_members(
    names: list[PartName], asked: PartName
) -> None:
    """P3. Whatever is added, also parts that no history gives."""
    held = PartSet()
    for name in names:
        held.add(name)
        held.check()
    members = sorted(held)
    assert members == list(held)
    assert len(members) == len(held)
    for a, b in pairwise(members):
        assert a.disjoint(b)
    assert held.intersecting(asked) == [one for one in members if not one.disjoint(asked)]
    assert held.covered_by(asked) == [one for one in members if asked.contains(one)]
    assert held.containing(asked) == next((one for one in members if one.contains(asked)), None)
    assert (asked in held) == (asked in members)
    removed = held.remove_covered(asked)
    assert removed == [one for one in members if asked.contains(one)]
    assert list(held) == [one for one in members if one not in removed]


@given(close_names(), st.integers(1, 5))
def test_a_gap_is_what_lies_between(a: PartName, distance: int) -> None:
    """P2."""
    begin = a.block_max + distance
    b = PartName(a.partition, begin, begin, 0)
    hole = gap(a, b)
    if hole is None:
        assert distance == 1
    else:
        assert hole.disjoint(a)
        assert hole.disjoint(b)
        assert hole.blocks_count == distance - 1


@given(texts, st.lists(texts, max_size=4).map(tuple), times)
def test_texts_and_times_are_read_back(
    text: str, several: tuple[str, ...], time_s: int
) -> None:
    """P4."""
    assert unescape(escape(text)) == text
    assert not {"\n", "\t", "\0"} & set(escape(text))
    assert unquote(quote(text)) == text
    assert unquote_all(quote_all(several)) == several
    assert parse_time(format_time(time_s)) == time_s


@given(st.text("\\nx'0a,\t", max_size=12))
def test_any_text_is_read_or_corrupt(text: str) -> None:
    """P4."""
    for parse in (unescape, unquote, unquote_all, parse_time):
        try:
            parse(text)
        except Corruption:
            continue


@given(partitions, texts, st.integers(0, 2**128 - 1), st.integers(0, 1000))
def test_an_id_names_its_partition(
    partition: str, token: str, number: int, ordinal: int
) -> None:
    """P6. So that a DROP of the partition finds its ids by their prefix."""
    assert block_id(partition, number).startswith(f"{partition}_")
    assert token_block_id(partition, token, ordinal).startswith(f"{partition}_")
