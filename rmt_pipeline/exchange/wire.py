"""The format of a part on the wire (spec §12). Only this module writes and parses it.

The request is `POST /?endpoint=DataPartsExchange:<replica path>&part=<name>&
client_protocol_version=<n>` with `Authorization: Bearer <secret>`; the answer to it:

    u64  bytes of all data files
    u64  number of data files
    u64  bytes of the manifest; the manifest; 16-byte hash
    then each data file in the manifest's order:
    varint length, name; u64 bytes; the bytes; 16-byte hash

Integers are little-endian, a hash is the first half of SHA-256. The answer ends right there.
All sizes are known in advance, so there is a Content-Length, and an answer that broke off is never
taken for a whole one. The reader trusts nothing: every size and name has a bound.

The same part always gives the same bytes, and the answer's ETag identifies them. After an answer
broke off, the reader asks for the rest with `Range: bytes=<n>-` and `If-Range: <that ETag>`. The
answer is 206 from byte n on, or the whole part if it is another one by now.

Small parts are asked for together: the request also has `parts=<name>,<name>…`. The answer then has
the header `server_parts`, and for each of these names, in their order:

    u64  bytes of the answer to that part alone; that answer

A size of 0 means that the part is not sent; a request for it alone tells why. A server that does
not know `parts` sends `part` alone, without that header.
"""

import hashlib
import re
import struct
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

from rmt_pipeline.protocol.errors import Corruption
from rmt_pipeline.protocol.nodes.formats import varint
from rmt_pipeline.protocol.parts.name import PartName
from rmt_pipeline.store.manifest import Manifest, PartFile

PROTOCOL_VERSION = 1  # Bump when the answer changes; the server answers min(client's,its own).
VERSION_COOKIE = "server_protocol_version"  # as the original
ENDPOINT_PREFIX = "DataPartsExchange:"
RANGE_UNIT = "bytes"
HASH_BYTES = 16
CHUNK_BYTES = 256 << 10
MANIFEST_BYTES_MAX = 64 << 20
NAME_BYTES_MAX = 255
FILES_MAX = 100_000
TOGETHER_HEADER = "server_parts"
PARTS_TOGETHER_MAX = 64  # their names must fit into the request line
TOGETHER_BYTES_MAX = 4 << 20  # of an answer with several parts, held in memory
TOGETHER_PART_BYTES_MAX = 1 << 20

_HEAD = struct.Struct("<QQQ")
_SIZE = struct.Struct("<Q")
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_RANGE = re.compile(rf"{RANGE_UNIT}=([0-9]{{1,18}})-", re.ASCII)
_CONTENT_RANGE = re.compile(
    rf"{RANGE_UNIT} ([0-9]{{1,18}})-[0-9]{{1,18}}/[0-9]{{1,18}}", re.ASCII
)

ReadExactly = Callable[[int], bytes]
"""Returns exactly that many bytes of the answer, or raises."""


def request_target(endpoint: str, *parts: PartName) -> str:
    """Path and query of the request for parts of the replica at ZooKeeper path `endpoint`."""
    query = {
        "endpoint": ENDPOINT_PREFIX + endpoint,
        "part": str(parts[0]),
        "client_protocol_version": PROTOCOL_VERSION,
    }
    if len(parts) > 1:
        query["parts"] = ",".join(map(str, parts))
    return "/?" + urlencode(query, safe=",")


def parts_asked(part: str, parts: str) -> tuple[PartName, ...] | None:
    """The parts that a request asks for by `part` and `parts`; None if these are malformed."""
    names = (parts or part).split(",", PARTS_TOGETHER_MAX)
    found = tuple(name for text in names if (name := PartName.try_parse(text)) is not None)
    is_whole = len(found) == len(names) <= PARTS_TOGETHER_MAX
    return found if is_whole and str(found[0]) == part else None


def encode_together(answers: Sequence[bytes]) -> bytes:
    """One answer with several parts; each item is the answer for that part alone, or empty."""
    return b"".join(piece for one in answers for piece in (_SIZE.pack(len(one)), one))


def read_size(read: ReadExactly) -> int:
    """The size of the next part in an answer with several. Raises Corruption beyond its bound."""
    (size,) = _SIZE.unpack(read(_SIZE.size))
    if size > TOGETHER_PART_BYTES_MAX:
        raise Corruption(
            f"the peer announces {size} bytes of a small part; at most "
            f"{TOGETHER_PART_BYTES_MAX} are accepted"
        )
    return int(size)


def etag_of(manifest_text: bytes) -> str:
    """The ETag of an answer. The manifest has the hash of every file, so it identifies
    all bytes.
    """
    return f'"{hash_of(manifest_text).hex()}"'


