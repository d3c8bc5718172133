"""TTL: the rules by which rows and values expire, and what a part says about their times (spec
§13).

Times are seconds since the epoch, UTC. A time of 0 or less means that the row never expires. What
has expired is decided by a time in ZooKeeper (a merge's `create_time`), never by a clock, so that
every replica drops the same rows (§16.9 E6).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

TtlKind = Literal["delete", "where", "recompress", "column"]


@dataclass(frozen=True, slots=True)
class TtlRule:
    """One rule of a table. Expressions are canonical texts. What happens by each kind of rule:

    * `delete`: a row is removed once the time that `expression` gives is reached;
    * `where`: as `delete`, but only rows for which the condition `where` holds;
    * `recompress`: the part is rewritten with `codec` (what stands in CODEC(…)) once the time of
      all its rows is reached;
    * `column`: the value of `column` becomes its default.
    """

    kind: TtlKind
    expression: str
    where: str = ""
    codec: str = ""
    column: str = ""

    @property
    def text(self) -> str:
        """The rule as it stands in CREATE TABLE."""
        if self.kind == "where":
            return f"{self.expression} WHERE {self.where}"
        if self.kind == "recompress":
            return f"{self.expression} RECOMPRESS CODEC({self.codec})"
        return self.expression

    @property
    def key(self) -> str:
        """The name of the rule in a part's `TtlTimes`. Rules with different texts are different."""
        return f"{self.column}: {self.text}" if self.kind == "column" else self.text

    @property
    def removes_rows(self) -> bool:
        return self.kind in ("delete", "where")


class TtlTimes(NamedTuple):
    """When the rows of a part expire by one rule.

    `min_s` and `max_s` are the first and the last time of the rows that will still expire by it.
    Rows without a time, rows for which WHERE does not hold, and rows whose value became the default
    already do not count. Both are 0 if no row counts. `every` says that all rows count.
    """

    rule: str
    min_s: int
    max_s: int
    every: bool


@dataclass(frozen=True, slots=True)
class PartTtl:
    """What a part's manifest says about TTL.

    `codec` is the one that it was recompressed with, "" for the default. `deleted_s` and
    `recompressed_s` are when the last TTL merge of its ancestors was decided, 0 if there was none.
    """

    times: tuple[TtlTimes, ...] = ()
    codec: str = ""
    deleted_s: int = 0
    recompressed_s: int = 0

    def of(self, rule: TtlRule) -> TtlTimes | None:
        """When the rows expire by this rule; None if the part was written before the
        table had it.
        """
        return next((times for times in self.times if times.rule == rule.key), None)


NO_TTL = PartTtl()


def added(times: Iterable[TtlTimes]) -> tuple[TtlTimes, ...]:
    """When the rows of a part expire by each rule, from the times of its pieces (row groups or
    files), of which each has a TtlTimes for every rule.
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
    """Whether a merge of these parts at `now_s` has to look at each row, because some row or value
    has expired by then, or a part was written before the table had some rule.
    """
    removing = [rule for rule in rules if rule.kind != "recompress"]
    found = [part.of(rule) for part in parts for rule in removing]
    return any(times is None or 0 < times.min_s <= now_s for times in found)


def everything_expired(part: PartTtl, rules: Sequence[TtlRule], now_s: int) -> bool:
    """Whether one rule removes every row of the part by `now_s`, as its manifest says."""
    found = [part.of(rule) for rule in rules if rule.removes_rows]
    return any(times is not None and times.every and times.max_s <= now_s for times in found)


def is_unknown(part: PartTtl, rules: Sequence[TtlRule]) -> bool:
    """Whether the part was written before the table had some rule, so that its times
    are unknown.
    """
    return any(part.of(rule) is None for rule in rules)


def expires_s(part: PartTtl, rules: Sequence[TtlRule]) -> int:
    """When the first row or value of the part expires; 0 if none does by the rules it knows."""
    found = [part.of(rule) for rule in rules if rule.kind != "recompress"]
    return min((times.min_s for times in found if times and times.min_s), default=0)


def emptied_s(part: PartTtl, rules: Sequence[TtlRule]) -> int:
    """When the last row of the part has expired by one rule; 0 if no rule removes every row."""
    found = [part.of(rule) for rule in rules if rule.removes_rows]
    return min((times.max_s for times in found if times and times.every), default=0)


def codec_of(parts: Sequence[PartTtl], rules: Sequence[TtlRule], now_s: int) -> str:
    """The codec that these parts, or the part that they are merged into, should have at `now_s`.

    It is the codec of that rule, among those whose time is reached for every row, whose time was
    reached last; "", the default, if there is none.
    """
    passed: list[tuple[int, str]] = []
    for rule in rules:
        times = [part.of(rule) for part in parts]
        latest_s = max((one.max_s for one in times if one is not None), default=0)
        if rule.kind == "recompress" and None not in times and 0 < latest_s <= now_s:
            passed.append((latest_s, rule.codec))
    return max(passed, key=lambda one: one[0])[1] if passed else ""


def recompressed_at_s(part: PartTtl, rules: Sequence[TtlRule]) -> int:
    """When the first recompression of the part is due; 0 if there is none."""
    found = [part.of(rule) for rule in rules if rule.kind == "recompress"]
    return min((times.max_s for times in found if times and times.max_s), default=0)
