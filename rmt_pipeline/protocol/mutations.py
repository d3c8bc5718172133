"""Which part needs which mutation, and when a mutation is done (spec §7).

A mutation has a number in every partition that it concerns, from the same sequence as the blocks:
the rows with smaller numbers are affected, those with greater ones are not, whenever they come.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.log.entry import LogEntry, parts_brought
from rmt_pipeline.protocol.nodes.formats import MutationEntry
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import PartSet
from rmt_pipeline.protocol.reader import TextReader
from rmt_pipeline.protocol.refusal import Refusal

FORMAT = 1  # of R/finished_mutations
FINISHED_BEYOND_MAX = 50_000  # eleven bytes each in one node

_ID = re.compile(r"[0-9]{10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Desired:
    """Mutate a part up to `version`; `alter_version` -1 unless an ALTER's mutation is in it."""

    version: int
    alter_version: int


@dataclass(frozen=True, slots=True)
class FinishedMutations:
    """What a replica has finished: every mutation up to `pointer`, and those in `beyond`.

    The original has the pointer alone, and moves it to the last one that is finished: one before
    it that is not, of another partition, is then taken for finished, and never carried out
    (spec §7.6). Here the pointer has only finished ones behind it. What waits for a later one, an
    ALTER or a client, must not wait for an earlier one that fails for ever: hence `beyond`.
    """

    pointer: str = ""
    beyond: frozenset[str] = frozenset()

    def __contains__(self, mutation_id: str) -> bool:
        return mutation_id <= self.pointer or mutation_id in self.beyond

    def with_done(self, ids: Iterable[str], done: Collection[str]) -> "FinishedMutations":
        """Once `done` are finished as well. `ids` are all that there are: one that was killed, and
        is not among them, holds nothing up.
        """
        pointer, beyond = self.pointer, []
        is_prefix = True
        for one in sorted(one for one in ids if one > self.pointer):
            is_done = one in self.beyond or one in done
            is_prefix = is_prefix and is_done
            if is_prefix:
                pointer = one
            elif is_done:
                beyond.append(one)
        return FinishedMutations(pointer, frozenset(beyond))

    def encode_beyond(self) -> bytes:
        """What `R/finished_mutations` holds. What is too much for a node is left out: whoever reads
        it finds out again that those are finished.
        """
        ids = sorted(self.beyond)[:FINISHED_BEYOND_MAX]
        lines = "".join(f"{one}\n" for one in ids)
        return f"finished mutations format version: {FORMAT}\n{lines}".encode()

    @classmethod
    def decode(cls, pointer: bytes, beyond: bytes) -> "FinishedMutations":
        """`beyond` is empty where there is no such node."""
        ids: set[str] = set()
        if beyond:
            reader = TextReader(beyond, "finished mutations")
            reader.number("finished mutations format version: ", low=1, high=FORMAT)
            while not reader.at_end:
                ids.add(_parse_id(reader, reader.line()))
        try:
            return cls(pointer.decode(), frozenset(ids))
        except UnicodeDecodeError:
            raise Corruption(f"the mutation pointer is {pointer!r}") from None


def _parse_id(reader: TextReader, text: str) -> str:
    if _ID.fullmatch(text) is None:
        raise reader.corruption(f"{text!r} is not the id of a mutation")
    return text


class Mutations:
    """The mutations of a table, by id; ids and numbers grow together in every partition."""

    def __init__(self, entries: Mapping[str, MutationEntry]) -> None:
        self.entries = dict(sorted(entries.items()))
        self._by_partition: dict[str, list[tuple[int, str]]] = {}
        for mutation_id, entry in self.entries.items():
            for partition, version in entry.block_numbers:
                self._by_partition.setdefault(partition, []).append((version, mutation_id))

    def versions(self) -> dict[str, list[int]]:
        """By partition, ascending: what the merge predicate must not span (spec §6.2)."""
        return {
            partition: [version for version, _ in found]
            for partition, found in self._by_partition.items()
        }

    def next_of(self, part: PartName) -> str | None:
        """The first mutation that the part has not seen; None when it has every one."""
        found = self._by_partition.get(part.partition, [])
        count = bisect_right(found, part.data_version, key=lambda one: one[0])
        return found[count][1] if count < len(found) else None

    def between(self, source: PartName, version: int) -> list[tuple[str, MutationEntry]]:
        """The mutations that make `source` its version `version`, in order. One that was killed
        is not among them: then less is done to the part, or nothing.
        """
        return [
            (mutation_id, self.entries[mutation_id])
            for number, mutation_id in self._by_partition.get(source.partition, [])
            if source.data_version < number <= version
        ]

    def desired(
        self,
        part: PartName,
        virtual: PartSet,
        *,
        unfinished_alters: frozenset[str] = frozenset(),
        in_one_entry_max: int = 0,
    ) -> Desired | Refusal:
        """Up to which version `part` should be mutated now (spec §7.4).

        ALTERs' mutations go one by one: those in `unfinished_alters` (ids) end the batch. At most
        `in_one_entry_max` mutations in one entry, 0 is any number.
        """
        covering = virtual.containing(part)
        if covering != part:
            return Refusal(f"{part} is going to become part of {covering}")
        pending = self.between(part, 2**62)
        if not pending:
            return Refusal(f"{part} has every mutation of its partition")
        batch = pending[:in_one_entry_max] if in_one_entry_max else pending
        alter_version = -1
        chosen = 0
        for mutation_id, entry in batch:
            version = entry.version_in(part.partition)
            assert version is not None
            chosen = version
            if entry.alter_version != -1 and mutation_id in unfinished_alters:
                alter_version = entry.alter_version
                break
        return Desired(chosen, alter_version)

    def parts_to_do(
        self,
        mutation_id: str,
        parts: Iterable[PartName],
        queue: Iterable[LogEntry],
    ) -> list[PartName]:
        """Parts that this replica has or will get, and that the mutation still has to change.

        What is queued is replayed: a queued MUTATE_PART shows the mutated name, but the part it
        comes from counts until the entry is done (spec §7.2 item 4).
        """
        entry = self.entries[mutation_id]
        todo: set[PartName] = set()
        active = parts if isinstance(parts, PartSet) else PartSet(parts)
        for part in [*active, *_to_come(queue)]:
            version = entry.version_in(part.partition)
            if version is not None and part.data_version < version:
                todo.add(part)
        return sorted(todo)

    def blocked_by(
        self, mutation_id: str, committing: Mapping[str, frozenset[int]]
    ) -> tuple[str, int] | None:
        """An insert with a smaller number that is not in the log yet: partition and number. Until
        it is there, or gone, the mutation is not done (spec §7.6, §16.8 U2).
        """
        for partition, version in self.entries[mutation_id].block_numbers:
            for number in sorted(committing.get(partition, ())):
                if number < version:
                    return partition, number
        return None


def _to_come(queue: Iterable[LogEntry]) -> list[PartName]:
    return [part for entry in queue for part in parts_brought(entry)]
