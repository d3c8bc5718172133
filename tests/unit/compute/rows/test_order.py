"""`row_order` against Python's own sort, for every type that may be in a key."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.rows.order import row_order
from rmt_pipeline.protocol.errors import UserError

UNHURRIED = settings(deadline=None)
ENDINGS = st.text(alphabet="a\0ü", max_size=3)
TEXT = st.one_of(
    ENDINGS,
    st.builds(lambda end: "1234567" + end, ENDINGS),
    st.builds(lambda end: "a common prefix " + end, ENDINGS),
)
NUMBER = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), NUMBER),
    "uint64": (pa.uint64(), st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "string": (pa.string(), TEXT),
    "large_string": (pa.large_string(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=16)),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), TEXT),
    "double": (
        pa.float64(),
        st.one_of(st.floats(allow_nan=False), st.sampled_from([0.0, -0.0])),
    ),
    "float": (pa.float32(), st.floats(allow_nan=False, width=32)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(dt.date(2023, 1, 1), dt.date(2023, 1, 5))),
    "time": (pa.timestamp("us", "UTC"), st.integers(-(10**16), 10**17)),
    "decimal128": (pa.decimal128(38, 0), st.decimals(-(10**37), 10**37, places=0)),
    "decimal256": (pa.decimal256(76, 0), st.decimals(-(10**70), 10**70, places=0)),
    "list": (pa.list_(pa.int8()), st.lists(st.integers(0, 2), max_size=3)),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.integers(0, 1), "b": ENDINGS}),
    ),
    "fixed": (pa.binary(10), st.binary(min_size=10, max_size=10)),
}


@st.composite
def columns(draw: st.DrawFn) -> list[pa.Array]:
    """Some key columns of one length; chunks of other arrays, so that they have offsets."""
    count = draw(st.integers(1, 30))
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    arrays = []
    for name in names:
        kind, values = COLUMNS[name]
        pool = draw(st.lists(values, min_size=1, max_size=8))
        drawn = draw(st.lists(st.sampled_from(pool), min_size=count + 2, max_size=count + 2))
        arrays.append(pa.array(drawn, kind).slice(1, count))
    return arrays


def python_key(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(python_key, value.values()))
    return value.encode() if isinstance(value, str) else value


@UNHURRIED
@given(columns())
def test_rows_are_ordered_as_python_orders_them_and_equal_keys_are_found(key) -> None:
    lists = [column.to_pylist() for column in key]
    keys = [tuple(map(python_key, row)) for row in zip(*lists, strict=True)]
    wanted = sorted(range(len(keys)), key=keys.__getitem__)
    new_key = [at == 0 or keys[row] != keys[wanted[at - 1]] for at, row in enumerate(wanted)]

    found = row_order(key)

    rows = range(len(keys)) if found.rows is None else found.rows.tolist()
    assert list(rows) == wanted
    assert found.new_key.tolist() == new_key


def test_sorted_rows_stay_where_they_are() -> None:
    assert row_order([pa.array([1, 1, 2]), pa.array(["a", "b", "a"])]).rows is None


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int8())])
def test_a_type_without_an_order_is_refused_by_name(kind) -> None:
    with pytest.raises(UserError, match="map"):
        row_order([pa.array([[]], kind)])


def test_all_nan_in_a_tuple_of_a_key_are_one_greatest_value() -> None:
    """0 / 0 is a NaN with a sign, which came first, and was another key."""
    values = np.array([1.0, np.nan, -np.inf, -np.nan, np.inf, np.nan])
    column = pa.StructArray.from_arrays([pa.array(values)], ["a"])
    found = row_order([column])
    assert found.rows is not None
    assert found.rows.tolist() == [2, 0, 4, 1, 3, 5]
    assert found.new_key.tolist() == [True, True, True, True, False, False]


def test_nothing_in_a_tuple_of_a_key_is_a_value_of_its_own() -> None:
    """Behind all others, as in the original. NULL and '' were one key, and NULL beside a number an
    error.
    """
    kind = pa.struct([("a", pa.int8()), ("b", pa.string())])
    rows = [(1, None), (None, "x"), (1, ""), (None, None), (1, None), (1, "z"), (None, "x")]
    column = pa.array([{"a": a, "b": b} for a, b in rows], kind)
    found = row_order([column])
    assert found.rows is not None
    assert [rows[at] for at in found.rows] == [
        *((1, ""), (1, "z"), (1, None), (1, None)),
        *((None, "x"), (None, "x"), (None, None)),
    ]
    assert found.new_key.tolist() == [True, True, True, False, True, False, True]
