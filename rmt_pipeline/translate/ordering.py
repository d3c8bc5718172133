"""ORDER BY in the original's order: NaN and NULL last in both directions, enums by number, UUIDs by
their second half.
"""

from rmt_pipeline.syntax.nodes import OrderItem
from rmt_pipeline.translate.base.casts import plain_condition, sort_sql
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    Typed,
    TypeProblem,
    from_stored,
    struct_sql,
    to_stored,
    tuple_elements,
)


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


def with_nothing_least(value: Typed) -> str | None:
    """Return SQL by which arrays and tuples are ordered if NULL and NaN in them are below all
    values; None if they have none. To DuckDB they are above all.
    """
    if value.plain.family == "Array":
        key = with_nothing_least(from_stored(ELEMENT, value.plain.elements[0]))
        return key and f"list_transform({value.sql}, lambda {ELEMENT}: {key})"
    if value.plain.family == "Tuple":
        elements = tuple_elements(value)
        own = [with_nothing_least(each) for each in elements]
        if not any(own):
            return None
        pairs = enumerate(zip(own, elements, strict=True))
        return struct_sql(
            (f"c{at}", sql or sort_sql(each) or to_stored(each)) for at, (sql, each) in pairs
        )
    if not (value.nullable or value.type.is_float):
        return None
    nan = f"WHEN isnan({value.sql}) THEN 1 " if value.type.is_float else ""
    place = f"CASE WHEN {value.sql} IS NULL THEN 0 {nan}ELSE 2 END"
    return struct_sql((("place", place), ("value", sort_sql(value) or value.sql)))
