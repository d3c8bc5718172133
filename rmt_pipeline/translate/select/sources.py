"""Compiles FROM: tables, subqueries and joins become DuckDB relations with fields.

Each relation gets a name of its own (`t1`, `t2`, ...), so that it can't clash with a user's name.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rmt_pipeline.protocol.errors import (
    NotImplementedStatement,
    UnknownColumn,
    UnknownFunction,
    UserError,
)
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import (
    Aliased,
    ArrayJoin,
    Call,
    Derived,
    Join,
    JoinKind,
    Literal,
    Name,
    NamedTable,
    Node,
    Query,
    TableExpression,
    TableFunction,
)
from rmt_pipeline.syntax.special_forms import cast_node
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.base.casts import convert
from rmt_pipeline.translate.base.supertypes import NoCommonType, least_supertype
from rmt_pipeline.translate.base.typed import (
    ELEMENT,
    UINT64,
    Typed,
    TypeProblem,
    column,
    from_stored,
    nullable_type,
    struct_sql,
    to_stored,
)
from rmt_pipeline.translate.functions.array import of_one_length, stored_default
from rmt_pipeline.translate.functions.comparison import compare
from rmt_pipeline.translate.select.titles import title
from rmt_pipeline.types.data_type import NESTED_NAMES, DataType
from rmt_pipeline.types.escapes import duckdb_column

MATCHED = "rmt_matched"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table of a query in DuckDB. `sql` can be used in FROM (a quoted name, a query in
    parentheses) and gives the stored forms of `columns` by their names in DuckDB
    (`escapes.told_apart`). It need not have the columns of kind ALIAS; MATERIALIZED and ALIAS
    columns are not in `*`.
    """

    sql: str
    columns: Sequence[Column]


Resolve = Callable[[NamedTable], Relation]
"""Returns the relation of a table in FROM, with its FINAL and SAMPLE applied. Raises UnknownTable,
UnknownDatabase.
"""


@dataclass(frozen=True, slots=True)
class Field:
    """A column that expressions can name. `qualifiers` are the ways to name its table before it.

    Of a key of USING there are three: one for both sides, without qualifiers, and each side's own,
    which only a name with its table means (`of_key`).
    """

    name: str
    value: Typed
    qualifiers: tuple[tuple[str, ...], ...] = ()
    in_star: bool = True
    of_key: bool = False


@dataclass(frozen=True, slots=True)
class From:
    """A compiled FROM: its SQL, and its fields in the order of `*`."""

    sql: str
    fields: tuple[Field, ...]


class Ambiguous(UserError):
    """Several of more than two tables of FROM have a column of this name; of two, the left one's is
    meant. The table must be written before it: `t.id`.
    """

    code = "AMBIGUOUS_IDENTIFIER"


class QueryScope(Protocol):
    """What compiling a FROM needs from the compiler of its SELECT."""

    def new_name(self) -> str: ...
    def relation(self, source: NamedTable) -> Relation | Query: ...
    def derived(self, query: Query) -> tuple[str, list[tuple[str, DataType]]]: ...
    def expression(self, node: Node, fields: Sequence[Field]) -> Typed: ...
    def condition(self, node: Node, fields: Sequence[Field]) -> str: ...


def compile_source(source: TableExpression | None, scope: QueryScope) -> From:
    """Compile FROM. Raises the original's errors for tables and columns that do not exist."""
    match source:
        case None:
            return From("", ())
        case NamedTable():
            return _table(source, scope)
        case Derived():
            return _derived(source.query, source.alias, scope)
        case TableFunction():
            return _table_function(source, scope)
        case Join():
            return _join(source, scope)
        case ArrayJoin():
            return _array_join(source, scope)


