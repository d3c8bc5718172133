"""Whether the definition that an ALTER makes is one: what CREATE TABLE checks, of the result."""

from collections.abc import Sequence

import pyarrow as pa

from rmt_pipeline.compute.computed import compiled, evaluated
from rmt_pipeline.compute.defaults import DefaultExpressions
from rmt_pipeline.expressions.translate import compile_expression
from rmt_pipeline.expressions.ttl import rules_of
from rmt_pipeline.expressions.types import parse_type
from rmt_pipeline.protocol.errors import BadTypeOfField, IllegalColumn, UserError
from rmt_pipeline.protocol.settings import TableSettings
from rmt_pipeline.protocol.table import Column, TableDefinition


def check_altered(definition: TableDefinition) -> None:
    """Raises a UserError that names the column, key or setting that can't be."""
    settings = TableSettings.of(dict(definition.settings))
    for column in definition.columns:
        parse_type(column.type)
        if column.default:
            _check_default(column, definition.columns)
    computed = [c.name for c in definition.columns if c.default and c.default_kind != "ALIAS"]
    DefaultExpressions(definition.columns).in_order(computed)
    for text in definition.order_by:
        _check_key(text, definition, nullable=settings.allow_nullable_key)
    rules_of(definition)


def _check_default(column: Column, columns: Sequence[Column]) -> None:
    expression = compiled(column.default, columns)
    if column.name in expression.columns_used:
        raise UserError(f"the default of column {column.name} uses the column itself")
    cast = compile_expression(
        f"CAST({column.default} AS {column.type})", columns, allow_nondeterministic=True
    )
    if not cast.columns_used:
        try:
            evaluated([cast], _one_row())
        except UserError as error:
            raise UserError(
                f"column {column.name} is {column.type}, and its {column.default_kind} "
                f"{column.default} can't become that: {error}. MODIFY its default with its type"
            ) from error


def _one_row() -> pa.Table:
    return pa.table({"": pa.nulls(1, pa.int8())})


def _check_key(text: str, definition: TableDefinition, *, nullable: bool) -> None:
    expression = compile_expression(text, definition.columns)
    if not expression.type.is_comparable:
        raise BadTypeOfField(f"ORDER BY {text} is {expression.type}, which has no order")
    if expression.type.nullable and not nullable:
        raise IllegalColumn(
            f"ORDER BY {text} is {expression.type}: a key is not Nullable, unless SETTINGS "
            "allow_nullable_key = 1"
        )
