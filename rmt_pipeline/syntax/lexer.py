r"""Text to tokens, by ClickHouse's rules: quoting, escapes, numbers, comments.

Why not sqlglot's: measured on its ClickHouse dialect (30.30), `array(1, 2)[1]` is read as `[1]`,
`a.1.2` as `a.(1.2)`, names of functions are replaced by relatives (`toStartOfMonth`, `any`), and
`LIMIT 1 BY a LIMIT 2` and `a MOD b` are refused. An expression that is read as another one
would change rows, so expressions are read by rules that are all in this package.
"""

import re
from dataclasses import dataclass
from typing import Literal

from rmt_pipeline.protocol.errors import SyntaxProblem
from rmt_pipeline.types.escapes import unescape

TEXT_CHARACTERS_MAX = 1024 * 1024
TOKENS_MAX = 100_000

TokenKind = Literal["word", "name", "number", "string", "mark", "end"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|\#(?=[ !\n])[^\n]*|/\*.*?\*/)
    |(?P<number>0[xX][0-9a-fA-F]+|0[bB][01]+
        |(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<hex>[xX]'[0-9a-fA-F]*')
    |(?P<word>[A-Za-z_][A-Za-z0-9_$]*)
    |(?P<string>'(?:[^'\\]|\\.|'')*')
    |(?P<name>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
    |(?P<mark>::|->|<=>|<=|>=|<>|!=|==|\|\||[-+*/%=<>()\[\]{},.;:?@$|&^~!])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is a word as written, a name or string without quotes, a number or a mark."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else ""


def tokenize(text: str) -> list[Token]:
    """All tokens and an "end". Raises SyntaxProblem with the place that cannot be read."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise SyntaxProblem(
            f"the text has {len(text)} characters; the most is {TEXT_CHARACTERS_MAX}"
        )
    tokens: list[Token] = []
    place = 0
    while place < len(text):
        match = _match(text, place, tokens)
        if match is None:
            raise SyntaxProblem(f"cannot read {shown_place(text, place)}")
        kind = match.lastgroup
        start, place = place, match.end()
        if kind == "space":
            continue
        if len(tokens) >= TOKENS_MAX:
            raise SyntaxProblem(f"the text has more than {TOKENS_MAX} words and signs")
        tokens.append(_token(str(kind), match[0], start, place))
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _match(text: str, place: int, tokens: list[Token]) -> re.Match[str] | None:
    touching = bool(tokens) and tokens[-1].end == place
    if (
        touching
        and tokens[-1].text == "."
        and tokens[-1].kind == "mark"
        and text[place].isdigit()
    ):
        return _PLACE.match(text, place)  # in `t.1.2` these are places, not the number 1.2
    if touching and text[place] == "." and tokens[-1].kind != "mark":
        return _DOT.match(text, place)
    if touching and text[place] == "." and tokens[-1].text in {")", "]"}:
        return _DOT.match(text, place)
    return _TOKEN.match(text, place)


_PLACE = re.compile(r"(?P<number>[0-9]+)", re.ASCII)
_DOT = re.compile(r"(?P<mark>\.)")
_DOUBLED = re.compile(r"(\\.)|(['`\"])\2", re.DOTALL)


def _unquote(text: str) -> str:
    """Without the quotes; a doubled quote is one, and escapes are what they mean."""
    quote = text[0]
    single = _DOUBLED.sub(
        lambda found: found[1] or (f"\\{quote}" if found[2] == quote else found[0]), text[1:-1]
    )
    return unescape(single)


def _token(kind: str, text: str, start: int, end: int) -> Token:
    match kind:
        case "string":
            return Token("string", _unquote(text), start, end)
        case "hex":
            digits = text[2:-1]
            if len(digits) % 2:
                raise SyntaxProblem(f"{text[:40]} has an odd number of hexadecimal digits")
            return Token(
                "string", bytes.fromhex(digits).decode("utf-8", "surrogateescape"), start, end
            )
        case "name":
            return Token("name", _unquote(text), start, end)
        case "number" | "word":
            return Token(kind, text, start, end)
        case _:
            return Token("mark", text, start, end)


def shown_place(text: str, place: int) -> str:
    """`'...' (line 1, column 7)`: where something is in the text, for messages."""
    line = text.count("\n", 0, place) + 1
    column = place - (text.rfind("\n", 0, place) + 1) + 1
    piece = text[place : place + 30]
    shown = repr(piece + ("..." if place + 30 < len(text) else "")) if piece else "the end"
    return f"{shown} (line {line}, column {column})"
