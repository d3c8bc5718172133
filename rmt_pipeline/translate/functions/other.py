"""Functions about the session, the server and the running query, "other" in the original's manual.

The compiler gets the answers of functions about the session (`Compiler.session`). Expressions that
are stored with a table have no session.
"""

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.translate.base.casts import convert, nullable_like
from rmt_pipeline.translate.base.function import (
    MANY,
    Build,
    Function,
    always,
    condition,
    constant_integer,
    constant_text,
    floating,
    function,
)
from rmt_pipeline.translate.base.supertypes import least_supertype
from rmt_pipeline.translate.base.typed import (
    FLOAT64,
    INT64,
    UINT8,
    UINT32,
    UINT64,
    UUID,
    Typed,
    TypeProblem,
    from_stored,
    stored_sql,
    string_sql,
    to_stored,
)
from rmt_pipeline.translate.connection import (
    SLEEP,
    SLEEP_EACH_ROW,
    SLEEP_MAX_S,
    Thrown,
    TooSlow,
)
from rmt_pipeline.translate.functions.arithmetic import arithmetic

SESSION = ("currentDatabase", "currentUser", "hostName", "version")


def _of_session(arguments: list[Typed]) -> Typed:
    """Return what the session says, its only argument."""
    if not arguments:
        raise UserError(
            "this is of a session; what is stored with a table has none. Use a constant"
        )
    return arguments[0]


def _uptime(arguments: list[Typed]) -> Typed:
    """Return the seconds since the time, in seconds since 1970, that the session says."""
    started = f"CAST({_of_session(arguments).sql} AS DOUBLE)"
    return Typed(f"CAST(greatest(trunc(epoch(now()) - {started}), 0) AS UINTEGER)", UINT32)


def _pause(sql_name: str) -> Build:
    def build(arguments: list[Typed]) -> Typed:
        seconds = arguments[0]
        known = seconds.constant
        if known is None or not isinstance(known.value, int | float):
            raise TypeProblem("the seconds must be a constant number")
        if known.value < 0:
            raise TypeProblem(f"the seconds must not be negative: {known.value}")
        if known.value > SLEEP_MAX_S:
            raise TooSlow(f"the longest sleep is {SLEEP_MAX_S} seconds, not {known.value}")
        return Typed(f"{sql_name}({floating(seconds)})", UINT8)

    return build


_DAY = "DATE '1970-01-01'"
_EPOCH = {"Date": _DAY, "Date32": _DAY, "DateTime": "make_timestamptz(0)"}


def _running_difference(*, first_is_value: bool) -> Build:
    """Return the builder of the difference to the row before, or the last one that is not NULL. For
    the first row it is 0, or the value.
    """

    def build(arguments: list[Typed]) -> Typed:
        value = arguments[0]
        if not (value.type.is_computable or value.type.date_like):
            raise TypeProblem(f"runningDifference takes numbers, not {value.type.text}")
        skipped = " IGNORE NULLS" if value.nullable else ""
        before = f"lag({value.sql}{skipped}) OVER ()"
        if first_is_value:  # a time is a number since 1970
            zero = "0" if value.type.is_computable else _EPOCH.get(value.plain.family)
            if zero is None:
                raise TypeProblem(
                    "runningDifferenceStartingWithFirstValue takes numbers, dates or DateTime, not "
                    f"{value.type.text}"
                )
            before = f"coalesce({before}, {zero})"
        previous = Typed(f"coalesce({before}, {value.sql})", value.type)
        made = arithmetic("minus")([value, previous])
        widened = value.type.is_time or value.plain.family == "Date32"
        return convert(made, nullable_like(INT64, value)) if widened else made

    return build


def _neighbor(arguments: list[Typed]) -> Typed:
    """`neighbor(x, offset[, default])`: x of the row so many rows after, or before if the offset is
    negative. Raises TypeProblem unless the offset is a constant.
    """
    value = arguments[0]
    offset = constant_integer(arguments[1], "the offset of neighbor")
    result = value.type
    default = stored_sql(None if value.nullable else value.plain.default, value.plain)
    if len(arguments) > 2:
        result = least_supertype([value.type, arguments[2].type])
        default = to_stored(convert(arguments[2], result))
    side = "lead" if offset >= 0 else "lag"
    stored = to_stored(convert(value, result))
    return from_stored(f"{side}({stored}, {abs(offset)}, {default}) OVER ()", result)


def _throw_if(arguments: list[Typed]) -> Typed:
    tested = condition(arguments[0])
    message = "a value that throwIf was given is not zero"
    if len(arguments) > 1:
        message = constant_text(arguments[1], "the message")
    error = f"error({string_sql(Thrown.MARK + message)})"
    unknown = f"WHEN {tested} IS NULL THEN NULL " if arguments[0].nullable else ""
    sql = f"CAST(CASE WHEN {tested} THEN {error} {unknown}ELSE 0 END AS UTINYINT)"
    return Typed(sql, nullable_like(UINT8, arguments[0]))


def windowed(name: str, build: Build, least: int, most: int | None = None) -> Function:
    """Return a Function of a row and those beside it."""
    return function(
        name,
        build,
        least,
        most,
        deterministic=False,
        windowed=True,
        differs="of the rows in the order of FROM, as one block; not in WHERE, nor in "
        "aggregate functions",
    )


_RANDOM = f"CAST(floor(random() * {2**32}) AS UBIGINT)"


_RANDOM_32 = f"CAST({_RANDOM} AS UINTEGER)"
_RANDOM_64 = f"({_RANDOM} * {2**32} + {_RANDOM})"
_EACH = "each use of it, or of its alias, has its own values"
_BLOCKS = "a block is at most 2,048 rows"
FUNCTIONS = (
    *(function(name, _of_session, 0, deterministic=False) for name in SESSION),
    function("uptime", _uptime, 0, deterministic=False),
    function("sleep", _pause(SLEEP), 1, deterministic=False, differs=_BLOCKS),
    function("sleepEachRow", _pause(SLEEP_EACH_ROW), 1, deterministic=False, differs=_BLOCKS),
    function("throwIf", _throw_if, 1, 2),
    *(
        function(name, always(sql, kind), 0, 1, deterministic=False, differs=_EACH)
        for name, sql, kind in (
            ("rand", _RANDOM_32, UINT32),
            ("rand32", _RANDOM_32, UINT32),
            ("rand64", _RANDOM_64, UINT64),
            ("randCanonical", "random()", FLOAT64),
            ("generateUUIDv4", "CAST(uuid() AS VARCHAR)", UUID),
        )
    ),
    function("ignore", always("CAST(0 AS UTINYINT)", UINT8), 0, MANY),
    *(
        function(
            name,
            always("CAST(row_number() OVER () - 1 AS UBIGINT)", UINT64),
            0,
            deterministic=False,
            windowed=True,
            differs="one block, counted before ORDER BY; not in WHERE, nor in aggregate functions",
        )
        for name in ("rowNumberInBlock", "rowNumberInAllBlocks")
    ),
    *(
        windowed(name, build, least, most)
        for name, build, least, most in (
            ("runningDifference", _running_difference(first_is_value=False), 1, 1),
            (
                "runningDifferenceStartingWithFirstValue",
                _running_difference(first_is_value=True),
                1,
                1,
            ),
            ("neighbor", _neighbor, 2, 3),
        )
    ),
)
