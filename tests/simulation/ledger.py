"""What happened, as clients know it: the inserts they made and were told of, and what they read;
and what the log says of rows and mutations, from which follows what must be there at the end.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from rmt_pipeline.protocol.log.entry import MergeParts
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.replica.insert.result import InsertResult
from tests.simulation.expiring import Expiry, Ttl, expires
from tests.support.sim_rows import GONE
from tests.support.world import Process

SUFFIX = "+"
"""What a simulated UPDATE appends begins so: the text before it says which row it was."""


@dataclass(slots=True, eq=False)
class ClientInsert:
    """One logical insert: its rows by partition, and every answer that a client got."""

    number: int
    rows: dict[str, list[str]]
    token: str
    gives_up: bool
    """The client never asks again after a doubtful end."""
    block_rows_max: int = 0
    """Rows per block; 0: cut at random."""
    answers: list[InsertResult] = field(default_factory=list)
    answers_before: list[InsertResult] = field(default_factory=list)
    """Those about a table that was dropped since, or while the answer was on its way."""
    shared: set[str] = field(default_factory=set)
    """Rows that another insert has too, as a block of its own: who comes first inserts them."""
    attempts: int = 0
    is_over: bool = False
    quorum: int = 0
    """On so many replicas when it is answered; 0: whoever inserts has the rows."""
    is_parallel: bool = True

    @property
    def is_acknowledged(self) -> bool:
        """By the table that is there now."""
        return bool(self.answers)

    @property
    def is_answered(self) -> bool:
        return bool(self.every_answer)

    @property
    def every_answer(self) -> list[InsertResult]:
        return [*self.answers_before, *self.answers]

    def all_rows(self) -> list[str]:
        return [row for rows in self.rows.values() for row in rows]

    def own_rows(self, partition: str) -> list[str]:
        """Those that no other insert has."""
        return [row for row in self.rows[partition] if row not in self.shared]

    def __str__(self) -> str:
        return f"insert {self.number} of {sorted(self.rows)}"


@dataclass(slots=True)
class Read:
    """One look at a replica's rows, by partition, while everything went on."""

    replica: str
    rows: list[str]


@dataclass(frozen=True, slots=True)
class Change:
    """What a simulated mutation does to the rows that begin with `prefix`: it deletes them, or
    appends `suffix`, so that an update that was lost, doubled or out of order shows.
    """

    prefix: str
    suffix: str = ""

    def command(self) -> str:
        where = f"WHERE startsWith(row, '{self.prefix}')"
        return (
            f"UPDATE row = concat(row, '{self.suffix}') {where}"
            if self.suffix
            else (f"DELETE {where}")
        )

    def is_for(self, row: str) -> bool:
        return row.startswith(self.prefix)

    def of(self, row: str) -> str | None:
        if not self.is_for(row):
            return row
        return row + self.suffix if self.suffix else None


class Carried(NamedTuple):
    """A mutation of before ZooKeeper lost the table: it has changed the rows of these blocks, and
    changes no other ones any more.
    """

    entry: MutationEntry
    blocks: frozenset[PartName]
    is_killed: bool


@dataclass(slots=True, eq=False)
class DropAnswer:
    """A DROP or DETACH that was answered: the blocks in the log that it was asked to take, and the
    rows of these that its replica had then.
    """

    replica: str
    blocks: frozenset[PartName]
    age: int = 0
    drops: int = 0
    """How often its server had dropped the whole table when it was asked."""
    restored: int = 0
    """How often ZooKeeper had lost the table when it was asked."""
    here: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    """Rows that its replica had still when it was answered, though it was to wait for that."""
    nowhere: set[str] = field(default_factory=set)
    """Rows that it was to detach, and that were not among what is detached when it was answered."""


class Snapshot(NamedTuple):
    """A part that FREEZE has kept on a replica's host."""

    replica: str
    name: str
    part: PartName

    @property
    def path(self) -> str:
        return f"shadow/{self.name}/data/default/t/{self.part}"


