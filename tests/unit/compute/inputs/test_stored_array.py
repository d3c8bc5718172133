"""Values from outside → stored values: what fits, what does not, and that both ways agree."""

# Times without a zone are what is tested here.
# ruff: noqa: DTZ001

import datetime as dt
import ipaddress
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmt_pipeline.compute.inputs import stored_array as module
from rmt_pipeline.compute.inputs.stored_array import Misfit, stored_array, stored_list
from rmt_pipeline.compute.inputs.stored_value import stored_value
from rmt_pipeline.syntax.types import parse_type
from tests.support.slow_row_hash import hash_values

UTC = dt.UTC
DAY = dt.date(2013, 7, 1)
INSTANT = dt.datetime(2013, 7, 1, 5, 6, 7, tzinfo=UTC)
ID = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
INT128 = parse_type("Int128")

FITTING: list[tuple[str, Any, Any]] = [
    ("Int8", -128, -128),
    ("Int8", 5.0, 5),
    ("UInt8", True, 1),
    ("UInt8", Decimal("7.0"), 7),
    ("Int64", "12", 12),
    ("Int64", np.int16(4), 4),
    ("Int128", 2**100, INT128.wide_to_bytes(2**100)),
    ("Int128", "-5", INT128.wide_to_bytes(-5)),
    ("Int128", INT128.wide_to_bytes(9), INT128.wide_to_bytes(9)),
    ("Float64", 3, 3.0),
    ("Float32", Decimal("0.5"), 0.5),
    ("Decimal(9, 2)", 1.15, Decimal("1.15")),
    ("Decimal(9, 2)", Decimal("1.239"), Decimal("1.23")),
    ("Decimal(9, 2)", 7, Decimal("7.00")),
    ("Decimal(70, 2)", Decimal("1.25"), parse_type("Decimal(70, 2)").wide_to_bytes(125)),
    ("Bool", 1, True),
    ("Bool", "false", False),
    ("String", b"caf\xc3\xa9", "café"),
    ("FixedString(3)", b"ab", b"ab\0"),
    ("FixedString(3)", "é", b"\xc3\xa9\0"),
    ("Date", DAY, DAY),
    ("Date", dt.datetime(2013, 7, 1), DAY),
    ("Date", "2013-07-01", DAY),
    ("Date32", dt.date(1930, 1, 2), dt.date(1930, 1, 2)),
    ("DateTime", INSTANT.replace(microsecond=999), INSTANT),
    ("DateTime", 1372655167, INSTANT),
    ("DateTime", DAY, dt.datetime(2013, 7, 1, tzinfo=UTC)),
    ("DateTime('Asia/Tokyo')", dt.datetime(2013, 7, 1, 14, 6, 7), INSTANT),
    ("DateTime('Asia/Tokyo')", "2013-07-01 14:06:07", INSTANT),
    ("DateTime('Asia/Tokyo')", INSTANT, INSTANT),
    ("DateTime64(3)", INSTANT.replace(microsecond=123456), INSTANT.replace(microsecond=123000)),
    ("DateTime64(9)", pd.Timestamp(1372655167000000007, tz="UTC"), 1372655167000000007),
    ("UUID", uuid.UUID(ID), ID),
    ("UUID", uuid.UUID(ID).bytes, ID),
    ("UUID", ID.upper(), ID),
    ("Enum8('a' = 1, 'b' = 2)", "a", "a"),
    ("Enum8('a' = 1, 'b' = 2)", 2, "b"),
    ("IPv4", "1.2.3.4", 0x01020304),
    ("IPv4", ipaddress.ip_address("1.2.3.4"), 0x01020304),
    ("IPv4", 0x01020304, 0x01020304),
    ("IPv6", "::1", bytes(15) + b"\1"),
    ("IPv6", ipaddress.ip_address("::1"), bytes(15) + b"\1"),
    ("Array(UInt8)", (1, 2), [1, 2]),
    ("Array(UInt8)", np.array([1, 2]), [1, 2]),
    ("Array(Nullable(Int8))", "[1,NULL]", [1, None]),
    ("Tuple(a Int8, b String)", {"b": "x", "a": 1}, {"a": 1, "b": "x"}),
    ("Tuple(Int8, String)", (1, "x"), {"1": 1, "2": "x"}),
    ("Map(String, Int8)", {"x": 1}, [("x", 1)]),
    ("Map(String, Int8)", [("x", 1)], [("x", 1)]),
    ("Nullable(Int8)", None, None),
    ("Nullable(Int8)", pd.NA, None),
    ("Nullable(DateTime)", pd.NaT, None),
    ("LowCardinality(Nullable(String))", None, None),
]


