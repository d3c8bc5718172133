"""Hash functions with exactly the original's results. Others are not in the allow-list.

A hash that differs from the original's would put rows into other partitions than those that they
are in. Texts are hashed in Python.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rmt_pipeline.translate.base.casts import enum_number, nullable_like
from rmt_pipeline.translate.base.function import MANY, Build, blob, function, template
from rmt_pipeline.translate.base.temporal import seconds
from rmt_pipeline.translate.base.typed import (
    UINT32,
    UINT64,
    Typed,
    TypeProblem,
    from_stored,
    let,
    string_sql,
)
from rmt_pipeline.translate.functions.rare import in_memory, number_by_row
from rmt_pipeline.translate.in_python import (
    BITS_OF_DOUBLE,
    BITS_OF_FLOAT,
    CITY_HASH,
    CITY_HASH_OF_TWO,
    SIP_HASH,
    SIP_HASH_OF_NUMBERS,
    TWO_HASHES,
)
from rmt_pipeline.types.data_type import DataType


def _digest(name: str, width: int) -> Build:
    """Return the builder of a hash as a FixedString of its bytes."""
    return template(f"unhex({name}({{0}}))", DataType("FixedString", (width,)), blob)


_HALF_MD5 = template("CAST('0x' || substr(md5({0}), 1, 16) AS UBIGINT)", UINT64, blob)


def _key(value: Typed, *, own_width: bool = False) -> str:
    """Return SQL of a number's bits as UBIGINT, sign-extended to 64 bits, or zero-extended from its
    own width with `own_width`. Raises TypeProblem.
    """
    plain = value.plain
    if plain.is_integer and not plain.wide_bytes:
        number = f"CAST({value.sql} AS HUGEINT)"
    elif plain.is_date:
        number = f"CAST(date_diff('day', DATE '1970-01-01', {value.sql}) AS HUGEINT)"
    elif plain.family == "DateTime":
        number = f"CAST({seconds(value)} AS HUGEINT)"
    elif plain.is_float:
        bits = BITS_OF_DOUBLE if plain.family == "Float64" else BITS_OF_FLOAT
        return f"{bits}({value.sql})"
    else:
        raise TypeProblem(
            "this hash takes integers up to 64 bits, floats, Date and DateTime, not "
            f"{value.type.text}"
        )
    ones = (1 << plain.bits) - 1 if own_width and plain.is_integer else _ONES
    return f"CAST(({number} & {ones}::HUGEINT) AS UBIGINT)"


_ONES = 2**64 - 1


def _low(sql: str) -> str:
    """Return SQL of the low 64 bits of a UHUGEINT."""
    return f"CAST(({sql} & CAST({_ONES} AS UHUGEINT)) AS UBIGINT)"


def _product(factor: int) -> str:
    return _low(f"(CAST(v AS UHUGEINT) * CAST({factor} AS UHUGEINT))")


def _left(count: int) -> str:
    return _low(f"(CAST(v AS UHUGEINT) * CAST({2**count} AS UHUGEINT))")


def _sum(left: str, right: str) -> str:
    return _low(f"(CAST({left} AS UHUGEINT) + CAST({right} AS UHUGEINT))")


def _rotated(count: int) -> str:
    return f"((v >> {count}) | {_left(64 - count)})"


def _steps(sql: str, *steps: str) -> str:
    """Return SQL of the steps one after another. Each step has the result before it as `v`."""
    for step in steps:
        sql = let(sql, "v", step)
    return sql


def _finalised(value: Typed, key: str) -> Typed:
    """Return MurmurHash3's finaliser, which is the original's intHash64 and its cityHash64 of one
    number.
    """
    mixed = "xor(v, v >> 33)"
    salted = f"xor({key}, CAST({0x4CF2D2BAAE6DA887} AS UBIGINT))"
    sql = _steps(
        salted,
        mixed,
        _product(0xFF51AFD7ED558CCD),
        mixed,
        _product(0xC4CEB9FE1A85EC53),
        mixed,
    )
    return Typed(f"CAST({sql} AS UBIGINT)", nullable_like(UINT64, value))


def _int_hash_32(arguments: list[Typed]) -> Typed:
    """`intHash32(n)`: Thomas Wang's hash of 64 bits to 32, as in the original."""
    salted = f"xor({_key(arguments[0])}, CAST({0x75D9543DE018BF45} AS UBIGINT))"
    sql = _steps(
        salted,
        _sum(f"(CAST({_ONES} AS UBIGINT) - v)", _left(18)),
        f"xor(v, {_rotated(31)})",
        _product(21),
        f"xor(v, {_rotated(11)})",
        _sum("v", _left(6)),
        f"xor(v, {_rotated(22)})",
    )
    low = f"({sql} & CAST(4294967295 AS UBIGINT))"
    return Typed(f"CAST({low} AS UINTEGER)", nullable_like(UINT32, arguments[0]))


