"""Arguments that are dates and times, and the time zone after them."""

from rmt_pipeline.translate.base.typed import Typed, TypeProblem
from rmt_pipeline.translate.functions.cast import zone_argument


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
