"""The parser of types: text to `DataType`, with the original's restrictions."""

import difflib
import zoneinfo
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

import pyarrow as pa

from rmt_pipeline.protocol.errors import SyntaxProblem, UnknownType
from rmt_pipeline.syntax.cursor import Cursor
from rmt_pipeline.types.aggregate_state import NoState, aggregate_type
from rmt_pipeline.types.data_type import (
    DATES,
    FLOATS,
    INTEGER_BITS,
    NESTED_NAMES,
    DataType,
)

DEPTH_MAX = 32
TEXT_CHARACTERS_MAX = 256 * 1024  # enough for an Enum16 of thousands of names

_SIMPLE_FUNCTIONS = frozenset(
    {
        *("any", "anyLast", "min", "max", "sum", "sumWithOverflow"),
        *("groupBitAnd", "groupBitOr", "groupBitXor", "groupArrayArray", "groupUniqArrayArray"),
    }
)


@lru_cache(maxsize=4096)
def parse_type(text: str) -> DataType:
    """Parse the type that `text` names. Raises UnknownType, which says what is wrong and names
    similar types.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise UnknownType(
            f"a type's text has {len(text)} characters; the most is {TEXT_CHARACTERS_MAX}"
        )
    cursor = Cursor(text)
    try:
        parsed = read_type(cursor)
    except SyntaxProblem as problem:
        raise UnknownType(f"cannot read the type {_shown_type(text)}: {problem}") from None
    if not cursor.at_end:
        after = cursor.current.text
        raise UnknownType(f"cannot read the type {_shown_type(text)}: {after!r} after its end")
    return parsed


def read_type(c: Cursor) -> DataType:
    """Read the type that comes next. Raises UnknownType, SyntaxProblem."""
    return _Reader(c).type(0)


class NamedType(Protocol):
    """A column with a name and a type as text, such as `protocol.table.Column`."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...


def arrow_schema(columns: Iterable[NamedType]) -> pa.Schema:
    """Return the Arrow schema in which rows of these columns are stored. Raises UnknownType."""
    fields = []
    for column in columns:
        data_type = parse_type(column.type)
        fields.append(pa.field(column.name, data_type.arrow, nullable=data_type.nullable))
    return pa.schema(fields)