@dataclass(frozen=True, slots=True)
class _Combined:
    """A hash of several values: `of_one` is SQL of one value's hash, `of_two` that of two hashes.

    One hash goes into the next, as in the original; a Tuple stands for its elements, and an Array
    for its length and its elements.
    """

    of_one: Callable[[Typed], str]
    of_two: Callable[[str, str], str]
    result: DataType = UINT64

    def build(self, arguments: list[Typed]) -> Typed:
        values = [part for each in arguments for part in _parts(each)]
        sql = ""
        for each in values:
            if each.plain.family == "Array" and not each.plain.elements[0].nullable:
                sql = self._with_array(sql, each)
            else:
                one = self.of_one(each)
                sql = self.of_two(sql, one) if sql else one
        return Typed(sql, nullable_like(self.result, *values))

    def _with_array(self, before: str, value: Typed) -> str:
        """Return SQL of the hash `before`, "" for none, and an array after it."""
        size = "CAST(v AS UBIGINT)"
        narrow = self.result.plain == UINT32
        mixed = _int_hash_32([Typed(size, UINT64)]) if narrow else _finalised(value, size)
        length = let(f"len({value.sql})", "v", mixed.sql)
        first = self.of_two(before, length) if before else length
        element = self.build([from_stored("e", value.plain.elements[0])]).sql
        hashes = f"list_prepend({first}, list_transform({value.sql}, lambda e: {element}))"
        return f"list_reduce({hashes}, lambda a, e: {self.of_two('a', 'e')})"


def _parts(value: Typed) -> Iterator[Typed]:
    plain = value.plain
    if plain.family != "Tuple":
        yield value
        return
    for name, kind in zip(plain.element_names, plain.elements, strict=True):
        element = f"struct_extract({value.sql}, {string_sql(name)})"
        yield from _parts(from_stored(element, kind))


def _of_number(value: Typed) -> Typed:
    """The number of an enum's element; another value as it is."""
    if not value.plain.is_enum:
        return value
    kind = DataType("Int8" if value.plain.family == "Enum8" else "Int16")
    return Typed(enum_number(value), nullable_like(kind, value))


def _city_hash_of_one(value: Typed) -> str:
    if value.plain.is_string:
        return f"{CITY_HASH}({blob(value)})"
    value = _of_number(value)
    return _finalised(value, _key(value, own_width=True)).sql


_WIDTHS = {"Date": 2, "Date32": 4, "DateTime": 4, "Float32": 4, "Float64": 8}


def _sip_hash_of_one(value: Typed) -> str:
    if value.plain.is_string:
        return f"{SIP_HASH}({blob(value)})"
    value = _of_number(value)
    key = _key(value)
    width = _WIDTHS.get(value.plain.family) or value.plain.bits // 8
    bits = f"({key} & CAST({(1 << 8 * width) - 1} AS UBIGINT))"
    return f"{SIP_HASH_OF_NUMBERS}({bits}, CAST(0 AS UBIGINT), CAST({width} AS UTINYINT))"


def _murmur(name: str, kind: DataType) -> _Combined:
    """A MurmurHash of values' bytes in memory. The hash of the ones before goes through intHash32
    or intHash64 into the next.
    """

    def of_two(left: str, right: str) -> str:
        before = Typed(left, kind)
        narrow = kind.plain == UINT32
        mixed = _int_hash_32([before]) if narrow else _finalised(before, left)
        return f"xor({mixed.sql}, {right})"

    return _Combined(lambda value: number_by_row(name, in_memory(value), kind), of_two, kind)


def _city_hash_of_two(low: str, high: str) -> str:
    return f"{CITY_HASH_OF_TWO}({low}, {high})"


def _sip_hash_of_two(left: str, right: str) -> str:
    return f"{SIP_HASH_OF_NUMBERS}({left}, {right}, CAST({TWO_HASHES} AS UTINYINT))"


_DIFFERS = (
    "maps, Decimals, times with fractions, arrays with NULL and numbers above 64 bits "
    "are refused"
)
FUNCTIONS = (
    function("MD5", _digest("md5", 16), 1),
    function("SHA1", _digest("sha1", 20), 1),
    function("SHA256", _digest("sha256", 32), 1),
    function("halfMD5", _HALF_MD5, 1),
    function("intHash64", lambda it: _finalised(it[0], _key(it[0])), 1),
    function("intHash32", _int_hash_32, 1),
    *(
        function(name, combined.build, 1, MANY, differs=_DIFFERS)
        for name, combined in (
            ("cityHash64", _Combined(_city_hash_of_one, _city_hash_of_two)),
            ("sipHash64", _Combined(_sip_hash_of_one, _sip_hash_of_two)),
            *(
                (name, _murmur(name, kind))
                for name, kind in (
                    ("murmurHash2_32", UINT32),
                    ("murmurHash2_64", UINT64),
                    ("murmurHash3_32", UINT32),
                    ("murmurHash3_64", UINT64),
                )
            ),
        )
    ),
)
