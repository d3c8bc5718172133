"""The allow-list: every function that an expression may call, by the original's name.

Names are case-sensitive, except those that the original knows from SQL in any case (`LOWER`,
`Coalesce`). A name that is not in the list is refused, even if DuckDB has a function of that name.
"""

import difflib

from rmt_pipeline.protocol.errors import UnknownFunction
from rmt_pipeline.translate.base.function import Function, named
from rmt_pipeline.translate.functions import array as functions_array
from rmt_pipeline.translate.functions import bits as functions_bits
from rmt_pipeline.translate.functions import cast as functions_cast
from rmt_pipeline.translate.functions import clock as functions_clock
from rmt_pipeline.translate.functions import encoding as functions_encoding
from rmt_pipeline.translate.functions import hash as functions_hash
from rmt_pipeline.translate.functions import logic as functions_logic
from rmt_pipeline.translate.functions import math as functions_math
from rmt_pipeline.translate.functions import numbered as functions_numbered
from rmt_pipeline.translate.functions import other as functions_other
from rmt_pipeline.translate.functions import pattern as functions_pattern
from rmt_pipeline.translate.functions import rare as functions_rare
from rmt_pipeline.translate.functions import readable as functions_readable
from rmt_pipeline.translate.functions import state as functions_state
from rmt_pipeline.translate.functions import text as functions_text
from rmt_pipeline.translate.functions import time as functions_time
from rmt_pipeline.translate.functions import url as functions_url
from rmt_pipeline.translate.functions.aggregate import (
    AGGREGATES,
    find_aggregate,
    running_accumulate,
)
from rmt_pipeline.translate.functions.lambdas import HIGHER_ORDER

SCALARS: dict[str, Function] = named(
    [
        *functions_logic.FUNCTIONS,
        *functions_math.FUNCTIONS,
        *functions_bits.FUNCTIONS,
        *functions_text.FUNCTIONS,
        *functions_pattern.FUNCTIONS,
        *functions_encoding.FUNCTIONS,
        *functions_cast.FUNCTIONS,
        *functions_time.FUNCTIONS,
        *functions_clock.FUNCTIONS,
        *functions_hash.FUNCTIONS,
        *functions_array.FUNCTIONS,
        *functions_numbered.FUNCTIONS,
        *functions_url.FUNCTIONS,
        *functions_state.FUNCTIONS,
        *functions_rare.FUNCTIONS,
        *functions_readable.FUNCTIONS,
        *functions_other.FUNCTIONS,
        functions_other.windowed("runningAccumulate", running_accumulate, 1),
    ]
)

# Names that the original knows in any case.
_ANY_CASE_NAMES = """
abs acos any_value ascii asin atan atan2 avg bin CAST ceil ceiling char CHAR_LENGTH
char_length character_length coalesce concat concat_ws corr cos count countSubstrings
date_trunc dateDiff DAY DAYOFMONTH DAYOFWEEK DAYOFYEAR degrees dense_rank exp factorial
first_value flatten floor FROM_UNIXTIME greatest hex HOUR hypot if ifNull isNull lag
last_value lcase lead least left length ln locate log log10 log2 lower lpad makeDate
makeDateTime max mid min MINUTE MONTH monthName not now now64 nth_value ntile nullIf
OCTET_LENGTH percent_rank pi position positiveModulo pow power QUARTER radians rand rank repeat
replace reverse right round row_number rpad SECOND sign sin space sqrt STDDEV_POP
STDDEV_SAMP substr substring sum tan timezone today trunc truncate ucase unhex upper
VAR_POP VAR_SAMP version YEAR
"""
# Other names of functions, also in any case.
_ALIASES = {
    "bit_and": "groupBitAnd",
    "bit_or": "groupBitOr",
    "bit_xor": "groupBitXor",
    "cardinality": "length",
    "character_length": "lengthUTF8",
    "covar_pop": "covarPop",
    "covar_samp": "covarSamp",
    "date_format": "formatDateTime",
    "from_base64": "base64Decode",
    "inet_aton": "IPv4StringToNum",
    "inet_ntoa": "IPv4NumToString",
    "last_day": "toLastDayOfMonth",
    "millisecond": "toMillisecond",
    "regexp_matches": "match",
    "regexp_replace": "replaceRegexpAll",
    "std": "stddevPop",
    "stddev": "stddevSamp",
    "to_base64": "base64Encode",
    "array_agg": "groupArray",
    "array_to_string": "arrayStringConcat",
    "casewithoutexpression": "multiIf",
    "casewithoutexpr": "multiIf",
    "curdate": "today",
    "current_date": "today",
    "current_timestamp": "now",
    "date_bin": "toStartOfInterval",
    "group_concat": "groupConcat",
    "instr": "positionCaseInsensitive",
    "localtimestamp": "now",
    "max_by": "argMax",
    "min_by": "argMin",
    "mod": "modulo",
    "pmod": "positiveModulo",
    "positive_modulo": "positiveModulo",
    "timezone": "timezone",
    "time_bucket": "toStartOfInterval",
    "week": "toWeek",
    "date": "toDate",
    "current_database": "currentDatabase",
    "database": "currentDatabase",
    "schema": "currentDatabase",
    "current_user": "currentUser",
    "session_user": "currentUser",
    "user": "currentUser",
    "hostname": "hostName",
    "format_bytes": "formatReadableSize",
}
# Functions that handle NULL themselves. All others give NULL if an argument is a literal NULL.
SEES_NULL = frozenset(
    {
        *(each.name for each in functions_logic.FUNCTIONS),
        *(each.name for each in functions_array.FUNCTIONS),
        *(each.name for each in functions_numbered.FUNCTIONS),
        *("CAST", "concat", "ignore", "neighbor", "toString"),
    }
) - {"like", "notLike", "ilike", "notILike", "match"}
_ANY_CASE = {name.lower(): name for name in _ANY_CASE_NAMES.split()} | _ALIASES


def real_name(name: str) -> str:
    """Return the name in the allow-list that `name` is another spelling of; else `name` itself."""
    known = name in SCALARS or name in AGGREGATES or name in HIGHER_ORDER
    return name if known else _ANY_CASE.get(name.lower(), name)


def find_function(name: str) -> Function | None:
    """Return the function of this name, also in another case where the original allows it; None if
    there is none. Aggregate functions and those with a lambda are not among them.
    """
    return SCALARS.get(real_name(name))


def unknown_function(name: str) -> UnknownFunction:
    """Return the error for an unknown function, which suggests similar names."""
    known = {each.lower(): each for each in (*SCALARS, *AGGREGATES, *HIGHER_ORDER)}
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    hint = f"; close to it: {', '.join(known[each] for each in close)}" if close else ""
    return UnknownFunction(f"there is no function {name!r} in the allow-list{hint}")


def all_names() -> list[str]:
    """Return all names of functions, sorted, for documentation and tests."""
    return sorted({*SCALARS, *AGGREGATES, *HIGHER_ORDER})


__all__ = [
    "SCALARS",
    "SEES_NULL",
    "all_names",
    "find_aggregate",
    "find_function",
    "real_name",
    "unknown_function",
]
