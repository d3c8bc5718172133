"""The kernel against `tests.oracle.rows`: all engines, all types, whatever the windows."""

import decimal
import string
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import IncorrectData
from rmt_pipeline.protocol.table import TableDefinition
from tests.oracle.rows import merge_rows
from tests.support.merging import (
    Row,
    definition,
    job_of,
    merge_tables,
    rows_of,
    rules_of,
    same,
    sorted_table,
)

SMALL = st.integers(-2, 3)
TEXT = st.text(alphabet="ab\0ü", max_size=9)
FLOAT = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1.5, float("nan")]))
UUIDS = st.sampled_from(
    [
        "00000000-0000-0001-0000-000000000000",
        "00000000-0000-0000-0000-000000000002",
        "ffffffff-ffff-ffff-0000-000000000001",
        "80000000-0000-0000-8000-00000000000a",
    ]
)
AMOUNT = st.decimals(-100, 100, places=2, allow_nan=False)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Int8": st.integers(-128, 127),
    "Int64": st.one_of(SMALL, st.integers(-(2**63), 2**63 - 1)),
    "UInt8": st.integers(0, 255),
    "UInt64": st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1)),
    "Int128": st.one_of(SMALL, st.integers(-(2**127), 2**127 - 1)),
    "UInt128": st.one_of(st.integers(0, 3), st.integers(0, 2**128 - 1)),
    "Int256": st.one_of(SMALL, st.integers(-(2**255), 2**255 - 1)),
    "Float32": FLOAT,
    "Float64": FLOAT,
    "Decimal(9, 2)": AMOUNT,
    "Decimal(18, 2)": AMOUNT,
    "Decimal(38, 2)": st.one_of(AMOUNT, st.decimals(-(10**30), 10**30, places=2)),
    "Bool": st.booleans(),
    "String": TEXT,
    "Date": st.dates(),
    "UUID": UUIDS,
    "Enum8('b' = -1, 'c' = 2, 'a' = 7)": st.sampled_from("abc"),
    "Array(Int64)": st.lists(SMALL, max_size=3),
}
NULLABLE = {
    f"Nullable({kind})": st.one_of(st.none(), values)
    for kind, values in VALUES.items()
    if not kind.startswith("Array")
}
ALL_VALUES = VALUES | NULLABLE
KEY_TYPES = (
    *("Int64", "String", "Date", "Bool", "Decimal(9, 2)", "Int128", "UInt64", "UUID"),
    "Enum8('b' = -1, 'c' = 2, 'a' = 7)",
)


@st.composite
def plain_columns(draw: st.DrawFn) -> list[tuple[str, str]]:
    kinds = draw(st.lists(st.sampled_from(sorted(ALL_VALUES)), max_size=3))
    return [(letter, kind) for letter, kind in zip(string.ascii_lowercase, kinds, strict=False)]


@st.composite
def keys(draw: st.DrawFn) -> list[tuple[str, str]]:
    kinds = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=2))
    return [(f"k{number}", kind) for number, kind in enumerate(kinds)]


KEYS_MAX = 6


@st.composite
def sources(draw: st.DrawFn, values: dict[str, st.SearchStrategy[Any]]) -> list[list[Row]]:
    """Some parts; keys are drawn from few rows, so that they meet."""
    keys, parts = draw(keys_and_parts(tuple(values.items())))
    return [[row | keys[key % len(keys)] for row, key in rows] for rows in parts]


@lru_cache(256)
def keys_and_parts(
    values: tuple[tuple[str, st.SearchStrategy[Any]], ...],
) -> st.SearchStrategy[tuple[list[Row], list[list[tuple[Row, int]]]]]:
    """The keys, and rows with the place of theirs. Made once for the same columns: to look into a
    new strategy takes hypothesis as long as to draw from it.
    """
    keys = st.fixed_dictionaries({name: one for name, one in values if name.startswith("k")})
    row = st.tuples(st.fixed_dictionaries(dict(values)), st.integers(0, KEYS_MAX - 1))
    return st.tuples(
        st.lists(keys, min_size=1, max_size=KEYS_MAX),
        st.lists(st.lists(row, max_size=8), min_size=1, max_size=4),
    )


def check(
    table: TableDefinition, parts: list[list[Row]], batch_rows: int, **options: Any
) -> None:
    """The kernel and the oracle give the same rows, or the same refusal."""
    tables = [sorted_table(rows, table) for rows in parts]
    stored = [rows_of(each, table) for each in tables]
    rules = rules_of(table, cleanup=options.get("cleanup", False))
    choice = {name: options[name] for name in options if name != "cleanup"}
    try:
        wanted = merge_rows(stored, rules, **choice)
    except IncorrectData:
        with pytest.raises(IncorrectData):
            merge_tables(tables, job_of(table, **options), batch_rows=batch_rows)
        return
    found, _ = merge_tables(tables, job_of(table, **options), batch_rows=batch_rows)
    assert [same(row) for row in rows_of(found, table)] == [same(row) for row in wanted]


