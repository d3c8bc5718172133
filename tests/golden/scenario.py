"""Scenario files and references, as README.md describes them: read, and compared."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmt_pipeline.protocol.parts.name import PartName

DIRECTORY = Path(__file__).parent / "scenarios"

_SELECTED = re.compile(r"# (r[0-9]) (.*)", re.DOTALL)
_PARTS = re.compile(r"# parts (\S+) (r[0-9])")
_LOG = re.compile(r"# log (\S+)")
_MUTATION = re.compile(r"# mutation (\S+) ([0-9]{10})")


@dataclass(frozen=True, slots=True)
class Run:
    """One statement on one replica, with its settings."""

    replica: str
    statement: str
    settings: tuple[tuple[str, str], ...] = ()
    fails: bool = False

    @property
    def answers(self) -> bool:
        return self.statement.upper().startswith(("SELECT", "WITH"))


@dataclass(frozen=True, slots=True)
class WaitMutations:
    """Until no mutation is unfinished on either replica."""


Step = Run | WaitMutations


def steps_of(text: str) -> Iterator[Step]:
    """What a `.sql` file says to do, in order."""
    replica, fails = "r1", False
    settings: list[tuple[str, str]] = []
    statement: list[str] = []
    for line in text.splitlines():
        if not statement and line.startswith("--"):
            note = line[2:].strip()
            if note in ("r1", "r2"):
                replica = note
            elif note == "expect error":
                fails = True
            elif note == "wait mutations":
                yield WaitMutations()
            elif note.startswith("set "):
                name, _, value = note[4:].partition("=")
                settings.append((name.strip(), value.strip()))
            continue
        if line.strip():
            statement.append(line)
        if line.rstrip().endswith(";"):
            yield Run(replica, "\n".join(statement).rstrip("; \n"), tuple(settings), fails)
            statement, settings, fails = [], [], False
    assert not statement, f"a statement ends with `;` at the end of a line: {statement}"


@dataclass(frozen=True, slots=True)
class Answered:
    """What one statement gave: lines of TSV, or that it failed."""

    replica: str
    statement: str
    lines: tuple[str, ...]
    failed: bool


@dataclass(frozen=True, slots=True)
class Part:
    """An active part; `partition` as system.parts shows it."""

    partition: str
    name: str
    rows: int

    @property
    def blocks(self) -> tuple[str, int, int]:
        partition, low, high, *_ = self.name.split("_")
        return partition, int(low), int(high)

    def covers(self, other: "Part") -> bool:
        mine, theirs = self.blocks, other.blocks
        return mine[0] == theirs[0] and mine[1] <= theirs[1] and theirs[2] <= mine[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """A log entry without what differs between versions.

    Its source, whether it has a block id, and the lines that say what it does.
    """

    source: str
    has_block_id: bool
    action: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """All that a reference holds, and all that a run of a scenario ends with."""

    answers: list[Answered] = field(default_factory=list)
    parts: dict[tuple[str, str], list[Part]] = field(default_factory=dict)
    logs: dict[str, list[Entry]] = field(default_factory=dict)
    mutations: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


def reference_of(text: str) -> Outcome:
    outcome = Outcome()
    for head, lines in _sections(text):
        if match := _PARTS.fullmatch(head):
            outcome.parts[match[1], match[2]] = [part_of(line) for line in lines if line]
        elif match := _LOG.fullmatch(head):
            outcome.logs[match[1]] = [entry_of(entry) for entry in _log_entries(lines)]
        elif match := _MUTATION.fullmatch(head):
            outcome.mutations[match[1], match[2]] = mutation_of(lines)
        else:
            match = _SELECTED.fullmatch(head)
            assert match, head
            failed = lines == ["ERROR"]
            answer = () if failed else tuple(lines)
            outcome.answers.append(Answered(match[1], match[2], answer, failed))
    return outcome


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    head, lines = "", []
    for line in text.splitlines():
        if line.startswith("# "):
            if head:
                yield head, lines
            head, lines = line, []
        else:
            lines.append(line)
    if head:
        yield head, lines


def part_of(line: str) -> Part:
    partition, name, rows = line.split("\t")
    return Part(partition, name, int(rows))


def _log_entries(lines: list[str]) -> Iterator[list[str]]:
    entry: list[str] = []
    for line in lines:
        if re.fullmatch(r"log-[0-9]{10}", line):
            if entry:
                yield entry
            entry = []
        elif line:
            entry.append(line)
    if entry:
        yield entry


# Lines that newer versions write and older ones do not (spec §0.4.1).
_NEWER = ("log_entry_id: ", "part_type: ", "storage_type: ", "quorum: ")


def entry_of(lines: list[str]) -> Entry:
    """From an entry's text, with times and ids starred or not."""
    fields = dict(line.partition(": ")[::2] for line in lines[:4])
    assert list(fields) == ["format version", "create_time", "source replica", "block_id"], (
        lines
    )
    action = tuple(line for line in lines[4:] if line and not line.startswith(_NEWER))
    if action[:1] in (("drop",), ("detach",)):  # since 21.6 with a mutation (§1.6)
        action = (action[0], str(replace(PartName.parse(action[1]), mutation=0)))
    elif action[:1] == ("attach",):  # GET_PART before 21.5 (§9.5)
        action = ("get", action[1])
    # The recorded version had one leader that assigned all merges, mutations and drops; since
    # 20.6 the replica does that was asked (spec §6.7).
    assigned = action[:1] in (("merge",), ("mutate",), ("drop",), ("detach",))
    source = "a leader" if assigned else fields["source replica"]
    return Entry(source, fields["block_id"] != "", action)