def range_headers(first: int, etag: str) -> dict[str, str]:
    """The headers of a request for the answer with this ETag from byte `first` on."""
    return {"range": f"{RANGE_UNIT}={first}-", "if-range": etag}


def first_byte_asked(range_text: str) -> int:
    """The first byte of a `Range`; 0, as if there were none, if it is not understood (RFC 9110)."""
    found = _RANGE.fullmatch(range_text)
    return int(found[1]) if found else 0


def content_range(first: int, size: int) -> str:
    """The `Content-Range` of a 206 answer; `size` is that of the whole answer."""
    return f"{RANGE_UNIT} {first}-{size - 1}/{size}"


def first_byte_sent(content_range_text: str) -> int | None:
    """The first byte of a `Content-Range`; None if it is not understood."""
    found = _CONTENT_RANGE.fullmatch(content_range_text)
    return int(found[1]) if found else None


def short_hash(digest: "hashlib._Hash") -> bytes:
    """A SHA-256, cut to HASH_BYTES, as it goes over the wire."""
    return digest.digest()[:HASH_BYTES]


def hash_of(data: bytes) -> bytes:
    """The hash of these bytes, as it goes over the wire."""
    return short_hash(hashlib.sha256(data))


def encode_head(manifest_text: bytes, files: Sequence[PartFile]) -> bytes:
    """Everything before the first data file."""
    total = sum(file.size for file in files)
    sizes = _HEAD.pack(total, len(files), len(manifest_text))
    return sizes + manifest_text + hash_of(manifest_text)


def encode_file_head(file: PartFile) -> bytes:
    """What precedes a file's bytes: its name and its size in bytes."""
    name = file.name.encode("ascii")
    assert len(name) <= NAME_BYTES_MAX, f"{file.name} is longer than any file name"
    return varint(len(name)) + name + _SIZE.pack(file.size)


def answer_bytes(manifest_text: bytes, files: Sequence[PartFile]) -> int:
    """The size in bytes of the answer with this manifest and these files."""
    heads = sum(len(encode_file_head(file)) for file in files)
    contents = sum(file.size + HASH_BYTES for file in files)
    return _HEAD.size + len(manifest_text) + HASH_BYTES + heads + contents


def read_head(read: ReadExactly) -> tuple[Manifest, bytes]:
    """The manifest that precedes the data files, and its text. Raises Corruption if it contradicts
    itself or passes a bound.
    """
    files_bytes, files, manifest_bytes = _HEAD.unpack(read(_HEAD.size))
    if manifest_bytes > MANIFEST_BYTES_MAX or files > FILES_MAX:
        raise Corruption(
            f"the peer announces {files} files and a manifest of {manifest_bytes} bytes; "
            f"at most {FILES_MAX} and {MANIFEST_BYTES_MAX} are accepted"
        )
    text = read(manifest_bytes)
    if read(HASH_BYTES) != hash_of(text):
        raise Corruption("the manifest's bytes do not match the hash that was sent with them")
    manifest = Manifest.decode(text)
    mine = (manifest.bytes_on_disk, len(manifest.files))
    if mine != (files_bytes, files):
        raise Corruption(
            f"the peer announces {files} files of {files_bytes} bytes in all, its manifest "
            f"has {mine[1]} of {mine[0]}"
        )
    return manifest, text


def read_file_head(read: ReadExactly, expected: PartFile) -> None:
    """Raises Corruption unless the next file is `expected`, by name and size."""
    name = safe_file_name(read(_read_varint(read, NAME_BYTES_MAX)))
    (size,) = _SIZE.unpack(read(_SIZE.size))
    if (name, size) != (expected.name, expected.size):
        raise Corruption(
            f"the peer sends {name} with {size} bytes where the manifest has "
            f"{expected.name} with {expected.size} bytes"
        )


def safe_file_name(name: bytes) -> str:
    """`name` as a file name without any path, else Corruption (the original: INSECURE_PATH)."""
    text = name.decode("ascii", "replace")
    if len(name) > NAME_BYTES_MAX or not _NAME.fullmatch(text) or text.startswith("."):
        raise Corruption(
            f"the peer sends a file named {text!r}, which is not a plain file name"
        )
    return text


def _read_varint(read: ReadExactly, maximum: int) -> int:
    number = shift = 0
    while True:
        (byte,) = read(1)
        number |= (byte & 0x7F) << shift
        if number > maximum:
            raise Corruption(f"the peer sends a name of {number} bytes; at most {maximum}")
        if byte < 0x80:
            return number
        shift += 7
        if shift > 63:
            raise Corruption("the peer sends a length that never ends")
