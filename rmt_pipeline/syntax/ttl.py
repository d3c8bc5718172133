"""The parser of TTL clauses. A clause says when, and what happens then:

TTL d + INTERVAL 1 MONTH [DELETE] [WHERE condition], d + INTERVAL 1 DAY RECOMPRESS CODEC(ZSTD(9))
"""

from dataclasses import dataclass

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.syntax.expression import expression
from rmt_pipeline.syntax.nodes import Node


@dataclass(frozen=True, slots=True)
class TtlElement:
    """One TTL rule: at `time`, rows (for which `where` is true) are deleted or, with a `codec`,
    compressed by it.
    """

    time: Node
    where: Node | None = None
    codec: str = ""


def parse_ttl(text: str) -> tuple[TtlElement, ...]:
    """Parse what follows TTL in a table's definition. Raises SyntaxProblem,
    NotImplementedStatement.
    """
    cursor = Cursor(text)
    found = cursor.several(ttl_element)
    cursor.expect_end()
    return found


def ttl_element(c: Cursor) -> TtlElement:
    """Read one element of a TTL clause. Raises SyntaxProblem; NotImplementedStatement for TO and
    GROUP BY.
    """
    time = expression(c)
    for word, meaning in (("TO", "TO DISK and TO VOLUME"), ("GROUP", "GROUP BY")):
        if c.at_word(word):
            raise NotImplementedStatement(f"TTL … {meaning} is not implemented")
    if c.take_words("RECOMPRESS"):
        start = c.current.start
        c.expect_words("CODEC")
        c.group()
        return TtlElement(time, codec=c.source[start : c.last_end])
    c.take_words("DELETE")
    return TtlElement(time, where=expression(c) if c.take_words("WHERE") else None)
