"""The quick way to text says the same as the one value by value."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmt_pipeline.sql.formats.write import QUICK_ROWS, column_text
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.to_text import column_values, formatter

VALUES = {
    "Int8": st.integers(-128, 127),
    "UInt64": st.integers(0, 2**64 - 1),
    "Float64": st.floats() | st.integers(-(10**20), 10**20).map(float),
    "Float32": st.floats(width=32),
    "String": st.text() | st.text("a\"'\\\t\n\0,"),
    "LowCardinality(Nullable(String))": st.none() | st.text("a'"),
    "Nullable(Int64)": st.none() | st.integers(-(2**63), 2**63 - 1),
    "Array(String)": st.lists(st.text("a'")),
    "Bool": st.booleans(),
}


@pytest.mark.parametrize("style", ["TSV", "CSV", "JSON", "nested"])
@given(data=st.data())
def test_quick_and_slow_texts_are_the_same(style, data):
    name = data.draw(st.sampled_from(sorted(VALUES)))
    data_type = parse_type(name)
    values = data.draw(st.lists(VALUES[name], min_size=1, max_size=5))
    array = pa.array(values * QUICK_ROWS, data_type.arrow)
    one_by_one = map(formatter(data_type, style), column_values(array))
    assert list(column_text(array, data_type, style)) == list(one_by_one)


def test_null_is_written_as_it_was_asked_for():
    for times in (1, QUICK_ROWS):
        array = pa.array([1, None] * times)
        texts = column_text(array, parse_type("Nullable(Int64)"), "TSV", "-")
        assert list(texts) == ["1", "-"] * times
    nested = pa.array([[1], None], pa.list_(pa.int64()))
    kind = parse_type("Array(Int64)")
    assert list(column_text(nested.drop_null(), kind, "CSV", "-")) == ['"[1]"']
