"""Functions of numbers: arithmetic, bits, rounding, roots and logarithms."""

import math
from collections.abc import Mapping

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.casts_number import unscaled, unscaled_to_decimal
from rmt_pipeline.translate.base.function import (
    Build,
    always,
    constant_integer,
    floating,
    function,
    integer,
    mathematical,
    predicate,
    template,
)
from rmt_pipeline.translate.base.typed import (
    FLOAT64,
    INT8,
    UINT8,
    UINT16,
    UINT64,
    Constant,
    Typed,
    TypeProblem,
    let,
    number_sql,
    working_type,
)
from rmt_pipeline.translate.functions.arithmetic import (
    SYMBOLS,
    absolute,
    arithmetic,
    as_number,
    bit_not,
    bitwise,
    common_divisor,
    divide,
    int_div,
    modulo,
    negate,
    shift_bits,
)
from rmt_pipeline.types.data_type import DataType

DECIMALS_MAX = 38
_NAN = "CAST('nan' AS DOUBLE)"


def _rounding(mode: str) -> Build:
    """Return the builder of round, floor, ceil or trunc to a number of decimals, which may be
    negative.
    """

    def build(arguments: list[Typed]) -> Typed:
        value = as_number(arguments[0])
        if not value.type.is_computable:
            raise TypeProblem(f"{mode} takes a number, not {value.type.text}")
        decimals = 0
        if len(arguments) > 1:
            decimals = constant_integer(arguments[1], "the number of decimals")
        if abs(decimals) > DECIMALS_MAX:
            raise TypeProblem(f"{mode} takes at most {DECIMALS_MAX} decimals, not {decimals}")
        plain = value.plain
        if plain.is_float:
            sql = _round_float(mode, value.sql, decimals)
            return Typed(f"CAST({sql} AS {plain.duckdb})", value.type)
        if plain.is_decimal:
            return Typed(_round_decimal(mode, value, decimals), value.type)
        if decimals >= 0:
            return value
        return Typed(_round_integer(mode, value, 10**-decimals), value.type)

    return build


def _round_float(mode: str, sql: str, decimals: int) -> str:
    scale = f"CAST({10 ** abs(decimals)} AS DOUBLE)"
    grown = f"({sql} * {scale})" if decimals > 0 else f"({sql} / {scale})"
    grown = sql if decimals == 0 else grown
    name = {"round": "round_even({0}, 0)", "roundBankers": "round_even({0}, 0)"}.get(mode)
    whole = (name or f"{mode}({{0}})").format(f"CAST({grown} AS DOUBLE)")
    if decimals == 0:
        return whole
    return f"({whole} / {scale})" if decimals > 0 else f"({whole} * {scale})"


def _halves(mode: str, number: str, unit: str) -> str:
    """Return SQL of the multiple of `unit` that `mode` rounds the whole `number` to. Both are
    HUGEINT.
    """
    below = f"({number} - ((({number} % {unit}) + {unit}) % {unit}))"
    if mode == "floor":
        return below
    if mode == "ceil":
        return f"(CASE WHEN {below} = {number} THEN {number} ELSE {below} + {unit} END)"
    towards_zero = f"({number} - ({number} % {unit}))"
    if mode == "trunc":
        return towards_zero
    rest = f"abs({number} % {unit})"
    away = f"({towards_zero} + sign({number}) * {unit})"
    odd = f"(abs({towards_zero}) // {unit} % 2 = 1)"
    up = f"{rest} * 2 > {unit} OR ({rest} * 2 = {unit}"
    up += f" AND {odd})" if mode == "roundBankers" else ")"
    return f"(CASE WHEN {up} THEN {away} ELSE {towards_zero} END)"


def _round_integer(mode: str, value: Typed, unit: int) -> str:
    number = f"CAST({value.sql} AS HUGEINT)"
    return f"CAST({_halves(mode, number, f'{unit}::HUGEINT')} AS {working_type(value.type)})"


def _round_decimal(mode: str, value: Typed, decimals: int) -> str:
    plain = value.plain
    scale = plain.numbers[1]
    if decimals >= scale:
        return value.sql
    if mode == "round":
        sql = f"round({value.sql}, {decimals})"
    elif mode == "roundBankers":
        sql = f"round_even({value.sql}, {decimals})"
    elif mode == "trunc" and decimals >= 0:
        sql = f"trunc({value.sql}, {decimals})"
    else:
        unit = f"{10 ** (scale - decimals)}::HUGEINT"
        return unscaled_to_decimal(_halves(mode, unscaled(value), unit), plain)
    return f"CAST({sql} AS {plain.duckdb})"