def with_values(columns: list[tuple[str, str]], **chosen: st.SearchStrategy[Any]) -> Any:
    return sources({name: chosen.get(name, ALL_VALUES.get(kind)) for name, kind in columns})


UNHURRIED = settings(deadline=None)  # the first call of an Arrow function takes its time
BATCH_ROWS = st.sampled_from([1, 2, 3, 100])
FOLDING = st.sampled_from(["AggregatingMergeTree", "SummingMergeTree"])
"""Engines that fold states and simple aggregate functions, each by the same code."""


@UNHURRIED
@given(keys(), plain_columns(), BATCH_ROWS, st.data())
def test_a_plain_merge_keeps_every_row_in_order(key, rest, batch_rows, data) -> None:
    columns = key + rest
    table = definition(columns, tuple(name for name, _ in key))
    check(table, data.draw(with_values(columns)), batch_rows)


@UNHURRIED
@given(keys(), plain_columns(), BATCH_ROWS, st.data())
def test_deduplicate_keeps_the_first_of_equal_rows(key, rest, batch_rows, data) -> None:
    columns = key + rest
    table = definition(columns, tuple(name for name, _ in key))
    by = data.draw(st.sampled_from([(), tuple(name for name, _ in columns[: len(key) + 1])]))
    parts = data.draw(with_values(columns))
    check(table, parts, batch_rows, deduplicate=True, deduplicate_by=by)


@pytest.mark.parametrize("version", ["UInt64", "Date", "Float64", "Decimal(18, 2)", "UInt128"])
@UNHURRIED
@given(keys(), plain_columns(), BATCH_ROWS, st.booleans(), st.data())
def test_replacing_keeps_the_newest_row(  # noqa: PLR0917  drawn by hypothesis
    version, key, rest, batch_rows, cleanup, data
) -> None:
    columns = [*key, ("ver", version), ("del", "UInt8"), *rest]
    names = tuple(name for name, _ in key)
    engine: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {},
                {"version_column": "ver"},
                {"version_column": "ver", "is_deleted_column": "del"},
            ]
        )
    )
    table = definition(columns, names, "ReplacingMergeTree", **engine)
    flags = st.sampled_from([0, 0, 1, 1, 1, 1, 1, 2]) if cleanup else st.integers(0, 1)
    few = data.draw(st.lists(ALL_VALUES[version], min_size=1, max_size=3))
    parts = data.draw(with_values(columns, **{"del": flags, "ver": st.sampled_from(few)}))
    check(table, parts, batch_rows, cleanup=cleanup)


@UNHURRIED
@given(keys(), plain_columns(), BATCH_ROWS, st.data())
def test_collapsing_keeps_what_is_left_over(key, rest, batch_rows, data) -> None:
    columns = [*key, ("sign", "Int8"), *rest]
    names = tuple(name for name, _ in key)
    table = definition(columns, names, "CollapsingMergeTree", sign_column="sign")
    check(table, data.draw(with_values(columns, sign=st.sampled_from([-1, 1]))), batch_rows)


@UNHURRIED
@given(keys(), plain_columns(), BATCH_ROWS, st.data())
def test_versioned_collapsing_cancels_pairs(key, rest, batch_rows, data) -> None:
    columns = [*key, ("ver", "UInt8"), ("sign", "Int8"), *rest]
    table = definition(
        columns,
        tuple(name for name, _ in key),
        "VersionedCollapsingMergeTree",
        sign_column="sign",
        version_column="ver",
    )
    values = {"sign": st.sampled_from([-1, 1]), "ver": st.integers(0, 1)}
    check(table, data.draw(with_values(columns, **values)), batch_rows)


@UNHURRIED
@given(
    st.one_of(
        st.lists(st.sampled_from([-1, 1]), min_size=65, max_size=400),
        st.permutations([-1, 1] * 40),
        st.permutations([-1, 1] * 40 + [1]),
    ),
    st.integers(1, 50),
)
def test_a_key_with_many_rows_collapses_like_one_with_few(signs, batch_rows) -> None:
    columns = [("k", "Int64"), ("sign", "Int8"), ("n", "Int64")]
    table = definition(columns, ("k",), "CollapsingMergeTree", sign_column="sign")
    rows = [{"k": 1, "sign": sign, "n": number} for number, sign in enumerate(signs)]
    check(table, [rows], batch_rows)


