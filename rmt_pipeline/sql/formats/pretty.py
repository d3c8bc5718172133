"""Answers as tables on a terminal, drawn as the original draws them.

Only the first `output_format_pretty_max_rows` rows are drawn, because the width of all of them must
be known before the first line is written.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rmt_pipeline.sql.formats.rows import ResultColumn, Rows, small_batches
from rmt_pipeline.types.to_text import Formatter, column_values, formatter

NULL_TEXT = "ᴺᵁᴸᴸ"
# A control character would break the table, so the terminal gets its escape.
_VISIBLE = {code: f"\\x{code:02X}" for code in (*range(32), 127)} | {
    ord(character): escape
    for character, escape in {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}.items()
}


@dataclass(frozen=True, slots=True)
class _Table:
    names: list[str]
    rows: list[tuple[str, ...]]
    right: list[bool]
    widths: list[int]
    more: bool


def pretty(rows: Rows) -> Iterator[str]:
    """Yield the pieces of Pretty: a heavy head, and a line between rows."""
    yield from _with_totals(_pretty, rows)


def pretty_compact(rows: Rows) -> Iterator[str]:
    """Yield the pieces of PrettyCompact: the names are in the upper border."""
    yield from _with_totals(_pretty_compact, rows)


def _with_totals(draw: Callable[[Rows], Iterator[str]], rows: Rows) -> Iterator[str]:
    yield from draw(rows)
    totals = rows.of_totals()
    if totals is not None:
        yield "\nTotals:\n"
        yield from draw(totals)


def _pretty(rows: Rows) -> Iterator[str]:
    table = _table(rows)
    if not table.rows:
        return
    margin, pad = _margin(table)
    yield pad + _line("┏┳┓", "━", table.widths) + "\n"
    yield pad + "┃ " + " ┃ ".join(_cells(table, table.names)) + " ┃\n"
    yield pad + _line("┡╇┩", "━", table.widths) + "\n"
    for number, row in enumerate(table.rows, 1):
        if number > 1:
            yield pad + _line("├┼┤", "─", table.widths) + "\n"
        yield _row(table, row, number, margin)
    yield pad + _line("└┴┘", "─", table.widths) + "\n" + _more(table)


def _pretty_compact(rows: Rows) -> Iterator[str]:
    table = _table(rows)
    if not table.rows:
        return
    margin, pad = _margin(table)
    names = (
        "─" * (width - display_width(name)) + name
        if right
        else name + "─" * (width - display_width(name))
        for name, width, right in zip(table.names, table.widths, table.right, strict=True)
    )
    yield pad + "┌─" + "─┬─".join(names) + "─┐\n"
    for number, row in enumerate(table.rows, 1):
        yield _row(table, row, number, margin)
    yield pad + _line("└┴┘", "─", table.widths) + "\n" + _more(table)


def vertical(rows: Rows) -> Iterator[str]:
    """Yield the pieces of Vertical: one line for each value, for rows that are wider
    than a screen.
    """
    names = [_visible(column.name) + ": " for column in rows.columns]
    width = max(map(display_width, names), default=0)
    labels = [name + " " * (width - display_width(name)) for name in names]
    for number, texts in enumerate(_texts(rows), 1):
        yield "\n" if number > 1 else ""
        yield _upright(f"Row {number}:", labels, texts)
    totals = rows.of_totals()
    if totals is not None:
        for texts in _texts(totals):
            yield "\n\n" + _upright("Totals:", labels, texts)


def _upright(head: str, labels: Sequence[str], texts: Sequence[str]) -> str:
    lines = (label + text for label, text in zip(labels, texts, strict=True))
    return "\n".join([head, "─" * len(head), *lines]) + "\n"


def _visible(text: str) -> str:
    return text.translate(_VISIBLE)


def display_width(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) == "Cf":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _formatter(column: ResultColumn) -> Formatter:
    text = formatter(column.type, "TSV")
    if column.type.plain.family in ("String", "Enum8", "Enum16"):
        return lambda value: NULL_TEXT if value is None else _visible(value)
    return lambda value: NULL_TEXT if value is None else text(value)


def _texts(rows: Rows) -> Iterator[tuple[str, ...]]:
    formatters = [_formatter(column) for column in rows.columns]
    for batch in small_batches(rows.batches):
        columns = [
            map(one, column_values(array))
            for one, array in zip(formatters, batch.columns, strict=True)
        ]
        yield from zip(*columns, strict=True)


def _table(rows: Rows) -> _Table:
    names = [_visible(column.name) for column in rows.columns]
    shown: list[tuple[str, ...]] = []
    more = False
    for texts in _texts(rows):
        if len(shown) == rows.options.pretty_rows_max:
            more = True
            break
        shown.append(texts)
    widths = [
        max(display_width(text) for text in (name, *(row[place] for row in shown)))
        for place, name in enumerate(names)
    ]
    right = [column.type.is_numeric or column.type.date_like for column in rows.columns]
    return _Table(names, shown, right, widths, more)


def _margin(table: _Table) -> tuple[int, str]:
    """Return the width of the row numbers, and the blanks that other lines have in their place."""
    margin = len(str(len(table.rows)))
    return margin, " " * (margin + 2)


def _line(joints: str, line: str, widths: list[int]) -> str:
    return joints[0] + joints[1].join(line * (width + 2) for width in widths) + joints[2]


def _cells(table: _Table, texts: list[str] | tuple[str, ...]) -> Iterator[str]:
    for text, width, right in zip(texts, table.widths, table.right, strict=True):
        blanks = " " * (width - display_width(text))
        yield blanks + text if right else text + blanks


def _row(table: _Table, row: tuple[str, ...], number: int, margin: int) -> str:
    return f"{number:>{margin}}. │ " + " │ ".join(_cells(table, row)) + " │\n"


def _more(table: _Table) -> str:
    return f"  Showed first {len(table.rows)}.\n" if table.more else ""
