"""`+ - * / %` and similar functions, with the original's result types: integers widen,
then wrap.
"""

from rmt_pipeline.translate.base.casts import convert, nullable_like, plain_condition
from rmt_pipeline.translate.base.casts_number import unscaled, unscaled_to_decimal, wrap
from rmt_pipeline.translate.base.function import Build
from rmt_pipeline.translate.base.typed import (
    FLOAT64,
    Constant,
    Typed,
    TypeProblem,
    constant_sql,
    working_type,
)
from rmt_pipeline.translate.functions.date_arithmetic import (
    difference,
    interval_unit,
    is_date_arithmetic,
    shift,
)
from rmt_pipeline.types.data_type import DataType

SYMBOLS = {"plus": "+", "minus": "-", "multiply": "*"}


def arithmetic(name: str) -> Build:
    """Return the builder of plus, minus or multiply of numbers; plus and minus also take dates with
    numbers and intervals.
    """

    def build(arguments: list[Typed]) -> Typed:
        left, right = (as_number(each) for each in arguments)
        if interval_unit(left.type) and left.plain == right.plain and name != "multiply":
            sql = f"({left.sql} {SYMBOLS[name]} {right.sql})"
            return Typed(sql, nullable_like(left.plain, left, right))
        if is_date_arithmetic(left, right):
            return _of_dates(name, left, right)
        a, b = left.plain, right.plain
        _check_numbers(name, left, right)
        if a.is_float or b.is_float:
            sides = [convert(each, FLOAT64).sql for each in (left, right)]
            sql = f"({sides[0]} {SYMBOLS[name]} {sides[1]})"
            return Typed(sql, nullable_like(FLOAT64, left, right))
        if a.is_decimal or b.is_decimal:
            return _of_decimals(name, left, right)
        return _of_integers(name, left, right)

    return build


def as_number(value: Typed) -> Typed:
    """Return a condition or a Bool as the number 0 or 1, and other values as they are."""
    if value.plain.family == "Bool":
        return Typed(f"CAST({value.sql} AS UTINYINT)", nullable_like(DataType("UInt8"), value))
    return plain_condition(value)


def _check_numbers(name: str, left: Typed, right: Typed) -> None:
    for value in (left, right):
        if not value.type.is_numeric:
            raise TypeProblem(f"{name} takes numbers, not {value.type.text}")
        if not value.type.is_computable:
            raise TypeProblem(
                f"{name} of {value.type.text}: 256 bits are stored, not computed with"
            )


def _of_dates(name: str, left: Typed, right: Typed) -> Typed:
    if name == "plus":
        return shift(left, right, 1) if left.type.date_like else shift(right, left, 1)
    if name == "minus" and left.type.date_like and right.type.date_like:
        return difference(left, right)
    if name == "minus" and left.type.date_like:
        return shift(left, right, -1)
    raise TypeProblem(f"{name} of {left.type.text} and {right.type.text} has no meaning")


def _integer(bits: int, *, signed: bool) -> DataType:
    return DataType(f"{'' if signed else 'U'}Int{bits}")


def result_integer(name: str, a: DataType, b: DataType) -> DataType:
    """Return the result's type: twice as wide as the wider argument, but as wide from
    64 bits on.
    """
    widest = max(a.bits, b.bits)
    bits = widest if widest >= 64 else widest * 2
    return _integer(bits, signed=name == "minus" or a.is_signed or b.is_signed)


def _of_integers(name: str, left: Typed, right: Typed) -> Typed:
    a, b = left.plain, right.plain
    result = result_integer(name, a, b)
    symbol = SYMBOLS[name]
    if result.bits < 64 or max(a.bits, b.bits) < 64:
        width = result.duckdb  # twice as wide as both, so it can't overflow
        sql = f"(CAST({left.sql} AS {width}) {symbol} CAST({right.sql} AS {width}))"
    elif result.bits == 64:
        unsigned = not (a.is_signed or b.is_signed) and name == "multiply"
        wide = "UHUGEINT" if unsigned else "HUGEINT"
        exact = f"(CAST({left.sql} AS {wide}) {symbol} CAST({right.sql} AS {wide}))"
        if unsigned:
            exact = f"CAST(({exact} % CAST('18446744073709551616' AS UHUGEINT)) AS HUGEINT)"
        sql = wrap(exact, result)
    else:
        width = working_type(result)
        sql = f"(CAST({left.sql} AS {width}) {symbol} CAST({right.sql} AS {width}))"
    return Typed(sql, nullable_like(result, left, right))