@pytest.mark.parametrize(("kind", "value", "stored"), FITTING)
def test_what_fits_is_stored(kind: str, value: Any, stored: Any) -> None:
    data_type = parse_type(kind)
    found = stored_value(value, data_type)
    assert found == stored
    assert type(found) is type(stored)
    assert pa.array([found], data_type.arrow).type == data_type.arrow


REFUSED: list[tuple[str, Any, str]] = [
    ("Int8", 128, r"128 \(int\) does not fit Int8 \(-128 to 127\)"),
    ("UInt64", -1, r"-1 \(int\) does not fit UInt64 \(0 to 18446744073709551615\)"),
    ("UInt256", -1, "does not fit UInt256"),
    ("Int8", 1.5, "no whole number"),
    ("Int8", float("nan"), "nan .* no whole number"),
    ("Int8", Decimal("Infinity"), "no whole number"),
    ("Int8", "x", "'x' is not an integer"),
    ("Int8", b"x", r"b'x' \(bytes\) does not fit Int8"),
    ("Int8", DAY, r"\(date\) does not fit Int8"),
    ("Int8", None, "NULL does not fit Int8, which is not Nullable"),
    ("Int8", pd.NA, "NULL does not fit Int8"),
    ("Float64", True, r"True \(bool\) does not fit Float64"),
    ("Float64", 10**400, "does not fit Float64"),
    ("Decimal(4, 2)", 100, "'100' does not fit Decimal"),
    ("Decimal(4, 2)", float("inf"), r"inf \(float\) does not fit"),
    ("Decimal(4, 2)", True, "does not fit"),
    ("Bool", 2, "neither true nor false"),
    ("String", 5, r"5 \(int\) does not fit String"),
    ("String", b"\xff", "not UTF-8; use FixedString"),
    ("String", "\ud800", "UTF-8"),
    ("FixedString(3)", b"abcd", "it has 4 bytes"),
    ("FixedString(3)", "abcd", "has 4 bytes"),
    ("FixedString(3)", 1, "does not fit"),
    ("Date", dt.datetime(2013, 7, 1, 5), "it has a time of day"),
    ("Date", dt.date(1969, 12, 31), "1970-01-01 to 2149-06-06"),
    ("Date", dt.date(2149, 6, 7), "does not fit Date"),
    ("Date", "2013-02-30", "there is no day '2013-02-30'"),
    ("Date", 5, r"5 \(int\) does not fit Date"),
    ("DateTime", dt.datetime(2106, 2, 8, tzinfo=UTC), "does not fit DateTime"),
    ("DateTime", -1, "0 to 4294967295 seconds"),
    ("DateTime", True, "does not fit"),
    ("DateTime64(3)", 5, "does not fit DateTime64"),
    ("UUID", b"short", "does not fit UUID"),
    ("UUID", "x", "not a UUID"),
    ("Enum8('a' = 1)", "z", "'z' is not an element of the enum; it has 'a'"),
    ("Enum8('a' = 1)", 7, "'7' is not an element"),
    ("Enum8('a' = 1)", 1.0, "does not fit"),
    ("IPv4", -1, "does not fit IPv4"),
    ("IPv4", 1 << 32, "does not fit IPv4"),
    ("IPv4", "1.2.3", "not an IPv4 address"),
    ("IPv6", b"x", "does not fit IPv6"),
    ("Array(Int8)", [1, 300], "300"),
    ("Array(Int8)", [None], "NULL does not fit Int8"),
    ("Array(Int8)", 5, "does not fit Array"),
    ("Array(Int8)", {"a": 1}, "does not fit Array"),
    ("Tuple(a Int8)", {"b": 1}, "its elements are a"),
    ("Tuple(Int8, Int8)", [1], "it has 2 elements"),
    ("Map(String, Int8)", 5, "does not fit Map"),
    ("Map(String, Int8)", [("a", 1, 2)], "no list of pairs"),
    ("Map(String, Int8)", {"a": 300}, "300"),
]