def _sign(arguments: list[Typed]) -> Typed:
    value = as_number(arguments[0])
    if not value.type.is_numeric:
        raise TypeProblem(f"sign takes a number, not {value.type.text}")
    x = value.sql
    sql = f"(CASE WHEN {x} < 0 THEN -1 WHEN {x} > 0 THEN 1 WHEN {x} = 0 THEN 0 END)"
    return Typed(f"CAST({sql} AS TINYINT)", nullable_like(INT8, value))


def _domain(sql: str, outside: str) -> Build:
    """Return the builder of a function that is NaN outside its domain, where DuckDB's
    is an error.
    """
    return mathematical(f"(CASE WHEN {outside} THEN {_NAN} ELSE {sql} END)")


def _logarithm(sql: str) -> Build:
    return mathematical(
        f"(CASE WHEN {{0}} < 0 THEN {_NAN} WHEN {{0}} = 0 "
        f"THEN CAST('-Infinity' AS DOUBLE) ELSE {sql} END)"
    )


_AGES = {1: 17, 18: 18, 25: 25, 35: 35, 45: 45, 55: 55}
_SECONDS = (1, 10, 30, 60, 120, 180, 240, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000)
_DURATIONS = dict(zip(_SECONDS, _SECONDS, strict=True))


def _step(steps: Mapping[int, int], result: DataType) -> Build:
    """Return the builder of a function that is 0 below the first of the steps, and from each one on
    its number.
    """

    def build(arguments: list[Typed]) -> Typed:
        value = as_number(arguments[0])
        if not (value.type.is_integer or value.type.is_float):
            raise TypeProblem(f"a number is needed, not {value.type.text}")
        whens = " ".join(
            f"WHEN {value.sql} >= {a} THEN {b}" for a, b in sorted(steps.items(), reverse=True)
        )
        null = f"WHEN {value.sql} IS NULL THEN NULL"
        sql = f"CAST((CASE {null} {whens} ELSE 0 END) AS {result.duckdb})"
        return Typed(sql, nullable_like(result, value))

    return build


def _power_of_two(arguments: list[Typed]) -> Typed:
    """`roundToExp2(x)`: the nearest power of two that is nearer to 0, in the argument's type. Whole
    numbers below 0 give 0.
    """
    value = as_number(arguments[0])
    plain = value.plain
    if not (plain.is_float or plain.is_integer) or plain.wide_bytes:
        raise TypeProblem(f"roundToExp2 takes a number, not {value.type.text}")
    if plain.is_integer:
        digits = "length(bin(CAST(v AS UBIGINT)))"
        power = f"CAST(1::HUGEINT << ({digits} - 1) AS {plain.duckdb})"
        sql = let(value.sql, "v", f"CASE WHEN v <= 0 THEN 0 ELSE {power} END")
        return Typed(f"CAST({sql} AS {plain.duckdb})", value.type)
    power = "pow(CAST(2 AS DOUBLE), least(floor(log2(abs(v))), 1023))"
    below = let(power, "p", "CASE WHEN p > abs(v) THEN p / 2 ELSE p END")
    finite = f"CASE WHEN v = 0 OR isinf(v) THEN v ELSE sign(v) * {below} END"
    known = f"CASE WHEN isnan(v) THEN CAST('inf' AS DOUBLE) ELSE {finite} END"
    sql = let(f"CAST({value.sql} AS DOUBLE)", "v", known)
    return Typed(f"CAST({sql} AS {plain.duckdb})", value.type)


def _bit_count(arguments: list[Typed]) -> Typed:
    value = as_number(arguments[0])
    plain = value.plain
    if not plain.is_integer or plain.wide_bytes:
        raise TypeProblem(f"bitCount takes an integer up to 64 bits, not {value.type.text}")
    mask = (1 << plain.bits) - 1
    bits = f"bit_count((CAST({value.sql} AS HUGEINT) & {mask}::HUGEINT))"
    return Typed(f"CAST({bits} AS UTINYINT)", nullable_like(UINT8, value))


