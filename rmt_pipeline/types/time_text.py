"""Dates and times from their text."""

import datetime as dt
import re
import zoneinfo
from functools import lru_cache

from rmt_pipeline.types.data_type import EPOCH, DataType
from rmt_pipeline.types.escapes import shown_text

_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})-([0-9]{1,2})|([0-9]{2})([0-9]{2}))", re.ASCII)
_TIME = re.compile(
    r"[T ]?([0-9]{1,2}):?([0-9]{1,2})(?::?([0-9]{1,2})(?:\.([0-9]{0,18}))?)?"
    r"(Z|[+-][0-9]{2}:?[0-9]{2})?",
    re.ASCII,
)
_UNIX = re.compile(r"(-?[0-9]{5,10})(?:\.([0-9]{0,18}))?", re.ASCII)
_ZERO_DATES = frozenset({"0000-00-00", "0000-00-00 00:00:00"})

DATE_MAX = dt.date(2149, 6, 6)  # 65,535 days
DATE32_MIN, DATE32_MAX = dt.date(1900, 1, 1), dt.date(2299, 12, 31)
DATETIME_MAX_S = 2**32 - 1
DATETIME64_MIN_S = int(dt.datetime(1900, 1, 1, tzinfo=dt.UTC).timestamp())
DATETIME64_MAX_S = int(dt.datetime(2299, 12, 31, 23, 59, 59, tzinfo=dt.UTC).timestamp())
NANOSECONDS_MAX = 2**63 - 2  # 2262-04-11; DuckDB takes the last one for infinity


def read_date(data_type: DataType, text: str) -> object:
    if text in _ZERO_DATES:
        return EPOCH.date()
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown_text(text)} is not a date (YYYY-MM-DD) ({data_type.text})")
    day = _day(match, text)
    least, most = (
        (EPOCH.date(), DATE_MAX) if data_type.family == "Date" else (DATE32_MIN, DATE32_MAX)
    )
    if not least <= day <= most:
        raise ValueError(f"{text} does not fit {data_type.text} ({least} to {most})")
    return day


def _day(match: re.Match[str], text: str) -> dt.date:
    year, month, day = match[1], match[2] or match[4], match[3] or match[5]
    try:
        return dt.date(int(year), int(month), int(day))
    except ValueError:
        raise ValueError(f"there is no day {shown_text(text)}") from None


def read_time(data_type: DataType, text: str) -> object:
    text = text.strip()
    digits = data_type.numbers[0] if data_type.numbers else 0
    seconds, fraction = _instant(data_type, text, digits)
    nanoseconds = int(fraction[:digits].ljust(9, "0")) if digits else 0
    if data_type.family == "DateTime":
        least, most = 0, DATETIME_MAX_S
    else:
        least, most = DATETIME64_MIN_S, DATETIME64_MAX_S
    total = seconds * 1_000_000_000 + nanoseconds
    if not least <= seconds <= most or (digits > 6 and abs(total) > NANOSECONDS_MAX):
        raise ValueError(f"{shown_text(text)} does not fit {data_type.text}")
    if digits > 6:
        return total
    return EPOCH + dt.timedelta(seconds=seconds, microseconds=nanoseconds // 1000)


def _instant(data_type: DataType, text: str, digits: int) -> tuple[int, str]:
    """Seconds since the epoch and the digits after the point."""
    if text in _ZERO_DATES:
        return 0, ""
    date_match = _DATE.match(text)
    unix_match = _UNIX.fullmatch(text)
    if unix_match and not (date_match and date_match.end() == len(text)):
        return int(unix_match[1]), unix_match[2] or ""
    if (
        digits
        and text.isascii()
        and text.isdigit()
        and 11 <= len(text) <= 19
        and len(text) != 14
    ):
        return divmod(int(text), 10**digits)[0], text[-digits:]
    if date_match is None:
        raise ValueError(
            f"{shown_text(text)} is not a time (YYYY-MM-DD hh:mm:ss) ({data_type.text})"
        )
    day = _day(date_match, text)
    rest = text[date_match.end() :]
    time_match = _TIME.fullmatch(rest)
    if rest and time_match is None:
        raise ValueError(f"{shown_text(rest)} in {shown_text(text)} is not a time (hh:mm:ss)")
    hour, minute, second, fraction, offset = time_match.groups() if time_match else (None,) * 5
    try:
        clock = dt.time(int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        raise ValueError(f"there is no time {shown_text(rest)} in {shown_text(text)}") from None
    zone = _offset(offset) if offset else zone_of(data_type.zone)
    moment = dt.datetime.combine(day, clock, zone)
    return (moment - EPOCH) // dt.timedelta(seconds=1), fraction or ""


def _offset(text: str) -> dt.tzinfo:
    if text == "Z":
        return dt.UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 14 or minutes > 59:
        raise ValueError(f"there is no time zone offset {text}")
    offset = dt.timedelta(hours=hours, minutes=minutes)
    return dt.timezone(-offset if text[0] == "-" else offset)


@lru_cache(maxsize=1024)
def zone_of(name: str) -> dt.tzinfo:
    """The zone that a DateTime's type names; without a name it is UTC, our servers' zone."""
    return zoneinfo.ZoneInfo(name) if name else dt.UTC
