"""The row hash again, value by value in plain Python: the definition, obviously."""

import decimal
import hashlib
import math
import struct
from collections.abc import Iterable

import pyarrow as pa

from rmt_pipeline.store.hashes.values import lanes_of

WORD = 1 << 64
MULTIPLIERS = (
    (0xBF58476D1CE4E5B9, 0x94D049BB133111EB),
    (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53),
)
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def key(name: str, lane: int) -> int:
    digest = hashlib.sha256(f"rmt_pipeline row hash, lane {lane}: {name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") | 1


def mix(word: int, lane: int) -> int:
    first, second = MULTIPLIERS[lane]
    word %= WORD
    word = (word ^ (word >> 32)) * first % WORD
    word = (word ^ (word >> 29)) * second % WORD
    return word ^ (word >> 32)


def of_null(lane: int) -> int:
    return key("null", lane)


def of_number(number: int, lane: int) -> int:
    return mix(number + key("number", lane), lane)


def of_bytes(data: bytes, lane: int) -> int:
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    mixed = (mix(word + (j + 1) * key("word", lane), lane) for j, word in enumerate(words))
    return mix(sum(mixed) + len(data) * key("length", lane) + key("bytes", lane), lane)


def of_list(elements: list[int], lane: int) -> int:
    mixed = (mix(each + (j + 1) * key("item", lane), lane) for j, each in enumerate(elements))
    return mix(sum(mixed) + len(elements) * key("size", lane) + key("list", lane), lane)


def of_struct(fields: list[int], lane: int) -> int:
    factors = [mix((i + 1) * key("field", lane), lane) | 1 for i in range(len(fields))]
    products = (field * factor for field, factor in zip(fields, factors, strict=True))
    return mix(sum(products) + key("struct", lane), lane)


def of_float(number: float, lane: int) -> int:
    if math.isnan(number):
        return of_number(0x7FF8 << 48, lane)
    return of_number(int.from_bytes(struct.pack("<d", number + 0.0), "little"), lane)


def of_decimal(unscaled: int, scale: int, lane: int) -> int:
    words = [(unscaled >> (64 * place)) % WORD for place in range(4)]  # two's complement
    found = of_number(words[0] + scale * key("field", 0), lane)
    for place in range(1, 4):
        sign = WORD - 1 if words[place - 1] >> 63 else 0
        nothing = place * key("item", lane)
        found += mix(words[place] - sign + nothing, lane) - mix(nothing, lane)
    return found % WORD


def of_nested(scalar: pa.Scalar, lane: int) -> int:
    kind = scalar.type
    if pa.types.is_map(kind):
        pairs = [
            of_struct(
                [of_value(pa.scalar(k, kind.key_type), lane),
                 of_value(pa.scalar(v, kind.item_type), lane)],
                lane,
            )
            for k, v in scalar.as_py()
        ]  # fmt: skip
        return of_list(pairs, lane)
    if isinstance(scalar, pa.StructScalar):
        return of_struct([of_value(scalar[i], lane) for i in range(kind.num_fields)], lane)
    return of_list([of_value(each, lane) for each in scalar.values], lane)


def of_value(scalar: pa.Scalar, lane: int) -> int:
    kind = scalar.type
    if not scalar.is_valid:
        return of_null(lane)
    if pa.types.is_dictionary(kind):
        value = scalar.as_py()
        return of_value(pa.scalar(value, kind.value_type), lane)
    if pa.types.is_nested(kind):
        return of_nested(scalar, lane)
    if pa.types.is_floating(kind):
        return of_float(float(scalar.as_py()), lane)
    if pa.types.is_decimal(kind):
        unscaled = int(scalar.as_py().scaleb(kind.scale, decimal.Context(prec=100)))
        return of_decimal(unscaled, kind.scale, lane)
    if pa.types.is_date(kind):
        return of_number((scalar.as_py() - pa.scalar(0, pa.date32()).as_py()).days, lane)
    if pa.types.is_temporal(kind):
        return of_number(scalar.value * NANOSECONDS[kind.unit], lane)
    value = scalar.as_py()
    if isinstance(value, int):
        return of_number(int(value), lane)
    return of_bytes(value.encode() if isinstance(value, str) else value, lane)


def value_hash(scalar: pa.Scalar) -> int:
    return of_value(scalar, 0) + of_value(scalar, 1) * WORD


def row_lanes(row: dict[str, pa.Scalar]) -> tuple[int, int]:
    return tuple(
        mix(
            sum(
                of_value(value, lane) * (of_bytes(name.encode(), lane) | 1)
                for name, value in row.items()
            ),
            lane,
        )
        for lane in (0, 1)
    )  # type: ignore[return-value]


def total(hashes: Iterable[int]) -> int:
    return sum(hashes) % (1 << 128)


def each_row(table: pa.Table) -> list[tuple[int, int]]:
    """The lanes of every row."""
    return [
        row_lanes({name: table.column(name)[i] for name in table.column_names})
        for i in range(table.num_rows)
    ]


def table_hashes(table: pa.Table, start_position: int = 0) -> tuple[int, dict[str, int], int]:
    """row_hash, column_hashes and content_hash."""
    rows = each_row(table)
    columns = {name: total(map(value_hash, table.column(name))) for name in table.column_names}
    placed = [
        [
            mix(row[lane] + (start_position + i + 1) * key("position", lane), lane)
            for lane in (0, 1)
        ]
        for i, row in enumerate(rows)
    ]
    return (
        total(low + high * WORD for low, high in rows),
        columns,
        total(low + high * WORD for low, high in placed),
    )


def hash_values(array: pa.Array | pa.ChunkedArray) -> list[int]:
    """The 128-bit hash of each value."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in hash_values(chunk)]
    lanes = lanes_of(array).tolist()
    return [low | (high << 64) for low, high in zip(*lanes, strict=True)]
