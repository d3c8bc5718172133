"""Functions of single bits of integers."""

from rmt_pipeline.translate.base.casts import nullable_like
from rmt_pipeline.translate.base.function import MANY, Build, function, integer
from rmt_pipeline.translate.base.typed import (
    STRING,
    UINT8,
    Typed,
    TypeProblem,
    array_of,
    let,
)
from rmt_pipeline.translate.functions.arithmetic import as_number


def _pattern(value: Typed, name: str) -> str:
    """Return SQL of an integer's bits as a HUGEINT that is not negative. Raises TypeProblem."""
    plain = value.plain
    if not plain.is_integer or plain.wide_bytes:
        raise TypeProblem(f"{name} takes an integer up to 64 bits, not {value.type.text}")
    return f"(CAST({value.sql} AS HUGEINT) & {(1 << plain.bits) - 1}::HUGEINT)"


def _bit(value: Typed, place: Typed) -> str:
    """Return SQL of one bit, 0 or 1; a negative number's bits go on with ones."""
    number = f"(CAST({value.sql} AS HUGEINT) & {(1 << 64) - 1}::HUGEINT)"
    power = f"CAST(pow(2, CAST({integer(place)} AS INTEGER)) AS HUGEINT)"
    return f"({number} // {power} % 2)"


def _test(name: str, together: str) -> Build:
    """Return the builder of bitTest and its kin: of the bits at the places given, by AND or OR."""

    def build(arguments: list[Typed]) -> Typed:
        value = as_number(arguments[0])
        _pattern(value, name)
        bits = together.join(_bit(value, place) for place in arguments[1:])
        return Typed(f"CAST(({bits}) AS UTINYINT)", nullable_like(UINT8, *arguments))

    return build


def _powers(value: Typed, name: str) -> str:
    """Return SQL of the list of the powers of two whose sum an integer is. The highest one of a
    type with a sign is negative.
    """
    plain = value.plain
    powers = (
        f"list_transform(range(0, {plain.bits}), lambda e: v & (1::HUGEINT << CAST(e AS INT)))"
    )
    there = f"list_filter({powers}, lambda e: e <> 0)"
    if plain.is_signed:
        highest = f"{1 << plain.bits - 1}::HUGEINT"
        there = f"list_transform({there}, lambda e: CASE WHEN e = {highest} THEN -e ELSE e END)"
    return let(_pattern(value, name), "v", there)


def _to_list(arguments: list[Typed]) -> Typed:
    """`bitmaskToList(n)`: the powers of two whose sum n is, with commas between."""
    value = as_number(arguments[0])
    sql = f"array_to_string({_powers(value, 'bitmaskToList')}, ',')"
    return Typed(sql, nullable_like(STRING, value))


def _to_array(arguments: list[Typed]) -> Typed:
    value = as_number(arguments[0])
    if value.nullable:
        raise TypeProblem(f"bitmaskToArray takes an integer, not {value.type.text}")
    kind = array_of(value.type)
    return Typed(f"CAST({_powers(value, 'bitmaskToArray')} AS {kind.duckdb})", kind)


def _rotate(name: str, *, to_left: bool) -> Build:
    """Return the builder of bitRotateLeft or bitRotateRight of an unsigned integer."""

    def build(arguments: list[Typed]) -> Typed:
        value = as_number(arguments[0])
        plain = value.plain
        if plain.is_signed:
            raise TypeProblem(f"{name} takes an unsigned integer, not {value.type.text}")
        whole = f"{1 << plain.bits}::UHUGEINT"
        count = f"({integer(arguments[1])} % {plain.bits})"
        left = count if to_left else f"(({plain.bits} - {count}) % {plain.bits})"
        power = f"CAST(pow(2, CAST({left} AS INTEGER)) AS UHUGEINT)"
        rotated = f"v * {power} % {whole} + v // ({whole} // {power})"
        wide = f"CAST({_pattern(value, name)} AS UHUGEINT)"
        sql = let(wide, "v", rotated)
        return Typed(f"CAST({sql} AS {plain.duckdb})", nullable_like(value.plain, *arguments))

    return build


FUNCTIONS = (
    function("bitTest", _test("bitTest", " & "), 2),
    function("bitTestAll", _test("bitTestAll", " & "), 2, MANY),
    function("bitTestAny", _test("bitTestAny", " | "), 2, MANY),
    function("bitmaskToList", _to_list, 1),
    function("bitmaskToArray", _to_array, 1),
    function("bitRotateLeft", _rotate("bitRotateLeft", to_left=True), 2),
    function("bitRotateRight", _rotate("bitRotateRight", to_left=False), 2),
)
