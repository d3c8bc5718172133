"""TTL: rules by which rows and values expire, and what a part knows of their times (spec §13).

Times are seconds since the epoch, UTC. A time of 0 or less is none: the row never expires. What is
due is decided by times that are written down (a merge's `create_time`), never by a clock, so that
every replica drops the same rows (§16.9 E6).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

TtlKind = Literal["delete", "where", "recompress", "column"]


@dataclass(frozen=True, slots=True)
class TtlRule:
    """One rule of a table. Expressions are canonical texts.

    `delete`: the row goes when `expression` has come. `where`: as `delete`, if `where` holds for
    it. `recompress`: the part is written with `codec` (what stands in CODEC(…)) when the time of
    all its rows has come. `column`: `column` gets its default.
    """

    kind: TtlKind
    expression: str
    where: str = ""
    codec: str = ""
    column: str = ""

    @property
    def text(self) -> str:
        """As in CREATE TABLE."""
        if self.kind == "where":
            return f"{self.expression} WHERE {self.where}"
        if self.kind == "recompress":
            return f"{self.expression} RECOMPRESS CODEC({self.codec})"
        return self.expression

    @property
    def key(self) -> str:
        """What a part's times are filed under; another text, another rule."""
        return f"{self.column}: {self.text}" if self.kind == "column" else self.text

    @property
    def removes_rows(self) -> bool:
        return self.kind in ("delete", "where")


class TtlTimes(NamedTuple):
    """When the rows of a part expire by one rule.

    `min_s` and `max_s` are of the rows that still wait for it: all but those without a time,
    those for which WHERE does not hold, and those whose value was taken already. Both are 0 when
    there is none. `every` says that all rows of the part wait.
    """

    rule: str
    min_s: int
    max_s: int
    every: bool


@dataclass(frozen=True, slots=True)
class PartTtl:
    """What a part's manifest says about TTL.

    `codec` is what it was recompressed with, "" the default. `deleted_s` and `recompressed_s`:
    when the last TTL merge among its ancestors was decided, 0 for none.
    """

    times: tuple[TtlTimes, ...] = ()
    codec: str = ""
    deleted_s: int = 0
    recompressed_s: int = 0

    def of(self, rule: TtlRule) -> TtlTimes | None:
        """None: the part was written before the table had the rule."""
        return next((times for times in self.times if times.rule == rule.key), None)


NO_TTL = PartTtl()


def added(times: Iterable[TtlTimes]) -> tuple[TtlTimes, ...]:
    """When the rows of a part expire, from when those of its pieces (row groups, files) do. Each
    piece has a TtlTimes for every rule.
    """
    found: dict[str, TtlTimes] = {}
    for one in times:
        before = found.get(one.rule)
        found[one.rule] = one if before is None else _both(before, one)
    return tuple(found.values())


def _both(one: TtlTimes, other: TtlTimes) -> TtlTimes:
    return TtlTimes(
        one.rule,
        min(one.min_s or other.min_s, other.min_s or one.min_s),
        max(one.max_s, other.max_s),
        one.every and other.every,
    )


def something_expired(parts: Sequence[PartTtl], rules: Sequence[TtlRule], now_s: int) -> bool:
    """Whether a merge of these parts at `now_s` has to look at each row: some row or value has
    expired, or a part has never been looked at by some rule.
    """
    removing = [rule for rule in rules if rule.kind != "recompress"]
    found = [part.of(rule) for part in parts for rule in removing]
    return any(times is None or 0 < times.min_s <= now_s for times in found)


def everything_expired(part: PartTtl, rules: Sequence[TtlRule], now_s: int) -> bool:
    """Whether no row of the part is left at `now_s`, which its manifest alone can tell."""
    found = [part.of(rule) for rule in rules if rule.removes_rows]
    return any(times is not None and times.every and times.max_s <= now_s for times in found)


def is_unknown(part: PartTtl, rules: Sequence[TtlRule]) -> bool:
    """Whether some rule is younger than the part: nobody has looked when its rows expire by it."""
    return any(part.of(rule) is None for rule in rules)


def expires_s(part: PartTtl, rules: Sequence[TtlRule]) -> int:
    """When the first row or value of the part expires; 0 for never, as far as is known."""
    found = [part.of(rule) for rule in rules if rule.kind != "recompress"]
    return min((times.min_s for times in found if times and times.min_s), default=0)


def emptied_s(part: PartTtl, rules: Sequence[TtlRule]) -> int:
    """When the last row of the part expires; 0 when some row never does."""
    found = [part.of(rule) for rule in rules if rule.removes_rows]
    return min((times.max_s for times in found if times and times.every), default=0)


def codec_of(parts: Sequence[PartTtl], rules: Sequence[TtlRule], now_s: int) -> str:
    """The codec that these parts, or what they are merged into, should have at `now_s`.

    Of the rules whose time has come for every row, the one whose time came last; "" the default.
    """
    passed: list[tuple[int, str]] = []
    for rule in rules:
        times = [part.of(rule) for part in parts]
        latest_s = max((one.max_s for one in times if one is not None), default=0)
        if rule.kind == "recompress" and None not in times and 0 < latest_s <= now_s:
            passed.append((latest_s, rule.codec))
    return max(passed, key=lambda one: one[0])[1] if passed else ""


def recompressed_at_s(part: PartTtl, rules: Sequence[TtlRule]) -> int:
    """When the first recompression is due; 0 when none is."""
    found = [part.of(rule) for rule in rules if rule.kind == "recompress"]
    return min((times.max_s for times in found if times and times.max_s), default=0)
