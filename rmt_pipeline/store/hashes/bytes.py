"""Hashes byte strings of any length, many at once in numpy."""

import numpy as np
from numpy.typing import NDArray

from rmt_pipeline.store.hashes.lanes import KEYS, Words, add_at, mix, ramp

Offsets = NDArray[np.int64]

_WORD = 8
_HEAD_WORDS = 8  # of each string: hashed word by word, for all strings of a slice at once
_SLICE_BYTES = 1 << 20
_TAIL_MASKS = np.array([(1 << (8 * kept)) - 1 for kept in range(_WORD + 1)], dtype=np.uint64)


def hash_bytes(data: NDArray[np.uint8], offsets: Offsets, out: Words) -> None:
    """Write the hashes of the strings `data[offsets[i]:offsets[i + 1]]` to `out`, shape (2, number
    of strings).
    """
    count = len(offsets) - 1
    low = 0
    while low < count:
        limit = int(offsets[low]) + _SLICE_BYTES
        high = min(count, int(np.searchsorted(offsets, limit, side="right")) - 1)
        if high <= low:
            high = low + 1
            _one_long(data[offsets[low] : offsets[high]], out[:, low:high])
        else:
            first, last = int(offsets[low]), int(offsets[high])
            # The copy is padded, so that a whole word can be read at each byte.
            padded = np.zeros(last - first + _WORD, dtype=np.uint8)
            padded[: last - first] = data[first:last]
            _many(padded, offsets[low : high + 1] - first, out[:, low:high])
        low = high


def _many(padded: NDArray[np.uint8], offsets: Offsets, out: Words) -> None:
    """Hash the strings of one slice, which has a word of padding behind it."""
    words_at = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded.data, strides=(1,))
    starts = offsets[:-1]
    lengths = np.diff(offsets)
    out.fill(0)
    longest = int(lengths.max(initial=0))
    shortest = int(lengths.min(initial=0))
    for place in range(min(-(-longest // _WORD), _HEAD_WORDS)):
        done = place * _WORD
        if shortest >= done + _WORD:
            _add_words(words_at[starts + done], place, out, slice(None))
        else:
            rows = np.flatnonzero(lengths > done)
            kept = np.minimum(lengths[rows] - done, _WORD)
            words = words_at[starts[rows] + done] & _TAIL_MASKS[kept]
            _add_words(words, place, out, slice(None) if len(rows) == len(lengths) else rows)
    if longest > _HEAD_WORDS * _WORD:
        rows = np.flatnonzero(lengths > _HEAD_WORDS * _WORD)
        _add_rest(words_at, starts[rows], lengths[rows], rows, out)
    _finish(lengths, out)


def _add_words(words: Words, place: int, out: Words, rows: slice | NDArray[np.int64]) -> None:
    """Add to `out` what the word at `place` of each string in `rows` contributes."""
    mixed = words + ramp(place + 1, 1, KEYS["word"])
    mix(mixed)
    add_at(out, rows, mixed)


def _add_rest(
    words_at: Words, starts: Offsets, lengths: Offsets, rows: NDArray[np.int64], out: Words
) -> None:
    """Add to `out` what the words behind the head of long strings contribute, laid out one string
    after the other.
    """
    counts = -(-lengths // _WORD) - _HEAD_WORDS
    ends = np.cumsum(counts)
    firsts = ends - counts
    number = np.arange(int(ends[-1]))
    places = number - np.repeat(firsts, counts) + _HEAD_WORDS
    words = words_at[np.repeat(starts, counts) + places * _WORD]
    words[ends - 1] &= _TAIL_MASKS[(lengths - 1) % _WORD + 1]
    mixed = (places + 1).astype(np.uint64) * KEYS["word"]
    np.add(mixed, words, mixed)
    mix(mixed)
    add_at(out, rows, np.add.reduceat(mixed, firsts, axis=1))


def _one_long(data: NDArray[np.uint8], out: Words) -> None:
    """Hash one string that is longer than a slice, in pieces."""
    out.fill(0)
    for start in range(0, len(data), _SLICE_BYTES):
        piece = data[start : start + _SLICE_BYTES]
        padded = np.zeros(-(-len(piece) // _WORD) * _WORD, dtype=np.uint8)
        padded[: len(piece)] = piece
        words = padded.view("<u8")
        mixed = ramp(start // _WORD + 1, len(words), KEYS["word"])
        np.add(mixed, words, mixed)
        mix(mixed)
        out += np.add.reduce(mixed, axis=1, keepdims=True)
    _finish(np.array([len(data)]), out)


def _finish(lengths: NDArray[np.int64], out: Words) -> None:
    """Turn the sums over the words in `out` into the hashes of the strings."""
    out += lengths.astype(np.uint64) * KEYS["length"]
    out += KEYS["bytes"]
    mix(out)
