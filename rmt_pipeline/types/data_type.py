"""A ClickHouse type, and its forms in Arrow, Parquet, DuckDB and Python.

For each family, the *stored form*, which Parquet files and Arrow tables hold, and the Python value
(of `default`, `from_text.parse_value` and Arrow's `as_py`):

    ClickHouse             Arrow                    Python value
    Int8..64, UInt8..64    int8..64, uint8..64      int
    Int128, UInt128        binary(16)               bytes (see below)
    Int256, UInt256        binary(32)               bytes (see below)
    Float32, Float64       float, double            float
    Decimal(P<=38, S)      decimal128(P, S)         decimal.Decimal
    Decimal(P>38, S)       binary(32)               bytes: the unscaled number (see below)
    Bool                   bool                     bool
    String                 string                   str
    FixedString(N)         binary(N)                bytes, padded with zero bytes
    Date, Date32           date32                   datetime.date
    DateTime, DateTime64   timestamp(us, UTC)       aware datetime in UTC
    DateTime64(7..9)       timestamp(ns, UTC)       int: nanoseconds since the epoch
    UUID                   string                   str: 36 lower-case characters
    Enum8, Enum16          string                   str: the element's name
    IPv4                   uint32                   int
    IPv6                   binary(16)               bytes, network order
    Array(T)               list(T)                  list
    Tuple(T, ...)          struct "1", "2", ...     dict by element name
    Map(K, V)              map(K, V)                list of (key, value)

* **Numbers wider than 64 bits** are big-endian bytes with the sign bit flipped, so that the order
  of bytes is that of numbers everywhere (sorting, Parquet statistics). No other form would do:
  DuckDB gives HUGEINT to Arrow as decimal128(38), which is too small, can't take decimal256 at all,
  and reads wide Parquet decimals as DOUBLE. In expressions numbers of 128 bits are DuckDB's HUGEINT
  and UHUGEINT; those of 256 bits are stored, compared and printed, but not computed with.
* **String** is UTF-8, because every reader of the files takes it for text; bytes that are not
  UTF-8 are refused when a value is read. FixedString takes any bytes.
* **Times** are instants in microseconds (nanoseconds above six digits), the unit of DuckDB,
  Spark and Parquet alike (Parquet has no seconds). The zone belongs to the column's type.
* **UUID and Enum** are text, which is readable in every tool. They are sorted and compared as in
  the original: an Enum by its numbers, a UUID by its last 64 bits and then by its first.
* **LowCardinality** and **SimpleAggregateFunction** are stored as the type inside them: Parquet
  has dictionaries of its own. **AggregateFunction** is stored as its state, an ordinary type.
"""

import datetime as dt
import decimal
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from rmt_pipeline.types.escapes import duckdb_name, quote_name, quote_text

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

INTEGER_BITS = {
    f"{sign}Int{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64, 128, 256)
}
FLOATS = frozenset({"Float32", "Float64"})
ENUMS = frozenset({"Enum8", "Enum16"})
DATES = frozenset({"Date", "Date32"})
TIMES = frozenset({"DateTime", "DateTime64"})
WRAPPERS = frozenset(
    {"Nullable", "LowCardinality", "SimpleAggregateFunction", "AggregateFunction"}
)
NESTED_NAMES = ("Nested",)


_ARROW = {
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Bool": pa.bool_(),
    "String": pa.string(),
    "Date": pa.date32(),
    "Date32": pa.date32(),
    "DateTime": pa.timestamp("us", "UTC"),
    "UUID": pa.string(),
    "Enum8": pa.string(),
    "Enum16": pa.string(),
    "IPv4": pa.uint32(),
    "IPv6": pa.binary(16),
    "Nothing": pa.int32(),  # the type of NULL in a query, but of no column
}
_DUCKDB = {
    "Int8": "TINYINT",
    "Int16": "SMALLINT",
    "Int32": "INTEGER",
    "Int64": "BIGINT",
    "UInt8": "UTINYINT",
    "UInt16": "USMALLINT",
    "UInt32": "UINTEGER",
    "UInt64": "UBIGINT",
    "Float32": "FLOAT",
    "Float64": "DOUBLE",
    "Bool": "BOOLEAN",
    "String": "VARCHAR",
    "Date": "DATE",
    "Date32": "DATE",
    "DateTime": "TIMESTAMP WITH TIME ZONE",
    "UUID": "VARCHAR",
    "Enum8": "VARCHAR",
    "Enum16": "VARCHAR",
    "IPv4": "UINTEGER",
    "Nothing": "INTEGER",
}
_DEFAULTS: dict[str, object] = {
    "Float32": 0.0,
    "Float64": 0.0,
    "Bool": False,
    "String": "",
    "Date": EPOCH.date(),
    "Date32": EPOCH.date(),
    "DateTime": EPOCH,
    "UUID": "00000000-0000-0000-0000-000000000000",
    "IPv4": 0,
    "IPv6": bytes(16),
}


