"""The entries of the allow-list: a function's description, and builders of its DuckDB SQL."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.translate.base.casts import convert, nullable_like
from rmt_pipeline.translate.base.text_form import text_of
from rmt_pipeline.translate.base.typed import (
    FLOAT64,
    NULL_TYPE,
    UINT8,
    Constant,
    Typed,
    TypeProblem,
)
from rmt_pipeline.types.data_type import DataType

Build = Callable[[list[Typed]], Typed]
ArgumentSql = Callable[[Typed], str]


class WrongArguments(UserError):
    """A function was called with too few or too many arguments, or with others than it takes."""

    code = "NUMBER_OF_ARGUMENTS_DOESNT_MATCH"


@dataclass(frozen=True, slots=True)
class Function:
    """One entry of the allow-list.

    `build` makes a typed call of typed arguments, whose number was checked before. `differs` says
    how the answer differs from the original's, "" if it does not. A `windowed` function is allowed
    only where functions OVER a window are.
    """

    name: str
    build: Build
    least: int
    most: int
    deterministic: bool = True
    differs: str = ""
    windowed: bool = False


MANY = 1_000


def function(
    name: str,
    build: Build,
    least: int,
    most: int | None = None,
    *,
    deterministic: bool = True,
    differs: str = "",
    windowed: bool = False,
) -> Function:
    """Return a Function with `least` to `most` arguments, exactly `least` if `most` is None."""
    most = least if most is None else most
    return Function(name, build, least, most, deterministic, differs, windowed)


# Readers: they return the SQL of an argument for a template. Each raises TypeProblem for types that
# it does not take.


def text(value: Typed) -> str:
    """Return SQL of a String or enum as it is, of a FixedString with its zero bytes."""
    plain = value.plain
    if plain.family == "String" or value.is_null_literal or value.type.is_enum:
        return value.sql
    if plain.family == "FixedString":
        return f"decode({value.sql})"
    raise TypeProblem(f"expected a String, not {value.type.text}")


def any_text(value: Typed) -> str:
    """Return SQL of the text of any value."""
    return text(value) if value.type.is_string else text_of(value)


def blob(value: Typed) -> str:
    """Return SQL of the bytes of a String or a FixedString."""
    return value.sql if value.plain.family == "FixedString" else f"encode({text(value)})"


def integer(value: Typed) -> str:
    """Return SQL of an integer as BIGINT."""
    if not (value.type.is_integer or value.is_null_literal) or value.plain.wide_bytes:
        raise TypeProblem(f"expected an integer, not {value.type.text}")
    return f"CAST({value.sql} AS BIGINT)"


def floating(value: Typed) -> str:
    """Return SQL of a number as DOUBLE."""
    if value.is_null_literal:
        return "CAST(NULL AS DOUBLE)"
    if not (value.type.is_computable or value.plain.family == "Bool"):
        raise TypeProblem(f"expected a number, not {value.type.text}")
    return convert(value, FLOAT64).sql


def condition(value: Typed) -> str:
    """Return SQL of a condition as BOOLEAN. A number is true if it is not zero."""
    if value.is_condition or value.plain.family == "Bool":
        return value.sql
    if value.is_null_literal:
        return "CAST(NULL AS BOOLEAN)"
    if value.type.is_float or (value.type.is_integer and not value.plain.wide_bytes):
        return f"({value.sql} <> 0)"
    raise TypeProblem(f"expected a condition, not {value.type.text}")


_RISKY = re.compile(
    r"error\(|decode\(|unhex\(|from_base64|(//|%) (?![0-9])|AS (DATE|TIMESTAMP|UUID)\)|regexp_full"
)


def may_fail(sql: str) -> bool:
    """Whether computing this may fail for some row: it reads text, divides, ..."""
    return _RISKY.search(sql) is not None


def constant_integer(value: Typed, what: str) -> int:
    """Return an argument that must be a constant whole number. `what` names it in the
    TypeProblem.
    """
    found = value.constant.value if value.constant else None
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeProblem(f"{what} must be a constant whole number")
    return found


def constant_text(value: Typed, what: str) -> str:
    """Return an argument that must be a constant string. `what` names it in the TypeProblem."""
    found = value.constant.value if value.constant else None
    if not isinstance(found, str):
        raise TypeProblem(f"{what} must be a constant string")
    return found


# Builders.


def template(sql: str, result: DataType, *readers: ArgumentSql) -> Build:
    """Return the builder of `sql`, in which {0}, {1}, ... are the arguments. Each argument has its
    reader; the last reader is used for all further ones. The SQL must give NULL for NULL: the
    result is Nullable if an argument is.
    """

    def build(arguments: list[Typed]) -> Typed:
        read = [
            (readers[place] if place < len(readers) else readers[-1])(argument)
            for place, argument in enumerate(arguments)
        ]
        return Typed(sql.format(*read), nullable_like(result, *arguments))

    return build


def predicate(sql: str, *readers: ArgumentSql) -> Build:
    """Return the builder of a `template` that gives a condition."""
    inner = template(sql, UINT8, *readers)

    def build(arguments: list[Typed]) -> Typed:
        made = inner(arguments)
        return Typed(made.sql, made.type, is_condition=True)

    return build


def true_or_false(sql: str, *arguments: Typed) -> Typed:
    """Return a condition that is Nullable if one of `arguments` is."""
    return Typed(sql, nullable_like(UINT8, *arguments), is_condition=True)


def always(sql: str, result: DataType, constant: Constant | None = None) -> Build:
    """Return a builder of the same value for all arguments."""
    return lambda _: Typed(sql, result, constant)


def mathematical(sql: str) -> Build:
    """Return the builder of a function from Float64 to Float64."""
    return template(sql, FLOAT64, floating)


def null() -> Typed:
    """Return the literal NULL, which has a type of its own."""
    return Typed("NULL", NULL_TYPE, Constant(None))


def named(functions: Sequence[Function]) -> dict[str, Function]:
    """Return the functions by their names, which must be different."""
    found = {each.name: each for each in functions}
    assert len(found) == len(functions), "two functions have one name"
    return found
