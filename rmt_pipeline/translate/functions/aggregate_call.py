"""What an aggregate function is given, and how it becomes SQL."""

from collections.abc import Callable
from dataclasses import dataclass

from rmt_pipeline.translate.base.casts import plain_condition
from rmt_pipeline.translate.base.typed import Typed, constant_sql, nullable_type
from rmt_pipeline.types.data_type import DataType

NAN_SQL = "CAST('nan' AS DOUBLE)"


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call with its arguments typed. `filters` are conditions that rows must meet; `over` is
    the text of OVER (...), or empty.
    """

    name: str
    arguments: list[Typed]
    parameters: list[Typed]
    distinct: bool = False
    filters: tuple[str, ...] = ()
    over: str = ""
    or_null: bool = False

    def sql(self, function: str, *arguments: str, extra_filter: str = "") -> str:
        """`function(DISTINCT arguments) FILTER (...) OVER (...)`."""
        filters = [*self.filters, *([extra_filter] if extra_filter else [])]
        distinct = "DISTINCT " if self.distinct else ""
        filtered = f" FILTER (WHERE {' AND '.join(filters)})" if filters else ""
        return f"{function}({distinct}{', '.join(arguments)}){filtered}{self.over}"

    def first(self) -> Typed:
        return plain_condition(self.arguments[0])


AggregateBuild = Callable[[AggregateCall], Typed]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One entry of the allow-list. `windows_only`: it needs OVER."""

    name: str
    build: AggregateBuild
    least: int
    most: int
    windows_only: bool = False
    differs: str = ""


def or_default(call: AggregateCall, sql: str, data_type: DataType, value: Typed) -> Typed:
    """NULL stays for a Nullable argument, else the default stands for "no rows"."""
    if value.nullable or call.or_null:
        return Typed(sql, nullable_type(data_type))
    return Typed(
        f"coalesce({sql}, {constant_sql(data_type.plain.default, data_type)})", data_type
    )
