"""A reader for the line-based texts of znodes. Whatever the bytes are, it returns values or raises
Corruption.
"""

from collections.abc import Callable
from typing import TypeVar

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.text import parse_decimal

T = TypeVar("T")
COUNT_MAX = 2**31 - 1
"""The most items that a list in one node may have."""


class TextReader:
    """Reads the bytes of one node from front to back. `what` is the kind of node, for error
    messages.

    The methods that read move forward over what they return, and raise Corruption if the text is
    not as expected.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0
        self._line_start = 0  # where the line begins that was read last, which an error names

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def corruption(self, problem: str) -> Corruption:
        """The error for `problem`, with the kind of node, the line and the node's first bytes."""
        line = self._data.count(b"\n", 0, self._line_start) + 1
        return Corruption(
            f"{self._what}, line {line}: {problem}; the node was {self._data[:200]!r}"
        )

    def line(self) -> str:
        """The rest of the line, without its newline. Raises Corruption if no newline follows."""
        end = self._data.find(b"\n", self._position)
        self._line_start = self._position
        if end < 0:
            raise self.corruption("the text ends in the middle of a line")
        text = self._utf8(self._data[self._position : end])
        self._position = end + 1
        return text

    def rest(self) -> str:
        """The rest of the text."""
        text = self._utf8(self._data[self._position :])
        self._position = len(self._data)
        return text

    def field(self, keyword: str) -> str:
        """The rest of a line that must begin with `keyword`."""
        self.expect(keyword)
        return self.line()

    def skip(self, literal: str) -> bool:
        """Move over `literal` if it comes next; returns whether it did."""
        start = literal.encode()
        if not self._data.startswith(start, self._position):
            return False
        self._position += len(start)
        return True

    def expect(self, literal: str) -> None:
        """Move over `literal`, which must come next."""
        if not self.skip(literal):
            self._line_start = self._position
            raise self.corruption(f"expected {literal!r}")

    def optional_field(self, keyword: str) -> str | None:
        """The rest of the line after `keyword`, if that comes next. Else None, and the position
        stays.
        """
        return self.line() if self.skip(keyword) else None

    def parse(self, text: str, parse: Callable[[str], T]) -> T:
        """The value of `parse(text)` for a text that was just read. Adds the place to its
        Corruption.
        """
        try:
            return parse(text)
        except Corruption as error:
            raise self.corruption(str(error)) from None

    def field_as(self, keyword: str, parse: Callable[[str], T]) -> T:
        """The value of `parse` for the rest of a line that must begin with `keyword`."""
        return self.parse(self.field(keyword), parse)

    def number(self, keyword: str, *, low: int = 0, high: int = 2**63 - 1) -> int:
        """The number from `low` to `high` on a line that must begin with `keyword`."""
        return self.field_as(keyword, lambda text: parse_decimal(text, low=low, high=high))

    def version(self, keyword: str, known: int) -> int:
        """The format number of a kind of node that the original does not have, from 1
        to `known`.
        """
        found = self.number(keyword, low=1)
        if found > known:
            raise self.corruption(
                f"a newer version of rmt wrote this, in format {found}; this one reads up to "
                f"{known}: upgrade it on this server too"
            )
        return found

    def listed(self, keyword: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        """A list: a line with its length after `keyword`, then a line for `parse` for each item."""
        count = self.number(keyword, high=COUNT_MAX)
        return tuple(self.parse(self.line(), parse) for _ in range(count))

    def flag(self, keyword: str) -> bool:
        """Whether `1`, not `0`, follows on a line that must begin with `keyword`."""
        return self.number(keyword, high=1) == 1

    def refuse(self, defect: str | None) -> None:
        """Raise Corruption if `defect` is not None."""
        if defect is not None:
            raise self.corruption(defect)

    def take_text(self, length: int) -> str:
        """The text of the next `length` bytes, which may have newlines in it."""
        return self._utf8(self.take(length))

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        taken = self._data[self._position : self._position + length]
        if len(taken) < length:
            raise self.corruption(f"{length} bytes expected, {len(taken)} are left")
        self._position += length
        return taken

    def end(self) -> None:
        """Raise Corruption if something follows: then we did not understand the text."""
        if not self.at_end:
            self._line_start = self._position
            raise self.corruption(f"unexpected {self._data[self._position :][:100]!r}")

    def _utf8(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.corruption(f"not UTF-8: {error}") from None
