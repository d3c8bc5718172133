"""Which replica merges, if only one of them is to do it and the others fetch the result (spec
§5.3.6). Replicas that see the same replicas active choose the same one.

They need not agree: replicas that see different ones active may both merge, or both wait until the
time is over. Their parts are equal in any case.
"""

from collections.abc import Collection

from rmt_pipeline.protocol.parts.name import PartName

_ALL = (1 << 64) - 1
_K0, _K1 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273
_K2, _K3 = 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
_MULTIPLIER = 0x9DDFEA08EB382D69


def chosen_replica(
    active: Collection[str], me: str, table_path: str, result: PartName
) -> str | None:
    """The active replica that merges into `result`; None if each replica merges for itself, because
    fewer than two are active, or this one (`me`) is not.
    """
    if len(active) < 2 or me not in active:
        return None
    return sorted(active)[city_hash_64(f"{table_path}{result}".encode()) % len(active)]


def city_hash_64(data: bytes) -> int:
    """CityHash64 of version 1.0.2 (Google, 2011), which the original uses. Later versions of
    CityHash give other values.
    """
    size = len(data)
    if size <= 16:
        return _up_to_16(data, size)
    if size <= 32:
        return _up_to_32(data, size)
    if size <= 64:
        return _up_to_64(data, size)
    return _longer(data, size)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotate(value: int, bits: int) -> int:
    """Rotate the low 64 bits of `value`, which may be longer or negative, to the right."""
    value &= _ALL
    return value >> bits | (value << 64 - bits) & _ALL


def _shift_mix(value: int) -> int:
    value &= _ALL
    return value ^ value >> 47


def _of_two(low: int, high: int) -> int:
    low, high = low & _ALL, high & _ALL
    mixed = _shift_mix((low ^ high) * _MULTIPLIER)
    return _shift_mix((high ^ mixed) * _MULTIPLIER) * _MULTIPLIER & _ALL


def _up_to_16(data: bytes, size: int) -> int:
    if size > 8:
        first, last = _word(data, 0), _word(data, size - 8)
        return _of_two(first, _rotate(last + size, size)) ^ last
    if size >= 4:
        first, last = (int.from_bytes(data[at : at + 4], "little") for at in (0, size - 4))
        return _of_two(size + (first << 3), last)
    if size > 0:
        start = data[0] + (data[size >> 1] << 8)
        end = size + (data[size - 1] << 2)
        return _shift_mix(start * _K2 ^ end * _K3) * _K2 & _ALL
    return _K2


def _up_to_32(data: bytes, size: int) -> int:
    a, b = _word(data, 0) * _K1, _word(data, 8)
    c, d = _word(data, size - 8) * _K2, _word(data, size - 16) * _K0
    return _of_two(_rotate(a - b, 43) + _rotate(c, 30) + d, a + _rotate(b ^ _K3, 20) - c + size)


def _up_to_64(data: bytes, size: int) -> int:
    a = _word(data, 0) + (size + _word(data, size - 16)) * _K0
    first = _half_of_64(a, _word(data, 8), _word(data, 16), _word(data, 24))
    a = _word(data, 16) + _word(data, size - 32)
    second = _half_of_64(
        a, _word(data, size - 24), _word(data, size - 16), _word(data, size - 8)
    )
    mixed = _shift_mix((first[0] + second[1]) * _K2 + (second[0] + first[1]) * _K0)
    return _shift_mix(mixed * _K0 + first[1]) * _K2 & _ALL


def _half_of_64(a: int, one: int, two: int, three: int) -> tuple[int, int]:
    b, c = _rotate(a + three, 52), _rotate(a, 37)
    a += one
    c += _rotate(a, 7)
    a += two
    return a + three, b + _rotate(a, 31) + c


def _longer(data: bytes, size: int) -> int:
    x, y, z = _word(data, 0), _word(data, size - 16) ^ _K1, _word(data, size - 56) ^ _K0
    v = _of_32(data, size - 64, size, y)
    w = _of_32(data, size - 32, size * _K1, _K0)
    z += _shift_mix(v[1]) * _K1
    x = _rotate(z + x, 39) * _K1
    y = _rotate(y, 33) * _K1
    for at in range(0, (size - 1) // 64 * 64, 64):
        x = _rotate(x + y + v[0] + _word(data, at + 16), 37) * _K1 & _ALL
        y = _rotate(y + v[1] + _word(data, at + 48), 42) * _K1 & _ALL
        x ^= w[1] & _ALL
        y ^= v[0] & _ALL
        z = _rotate((z ^ w[0]), 33)
        v = _of_32(data, at, v[1] * _K1, x + w[0])
        w = _of_32(data, at + 32, z + w[1], y)
        z, x = x, z
    return _of_two(_of_two(v[0], w[0]) + _shift_mix(y) * _K1 + z, _of_two(v[1], w[1]) + x)


def _of_32(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """The hash of 32 bytes with two seeds (WeakHashLen32WithSeeds in CityHash)."""
    first, second, third, last = (_word(data, at + 8 * word) for word in range(4))
    a += first
    b = _rotate(b + a + last, 21)
    c = a
    a += second + third
    b += _rotate(a, 44)
    return (a + last) & _ALL, (b + c) & _ALL
