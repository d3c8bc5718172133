"""ORDER BY … WITH FILL: the rows that are missing between others, step by step."""

from collections.abc import Sequence
from typing import NamedTuple

from rmt_pipeline.protocol.errors import NotImplementedStatement, UserError
from rmt_pipeline.syntax.nodes import Aliased, Call, Fill, Name, Node, OrderItem, names_in
from rmt_pipeline.translate.base.casts import convert
from rmt_pipeline.translate.base.typed import INT64, Typed, constant_sql, to_stored
from rmt_pipeline.translate.compiler import Compiler
from rmt_pipeline.translate.select.items import bare
from rmt_pipeline.translate.select.titles import title
from rmt_pipeline.types.data_type import DataType

_NUMBER = '"·filled"'  # no column has this name
_UNITS = {
    "Date": {"IntervalDay": 1, "IntervalWeek": 7},
    "DateTime": {"IntervalSecond": 1, "IntervalMinute": 60, "IntervalHour": 3600},
}
"""How much an interval is of what a column counts, days or seconds."""
_IN_UTC = {"IntervalDay": 86_400, "IntervalWeek": 604_800}
"""In other zones some days have 23 or 25 hours."""


class BadFill(UserError):
    """What WITH FILL was given can't be counted in steps."""

    code = "INVALID_WITH_FILL_EXPRESSION"


class Filled(NamedTuple):
    """What WITH FILL adds to a SELECT: a column of its list, after the others, and the rows."""

    column: str
    step: int
    start: str
    end: str
    places: frozenset[int]
    """The columns of the list that are what is filled; the others have their type's default."""

    def sql(self, inner: str, name: str, types: Sequence[DataType]) -> str:
        """Return SQL of the rows of `inner` with those that are missing, in order. With FROM the
        steps begin there, else at the first row; they end before TO, else at the last row.
        """
        first, last, beyond = ("min", "max", 1) if self.step > 0 else ("max", "min", -1)
        start = self.start or f"(SELECT {first}(o0) FROM {name})"  # noqa: S608
        end = self.end or f"(SELECT {last}(o0) + {beyond} FROM {name})"  # noqa: S608
        columns = ", ".join(f"c{place}" for place in range(len(types)))
        number = Typed(_NUMBER, INT64)
        values = [
            to_stored(
                convert(number, one)
                if place in self.places
                else Typed(constant_sql(one.default, one), one)
            )
            for place, one in enumerate(types)
        ]
        steps = f"SELECT unnest(range({start}, {end}, {self.step})) AS {_NUMBER}"
        new = f"SELECT {', '.join(values)}, {_NUMBER} FROM ({steps})"  # noqa: S608
        there = f"SELECT o0 FROM {name} WHERE o0 IS NOT NULL"  # noqa: S608
        direction = "ASC" if self.step > 0 else "DESC"
        return (
            f"WITH {name} AS MATERIALIZED ({inner}) SELECT {columns} FROM (SELECT * FROM {name}"  # noqa: S608
            f" UNION ALL {new} WHERE {_NUMBER} NOT IN ({there}))"
            f" ORDER BY o0 {direction} NULLS LAST"
        )


def filled(
    order: Sequence[OrderItem], items: Sequence[Node], compiler: Compiler
) -> Filled | None:
    """Return what WITH FILL asks for; None if the ORDER BY has none. Raises BadFill;
    NotImplementedStatement for several terms, NULL in front, and months.
    """
    if not any(one.fill for one in order):
        return None
    if len(order) != 1:
        raise NotImplementedStatement("WITH FILL beside other terms of ORDER BY")
    item, fill = order[0], order[0].fill or Fill()
    value = compiler.compile(item.node)
    if not (value.plain.is_integer or value.plain.family in {"Date", "Date32", "DateTime"}):
        raise BadFill(f"WITH FILL counts integers, dates and times, not {value.type.text}")
    if value.nullable and item.nulls_first:
        raise NotImplementedStatement("WITH FILL puts NULL last: leave NULLS FIRST out")
    step = 1 if fill.step is None else _step(compiler.compile(fill.step), fill.step, value)
    step = -step if fill.step is None and item.descending else step
    if not step or (step < 0) != item.descending:
        raise BadFill("STEP is not 0, above it in ascending order and below it in descending")
    start, end = _end(fill.start, value, compiler), _end(fill.end, value, compiler)
    number = to_stored(compiler.compile(Call("toInt64", (item.node,))))
    is_key = [bare(one) == item.node or _is_named(one, item.node) for one in items]
    places = frozenset(place for place, here in enumerate(is_key) if here)
    return Filled(f"{number} AS o0", step, start, end, places)


def _is_named(item: Node, node: Node) -> bool:
    return isinstance(item, Aliased) and node == Name((item.alias,))


def _end(node: Node | None, column: Typed, compiler: Compiler) -> str:
    """Return SQL of the number of days, or seconds, in FROM and TO; "" if it is not given. Raises
    BadFill for what is not counted as the column is.
    """
    if node is None:
        return ""
    if names_in(node):
        raise BadFill(f"FROM and TO of WITH FILL are constant, not {title(node)}")
    value = compiler.compile(node)
    if not (value.plain.is_integer or value.plain.family == column.plain.family):
        raise BadFill(
            f"FROM and TO of WITH FILL are {column.plain.text}, not {value.type.text}"
        )
    known = value.constant.value if value.constant else None
    is_unsigned = column.plain.is_integer and not column.plain.is_signed
    if is_unsigned and isinstance(known, int) and known < 0:
        raise BadFill(f"FROM and TO of WITH FILL are {column.plain.text}, not {known}")
    return to_stored(compiler.compile(Call("toInt64", (node,))))


def _step(step: Typed, node: Node, column: Typed) -> int:
    """Return STEP as a number of what the column counts. Raises BadFill; NotImplementedStatement
    for an interval that has no fixed length.
    """
    known = step.constant.value if step.constant else None
    if not isinstance(known, int) or isinstance(known, bool):
        raise BadFill(f"STEP of WITH FILL is a constant whole number, not {title(node)}")
    if not step.plain.family.startswith("Interval"):
        return known
    if column.plain.is_integer:
        raise BadFill(f"STEP is an interval, but {column.plain.text} is a number")
    units = dict(_UNITS[column.plain.family.removesuffix("32")])
    if column.plain.family == "DateTime" and column.plain.zone in {"", "UTC"}:
        units |= _IN_UTC
    unit = step.plain.family
    if unit not in units:
        found = ", ".join(one.removeprefix("Interval").upper() for one in units)
        raise NotImplementedStatement(
            f"STEP INTERVAL of WITH FILL is of {found} for {column.plain.text}, not "
            f"{unit.removeprefix('Interval').upper()}"
        )
    return known * units[unit]
