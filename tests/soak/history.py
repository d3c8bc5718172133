"""What clients did and were told, and whether the tables at the end agree (Jepsen's set-full idea).

Every client writes a file of its own, a line before each operation and one after it, so that an
operation whose client was killed is known and has no outcome. `judge` reads only these and what
the tables hold at the end.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["unknown", "done", "refused", "deleting", "deleted", "back"]
"""`refused`: nothing was inserted, and never will be. `deleting`: it was inserted, and may be gone
by now; `deleted`: a command that was acknowledged took it, nothing of it is there at the end;
`back`: it was taken out and brought back, both acknowledged, and all of it is there at the end.
"""
GONE = ("refused", "deleted")
GOING = ("deleting", "deleted", "back")
STAYS = ("done", "back")


@dataclass(frozen=True, slots=True)
class Insert:
    """One logical insert of distinct keys: when it was first asked for and when its client knew.

    `server` took it, when that is known. Times are of the machine's monotonic clock, in seconds.
    """

    name: str
    keys: tuple[int, ...]
    begin_s: float
    end_s: float = 0.0
    outcome: Outcome = "unknown"
    server: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """All keys that one server showed at one moment between `begin_s` and `end_s`.

    `seen_last`: ZooKeeper did not answer, and the reader was warned that these are the keys of an
    earlier moment, so that newer ones may be missing. `wrong`: rows that nobody has ever inserted
    like this. `refused`: why there was no answer, and then there are no keys.
    """

    server: str
    keys: tuple[int, ...]
    begin_s: float
    end_s: float
    seen_last: bool = False
    wrong: tuple[str, ...] = ()
    refused: str = ""


@dataclass(slots=True)
class Verdict:
    """Names of inserts, or keys, by what is wrong with them."""

    lost: list[str] = field(default_factory=list)
    """Acknowledged, and not in every table at the end."""
    partial: list[str] = field(default_factory=list)
    """Neither whole nor away in some table at the end."""
    duplicated: list[str] = field(default_factory=list)
    """More than once in a table or in a read."""
    unexpected: list[str] = field(default_factory=list)
    """Keys that nobody tried to insert, or whose insert was refused, or that were deleted."""
    stale: list[str] = field(default_factory=list)
    """Acknowledged by a server, and not in a read of that server that began later."""
    vanished: list[str] = field(default_factory=list)
    """Seen by a read of a server, and not by a later one."""
    wrong: list[str] = field(default_factory=list)
    """Rows in a read whose values do not belong together."""
    different: list[str] = field(default_factory=list)
    """In the table of one server at the end, and not in another's."""
    idle: list[str] = field(default_factory=list)
    """What never worked once, so that nothing can be said of it."""
    inserts: int = 0
    acknowledged: int = 0
    unknown: int = 0
    unknown_and_there: int = 0
    deleted: int = 0
    back: int = 0
    reads: int = 0
    reads_seen_last: int = 0
    reads_refused: int = 0

    @property
    def faults(self) -> dict[str, list[str]]:
        return {name: found for name, found in asdict(self).items() if isinstance(found, list)}

    @property
    def is_right(self) -> bool:
        return not any(self.faults.values())

    def words(self) -> str:
        counts = (
            f"{self.inserts} inserts, {self.acknowledged} acknowledged, {self.unknown} unknown "
            f"({self.unknown_and_there} of them there), {self.deleted} deleted, {self.back} taken "
            f"out and brought back, {self.reads} reads "
            f"({self.reads_seen_last} without ZooKeeper, {self.reads_refused} refused)"
        )
        wrong = [
            f"{len(found)} {name}: {', '.join(found[:5])}"
            for name, found in self.faults.items()
            if found
        ]
        return "; ".join([counts, *(wrong or ["nothing is wrong"])])


