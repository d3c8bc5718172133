"""Calls whose arguments are not a plain list: CAST(x AS T), EXTRACT(YEAR FROM t), INTERVAL 1 DAY.

Each reader starts after the `(`. If the call turns out to have a plain list of arguments, it
returns None and leaves the cursor where it was.
"""

import re
from collections.abc import Callable

from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.nodes import Call, Literal, Name, Node
from rmt_pipeline.syntax.types import parse_type, read_type
from rmt_pipeline.types.data_type import DataType

ReadExpression = Callable[[Cursor], Node]

UNITS = (
    *("Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour", "Day", "Week"),
    *("Month", "Quarter", "Year"),
)
UNIT_SPELLINGS = (
    {unit.upper(): unit for unit in UNITS}
    | {f"{unit.upper()}S": unit for unit in UNITS}
    | {"NS": "Nanosecond", "US": "Microsecond", "MS": "Millisecond", "SS": "Second"}
    | {"S": "Second", "MI": "Minute", "N": "Minute", "M": "Month", "HH": "Hour", "H": "Hour"}
    | {"DD": "Day", "D": "Day", "WW": "Week", "WK": "Week", "W": "Week", "MM": "Month"}
    | {"QQ": "Quarter", "Q": "Quarter", "YYYY": "Year", "YY": "Year", "Y": "Year"}
)
_EXTRACTS = {
    "Second": "toSecond",
    "Minute": "toMinute",
    "Hour": "toHour",
    "Day": "toDayOfMonth",
    "Month": "toMonth",
    "Quarter": "toQuarter",
    "Year": "toYear",
    "Week": "toWeek",
}
WHOLE_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)


def number(c: Cursor, *, negative: bool = False) -> Literal:
    """Read a number. Integers beyond 64 bits become Float64, as in the original."""
    text = c.advance().text.replace("_", "").lower()
    value: int | float
    if text.startswith(("0x", "0b")):
        value = int(text, 0) if len(text) < 100 else float("inf")
    elif text.isdigit():
        value = int(text) if len(text) < 100 else float(text)
    else:
        value = float(text)
    value = -value if negative else value
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        value = float(value)
    return Literal(value, f"-{text}" if negative else text)


def cast_node(node: Node, data_type: DataType, *, exact: bool = False) -> Call:
    """Return the call that casts `node`. With `exact`, as for `1.1::Decimal(9, 1)`, the type reads
    a number from its text, so that no digit is lost on the way through Float64.
    """
    if exact and isinstance(node, Literal) and type(node.value) in {int, float}:
        node = node if node.text[-3:] in {"inf", "nan"} else Literal(node.text)
    return Call("CAST", (node, Literal(data_type.text)))


def unit_name(c: Cursor) -> str:
    """Read an interval's unit: `DAY`, `days` and `'day'` are `Day`. Raises SyntaxProblem."""
    if c.current.kind in {"word", "string"}:
        unit = UNIT_SPELLINGS.get(c.current.value.upper())
        if unit is not None:
            c.advance()
            return unit
    raise c.expected("a unit of time (second, minute, hour, day, ..., year)")


def interval(c: Cursor, expression: ReadExpression) -> Node | None:
    """Read INTERVAL 1 DAY or INTERVAL '1 day'; None if `interval` is a name here."""
    start = c.place
    c.advance()
    if c.current.kind == "string" and c.ahead().upper not in UNIT_SPELLINGS:
        return _interval_in_quotes(c)
    if c.current.kind == "word" and c.current.upper in {"AND", "OR", "FROM", "AS", "IN", "IS"}:
        c.place = start
        return None
    amount = expression(c)
    return Call(f"toInterval{unit_name(c)}", (amount,))


def _interval_in_quotes(c: Cursor) -> Node:
    words = c.current.value.split()
    parts: list[Node] = []
    for amount, unit in zip(words[::2], words[1::2], strict=False):
        name = UNIT_SPELLINGS.get(unit.upper())
        if name is None or not WHOLE_NUMBER.fullmatch(amount) or len(amount) > 18:
            raise c.expected("an interval such as '1 day'")
        parts.append(Call(f"toInterval{name}", (Literal(int(amount), amount),)))
    if len(parts) != 1 or len(words) % 2:
        raise c.expected("one number and one unit, such as '1 day'")
    c.advance()
    return parts[0]