@dataclass(slots=True)
class Ledger:
    inserts: list[ClientInsert] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    taken_by: dict[str, str] = field(default_factory=dict)
    """Row to the replica that wrote it to the log."""
    blocks: dict[str, list[PartName]] = field(default_factory=dict)
    """Row to the parts in which it came into the log: more than one when those before were dropped.
    """
    came_as: dict[tuple[str, PartName], str] = field(default_factory=dict)
    """By row and the part in which it came from another table: what mutations had made of it."""
    arrived: set[str] = field(default_factory=set)
    """Rows that came from another table, or from what was detached: they may be there more than
    once.
    """
    twice: set[str] = field(default_factory=set)
    """Rows that were inserted again after a drop that was undone: when ZooKeeper lost the table, no
    disk knew of it.
    """
    drops: list[PartName] = field(default_factory=list)
    """Ranges and parts that were dropped, in the order of the log."""
    drops_undone: list[PartName] = field(default_factory=list)
    """Those of which no disk knew when ZooKeeper lost the table."""
    entries: int = 0
    """How many the log had."""
    came_at: dict[PartName, tuple[int, str]] = field(default_factory=dict)
    """By block, the place of its entry in the log, and the replica that wrote it."""
    dropped_at: dict[PartName, int] = field(default_factory=dict)
    """By range or part that was dropped."""
    dropped_by: dict[PartName, PartName] = field(default_factory=dict)
    """By the part in which rows came, the first drop that took them; itself, if its quorum failed.
    """
    drops_answered: list[DropAnswer] = field(default_factory=list)
    lost: set[PartName] = field(default_factory=set)
    """Parts whose bytes were taken from every disk: empty ones take their place."""
    failed: set[PartName] = field(default_factory=set)
    """Parts whose quorum failed."""
    changes: dict[str, Change | Expiry] = field(default_factory=dict)
    """What each mutation that somebody asked for does, by its command."""
    mutations: dict[str, MutationEntry] = field(default_factory=dict)
    """Every mutation that ever was since the table was restored last, by id, as it was written."""
    carried: list[Carried] = field(default_factory=list)
    """Those of before, in their order."""
    mutations_answered: set[str] = field(default_factory=set)
    """Of `mutations`, those that some client was told to be carried out on a replica."""
    reached: dict[PartName, int] = field(default_factory=dict)
    """Until the table is restored: by block, the version up to which a disk had mutations in it
    when ZooKeeper lost the table.
    """
    structures: dict[int, bytes] = field(default_factory=dict)
    """By the number of an ALTER, the columns that it made; 0: those of CREATE TABLE."""
    structure_kept: int = 0
    """The newest of which a disk knew when ZooKeeper lost the table, or that was answered."""
    merges: dict[PartName, tuple[MergeParts, int]] = field(default_factory=dict)
    """All that ever were in the log, by their results, and the number of the ALTER before each."""
    carried_out: dict[PartName, MergeParts] = field(default_factory=dict)
    """Of these, those that some replica has carried out."""
    repeated: dict[tuple[str, PartName], PartName] = field(default_factory=dict)
    """By row and the part in which it came, the result of the merge that has left it out, for it
    was there once more.
    """
    ttls: dict[int, Ttl | None] = field(default_factory=dict)
    """By the number of an ALTER, what the table's TTL was then; 0: that of CREATE TABLE."""
    value_ttl: Ttl | None = None
    """By which values expire, never rows."""
    undoing: dict[Process, ClientInsert] = field(default_factory=dict)
    """By process, the insert that it was to undo."""
    unanswered: dict[PartName, Process] = field(default_factory=dict)
    """What a command has dropped that was not answered: perhaps it has left the ids of it."""
    do_ids_fit: bool = True
    """Into the multi of a drop or a replacement; those of an undo may never do."""
    undone: list[ClientInsert] = field(default_factory=list)
    """Those of which an undo has taken something."""
    taken_out: set[str] = field(default_factory=set)
    """Rows that a replacement by condition may take; all others of its range stay."""
    kept: list[PartName] = field(default_factory=list)
    """Ranges that were replaced by a condition: inserts of the rows that stay are known still."""
    swaps: list[tuple[PartName, tuple[str, ...]]] = field(default_factory=list)
    """Ranges that were replaced, and the rows that came for them."""
    killed: set[str] = field(default_factory=set)
    """Mutations that somebody tried to kill: parts may have been mutated before."""
    assigned: int = 0
    clients: int = 0
    """Clients that still have something to do."""
    lost_parts: int = 0
    """Parts that a broken disk took away, or has changed a bit of."""
    hit: set[str] = field(default_factory=set)
    """The names of these parts."""
    broken: set[str] = field(default_factory=set)
    """The replicas with such disks: their rows are away until the part was fetched again."""
    clock_jumps: int = 0
    age: int = 0
    """How many tables there were before, which were dropped on every replica."""
    gone: set[str] = field(default_factory=set)
    """Rows that were in one of them."""
    removed: int = 0
    """Replicas that were dropped."""
    restored: int = 0
    """How often ZooKeeper has lost the table."""
    alone: set[PartName] = field(default_factory=set)
    """Blocks of which only a replica that was dropped had promised a part."""
    forgotten: set[PartName] = field(default_factory=set)
    """Blocks whose ids a scenario took away, as a clean-up does once they are old."""
    attached: dict[tuple[str, str], PartName] = field(default_factory=dict)
    """By the name and the checksum of a detached part, as what it was attached last."""
    taken_up: dict[str, set[str]] = field(default_factory=dict)
    """By replica, the rows of detached parts that somebody renamed or removed."""
    thrown_away: dict[str, set[str]] = field(default_factory=dict)
    """Of these, those that a DROP DETACHED may have removed."""
    throwing: Counter[str] = field(default_factory=Counter)
    """Processes of a replica that are at such a statement."""
    frozen: dict[Snapshot, list[str]] = field(default_factory=dict)
    """The rows of each part that somebody was told is frozen, and that nobody unfreezes."""
    unfrozen: set[tuple[str, str, str | None]] = field(default_factory=set)
    """By replica, what was asked for: a snapshot's name, and a partition or None for all."""

    @property
    def has_strange_mutations(self) -> bool:
        """Ones that no client here has asked for, in scenarios: nobody knows what they do."""
        return any(
            entry.alter_version == -1 and entry.commands not in self.changes
            for entry in self._entries()
        )

    def was_unfrozen(self, key: Snapshot) -> bool:
        """Or may be at any moment."""
        return not self.unfrozen.isdisjoint(
            (key.replica, key.name, partition) for partition in (key.part.partition, None)
        )

    def was_dropped(self, row: str) -> bool:
        """At some time; it may have been inserted again since."""
        return any(block in self.dropped_by for block in self.blocks.get(row, ()))

    def drop(self, dropped: PartName) -> None:
        """What is in the log by now of these blocks is gone."""
        self.drops.append(dropped)
        for block in self.all_blocks():
            if is_inside(block, dropped):
                self.dropped_by.setdefault(block, dropped)

    def answer(self, process: Process) -> None:
        """What it was asked for is done: what that dropped can be inserted again."""
        for dropped in [one for one, by in self.unanswered.items() if by is process]:
            del self.unanswered[dropped]

    def fail(self, part: PartName) -> None:
        """Its quorum failed: what came in it is gone, and may come again."""
        self.failed.add(part)
        self.dropped_by.setdefault(part, part)

    def lose(self, part: PartName) -> None:
        """Nobody has what came in it any more; it may come again."""
        self.lost.add(part)
        self.lost_parts += 1
        self.hit.add(str(part))
        self.dropped_by.setdefault(part, part)

    def renew(self) -> None:
        """The table is gone. What was in it is in no other one, and numbers begin anew; what
        clients have asked for they may go on to ask for.
        """
        new = Ledger(
            inserts=self.inserts,
            changes=self.changes,
            assigned=self.assigned,
            clients=self.clients,
            lost_parts=self.lost_parts,
            broken=self.broken,
            clock_jumps=self.clock_jumps,
            age=self.age + 1,
            gone=self.gone | self.blocks.keys(),
            removed=self.removed,
            ttls=self.ttls,
            undoing=self.undoing,
            do_ids_fit=self.do_ids_fit,
        )
        for one in fields(self):
            setattr(self, one.name, getattr(new, one.name))
        for insert in self.inserts:
            insert.answers_before += insert.answers
            insert.answers.clear()

    def lose_zookeeper(
        self,
        known: set[PartName],
        held: set[PartName],
        drops: set[PartName],
        reached: Mapping[PartName, int],
        structure: int,
    ) -> None:
        """What is in the table stays. `known`: blocks whose ids the disks know, too. Inserts are
        recorded as far as their parts tell. A block that was dropped comes back if a disk has its
        rows (`held`), and no replica has carried out a drop of it (`drops`). Of mutations and
        ALTERs stays what the disks have: of each block in the greatest version (`reached`), and of
        the columns the newest `structure`. For what was answered that is no less than it says.
        """
        for mutation in sorted(self.mutations_answered):
            entry = self.mutations[mutation]
            for block in self.all_blocks() - self.dropped_by.keys():
                version = entry.version_in(block.partition) or 0
                is_done = block.block_min > version or reached[block] >= version
                assert is_done, f"{mutation} was answered, and no disk has it in {block}"
        assert structure >= self.structure_kept, f"no disk has ALTER {self.structure_kept}"
        self.structure_kept = structure
        for block, version in reached.items():
            self.reached[block] = max(version, self.reached.get(block, 0))
        self.restored += 1
        self.forgotten |= self.all_blocks() - known
        self.drops_undone = [one for one in self.drops if one not in drops]
        self.drops = [one for one in self.drops if one in drops]
        self.drops_answered.clear()
        self.came_at.clear()
        self.dropped_at.clear()
        for block in held & self.dropped_by.keys():
            if not any(one.contains(block) or is_inside(block, one) for one in drops):
                del self.dropped_by[block]
        for row, blocks in self.blocks.items():
            there = set(blocks) - self.dropped_by.keys()
            if len(there) > 1 and row not in self.arrived:
                self.twice.add(row)
                self.forgotten |= there
        for insert in self.inserts:
            insert.answers_before += insert.answers
            insert.answers.clear()

    def drop_late(self, gone: Collection[PartName], noted: Collection[PartName]) -> None:
        """Of these blocks, which are not in the restored table, some were dropped by processes that
        lived on when ZooKeeper had lost it: their disks have noted that before they were restored.
        """
        for one in self.drops_undone:
            for block in gone if one in noted else ():
                if is_inside(block, one):
                    self.dropped_by.setdefault(block, one)

    def give_up_repeats(self, gone: Collection[PartName]) -> None:
        """Rows that were inserted again after a drop which is undone are there twice; or once, if
        the disk of one of the two does not say that it was announced. Of these blocks, which are
        not in the restored table, drop those whose rows are all in others.
        """
        for block in gone:
            rows = [row for row, blocks in self.blocks.items() if block in blocks]
            others = [
                set(self.blocks[row]) - {*gone, *self.dropped_by}
                for row in rows
                if row in self.twice
            ]
            if len(others) == len(rows) and all(others):
                self.dropped_by.setdefault(block, block)

    def open_again(self, versions: Mapping[PartName, int], stay: Collection[str] = ()) -> None:
        """The table is restored, with the blocks in these versions. No mutation of before goes on:
        a block whose part has not gone through it stays as it is, whatever version later merges
        and mutations give it. But those that an older copy of ZooKeeper has `stay`: they go on with
        the other blocks.
        """
        for mutation in sorted(self.mutations):
            entry = self.mutations[mutation]
            done = frozenset(
                block
                for block, reached in versions.items()
                if block.block_min < (entry.version_in(block.partition) or 0) <= reached
            )
            self.carried.append(Carried(entry, done, mutation in self.killed))
        self.mutations = {one: self.mutations[one] for one in stay}
        self.mutations_answered.clear()
        self.killed &= self.mutations.keys()
        self.reached.clear()

    def insert_copy(self, copy: ClientInsert, other: ClientInsert) -> None:
        """An insert of rows that another one has, too, as a block of its own."""
        rows = copy.all_rows()
        for one in (other, copy):
            one.shared.update(rows)
        self.arrived.update(rows)
        self.inserts.append(copy)

    def all_blocks(self) -> set[PartName]:
        return {block for blocks in self.blocks.values() for block in blocks}

    def forms_now(self, row: str) -> list[set[str | None]]:
        """What may be left at the end of a row that was logged, for each time it is there."""
        there = [block for block in self.blocks[row] if block not in self.dropped_by]
        return [
            self._forms_with(row, block, None)
            for block in self._copies(row, there)
            if (row, block) not in self.repeated
        ]

    def forms_in(self, row: str, part: PartName) -> list[set[str | None]] | None:
        """What a part may have of a row, for each time it came; None when none of its blocks is the
        row's. What was dropped is in the parts that were dropped with it, on replicas that do not
        know that yet.
        """
        inside = [block for block in self.blocks.get(row, ()) if is_inside(block, part)]
        if not inside:
            return None
        there = [block for block in inside if self._is_left_in(part, block)]
        return [
            self._forms_with(row, block, part)
            for block in self._copies(row, there)
            if not self._is_repeated(row, block, part)
        ]

    def _is_left_in(self, part: PartName, block: PartName) -> bool:
        """Whether a part in which the block is still has its rows."""
        by = self.dropped_by.get(block)
        return block not in self.lost and (by is None or by.contains(part))

    def _copies(self, row: str, blocks: list[PartName]) -> list[PartName]:
        return blocks if self.may_be_twice(row) else blocks[-1:]

    def may_be_twice(self, row: str) -> bool:
        """Only what came from another table, or came back, may be there more than once."""
        return row in self.arrived or row in self.twice

    def forms_ever(self, row: str, block: PartName) -> set[str | None]:
        """All that has ever been of a row that was logged in this block, or will be."""
        versions = {entry.version_in(block.partition) or 0 for entry in self._entries()}
        found: set[str | None] = set()
        return found.union(*(self.forms_of(row, block, up_to) for up_to in (0, *versions)))

    def merge(self, entry: MergeParts) -> None:
        """It is carried out for the first time."""
        result = entry.result
        self.carried_out[result] = entry
        for row, blocks in self.blocks.items() if entry.deduplicate else ():
            kept: list[set[str | None]] = []
            for block in blocks:
                if not is_inside(block, result) or not self._is_left_in(result, block):
                    continue
                forms = self.forms_of(row, block, result.data_version)
                if forms in kept:
                    self.repeated.setdefault((row, block), result)
                elif not self._is_repeated(row, block, result):
                    kept.append(forms)

    def _is_repeated(self, row: str, block: PartName, part: PartName) -> bool:
        """Whether some merge of which the part is, or is made, has left it out."""
        result = self.repeated.get((row, block))
        return result is not None and part.contains(result)

    def _forms_with(self, row: str, block: PartName, part: PartName | None) -> set[str | None]:
        """As `forms_of`, and what merges leave of it of which the part is, or is made; None: at the
        end. When the table is altered, that depends on who makes them when.
        """
        up_to = math.inf if part is None else part.data_version
        forms = self.forms_of(row, block, up_to)
        for result, entry in self.carried_out.items():
            if is_inside(block, result) and (part is None or part.contains(result)):
                gone = {expires(ttl, row, entry.create_time) for ttl in self.ttls.values()}
                forms = forms | {None} if True in gone else forms
                forms = {None} if gone == {True} and len(self.ttls) == 1 else forms
                if expires(self.value_ttl, row, entry.create_time):
                    emptied = {form and form.removesuffix(GONE) + GONE for form in forms}
                    forms = emptied if len(self.ttls) == 1 else forms | emptied
        return forms

    def forms_of(self, row: str, block: PartName, up_to: float = math.inf) -> set[str | None]:
        """What may have become of a row that was logged in this block, None for deleted: every
        mutation with a greater number than its block, in order, has changed it, and no other one
        has. `up_to`: in a part with this data version.
        """
        forms: set[str | None] = {self.came_as.get((row, block), row)}
        for entry, is_killed in self._mutations_of(block):
            change = self.changes.get(entry.commands)
            if change is None or (entry.version_in(block.partition) or 0) > up_to:
                continue  # without a change it is of an ALTER: no row is another one afterwards
            changed = {None if form is None else change.of(form) for form in forms}
            forms = forms | changed if is_killed else changed
        return forms

    def _mutations_of(self, block: PartName) -> Iterator[tuple[MutationEntry, bool]]:
        """Those that change its rows, in order, and whether each was killed."""
        gone_through = []
        for entry, blocks, is_killed in self.carried:  # after two restores with one copy, twice
            if block in blocks and entry not in gone_through:
                gone_through.append(entry)
                yield entry, is_killed
        for mutation_id in sorted(self.mutations):
            entry = self.mutations[mutation_id]
            is_for = block.block_min < (entry.version_in(block.partition) or 0)
            if is_for and entry not in gone_through:
                yield entry, mutation_id in self.killed

    def _entries(self) -> Iterator[MutationEntry]:
        yield from self.mutations.values()
        yield from (one.entry for one in self.carried)

    def is_changed(self, row: str) -> bool:
        """Whether some mutation is for this row, now or later, or it expires."""
        return any(change.is_for(row) for change in self.changes.values()) or any(
            ttl is not None and ttl.expires_s(row) for ttl in self.ttls.values()
        )


