"""Texts of the original's nodes that are not log entries (spec §0.4.4 to §0.4.8).

Each kind of node is a class with `encode` and `decode`. Decoding raises Corruption and no other
error. `metadata` and `columns` have modules of their own, as have the nodes that the original does
not have (`records`, `tasks`).
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.reader import COUNT_MAX, TextReader
from rmt_pipeline.protocol.text import escape, format_time, parse_decimal, parse_time, unescape

PORT_MAX = 65_535
HASH_BYTES = 16
_VERSION_BYTES = 4
_VERSIONS_MAX = 1 << 20
"""More than any table's metadata version. Of hashes, which older versions write in the place of the
version, one in 4096 ends with less.
"""
VARINT_BYTES_MAX = 9
PART_HEADER = b"part header format version: 1\n"


def number_of(data: bytes) -> int:
    """The number in a node such as `log_pointer`: 0 in one that is empty, as it was created."""
    return int(data or b"0")


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """The address of a replica (`R/host`, §0.4.8). `port` is that of the part exchange."""

    host: str
    port: int
    tcp_port: int
    database: str
    table: str
    scheme: str = "http"

    def encode(self) -> bytes:
        return (
            f"host: {escape(self.host)}\n"
            f"port: {self.port}\n"
            f"tcp_port: {self.tcp_port}\n"
            f"database: {escape(self.database)}\n"
            f"table: {escape(self.table)}\n"
            f"scheme: {self.scheme}\n"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "replica address")
        host = reader.field_as("host: ", unescape)
        port = reader.number("port: ", high=PORT_MAX)
        tcp_port = reader.number("tcp_port: ", high=PORT_MAX)
        database = reader.field_as("database: ", unescape)
        table = reader.field_as("table: ", unescape)
        scheme = reader.optional_field("scheme: ")  # very old versions had only http
        reader.end()
        if scheme not in (None, "http", "https"):
            raise reader.corruption(f"{scheme!r} is not a scheme (http or https)")
        return cls(host, port, tcp_port, database, table, scheme or "http")


@dataclass(frozen=True, slots=True)
class QuorumEntry:
    """An insert that waits until `required` replicas have its part (§0.4.5)."""

    part: PartName
    required: int
    replicas: tuple[str, ...]

    def with_replica(self, name: str) -> Self:
        """The entry after this replica has the part; the same if it was counted already."""
        if name in self.replicas:
            return self
        return replace(self, replicas=(*self.replicas, name))

    def encode(self) -> bytes:
        return f"version: 1\n{self.text()}".encode()

    def text(self) -> str:
        """The text without its line with the version."""
        names = "".join(f"{escape(name)}\n" for name in self.replicas)
        return (
            f"part_name: {self.part}\n"
            f"required_number_of_replicas: {self.required}\n"
            f"actual_number_of_replicas: {len(self.replicas)}\n"
            f"replicas:\n{names}"
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "quorum entry")
        reader.number("version: ", low=1, high=1)
        entry = cls.read(reader)
        reader.end()
        return entry

    @classmethod
    def read(cls, reader: TextReader) -> Self:
        """Read what `text` writes."""
        part = reader.field_as("part_name: ", PartName.parse)
        required = reader.number("required_number_of_replicas: ", high=COUNT_MAX)
        count = reader.number("actual_number_of_replicas: ", high=COUNT_MAX)
        reader.field("replicas:")
        names = [reader.parse(reader.line(), unescape) for _ in range(count)]
        return cls(part, required, tuple(names))


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """The parts of the one insert that waits for a quorum that is not parallel (`T/quorum/status`).

    For one part the text is the original's, which commits one block at a time. Here all parts of an
    insert are committed at once; several parts have a version of the text that is our own.
    """

    entries: tuple[QuorumEntry, ...]

    def __post_init__(self) -> None:
        assert self.entries, "a status is of parts"

    @property
    def parts(self) -> tuple[PartName, ...]:
        return tuple(entry.part for entry in self.entries)

    def encode(self) -> bytes:
        if len(self.entries) == 1:
            return self.entries[0].encode()
        texts = "".join(entry.text() for entry in self.entries)
        return f"version: 2\nparts: {len(self.entries)}\n{texts}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "quorum status")
        version = reader.number("version: ", low=1, high=2)
        count = 1 if version == 1 else reader.number("parts: ", low=2, high=COUNT_MAX)
        entries = tuple(QuorumEntry.read(reader) for _ in range(count))
        reader.end()
        return cls(entries)


@dataclass(frozen=True, slots=True)
class AddedParts:
    """The last part that reached its quorum, for each partition
    (`T/quorum/last_part`, §0.4.6).
    """

    parts: tuple[PartName, ...] = ()
    """One per partition, in order of the partitions."""

    @classmethod
    def of(cls, parts: Iterable[PartName]) -> Self:
        """The value for these parts; of several parts of one partition the last one counts."""
        by_partition = {part.partition: part for part in parts}
        return cls(tuple(by_partition[partition] for partition in sorted(by_partition)))

    def with_parts(self, parts: Iterable[PartName]) -> Self:
        """The value after these parts reached their quorum."""
        return type(self).of([*self.parts, *sorted(parts)])

    def encode(self) -> bytes:
        lines = "".join(f"{part.partition}\t{part}\n" for part in self.parts)
        return f"version: 2\nparts count: {len(self.parts)}\n{lines}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the text, also the empty one that CREATE writes, and version 1, which is a part's
        name. Raises Corruption.
        """
        reader = TextReader(data, "last quorum parts")
        if reader.at_end:
            return cls()
        if not reader.skip("version: 2\n"):
            return cls((reader.parse(reader.rest(), PartName.parse),))
        parts = []
        for _ in range(reader.number("parts count: ", high=COUNT_MAX)):
            partition, _, name = reader.line().partition("\t")
            parts.append(reader.parse(name, PartName.parse))
            if parts[-1].partition != partition:
                raise reader.corruption(f"part {name} is not of partition {partition!r}")
        reader.end()
        return cls.of(parts)


