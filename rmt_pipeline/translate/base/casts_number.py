"""Casts to numbers, as in the original: integers wrap, and fractions are cut off."""

from rmt_pipeline.translate.base.temporal import (
    is_nanoseconds,
    microseconds,
    nanoseconds,
    seconds,
)
from rmt_pipeline.translate.base.typed import Typed, TypeProblem, let, working_type
from rmt_pipeline.types.data_type import DataType

FLOAT32_MAX = "3.4028235677973366e38"  # from here on a Float64 rounds to infinity


def wrap(sql: str, plain: DataType) -> str:
    """Return SQL that cuts a HUGEINT to the bits of `plain`, an integer type of at most 64 bits."""
    mask = (1 << plain.bits) - 1
    if not plain.is_signed:
        return f"CAST(({sql} & {mask}::HUGEINT) AS {plain.duckdb})"
    half = 1 << (plain.bits - 1)
    low = f"((({sql} & {mask}::HUGEINT) + {half}::HUGEINT) & {mask}::HUGEINT)"
    return f"CAST(({low} - {half}::HUGEINT) AS {plain.duckdb})"


def fits(source: DataType, target: DataType) -> bool:
    """Whether `target` holds each integer of `source`."""
    return target.integer_min <= source.integer_min and source.integer_max <= target.integer_max


def to_integer(value: Typed, plain: DataType) -> str:
    """Return SQL that casts a value to an integer type. Raises TypeProblem when there is no such
    cast.
    """
    source = value.plain
    if plain.wide_bytes == 32 or source.wide_bytes == 32:
        raise TypeProblem(f"{source.text} cannot become {plain.text}: 256 bits are only stored")
    target = working_type(plain)
    if source.family == "Bool":
        return f"CAST({value.sql} AS {target})"
    if source.family == "DateTime64":  # towards zero; too large is an error, as there
        ticks = nanoseconds(value) if is_nanoseconds(source) else microseconds(value)
        unit = 10**9 if is_nanoseconds(source) else 10**6
        return f"CAST(({ticks} // {unit}) AS {target})"
    if source.is_decimal and not source.wide_bytes:
        return f"CAST(trunc({value.sql}) AS {target})"
    whole = whole_number(value)
    if whole is None:
        raise TypeProblem(f"a value of type {value.type.text} cannot become {plain.text}")
    sql, known = whole
    if known is not None and fits(known, plain):
        return f"CAST({sql} AS {target})"
    if plain.wide_bytes:
        return _to_wide(sql, plain, negative=known is None or known.is_signed)
    if known is not None and known.family == "UInt128":
        narrow = f"({sql} % CAST('18446744073709551616' AS UHUGEINT))"
        return wrap(f"CAST({narrow} AS HUGEINT)", plain)
    return wrap(f"CAST({sql} AS HUGEINT)", plain)


def _to_wide(sql: str, plain: DataType, *, negative: bool) -> str:
    if plain.is_signed or not negative:
        return f"CAST({sql} AS {working_type(plain)})"
    top = "CAST('340282366920938463463374607431768211455' AS UHUGEINT)"
    return (
        f"(CASE WHEN {sql} < 0 THEN {top} - CAST(-(CAST({sql} AS HUGEINT) + 1) AS UHUGEINT) "
        f"ELSE CAST({sql} AS UHUGEINT) END)"
    )


def whole_number(value: Typed) -> tuple[str, DataType | None]:
    """Return SQL of the value as an integer, and an integer type that holds its range, None if
    unknown. Raises TypeProblem.
    """
    plain = value.plain
    if plain.is_integer:
        return value.sql, plain
    if plain.is_float:
        return f"CAST(trunc({value.sql}) AS HUGEINT)", None
    if plain.is_decimal and not plain.wide_bytes:
        return f"CAST(trunc({value.sql}) AS HUGEINT)", None
    if plain.is_date:
        return f"date_diff('day', DATE '1970-01-01', {value.sql})", DataType("Int64")
    if plain.is_time:
        return seconds(value), DataType("Int64")
    if plain.family == "IPv4":
        return value.sql, DataType("UInt32")
    raise TypeProblem(f"a value of type {value.type.text} cannot become a number")


def to_float(value: Typed, plain: DataType) -> str | None:
    """Return SQL that casts a value to Float32 or Float64; None when there is no such cast."""
    source = value.plain
    if source.family == "DateTime64":
        scale = 1e9 if is_nanoseconds(source) else 1e6
        ticks = nanoseconds(value) if is_nanoseconds(source) else microseconds(value)
        return f"CAST(({ticks} / CAST({scale:.0f} AS DOUBLE)) AS {plain.duckdb})"
    if source.date_like or source.family == "IPv4":
        return f"CAST({whole_number(value)[0]} AS {plain.duckdb})"
    if plain.family == "Float32" and source.family == "Float64":
        # A number that is too large becomes infinite; DuckDB would refuse it.
        infinite = f"CASE WHEN {value.sql} > 0 THEN 'inf' ELSE '-inf' END"
        too_large = f"isfinite({value.sql}) AND abs({value.sql}) > {FLOAT32_MAX}"
        kept = f"CAST({value.sql} AS FLOAT)"
        return f"(CASE WHEN {too_large} THEN CAST({infinite} AS FLOAT) ELSE {kept} END)"
    if source.is_computable or source.family == "Bool":
        return f"CAST({value.sql} AS {plain.duckdb})"
    return None


def to_decimal(value: Typed, plain: DataType) -> str | None:
    """Return SQL that casts a value to a Decimal and cuts digits off as the original does; None
    when there is no such cast, or when it needs more than 128 bits.
    """
    source = value.plain
    if plain.wide_bytes or source.wide_bytes == 32:
        return None
    scale = plain.numbers[1]
    if source.is_integer or source.family == "Bool":
        number = f"CAST({value.sql} AS UTINYINT)" if source.family == "Bool" else value.sql
        return f"CAST({number} AS {plain.duckdb})"
    if source.is_decimal:
        kept = value.sql if source.numbers[1] <= scale else f"trunc({value.sql}, {scale})"
        return f"CAST({kept} AS {plain.duckdb})"
    if source.is_float:
        shifted = f"CAST(trunc({value.sql} * CAST({10**scale} AS DOUBLE)) AS HUGEINT)"
        return unscaled_to_decimal(shifted, plain)
    return None


def unscaled_to_decimal(sql: str, plain: DataType) -> str:
    """Return SQL of the decimal whose digits are the HUGEINT `sql`. It goes through text, which is
    exact at every width.
    """
    scale = plain.numbers[1]
    if scale == 0:
        return f"CAST({sql} AS {plain.duckdb})"
    unit = 10**scale
    sign = "CASE WHEN v < 0 THEN '-' ELSE '' END"
    fraction = f"lpad(CAST(abs(v % {unit}::HUGEINT) AS VARCHAR), {scale}, '0')"
    text = f"{sign} || abs(v // {unit}::HUGEINT) || '.' || {fraction}"
    return f"CAST({let(sql, 'v', text)} AS {plain.duckdb})"


def unscaled(value: Typed) -> str:
    """Return SQL of a decimal's digits as a HUGEINT."""
    return f"CAST(replace(CAST({value.sql} AS VARCHAR), '.', '') AS HUGEINT)"


def to_bool(value: Typed, plain: DataType) -> str | None:
    """Return SQL of a number as Bool: true if it is not 0. None if the value is no number."""
    del plain
    return f"({value.sql} <> 0)" if value.type.is_computable else None
