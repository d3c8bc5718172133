"""Makes commands on rows of MATERIALIZE COLUMN and MATERIALIZE TTL.

Every replica must carry them out alike, so they refer neither to expressions that an ALTER may
change nor to a clock: expressions and times are those of the moment when the statement was given.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.protocol.errors import ColumnWithoutDefault, IncorrectQuery, NoSuchColumn
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.protocol.ttl import TtlRule
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.mutation import Assignment, Command, DeleteRows, UpdateColumns
from rmt_pipeline.syntax.nodes import Call, Literal, Name, Node
from rmt_pipeline.syntax.statements.nodes import MaterializeColumn, MaterializeTtl, RowsSyntax
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.expression import compile_node
from rmt_pipeline.translate.ttl import rules_of
from rmt_pipeline.types.to_text import tsv

_TIMES = {
    "Date": ("toDate", "%Y-%m-%d", ()),
    "Date32": ("toDate32", "%Y-%m-%d", ()),
    "DateTime": ("toDateTime", "%Y-%m-%d %H:%M:%S", ("UTC",)),
    "DateTime64": ("toDateTime64", "%Y-%m-%d %H:%M:%S", (0, "UTC")),
}
"""For each type of a TTL's time: the function that makes it of a text, the text's pattern, and the
function's further arguments.
"""


def on_rows(given: RowsSyntax, definition: TableDefinition, now_s: float) -> list[Command]:
    """Return the commands on rows for one command as typed; `now_s` is in seconds since the epoch.
    Raises NoSuchColumn, ColumnWithoutDefault, and IncorrectQuery for a table without TTL.
    """
    match given:
        case MaterializeColumn():
            return [_materialized(given, definition)]
        case MaterializeTtl():
            rules = [rule for rule in rules_of(definition) if rule.kind != "recompress"]
            if not rules:
                raise IncorrectQuery(
                    f"{definition.full_name} has no TTL by which rows or values expire"
                )
            ordered = _in_order(rules, definition)
            return [_expired(rule, given, definition, now_s) for rule in ordered]
        case _:
            return [given]


def _materialized(given: MaterializeColumn, definition: TableDefinition) -> Command:
    """Return the UPDATE for MATERIALIZE COLUMN. Each value of a MATERIALIZED column is computed
    anew. For a DEFAULT column the values that parts have stay, and those that are missing are
    written as queries read them.
    """
    column = definition.column(given.column)
    if column is None:
        raise NoSuchColumn(f"{definition.full_name} has no column {given.column}")
    if column.default_kind not in ("DEFAULT", "MATERIALIZED"):
        raise ColumnWithoutDefault(
            f"column {column.name} of {definition.full_name} has no DEFAULT or MATERIALIZED "
            "expression: there is nothing to materialize"
        )
    computed = column.default_kind == "MATERIALIZED"
    value = parse_expression(column.default) if computed else Name((column.name,))
    return UpdateColumns((Assignment(column.name, value),), Literal(1, "1"), given.partition)


def _in_order(rules: Sequence[TtlRule], definition: TableDefinition) -> list[TtlRule]:
    """Return the rules in the order in which merges apply them (`compute.rows.ttl`): an expired
    value's default is computed from the columns as they are after their own rules.
    """
    defaults = DefaultExpressions(definition.columns)
    computed = [rule.column for rule in rules if rule.column in defaults]
    places = {name: place for place, name in enumerate(defaults.in_order(computed), 1)}
    return sorted(rules, key=lambda rule: places.get(rule.column, 0))


def _expired(
    rule: TtlRule, given: MaterializeTtl, definition: TableDefinition, now_s: float
) -> Command:
    """Return the command that removes the rows or values which a merge at `now_s` would remove."""
    time = parse_expression(rule.expression)
    stored = [column for column in definition.columns if column.is_stored]
    family = compile_node(time, stored).type.plain.family
    has_come = Call("lessOrEquals", (time, _moment(family, now_s)))
    is_one = Call("greater", (time, _moment(family, 0.0)))
    condition: Node = Call("and", (is_one, has_come))
    if rule.where:
        condition = Call("and", (condition, parse_expression(rule.where)))
    if rule.removes_rows:
        return DeleteRows(condition, given.partition)
    column = definition.column(rule.column)
    assert column is not None
    return UpdateColumns((Assignment(rule.column, _empty(column)),), condition, given.partition)


def _moment(family: str, at_s: float) -> Node:
    function, form, more = _TIMES[family]
    text = datetime.fromtimestamp(int(at_s), UTC).strftime(form)
    return Call(function, (_literal(text), *map(_literal, more)))


def _literal(value: str | int) -> Literal:
    return Literal(value, str(value) if isinstance(value, int) else "")


def _empty(column: Column) -> Node:
    """Return the expression of a column that an expired value is replaced by."""
    if column.default:
        return parse_expression(column.default)
    kind = parse_type(column.type)
    if kind.default is None:
        return Literal(None)
    return Literal(tsv(kind.default, kind))
