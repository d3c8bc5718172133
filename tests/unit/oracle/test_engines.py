"""What each engine does to rows (spec §17); the table of §17.9."""

from dataclasses import replace
from decimal import Decimal
from math import inf, isnan, nan

import pytest

from rmt_pipeline.protocol.errors import IncorrectData, UnknownFunction
from tests.oracle.rows import comparable
from tests.support.row_rules import merge, rules

# --- MergeTree -------------------------------------------------------------------------------

PLAIN = rules("MergeTree", "k String; v String")


def test_a_plain_merge_keeps_every_row_oldest_source_first() -> None:
    """P25."""
    assert merge(PLAIN, [("a", "1"), ("b", "1")], [("a", "2")], [("a", "3"), ("c", "3")]) == [
        ("a", "1"),
        ("a", "2"),
        ("a", "3"),
        ("b", "1"),
        ("c", "3"),
    ]


def test_deduplicate_keeps_the_first_of_equal_rows() -> None:
    """P25. By all columns, or by the listed ones."""
    sources = [("a", "1"), ("b", "1")], [("a", "1"), ("a", "2")]
    assert merge(PLAIN, *sources, deduplicate=True) == [("a", "1"), ("a", "2"), ("b", "1")]
    assert merge(PLAIN, *sources, deduplicate=True, deduplicate_by=["k"]) == [
        ("a", "1"),
        ("b", "1"),
    ]


def test_deduplicate_compares_maps_and_arrays_too() -> None:
    given = rules("MergeTree", "k Int8; a Array(Int8); m Map(String, Int8)")
    row = (1, [1, 2], {"x": 1, "y": 2})
    again = (1, [1, 2], {"y": 2, "x": 1})
    assert merge(given, [row], [again], deduplicate=True) == [row]


def test_keys_sort_as_in_clickhouse() -> None:
    """P25. NaN after every number, NULL after everything, arrays item by item."""
    values = [None, nan, inf, 1.0, -inf, 0.0]
    assert [repr(v) for v in sorted(values, key=comparable)] == [
        "-inf",
        "0.0",
        "1.0",
        "inf",
        "nan",
        "None",
    ]
    assert comparable(nan) == comparable(float("nan"))
    assert comparable(-0.0) == comparable(0.0)
    assert sorted([[1, 2], [1], [None]], key=comparable) == [[1], [1, 2], [None]]


# --- Replacing -------------------------------------------------------------------------------

REPLACING = rules("ReplacingMergeTree", "k String; v Int64; x String")
VERSIONED = rules("ReplacingMergeTree", "k String; v Int64; x String", version_column="v")
DELETED = rules(
    "ReplacingMergeTree",
    "k String; v Int64; d UInt8",
    version_column="v",
    is_deleted_column="d",
)


def test_without_a_version_the_last_row_stays() -> None:
    """P25, §17.9."""
    assert merge(REPLACING, [("a", 2, "x")], [("a", 1, "y")]) == [("a", 1, "y")]


def test_the_greatest_version_stays_and_of_those_the_last() -> None:
    """P25, §17.9."""
    assert merge(VERSIONED, [("a", 5, "x")], [("a", 3, "y")], [("a", 5, "z")]) == [
        ("a", 5, "z")
    ]


def test_a_version_that_is_nan_is_the_greatest() -> None:
    kept = merge(VERSIONED, [("a", nan, "x")], [("a", 3.0, "y")])
    assert isnan(kept[0][1])
    assert kept[0][2] == "x"


def test_a_tombstone_is_stored_hidden_by_final_and_removed_by_cleanup() -> None:
    """P25, §17.9."""
    sources = [("a", 1, 0)], [("a", 2, 1)]
    assert merge(DELETED, *sources) == [("a", 2, 1)]
    assert merge(replace(DELETED, final=True), *sources) == []
    assert merge(replace(DELETED, cleanup=True), *sources) == []
    assert merge(replace(DELETED, final=True), [("a", 1, 1)], [("a", 2, 0)]) == [("a", 2, 0)]


def test_is_deleted_is_0_or_1() -> None:
    with pytest.raises(IncorrectData, match="d = 2"):
        merge(DELETED, [("a", 1, 2)])


# --- Summing ---------------------------------------------------------------------------------


