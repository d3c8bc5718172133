"""ClickHouse's grammar of types: text to `DataType`, with the original's own restrictions."""

import difflib
import re
import zoneinfo
from collections.abc import Callable
from functools import lru_cache

from rmt_pipeline.protocol.errors import UnknownType
from rmt_pipeline.syntax.type_names import (
    DECIMAL_DIGITS,
    EXACT,
    SPELLINGS,
    TWO_WORDS,
    shown_type,
    unknown_type,
)
from rmt_pipeline.syntax.type_rules import RULES, decimal_rule, fixed_string_rule
from rmt_pipeline.types.aggregate_state import NoState, aggregate_type
from rmt_pipeline.types.data_type import INTEGER_BITS, DataType

DEPTH_MAX = 32
TEXT_CHARACTERS_MAX = 256 * 1024  # an Enum16 of thousands of names still fits

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>[+-]?[0-9]+)
    |(?P<quoted>'(?:[^'\\]|\\.|'')*')
    |(?P<name>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
    |(?P<mark>[(),=]))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f"}

_SIMPLE_FUNCTIONS = frozenset(
    {
        *("any", "anyLast", "min", "max", "sum", "sumWithOverflow"),
        *("groupBitAnd", "groupBitOr", "groupBitXor", "groupArrayArray", "groupUniqArrayArray"),
    }
)


