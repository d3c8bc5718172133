"""Conversions between types, as the original's `CAST` and `to...` functions do them.

Integers wrap, fractions are cut off, dates are clamped to their range, and a text must be a value
of the type as a whole. NULL stays NULL.
"""

from collections.abc import Callable

from rmt_pipeline.protocol.errors import BadValue
from rmt_pipeline.translate.base.casts_number import (
    to_bool,
    to_decimal,
    to_float,
    to_integer,
    whole_number,
    wrap,
)
from rmt_pipeline.translate.base.temporal import (
    clamp_date,
    clamp_seconds,
    cut_microseconds,
    digits_of,
    from_microseconds,
    instant,
    instant_spelled,
    is_nanoseconds,
    local,
    microseconds,
    nanoseconds,
    within,
    wrap_date,
    wrap_microseconds,
)
from rmt_pipeline.translate.base.text_form import text_of
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    Constant,
    Typed,
    TypeProblem,
    any_nullable,
    attempt,
    constant_sql,
    from_stored,
    let,
    nanoseconds_sql,
    nullable_type,
    string_sql,
    struct_sql,
    to_stored,
    tuple_elements,
    working_type,
)
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import duckdb_text
from rmt_pipeline.types.from_text import parse_value


class CannotConvertType(TypeProblem):
    """A value of the source type would mean another value in the target type."""

    code = "CANNOT_CONVERT_TYPE"


# From text.


def _otherwise(sql: str, plain: DataType, *, lenient: bool) -> str:
    """Return the branch of a CASE for text that is no value: an error, or "" if `lenient`, since
    DuckDB's TRY does not catch error().
    """
    if lenient:
        return ""
    name = duckdb_text(f" as {plain.text}")
    return f"WHEN {sql} IS NOT NULL THEN error('cannot read ' || {sql} || {name}) "


