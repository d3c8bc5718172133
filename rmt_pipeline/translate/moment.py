"""Replaces the functions of the clock in an expression by constants.

An insert computes its defaults batch by batch, and on Spark in several tasks; `now()` must be the
same time in all of them.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rmt_pipeline.syntax.canonical import canonical
from rmt_pipeline.syntax.expression import parse_expression
from rmt_pipeline.syntax.nodes import Aliased, Call, Lambda, Literal, Node
from rmt_pipeline.translate.functions.registry import real_name

_DAYS_AGO = {"today": 0, "yesterday": 1}


def at(text: str, now_s: float) -> str:
    """Return the canonical text of the expression with `now()` and the like as constants of the
    same type. `now_s` is in seconds since the epoch.
    """
    return canonical(_at(parse_expression(text), datetime.fromtimestamp(now_s, UTC)))


def _at(node: Node, now: datetime) -> Node:
    match node:
        case Call():
            arguments = tuple(_at(one, now) for one in node.arguments)
            return _call(replace(node, arguments=arguments), now)
        case Lambda():
            return replace(node, body=_at(node.body, now))
        case Aliased():
            return replace(node, node=_at(node.node, now))
        case _:
            return node


def _call(call: Call, now: datetime) -> Node:
    name = real_name(call.name)
    if name in _DAYS_AGO:
        day = now - timedelta(days=_DAYS_AGO[name])
        return Call("toDate", (Literal(f"{day:%Y-%m-%d}"),))
    if name == "now":
        time = Call("toDateTime", (Literal(f"{now:%Y-%m-%d %H:%M:%S}"),))
        return Call("toTimeZone", (time, *call.arguments)) if call.arguments else time
    if name == "now64":
        digits = call.arguments or (Literal(3, "3"),)
        return Call("toDateTime64", (Literal(f"{now:%Y-%m-%d %H:%M:%S.%f}"), *digits))
    return call
