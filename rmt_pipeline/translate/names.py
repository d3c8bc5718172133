"""Names of columns: elements of named tuples, and the error for unknown names."""

import difflib
from collections.abc import Iterable

from rmt_pipeline.protocol.errors import UnknownColumn
from rmt_pipeline.translate.base.typed import STRING, Constant, Typed, string_sql
from rmt_pipeline.translate.functions.array import tuple_element


def with_elements(value: Typed, names: Iterable[str]) -> Typed:
    """Return the element that the names lead to: `t.a.b` is element b of element a of
    the tuple t.
    """
    for name in names:
        value = tuple_element([value, Typed(string_sql(name), STRING, Constant(name))])
    return value


def unknown_column(parts: tuple[str, ...], known: Iterable[str]) -> UnknownColumn:
    """Return the error for a name that is no column. It suggests similar names, or else lists the
    first columns.
    """
    name = ".".join(parts)
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if not close:
        lowered = {each.lower(): each for each in names}
        close = [lowered[name.lower()]] if name.lower() in lowered else []
    hint = f"; close to it: {', '.join(close)}" if close else _listed(names)
    return UnknownColumn(f"there is no column {name!r}{hint}")


def _listed(names: list[str]) -> str:
    if not names:
        return "; there are no columns here"
    shown = ", ".join(names[:10])
    return f"; there are {shown}{' and more' if len(names) > 10 else ''}"
