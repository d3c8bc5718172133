"""The manifest of a part, `part.json`: what the part is, where its rows came from, and the hashes
that prove that it is whole.

The text is JSON, with one key per line, and ends with a hash over all lines before it, so that a
flipped bit in a number is found too. Any bytes decode to a Manifest or raise Corruption.
"""

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.nodes.columns import columns_text
from rmt_pipeline.protocol.nodes.formats import PartHeader, proof_of_files
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.protocol.reader import COUNT_MAX
from rmt_pipeline.protocol.table import Column
from rmt_pipeline.protocol.ttl import NO_TTL, PartTtl, TtlTimes
from rmt_pipeline.store import layout
from rmt_pipeline.store.hashes.checksums import HASH_HEX_LENGTH, hash_16, hash_hex

# Of a table: 100,000 manifests of a few columns, or 8,000 of a hundred. A loop over more parts
# reads all of them again.
READ_BYTES_MAX = 256 << 20
FORMAT = 1  # Bump when the text changes; keep decoding every older number.

_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII)
_HASH = re.compile(rf"[0-9a-f]{{{HASH_HEX_LENGTH}}}", re.ASCII)
_HASH_128 = re.compile(r"[0-9a-f]{32}", re.ASCII)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_CHECK = re.compile(rb',\n"check": "([0-9a-f]{64})"\n}\n', re.ASCII)
_CHECK_BYTES = len(',\n"check": ""\n}\n') + HASH_HEX_LENGTH

KeyValue = None | bool | int | float | str
"""A value of a key column in JSON. Dates and times as ISO text, decimals and UUIDs as text."""


class PartColumn(NamedTuple):
    """A column as the part has it, which may be an older form of the table's column."""

    name: str
    type: str
    """Canonical ClickHouse text."""


class PartFile(NamedTuple):
    """One data file of the part, with its size and hash."""

    name: str
    size: int
    """Bytes."""
    hash: str
    """SHA-256 of the bytes, lower hex."""


