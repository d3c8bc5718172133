r"""The lexer: text to tokens (words, names, literals and marks), each with its place in the text.

We have our own and do not use sqlglot's (30.30), whose ClickHouse dialect reads `array(1, 2)[1]` as
`[1]` and `a.1.2` as `a.(1.2)`, and replaces names of functions by those of similar ones; an
expression that is read as another one would change rows. Statements are mixed with data that is not
SQL (the rows of INSERT … FORMAT), so a token is read only when it is asked for.
"""

import re
from typing import Literal, NamedTuple

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.types.escapes import unescape_literal

EXCERPT_MAX = 60

TokenKind = Literal["word", "name", "string", "number", "mark", "end"]


class Token(NamedTuple):
    """One token. `text` is as typed, quotes and escapes included; `start` and `end` are offsets.

    `upper` is a bare word in upper case, for comparison with keywords, and "" for other tokens.
    """

    kind: TokenKind
    text: str
    start: int
    end: int
    upper: str = ""

    @property
    def value(self) -> str:
        """The content of a string or quoted name; else `text` itself. Raises SyntaxProblem."""
        return token_value(self.text) if self.kind in ("string", "name") else self.text


# The quantifiers are possessive, so that a quote that is never closed is found in one pass: the
# match does not go back to try each doubled quote as the closing one.
QUOTED_STRING = r"'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'"
QUOTED_NAME = r"`[^`\\]*+(?:(?:\\.|``)[^`\\]*+)*+`" + r'|"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+"'
# `--` starts a comment anywhere, `#` only before a blank or `!`.
COMMENT = r"--[^\n]*|\#[ !][^\n]*|/\*.*?\*/"


_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_EXPONENT = rf"(?:[eE][+-]?{_DIGITS})?"
_SPACE = re.compile(rf"(?:\s+|{COMMENT})*+", re.DOTALL)
_TOKEN = re.compile(
    rf"""(?:\s+|{COMMENT})*+(?:
    (?P<word>(?![xXbB]')[A-Za-z_][A-Za-z0-9_$]*+)
  | (?P<mark>::|->|<=>|<=|>=|<>|!=|==|\|\||[-+*/%=<>()\[\]{{}},;:?@$|&^~!]|\.(?![0-9]))
  | (?P<number>(?>0[xX][0-9a-fA-F_]+|0[bB][01]+|{_DIGITS}(?:\.(?:{_DIGITS})?)?{_EXPONENT}
      |\.{_DIGITS}{_EXPONENT})(?![A-Za-z0-9_$]))
  | (?P<string>{QUOTED_STRING}|[xX]'[0-9a-fA-F]*'|[bB]'[01]*')
  | (?P<name>{QUOTED_NAME})
  | (?P<digits>[0-9][0-9_]*+(?=[A-Za-z$]|(?<=_))[A-Za-z0-9_$]*+)
  | (?P<end>\Z)
    )""",
    re.DOTALL | re.VERBOSE,
)
_PLACE = re.compile(r"[0-9]+", re.ASCII)
_DOUBLED = re.compile(r"(\\.)|(['`\"])\2", re.DOTALL)
_CUT_BYTE = re.compile(r"\\x(?![0-9a-fA-F]{2})|\\\\", re.DOTALL)


def token_after(source: str, at: int, stop: int, before: Token | None = None) -> Token:
    """Return the first token at or after `at`, of kind "end" if there is none before `stop`.

    `before` is the token before it, which tells the dots of a tuple's places from decimal points.

    Raises SyntaxProblem where no token can start.
    """
    match = _TOKEN.match(source, at, stop)
    if match is None:
        raise _unreadable(source, skip_space(source, at, stop))
    kind = match.lastgroup
    start, end = match.span(str(kind))
    text = match[str(kind)]
    match kind:
        case "word" | "digits":  # a name may begin with digits
            return Token("word", text, start, end, text.upper())
        case "number" if before is not None:
            return _number(source, Token("number", text, start, end), before)
        case "mark" | "number" | "string" | "name" | "end":
            return Token(kind, text, start, end)
        case _:
            raise AssertionError(f"no kind of token is called {kind}")


def _number(source: str, token: Token, before: Token) -> Token:
    """Return the token for a number, which after a dot may be a place in a tuple: `t.1.2` is read
    as dots and whole numbers, not as the numbers .1 or 1.2.
    """
    start = token.start
    if before.kind == "mark" and before.text == "." and before.end == start:
        place = _PLACE.match(source, start)
        return token if place is None else Token("number", place[0], start, place.end())
    ends_operand = before.kind not in ("mark", "string") or before.text in (")", "]")
    if token.text[0] == "." and ends_operand and before.end == start:
        return Token("mark", ".", start, start + 1)
    return token


def skip_space(source: str, at: int, stop: int) -> int:
    """Return the offset of the first character from `at` that is neither blank nor comment, at most
    `stop`.
    """
    match = _SPACE.match(source, at, stop)
    return match.end() if match else at


def token_value(text: str) -> str:
    r"""Return the content of a string or quoted name, given as typed with its quotes.

    A doubled quote is one quote; an unknown escape keeps its backslash: '\d' is two characters.
    x'4A' and b'01001010' are bytes. Bytes that are not UTF-8 become surrogates, so that the
    column's type can refuse them. Raises SyntaxProblem for `\x` without two digits.
    """
    quote = text[0]
    if quote in "xXbB":
        digits = text[2:-1]
        base, width = (16, 2) if quote in "xX" else (2, 8)
        count = -(-len(digits) // width)
        return (
            int(digits or "0", base).to_bytes(count, "big").decode("utf-8", "surrogateescape")
        )
    body = text[1:-1]
    if quote in body:
        body = _DOUBLED.sub(
            lambda found: found[1] or (f"\\{quote}" if found[2] == quote else found[0]), body
        )
    if "\\" not in body:
        return body
    if any(cut[0] == "\\x" for cut in _CUT_BYTE.finditer(body)):
        raise SyntaxProblem(rf"\x wants two hexadecimal digits: {excerpt(text)}")
    return unescape_literal(body)


def _unreadable(source: str, at: int) -> SyntaxProblem:
    character = source[at]
    if character in "'\"`":
        return problem(source, at, f"a quote {character} that is opened here and never closed")
    return problem(source, at, f"unexpected character {character!r}")


def place(source: str, at: int) -> str:
    """Return `line 3, column 7` for messages, both counted from 1."""
    line = source.count("\n", 0, at) + 1
    return f"line {line}, column {at - source.rfind(chr(10), 0, at)}"


def excerpt(text: str) -> str:
    """Return `text` on one line, cut to a length that suits a message."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT_MAX else line[: EXCERPT_MAX - 1] + "…"


def problem(source: str, at: int, what: str) -> SyntaxProblem:
    """Return the error to raise for `what` at offset `at`, with the place and the text
    from there.
    """
    near = excerpt(source[at : at + 4 * EXCERPT_MAX])
    where = place(source, at)
    return SyntaxProblem(
        f"Syntax error at {where}: {what}" + (f", near: {near}" if near else "")
    )
