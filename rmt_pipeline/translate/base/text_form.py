"""`toString`: SQL of a value's text as ClickHouse prints it."""

from rmt_pipeline.translate.base.temporal import digits_of, fraction_text, local
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    Typed,
    TypeProblem,
    from_stored,
    let,
    string_sql,
)
from rmt_pipeline.types.data_type import DataType


def text_of(value: Typed) -> str:
    """Return SQL of a value's text, a VARCHAR. NULL stays NULL. Raises TypeProblem for numbers of
    256 bits and IPv6.
    """
    plain = value.plain
    if value.is_condition:
        return f"CAST(CAST({value.sql} AS UTINYINT) AS VARCHAR)"
    if plain.is_float:
        return _float_text(value.sql)
    if plain.is_time:
        return _time_text(value)
    if plain.family in {"String", "UUID", "Enum8", "Enum16", "Nothing"}:
        return f"CAST({value.sql} AS VARCHAR)" if plain.family == "Nothing" else value.sql
    if plain.family == "FixedString":
        return f"decode({trimmed_blob(value.sql)})"
    if plain.is_decimal and not plain.wide_bytes:
        return let(
            f"CAST({value.sql} AS VARCHAR)",
            "v",
            "CASE WHEN contains(v, '.') THEN rtrim(rtrim(v, '0'), '.') ELSE v END",
        )
    if plain.family == "IPv4":
        return ipv4_text(value.sql)
    if plain.family in {"Array", "Tuple", "Map"}:
        return _nested_text(value)
    if plain.wide_bytes == 32 or plain.family == "IPv6":
        raise TypeProblem(f"a value of type {plain.text} cannot be turned into text by a query")
    return f"CAST({value.sql} AS VARCHAR)"


def trimmed_blob(sql: str) -> str:
    """Return SQL of a FixedString without the zero bytes at its end."""
    return f"unhex(regexp_replace(hex({sql}), '(00)+$', ''))"


def ipv4_text(sql: str) -> str:
    """Return SQL of an address such as 192.0.2.1 from SQL of its 32 bits."""
    return let(
        f"CAST({sql} AS BIGINT)",
        "v",
        "(v // 16777216) || '.' || (v // 65536 % 256) || '.' || "
        "(v // 256 % 256) || '.' || (v % 256)",
    )


def _float_text(sql: str) -> str:
    """Return SQL of a float's text. DuckDB writes `100.0`, `1e+16` and `1e-05`; the original writes
    `100`, 17 digits and `0.00001`.
    """
    mantissa = "split_part(v, 'e', 1)"
    exponent = "CAST(split_part(v, 'e', 2) AS INTEGER)"
    digits = f"replace(replace({mantissa}, '.', ''), '-', '')"
    sign = "CASE WHEN v[1] = '-' THEN '-' ELSE '' END"
    return let(
        f"CAST({sql} AS VARCHAR)",
        "v",
        "CASE WHEN NOT regexp_full_match(v, '-?[0-9.]+e[-+][0-9]+') "
        "THEN regexp_replace(v, '\\.0$', '') "
        f"WHEN {exponent} BETWEEN 16 AND 20 "
        f"THEN {sign} || rpad({digits}, {exponent} + 1, '0') "
        f"WHEN {exponent} BETWEEN -6 AND -5 "
        f"THEN {sign} || '0.' || repeat('0', -{exponent} - 1) || {digits} "
        f"ELSE {mantissa} || 'e' || {exponent} END",
    )


def _time_text(value: Typed) -> str:
    digits = digits_of(value.type)
    whole = f"strftime({local(value)}, '%Y-%m-%d %H:%M:%S')"
    return f"({whole} || '.' || {fraction_text(value, digits)})" if digits else whole


def _nested_text(value: Typed) -> str:
    plain = value.plain
    if plain.family == "Array":
        return f"('[' || {_joined(value.sql, plain.elements[0])} || ']')"
    if plain.family == "Tuple":
        fields = zip(plain.element_names, plain.elements, strict=True)
        pieces = [
            _quoted(from_stored(f"struct_extract({value.sql}, {string_sql(name)})", element))
            for name, element in fields
        ]
        inner = " || ',' || ".join(pieces)
        return f"CASE WHEN {value.sql} IS NOT NULL THEN '(' || {inner} || ')' END"
    key, element = plain.elements
    sides = [
        _quoted(from_stored(f"{ELEMENT}.{name}", each)) for name, each in _pair(key, element)
    ]
    pair = f"{sides[0]} || ':' || {sides[1]}"
    pairs = f"list_transform(map_entries({value.sql}), lambda {ELEMENT}: {pair})"
    return f"('{{' || array_to_string({pairs}, ',') || '}}')"


def _pair(key: DataType, element: DataType) -> tuple[tuple[str, DataType], ...]:
    return (("key", key), ("value", element))


def _joined(sql: str, element: DataType) -> str:
    inner = _quoted(from_stored("e", element))
    return f"array_to_string(list_transform({sql}, lambda e: {inner}), ',')"


def _quoted(value: Typed) -> str:
    """Return SQL of the text of a value inside an array, tuple or map: NULL by name, text in
    quotes.
    """
    plain = value.plain
    if plain.family == "Nothing":
        return "'NULL'"
    text = text_of(value)
    bare = plain.is_numeric or plain.family in {"Bool", "Array", "Tuple", "Map"}
    if not bare:
        for character, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\t", "\\t")):
            text = f"replace({text}, {string_sql(character)}, {string_sql(escaped)})"
        text = f"('''' || {text} || '''')"
    return f"coalesce({text}, 'NULL')"
