"""The order of rows: a stable sort by any sorting key, which is fast if the input is sorted runs.

The key columns are read as one stream of bits per row whose unsigned order is the key's order. The
rows are sorted by the first 64 bits; only rows that still tie are sorted by the next bits, and so
on. The values of each column are first reduced by their minimum, so that the keys of a window of
rows, which are near each other, often fit into one word. numpy's stable sort of words is a timsort,
which does little more than merge sorted runs.

The order is the original's: numbers by value, strings by bytes, false before true. Enum and UUID
columns must be given as `order_values` makes them. Inserts refuse NULL and NaN in a key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.protocol.errors import UserError

SortWords = npt.NDArray[np.uint64]
RowIndexes = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
WORD_BITS = 64
STRING_STEP_BYTES = 7  # of a string in one word; the eighth byte says how many of these exist


@dataclass(frozen=True, slots=True)
class RowOrder:
    """`rows[i]` is the input row at place i of the order; `rows` is None if the input is in order.

    `new_key[i]` says whether place i has another key than place i - 1 (true for place 0).
    """

    rows: RowIndexes | None
    new_key: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Word:
    """The next bits of some rows' keys, as values below 2 ** bits."""

    values: SortWords
    bits: int


WordReader = Callable[[RowIndexes | None], _Word | None]
"""A function that returns the next word of these rows (None: of all rows), or None at the end of
the column.
"""


def row_order(columns: Sequence[pa.Array]) -> RowOrder:
    """The stable order of rows by these key columns. Without columns the result is that for no
    rows.

    Raises UserError for a type that has no order, such as Map.
    """
    count = len(columns[0]) if columns else 0
    if count == 0:
        return RowOrder(None, np.zeros(0, dtype=np.bool_))
    if len(columns) == 1 and pa.types.is_integer(columns[0].type):
        numbers = integers(columns[0])
        if (numbers[1:] > numbers[:-1]).all():  # as the rows of most inserts come
            return RowOrder(None, np.ones(count, dtype=np.bool_))
    refinement = _Refinement(count)
    for column in columns:
        read = _reader(column)
        while refinement.open and (word := read(refinement.tied_rows())) is not None:
            refinement.add(word)
    refinement.flush()
    return refinement.result()


class _Refinement:
    """The rows in the order of all bits seen so far.

    `tied` are the places whose rows have a neighbour with equal bits; None means all places, in
    input order. Bits are collected in `_pending` until a word is full, so that there is one sort
    for 64 bits.
    """

    def __init__(self, count: int) -> None:
        self.tied: RowIndexes | None = None
        self._rows: RowIndexes | None = None
        self._new_key = np.zeros(count, dtype=np.bool_)
        self._new_key[0] = True
        self._pending: SortWords | None = None
        self._pending_bits = 0

    @property
    def open(self) -> bool:
        """Whether more bits could still change the order."""
        return self.tied is None or len(self.tied) > 0

    def tied_rows(self) -> RowIndexes | None:
        """The input rows at the tied places; None for all rows in input order."""
        if self.tied is None:
            return None
        return self.tied if self._rows is None else self._rows[self.tied]

    def add(self, word: _Word) -> None:
        """Take the next bits of the tied rows, and sort by the collected word if it is full."""
        if word.bits == 0:
            return
        if self._pending is None:
            self._pending, self._pending_bits = self._groups()
        room = WORD_BITS - self._pending_bits
        if word.bits <= room:
            self._pending = _append(self._pending, word.values, word.bits)
            self._pending_bits += word.bits
            return
        rest_bits = word.bits - room
        if room:
            high = word.values >> np.uint64(rest_bits)
            self._pending = _append(self._pending, high, room)
            self._pending_bits = WORD_BITS
        rest = word.values & np.uint64((1 << rest_bits) - 1)
        kept = self._sort_pending()
        if kept is not None:
            rest = rest[kept]
        if len(rest):
            self.add(_Word(rest, rest_bits))

    def flush(self) -> None:
        """Sort by the bits that are still waiting."""
        if self._pending is not None:
            self._sort_pending()

    def result(self) -> RowOrder:
        return RowOrder(self._rows, self._new_key)

    def _groups(self) -> tuple[SortWords, int]:
        """The first bits of the next word: the numbers of the groups of rows with equal bits, so
        that rows stay within their group.
        """
        if self.tied is None:
            return np.zeros(len(self._new_key), dtype=np.uint64), 0
        group = np.cumsum(self._new_key[self.tied], dtype=np.uint64)
        return group, int(group[-1]).bit_length()

    def _sort_pending(self) -> RowIndexes | None:
        """Sort the tied rows by the pending word. Returns which of them still tie, in their new
        order (as indices into the old sequence of tied rows); None if no row moved and all still
        tie.
        """
        assert self._pending is not None
        word, self._pending, self._pending_bits = self._pending, None, 0
        moved = bool((word[1:] < word[:-1]).any())
        place: RowIndexes | None = None
        if moved:
            place = np.argsort(word, kind="stable")
            word = word[place]
        differs = np.empty(len(word), dtype=np.bool_)
        differs[0] = True
        np.not_equal(word[1:], word[:-1], out=differs[1:])
        self._apply(place, differs)
        # A row ties if it equals the row before it or the row after it.
        ties = ~differs
        ties[:-1] |= ~differs[1:]
        kept = np.flatnonzero(ties)
        before = self.tied
        self.tied = kept if before is None else before[kept]
        if place is None and len(kept) == len(word):
            return None
        return kept if place is None else place[kept]

    def _apply(self, place: RowIndexes | None, differs: npt.NDArray[np.bool_]) -> None:
        if self.tied is None:
            self._rows = place
            self._new_key |= differs
            return
        self._new_key[self.tied] |= differs
        if place is not None:
            if self._rows is None:
                self._rows = np.arange(len(self._new_key), dtype=np.intp)
            self._rows[self.tied] = self._rows[self.tied][place]


