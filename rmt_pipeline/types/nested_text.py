"""Arrays, tuples and maps from their text."""

import itertools
from typing import TYPE_CHECKING

from rmt_pipeline.types.escapes import shown_text, unescape

if TYPE_CHECKING:
    from rmt_pipeline.types.data_type import DataType


def read_array(data_type: "DataType", text: str) -> object:
    (element,) = data_type.elements
    return [_element(element, piece) for piece in _pieces(text, "[]", data_type)]


def read_tuple(data_type: "DataType", text: str) -> object:
    pieces = _pieces(text, "()", data_type)
    if len(pieces) == len(data_type.elements) + 1 and pieces[-1] == "":
        pieces.pop()  # (1,)
    if len(pieces) != len(data_type.elements):
        raise ValueError(
            f"{shown_text(text)} has {len(pieces)} elements; {data_type.text} has "
            f"{len(data_type.elements)}"
        )
    fields = zip(data_type.element_names, data_type.elements, pieces, strict=True)
    return {name: _element(element, piece) for name, element, piece in fields}


def read_map(data_type: "DataType", text: str) -> object:
    key_type, value_type = data_type.elements
    pairs = []
    for piece in _pieces(text, "{}", data_type):
        place = _top_level(piece, ":")
        if len(place) != 1:
            raise ValueError(
                f"{shown_text(piece)} is not a pair `key:value` ({data_type.text})"
            )
        key, value = piece[: place[0]].strip(), piece[place[0] + 1 :].strip()
        pairs.append((_element(key_type, key), _element(value_type, value)))
    return pairs


def _element(data_type: "DataType", piece: str) -> object:
    if piece.upper() == "NULL":
        return data_type.parse_text(None)
    if piece.startswith("'"):
        if len(piece) < 2 or not piece.endswith("'"):
            raise ValueError(f"the quote of {shown_text(piece)} is not closed")
        return data_type.plain.parse_text(unescape(piece[1:-1]))
    plain = data_type.plain
    if plain.is_string or plain.is_enum or plain.family in {"UUID", "IPv4", "IPv6"}:
        raise ValueError(
            f"{shown_text(piece)} is not in single quotes ({data_type.text} in a list)"
        )
    return plain.parse_text(piece)


def _pieces(text: str, brackets: str, data_type: "DataType") -> list[str]:
    text = text.strip()
    if len(text) < 2 or text[0] != brackets[0] or text[-1] != brackets[1]:
        raise ValueError(
            f"{shown_text(text)} is not written as {brackets[0]}...{brackets[1]} ({data_type.text})"
        )
    inner = text[1:-1]
    if not inner.strip():
        return []
    cuts = [-1, *_top_level(inner, ","), len(inner)]
    return [inner[a + 1 : b].strip() for a, b in itertools.pairwise(cuts)]


_CLOSING = {"[": "]", "(": ")", "{": "}"}


def _top_level(text: str, mark: str) -> list[int]:
    """Where `mark` stands outside of quotes and brackets."""
    places = []
    open_brackets: list[str] = []
    place = 0
    while place < len(text):
        character = text[place]
        if character == "'":
            place = _end_of_quote(text, place)
        elif character in _CLOSING:
            open_brackets.append(_CLOSING[character])
        elif character in "])}":
            if not open_brackets or open_brackets.pop() != character:
                raise ValueError(f"the brackets of {shown_text(text)} do not match")
        elif character == mark and not open_brackets:
            places.append(place)
        place += 1
    if open_brackets:
        raise ValueError(f"the brackets of {shown_text(text)} do not match")
    return places


def _end_of_quote(text: str, start: int) -> int:
    place = start + 1
    while place < len(text):
        if text[place] == "\\":
            place += 1
        elif text[place] == "'":
            return place
        place += 1
    raise ValueError(f"the quote of {shown_text(text[start:])} is not closed")
