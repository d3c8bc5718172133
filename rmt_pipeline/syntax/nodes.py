"""The nodes of parsed expressions and queries.

Operators are calls of the functions that they stand for (`a = b` is `equals(a, b)`), as in the
original; `operator` says that it was written as an operator, for the canonical text.
"""

from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass
from fractions import Fraction
from typing import Any
from typing import Literal as Choice

from rmt_pipeline.values import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, string, boolean or NULL (None). `text` is a number as it was written."""

    value: int | float | str | bool | None = field(compare=False)
    text: str = field(default="", compare=False)
    key: str = field(init=False, repr=False)  # in Python, 1, 1.0 and True would be equal

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", repr(self.value))


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a column, possibly qualified, or of an element of a named tuple: `t.c`."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What follows a star: EXCEPT, REPLACE, and APPLY. Each of `applied` is a Lambda, or the call
    of a function, with its parameters, that has no arguments yet.
    """

    without: tuple[str, ...] = ()
    replaced: tuple[tuple[str, "Node"], ...] = ()
    applied: tuple["Call | Lambda", ...] = ()


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `t.*`, with EXCEPT, REPLACE and APPLY."""

    qualifier: tuple[str, ...] = ()
    changes: Changes = Changes()


@dataclass(frozen=True, slots=True)
class ColumnsMatcher:
    """`COLUMNS('regular expression')`, with EXCEPT, REPLACE and APPLY."""

    pattern: str
    changes: Changes = Changes()


@dataclass(frozen=True, slots=True)
class Fill:
    """`WITH FILL FROM start TO end STEP step` of a term of ORDER BY."""

    start: "Node | None" = None
    end: "Node | None" = None
    step: "Node | None" = None


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One term of ORDER BY: `price DESC NULLS FIRST`. Without NULLS FIRST, NULL and NaN
    come last.
    """

    node: "Node"
    descending: bool = False
    nulls_first: bool = False
    fill: Fill | None = None


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window: what OVER (…) says. `base` names a window of the WINDOW clause; `frame` is the text
    of its frame, whose syntax was checked.
    """

    base: str = ""
    partition_by: tuple["Node", ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, or an operator. `parameters` is 0.5 in `quantile(0.5)(x)`; `over` is
    the window of OVER.
    """

    name: str
    arguments: tuple["Node", ...] = ()
    parameters: tuple["Node", ...] = ()
    operator: bool = False
    over: WindowSpec | None = None


@dataclass(frozen=True, slots=True)
class Lambda:
    """An anonymous function: `(x, y) -> x + y`, an argument of `arrayMap` and similar functions."""

    parameters: tuple[str, ...]
    body: "Node"


@dataclass(frozen=True, slots=True)
class Aliased:
    """An expression with an alias: `price * 2 AS twice`."""

    node: "Node"
    alias: str


@dataclass(frozen=True, slots=True)
class Subquery:
    """`(SELECT max(id) FROM t)` as a value or as the right side of IN. In FROM it is a
    `Derived`.
    """

    query: "Query"


Node = Literal | Name | Star | ColumnsMatcher | Call | Lambda | Aliased | Subquery


@dataclass(frozen=True, slots=True)
class SampleClause:
    """`SAMPLE size OFFSET offset`: shares of all rows; a number above 1 is a number of rows."""

    size: Fraction
    offset: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table in FROM. `database` is None when it was not written."""

    database: str | None
    table: str
    alias: str = ""
    final: bool = False
    sample: SampleClause | None = None


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A table function in FROM, as in `FROM numbers(10) AS n`."""

    name: str
    arguments: tuple[Node, ...]
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Derived:
    """A subquery in FROM."""

    query: "Query"
    alias: str = ""


JoinKind = Choice["INNER", "LEFT", "RIGHT", "FULL", "CROSS"]
Strictness = Choice["ALL", "ANY", "SEMI", "ANTI", "ASOF"]


@dataclass(frozen=True, slots=True)
class Join:
    """`a LEFT JOIN b ON a.id = b.id` in FROM. `on` is None when USING names the columns, and for
    CROSS JOIN; `strictness` says how many rows of b are joined to one row of a.
    """

    left: "TableExpression"
    right: "TableExpression"
    kind: JoinKind
    strictness: Strictness = "ALL"
    on: Node | None = None
    using: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayJoin:
    """`t ARRAY JOIN tags AS tag`: a row for each element. With LEFT (`keep_empty`) a row whose
    array is empty gives one row.
    """

    left: "TableExpression"
    items: tuple[Node, ...]
    keep_empty: bool = False


TableExpression = NamedTable | TableFunction | Derived | Join | ArrayJoin


@dataclass(frozen=True, slots=True)
class WithItem:
    """An item of WITH. Its `value` is a Query for `name AS (SELECT ...)`, a Node for `expression AS
    name`.
    """

    name: str
    value: "Node | Query"


@dataclass(frozen=True, slots=True)
class LimitBy:
    """`LIMIT 2 OFFSET 1 BY user`: that many rows for each combination of values of `by`."""

    limit: Node
    offset: Node | None
    by: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT with its clauses, but without those of the whole query (UNION,
    FORMAT, SETTINGS).
    """

    items: tuple[Node, ...]
    with_items: tuple[WithItem, ...] = ()
    distinct: bool = False
    source: TableExpression | None = None
    prewhere: Node | None = None
    where: Node | None = None
    group_by: tuple[Node, ...] = ()
    group_all: bool = False
    group_modifier: Choice["", "ROLLUP", "CUBE"] = ""
    totals: bool = False
    having: Node | None = None
    windows: tuple[tuple[str, WindowSpec], ...] = ()
    qualify: Node | None = None
    order_by: tuple[OrderItem, ...] = ()
    order_all: bool = False
    limit_by: LimitBy | None = None
    limit: Node | None = None
    offset: Node | None = None
    with_ties: bool = False


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Two queries joined by UNION ALL, UNION (DISTINCT), EXCEPT or INTERSECT."""

    left: "Query"
    right: "Query"
    operation: Choice[
        "UNION ALL", "UNION", "EXCEPT ALL", "EXCEPT", "INTERSECT ALL", "INTERSECT"
    ]


Query = Select | SetOperation


def walk(root: Any) -> Iterator[Any]:
    """Yield `root` and every node below it, also in subqueries; a node comes before those inside
    it.
    """
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack += reversed(node)
        elif is_dataclass(node):
            yield node
            stack += [getattr(node, each.name) for each in reversed(fields(node))]


def names_columns_by_star(root: Any) -> bool:
    """Whether `*` or COLUMNS(…) stands for columns anywhere in `root`. In count(*) it does not."""
    found = list(walk(root))
    stars = sum(isinstance(node, Star | ColumnsMatcher) for node in found)
    counted = sum(
        isinstance(node, Call)
        and node.name.lower() == "count"
        and len(node.arguments) == 1
        and isinstance(node.arguments[0], Star)
        for node in found
    )
    return stars > counted


def names_in(root: Any) -> set[str]:
    """Return every part of every name in `root` (`t.c` has two), and the columns of USING."""
    found = {part for node in walk(root) if isinstance(node, Name) for part in node.parts}
    return found.union(*(node.using for node in walk(root) if isinstance(node, Join)))