def test_numbers_are_summed_and_all_else_is_the_first_rows() -> None:
    """P25, §17.9."""
    given = rules("SummingMergeTree", "k String; n Int64; x String")
    assert merge(given, [("a", 1, "x")], [("a", 2, "y")]) == [("a", 3, "x")]


def test_a_row_whose_sums_are_all_zero_goes() -> None:
    """P25, §17.9, E5."""
    given = rules("SummingMergeTree", "k String; n Int64; m Float64")
    assert merge(given, [("a", 1, 0.0)], [("a", -1, 0.0)]) == []
    assert merge(given, [("a", 0, 0.0)]) == []
    assert merge(given, [("a", 1, 0.5)], [("a", -1, 0.0)]) == [("a", 0, 0.5)]


def test_a_row_with_nothing_to_sum_stays() -> None:
    """P25."""
    assert merge(rules("SummingMergeTree", "k String; x String"), [("a", "")]) == [("a", "")]


def test_null_is_left_out_and_is_the_zero_of_a_nullable_column() -> None:
    """P25. So is 0, as ClickHouse 18.16 has it: in later versions such a row stays."""
    given = rules("SummingMergeTree", "k String; n Nullable(Int64)")
    assert merge(given, [("a", None)], [("a", 2)], [("a", None)]) == [("a", 2)]
    assert merge(given, [("a", 1)], [("a", -1)]) == []
    assert merge(given, [("a", None)], [("a", None)], [("b", 0)]) == []


def test_only_the_chosen_columns_are_summed() -> None:
    """P25."""
    given = rules("SummingMergeTree", "k String; n Int64; m Int64", columns_to_sum=("m",))
    assert merge(given, [("a", 1, 1)], [("a", 1, 1)]) == [("a", 1, 2)]


def test_keys_flags_dates_and_enums_are_not_summed() -> None:
    """P25."""
    given = rules(
        "SummingMergeTree",
        "k Int64; p Int64; b Bool; e Enum8('a' = 1); n UInt8",
        partition_by=("p",),
    )
    assert merge(given, [(1, 1, True, "a", 1)], [(1, 1, True, "a", 1)]) == [
        (1, 1, True, "a", 2)
    ]


@pytest.mark.parametrize(
    ("type_text", "values", "total"),
    [
        ("UInt8", [200, 100], 44),
        ("Int8", [100, 100], -56),
        ("UInt256", [2**256 - 1, 2], 1),
        ("LowCardinality(Nullable(Int16))", [2**15 - 1, 1], -(2**15)),
        ("Float32", [16777216.0, 1.0], 16777216.0),
        ("Float32", [3e38, 3e38], inf),
        ("Float32", [-3e38, -3e38], -inf),
        ("Float64", [0.5, 0.25], 0.75),
        ("Decimal(9, 2)", [Decimal("1.50"), Decimal("2.25")], Decimal("3.75")),
        ("Decimal(9, 0)", [Decimal(2**31 - 1), Decimal(1)], Decimal(-(2**31))),
        (
            "Decimal(38, 10)",
            [Decimal("1234567890123456789012345678.0123456789"), Decimal("1E-10")],
            Decimal("1234567890123456789012345678.0123456790"),
        ),
    ],
)
def test_sums_stay_in_the_type_of_their_column(type_text: str, values, total) -> None:
    """P25. They overflow silently, as in the original."""
    given = rules("SummingMergeTree", f"k Int8; n {type_text}; m UInt8")
    merged = merge(given, *[[(1, value, 1)] for value in values])
    assert merged == [(1, total, len(values))]


MAP = "k String; gMap.ID Array(UInt32); gMap.n Array(Int64)"


def test_maps_are_summed_key_by_key() -> None:
    """P25, §17.9. Keys whose values sum to zero go."""
    given = rules("SummingMergeTree", MAP)
    assert merge(given, [("a", [1, 2], [1, 5])], [("a", [2, 3], [-5, 1])]) == [
        ("a", [1, 3], [1, 1])
    ]
    assert merge(given, [("a", [1], [1])], [("a", [1], [-1])]) == [("a", [], [])]
    assert merge(given, [("a", [3, 1, 3], [1, 1, 0])]) == [("a", [1, 3], [1, 1])]


