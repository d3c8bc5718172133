"""The configuration file: which servers there are, where ZooKeeper, Spark and Dagster are.

One TOML file describes a deployment, and every host may have the same one. Keys are checked
strictly: an unknown key is a mistake, and the error names the file, the key and the nearest
key that exists. Without a file, the embedded default is two servers on this machine, below
`./rmt-data`.
"""

import logging
import os
import re
import threading
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, TypeVar

from rmt_pipeline.protocol.errors import BadConfiguration, RmtError, UnknownCluster, UserError
from rmt_pipeline.protocol.text import require_path

ENVIRONMENT_VARIABLE = "RMT_CONFIG"
DEFAULT_DIRECTORY = Path("rmt-data")
WILDCARD_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104  compared with, never bound

_log = logging.getLogger(__name__)

_MACRO = re.compile(r"\{([^{}]*)\}")
_LOOPBACK = re.compile(r"localhost|::1|127(\.[0-9]{1,3}){3}")
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


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
        """Whether nobody on another host can get there."""
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


class _Wanted(Exception):
    """What the value of a key should have been, in words."""


_Reader = Callable[[object, Path], Any]
"""A value of TOML as the field has it, below the directory of its file. Raises _Wanted, or
ValueError with all that is to be said."""


def _key(read: _Reader) -> dict[str, _Reader]:
    """What makes a field a key of the file; without a default it is needed."""
    return {"read": read}


def _a_bool(value: object, _: Path) -> bool:
    if not isinstance(value, bool):
        raise _Wanted("true or false")
    return value


def _a_text(value: object, _: Path) -> str:
    if not isinstance(value, str):
        raise _Wanted("a text in quotes")
    return value


def _matching(pattern: str) -> _Reader:
    def read(value: object, base: Path) -> str:
        text = _a_text(value, base)
        if not re.search(pattern, text):
            raise _Wanted(f"a text that matches {pattern}")
        return text

    return read


def _one_of(*words: str) -> _Reader:
    def read(value: object, base: Path) -> str:
        text = _a_text(value, base)
        if text not in words:
            raise _Wanted(" or ".join(f'"{word}"' for word in words))
        return text

    return read


def _a_umask(value: object, _: Path) -> int:
    text = value if isinstance(value, str) else ""
    if not re.fullmatch("0?[0-7]{3}", text, re.ASCII) or int(text, 8) & 0o700:
        raise _Wanted(
            'a umask in quotes, e.g. "077" or "027", which takes nothing from the owner'
        )
    return int(text, 8)


