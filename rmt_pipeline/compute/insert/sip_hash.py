"""SipHash-2-4 with 128 bits of result, as the original computes it (its finish is its own).

Only for a few short texts per insert: the partition ids that the original would give (spec §1.1).
"""

_MASK = (1 << 64) - 1
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def sip_hash_128(data: bytes) -> bytes:
    """16 bytes."""
    v0, v1, v2, v3 = _START
    whole = len(data) & ~7
    last = data[whole:].ljust(7, b"\0") + bytes([len(data) & 0xFF])
    for word in (*(data[at : at + 8] for at in range(0, whole, 8)), last):
        message = int.from_bytes(word, "little")
        v3 ^= message
        v0, v1, v2, v3 = _round(*_round(v0, v1, v2, v3))
        v0 ^= message
    v2 ^= 0xFF
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return (v0 ^ v1).to_bytes(8, "little") + (v2 ^ v3).to_bytes(8, "little")


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotated(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotated(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotated(v1, 17) ^ v2
    return v0, v1, _rotated(v2, 32), v3


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK
