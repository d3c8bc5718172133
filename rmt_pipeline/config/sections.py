"""The sections of a configuration, and the rules between their keys."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmt_pipeline.config.keys import (
    Address,
    a_bool,
    a_count,
    a_match,
    a_number,
    a_path,
    a_port,
    a_text,
    a_umask,
    an_address,
    in_zookeeper,
    macro_texts,
    one_of,
    read_by,
    secrets,
    shard_names,
)
from rmt_pipeline.protocol.errors import BadConfiguration, UnknownCluster, UserError

DEFAULT_DIRECTORY = Path("rmt-data")
WILDCARD_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104  compared with, never bound

_MACRO = re.compile(r"\{([^{}]*)\}")
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. `ca`: who signs the other side's certificate; None: those whom this system trusts.
    `certificate` and `key` are our own; the key may be in the certificate's file. `section` is the
    section of rmt.toml that names them.
    """

    section: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class ZooKeeperConfig:
    """`embedded`: `rmt zookeeper` runs one on this machine. Otherwise `hosts` names an ensemble,
    perhaps with a chroot after the last host, below which all of our nodes are.

    `embedded` is true unless `hosts` is given. `identity` is "user:password"; with it only that
    user may use our nodes, unless `acl` is "open".
    """

    embedded: bool = field(default=True, metadata=read_by(a_bool))
    hosts: str = field(default="", metadata=read_by(a_text))
    port: int = field(default=2181, metadata=read_by(a_port))
    data: Path = field(default=DEFAULT_DIRECTORY / "zookeeper", metadata=read_by(a_path))
    session_timeout_s: float = field(default=10.0, metadata=read_by(a_number(1, 600)))
    connect_timeout_s: float = field(default=20.0, metadata=read_by(a_number(0.1, 3600)))
    identity: str = field(default="", repr=False, metadata=read_by(a_match("[^:]+:.+")))
    authentication: str = field(default="digest", metadata=read_by(one_of("digest", "sasl")))
    acl: str | None = field(default=None, metadata=read_by(one_of("creator", "open")))
    tls: bool = field(default=False, metadata=read_by(a_bool))
    ca: Path | None = field(default=None, metadata=read_by(a_path))
    certificate: Path | None = field(default=None, metadata=read_by(a_path))
    key: Path | None = field(default=None, metadata=read_by(a_path))

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
                'acl = "creator" needs identity = "user:password", or a certificate: without '
                "one ZooKeeper does not know who creates the nodes"
            )

    @property
    def is_restricted(self) -> bool:
        """Whether only we may use the nodes that we make."""
        return bool(self.identity) if self.acl is None else self.acl == "creator"

    @property
    def tls_files(self) -> TlsFiles | None:
        """The files for TLS; None without TLS."""
        if not self.tls:
            return None
        return TlsFiles("[zookeeper]", self.ca, self.certificate, self.key)


@dataclass(frozen=True)
class ServerConfig:
    """One server and its tables. `secret` overrides `[exchange] secret` for this server.
    `drop_delay_s` is the time from a DROP TABLE without SYNC until its parts are removed (0: at
    once).
    """

    name: str  # the name of its section
    data: Path = field(metadata=read_by(a_path))
    listen: str = field(metadata=read_by(an_address))
    advertise: str | None = field(default=None, metadata=read_by(an_address))
    macros: dict[str, str] = field(default_factory=dict, metadata=read_by(macro_texts))
    secret: tuple[str, ...] = field(default=(), repr=False, metadata=read_by(secrets))
    drop_delay_s: float = field(default=480.0, metadata=read_by(a_number(0, 2_592_000)))

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
        """The address that peers find in ZooKeeper (spec §0.4.8)."""
        return Address.parse(self.advertise or self.listen)

    def macros_for(self, database: str = "", table: str = "") -> dict[str, str]:
        """The macros for one table: the server's own, plus {server}, {database} and {table}."""
        special = {"server": self.name, "database": database, "table": table}
        return {**self.macros, **{key: value for key, value in special.items() if value}}


@dataclass(frozen=True)
class SparkConfig:
    """Where merges and mutations are computed.

    `remote`: a Spark Connect server that is run elsewhere (`sc://host:port`). `master`: a session
    inside the worker's own process, on this master (`local[2]`, `spark://…`). Neither: the Connect
    server that `rmt spark` runs on this machine, at `port`; it writes its log below `data`.
    """

    remote: str | None = field(default=None, metadata=read_by(a_match("sc://.+")))
    master: str | None = field(default=None, metadata=read_by(a_match(".+")))
    port: int = field(default=15002, metadata=read_by(a_port))
    data: Path = field(default=DEFAULT_DIRECTORY / "spark", metadata=read_by(a_path))

    def __post_init__(self) -> None:
        if self.remote and self.master:
            raise ValueError("remote and master exclude each other: remove one of them")

    @property
    def connect_url(self) -> str | None:
        """The address of Spark Connect to use; None when `master` asks for a session of our own."""
        return None if self.master else self.remote or f"sc://127.0.0.1:{self.port}"

    @property
    def is_ours(self) -> bool:
        """Whether `rmt spark` serves `connect_url`."""
        return not self.remote and not self.master