def test_maps_may_have_several_keys() -> None:
    """P25. One row alone stays as it is."""
    given = rules("SummingMergeTree", f"{MAP}; gMap.hourType Array(String)")
    assert merge(given, [("a", [1, 1], [5, 0], ["x", "y"])]) == [
        ("a", [1, 1], [5, 0], ["x", "y"])
    ]
    assert merge(
        given, [("a", [1, 1], [5, 6], ["x", "y"])], [("a", [1, 1], [1, -6], ["x", "y"])]
    ) == [("a", [1], [6], ["x"])]


@pytest.mark.parametrize(
    "columns",
    [
        "k Int8; gList.ID Array(UInt32); gList.n Array(Int64)",
        "k Int8; gMap.ID Array(Float64); gMap.n Array(Int64)",
        "k Int8; gMap.ID Array(UInt32); gMap.n Array(String)",
        "k Int8; gMap.ID Array(UInt32); gMap.nID Array(UInt32)",
        "k Int8; gMap.ID Array(UInt32); gMap Array(UInt8)",
    ],
)
def test_what_only_looks_like_a_map_is_the_first_rows(columns: str) -> None:
    """P25."""
    given = rules("SummingMergeTree", columns)
    assert merge(given, [(1, [1], [1])], [(1, [1], [2])]) == [(1, [1], [1])]


def test_a_map_is_added_up_whichever_columns_are_chosen() -> None:
    chosen = rules("SummingMergeTree", f"{MAP}; n Int64", columns_to_sum=("gMap",))
    row = ("a", [1], [1], 1)
    assert merge(chosen, [row], [row]) == [("a", [1], [2], 1)]
    not_chosen = rules("SummingMergeTree", f"{MAP}; n Int64", columns_to_sum=("n",))
    assert merge(not_chosen, [row], [row]) == [("a", [1], [2], 2)]


def test_a_map_in_the_key_is_not_summed() -> None:
    given = rules("SummingMergeTree", MAP, "k gMap.ID")
    assert merge(given, [("a", [1], [1])], [("a", [1], [2])]) == [("a", [1], [1])]


def test_an_aggregate_keeps_a_row_whose_sums_are_zero() -> None:
    """P25."""
    given = rules("SummingMergeTree", "k Int8; n Int64; m SimpleAggregateFunction(max, Int64)")
    assert merge(given, [(1, 1, 5)], [(1, -1, 9)]) == [(1, 0, 9)]


# --- Aggregating -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "values", "result"),
    [
        ("max, Int64", [3, 9, 1], 9),
        ("min, Int64", [3, 9, 1], 1),
        ("max, Float64", [nan, 1.0], 1.0),
        ("sum, UInt8", [200, 100], 44),
        ("sumWithOverflow, Int64", [1, 2], 3),
        ("any, Nullable(String)", [None, "b", "c"], "b"),
        ("anyLast, Nullable(String)", ["a", "b", None], "b"),
        ("any, Nullable(String)", [None, None], None),
        ("groupBitAnd, UInt8", [6, 3], 2),
        ("groupBitOr, UInt8", [6, 3], 7),
        ("groupBitXor, UInt8", [6, 3], 5),
        ("groupArrayArray, Array(Int8)", [[1, 2], [], [2]], [1, 2, 2]),
        ("groupUniqArrayArray, Array(Int8)", [[2, 1], [1, 3]], [2, 1, 3]),
        (
            "sumMap, Map(String, UInt8)",
            [{"b": 200, "a": 1}, {"b": 56, "c": 2}],
            {"a": 1, "c": 2},
        ),
    ],
)
def test_simple_functions_are_applied_and_all_else_is_the_first_rows(
    function: str, values, result
) -> None:
    """P25, §17.9."""
    given = rules(
        "AggregatingMergeTree", f"k Int8; x Int8; a SimpleAggregateFunction({function})"
    )
    sources = [[(1, index, value)] for index, value in enumerate(values)]
    assert merge(given, *sources) == [(1, 0, result)]


def test_nan_alone_stays_nan() -> None:
    given = rules("AggregatingMergeTree", "k Int8; a SimpleAggregateFunction(max, Float64)")
    [(_, value)] = merge(given, [(1, nan)], [(1, nan)])
    assert isnan(value)


def test_a_function_that_nobody_knows_is_named() -> None:
    given = rules(
        "AggregatingMergeTree", "k Int8; a SimpleAggregateFunction(quantile, Float64)"
    )
    with pytest.raises(UnknownFunction, match="quantile is not a function of"):
        merge(given, [(1, 1.0)])
