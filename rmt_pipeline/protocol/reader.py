"""Reads the line-based texts of znodes. Whatever the bytes are, it gives values or
Corruption.
"""

from collections.abc import Callable
from typing import TypeVar

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.text import parse_decimal

T = TypeVar("T")
COUNT_MAX = 2**31 - 1
"""Of things in one node."""


class TextReader:
    """A position in the bytes of one node; `what` names the kind of node in error messages."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._position = 0
        self._line_start = 0  # of the line read last: what an error is about

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def corruption(self, problem: str) -> Corruption:
        line = self._data.count(b"\n", 0, self._line_start) + 1
        return Corruption(
            f"{self._what}, line {line}: {problem}; the node was {self._data[:200]!r}"
        )

    def line(self) -> str:
        """The rest of the line; its newline is consumed. Raises Corruption at the end."""
        end = self._data.find(b"\n", self._position)
        self._line_start = self._position
        if end < 0:
            raise self.corruption("the text ends in the middle of a line")
        text = self._utf8(self._data[self._position : end])
        self._position = end + 1
        return text

    def rest(self) -> str:
        """Everything that is left."""
        text = self._utf8(self._data[self._position :])
        self._position = len(self._data)
        return text

    def field(self, keyword: str) -> str:
        """The rest of a line that must begin with `keyword`."""
        self.expect(keyword)
        return self.line()

    def skip(self, literal: str) -> bool:
        """Consume `literal` if it comes next."""
        start = literal.encode()
        if not self._data.startswith(start, self._position):
            return False
        self._position += len(start)
        return True

    def expect(self, literal: str) -> None:
        """Consume `literal`, which must come next."""
        if not self.skip(literal):
            self._line_start = self._position
            raise self.corruption(f"expected {literal!r}")

    def optional_field(self, keyword: str) -> str | None:
        """The rest of the line if it begins with `keyword`; else None, and nothing is
        consumed.
        """
        return self.line() if self.skip(keyword) else None

    def parse(self, text: str, parse: Callable[[str], T]) -> T:
        """What `parse` makes of a text that was just read; its Corruption, with the place."""
        try:
            return parse(text)
        except Corruption as error:
            raise self.corruption(str(error)) from None

    def field_as(self, keyword: str, parse: Callable[[str], T]) -> T:
        return self.parse(self.field(keyword), parse)

    def number(self, keyword: str, *, low: int = 0, high: int = 2**63 - 1) -> int:
        """The number after `keyword`, which must be there."""
        return self.field_as(keyword, lambda text: parse_decimal(text, low=low, high=high))

    def version(self, keyword: str, known: int) -> int:
        """The number of the format of a node that is ours, from 1 to what is `known` here."""
        found = self.number(keyword, low=1)
        if found > known:
            raise self.corruption(
                f"a newer version of rmt wrote this, in format {found}; this one reads up to "
                f"{known}: upgrade it on this server too"
            )
        return found

    def listed(self, keyword: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        """What `parse` makes of as many lines as the number after `keyword` says."""
        count = self.number(keyword, high=COUNT_MAX)
        return tuple(self.parse(self.line(), parse) for _ in range(count))

    def flag(self, keyword: str) -> bool:
        """`0` or `1` after `keyword`."""
        return self.number(keyword, high=1) == 1

    def refuse(self, defect: str | None) -> None:
        """Raise Corruption when there is a defect."""
        if defect is not None:
            raise self.corruption(defect)

    def take_text(self, length: int) -> str:
        """Exactly `length` bytes, which may have newlines in them."""
        return self._utf8(self.take(length))

    def take(self, length: int) -> bytes:
        taken = self._data[self._position : self._position + length]
        if len(taken) < length:
            raise self.corruption(f"{length} bytes expected, {len(taken)} are left")
        self._position += length
        return taken

    def end(self) -> None:
        """Nothing may follow: trailing garbage means that we did not understand the text."""
        if not self.at_end:
            self._line_start = self._position
            raise self.corruption(f"unexpected {self._data[self._position :][:100]!r}")

    def _utf8(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.corruption(f"not UTF-8: {error}") from None