def _append(word: SortWords, low: SortWords, bits: int) -> SortWords:
    if bits == WORD_BITS:
        return low
    return (word << np.uint64(bits)) | low


def _reader(column: pa.Array) -> WordReader:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _all_words([_dictionary_ranks(column)])
    if _has_offsets(kind):
        return _StringWords(column)
    if pa.types.is_struct(kind):
        fields = [column.field(at) for at in range(kind.num_fields)]
        if any(field.null_count for field in fields):
            return _all_words([nested_ranks(column)])
        return _Fields(fields)
    return _all_words(_words(column))


def _has_offsets(kind: pa.DataType) -> bool:
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _words(column: pa.Array) -> list[npt.NDArray[Any]]:
    """The words of a column whose values all have the same number of words."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return _decimal_words(column, kind.bit_width // 8)
    if pa.types.is_fixed_size_binary(kind):
        return _fixed_binary_words(column, kind.byte_width)
    if pa.types.is_floating(kind):
        return [_float_word(column)]
    if pa.types.is_boolean(kind):
        return [column.cast(pa.uint8()).to_numpy(zero_copy_only=False)]
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return [integers(column)]
    if pa.types.is_list(kind):
        return [nested_ranks(column)]
    raise UserError(
        f"a column of type {kind} cannot be part of a sorting key: its values have no order; "
        "name a number, string, date, UUID or IP column"
    )


def _all_words(words: Sequence[npt.NDArray[Any]]) -> WordReader:
    waiting = list(reversed(words))

    def read(rows: RowIndexes | None) -> _Word | None:
        if not waiting:
            return None
        word = waiting.pop()
        return _shifted(word if rows is None else word[rows])

    return read


def _shifted(values: npt.NDArray[Any]) -> _Word:
    """The integers as unsigned differences from their minimum."""
    low, high = int(values.min()), int(values.max())
    bits = (high - low).bit_length()
    wide = values.astype(np.uint64) if values.dtype != np.uint64 else values
    return _Word(wide - np.uint64(low & 0xFFFF_FFFF_FFFF_FFFF), bits)  # modulo 2**64


def integers(column: pa.Array) -> npt.NDArray[Any]:
    """An integer, date or time column as numpy integers."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers


def _float_word(column: pa.Array) -> npt.NDArray[Any]:
    """The bits of each number as a double, changed so that their unsigned order is the numbers'.
    All NaN, whatever their bits are, are one value, which is the greatest.
    """
    numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 equals 0.0
    bits = numbers.view(np.int64)
    flip = (bits >> np.int64(63)) | np.int64(-(2**63))
    words: SortWords = (bits ^ flip).view(np.uint64)
    words[np.isnan(numbers)] = np.iinfo(np.uint64).max
    return words


