"""ORDER BY, DISTINCT and LIMIT, and the tests that replace LIMIT ... BY in DuckDB."""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.nodes import Aliased, Literal, Name, Node, OrderItem, Select
from rmt_pipeline.translate.base.casts import plain_condition
from rmt_pipeline.translate.base.typed import Typed, TypeProblem, from_stored, to_stored
from rmt_pipeline.translate.compiler import Compiler
from rmt_pipeline.translate.ordering import order_terms
from rmt_pipeline.translate.select.items import bare
from rmt_pipeline.translate.select.titles import title


def at_place(node: Node, items: Sequence[Node]) -> Node:
    """Return the expression of the list that a number in GROUP BY or ORDER BY means; else the node.
    Raises UserError for a place that the list does not have.
    """
    if isinstance(node, Literal) and isinstance(node.value, int) and node.text:
        place = node.value
        if not 1 <= place <= len(items):
            raise UserError(f"there is no column {place} in a list of {len(items)}")
        return bare(items[place - 1])
    return node


def order_by(select: Select, items: Sequence[Node], compiler: Compiler) -> list[str]:
    """Return the terms of DuckDB's ORDER BY."""
    terms: list[str] = []
    for item in _ordered(select, items):
        terms += order_terms(compiler.compile(at_place(item.node, items)), item)
    return terms


def _ordered(select: Select, items: Sequence[Node]) -> Sequence[OrderItem]:
    if select.order_all:
        return [OrderItem(bare(each)) for each in items]
    return select.order_by


def listed_sql(values: Sequence[Typed]) -> str:
    """Return the list of SELECT, as c0, c1, ..."""
    return ", ".join(f"{to_stored(value)} AS c{n}" for n, value in enumerate(values))


class _NotListed(Exception):
    """A name is not in the list of SELECT."""


class _Inner:
    """The columns of a SELECT within another one: those of its list, and `others`, which ORDER BY
    and LIMIT BY of the outer one need beside them.
    """

    def __init__(
        self, items: Sequence[Node], values: Sequence[Typed], compiler: Compiler
    ) -> None:
        self.others: list[str] = []
        self._compiler = compiler
        bound: dict[Node, Typed] = {}
        for n, (item, value) in enumerate(zip(items, values, strict=True)):
            bound[bare(item)] = from_stored(f"c{n}", value.type)
            if isinstance(item, Aliased):
                bound[Name((item.alias,))] = bound[bare(item)]
        self.outer = Compiler(_not_listed, bound=bound, nondeterministic=True)

    def read(self, node: Node) -> Typed:
        """Return the value of an expression as the outer SELECT has it."""
        try:
            return self.outer.compile(node)
        except (_NotListed, TypeProblem):  # a column or an aggregate function beside the list
            beside = plain_condition(self._compiler.compile(node))
            name = f"o{len(self.others)}"
            self.others.append(f"{to_stored(beside)} AS {name}")
            return from_stored(name, beside.type)


def _not_listed(parts: tuple[str, ...]) -> Typed:
    raise _NotListed(".".join(parts))


def has_steps(select: Select) -> bool:
    """Whether rows are chosen of those that DISTINCT, QUALIFY or LIMIT BY has left, which one
    QUALIFY of DuckDB can't do.
    """
    ties = select.with_ties and select.limit is not None
    chosen = (select.qualify is not None, select.limit_by is not None, ties)
    return select.distinct or sum(chosen) > 1


