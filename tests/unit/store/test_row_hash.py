"""Laws of the row hash, and its agreement with the slow one. Claims of decision 0004."""

import datetime as dt
import decimal
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.protocol.errors import UnknownType
from rmt_pipeline.store.hashes import bytes as hash_bytes
from rmt_pipeline.store.hashes import lanes as hash_lanes
from rmt_pipeline.store.hashes.rows import (
    RowHashes,
    hash_groups,
    hash_table,
)
from tests.support import slow_row_hash as slow
from tests.support.slow_row_hash import hash_values
from tests.support.tables import arrays, tables

GOLDEN = Path(__file__).parents[2] / "golden" / "row_hash.json"


def one_value(value: object, kind: pa.DataType | None = None) -> int:
    return hash_values(pa.array([value], kind))[0]


@given(arrays())
def test_each_value_hashes_as_the_definition_says(array: pa.Array) -> None:
    assert hash_values(array) == [slow.value_hash(scalar) for scalar in array]


@settings(max_examples=50)
@given(tables(), st.integers(0, 2**40))
def test_a_table_hashes_as_the_definition_says(table: pa.Table, start: int) -> None:
    found = hash_table(table, start_position=start)
    expected = slow.table_hashes(table, start)
    assert (found.row_hash, dict(found.column_hashes), found.content_hash) == expected


@given(arrays(), st.data())
def test_slices_and_chunks_hash_as_the_whole(array: pa.Array, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(array)))
    chunked = pa.chunked_array([array.slice(0, cut), array.slice(cut)], array.type)
    assert hash_values(chunked) == hash_values(array)
    assert hash_table(pa.table({"x": chunked})) == hash_table(pa.table({"x": array}))


@given(tables(), st.data())
def test_hashes_of_consecutive_parts_of_a_table_add_up(
    table: pa.Table, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, table.num_rows))
    head, tail = table.slice(0, cut), table.slice(cut)
    assert hash_table(head) + hash_table(tail, start_position=cut) == hash_table(table)


@given(tables(), st.data())
def test_order_counts_for_the_content_hash_alone(table: pa.Table, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(table.num_rows)))
    shuffled = table.take(pa.array(order, pa.int64()))
    before, after = hash_table(table), hash_table(shuffled)
    assert (after.row_hash, after.column_hashes) == (before.row_hash, before.column_hashes)
    moved = slow.each_row(table) != slow.each_row(shuffled)
    assert (after.content_hash != before.content_hash) == moved


@given(tables(), st.data())
def test_the_order_of_columns_does_not_count(table: pa.Table, data: st.DataObject) -> None:
    names = data.draw(st.permutations(table.column_names))
    assert hash_table(table.select(names)) == hash_table(table)


def test_exchanging_the_values_of_two_columns_changes_the_rows_but_not_what_is_in_columns() -> (
    None
):
    a, b = pa.array([1, 2]), pa.array([3, 4])
    one, other = hash_table(pa.table({"x": a, "y": b})), hash_table(pa.table({"x": b, "y": a}))
    assert one.row_hash != other.row_hash
    assert one.column_hashes["x"] == other.column_hashes["y"]


def test_moving_a_value_to_another_row_changes_the_row_hash() -> None:
    one = hash_table(pa.table({"x": [1, 2], "y": [3, 4]}))
    other = hash_table(pa.table({"x": [1, 2], "y": [4, 3]}))
    assert one.column_hashes == other.column_hashes
    assert one.row_hash != other.row_hash


