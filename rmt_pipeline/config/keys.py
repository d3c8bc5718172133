"""Readers of the values in rmt.toml: each accepts some values, and says in words what others should
be.

A reader takes the value as TOML has it and the directory of the file, and returns what the field of
its section holds. It raises ShouldBe, or ValueError with the whole message.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rmt_pipeline.protocol.errors import UserError
from rmt_pipeline.protocol.text import require_path

_LOOPBACK = re.compile(r"localhost|::1|127(\.[0-9]{1,3}){3}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens or is found. `str` gives `host:port`, IPv6 hosts in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this host can connect to it."""
        return bool(_LOOPBACK.fullmatch(self.host))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. Raises ValueError with the form it should have."""
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        well_formed = colon and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535
        if not well_formed or (":" in bare) != (bare != host):
            raise ValueError(
                f"{text!r} is not an address: write host:port, e.g. 127.0.0.1:9009"
            )
        return cls(bare, int(port))


class ShouldBe(Exception):
    """What the value of a key should have been, in words."""


TomlReader = Callable[[object, Path], Any]


def read_by(read: TomlReader) -> dict[str, TomlReader]:
    """The metadata of a dataclass's field that make it a key of the file. A field without a default
    is a key that has to be given.
    """
    return {"read": read}


def a_bool(value: object, _: Path) -> bool:
    """Read true or false. Raises ShouldBe."""
    if not isinstance(value, bool):
        raise ShouldBe("true or false")
    return value


def a_text(value: object, _: Path) -> str:
    """Read a string as it is. Raises ShouldBe."""
    if not isinstance(value, str):
        raise ShouldBe("a text in quotes")
    return value


def a_match(pattern: str) -> TomlReader:
    """A reader of a text of one line that the regular expression matches."""

    def read(value: object, base: Path) -> str:
        text = a_text(value, base)
        if not re.fullmatch(pattern, text):
            raise ShouldBe(f"a text that matches {pattern}")
        return text

    return read


def one_of(*words: str) -> TomlReader:
    """A reader of one of these texts."""

    def read(value: object, base: Path) -> str:
        text = a_text(value, base)
        if text not in words:
            raise ShouldBe(" or ".join(f'"{word}"' for word in words))
        return text

    return read


def a_umask(value: object, _: Path) -> int:
    """Read octal digits in quotes, e.g. "027", as the number that they mean. Raises ShouldBe."""
    text = value if isinstance(value, str) else ""
    if not re.fullmatch("0?[0-7]{3}", text, re.ASCII) or int(text, 8) & 0o700:
        raise ShouldBe(
            'a umask in quotes, e.g. "077" or "027", which takes nothing from the owner'
        )
    return int(text, 8)


def a_port(value: object, _: Path) -> int:
    """Read a TCP port, 1 to 65535. Raises ShouldBe."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ShouldBe("a whole number")
    if not 1 <= value <= 65535:
        raise ShouldBe("a port: 1 to 65535")
    return value


def a_number(least: float, most: float) -> TomlReader:
    """A reader of a number from `least` to `most`, both included."""

    def read(value: object, _: Path) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ShouldBe("a number")
        if not least <= value <= most:
            raise ShouldBe(f"from {least:g} to {most:g}")
        return float(value)

    return read


def a_count(least: int) -> TomlReader:
    """A reader of a whole number that is at least `least`."""

    def read(value: object, _: Path) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ShouldBe(f"a whole number from {least}")
        return value

    return read


def shard_names(value: object, _: Path) -> tuple[tuple[str, ...], ...]:
    """Read a list with a list for each shard: the names of its servers."""
    wanted = ShouldBe('a list with a list for each shard, e.g. [["r1", "r2"], ["r3"]]')
    if not isinstance(value, list) or not all(isinstance(shard, list) for shard in value):
        raise wanted
    if not all(isinstance(name, str) for shard in value for name in shard):
        raise wanted
    if not value or not all(value):
        raise ValueError("a shard has no server: each has one at least")
    return tuple(tuple(shard) for shard in value)


def a_path(value: object, base: Path) -> Path:
    """Read a path; a relative one belongs to the directory of the file that has it."""
    if not isinstance(value, str | Path):
        raise ShouldBe("a path in quotes")
    return Path(os.path.normpath(base / value))


def an_address(value: object, base: Path) -> str:
    """Read `host:port`, and keep it as text."""
    text = a_text(value, base)
    Address.parse(text)
    return text


def macro_texts(value: object, _: Path) -> dict[str, str]:
    """Read a section of texts by their names."""
    if not isinstance(value, dict):
        raise ShouldBe("a section")
    for name, text in value.items():
        if not isinstance(text, str):
            raise ShouldBe(f"texts in quotes, and {name} is {text!r}")
    return value


def secrets(value: object, base: Path) -> tuple[str, ...]:
    """Read one printable text without spaces, or a list of several while they are being changed."""
    several = value if isinstance(value, list) and value else [value]
    return tuple(_SECRET(one, base) for one in several)


def in_zookeeper(value: object, base: Path) -> str:
    """Read the path of a node in ZooKeeper."""
    text = a_text(value, base)
    try:
        require_path(text, "the path")
    except UserError as error:
        raise ValueError(str(error)) from error
    return text


_SECRET = a_match("[!-~]+")  # fits an HTTP header
