"""What the allow-list is made of: a function's description, and builders of DuckDB SQL."""

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
    """A function was called with too few, too many, or other arguments than it takes."""

    code = "NUMBER_OF_ARGUMENTS_DOESNT_MATCH"


@dataclass(frozen=True, slots=True)
class Function:
    """One entry of the allow-list.

    `build` turns typed arguments into a typed call; the number of arguments is checked before.
    `differs` says how the answer differs from the original's, when it does. `windowed` is a
    function that has its place where functions OVER a window have theirs.
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
    """A Function with `least` to `most` arguments, just `least` when `most` is None."""
    most = least if most is None else most
    return Function(name, build, least, most, deterministic, differs, windowed)


# Readers: an argument as the SQL that a template wants. Each refuses what it cannot take.


def text(value: Typed) -> str:
    """A String as it is; a FixedString with its zero bytes."""
    plain = value.plain
    if plain.family == "String" or value.is_null_literal or value.type.is_enum:
        return value.sql
    if plain.family == "FixedString":
        return f"decode({value.sql})"
    raise TypeProblem(f"expected a String, not {value.type.text}")


def any_text(value: Typed) -> str:
    """Anything, as its text."""
    return text(value) if value.type.is_string else text_of(value)


def blob(value: Typed) -> str:
    """The bytes of a String or a FixedString."""
    return value.sql if value.plain.family == "FixedString" else f"encode({text(value)})"


def integer(value: Typed) -> str:
    """A BIGINT."""
    if not (value.type.is_integer or value.is_null_literal) or value.plain.wide_bytes:
        raise TypeProblem(f"expected an integer, not {value.type.text}")
    return f"CAST({value.sql} AS BIGINT)"


def floating(value: Typed) -> str:
    """A DOUBLE."""
    if value.is_null_literal:
        return "CAST(NULL AS DOUBLE)"
    if not (value.type.is_computable or value.plain.family == "Bool"):
        raise TypeProblem(f"expected a number, not {value.type.text}")
    return convert(value, FLOAT64).sql


def condition(value: Typed) -> str:
    """A BOOLEAN: a number is true when it is not zero."""
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
    """Whether computing this for some row may be an error: reading text, dividing, ..."""
    return _RISKY.search(sql) is not None


def constant_integer(value: Typed, what: str) -> int:
    """An argument that must be a whole number known before any row is read."""
    found = value.constant.value if value.constant else None
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeProblem(f"{what} must be a constant whole number")
    return found


def constant_text(value: Typed, what: str) -> str:
    """An argument that must be a string known before any row is read. `what` names it in the
    message. Raises TypeProblem.
    """
    found = value.constant.value if value.constant else None
    if not isinstance(found, str):
        raise TypeProblem(f"{what} must be a constant string")
    return found


# Builders.


def template(sql: str, result: DataType, *readers: ArgumentSql) -> Build:
    """`sql` with {0}, {1}, ... for the arguments, each read by its reader (the last one repeats).
    NULL in gives NULL out, so the result is Nullable when an argument is.
    """

    def build(arguments: list[Typed]) -> Typed:
        read = [
            (readers[place] if place < len(readers) else readers[-1])(argument)
            for place, argument in enumerate(arguments)
        ]
        return Typed(sql.format(*read), nullable_like(result, *arguments))

    return build


def predicate(sql: str, *readers: ArgumentSql) -> Build:
    """A template that gives a condition."""
    inner = template(sql, UINT8, *readers)

    def build(arguments: list[Typed]) -> Typed:
        made = inner(arguments)
        return Typed(made.sql, made.type, is_condition=True)

    return build


def true_or_false(sql: str, *arguments: Typed) -> Typed:
    """A condition that is Nullable when one of `arguments` is."""
    return Typed(sql, nullable_like(UINT8, *arguments), is_condition=True)


def always(sql: str, result: DataType, constant: Constant | None = None) -> Build:
    """The same, whatever it is called with."""
    return lambda _: Typed(sql, result, constant)


def mathematical(sql: str) -> Build:
    """Float64 in, Float64 out."""
    return template(sql, FLOAT64, floating)


def null() -> Typed:
    """NULL, which has a type of its own."""
    return Typed("NULL", NULL_TYPE, Constant(None))


def named(functions: Sequence[Function]) -> dict[str, Function]:
    """The functions by their names, of which no two may be the same."""
    found = {each.name: each for each in functions}
    assert len(found) == len(functions), "two functions have one name"
    return found
