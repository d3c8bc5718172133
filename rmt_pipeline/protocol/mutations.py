"""Which part needs which mutation, and when a mutation is done (spec §7).

A mutation has a number in every partition that it concerns, from the same sequence as the blocks.
It applies to blocks with smaller numbers and not to those with greater ones, whenever they are
committed.
"""

import re
from bisect import bisect_left, bisect_right
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
FINISHED_BEYOND_MAX = 50_000  # ids in one node, of eleven bytes each

_ID = re.compile(r"[0-9]{10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Desired:
    """Mutate a part up to `version`. `alter_version` is that of the ALTER whose mutation is the
    last of these; -1 if that is a plain mutation, or of an ALTER that is finished.
    """

    version: int
    alter_version: int


@dataclass(frozen=True, slots=True)
class FinishedMutations:
    """The mutations that a replica has finished: all with ids up to `pointer`, and those in
    `beyond`.

    The original has the pointer alone, and moves it to the last finished mutation. An earlier,
    unfinished one of another partition is then taken for finished, and never carried out (spec
    §7.6). Here every mutation up to the pointer is finished. An ALTER or a client that waits for a
    later mutation must not wait for an earlier one that keeps failing; that is what `beyond` is
    for.
    """

    pointer: str = ""
    beyond: frozenset[str] = frozenset()

    def __contains__(self, mutation_id: str) -> bool:
        return mutation_id <= self.pointer or mutation_id in self.beyond

    def with_done(self, ids: Iterable[str], done: Collection[str]) -> "FinishedMutations":
        """What is finished once `done` are as well. `ids` are all mutations of the table. The
        pointer passes over ids that are not among them, which are of killed mutations.
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
        """The text of `R/finished_mutations`. Ids that do not fit into the node are left out: that
        these are finished is found out again after reading.
        """
        ids = sorted(self.beyond)[:FINISHED_BEYOND_MAX]
        lines = "".join(f"{one}\n" for one in ids)
        return f"finished mutations format version: {FORMAT}\n{lines}".encode()

    @classmethod
    def decode(cls, pointer: bytes, beyond: bytes) -> "FinishedMutations":
        """Decode both nodes. `beyond` is empty if that node does not exist. Raises Corruption."""
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
    """The mutations of a table, by id. In every partition a greater id has a greater number."""

    def __init__(self, entries: Mapping[str, MutationEntry]) -> None:
        self.entries = dict(sorted(entries.items()))
        self._by_partition: dict[str, list[tuple[int, str]]] = {}
        for mutation_id, entry in self.entries.items():
            for partition, version in entry.block_numbers:
                self._by_partition.setdefault(partition, []).append((version, mutation_id))

    def versions(self) -> dict[str, list[int]]:
        """The numbers of the mutations in each partition, ascending. The merge predicate does not
        let a merge span one (spec §6.2).
        """
        return {
            partition: [version for version, _ in found]
            for partition, found in self._by_partition.items()
        }

    def next_of(self, part: PartName) -> str | None:
        """The first mutation that is still to be applied to the part; None if there is none."""
        found = self._by_partition.get(part.partition, [])
        count = bisect_right(found, part.data_version, key=lambda one: one[0])
        return found[count][1] if count < len(found) else None

    def between(self, source: PartName, version: int) -> list[tuple[str, MutationEntry]]:
        """The mutations to apply to `source` to get its version `version`, in order. Killed
        mutations are not among them: then less is done to the part, or nothing.
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

        Mutations of ALTERs are applied one by one: one in `unfinished_alters` (their ids) is the
        last of its batch. An entry applies at most `in_one_entry_max` mutations; 0 is no limit.
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

    def blocked_by(
        self, mutation_id: str, committing: Mapping[str, frozenset[int]]
    ) -> tuple[str, int] | None:
        """The partition and number of a block that the mutation applies to and that is still being
        inserted; None if there is none. `committing` has the numbers of such blocks for each
        partition. Until they are in the log or given back, the mutation is not done (spec §7.6,
        §16.8 U2).
        """
        for partition, version in self.entries[mutation_id].block_numbers:
            for number in sorted(committing.get(partition, ())):
                if number < version:
                    return partition, number
        return None


class Unmutated:
    """The parts that a replica has (`active`, the maximal ones) or will get (by its `queue`), by
    their data versions. Of a thousand mutations each asks which of ten thousand parts it still has
    to change. The source of a queued MUTATE_PART counts until that entry is done (spec §7.2
    item 4).
    """

    def __init__(self, active: Iterable[PartName], queue: Iterable[LogEntry]) -> None:
        found: dict[str, set[PartName]] = {}
        for part in (*active, *_to_come(queue)):
            found.setdefault(part.partition, set()).add(part)
        self._parts = {
            partition: sorted(parts, key=_data_version) for partition, parts in found.items()
        }

    def before(self, entry: MutationEntry) -> list[PartName]:
        """Those that the mutation still has to change, sorted."""
        return [
            part
            for partition, version in entry.block_numbers
            if (parts := self._parts.get(partition))
            for part in sorted(parts[: bisect_left(parts, version, key=_data_version)])
        ]

    def has_any_before(self, entry: MutationEntry) -> bool:
        """Whether there are such parts."""
        return any(
            parts[0].data_version < version
            for partition, version in entry.block_numbers
            if (parts := self._parts.get(partition))
        )


def _data_version(part: PartName) -> int:
    return part.data_version


def _to_come(queue: Iterable[LogEntry]) -> list[PartName]:
    return [part for entry in queue for part in parts_brought(entry)]
