"""Walk the tokens of one statement: what every part of the parser is written with."""

from collections.abc import Callable

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.syntax.sql_tokens import Kind, Token, problem, token_at, unquote

_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())


class Cursor:
    """A place in a statement's tokens.

    Tokens are read when asked for, so text after the last one that was needed may be anything.
    """

    def __init__(self, source: str, start: int, stop: int) -> None:
        self.source = source
        self.stop = stop
        self.last_stop = start  # where the token before the next one ended
        self._ahead = [token_at(source, start, stop)]

    @property
    def token(self) -> Token:
        return self._ahead[0]

    def peek(self, distance: int) -> Token:
        while len(self._ahead) <= distance:
            last = self._ahead[-1]
            self._ahead.append(token_at(self.source, last.stop, self.stop))
        return self._ahead[distance]

    def advance(self) -> Token:
        token = self._ahead[0]
        self.peek(1)
        self.last_stop = token.stop
        return self._ahead.pop(0)

    @property
    def at_end(self) -> bool:
        return self.token.kind is Kind.END

    def at(self, *keywords: str) -> bool:
        """Whether the next words are these keywords, in this order."""
        return all(self.peek(i).upper == word for i, word in enumerate(keywords))

    def accept(self, *keywords: str) -> bool:
        """Step over these keywords if they are next."""
        if not self.at(*keywords):
            return False
        for _ in keywords:
            self.advance()
        return True

    def expect(self, *keywords: str) -> None:
        if not self.accept(*keywords):
            raise self.expected(" ".join(keywords))

    def at_mark(self, mark: str) -> bool:
        return self.token.kind is Kind.MARK and self.token.text == mark

    def accept_mark(self, mark: str) -> bool:
        if not self.at_mark(mark):
            return False
        self.advance()
        return True

    def expect_mark(self, mark: str) -> None:
        if not self.accept_mark(mark):
            raise self.expected(f"`{mark}`")

    def expect_end(self) -> None:
        if not self.at_end:
            raise self.expected("the end of the statement")

    def expected(self, what: str) -> SyntaxProblem:
        """To be raised: something else than `what` comes next."""
        found = self.token.text if not self.at_end else "the end of the statement"
        return problem(self.source, self.token.start, f"expected {what}, found {found}")

    def name(self, what: str = "a name") -> str:
        """A bare or quoted name."""
        if self.token.kind not in (Kind.WORD, Kind.QUOTED):
            raise self.expected(what)
        return unquote(self.advance())

    def string(self, what: str = "a string in single quotes") -> str:
        if self.token.kind is not Kind.STRING:
            raise self.expected(what)
        return unquote(self.advance())

    def qualified_name(self, what: str) -> tuple[str | None, str]:
        """`name` or `database.name`; the database is None when it was not given."""
        first = self.name(what)
        if not self.accept_mark("."):
            return None, first
        return first, self.name(what)

    def in_parentheses(self, read: Callable[[], None]) -> None:
        """`( item, item, … )`: calls `read` at every item. An empty list is fine."""
        self.expect_mark("(")
        while not self.at_mark(")"):
            read()
            if not self.at_mark(")"):
                self.expect_mark(",")
        self.advance()

    def group(self) -> str:
        """The text of the bracketed group that starts here, brackets included."""
        start = self.token.start
        if self.token.text not in _OPENING:
            raise self.expected("`(`")
        expected = []
        while True:
            token = self.advance()
            if token.kind is Kind.MARK and token.text in _OPENING:
                expected.append(_OPENING[token.text])
            elif token.kind is Kind.MARK and token.text in _CLOSING:
                if token.text != expected.pop():
                    raise problem(self.source, token.start, f"`{token.text}` closes nothing")
                if not expected:
                    return self.source[start : token.stop]
            elif token.kind is Kind.END:
                raise problem(self.source, start, f"`{self.source[start]}` is never closed")

    def expression(self, what: str, ends: frozenset[str] = frozenset()) -> str:
        """The text up to a comma, a closing bracket, a keyword of `ends`, or the end.

        What it means is for the expressions package; here only brackets are matched. The first
        word is always taken, so that a column may be named as a keyword.
        """
        start = stop = self.token.start
        while not self.at_end:
            token = self.token
            is_mark = token.kind is Kind.MARK
            if is_mark and (token.text in _CLOSING or token.text == ","):
                break
            if stop > start and token.upper in ends:
                break
            if is_mark and token.text in _OPENING:
                self.group()
            else:
                self.advance()
            stop = self.last_stop
        if stop == start:
            raise self.expected(what)
        return self.source[start:stop]
