"""Evaluates compiled expressions over Arrow tables."""

from collections.abc import Sequence

import pyarrow as pa

from rmt_pipeline.syntax.nodes import Call, Name
from rmt_pipeline.translate.base.temporal import UTC_NAMES
from rmt_pipeline.translate.connection import duckdb, thread_connection, user_error
from rmt_pipeline.translate.expression import Expression
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import told_apart

_RELATION = "rmt_rows"


def evaluate(expressions: Sequence[Expression], table: pa.Table) -> list[pa.Array]:
    """Return an array with the value for each row, of type `expression.type.arrow`, for each of the
    expressions.

    `table` has the stored forms of the columns that the expressions use; other columns are ignored.
    The value of a plain column is the column itself. Raises BadValue when a value can't be
    computed: text that is no number, a whole number divided by zero.
    """
    results: dict[int, pa.Array] = {}
    rest: list[int] = []
    for place, expression in enumerate(expressions):
        found = _directly(expression, table)
        if found is None:
            rest.append(place)
        else:
            results[place] = found
    if rest:
        computed = _by_duckdb([expressions[place] for place in rest], table)
        results |= dict(zip(rest, computed, strict=True))
    return [results[place] for place in range(len(expressions))]


def in_stored_form(array: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """Return one array of type `data_type.arrow` from the array that DuckDB gives for the stored
    form.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # there were no chunks, or several
            array = (
                pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
            )
    if array.type.equals(data_type.arrow):
        return array
    return array.cast(data_type.arrow)


def _by_duckdb(expressions: Sequence[Expression], table: pa.Table) -> list[pa.Array]:
    used = list(dict.fromkeys(name for each in expressions for name in each.columns_used))
    items = ", ".join(
        f"{each.duckdb_sql} AS c{place}" for place, each in enumerate(expressions)
    )
    no_columns = {"rmt_row": pa.nulls(table.num_rows, pa.int8())}
    rows = table.select(used).rename_columns([told_apart(name) for name in used])
    rows = rows if used else pa.table(no_columns)
    connection = thread_connection()
    connection.register(_RELATION, rows)
    try:
        query = f"SELECT {items} FROM {_RELATION}"  # noqa: S608 - compiled expressions
        found = connection.sql(query).to_arrow_table()
    except duckdb.Error as problem:
        raise user_error(problem, ", ".join(each.canonical for each in expressions)) from None
    finally:
        connection.unregister(_RELATION)
    return [
        in_stored_form(found.column(place), each.type) for place, each in enumerate(expressions)
    ]


def _directly(expression: Expression, table: pa.Table) -> pa.Array | None:
    if expression.is_plain_column:
        return in_stored_form(table.column(expression.columns_used[0]), expression.type)
    node = expression.node
    if not isinstance(node, Call) or len(node.arguments) != 1:
        return None
    argument = node.arguments[0]
    zone = expression.source_zone
    if zone is None or zone not in UTC_NAMES:
        return None
    if not isinstance(argument, Name) or len(argument.parts) != 1:
        return None
    from rmt_pipeline.translate.direct_keys import DIRECT  # noqa: PLC0415  start-up

    direct = DIRECT.get(node.name)
    if direct is None:
        return None
    array = table.column(argument.parts[0])
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp(array.type.unit))
    elif not pa.types.is_date32(array.type):
        return None
    return in_stored_form(direct(array), expression.type)
