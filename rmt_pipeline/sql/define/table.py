"""Checks a CREATE TABLE and makes a TableDefinition of it, with its keys: ORDER BY, PRIMARY KEY,
PARTITION BY and SAMPLE BY.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmt_pipeline.compute.rows.computed import check_constant_default
from rmt_pipeline.compute.rows.defaults import DefaultExpressions
from rmt_pipeline.protocol.errors import (
    BadTtl,
    BadTypeOfField,
    DuplicateColumn,
    IllegalColumn,
    IllegalIndex,
    UserError,
)
from rmt_pipeline.protocol.nodes.metadata import INDEX_GRANULARITY
from rmt_pipeline.protocol.settings.setting import checked
from rmt_pipeline.protocol.settings.table import TableSettings, find_table_setting
from rmt_pipeline.protocol.table import Column, TableDefinition
from rmt_pipeline.replica.alter.check import check_constraint, check_expiring
from rmt_pipeline.sql.define.engine import engine_of, modern
from rmt_pipeline.syntax.lexer import excerpt
from rmt_pipeline.syntax.nodes import Call, Node
from rmt_pipeline.syntax.settings import Settings
from rmt_pipeline.syntax.special_forms import cast_node
from rmt_pipeline.syntax.statements.definition import (
    ColumnSyntax,
    ConstraintSyntax,
    IndexSyntax,
    TableSyntax,
)
from rmt_pipeline.syntax.statements.nodes import TableName
from rmt_pipeline.syntax.types import parse_type
from rmt_pipeline.translate.expression import Expression, SessionValues, compile_node
from rmt_pipeline.translate.ttl import column_ttl, table_ttl, ttl_text
from rmt_pipeline.types.data_type import DataType
from rmt_pipeline.types.escapes import quote_name

_CODECS = frozenset(
    ("NONE", "LZ4", "LZ4HC", "ZSTD", "DELTA", "DOUBLEDELTA", "GORILLA", "T64", "FPC", "GCD")
) | {"DEFAULT"}


def define_table(
    table: TableName,
    syntax: TableSyntax,
    database: str,
    *,
    flatten_nested: bool = True,
    session: SessionValues = (),
) -> TableDefinition:
    """Return the definition of a table, without making the table. Expressions and types become
    canonical text; macros are not expanded.

    `database` is the session's, and `session` has the answers of functions about the session, for
    the engine's path. With `flatten_nested` a column of type Nested becomes one for each element.
    Raises a UserError that names the column, type, key, engine or setting that is wrong.
    """
    syntax = modern(syntax, session)
    settings = _settings(syntax.settings)
    if flatten_nested:
        syntax = replace(syntax, columns=_flat(syntax.columns))
    columns = _columns(syntax.columns)
    stored = [each for each in columns if each.is_stored]
    keys = keys_of(syntax, stored, TableSettings.of(dict(settings)))
    engine = engine_of(syntax, stored, keys.columns, session)
    return TableDefinition(
        database=table.database or database,
        name=table.name,
        columns=_with_ttl(columns, syntax.columns, stored, keys.columns | engine.columns),
        engine=engine,
        order_by=keys.order_by,
        partition_by=keys.partition_by,
        primary_key=keys.primary_key,
        sample_by=keys.sample_by,
        ttl=ttl_text(table_ttl(syntax.ttl, stored)),
        comment=syntax.comment,
        settings=settings,
        indices=index_texts(syntax.indices, stored),
        projections=tuple(f"{quote_name(p.name)} ({p.query})" for p in syntax.projections),
        constraints=constraint_texts(syntax.constraints, stored),
    )


INDEX_KINDS = (
    "minmax", "set", "bloom_filter", "ngrambf_v1", "tokenbf_v1", "sparse_grams", "hypothesis",
    "text", "gin", "full_text", "inverted", "vector_similarity", "annoy", "usearch",
)  # fmt: skip
"""The original's types of indices, of all its versions."""


class UnknownIndexType(UserError):
    """`INDEX … TYPE` is followed by none that the original has."""

    code = "INCORRECT_QUERY"


