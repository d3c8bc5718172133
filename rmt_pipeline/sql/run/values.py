"""INSERT … VALUES: reads rows that are SQL tuples into Arrow batches.

Plain literals are read by one regular expression and the column's own reader of text, so that
thousands of rows are quick. Anything else in the place of a value is an expression. Each different
expression is evaluated once, at the end of the batch (so `now()` is the same in all of its rows).

Where the original changes a value quietly, it is refused here: 300 for a UInt8, 1.5 for an integer.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn

import pyarrow as pa

from rmt_pipeline.protocol.errors import BadValue, UserError
from rmt_pipeline.sql.define.constants import constant_value, number_text
from rmt_pipeline.sql.formats.rows import ResultColumn, record_batch
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import expression, parse_expression
from rmt_pipeline.syntax.lexer import (
    QUOTED_STRING,
    excerpt,
    place,
    problem,
    skip_space,
    token_value,
)
from rmt_pipeline.syntax.nodes import Call, Literal, Node
from rmt_pipeline.syntax.statements.nodes import ValuesText
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.from_text import parse_value

BATCH_ROWS = 65_536
EXPRESSIONS_PER_QUERY_MAX = 500

Evaluate = Callable[[Sequence[Node], DataType], Sequence[object]]
"""Constant expressions → their values, each fit for `pa.array([...], type.arrow)`.