@dataclass(frozen=True)
class DataType:
    """One type. `parse_type` makes and checks it; `text` is its canonical ClickHouse text.

    `family` is the name before the parenthesis. The other fields are used by some families:

    * `numbers`: (P, S) of Decimal, (N,) of FixedString, (digits,) of DateTime64.
    * `zone`: the time zone of DateTime and DateTime64; "" is UTC.
    * `values`: the pairs (name, number) of an Enum, ascending by number.
    * `elements`: the types inside a wrapper or a nested type. An AggregateFunction has the types of
      its arguments and, last, that of its state (aggregate_state.py).
    * `names`: the names of a named Tuple's elements; the function of a SimpleAggregateFunction or
      AggregateFunction, and after it its parameters.

    `Nested(a T, …)` is an Array of a named Tuple. NESTED_NAMES as its `names` tell it from others.
    """

    family: str
    numbers: tuple[int, ...] = ()
    zone: str = ""
    values: tuple[tuple[str, int], ...] = ()
    elements: tuple["DataType", ...] = ()
    names: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """The type in the original's spelling: `Decimal(9, 2)`, `Enum8('a' = 1)`,
        `Tuple(a Int8)`.
        """
        if self.is_nested:
            return f"Nested{self.elements[0].text.removeprefix('Tuple')}"
        arguments = self._arguments()
        return f"{self.family}({', '.join(arguments)})" if arguments else self.family

    def __str__(self) -> str:
        return self.text

    def _arguments(self) -> list[str]:
        if self.family == "Tuple" and self.names:
            pairs = zip(self.names, self.elements, strict=True)
            return [f"{quote_name(name)} {element.text}" for name, element in pairs]
        if self.values:
            return [f"{quote_text(name)} = {number}" for name, number in self.values]
        if self.family == "AggregateFunction":
            function, *parameters = self.names
            called = f"{function}({', '.join(parameters)})" if parameters else function
            return [called, *(element.text for element in self.elements[:-1])]
        arguments = [*self.names, *(str(number) for number in self.numbers)]
        if self.zone:
            arguments.append(quote_text(self.zone))
        return arguments + [element.text for element in self.elements]

    @property
    def is_nested(self) -> bool:
        """Whether it is `Nested(…)`, whose column n becomes a column for each element,
        named `n.a`.
        """
        return self.family == "Array" and self.names == NESTED_NAMES

    @cached_property
    def plain(self) -> "DataType":
        """The type of a value without the wrappers LowCardinality, Nullable,
        SimpleAggregateFunction and AggregateFunction.
        """
        return self.elements[-1].plain if self.family in WRAPPERS else self

    @cached_property
    def nullable(self) -> bool:
        if self.family == "Nullable":
            return True
        return self.family in WRAPPERS and self.elements[-1].nullable

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type of the stored form. Parquet keeps it unchanged."""
        match self.family:
            case "Decimal" if self.numbers[0] <= 38:
                return pa.decimal128(*self.numbers)
            case "FixedString":
                return pa.binary(self.numbers[0])
            case "DateTime64":
                return pa.timestamp("us" if self.numbers[0] <= 6 else "ns", "UTC")
            case "Array":
                return pa.list_(pa.field("element", self.elements[0].arrow))
            case "Map":
                key, value = self.elements
                return pa.map_(key.arrow, value.arrow)
            case "Tuple":
                pairs = zip(self.element_names, self.elements, strict=True)
                return pa.struct([pa.field(name, element.arrow) for name, element in pairs])
            case _:
                pass
        if self.family in WRAPPERS:
            return self.elements[-1].arrow
        if self.wide_bytes:
            return pa.binary(self.wide_bytes)
        if self.is_integer:
            unsigned = self.family.startswith("U")
            return getattr(
                pa, self.family.lower() if not unsigned else f"u{self.family[1:].lower()}"
            )()
        return _ARROW.get(self.family, pa.int64())  # the rest are intervals

    @cached_property
    def duckdb(self) -> str:
        """The DuckDB type of the stored form, as `typeof` names it."""
        plain = self.plain
        match plain.family:
            case "Decimal" if not plain.wide_bytes:
                return f"DECIMAL({plain.numbers[0]},{plain.numbers[1]})"
            case "DateTime64":
                return "TIMESTAMP WITH TIME ZONE" if plain.numbers[0] <= 6 else "TIMESTAMPTZ_NS"
            case "Array":
                return f"{plain.elements[0].duckdb}[]"
            case "Map":
                return f"MAP({plain.elements[0].duckdb}, {plain.elements[1].duckdb})"
            case "Tuple":
                pairs = zip(plain.element_names, plain.elements, strict=True)
                fields = ", ".join(f"{duckdb_name(name)} {each.duckdb}" for name, each in pairs)
                return f"STRUCT({fields})"
            case _:
                pass
        if plain.family.startswith("Interval"):
            return "BIGINT"
        return _DUCKDB.get(plain.family, "BLOB")

    @cached_property
    def element_names(self) -> tuple[str, ...]:
        """The names of a Tuple's fields in the stored form: its own, else "1", "2", ..."""
        return self.names or tuple(str(place + 1) for place in range(len(self.elements)))

    @cached_property
    def default(self) -> object:
        """The value of a row that lacks the column; `pa.array([...], self.arrow)` takes it."""
        if self.nullable:
            return None
        plain = self.plain
        match plain.family:
            case "Decimal" if not plain.wide_bytes:
                return decimal.Decimal(0).scaleb(-plain.numbers[1])
            case "FixedString":
                return bytes(plain.numbers[0])
            case "DateTime64":
                return EPOCH if plain.numbers[0] <= 6 else 0
            case "Enum8" | "Enum16":
                return plain.values[0][0]
            case "Array" | "Map":
                return []
            case "Tuple":
                pairs = zip(plain.element_names, plain.elements, strict=True)
                return {name: element.default for name, element in pairs}
            case _:
                pass
        if plain.wide_bytes:
            return plain.wide_to_bytes(0)
        return 0 if plain.is_integer else _DEFAULTS[plain.family]

    # Kinds of types. Wrappers such as Nullable are ignored.

    @cached_property
    def is_integer(self) -> bool:
        return self.plain.family in INTEGER_BITS

    @cached_property
    def is_signed(self) -> bool:
        return self.is_integer and not self.plain.family.startswith("U")

    @cached_property
    def is_float(self) -> bool:
        return self.plain.family in FLOATS

    @property
    def is_decimal(self) -> bool:
        return self.plain.family == "Decimal"

    @cached_property
    def is_numeric(self) -> bool:
        """Whether it is a number as in the original: integers, floats and decimals,
        but not Bool.
        """
        return self.is_integer or self.is_float or self.is_decimal

    @property
    def is_computable(self) -> bool:
        """Whether it is a number that this engine can compute with, of at most 128 bits."""
        return self.is_numeric and self.plain.wide_bytes != 32

    @cached_property
    def is_string(self) -> bool:
        return self.plain.family in {"String", "FixedString"}

    @property
    def is_enum(self) -> bool:
        return self.plain.family in ENUMS

    @cached_property
    def is_date(self) -> bool:
        return self.plain.family in DATES

    @property
    def is_time(self) -> bool:
        """Whether it is DateTime or DateTime64."""
        return self.plain.family in TIMES

    @property
    def date_like(self) -> bool:
        return self.is_date or self.is_time

    @cached_property
    def is_comparable(self) -> bool:
        """Whether its values have an order, so that it may be in a sorting key."""
        plain = self.plain
        has_order = plain.family != "Map" and self.family != "AggregateFunction"
        return has_order and all(each.is_comparable for each in plain.elements)

    @cached_property
    def bits(self) -> int:
        """The width of an integer, in bits; 0 for other families."""
        return INTEGER_BITS.get(self.plain.family, 0)

    @cached_property
    def integer_min(self) -> int:
        assert self.is_integer, self.text
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @cached_property
    def integer_max(self) -> int:
        assert self.is_integer, self.text
        return (1 << (self.bits - (1 if self.is_signed else 0))) - 1

    @cached_property
    def wide_bytes(self) -> int:
        """The number of bytes of a number that is stored as bytes, 16 or 32; else 0."""
        plain = self.plain
        if plain.family == "Decimal":
            return 32 if plain.numbers[0] > 38 else 0
        bits = INTEGER_BITS.get(plain.family, 0)
        return bits // 8 if bits > 64 else 0

    def wide_to_bytes(self, number: int) -> bytes:
        """Return the stored form of a wide number; a Decimal is given unscaled. Raises
        OverflowError if it is too big.
        """
        width = self.wide_bytes
        offset = 0 if self.plain.family.startswith("U") else 1 << (8 * width - 1)
        return (number + offset).to_bytes(width, "big")

    def wide_from_bytes(self, stored: bytes) -> int:
        """Return the number whose stored form `wide_to_bytes` gives."""
        offset = 0 if self.plain.family.startswith("U") else 1 << (8 * self.wide_bytes - 1)
        return int.from_bytes(stored, "big") - offset
