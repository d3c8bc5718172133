"""What clients did to whole partitions while others inserted, and whether what is shown agrees.

The model knows nothing of logs, block numbers or parts: only when each statement was said and when
it was answered, and which keys it brought. Of two statements one came first if it was answered
before the other was said; of two at once either may have. `judge` says what no order explains.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Literal

Kind = Literal["insert", "put", "replace", "drop", "move"]
Unit = frozenset[int]
"""Keys that one statement brought to one partition: they come and go together."""


@dataclass(frozen=True, slots=True)
class Act:
    """One statement, and what it does to one partition of the table. All but an insert take what
    is there. `brings`: what comes, one of these. It is not `done` when nobody knows: then it may
    happen at any time. What was refused is no act.

    `server` showed it when it was answered; "": only once all queues are empty.
    """

    kind: Kind
    partition: str
    begin_s: float
    end_s: float
    server: str = ""
    brings: tuple[Unit, ...] = ()
    done: bool = True

    def is_before(self, other: "Act") -> bool:
        return self.done and self.end_s < other.begin_s

    @property
    def takes(self) -> bool:
        return self.kind != "insert"


@dataclass(frozen=True, slots=True)
class Look:
    """All keys of the table on one server at one moment. `moved`: nobody did anything meanwhile,
    all queues were empty, and these are the keys of the table that moves go to.
    """

    server: str
    keys: tuple[int, ...]
    begin_s: float
    end_s: float
    moved: tuple[int, ...] | None = None


@dataclass(slots=True)
class Verdict:
    """Looks and keys by what is wrong with them."""

    lost: list[str] = field(default_factory=list)
    """Answered, and not there, although nothing can have taken it."""
    back: list[str] = field(default_factory=list)
    """There, although something took it that was said after it was answered."""
    mixed: list[str] = field(default_factory=list)
    """Beside what must have replaced it."""
    partial: list[str] = field(default_factory=list)
    """Some keys of a unit without the others."""
    doubled: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    """Nobody brought it, or not yet, or moved it there."""
    looks: int = 0
    quiet: int = 0
    """Looks while nobody did anything."""
    must_be_there: int = 0
    must_be_gone: int = 0
    """How many units of how many looks had to be: what the verdict is worth."""

    @property
    def faults(self) -> dict[str, list[str]]:
        found = {name: those for name, those in asdict(self).items() if isinstance(those, list)}
        return {name: those for name, those in found.items() if those}


def judge(acts: Iterable[Act], looks: Iterable[Look]) -> Verdict:
    by_partition: dict[str, list[Act]] = defaultdict(list)
    for act in acts:
        by_partition[act.partition].append(act)
    partitions = [_Partition(those) for those in by_partition.values()]
    brought = set().union(*(unit for one in partitions for unit in one.bringers))
    verdict = Verdict()
    for look in looks:
        verdict.looks += 1
        verdict.quiet += look.moved is not None
        there, moved = Counter(look.keys), Counter(look.moved or ())
        verdict.unexpected += [_told(look, [key]) for key in sorted({*there, *moved} - brought)]
        for partition in partitions:
            partition.judge(verdict, look, there)
            if look.moved is not None:
                partition.judge_moved(verdict, look, there, moved)
    return verdict


class _Partition:
    """What was done to one partition. Times are looked up often, and computed once."""

    def __init__(self, acts: Sequence[Act]) -> None:
        self.acts = acts
        self.takers = [act for act in acts if act.takes]
        self.bringers: dict[Unit, list[Act]] = defaultdict(list)
        for act in acts:
            for unit in act.brings:
                self.bringers[unit].append(act)
        may_take = {id(act): self._may_take(act) for act in acts if act.brings}
        self._taken_from_s = {
            key: min((one.begin_s for one in takers), default=math.inf)
            for key, takers in may_take.items()
        }
        self._only_moved = {
            key: all(one.kind == "move" for one in takers) for key, takers in may_take.items()
        }
        self._moved = {
            key: any(one.kind == "move" for one in takers) for key, takers in may_take.items()
        }
        self._gone_s = {id(act): self._gone_by(act) for act in acts if act.brings}

    def _may_take(self, act: Act) -> list[Act]:
        return [one for one in self.takers if one is not act and not one.is_before(act)]

    def _gone_by(self, act: Act) -> Mapping[str, float]:
        """When each server, and "" for all of them, can't show it any more."""
        gone: dict[str, float] = defaultdict(lambda: math.inf)
        for one in self.takers:
            if one.done and act.is_before(one):
                for server in {one.server, ""}:
                    gone[server] = min(gone[server], one.end_s)
        return dict(gone)

    def judge(self, verdict: Verdict, look: Look, there: Counter[int]) -> None:
        shown = [unit for unit in self.bringers if any(there[key] for key in unit)]
        for unit in shown:
            counts = [there[key] for key in unit]
            if max(counts) > 1:
                verdict.doubled.append(_told(look, unit))
            if min(counts) == 0:
                verdict.partial.append(_told(look, unit))
            if all(one.begin_s > look.end_s for one in self.bringers[unit]):
                verdict.unexpected.append(_told(look, unit))
        self._judge_what_must_be(verdict, look, set(shown))
        self._judge_together(verdict, look, shown)

    def _judge_what_must_be(
        self, verdict: Verdict, look: Look, shown: AbstractSet[Unit]
    ) -> None:
        for unit, bringers in self.bringers.items():
            if all(self._must_be_gone(one, look) for one in bringers):
                verdict.must_be_gone += 1
                verdict.back += [_told(look, unit)] * (unit in shown)
        for act in self.acts:
            if act.brings and self._must_be_there(act, look):
                verdict.must_be_there += 1
                if shown.isdisjoint(act.brings):
                    verdict.lost.append(_told(look, act.brings[-1]))

    def _must_be_gone(self, act: Act, look: Look) -> bool:
        where = look.server if look.moved is None else ""
        return self._gone_s[id(act)].get(where, math.inf) < look.begin_s

    def _must_be_there(self, act: Act, look: Look) -> bool:
        is_known = act.done and (look.moved is not None or act.server == look.server)
        return (
            is_known and act.end_s < look.begin_s and look.end_s < self._taken_from_s[id(act)]
        )

    def _judge_together(self, verdict: Verdict, look: Look, shown: Sequence[Unit]) -> None:
        """Of what replaces there is one at most, and nothing beside it that was there before. That
        holds on each replica at any time, however far behind it is.
        """
        replacing = [unit for unit in shown if self.bringers[unit][0].takes]
        verdict.mixed += [_told(look, unit) for unit in replacing[1:]]
        for unit in shown:
            mine = self.bringers[unit]
            for other in replacing:
                theirs = self.bringers[other]
                if unit is not other and all(a.is_before(b) for a in mine for b in theirs):
                    verdict.mixed.append(_told(look, unit))

    def judge_moved(
        self, verdict: Verdict, look: Look, there: Counter[int], moved: Counter[int]
    ) -> None:
        """What moves is in one of the two tables, once for each time that it came."""
        for unit, bringers in self.bringers.items():
            counts = [moved[key] for key in unit]
            if min(counts) != max(counts):
                verdict.partial.append(_told(look, unit))
            total = max(counts) + max(there[key] for key in unit)
            if total > len(bringers):
                verdict.doubled.append(_told(look, unit))
            if max(counts) > 0 and not any(self._moved[id(one)] for one in bringers):
                verdict.unexpected.append(_told(look, unit))
            [first, *others] = bringers
            stays = self._only_moved[id(first)] and first.done and not others
            if stays and len(first.brings) == 1 and first.end_s < look.begin_s:
                verdict.must_be_there += 1
                if total == 0:
                    verdict.lost.append(_told(look, unit))


def _told(look: Look, keys: Iterable[int]) -> str:
    some = sorted(keys)
    return f"{some[0]} to {some[-1]} on {look.server} at {look.begin_s:.3f} s"
