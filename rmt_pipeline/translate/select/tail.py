"""ORDER BY, DISTINCT and LIMIT, and the tests that replace LIMIT ... BY in DuckDB."""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.syntax.nodes import Aliased, Literal, Name, Node, OrderItem, Select
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


def listed_sql(select: Select, values: Sequence[Typed], compiler: Compiler) -> str:
    """Return the list of SELECT, as c0, c1, ..., after DISTINCT ON (…) if there is one."""
    listed = ", ".join(f"{to_stored(value)} AS c{n}" for n, value in enumerate(values))
    if not select.distinct_on:
        return listed
    terms = ", ".join(to_stored(compiler.compile(each)) for each in select.distinct_on)
    return f"DISTINCT ON ({terms}) {listed}"


class _NotListed(Exception):
    """A name is not in the list of SELECT."""


def distinct_sql(
    select: Select,
    items: Sequence[Node],
    values: Sequence[Typed],
    compiler: Compiler,
    tail: str,
) -> tuple[str, list[str]]:
    """Return SQL of SELECT DISTINCT with what follows its list, `tail`, and the terms of its ORDER
    BY. As in the original DISTINCT comes first: it leaves the first row of equal ones, and LIMIT BY
    counts those that are left. LIMIT BY raises UserError for what is not in the list.
    """
    outputs = [from_stored(f"c{n}", value.type) for n, value in enumerate(values)]
    bound: dict[Node, Typed] = {}
    for item, output in zip(items, outputs, strict=True):
        bound[bare(item)] = output
        if isinstance(item, Aliased):
            bound[Name((item.alias,))] = output

    def refuse(parts: tuple[str, ...]) -> Typed:
        raise _NotListed(".".join(parts))

    outer = Compiler(refuse, bound=bound, nondeterministic=True)
    order, others = [], list[str]()
    for term in _ordered(select, items):
        node = at_place(term.node, items)
        try:
            value = outer.compile(node)
        except (_NotListed, TypeProblem):  # a column or an aggregate function beside the list
            beside = compiler.compile(node)
            value = from_stored(f"o{len(others)}", beside.type)
            others.append(f"{to_stored(beside)} AS o{len(others)}")
        order += order_terms(value, term)
    columns = ", ".join(f"c{place}" for place in range(len(values)))
    listed = ", ".join([listed_sql(select, values, compiler), *others])
    inner = f"SELECT DISTINCT {listed} {tail}"
    if others:
        inner = f"SELECT DISTINCT ON ({columns}) * FROM (SELECT {listed} {tail})"  # noqa: S608
    try:
        tests = limit_tests(select, items, outer, order)
    except _NotListed as problem:
        raise UserError(
            f"LIMIT BY {problem}: with DISTINCT it must be in the list of SELECT"
        ) from None
    if not (tests or order):
        return inner, []
    kept = f" QUALIFY {' AND '.join(tests)}" if tests else ""
    return f"SELECT {columns} FROM ({inner}){kept}", order  # noqa: S608 - compiled parts


def limit_tests(
    select: Select, items: Sequence[Node], compiler: Compiler, order: Sequence[str]
) -> list[str]:
    """Return the conditions for DuckDB's QUALIFY that LIMIT ... BY and LIMIT ... WITH TIES are:
    tests over windows.
    """
    tests: list[str] = []
    ordered = f" ORDER BY {', '.join(order)}" if order else ""
    if select.limit_by is not None:
        by = [to_stored(compiler.compile(at_place(x, items))) for x in select.limit_by.by]
        row = f"row_number() OVER (PARTITION BY {', '.join(by)}{ordered})"
        skipped = "0"
        if select.limit_by.offset is not None:
            skipped = _count(compiler, select.limit_by.offset)
            tests.append(f"{row} > {skipped}")
        tests.append(f"{row} <= {skipped} + {_count(compiler, select.limit_by.limit)}")
    if select.with_ties and select.limit is not None:
        if not order:
            raise UserError("LIMIT WITH TIES needs ORDER BY")
        last = _count(compiler, select.limit)
        if select.offset is not None:
            last += f" + {_count(compiler, select.offset)}"
        tests.append(f"rank() OVER ({ordered.strip()}) <= {last}")
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