Raises UserError when one of them cannot be evaluated.
"""

_PLAIN = re.compile(
    rf"""\s*(?:
        ({QUOTED_STRING})
      | ([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | ([+-]?[A-Za-z]+)
    )\s*([,)])""",
    re.DOTALL | re.VERBOSE,
)
_NUMBER_WORDS = frozenset(("NAN", "INF", "INFINITY"))
_IN_GROUP = re.compile(rf"[^'()\[\]{{}}]++|{QUOTED_STRING}|([()\[\]{{}}])", re.DOTALL)
_BRACKETS = {"Array": "[", "Tuple": "(", "Map": "{"}


class _Word(Enum):
    """Stands in the place of a value that is computed elsewhere."""

    DEFAULT = "DEFAULT"


@dataclass(frozen=True, slots=True)
class _Expression:
    """To be evaluated at the end of the batch; `text` is how it was written.

    `refusal` says why it could not be read as a plain literal.
    """

    node: Node
    text: str = field(compare=False)
    refusal: str = field(default="", compare=False)


@dataclass(slots=True)
class _Batch:
    """The rows read so far, column by column."""

    first_row: int
    values: list[list[object]]
    rows: int = 0
    expressions: list[dict[int, _Expression]] = field(default_factory=list)
    defaults: set[int] = field(default_factory=set)

    @classmethod
    def starting_at(cls, row: int, width: int) -> "_Batch":
        return cls(row, [[] for _ in range(width)], expressions=[{} for _ in range(width)])


@dataclass(frozen=True, slots=True)
class ValuesBatch:
    """Rows of VALUES. Where a row says DEFAULT, `batch` has the type's default.

    `defaults` has these places: for each column, the numbers of the rows in the batch, from 0.
    """

    batch: pa.RecordBatch
    defaults: dict[str, list[int]]


def read_values(
    values: ValuesText, columns: Sequence[ResultColumn], evaluate: Evaluate
) -> Iterator[ValuesBatch]:
    """The rows, in batches of at most BATCH_ROWS.

    Raises BadValue that names row, column and value, or SyntaxProblem with the position. Rows count
    from 1. Batches that were returned before the error are good, but the caller must not keep any
    of them.
    """
    source, at, stop = values.source, values.start, values.stop
    reader = _RowReader(source, stop, columns)
    batch = _Batch.starting_at(1, len(columns))
    row = 0
    while True:
        at = _next_row(source, at, stop, row)
        if at == stop:
            break
        row += 1
        at = reader.read(at, row, batch)
        if batch.rows == BATCH_ROWS:
            yield _finish(batch, columns, evaluate)
            batch = _Batch.starting_at(row + 1, len(columns))
    if row == 0:
        raise problem(source, values.start, "INSERT … VALUES has no rows")
    if batch.rows:
        yield _finish(batch, columns, evaluate)


def _next_row(source: str, at: int, stop: int, rows: int) -> int:
    """The offset of the next `(`, or `stop`. There may be a comma between rows."""
    at = skip_space(source, at, stop)
    if rows and at < stop and source[at] == ",":
        at = skip_space(source, at + 1, stop)
    if at < stop and source[at] != "(":
        words = f"expected `(` of row {rows + 1} of VALUES"
        if source[at : at + 8].upper() == "SETTINGS":
            words += "; SETTINGS stand before VALUES"
        raise problem(source, at, words)
    return at


class _RowReader:
    def __init__(self, source: str, stop: int, columns: Sequence[ResultColumn]) -> None:
        self._source = source
        self._stop = stop
        self._columns = columns
        self._row = 0

    def read(self, at: int, row: int, batch: _Batch) -> int:
        """Read the row whose `(` is at `at`. Returns the offset after its `)`."""
        source, stop, columns = self._source, self._stop, self._columns
        start, at = at, at + 1
        self._row = row
        last = len(columns) - 1
        for index, column in enumerate(columns):
            match = _PLAIN.match(source, at, stop)
            if match is not None:
                value = self._plain(match, column, row)
                at, mark = match.end(), match[4]
            else:
                value, at, mark = self._expression(at, column)
            if mark != ("," if index < last else ")"):
                raise self._wrong_width(start, row)
            if isinstance(value, _Expression):
                batch.expressions[index][batch.rows] = value
                value = None
            elif value is _Word.DEFAULT:
                batch.defaults.add(index)
            batch.values[index].append(value)
        batch.rows += 1
        return at

    def _plain(self, match: re.Match[str], column: ResultColumn, row: int) -> object:
        string, number, word, _ = match.groups()
        try:
            if string is not None:
                return _of_string(string, column.type)
            if number is not None:
                return _of_number(number, column.type)
            return _of_word(word, column.type)
        except ValueError as error:
            _refuse(match[1] or number or word, column, row, str(error))

    def _expression(self, at: int, column: ResultColumn) -> tuple[object, int, str]:
        """Read what is not a plain literal: its value or expression, the offset after it, and the
        mark before that.
        """
        source, stop, refusal = self._source, self._stop, ""
        at = skip_space(source, at, stop)
        plain = column.type.plain
        value: object
        if source[at : at + 1] == _BRACKETS.get(plain.family):
            end, mark = _after_group(source, at, stop)
            if mark:
                try:
                    value = parse_value(plain, source[at : end - 1].rstrip())
                except ValueError as error:
                    refusal = str(error)
                    if plain.family == "Map":  # no expression is in braces
                        _refuse(source[at : end - 1], column, self._row, refusal)
                else:
                    return value, end, mark
        cursor = Cursor(source, at, stop)
        try:
            node = expression(cursor)
            hash(node)  # values of expressions are found by it
        except RecursionError:
            raise problem(source, at, "a value that is nested too deeply") from None
        text = source[at : cursor.last_end]
        if cursor.at_end:
            raise problem(source, at, "the row of VALUES that this is in has no `)`")
        if not cursor.at(",", ")"):
            raise cursor.expected("`,` or `)`")
        value = _Expression(node, text, refusal)
        if refusal and _has_only_literals(node):
            value = self._of_literals(value, column)
        return value, cursor.current.end, cursor.current.text

    def _of_literals(self, found: _Expression, column: ResultColumn) -> object:
        try:
            return _of_literals(found.node, column.type)
        except (UserError, ValueError):
            _refuse(found.text, column, self._row, found.refusal)

    def _wrong_width(self, at: int, row: int) -> UserError:
        cursor = Cursor(self._source, at, self._stop)
        cursor.expect("(")
        found = len(cursor.list_of(expression, ")"))
        names = ", ".join(column.name for column in self._columns)
        return BadValue(
            f"row {row} of VALUES has {found} values, and there are {len(self._columns)}"
            f" columns: {excerpt(names)} (at {place(self._source, at)})"
        )


def _of_string(text: str, data_type: DataType) -> object:
    body = text[1:-1]
    if "\\" in body or "'" in body:
        body = token_value(text)
    return parse_value(data_type.plain, body)  # in quotes, \N is text and not NULL


def _of_number(text: str, data_type: DataType) -> object:
    plain = data_type.plain
    if plain.is_date:  # days since the epoch
        return _Expression(parse_expression(text), text)
    return parse_value(plain, number_text(text, plain))


def _of_word(word: str, data_type: DataType) -> object:
    upper = word.upper()
    if upper == "NULL":
        return parse_value(data_type, None)
    if upper == "DEFAULT":
        return _Word.DEFAULT
    if upper in ("TRUE", "FALSE"):
        plain = data_type.plain
        return parse_value(
            plain, str(int(upper == "TRUE")) if plain.is_numeric else word.lower()
        )
    if upper.lstrip("+-") in _NUMBER_WORDS and data_type.is_float:
        return float(word)
    return _Expression(parse_expression(word), word)


def _has_only_literals(node: Node) -> bool:
    if isinstance(node, Call) and node.name in {"array", "tuple"}:
        return all(map(_has_only_literals, node.arguments))
    return isinstance(node, Literal)


def _of_literals(node: Node, data_type: DataType) -> object:
    """Return the value of an array or tuple of literals. A cast would change numbers that do not
    fit. Raises UserError, or ValueError.
    """
    if not isinstance(node, Call):
        return constant_value(node, data_type)
    plain, arguments = data_type.plain, node.arguments
    if plain.family == "Array" and node.name == "array":
        return [_of_literals(each, plain.elements[0]) for each in arguments]
    if plain.family == "Tuple" and len(arguments) == len(plain.elements):
        values = map(_of_literals, arguments, plain.elements)
        return dict(zip(plain.element_names, values, strict=True))
    raise ValueError(f"{node.name} of {len(arguments)} elements does not fit {plain.text}")


def _finish(batch: _Batch, columns: Sequence[ResultColumn], evaluate: Evaluate) -> ValuesBatch:
    for column, values, expressions in zip(
        columns, batch.values, batch.expressions, strict=True
    ):
        known = _evaluated(expressions, column, batch.first_row, evaluate)
        for row, each in expressions.items():
            values[row] = known[each.node]
    defaults: dict[str, list[int]] = {}
    for index in sorted(batch.defaults):
        values, name = batch.values[index], columns[index].name
        defaults[name] = [row for row, value in enumerate(values) if value is _Word.DEFAULT]
        for row in defaults[name]:
            values[row] = columns[index].type.default
    return ValuesBatch(record_batch(columns, batch.values), defaults)


def _evaluated(
    expressions: dict[int, _Expression],
    column: ResultColumn,
    first_row: int,
    evaluate: Evaluate,
) -> dict[Node, object]:
    """The value of every different expression. Many go into one query; if that fails, they go one
    by one.
    """
    nodes = list(dict.fromkeys(each.node for each in expressions.values()))
    known: dict[Node, object] = {}
    for start in range(0, len(nodes), EXPRESSIONS_PER_QUERY_MAX):
        some = nodes[start : start + EXPRESSIONS_PER_QUERY_MAX]
        try:
            known.update(zip(some, evaluate(some, column.type), strict=True))
        except UserError:
            for row, each in expressions.items():
                if each.node in some and each.node not in known:
                    number = first_row + row
                    known[each.node] = _alone(each, column, number, evaluate)
    return known


def _alone(one: _Expression, column: ResultColumn, row: int, evaluate: Evaluate) -> object:
    try:
        return evaluate([one.node], column.type)[0]
    except UserError as error:
        _refuse(one.text, column, row, one.refusal or str(error))


def _after_group(source: str, at: int, stop: int) -> tuple[int, str]:
    """The offset after the `,` or `)` that follows the brackets which start here, and that mark.
    The mark is empty when the value goes on after the brackets, or when they are never closed.
    """
    depth = 0
    while at < stop:
        match = _IN_GROUP.match(source, at, stop)
        if match is None:
            return at, ""
        at = match.end()
        if match[1] is None:
            continue
        depth += 1 if match[1] in "([{" else -1
        if depth == 0:
            at = skip_space(source, at, stop)
            mark = source[at : at + 1]
            return at + 1, mark if mark in (",", ")") else ""
    return at, ""


def _refuse(text: str, column: ResultColumn, row: int, reason: str) -> NoReturn:
    raise BadValue(
        f"Cannot parse {excerpt(text)} as {column.type}: row {row}, column {column.name}"
        f" ({reason})"
    ) from None
