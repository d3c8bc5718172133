"""ORDER BY in the original's order: NaN and NULL last in both directions, enums by number, UUIDs by
their second half.
"""

from rmt_pipeline.syntax.nodes import OrderItem
from rmt_pipeline.translate.base.casts import plain_condition, sort_sql
from rmt_pipeline.translate.base.nothing_least import with_nothing_least
from rmt_pipeline.translate.base.typed import Typed, TypeProblem, tuple_elements


def order_terms(value: Typed, item: OrderItem, *, of_window: bool = False) -> list[str]:
    """Return the terms of DuckDB's ORDER BY for one of the original's, none for a constant. Raises
    TypeProblem for a Map. With `of_window` it is the ORDER BY of a window, whose frame may need a
    single term.
    """
    direction = "DESC" if item.descending else "ASC"
    nulls = "NULLS FIRST" if item.nulls_first else "NULLS LAST"
    if value.plain.family == "Map":
        raise TypeProblem(f"cannot order by {value.type.text}: maps have no order")
    if value.plain.family == "Tuple":  # NULL and NaN in it come last, in both directions
        pieces = (order_terms(x, item, of_window=of_window) for x in tuple_elements(value))
        return [term for piece in pieces for term in piece]
    is_least = value.plain.family == "Array" and item.descending != item.nulls_first
    own = (with_nothing_least(value) if is_least else None) or sort_sql(value)
    if own is not None:
        return [f"{own} {direction} {nulls}"]
    value = plain_condition(value)
    if value.constant is not None:
        return []  # DuckDB would take a constant number for a place in the list
    terms = [f"{value.sql} {direction} {nulls}"]
    if item.nulls_first and not of_window:
        # By the first term of ORDER BY … LIMIT DuckDB lets its Parquet reader choose rows, which
        # takes texts for NULL then; see `logic`.
        terms.insert(0, f"({value.sql} IS NULL) DESC")
    if value.type.is_float and item.descending != item.nulls_first:
        # DuckDB sorts NaN above all numbers; in the original it is next to the NULLs.
        where_nan = "DESC" if item.nulls_first else "ASC"
        terms.insert(0, f"isnan({value.sql}) {where_nan} {nulls}")
    return terms
