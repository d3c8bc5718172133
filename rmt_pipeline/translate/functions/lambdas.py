"""Functions that take a lambda: `arrayMap(x -> x + 1, a)`, `arrayFilter`, `arrayExists`, ..."""

from collections.abc import Callable
from dataclasses import dataclass

from rmt_pipeline.translate.base.casts import sort_sql
from rmt_pipeline.translate.base.function import WrongArguments, condition
from rmt_pipeline.translate.base.typed import (
    PLACE,
    UINT8,
    UINT32,
    Typed,
    array_of,
    from_stored,
    to_stored,
)
from rmt_pipeline.translate.functions.array import (
    array,
    known_element,
    one_length,
    reduced,
    stored_default,
)


@dataclass(frozen=True, slots=True)
class Applied:
    """A lambda applied to arrays: `body` is its compiled body, in which the parameters are the
    elements at one place. With `by_place` the `variable` of SQL is that place, else the element.
    """

    arrays: list[Typed]
    body: Typed
    variable: str
    by_place: bool

    @property
    def domain(self) -> str:
        """SQL of the list that the variable runs over: the elements, or the places if
        `by_place`.
        """
        if not self.by_place:
            return self.arrays[0].sql
        return f"range(1, {one_length(*(each.sql for each in self.arrays))} + 1)"

    def each(self) -> Typed:
        sql = f"list_transform({self.domain}, lambda {self.variable}: {to_stored(self.body)})"
        return Typed(sql, array_of(self.body.type))

    def chosen(self) -> str:
        """Return SQL of the elements, or places, for which the body is true."""
        when = f"coalesce({condition(self.body)}, false)"
        return f"list_filter({self.domain}, lambda {self.variable}: {when})"


def parameters_for(arrays: list[Typed], count: int, variable: str, name: str) -> list[Typed]:
    """Return the value of each parameter of the lambda. Raises WrongArguments, TypeProblem."""
    if count != len(arrays):
        raise WrongArguments(
            f"{name}: the lambda has {count} parameters for {len(arrays)} arrays"
        )
    elements = [known_element(array(each, name), name) for each in arrays]
    if count == 1:
        return [from_stored(variable, elements[0])]
    return [
        from_stored(f"list_extract({each.sql}, {variable})", element)
        for each, element in zip(arrays, elements, strict=True)
    ]


def _map(applied: Applied) -> Typed:
    return applied.each()


def _filter(applied: Applied) -> Typed:
    first = applied.arrays[0]
    if not applied.by_place:
        return Typed(applied.chosen(), first.type)
    v = applied.variable
    sql = f"list_transform({applied.chosen()}, lambda {v}: list_extract({first.sql}, {v}))"
    return Typed(sql, first.type)


def _count(applied: Applied) -> Typed:
    return Typed(f"CAST(len({applied.chosen()}) AS UINTEGER)", UINT32)


def _exists(applied: Applied) -> Typed:
    return Typed(f"(len({applied.chosen()}) > 0)", UINT8, is_condition=True)


def _all(applied: Applied) -> Typed:
    sql = f"(len({applied.chosen()}) = len({applied.arrays[0].sql}))"
    return Typed(sql, UINT8, is_condition=True)


def _first(*, last: bool) -> Callable[[Applied], Typed]:
    def build(applied: Applied) -> Typed:
        element = applied.arrays[0].plain.elements[0]
        chosen = _filter(applied).sql
        place = "-1" if last else "1"
        default = stored_default(element)
        found = f"list_extract({chosen}, {place})"
        sql = f"(CASE WHEN len({chosen}) > 0 THEN {found} ELSE {default} END)"
        return from_stored(sql, element)

    return build


def _first_index(applied: Applied) -> Typed:
    when = f"coalesce({condition(applied.body)}, false)"
    truths = f"list_transform({applied.domain}, lambda {applied.variable}: {when})"
    return Typed(f"CAST(coalesce(list_position({truths}, true), 0) AS UINTEGER)", UINT32)


def _reduce(name: str) -> Callable[[Applied], Typed]:
    return lambda applied: reduced(name, applied.each())


def _sort(*, descending: bool) -> Callable[[Applied], Typed]:
    def build(applied: Applied) -> Typed:
        first, v = applied.arrays[0], applied.variable
        element = first.sql if not applied.by_place else ""
        value = v if element else f"list_extract({first.sql}, {v})"
        key = sort_sql(applied.body) or to_stored(applied.body)
        # Of equal keys the first comes first.
        pair = f"'k': {key}, 'i': {'-' * descending}{PLACE}, 'v': {value}"
        if descending:  # NaN comes behind the numbers, and NULL behind that
            body = applied.body
            place = f"WHEN isnan({body.sql}) THEN 1 " if body.type.is_float else ""
            pair = f"'p': CASE WHEN {body.sql} IS NULL THEN 0 {place}ELSE 2 END, {pair}"
        pairs = f"list_transform({applied.domain}, lambda {v}, {PLACE}: {{{pair}}})"
        order = "'DESC'" if descending else "'ASC'"
        sql = f"list_transform(list_sort({pairs}, {order}, 'NULLS LAST'), lambda {v}: {v}.v)"
        return Typed(sql, first.type)

    return build


HIGHER_ORDER: dict[str, Callable[[Applied], Typed]] = {
    "arrayMap": _map,
    "arrayFilter": _filter,
    "arrayCount": _count,
    "arrayExists": _exists,
    "arrayAll": _all,
    "arrayFirst": _first(last=False),
    "arrayLast": _first(last=True),
    "arrayFirstIndex": _first_index,
    "arraySum": _reduce("arraySum"),
    "arrayAvg": _reduce("arrayAvg"),
    "arrayMin": _reduce("arrayMin"),
    "arrayMax": _reduce("arrayMax"),
    "arraySort": _sort(descending=False),
    "arrayReverseSort": _sort(descending=True),
}
