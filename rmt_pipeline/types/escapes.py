"""Backslash escapes, and text as it is shown in messages."""

import re

_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)", re.DOTALL)


_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
    "N": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "/": "/",
    "=": "=",
}


def unescape(text: str) -> str:
    r"""The original's backslash escapes, as in its string literals and TSV.

    A backslash before a character that has no such meaning stays (`\%`). `\xNN` are bytes:
    together they must give UTF-8, else they come out as surrogates, which only FixedString
    accepts.
    """
    if "\\" not in text:
        return text
    if "\\x" not in text:
        return _ESCAPE.sub(lambda found: _ESCAPES.get(found[2], found[0]), text)
    pieces = []
    end = 0
    for found in _ESCAPE.finditer(text):
        pieces.append(text[end : found.start()].encode("utf-8", "surrogateescape"))
        meant = _ESCAPES.get(found[2], found[0]).encode("utf-8", "surrogateescape")
        pieces.append(bytes([int(found[1], 16)]) if found[1] else meant)
        end = found.end()
    pieces.append(text[end:].encode("utf-8", "surrogateescape"))
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def shown_text(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")