def _cast(c: Cursor, expression: ReadExpression) -> Node | None:
    node = expression(c)
    if c.take_words("AS"):
        made = cast_node(node, read_type(c))
    else:
        c.expect(",")
        if c.current.kind != "string":
            raise c.expected("the type in quotes")
        made = cast_node(node, parse_type(c.advance().value))
    c.expect(")")
    return made


def _extract(c: Cursor, expression: ReadExpression) -> Node | None:
    start = c.place
    if c.current.upper in UNIT_SPELLINGS and c.ahead().upper == "FROM":
        unit = unit_name(c)
        c.expect_words("FROM")
        if unit not in _EXTRACTS:
            c.place = start
            raise c.expected("a unit from second to year")
        node = expression(c)
        c.expect(")")
        return Call(_EXTRACTS[unit], (node,))
    return None


def _substring(c: Cursor, expression: ReadExpression) -> Node | None:
    start = c.place
    node = expression(c)
    if not c.take_words("FROM"):
        c.place = start
        return None
    arguments = [node, expression(c)]
    if c.take_words("FOR"):
        arguments.append(expression(c))
    c.expect(")")
    return Call("substring", tuple(arguments))


def _position(c: Cursor, expression: ReadExpression) -> Node | None:
    """Read `position(needle IN haystack)`, before IN is taken for an operator."""
    start = c.place
    if c.current.kind in {"string", "word", "name"} and c.ahead().upper == "IN":
        token = c.advance()
        c.advance()
        haystack = expression(c)
        c.expect(")")
        needle = Literal(token.value) if token.kind == "string" else Name((token.value,))
        return Call("position", (haystack, needle))
    c.place = start
    return None


def _trim(c: Cursor, expression: ReadExpression) -> Node | None:
    name = "trimBoth"
    if c.at_word("BOTH", "LEADING", "TRAILING"):
        word = c.advance().upper
        name = {"BOTH": "trimBoth", "LEADING": "trimLeft", "TRAILING": "trimRight"}[word]
        characters = expression(c)
        c.expect_words("FROM")
        node = expression(c)
        c.expect(")")
        return Call(name, (node, characters))
    return Call(name, c.list_of(expression, ")"))


def _date_shift(operation: str) -> Callable[[Cursor, ReadExpression], Node | None]:
    """Return the reader of dateAdd(DAY, 1, t), dateAdd('day', 1, t) and date_add(t, INTERVAL 1
    DAY).
    """

    def read(c: Cursor, expression: ReadExpression) -> Node | None:
        after = c.ahead()
        if c.current.value.upper() in UNIT_SPELLINGS and after.text == ",":
            unit = unit_name(c)
            c.expect(",")
            amount = expression(c)
            c.expect(",")
            node = expression(c)
            c.expect(")")
            return Call(operation, (node, Call(f"toInterval{unit}", (amount,))))
        node = expression(c)
        c.expect(",")
        amount = expression(c)
        c.expect(")")
        return Call(operation, (node, amount))

    return read


def _date_difference(c: Cursor, expression: ReadExpression) -> Node | None:
    if c.current.value.upper() in UNIT_SPELLINGS and c.ahead().text == ",":
        unit = unit_name(c)
        c.expect(",")
        rest = c.list_of(expression, ")")
        return Call("dateDiff", (Literal(unit.lower()), *rest))
    return None


SPECIAL_FORMS: dict[str, Callable[[Cursor, ReadExpression], Node | None]] = {
    "CAST": _cast,
    "EXTRACT": _extract,
    **dict.fromkeys(("SUBSTRING", "SUBSTR", "MID"), _substring),
    "POSITION": _position,
    "TRIM": _trim,
    **dict.fromkeys(
        ("DATEADD", "DATE_ADD", "TIMESTAMPADD", "TIMESTAMP_ADD"), _date_shift("plus")
    ),
    **dict.fromkeys(
        ("DATESUB", "DATE_SUB", "TIMESTAMPSUB", "TIMESTAMP_SUB"), _date_shift("minus")
    ),
    **dict.fromkeys(
        ("DATEDIFF", "DATE_DIFF", "TIMESTAMPDIFF", "TIMESTAMP_DIFF"), _date_difference
    ),
}