@lru_cache(maxsize=4096)
def parse_type(text: str) -> DataType:
    """The type that `text` names. Raises UnknownType: what, why, and the nearest known."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise UnknownType(
            f"a type's text has {len(text)} characters; the most is {TEXT_CHARACTERS_MAX}"
        )
    parser = _Parser(text, _tokens(text))
    parsed = parser.type(0)
    if parser.place < len(parser.tokens):
        raise parser.problem(f"there is {parser.tokens[parser.place][1]!r} after its end")
    return parsed


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise UnknownType(
                f"cannot read the type {shown_type(text)} at {text[place : place + 20]!r}"
            )
        assert match.lastgroup is not None
        tokens.append((match.lastgroup, match.group(match.lastgroup)))
        place = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens of one type's text."""

    def __init__(self, text: str, tokens: list[tuple[str, str]]) -> None:
        self.text = text
        self.tokens = tokens
        self.place = 0

    def problem(self, reason: str) -> UnknownType:
        return UnknownType(f"cannot read the type {shown_type(self.text)}: {reason}")

    def next(self) -> tuple[str, str]:
        if self.place == len(self.tokens):
            raise self.problem("it ends too early")
        self.place += 1
        return self.tokens[self.place - 1]

    def peek(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def expect(self, mark: str) -> None:
        found = self.next()
        if found != ("mark", mark):
            raise self.problem(f"expected {mark!r} instead of {found[1]!r}")

    def type(self, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise self.problem(f"it is nested more than {DEPTH_MAX} levels deep")
        kind, word = self.next()
        if kind != "word":
            raise self.problem(f"expected a type's name instead of {word!r}")
        word = self._joined(word)
        if word.upper() in DECIMAL_DIGITS:
            (scale,) = self._numbers(word, 1, 1)
            return self._checked(
                decimal_rule, DataType("Decimal", (DECIMAL_DIGITS[word.upper()], scale))
            )
        family = word if word in EXACT else SPELLINGS.get(word.upper())
        if family is None:
            raise UnknownType(unknown_type(word, self.text))
        if family in INTEGER_BITS or (family == "String" and word != "String"):
            self._numbers(word, 0, 1)  # INT(11), VARCHAR(255): the length means nothing
            return DataType(family)
        return self._with_arguments(family, depth)

    def _joined(self, word: str) -> str:
        following = self.peek()
        joined = f"{word} {following}".upper()
        if word.upper() in TWO_WORDS and joined in SPELLINGS:
            self.place += 1
            return joined
        return word

    def _with_arguments(self, family: str, depth: int) -> DataType:
        match family:
            case "Decimal":
                numbers = self._numbers(family, 0, 2) or (10,)
                return self._checked(decimal_rule, DataType(family, (*numbers, 0)[:2]))
            case "FixedString":
                return self._checked(
                    fixed_string_rule, DataType(family, self._numbers(family, 1, 1))
                )
            case "DateTime":
                return self._time(family)
            case "DateTime64":
                return self._time(family)
            case "Enum" | "Enum8" | "Enum16":
                return self._enum(family)
            case "Tuple":
                return self._tuple(depth)
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
        numbers: list[int] = []
        if self.peek() == "(":
            self.next()
            while self.peek() != ")":
                if numbers:
                    self.expect(",")
                kind, text = self.next()
                if kind != "number" or len(text) > 10:
                    raise self.problem(f"{family} takes numbers, not {text[:40]!r}")
                numbers.append(int(text))
            self.expect(")")
        if not least <= len(numbers) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.problem(f"{family} takes {wanted} numbers, not {len(numbers)}")
        return tuple(numbers)

    def _time(self, family: str) -> DataType:
        digits, zone = 3, ""
        if self.peek() == "(":
            self.next()
            kind, text = self.next()
            if family == "DateTime64":
                if kind != "number" or not 0 <= int(text[:4]) <= 9:
                    raise self.problem(
                        f"DateTime64 takes 0 to 9 digits of a second, not {text[:40]}"
                    )
                digits = int(text)
                if self.peek() == ",":
                    self.next()
                    kind, text = self.next()
                else:
                    kind = ""
            if kind == "quoted":
                zone = self._zone(_unquote(text))
            elif kind:
                raise self.problem(f"{family} takes a time zone in quotes, not {text[:40]}")
            self.expect(")")
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
        self.expect("(")
        while self.peek() != ")":
            if values:
                self.expect(",")
            kind, text = self.next()
            if kind != "quoted":
                raise self.problem(
                    f"an enum's elements are written 'name' = number, not {text[:40]}"
                )
            name = _unquote(text)
            if name in values:
                raise self.problem(f"the enum has {name!r} twice")
            number += 1
            if self.peek() == "=":
                self.next()
                kind, text = self.next()
                if kind != "number" or len(text) > 10:
                    raise self.problem(f"the enum's {name!r} takes a number, not {text[:40]}")
                number = int(text)
            values[name] = number
        self.expect(")")
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
        self.expect("(")
        elements = [self.type(depth + 1)]
        while self.peek() == ",":
            self.next()
            elements.append(self.type(depth + 1))
        self.expect(")")
        if len(elements) != count:
            raise self.problem(f"{family} takes {count} types, not {len(elements)}")
        return tuple(elements)

    def _tuple(self, depth: int) -> DataType:
        names: list[str] = []
        elements: list[DataType] = []
        self.expect("(")
        while self.peek() != ")":
            if elements:
                self.expect(",")
            name = self._element_name()
            if name is not None:
                names.append(name)
            elements.append(self.type(depth + 1))
        self.expect(")")
        if not elements:
            raise self.problem("a tuple without elements cannot be stored")
        if names and len(names) < len(elements):
            raise self.problem("either all elements of a tuple have names or none")
        if len(set(names)) < len(names):
            raise self.problem("two elements of the tuple have one name")
        return DataType("Tuple", elements=tuple(elements), names=tuple(names))

    def _element_name(self) -> str | None:
        """A word is an element's name when a type follows it, as in `Tuple(a Int8)`."""
        if self.place + 1 >= len(self.tokens):
            return None
        (kind, text), (next_kind, _) = self.tokens[self.place : self.place + 2]
        if kind == "name":
            self.next()
            return _unquote(text)
        joined = f"{text} {self.tokens[self.place + 1][1]}".upper()
        if kind == "word" and next_kind == "word" and joined not in SPELLINGS:
            self.next()
            return text
        return None

    def _simple_aggregate(self, depth: int) -> DataType:
        self.expect("(")
        _, function = self.next()
        if function not in _SIMPLE_FUNCTIONS:
            known = ", ".join(sorted(_SIMPLE_FUNCTIONS))
            raise self.problem(f"SimpleAggregateFunction has no {function!r}; it has {known}")
        self.expect(",")
        element = self.type(depth + 1)
        self.expect(")")
        return DataType("SimpleAggregateFunction", elements=(element,), names=(function,))

    def _aggregate(self, depth: int) -> DataType:
        self.expect("(")
        _, function = self.next()
        arguments: list[DataType] = []
        while self.peek() != ")":
            self.expect(",")
            arguments.append(self.type(depth + 1))
        self.expect(")")
        try:
            return aggregate_type(function, arguments)
        except NoState as problem:
            raise self.problem(str(problem)) from None

    def _checked(self, rule: Callable[[DataType], str | None], made: DataType) -> DataType:
        reason = rule(made)
        if reason is not None:
            raise self.problem(reason)
        return made


def _unquote(token: str) -> str:
    """The text of a quoted token: backslash escapes, and the quote doubled."""
    quote = token[0]
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda found: _ESCAPES.get(found[1], found[1]) if found[1] else quote,
        token[1:-1],
        flags=re.DOTALL,
    )
