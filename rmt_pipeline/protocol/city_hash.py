"""CityHash64 of version 1.0.2 (Google, 2011), which the original uses. Later versions of CityHash
give other values.

Each step is arithmetic of 64 bits that works for an int and for a NumPy array of uint64, so that
many texts of one length are hashed at once.
"""

from collections.abc import Callable
from typing import Any

_ALL = (1 << 64) - 1
_K0, _K1 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273
_K2, _K3 = 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
_MULTIPLIER = 0x9DDFEA08EB382D69

Word = Callable[[int, int], Any]
"""(place, number of bytes) → those bytes as a little-endian number, or one for each text."""


def city_hash_64(data: bytes) -> int:
    """The hash of one text."""
    found = city_hash_of(
        lambda at, count: int.from_bytes(data[at : at + count], "little"), len(data)
    )
    assert isinstance(found, int)
    return found


def city_hash_of(word: Word, size: int) -> Any:
    """The hash of the text of `size` bytes, or of each of many, that `word` gives the bytes of."""
    if size <= 16:
        return _up_to_16(word, size)
    if size <= 32:
        return _up_to_32(word, size)
    if size <= 64:
        return _up_to_64(word, size)
    return _longer(word, size)


def city_hash_of_two(low: Any, high: Any) -> Any:
    """The hash of two hashes, which is how the original goes from one column to the next."""
    low, high = low & _ALL, high & _ALL
    mixed = _shift_mix((low ^ high) * _MULTIPLIER)
    return _shift_mix((high ^ mixed) * _MULTIPLIER) * _MULTIPLIER & _ALL


def _rotate(value: Any, bits: int) -> Any:
    """Rotate the low 64 bits of `value`, which may be longer or negative, to the right."""
    value &= _ALL
    return value >> bits | (value << 64 - bits) & _ALL


def _shift_mix(value: Any) -> Any:
    value &= _ALL
    return value ^ value >> 47


def _up_to_16(word: Word, size: int) -> Any:
    if size > 8:
        first, last = word(0, 8), word(size - 8, 8)
        return city_hash_of_two(first, _rotate(last + size, size)) ^ last
    if size >= 4:
        first, last = word(0, 4), word(size - 4, 4)
        return city_hash_of_two(size + (first << 3), last)
    if size > 0:
        start = word(0, 1) + (word(size >> 1, 1) << 8)
        end = size + (word(size - 1, 1) << 2)
        return _shift_mix(start * _K2 ^ end * _K3) * _K2 & _ALL
    return _K2


def _up_to_32(word: Word, size: int) -> Any:
    a, b = word(0, 8) * _K1, word(8, 8)
    c, d = word(size - 8, 8) * _K2, word(size - 16, 8) * _K0
    return city_hash_of_two(
        _rotate(a - b, 43) + _rotate(c, 30) + d, a + _rotate(b ^ _K3, 20) - c + size
    )


def _up_to_64(word: Word, size: int) -> Any:
    a = word(0, 8) + (size + word(size - 16, 8)) * _K0
    first = _half_of_64(a, word(8, 8), word(16, 8), word(24, 8))
    a = word(16, 8) + word(size - 32, 8)
    second = _half_of_64(a, word(size - 24, 8), word(size - 16, 8), word(size - 8, 8))
    mixed = _shift_mix((first[0] + second[1]) * _K2 + (second[0] + first[1]) * _K0)
    return _shift_mix(mixed * _K0 + first[1]) * _K2 & _ALL


def _half_of_64(a: Any, one: Any, two: Any, three: Any) -> tuple[Any, Any]:
    b, c = _rotate(a + three, 52), _rotate(a, 37)
    end = a + one + two
    return end + three, b + _rotate(end, 31) + c + _rotate(a + one, 7)


def _longer(word: Word, size: int) -> Any:
    x, y, z = word(0, 8), word(size - 16, 8) ^ _K1, word(size - 56, 8) ^ _K0
    v = _of_32(word, size - 64, size, y)
    w = _of_32(word, size - 32, size * _K1 & _ALL, _K0)
    z = z + _shift_mix(v[1]) * _K1
    x = _rotate(z + x, 39) * _K1
    y = _rotate(y, 33) * _K1
    for at in range(0, (size - 1) // 64 * 64, 64):
        x = _rotate(x + y + v[0] + word(at + 16, 8), 37) * _K1 & _ALL
        y = _rotate(y + v[1] + word(at + 48, 8), 42) * _K1 & _ALL
        x = x ^ (w[1] & _ALL)
        y = y ^ (v[0] & _ALL)
        z = _rotate((z ^ w[0]), 33)
        v = _of_32(word, at, v[1] * _K1, x + w[0])
        w = _of_32(word, at + 32, z + w[1], y)
        z, x = x, z
    return city_hash_of_two(
        city_hash_of_two(v[0], w[0]) + _shift_mix(y) * _K1 + z, city_hash_of_two(v[1], w[1]) + x
    )


def _of_32(word: Word, at: int, a: Any, b: Any) -> tuple[Any, Any]:
    """32 bytes with two seeds; the original calls it weak."""
    first, second, third, last = (word(at + 8 * place, 8) for place in range(4))
    start = a + first
    turned = _rotate(b + start + last, 21)
    end = start + second + third
    return (end + last) & _ALL, (turned + _rotate(end, 44) + start) & _ALL