@pytest.mark.parametrize("sign", [0, 2, -2, -128, 127])
def test_a_sign_that_is_none_is_refused_with_its_value(sign) -> None:
    table = definition(
        [("k", "Int64"), ("s", "Int8")], ("k",), "CollapsingMergeTree", sign_column="s"
    )
    parts = [sorted_table([{"k": 1, "s": sign}], table)]
    with pytest.raises(IncorrectData, match=f"column s.*{sign}"):
        merge_tables(parts, job_of(table), batch_rows=10)


@UNHURRIED
@given(keys(), plain_columns(), BATCH_ROWS, st.data())
def test_summing_adds_numbers_and_drops_zeros(key, rest, batch_rows, data) -> None:
    columns = key + rest
    names = tuple(name for name, _ in key)
    numbers = tuple(name for name, kind in rest if "Int" in kind or "Float" in kind)
    others = tuple(name for name, _ in rest if name not in numbers)
    chosen = data.draw(st.sampled_from([(), numbers[:1], others[:1], numbers[:1] + others]))
    table = definition(columns, names, "SummingMergeTree", columns_to_sum=chosen)
    check(table, data.draw(with_values(columns)), batch_rows)


@UNHURRIED
@given(BATCH_ROWS, st.data())
def test_opposite_numbers_leave_no_row(batch_rows, data) -> None:
    columns = [("k", "Int64"), ("a", "Int8"), ("b", "Float64"), ("c", "Nullable(Int64)")]
    table = definition(columns, ("k",), "SummingMergeTree")
    values = {
        "k": st.integers(0, 2),
        "a": st.integers(-1, 1),
        "b": st.sampled_from([0.0, 0.5, -0.5]),
        "c": st.one_of(st.none(), st.just(0)),
    }
    check(table, data.draw(with_values(columns, **values)), batch_rows)


MAPS = {
    "UInt8": st.integers(0, 3),
    "String": st.sampled_from(["", "x", "y"]),
    "Int64": SMALL,
    "Float64": st.sampled_from([0.0, 1.0, -1.0, 0.5]),
    "Nullable(UInt8)": st.sampled_from([None, 0, 1, 255]),
    "Int128": st.sampled_from([0, 1, -1, 2**127 - 1, -(2**127)]),
    "UInt256": st.sampled_from([0, 1, 2**256 - 1]),
    "Decimal(9, 2)": st.sampled_from([decimal.Decimal(text) for text in ("0", "1.5", "-1.5")]),
    "Enum8('b' = -1, 'c' = 2, 'a' = 7)": st.sampled_from("abc"),
    "Bool": st.booleans(),
    "UUID": UUIDS,
}
MAP_KEYS = [
    *("UInt8", "String", "Int128", "Enum8('b' = -1, 'c' = 2, 'a' = 7)"),
    *("Bool", "UUID", "Nullable(UInt8)", "Float64"),
]
MAP_VALUES = ["Int64", "Float64", "Nullable(UInt8)", "Int128", "UInt256", "Decimal(9, 2)"]


@UNHURRIED
@given(
    st.sampled_from(MAP_KEYS),
    st.booleans(),
    st.lists(st.sampled_from(MAP_VALUES), min_size=1, max_size=2),
    st.sampled_from([(), ("theMap",), ("v",)]),
    BATCH_ROWS,
    st.data(),
)
def test_summing_adds_maps_key_by_key(  # noqa: PLR0917  drawn by hypothesis
    kind, two_keys, values, chosen, batch_rows, data
) -> None:
    members = [("theMap.key", kind)]
    if two_keys:
        members.append(("theMap.otherID", "UInt8"))
    members += [(f"theMap.v{number}", each) for number, each in enumerate(values)]
    columns = [
        ("k", "UInt8"),
        ("v", "Int64"),
        *((name, f"Array({each})") for name, each in members),
    ]
    table = definition(columns, ("k",), "SummingMergeTree", columns_to_sum=chosen)

    @st.composite
    def row(draw: st.DrawFn) -> Row:
        length = draw(st.integers(0, 3))
        maps = {
            name: draw(st.lists(MAPS[each], min_size=length, max_size=length))
            for name, each in members
        }
        return {"k": draw(st.integers(0, 1)), "v": draw(SMALL), **maps}

    check(
        table,
        data.draw(st.lists(st.lists(row(), max_size=4), min_size=1, max_size=3)),
        batch_rows,
    )