def from_text(sql: str, plain: DataType, *, lenient: bool = False) -> str:
    """Return SQL that reads the VARCHAR `sql` as a value of `plain` in the working form. `lenient`
    is for use inside TRY. Raises TypeProblem for types that text can't be cast to.
    """
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
    if lenient:  # a number that does not fit overflows, and TRY makes NULL of it
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
        "CASE WHEN v = '0000-00-00' THEN DATE '1970-01-01' "
        f"WHEN regexp_full_match(v, '[0-9]{{8}}') THEN CAST({dashed} AS DATE) "
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
    clock = f"epoch_us({instant_spelled('CAST(v AS TIMESTAMP)', plain.zone)})"
    if digits == 0 and plain.family == "DateTime":
        clock = f"({clamp_seconds(f'({clock} // 1000000)')} * 1000000)"
    # Eight digits are a day and not seconds since the epoch: 20200101.
    day = "CAST(v[1:4] || '-' || v[5:6] || '-' || v[7:8] AS TIMESTAMP)"
    midnight = instant_spelled(day, plain.zone)
    body = (
        "CASE WHEN v IN ('0000-00-00', '0000-00-00 00:00:00') THEN 0 "
        f"WHEN regexp_full_match(v, '[0-9]{{8}}') THEN epoch_us({midnight}) "
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


def cast(value: Typed, target: DataType) -> Typed:
    """Return CAST(value AS target). A NULL that `target` can't hold is an error when the row is
    computed.
    """
    converted = convert(value, target)
    if value.nullable and not target.nullable and target.plain.family != "Nothing":
        message = string_sql(f"NULL does not fit {target.text}, which is not Nullable")
        return Typed(f"coalesce({converted.sql}, error({message}))", target)
    return Typed(converted.sql, target, converted.constant, stored=converted.stored)


def convert(value: Typed, target: DataType) -> Typed:
    """Return `value` as `target`, which becomes Nullable if `value` is. Raises TypeProblem,
    BadValue.
    """
    plain = target.plain
    result = nullable_type(plain, value.nullable)
    if value.is_null_literal:
        return Typed(constant_sql(None, plain), nullable_type(plain), Constant(None))
    if value.plain == plain and not value.is_condition:
        return Typed(value.sql, result, value.constant, stored=value.stored)
    if value.constant is not None and value.plain.family == "String":
        return _from_constant_text(value, plain)
    source = plain_condition(value)
    sql = _convert(source, plain)
    return Typed(sql, result)


def plain_condition(value: Typed) -> Typed:
    """Return a condition as its UInt8, and other values as they are."""
    if value.is_condition:
        return Typed(f"CAST({value.sql} AS UTINYINT)", value.type)
    return value


def _from_constant_text(value: Typed, plain: DataType) -> Typed:
    assert value.constant is not None
    if not isinstance(value.constant.value, str):
        return Typed(constant_sql(None, plain), nullable_type(plain), Constant(None))
    if (plain.date_like and not is_nanoseconds(plain)) or plain.is_integer:
        return Typed(from_text(value.sql, plain), plain)  # which wraps and clamps
    try:
        read = parse_value(plain, value.constant.value)
    except ValueError as problem:
        raise BadValue(f"cannot convert a constant: {problem}") from None
    return Typed(constant_sql(read, plain), plain, Constant(read))


def _convert(value: Typed, plain: DataType) -> str:
    if plain.family == "String":
        return text_of(value)
    if value.type.is_string:
        return (
            from_text(text_of(value), plain)
            if plain.family != "FixedString"
            else (_fixed_string(value, plain))
        )
    if value.type.is_enum:
        return _from_enum(value, plain)
    if plain.is_integer:
        return to_integer(value, plain)
    converter = _CONVERTERS.get(plain.family)
    sql = converter(value, plain) if converter else None
    if sql is None:
        raise TypeProblem(f"a value of type {value.type.text} cannot become {plain.text}")
    return sql


def text_or_null(value: Typed, target: DataType) -> Typed:
    """Return a String as `target`, and NULL if it is no such value, as the ...OrNull
    functions do.
    """
    plain = target.plain
    if plain.family in {"String", "FixedString"}:
        return convert(value, target)
    sql = attempt(text_of(value), "x", from_text("x", plain, lenient=True))
    return Typed(sql, nullable_type(plain))


def _fixed_string(value: Typed, plain: DataType) -> str:
    length = plain.numbers[0]
    blob = f"encode({value.sql})" if value.plain.family == "String" else value.sql
    padded = f"unhex(rpad(hex(b), {2 * length}, '0'))"
    problem = f"error('a string of more than {length} bytes does not fit {plain.text}')"
    body = (
        f"CASE WHEN octet_length(b) <= {length} THEN {padded} "
        f"WHEN b IS NOT NULL THEN {problem} END"
    )
    return let(blob, "b", body)


# Dates and times.


def _to_date(value: Typed, plain: DataType) -> str | None:
    source = value.plain
    if source.is_date:
        return wrap_date(value.sql) if plain.family == "Date" else value.sql
    if source.is_time:
        day = f"CAST({local(value)} AS DATE)"
        return (
            day if source.family == "DateTime" or plain.family == "Date32" else wrap_date(day)
        )
    if source.is_integer or source.is_float or source.is_decimal:
        number = whole_number(value)[0]
        if plain.family == "Date32":
            return _to_date32(number)
        # Numbers up to 65,535 are days since the epoch, larger ones seconds.
        days = f"CAST({within(number, '0', '65535')} AS INTEGER)"
        moment = f"CAST({clamp_seconds(number)} AS BIGINT) // 86400"
        days = f"(CASE WHEN {number} > 65535 THEN CAST({moment} AS INTEGER) ELSE {days} END)"
        return f"(DATE '1970-01-01' + {days})"
    return None


def _to_date32(number: str) -> str:
    """Return SQL of a Date32 from days since the epoch; numbers that are days after the year 9999
    are seconds.
    """
    first, last = "DATE '1900-01-01'", "DATE '2299-12-31'"
    days = f"CAST({within(number, '-25567', '120529')} AS INTEGER)"
    seconds = f"DATE '1970-01-01' + CAST({clamp_seconds(number)} // 86400 AS INTEGER)"
    whole = f"(CASE WHEN {number} > 2932896 THEN {seconds} ELSE DATE '1970-01-01' + {days} END)"
    return within(whole, first, last)


def _to_time(value: Typed, plain: DataType) -> str | None:
    source = value.plain
    digits = digits_of(plain)
    if is_nanoseconds(plain) and source.is_time:
        return nanoseconds_sql(_cut_nanoseconds(nanoseconds(value), digits))
    if source.is_date:
        moment = f"epoch_us({instant(f'CAST({value.sql} AS TIMESTAMP)', plain.zone)})"
    elif source.is_time:
        moment = microseconds(value)
    elif source.is_integer:
        moment = f"(CAST({_held(value.sql, plain)} AS BIGINT) * 1000000)"
    elif source.is_float or (source.is_decimal and not source.wide_bytes):
        moment = f"CAST(floor({_held(value.sql, plain)} * 1000000) AS BIGINT)"
    else:
        return None
    moment = cut_microseconds(moment, digits)
    if plain.family == "DateTime" and source.family in {"Date", "Date32", "DateTime64"}:
        moment = wrap_microseconds(moment)
    return from_microseconds(moment, plain)


def _held(sql: str, plain: DataType) -> str:
    return clamp_seconds(sql) if plain.family == "DateTime" else sql


def _cut_nanoseconds(sql: str, digits: int) -> str:
    unit = 10 ** (9 - digits)
    return sql if unit == 1 else f"({sql} - ((({sql} % {unit}) + {unit}) % {unit}))"


# Enums, addresses, nested types.


def enum_number(value: Typed) -> str:
    """Return SQL of an enum's number, by which the original compares and sorts."""
    cases = " ".join(
        f"WHEN {string_sql(name)} THEN {number}"
        if number >= 0
        else f"WHEN {string_sql(name)} THEN ({number})"
        for name, number in value.plain.values
    )
    return f"CAST((CASE {value.sql} {cases} END) AS SMALLINT)"


def sort_sql(value: Typed) -> str | None:
    """Return SQL of the value that the original sorts and compares by: an enum's number; a UUID's
    second half, then its first; a tuple or an array of these. None if that is the value itself. A
    NULL stays NULL.
    """
    if value.type.is_enum:
        return enum_number(value)
    match value.plain.family:
        case "UUID":
            return uuid_halves(value.sql)
        case "Tuple":
            elements = tuple_elements(value)
            own = [sort_sql(each) for each in elements]
            if not any(own):
                return None
            pairs = enumerate(zip(own, elements, strict=True))
            return struct_sql((f"c{at}", sql or to_stored(each)) for at, (sql, each) in pairs)
        case "Array":
            key = sort_sql(from_stored(ELEMENT, value.plain.elements[0]))
            return key and f"list_transform({value.sql}, lambda {ELEMENT}: {key})"
        case _:
            return None


def uuid_halves(sql: str) -> str:
    """Return SQL of a text that sorts as the original sorts the UUID, which follows after the first
    `UUID_HALF` characters.
    """
    return f"(substring({sql}, 20) || {sql})"


UUID_HALF = 17  # characters of the second half, with its hyphen


def _from_enum(value: Typed, plain: DataType) -> str:
    if plain.is_enum:
        numbers = dict(plain.values)
        for name, before in value.type.values:
            if numbers.get(name, before) != before:
                raise CannotConvertType(
                    f"{name!r} is {before} in {value.type} and {numbers[name]} in {plain}"
                )
        return from_text(value.sql, plain)
    number = Typed(enum_number(value), DataType("Int16"))
    return _convert(number, plain)


def _to_enum(value: Typed, plain: DataType) -> str | None:
    if not value.type.is_integer:
        return None
    cases = " ".join(f"WHEN {number} THEN {string_sql(name)}" for name, number in plain.values)
    problem = f"error('the enum has no element ' || {value.sql})"
    known = ", ".join(str(number) for _, number in plain.values)
    return (
        f"(CASE WHEN {value.sql} IN ({known}) THEN CASE {value.sql} {cases} END "
        f"WHEN {value.sql} IS NOT NULL THEN {problem} END)"
    )


def _to_ipv4(value: Typed, plain: DataType) -> str | None:
    del plain
    return to_integer(value, DataType("UInt32")) if value.type.is_integer else None


def _to_array(value: Typed, plain: DataType) -> str | None:
    if value.plain.family != "Array":
        return None
    element = convert(from_stored("e", value.plain.elements[0]), plain.elements[0])
    return f"list_transform({value.sql}, lambda e: {to_stored(element)})"


def _to_tuple(value: Typed, plain: DataType) -> str | None:
    source = value.plain
    if source.family != "Tuple" or len(source.elements) != len(plain.elements):
        return None
    fields = []
    for place, name in enumerate(source.element_names):
        element = from_stored(
            f"struct_extract({value.sql}, {string_sql(name)})", source.elements[place]
        )
        fields.append(
            (plain.element_names[place], to_stored(convert(element, plain.elements[place])))
        )
    return struct_sql(fields)


def _to_map(value: Typed, plain: DataType) -> str | None:
    if value.plain.family != "Map":
        return None
    key = convert(from_stored(f"{ELEMENT}.key", value.plain.elements[0]), plain.elements[0])
    element = convert(
        from_stored(f"{ELEMENT}.value", value.plain.elements[1]), plain.elements[1]
    )
    pair = struct_sql([("key", to_stored(key)), ("value", to_stored(element))])
    return (
        f"map_from_entries(list_transform(map_entries({value.sql}), lambda {ELEMENT}: {pair}))"
    )


def unify(values: list[Typed], common: DataType) -> list[Typed]:
    """Return each value as `common`, the type that holds them all."""
    return [convert(value, common) for value in values]


def nullable_like(data_type: DataType, *values: Typed) -> DataType:
    """Return `data_type`, Nullable if one of `values` is: the type of most functions' results."""
    return nullable_type(data_type, any_nullable(values))


_CONVERTERS: dict[str, Callable[[Typed, DataType], str | None]] = {
    "Float32": to_float,
    "Float64": to_float,
    "Decimal": to_decimal,
    "Bool": to_bool,
    "Date": _to_date,
    "Date32": _to_date,
    "DateTime": _to_time,
    "DateTime64": _to_time,
    "Enum8": _to_enum,
    "Enum16": _to_enum,
    "IPv4": _to_ipv4,
    "Array": _to_array,
    "Tuple": _to_tuple,
    "Map": _to_map,
}
