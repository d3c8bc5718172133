"""Functions that are asked for rarely, in Python, for one row after the other.

They are given bytes: a text's, a number's in memory, or its digits. What they give is a list of
bytes, of which most have one.
"""

import hashlib
import math
import re
import struct
import uuid
from binascii import unhexlify
from collections.abc import Callable, Iterator
from ipaddress import AddressValueError, IPv6Address

from rmt_pipeline.protocol.sip_hash import sip_hash_128_of
from rmt_pipeline.translate.murmur_hash import (
    murmur_2_32,
    murmur_2_64,
    murmur_3_32,
    murmur_3_128,
)
from rmt_pipeline.types.to_text import ipv6_text

NUMBERS = {
    **{f"Int{bits}": code for bits, code in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))},
    **{f"UInt{bits}": code for bits, code in ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))},
    "Float32": "f",
    "Float64": "d",
}
"""Types of numbers, and what `struct` calls them."""


def width_of(kind: str) -> int:
    """How many bytes a number of this type takes."""
    return struct.calcsize(NUMBERS[kind])


def _bytes_of(kind: str) -> Callable[[bytes], bytes]:
    """From a number's digits to its bytes in memory, the lowest first."""
    read = float if kind.startswith("Float") else int
    return lambda digits: struct.pack(f"<{NUMBERS[kind]}", read(digits))


def _number_of(kind: str) -> Callable[[bytes], float]:
    """From bytes in memory to the number; missing ones are 0, further ones are passed over."""
    width = width_of(kind)

    def number(data: bytes) -> float:
        [found] = struct.unpack(f"<{NUMBERS[kind]}", data[:width].ljust(width, b"\0"))
        return float(found) if kind.startswith("Float") else int(found)

    return number


def _of_digits(function: Callable[[float], float]) -> Callable[[bytes], float]:
    return lambda digits: function(float(digits))


# Hashes.


def _murmur_3_64(data: bytes) -> int:
    low, high = murmur_3_128(data)
    return low ^ high


def _murmur_3_128(data: bytes) -> bytes:
    return struct.pack("<QQ", *murmur_3_128(data))


def _sip_128(data: bytes) -> bytes:
    def word(at: int, count: int) -> int:
        return int.from_bytes(data[at : at + count], "little")

    return struct.pack("<QQ", *sip_hash_128_of(word, len(data)))


# Addresses.

_MAC = re.compile(rb"(?:([0-9A-Fa-f]{2}).)" * 5 + rb"([0-9A-Fa-f]{2})", re.DOTALL)
_MAKER = re.compile(rb"(?:([0-9A-Fa-f]{2}).)" * 2 + rb"([0-9A-Fa-f]{2})", re.DOTALL)
_UUID = re.compile(rb"(.{8}).(.{4}).(.{4}).(.{4}).(.{12})", re.DOTALL)
"""The original passes over what stands between the digits."""


def _mac_text(digits: bytes) -> bytes:
    number = int(digits) & ((1 << 48) - 1)
    return number.to_bytes(6, "big").hex(":").upper().encode()


def _mac_number(text: bytes) -> int:
    found = _MAC.fullmatch(text)
    return int(b"".join(found.groups()), 16) if found else 0


def _mac_maker(text: bytes) -> int:
    """Of the whole address, or of its first half."""
    found = _MAC.fullmatch(text) or _MAKER.fullmatch(text)
    return int(b"".join(found.groups()[:3]), 16) if found else 0


def _ipv6_bytes(text: bytes) -> bytes:
    try:
        return bytes(16) if b"%" in text else IPv6Address(text.decode()).packed
    except AddressValueError:
        return bytes(16)


def _uuid_bytes(text: bytes) -> bytes:
    found = _UUID.fullmatch(text)
    try:
        return unhexlify(b"".join(found.groups())) if found else bytes(16)
    except ValueError:
        return bytes(16)


# URLs.

