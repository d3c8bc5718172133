"""Aggregate functions about chains of events: windowFunnel, sequenceMatch and sequenceCount."""

from rmt_pipeline.protocol.errors import NotImplementedStatement
from rmt_pipeline.translate.base.function import (
    WrongArguments,
    condition,
    constant_integer,
    constant_text,
    integer,
)
from rmt_pipeline.translate.base.temporal import seconds
from rmt_pipeline.translate.base.typed import (
    UINT8,
    UINT64,
    Typed,
    TypeProblem,
    nullable_type,
    string_sql,
    struct_sql,
)
from rmt_pipeline.translate.event_chains import pieces_of
from rmt_pipeline.translate.functions.aggregate_call import AggregateBuild, AggregateCall
from rmt_pipeline.translate.in_python import CHAINS, EVENTS

CONDITIONS_MAX = 32


def window_funnel(call: AggregateCall) -> Typed:
    """`windowFunnel(seconds)(time, c1, c2, …)`: how many of the conditions were met one after the
    other in that time, from the first one on. Raises WrongArguments, TypeProblem.
    """
    if len(call.parameters) > 1:
        raise NotImplementedStatement(f"the modes of {call.name} are not supported")
    if not call.parameters:
        raise WrongArguments(f"{call.name} takes a window, as in {call.name}(60)(time, c1, c2)")
    window = constant_integer(call.parameters[0], f"the window of {call.name}")
    found = f"{CHAINS}({_events(call)}, '', {len(call.arguments) - 1}, {window})"
    return _of_known(call, Typed(f"CAST({found} AS UTINYINT)", UINT8))


def sequence(*, count: bool) -> AggregateBuild:
    """Return the builder of `sequenceCount(pattern)(time, c1, …)` or `sequenceMatch`: how many
    times, or whether, events follow one another as the pattern says.
    """

    def build(call: AggregateCall) -> Typed:
        if len(call.parameters) != 1:
            raise WrongArguments(f"{call.name} takes a pattern: {call.name}('(?1).*(?2)')(…)")
        pattern = constant_text(call.parameters[0], f"the pattern of {call.name}")
        conditions = len(call.arguments) - 1
        if not pieces_of(pattern, conditions):
            raise WrongArguments(f"the pattern of {call.name} is empty")
        most = 2**62 if count else 1
        given = f"{_events(call)}, {string_sql(pattern)}, {conditions}, {most}"
        found = f"{CHAINS}({given})"
        made = Typed(found, UINT64) if count else Typed(f"CAST({found} AS UTINYINT)", UINT8)
        return _of_known(call, made)

    return build


def _known(call: AggregateCall) -> str:
    """Return SQL of whether no condition of a row is NULL: such rows do not count; "" if none can
    be.
    """
    tests = [each for each in call.arguments[1:] if each.nullable]
    return " AND ".join(f"{condition(each)} IS NOT NULL" for each in tests)


def _of_known(call: AggregateCall, found: Typed) -> Typed:
    """Return the answer; NULL if a condition is Nullable and no row counts."""
    known = _known(call)
    if not (known or call.or_null):
        return found
    count = call.sql("count", "*", extra_filter=known)
    return Typed(f"(CASE WHEN {count} > 0 THEN {found.sql} END)", nullable_type(found.type))


def _events(call: AggregateCall) -> str:
    """Return SQL of the events in the rows' order, as `event_chains` has them."""
    time, *conditions = call.arguments
    if not 1 <= len(conditions) <= CONDITIONS_MAX:
        raise WrongArguments(f"{call.name} takes a time and 1 to {CONDITIONS_MAX} conditions")
    if time.nullable:
        raise TypeProblem(f"the time of {call.name} must not be Nullable")
    if time.plain.family == "DateTime":
        at = seconds(time)
    elif time.plain.family == "Date":
        at = f"date_diff('day', DATE '1970-01-01', {time.sql})"
    elif time.plain.is_integer and not time.plain.is_signed:
        at = integer(time)
    else:
        raise TypeProblem(
            f"{call.name} takes a time: DateTime, Date or a whole number that is not signed, not "
            f"{time.type.text}"
        )
    met = " + ".join(
        f"(CASE WHEN {condition(each)} THEN {1 << place} ELSE 0 END)"
        for place, each in enumerate(conditions)
    )
    event = struct_sql((("t", f"CAST({at} AS BIGINT)"), ("met", f"CAST({met} AS UBIGINT)")))
    return (
        f"CAST(coalesce({call.sql('list', event, extra_filter=_known(call))}, []) AS {EVENTS})"
    )
