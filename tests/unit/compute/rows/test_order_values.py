"""Enum and UUID keys: the order of what is stored is not the original's, that of the values is."""

import uuid

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.rows.order import row_order
from rmt_pipeline.compute.rows.order_values import has_own_order, order_values
from rmt_pipeline.syntax.types import parse_type
from tests.oracle.order import order_value

ENUM = "Enum16('b\\'s' = -300, 'c' = 2, 'a' = 7)"
VALUES = {
    ENUM: st.sampled_from(["a", "b's", "c"]),
    "UUID": st.one_of(
        st.uuids().map(str),
        st.integers(0, 3).map(lambda n: str(uuid.UUID(int=n << 64 | 3 - n))),
    ),
    f"SimpleAggregateFunction(max, {ENUM})": st.sampled_from(["a", "b's", "c"]),
    "LowCardinality(UUID)": st.uuids().map(str),
}


@pytest.mark.parametrize("text", VALUES)
@settings(deadline=None)
@given(st.data())
def test_rows_are_ordered_as_the_original_orders_them(text: str, data: st.DataObject) -> None:
    kind = parse_type(text)
    values = data.draw(st.lists(VALUES[text], min_size=1, max_size=20))
    start = data.draw(st.integers(0, len(values) - 1))
    array = pa.array(["", *values], kind.arrow).slice(1 + start)
    given_values = values[start:]
    if data.draw(st.booleans()):
        array = array.dictionary_encode()
    order = row_order([order_values(array, kind)]).rows
    found = given_values if order is None else [given_values[place] for place in order]
    assert found == sorted(given_values, key=lambda value: order_value(text, value))


def test_values_in_lists_and_tuples_are_ordered_too() -> None:
    kind = parse_type(f"Array(Tuple({ENUM}, Int8))")
    rows = [
        [{"1": "a", "2": 1}],
        [],
        [{"1": "b's", "2": 5}, {"1": "c", "2": 0}],
    ]
    found = order_values(pa.array([[{"1": "c", "2": 9}], *rows], kind.arrow).slice(1), kind)
    assert found.to_pylist() == [
        [{"1": 7, "2": 1}],
        [],
        [{"1": -300, "2": 5}, {"1": 2, "2": 0}],
    ]


def test_null_stays_null_and_a_name_that_is_gone_comes_first() -> None:
    array = pa.array(["a", None, "gone"])
    assert order_values(array, parse_type(f"Nullable({ENUM})")).to_pylist() == [
        7,
        None,
        -(2**31),
    ]
    uuids = pa.array([None, "00000000-0000-0000-0000-00000000000a"])
    found = order_values(uuids, parse_type("Nullable(UUID)")).to_pylist()
    assert found == [None, (10).to_bytes(8, "big") + bytes(8)]


def test_other_types_are_ordered_as_they_are_stored() -> None:
    assert not has_own_order(parse_type("Map(String, Int8)"))
    array = pa.array(["a"])
    assert order_values(array, parse_type("String")) is array
