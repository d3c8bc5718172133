"""What queries see of those around them, and what compiling one gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rmt_pipeline.syntax.nodes import Node, Query, Select, SetOperation
from rmt_pipeline.types.data_type import DataType


@dataclass(frozen=True, slots=True)
class Compiled:
    """A query's SQL, whose columns are c0, c1, ..., and their titles and types."""

    sql: str
    columns: list[tuple[str, DataType]]


@dataclass(frozen=True)
class Scope:
    """Named subqueries and named expressions of WITH, from outside to inside."""

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
                # A named query sees those before it, not itself.
                queries[item.name] = (item.value, replace(self, queries=dict(queries)))
            else:
                expressions[item.name] = item.value
        return Scope(queries, expressions, self.depth)

    def around(self, query: Query) -> "Scope":
        """The scope in which `query` stands: a named query keeps that of its own place."""
        for named, its_scope in self.queries.values():
            if named is query:
                return replace(its_scope, depth=self.depth + 1)
        return self.deeper()