def is_inside(block: PartName, part: PartName) -> bool:
    """Whether the part stands for the block."""
    return (
        block.partition == part.partition
        and part.block_min <= block.block_min
        and block.block_max <= part.block_max
    )


def fits(found: Sequence[str], forms: Sequence[set[str | None]]) -> bool:
    """Whether these are the forms of a row, one of each set; None: it may be missing."""
    if not forms:
        return not found
    first, others = forms[0], forms[1:]
    if None in first and fits(found, others):
        return True
    return any(
        text in first and fits([*found[:at], *found[at + 1 :]], others)
        for at, text in enumerate(found)
    )


def inserted_as(text: str) -> str:
    """The row as it was inserted, whatever was appended since."""
    return text.partition(SUFFIX)[0]


def answered_of(
    result: InsertResult, blocks: Sequence[PartName], dropped: Collection[PartName]
) -> list[PartName]:
    """Those of a row's blocks which an insert's answer may be about: the last one that it names.
    That rows were found by the record of an insert it may say without a name, when they came in
    batches: then whatever was there at some time of this try, for it was found there before it was
    dropped, and another try has inserted it again since.
    """
    named = [block for block in blocks if _names(result, block)]
    found = [block for block in blocks if block not in dropped]
    return named[-1:] or found or [*blocks[-1:]]


def _names(result: InsertResult, block: PartName) -> bool:
    """Whether an answer says that the insert made this block, or found it there, or is a duplicate
    of what did.
    """
    first = result.duplicate_of
    return (
        block in result.parts
        or (block.partition, str(block)) in result.duplicates
        or (
            first is not None
            and any(
                one.partition == block.partition and one.first <= block.block_min <= one.last
                for one in first.partitions
            )
        )
    )
