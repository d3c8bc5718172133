"""Escapes and quotes in texts of the original and of DuckDB, and text as messages show it.

The characters that have an escape are in `protocol.text`, with the formats of ZooKeeper.
"""

import re
from collections.abc import Collection

from rmt_pipeline.protocol.text import ESCAPES, UNESCAPES, escape

_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)
_MEANINGS = {**UNESCAPES, "N": "", **{chr(code): chr(code) for code in range(32)}}
_IN_BACKTICKS = str.maketrans({**ESCAPES, "'": "'", "`": "\\`"})


def unescape_literal(text: str) -> str:
    r"""Return the text with the original's backslash escapes replaced, as in string literals and
    TSV.

    A backslash before a character that has no escape stays (`\%`). `\xNN` are bytes, which together
    must be UTF-8; others become surrogates, which only FixedString accepts.
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
    """Return a string literal that gives the same text when parsed, also if it has surrogates for
    bytes.
    """
    escaped = escape(text)
    if not escaped.isascii():
        escaped = "".join(
            f"\\x{ord(each) - 0xDC00:02X}" if 0xDC80 <= ord(each) <= 0xDCFF else each
            for each in escaped
        )
    return f"'{escaped}'"


def quote_name(name: str, reserved: Collection[str] = ()) -> str:
    """Return the name, in backticks if it could be taken for something else. The `reserved` words
    are in upper case.
    """
    if name.isascii() and name.isidentifier() and name.upper() not in reserved:
        return name
    return in_backticks(name)


def in_backticks(name: str) -> str:
    """Return the name in backticks, whatever characters it has."""
    return f"`{name.translate(_IN_BACKTICKS)}`"


def duckdb_name(name: str) -> str:
    """Return the name in double quotes for DuckDB, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def told_apart(name: str) -> str:
    """Return the name of a column in DuckDB. The original tells `a` from `A`, and DuckDB, which
    does not, would read the one for the other: a name with capital letters says at its end which
    of its letters these are.
    """
    capitals = sum(1 << at for at, each in enumerate(name) if "A" <= each <= "Z")
    return f"{name}{_MARK}{capitals:x}" if capitals or _MARK in name else name


_MARK = "\u00b7"


def duckdb_column(name: str) -> str:
    """Return the name of a column in DuckDB, in double quotes; see `told_apart`."""
    return duckdb_name(told_apart(name))


def duckdb_text(text: str) -> str:
    """Return a string literal of DuckDB, whose only escape is the doubled quote."""
    return "'" + text.replace("'", "''") + "'"


def shown_text(text: str) -> str:
    """Return a value's text for a message: its first 100 characters, in quotes."""
    return repr(text if len(text) <= 100 else f"{text[:100]}...")
