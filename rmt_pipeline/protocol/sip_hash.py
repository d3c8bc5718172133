"""SipHash-2-4 with a key of zeros, which the original's sipHash64 is.

Each step is arithmetic of 64 bits that works for an int and for a NumPy array of uint64, so that
many texts of one length are hashed at once.
"""

from typing import Any

from rmt_pipeline.protocol.city_hash import Word

_ALL = (1 << 64) - 1
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)

_State = tuple[Any, Any, Any, Any]


def sip_hash_of(word: Word, size: int) -> Any:
    """The hash of the text of `size` bytes, or of each of many, that `word` gives the bytes of."""
    low, high = sip_hash_128_of(word, size)
    return low ^ high


def sip_hash_128_of(word: Word, size: int) -> tuple[Any, Any]:
    """The halves of the original's sipHash128, from which its sipHash64 is made."""
    state: _State = _START
    whole = size // 8 * 8
    for at in range(0, whole, 8):
        state = _taken_in(state, word(at, 8))
    last = word(whole, size - whole) if size > whole else 0
    return _finished(_taken_in(state, last | (size & 0xFF) << 56))


def _taken_in(state: _State, message: Any) -> _State:
    a, b, c, d = state
    a, b, c, d = _round(*_round(a, b, c, d ^ message))
    return a ^ message, b, c, d


def _finished(state: _State) -> tuple[Any, Any]:
    a, b, c, d = state
    c = c ^ 0xFF
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b, c ^ d


def _round(a: Any, b: Any, c: Any, d: Any) -> _State:
    a = a + b & _ALL
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c = c + d & _ALL
    d = _rotated(d, 16) ^ c
    a = a + d & _ALL
    d = _rotated(d, 21) ^ a
    c = c + b & _ALL
    b = _rotated(b, 17) ^ c
    return a, b, _rotated(c, 32), d


def _rotated(value: Any, bits: int) -> Any:
    return (value << bits & _ALL) | value >> 64 - bits
