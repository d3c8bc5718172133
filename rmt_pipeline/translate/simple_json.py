"""Values of fields in JSON that is searched and not parsed: the original's simpleJSON… functions,
once named visitParam….

A field is where `"name":` stands first, without blanks, at whatever depth.
"""

import json
import re
from collections.abc import Callable

_NUMBER = re.compile(r'"?([+-]?[0-9]{1,20})(?![0-9])')
_FLOAT = re.compile(r'"?([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def has_field(text: str, name: str) -> int:
    """Whether the field is there."""
    return int(_found(text, name) is not None)


def unsigned(text: str, name: str) -> int:
    """The whole number at the start of the value; 0 without one that fits 64 bits."""
    return _number(text, name, range(1 << 64))


def signed(text: str, name: str) -> int:
    """The whole number at the start of the value; 0 without one that fits 64 bits."""
    return _number(text, name, range(-(1 << 63), 1 << 63))


def fractional(text: str, name: str) -> float:
    """The number at the start of the value; 0 without one."""
    found = _FLOAT.match(_found(text, name) or "")
    return float(found[1]) if found else 0.0


def boolean(text: str, name: str) -> int:
    """Whether the value is `true`."""
    return int((_found(text, name) or "").startswith("true"))


def string(text: str, name: str) -> str:
    """The value that is a string, without its escapes; else ""."""
    found = _STRING.match(_found(text, name) or "")
    if found is None:
        return ""
    try:
        value = json.loads(found[0], strict=False)
    except ValueError:
        return ""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def raw(text: str, name: str) -> str:
    """The value as it is written, up to the comma or bracket behind it."""
    rest = _found(text, name) or ""
    depth, place = 0, 0
    while place < len(rest):
        character = rest[place]
        if character == '"':
            quoted = _STRING.match(rest, place)
            if quoted is None:
                return ""
            place = quoted.end()
            continue
        if depth == 0 and character in ",]}":
            return rest[:place]
        depth += (character in "[{") - (character in "]}")
        place += 1
    return rest if depth == 0 else ""


def _found(text: str, name: str) -> str | None:
    """What stands behind the name of the field; None if it is not there."""
    _, name_found, rest = text.partition(f'"{name}":')
    return rest if name_found else None


def _number(text: str, name: str, allowed: range) -> int:
    found = _NUMBER.match(_found(text, name) or "")
    number = int(found[1]) if found else 0
    return number if number in allowed else 0


BY_NAME: dict[str, tuple[Callable[[str, str], object], str]] = {
    "Has": (has_field, "UInt8"),
    "ExtractUInt": (unsigned, "UInt64"),
    "ExtractInt": (signed, "Int64"),
    "ExtractFloat": (fractional, "Float64"),
    "ExtractBool": (boolean, "UInt8"),
    "ExtractString": (string, "String"),
    "ExtractRaw": (raw, "String"),
}
"""By the end of their names: what they compute, and the type of it."""
