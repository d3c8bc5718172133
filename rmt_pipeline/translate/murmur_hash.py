"""MurmurHash 2 and 3 (Austin Appleby) with the seed 0, as the original computes them."""

_32 = (1 << 32) - 1
_64 = (1 << 64) - 1


def murmur_2_32(data: bytes) -> int:
    """MurmurHash2 of 32 bits."""
    factor, found = 0x5BD1E995, len(data) & _32
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * factor & _32
        word = (word ^ word >> 24) * factor & _32
        found = found * factor & _32 ^ word
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * factor & _32
    found = (found ^ found >> 13) * factor & _32
    return found ^ found >> 15


def murmur_2_64(data: bytes) -> int:
    """MurmurHash64A."""
    factor = 0xC6A4A7935BD1E995
    found = len(data) * factor & _64
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * factor & _64
        word = (word ^ word >> 47) * factor & _64
        found = (found ^ word) * factor & _64
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * factor & _64
    found = (found ^ found >> 47) * factor & _64
    return found ^ found >> 47


def murmur_3_32(data: bytes) -> int:
    """MurmurHash3_x86_32."""
    found, whole = 0, len(data) // 4 * 4
    for at in range(0, whole, 4):
        found ^= _scrambled_32(int.from_bytes(data[at : at + 4], "little"))
        found = _rotated(found, 13, 32) * 5 + 0xE6546B64 & _32
    found ^= _scrambled_32(int.from_bytes(data[whole:], "little"))
    found ^= len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _32
    found = (found ^ found >> 13) * 0xC2B2AE35 & _32
    return found ^ found >> 16


def murmur_3_128(data: bytes) -> tuple[int, int]:
    """MurmurHash3_x64_128: its two halves."""
    low = high = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        low ^= _scrambled_low(int.from_bytes(data[at : at + 8], "little"))
        low = (_rotated(low, 27, 64) + high) * 5 + 0x52DCE729 & _64
        high ^= _scrambled_high(int.from_bytes(data[at + 8 : at + 16], "little"))
        high = (_rotated(high, 31, 64) + low) * 5 + 0x38495AB5 & _64
    rest = data[whole:]
    high ^= _scrambled_high(int.from_bytes(rest[8:], "little")) ^ len(data)
    low ^= _scrambled_low(int.from_bytes(rest[:8], "little")) ^ len(data)
    low = low + high & _64
    high = high + low & _64
    low, high = _mixed(low), _mixed(high)
    low = low + high & _64
    return low, high + low & _64


_FIRST, _SECOND = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _scrambled_low(word: int) -> int:
    return _rotated(word * _FIRST & _64, 31, 64) * _SECOND & _64


def _scrambled_high(word: int) -> int:
    return _rotated(word * _SECOND & _64, 33, 64) * _FIRST & _64


def _scrambled_32(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _32, 15, 32) * 0x1B873593 & _32


def _mixed(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _64
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _64
    return word ^ word >> 33


def _rotated(word: int, bits: int, width: int) -> int:
    """Rotated to the left."""
    return (word << bits | word >> width - bits) & (1 << width) - 1
