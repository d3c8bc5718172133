"""The properties of a setting, and how its text is read. The settings themselves are the fields of
two classes, `table.TableSettings` and `query.QuerySettings`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal

from rmt_pipeline.protocol.errors import UnknownSetting, UserError

Level = Literal["table", "query"]
TypeName = Literal[
    "Bool",
    "UInt64",
    "NonZeroUInt64",
    "Int64",
    "Float",
    "String",
    "Char",
    "Seconds",
    "Milliseconds",
]
Value = bool | int | float | str

TYPE_OF: dict[type, TypeName] = {bool: "Bool", int: "UInt64", float: "Float", str: "String"}
_BOOLS = {"0": False, "1": True, "false": False, "true": True, "off": False, "on": True}
_INTEGER = re.compile(r"(-?[0-9]{1,20})([KMGT]i?)?", re.ASCII)
_POWER = re.compile(r"(-?[0-9]{1,19})e\+?([0-9]|1[0-9])", re.ASCII)
_FLOAT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII)
_FACTORS = {"K": 1, "M": 2, "G": 3, "T": 4}
UINT64_MAX = 2**64 - 1
INT64_MAX = 2**63 - 1


class BadSetting(UserError):
    """A value does not fit its setting."""

    code = "BAD_ARGUMENTS"


class FixedSetting(UserError):
    """A setting of the original was asked to change what can't be changed here."""

    code = "NOT_IMPLEMENTED"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: a row of `system.settings` or `system.merge_tree_settings`. One that is `fixed`
    has no value but its default.
    """

    name: str
    level: Level
    type: TypeName
    default: Value
    description: str
    fixed: bool = False

    @property
    def default_text(self) -> str:
        return setting_text(self.default)

    def parse(self, text: Value) -> Value:
        """The value for `text`, which may also be a number or a bool. Raises BadSetting,
        FixedSetting.
        """
        text = setting_text(text)
        value = _parse(self.type, text)
        if value is None:
            raise BadSetting(
                f"{text!r} is not a value for the setting {self.name}, which is {self.type} "
                f"({self.description}); its default is {self.default_text!r}"
            )
        if self.fixed and value != self.default:
            raise FixedSetting(
                f"the setting {self.name} is {self.default_text} here and can't become {text}: "
                "that is not supported. Leave the setting out"
            )
        return value


def setting(default: Any, description: str, type_name: TypeName | None = None) -> Any:
    """A field of a class of settings. Without `type_name` the type follows from the default's."""
    kind = type_name or TYPE_OF[type(default)]
    return field(
        default=default, metadata={"default": default, "description": description, "type": kind}
    )


def settings_of(cls: type, level: Level) -> dict[str, Setting]:
    """The settings of a class of settings, by name."""
    return {
        item.name: Setting(
            item.name,
            level,
            item.metadata["type"],
            item.metadata["default"],
            item.metadata["description"],
        )
        for item in fields(cls)
    }


def find(known: Mapping[str, Setting], name: str, aliases: Mapping[str, str]) -> Setting:
    """The setting of that name. Raises UnknownSetting, which names the nearest ones."""
    found = known.get(aliases.get(name, name))
    if found is None:
        near = get_close_matches(name, [*known, *aliases], n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UnknownSetting(f"there is no {_level(known)} setting {name}{hint}")
    return found


def checked(
    given: Iterable[tuple[str, str]], find_setting: Callable[[str], Setting]
) -> dict[str, str]:
    """The given values as they are, by the names of their settings, once it is clear that each is a
    value of its setting. An alias becomes the setting's own name. Raises UnknownSetting,
    BadSetting, FixedSetting.
    """
    found: dict[str, str] = {}
    for name, value in given:
        one = find_setting(name)
        one.parse(value)
        found[one.name] = value
    return found


def _level(known: Mapping[str, Setting]) -> str:
    return next(iter(known.values())).level


def setting_text(value: Value) -> str:
    """The value as `system.settings` shows it: a bool as 0 or 1, a number without an exponent."""
    if isinstance(value, float):
        return format(Decimal(str(value)), "f").removesuffix(".0")
    return str(int(value)) if isinstance(value, bool) else str(value)


def _parse(type_name: TypeName, text: str) -> Value | None:
    """The value of that type; None if the text is not one."""
    match type_name:
        case "Bool":
            return _BOOLS.get(text.lower())
        case "UInt64" | "Seconds" | "Milliseconds":
            return _integer(text, 0, UINT64_MAX)
        case "NonZeroUInt64":
            return _integer(text, 1, UINT64_MAX)
        case "Int64":
            return _integer(text, -INT64_MAX - 1, INT64_MAX)
        case "Float":
            return float(text) if _FLOAT.fullmatch(text) else None
        case "Char":
            return text if len(text) == 1 else None
        case _:
            return text


def _integer(text: str, low: int, high: int) -> int | None:
    """The integer, written plainly, with a power of ten or with a suffix: `300e3` is 300,000, `10G`
    is 10^10, `10Gi` is 10 times 1024^3. None if it is none, or not from `low` to `high`.
    """
    if power := _POWER.fullmatch(text):
        text = power[1] + "0" * int(power[2])
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits, suffix = match.groups()
    number = int(digits)
    if suffix:
        number *= (1024 if suffix.endswith("i") else 1000) ** _FACTORS[suffix[0]]
    return number if low <= number <= high else None
