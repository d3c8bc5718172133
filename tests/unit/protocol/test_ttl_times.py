"""When something is due by the times that a part's manifest has, rule by rule."""

from rmt_pipeline.protocol.ttl import (
    PartTtl,
    TtlRule,
    TtlTimes,
    emptied_s,
    expires_s,
    recompressed_at_s,
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
