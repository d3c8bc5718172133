"""Pieces of DuckDB SQL with the ClickHouse types of their values.

*Working form*: the form of a value inside an expression, in which DuckDB computes. It is the stored
form of `data_type` with two exceptions: Int128 and UInt128 are HUGEINT and UHUGEINT, and a
condition (the UInt8 of a comparison) may be a BOOLEAN (`is_condition`).

Each SQL text is a complete operand: if it has an operator, it is in parentheses. So are negative
numbers, since DuckDB reads `%-2` as an operator of its own.
"""

import datetime as dt
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.types.data_type import EPOCH, DataType
from rmt_pipeline.types.escapes import duckdb_column, duckdb_text

SQL_CHARACTERS_MAX = 500_000  # SQL repeats arguments, so nesting could multiply it

UINT8, UINT16, UINT32, UINT64 = (parse_type(f"UInt{bits}") for bits in (8, 16, 32, 64))
INT8, INT64 = parse_type("Int8"), parse_type("Int64")
INT128, UINT128 = parse_type("Int128"), parse_type("UInt128")
FLOAT32, FLOAT64 = parse_type("Float32"), parse_type("Float64")
STRING, BOOL, DATE, UUID = (parse_type(name) for name in ("String", "Bool", "Date", "UUID"))
DATETIME = parse_type("DateTime")
NOTHING = DataType("Nothing")
NULL_TYPE = DataType("Nullable", elements=(NOTHING,))


class TypeProblem(UserError):
    """An expression has no meaning for the types of its parts."""

    code = "ILLEGAL_TYPE_OF_ARGUMENT"


@dataclass(frozen=True, slots=True)
class Constant:
    """The value of a constant expression: the Python value of its stored form."""

    value: object


@dataclass(frozen=True, slots=True)
class Typed:
    """SQL with its type: `sql` gives a value of `type` in the working form. `stored` is SQL of the
    stored form if that is known (for a column) and different, else "". `filter_sql` is what WHERE
    takes in place of a condition's `sql`, if there is something faster that may be false where the
    condition is NULL.
    """

    sql: str
    type: DataType
    constant: Constant | None = None
    is_condition: bool = False
    stored: str = ""
    filter_sql: str = ""

    def __post_init__(self) -> None:
        if len(self.sql) > SQL_CHARACTERS_MAX:
            raise UserError(
                "the expression is too large: it repeats its parts to more than "
                f"{SQL_CHARACTERS_MAX} characters of SQL. Simplify it"
            )

    @property
    def plain(self) -> DataType:
        return self.type.plain

    @property
    def nullable(self) -> bool:
        return self.type.nullable

    @property
    def is_null_literal(self) -> bool:
        return self.plain.family == "Nothing"


def tuple_elements(value: "Typed") -> list["Typed"]:
    """Return the elements of a tuple."""
    plain = value.plain
    pairs = zip(plain.element_names, plain.elements, strict=True)
    return [
        from_stored(f"struct_extract({value.sql}, {string_sql(name)})", element)
        for name, element in pairs
    ]


def array_of(element: DataType) -> DataType:
    """Return the type Array(element)."""
    return DataType("Array", elements=(element,))


def tuple_of(elements: Iterable[DataType], names: Iterable[str] = ()) -> DataType:
    """Return the type Tuple(…), with names if there are any."""
    return DataType("Tuple", elements=tuple(elements), names=tuple(names))


def nullable_type(data_type: DataType, nullable: bool = True) -> DataType:
    """Return `data_type` as Nullable if `nullable` is true and the original has such a type."""
    plain = data_type.plain
    if not nullable or data_type.nullable or plain.family in {"Array", "Tuple", "Map"}:
        return data_type
    return DataType("Nullable", elements=(plain,))


def any_nullable(values: Iterable[Typed]) -> bool:
    """Whether one of the values may be NULL, and so a result computed from them too."""
    return any(value.nullable for value in values)


# Values as SQL.


