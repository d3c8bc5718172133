"""When something is due by the times that a part's manifest has, rule by rule."""

import pytest

from rmt_pipeline.protocol.ttl import (
    PartTtl,
    TtlRule,
    TtlTimes,
    added,
    codec_of,
    emptied_s,
    everything_expired,
    expires_s,
    is_unknown,
    recompressed_at_s,
    something_expired,
)

DELETE = TtlRule("delete", "d")
COLUMN = TtlRule("column", "c", column="c")
RECOMPRESS = TtlRule("recompress", "r", codec="ZSTD")
LATER = TtlRule("recompress", "l", codec="NONE")
RULES = (DELETE, COLUMN, RECOMPRESS, LATER)


def part(**times: tuple[int, int]) -> PartTtl:
    rules = {"delete": DELETE, "column": COLUMN, "recompress": RECOMPRESS, "later": LATER}
    return PartTtl(tuple(TtlTimes(rules[name].key, *s, True) for name, s in times.items()))


def test_a_codec_is_due_by_the_rules_for_codecs_alone() -> None:
    """By the first of them whose time comes for every row."""
    assert (
        recompressed_at_s(part(delete=(1, 2), column=(3, 4), recompress=(5, 60)), RULES) == 60
    )
    assert recompressed_at_s(part(recompress=(5, 60), later=(50, 55)), RULES) == 55
    assert recompressed_at_s(part(recompress=(0, 0), later=(50, 55)), RULES) == 55
    assert recompressed_at_s(part(delete=(1, 2)), RULES) == 0


def test_rows_and_values_expire_by_the_other_rules_alone() -> None:
    assert expires_s(part(delete=(10, 20), column=(3, 40), recompress=(1, 2)), RULES) == 3
    assert expires_s(part(delete=(10, 20), column=(0, 0)), RULES) == 10
    assert expires_s(part(recompress=(1, 2)), RULES) == 0


def test_a_part_is_emptied_by_what_removes_rows_alone() -> None:
    assert emptied_s(part(delete=(10, 20), column=(3, 4), recompress=(1, 2)), RULES) == 20
    some = PartTtl((TtlTimes(DELETE.key, 10, 20, every=False),))
    assert emptied_s(some, RULES) == 0


WHERE = TtlRule("where", "d", where="n > 1")


def times(rule: TtlRule, min_s: int, max_s: int, *, every: bool = True) -> PartTtl:
    return PartTtl((TtlTimes(rule.key, min_s, max_s, every),))


def test_a_rule_is_known_by_its_text() -> None:
    texts = [(rule.text, rule.key) for rule in (DELETE, WHERE, RECOMPRESS, COLUMN)]
    assert texts == [
        ("d", "d"),
        ("d WHERE n > 1", "d WHERE n > 1"),
        ("r RECOMPRESS CODEC(ZSTD)", "r RECOMPRESS CODEC(ZSTD)"),
        ("c", "c: c"),
    ]
    assert [rule.removes_rows for rule in (DELETE, WHERE, RECOMPRESS, COLUMN)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ((5, 9, True), (3, 7, True), (3, 9, True)),
        ((3, 7, True), (5, 9, False), (3, 9, False)),
        ((5, 9, False), (0, 0, False), (5, 9, False)),
        ((0, 0, False), (5, 9, True), (5, 9, False)),
        ((0, 0, False), (0, 0, False), (0, 0, False)),
    ],
)
def test_times_of_pieces_add_up_by_rule(one, other, both) -> None:
    """A piece without times waits for nothing; then not every row of the part waits."""
    rest = TtlTimes("other", 1, 2, True)
    found = added([TtlTimes("r", *one), rest, TtlTimes("r", *other)])
    assert found == (TtlTimes("r", *both), rest)


@pytest.mark.parametrize("rule", [DELETE, WHERE, COLUMN])
@pytest.mark.parametrize(
    ("min_s", "now_s", "has_expired"),
    [(10, 9, False), (10, 10, True), (10, 11, True), (0, 99, False)],
)
def test_something_has_expired_once_the_first_time_has_come(rule, min_s, now_s, has_expired):
    part_ = times(rule, min_s, 50)
    assert something_expired([part_], [rule], now_s) == has_expired
    assert something_expired([times(rule, 999, 999), part_], [rule], now_s) == has_expired


def test_a_part_that_was_never_looked_at_may_have_expired_but_codecs_do_not_count() -> None:
    assert something_expired([PartTtl()], [DELETE], 5)
    assert not something_expired([PartTtl()], [RECOMPRESS], 5)
    assert not something_expired([times(RECOMPRESS, 1, 2)], [RECOMPRESS], 5)
    assert not something_expired([], [DELETE], 5)


@pytest.mark.parametrize(
    ("rule", "every", "now_s", "is_empty"),
    [
        (DELETE, True, 19, False),
        (DELETE, True, 20, True),
        (WHERE, True, 21, True),
        (DELETE, False, 21, False),
        (COLUMN, True, 21, False),
        (RECOMPRESS, True, 21, False),
    ],
)
def test_all_of_a_part_has_expired_when_every_row_waits_and_the_last_time_has_come(
    rule, every, now_s, is_empty
) -> None:
    assert everything_expired(times(rule, 10, 20, every=every), [rule], now_s) == is_empty
    assert not everything_expired(PartTtl(), [rule], now_s)
    assert emptied_s(PartTtl(), [rule]) == 0


def test_a_rule_that_is_younger_than_the_part_is_unknown() -> None:
    assert is_unknown(times(DELETE, 1, 2), [DELETE, WHERE])
    assert not is_unknown(times(DELETE, 1, 2), [DELETE])
    assert not is_unknown(PartTtl(), [])


@pytest.mark.parametrize(
    ("parts", "now_s", "codec"),
    [
        ([part(recompress=(5, 60))], 59, ""),
        ([part(recompress=(5, 60))], 60, "ZSTD"),
        ([part(recompress=(0, 0))], 60, ""),
        ([part(recompress=(5, 60)), part(recompress=(5, 70))], 60, ""),
        ([part(recompress=(5, 60)), part(recompress=(5, 70))], 70, "ZSTD"),
        ([part(recompress=(5, 60)), part(delete=(1, 2))], 99, ""),
        ([part(recompress=(5, 60), later=(5, 50))], 99, "ZSTD"),
        ([part(recompress=(5, 50), later=(5, 60))], 99, "NONE"),
        ([part(delete=(1, 2), column=(1, 2))], 99, ""),
    ],
)
def test_a_merge_has_the_codec_of_the_rule_whose_time_came_last_for_all_rows(
    parts, now_s, codec
) -> None:
    assert codec_of(parts, RULES, now_s) == codec