def index_texts(given: Sequence[IndexSyntax], columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the canonical texts of indices. Raises UnknownColumn; IllegalIndex for a repeated
    name.
    """
    texts: dict[str, str] = {}
    for one in given:
        if one.name in texts:
            raise IllegalIndex(f"the index {one.name} is declared twice")
        if one.type.partition("(")[0].strip().lower() not in INDEX_KINDS:
            known = ", ".join(INDEX_KINDS)
            raise UnknownIndexType(
                f"INDEX {one.name} has the type {one.type}; there are: {known}"
            )
        is_list = isinstance(one.expression, Call) and one.expression.name == "tuple"
        nodes = one.expression.arguments if is_list and isinstance(one.expression, Call) else ()
        found = [compile_node(node, columns).stored for node in nodes or (one.expression,)]
        text = f"({', '.join(found)})" if nodes else found[0]
        name = quote_name(one.name)
        texts[one.name] = f"{name} {text} TYPE {one.type} GRANULARITY {one.granularity}"
    return tuple(texts.values())


def constraint_texts(
    given: Sequence[ConstraintSyntax], columns: Sequence[Column]
) -> tuple[str, ...]:
    """Return the canonical texts of constraints. Raises UnknownColumn, BadTypeOfField; UserError
    for a repeated name.
    """
    texts: dict[str, str] = {}
    for one in given:
        if one.name in texts:
            raise UserError(f"the constraint {one.name} is declared twice")
        found = compile_node(one.expression, columns)
        check_constraint(one.name, found)
        texts[one.name] = f"{quote_name(one.name)} {one.kind} {found.stored}"
    return tuple(texts.values())


def _settings(given: Settings) -> Settings:
    """Return the settings by their own names. Raises a UserError for an unknown one or
    a bad value.
    """
    found = checked(given, find_table_setting)
    if found.get("index_granularity") == str(INDEX_GRANULARITY):
        del found["index_granularity"]  # the default, which SHOW CREATE always shows
    return tuple(found.items())


def _columns(given: Sequence[ColumnSyntax]) -> tuple[Column, ...]:
    if not given:
        raise UserError("a table has at least one column")
    _refuse_twins(given)
    # A default may use columns that are declared after it, but only those with a type of their own.
    typed = tuple(
        _typed(column.name, column.type, nullable=column.nullable)
        for column in given
        if column.type is not None
    )
    columns = tuple(column_of(column, typed) for column in given)
    if not any(column.is_stored for column in columns):
        raise UserError("a table has at least one column that is stored")
    computed = [c.name for c in columns if c.default and c.default_kind != "ALIAS"]
    DefaultExpressions(columns).in_order(computed)  # raises if they depend on each other
    for column in columns:
        if column.default:
            check_constant_default(column, columns)
    return columns


def _refuse_twins(given: Sequence[ColumnSyntax]) -> None:
    names = [column.name for column in given]
    twins = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twins:
        raise DuplicateColumn(f"column {twins[0]} is declared {names.count(twins[0])} times")


def _flat(given: Sequence[ColumnSyntax]) -> tuple[ColumnSyntax, ...]:
    _refuse_twins(given)
    return tuple(flat for column in given for flat in flattened(column))


def flattened(column: ColumnSyntax) -> list[ColumnSyntax]:
    """Return the columns that a column of type `Nested(a T, …)` stands for, `n.a Array(T)`; else
    the column. Raises BadTypeOfField for a Nested with a default.
    """
    if column.type is None or not column.type.is_nested:
        return [column]
    if column.default_kind:
        raise BadTypeOfField(
            f"column {column.name} is {column.type}, which has no {column.default_kind}: write its "
            f"columns one by one, as in `{column.name}.a` Array(T) {column.default_kind} …"
        )
    [element] = column.type.elements
    return [
        replace(column, name=f"{column.name}.{name}", type=DataType("Array", elements=(kind,)))
        for name, kind in zip(element.names, element.elements, strict=True)
    ]


def _typed(name: str, data_type: DataType, *, nullable: bool | None) -> Column:
    if nullable and not data_type.nullable:
        data_type = parse_type(f"Nullable({data_type})")
    if nullable is False and data_type.nullable:
        raise BadTypeOfField(f"column {name} is {data_type} and NOT NULL")
    return Column(name, data_type.text)


def column_of(column: ColumnSyntax, typed: Sequence[Column]) -> Column:
    """Return the checked column, without its TTL. `typed` are the columns that its
    default may use.
    """
    default, default_type = "", ""
    if column.default is not None:
        compiled = compile_node(column.default, typed, allow_nondeterministic=True)
        default, default_type = compiled.stored, compiled.type.text
        if column.name in compiled.columns_used:
            raise UserError(f"the default of column {column.name} uses the column itself")
    data_type = default_type
    if column.type is not None:
        data_type = _typed(column.name, column.type, nullable=column.nullable).type
        if column.default is not None and default_type != data_type:
            # Raises if the default can't be cast to the column's type.
            cast = cast_node(column.default, parse_type(data_type))
            compile_node(cast, typed, allow_nondeterministic=True)
    if not data_type:
        raise UserError(f"column {column.name} needs a type: it has no default that has one")
    return Column(
        column.name,
        data_type,
        default_kind=column.default_kind,
        default=default,
        comment=column.comment,
        codec=_codec(column),
    )


def _with_ttl(
    columns: Sequence[Column],
    given: Sequence[ColumnSyntax],
    stored: Sequence[Column],
    in_use: frozenset[str],
) -> tuple[Column, ...]:
    """Return the columns with the canonical text of their TTL. Those in `in_use` can have none.
    Raises BadTtl, IllegalColumn.
    """
    found = []
    for column, syntax in zip(columns, given, strict=True):
        if syntax.ttl is None:
            found.append(column)
            continue
        if column not in stored:
            raise BadTtl(f"column {column.name} is not stored: its values can't expire")
        rule = column_ttl(column.name, syntax.ttl, stored, in_use)
        found.append(replace(column, ttl=rule.text))
        check_expiring(found[-1])
    return tuple(found)


def _codec(column: ColumnSyntax) -> str:
    for codec in column.codec.split(","):
        name = codec.split("(")[0].strip()
        if column.codec and name.upper() not in _CODECS:
            raise UserError(f"column {column.name}: there is no codec {excerpt(name)}")
    return column.codec


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The canonical texts of a table's keys. `primary_key` is None if it is the sorting key."""

    order_by: tuple[str, ...]
    partition_by: tuple[str, ...]
    primary_key: tuple[str, ...] | None
    sample_by: str
    columns: frozenset[str]
    """The columns that ORDER BY and PARTITION BY use."""


def keys_of(
    syntax: TableSyntax, columns: Sequence[Column], settings: TableSettings
) -> TableKeys:
    """Return the keys of a table. Raises UnknownColumn, UnknownFunction, SyntaxProblem,
    IllegalColumn, BadTypeOfField.

    A table without ORDER BY is a UserError, so that it can't be forgotten: `ORDER BY tuple()` keeps
    rows unsorted.
    """
    given = syntax.order_by if syntax.order_by is not None else syntax.primary_key
    if given is None:
        raise UserError("ORDER BY is missing; to keep rows unsorted write ORDER BY tuple()")
    order_by = _key("ORDER BY", given, columns, settings)
    partition_by = _key("PARTITION BY", syntax.partition_by or (), columns, settings)
    for expression in partition_by:
        if expression.type.is_float:
            raise BadTypeOfField(
                f"PARTITION BY {expression.canonical} is {expression.type}: a float makes no"
                " partitions, round it to an integer"
            )
    primary_key = None
    if syntax.primary_key is not None:
        primary_key = _primary_key(
            _key("PRIMARY KEY", syntax.primary_key, columns, settings), order_by
        )
    sample_by = _sample_by(syntax.sample_by, columns, primary_key or _texts(order_by))
    used = frozenset(name for each in (*order_by, *partition_by) for name in each.columns_used)
    return TableKeys(_texts(order_by), _texts(partition_by), primary_key, sample_by, used)


def _key(
    clause: str, nodes: Sequence[Node], columns: Sequence[Column], settings: TableSettings
) -> list[Expression]:
    found = []
    for node in nodes:
        expression = compile_node(node, columns)
        if expression.is_constant:
            raise IllegalColumn(f"{clause} {expression.canonical} uses no column of the table")
        if not expression.type.is_comparable:
            raise BadTypeOfField(
                f"{clause} {expression.canonical} is {expression.type}, which has no order"
            )
        if expression.type.nullable and not settings.allow_nullable_key:
            raise IllegalColumn(
                f"{clause} {expression.canonical} is {expression.type}: a key is not Nullable,"
                " unless SETTINGS allow_nullable_key = 1"
            )
        found.append(expression)
    return found


def _primary_key(key: Sequence[Expression], order_by: Sequence[Expression]) -> tuple[str, ...]:
    texts = _texts(key)
    if texts != _texts(order_by)[: len(texts)]:
        raise UserError(
            f"PRIMARY KEY ({', '.join(texts)}) must be a prefix of ORDER BY"
            f" ({', '.join(_texts(order_by))})"
        )
    return texts


def _sample_by(node: Node | None, columns: Sequence[Column], primary_key: Sequence[str]) -> str:
    if node is None:
        return ""
    expression = compile_node(node, columns)
    if not expression.type.is_integer or expression.type.is_signed:
        raise BadTypeOfField(
            f"SAMPLE BY {expression.canonical} is {expression.type}; it must be unsigned"
        )
    if expression.canonical not in primary_key:
        raise UserError(
            f"SAMPLE BY {expression.canonical} must be in the primary key"
            f" ({', '.join(primary_key)})"
        )
    return expression.stored


def _texts(key: Sequence[Expression]) -> tuple[str, ...]:
    return tuple(expression.stored for expression in key)