def string_sql(text: str) -> str:
    """Return SQL of a string. Raises UserError for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"the string {text[:40]!a} has bytes that are not UTF-8; a String holds text"
        ) from None
    quoted = duckdb_text(text)
    return quoted if "\0" not in text else "(" + quoted.replace("\0", "' || chr(0) || '") + ")"


def _bytes_sql(data: bytes) -> str:
    return f"from_hex('{data.hex()}')"


def number_sql(number: float) -> str:
    """Return SQL of a whole number or a Float64. Negative whole numbers are in parentheses."""
    if isinstance(number, float):
        text = (
            repr(number) if math.isfinite(number) else str(number).replace("-inf", "-Infinity")
        )
        return f"CAST('{text}' AS DOUBLE)"
    if abs(number) >= 2**127:
        return f"CAST('{number}' AS UHUGEINT)"
    return f"({number})" if number < 0 else str(number)


def constant_sql(value: object, data_type: DataType) -> str:
    """Return SQL of a value of `data_type` in the working form, from the Python value of the stored
    form.
    """
    plain = data_type.plain
    if value is None:
        return (
            "NULL" if plain.family == "Nothing" else f"CAST(NULL AS {working_type(data_type)})"
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer_sql(value, plain)
    if isinstance(value, dt.date):
        return _moment_sql(value)
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            is_number = plain.wide_bytes == 16 and plain.is_integer
            return (
                _integer_sql(plain.wide_from_bytes(value), plain)
                if is_number
                else _bytes_sql(value)
            )
        case str():
            return string_sql(value)
        case float():
            sql = number_sql(value)
            return sql if plain.family == "Float64" else f"CAST({sql} AS FLOAT)"
        case Decimal():
            return f"CAST('{value:f}' AS {plain.duckdb})"
        case _:
            return _nested_sql(value, plain)


def _integer_sql(value: int, plain: DataType) -> str:
    if plain.family == "DateTime64":
        return nanoseconds_sql(str(value))
    if plain.wide_bytes:
        return f"CAST('{value}' AS {working_type(plain)})"
    return f"CAST({value} AS {plain.duckdb})"


def _moment_sql(value: dt.date) -> str:
    if not isinstance(value, dt.datetime):
        return f"DATE '{value.isoformat()}'"
    units = (value - EPOCH) // dt.timedelta(microseconds=1)
    return f"make_timestamptz(CAST({units} AS BIGINT))"


def _nested_sql(value: object, plain: DataType) -> str:
    if plain.family == "Tuple":
        assert isinstance(value, dict)
        fields = zip(plain.element_names, plain.elements, strict=True)
        return struct_sql((name, stored_sql(value[name], each)) for name, each in fields)
    if plain.family == "Map":
        assert isinstance(value, list)
        key, element = plain.elements
        keys = ", ".join(stored_sql(each[0], key) for each in value)
        values = ", ".join(stored_sql(each[1], element) for each in value)
        return f"CAST(map([{keys}], [{values}]) AS {plain.duckdb})"
    assert isinstance(value, list)
    elements = ", ".join(stored_sql(each, plain.elements[0]) for each in value)
    return f"CAST([{elements}] AS {plain.duckdb})"


def stored_sql(value: object, data_type: DataType) -> str:
    """Return SQL of a value in the stored form, which values inside arrays, tuples and
    maps have.
    """
    plain = data_type.plain
    if isinstance(value, bytes) and plain.wide_bytes:
        return _bytes_sql(value)
    return constant_sql(value, data_type)


# A parameter of a DuckDB lambda hides a column of its name. Where the lambda's body contains SQL
# from outside, the parameter has one of these names, which no column has.
ELEMENT = '"\u00b7element"'
PLACE = '"\u00b7place"'


def parameter(depth: int) -> str:
    """Return the name in SQL for the parameter of a user's lambda that is inside `depth` others."""
    return f'"\u00b7parameter {depth}"'


def let(sql: str, name: str, body: str) -> str:
    """Return SQL of `body`, in which `name` stands for `sql`, so that `sql` is written and computed
    only once.

    `name` hides a column of that name, so `body` must contain only `name` and constants.
    """
    return f"list_transform([{sql}], lambda {name}: {body})[1]"


