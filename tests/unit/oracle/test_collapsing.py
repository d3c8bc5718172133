"""Collapsing engines and TTL (spec §17.5, §17.6, §13)."""

from dataclasses import replace

import pytest

from rmt_pipeline.protocol.errors import IncorrectData
from tests.oracle import rows as rows_module
from tests.oracle.rows import ColumnTtl, Row, apply_ttl
from tests.support.row_rules import merge, rules

# --- Collapsing ------------------------------------------------------------------------------

COLLAPSING = rules("CollapsingMergeTree", "k String; s Int8; v String", sign_column="s")
FINAL = rules("CollapsingMergeTree", "k String; s Int8; v String", sign_column="s", final=True)


@pytest.mark.parametrize(
    ("sources", "stored", "seen"),
    [
        (
            [[("a", 1, "v1")], [("a", -1, "v1"), ("a", 1, "v2")]],
            [("a", 1, "v2")],
            [("a", 1, "v2")],
        ),
        (
            [[("a", -1, "v1")], [("a", 1, "v2")]],
            [("a", -1, "v1"), ("a", 1, "v2")],
            [("a", 1, "v2")],
        ),
        ([[("a", 1, "v1")], [("a", -1, "v1")]], [], []),
        ([[("a", -1, "v1"), ("a", -1, "v2")]], [("a", -1, "v1")], []),
        ([[("a", 1, "v1"), ("a", 1, "v2")]], [("a", 1, "v2")], [("a", 1, "v2")]),
        (
            [[("a", 1, "v1")], [("b", 1, "v1"), ("b", -1, "v1")]],
            [("a", 1, "v1")],
            [("a", 1, "v1")],
        ),
    ],
)
def test_pairs_of_rows_collapse(sources, stored, seen) -> None:
    """P25, §17.9."""
    assert merge(COLLAPSING, *sources) == stored
    assert merge(FINAL, *sources) == seen


def test_a_sign_is_1_or_minus_1() -> None:
    with pytest.raises(IncorrectData, match="s = 0"):
        merge(COLLAPSING, [("a", 0, "v")])


VERSIONS = rules(
    "VersionedCollapsingMergeTree",
    "k String; ver UInt8; s Int8; v String",
    sign_column="s",
    version_column="ver",
)


def test_versions_collapse_in_any_order_of_parts() -> None:
    """P25, §17.9."""
    one, two = [("a", 2, -1, "x")], [("a", 1, 1, "x")]
    three = [("a", 1, -1, "x"), ("a", 2, 1, "x")]
    for sources in ([one, two, three], [three, two, one], [two, three, one]):
        assert merge(VERSIONS, *sources) == []


def test_rows_of_one_sign_stay_in_order() -> None:
    """P25. A row of the other sign takes the most recent one away."""
    rows = [("a", 1, 1, "x"), ("a", 1, 1, "y"), ("a", 1, -1, "z"), ("a", 1, 1, "w")]
    assert merge(VERSIONS, rows) == [("a", 1, 1, "x"), ("a", 1, 1, "w")]


def test_the_version_is_part_of_the_key_once() -> None:
    keyed = replace(VERSIONS, order_by=("k", "ver"))
    assert keyed.equality == ("k", "ver") == VERSIONS.equality


def test_a_very_long_run_of_one_sign_lets_its_oldest_rows_go(monkeypatch) -> None:
    monkeypatch.setattr(rows_module, "COLLAPSING_QUEUE_MAX", 2)
    rows = [("a", 1, 1, "1"), ("a", 1, 1, "2"), ("a", 1, 1, "3")]
    assert merge(VERSIONS, rows) == rows
    assert merge(VERSIONS, rows, [("a", 1, -1, str(n)) for n in range(3)]) == [
        ("a", 1, 1, "1"),
        ("a", 1, -1, "2"),
    ]


# --- TTL -------------------------------------------------------------------------------------


def test_expired_rows_go_and_expired_columns_are_emptied() -> None:
    """P25, E6. By the entry's time, not a clock's."""
    rows: list[Row] = [{"t": 10, "v": "a"}, {"t": 20, "v": "b"}, {"t": 0, "v": "c"}]
    kept = apply_ttl(
        rows,
        15,
        lambda row: row["t"],
        [ColumnTtl("v", lambda row: row["t"] - 10, default="")],
    )
    assert kept == [{"t": 20, "v": ""}, {"t": 0, "v": "c"}]
    assert apply_ttl(rows, 15, None) == rows
