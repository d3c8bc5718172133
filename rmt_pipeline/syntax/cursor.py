"""A place in the tokens of one text, and the small readers that all grammar stands on."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

from rmt_pipeline.protocol.errors import NotImplementedStatement, SyntaxProblem
from rmt_pipeline.syntax.lexer import Token, shown_place, tokenize
from rmt_pipeline.syntax.nodes import Query

T = TypeVar("T")

DEPTH_MAX = 60  # of brackets; each level costs some fifteen Python frames

# Words that end an expression, so that they are no alias unless AS or quotes say so.
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


class Cursor:
    """`place` stands before the next token. Readers leave it behind what they read.

    `read_query` reads a SELECT; without it subqueries are refused.
    """

    def __init__(
        self, text: str, read_query: "Callable[[Cursor], Query] | None" = None
    ) -> None:
        self.text = text
        self.tokens = tokenize(text)
        self.place = 0
        self.depth = 0
        self.read_query = read_query

    @property
    def current(self) -> Token:
        return self.tokens[self.place]

    def ahead(self, count: int = 1) -> Token:
        return self.tokens[min(self.place + count, len(self.tokens) - 1)]

    def advance(self) -> Token:
        token = self.current
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def at(self, *marks: str) -> bool:
        return self.current.kind == "mark" and self.current.text in marks

    def at_end(self) -> bool:
        return self.current.kind == "end"

    def at_word(self, *words: str) -> bool:
        return self.current.upper in words if self.current.kind == "word" else False

    def at_query(self, after: int = 0) -> bool:
        """Whether a SELECT comes, possibly within parentheses."""
        while self.ahead(after).kind == "mark" and self.ahead(after).text == "(":
            after += 1
        return self.ahead(after).upper in {"SELECT", "WITH"}

    def take(self, mark: str) -> bool:
        if self.at(mark):
            self.advance()
            return True
        return False

    def take_words(self, *words: str) -> bool:
        """Reads these words when all of them come next, in this order."""
        if all(self.ahead(count).upper == word for count, word in enumerate(words)):
            for _ in words:
                self.advance()
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            self.fail(f"expected {mark!r}")

    def expect_words(self, *words: str) -> None:
        if not self.take_words(*words):
            self.fail(f"expected {' '.join(words)}")

    def expect_end(self) -> None:
        self.take(";")
        if self.current.kind != "end":
            self.fail("expected the end")

    def query(self) -> Query:
        """A SELECT. Refused where only an expression may stand."""
        if self.read_query is None:
            self.not_supported("a subquery in an expression")
        self.deeper()
        found = self.read_query(self)
        self.depth -= 1
        return found

    def identifier(self) -> str:
        if (self.current.kind == "name" and self.current.text) or self.current.kind == "word":
            return self.advance().text
        raise self.problem("expected a name")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self.fail(f"the most levels of nesting are {DEPTH_MAX}; expected fewer")

    def is_alias(self) -> bool:
        """Whether the next token is an alias written without AS."""
        token = self.current
        return token.kind == "name" or (
            token.kind == "word" and token.upper not in CLAUSE_WORDS
        )

    def list_of(self, read: "Callable[[Cursor], T]", closing: str) -> tuple[T, ...]:
        """`read`, with commas between, up to `closing`. A comma at the end is allowed."""
        found: list[T] = []
        while not self.take(closing):
            if found:
                self.expect(",")
                if self.take(closing):
                    break
            found.append(read(self))
        return tuple(found)

    def several(self, read: "Callable[[Cursor], T]") -> tuple[T, ...]:
        """One or more, with commas between."""
        found = [read(self)]
        while self.take(","):
            found.append(read(self))
        return tuple(found)

    def problem(self, reason: str) -> SyntaxProblem:
        """The refusal of what comes next, `reason` being what was expected."""
        return SyntaxProblem(
            f"{reason} instead of {shown_place(self.text, self.current.start)}"
        )

    def fail(self, reason: str) -> NoReturn:
        raise self.problem(reason)

    def not_supported(self, what: str) -> NoReturn:
        place = shown_place(self.text, self.current.start)
        raise NotImplementedStatement(f"{what} is not supported, at {place}")