def attempt(sql: str, name: str, body: str) -> str:
    """Return SQL of `body`, in which `name` stands for `sql`, or of NULL where `body` fails. An
    error in `sql` remains an error.

    TRY is inside the lambda for two reasons. DuckDB computes an expression that is written twice
    only once, before the TRY and outside it; and it accepts no TRY around error().
    """
    return let(sql, name, f"TRY({body})")


def struct_sql(fields: Iterable[tuple[str, str]]) -> str:
    """Return SQL of a struct from names and SQL: `{'a': 1}`."""
    return "{" + ", ".join(f"{string_sql(name)}: {sql}" for name, sql in fields) + "}"


def nanoseconds_sql(sql: str) -> str:
    """Return SQL of an instant with nine digits of the second, from nanoseconds since the epoch."""
    return f"CAST(make_timestamp_ns(CAST({sql} AS BIGINT)) AS TIMESTAMPTZ_NS)"


def working_type(data_type: DataType) -> str:
    """Return the DuckDB type of the working form: a number also where bytes are stored, if there is
    one.
    """
    plain = data_type.plain
    if plain.is_integer and plain.wide_bytes == 16:
        return "HUGEINT" if plain.is_signed else "UHUGEINT"
    if plain.family == "Nothing":
        return "INTEGER"
    return plain.duckdb


# Between the stored and the working form.

_HALF = "CAST('0x' || substr(hex({0}), {1}, 16) AS UBIGINT)"


def column(name: str, data_type: DataType, sql: str = "") -> Typed:
    """Return a column as a value. `sql` is its SQL, "" if that is its name in DuckDB."""
    stored = sql or duckdb_column(name)
    return from_stored(stored, data_type)


def from_stored(stored: str, data_type: DataType) -> Typed:
    """Return a value in the working form from SQL of its stored form."""
    plain = data_type.plain
    if not (plain.is_integer and plain.wide_bytes == 16):
        return Typed(stored, data_type)
    high, low = _HALF.format(stored, 1), _HALF.format(stored, 17)
    unsigned = f"({high}::UHUGEINT * 18446744073709551616::UHUGEINT + {low}::UHUGEINT)"
    if not plain.is_signed:
        return Typed(unsigned, data_type, stored=stored)
    # The stored sign bit is flipped, so 2^63 is subtracted from the high half. The steps for
    # negative numbers never leave HUGEINT's range, down to the least number.
    top = f"(CAST({high} AS HUGEINT) - 9223372036854775808)"
    shift = "18446744073709551616::HUGEINT"
    signed = (
        f"(CASE WHEN {top} < 0 THEN ({top} + 1) * {shift} - ({shift} - CAST({low} AS HUGEINT)) "
        f"ELSE {top} * {shift} + CAST({low} AS HUGEINT) END)"
    )
    return Typed(signed, data_type, stored=stored)


def to_stored(value: Typed) -> str:
    """Return SQL of the stored form, of exactly the DuckDB type `value.type.duckdb`."""
    plain = value.plain
    if value.stored:
        return value.stored
    if plain.is_integer and plain.wide_bytes == 16:
        return _wide_stored(f"CAST({value.sql} AS {working_type(plain)})", plain)
    if value.sql.startswith('"') and value.sql.count('"') == 2:
        return value.sql  # a column, which has this type already
    return f"CAST({value.sql} AS {plain.duckdb})"


def _wide_stored(sql: str, plain: DataType) -> str:
    if plain.is_signed:  # add 2^127 without ever leaving a type's range
        half = "CAST('170141183460469231731687303715884105728' AS UHUGEINT)"
        one = "CAST(1 AS UHUGEINT)"
        sql = (
            f"(CASE WHEN {sql} < 0 THEN {half} - CAST(-({sql} + 1) AS UHUGEINT) - {one} "
            f"ELSE CAST({sql} AS UHUGEINT) + {half} END)"
        )
    high = f"CAST({sql} // CAST('18446744073709551616' AS UHUGEINT) AS UBIGINT)"
    low = f"CAST({sql} % CAST('18446744073709551616' AS UHUGEINT) AS UBIGINT)"
    return f"from_hex(lpad(to_hex({high}), 16, '0') || lpad(to_hex({low}), 16, '0'))"