def test_a_sum_in_a_map_that_has_too_many_digits_is_a_decimal_of_the_type() -> None:
    """As a sum of decimals outside of maps is."""
    columns = [("k", "UInt8"), ("d", "Decimal(9, 2)")]
    columns += [("theMap.key", "Array(UInt8)"), ("theMap.v", "Array(Decimal(9, 2))")]
    table = definition(columns, ("k",), "SummingMergeTree")
    most = decimal.Decimal("9999999.99")
    part = sorted_table([{"k": 1, "d": most, "theMap.key": [1], "theMap.v": [most]}], table)
    found, _ = merge_tables([part, part], job_of(table), batch_rows=10)
    assert found.column("theMap.v").to_pylist() == [found.column("d").to_pylist()]


FUNCTIONS = {
    "any": [*ALL_VALUES],
    "anyLast": [*ALL_VALUES],
    "min": [
        "Int64",
        "Float64",
        "String",
        "Nullable(Int64)",
        "Nullable(Float64)",
        "Int128",
        "Date",
        "UUID",
    ],
    "max": [
        "UInt64",
        "Float32",
        "String",
        "Nullable(String)",
        "Nullable(Float64)",
        "Decimal(38, 2)",
        "Enum8('b' = -1, 'c' = 2, 'a' = 7)",
    ],
    "sum": [
        "Int64",
        "Float64",
        "Decimal(18, 2)",
        "Nullable(Int8)",
        "UInt128",
        "Nullable(Int256)",
    ],
    "sumWithOverflow": ["UInt8", "Float32"],
    "groupBitAnd": ["UInt8", "Int64", "Nullable(UInt64)", "UInt128", "Nullable(Int128)"],
    "groupBitOr": ["UInt8", "Nullable(Int64)", "Int256"],
    "groupBitXor": ["UInt64", "Nullable(Int8)", "Nullable(UInt128)"],
    "groupArrayArray": ["Array(Int64)"],
    "groupUniqArrayArray": ["Array(Int64)"],
}


@pytest.mark.parametrize("function", FUNCTIONS)
@UNHURRIED
@given(FOLDING, BATCH_ROWS, st.data())
def test_simple_aggregate_functions_fold_each_key(function, engine, batch_rows, data) -> None:
    inner = data.draw(st.sampled_from(FUNCTIONS[function]))
    columns = [
        ("k", "UInt8"),
        ("a", f"SimpleAggregateFunction({function}, {inner})"),
        ("rest", "String"),
    ]
    table = definition(columns, ("k",), engine)
    values = {"k": st.integers(0, 5), "a": ALL_VALUES[inner], "rest": TEXT}
    check(table, data.draw(with_values(columns, **values)), batch_rows)


@pytest.mark.parametrize("function", ["min", "max", "any"])
def test_nan_counts_only_where_there_is_nothing_else(function) -> None:
    columns = [("k", "UInt8"), ("a", f"SimpleAggregateFunction({function}, Float64)")]
    table = definition(columns, ("k",), "AggregatingMergeTree")
    nan = float("nan")
    rows = [
        {"k": key, "a": value} for key in range(3) for value in ([nan], [2.0, nan], [nan])[key]
    ]
    check(table, [rows], 100)


def test_elements_repeat_within_a_key_not_between_keys() -> None:
    columns = [
        ("k", "UInt8"),
        ("a", "SimpleAggregateFunction(groupUniqArrayArray, Array(Int64))"),
    ]
    table = definition(columns, ("k",), "AggregatingMergeTree")
    check(table, [[{"k": key, "a": [1, 2, 1]} for key in range(4)]], 100)


def test_a_decimal_that_overflows_keeps_the_digits_that_its_type_has() -> None:
    """The original keeps more digits than the type says; Parquet cannot."""
    table = definition([("k", "Int8"), ("a", "Decimal(9, 0)")], ("k",), "SummingMergeTree")
    most = decimal.Decimal(999_999_999)
    parts = [sorted_table([{"k": 1, "a": most}], table) for _ in range(2)]
    found, _ = merge_tables(parts, job_of(table), batch_rows=10)
    assert rows_of(found, table) == [{"k": 1, "a": most - 1}]


