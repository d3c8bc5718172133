"""ORDER BY, DISTINCT, LIMIT and what stands for LIMIT ... BY in DuckDB."""

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
    """A number in GROUP BY and ORDER BY is a place in the list."""
    if isinstance(node, Literal) and isinstance(node.value, int) and node.text:
        place = node.value
        if not 1 <= place <= len(items):
            raise UserError(f"there is no column {place} in a list of {len(items)}")
        return bare(items[place - 1])
    return node


def order_by(select: Select, items: Sequence[Node], compiler: Compiler) -> list[str]:
    """The terms of DuckDB's ORDER BY."""
    order = select.order_by
    if select.order_all:
        order = tuple(OrderItem(bare(each)) for each in items)
    terms: list[str] = []
    for item in order:
        terms += order_terms(compiler.compile(at_place(item.node, items)), item)
    return terms


def distinct_sql(select: Select, compiler: Compiler) -> str:
    """What stands between SELECT and its list: DISTINCT, DISTINCT ON (…), or nothing."""
    if select.distinct_on:
        terms = ", ".join(to_stored(compiler.compile(each)) for each in select.distinct_on)
        return f"DISTINCT ON ({terms}) "
    return "DISTINCT " if select.distinct else ""


def ordered_distinct(
    inner: str, name: str, select: Select, items: Sequence[Node], values: Sequence[Typed]
) -> tuple[str, list[str]]:
    """After DISTINCT only what is in the list can be ordered by."""
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
    """QUALIFY, LIMIT ... BY and LIMIT ... WITH TIES, which DuckDB has as windows."""
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
    """LIMIT and OFFSET, whose numbers must be constant. WITH TIES is a test of `qualify_tests`."""
    text = ""
    if select.limit is not None and not select.with_ties:
        text += f" LIMIT {_count(compiler, select.limit)}"
    if select.offset is not None:
        text += f" OFFSET {_count(compiler, select.offset)}"
    return text


def _count(compiler: Compiler, node: Node) -> str:
    """A LIMIT: a constant whole number."""
    value = compiler.compile(node)
    known = value.constant.value if value.constant else None
    if not isinstance(known, int) or isinstance(known, bool) or known < 0:
        raise UserError(f"LIMIT and OFFSET take a constant whole number, not {title(node)}")
    return str(min(known, 2**62))