def _fixed_bytes(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    start = column.offset * width
    return data[start : start + len(column) * width].reshape(len(column), width)


def _fixed_binary_words(column: pa.Array, width: int) -> list[npt.NDArray[Any]]:
    words = -(-width // 8)
    padded = np.zeros((len(column), words * 8), dtype=np.uint8)
    padded[:, :width] = _fixed_bytes(column, width)
    return [padded[:, at : at + 8].copy().view(">u8")[:, 0].astype(np.uint64)
            for at in range(0, words * 8, 8)]  # fmt: skip


def ranks(column: pa.Array) -> npt.NDArray[Any]:
    """Integers with the order of the column's values, in which there is no NULL. NaN
    is greatest.
    """
    kind = column.type
    if pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and kind.bit_width <= 64):
        return integers(column)
    if pa.types.is_floating(kind):
        return _float_word(column)
    order = row_order([column])
    place = np.cumsum(order.new_key)
    if order.rows is None:
        return place
    found = np.empty_like(place)
    found[order.rows] = place
    return found


def _decimal_words(column: pa.Array, width: int) -> list[npt.NDArray[Any]]:
    """The words of decimals, most significant first; only that one has the sign."""
    words = _fixed_bytes(column, width).copy().view("<u8")
    top = width // 8 - 1
    return [words[:, top].view(np.int64), *(words[:, at] for at in range(top - 1, -1, -1))]


def _dictionary_ranks(column: pa.DictionaryArray) -> npt.NDArray[Any]:
    """The ranks of the values. Equal values have equal ranks, even if the dictionary
    repeats them.
    """
    ranks = pc.rank(column.dictionary, sort_keys="ascending", tiebreaker="dense")
    codes = column.indices.to_numpy(zero_copy_only=False)
    by_value = ranks.to_numpy(zero_copy_only=False)
    found: npt.NDArray[Any] = by_value[codes]
    return found


def nested_ranks(column: pa.Array, *, nothing_least: bool = False) -> npt.NDArray[Any]:
    """The ranks of lists, by their elements, and then the shorter list first, and of structs, by
    their fields. NULL and NaN in them are above all values, with `nothing_least` below them. Such
    keys are rare, so this may be slow.
    """
    keys = [nested_key(value, nothing_least=nothing_least) for value in column.to_pylist()]
    places = {key: place for place, key in enumerate(sorted(set(keys)))}
    return np.array([places[key] for key in keys], dtype=np.int64)


def nested_key(value: Any, *, nothing_least: bool = False) -> Any:
    """A nested value as tuples that can be compared. NULL comes last, NaN before it; with
    `nothing_least` NULL comes first, then NaN.
    """
    if isinstance(value, list):
        return (0, tuple(nested_key(item, nothing_least=nothing_least) for item in value))
    if isinstance(value, dict):
        return nested_key(list(value.values()), nothing_least=nothing_least)
    if value is None:
        return (-2 if nothing_least else 2,)
    is_nan = value != value  # noqa: PLR0124
    return (-1 if nothing_least else 1,) if is_nan else (0, value)


class _Fields:
    """Reads the words of the fields of a struct, one field after the other."""

    def __init__(self, fields: Sequence[pa.Array]) -> None:
        self._readers = [_reader(field) for field in reversed(fields)]

    def __call__(self, rows: RowIndexes | None) -> _Word | None:
        while self._readers:
            word = self._readers[-1](rows)
            if word is not None:
                return word
            self._readers.pop()
        return None


class _StringWords:
    r"""Reads the words of strings: seven bytes each, and in the last byte how many of these there
    are (8: more follow), so that "a" sorts before "a\0". Only tied rows are read further.
    """

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        places = np.frombuffer(offsets, dtype=np.int64 if wide else np.int32)
        places = places[column.offset : column.offset + len(column) + 1]
        self._starts = places[:-1].astype(np.int64)
        self._lengths = places[1:].astype(np.int64) - self._starts
        self._longest = int(self._lengths.max())
        size = int(places[-1])
        padded = np.zeros(size + 8, dtype=np.uint8)
        if size:
            padded[:size] = np.frombuffer(data, dtype=np.uint8, count=size)
        # A word at every byte of the data, unaligned and overlapping.
        self._words = np.ndarray((size + 1,), dtype=">u8", buffer=padded, strides=(1,))
        self._used = 0

    def __call__(self, rows: RowIndexes | None) -> _Word | None:
        if self._used and self._used > self._longest:
            return None
        starts = self._starts if rows is None else self._starts[rows]
        lengths = self._lengths if rows is None else self._lengths[rows]
        left = np.clip(lengths - self._used, 0, 8)
        at = np.minimum(starts + self._used, len(self._words) - 1)
        words = self._words[at].astype(np.uint64) & _STRING_MASKS[left]
        self._used += STRING_STEP_BYTES
        return _shifted(words | left.astype(np.uint64))


_STRING_MASKS = np.array(
    [((1 << 64) - (1 << (64 - 8 * min(left, STRING_STEP_BYTES)))) for left in range(9)],
    dtype=np.uint64,
)
