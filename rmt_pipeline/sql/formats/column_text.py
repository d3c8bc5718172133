"""A column of an answer as texts: the common types quickly, all others value by value.

Three quarters of the time of a large answer would go into formatting integers and plain strings
one by one; Arrow does those for the whole column at once.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.to_text import Formatter, Style, column_values, formatter

NULL = "\\N"
_TSV_SPECIAL = r"[\x08\x0c\n\r\t\x00\\']"


def column_text(
    array: pa.Array, data_type: DataType, style: Style, null: str = NULL
) -> Iterable[str]:
    """The values' texts in order. `null` is how NULL is written in TSV and CSV."""
    quick = _quick(array, data_type.plain, style)
    if quick is not None:
        if array.null_count:
            quick = quick.fill_null(null if style in ("TSV", "CSV") else _NULLS[style])
        texts: list[str] = quick.to_pylist()
        return texts
    return map(value_text(data_type, style, null), column_values(array))


_NULLS: dict[Style, str] = {"JSON": "null", "nested": "NULL"}


def value_text(data_type: DataType, style: Style, null: str = NULL) -> Formatter:
    """One value's text; see `column_text`."""
    text = formatter(data_type, style)
    if data_type.plain.family == "Float64" and style != "JSON":
        text = _float64(text)
    if not data_type.nullable or null == NULL or style not in ("TSV", "CSV"):
        return text
    return lambda value: null if value is None else text(value)


def _float64(exact: Formatter) -> Formatter:
    """Where Python writes no exponent its text is the original's, but for a `.0` at the end."""

    def text(value: float | None) -> str:
        if value is None:
            return exact(value)
        plain = repr(value)
        if "e" in plain or "n" in plain:
            return exact(value)
        return plain.removesuffix(".0")

    return text


def _quick(array: pa.Array, plain: DataType, style: Style) -> pa.Array | None:
    if plain.is_integer and not plain.wide_bytes and (style != "JSON" or plain.bits < 64):
        return array.cast(pa.string())
    if plain.family != "String":
        return None
    if style == "CSV":
        doubled = pc.replace_substring(array, '"', '""')
        return pc.binary_join_element_wise('"', doubled, '"', "")
    if style == "TSV" and not pc.any(pc.match_substring_regex(array, _TSV_SPECIAL)).as_py():
        return array
    return None