def _table(source: NamedTable, scope: QueryScope) -> From:
    found = scope.relation(source)
    if not isinstance(found, Relation):
        return _derived(found, source.alias or source.table, scope)
    name = scope.new_name()
    qualifiers: tuple[tuple[str, ...], ...] = ((source.alias or source.table,),)
    if not source.alias:
        qualifiers += ((source.database, source.table),) if source.database else ()
    stored = [each for each in found.columns if each.default_kind != "ALIAS"]
    fields = [
        Field(
            each.name,
            column(each.name, parse_type(each.type), f"{name}.{duckdb_column(each.name)}"),
            qualifiers,
            in_star=each.default_kind != "MATERIALIZED",
        )
        for each in stored
    ]
    for each in found.columns:
        if each.default_kind == "ALIAS":
            node = cast_node(parse_expression(each.default), parse_type(each.type))
            computed = scope.expression(node, fields)
            fields.append(Field(each.name, computed, qualifiers, in_star=False))
    return From(f"{found.sql} AS {name}", tuple(fields))


def _derived(query: Query, alias: str, scope: QueryScope) -> From:
    sql, columns = scope.derived(query)
    name = scope.new_name()
    qualifiers = ((alias,),) if alias else ()
    fields = tuple(
        Field(title_text, from_stored(f"{name}.c{place}", data_type), qualifiers)
        for place, (title_text, data_type) in enumerate(columns)
    )
    return From(f"({sql}) AS {name}", fields)


def _table_function(source: TableFunction, scope: QueryScope) -> From:
    if source.name not in {"numbers", "one"}:
        raise UnknownFunction(f"there is no table function {source.name!r}; there is numbers")
    arguments: list[int] = []
    for node in source.arguments:
        value = node.value if isinstance(node, Literal) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise TypeProblem("numbers takes constant whole numbers, as in numbers(10)")
        arguments.append(value)
    if not 1 <= len(arguments) <= 2:
        raise TypeProblem("numbers takes one or two whole numbers, as in numbers(10)")
    start, count = (0, arguments[0]) if len(arguments) == 1 else arguments
    name = scope.new_name()
    end = start + count
    numbers = f"SELECT CAST(range AS UBIGINT) AS number FROM range({start}, {end})"  # noqa: S608
    sql = f"({numbers}) AS {name}"
    value_field = Field(
        "number", Typed(f"{name}.number", UINT64), ((source.alias or "numbers",),)
    )
    return From(sql, (value_field,))


# Joins. If a row has no partner, the original fills in the types' defaults and not NULL.


def _join(join: Join, scope: QueryScope) -> From:
    left = compile_source(join.left, scope)
    right = compile_source(join.right, scope)
    if join.kind == "CROSS":
        return From(f"{left.sql} CROSS JOIN {right.sql}", left.fields + right.fields)
    if join.strictness in {"SEMI", "ANTI"}:
        return _semi_join(join, left, right, scope)
    keys = _keys(join, left, right, scope) if join.strictness == "ANY" else None
    if join.strictness == "ANY" and keys is None:
        return _any_join_on(join, left, right, scope)
    left = _flagged(left, scope) if join.kind in {"RIGHT", "FULL"} else left
    if keys is not None:
        right = _one_of_each(right, [own for _, own in keys], scope)
    elif join.kind in {"LEFT", "FULL"}:
        right = _flagged(right, scope)
    condition = _on(join, left, right, scope)
    asof = "ASOF " if join.strictness == "ASOF" else ""
    sql = f"{left.sql} {asof}{join.kind} JOIN {right.sql} ON {condition}"
    left_fields, right_fields = left.fields, right.fields
    if join.kind in {"LEFT", "FULL"}:
        right_fields = _with_defaults(right_fields)
    if join.kind in {"RIGHT", "FULL"}:
        left_fields = _with_defaults(left_fields)
    if not join.using:
        return From(sql, left_fields + right_fields)
    return From(sql, _merged(join, left_fields, right_fields, left.fields, right.fields))