@pytest.mark.parametrize(("kind", "value", "reason"), REFUSED)
def test_what_does_not_fit_is_refused_with_value_type_and_reason(
    kind: str, value: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        stored_value(value, parse_type(kind))


def test_a_long_value_is_shown_in_part() -> None:
    with pytest.raises(ValueError, match="does not fit") as caught:
        stored_value(b"x" * 10_000, parse_type("Int8"))
    assert len(str(caught.value)) < 200


# Both ways agree: whatever the fast way takes, the slow way stores the same.

KINDS = [
    *("Int8", "UInt16", "Int64", "UInt64", "Int128", "Float32", "Float64", "Bool", "String"),
    *(
        "FixedString(2)",
        "Date",
        "Date32",
        "DateTime",
        "DateTime('Asia/Tokyo')",
        "DateTime64(3)",
    ),
    *("DateTime64(9)", "Decimal(9, 2)", "Decimal(38, 3)", "Decimal(50, 1)", "UUID", "IPv4"),
    *("IPv6", "Enum8('a' = 1, 'bc' = 2)", "Array(UInt8)", "Array(Nullable(String))"),
    *("Tuple(a UInt8, b String)", "Map(String, UInt8)"),
]
TEXTS = st.sampled_from(
    [
        *(
            "",
            "a",
            "bc",
            "1",
            "12",
            "-3",
            "300",
            "1.5",
            "0x1F",
            "1e3",
            "nan",
            "inf",
            "true",
            "0",
        ),
        *("2013-07-01", "2013-7-1", "1930-01-02", "20130701", "2013-02-30", "2149-06-07"),
        *("2013-07-01 05:06:07", "2013-07-01T05:06:07", "2013-07-01 05:06:07.123456789"),
        *("2013-07-01 05:06:07Z", "2013-07-01 05:06", "2013-07-01 05", "1372655167"),
        *("2013-07-01 05:06:60", "2300-01-01 00:00:00", ID, ID.upper(), "1.2.3.4", "::1"),
        *("+5", " 7", "18446744073709551615", "12345678.915", "[1,2]", "(1,'x')", "{'a':1}"),
    ]
)


def array_of(kind: pa.DataType, values: st.SearchStrategy) -> st.SearchStrategy[pa.Array]:
    lists = st.lists(st.one_of(st.none(), values), max_size=6)
    return lists.map(lambda each: pa.array(each, kind))


SOURCES = st.one_of(
    array_of(pa.string(), TEXTS),
    array_of(pa.large_string(), TEXTS),
    array_of(pa.string(), TEXTS).map(pa.Array.dictionary_encode),
    array_of(pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    array_of(pa.int64(), st.integers(-2, 300)),
    array_of(pa.uint8(), st.integers(0, 255)),
    array_of(pa.bool_(), st.booleans()),
    array_of(pa.float64(), st.one_of(st.floats(), st.integers(-300, 300).map(float))),
    array_of(
        pa.decimal128(20, 3), st.integers(-(10**7), 10**7).map(lambda n: Decimal(n) / 1000)
    ),
    array_of(pa.binary(), st.binary(max_size=3)),
    array_of(pa.binary(16), st.binary(min_size=16, max_size=16)),
    array_of(pa.date32(), st.dates()),
    array_of(pa.date64(), st.dates()),
    array_of(pa.timestamp("s"), st.datetimes(dt.datetime(1890, 1, 1), dt.datetime(2310, 1, 1))),
    array_of(
        pa.timestamp("us"),
        st.dates().map(lambda day: dt.datetime(day.year, day.month, day.day)),
    ),
    array_of(pa.timestamp("us", "UTC"), st.integers(-(10**15), 5 * 10**15)),
    array_of(pa.timestamp("ns", "Asia/Tokyo"), st.integers(-(2**62), 2**62)),
    array_of(pa.list_(pa.uint8()), st.lists(st.integers(0, 255), max_size=2)),
    array_of(pa.list_(pa.string()), st.lists(st.one_of(st.none(), TEXTS), max_size=2)),
    array_of(
        pa.struct([("a", pa.uint8()), ("b", pa.string())]),
        st.fixed_dictionaries({"a": st.integers(0, 255), "b": TEXTS}),
    ),
    array_of(
        pa.map_(pa.string(), pa.uint8()),
        st.lists(st.tuples(TEXTS, st.integers(0, 255)), max_size=2),
    ),
)


def outcome(array: pa.Array, kind: str) -> tuple[Any, ...]:
    try:
        stored = stored_array(array, parse_type(kind))
    except Misfit as misfit:
        return misfit.row, str(misfit)
    return stored.type, hash_values(stored)


@settings(max_examples=600)
@given(SOURCES, st.sampled_from(KINDS), st.booleans())
def test_both_ways_agree(array: pa.Array, kind: str, nullable: bool) -> None:
    if nullable and not kind.startswith(("Array", "Tuple", "Map")):
        kind = f"Nullable({kind})"
    found = outcome(array, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_fast", lambda *_: None)
        assert found == outcome(array, kind)


FAST = [
    (pa.array([1, 2]), "Int8"),
    (pa.array([1.0, 2.0]), "UInt64"),
    (pa.array(["1", "-2"]), "Int64"),
    (pa.array(["a", "b"]).dictionary_encode(), "String"),
    (pa.array(["2013-07-01"]), "Date"),
    (pa.array(["2013-07-01 05:06:07"]), "DateTime('Asia/Tokyo')"),
    (pa.array([INSTANT]), "DateTime"),
    (pa.array([dt.datetime(2013, 7, 1)]), "Date"),
    (pa.array([Decimal("1.50")]), "Decimal(20, 3)"),
    (pa.array(["a"]), "Enum8('a' = 1)"),
    (pa.array([ID]), "UUID"),
    (pa.array([[1], []], pa.list_(pa.uint8())), "Array(UInt8)"),
]


@pytest.mark.parametrize(("array", "kind"), FAST)
def test_common_columns_take_the_fast_way(
    array: pa.Array, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_slow", None)
    data_type = parse_type(kind)
    assert stored_array(array, data_type).type == data_type.arrow


def test_the_first_row_that_does_not_fit_is_named() -> None:
    rows = pa.array(["1", "2", "x", "1", "y", None])
    with pytest.raises(Misfit, match="'x' is not an integer") as caught:
        stored_array(rows, parse_type("Nullable(Int8)"))
    assert caught.value.row == 2
    with pytest.raises(Misfit, match="NULL") as caught:
        stored_array(pa.array(["1", None, "x"]), parse_type("Int8"))
    assert caught.value.row == 1
    with pytest.raises(Misfit, match="300") as caught:
        stored_array(pa.array([1, 300, 400]), parse_type("Int8"))
    assert caught.value.row == 1


def test_bytes_that_are_no_text_are_found_in_a_column_of_text() -> None:
    broken = pa.array([b"a", b"\xff"]).view(pa.string())
    with pytest.raises(Misfit, match="not UTF-8") as caught:
        stored_array(broken, parse_type("String"))
    assert caught.value.row == 1


def test_a_uuid_extension_is_a_uuid() -> None:
    array = pa.array([uuid.UUID(ID).bytes], pa.uuid())
    assert stored_array(array, parse_type("UUID")).to_pylist() == [ID]


def test_a_list_of_values_names_its_row() -> None:
    with pytest.raises(Misfit, match="300") as caught:
        stored_list([1, 300], parse_type("Int8"))
    assert caught.value.row == 1
