"""A cursor over the tokens of one text, with the small readers that all parsers are built from."""

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from rmt_pipeline.protocol.errors import NotImplementedStatement, SyntaxProblem
from rmt_pipeline.syntax.lexer import Token, place, problem, token_after

T = TypeVar("T")

TEXT_CHARACTERS_MAX = 1024 * 1024
TOKENS_MAX = 100_000
DEPTH_MAX = 60  # levels of brackets; each takes some fifteen Python frames

# Words that end an expression. They are an alias only after AS or in quotes.
CLAUSE_WORDS = frozenset(
    {
        *("SELECT", "FROM", "PREWHERE", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET"),
        *("WINDOW", "QUALIFY", "SETTINGS", "FORMAT", "UNION", "EXCEPT", "INTERSECT", "INTO"),
        *("AS", "ON", "USING", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "ANY", "ALL"),
        *("SEMI", "ANTI", "ASOF", "GLOBAL", "ARRAY", "FINAL", "SAMPLE", "WITH", "AND", "OR"),
        *("NOT", "IN", "IS", "LIKE", "ILIKE", "BETWEEN", "ASC", "DESC", "ASCENDING", "THEN"),
        *("DESCENDING", "NULLS", "COLLATE", "ELSE", "END", "WHEN", "DIV", "MOD", "REGEXP"),
        *("RLIKE", "BY", "TIES", "FETCH", "PASTE", "VALUES", "SET", "TTL", "DELETE", "UPDATE"),
        *("ESCAPE", "FOR", "OVER", "FILTER", "RESPECT", "IGNORE", "REPLACE", "APPLY", "FILL"),
        *("TOTALS", "ROWS", "RANGE", "GROUPS", "PARTITION"),
    }
)
# Words that cannot be the name of a column without quotes.
NEVER_NAMES = frozenset(
    {
        *("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "WHEN"),
        *("THEN", "ELSE", "AND", "OR", "NOT", "IN", "IS", "LIKE", "ILIKE", "BETWEEN", "AS"),
        *("JOIN", "ON", "USING", "SETTINGS", "CASE"),
    }
)


_BRACKETS = {"(": ")", "[": "]", "{": "}"}


class Cursor:
    """A position in the tokens of a text: `place` is the number of the next token.

    A method that reads something moves `place` behind it. The lexer reads a token only when it is
    asked for, so the text behind the last token asked for need not be SQL. `read_query` is the
    parser of a SELECT; without it subqueries are refused.
    """

    def __init__(
        self,
        source: str,
        start: int = 0,
        stop: int | None = None,
        read_query: "Callable[[Cursor], Any] | None" = None,
    ) -> None:
        self.source = source
        self.start = start
        self.stop = len(source) if stop is None else stop
        self.place = 0
        self.depth = 0
        self.read_query = read_query
        self.cluster = ""
        """The cluster of ON CLUSTER, "" without: it is in the middle of a statement and holds for
        all of it.
        """
        self._tokens: list[Token] = []

    # What comes next.

    @property
    def current(self) -> Token:
        tokens = self._tokens
        return tokens[self.place] if self.place < len(tokens) else self.ahead(0)

    def ahead(self, count: int = 1) -> Token:
        """Return the token `count` places after the current one; beyond the last token, "end"."""
        tokens = self._tokens
        while len(tokens) <= self.place + count:
            if tokens and tokens[-1].kind == "end":
                return tokens[-1]
            before = tokens[-1] if tokens else None
            start = self.start if before is None else before.end
            token = token_after(self.source, start, self.stop, before)
            if len(tokens) >= TOKENS_MAX:
                self._too_long(f"more than {TOKENS_MAX} words and signs")
            if token.end - self.start > TEXT_CHARACTERS_MAX:
                self._too_long(f"more than {TEXT_CHARACTERS_MAX} characters")
            tokens.append(token)
        return tokens[self.place + count]

    def _too_long(self, what: str) -> NoReturn:
        raise SyntaxProblem(f"the text has {what}, which is the most")

    @property
    def last_end(self) -> int:
        """The offset after the token that was read last."""
        return self._tokens[self.place - 1].end if self.place else self.start

    @property
    def at_end(self) -> bool:
        return self.current.kind == "end"

    def at(self, *marks: str) -> bool:
        token = self.current
        return token.kind == "mark" and token.text in marks

    def at_mark(self, count: int, *marks: str) -> bool:
        """Whether the token `count` places ahead is one of these marks."""
        token = self.ahead(count)
        return token.kind == "mark" and token.text in marks

    def at_word(self, *words: str) -> bool:
        """Whether the next token is one of these words."""
        return self.current.upper in words

    def at_words(self, first: str, *others: str) -> bool:
        """Whether the next tokens are all of these words, in this order."""
        return self.current.upper == first and all(
            self.ahead(count).upper == word for count, word in enumerate(others, 1)
        )

    def at_query(self, after: int = 0) -> bool:
        """Whether a SELECT begins `after` tokens ahead, possibly in parentheses."""
        while self.at_mark(after, "("):
            after += 1
        return self.ahead(after).upper in {"SELECT", "WITH"}

    def is_alias(self) -> bool:
        """Whether the next token is an alias written without AS."""
        token = self.current
        return token.kind == "name" or (
            token.kind == "word" and token.upper not in CLAUSE_WORDS
        )

    # Reading.

    def advance(self) -> Token:
        token = self.current
        if token.kind != "end":
            self.place += 1
        return token

    def take(self, mark: str) -> bool:
        if self.at(mark):
            self.place += 1
            return True
        return False

    def take_words(self, *words: str) -> bool:
        """Read these words if all of them come next, in this order, and return whether they did."""
        if self.at_words(*words):
            self.place += len(words)
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            raise self.expected(f"`{mark}`")

    def expect_words(self, *words: str) -> None:
        if not self.take_words(*words):
            raise self.expected(" ".join(words))

    def expect_end(self) -> None:
        self.take(";")
        if not self.at_end:
            raise self.expected("the end")

    def query(self) -> Any:
        """Read a SELECT. Raises NotImplementedStatement where only an expression is allowed."""
        if self.read_query is None:
            self.not_supported("a subquery in an expression")
        self.deeper()
        found = self.read_query(self)
        self.depth -= 1
        return found

    def identifier(self, what: str = "a name") -> str:
        """Read a name, bare or quoted. Raises SyntaxProblem, which calls it `what`."""
        token = self.current
        if token.kind == "word" or (token.kind == "name" and len(token.text) > 2):
            self.place += 1
            return token.value
        raise self.expected(what)

    def string(self, what: str = "a string in single quotes") -> str:
        if self.current.kind != "string":
            raise self.expected(what)
        return self.advance().value

    def group(self) -> str:
        """Read the bracketed group that starts here and return its text, brackets included."""
        opening = self.current
        if not self.at(*_BRACKETS):
            raise self.expected("`(`")
        open_brackets: list[str] = []
        while True:
            token = self.advance()
            if token.kind == "end":
                what = f"`{opening.text}` is never closed"
                raise problem(self.source, opening.start, what)
            if token.kind != "mark":
                continue
            if token.text in _BRACKETS:
                open_brackets.append(_BRACKETS[token.text])
            elif token.text in _BRACKETS.values():
                if token.text != open_brackets.pop():
                    raise problem(self.source, token.start, f"`{token.text}` closes nothing")
                if not open_brackets:
                    return self.source[opening.start : token.end]

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.expected(f"at most {DEPTH_MAX} levels of nesting")

    def list_of(self, read: "Callable[[Cursor], T]", closing: str) -> tuple[T, ...]:
        """Read elements with `read`, separated by commas, up to `closing`. A last
        comma is allowed.
        """
        found: list[T] = []
        while not self.take(closing):
            if found:
                if not self.take(","):
                    raise self.expected(f"`,` or `{closing}`")
                if self.take(closing):
                    break
            found.append(read(self))
        return tuple(found)

    def several(self, read: "Callable[[Cursor], T]") -> tuple[T, ...]:
        """Read one or more elements with `read`, separated by commas."""
        found = [read(self)]
        while self.take(","):
            found.append(read(self))
        return tuple(found)

    # Refusing.

    def expected(self, what: str) -> SyntaxProblem:
        """Return the error to raise when `what` was expected and something else comes next."""
        token = self.current
        found = "the end" if self.at_end else token.text
        return problem(self.source, token.start, f"expected {what}, found {found}")

    def not_supported(self, what: str) -> NoReturn:
        where = place(self.source, self.current.start)
        raise NotImplementedStatement(f"{what} is not supported, at {where}")