def _keys(
    join: Join, left: From, right: From, scope: QueryScope
) -> list[tuple[Typed, Typed]] | None:
    """Return what must be equal on both sides; None if ON says more than that."""
    if join.on is None:
        return [
            (_field(name, left.fields).value, _field(name, right.fields).value)
            for name in join.using
        ]
    keys: list[tuple[Typed, Typed]] = []
    is_and = isinstance(join.on, Call) and join.on.name == "and"
    nodes = join.on.arguments if is_and and isinstance(join.on, Call) else (join.on,)
    for node in nodes:
        if not (isinstance(node, Call) and node.name == "equals"):
            return None
        pair = _sides(node.arguments, left, right, scope)
        pair = pair or _sides(node.arguments[::-1], left, right, scope)
        if pair is None:
            return None
        keys.append(pair)
    return keys


def _sides(
    nodes: Sequence[Node], left: From, right: From, scope: QueryScope
) -> tuple[Typed, Typed] | None:
    """Return the two expressions as values of the two sides; None if they are not."""
    try:
        pairs = zip(nodes, (left, right), strict=True)
        one, other = (scope.expression(node, side.fields) for node, side in pairs)
    except UserError:
        return None
    return one, other


def _flagged(side: From, scope: QueryScope) -> From:
    """Return the side as one relation, with a column MATCHED that is true, and NULL after an outer
    join in rows without a partner on this side.
    """
    name = scope.new_name()
    items = [f"{to_stored(each.value)} AS c{place}" for place, each in enumerate(side.fields)]
    fields = tuple(
        replace(each, value=from_stored(f"{name}.c{place}", each.value.type))
        for place, each in enumerate(side.fields)
    )
    items.append(f"true AS {MATCHED}")
    return From(_named(items, side.sql, name), fields)


def _named(items: list[str], source: str, name: str, distinct: str = "") -> str:
    """Return a subquery with a name. Its pieces are compiled; none has text that a user wrote."""
    return f"(SELECT {distinct}{', '.join(items)} FROM {source}) AS {name}"  # noqa: S608


def _relation_of(value: Typed) -> str:
    return (value.stored or value.sql).partition(".")[0]


def _with_defaults(fields: Iterable[Field]) -> tuple[Field, ...]:
    filled = []
    for each in fields:
        value = each.value
        if value.nullable:
            filled.append(each)
            continue
        name = _relation_of(value)
        stored = to_stored(value)
        sql = (
            f"(CASE WHEN {name}.{MATCHED} THEN {stored} ELSE {stored_default(value.type)} END)"
        )
        filled.append(replace(each, value=from_stored(sql, value.type)))
    return tuple(filled)


def _on(join: Join, left: From, right: From, scope: QueryScope) -> str:
    if join.on is not None:
        # A name without its table, which both sides have, is the left side's.
        others = (replace(each, in_star=False) for each in right.fields)
        return scope.condition(join.on, (*left.fields, *others))
    pairs = []
    for name in join.using:
        a, b = _field(name, left.fields), _field(name, right.fields)
        if a.value.plain == b.value.plain:
            pairs.append(f"({to_stored(a.value)} = {to_stored(b.value)})")
        else:
            pairs.append(compare("equals", a.value, b.value).sql)
    return " AND ".join(pairs)


def _field(name: str, fields: Iterable[Field]) -> Field:
    for each in fields:
        if each.name == name:
            return each
    raise UnknownColumn(f"USING: there is no column {name!r} on both sides of the JOIN")


def _merged(
    join: Join,
    left: tuple[Field, ...],
    right: tuple[Field, ...],
    left_raw: tuple[Field, ...],
    right_raw: tuple[Field, ...],
) -> tuple[Field, ...]:
    """Return the fields of a JOIN … USING. `*` has each key once, from the side that has the row,
    in a type that holds the keys of both sides; it is that side's own, too. `left_raw` and
    `right_raw` have no defaults for rows without a partner.
    """
    fields: list[Field] = []
    keys: dict[str, Typed] = {}
    for shown, raw in zip(left, left_raw, strict=True):
        own = shown
        if shown.name in join.using and not shown.of_key:
            value = _key_of_both(join.kind, raw.value, _field(shown.name, right_raw).value)
            keys[shown.name] = value
            fields.append(replace(shown, value=value, qualifiers=()))
            own = replace(shown, value=value) if join.kind in {"INNER", "LEFT"} else shown
        fields.append(replace(own, of_key=shown.of_key or shown.name in join.using))
    for shown in right:
        is_kept = join.kind == "RIGHT" and not shown.of_key
        value = keys.get(shown.name, shown.value) if is_kept else shown.value
        of_key = shown.of_key or shown.name in join.using
        fields.append(replace(shown, value=value, of_key=of_key))
    return tuple(fields)