SAME_VALUES = {
    "dictionary encoded": (pa.array(["a", None, "b"]), pa.Array.dictionary_encode),
    "run-end encoded": (pa.array([1, 1, None]), pc.run_end_encode),
    "large string": (pa.array(["a", None, "bc" * 50]), lambda a: a.cast(pa.large_string())),
    "string view": (pa.array(["a", None, "bc" * 50]), lambda a: a.cast(pa.string_view())),
    "bytes": (pa.array(["a", "", "bc"]), lambda a: a.cast(pa.binary())),
    "fixed bytes": (pa.array([b"abc", b"xyz"]), lambda a: a.cast(pa.binary(3))),
    "wider integers": (pa.array([-5, None, 7], pa.int8()), lambda a: a.cast(pa.int64())),
    "unsigned": (pa.array([5, None], pa.int64()), lambda a: a.cast(pa.uint16())),
    "wider floats": (pa.array([1.5, None], pa.float32()), lambda a: a.cast(pa.float64())),
    "seconds": (pa.array([5, None], pa.timestamp("s")), lambda a: a.cast(pa.timestamp("ns"))),
    "zones": (
        pa.array([5, None], pa.timestamp("us", "UTC")),
        lambda a: a.cast(pa.timestamp("us", "Asia/Tokyo")),
    ),
    "date64": (
        pa.array([dt.date(1931, 5, 6), None], pa.date32()),
        lambda a: a.cast(pa.date64()),
    ),
    "wider decimals": (
        pa.array([decimal.Decimal("-1.23"), None, decimal.Decimal("9.99")], pa.decimal32(3, 2)),
        lambda a: a.cast(pa.decimal256(50, 2)),
    ),
    "large list": (
        pa.array([[1], None, [], [2, None]]),
        lambda a: a.cast(pa.large_list(pa.int64())),
    ),
    "fixed list": (pa.array([[1, 2], None, [3, 4]]), lambda a: a.cast(pa.list_(pa.int64(), 2))),
    "list view": (
        pa.array([[1, 2], None, [3]]),
        lambda a: pa.array(a.to_pylist(), pa.list_view(pa.int64())),
    ),
    "uuid": (pa.array([b"0" * 16], pa.binary(16)), lambda a: a.cast(pa.uuid())),
}


@pytest.mark.parametrize("name", SAME_VALUES)
def test_how_a_value_is_kept_does_not_count(name: str) -> None:
    array, other_form = SAME_VALUES[name]
    assert hash_values(other_form(array)) == hash_values(array)
    assert hash_values(other_form(array).slice(1)) == hash_values(array.slice(1))


def test_what_is_stored_under_a_null_does_not_count() -> None:
    null = pa.py_buffer(b"\x02")
    array = pa.Array.from_buffers(pa.int64(), 2, [null, pa.py_buffer(np.array([7, 8]))])
    assert hash_values(array) == hash_values(pa.array([None, 8]))
    strange = pa.DictionaryArray.from_arrays(
        pa.array([99, 0], pa.int8(), mask=np.array([True, False])), pa.array(["x"]), safe=False
    )
    assert hash_values(strange) == hash_values(pa.array([None, "x"]))
    assert hash_values(pa.array([None], pa.dictionary(pa.int8(), pa.string()))) == [
        one_value(None)
    ]


def test_a_null_within_a_dictionary_is_null() -> None:
    array = pa.DictionaryArray.from_arrays([0, 1], pa.array([None, "x"]))
    assert hash_values(array) == hash_values(pa.array([None, "x"]))


def test_zeros_are_equal_and_every_nan_is_the_same() -> None:
    strange_nan = np.array([0xFFF0_0000_0000_0001], dtype=np.uint64).view(np.float64)
    assert hash_values(pa.array([-0.0, 0.0]))[0] == one_value(0.0)
    assert hash_values(pa.array(strange_nan)) == [one_value(float("nan"), pa.float32())]


def test_values_that_look_alike_hash_differently() -> None:
    alike = [
        one_value(None),
        one_value(0),
        one_value(""),
        one_value("\0"),
        one_value("\0\0"),
        one_value("\0" * 8),
        one_value([], pa.list_(pa.int8())),
        one_value([0], pa.list_(pa.int8())),
        one_value([None], pa.list_(pa.int8())),
        one_value([0, 0], pa.list_(pa.int8())),
        one_value({"x": 0}),
        one_value({"x": None}, pa.struct([("x", pa.int8())])),
        one_value(decimal.Decimal("0.1")),
        one_value(decimal.Decimal("1e30"), pa.decimal128(38, 0)),
        one_value(10**30 % 2**64, pa.uint64()),
    ]
    assert len(set(alike)) == len(alike)


