"""The parts of one moment, made from those of another one, are what a full build gives."""

from unittest import mock

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts import holdings as holdings_module
from rmt_pipeline.protocol.parts.holdings import Holdings, PartChanges
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from tests.support.strategies import History, close_names, histories
from tests.support.work import calls_of

CAN_T_BE_TOLD = "two of them overlap"


def maximal(holdings: Holdings) -> list[PartName] | str:
    try:
        holdings.current.check()
        return list(holdings.current)
    except Corruption:
        return CAN_T_BE_TOLD


def same(one: Holdings, other: Holdings) -> None:
    assert set(one) == set(other)
    assert len(one) == len(other)
    assert one.of_partition == other.of_partition
    assert one.partitions() == other.partitions()
    assert maximal(one) == maximal(other)


def changed(holdings: Holdings, parts: list[PartName], is_listed: bool) -> Holdings:
    """With exactly these: as ZooKeeper lists them; or some come, also such as are there already or
    are named twice, and others go, also such as are not there.
    """
    if is_listed:
        return holdings.renamed(map(str, parts))
    gone = [part for part in holdings if part not in parts]
    return holdings.joined([*parts, *parts]).without([*gone, *gone])


def plain_changes(before: Holdings, after: Holdings) -> PartChanges:
    came, gone = set(after) - set(before), set(before) - set(after)
    return {
        one: (
            frozenset(part for part in came if part.partition == one),
            frozenset(part for part in gone if part.partition == one),
        )
        for one in {part.partition for part in came | gone}
    }


def follow(moments: list[tuple[list[PartName], bool, bool]]) -> None:
    """At some moments nobody asks which parts are the maximal ones. More than two that come are
    many.
    """
    holdings = Holdings.of(())
    seen: list[tuple[Holdings, list[PartName]]] = []
    with mock.patch.object(holdings_module, "FEW", 2):
        for parts, is_listed, is_asked in moments:
            holdings = changed(before := holdings, parts, is_listed)
            assert before.changes(holdings) == plain_changes(before, holdings)
            assert len(holdings._came) <= 2
            if is_asked:
                same(holdings, Holdings.of(parts))
            seen.append((holdings, parts))
    for before, parts in seen:  # whatever came later
        same(before, Holdings.of(parts))
        assert before.changes(holdings) == plain_changes(before, holdings)


MOMENTS = st.lists(
    st.tuples(st.lists(close_names(), max_size=6), st.booleans(), st.booleans()), max_size=6
)


@given(MOMENTS)
@settings(max_examples=300)
def test_any_parts_after_any_others(moments: list[tuple[list[PartName], bool, bool]]) -> None:
    follow(moments)


@given(st.data(), histories())
@settings(max_examples=300)
def test_any_parts_of_a_history_come_and_go(data: st.DataObject, history: History) -> None:
    assume(history.names)
    some = st.lists(st.sampled_from(history.names), unique=True)
    one = st.tuples(some, st.booleans(), st.booleans())
    follow(data.draw(st.lists(one, max_size=8)))


def test_nothing_that_comes_or_goes_leaves_the_same_parts() -> None:
    """The very same value: what was found out about it serves whoever looks next."""
    held = Holdings.of([PartName("all", 1, 1, 0)])
    assert held.joined(list(held)) is held
    assert held.without([PartName("all", 2, 2, 0)]) is held
    assert held.renamed(map(str, held)) is held


def test_a_part_that_comes_and_goes_between_two_looks_is_not_there() -> None:
    """Nor does what it covered stay away."""
    small, large = PartName("all", 1, 1, 0), PartName("all", 0, 1, 1)
    held = Holdings.of([small])
    assert list(held.current) == [small]
    assert list(held.joined([large]).without([large]).current) == [small]
    assert list(held.joined([large]).without([small, large]).current) == []


def test_another_moment_costs_what_has_changed() -> None:
    """A thousand parts in a hundred partitions, each known by one name and covered by none but the
    first; building them takes some thousands of calls.
    """
    names = [PartName(f"p{n % 100}", n, n, 0) for n in range(1000)]
    held = Holdings.of([*names, PartName("p0", 0, 900, 1)])
    assert len(held.current) == 991
    again = held.renamed([*map(str, names), "p0_0_900_1", "p1_2000_2000_0"])
    assert {id(part) for part in held} <= {id(part) for part in again}, (
        "no name is parsed twice"
    )
    more = held.joined([PartName("p1", 2000, 2000, 0)])
    assert calls_of(lambda: held.changes(held)) < 10
    assert calls_of(lambda: held.changes(more)) < 250
    assert calls_of(lambda: more.current) < 30
    less = more.without([names[500]])
    assert calls_of(lambda: less.current) < 30, "it was covered"


@given(st.lists(close_names(), max_size=8), st.lists(close_names(), max_size=8), st.booleans())
def test_a_copy_and_its_original_do_not_see_what_the_other_one_gets(
    names: list[PartName], more: list[PartName], change_original: bool
) -> None:
    held = PartSet()
    for part in names:
        held.add(part)
    twin, before = held.copy(), list(held)
    changed, kept = (held, twin) if change_original else (twin, held)
    for number, part in enumerate(more):
        changed.add(part)
        if number % 3 == 0:
            changed.remove_covered(part)
        if number % 5 == 0:
            changed.replace_partition(part.partition, [part])
        changed.check()
        kept.check()
        assert list(kept) == before