def test_nothing_in_arrays_and_tuples_is_neither_the_least_nor_the_greatest() -> None:
    """A merge of tuples with NULL failed, and took an array with NULL for the greatest."""
    tuples, lists = "Tuple(Nullable(Int8), String)", "Array(Nullable(Int8))"
    columns = [("k", "UInt8")]
    columns += [
        (f"{function}{kind[0]}", f"SimpleAggregateFunction({function}, {kind})")
        for function in ("min", "max")
        for kind in (tuples, lists)
    ]
    table = definition(columns, ("k",), "AggregatingMergeTree")
    values: list[tuple[Any, Any]] = [
        ({"1": None, "2": "z"}, [None]),
        ({"1": 1, "2": "a"}, [1, None]),
        ({"1": 1, "2": "b"}, [1, 2]),
        ({"1": None, "2": "a"}, [None, 5]),
    ]
    parts = [
        sorted_table([{"k": 1, "minT": t, "maxT": t, "minA": a, "maxA": a}], table)
        for t, a in values
    ]
    found, _ = merge_tables(parts, job_of(table), batch_rows=2)
    assert found.to_pylist() == [
        {
            "k": 1,
            "minT": {"1": 1, "2": "a"},
            "minA": [1, 2],
            "maxT": {"1": 1, "2": "b"},
            "maxA": [1, 2],
        }
    ]


def test_a_map_with_two_keys_keeps_what_is_there_once() -> None:
    """Also if it is 0; and a key goes when one more value makes zero of it."""
    names = ("aMap.k", "aMap.otherID", "aMap.v")
    columns = [("k", "UInt8"), *((name, "Array(Int8)") for name in names)]
    table = definition(columns, ("k",), "SummingMergeTree")
    parts = [
        sorted_table([{"k": 1, **dict(zip(names, arrays, strict=True))}], table)
        for arrays in (
            ([1, 2, 3, 4], [1, 1, 1, 1], [0, 5, 0, 6]),
            ([2, 3, 4], [1, 1, 1], [-5, 0, 1]),
            ([2], [1], [0]),
        )
    ]
    found, _ = merge_tables(parts, job_of(table), batch_rows=1)
    [row] = found.to_pylist()
    assert [row[name] for name in names] == [[1, 2, 4], [1, 1, 1], [0, 0, 7]]


def test_decimals_in_a_map_with_two_keys_are_added_exactly() -> None:
    """Rounded to 28 digits, the last sum would be 0, and its key gone."""
    names = ("aMap.k", "aMap.otherID", "aMap.v")
    kinds = ("Array(Int8)", "Array(Int8)", "Array(Decimal(38, 0))")
    columns = [("k", "UInt8"), *zip(names, kinds, strict=True)]
    table = definition(columns, ("k",), "SummingMergeTree")
    values = [decimal.Decimal(2 * 10**37 + one) for one in (1, 0)]
    values.append(decimal.Decimal(-4 * 10**37))
    parts = [
        sorted_table([{"k": 1, "aMap.k": [1], "aMap.otherID": [1], "aMap.v": [value]}], table)
        for value in values
    ]
    found, _ = merge_tables(parts, job_of(table), batch_rows=10)
    assert found.to_pylist() == [
        {"k": 1, "aMap.k": [1], "aMap.otherID": [1], "aMap.v": [decimal.Decimal(1)]}
    ]


def test_a_sum_of_0_in_a_map_of_nullable_values_is_a_value() -> None:
    """As the original has it: only where all are NULL, and all other sums 0, the key goes."""
    columns = [("k", "UInt8"), ("aMap.k", "Array(Int8)"), ("aMap.v", "Array(Nullable(Int8))")]
    table = definition(columns, ("k",), "SummingMergeTree")
    parts = [
        sorted_table([{"k": 1, "aMap.k": keys, "aMap.v": values}], table)
        for keys, values in (([1, 2, 3], [None, 0, 5]), ([1, 2, 3], [None, None, -5]))
    ]
    found, _ = merge_tables(parts, job_of(table), batch_rows=1)
    assert found.to_pylist() == [{"k": 1, "aMap.k": [2, 3], "aMap.v": [0, 0]}]


def test_maps_are_added_up_whichever_columns_the_engine_is_to_sum() -> None:
    """SummingMergeTree((v)) took a map's first value, and removed rows whose v was 0 with their
    maps.
    """
    columns = [("k", "UInt8"), ("v", "Int8"), ("w", "Int8")]
    columns += [("aMap.k", "Array(Int8)"), ("aMap.v", "Array(Int8)")]
    table = definition(columns, ("k",), "SummingMergeTree", columns_to_sum=("v",))
    part = sorted_table(
        [{"k": k, "v": k, "w": 5, "aMap.k": [1], "aMap.v": [2]} for k in (0, 1)], table
    )
    found, _ = merge_tables([part, part], job_of(table), batch_rows=1)
    assert found.to_pylist() == [
        {"k": k, "v": 2 * k, "w": 5, "aMap.k": [1], "aMap.v": [4]} for k in (0, 1)
    ]