def test_long_strings_hash_the_same_alone_and_among_others(monkeypatch) -> None:
    """Strings of more than a slice take another way than those within one."""
    texts = ["x" * length for length in (63, 64, 65, 127, 128, 1000, 4096, 5000)] + [
        "y" * 70000
    ]
    expected = hash_values(pa.array(texts))
    assert expected[:6] == [slow.value_hash(pa.scalar(text)) for text in texts[:6]]
    monkeypatch.setattr(hash_bytes, "_SLICE_BYTES", 128)
    assert hash_values(pa.array(texts)) == expected


def test_slices_do_not_show(monkeypatch) -> None:
    table = pa.table({"l": [[1, 2, 3], [], None, [4] * 20, [5]] * 5, "s": list("abcde") * 5})
    expected = hash_table(table)
    monkeypatch.setattr(hash_lanes, "SLICE_ROWS", 3)
    monkeypatch.setattr("rmt_pipeline.store.hashes.lanes.SLICE_ROWS", 3)
    assert hash_table(table) == expected


def test_parquet_does_not_change_a_hash(tmp_path: Path) -> None:
    table = pa.table({"a": ["x", None, "x"] * 100, "b": [1.5, float("nan"), -0.0] * 100})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=7, use_dictionary=["a"])
    read = pq.read_table(tmp_path / "t.parquet", read_dictionary=["a"])
    assert pa.types.is_dictionary(read.schema.field("a").type)
    assert hash_table(read) == hash_table(table)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(0, 2**64 - 1))
def test_the_sum_of_lanes_carries(low: list[int], high: int) -> None:
    lanes = np.array([low, [high] * len(low)], dtype=np.uint64)
    expected = sum(each + (high << 64) for each in low) % 2**128
    assert hash_lanes.sums_128(lanes, np.array([0])) == [expected]


@given(tables(), st.data())
def test_groups_hash_as_tables_of_their_own(table: pa.Table, data: st.DataObject) -> None:
    ends = st.lists(st.integers(1, max(table.num_rows - 1, 1)), unique=True, max_size=4)
    starts = [0, *sorted(end for end in data.draw(ends) if end < table.num_rows)]
    bounds = [*starts, table.num_rows]
    expected = [
        hash_table(table.slice(low, high - low)) for low, high in itertools.pairwise(bounds)
    ]
    assert hash_groups(table, starts) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hash_lanes, "SLICE_ROWS", 2)
        assert hash_groups(table, starts) == expected


def test_a_type_without_a_hash_is_refused_by_name() -> None:
    with pytest.raises(UnknownType, match="month_day_nano_interval"):
        hash_values(pa.array([(1, 2, 3)], pa.month_day_nano_interval()))


def test_nothing_hashes_to_nothing() -> None:
    empty = pa.table({"a": pa.array([], pa.string())})
    assert hash_table(empty) == RowHashes(0, 0, {"a": 0}, 0)


def golden_table() -> pa.Table:
    times = pa.array([0, None, 1_372_636_800_123_456], pa.timestamp("us", "UTC"))
    return pa.table(
        {
            "id": pa.array([1, -1, 2**63 - 1], pa.int64()),
            "time": times,
            "short": ["", None, "EWR"],
            "long": ["N14228 from EWR to IAH", "é" * 40, "x" * 200],
            "number": [0.0, float("nan"), -1.5],
            "price": pa.array(
                [decimal.Decimal("1.25"), None, decimal.Decimal(-7)], pa.decimal128(38, 2)
            ),
            "fixed": pa.array([b"abc", b"\0\0\0", None], pa.binary(3)),
            "list": [[1, None], [], None],
            "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int32())),
            "pair": [{"x": 1, "y": "a"}, {"x": None, "y": ""}, None],
        }
    )


def test_the_hash_never_changes() -> None:
    """Numbers of years are in ZooKeeper: a failure here means that the code is wrong."""
    found = hash_table(golden_table())
    golden = json.loads(GOLDEN.read_text())
    assert golden == {
        "row_hash": f"{found.row_hash:032x}",
        "content_hash": f"{found.content_hash:032x}",
        "column_hashes": {name: f"{value:032x}" for name, value in found.column_hashes.items()},
    }