class KeyBound(NamedTuple):
    """The least and the greatest value of a partition or sorting key column in the part.

    Both are None if the part is empty or a bound would be too long to keep.
    """

    column: str
    min: KeyValue
    max: KeyValue


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of one part. It never changes once the part is published.

    `row_hash`, `column_hashes` and `content_hash` are those of `store.hashes.rows`. `partition` is
    the partition key's value as ClickHouse prints it in `system.parts.partition`.
    """

    columns: tuple[PartColumn, ...]
    rows: int
    bytes_on_disk: int
    partition_id: str
    partition: str
    key_bounds: tuple[KeyBound, ...]
    files: tuple[PartFile, ...]
    row_hash: int
    column_hashes: Mapping[str, int] = field(hash=False)
    content_hash: int
    created_s: int
    bytes_uncompressed: int = 0
    """Bytes of the rows in memory, as Arrow."""
    insert_id: str = ""
    """The id of the insert that made the part, or `ids.BY_ROWS` for an insert that is identified by
    its rows; empty for merges and mutations, and for inserts without deduplication.
    """
    run_id: str = ""
    """The Dagster run that made the part; empty outside of Dagster."""
    sources: tuple[str, ...] = ()
    """The names of the parts that this one was merged or mutated from."""
    mutations: tuple[str, ...] = ()
    """The ids of the mutations that were applied to make this part."""
    engine_version: str = ""
    metadata_version: int = 0
    """The version of the table's metadata with which the part was written. A reader applies to it
    what later ALTERs did.
    """
    ttl: PartTtl = NO_TTL
    format: int = FORMAT

    def __post_init__(self) -> None:
        if (problem := _problem(self)) is not None:
            raise AssertionError(problem)

    def has_rows_of(self, other: "Manifest") -> bool:
        """Whether both have the same columns and the same rows in the same order. The files may
        differ.
        """
        return (self.columns, self.rows, self.content_hash, self.row_hash) == (
            other.columns,
            other.rows,
            other.content_hash,
            other.row_hash,
        )

    def encode(self) -> bytes:
        """The text of `part.json`. Equal manifests give equal bytes."""
        return seal_json(_to_json(self))

    @classmethod
    def decode(cls, data: bytes) -> "Manifest":
        """The inverse of `encode`. Raises Corruption for anything else."""
        fields = unseal_json(data, layout.MANIFEST)
        try:
            manifest = _from_json(fields)
            again = manifest.encode()
        except (ValueError, RecursionError) as error:
            raise Corruption(f"{layout.MANIFEST} can't be read: {error}") from error
        if again != data:  # duplicate keys, unknown keys, or another order
            raise Corruption(f"{layout.MANIFEST} is not as this program writes it")
        return manifest

    @property
    def bytes_in_memory(self) -> int:
        """About how many bytes this object takes in memory: most are of the columns, with their
        names and hashes.
        """
        return 1600 + 330 * len(self.columns) + 290 * len(self.files) + 80 * len(self.sources)

    @property
    def files_hash(self) -> bytes:
        """A hash, 16 bytes, over the names and contents of all files."""
        names_and_hashes = (
            piece for file in sorted(self.files) for piece in (file.name, file.hash)
        )
        return hash_16(piece.encode() for piece in names_and_hashes)

    def header(self) -> PartHeader:
        """The text of the part's node in ZooKeeper (spec §0.4.7), by which replicas are compared.

        Two of its hashes are ours: one over the rows in their order, and one over the rows in any
        order. Neither depends on how Parquet wrote the rows, so parts with equal rows are equal.
        """
        return PartHeader(
            columns_hash=_columns_hash(self.columns),
            files=len(self.files),
            hash_of_all_files=proof_of_files(self.files_hash, self.metadata_version),
            hash_of_uncompressed_files=self.content_hash.to_bytes(16, "little"),
            uncompressed_hash_of_compressed_files=self.row_hash.to_bytes(16, "little"),
        )

    def file(self, name: str) -> PartFile | None:
        """The data file with this name; None if there is none."""
        return next((file for file in self.files if file.name == name), None)


class ReadManifests:
    """The manifests that a process has read, by part, each with the time (mtime) of its file; the
    least recently used ones are forgotten. Several threads may use it at once.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[PartName, tuple[float | None, Manifest]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, part: PartName) -> tuple[float | None, Manifest] | None:
        with self._lock:
            found = self._found.get(part)
            if found is not None:
                self._found.move_to_end(part)
            return found

    def remember(self, part: PartName, modified_s: float | None, manifest: Manifest) -> None:
        with self._lock:
            self._pop(part)
            self._found[part] = (modified_s, manifest)
            self._bytes += manifest.bytes_in_memory
            while self._bytes > READ_BYTES_MAX and len(self._found) > 1:
                self._pop(next(iter(self._found)))

    def forget(self, part: PartName) -> None:
        with self._lock:
            self._pop(part)

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
            self._bytes = 0

    def _pop(self, part: PartName) -> None:
        found = self._found.pop(part, None)
        if found is not None:
            self._bytes -= found[1].bytes_in_memory


@lru_cache(maxsize=64)
def _columns_hash(columns: tuple[PartColumn, ...]) -> bytes:
    """The hash of these columns. Cached, because nearly all parts of a table have the same ones."""
    text = columns_text([Column(column.name, column.type) for column in columns])
    return hash_16([text.encode()])


def seal_json(fields: Mapping[str, Any]) -> bytes:
    """Encode a JSON object, one key per line, that ends with a hash over all lines before it."""
    lines = ",\n".join([f'"{key}": {_json(value)}' for key, value in fields.items()])
    body = f"{{\n{lines}".encode()
    return body + f',\n"check": "{hash_hex(body)}"\n}}\n'.encode()


def _json(value: Any) -> str:
    """The encoder's text. It makes an object of its own for each value that is not a string."""
    if type(value) is int:
        return str(value)
    return _ENCODER.encode(value) if value != () else "[]"


