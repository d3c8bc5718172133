"""States of aggregate functions: merged by the kernel as by the oracle."""

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import UnknownType
from rmt_pipeline.syntax.types import parse_type
from tests.support.merging import Row, definition
from tests.unit.compute.merge.test_engines import BATCH_ROWS, FOLDING, UNHURRIED, check

NUMBER = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-3, 3)
HALVES = st.sampled_from([0.5, 1.0, -2.0])
TEXT = st.sampled_from(["", "a", "b"])
ENUM = "Enum8('b' = -1, 'c' = 2, 'a' = 7)"


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


def average(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"sum": values, "count": st.integers(0, 5)})


def chosen(
    values: st.SearchStrategy[Any], by: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"value": maybe(values), "by": maybe(by)})


STATES: dict[str, st.SearchStrategy[Any]] = {
    "AggregateFunction(count)": st.integers(0, 2**64 - 1),
    "AggregateFunction(sum, Int8)": NUMBER,
    "AggregateFunction(sum, Nullable(Int64))": maybe(NUMBER),
    "AggregateFunction(sum, Float32)": HALVES,
    "AggregateFunction(avg, UInt8)": average(st.integers(0, 2**64 - 1)),
    "AggregateFunction(avg, Decimal(9, 2))": average(st.decimals(-9, 9, places=2)),
    "AggregateFunction(min, String)": maybe(TEXT),
    f"AggregateFunction(max, {ENUM})": maybe(st.sampled_from("abc")),
    "AggregateFunction(min, Float64)": maybe(st.sampled_from([1.0, float("nan"), -1.0])),
    "AggregateFunction(any, LowCardinality(String))": maybe(TEXT),
    "AggregateFunction(anyLast, Nullable(Int64))": maybe(SMALL),
    "AggregateFunction(uniqExact, String)": st.lists(TEXT, unique=True),
    "AggregateFunction(uniq, String)": st.lists(TEXT, unique=True),
    "AggregateFunction(uniqHLL12, Int64)": st.lists(SMALL, unique=True),
    "AggregateFunction(groupUniqArray, Int64)": st.lists(SMALL, unique=True),
    "AggregateFunction(quantile, Int64)": st.lists(SMALL, max_size=3),
    "AggregateFunction(quantiles(0.5, 0.9), Int64)": st.lists(SMALL, max_size=3),
    "AggregateFunction(topK(2), String)": st.lists(TEXT, max_size=3),
    "AggregateFunction(stddevPop, Int64)": st.fixed_dictionaries(
        {"sum": HALVES, "squares": HALVES, "count": st.integers(0, 5)}
    ),
    "AggregateFunction(groupBitAnd, UInt8)": st.integers(0, 255),
    "AggregateFunction(groupBitXor, Int64)": NUMBER,
    "AggregateFunction(sumIf, Int64, UInt8)": NUMBER,
    "AggregateFunction(uniqIf, String, UInt8)": st.lists(TEXT, unique=True),
    "AggregateFunction(groupArray, Int64)": st.lists(SMALL, max_size=3),
    "AggregateFunction(argMin, String, Int64)": chosen(TEXT, SMALL),
    f"AggregateFunction(argMax, Int64, {ENUM})": chosen(SMALL, st.sampled_from("abc")),
}


@pytest.mark.parametrize("state", STATES)
@UNHURRIED
@given(FOLDING, BATCH_ROWS, st.data())
def test_states_of_a_key_become_one(state, engine, batch_rows, data) -> None:
    """P25."""
    table = definition([("k", "UInt8"), ("s", state), ("n", "Int64")], ("k",), engine)
    check(table, data.draw(parts_with(state)), batch_rows)


@cache
def parts_with(state: str) -> st.SearchStrategy[list[list[Row]]]:
    """Made once: to look into a new one takes hypothesis as long as to draw from it."""
    row = st.fixed_dictionaries({"k": st.integers(0, 2), "s": STATES[state], "n": SMALL})
    return st.lists(st.lists(row, max_size=5), min_size=1, max_size=3)


@pytest.mark.parametrize("state", STATES)
def test_the_type_of_a_state_is_read_and_written(state) -> None:
    kind = parse_type(state)
    assert kind.text == state
    assert not kind.is_comparable
    assert kind.arrow == kind.elements[-1].arrow


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("AggregateFunction(skewPop, Float64)", "AggregateFunction has no 'skewPop'; it has"),
        ("AggregateFunction(quantile, String)", "numbers can be added up, not String"),
        ("AggregateFunction(sum(1), Int64)", r"sum takes no parameters, such as \(1\)"),
        ("AggregateFunction(quantile('a'), Int64)", "quantile takes numbers in parentheses"),
        ("AggregateFunction(sumIf, Int64)", "sumIf takes 2 types, not 1"),
        ("AggregateFunction(sumIf, Int64, String)", "sumIf takes its condition last, a UInt8"),
        ("AggregateFunction(groupBitOr, Float64)", "groupBitOr takes integers, not Float64"),
        ("AggregateFunction(sum)", "sum takes 1 types, not 0"),
        ("AggregateFunction(argMin, String)", "argMin takes 2 types, not 1"),
        ("AggregateFunction(sum, String)", "numbers can be added up, not String"),
        ("AggregateFunction(min, Array(Int8))", r"a state of Array\(Int8\) is not supported"),
        ("AggregateFunction(sum, Int128)", "above 64 bits"),
        ("AggregateFunction(max, AggregateFunction(count))", "is not supported"),
    ],
)
def test_a_state_that_there_is_not_is_refused(text, message) -> None:
    with pytest.raises(UnknownType, match=message):
        parse_type(text)
