"""The entries of the shared log and of each replica's queue, one class per kind (spec §0.4.1,
§0.4.3).

Constructors assert the rules of `rules`, which only a bug can break: `codec.decode` checks the same
rules on text that comes from outside before it makes an entry, and raises Corruption.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, assert_never

from rmt_pipeline.protocol.log.rules import (
    columns_defect,
    header_defect,
    merge_defect,
    mutation_defect,
    replacement_defect,
)
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.parts.set import contained_in

MergeType = Literal[1, 2, 3]
MERGE_REGULAR: MergeType = 1
MERGE_TTL_DELETE: MergeType = 2
MERGE_TTL_RECOMPRESS: MergeType = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The fields that every entry has.

    `create_time` is in seconds since the epoch. An empty `source_replica` means that a replica
    wrote the entry to its own queue: it was never in the log. `block_id` is the deduplication
    id of the block that was inserted as this part. `entry_id` distinguishes entries of the same
    second; for a command, a space and the account that asked for it follow (`account_in`).
    `quorum` is the number of replicas that must have the part; 0 if the insert had no quorum.
    """

    create_time: int
    source_replica: str
    block_id: str = ""
    entry_id: str = ""
    quorum: int = 0

    def __post_init__(self) -> None:
        defect = header_defect(self.create_time, self.source_replica, self.quorum)
        assert defect is None, defect

    @property
    def asked_by(self) -> str:
        return account_in(self.entry_id)


def account_in(entry_id: str) -> str:
    """The account that asked for the entry's command; "" if the id names none: older versions did
    not write it, and entries that no statement asked for have none.
    """
    return entry_id.partition(" ")[2]


@dataclass(frozen=True, slots=True)
class GetPart(Header):
    """A part exists: get it, or a part that contains it, from a replica that has it."""

    part: PartName

    @property
    def recovers(self) -> bool:
        """Whether the entry brings back a part that this replica lost, or lacks because it is being
        cloned. Other entries bring newly inserted rows.
        """
        return not self.source_replica


@dataclass(frozen=True, slots=True)
class AttachPart(Header):
    """Like GetPart, but this replica may have the bytes in `detached`: a part with this `checksum`
    (32 upper-hex digits).
    """

    part: PartName
    checksum: str


@dataclass(frozen=True, slots=True)
class MergeParts(Header):
    """Merge `sources` into `result`. An empty `deduplicate_by` means all columns."""

    sources: tuple[PartName, ...]
    result: PartName
    deduplicate: bool = False
    deduplicate_by: tuple[str, ...] = ()
    merge_type: MergeType = MERGE_REGULAR
    cleanup: bool = False

    def __post_init__(self) -> None:
        Header.__post_init__(self)
        defect = merge_defect(self.sources, self.result)
        assert defect is None, defect
        defect = columns_defect(self.deduplicate, self.deduplicate_by)
        assert defect is None, defect


@dataclass(frozen=True, slots=True)
class MutatePart(Header):
    """Apply to `source` every mutation up to `result.mutation`. `alter_version` is that of the
    ALTER whose mutation is the last one; -1 for a plain mutation.
    """

    source: PartName
    result: PartName
    alter_version: int = -1

    def __post_init__(self) -> None:
        Header.__post_init__(self)
        defect = mutation_defect(self.source, self.result)
        assert defect is None, defect


@dataclass(frozen=True, slots=True)
class DropRange(Header):
    """Drop every part in `range`; with `detach`, keep each one's bytes in `detached`."""

    range: PartName
    detach: bool = False

    def __post_init__(self) -> None:
        Header.__post_init__(self)
        assert self.range.is_drop_range, f"{self.range} is one part: that is a DropPart"


@dataclass(frozen=True, slots=True)
class DropPart(Header):
    """Drop this one part, and the parts that it contains."""

    part: PartName
    detach: bool = False

    def __post_init__(self) -> None:
        Header.__post_init__(self)
        assert not self.part.is_drop_range, f"{self.part} is a range: that is a DropRange"


@dataclass(frozen=True, slots=True)
class ReplaceRange(Header):
    """Drop `range` and add `new_parts`, at once.

    A range of one block (`<p>_0_0_0`) is a dummy, for MOVE and ATTACH … FROM, which drop nothing.
    It reads like a real part's name, so it must never get into a set of parts (spec §1.6).
    """

    range: PartName
    from_database: str
    from_table: str
    source_parts: tuple[str, ...]
    new_parts: tuple[PartName, ...]
    part_checksums: tuple[str, ...]
    columns_version: int = -1
    """Version of the table's metadata that the new parts were written with; -1 before any ALTER."""

    @property
    def keeps_ids(self) -> bool:
        """Whether rows of the range are also in the new parts, so that their block ids and the
        records of their inserts stay. Such an entry has a block id; the original's never has one.
        """
        return bool(self.block_id)

    def __post_init__(self) -> None:
        Header.__post_init__(self)
        counts = len(self.source_parts), len(self.new_parts), len(self.part_checksums)
        defect = replacement_defect(self.range, counts)
        assert defect is None, defect


@dataclass(frozen=True, slots=True)
class AlterMetadata(Header):
    """Make these texts this replica's metadata, whose version is then `alter_version`."""

    alter_version: int
    have_mutation: bool
    columns_text: str
    metadata_text: str


LogEntry = (
    GetPart
    | AttachPart
    | MergeParts
    | MutatePart
    | DropRange
    | DropPart
    | ReplaceRange
    | AlterMetadata
)