# DuckDB's result is off by a bit or two, which one step of Newton's method corrects.
_CUBE_ROOT = (
    "(CASE WHEN {0} = 0 OR NOT abs({0}) < 1e100 THEN cbrt({0}) ELSE "
    "cbrt({0}) - (cbrt({0}) * cbrt({0}) * cbrt({0}) - {0}) / (3 * cbrt({0}) * cbrt({0})) END)"
)
_POWER = mathematical(
    "(CASE WHEN {0} < 0 AND isfinite({0}) AND {1} <> trunc({1}) "
    f"THEN {_NAN} ELSE pow({{0}}, {{1}}) END)"
)
_BETWEEN_ONES = "{0} < -1 OR {0} > 1"
_FINITE = "NOT isfinite({0})"

FUNCTIONS = (
    *(function(name, arithmetic(name), 2) for name in SYMBOLS),
    function("divide", divide, 2),
    function("intDiv", int_div(or_zero=False), 2),
    function("intDivOrZero", int_div(or_zero=True), 2),
    function("modulo", modulo(), 2),
    function("moduloOrZero", modulo(or_zero=True), 2),
    function("positiveModulo", modulo(positive=True), 2),
    function("negate", negate, 1),
    function("abs", absolute, 1),
    function("sign", _sign, 1, differs="the sign of NaN is NULL here, 1 there"),
    function("bitAnd", bitwise("&"), 2),
    function("bitOr", bitwise("|"), 2),
    function("bitXor", bitwise("xor"), 2),
    function("bitNot", bit_not, 1),
    function("bitShiftLeft", shift_bits(to_left=True), 2),
    function("bitShiftRight", shift_bits(to_left=False), 2),
    function("roundAge", _step(_AGES, UINT8), 1),
    function("roundDuration", _step(_DURATIONS, UINT16), 1),
    function("roundToExp2", _power_of_two, 1),
    function("bitCount", _bit_count, 1),
    function("gcd", common_divisor("gcd"), 2),
    function("lcm", common_divisor("lcm"), 2),
    function("round", _rounding("round"), 1, 2),
    function("roundBankers", _rounding("roundBankers"), 1, 2),
    function("floor", _rounding("floor"), 1, 2),
    function("ceil", _rounding("ceil"), 1, 2),
    function("ceiling", _rounding("ceil"), 1, 2),
    function("trunc", _rounding("trunc"), 1, 2),
    function("truncate", _rounding("trunc"), 1, 2),
    function("sqrt", _domain("sqrt({0})", "{0} < 0"), 1),
    function("cbrt", mathematical(_CUBE_ROOT), 1),
    function("exp", mathematical("exp({0})"), 1),
    function("exp2", mathematical("pow(CAST(2 AS DOUBLE), {0})"), 1),
    function("exp10", mathematical("pow(CAST(10 AS DOUBLE), {0})"), 1),
    function("log", _logarithm("ln({0})"), 1),
    function("ln", _logarithm("ln({0})"), 1),
    function("log2", _logarithm("log2({0})"), 1),
    function("log10", _logarithm("log10({0})"), 1),
    function("pow", _POWER, 2),
    function("power", _POWER, 2),
    function("sin", _domain("sin({0})", _FINITE), 1),
    function("cos", _domain("cos({0})", _FINITE), 1),
    function("tan", _domain("tan({0})", _FINITE), 1),
    function("asin", _domain("asin({0})", _BETWEEN_ONES), 1),
    function("acos", _domain("acos({0})", _BETWEEN_ONES), 1),
    function("atan", mathematical("atan({0})"), 1),
    function("atan2", mathematical("atan2({0}, {1})"), 2),
    function("lgamma", mathematical("lgamma({0})"), 1),
    function("tgamma", mathematical("gamma({0})"), 1),
    function("hypot", mathematical("sqrt({0} * {0} + {1} * {1})"), 2),
    *(
        function(name, always(number_sql(value), FLOAT64, Constant(value)), 0)
        for name, value in (("pi", math.pi), ("e", math.e))
    ),
    function("degrees", mathematical("degrees({0})"), 1),
    function("radians", mathematical("radians({0})"), 1),
    function("isNaN", predicate("isnan({0})", floating), 1),
    function("isFinite", predicate("isfinite({0})", floating), 1),
    function("isInfinite", predicate("isinf(CAST({0} AS DOUBLE))", floating), 1),
    function(
        "factorial",
        template("CAST(factorial(CAST({0} AS INTEGER)) AS UBIGINT)", UINT64, integer),
        1,
    ),
)
