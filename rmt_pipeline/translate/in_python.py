"""Functions that DuckDB calls in Python, a column of values at a time, for what it can't compute
itself.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmt_pipeline.protocol.city_hash import city_hash_of, city_hash_of_two
from rmt_pipeline.protocol.sip_hash import sip_hash_of
from rmt_pipeline.translate.by_row import by_row
from rmt_pipeline.translate.event_chains import count_matches, longest_chain, pieces_of
from rmt_pipeline.translate.histogram import bins_of
from rmt_pipeline.translate.simple_json import BY_NAME

if TYPE_CHECKING:
    import duckdb

CITY_HASH, CITY_HASH_OF_TWO = "rmt_city_hash", "rmt_city_hash_of_two"
SIP_HASH, SIP_HASH_OF_NUMBERS = "rmt_sip_hash", "rmt_sip_hash_of_numbers"
BITS_OF_DOUBLE, BITS_OF_FLOAT = "rmt_bits_of_double", "rmt_bits_of_float"
CHAINS = "rmt_chains"
SIMPLE_JSON = "rmt_simple_json"
HISTOGRAM = "rmt_histogram"
BY_ROW = "rmt_by_row"
BINS = 'STRUCT("1" DOUBLE, "2" DOUBLE, "3" DOUBLE)[]'
EVENTS = "STRUCT(t BIGINT, met UBIGINT)[]"
TWO_HASHES = 16
"""The bytes of two numbers of 64 bits."""


def add_python_functions(connection: "duckdb.DuckDBPyConnection") -> None:
    """Let the connection's queries call these functions. Each costs a fraction of a millisecond
    whenever a connection is opened, so there are few.
    """
    two, events = ["UBIGINT", "UBIGINT"], [EVENTS, "VARCHAR", "INTEGER", "BIGINT"]
    functions: tuple[tuple[str, list[str], Callable[..., pa.Array], str], ...] = (
        (CITY_HASH, ["BLOB"], partial(_hash_of_texts, city_hash_of), "UBIGINT"),
        (CITY_HASH_OF_TWO, two, _city_hash_of_two, "UBIGINT"),
        (SIP_HASH, ["BLOB"], partial(_hash_of_texts, sip_hash_of), "UBIGINT"),
        (SIP_HASH_OF_NUMBERS, [*two, "UTINYINT"], _sip_hash_of_numbers, "UBIGINT"),
        (BITS_OF_DOUBLE, ["DOUBLE"], _bits_of_float, "UBIGINT"),
        (BITS_OF_FLOAT, ["FLOAT"], _bits_of_float, "UBIGINT"),
        (CHAINS, events, _chains, "UBIGINT"),
        (HISTOGRAM, ["DOUBLE[]", "INTEGER"], _histogram, BINS),
        (SIMPLE_JSON, ["VARCHAR", "VARCHAR", "VARCHAR"], _simple_json, "VARCHAR"),
        (BY_ROW, ["VARCHAR", "BLOB"], _by_row, "BLOB[]"),
    )
    for name, given, compute, result in functions:
        connection.create_function(name, compute, given, result, type="arrow")


def _hash_of_texts(of: Callable[[Any, int], Any], texts: pa.ChunkedArray) -> pa.Array:
    """Hash texts of one length at once."""
    import numpy as np  # noqa: PLC0415  start-up: most queries do without

    array = pa.concat_arrays(texts.chunks).cast(pa.large_binary()) if texts.num_chunks else None
    if array is None:
        return pa.array([], pa.uint64())
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    hashes = np.empty(len(array), np.uint64)
    for size in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == size)
        starts = offsets[rows]

        def word(at: int, count: int, starts: Any = starts) -> Any:
            found = np.zeros(len(starts), np.uint64)
            for place in range(count):
                found |= data[starts + (at + place)].astype(np.uint64) << np.uint64(8 * place)
            return found

        hashes[rows] = of(word, size)
    return pa.array(hashes, mask=np.asarray(array.is_null()) if array.null_count else None)


def _missing(*columns: pa.ChunkedArray) -> Any:
    import numpy as np  # noqa: PLC0415  start-up: as above

    return np.logical_or.reduce([np.asarray(each.is_null()) for each in columns])


def _city_hash_of_two(low: pa.ChunkedArray, high: pa.ChunkedArray) -> pa.Array:
    import numpy as np  # noqa: PLC0415  start-up: as above

    both = (np.asarray(each.fill_null(0)) for each in (low, high))
    return pa.array(city_hash_of_two(*both), mask=_missing(low, high))


def _sip_hash_of_numbers(
    first: pa.ChunkedArray, second: pa.ChunkedArray, width: pa.ChunkedArray
) -> pa.Array:
    """Hash as many of the numbers' bytes as `width` says, which is one constant: TWO_HASHES of
    both, or fewer of the first one.
    """
    import numpy as np  # noqa: PLC0415  start-up: as above

    words = [np.asarray(each.fill_null(0)) for each in (first, second)]
    found = words[0]
    if len(found):
        found = sip_hash_of(lambda at, _: words[at // 8], width[0].as_py())
    return pa.array(found, mask=_missing(first, second))


def _bits_of_float(numbers: pa.ChunkedArray) -> pa.Array:
    kind = pa.uint64() if numbers.type == pa.float64() else pa.uint32()
    return pa.concat_arrays([each.view(kind) for each in numbers.chunks]).cast(pa.uint64())


def _simple_json(
    texts: pa.ChunkedArray, names: pa.ChunkedArray, what: pa.ChunkedArray
) -> pa.Array:
    """The fields' values, as text. `what` is one constant, how the function's name ends."""
    if not len(texts):
        return pa.array([], pa.string())
    function, _ = BY_NAME[what[0].as_py()]
    pairs = zip(texts.to_pylist(), names.to_pylist(), strict=True)
    found = (None if None in pair else str(function(*pair)) for pair in pairs)
    return pa.array(list(found), pa.string())


def _by_row(names: pa.ChunkedArray, data: pa.ChunkedArray) -> pa.Array:
    """What a function of `by_row` gives for each row. Its name is one constant."""
    name = names[0].as_py() if len(names) else ""
    found = [None if each is None else by_row(name, each) for each in data.to_pylist()]
    return pa.array(found, pa.list_(pa.binary()))


def _chains(
    lists: pa.ChunkedArray,
    patterns: pa.ChunkedArray,
    conditions: pa.ChunkedArray,
    numbers: pa.ChunkedArray,
) -> pa.Array:
    """How many times the pattern is found, the number at most; without a pattern, how long the
    longest chain is in the time that the number says.
    """
    found: list[int] = []
    given = (each.to_pylist() for each in (lists, patterns, conditions, numbers))
    for events, pattern, count, number in zip(*given, strict=True):
        met = [(event["t"], event["met"]) for event in events]
        if pattern:
            found.append(count_matches(met, pieces_of(pattern, count), number))
        else:
            found.append(longest_chain(met, number, count))
    return pa.array(found, pa.uint64())


def _histogram(lists: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    pairs = zip(lists.to_pylist(), counts.to_pylist(), strict=True)
    found = [
        [dict(zip("123", each, strict=True)) for each in bins_of(values, most)]
        for values, most in pairs
    ]
    fields = [(name, pa.float64()) for name in "123"]
    return pa.array(found, pa.list_(pa.struct(fields)))