@dataclass(frozen=True, slots=True)
class PartHeader:
    """What `R/parts/<part>` says about the part's content (§0.4.7). Hashes are 16 bytes.

    The layout is the original's. We put into it:

    * `columns_hash`: the hash of the text of the part's columns;
    * `files`: how many data files there are;
    * `hash_of_all_files`: see `proof_of_files`;
    * `hash_of_uncompressed_files`: the hash of the logical content, in the order of the rows;
    * `uncompressed_hash_of_compressed_files`: the row hash, which does not depend on the order.
    """

    columns_hash: bytes
    files: int
    hash_of_all_files: bytes
    hash_of_uncompressed_files: bytes
    uncompressed_hash_of_compressed_files: bytes
    uncompressed_files: int = 0

    def __post_init__(self) -> None:
        for hash_bytes in (
            self.columns_hash,
            self.hash_of_all_files,
            self.hash_of_uncompressed_files,
            self.uncompressed_hash_of_compressed_files,
        ):
            assert len(hash_bytes) == HASH_BYTES

    @property
    def metadata_version(self) -> int | None:
        """The version of the metadata that the part's files are read with; None if the header was
        written by a version of rmt that has the whole hash there.
        """
        version = int.from_bytes(self.hash_of_all_files[-_VERSION_BYTES:])
        return version if version < _VERSIONS_MAX else None

    def encode(self) -> bytes:
        return b"".join(
            (
                PART_HEADER,
                self.columns_hash,
                varint(self.files),
                varint(self.uncompressed_files),
                self.hash_of_all_files,
                self.hash_of_uncompressed_files,
                self.uncompressed_hash_of_compressed_files,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        reader = TextReader(data, "part header")
        if not data.startswith(PART_HEADER):
            raise reader.corruption(f"expected {PART_HEADER!r}")
        reader.take(len(PART_HEADER))
        columns_hash = reader.take(HASH_BYTES)
        files = _read_varint(reader)
        uncompressed_files = _read_varint(reader)
        hashes = [reader.take(HASH_BYTES) for _ in range(3)]
        reader.end()
        return cls(columns_hash, files, hashes[0], hashes[1], hashes[2], uncompressed_files)

    def difference(self, other: "PartHeader") -> str | None:
        """How this part and `other`, of the same name, differ, in words; None if they are equal.

        Like the original's comparison of merged parts, this ignores the files' bytes: two writers
        may store the same rows differently (§0.4.7).
        """
        if self.columns_hash != other.columns_hash:
            return "their columns differ"
        mine = self.files, self.uncompressed_files
        theirs = other.files, other.uncompressed_files
        if mine != theirs:
            return f"{sum(mine)} files here and {sum(theirs)} there"
        my_rows = self.uncompressed_hash_of_compressed_files
        their_rows = other.uncompressed_hash_of_compressed_files
        if my_rows != their_rows:
            return (
                f"their rows differ (row hash {my_rows.hex()} here, {their_rows.hex()} there)"
            )
        if self.hash_of_uncompressed_files != other.hash_of_uncompressed_files:
            return (
                "their rows are in another order (content hash "
                f"{self.hash_of_uncompressed_files.hex()} here, "
                f"{other.hash_of_uncompressed_files.hex()} there)"
            )
        return None


def proof_of_files(files_hash: bytes, metadata_version: int) -> bytes:
    """The value of `PartHeader.hash_of_all_files`: the hash of the files' bytes, whose last bytes
    are replaced by the version of the metadata with which the files are read. Replicas are not
    compared by it, so versions of rmt that write the whole hash there accept the part all the same.
    """
    return files_hash[:-_VERSION_BYTES] + metadata_version.to_bytes(_VERSION_BYTES)


def varint(number: int) -> bytes:
    """The number in seven bits per byte, lowest first. The high bit says that more bytes follow."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_varint(reader: TextReader) -> int:
    number = 0
    for position in range(VARINT_BYTES_MAX):
        byte = reader.take(1)[0]
        number |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return number
    raise reader.corruption(f"a number of more than {VARINT_BYTES_MAX} bytes")


@dataclass(frozen=True, slots=True)
class MutationEntry:
    """The text of `T/mutations/<id>` (spec §0.4.4): the commands of a mutation, and for each
    partition that it concerns its number there. It applies to blocks with smaller numbers.
    """

    create_time: int
    source_replica: str
    block_numbers: tuple[tuple[str, int], ...]
    commands: str
    alter_version: int = -1

    def __post_init__(self) -> None:
        assert "\n" not in self.source_replica
        assert list(self.block_numbers) == sorted(self.block_numbers)

    def version_in(self, partition: str) -> int | None:
        """The mutation's number in the partition; None if the partition is not concerned."""
        at = bisect_left(self.block_numbers, (partition,))
        if at == len(self.block_numbers) or self.block_numbers[at][0] != partition:
            return None
        return self.block_numbers[at][1]

    def encode(self) -> bytes:
        numbers = "".join(f"{partition}\t{n}\n" for partition, n in self.block_numbers)
        return (
            "format version: 1\n"
            f"create time: {format_time(self.create_time)}\n"
            f"source replica: {self.source_replica}\n"
            f"block numbers count: {len(self.block_numbers)}\n"
            f"{numbers}"
            f"commands: {escape(self.commands)}\n"
            f"alter version: {self.alter_version}"
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the text, also of old entries, which end after the commands. Raises Corruption."""
        reader = TextReader(data, "mutation")
        reader.number("format version: ", low=1, high=1)
        create_time = reader.field_as("create time: ", parse_time)
        source_replica = reader.field("source replica: ")
        count = reader.number("block numbers count: ", high=COUNT_MAX)
        numbers: dict[str, int] = {}
        for _ in range(count):
            partition, _, number = reader.line().partition("\t")
            numbers[partition] = reader.parse(number, parse_decimal)
        if len(numbers) != count:
            raise reader.corruption("a partition is named twice")
        reader.expect("commands: ")
        # The alter version came with 20.3; neither version ends its last line.
        commands, _, alter = reader.rest().partition("\nalter version: ")
        return cls(
            create_time,
            source_replica,
            tuple(sorted(numbers.items())),
            reader.parse(commands, _parse_commands),
            reader.parse(alter or "-1", _parse_alter_version),
        )


def _parse_commands(text: str) -> str:
    if "\n" in text:
        raise Corruption("a line that is not known follows the commands")
    return unescape(text)


def _parse_alter_version(text: str) -> int:
    return parse_decimal(text, low=-1, high=COUNT_MAX)