class _Reader:
    """A recursive-descent parser of one type."""

    def __init__(self, c: Cursor) -> None:
        self.c = c
        self._start = c.current.start

    def text(self) -> str:
        """Return the whole type for messages: its name and its parenthesis."""
        whole = Cursor(self.c.source, self._start, self.c.stop)
        whole.advance()
        if whole.at("("):
            with suppress(SyntaxProblem):
                whole.group()
        return whole.source[self._start : whole.last_end]

    def problem(self, reason: str) -> UnknownType:
        return UnknownType(f"cannot read the type {_shown_type(self.text())}: {reason}")

    def shown(self) -> str:
        return "its end" if self.c.at_end else self.c.current.text[:40]

    def type(self, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise self.problem(f"it is nested more than {DEPTH_MAX} levels deep")
        if self.c.current.kind != "word":
            raise self.c.expected("a type")
        word = self._joined(self.c.advance().text)
        if word.upper() in DECIMAL_DIGITS:
            (scale,) = self._numbers(word, 1, 1)
            return self._checked(
                _decimal_rule, DataType("Decimal", (DECIMAL_DIGITS[word.upper()], scale))
            )
        family = word if word in EXACT else SPELLINGS.get(word.upper())
        if family is None:
            raise UnknownType(_unknown_type(word, self.text()))
        if family in INTEGER_BITS or (family == "String" and word != "String"):
            self._numbers(word, 0, 1)  # INT(11), VARCHAR(255): the length is ignored
            return DataType(family)
        return self._with_arguments(family, depth)

    def _joined(self, word: str) -> str:
        joined = f"{word} {self.c.current.text}".upper()
        if word.upper() in TWO_WORDS and joined in SPELLINGS:
            self.c.advance()
            return joined
        return word

    def _with_arguments(self, family: str, depth: int) -> DataType:
        match family:
            case "Decimal":
                numbers = self._numbers(family, 0, 2) or (10,)
                return self._checked(_decimal_rule, DataType(family, (*numbers, 0)[:2]))
            case "FixedString":
                return self._checked(
                    _fixed_string_rule, DataType(family, self._numbers(family, 1, 1))
                )
            case "DateTime" | "DateTime64":
                return self._time(family)
            case "Enum" | "Enum8" | "Enum16":
                return self._enum(family)
            case "Tuple":
                return self._tuple(depth)
            case "Nested":
                return self._nested(depth)
            case "SimpleAggregateFunction":
                return self._simple_aggregate(depth)
            case "AggregateFunction":
                return self._aggregate(depth)
            case "Array" | "Nullable" | "LowCardinality" | "Map":
                count = 2 if family == "Map" else 1
                elements = self._elements(family, count, depth)
                return self._checked(RULES[family], DataType(family, elements=elements))
            case _:
                return DataType(family)

    def _numbers(self, family: str, least: int, most: int) -> tuple[int, ...]:
        numbers: tuple[int, ...] = ()
        if self.c.take("("):
            numbers = self.c.list_of(lambda _: self._number(f"{family} takes numbers"), ")")
        if not least <= len(numbers) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.problem(f"{family} takes {wanted} numbers, not {len(numbers)}")
        return numbers

    def _number(self, wanted: str) -> int:
        """Read a whole number with its sign. `wanted` describes it in the error."""
        negative = self.c.take("-")
        if not negative:
            self.c.take("+")
        text = self.c.current.text.replace("_", "")
        if self.c.current.kind != "number" or not text.isdecimal() or len(text) > 10:
            raise self.problem(f"{wanted}, not {self.shown()}")
        self.c.advance()
        return -int(text) if negative else int(text)

    def _time(self, family: str) -> DataType:
        digits, zone = 3, ""
        if self.c.take("("):
            if family == "DateTime64":
                wanted = "DateTime64 takes 0 to 9 digits of a second"
                digits = self._number(wanted)
                if not 0 <= digits <= 9:
                    raise self.problem(f"{wanted}, not {digits}")
            if family == "DateTime" or self.c.take(","):
                if self.c.current.kind != "string":
                    raise self.problem(
                        f"{family} takes a time zone in quotes, not {self.shown()}"
                    )
                zone = self._zone(self.c.string())
            self.c.expect(")")
        return DataType(family, (digits,) if family == "DateTime64" else (), zone)

    def _zone(self, name: str) -> str:
        try:
            zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            close = difflib.get_close_matches(name, zoneinfo.available_timezones(), n=3)
            hint = f"; close to it: {', '.join(close)}" if close else ""
            raise self.problem(f"there is no time zone {name[:60]!r}{hint}") from None
        return name

    def _enum(self, family: str) -> DataType:
        values: dict[str, int] = {}
        number = 0
        self.c.expect("(")
        while not self.c.take(")"):
            if values:
                self.c.expect(",")
            if self.c.current.kind != "string":
                raise self.problem(
                    f"an enum's elements are written 'name' = number, not {self.shown()}"
                )
            name = self.c.string()
            if name in values:
                raise self.problem(f"the enum has {name!r} twice")
            number += 1
            if self.c.take("="):
                number = self._number(f"the enum's {name!r} takes a number")
            values[name] = number
        return self._checked_enum(family, values)

    def _checked_enum(self, family: str, values: dict[str, int]) -> DataType:
        if not values:
            raise self.problem("an enum needs at least one element")
        if len(set(values.values())) < len(values):
            raise self.problem("two of the enum's elements have one number")
        fits_8 = all(-128 <= number <= 127 for number in values.values())
        if not all(-32768 <= number <= 32767 for number in values.values()):
            raise self.problem("an enum's numbers lie between -32768 and 32767")
        if family == "Enum8" and not fits_8:
            raise self.problem("an Enum8's numbers lie between -128 and 127; use Enum16")
        if family == "Enum":
            family = "Enum8" if fits_8 else "Enum16"
        return DataType(family, values=tuple(sorted(values.items(), key=lambda pair: pair[1])))

    def _elements(self, family: str, count: int, depth: int) -> tuple[DataType, ...]:
        self.c.expect("(")
        elements = self.c.list_of(lambda _: self.type(depth + 1), ")")
        if len(elements) != count:
            raise self.problem(f"{family} takes {count} types, not {len(elements)}")
        return elements

    def _tuple(self, depth: int) -> DataType:
        self.c.expect("(")
        found = self.c.list_of(lambda _: (self._element_name(), self.type(depth + 1)), ")")
        names = [name for name, _ in found if name is not None]
        elements = tuple(element for _, element in found)
        if not elements:
            raise self.problem("a tuple without elements cannot be stored")
        if names and len(names) < len(elements):
            raise self.problem("either all elements of a tuple have names or none")
        if len(set(names)) < len(names):
            raise self.problem("two elements of the tuple have one name")
        return DataType("Tuple", elements=elements, names=tuple(names))

    def _nested(self, depth: int) -> DataType:
        element = self._tuple(depth + 1)
        if not element.names:
            raise self.problem("each element of Nested has a name, as in Nested(a Int8)")
        return DataType("Array", elements=(element,), names=NESTED_NAMES)

    def _element_name(self) -> str | None:
        """Read an element's name, if there is one: a word that a type follows, as in `Tuple(a
        Int8)`.
        """
        token, following = self.c.current, self.c.ahead()
        joined = f"{token.text} {following.text}".upper()
        named = token.kind == "word" and following.kind == "word" and joined not in SPELLINGS
        return self.c.identifier() if named or token.kind == "name" else None

    def _simple_aggregate(self, depth: int) -> DataType:
        self.c.expect("(")
        function = self.c.advance().text
        if function not in _SIMPLE_FUNCTIONS:
            known = ", ".join(sorted(_SIMPLE_FUNCTIONS))
            raise self.problem(f"SimpleAggregateFunction has no {function!r}; it has {known}")
        self.c.expect(",")
        element = self.type(depth + 1)
        self.c.expect(")")
        return DataType("SimpleAggregateFunction", elements=(element,), names=(function,))

    def _aggregate(self, depth: int) -> DataType:
        self.c.expect("(")
        function = self.c.advance().text
        parameters: list[str] = []
        if self.c.take("("):
            while not self.c.take(")"):
                if parameters:
                    self.c.expect(",")
                parameters.append(self._parameter(function))
        arguments: list[DataType] = []
        while not self.c.take(")"):
            self.c.expect(",")
            arguments.append(self.type(depth + 1))
        try:
            return aggregate_type(function, arguments, parameters)
        except NoState as problem:
            raise self.problem(str(problem)) from None

    def _parameter(self, function: str) -> str:
        if self.c.current.kind != "number":
            raise self.problem(f"{function} takes numbers in parentheses, not {self.shown()}")
        return self.c.advance().text

    def _checked(self, rule: Callable[[DataType], str | None], made: DataType) -> DataType:
        reason = rule(made)
        if reason is not None:
            raise self.problem(reason)
        return made


# The original's restrictions on types. Each rule returns the reason for refusal, or None.


def _decimal_rule(made: DataType) -> str | None:
    precision, scale = made.numbers
    if not 1 <= precision <= 76:
        return f"a Decimal has 1 to 76 digits, not {precision}"
    if not 0 <= scale <= precision:
        return (
            f"a Decimal({precision}) has 0 to {precision} digits after the point, not {scale}"
        )
    return None


def _fixed_string_rule(made: DataType) -> str | None:
    if not 1 <= made.numbers[0] <= 0xFFFFFF:
        return f"a FixedString has 1 to {0xFFFFFF} bytes, not {made.numbers[0]}"
    return None


def _nullable(made: DataType) -> str | None:
    inside = made.elements[0]
    if inside.family in {"Nullable", "LowCardinality", "Array", "Map", "Tuple"}:
        hint = (
            "; write LowCardinality(Nullable(...))" if inside.family == "LowCardinality" else ""
        )
        return f"{inside.text} cannot be inside Nullable{hint}"
    return None


def _low_cardinality(made: DataType) -> str | None:
    inside = made.elements[0]
    plain = inside.elements[0] if inside.family == "Nullable" else inside
    allowed = {*INTEGER_BITS, *FLOATS, *DATES, "String", "FixedString", "DateTime", "UUID"}
    if plain.family not in allowed | {"IPv4", "IPv6"}:
        return f"LowCardinality holds numbers, strings, dates and times, not {inside.text}"
    return None


def _map(made: DataType) -> str | None:
    key = made.elements[0]
    if key.nullable:
        return f"a map's key cannot be {key.text}: a key is never NULL"
    return None


def _any(made: DataType) -> str | None:
    del made
    return None


RULES: dict[str, Callable[[DataType], str | None]] = {
    "Nullable": _nullable,
    "LowCardinality": _low_cardinality,
    "Map": _map,
    "Array": _any,
}


# Names of types: the original's, other spellings of them, and those that are refused.

EXACT = (
    *INTEGER_BITS,
    *sorted(FLOATS),
    *("String", "UUID", "IPv4", "IPv6", "FixedString", "Enum8", "Enum16"),
    *("Nullable", "LowCardinality", "Array", "Tuple", "Map", "SimpleAggregateFunction"),
    "Nested",
    "AggregateFunction",
)


_ANY_CASE = ("Bool", "Date", "Date32", "DateTime", "DateTime64", "Decimal", "Enum")


_NUMERIC_ALIASES = {
    "Int8": "BYTE,INT1,TINYINT",
    "Int16": "SMALLINT",
    "Int32": "INT,INTEGER,MEDIUMINT",
    "Int64": "BIGINT,SIGNED",
    "UInt8": "INT1 UNSIGNED,TINYINT UNSIGNED",
    "UInt16": "SMALLINT UNSIGNED,YEAR",
    "UInt32": "INT UNSIGNED,INTEGER UNSIGNED,MEDIUMINT UNSIGNED",
    "UInt64": "BIGINT UNSIGNED,UNSIGNED,BIT,SET",
    "Float32": "FLOAT,REAL,SINGLE",
    "Float64": "DOUBLE,DOUBLE PRECISION",
}


_OTHER_ALIASES = {
    "String": (
        "CHAR,VARCHAR,VARCHAR2,NCHAR,NVARCHAR,CHARACTER,CHAR VARYING,CHARACTER VARYING,TEXT,"
        "TINYTEXT,MEDIUMTEXT,LONGTEXT,CLOB,BLOB,TINYBLOB,MEDIUMBLOB,LONGBLOB,BYTEA,VARBINARY"
    ),
    "Bool": "BOOLEAN",
    "DateTime": "TIMESTAMP,DATETIME32",
    "Decimal": "DEC,NUMERIC,FIXED",
    "FixedString": "BINARY",
    "IPv4": "INET4",
    "IPv6": "INET6",
}


DECIMAL_DIGITS = {"DECIMAL32": 9, "DECIMAL64": 18, "DECIMAL128": 38, "DECIMAL256": 76}


_WITHOUT_REASON = {
    "JSON": "use String or Map(String, String)",
    "Object": "use String or Map(String, String)",
    "Dynamic": "use String",
    "Variant": "use a Nullable column for each alternative",
    "BFloat16": "use Float32",
    "Time": "use Int32 (seconds) or DateTime",
    "Time64": "use Int64 or DateTime64",
    "Nothing": "no column can hold it",
    "Point": "use Tuple(Float64, Float64)",
}


def _spellings() -> dict[str, str]:
    spellings = {name.upper(): name for name in _ANY_CASE}
    for family, aliases in (_NUMERIC_ALIASES | _OTHER_ALIASES).items():
        for alias in aliases.split(","):
            spellings[alias] = family
            if family.startswith("Int"):
                spellings[f"{alias} SIGNED"] = family
    return spellings


SPELLINGS = _spellings()


TWO_WORDS = {spelling.split(" ")[0] for spelling in SPELLINGS if " " in spelling}


def _unknown_type(word: str, text: str) -> str:
    whole = f" (in {_shown_type(text)})" if word != text.strip() else ""
    if word in _WITHOUT_REASON:
        return f"columns of type {word} are not supported{whole}: {_WITHOUT_REASON[word]}"
    known = {name.lower(): name for name in (*EXACT, *_ANY_CASE, *SPELLINGS)}
    close = difflib.get_close_matches(word.lower(), known, n=3, cutoff=0.5)
    hint = ", ".join(known[name] for name in close) or "see Types and engines in docs/sql.md"
    return f"unknown type {word!r}{whole}; known ones close to it: {hint}"


def _shown_type(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}...")
