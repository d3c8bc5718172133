"""The arithmetic of the row hash: two 64-bit lanes, mixed independently, in numpy.

A hash is 128 bits: lane 0 is the low half, lane 1 the high one. With all sums and products
modulo 2^64, and for each lane its own constants (`KEYS` by name, `_MULTIPLIERS`):

    M(x)       x ^= x >> 32;  x *= A;  x ^= x >> 29;  x *= B;  x ^= x >> 32
    null       the key "null"
    number x   M(x + key "number")                       x in 64 bits
    bytes      M(sum of M(w[j] + (j + 1) * key "word") + length * key "length" + key "bytes")
               over the little-endian 8-byte words w[j], the last one filled up with zeros
    list       M(sum of M(element[j] + (j + 1) * key "item") + length * key "size" + key "list")
    struct     M(sum of field[i] * odd(M((i + 1) * key "field")) + key "struct")
    row        M(sum of value[c] * odd(bytes hash of the name of column c))
    placed row M(row + (position + 1) * key "position")

where odd(x) sets the lowest bit. Keys are odd numbers taken from SHA-256 of their names, so their
origin is plain. The definition must never change, because hashes are kept in ZooKeeper and in
manifests for years. `tests/unit/store` has golden values and a slow second implementation.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
"""Both lanes, shape (2, n); or one, shape (n,)."""

SLICE_ROWS = 16_384  # 128 kB per lane, so that a slice stays in the processor's cache
MASK_64 = (1 << 64) - 1
MASK_128 = (1 << 128) - 1

# Constants are arrays, which numpy takes in half the time of its scalars; for a small insert that
# counts. Those that differ between the lanes have the shape (2, 1).
_MULTIPLIERS = (  # those of the finalisers of SplitMix64 and MurmurHash3
    np.array([[0xBF58476D1CE4E5B9], [0xFF51AFD7ED558CCD]], np.uint64),
    np.array([[0x94D049BB133111EB], [0xC4CEB9FE1A85EC53]], np.uint64),
)
_29 = np.array(29, np.uint64)
_32 = np.array(32, np.uint64)
_ONE = np.array(1, np.uint64)
_NAMES = (
    *("null", "number", "bytes", "word", "length", "list", "item", "size"),
    *("struct", "field", "position"),
)


def _key(name: str, lane: int) -> int:
    digest = hashlib.sha256(f"rmt_pipeline row hash, lane {lane}: {name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") | 1


KEYS: dict[str, Words] = {
    name: np.array([[_key(name, 0)], [_key(name, 1)]], np.uint64) for name in _NAMES
}


def mix(words: Words) -> None:
    """Apply M in place to `words`, shape (2, n)."""
    first, second = _MULTIPLIERS
    scratch = np.right_shift(words, _32)
    np.bitwise_xor(words, scratch, words)
    np.multiply(words, first, words)
    np.right_shift(words, _29, scratch)
    np.bitwise_xor(words, scratch, words)
    np.multiply(words, second, words)
    np.right_shift(words, _32, scratch)
    np.bitwise_xor(words, scratch, words)


def ramp(start: int, count: int, step: Words) -> Words:
    """The words `(start + i) * step` for i from 0 to count - 1, shape (2, count)."""
    return np.arange(start, start + count, dtype=np.uint64) * step


def add_at(out: Words, places: slice | NDArray[np.int64], words: Words) -> None:
    """Add `words` to `out` at these places of both lanes, one lane after the other: places in two
    dimensions cost numpy twice as much.
    """
    for lane, added in zip(out, words, strict=True):
        lane[places] += added


def odd(words: Words) -> Words:
    """The words with the lowest bit set: what hashes can be multiplied by without loss."""
    return words | _ONE


def field_factors(index: int) -> Words:
    """The factors, shape (2, 1), by which the hashes of a struct's field are multiplied."""
    words = ramp(index + 1, 1, KEYS["field"])
    mix(words)
    return odd(words)


def sums_128(lanes: Words, cuts: NDArray[np.int64]) -> list[int]:
    """The sums modulo 2^128 of the hashes in `lanes`, shape (2, n) with n < 2^32, from each cut
    to the next. `cuts` are ascending and begin with 0.
    """
    upper = np.right_shift(lanes[0], _32)
    if len(cuts) == 1:
        low, high = ([one] for one in np.add.reduce(lanes, axis=1).tolist())
        carried = [int(np.add.reduce(upper))]
    else:
        low, carried, high = (
            np.add.reduceat(words, cuts).tolist() for words in (lanes[0], upper, lanes[1])
        )
    return [_sum_128(*sums) for sums in zip(low, carried, high, strict=True)]


def _sum_128(low: int, carried: int, high: int) -> int:
    # `carried`, the sum of the high 32 bits, is exact. What it does not explain of `low`, the sum
    # modulo 2^64, is the sum of the low 32 bits, which is exact too.
    low_halves = (low - (carried << 32)) & MASK_64
    return (low_halves + (carried << 32) + (high << 64)) & MASK_128


def slices(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut `start..stop` into pieces that fit into the cache."""
    for low in range(start, stop, SLICE_ROWS):
        yield low, min(low + SLICE_ROWS, stop)