@dataclass(frozen=True)
class DagsterConfig:
    """`workspace`: the workspace.yaml with the code locations for which `rmt dagster` starts
    Dagster. When none is named, the current directory has a workspace.yaml or is a Dagster
    project, as with `dagster dev`.
    """

    home: Path = field(default=DEFAULT_DIRECTORY / "dagster", metadata=read_by(a_path))
    port: int = field(default=3000, metadata=read_by(a_port))
    workspace: Path | None = field(default=None, metadata=read_by(a_path))


@dataclass(frozen=True)
class ExchangeConfig:
    """`secret`: what servers send each other to be admitted. Without one, a secret is made once and
    kept in ZooKeeper. Of several secrets the first is sent, and each is accepted.

    The other keys limit what a process fetches and a server sends, over all tables together: bytes
    per second (0: no limit), and how many fetches, and answers, run at once.
    """

    secret: tuple[str, ...] = field(default=(), repr=False, metadata=read_by(secrets))
    fetches_bandwidth: int = field(default=0, metadata=read_by(a_count(0)))
    sends_bandwidth: int = field(default=0, metadata=read_by(a_count(0)))
    fetches_at_once: int = field(default=16, metadata=read_by(a_count(1)))
    sends_at_once: int = field(default=64, metadata=read_by(a_count(1)))


@dataclass(frozen=True)
class TlsConfig:
    """How servers and their clients identify each other. Without a certificate there is no TLS.
    With `client_certificates`, only clients with a certificate that `ca` has signed are answered.
    """

    certificate: Path | None = field(default=None, metadata=read_by(a_path))
    key: Path | None = field(default=None, metadata=read_by(a_path))
    ca: Path | None = field(default=None, metadata=read_by(a_path))
    client_certificates: bool = field(default=False, metadata=read_by(a_bool))

    def __post_init__(self) -> None:
        if self.certificate is None and (self.key or self.ca or self.client_certificates):
            raise ValueError(
                "without certificate there is no TLS: name one, or remove the rest"
            )
        if self.client_certificates and self.ca is None:
            raise ValueError(
                "client_certificates = true needs ca, which signs the certificates of clients"
            )

    @property
    def files(self) -> TlsFiles | None:
        """The files for TLS; None without TLS."""
        if self.certificate is None:
            return None
        return TlsFiles("[tls]", self.ca, self.certificate, self.key)


@dataclass(frozen=True)
class MonitoringConfig:
    """`token`: what Prometheus and probes send for /metrics and /health. Of several tokens, each is
    accepted.
    """

    token: tuple[str, ...] = field(default=(), repr=False, metadata=read_by(secrets))


@dataclass(frozen=True)
class FilesConfig:
    """`umask`: the permissions that other users do not get on files and directories that `rmt`
    makes; with "077" only the user has any.
    """

    umask: int = field(default=0o077, metadata=read_by(a_umask))


@dataclass(frozen=True)
class ClusterConfig:
    """Servers that statements ON CLUSTER reach. `shards` has the names of the servers of each
    shard.
    """

    shards: tuple[tuple[str, ...], ...] = field(metadata=read_by(shard_names))

    @property
    def servers(self) -> list[str]:
        return [server for shard in self.shards for server in shard]


@dataclass(frozen=True)
class DistributedDdlConfig:
    """The queue of statements ON CLUSTER: its path in ZooKeeper, and how long statements stay in
    it.
    """

    path: str = field(default="/clickhouse/task_queue/ddl", metadata=read_by(in_zookeeper))
    task_max_lifetime: int = field(default=7 * 24 * 3600, metadata=read_by(a_count(1)))
    max_tasks_in_queue: int = field(default=1000, metadata=read_by(a_count(1)))
    cleanup_delay_period: int = field(default=60, metadata=read_by(a_count(0)))


@dataclass(frozen=True)
class Config:
    """A whole configuration. `path` is the file it came from; None for the embedded default."""

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
        """The hosts as ZooKeeper clients take them: `host:port[,host:port]…`."""
        return self.zookeeper.hosts or f"127.0.0.1:{self.zookeeper.port}"

    def server(self, name: str) -> ServerConfig:
        """The section [servers.NAME]. Raises UserError that lists the servers there are."""
        found = self.servers.get(name)
        if found is None:
            known = ", ".join(sorted(self.servers)) or "none"
            place = self.path or "the embedded default"
            raise UserError(f"there is no server {name!r} in {place}; servers: {known}")
        return found

    def cluster(self, name: str) -> ClusterConfig:
        """The section [clusters.NAME]. Raises UnknownCluster that lists the clusters there are."""
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
        """The configured secrets of a server, first the one that it sends. If there are none, it
        uses the secret in ZooKeeper.
        """
        return self.server(name).secret or self.exchange.secret

    @property
    def scheme(self) -> str:
        """The scheme of all servers' URLs: http or https."""
        return "http" if self.tls.files is None else "https"

    def require_guarded(self, name: str) -> None:
        """Raises BadConfiguration if clients on other hosts could ask the server for its status
        unchecked.
        """
        server = self.server(name)
        guarded = self.monitoring.token or self.tls.client_certificates
        if not guarded and not server.listen_address.is_local:
            raise BadConfiguration(
                f"[servers.{name}] listen = {server.listen!r} is open to other hosts, and nothing "
                'keeps strangers from /health and /metrics: set [monitoring] token = "…", or '
                "[tls] client_certificates = true, or listen on 127.0.0.1"
            )


def expand(text: str, macros: Mapping[str, str]) -> str:
    """Replace every `{name}` in `text` by its macro; values are not expanded again.

    Raises UserError that names an unknown macro and the ones there are.
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
