"""Escapes and quotes: of the original's texts, of DuckDB's, and text as it is shown in messages.

The characters that have an escape are in `protocol.text`, which has the formats of ZooKeeper.
"""

import re
from collections.abc import Collection

from rmt_pipeline.protocol.text import ESCAPES, UNESCAPES, escape

_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)
_MEANINGS = {**UNESCAPES, "N": "", **{chr(code): chr(code) for code in range(32)}}
_IN_BACKTICKS = str.maketrans({**ESCAPES, "'": "'", "`": "\\`"})


def unescape_literal(text: str) -> str:
    r"""The original's backslash escapes, as in its string literals and TSV.

    A backslash before a character that has no such meaning stays (`\%`). `\xNN` are bytes:
    together they must give UTF-8, else they come out as surrogates, which only FixedString
    accepts.
    """
    if "\\" not in text:
        return text
    if "\\x" not in text:
        return _ESCAPE.sub(lambda found: _MEANINGS.get(found[2], found[0]), text)
    pieces = []
    end = 0
    for found in _ESCAPE.finditer(text):
        pieces.append(text[end : found.start()].encode("utf-8", "surrogateescape"))
        meaning = _MEANINGS.get(found[2], found[0]).encode("utf-8", "surrogateescape")
        pieces.append(bytes([int(found[1], 16)]) if found[1] else meaning)
        end = found.end()
    pieces.append(text[end:].encode("utf-8", "surrogateescape"))
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def quote_text(text: str) -> str:
    """A string literal that reads back as the same text, also with surrogates for bytes."""
    escaped = escape(text)
    if not escaped.isascii():
        escaped = "".join(
            f"\\x{ord(each) - 0xDC00:02X}" if 0xDC80 <= ord(each) <= 0xDCFF else each
            for each in escaped
        )
    return f"'{escaped}'"


def quote_name(name: str, reserved: Collection[str] = ()) -> str:
    """A name, in backticks when it could be read as something else; `reserved` words are upper
    case.
    """
    if name.isascii() and name.isidentifier() and name.upper() not in reserved:
        return name
    return in_backticks(name)


def in_backticks(name: str) -> str:
    """A name in backticks, whatever is in it."""
    return f"`{name.translate(_IN_BACKTICKS)}`"


def duckdb_name(name: str) -> str:
    """A name in double quotes, as DuckDB reads it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_text(text: str) -> str:
    """A string of DuckDB, which knows no escapes but the doubled quote."""
    return "'" + text.replace("'", "''") + "'"


def shown_text(text: str) -> str:
    """A value's text for a message: in quotes, its first 100 characters."""
    return repr(text if len(text) <= 100 else f"{text[:100]}...")
