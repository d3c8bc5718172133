"""Texts as the original writes them: TSV escaping, quoting, times (spec §0.4, "Conventions").

Times are UTC everywhere. The original writes its server's local time without the zone, so that
replicas in different zones disagree on `create_time`; ours cannot.
"""

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from rmt_pipeline.protocol.errors import Corruption, UserError

TIME_MAX = 2**32 - 1
"""The last time of the original's DateTime, unsigned 32-bit seconds: in the year 2106."""

SHOWN_CHARS_MAX = 10_000  # of a message

ESCAPES = {
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\0": "\\0",
    "\\": "\\\\",
    "'": "\\'",
}
_ESCAPE_TABLE = str.maketrans(ESCAPES)
UNESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "/": "/",
    "=": "=",
}
_ESCAPED = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.?))", re.DOTALL)
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_SECOND = timedelta(seconds=1)
_IN_NO_NODE = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_DECIMAL = re.compile(r"-?[0-9]{1,19}", re.ASCII)


def require_node(name: str, what: str) -> None:
    """Raises UserError if ZooKeeper can't have a node of this name. `what` says in the message what
    the name is of.
    """
    found = _IN_NO_NODE.search(name)
    if found is not None:
        raise UserError(
            f"{what} {name!r} has {found[0]!r} in it, which ZooKeeper does not take"
        )
    if name in ("", ".", ".."):
        raise UserError(f"{what} {name!r} is no name of a node in ZooKeeper")
    if "/" in name:
        raise UserError(f"{what} {name!r} has a slash in it")


def require_path(path: str, what: str) -> None:
    """Raises UserError if this can't be the absolute path of a node in ZooKeeper. `what` says in
    the message what the path is of.
    """
    if not path.startswith("/"):
        raise UserError(f"{what} {path!r} is not an absolute path")
    for name in path[1:].split("/"):
        try:
            require_node(name, "there")
        except UserError as error:
            raise UserError(f"{what} {path!r} is no path in ZooKeeper: {error}") from None


def escape(text: str) -> str:
    """TSV escaping: the result has no newline, tab, NUL, or bare quote or backslash."""
    return text.translate(_ESCAPE_TABLE)


def unescape(text: str) -> str:
    r"""The inverse of `escape`; also reads the other escapes that the original reads.

    An unknown escape stays as it is, as in the original (`\d` is a backslash and a d). Raises
    Corruption for a backslash at the end, and for `\xHH` that is not ASCII.
    """
    return _ESCAPED.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code, char = match.groups()
    if code is not None:
        if int(code, 16) >= 0x80:
            raise Corruption(f"the escape \\x{code} is not a character: write it as UTF-8")
        return chr(int(code, 16))
    if not char:
        raise Corruption(f"{match.string!r} ends in the middle of an escape")
    return UNESCAPES.get(char, "\\" + char)


def shortened(text: str) -> str:
    """The beginning of a text for people that goes into a node of ZooKeeper. An error may quote a
    value of megabytes, or a file's name that is no UTF-8: a node that can't be written would stop
    what it is about.
    """
    if len(text) > SHOWN_CHARS_MAX:
        begins = text[: SHOWN_CHARS_MAX - 100]
        text = f"{begins}… ({len(text) - len(begins)} characters more)"
    return text.encode(errors="backslashreplace").decode()


def listed(keyword: str, texts: Collection[object]) -> str:
    """A list as `TextReader.listed` reads it: a line with its length after `keyword`, then a line
    for each item.
    """
    return "".join((f"{keyword}{len(texts)}\n", *(f"{text}\n" for text in texts)))


def quote(text: str) -> str:
    """A string literal: single quotes, backslash escapes."""
    return f"'{escape(text)}'"


def unquote(text: str) -> str:
    """The inverse of `quote`. Raises Corruption."""
    if _QUOTED.fullmatch(text) is None:
        raise Corruption(f"{text!r} is not a string in single quotes")
    return unescape(text[1:-1])


def quote_all(texts: tuple[str, ...]) -> str:
    """String literals joined with commas: `'a','b'`; an array is this in brackets."""
    return ",".join(quote(text) for text in texts)


def unquote_all(text: str) -> tuple[str, ...]:
    """The inverse of `quote_all`. Raises Corruption if the text is not such a list."""
    texts: list[str] = []
    position = 0
    while position < len(text):
        match = _QUOTED.match(text, position)
        if match is None:
            raise Corruption(f"{text!r} is not a list of strings in single quotes")
        texts.append(unescape(match[1]))
        position = match.end()
        if position < len(text):
            if text[position] != "," or position + 1 == len(text):
                raise Corruption(f"{text!r} is not a list of strings joined with commas")
            position += 1
    return tuple(texts)


def format_time(unix_s: int) -> str:
    """The time as `YYYY-MM-DD hh:mm:ss`, UTC, from seconds since the epoch (0 to TIME_MAX)."""
    assert 0 <= unix_s <= TIME_MAX, f"{unix_s} is no time that the formats can hold"
    return f"{_EPOCH + timedelta(seconds=unix_s):%Y-%m-%d %H:%M:%S}"


def parse_time(text: str) -> int:
    """The seconds since the epoch. `0000-00-00 00:00:00` is 0, as old versions wrote it.

    Raises Corruption.
    """
    if text == "0000-00-00 00:00:00":
        return 0
    if _TIME.fullmatch(text) is None:
        raise Corruption(f"{text!r} is not a time (YYYY-MM-DD hh:mm:ss)")
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise Corruption(f"{text!r} is not a time: {error}") from None
    unix_s = (moment - _EPOCH) // _ONE_SECOND
    if not 0 <= unix_s <= TIME_MAX:
        raise Corruption(f"{text!r} is outside the times that the formats can hold")
    return unix_s


def parse_decimal(text: str, *, low: int = 0, high: int = 2**63 - 1) -> int:
    """The whole number, from `low` to `high`, that stands there in plain decimal. Raises
    Corruption.
    """
    if _DECIMAL.fullmatch(text) is None or not low <= int(text) <= high:
        raise Corruption(f"{text!r} is not a whole number from {low} to {high}")
    return int(text)
