"""Reads rmt.toml and reports all of its mistakes at once; and reads it again when it
has changed.
"""

import logging
import os
import threading
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from rmt_pipeline.config.keys import ShouldBe, a_path
from rmt_pipeline.config.sections import (
    DEFAULT_DIRECTORY,
    ClusterConfig,
    Config,
    DagsterConfig,
    DistributedDdlConfig,
    ExchangeConfig,
    FilesConfig,
    MonitoringConfig,
    ServerConfig,
    SparkConfig,
    TlsConfig,
    ZooKeeperConfig,
)
from rmt_pipeline.protocol.errors import BadConfiguration, RmtError

ENVIRONMENT_VARIABLE = "RMT_CONFIG"
FILE_NAME = "rmt.toml"

_log = logging.getLogger(__name__)


def load_config(path: Path | str | None = None) -> Config:
    """Read `path`, else the file that RMT_CONFIG names, else the rmt.toml of the current directory;
    without any of them, take the embedded default.

    Raises BadConfiguration that names the file, the key and what it should be.
    """
    given = path or os.environ.get(ENVIRONMENT_VARIABLE)
    if not given and Path(FILE_NAME).exists():
        given = FILE_NAME
    if not given:
        return _validated({}, base=Path.cwd(), path=None)
    file = Path(given).absolute()
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadConfiguration(f"the configuration file {file} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(
            f"the configuration file {file} cannot be read: {error}"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise BadConfiguration(f"{file} is not TOML: {error}") from error
    return _validated(raw, base=file.parent, path=file)


class RenewedConfig:
    """The current rmt.toml, for what may change without a restart: the file is read again when it
    has changed. While the new one can't be used, or lacks `server` or the secrets that the first
    one had, the last good one stays in force. Safe for threads.
    """

    def __init__(self, config: Config, server: str) -> None:
        self._first = config
        self._config = config
        self._server = server
        self._stamp = self._looked()
        self._lock = threading.Lock()

    def now(self) -> Config:
        with self._lock:
            stamp = self._looked()
            if stamp != self._stamp:
                self._stamp = stamp
                self._take()
            return self._config

    def _take(self) -> None:
        try:
            found = load_config(self._config.path)
            found.require_guarded(self._server)
            reason = self._objection(found)
        except (RmtError, OSError) as error:
            reason = str(error)
        if reason:
            _log.warning("the new rmt.toml is not taken, the old one stays: %s", reason)
        else:
            self._config = found

    def _objection(self, found: Config) -> str:
        """The reason not to take `found`, or "". A file without [servers], such as one that is
        being written, has the servers of the embedded default instead of ours.
        """
        first, new = self._first.server(self._server), found.server(self._server)
        if (first.data, first.listen) != (new.data, new.listen):
            return (
                f"servers.{self._server} has another `data` or `listen` in it, which needs a "
                "restart of the server"
            )
        if self._first.secrets_of(self._server) and not found.secrets_of(self._server):
            return "the exchange secret is gone from it, and this process began with one"
        return ""

    def _looked(self) -> tuple[int, ...]:
        """A stamp that differs when the file was written or replaced."""
        if self._config.path is None:
            return ()
        try:
            found = self._config.path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino


def _embedded_default() -> dict[str, Any]:
    return {
        "servers": {
            name: {
                "data": str(DEFAULT_DIRECTORY / name),
                "listen": f"127.0.0.1:{port}",
                "macros": {"shard": "01", "replica": name, "cluster": "default"},
            }
            for name, port in (("r1", 9009), ("r2", 9010))
        },
        "clusters": {"default": {"shards": [["r1", "r2"]]}},
    }


_SECTIONS: dict[str, type[Any]] = {
    "zookeeper": ZooKeeperConfig,
    "spark": SparkConfig,
    "dagster": DagsterConfig,
    "exchange": ExchangeConfig,
    "tls": TlsConfig,
    "monitoring": MonitoringConfig,
    "files": FilesConfig,
    "distributed_ddl": DistributedDdlConfig,
}
_NAMED_SECTIONS = ("servers", "clusters")  # each has sections with names: [servers.r1]
_Section = TypeVar("_Section")


def _validated(raw: dict[str, Any], *, base: Path, path: Path | None) -> Config:
    reading = _Reading(base)
    config = reading.config(raw, path)
    if config is None:
        place = str(path) if path else "the embedded default"
        lines = "\n  ".join(reading.mistakes)
        raise BadConfiguration(f"{place}: {lines}")
    return config


class _Reading:
    """Reads one file. Mistakes are collected, so that all of them can be reported at once."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.mistakes: list[str] = []

    def config(self, raw: dict[str, Any], path: Path | None) -> Config | None:
        """The configuration; None when there are mistakes."""
        self._refuse_unknown(raw, [*_SECTIONS, *_NAMED_SECTIONS], "")
        zookeeper = raw.get("zookeeper", {})
        if isinstance(zookeeper, dict):
            raw = {**raw, "zookeeper": {"embedded": not zookeeper.get("hosts"), **zookeeper}}
            if raw["zookeeper"]["embedded"] and not any(
                name in raw for name in _NAMED_SECTIONS
            ):
                raw = {**_embedded_default(), **raw}  # the file only changes ports, for example
        found: dict[str, Any] = {
            name: self._section(kind, raw.get(name, {}), name)
            for name, kind in _SECTIONS.items()
        }
        found["servers"] = {
            name: self._section(ServerConfig, section, f"servers.{name}", name=name)
            for name, section in self._named(raw, "servers").items()
        }
        found["clusters"] = {
            name: self._section(ClusterConfig, section, f"clusters.{name}")
            for name, section in self._named(raw, "clusters").items()
        }
        if self.mistakes:
            return None
        try:
            return Config(**found, path=path)
        except ValueError as error:
            self.mistakes.append(str(error))
            return None

    def _named(self, raw: dict[str, Any], where: str) -> dict[str, Any]:
        found = raw.get(where, {})
        if isinstance(found, dict):
            return found
        self.mistakes.append(f"{where}: is {found!r}, but should be a section")
        return {}

    def _section(
        self, kind: type[_Section], raw: object, where: str, **given: str
    ) -> _Section | None:
        """A section; None when there are mistakes in it. `given` are fields that are not keys of
        the file.
        """
        if not isinstance(raw, dict):
            self.mistakes.append(f"{where}: is {raw!r}, but should be a section")
            return None
        told = len(self.mistakes)
        keys = _keys_of(kind)
        self._refuse_unknown(raw, keys, where)
        values = {name: self._value(key, raw, f"{where}.{name}") for name, key in keys.items()}
        if len(self.mistakes) > told:
            return None
        try:
            return kind(**given, **values)
        except ValueError as error:
            self.mistakes.append(f"{where}: {error}")
            return None

    def _value(self, key: "Field[Any]", raw: dict[str, Any], where: str) -> Any:
        """The value of a field, with paths below the file's directory; None after a mistake."""
        if key.name not in raw:
            if key.default_factory is not MISSING:
                return key.default_factory()
            if key.default is MISSING:
                self.mistakes.append(f"{where}: this key is needed and missing")
            is_path = isinstance(key.default, Path)
            return a_path(key.default, self._base) if is_path else key.default
        value = raw[key.name]
        try:
            return key.metadata["read"](value, self._base)
        except ShouldBe as should_be:
            shown = repr(value) if key.repr else "not shown"
            self.mistakes.append(f"{where}: is {shown}, but should be {should_be}")
        except ValueError as error:
            self.mistakes.append(f"{where}: {error}")
        return None

    def _refuse_unknown(
        self, raw: Mapping[str, Any], known: Collection[str], where: str
    ) -> None:
        for name in raw:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                keys = ", ".join(sorted(known))
                hint = f"did you mean {near[0]!r}?" if near else f"keys here: {keys}"
                self.mistakes.append(
                    f"{where}{'.' if where else ''}{name}: unknown key; {hint}"
                )


def _keys_of(section: type[Any]) -> "dict[str, Field[Any]]":
    return {one.name: one for one in fields(section) if "read" in one.metadata}
