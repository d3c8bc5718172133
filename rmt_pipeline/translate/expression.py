"""Compiles ClickHouse expressions over a table's columns to DuckDB SQL with ClickHouse types: keys,
defaults, TTL and mutations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rmt_pipeline.protocol.errors import SyntaxProblem, UserError
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.expression import parse_expression, stored_text
from rmt_pipeline.syntax.nodes import Call, Name, Node, walk
from rmt_pipeline.syntax.types import NamedType, parse_type
from rmt_pipeline.translate.base.function import condition
from rmt_pipeline.translate.base.typed import Typed, column, to_stored
from rmt_pipeline.translate.compiler import Compiler
from rmt_pipeline.translate.functions.registry import find_function
from rmt_pipeline.translate.names import unknown_column, with_elements
from rmt_pipeline.types.data_type import DataType

SessionValues = tuple[tuple[str, str], ...]
"""The names of functions about the session, and their answers."""


@dataclass(frozen=True)
class Expression:
    """A checked expression over the columns of a table.

    `duckdb_sql` gives the stored form of `type` (see `data_type`) over a relation with the table's
    columns by name, in their stored forms. `condition_sql` is the same as a BOOLEAN, for WHERE, and
    "" if the expression is no condition. `canonical` is its canonical ClickHouse text; compiling
    that gives an equal Expression. `node` is its parsed form.
    """

    duckdb_sql: str
    condition_sql: str
    type: DataType
    columns_used: tuple[str, ...]
    canonical: str
    is_plain_column: bool
    is_constant: bool
    node: Node
    source_zone: str | None  # the zone of the only column used, if that is a Date or DateTime

    def __str__(self) -> str:
        return self.canonical

    @property
    def stored(self) -> str:
        """`canonical` for a definition that replicas read. Raises NotReadBack."""
        return stored_text(self.node)


def compile_expression(
    text: str, columns: Sequence[NamedType], *, allow_nondeterministic: bool = False
) -> Expression:
    """Parse `text` and compile it as `compile_node` does. For definitions, which are stored as
    text.
    """
    known = tuple((each.name, each.type) for each in columns)
    try:
        return _compiled_text(text, known, allow_nondeterministic)
    except RecursionError:
        raise SyntaxProblem(f"the expression is nested too deeply: {text[:100]!r}...") from None


def compile_node(
    node: Node,
    columns: Sequence[NamedType],
    *,
    allow_nondeterministic: bool = False,
    session: SessionValues = (),
) -> Expression:
    """Compile an expression after checking it against the columns and the allow-list. `session` has
    the answers of functions about the session, which stored expressions can't have.

    Raises a UserError: SyntaxProblem, UnknownColumn (with close names), UnknownFunction,
    NotImplementedStatement (subqueries), or what is wrong with types and arguments. Nothing is
    evaluated. Results are cached.
    """
    known = tuple((each.name, each.type) for each in columns)
    try:
        return _compiled(node, known, allow_nondeterministic, session)
    except RecursionError:
        raise SyntaxProblem("an expression is nested too deeply") from None


@lru_cache(maxsize=2048)
def is_deterministic(text: str) -> bool:
    """Whether an expression gives the same answer each time for the same row."""
    calls = (node for node in walk(parse_expression(text)) if isinstance(node, Call))
    found = (find_function(call.name) for call in calls)
    return all(function is None or function.deterministic for function in found)


@lru_cache(maxsize=2048)
def _compiled_text(
    text: str, columns: tuple[tuple[str, str], ...], allow_nondeterministic: bool
) -> Expression:
    return _compiled(parse_expression(text), columns, allow_nondeterministic, ())


@lru_cache(maxsize=2048)
def _compiled(
    node: Node,
    columns: tuple[tuple[str, str], ...],
    allow_nondeterministic: bool,
    session: SessionValues,
) -> Expression:
    types = dict(columns)
    used: dict[str, None] = {}

    def lookup(parts: tuple[str, ...]) -> Typed:
        whole = ".".join(parts)
        for name, rest in ((whole, ()), (parts[0], parts[1:])):
            if name in types:
                used[name] = None
                return with_elements(column(name, parse_type(types[name])), rest)
        raise unknown_column(parts, types)

    compiler = Compiler(lookup, nondeterministic=allow_nondeterministic, session=dict(session))
    try:
        typed = compiler.compile(node)
    except UserError as problem:
        text = canonical(node)
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        if shown in str(problem):
            raise
        raise type(problem)(f"{problem} (in the expression {shown})") from None
    source = parse_type(types[next(iter(used))]).plain if len(used) == 1 else None
    plain = source is not None and source.family in {"Date", "DateTime"}
    zone = source.zone if source is not None and plain else None
    return _expression(node, typed, tuple(used), zone)


def _expression(
    node: Node, typed: Typed, used: tuple[str, ...], source_zone: str | None
) -> Expression:
    try:
        condition_sql = condition(typed)
    except UserError:
        condition_sql = ""
    return Expression(
        duckdb_sql=to_stored(typed),
        condition_sql=condition_sql,
        type=typed.type,
        columns_used=used,
        canonical=canonical(node),
        is_plain_column=isinstance(node, Name) and used == (".".join(node.parts),),
        is_constant=not used,
        node=node,
        source_zone=source_zone,
    )
