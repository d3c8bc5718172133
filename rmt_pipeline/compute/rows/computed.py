"""Expressions over rows. DuckDB is imported with the first expression; most tables need none."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from rmt_pipeline.protocol.errors import BadDate, BadTime, BadValue
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.protocol.ttl import TtlRule

if TYPE_CHECKING:
    from rmt_pipeline.translate.expression import Expression


def compiled(text: str, columns: Sequence[Column]) -> "Expression":
    """An expression of a table's definition, compiled. Raises UserError."""
    # For start-up time.
    from rmt_pipeline.translate.expression import compile_expression  # noqa: PLC0415  slow

    # Whether the expression may use `now()` is checked when the table is defined.
    return compile_expression(text, columns, allow_nondeterministic=True)


def gives_another_each_time(column: Column) -> bool:
    """Whether the column's DEFAULT or MATERIALIZED gives another value each time, like `now()` and
    `rand()`. Only rows that are inserted can get such a value; other rows would get different ones
    on each replica.
    """
    if not column.default or column.default_kind == "ALIAS":
        return False
    # For start-up time.
    from rmt_pipeline.translate.expression import is_deterministic  # noqa: PLC0415  slow

    return not is_deterministic(column.default)


def ttl_rules(definition: TableDefinition) -> tuple[TtlRule, ...]:
    """The TTL rules of a table. A table without TTL needs no compiler. Raises UserError."""
    if not definition.ttl and not any(column.ttl for column in definition.columns):
        return ()
    from rmt_pipeline.translate.ttl import rules_of  # noqa: PLC0415  start-up: slow

    return rules_of(definition)


def evaluated(expressions: Sequence["Expression"], table: pa.Table) -> list[pa.Array]:
    """The values of each expression for each row, in the stored form. Raises BadValue."""
    if not expressions:
        return []
    from rmt_pipeline.translate.evaluate import evaluate  # noqa: PLC0415  start-up: slow

    return evaluate(expressions, table)


def check_constant_default(column: Column, columns: Sequence[Column]) -> None:
    """Check that a default which uses no column can be converted to the column's type; others may
    depend on the row. Raises BadValue; BadDate or BadTime for such types.
    """
    if compiled(column.default, columns).columns_used:
        return
    cast = compiled(f"CAST({column.default} AS {column.type})", columns)
    try:
        evaluated([cast], pa.table({"": pa.nulls(1, pa.int8())}))
    except BadValue as error:
        kind = BadTime if cast.type.is_time else BadDate if cast.type.is_date else BadValue
        raise kind(
            f"column {column.name} is {column.type}, and its {column.default_kind} "
            f"{column.default} can't become that: {error}. Give it another default with its type"
        ) from error