def _digits(plain: DataType) -> int:
    """Return the digits of the smallest of the original's decimals that holds a decimal type, and
    9 for an integer.
    """
    if plain.is_integer:
        return 9
    return next(width for width in (9, 18, 38, 76) if plain.numbers[0] <= width)


def decimal_bits(plain: DataType) -> int:
    """Return the width of the integer that has a decimal's digits in the original."""
    return {9: 32, 18: 64, 38: 128}[_digits(plain)]


def _scale(plain: DataType) -> int:
    return plain.numbers[1] if plain.is_decimal else 0


def _of_decimals(name: str, left: Typed, right: Typed) -> Typed:
    a, b = left.plain, right.plain
    digits = max(_digits(a), _digits(b))
    scale = _scale(a) + _scale(b) if name == "multiply" else max(_scale(a), _scale(b))
    if scale > digits:
        raise TypeProblem(f"{name} of {a.text} and {b.text} would have {scale} decimal places")
    result = DataType("Decimal", (digits, scale))
    symbol = SYMBOLS[name]
    if name == "multiply":
        # DuckDB multiplies at most 38 digits in all and refuses values wider than these.
        room = {9: 19, 18: 19, 38: 38}[min(digits, 38)]
        first = f"CAST({left.sql} AS DECIMAL({min(room, 19)},{_scale(a)}))"
        second = f"CAST({right.sql} AS DECIMAL(19,{_scale(b)}))"
        sql = f"CAST(({first} {symbol} {second}) AS {result.duckdb})"
    else:
        width = f"DECIMAL({min(digits + 1, 37)},{scale})"
        exact = f"(CAST({left.sql} AS {width}) {symbol} CAST({right.sql} AS {width}))"
        sql = f"CAST({exact} AS {result.duckdb})"
    return Typed(sql, nullable_like(result, left, right))


def divide(arguments: list[Typed]) -> Typed:
    """`divide(a, b)`: a Float64, also for a division by zero. The quotient of decimals is a
    decimal, whose further digits are cut off.
    """
    left, right = (as_number(each) for each in arguments)
    _check_numbers("divide", left, right)
    a, b = left.plain, right.plain
    if (a.is_decimal or b.is_decimal) and not (a.is_float or b.is_float):
        return _divide_decimals(left, right)
    sides = [convert(each, FLOAT64).sql for each in (left, right)]
    return Typed(f"({sides[0]} / {sides[1]})", nullable_like(FLOAT64, left, right))


def _divide_decimals(left: Typed, right: Typed) -> Typed:
    a, b = left.plain, right.plain
    digits = max(_digits(a), _digits(b))
    scale = _scale(a) if a.is_decimal else _scale(b)
    if a.is_decimal and scale < _scale(b):
        raise TypeProblem(
            f"divide of {a.text} by {b.text}: the result's scale would be less than the divisor's"
        )
    result = DataType("Decimal", (digits, scale))
    top = unscaled(left) if a.is_decimal else f"CAST({left.sql} AS HUGEINT)"
    bottom = unscaled(right) if b.is_decimal else f"CAST({right.sql} AS HUGEINT)"
    raise_by = scale - _scale(a) + _scale(b)
    quotient = f"(({top} * {10**raise_by}::HUGEINT) // {bottom})"
    return Typed(unscaled_to_decimal(quotient, result), nullable_like(result, left, right))


def int_div(*, or_zero: bool) -> Build:
    """Return the builder of whole division, which rounds towards zero. The result is as wide as the
    dividend.
    """

    def build(arguments: list[Typed]) -> Typed:
        left, right = (as_number(each) for each in arguments)
        _check_numbers("intDiv", left, right)
        a, b = left.plain, right.plain
        bits = a.bits or (
            decimal_bits(a) if a.is_decimal else 64 if a.family == "Float64" else 32
        )
        signed = not a.is_integer or a.is_signed or not b.is_integer or b.is_signed
        result = _integer(bits, signed=signed)
        if a.is_float or b.is_float:
            top, bottom = convert(left, FLOAT64).sql, convert(right, FLOAT64).sql
            quotient = f"CAST(trunc({top} / {bottom}) AS {working_type(result)})"
            zero = f"error('intDiv by zero: ' || {top} || ' / 0')"
            by_zero = _unless_null(left) if or_zero else zero
            quotient = f"(CASE WHEN {bottom} = 0 THEN {by_zero} ELSE {quotient} END)"
        else:
            quotient = _whole_quotient(left, right, or_zero=or_zero)
        fits = _wide_enough(left, right) == "UHUGEINT" or bits > 64
        whole = not (a.is_float or b.is_float or fits)
        sql = wrap(quotient, result) if whole else f"CAST({quotient} AS {working_type(result)})"
        return Typed(sql, nullable_like(result, left, right))

    return build