def _key_of_both(kind: JoinKind, left: Typed, right: Typed) -> Typed:
    if left.plain == right.plain:
        is_nullable = left.nullable or right.nullable
        common = (
            left.type if left.type == right.type else nullable_type(left.plain, is_nullable)
        )
        sides = [left, right]
    else:
        try:
            common = least_supertype([left.type, right.type])
        except NoCommonType:
            if kind == "FULL":
                raise
            return right if kind == "RIGHT" else left
        sides = [convert(left, common), convert(right, common)]
    own, others = map(to_stored, sides)
    if kind == "FULL":
        own = f"(CASE WHEN {_relation_of(left)}.{MATCHED} THEN {own} ELSE {others} END)"
        return from_stored(own, common)
    kept = sides[kind == "RIGHT"]
    return kept if kept.type == common else from_stored(to_stored(kept), common)


def _semi_join(join: Join, left: From, right: From, scope: QueryScope) -> From:
    """Compile SEMI and ANTI JOIN. SEMI gives each row that has a partner, with the columns of one
    partner; ANTI gives each row that has none, with the defaults of the other side's types. RIGHT
    is LEFT with the sides exchanged. Raises NotImplementedStatement for FULL.
    """
    if join.kind == "FULL":
        raise NotImplementedStatement(f"FULL {join.strictness} JOIN is not supported")
    turned = join.kind == "RIGHT"
    kept, other = (right, left) if turned else (left, right)
    condition = _on(join, left, right, scope)
    if join.strictness == "ANTI":
        sql = f"{kept.sql} ANTI JOIN {other.sql} ON {condition}"
        fields = tuple(replace(each, value=_default_of(each.value)) for each in other.fields)
    else:
        partner, fields = _partner(other, condition, scope)
        sql = f"{kept.sql} CROSS JOIN LATERAL {partner}"
    left_fields, right_fields = (fields, kept.fields) if turned else (kept.fields, fields)
    if join.using:
        fields = _merged(join, left_fields, right_fields, left_fields, right_fields)
        return From(sql, fields)
    return From(sql, left_fields + right_fields)


def _partner(side: From, condition: str, scope: QueryScope) -> tuple[str, tuple[Field, ...]]:
    """Return SQL of one row of the side for which the condition holds, with MATCHED, and its
    fields.
    """
    flagged = _flagged(replace(side, sql=f"{side.sql} WHERE {condition} LIMIT 1"), scope)
    return flagged.sql, flagged.fields


def _any_join_on(join: Join, left: From, right: From, scope: QueryScope) -> From:
    """Compile an ANY JOIN whose ON says more than that keys are equal: each row of the left side
    has one partner at most. Raises NotImplementedStatement for RIGHT and FULL.
    """
    if join.kind in {"RIGHT", "FULL"}:
        raise NotImplementedStatement(
            f"{join.kind} ANY JOIN is supported with USING and with ON of equalities"
        )
    partner, fields = _partner(right, _on(join, left, right, scope), scope)
    if join.kind == "INNER":
        return From(f"{left.sql} CROSS JOIN LATERAL {partner}", left.fields + fields)
    sql = f"{left.sql} LEFT JOIN LATERAL {partner} ON true"
    return From(sql, left.fields + _with_defaults(fields))


def _default_of(value: Typed) -> Typed:
    return from_stored(stored_default(value.type), value.type)


