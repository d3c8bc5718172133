"""Compiles one SELECT to DuckDB SQL. Its columns are named c0, c1, ...; their titles are kept
apart.

Aliases of the list may be used anywhere in their query, also in WHERE; they take precedence over
columns of the same name. In a query with aggregate functions the list, HAVING and ORDER BY may use
only the keys of GROUP BY and the results of aggregate functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from rmt_pipeline.protocol.errors import NotImplementedStatement, UserError
from rmt_pipeline.syntax.nodes import (
    Aliased,
    ArrayJoin,
    Derived,
    Literal,
    Name,
    NamedTable,
    Node,
    Query,
    Select,
    TableExpression,
)
from rmt_pipeline.translate.base.casts import plain_condition
from rmt_pipeline.translate.base.function import condition
from rmt_pipeline.translate.base.typed import (
    Typed,
    TypeProblem,
    from_stored,
    nullable_type,
    to_stored,
)
from rmt_pipeline.translate.compiler import Compiler
from rmt_pipeline.translate.names import unknown_column, with_elements
from rmt_pipeline.translate.select.fill import filled
from rmt_pipeline.translate.select.group import (
    GroupKeys,
    after_grouping,
    aggregated_names,
    compile_keys,
    group_by_sql,
    is_aggregate,
    named_by_alias,
)
from rmt_pipeline.translate.select.items import (
    Starred,
    aliases_in,
    bare,
    calls_in,
    find_column,
    present,
    titles_of,
    written_out,
)
from rmt_pipeline.translate.select.scope import Compiled, Scope
from rmt_pipeline.translate.select.sources import (
    Ambiguous,
    Field,
    From,
    Relation,
    compile_source,
)
from rmt_pipeline.translate.select.tail import (
    at_place,
    has_steps,
    in_steps,
    limit_by,
    limit_sql,
    limit_tests,
    listed_sql,
    order_by,
    qualify_sql,
)
from rmt_pipeline.translate.select.titles import title
from rmt_pipeline.types.data_type import DataType

_ONE_ROW = Select(items=(Aliased(Literal(0, "0"), "dummy"),))


class StatementQueries(Protocol):
    """What all queries of one statement share. `session` has the answers of functions about the
    session.
    """

    session: Mapping[str, str]

    def new_name(self) -> str: ...
    def relation(self, source: NamedTable) -> Relation: ...
    def compile(self, query: Query, scope: Scope | None = None) -> Compiled: ...


class SelectCompiler:
    """Compiles one SELECT. It is also the `sources.QueryScope` for its FROM and the
    `compiler.Queries` for its subqueries.
    """

    def __init__(self, statement: StatementQueries, select: Select, scope: Scope) -> None:
        self._statement = statement
        self._select = select
        self._scope = scope.with_items(select)
        self._source = From("", ())
        self._aliases = {**self._scope.expressions, **aliases_in(select.items)}
        self._aggregated = aggregated_names(self._aliases)
        self._expanding: tuple[str, ...] = ()  # aliases whose expressions are being compiled
        self._starred = Starred()
        self._joined: dict[Node, str] = {}  # calls of arrayJoin, and the names of their columns
        self._meant = {  # after `SELECT t.id`, the ambiguous name `id` means this one
            item.parts[-1]: item.parts
            for item in reversed(select.items)
            if isinstance(item, Name) and len(item.parts) > 1
        }

    # For FROM: `sources.QueryScope`.

    def new_name(self) -> str:
        return self._statement.new_name()

    def relation(self, source: NamedTable) -> Relation | Query:
        named = self._scope.queries.get(source.table)
        if named is not None and source.database is None:
            return named[0]
        return self._statement.relation(source)

    def derived(self, query: Query) -> tuple[str, list[tuple[str, DataType]]]:
        found = self._statement.compile(query, self._scope.around(query))
        return found.sql, found.columns

    def expression(self, node: Node, fields: Sequence[Field]) -> Typed:
        return self._compiler(fields).compile(node)

    def condition(self, node: Node, fields: Sequence[Field]) -> str:
        refusal = "a window function has no place in WHERE and ON; use QUALIFY"
        found = self._compiler(fields, windows=refusal).compile(node)
        return found.filter_sql or condition(found)

    # For subqueries in expressions: `compiler.Queries`.

    def scalar(self, query: Query) -> Typed:
        found = self._statement.compile(query, self._scope.deeper())
        if len(found.columns) != 1:
            raise NotImplementedStatement("a subquery as a value has one column")
        return from_stored(f"({found.sql})", nullable_type(found.columns[0][1]))

    def members(self, query: Query) -> tuple[str, list[DataType]]:
        found = self._statement.compile(query, self._scope.deeper())
        return found.sql, [data_type for _, data_type in found.columns]

    def exists(self, query: Query) -> str:
        return f"EXISTS ({self._statement.compile(query, self._scope.deeper()).sql})"

    # Names.

    def _compiler(self, fields: Sequence[Field], windows: str = "") -> Compiler:
        known = {each.name: each.value for each in fields}
        compiler = Compiler(
            lambda parts: self._lookup(parts, fields, compiler),
            bound={call: known[name] for call, name in self._joined.items() if name in known},
            aggregates="an aggregate function has no place here",
            windows=windows,
            nondeterministic=True,
            queries=self,
            named_windows=dict(self._select.windows),
            session=self._statement.session,
        )
        return compiler

    @contextmanager
    def _inside_of(self, alias: str) -> Iterator[None]:
        """While the expression of an alias is compiled, its own name means the column:
        `f(t) AS t`.
        """
        outer = self._expanding
        self._expanding = (*outer, alias)
        try:
            yield
        finally:
            self._expanding = outer

    def _alias(self, parts: tuple[str, ...], compiler: Compiler) -> Typed | None:
        node = self._aliases.get(parts[0])
        if node is None or parts[0] in self._expanding:
            return None
        with self._inside_of(parts[0]):
            value = compiler.compile(node)
        return with_elements(value, parts[1:])

    def _lookup(
        self, parts: tuple[str, ...], fields: Sequence[Field], compiler: Compiler
    ) -> Typed:
        hidden = parts[0] in self._aggregated and self._known(parts, fields)
        found = None if hidden else self._alias(parts, compiler)
        if found is not None:
            return found
        try:
            return self._column(parts, fields)
        except Ambiguous:
            meant = self._meant.get(parts[0]) if len(parts) == 1 else None
            tables = {each.qualifiers for each in fields if each.qualifiers}
            if meant is None and len(tables) > 2:
                raise
            return self._column(meant or parts, fields, leftmost=True)

    def _known(self, parts: tuple[str, ...], fields: Sequence[Field]) -> bool:
        return any(each.name == parts[-1] for each in fields)

    def _column(
        self, parts: tuple[str, ...], fields: Sequence[Field], *, leftmost: bool = False
    ) -> Typed:
        starred = self._starred.get(parts)
        if starred is not None:
            return starred.value
        found = find_column(parts, fields, leftmost=leftmost)
        if found is None:
            raise unknown_column(parts, [*(each.name for each in fields), *self._aliases])
        return found

    def _name_of(self, parts: tuple[str, ...]) -> str:
        starred = self._starred.get(parts)
        return starred.name if starred else ".".join(parts)

    # The clauses.

    def compile(self) -> Compiled:
        select = self._select
        self._source = compile_source(self._with_array_joins(), self)
        items = written_out(select.items, self._source, self._starred)
        plain = self._compiler(self._source.fields)
        if self._is_aggregated(items):
            keys: GroupKeys | None = compile_keys(self._key_nodes(items), plain)
            compiler = after_grouping(
                plain,
                keys or [],
                self._alias,
                self._name_of,
                summed=bool(select.group_modifier),
            )
        else:
            keys, compiler = None, plain
        values = [self._item(each, compiler) for each in items]
        names = titles_of(items)
        columns = [(name, value.type) for name, value in zip(names, values, strict=True)]
        totals = self._totals(items, keys, plain) if select.totals else ""
        return Compiled(self._sql(items, values, keys, compiler), columns, totals)

    def _totals(self, items: Sequence[Node], keys: GroupKeys | None, plain: Compiler) -> str:
        """Return the SQL of the row of WITH TOTALS: the list over all rows of the groups that
        HAVING leaves, whatever LIMIT says.
        """
        if self._scope.depth:
            raise NotImplementedStatement(
                "WITH TOTALS is not supported in a subquery and UNION"
            )
        if keys is None:
            raise UserError("WITH TOTALS without GROUP BY and aggregate functions")
        compiler = after_grouping(
            plain, keys, self._alias, self._name_of, summed=False, totals=True
        )
        values = [self._item(each, compiler) for each in items]
        where = self._where()
        if self._select.having is not None and keys:
            groups = after_grouping(plain, keys, self._alias, self._name_of, summed=False)
            having = condition(groups.compile(self._select.having))
            pairs = (f"k{n} := {to_stored(value)}" for n, (_, value) in enumerate(keys))
            key = f"struct_pack({', '.join(pairs)})"
            left = " ".join([*self._from(where), group_by_sql(keys, ""), f"HAVING {having}"])
            where = [*where, f"{key} IN (SELECT {key} {left})"]
        return " ".join([f"SELECT {listed_sql(values)}", *self._from(where)])

    def _where(self) -> list[str]:
        nodes = present(self._select.prewhere, self._select.where)
        return [self.condition(node, self._source.fields) for node in nodes]

    def _from(self, where: Sequence[str]) -> list[str]:
        pieces = [f"FROM {self._source.sql}"] if self._source.sql else []
        return [*pieces, *([f"WHERE {' AND '.join(where)}"] if where else [])]

    def _is_aggregated(self, items: Sequence[Node]) -> bool:
        select = self._select
        looked_at = (*items, *present(select.having), *(x.node for x in select.order_by))
        return (
            bool(select.group_by)
            or select.group_all
            or any(is_aggregate(each, self._aggregated) for each in looked_at)
        )

    def _key_nodes(self, items: Sequence[Node]) -> list[Node]:
        """Return the keys of GROUP BY, with numbers replaced by the columns at these places in the
        list, and aliases by what they name. Raises TypeProblem for an aggregate function.
        """
        if self._select.group_all:
            return [bare(each) for each in items if not is_aggregate(each, self._aggregated)]
        nodes = [
            named_by_alias(at_place(each, items), self._aliases)
            for each in self._select.group_by
        ]
        for node in nodes:
            if is_aggregate(node, self._aggregated):
                raise TypeProblem(f"GROUP BY has an aggregate function: {title(node)}")
        return nodes

    def _item(self, item: Node, compiler: Compiler) -> Typed:
        if not isinstance(item, Aliased):
            return plain_condition(compiler.compile(item))
        with self._inside_of(item.alias):
            return plain_condition(compiler.compile(item.node))

    def _with_array_joins(self) -> TableExpression | None:
        """Return FROM with an ARRAY JOIN for each different `arrayJoin(x)` of the query."""
        select = self._select
        roots = [*select.items, *select.group_by, *(x.node for x in select.order_by)]
        roots += present(select.where, select.prewhere, select.having)
        source = select.source
        for root in roots:
            for call in calls_in(root, "arrayJoin"):
                if call not in self._joined and len(call.arguments) == 1:
                    self._joined[call] = f" joined{len(self._joined)}"
                    item = Aliased(call.arguments[0], self._joined[call])
                    source = ArrayJoin(source or Derived(_ONE_ROW), (item,))
        return source

    def _sql(
        self,
        items: Sequence[Node],
        values: Sequence[Typed],
        keys: GroupKeys | None,
        compiler: Compiler,
    ) -> str:
        select = self._select
        pieces = self._from(self._where())
        if keys is not None:  # also without keys: `toTypeName(sum(x))` needs no row, and is one
            pieces.append(group_by_sql(keys, select.group_modifier))
        left = ["count(*) > 0"] if keys and select.group_modifier else []  # no sum of no rows
        if select.having is not None:
            if keys is None:
                raise UserError("HAVING without GROUP BY and aggregate functions; write WHERE")
            left.append(condition(compiler.compile(select.having)))
        if left:
            pieces.append(f"HAVING {' AND '.join(left)}")
        tests = [condition(compiler.compile(node)) for node in present(select.qualify)]
        steps, order = has_steps(select), list[str]()
        if not steps:
            order = order_by(select, items, compiler)
            tests += limit_tests(select, limit_by(select, items, compiler), compiler, order)
        pieces += qualify_sql(tests)
        tail = " ".join(pieces)
        ordered = [replace(x, node=at_place(x.node, items)) for x in select.order_by]
        fill = filled(ordered, items, compiler)
        if fill is not None:
            if steps or select.with_ties:
                raise NotImplementedStatement(
                    "WITH FILL beside DISTINCT, WITH TIES, and QUALIFY with LIMIT BY"
                )
            inner = f"SELECT {listed_sql(values)}, {fill.column} {tail}"
            whole = fill.sql(inner, self.new_name(), [value.type for value in values])
            return whole + limit_sql(select, compiler)
        if steps:
            whole, order = in_steps(select, items, values, compiler, tail)
        else:
            whole = f"SELECT {listed_sql(values)} {tail}"
        if order:
            whole += f" ORDER BY {', '.join(order)}"
        return whole + limit_sql(select, compiler)
