"""Parses dates and times from their text."""

import datetime as dt
import re
import zoneinfo
from functools import lru_cache

from rmt_pipeline.types.data_type import EPOCH, DataType
from rmt_pipeline.types.escapes import shown_text

_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})-([0-9]{1,2})|([0-9]{2})([0-9]{2}))", re.ASCII)
_COMPACT_TIME = re.compile(r"^[T ]?([0-9]{2})([0-9]{2})([0-9]{2})", re.ASCII)
_TIME = re.compile(
    r"[T ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2}))?(?:\.([0-9]{0,18}))?)?"
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
NANOSECONDS_MAX = 2**63 - 2  # 2262-04-11; DuckDB takes 2**63 - 1 for infinity


def read_date(data_type: DataType, text: str) -> object:
    """Return the day that the text of a Date or Date32 means. Raises ValueError with the reason."""
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
    """Return the time that the text of a DateTime or DateTime64 means: a datetime in UTC, or
    nanoseconds since the epoch for more than 6 digits. Raises ValueError with the reason.
    """
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
    """Return the seconds since the epoch and the digits after the point."""
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
    time_match = _TIME.fullmatch(_COMPACT_TIME.sub(r" \1:\2:\3", rest))
    if rest and time_match is None:
        raise ValueError(f"{shown_text(rest)} in {shown_text(text)} is not a time (hh:mm:ss)")
    hour, minute, second, fraction, offset = time_match.groups() if time_match else (None,) * 5
    try:
        clock = dt.time(int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError:
        raise ValueError(f"there is no time {shown_text(rest)} in {shown_text(text)}") from None
    zone = _offset(offset) if offset else zone_of(data_type.zone)
    moment = dt.datetime.combine(day, clock, zone)
    # Of two such times the first; of a time that is left out, as the original takes it (in SQL:
    # `instant_spelled`), the one that the later offset gives.
    first = min(moment.timestamp(), moment.replace(fold=1).timestamp())
    return int(first), fraction or ""


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
    """Return the zone that a DateTime's type names; for "" it is UTC, our servers' zone."""
    return zoneinfo.ZoneInfo(name) if name else dt.UTC


_MONTHS = {
    name: place
    for place, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_CLOCK = re.compile(
    r"(?:^|(?<=[T\s]))([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(\.[0-9]+)?)?\s*([AP]M)?",
    re.ASCII | re.IGNORECASE,
)
_OFFSET = re.compile(
    r"\s*(?:(Z|UTC|GMT)|([+-])([0-9]{1,2}):?([0-9]{2})?)$", re.ASCII | re.IGNORECASE
)
_WEEKDAY = re.compile(r"^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+", re.IGNORECASE)
_DIGITS = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})[T ]?([0-9]{2})([0-9]{2})([0-9]{2})")
_DAYS = (
    re.compile(r"(?P<y>[0-9]{4})[-/.](?P<m>[0-9]{1,2})[-/.](?P<d>[0-9]{1,2})", re.ASCII),
    re.compile(r"(?P<d>[0-9]{1,2})[-/.](?P<m>[0-9]{1,2})[-/.](?P<y>[0-9]{4})", re.ASCII),
    re.compile(r"(?P<y>[0-9]{4})(?P<m>[0-9]{2})(?P<d>[0-9]{2})", re.ASCII),
    re.compile(
        r"(?P<d>[0-9]{1,2})[- ](?P<m>[a-z]{3,9})[- ,]+(?P<y>[0-9]{4})", re.IGNORECASE | re.ASCII
    ),
    re.compile(
        r"(?P<m>[a-z]{3,9})[- ](?P<d>[0-9]{1,2})[- ,]+(?P<y>[0-9]{4})", re.IGNORECASE | re.ASCII
    ),
    re.compile(
        r"(?P<y>[0-9]{4})[- ](?P<m>[a-z]{3,9})[- ](?P<d>[0-9]{1,2})", re.IGNORECASE | re.ASCII
    ),
)


def best_effort_text(text: str) -> str:
    """Return a time that people have written in the form that `read_time` reads. A text in no known
    form is returned unchanged, and `read_time` says what is wrong with it.

    Known forms are: `3 Feb 2024 4:05 PM`, `Feb 3, 2024`, `03/02/2024 16:05` (the day first),
    `20240203160500`, `2024-02-03T16:05:00.5+02:00`, seconds since the epoch.
    """
    rest = _WEEKDAY.sub("", text.strip())
    digits = _DIGITS.fullmatch(rest)
    if digits is not None:
        year, month, day, *clock = digits.groups()
        return f"{year}-{month}-{day} {':'.join(clock)}"
    time, offset = "00:00:00", ""
    found = _CLOCK.search(rest)
    if found is not None:
        behind = _OFFSET.fullmatch(rest[found.end() :]) if rest[found.end() :].strip() else None
        if behind is None and rest[found.end() :].strip():
            return text
        offset = _offset_text(behind)
        hour = _hour(int(found[1]), (found[5] or "").lower())
        if hour is None:
            return text
        time = f"{hour:02}:{int(found[2]):02}:{int(found[3] or 0):02}{found[4] or ''}"
        rest = rest[: found.start()].rstrip("Tt, ")
    for pattern in _DAYS:
        date = pattern.fullmatch(rest)
        month = _month(date["m"]) if date is not None else None
        if date is not None and month is not None:
            return f"{date['y']}-{month:02}-{int(date['d']):02} {time}{offset}"
    return text


def _hour(hour: int, half: str) -> int | None:
    if not half:
        return hour
    return None if not 1 <= hour <= 12 else hour % 12 + 12 * (half == "pm")


def _offset_text(found: re.Match[str] | None) -> str:
    if found is None:
        return ""
    return "Z" if found[1] else f"{found[2]}{int(found[3]):02}:{found[4] or '00'}"


def _month(word: str) -> int | None:
    return int(word) if word.isdigit() else _MONTHS.get(word[:3].lower())
