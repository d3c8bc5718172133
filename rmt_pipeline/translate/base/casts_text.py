"""Text as a value of another type: it must be one from its first character to its last."""

from collections.abc import Callable

from rmt_pipeline.translate.base.casts_number import wrap
from rmt_pipeline.translate.base.temporal import (
    clamp_date,
    clamp_seconds,
    cut_microseconds,
    digits_of,
    from_microseconds,
    instant,
    is_nanoseconds,
)
from rmt_pipeline.translate.base.typed import TypeProblem, let, string_sql, working_type
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import duckdb_text


def _otherwise(sql: str, plain: DataType, *, lenient: bool) -> str:
    """What stands where text is no value: an error, or nothing (DuckDB's TRY takes no error())."""
    if lenient:
        return ""
    name = duckdb_text(f" as {plain.text}")
    return f"WHEN {sql} IS NOT NULL THEN error('cannot read ' || {sql} || {name}) "


def from_text(sql: str, plain: DataType, *, lenient: bool = False) -> str:
    """SQL of `plain`'s working form from SQL of VARCHAR. `lenient`: for use inside of TRY."""
    if plain.is_integer:
        return _integer_from_text(sql, plain, lenient=lenient)
    if plain.is_enum:
        known = ", ".join(string_sql(name) for name, _ in plain.values)
        rest = _otherwise(sql, plain, lenient=lenient)
        return f"(CASE WHEN {sql} IN ({known}) THEN {sql} {rest}END)"
    reader = _TEXT_READERS.get(plain.family)
    if reader is None or plain.wide_bytes:
        raise TypeProblem(f"text cannot become {plain.text}, unless it is a constant")
    return reader(sql, plain, lenient)


def _integer_from_text(sql: str, plain: DataType, *, lenient: bool) -> str:
    if plain.wide_bytes == 32:
        raise TypeProblem(f"text cannot become {plain.text}, unless it is a constant")
    pattern = "[-+]?[0-9]+" if plain.is_signed else "[+]?[0-9]+"
    number = f"CAST(v AS {'UHUGEINT' if plain.family == 'UInt128' else 'HUGEINT'})"
    if lenient:  # what does not fit shows as an overflow, which TRY turns into NULL
        number = f"CAST({number} AS {working_type(plain)})"
    elif not plain.wide_bytes:
        number = wrap(number, plain)
    rest = _otherwise("v", plain, lenient=lenient)
    body = f"CASE WHEN regexp_full_match(v, '{pattern}') THEN {number} {rest}END"
    return let(sql, "v", body)


def _float_from_text(sql: str, plain: DataType, lenient: bool) -> str:
    del lenient
    return f"CAST({sql} AS {plain.duckdb})"


def _decimal_from_text(sql: str, plain: DataType, lenient: bool) -> str:
    del lenient
    # DuckDB rounds the digits that do not fit; the original cuts them off.
    scale = plain.numbers[1]
    cut = f"regexp_replace({sql}, '(\\.[0-9]{{{scale}}})[0-9]+$', '\\1')"
    return f"CAST({cut} AS {plain.duckdb})"


def _date_from_text(sql: str, plain: DataType, lenient: bool) -> str:
    del lenient
    dashed = "v[1:4] || '-' || v[5:6] || '-' || v[7:8]"
    body = (
        f"CASE WHEN regexp_full_match(v, '[0-9]{{8}}') THEN CAST({dashed} AS DATE) "
        "ELSE CAST(v AS DATE) END"
    )
    read = let(sql, "v", body)
    return clamp_date(read) if plain.family == "Date" else read


def _time_from_text(sql: str, plain: DataType, lenient: bool) -> str:
    del lenient
    digits = digits_of(plain)
    if is_nanoseconds(plain):
        raise TypeProblem(f"text cannot become {plain.text}, unless it is a constant")
    unix = "CAST(trunc(CAST(v AS DECIMAL(38, 6)) * 1000000) AS BIGINT)"
    clock = f"epoch_us({instant('CAST(v AS TIMESTAMP)', plain.zone)})"
    if digits == 0 and plain.family == "DateTime":
        clock = f"({clamp_seconds(f'({clock} // 1000000)')} * 1000000)"
    # A tick of the clock that a Date has, too: 20200101.
    day = "CAST(v[1:4] || '-' || v[5:6] || '-' || v[7:8] AS TIMESTAMP)"
    body = (
        f"CASE WHEN regexp_full_match(v, '[0-9]{{8}}') THEN epoch_us({instant(day, plain.zone)}) "
        f"WHEN regexp_full_match(v, '[0-9]{{9,10}}([.][0-9]*)?') THEN {unix} ELSE {clock} END"
    )
    read = let(sql, "v", body)
    if digits < 6:
        read = let(read, "v", cut_microseconds("v", digits))
    return from_microseconds(read, plain)


def _bool_from_text(sql: str, plain: DataType, lenient: bool) -> str:
    true = "('true', '1', 't', 'y', 'yes', 'on', 'enable', 'enabled')"
    false = "('false', '0', 'f', 'n', 'no', 'off', 'disable', 'disabled')"
    body = (
        f"CASE WHEN lower(v) IN {true} THEN true WHEN lower(v) IN {false} THEN false "
        f"{_otherwise('v', plain, lenient=lenient)}END"
    )
    return let(sql, "v", body)


def _uuid_from_text(sql: str, plain: DataType, lenient: bool) -> str:
    del plain, lenient
    return f"CAST(CAST({sql} AS UUID) AS VARCHAR)"


def _ipv4_from_text(sql: str, plain: DataType, lenient: bool) -> str:
    octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    pattern = rf"{octet}\.{octet}\.{octet}\.{octet}"
    parts = [f"CAST(split_part(v, '.', {place}) AS BIGINT)" for place in (1, 2, 3, 4)]
    number = f"(({parts[0]} * 256 + {parts[1]}) * 256 + {parts[2]}) * 256 + {parts[3]}"
    body = (
        f"CASE WHEN regexp_full_match(v, '{pattern}') THEN CAST({number} AS UINTEGER) "
        f"{_otherwise('v', plain, lenient=lenient)}END"
    )
    return let(sql, "v", body)


_TEXT_READERS: dict[str, Callable[[str, DataType, bool], str]] = {
    "Float32": _float_from_text,
    "Float64": _float_from_text,
    "Decimal": _decimal_from_text,
    "Bool": _bool_from_text,
    "Date": _date_from_text,
    "Date32": _date_from_text,
    "DateTime": _time_from_text,
    "DateTime64": _time_from_text,
    "UUID": _uuid_from_text,
    "IPv4": _ipv4_from_text,
}
