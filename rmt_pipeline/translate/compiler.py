"""Compiles the nodes of an expression to typed DuckDB SQL. Only functions of the allow-list
compile.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from rmt_pipeline.protocol.errors import NotImplementedStatement, UserError
from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.nodes import (
    Aliased,
    Call,
    ColumnsMatcher,
    Lambda,
    Literal,
    Name,
    Node,
    OrderItem,
    Query,
    Star,
    Subquery,
    WindowSpec,
)
from rmt_pipeline.translate.base.casts import plain_condition
from rmt_pipeline.translate.base.function import Function, WrongArguments, true_or_false
from rmt_pipeline.translate.base.typed import (
    BOOL,
    FLOAT64,
    NULL_TYPE,
    STRING,
    UINT8,
    Constant,
    Typed,
    TypeProblem,
    number_sql,
    parameter,
    string_sql,
)
from rmt_pipeline.translate.functions.aggregate import build_aggregate
from rmt_pipeline.translate.functions.aggregate_call import Aggregate, AggregateCall
from rmt_pipeline.translate.functions.lambdas import HIGHER_ORDER, Applied, parameters_for
from rmt_pipeline.translate.functions.membership import (
    are_members,
    member_of_list,
    member_of_query,
    member_of_value,
)
from rmt_pipeline.translate.functions.registry import (
    SEES_NULL,
    find_aggregate,
    find_function,
    real_name,
    unknown_function,
)
from rmt_pipeline.translate.names import with_elements
from rmt_pipeline.translate.ordering import order_terms
from rmt_pipeline.types.data_type import DataType

# Literals.


def _literal(node: Literal) -> Typed:
    value = node.value
    if value is None:
        return Typed("NULL", NULL_TYPE, Constant(None))
    if isinstance(value, bool):
        return Typed("true" if value else "false", BOOL, Constant(value))
    if isinstance(value, str):
        return Typed(literal_string(value), STRING, Constant(value))
    if isinstance(value, float):
        return Typed(number_sql(value), FLOAT64, Constant(value))
    return Typed(number_sql(value), integer_type(value), Constant(value))


def literal_string(text: str) -> str:
    """Return SQL of a string literal. Bytes that are not UTF-8 become a BLOB, which only
    FixedString takes.
    """
    try:
        return string_sql(text)
    except UserError:
        data = text.encode("utf-8", "surrogateescape").hex()
        return f"decode(from_hex('{data}'))"


def integer_type(value: int) -> DataType:
    """Return the narrowest type that holds the number, which is the type of a literal in the
    original.
    """
    for bits in (8, 16, 32, 64):
        if 0 <= value < 1 << bits:
            return DataType(f"UInt{bits}")
        if value < 0 and value >= -(1 << (bits - 1)):
            return DataType(f"Int{bits}")
    raise AssertionError(f"the parser makes no integer {value}")


Lookup = Callable[[tuple[str, ...]], Typed]


class Queries(Protocol):
    """Compiles the subqueries of an expression."""

    def scalar(self, query: Query) -> Typed:
        """Return a query of one column and at most one row as a value."""
        ...

    def members(self, query: Query) -> tuple[str, list[DataType]]:
        """Return SQL of a query whose rows are the members of a set, and the types of
        its columns.
        """
        ...

    def exists(self, query: Query) -> str: ...


@dataclass(frozen=True)
class Compiler:
    """Compiles one expression. Immutable: an inner expression is compiled by a changed copy.

    `aggregates` is the reason why aggregate functions are refused, "" if they are allowed;
    `windows` is the same for functions OVER a window. `bound` has the values of nodes that need not
    be compiled, such as the keys of GROUP BY. `inside` and `inside_bound` take the place of
    `lookup` and `bound` in the arguments of aggregate functions. `named_windows` are those of the
    WINDOW clause, `variables` the parameters of lambdas, `session` the answers of functions about
    the session, by their names.
    """

    lookup: Lookup
    aggregates: str = "an aggregate function has no place in this expression"
    windows: str = "a window function has no place in this expression"
    nondeterministic: bool = False
    queries: Queries | None = None
    named_windows: Mapping[str, WindowSpec] = field(default_factory=dict)
    variables: Mapping[str, Typed] = field(default_factory=dict)
    bound: Mapping[Node, Typed] = field(default_factory=dict)
    session: Mapping[str, str] = field(default_factory=dict)
    inside: Lookup | None = None
    inside_bound: Mapping[Node, Typed] = field(default_factory=dict)

    def compile(self, node: Node) -> Typed:
        """Compile a node. Raises a UserError, which names the part of the expression
        that is wrong.
        """
        known = self.bound.get(node) if self.bound else None
        if known is not None:
            return known
        match node:
            case Literal():
                return _literal(node)
            case Name():
                return self._name(node)
            case Call():
                return self._call(node)
            case Aliased():
                return self.compile(node.node)
            case Subquery():
                return self._queries().scalar(node.query)
            case Lambda():
                raise TypeProblem(f"a lambda has no place here: {canonical(node)}")
            case Star() | ColumnsMatcher():
                raise TypeProblem(f"{canonical(node)} has no place in an expression")

    def _queries(self) -> Queries:
        if self.queries is None:
            raise NotImplementedStatement("a subquery has no place in this expression")
        return self.queries

    def _name(self, name: Name) -> Typed:
        variable = self.variables.get(name.parts[0])
        if variable is None:
            return self.lookup(name.parts)
        return with_elements(variable, name.parts[1:])

    def _call(self, call: Call) -> Typed:
        name = real_name(call.name)
        if call.over is None and not call.parameters:
            found = find_function(name)
            is_lambda = bool(call.arguments) and isinstance(call.arguments[0], Lambda)
            if is_lambda and name in HIGHER_ORDER:
                return self._higher_order(name, call)
            if name in {"in", "notIn"}:
                return self._in(call, negated=name == "notIn")
            if name == "exists":
                return self._exists(call)
            if found is not None:
                return self._scalar(found, call)
        aggregate = find_aggregate(name)
        if aggregate is None:
            raise unknown_function(call.name)
        refusal = self.aggregates if call.over is None else self.windows
        if refusal:
            raise TypeProblem(f"{refusal}: {canonical(call)}")
        return self._aggregate(call, *aggregate)

    def _scalar(self, found: Function, call: Call) -> Typed:
        if not (found.deterministic or self.nondeterministic):
            raise NotDeterministic(
                f"{canonical(call)} gives another answer each time; replicas would differ. "
                "Use a constant"
            )
        count = len(call.arguments)
        if not found.least <= count <= found.most:
            wanted = str(found.least)
            if found.most > found.least:
                wanted += f" to {found.most}" if found.most < 100 else " or more"
            raise WrongArguments(
                f"{call.name} takes {wanted} arguments, not {count}: {canonical(call)}"
            )
        if found.windowed and self.windows:
            raise TypeProblem(f"{self.windows}: {canonical(call)}")
        if found.name in self.session:
            said = _literal(Literal(self.session[found.name]))
            return located(call, lambda: found.build([said]))
        inner = self._inside_of_window(call.name) if found.windowed else self
        arguments = [inner.compile(each) for each in call.arguments]
        if found.name not in SEES_NULL and any(each.is_null_literal for each in arguments):
            return _literal(Literal(None))
        return located(call, lambda: found.build(arguments))

    def _exists(self, call: Call) -> Typed:
        if len(call.arguments) != 1 or not isinstance(call.arguments[0], Subquery):
            raise WrongArguments(f"exists takes a query: {canonical(call)}")
        sql = self._queries().exists(call.arguments[0].query)
        return Typed(sql, UINT8, is_condition=True)

    # Lambdas.

    def _higher_order(self, name: str, call: Call) -> Typed:
        function = call.arguments[0]
        assert isinstance(function, Lambda)
        arrays = [self.compile(each) for each in call.arguments[1:]]
        variable = parameter(len(self.variables))

        def build() -> Typed:
            count = len(function.parameters)
            values = parameters_for(arrays, count, variable, name)
            variables = dict(self.variables) | dict(
                zip(function.parameters, values, strict=True)
            )
            reason = "no aggregates inside of a lambda"
            body = replace(self, variables=variables, aggregates=reason).compile(function.body)
            return HIGHER_ORDER[name](Applied(arrays, body, variable, by_place=count > 1))

        return located(call, build)

    def _in(self, call: Call, *, negated: bool) -> Typed:
        if len(call.arguments) != 2:
            raise WrongArguments(f"IN takes a value and a set: {canonical(call)}")
        value = plain_condition(self.compile(call.arguments[0]))
        found = located(call, lambda: self._member(value, call.arguments[1]))
        return true_or_false(f"(NOT {found.sql})", found) if negated else found

    def _member(self, value: Typed, members: Node) -> Typed:
        if isinstance(members, Subquery):
            return member_of_query(value, *self._queries().members(members.query))
        if not (isinstance(members, Call) and members.name in {"tuple", "array"}):
            return member_of_value(value, self.compile(members))
        elements = [self.compile(each) for each in members.arguments]
        if value.plain.family == "Tuple" and not are_members(elements, value):
            elements = [self.compile(members)]  # in `(a, b) IN (1, 2)` the list is one pair
        return member_of_list(value, elements)

    # Aggregates and windows.

    def _aggregate(
        self, call: Call, aggregate: Aggregate, combinators: tuple[str, ...]
    ) -> Typed:
        nodes = call.arguments
        if aggregate.name == "count" and len(nodes) == 1 and isinstance(nodes[0], Star):
            nodes = ()
        reason = "an aggregate function inside of another one"
        inner = self._inside_of_window(call.name)
        if call.over is None:
            inner = replace(
                self,
                aggregates=reason,
                windows="a window function inside of an aggregate function",
                lookup=self.inside or self.lookup,
                bound=self.inside_bound,
            )
        made = AggregateCall(
            name=call.name,
            arguments=[inner.compile(each) for each in nodes],
            parameters=[self.compile(each) for each in call.parameters],
            over=self._over(call.over) if call.over is not None else "",
        )
        return located(call, lambda: build_aggregate(aggregate, combinators, made))

    def _inside_of_window(self, name: str) -> "Compiler":
        refusal = f"a window function inside of {name}; compute it in a subquery first"
        return replace(self, windows=refusal)

    def _over(self, spec: WindowSpec) -> str:
        partition, order, frame = self.window_parts(spec, depth=0)
        pieces = []
        if partition:
            pieces.append(f"PARTITION BY {', '.join(partition)}")
        if order:
            pieces.append(f"ORDER BY {', '.join(order)}")
        if frame:
            pieces.append(frame)
        return f" OVER ({' '.join(pieces)})"

    def window_parts(self, spec: WindowSpec, depth: int) -> tuple[list[str], list[str], str]:
        partition: list[str] = []
        order: list[str] = []
        frame = ""
        if spec.base:
            base = self.named_windows.get(spec.base)
            if base is None or depth > 8:
                raise UserError(f"there is no window {spec.base!r} in the WINDOW clause")
            partition, order, frame = self.window_parts(base, depth + 1)
        partition = [
            plain_condition(self.compile(each)).sql for each in spec.partition_by
        ] or partition
        order = self._order_terms(spec.order_by) or order
        return partition, order, spec.frame or frame

    def _order_terms(self, items: Iterable[OrderItem]) -> list[str]:
        terms: list[str] = []
        for item in items:
            terms += order_terms(self.compile(item.node), item, of_window=True)
        return terms


class NotDeterministic(UserError):
    """The function gives another answer each time, but a stored expression must give the same
    answer on every replica, at any time.
    """

    code = "BAD_ARGUMENTS"


def located(call: Call, build: Callable[[], Typed]) -> Typed:
    """Return what `build` returns. Its UserError gets the text of the call, unless it
    names a part.
    """
    try:
        return build()
    except UserError as problem:
        text = canonical(call)
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        message = str(problem)
        if ", in " in message:
            raise  # an inner part has been named already
        raise type(problem)(f"{message}, in {shown}") from None