def _one_of_each(side: From, keys: Iterable[Typed], scope: QueryScope) -> From:
    """Return a side of an ANY JOIN with one row for each key, `_flagged`."""
    name = scope.new_name()
    terms = ", ".join(map(to_stored, keys))
    items = [f"{to_stored(each.value)} AS c{place}" for place, each in enumerate(side.fields)]
    items.append(f"true AS {MATCHED}")
    sql = _named(items, side.sql, name, distinct=f"DISTINCT ON ({terms}) ")
    fields = tuple(
        replace(each, value=from_stored(f"{name}.c{place}", each.value.type))
        for place, each in enumerate(side.fields)
    )
    return From(sql, fields)


# ARRAY JOIN.


def _array_join(join: ArrayJoin, scope: QueryScope) -> From:
    left = compile_source(join.left, scope)
    name = scope.new_name()
    items = [f"{to_stored(each.value)} AS c{place}" for place, each in enumerate(left.fields)]
    added: list[Field] = []
    first = ""
    for place, node in enumerate(_arrays(join.items, left.fields)):
        inner = node.node if isinstance(node, Aliased) else node
        value = scope.expression(inner, left.fields)
        if value.plain.family != "Array":
            raise TypeProblem(f"ARRAY JOIN takes arrays, not {value.type.text}")
        element = value.plain.elements[0]
        sql = value.sql
        if join.keep_empty:
            sql = f"(CASE WHEN len({sql}) = 0 THEN [{stored_default(element)}] ELSE {sql} END)"
        sql = of_one_length(sql, first) if first else sql
        first = first or sql
        items.append(f"unnest({sql}) AS j{place}")
        added.append(Field(_name(node, left.fields), from_stored(f"{name}.j{place}", element)))
    replaced = {each.name: each for each in added}
    fields = []
    for place, each in enumerate(left.fields):
        kept = replace(each, value=from_stored(f"{name}.c{place}", each.value.type))
        joined = replaced.pop(each.name, None)
        fields.append(replace(kept, value=joined.value) if joined else kept)
    fields += [replace(each, in_star=False) for each in replaced.values()]
    return From(_named(items, left.sql, name), tuple(fields))


def _arrays(items: Iterable[Node], fields: Sequence[Field]) -> Iterator[Node]:
    """Yield the items, with the columns of a group of Nested in its place: `ARRAY JOIN n AS m`
    gives `m.a`.
    """
    for item in items:
        node = item.node if isinstance(item, Aliased) else item
        group = _group(".".join(node.parts), fields) if isinstance(node, Name) else {}
        if not group or any(each.name == title(node) for each in fields):
            yield item
            continue
        alias = item.alias if isinstance(item, Aliased) else title(node)
        for element, each in group.items():
            yield Aliased(Name((each.name,)), f"{alias}.{element}")


def _name(item: Node, fields: Iterable[Field]) -> str:
    """Return the name of a joined array's column. `n.a` is kept whole if a column has that name."""
    whole = ".".join(item.parts) if isinstance(item, Name) else ""
    return whole if any(each.name == whole for each in fields) else title(item)


def _group(name: str, fields: Iterable[Field]) -> dict[str, Field]:
    """Return the arrays of a group of Nested by the names of its elements; {} if there is no such
    group.
    """
    return {
        each.name.removeprefix(f"{name}."): each
        for each in fields
        if each.name.startswith(f"{name}.") and each.value.plain.family == "Array"
    }


def nested_column(name: str, fields: Iterable[Field]) -> Typed | None:
    """Return a group of Nested as an array of tuples; None if there is no such group."""
    group = _group(name, fields)
    if not group:
        return None
    kinds = tuple(each.value.plain.elements[0] for each in group.values())
    element = DataType("Tuple", elements=kinds, names=tuple(group))
    values = [to_stored(each.value) for each in group.values()]
    place = f"range(1, len({values[0]}) + 1)"
    struct = struct_sql(
        (name, f"list_extract({value}, {ELEMENT})")
        for name, value in zip(group, values, strict=True)
    )
    nested = DataType("Array", elements=(element,), names=NESTED_NAMES)
    return from_stored(f"list_transform({place}, lambda {ELEMENT}: {struct})", nested)


ONE = Relation("(SELECT CAST(0 AS UTINYINT) AS dummy)", (Column("dummy", "UInt8"),))