def _whole_quotient(left: Typed, right: Typed, *, or_zero: bool) -> str:
    wide = _wide_enough(left, right)
    pieces = [_truncated(left), _truncated(right)]
    if right.plain.is_decimal:  # whole numbers of the smallest unit that one of them has
        digits = max(_scale(left.plain), _scale(right.plain))
        pieces = [
            f"({unscaled(each) if each.plain.is_decimal else f'CAST({each.sql} AS HUGEINT)'}"
            f" * {10 ** (digits - _scale(each.plain))}::HUGEINT)"
            for each in (left, right)
        ]
    top, bottom = (f"CAST({each} AS {wide})" for each in pieces)
    if not or_zero:
        return f"({top} // {bottom})"  # division by zero is an error, as in the original
    return f"(CASE WHEN {bottom} = 0 THEN {_unless_null(left)} ELSE {top} // {bottom} END)"


def _unless_null(value: Typed, sql: str = "0") -> str:
    """Return SQL of what is given, or of NULL where the value is NULL."""
    return f"(CASE WHEN {value.sql} IS NOT NULL THEN {sql} END)" if value.nullable else sql


def _wide_enough(left: Typed, right: Typed) -> str:
    """Return DuckDB's type that holds both. A UInt128 beside a signed number must be
    below 2^127.
    """
    plains = (left.plain, right.plain)
    unsigned = all(each.is_integer and not each.is_signed for each in plains)
    is_128 = any(each.family == "UInt128" for each in plains)
    return "UHUGEINT" if unsigned and is_128 else "HUGEINT"


def _truncated(value: Typed) -> str:
    return f"trunc({value.sql})" if value.plain.is_decimal else value.sql


def modulo(*, or_zero: bool = False, positive: bool = False) -> Build:
    """Return the builder of the remainder. It has the dividend's sign, and with `positive` is never
    negative.
    """

    def build(arguments: list[Typed]) -> Typed:
        left, right = (as_number(each) for each in arguments)
        _check_numbers("modulo", left, right)
        a, b = left.plain, right.plain
        if a.is_decimal or b.is_decimal:
            raise TypeProblem("modulo of decimals is not supported; cast to Float64 or Int64")
        if a.is_float or b.is_float:
            top, bottom = convert(left, FLOAT64).sql, convert(right, FLOAT64).sql
            none = _unless_null(left, "CAST('nan' AS DOUBLE)")
            sql = f"(CASE WHEN {bottom} = 0 THEN {none} ELSE {top} % {bottom} END)"
            return Typed(sql, nullable_like(FLOAT64, left, right))
        return _integer_modulo(left, right, or_zero=or_zero, positive=positive)

    return build


def _integer_modulo(left: Typed, right: Typed, *, or_zero: bool, positive: bool) -> Typed:
    a, b = left.plain, right.plain
    bits = b.bits if not a.is_signed or positive or b.bits >= 64 else b.bits * 2
    result = _integer(bits, signed=a.is_signed and not positive)
    narrow = max(a.bits, b.bits) <= 32
    width = "BIGINT" if narrow else _wide_enough(left, right)
    top, bottom = f"CAST({left.sql} AS {width})", f"CAST({right.sql} AS {width})"
    sql = f"({top} % {bottom})"
    if positive:
        sql = f"({sql} + CASE WHEN {sql} < 0 THEN abs({bottom}) ELSE 0 END)"
    if or_zero:
        sql = f"(CASE WHEN {bottom} = 0 THEN {_unless_null(left)} ELSE {sql} END)"
    return Typed(f"CAST({sql} AS {working_type(result)})", nullable_like(result, left, right))


def negate(arguments: list[Typed]) -> Typed:
    """`-x`, of a type that holds every result: for unsigned integers of less than 64 bits a wider
    one.
    """
    value = as_number(arguments[0])
    if interval_unit(value.type):
        return Typed(f"(-{value.sql})", value.type)
    _check_numbers("negate", value, value)
    plain = value.plain
    known = value.constant.value if value.constant else None
    if isinstance(known, float):
        return Typed(constant_sql(-known, plain), value.type, Constant(-known))
    if not plain.is_integer:
        return Typed(f"(-{value.sql})", value.type)
    bits = plain.bits if plain.is_signed or plain.bits >= 64 else plain.bits * 2
    result = _integer(bits, signed=True)
    if bits > 64:
        return Typed(f"(-CAST({value.sql} AS HUGEINT))", nullable_like(result, value))
    exact = f"(-CAST({value.sql} AS HUGEINT))"
    return Typed(wrap(exact, result), nullable_like(result, value))


