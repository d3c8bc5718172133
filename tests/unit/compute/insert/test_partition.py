"""Partition ids and texts against the answers of a real ClickHouse (26.9, `system.parts`)."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from rmt_pipeline.compute.insert.partition import partition_id, partition_text
from rmt_pipeline.syntax.types import parse_type

UUID = "61f0c404-5cb3-11e7-907b-a6006ad3dba0"
DAY = dt.date(2020, 1, 2)
NOON_US = 1_577_934_245_000_000  # 2020-01-02 03:04:05 UTC

ANSWERS: list[tuple[str, Any, str, str]] = [
    ("Int8", -3, "-3", "-3"),
    ("UInt64", 2**64 - 1, "18446744073709551615", "18446744073709551615"),
    ("Int8; Int64", (-1, -2), "-1--2", "(-1,-2)"),
    ("Bool", True, "1", "true"),
    ("Date", DAY, "20200102", "2020-01-02"),
    ("UInt32; Date", (202001, DAY), "202001-20200102", "(202001,'2020-01-02')"),
    ("Date32", DAY, "18263", "2020-01-02"),
    ("Date32", dt.date(1930, 5, 6), "-14485", "1930-05-06"),
    ("DateTime('UTC')", NOON_US, "1577934245", "2020-01-02 03:04:05"),
    ("Enum8('x' = -3, 'y' = 4)", "x", "-3", "x"),
    ("IPv4", 0x01020304, "16909060", "1.2.3.4"),
    ("String", "a", "51fbadfb0deeea70ceafbd3c7c8aef25", "a"),
    ("String", "bc", "1069454602009baaedd500a50f917400", "bc"),
    ("String", "", "f64abffc6c96f8ef72c783f1b9426e19", ""),
    ("String", "it's", "de8077ca66b7d4c91dec24170dce4d53", "it's"),
    ("String", "a\tb'c\\d\n", "33ccbbcf4ec4eb766451c20b0c9151c5", "a\tb'c\\d\n"),
    ("LowCardinality(String)", "a", "51fbadfb0deeea70ceafbd3c7c8aef25", "a"),
    ("String; Int8", ("a", 5), "8d02672e89263b06fb674b8c4fe43e59", "('a',5)"),
    ("String; Int8", ("a", -1), "c6dde60c272bf5447fb30ee936e54149", "('a',-1)"),
    (
        "String; Int8",
        ("a\tb'c\\d\n", 1),
        "681b1b7d212fe53f25c3e176c506d1ef",
        r"('a\tb\'c\\d\n',1)",
    ),
    ("FixedString(3)", b"ab\0", "b5c66beb65170eaba1311b34819cd11b", "ab\0"),
    ("IPv6", bytes(15) + b"\1", "1ebc31932a947b7ca9e898a271e7f028", "::1"),
    ("UUID", UUID, "48406fdb38e23228b776558b4edfa795", UUID),
    ("DateTime64(3, 'UTC')", NOON_US + 123_000, "8eea66108f5c6af4a41f0579de6d1d31",
     "2020-01-02 03:04:05.123"),
    ("Float64", 1.5, "11876ff8640afac37203e8651c527cea", "1.5"),
    ("Float32", 1.5, "11876ff8640afac37203e8651c527cea", "1.5"),
    ("Decimal(9, 2)", Decimal("1.25"), "ef4f1cf591db9967dbc042e1e11dfc6e", "1.25"),
    ("Decimal(18, 2)", Decimal("1.25"), "0fbb95ee8cfeb1af653c4d42edad9bcc", "1.25"),
    ("Decimal(30, 2)", Decimal("1.25"), "525e43e58176da94c7fd56c1e9c50290", "1.25"),
    ("Decimal(38, 2)", Decimal("123456789012345678901234567890123456.78"),
     "aa55e0c661069386f7d88d99abc4aff2", "123456789012345678901234567890123456.78"),
    ("Decimal(70, 2)", 125, "0d43257b67ff16bb9f52a2440945f534", "1.25"),
    ("Int128", 125, "2d5a5c09f58dca834be7f466cb406bb4", "125"),
    ("Int128", -3, "b1febe48e18dcc162bc80ab288de00ab", "-3"),
    ("UInt128", 125, "60ff201e4d9f03f2dbc98ebe54e76c6f", "125"),
    ("UInt256", 125, "def63d70aa35a9a258623aea8de9e8d3", "125"),
    ("Int256", -125, "9df02ef5daa66f00bc2f10f1050a44f8", "-125"),
    ("Array(Int8)", [1, 2], "7367893826def61d2492b6e8385a2b40", "[1,2]"),
    ("Tuple(Int8, String)", {"1": 1, "2": "a"}, "92b5a30456304a45be8cfd0ea86dc9fd", "(1,'a')"),
    ("Map(String, Int8)", [("x", 1)], "7dfab7fd3137f5cee65d2c0d302d180f", "{'x':1}"),
    (
        "DateTime64(3, 'UTC'); Date",
        (NOON_US + 123_000, DAY),
        "e535e7bedf8813a5cceafb9ea6b96737",
        "('2020-01-02 03:04:05.123','2020-01-02')",
    ),
    (
        "Enum8('a' = -3); String",
        ("a", "b"),
        "eda519eaa824e5dab16ef055314e474e",
        "('a','b')",
    ),
    (
        "Bool; String; IPv4",
        (True, "b", 0x01020304),
        "303364101e55f8836d76e067e50aaab0",
        "(true,'b','1.2.3.4')",
    ),
    (
        "DateTime('UTC'); String",
        (NOON_US, "b"),
        "42b960ceada34d973ceba5eb04a837f9",
        "('2020-01-02 03:04:05','b')",
    ),
    (
        "Date32; String",
        (dt.date(1930, 5, 6), "b"),
        "da2c44f8a41de0d83c66196441d20c21",
        "('1930-05-06','b')",
    ),
    (
        "UUID; String",
        (UUID, "b"),
        "1b623a7782b0e3540aa59f9d467bfdf7",
        f"('{UUID}','b')",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("types", "value", "expected", "text"), ANSWERS)
def test_ids_and_texts_are_the_originals(
    types: str, value: Any, expected: str, text: str
) -> None:
    kinds = [parse_type(kind) for kind in types.split("; ")]
    values = list(value) if len(kinds) > 1 else [value]
    for place, kind in enumerate(kinds):
        if kind.wide_bytes:
            values[place] = kind.wide_to_bytes(values[place])
    assert partition_id(values, kinds) == expected
    assert partition_text(values, kinds) == text


def test_without_a_key_there_is_one_partition() -> None:
    assert partition_id([], []) == "all"
    assert partition_text([], []) == "tuple()"