def result_of(entry: LogEntry) -> PartName | None:
    """The new part of a GET, ATTACH, MERGE or MUTATE entry; None for other kinds."""
    match entry:
        case GetPart() | AttachPart():
            return entry.part
        case MergeParts() | MutatePart():
            return entry.result
        case DropRange() | DropPart() | ReplaceRange() | AlterMetadata():
            return None
        case _:
            assert_never(entry)


def sources_of(entry: LogEntry) -> tuple[PartName, ...]:
    """The parts that a MERGE or MUTATE entry reads; empty for other kinds."""
    match entry:
        case MergeParts():
            return entry.sources
        case MutatePart():
            return (entry.source,)
        case (
            GetPart()
            | AttachPart()
            | DropRange()
            | DropPart()
            | ReplaceRange()
            | AlterMetadata()
        ):
            return ()
        case _:
            assert_never(entry)


def drop_range_of(entry: LogEntry) -> PartName | None:
    """The part or range that the entry drops; None if it drops nothing, as a replacement with a
    dummy range (spec §0.4.3).
    """
    match entry:
        case DropRange():
            return entry.range
        case DropPart():
            return entry.part
        case ReplaceRange():
            return entry.range if entry.range.blocks_count >= 2 else None
        case GetPart() | AttachPart() | MergeParts() | MutatePart() | AlterMetadata():
            return None
        case _:
            assert_never(entry)


def virtual_parts(entry: LogEntry) -> tuple[PartName, ...]:
    """The parts that the entry adds to the virtual parts, its fake range included (§0.4.3)."""
    match entry:
        case GetPart() | AttachPart():
            return (entry.part,)
        case MergeParts() | MutatePart():
            return (entry.result,)
        case DropRange():
            return (entry.range,)
        case ReplaceRange():
            fake = drop_range_of(entry)
            return entry.new_parts if fake is None else (*entry.new_parts, fake)
        case DropPart() | AlterMetadata():
            return ()
        case _:
            assert_never(entry)


def touched_by(entry: LogEntry) -> tuple[PartName, ...]:
    """The parts and the range that the entry brings or drops."""
    return (entry.part,) if isinstance(entry, DropPart) else virtual_parts(entry)


def subject_of(entry: LogEntry) -> PartName:
    """The part or range that the entry is about. Not to be called for an ALTER, which has none."""
    assert not isinstance(entry, AlterMetadata)
    made = entry.range if isinstance(entry, ReplaceRange) else result_of(entry)
    subject = made or drop_range_of(entry)
    assert subject is not None
    return subject


def partitions_about(entry: LogEntry) -> frozenset[str]:
    """The partitions in which the entry adds or drops parts; none for an ALTER."""
    if isinstance(entry, AlterMetadata):
        return frozenset()
    return frozenset({subject_of(entry).partition})


def parts_brought(entry: LogEntry) -> tuple[PartName, ...]:
    """The parts that the entry adds to the table: its virtual parts without the fake range."""
    return tuple(part for part in virtual_parts(entry) if not part.is_drop_range)


def parts_left(entries: Iterable[LogEntry]) -> list[PartName]:
    """The parts that these entries bring and that none of them drops by name, whichever comes
    first: a part that was given up is fetched again by an entry behind its drop. Merges that are
    assigned after the drop go across its numbers, and wait until it is carried out (spec §4.6, rule
    2); their results need not contain it.
    """
    found = list(entries)
    is_dropped = contained_in(one.part for one in found if isinstance(one, DropPart))
    return [part for entry in found for part in parts_brought(entry) if not is_dropped(part)]


def kind_name(entry: LogEntry) -> str:
    """The original's name of the kind, as in `system.replication_queue.type`."""
    match entry:
        case GetPart():
            return "GET_PART"
        case AttachPart():
            return "ATTACH_PART"
        case MergeParts():
            return "MERGE_PARTS"
        case MutatePart():
            return "MUTATE_PART"
        case DropRange():
            return "DROP_RANGE"
        case DropPart():
            return "DROP_PART"
        case ReplaceRange():
            return "REPLACE_RANGE"
        case AlterMetadata():
            return "ALTER_METADATA"
        case _:
            assert_never(entry)


def describe_entry(entry: LogEntry) -> str:
    """The entry in a few words for people: `merge 1_0_0_0, 1_1_1_0 into 1_0_1_1`."""
    match entry:
        case GetPart():
            return f"get {entry.part}"
        case AttachPart():
            return f"attach {entry.part}"
        case MergeParts():
            return f"merge {_some(entry.sources)} into {entry.result}"
        case MutatePart():
            return f"mutate {entry.source} to {entry.result}"
        case DropRange():
            return f"{'detach' if entry.detach else 'drop'} range {entry.range}"
        case DropPart():
            return f"{'detach' if entry.detach else 'drop'} part {entry.part}"
        case ReplaceRange():
            return f"replace range {entry.range} with {_some(entry.new_parts)}"
        case AlterMetadata():
            return f"alter metadata to version {entry.alter_version}"
        case _:
            assert_never(entry)


def _some(parts: tuple[PartName, ...]) -> str:
    """Names joined with commas; of more than five, the first and the last and how many."""
    if len(parts) <= 5:
        return ", ".join(map(str, parts)) or "nothing"
    return f"{len(parts)} parts, {parts[0]} to {parts[-1]},"
