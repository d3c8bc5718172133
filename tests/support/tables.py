"""Arrow arrays and tables of every stored type, for hypothesis. A strategy is made once: to look
into a new one takes hypothesis longer than to draw from it.
"""

import datetime as dt
import decimal
from functools import cache

import pyarrow as pa
from hypothesis import strategies as st

TEXTS = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="ab", min_size=60, max_size=90),
    st.sampled_from(["", "\0", "a\0", "a", "12345678", "123456789"]),
)
FLOATS = st.floats(width=64)
DAYS = st.dates(dt.date(1925, 1, 1), dt.date(2283, 11, 11))
MICROSECONDS = st.integers(-(10**15), 10**16)


def decimals(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**digits - 1
    with_scale = decimal.Context(prec=digits)
    return st.integers(-limit, limit).map(
        lambda n: decimal.Decimal(n).scaleb(-scale, with_scale)
    )


SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), FLOATS),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "fixed": (pa.binary(5), st.binary(min_size=5, max_size=5)),
    "date": (pa.date32(), DAYS),
    "time": (pa.timestamp("us", "UTC"), MICROSECONDS),
    "nanoseconds": (pa.timestamp("ns", "UTC"), st.integers(-(2**62), 2**62)),
    "decimal": (pa.decimal128(20, 3), decimals(20, 3)),
    "wide": (pa.decimal256(70, 2), decimals(70, 2)),
}


@cache
def nullable(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(st.none(), values)


@cache
def lists_of(values: st.SearchStrategy, least: int, most: int) -> st.SearchStrategy:
    return st.lists(values, min_size=least, max_size=most)


@cache
def structs_of(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.fixed_dictionaries({"x": values, "y": nullable(st.integers(-5, 5))})


@cache
def pairs_of(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.text(max_size=3), values)


KINDS = st.sampled_from(list(SCALARS.values()))
NESTED = st.sampled_from(["list", "struct", "map"])
NAMES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)


@st.composite
def types_and_values(draw: st.DrawFn) -> tuple[pa.DataType, st.SearchStrategy]:
    """A type and a strategy for its values, NULL among them; nested to a depth of two."""
    kind, values = draw(KINDS)
    values = nullable(values)
    for _ in range(draw(st.integers(0, 2))):
        match draw(NESTED):
            case "list":
                kind, values = pa.list_(kind), nullable(lists_of(values, 0, 4))
            case "struct":
                kind = pa.struct([("x", kind), ("y", pa.int8())])
                values = nullable(structs_of(values))
            case _:
                kind = pa.map_(pa.string(), kind)
                values = nullable(lists_of(pairs_of(values), 0, 3))
    return kind, values


@st.composite
def arrays(draw: st.DrawFn, length: int | None = None) -> pa.Array:
    kind, values = draw(types_and_values())
    least, most = (0, 12) if length is None else (length, length)
    return pa.array(draw(lists_of(values, least, most)), kind)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    length = draw(st.integers(0, 8))
    return pa.table({name: draw(arrays(length)) for name in draw(NAMES)})