def in_steps(
    select: Select,
    items: Sequence[Node],
    values: Sequence[Typed],
    compiler: Compiler,
    tail: str,
) -> tuple[str, list[str]]:
    """Return SQL of a SELECT with what follows its list, `tail` with its QUALIFY, and the terms of
    its ORDER BY. As in the original DISTINCT comes next: it leaves the first row of equal ones.
    LIMIT BY counts those that are left, and LIMIT WITH TIES what LIMIT BY leaves. With DISTINCT,
    LIMIT BY raises UserError for what is not in the list.
    """
    inner = _Inner(items, values, compiler)
    order = [
        term
        for item in _ordered(select, items)
        for term in order_terms(inner.read(at_place(item.node, items)), item)
    ]
    try:
        read = inner.outer.compile if select.distinct else inner.read
        by = [read(node) for node in _by(select, items)]
    except _NotListed as problem:
        raise UserError(
            f"LIMIT BY {problem}: with DISTINCT it must be in the list of SELECT"
        ) from None
    columns = ", ".join(f"c{place}" for place in range(len(values)))
    listed = ", ".join([listed_sql(values), *inner.others])
    sql = f"SELECT {'DISTINCT ' * select.distinct}{listed} {tail}"
    if select.distinct and inner.others:
        sql = f"SELECT DISTINCT ON ({columns}) * FROM (SELECT {listed} {tail})"  # noqa: S608
    tests = limit_tests(select, by, inner.outer, order)
    for test in tests:
        sql = f"SELECT * FROM ({sql}) QUALIFY {test}"  # noqa: S608 - compiled parts
    if not (tests or order):
        return sql, []
    return f"SELECT {columns} FROM ({sql})", order  # noqa: S608 - compiled parts


def qualify_sql(tests: Sequence[str]) -> list[str]:
    """Return the QUALIFY with these tests, if there are any. DuckDB wants a window function in it,
    also when they are of columns alone.
    """
    if tests and not any(" OVER " in test for test in tests):
        tests = [*tests, "row_number() OVER () > 0"]
    return [f"QUALIFY {' AND '.join(tests)}"] if tests else []


def limit_by(select: Select, items: Sequence[Node], compiler: Compiler) -> list[Typed]:
    """Return the values that LIMIT BY counts rows by."""
    return [compiler.compile(node) for node in _by(select, items)]


def _by(select: Select, items: Sequence[Node]) -> list[Node]:
    nodes = select.limit_by.by if select.limit_by is not None else ()
    return [at_place(node, items) for node in nodes]


def limit_tests(
    select: Select, by: Sequence[Typed], compiler: Compiler, order: Sequence[str]
) -> list[str]:
    """Return the conditions for DuckDB's QUALIFY that LIMIT BY and LIMIT WITH TIES are, tests over
    windows, in the order in which they choose rows.
    """
    tests: list[str] = []
    ordered = f"ORDER BY {', '.join(order)}" if order else ""
    if select.limit_by is not None:
        row = f"row_number() OVER (PARTITION BY {', '.join(map(to_stored, by))} {ordered})"
        skipped = "0"
        if select.limit_by.offset is not None:
            skipped = _count(compiler, select.limit_by.offset)
        most = _count(compiler, select.limit_by.limit)
        tests.append(f"{row} > {skipped} AND {row} <= {skipped} + {most}")
    if select.with_ties and select.limit is not None:
        if not order:
            raise UserError("LIMIT WITH TIES needs ORDER BY")
        last = _count(compiler, select.limit)
        if select.offset is not None:
            last += f" + {_count(compiler, select.offset)}"
        tests.append(f"rank() OVER ({ordered}) <= {last}")
    return tests


def limit_sql(select: Select, compiler: Compiler) -> str:
    """Return LIMIT and OFFSET, whose numbers must be constant. For WITH TIES see
    `limit_tests`.
    """
    text = ""
    if select.limit is not None and not select.with_ties:
        text += f" LIMIT {_count(compiler, select.limit)}"
    if select.offset is not None:
        text += f" OFFSET {_count(compiler, select.offset)}"
    return text


def _count(compiler: Compiler, node: Node) -> str:
    """Return the number of a LIMIT or OFFSET. Raises UserError unless it is a constant whole
    number.
    """
    value = compiler.compile(node)
    known = value.constant.value if value.constant else None
    if not isinstance(known, int) or isinstance(known, bool) or known < 0:
        raise UserError(f"LIMIT and OFFSET take a constant whole number, not {title(node)}")
    return str(min(known, 2**62))
