"""ORDER BY, DISTINCT and LIMIT, and the tests that replace LIMIT ... BY in DuckDB."""

from collections.abc import Sequence

from rmt_pipeline.protocol.errors import NotImplementedStatement, UserError
from rmt_pipeline.syntax.nodes import Aliased, Literal, Name, Node, OrderItem, Select
from rmt_pipeline.translate.base.function import condition
from rmt_pipeline.translate.base.typed import Typed, from_stored, to_stored
from rmt_pipeline.translate.compiler import Compiler
from rmt_pipeline.translate.ordering import order_terms
from rmt_pipeline.translate.select.items import bare, present
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
    order = select.order_by
    if select.order_all:
        order = tuple(OrderItem(bare(each)) for each in items)
    terms: list[str] = []
    for item in order:
        terms += order_terms(compiler.compile(at_place(item.node, items)), item)
    return terms


def distinct_sql(select: Select, compiler: Compiler) -> str:
    """Return DISTINCT, DISTINCT ON (…) or "", which come between SELECT and its list."""
    if select.distinct_on:
        terms = ", ".join(to_stored(compiler.compile(each)) for each in select.distinct_on)
        return f"DISTINCT ON ({terms}) "
    return "DISTINCT " if select.distinct else ""


def ordered_distinct(
    inner: str, name: str, select: Select, items: Sequence[Node], values: Sequence[Typed]
) -> tuple[str, list[str]]:
    """Return SQL that selects from the query `inner`, and the terms of its ORDER BY, which can use
    only what is in the list: the other columns are gone after DISTINCT. Raises UserError for them.
    """
    outputs = [from_stored(f"{name}.c{n}", value.type) for n, value in enumerate(values)]
    bound: dict[Node, Typed] = {}
    for item, output in zip(items, outputs, strict=True):
        bound[bare(item)] = output
        if isinstance(item, Aliased):
            bound[Name((item.alias,))] = output

    def refuse(parts: tuple[str, ...]) -> Typed:
        raise UserError(
            f"ORDER BY {'.'.join(parts)}: with DISTINCT it must be in the list of SELECT"
        )

    order = order_by(select, items, Compiler(refuse, bound=bound, nondeterministic=True))
    columns = ", ".join(f"{name}.c{place}" for place in range(len(values)))
    return f"SELECT {columns} FROM ({inner}) AS {name}", order  # noqa: S608 - compiled parts


def qualify_tests(
    select: Select, items: Sequence[Node], compiler: Compiler, order: Sequence[str]
) -> list[str]:
    """Return the conditions for DuckDB's QUALIFY: the query's own, and tests over windows for LIMIT
    ... BY and LIMIT ... WITH TIES.
    """
    tests = [condition(compiler.compile(node)) for node in present(select.qualify)]
    ordered = f" ORDER BY {', '.join(order)}" if order else ""
    if select.limit_by is not None:
        if select.distinct:
            raise NotImplementedStatement("DISTINCT with LIMIT ... BY is not supported")
        by = [to_stored(compiler.compile(at_place(x, items))) for x in select.limit_by.by]
        row = f"row_number() OVER (PARTITION BY {', '.join(by)}{ordered})"
        skipped = "0"
        if select.limit_by.offset is not None:
            skipped = _count(compiler, select.limit_by.offset)
            tests.append(f"{row} > {skipped}")
        tests.append(f"{row} <= {skipped} + {_count(compiler, select.limit_by.limit)}")
    if select.with_ties and select.limit is not None:
        if not order or select.offset is not None:
            raise NotImplementedStatement("LIMIT WITH TIES needs ORDER BY, and no OFFSET")
        tests.append(f"rank() OVER ({ordered.strip()}) <= {_count(compiler, select.limit)}")
    return tests


def limit_sql(select: Select, compiler: Compiler) -> str:
    """Return LIMIT and OFFSET, whose numbers must be constant. For WITH TIES see
    `qualify_tests`.
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
