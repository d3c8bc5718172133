"""Arguments that are dates and times, and the time zone after them."""

from rmt_pipeline.expressions.functions_cast import zone_argument
from rmt_pipeline.expressions.typed import Typed, TypeProblem


def moment(value: Typed, name: str) -> Typed:
    """A Date, DateTime or DateTime64."""
    if not value.type.date_like:
        raise TypeProblem(f"{name} takes a Date or a DateTime, not {value.type.text}")
    return value


def zone_of_call(arguments: list[Typed], place: int) -> str | None:
    if len(arguments) <= place:
        return None
    if not arguments[0].type.is_time:
        raise TypeProblem("a time zone is given, but the first argument is no time")
    return zone_argument(arguments[place])