def unseal_json(data: bytes, place: str) -> Any:
    """The inverse of `seal_json`. Raises Corruption, naming `place`, if the hash differs or the
    text is not JSON.
    """
    check = _CHECK.fullmatch(data[-_CHECK_BYTES:])
    if check is None:
        raise Corruption(f"{place} does not end with its check sum: {data[-80:]!r}")
    found = hash_hex(data[:-_CHECK_BYTES])
    if found.encode() != check[1]:
        raise Corruption(f"{place}: check sum is {found}, it says {check[1].decode()}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{place} can't be read: {error}") from error


def rows_and_bytes(data: bytes) -> tuple[int, int]:
    """The rows and bytes on disk in the text of a manifest, whose hash is not checked. Raises
    Corruption.
    """
    try:
        fields = json.loads(data)
        return int(fields["rows"]), int(fields["bytes_on_disk"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Corruption(f"{layout.MANIFEST} can't be read: {error!r}") from error


def _problem(manifest: Manifest) -> str | None:
    """What is wrong with a manifest, in words; None if nothing is."""
    names = [column.name for column in manifest.columns]
    files = [file.name for file in manifest.files]
    hashes = [manifest.row_hash, manifest.content_hash, *manifest.column_hashes.values()]
    if len(set(names)) != len(names):
        return f"a column appears twice in {names}"
    if set(names) != manifest.column_hashes.keys():
        return f"columns are {sorted(names)}, column hashes {sorted(manifest.column_hashes)}"
    if len(set(files)) != len(files):
        return f"a file appears twice in {files}"
    ours = {layout.MANIFEST, layout.WHOLE}
    if not all(_FILE_NAME.fullmatch(name) and name not in ours for name in files):
        return f"{files} are not names of data files"
    if not all(file.size >= 0 and _HASH.fullmatch(file.hash) for file in manifest.files):
        return f"size or hash of a file is wrong: {manifest.files}"
    if sum(file.size for file in manifest.files) != manifest.bytes_on_disk:
        return f"bytes_on_disk is {manifest.bytes_on_disk}, the files are {manifest.files}"
    numbers = manifest.rows, manifest.created_s, manifest.bytes_uncompressed
    if min(*numbers, manifest.metadata_version) < 0 or manifest.metadata_version > COUNT_MAX:
        return (
            "rows, created_s, bytes_uncompressed and metadata_version can't be negative, nor the "
            f"last more than {COUNT_MAX}"
        )
    if min(hashes) < 0 or max(hashes) >= 1 << 128:
        return "a hash has more than 128 bits"
    if any(PartName.try_parse(source) is None for source in manifest.sources):
        return f"sources are not part names: {manifest.sources}"
    return None


def _to_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": manifest.format,
        "rows": manifest.rows,
        "bytes_on_disk": manifest.bytes_on_disk,
        "bytes_uncompressed": manifest.bytes_uncompressed,
        "partition_id": manifest.partition_id,
        "partition": manifest.partition,
        "columns": manifest.columns,
        "key_bounds": manifest.key_bounds,
        "files": manifest.files,
        "row_hash": f"{manifest.row_hash:032x}",
        "content_hash": f"{manifest.content_hash:032x}",
        "column_hashes": {
            name: f"{value:032x}" for name, value in manifest.column_hashes.items()
        },
        "created_s": manifest.created_s,
        "insert_id": manifest.insert_id,
        "run_id": manifest.run_id,
        "sources": manifest.sources,
        "mutations": manifest.mutations,
        "engine_version": manifest.engine_version,
        # Left out for a table that was never altered: its text is as before ALTER existed.
        **({"metadata_version": version} if (version := manifest.metadata_version) else {}),
        **_ttl_to_json(manifest.ttl),
    }


def _ttl_to_json(ttl: PartTtl) -> dict[str, Any]:
    """The fields about TTL; none for parts of tables without TTL."""
    if ttl == NO_TTL:
        return {}
    return {
        "ttl": ttl.times,
        "ttl_codec": ttl.codec,
        "ttl_deleted_s": ttl.deleted_s,
        "ttl_recompressed_s": ttl.recompressed_s,
    }


def _from_json(fields: Any) -> Manifest:
    if not isinstance(fields, dict):
        raise Corruption(f"{layout.MANIFEST} is not an object: {str(fields)[:80]}")
    read = _Fields(fields)
    number = read.integer("format")
    if number != FORMAT:
        raise Corruption(
            f"{layout.MANIFEST} has format {number}; this version reads {FORMAT}. "
            "Was the part written by a newer one?"
        )
    values: dict[str, Any] = {
        "format": number,
        "rows": read.integer("rows"),
        "bytes_on_disk": read.integer("bytes_on_disk"),
        "bytes_uncompressed": read.integer("bytes_uncompressed"),
        "partition_id": read.text("partition_id"),
        "partition": read.text("partition"),
        "columns": tuple(PartColumn(*row) for row in read.rows("columns", (str, str))),
        "key_bounds": tuple(
            KeyBound(*row) for row in read.rows("key_bounds", (str, KeyValue, KeyValue))
        ),
        "files": tuple(PartFile(*row) for row in read.rows("files", (str, int, str))),
        "row_hash": read.hash_128("row_hash"),
        "content_hash": read.hash_128("content_hash"),
        "column_hashes": read.hashes_128("column_hashes"),
        "created_s": read.integer("created_s"),
        "insert_id": read.text("insert_id"),
        "run_id": read.text("run_id"),
        "sources": read.texts("sources"),
        "mutations": read.texts("mutations"),
        "engine_version": read.text("engine_version"),
        "metadata_version": read.integer("metadata_version", absent=0),
        "ttl": _ttl_from_json(read) if "ttl" in fields else NO_TTL,
    }
    try:
        return Manifest(**values)
    except AssertionError as problem:
        raise Corruption(f"{layout.MANIFEST}: {problem}") from None


def _ttl_from_json(read: "_Fields") -> PartTtl:
    rows = read.rows("ttl", (str, int, int, bool))
    times = (TtlTimes(rule, int(least), int(most), every) for rule, least, most, every in rows)
    ttl = PartTtl(
        tuple(times),
        read.text("ttl_codec"),
        read.integer("ttl_deleted_s"),
        read.integer("ttl_recompressed_s"),
    )
    decided_s = (ttl.deleted_s, ttl.recompressed_s)
    if min(decided_s) < 0 or any(not 0 <= one.min_s <= one.max_s for one in ttl.times):
        raise Corruption(f"{layout.MANIFEST}: ttl can't be {ttl}")
    return ttl


class _Fields:
    """Reads typed fields of a JSON object. Each method raises Corruption that names the field."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def integer(self, name: str, absent: int | None = None) -> int:
        if absent is not None and name not in self._fields:
            return absent
        return int(self._take(name, int))

    def text(self, name: str) -> str:
        return str(self._take(name, str))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(text for (text,) in self._checked(name, self._take(name, list), (str,)))

    def rows(self, name: str, kinds: tuple[Any, ...]) -> list[list[Any]]:
        return self._checked(name, self._take(name, list), kinds)

    def hash_128(self, name: str) -> int:
        return self._hash_128(name, self._take(name, str))

    def hashes_128(self, name: str) -> dict[str, int]:
        found = self._take(name, dict)
        return {key: self._hash_128(name, value) for key, value in found.items()}

    def _take(self, name: str, kind: type) -> Any:
        value = self._fields.get(name)
        if not isinstance(value, kind):
            raise self._wrong(name, value)
        return value

    def _checked(self, name: str, rows: list[Any], kinds: tuple[Any, ...]) -> list[list[Any]]:
        checked = []
        for found in rows:
            row = found if isinstance(found, list) else [found]
            fits = len(row) == len(kinds) and all(
                isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)
            )
            if not fits:
                raise self._wrong(name, found)
            checked.append(row)
        return checked

    def _hash_128(self, name: str, value: Any) -> int:
        if not isinstance(value, str) or _HASH_128.fullmatch(value) is None:
            raise self._wrong(name, value)
        return int(value, 16)

    def _wrong(self, name: str, value: Any) -> Corruption:
        return Corruption(f"{layout.MANIFEST}: {name} can't be {str(value)[:80]!r}")
