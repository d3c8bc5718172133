"""Functions that DuckDB calls in Python, a column of values at a time, for what it can't compute
itself.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmt_pipeline.protocol.city_hash import city_hash_of, city_hash_of_two
from rmt_pipeline.protocol.sip_hash import sip_hash_of, sip_hash_of_two
from rmt_pipeline.translate import simple_json
from rmt_pipeline.translate.event_chains import count_matches, longest_chain, pieces_of

if TYPE_CHECKING:
    import duckdb

CITY_HASH, CITY_HASH_OF_TWO = "rmt_city_hash", "rmt_city_hash_of_two"
SIP_HASH, SIP_HASH_OF_TWO = "rmt_sip_hash", "rmt_sip_hash_of_two"
SIP_HASH_OF_NUMBER = "rmt_sip_hash_of_number"
BITS_OF_DOUBLE, BITS_OF_FLOAT = "rmt_bits_of_double", "rmt_bits_of_float"
LONGEST_CHAIN, CHAIN_COUNT = "rmt_longest_chain", "rmt_chain_count"
SIMPLE_JSON = "rmt_simple_json_"  # and the name of what it does, one function for each
EVENTS = "STRUCT(t BIGINT, met UBIGINT)[]"

_JSON_TYPES = {
    "UInt8": ("UTINYINT", pa.uint8()),
    "UInt64": ("UBIGINT", pa.uint64()),
    "Int64": ("BIGINT", pa.int64()),
    "Float64": ("DOUBLE", pa.float64()),
    "String": ("VARCHAR", pa.string()),
}


def add_python_functions(connection: "duckdb.DuckDBPyConnection") -> None:
    """Let the connection's queries call these functions."""
    for name, of_texts, of_two in (
        ("city", city_hash_of, city_hash_of_two),
        ("sip", sip_hash_of, sip_hash_of_two),
    ):
        for ending, function, types in (
            ("", partial(_hash_of_texts, of_texts), ["BLOB"]),
            ("_of_two", partial(_hash_of_two, of_two), ["UBIGINT", "UBIGINT"]),
        ):
            full = f"rmt_{name}_hash{ending}"
            connection.create_function(full, function, types, "UBIGINT", type="arrow")
    others: tuple[tuple[str, list[str], Callable[..., pa.Array], str], ...] = (
        (SIP_HASH_OF_NUMBER, ["UBIGINT", "UTINYINT"], _sip_hash_of_number, "UBIGINT"),
        (BITS_OF_DOUBLE, ["DOUBLE"], _bits_of_float, "UBIGINT"),
        (BITS_OF_FLOAT, ["FLOAT"], _bits_of_float, "UBIGINT"),
        (LONGEST_CHAIN, [EVENTS, "BIGINT", "INTEGER"], _longest_chain, "UTINYINT"),
        (CHAIN_COUNT, [EVENTS, "VARCHAR", "INTEGER", "BIGINT"], _chain_count, "UBIGINT"),
        *(
            (
                f"{SIMPLE_JSON}{name}",
                ["VARCHAR", "VARCHAR"],
                partial(_of_pairs, function, _JSON_TYPES[kind][1]),
                _JSON_TYPES[kind][0],
            )
            for name, (function, kind) in simple_json.BY_NAME.items()
        ),
    )
    for name, given, compute, result in others:
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


def _hash_of_two(
    of: Callable[[Any, Any], Any], low: pa.ChunkedArray, high: pa.ChunkedArray
) -> pa.Array:
    import numpy as np  # noqa: PLC0415  start-up: as above

    missing = np.asarray(low.is_null()) | np.asarray(high.is_null())
    both = (np.asarray(each.fill_null(0)) for each in (low, high))
    return pa.array(of(*both), mask=missing)


def _sip_hash_of_number(bits: pa.ChunkedArray, width: pa.ChunkedArray) -> pa.Array:
    """Hash the lowest bytes of numbers, `width` of them, which is one constant."""
    import numpy as np  # noqa: PLC0415  start-up: as above

    numbers = np.asarray(bits.fill_null(0))
    found = sip_hash_of(lambda *_: numbers, width[0].as_py()) if len(bits) else numbers
    return pa.array(found, mask=np.asarray(bits.is_null()))


def _bits_of_float(numbers: pa.ChunkedArray) -> pa.Array:
    kind = pa.uint64() if numbers.type == pa.float64() else pa.uint32()
    return pa.concat_arrays([each.view(kind) for each in numbers.chunks]).cast(pa.uint64())


def _of_pairs(
    function: Callable[[str, str], object],
    kind: pa.DataType,
    left: pa.ChunkedArray,
    right: pa.ChunkedArray,
) -> pa.Array:
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return pa.array([None if None in pair else function(*pair) for pair in pairs], kind)


def _events(lists: pa.ChunkedArray) -> Iterator[list[tuple[int, int]]]:
    for events in lists.to_pylist():
        yield [(event["t"], event["met"]) for event in events]


def _longest_chain(
    lists: pa.ChunkedArray, window: pa.ChunkedArray, conditions: pa.ChunkedArray
) -> pa.Array:
    given = zip(_events(lists), window.to_pylist(), conditions.to_pylist(), strict=True)
    return pa.array([longest_chain(*each) for each in given], pa.uint8())


def _chain_count(
    lists: pa.ChunkedArray,
    patterns: pa.ChunkedArray,
    conditions: pa.ChunkedArray,
    most: pa.ChunkedArray,
) -> pa.Array:
    given = zip(
        _events(lists),
        *(each.to_pylist() for each in (patterns, conditions, most)),
        strict=True,
    )
    return pa.array(
        [
            count_matches(events, pieces_of(text, count), at_most)
            for events, text, count, at_most in given
        ],
        pa.uint64(),
    )