def _a_port(value: object, _: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Wanted("a whole number")
    if not 1 <= value <= 65535:
        raise _Wanted("a port: 1 to 65535")
    return value


def _seconds(least: float, most: float) -> _Reader:
    def read(value: object, _: Path) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _Wanted("a number")
        if not least <= value <= most:
            raise _Wanted(f"from {least:g} to {most:g}")
        return float(value)

    return read


def _whole(least: int) -> _Reader:
    def read(value: object, _: Path) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise _Wanted(f"a whole number from {least}")
        return value

    return read


def _shards(value: object, _: Path) -> tuple[tuple[str, ...], ...]:
    wanted = _Wanted('a list with a list for each shard, e.g. [["r1", "r2"], ["r3"]]')
    if not isinstance(value, list) or not all(isinstance(shard, list) for shard in value):
        raise wanted
    if not all(isinstance(name, str) for shard in value for name in shard):
        raise wanted
    if not value or not all(value):
        raise ValueError("a shard has no server: each has one at least")
    return tuple(tuple(shard) for shard in value)


def _a_path(value: object, base: Path) -> Path:
    """Relative paths belong to the directory of the file that has them."""
    if not isinstance(value, str | Path):
        raise _Wanted("a path in quotes")
    return Path(os.path.normpath(base / value))


def _an_address(value: object, base: Path) -> str:
    text = _a_text(value, base)
    Address.parse(text)
    return text


def _macros(value: object, _: Path) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _Wanted("a section")
    for name, text in value.items():
        if not isinstance(text, str):
            raise _Wanted(f"texts in quotes, and {name} is {text!r}")
    return value


def _secrets(value: object, base: Path) -> tuple[str, ...]:
    """One, or several while they are changed."""
    several = value if isinstance(value, list) and value else [value]
    return tuple(_SECRET(one, base) for one in several)


def _in_zookeeper(value: object, base: Path) -> str:
    text = _a_text(value, base)
    try:
        require_path(text, "the path")
    except UserError as error:
        raise ValueError(str(error)) from error
    return text


_SECRET = _matching(r"^[!-~]+$")  # fits an HTTP header


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `ca`: who signs for the other side; None: whom this system trusts. `certificate`
    and `key`: who we are; the key may be in the certificate's file. `section` of rmt.toml names
    them.
    """

    section: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class ZooKeeperConfig:
    """`embedded`: `rmt zookeeper` runs one on this machine; else `hosts` names an ensemble, and
    maybe a chroot behind the last one: all that we have is below it.

    `embedded` is true unless `hosts` is given. `identity` is "user:password"; nodes are for it
    alone then, unless `acl` is "open".
    """

    embedded: bool = field(default=True, metadata=_key(_a_bool))
    hosts: str = field(default="", metadata=_key(_a_text))
    port: int = field(default=2181, metadata=_key(_a_port))
    data: Path = field(default=DEFAULT_DIRECTORY / "zookeeper", metadata=_key(_a_path))
    session_timeout_s: float = field(default=10.0, metadata=_key(_seconds(1, 600)))
    connect_timeout_s: float = field(default=20.0, metadata=_key(_seconds(0.1, 3600)))
    identity: str = field(default="", repr=False, metadata=_key(_matching("^[^:]+:.+$")))
    authentication: str = field(default="digest", metadata=_key(_one_of("digest", "sasl")))
    acl: str | None = field(default=None, metadata=_key(_one_of("creator", "open")))
    tls: bool = field(default=False, metadata=_key(_a_bool))
    ca: Path | None = field(default=None, metadata=_key(_a_path))
    certificate: Path | None = field(default=None, metadata=_key(_a_path))
    key: Path | None = field(default=None, metadata=_key(_a_path))

    def __post_init__(self) -> None:
        if self.embedded and self.hosts:
            raise ValueError("embedded = true and hosts exclude each other: remove one of them")
        if not self.embedded and not self.hosts:
            raise ValueError('embedded = false needs hosts = "zk1:2181,zk2:2181"')
        if self.embedded and self.tls:
            raise ValueError("the embedded ZooKeeper speaks no TLS: tls = true needs hosts")
        if not self.tls and (self.ca or self.certificate or self.key):
            raise ValueError("ca, certificate and key need tls = true")
        if self.key and not self.certificate:
            raise ValueError("key is there without certificate: name both, or none")
        if self.acl == "creator" and not (self.identity or self.certificate):
            raise ValueError(
                'acl = "creator" needs identity = "user:password", or a certificate: ZooKeeper '
                "knows nobody to make the nodes for"
            )

    @property
    def is_restricted(self) -> bool:
        """Whether the nodes that we make are for us alone."""
        return bool(self.identity) if self.acl is None else self.acl == "creator"

    @property
    def tls_files(self) -> TlsFiles | None:
        """None: without TLS."""
        if not self.tls:
            return None
        return TlsFiles("[zookeeper]", self.ca, self.certificate, self.key)


@dataclass(frozen=True)
class ServerConfig:
    """One server: a host's tables. `secret` overrides `[exchange] secret` for this server;
    `drop_delay_s` after a DROP TABLE without SYNC its parts go (0: at once).
    """

    name: str  # of its section
    data: Path = field(metadata=_key(_a_path))
    listen: str = field(metadata=_key(_an_address))
    advertise: str | None = field(default=None, metadata=_key(_an_address))
    macros: dict[str, str] = field(default_factory=dict, metadata=_key(_macros))
    secret: tuple[str, ...] = field(default=(), repr=False, metadata=_key(_secrets))
    drop_delay_s: float = field(default=480.0, metadata=_key(_seconds(0, 2_592_000)))

    def __post_init__(self) -> None:
        if not _SERVER_NAME.fullmatch(self.name):
            raise ValueError("a server's name has letters, digits, _ and - only")
        if Address.parse(self.advertise or self.listen).host in WILDCARD_HOSTS:
            raise ValueError(
                f"peers cannot dial {self.advertise or self.listen}: "
                'add advertise = "<the host name they use>:<port>"'
            )

    @property
    def listen_address(self) -> Address:
        return Address.parse(self.listen)

    @property
    def advertised_address(self) -> Address:
        """What peers are told in ZooKeeper (spec §0.4.8)."""
        return Address.parse(self.advertise or self.listen)

    def macros_for(self, database: str = "", table: str = "") -> dict[str, str]:
        """The macros of one table: the server's own, plus {server}, {database} and {table}."""
        special = {"server": self.name, "database": database, "table": table}
        return {**self.macros, **{key: value for key, value in special.items() if value}}


@dataclass(frozen=True)
class SparkConfig:
    """Where merges and mutations are computed.

    `remote`: a Spark Connect server that somebody else runs (`sc://host:port`).
    `master`: a session inside the worker's own process, on this master (`local[2]`, `spark://…`).
    Neither: the Connect server that `rmt spark` runs on this machine, at `port`; it writes its
    log below `data`.
    """

    remote: str | None = field(default=None, metadata=_key(_matching("^sc://.+")))
    master: str | None = field(default=None, metadata=_key(_matching(".")))
    port: int = field(default=15002, metadata=_key(_a_port))
    data: Path = field(default=DEFAULT_DIRECTORY / "spark", metadata=_key(_a_path))

    def __post_init__(self) -> None:
        if self.remote and self.master:
            raise ValueError("remote and master exclude each other: remove one of them")

    @property
    def connect_url(self) -> str | None:
        """The Spark Connect address to use; None when `master` asks for an own session."""
        return None if self.master else self.remote or f"sc://127.0.0.1:{self.port}"

    @property
    def is_ours(self) -> bool:
        """Whether `rmt spark` is what serves `connect_url`."""
        return not self.remote and not self.master


@dataclass(frozen=True)
class DagsterConfig:
    """`workspace`: the workspace.yaml of the code locations that `rmt dagster` starts Dagster
    with. As with `dagster dev`, it is that of the current directory when none is named.
    """

    home: Path = field(default=DEFAULT_DIRECTORY / "dagster", metadata=_key(_a_path))
    port: int = field(default=3000, metadata=_key(_a_port))
    workspace: Path | None = field(default=None, metadata=_key(_a_path))


@dataclass(frozen=True)
class ExchangeConfig:
    """`secret`: what servers show each other; else one is made once and kept in ZooKeeper. Of
    several the first is shown, and each is accepted.

    What a process fetches and a server sends, over all tables together: bytes per second, 0 is any;
    and how many fetches, and answers, there are at a time.
    """

    secret: tuple[str, ...] = field(default=(), repr=False, metadata=_key(_secrets))
    fetches_bandwidth: int = field(default=0, metadata=_key(_whole(0)))
    sends_bandwidth: int = field(default=0, metadata=_key(_whole(0)))
    fetches_at_once: int = field(default=16, metadata=_key(_whole(1)))
    sends_at_once: int = field(default=64, metadata=_key(_whole(1)))


@dataclass(frozen=True)
class TlsConfig:
    """How servers and those who ask them know each other; without a certificate there is no TLS.
    `client_certificates`: nobody is answered who has none that `ca` has signed.
    """

    certificate: Path | None = field(default=None, metadata=_key(_a_path))
    key: Path | None = field(default=None, metadata=_key(_a_path))
    ca: Path | None = field(default=None, metadata=_key(_a_path))
    client_certificates: bool = field(default=False, metadata=_key(_a_bool))

    def __post_init__(self) -> None:
        if self.certificate is None and (self.key or self.ca or self.client_certificates):
            raise ValueError(
                "without certificate there is no TLS: name one, or remove the rest"
            )
        if self.client_certificates and self.ca is None:
            raise ValueError("client_certificates = true needs ca: who signs those we believe")

    @property
    def files(self) -> TlsFiles | None:
        """None: without TLS."""
        if self.certificate is None:
            return None
        return TlsFiles("[tls]", self.ca, self.certificate, self.key)


@dataclass(frozen=True)
class MonitoringConfig:
    """`token`: what Prometheus and probes show for /metrics and /health; each of several is
    accepted.
    """

    token: tuple[str, ...] = field(default=(), repr=False, metadata=_key(_secrets))


@dataclass(frozen=True)
class FilesConfig:
    """`umask`: what others may not do with files and directories that `rmt` makes; "077" keeps them
    for the user alone.
    """

    umask: int = field(default=0o077, metadata=_key(_a_umask))


@dataclass(frozen=True)
class ClusterConfig:
    """Servers that statements ON CLUSTER reach. `shards`: the names of the servers of each."""

    shards: tuple[tuple[str, ...], ...] = field(metadata=_key(_shards))

    @property
    def servers(self) -> list[str]:
        return [server for shard in self.shards for server in shard]


@dataclass(frozen=True)
class DistributedDdlConfig:
    """The queue of statements ON CLUSTER: where it is in ZooKeeper, and how long it remembers."""

    path: str = field(default="/clickhouse/task_queue/ddl", metadata=_key(_in_zookeeper))
    task_max_lifetime: int = field(default=7 * 24 * 3600, metadata=_key(_whole(1)))
    max_tasks_in_queue: int = field(default=1000, metadata=_key(_whole(1)))
    cleanup_delay_period: int = field(default=60, metadata=_key(_whole(0)))


@dataclass(frozen=True)
class Config:
    """`path` is the file this came from; None for the embedded default."""

    zookeeper: ZooKeeperConfig = field(default_factory=ZooKeeperConfig)
    servers: dict[str, ServerConfig] = field(default_factory=dict)
    spark: SparkConfig = field(default_factory=SparkConfig)
    dagster: DagsterConfig = field(default_factory=DagsterConfig)
    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    monitoring: MonitoringConfig = field(default_factory=MonitoringConfig)
    files: FilesConfig = field(default_factory=FilesConfig)
    clusters: dict[str, ClusterConfig] = field(default_factory=dict)
    distributed_ddl: DistributedDdlConfig = field(default_factory=DistributedDdlConfig)
    path: Path | None = None

    def __post_init__(self) -> None:
        directories: dict[Path, str] = {}
        addresses: dict[str, str] = {}
        for name, server in self.servers.items():
            first = directories.setdefault(server.data, name)
            if first != name:
                raise ValueError(
                    f"servers {first} and {name} have the same data: {server.data}"
                )
            first = addresses.setdefault(server.listen, name)
            if first != name:
                raise ValueError(f"servers {first} and {name} both listen on {server.listen}")
        for name, cluster in self.clusters.items():
            self._check_cluster(f"clusters.{name}.shards", cluster)

    def _check_cluster(self, place: str, cluster: ClusterConfig) -> None:
        for server in cluster.servers:
            if server not in self.servers:
                known = ", ".join(sorted(self.servers)) or "none"
                raise ValueError(f"{place}: there is no server {server!r}; servers: {known}")
            if cluster.servers.count(server) > 1:
                raise ValueError(f"{place}: server {server!r} is there twice")

    @property
    def zookeeper_hosts(self) -> str:
        """`host:port[,host:port]…`, as ZooKeeper clients take it."""
        return self.zookeeper.hosts or f"127.0.0.1:{self.zookeeper.port}"

    def server(self, name: str) -> ServerConfig:
        """Raises UserError listing the servers there are."""
        found = self.servers.get(name)
        if found is None:
            known = ", ".join(sorted(self.servers)) or "none"
            place = self.path or "the embedded default"
            raise UserError(f"there is no server {name!r} in {place}; servers: {known}")
        return found

    def cluster(self, name: str) -> ClusterConfig:
        """Raises UnknownCluster listing the clusters there are."""
        found = self.clusters.get(name)
        if found is None:
            known = ", ".join(sorted(self.clusters)) or "none"
            place = self.path or "the embedded default"
            raise UnknownCluster(
                f"there is no cluster {name!r} in {place}; clusters: {known}. A section "
                f'[clusters.{name}] with shards = [["r1", "r2"]] makes one'
            )
        return found

    def secrets_of(self, name: str) -> tuple[str, ...]:
        """The configured secrets of a server, the one that it shows first; none means that the one
        in ZooKeeper counts.
        """
        return self.server(name).secret or self.exchange.secret

    @property
    def scheme(self) -> str:
        """What servers speak, all of them."""
        return "http" if self.tls.files is None else "https"

    def require_guarded(self, name: str) -> None:
        """Raises BadConfiguration for a server that strangers could ask how it is."""
        server = self.server(name)
        guarded = self.monitoring.token or self.tls.client_certificates
        if not guarded and not server.listen_address.is_local:
            raise BadConfiguration(
                f"[servers.{name}] listen = {server.listen!r} is open to other hosts, and nothing "
                'keeps strangers from /health and /metrics: set [monitoring] token = "…", or '
                "[tls] client_certificates = true, or listen on 127.0.0.1"
            )


class RenewedConfig:
    """The rmt.toml of now, for what may change without a restart: read again when the file has
    changed. While a new one can't be used, is without `server`, or `objection` has a word against
    it, the last good one counts. Safe for threads.
    """

    def __init__(
        self, config: Config, server: str, objection: Callable[[Config], str] = lambda _: ""
    ) -> None:
        self._config = config
        self._server = server
        self._objection = objection
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
            found.server(self._server)
            reason = self._objection(found)
        except (RmtError, OSError) as error:
            reason = str(error)
        if reason:
            _log.warning("the new rmt.toml is not taken, the old one stays: %s", reason)
        else:
            self._config = found

    def _looked(self) -> tuple[int, ...]:
        """Another one when the file was written or replaced."""
        if self._config.path is None:
            return ()
        try:
            found = self._config.path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino


def load_config(path: Path | str | None = None) -> Config:
    """Read `path`, else the file that RMT_CONFIG names, else the embedded default.

    Raises BadConfiguration naming the file, the key and what it should be.
    """
    given = path or os.environ.get(ENVIRONMENT_VARIABLE)
    if not given:
        return _validated(_embedded_default(), base=Path.cwd(), path=None)
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


def expand(text: str, macros: Mapping[str, str]) -> str:
    """Replace every `{name}` in `text` by its macro; values are not expanded again.

    Raises UserError naming an unknown macro and the ones there are.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in macros:
            known = ", ".join(f"{{{key}}}" for key in sorted(macros)) or "none"
            raise UserError(
                f"there is no macro {{{name}}} in {text!r}; known here: {known}. "
                f'Add it to the server\'s macros, e.g. macros = {{{name or "name"} = "…"}}'
            )
        return macros[name]

    return _MACRO.sub(value, text)


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
_NAMED_SECTIONS = ("servers", "clusters")  # there is one for each name: [servers.r1]
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
    """Of one file. Mistakes are gathered: all of them are told at once."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.mistakes: list[str] = []

    def config(self, raw: dict[str, Any], path: Path | None) -> Config | None:
        """None when there are mistakes."""
        self._refuse_unknown(raw, [*_SECTIONS, *_NAMED_SECTIONS], "")
        zookeeper = raw.get("zookeeper", {})
        if isinstance(zookeeper, dict):
            raw = {**raw, "zookeeper": {"embedded": not zookeeper.get("hosts"), **zookeeper}}
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
        """None when there are mistakes in it; `given` are fields that are no keys."""
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
        """What the field is to be, with directories below the file's; None for a mistake."""
        if key.name not in raw:
            if key.default_factory is not MISSING:
                return key.default_factory()
            if key.default is MISSING:
                self.mistakes.append(f"{where}: this key is needed and missing")
            is_path = isinstance(key.default, Path)
            return _a_path(key.default, self._base) if is_path else key.default
        value = raw[key.name]
        try:
            return key.metadata["read"](value, self._base)
        except _Wanted as wanted:
            shown = repr(value) if key.repr else "not shown"
            self.mistakes.append(f"{where}: is {shown}, but should be {wanted}")
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
