"""A call of an aggregate function, and how it becomes SQL."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmt_pipeline.translate.base.casts import plain_condition, sort_sql
from rmt_pipeline.translate.base.function import WrongArguments
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    Typed,
    constant_sql,
    from_stored,
    nullable_type,
    number_sql,
    struct_sql,
)
from rmt_pipeline.types.data_type import DataType

NAN_SQL = "CAST('nan' AS DOUBLE)"


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call with compiled arguments. `filters` are conditions that rows must meet, and
    `before_or_null` those among them that -OrNull is inside of; `over` is the SQL of OVER (...), or
    "".
    """

    name: str
    arguments: list[Typed]
    parameters: list[Typed]
    distinct: bool = False
    filters: tuple[str, ...] = ()
    over: str = ""
    or_null: bool = False
    before_or_null: tuple[str, ...] = ()

    def sql(self, function: str, *arguments: str, extra_filter: str = "") -> str:
        """Return `function(DISTINCT arguments) FILTER (...) OVER (...)`."""
        filters = [*self.filters, *([extra_filter] if extra_filter else [])]
        distinct = "DISTINCT " if self.distinct else ""
        filtered = f" FILTER (WHERE {' AND '.join(filters)})" if filters else ""
        return f"{function}({distinct}{', '.join(arguments)}){filtered}{self.over}"

    def first(self) -> Typed:
        return plain_condition(self.arguments[0])


AggregateBuild = Callable[[AggregateCall], Typed]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One entry of the allow-list. With `windows_only` the function needs OVER."""

    name: str
    build: AggregateBuild
    least: int
    most: int
    windows_only: bool = False
    differs: str = ""


def or_default(call: AggregateCall, sql: str, data_type: DataType, value: Typed) -> Typed:
    """Return `sql`, which is NULL for no rows, with the type's default in place of the NULL. For a
    Nullable argument and OrNull it stays NULL.
    """
    if value.nullable or call.or_null:
        return Typed(sql, nullable_type(data_type))
    return Typed(
        f"coalesce({sql}, {constant_sql(data_type.plain.default, data_type)})", data_type
    )


def quantile_level(name: str, parameters: Sequence[Typed]) -> float:
    """Return the level of `quantile(level)(x)`, 0.5 without one. Raises WrongArguments."""
    return quantile_levels(name, parameters[:1])[0] if parameters else 0.5


def quantile_levels(name: str, parameters: Sequence[Typed]) -> list[float]:
    """Return the levels of `quantiles(level, …)(x)`. Raises WrongArguments."""
    if not parameters:
        raise WrongArguments(f"{name} takes levels, as in {name}(0.5, 0.9)(x)")
    values = [each.constant.value if each.constant else None for each in parameters]
    for value in values:
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise WrongArguments(f"{name} takes a level between 0 and 1, not {value!r}")
    return [float(value) for value in values if isinstance(value, int | float)]


def exact_quantile(call: AggregateCall, listed: str, value: Typed) -> Typed:
    """Return the quantile of `call`, one of the values of the list `listed`. They are in the stored
    form and of the type of `value`.
    """
    level = quantile_level(call.name, call.parameters)
    if value.type.is_float:  # NaN is no number
        listed = f"list_filter({listed}, lambda {ELEMENT}: NOT isnan({ELEMENT}))"
    place = (
        f"least(CAST(floor({number_sql(level)} * len({listed})) AS BIGINT) + 1, len({listed}))"
    )
    key = sort_sql(from_stored(ELEMENT, value.plain))
    if key is None:
        sql = f"list_extract(list_sort({listed}), {place})"
    else:
        keyed = struct_sql((("key", key), ("value", ELEMENT)))
        ordered = f"list_sort(list_transform({listed}, lambda {ELEMENT}: {keyed}))"
        sql = f"list_extract({ordered}, {place}).value"
    return or_default(call, from_stored(sql, value.plain).sql, value.plain, value)
