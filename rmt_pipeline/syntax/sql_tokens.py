"""The words of a statement: names, literals and marks, with their places in the text.

A scanner of our own and not sqlglot's: statements are mixed with data that is not SQL (the rows
of INSERT … FORMAT), so tokens are taken one at a time and only as far as they are asked for; an
error can then point into the text as it was typed; and DDL and INSERT start without the half
second that sqlglot takes to load.
"""

import re
from dataclasses import dataclass
from enum import Enum

from rmt_pipeline.protocol.errors import SyntaxProblem

EXCERPT_MAX = 60


class Kind(Enum):
    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    MARK = "mark"
    END = "end of statement"


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is as typed, quotes and escapes included; `start` and `stop` are offsets."""

    kind: Kind
    text: str
    start: int
    stop: int

    @property
    def upper(self) -> str:
        """For comparison with keywords: upper case, and empty unless this is a bare word."""
        return self.text.upper() if self.kind is Kind.WORD else ""


# Possessive: a quote that is never closed is found out in one pass, and not by trying to end it
# at every doubled quote before.
QUOTED_STRING = r"'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+'"
QUOTED_NAMES = r"`[^`\\]*+(?:(?:\\.|``)[^`\\]*+)*+`" + r'|"[^"\\]*+(?:(?:\\.|"")[^"\\]*+)*+"'
# `--` starts a comment wherever it stands, `#` only before a blank or `!`, as in the original.
COMMENT = r"--[^\n]*|\#[ !][^\n]*|/\*.*?\*/"

_SPACE = re.compile(rf"(?:\s+|{COMMENT})*", re.DOTALL)
_TOKEN = re.compile(
    rf"""
    (?P<WORD>[A-Za-z_][A-Za-z0-9_$]*)
  | (?P<STRING>{QUOTED_STRING})
  | (?P<QUOTED>{QUOTED_NAMES})
  | (?P<NUMBER>0[xX][0-9a-fA-F]+ | 0[bB][01]+
      | (?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<MARK>::|->|<=>|<=|>=|!=|<>|==|\|\||[-+*/%=<>!,.;:?@()\[\]{{}}|&^~$])
    """,
    re.DOTALL | re.VERBOSE,
)
_KINDS = {kind.name: kind for kind in Kind}

_ESCAPE = {
    quote: re.compile(rf"((?:\\x[0-9a-fA-F]{{2}})+)|\\(.)|{quote}{quote}", re.DOTALL)
    for quote in "'\"`"
}
_ESCAPED = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "0": "\0",
    "a": "\a", "v": "\v", "e": "\x1b", "\\": "\\", "'": "'", '"': '"', "`": "`", "/": "/",
    "=": "=",
}  # fmt: skip


def skip_space(source: str, at: int, stop: int) -> int:
    """The offset of the next thing that is neither blank nor comment, at most `stop`."""
    match = _SPACE.match(source, at, stop)
    return match.end() if match else at


def token_at(source: str, at: int, stop: int) -> Token:
    """The token at or after `at`. Raises SyntaxProblem where no token can start."""
    at = skip_space(source, at, stop)
    if at >= stop:
        return Token(Kind.END, "", stop, stop)
    match = _TOKEN.match(source, at, stop)
    if match is not None:
        return Token(_KINDS[match.lastgroup or "MARK"], match.group(), at, match.end())
    character = source[at]
    if character in "'\"`":
        raise problem(source, at, f"a quote {character} that is opened here and never closed")
    raise problem(source, at, f"unexpected character {character!r}")


def unquote(token: Token) -> str:
    r"""What a quoted string or name means; a bare word means itself.

    An unknown escape keeps its backslash, as the original does: '\d' is two characters.
    """
    if token.kind not in (Kind.STRING, Kind.QUOTED):
        return token.text
    quote = token.text[0]
    body = token.text[1:-1]
    if "\\" not in body and quote not in body:
        return body
    return _ESCAPE[quote].sub(_unescape, body)


def _unescape(match: re.Match[str]) -> str:
    code_bytes, escaped = match.groups()
    if code_bytes is not None:
        # Bytes that are no UTF-8 stay recognisable, so that the column's type can refuse them.
        return bytes.fromhex(code_bytes.replace("\\x", "")).decode("utf-8", "surrogateescape")
    if escaped is not None:
        return _ESCAPED.get(escaped, "\\" + escaped)
    return match.group()[0]


def place(source: str, at: int) -> str:
    """For messages: `line 3, column 7`, both counted from 1."""
    line = source.count("\n", 0, at) + 1
    return f"line {line}, column {at - source.rfind(chr(10), 0, at)}"


def excerpt(text: str) -> str:
    """`text` on one line, cut to what a message can carry."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT_MAX else line[: EXCERPT_MAX - 1] + "…"


def problem(source: str, at: int, what: str) -> SyntaxProblem:
    """To be raised: what is wrong, where, and the text from there on."""
    near = excerpt(source[at : at + 4 * EXCERPT_MAX])
    where = place(source, at)
    raise SyntaxProblem(
        f"Syntax error at {where}: {what}" + (f", near: {near}" if near else "")
    )
