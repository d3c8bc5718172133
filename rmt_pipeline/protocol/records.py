"""Texts of the nodes that the original does not have: claims, attempts, logical inserts.

Lines that a person can read, under a format number. See docs/protocol.md for what they are for.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts import PartName
from rmt_pipeline.protocol.reader import Reader
from rmt_pipeline.protocol.text import escape, format_time, parse_decimal, parse_time, unescape

FORMAT = 1  # Bump when a text changes; keep decoding every older number.
COUNT_MAX = 2**31 - 1

_HASH = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Claim:
    """`R/executing/<queue node>`: `worker` is producing `parts` (a fake range among them).

    The node is ephemeral: a worker that dies gives its claims back with its session. `worker`
    is for people.
    """

    worker: str
    parts: tuple[PartName, ...]

    def encode(self) -> bytes:
        names = "".join(f"{part}\n" for part in self.parts)
        return (
            f"claim format version: {FORMAT}\n"
            f"worker: {escape(self.worker)}\n"
            f"parts: {len(self.parts)}\n"
            f"{names}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = Reader(data, "claim")
        reader.number("claim format version: ", low=1, high=FORMAT)
        worker = reader.field_as("worker: ", unescape)
        count = reader.number("parts: ", high=COUNT_MAX)
        parts = tuple(reader.parse(reader.line(), PartName.parse) for _ in range(count))
        reader.end()
        return cls(worker, parts)


@dataclass(frozen=True, slots=True)
class Attempts:
    """`R/attempts/<queue node>`: how the entry has failed or waited so far.

    For `system.replication_queue` and people; nothing decides by it. `last_attempt_s` is in
    seconds since the epoch, 0 for never.
    """

    tries: int
    last_exception: str
    last_attempt_s: int
    postpone_reason: str

    def encode(self) -> bytes:
        return (
            f"attempts format version: {FORMAT}\n"
            f"tries: {self.tries}\n"
            f"last exception: {escape(self.last_exception)}\n"
            f"last attempt: {format_time(self.last_attempt_s)}\n"
            f"postpone reason: {escape(self.postpone_reason)}\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = Reader(data, "attempts")
        reader.number("attempts format version: ", low=1, high=FORMAT)
        tries = reader.number("tries: ", high=COUNT_MAX)
        exception = reader.field_as("last exception: ", unescape)
        attempt_s = reader.field_as("last attempt: ", parse_time)
        reason = reader.field_as("postpone reason: ", unescape)
        reader.end()
        return cls(tries, exception, attempt_s, reason)


@dataclass(frozen=True, slots=True)
class InsertRecord:
    """`T/inserts/<insert id>`: one logical insert, which a retry finds and is answered by.

    `partitions` are (partition id, rows, row hash as 32 lower-hex digits) in order of the ids.
    A DROP takes its partitions out, so that a retry then brings back just those.
    """

    created_s: int
    replica: str
    run_id: str
    partitions: tuple[tuple[str, int, str], ...]
    blocks: int

    def __post_init__(self) -> None:
        assert list(self.partitions) == sorted(self.partitions)
        for _, rows, row_hash in self.partitions:
            assert rows >= 0
            assert _HASH.fullmatch(row_hash), f"{row_hash!r} is not 32 lower-hex digits"

    @property
    def rows(self) -> int:
        return sum(rows for _, rows, _ in self.partitions)

    def partition_ids(self) -> tuple[str, ...]:
        return tuple(partition for partition, _, _ in self.partitions)

    def without(self, dropped: Collection[str]) -> Self:
        """What is left after a DROP of these partitions; with none left the node may go."""
        kept = tuple(row for row in self.partitions if row[0] not in dropped)
        return replace(self, partitions=kept)

    def encode(self) -> bytes:
        lines = "".join(f"{p}\t{rows}\t{row_hash}\n" for p, rows, row_hash in self.partitions)
        return (
            f"insert format version: {FORMAT}\n"
            f"created: {format_time(self.created_s)}\n"
            f"replica: {escape(self.replica)}\n"
            f"run: {escape(self.run_id)}\n"
            f"blocks: {self.blocks}\n"
            f"partitions: {len(self.partitions)}\n"
            f"{lines}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = Reader(data, "insert record")
        reader.number("insert format version: ", low=1, high=FORMAT)
        created_s = reader.field_as("created: ", parse_time)
        replica = reader.field_as("replica: ", unescape)
        run_id = reader.field_as("run: ", unescape)
        blocks = reader.number("blocks: ", high=COUNT_MAX)
        count = reader.number("partitions: ", high=COUNT_MAX)
        partitions = tuple(reader.parse(reader.line(), _parse_partition) for _ in range(count))
        reader.end()
        if list(partitions) != sorted(partitions):
            raise reader.corruption("the partitions are not in order")
        return cls(created_s, replica, run_id, partitions, blocks)


def _parse_partition(line: str) -> tuple[str, int, str]:
    fields = line.split("\t")
    if len(fields) != 3 or not fields[0] or _HASH.fullmatch(fields[2]) is None:
        raise Corruption(f"{line!r} is not a partition, its rows and its row hash")
    return fields[0], parse_decimal(fields[1]), fields[2]
