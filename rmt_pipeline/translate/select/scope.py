"""What a query sees of the queries around it, and the result of compiling a query."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rmt_pipeline.syntax.nodes import Node, Query, Select, SetOperation
from rmt_pipeline.types.data_type import DataType


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query's SQL, whose columns are named c0, c1, ..., and the titles and types of these
    columns. `totals` is the SQL of the row that WITH TOTALS adds, or empty.
    """

    sql: str
    columns: list[tuple[str, DataType]]
    totals: str = ""


@dataclass(frozen=True)
class Scope:
    """The named subqueries and expressions of WITH that a query can use, its own and those of the
    queries around it. An inner name hides an outer one.
    """

    queries: Mapping[str, tuple[Query, "Scope"]] = field(default_factory=dict)
    expressions: Mapping[str, Node] = field(default_factory=dict)
    depth: int = 0

    def deeper(self) -> "Scope":
        return replace(self, depth=self.depth + 1)

    def with_items(self, select: Select) -> "Scope":
        queries = dict(self.queries)
        expressions = dict(self.expressions)
        for item in select.with_items:
            if isinstance(item.value, Select | SetOperation):
                # A named query sees the named queries before it, and not itself.
                queries[item.name] = (item.value, replace(self, queries=dict(queries)))
            else:
                expressions[item.name] = item.value
        return Scope(queries, expressions, self.depth)

    def around(self, query: Query) -> "Scope":
        """Return the scope of a query in FROM. For a named query it is the scope at its place in
        WITH.
        """
        for named, its_scope in self.queries.values():
            if named is query:
                return replace(its_scope, depth=self.depth + 1)
        return self.deeper()