class Recorder:
    """Appends to a client's file. What is written survives the death of the client."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, event: Insert | Read) -> None:
        kind = "insert" if isinstance(event, Insert) else "read"
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, **asdict(event)}) + "\n")


def read_histories(files: Iterable[Path]) -> tuple[list[Insert], list[Read]]:
    """The last word of each insert, and all reads. A line that a death has cut is left out."""
    inserts: dict[str, Insert] = {}
    reads: list[Read] = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            kind, keys = event.pop("kind"), tuple(event.pop("keys"))
            if kind == "insert":
                inserts[event["name"]] = Insert(keys=keys, **event)
            else:
                wrong = tuple(event.pop("wrong"))
                reads.append(Read(keys=keys, wrong=wrong, **event))
    return list(inserts.values()), reads


def judge(
    inserts: Sequence[Insert], reads: Sequence[Read], tables: Mapping[str, Sequence[int]]
) -> Verdict:
    """`tables`: what each server holds when all faults are over and all queues are empty."""
    verdict = Verdict(inserts=len(inserts), reads=len(reads))
    finals = {server: Counter(keys) for server, keys in tables.items()}
    _judge_tables(verdict, inserts, finals)
    _judge_reads(verdict, inserts, reads)
    if all(insert.outcome in ("unknown", "refused") for insert in inserts):
        verdict.idle.append("no insert was acknowledged")
    if reads and all(read.refused for read in reads):
        verdict.idle.append("no read was answered")
    return verdict


def _judge_tables(
    verdict: Verdict, inserts: Sequence[Insert], finals: Mapping[str, Counter[int]]
) -> None:
    tried: set[int] = set()
    for insert in inserts:
        there = {server: [keys[key] for key in insert.keys] for server, keys in finals.items()}
        verdict.acknowledged += insert.outcome in STAYS
        verdict.unknown += insert.outcome == "unknown"
        if insert.outcome == "unknown":
            verdict.unknown_and_there += any(map(any, there.values()))
        verdict.deleted += insert.outcome == "deleted"
        verdict.back += insert.outcome == "back"
        if insert.outcome not in GONE:
            tried.update(insert.keys)
        if any(any(counts) and not all(counts) for counts in there.values()):
            verdict.partial.append(insert.name)
        if insert.outcome in STAYS and not all(map(all, there.values())):
            verdict.lost.append(insert.name)
        if any(max(counts, default=0) > 1 for counts in there.values()):
            verdict.duplicated.append(insert.name)
    everywhere = set().union(*finals.values())
    verdict.unexpected += sorted(map(str, everywhere - tried))
    for server, keys in finals.items():
        verdict.different += [
            f"{key} not on {server}" for key in sorted(everywhere - set(keys))
        ]


def _judge_reads(verdict: Verdict, inserts: Sequence[Insert], reads: Sequence[Read]) -> None:
    by_server: dict[str, list[Read]] = defaultdict(list)
    tried = {key for insert in inserts for key in insert.keys}
    going = {key for insert in inserts if insert.outcome in GOING for key in insert.keys}
    for read in sorted(reads, key=lambda read: read.begin_s):
        verdict.wrong += [f"{row} on {read.server}" for row in read.wrong]
        if read.refused:
            verdict.reads_refused += 1
        elif read.seen_last:
            verdict.reads_seen_last += 1
        else:
            by_server[read.server].append(read)
        twice = [key for key, count in Counter(read.keys).items() if count > 1]
        verdict.duplicated += [f"{key} in a read of {read.server}" for key in twice]
        verdict.unexpected += [f"{key} in a read" for key in sorted(set(read.keys) - tried)]
    for server, those in by_server.items():
        must: dict[int, float] = {
            key: insert.end_s
            for insert in inserts
            if insert.outcome == "done" and insert.server == server
            for key in insert.keys
        }
        seen: dict[int, float] = {}
        for read in those:
            keys = set(read.keys)
            for since, fault in ((must, verdict.stale), (seen, verdict.vanished)):
                fault += [
                    f"{key} on {server}"
                    for key, when_s in since.items()
                    if when_s < read.begin_s and key not in keys
                ]
            for key in keys - going:
                seen.setdefault(key, read.end_s)