_HOST = re.compile(rb"[^:/?#]+://(?=.)[^/?#]*", re.DOTALL)
_PIECE = re.compile(rb".[^/?#]*[/?#]?", re.DOTALL)
"""Up to behind the next separator, which is not looked for at once: `//` is one."""
_PARAMETER = re.compile(rb"(?:[^=&#?]*\?)*([^=&#?]*)(?:(=[^&#]*)(?:[&#]|$)|[&#])", re.DOTALL)


def _hierarchy(url: bytes) -> list[bytes]:
    """The URL up to behind its host, and each of its further pieces; the whole without a host."""
    found = _HOST.match(url)
    if found is None:
        return [url] if url else []
    host = url[: found.end() + 1]
    return [host, *_up_to_each_piece(url, len(host))]


def _path_hierarchy(url: bytes) -> list[bytes]:
    """The path, and what follows it, up to each of its pieces behind the first slash."""
    found = _HOST.match(url)
    return list(_up_to_each_piece(url[found.end() :], 1)) if found else []


def _up_to_each_piece(text: bytes, start: int) -> Iterator[bytes]:
    return (text[: piece.end()] for piece in _PIECE.finditer(text, start))


def _parameters(url: bytes) -> list[bytes]:
    """The `name=value` behind the first ? or #; the last one only with its =."""
    return [name + value for name, value in _names_and_values(url)]


def _parameter_names(url: bytes) -> list[bytes]:
    return [name for name, _ in _names_and_values(url)]


def _names_and_values(url: bytes) -> Iterator[tuple[bytes, bytes]]:
    [behind] = re.split(rb"[?#]", url, maxsplit=1)[1:] or [b""]
    found = _PARAMETER.match(behind)
    while found is not None:  # where none begins, none begins further on, either
        yield found[1], found[2] or b""
        found = _PARAMETER.match(behind, found.end())


_SECOND_LEVEL = (b"com", b"net", b"org", b"co", b"biz", b"edu", b"gov", b"mil")


def _significant(domain: bytes) -> bytes:
    """A domain from its first significant part on: the one below the country or `com`, or below
    `co.uk` and the like.
    """
    parts = domain.rstrip(b".").split(b".")
    start = 3 if len(parts) > 2 and parts[-2] in _SECOND_LEVEL else 2
    return b".".join(parts[-start:])


def _first_significant(domain: bytes) -> bytes:
    return _significant(domain).partition(b".")[0]


_TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "SHA224": lambda data: hashlib.sha224(data).digest(),
    "murmurHash3_128": _murmur_3_128,
    "sipHash128": _sip_128,
    "MACNumToString": _mac_text,
    "IPv6NumToString": lambda data: ipv6_text(data).encode(),
    "IPv6StringToNum": _ipv6_bytes,
    "UUIDNumToString": lambda data: str(uuid.UUID(bytes=data)).encode(),
    "UUIDStringToNum": _uuid_bytes,
    "firstSignificantSubdomain": _first_significant,
    "cutToFirstSignificantSubdomain": _significant,
    **{f"bytes of {kind}": _bytes_of(kind) for kind in NUMBERS},
}
_NUMBERS: dict[str, Callable[[bytes], float]] = {
    "murmurHash2_32": murmur_2_32,
    "murmurHash2_64": murmur_2_64,
    "murmurHash3_32": murmur_3_32,
    "murmurHash3_64": _murmur_3_64,
    "MACStringToNum": _mac_number,
    "MACStringToOUI": _mac_maker,
    "erf": _of_digits(math.erf),
    "erfc": _of_digits(math.erfc),
    **{f"bytes as {kind}": _number_of(kind) for kind in NUMBERS},
}
_LISTS: dict[str, Callable[[bytes], list[bytes]]] = {
    "URLHierarchy": _hierarchy,
    "URLPathHierarchy": _path_hierarchy,
    "extractURLParameters": _parameters,
    "extractURLParameterNames": _parameter_names,
}


def by_row(name: str, data: bytes) -> list[bytes]:
    """What the function of this name gives; numbers as their digits."""
    if (text := _TEXTS.get(name)) is not None:
        return [text(data)]
    if (number := _NUMBERS.get(name)) is not None:
        return [repr(number(data)).encode()]
    return _LISTS[name](data)
