"""The order of arrays and tuples in which NULL and NaN are below all values."""

from rmt_pipeline.translate.base.casts import sort_sql
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    Typed,
    from_stored,
    struct_sql,
    to_stored,
    tuple_elements,
)


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