def mutation_of(lines: list[str]) -> tuple[str, ...]:
    """Without its time, and without the line that newer versions add (spec §0.4.4)."""
    dropped = ("create time: ", "alter version: ")
    return tuple(line for line in lines if line and not line.startswith(dropped))


# --- comparing ---


def differences(expected: Outcome, actual: Outcome, *, forced: bool) -> list[str]:
    """What is wrong with `actual`, in words; nothing when it is what the original does.

    `forced`: the scenario leaves no choice of parts (README.md, "What must be equal").
    """
    found = [*_different_answers(expected.answers, actual.answers)]
    for key, parts in expected.parts.items():
        here = actual.parts.get(key, [])
        found += _different_parts(
            key, [*parts, *_late(key, expected, here)], here, forced=forced
        )
    for table, entries in expected.logs.items():
        found += _different_log(table, entries, actual.logs.get(table, []), forced=forced)
    for mutation, lines in expected.mutations.items():
        if actual.mutations.get(mutation) != lines:
            got = actual.mutations.get(mutation)
            found.append(f"mutation {mutation}: expected {lines}, got {got}")
    return found


def _different_answers(expected: list[Answered], actual: list[Answered]) -> Iterator[str]:
    for place, (want, got) in enumerate(zip(expected, actual, strict=False)):
        if want != got:
            yield f"answer {place + 1}: expected {want}, got {got}"
    if len(expected) != len(actual):
        yield f"expected {len(expected)} answers, got {len(actual)}"


def _late(key: tuple[str, str], expected: Outcome, actual: list[Part]) -> list[Part]:
    """Parts that a replica had not fetched yet when the reference was recorded: another replica
    has them there, and here this one has them too (README.md: "once queues are done").
    """
    table, replica = key
    elsewhere = [
        part
        for (other, name), parts in expected.parts.items()
        if other == table and name != replica
        for part in parts
    ]
    return [part for part in actual if part in elsewhere and part not in expected.parts[key]]


def _different_parts(
    key: tuple[str, str], expected: list[Part], actual: list[Part], *, forced: bool
) -> Iterator[str]:
    table, replica = key
    if sorted(expected, key=str) == sorted(actual, key=str):
        return
    if forced:
        yield f"parts of {table} on {replica}: expected {expected}, got {actual}"
        return
    # A background merge may have come earlier or later: every part of ours must then be one
    # of theirs, or a merge of several with all their rows, and none may be missing.
    for part in expected:
        if sum(mine.covers(part) for mine in actual) != 1:
            yield f"{table} on {replica}: {part} is not covered exactly once by {actual}"
    for part in actual:
        sources = [each for each in expected if part.covers(each)]
        if not sources or sum(each.rows for each in sources) != part.rows:
            yield f"{table} on {replica}: {part} has other rows than {sources}"
        if any(each.partition != part.partition for each in sources):
            yield f"{table} on {replica}: {part} shows another partition than {sources}"


def _different_log(
    table: str, expected: list[Entry], actual: list[Entry], *, forced: bool
) -> Iterator[str]:
    if not forced:
        actual = [entry for entry in actual if entry.action[0] != "merge"]
        expected = [entry for entry in expected if entry.action[0] != "merge"]
    for place, (want, got) in enumerate(zip(expected, actual, strict=False)):
        if want != got:
            yield f"log of {table}, entry {place}: expected {want}, got {got}"
    if len(expected) != len(actual):
        yield f"log of {table}: expected {len(expected)} entries, got {actual}"
