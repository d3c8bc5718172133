"""Compiles queries to DuckDB SQL: SELECTs, and UNION, EXCEPT and INTERSECT of them."""

from collections.abc import Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import SyntaxProblem, UserError
from rmt_pipeline.syntax.nodes import NamedTable, Query, Select, SetOperation
from rmt_pipeline.translate.base.casts import convert
from rmt_pipeline.translate.base.supertypes import least_supertype
from rmt_pipeline.translate.base.typed import SQL_CHARACTERS_MAX, from_stored, to_stored
from rmt_pipeline.translate.select.one import SelectCompiler
from rmt_pipeline.translate.select.scope import Compiled, Scope
from rmt_pipeline.translate.select.sources import ONE, Relation, Resolve
from rmt_pipeline.types.data_type import DataType

QUERIES_DEPTH_MAX = 40


class QueryCompiler:
    """Compiles one statement's query and all queries inside it."""

    def __init__(self, resolve: Resolve, session: Mapping[str, str]) -> None:
        self._resolve = resolve
        self.session = session
        self._names = 0

    def compile(self, query: Query, scope: Scope | None = None) -> Compiled:
        scope = scope or Scope()
        if scope.depth > QUERIES_DEPTH_MAX:
            raise UserError(f"the most queries inside of each other are {QUERIES_DEPTH_MAX}")
        found = (
            SelectCompiler(self, query, scope).compile()
            if isinstance(query, Select)
            else self._set_operation(query, scope)
        )
        if len(found.sql) > SQL_CHARACTERS_MAX * 4:
            raise UserError("the query is too large: it repeats its parts too often")
        return found

    def new_name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def relation(self, source: NamedTable) -> Relation:
        is_one = (source.database, source.table) == ("system", "one")
        if is_one and source.sample is None:
            return ONE
        return self._resolve(source)

    def _set_operation(self, query: SetOperation, scope: Scope) -> Compiled:
        left, right = (self.compile(each, scope.deeper()) for each in (query.left, query.right))
        if len(left.columns) != len(right.columns):
            raise UserError(
                f"{query.operation} of {len(left.columns)} and {len(right.columns)} columns"
            )
        columns = [
            (name, least_supertype([a, b]))
            for (name, a), (_, b) in zip(left.columns, right.columns, strict=True)
        ]
        sides = [self._as_types(side, columns) for side in (left, right)]
        return Compiled(f"{sides[0]} {query.operation} {sides[1]}", columns)

    def _as_types(self, side: Compiled, columns: list[tuple[str, DataType]]) -> str:
        name = self.new_name()
        items = []
        for place, (_, target) in enumerate(columns):
            value = from_stored(f"{name}.c{place}", side.columns[place][1])
            items.append(f"{to_stored(convert(value, target))} AS c{place}")
        return f"SELECT {', '.join(items)} FROM ({side.sql}) AS {name}"  # noqa: S608 - compiled


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of a result: its title, and the ClickHouse type by which it is printed."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class TranslatedQuery:
    """A SELECT as DuckDB SQL, which gives the stored forms of `columns`, named c0, c1, ...
    `totals` gives the row of WITH TOTALS, and is empty without it.
    """

    sql: str
    columns: tuple[OutputColumn, ...]
    totals: str = ""


def translate_query(
    query: Query, resolve: Resolve, session: Mapping[str, str] | None = None
) -> TranslatedQuery:
    """Check a SELECT and compile it, without running anything. `resolve` gives the relation of each
    table that it names, `session` has the answers of functions about the session.

    Raises a UserError as `compile_node` does, and what `resolve` raises.
    """
    try:
        found = QueryCompiler(resolve, session or {}).compile(query)
    except RecursionError:
        raise SyntaxProblem("the query is nested too deeply") from None
    columns = tuple(OutputColumn(name, data_type) for name, data_type in found.columns)
    return TranslatedQuery(found.sql, columns, found.totals)