def absolute(arguments: list[Typed]) -> Typed:
    """`abs(x)`: for signed integers of the unsigned type, which holds every result."""
    value = as_number(arguments[0])
    _check_numbers("abs", value, value)
    plain = value.plain
    if not plain.is_integer:
        return Typed(f"abs({value.sql})", value.type)
    result = _integer(plain.bits, signed=False)
    sql = f"abs(CAST({value.sql} AS {'UHUGEINT' if plain.family == 'UInt128' else 'HUGEINT'}))"
    return Typed(f"CAST({sql} AS {working_type(result)})", nullable_like(result, value))


def _two_integers(what: str, arguments: list[Typed]) -> tuple[Typed, Typed]:
    """Return two integers of up to 64 bits. Raises TypeProblem for other arguments."""
    left, right = (as_number(each) for each in arguments)
    a, b = left.plain, right.plain
    if not (a.is_integer and b.is_integer and max(a.bits, b.bits) <= 64):
        raise TypeProblem(f"{what} of {a.text} and {b.text}: expected integers up to 64 bits")
    return left, right


def bitwise(symbol: str) -> Build:
    """Return the builder of `&`, `|` or xor of integers. The result is as wide as the wider one."""

    def build(arguments: list[Typed]) -> Typed:
        left, right = _two_integers("bits", arguments)
        a, b = left.plain, right.plain
        result = _integer(max(a.bits, b.bits), signed=a.is_signed or b.is_signed)
        sides = [f"CAST({each.sql} AS HUGEINT)" for each in (left, right)]
        sql = (
            f"xor({sides[0]}, {sides[1]})"
            if symbol == "xor"
            else f"({sides[0]} {symbol} {sides[1]})"
        )
        return Typed(wrap(sql, result), nullable_like(result, left, right))

    return build


def shift_bits(*, to_left: bool) -> Build:
    """Return the builder of bitShiftLeft or bitShiftRight. Bits that leave the type of the first
    argument are lost.
    """

    def build(arguments: list[Typed]) -> Typed:
        left, right = _two_integers("bits", arguments)
        a, b = left.plain, right.plain
        result = _integer(max(a.bits, b.bits), signed=a.is_signed or b.is_signed)
        count = f"CAST({right.sql} AS HUGEINT)"
        number = f"CAST({left.sql} AS HUGEINT)"
        if to_left:
            # Only the bits that stay in the type are moved, so that 128 bits are enough.
            kept = f"({number} & {(1 << 64) - 1}::HUGEINT)"
            low = f"({kept} % CAST(pow(2, {a.bits} - CAST({count} AS INTEGER)) AS HUGEINT))"
            moved = f"({low} * CAST(pow(2, CAST({count} AS INTEGER)) AS HUGEINT))"
            beyond = "0::HUGEINT"
        else:
            power = f"CAST(pow(2, CAST({count} AS INTEGER)) AS HUGEINT)"
            moved = f"(({number} - ((({number} % {power}) + {power}) % {power})) // {power})"
            beyond = f"(CASE WHEN {number} < 0 THEN (-1)::HUGEINT ELSE 0::HUGEINT END)"
        sql = f"(CASE WHEN {count} BETWEEN 0 AND {a.bits - 1} THEN {moved} ELSE {beyond} END)"
        return Typed(wrap(sql, result), nullable_like(result, left, right))

    return build


def bit_not(arguments: list[Typed]) -> Typed:
    """`bitNot(n)`: n with every bit inverted, of the same type. Raises TypeProblem."""
    value = as_number(arguments[0])
    if not value.type.is_integer or value.plain.wide_bytes:
        raise TypeProblem(f"bitNot of {value.type.text}: expected an integer up to 64 bits")
    return Typed(wrap(f"(-1 - CAST({value.sql} AS HUGEINT))", value.plain), value.type)


def common_divisor(name: str) -> Build:
    """Return the builder of gcd or lcm."""

    def build(arguments: list[Typed]) -> Typed:
        left, right = _two_integers(name, arguments)
        result = result_integer("plus", left.plain, right.plain)
        sql = f"{name}(CAST({left.sql} AS HUGEINT), CAST({right.sql} AS HUGEINT))"
        return Typed(wrap(sql, result), nullable_like(result, left, right))

    return build
