"""Texts of the nodes that the original does not have: claims, attempts, logical inserts.

Each is a few lines that a person can read, the first with a format number. docs/protocol.md says
what the nodes are for.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.reader import COUNT_MAX, TextReader
from rmt_pipeline.protocol.text import (
    escape,
    format_time,
    listed,
    parse_decimal,
    parse_time,
    shortened,
    unescape,
)

FORMAT = 1  # Bump when a text changes; keep decoding every older number.
ATTEMPTS_FORMAT = 2  # 1 had no `is_unseen`
ANNOUNCED_FORMAT = 2  # 1 had no `began_s`
INSERT_FORMAT = 5
"""Format 1 had no sums of the given rows, 2 had no block numbers, 3 did not say which blocks are
the insert's own, and 4 had one line for all blocks of the insert in a partition.
"""
BATCH_FORMAT = 4  # 1, 2 and 3 lacked what the insert formats 2, 3 and 4 do

SEARCHED_MAX = 4  # up to so many partitions a text is searched; for more it is split into lines
_HASH = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Claim:
    """`R/executing/<queue node>`: `worker` carries out the queue entry and is producing `parts`,
    among which there may be a fake range.

    The node is ephemeral, so the claims of a worker that dies end with its session. `worker` is for
    people.
    """

    worker: str
    parts: tuple[PartName, ...]

    def encode(self) -> bytes:
        return (
            f"claim format version: {FORMAT}\n"
            f"worker: {escape(self.worker)}\n"
            f"{listed('parts: ', self.parts)}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "claim")
        reader.version("claim format version: ", FORMAT)
        worker = reader.field_as("worker: ", unescape)
        parts = reader.listed("parts: ", PartName.parse)
        reader.end()
        return cls(worker, parts)


@dataclass(frozen=True, slots=True)
class Attempts:
    """`R/attempts/<queue node>`: how the queue entry has failed or waited so far.

    For `system.replication_queue` and people. `last_attempt_s` is in seconds since the epoch, 0 for
    never. `is_unseen` says that the replica's disk may still have bytes of the part that the entry
    brings, at which the replica has yet to look. Until then the part is not taken for lost
    (`replica.upkeep.lost`).
    """

    tries: int
    last_exception: str
    last_attempt_s: int
    postpone_reason: str
    is_unseen: bool = False

    def encode(self) -> bytes:
        return (
            f"attempts format version: {ATTEMPTS_FORMAT}\n"
            f"tries: {self.tries}\n"
            f"last exception: {escape(shortened(self.last_exception))}\n"
            f"last attempt: {format_time(self.last_attempt_s)}\n"
            f"postpone reason: {escape(self.postpone_reason)}\n"
            f"unseen: {int(self.is_unseen)}\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "attempts")
        version = reader.version("attempts format version: ", ATTEMPTS_FORMAT)
        tries = reader.number("tries: ", high=COUNT_MAX)
        exception = reader.field_as("last exception: ", unescape)
        attempt_s = reader.field_as("last attempt: ", parse_time)
        reason = reader.field_as("postpone reason: ", unescape)
        is_unseen = version > 1 and reader.flag("unseen: ")
        reader.end()
        return cls(tries, exception, attempt_s, reason, is_unseen)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """As `decode`. A text that can't be read, as of a newer version, stops no work: it counts
        as one failure, after which the replica has yet to look at its disk.
        """
        try:
            return cls.decode(data)
        except Corruption as error:
            return cls(1, f"what is noted can't be read: {error}", 0, "", is_unseen=True)


@dataclass(frozen=True, slots=True)
class Restoring:
    """`T/restoring`: the table is being restored from the disks of its replicas. `log` is the index
    in the log from which their parts will be announced; earlier entries are older than the disks.
    """

    log: int

    def encode(self) -> bytes:
        return f"restoring format version: {FORMAT}\nlog: {self.log}\n".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "restoring")
        reader.version("restoring format version: ", FORMAT)
        log = reader.number("log: ", high=COUNT_MAX)
        reader.end()
        return cls(log)


class AnnouncedTry(NamedTuple):
    """A part that may be of a try of an insert with a token that died. Parts of one disk with
    another second, since the epoch, are of other tries; 0 if it is not known.
    """

    part: PartName
    insert_id: str
    began_s: int = 0


@dataclass(frozen=True, slots=True)
class Announced:
    """`T/restoring/<replica>`: the replica has promised the parts of its disk in ZooKeeper. Until
    it has, the node is empty.

    `dropped` are the ranges that it knows to be dropped. `unseen` are blocks of its disk of which
    it does not know whether they were ever promised before; `tries` are such blocks of inserts with
    a token.

    If `given_up_among` is not empty, some of these parts are not promised any more, because of what
    the replicas in it had announced. Each replica is named with the transaction that made its node,
    so that a replica that was dropped and created again counts as another one.
    """

    dropped: tuple[PartName, ...]
    unseen: tuple[PartName, ...] = ()
    tries: tuple[AnnouncedTry, ...] = ()
    given_up_among: tuple[str, ...] = ()

    def encode(self) -> bytes:
        tries = [f"{one.part}\t{escape(one.insert_id)}\t{one.began_s}" for one in self.tries]
        lists = [
            ("dropped: ", self.dropped),
            ("unseen: ", self.unseen),
            ("tries: ", tries),
            ("given up among: ", [*map(escape, self.given_up_among)]),
        ]
        while len(lists) > 1 and not lists[-1][1]:  # so that older versions can read it
            lists.pop()
        text = "".join(listed(name, items) for name, items in lists)
        version = ANNOUNCED_FORMAT if self.tries else 1
        return f"announced format version: {version}\n{text}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "announced")
        reader.version("announced format version: ", ANNOUNCED_FORMAT)
        dropped = reader.listed("dropped: ", PartName.parse)
        unseen = () if reader.at_end else reader.listed("unseen: ", PartName.parse)
        tries = () if reader.at_end else reader.listed("tries: ", _parse_try)
        among = () if reader.at_end else reader.listed("given up among: ", unescape)
        reader.end()
        return cls(dropped, unseen, tries, among)


@dataclass(frozen=True, slots=True)
class LostPart:
    """`T/lost_parts/<part>`: no replica had the part any more, and an empty one replaced it.
    `inserts` are the ids of the inserts that are known to have had rows in it; repeating these
    brings the rows back.
    """

    replaced_s: int
    replica: str
    inserts: tuple[str, ...]

    def encode(self) -> bytes:
        return (
            f"lost part format version: {FORMAT}\n"
            f"replaced: {format_time(self.replaced_s)}\n"
            f"replica: {escape(self.replica)}\n"
            f"{listed('inserts: ', [*map(escape, self.inserts)])}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "lost part")
        reader.version("lost part format version: ", FORMAT)
        replaced_s = reader.field_as("replaced: ", parse_time)
        replica = reader.field_as("replica: ", unescape)
        inserts = reader.listed("inserts: ", unescape)
        reader.end()
        return cls(replaced_s, replica, inserts)


UNKNOWN_BLOCK = -1
NO_BLOCK = -2


AS_STORED = -1


class PartitionRows(NamedTuple):
    """What a block of an insert put into its partition: the number of rows, the sum of their hashes
    as 32 lower-hex digits, and the `first` and `last` number of the blocks that have them.

    In older formats a line is for all blocks of the insert in the partition, and the numbers may be
    `UNKNOWN_BLOCK`; they also are if no block has rows.

    Every block from `own_first` to `own_last` has rows of this insert only. Both are `NO_BLOCK` if
    the rows were in the table already, and so belong to another insert too, and `UNKNOWN_BLOCK` if
    it is not known, as in older formats.

    `given` is how many rows the block was made from, if that is more than it stores (as an engine
    may combine rows); else `AS_STORED`.
    """

    partition: str
    rows: int
    row_hash: str
    first: int = UNKNOWN_BLOCK
    last: int = UNKNOWN_BLOCK
    own_first: int = UNKNOWN_BLOCK
    own_last: int = UNKNOWN_BLOCK
    given: int = AS_STORED

    @property
    def rows_given(self) -> int:
        """How many rows the block was made from."""
        return self.rows if self.given == AS_STORED else self.given

    @property
    def content(self) -> tuple[int, str, int]:
        """A value that is equal for blocks of equal rows, whatever their numbers."""
        return self.rows, self.row_hash, self.rows_given

    def is_in(self, dropped: PartName) -> bool:
        """Whether all rows of the line were in the blocks of `dropped`. If their blocks are not
        known, that is so only if `dropped` is the whole partition.
        """
        if self.partition != dropped.partition:
            return False
        if self.first == UNKNOWN_BLOCK:
            return dropped.is_drop_range and dropped.block_min == 0
        return dropped.block_min <= self.first and self.last <= dropped.block_max

    def touches(self, dropped: PartName) -> bool:
        """Whether some rows of the line may have been in the blocks of `dropped`. Rows whose blocks
        are not known touch only a drop of the whole partition.
        """
        return self.is_in(dropped) or (
            self.partition == dropped.partition
            and self.first <= dropped.block_max
            and dropped.block_min <= self.last
        )


class MissingRows(NamedTuple):
    """So many `rows` (0: not known) that an insert had put into the partition are lost, because the
    quorum of their blocks failed, or because no replica had these blocks any more. The insert's
    other rows of the partition are in the table.
    """

    partition: str
    rows: int


@dataclass(frozen=True, slots=True)
class InsertRecord:
    """`T/inserts/<insert id>`: one logical insert. A retry finds the record, and is answered by it
    or goes on from it.

    `rows` and `row_hash` are of all rows as they were given. They distinguish a retry from other
    data under the same token. (`row_hash` is "" in records of format 1, which had no such sums.)
    `rows_in` of these rows were committed. An insert that is too large for one commit has the
    partitions of each commit in a node of its own below this one (`InsertBatch`), numbered up to
    `batches`. Other inserts have them here, sorted.

    A DROP removes its partitions from the record, so that a retry brings back just those. Other
    lost rows of a partition are `missing`: a retry brings them back if it has the blocks of that
    partition that are still in the table.
    """

    created_s: int
    replica: str
    run_id: str
    partitions: tuple[PartitionRows, ...]
    blocks: int
    rows: int
    row_hash: str
    rows_in: int
    batches: int = 0
    missing: tuple[MissingRows, ...] = ()

    def __post_init__(self) -> None:
        _require_in_order(self.partitions)
        assert 0 <= self.rows_in <= self.rows
        assert not self.row_hash or _HASH.fullmatch(self.row_hash), self.row_hash
        assert list(self.missing) == sorted(self.missing)
        assert all(one.rows >= 0 for one in self.missing)

    @property
    def is_whole(self) -> bool:
        """Whether all of the insert was committed and nothing of it was lost. If not, a retry is to
        go on with it.
        """
        return self.rows_in == self.rows and not self.missing

    @property
    def rows_there(self) -> int:
        """How many rows are in the table, if none were dropped since: those committed
        and not lost.
        """
        return max(0, self.rows_in - sum(one.rows for one in self.missing))

    @staticmethod
    def may_be_of(data: bytes, partitions: Collection[str]) -> bool:
        """Whether the record with this text may have rows of these partitions, or missing rows
        there. Looks at the lines alone, since it is called for thousands of records. A record with
        batches always may.
        """
        if b"\nbatches: " in data and b"\nbatches: 0\n" not in data:
            return True
        if len(partitions) <= SEARCHED_MAX:
            return any(f"\n{one}\t".encode() in data for one in partitions)
        lines = data.decode(errors="replace").split("\n")
        return any(line.partition("\t")[0] in partitions for line in lines)

    @classmethod
    def all_partitions(cls, data: bytes) -> frozenset[str]:
        """All partitions that the insert has rows in and ever will have. Empty if the text can't
        tell: rows were dropped or lost, which a retry may bring back, or the insert has batches or
        was committed in part, or the text is damaged.
        """
        try:
            record = cls.decode(data)
        except Corruption:
            return frozenset()
        rows = sum(one.rows_given for one in record.partitions)
        if record.batches or not record.is_whole or rows != record.rows:
            return frozenset()
        return frozenset(record.partition_ids())

    def partition_ids(self) -> tuple[str, ...]:
        """The partitions that the record itself has lines of, each once."""
        return tuple(dict.fromkeys(one.partition for one in self.partitions))

    def encode(self) -> bytes:
        return (
            f"insert format version: {INSERT_FORMAT}\n"
            f"created: {format_time(self.created_s)}\n"
            f"replica: {escape(self.replica)}\n"
            f"run: {escape(self.run_id)}\n"
            f"blocks: {self.blocks}\n"
            f"rows: {self.rows}\n"
            f"row hash: {self.row_hash}\n"
            f"rows in: {self.rows_in}\n"
            f"batches: {self.batches}\n"
            f"{listed('missing: ', [_missing_line(one) for one in self.missing])}"
            f"{_partition_lines(self.partitions)}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "insert record")
        version = reader.version("insert format version: ", INSERT_FORMAT)
        created_s = reader.field_as("created: ", parse_time)
        replica = reader.field_as("replica: ", unescape)
        run_id = reader.field_as("run: ", unescape)
        blocks = reader.number("blocks: ", high=COUNT_MAX)
        if version == 1:
            partitions = _read_partitions(reader)
            rows = sum(one.rows for one in partitions)
            return cls(created_s, replica, run_id, partitions, blocks, rows, "", rows)
        rows = reader.number("rows: ")
        row_hash = reader.field_as("row hash: ", _parse_hash)
        rows_in = reader.number("rows in: ", high=rows)
        batches = reader.number("batches: ", high=COUNT_MAX)
        missing = () if version < 5 else reader.listed("missing: ", _parse_missing)
        if list(missing) != sorted(missing):
            raise reader.corruption("the partitions with missing rows are not in order")
        return cls(
            created_s=created_s,
            replica=replica,
            run_id=run_id,
            partitions=_read_partitions(reader),
            blocks=blocks,
            rows=rows,
            row_hash=row_hash,
            rows_in=rows_in,
            batches=batches,
            missing=missing,
        )


@dataclass(frozen=True, slots=True)
class InsertBatch:
    """`T/inserts/<insert id>/<number>`: what one commit of a large insert put into the table."""

    partitions: tuple[PartitionRows, ...]

    def __post_init__(self) -> None:
        _require_in_order(self.partitions)

    def encode(self) -> bytes:
        lines = _partition_lines(self.partitions)
        return f"insert batch format version: {BATCH_FORMAT}\n{lines}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "insert batch")
        reader.version("insert batch format version: ", BATCH_FORMAT)
        return cls(_read_partitions(reader))


def partition_line(partition: PartitionRows) -> str:
    """The line of a record or of a batch for one block of an insert."""
    fields = [partition.partition, str(partition.rows), partition.row_hash]
    if partition.first != UNKNOWN_BLOCK:
        fields += [str(partition.first), str(partition.last)]
        if partition.own_first == NO_BLOCK:
            fields += ["-", "-"]
        elif partition.own_first != UNKNOWN_BLOCK:
            fields += [str(partition.own_first), str(partition.own_last)]
    if partition.given != AS_STORED:
        fields.append(f"of {partition.given}")
    return "\t".join(fields) + "\n"


def _partition_lines(partitions: Sequence[PartitionRows]) -> str:
    return f"partitions: {len(partitions)}\n{''.join(map(partition_line, partitions))}"


def _read_partitions(reader: TextReader) -> tuple[PartitionRows, ...]:
    partitions = reader.listed("partitions: ", _parse_partition)
    reader.end()
    if list(partitions) != sorted(partitions):
        raise reader.corruption("the partitions are not in order")
    return partitions


def _require_in_order(partitions: Sequence[PartitionRows]) -> None:
    assert list(partitions) == sorted(partitions)
    for one in partitions:
        assert one.rows >= 0
        assert _HASH.fullmatch(one.row_hash), f"{one.row_hash!r} is not 32 lower-hex digits"
        assert UNKNOWN_BLOCK <= one.first <= one.last
        assert (one.first == UNKNOWN_BLOCK) == (one.last == UNKNOWN_BLOCK)
        assert one.given == AS_STORED or one.given > one.rows
        _require_own(one)


def _require_own(one: PartitionRows) -> None:
    if one.own_first in (UNKNOWN_BLOCK, NO_BLOCK):
        assert one.own_last == one.own_first
    else:
        assert one.first <= one.own_first <= one.own_last <= one.last
    assert one.first != UNKNOWN_BLOCK or one.own_first == UNKNOWN_BLOCK


def _parse_partition(line: str) -> PartitionRows:
    fields = line.split("\t")
    given = fields.pop() if fields[-1].startswith("of ") else ""
    if len(fields) not in (3, 5, 7) or not fields[0] or _HASH.fullmatch(fields[2]) is None:
        raise Corruption(f"{line!r} is not a partition, its rows, its row hash and its blocks")
    held = _blocks(line, fields[3:5])
    own = (NO_BLOCK, NO_BLOCK) if fields[5:] == ["-", "-"] else _blocks(line, fields[5:])
    if own[0] >= 0 and not held[0] <= own[0] <= own[1] <= held[1]:
        raise Corruption(f"{line!r}: blocks of its own are not among its blocks")
    rows = parse_decimal(fields[1])
    rows_given = parse_decimal(given.removeprefix("of ")) if given else AS_STORED
    if given and rows_given <= rows:
        raise Corruption(f"{line!r}: {rows} rows can't be made of {rows_given}")
    return PartitionRows(fields[0], rows, fields[2], *held, *own, rows_given)


def _blocks(line: str, fields: Sequence[str]) -> tuple[int, int]:
    """The first and the last block number of two fields; `UNKNOWN_BLOCK` for both
    without fields.
    """
    if not fields:
        return UNKNOWN_BLOCK, UNKNOWN_BLOCK
    first, last = map(parse_decimal, fields)
    if first > last:
        raise Corruption(f"{line!r}: the blocks {first} to {last} are none")
    return first, last


def _parse_try(line: str) -> AnnouncedTry:
    part, insert_id, *began = line.split("\t")
    return AnnouncedTry(
        PartName.parse(part), unescape(insert_id), parse_decimal(began[0]) if began else 0
    )


def _missing_line(missing: MissingRows) -> str:
    return f"{missing.partition}\t{missing.rows}"


def _parse_missing(line: str) -> MissingRows:
    partition, _, rows = line.partition("\t")
    if not partition:
        raise Corruption(f"{line!r} is not a partition and how many rows of it are missing")
    return MissingRows(partition, parse_decimal(rows))


def _parse_hash(text: str) -> str:
    if text and _HASH.fullmatch(text) is None:
        raise Corruption(f"{text!r} is not a row hash")
    return text


def decoded(path: str, data: bytes) -> InsertRecord:
    """Return the record in this node. Raises Corruption, which names the node: it may stop a DROP,
    the replacement of a lost part, and a restore, in which whoever reads that knows no path.
    """
    with _named(path, path):
        return InsertRecord.decode(data)


def decoded_batch(path: str, data: bytes) -> InsertBatch:
    """Return the batch of a record. Raises as `decoded`. It does not go alone: a record of which a
    batch is missing seems to be changing just then.
    """
    with _named(path, path.rpartition("/")[0]):
        return InsertBatch.decode(data)


@contextmanager
def _named(path: str, record: str) -> Iterator[None]:
    try:
        yield
    except Corruption as error:
        raise Corruption(
            f"{path} in ZooKeeper can't be read: {error}. If a newer version of this program wrote "
            f"it, that one reads it; if it is damaged, remove {record} with all below it: then "
            "this insert is not known any more, and is inserted again when it is repeated"
        ) from error
