"""The configuration file: which servers there are, where ZooKeeper, Spark and Dagster are.

One TOML file describes a deployment, and every host may have the same one. Keys are checked
strictly: an unknown key is a mistake, and the error names the file, the key and the nearest
key that exists. Without a file, the embedded default is two servers on this machine, below
`./rmt-data`.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from rmt_pipeline.protocol.errors import BadConfiguration, UserError

ENVIRONMENT_VARIABLE = "RMT_CONFIG"
DEFAULT_DIRECTORY = Path("rmt-data")
WILDCARD_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104  compared with, never bound

_WANTED = {  # pydantic's error types in the words of a TOML file
    "bool_type": "true or false",
    "dict_type": "a section",
    "float_type": "a number",
    "int_type": "a whole number",
    "model_type": "a section",
    "path_type": "a path in quotes",
    "string_too_short": "a text that is not empty",
    "string_type": "a text in quotes",
}
_MACRO = re.compile(r"\{([^{}]*)\}")
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens or is found. `str` gives `host:port`, IPv6 hosts in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

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


def _below_base(path: Path, info: ValidationInfo) -> Path:
    """Relative paths belong to the directory of the file that has them."""
    base = info.context["base"] if info.context else Path.cwd()
    return Path(os.path.normpath(base / path))


def _is_address(text: str) -> str:
    Address.parse(text)
    return text


DirectoryPath = Annotated[
    Path, Field(strict=False, validate_default=True), AfterValidator(_below_base)
]
Port = Annotated[int, Field(ge=1, le=65535)]
Secret = Annotated[str | None, Field(repr=False, pattern=r"^[!-~]+$")]  # fits an HTTP header
AddressText = Annotated[str, AfterValidator(_is_address)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ZooKeeperConfig(_Section):
    """`embedded`: `rmt zookeeper` runs one on this machine; else `hosts` names an ensemble.

    `embedded` is true unless `hosts` is given.
    """

    embedded: bool = True
    hosts: str = ""
    port: Port = 2181
    data: DirectoryPath = DEFAULT_DIRECTORY / "zookeeper"
    session_timeout_s: Annotated[float, Field(ge=1, le=600, strict=False)] = 10.0
    connect_timeout_s: Annotated[float, Field(ge=0.1, le=3600, strict=False)] = 20.0

    @model_validator(mode="before")
    @classmethod
    def _hosts_mean_not_embedded(cls, raw: Any) -> Any:
        return {"embedded": not raw.get("hosts"), **raw} if isinstance(raw, dict) else raw

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.embedded and self.hosts:
            raise ValueError("embedded = true and hosts exclude each other: remove one of them")
        if not self.embedded and not self.hosts:
            raise ValueError('embedded = false needs hosts = "zk1:2181,zk2:2181"')
        return self


class ServerConfig(_Section):
    """One server: a host's tables. `secret` overrides `[exchange] secret` for this server."""

    data: DirectoryPath
    listen: AddressText
    advertise: AddressText | None = None
    macros: dict[str, str] = Field(default_factory=dict)
    secret: Secret = None
    _name: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _peers_can_dial(self) -> Self:
        if Address.parse(self.advertise or self.listen).host in WILDCARD_HOSTS:
            raise ValueError(
                f"peers cannot dial {self.advertise or self.listen}: "
                'add advertise = "<the host name they use>:<port>"'
            )
        return self

    @property
    def name(self) -> str:
        return self._name

    @property
    def listen_address(self) -> Address:
        return Address.parse(self.listen)

    @property
    def advertised_address(self) -> Address:
        """What peers are told in ZooKeeper (spec §0.4.8)."""
        return Address.parse(self.advertise or self.listen)

    def macros_for(self, database: str = "", table: str = "") -> dict[str, str]:
        """The macros of one table: the server's own, plus {server}, {database} and {table}."""
        special = {"server": self._name, "database": database, "table": table}
        return {**self.macros, **{key: value for key, value in special.items() if value}}


class SparkConfig(_Section):
    """Where merges and mutations are computed.

    `remote`: a Spark Connect server that somebody else runs (`sc://host:port`).
    `master`: a session inside the worker's own process, on this master (`local[2]`, `spark://…`).
    Neither: the Connect server that `rmt spark` runs on this machine, at `port`; it writes its
    log below `data`.
    """

    remote: str | None = Field(default=None, pattern=r"^sc://.+")
    master: str | None = Field(default=None, min_length=1)
    port: Port = 15002
    data: DirectoryPath = DEFAULT_DIRECTORY / "spark"

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.remote and self.master:
            raise ValueError("remote and master exclude each other: remove one of them")
        return self

    @property
    def connect_url(self) -> str | None:
        """The Spark Connect address to use; None when `master` asks for an own session."""
        return None if self.master else self.remote or f"sc://127.0.0.1:{self.port}"

    @property
    def is_ours(self) -> bool:
        """Whether `rmt spark` is what serves `connect_url`."""
        return not self.remote and not self.master


class DagsterConfig(_Section):
    """`workspace`: the workspace.yaml of the code locations that `rmt dagster` starts Dagster
    with. As with `dagster dev`, it is that of the current directory when none is named.
    """

    home: DirectoryPath = DEFAULT_DIRECTORY / "dagster"
    port: Port = 3000
    workspace: Annotated[Path, Field(strict=False), AfterValidator(_below_base)] | None = None


class ExchangeConfig(_Section):
    """`secret`: what servers show each other; else one is made once and kept in ZooKeeper."""

    secret: Secret = None


class Config(_Section):
    zookeeper: ZooKeeperConfig = Field(default_factory=ZooKeeperConfig, validate_default=True)
    servers: dict[str, ServerConfig] = Field(default_factory=dict)
    spark: SparkConfig = Field(default_factory=SparkConfig)
    dagster: DagsterConfig = Field(default_factory=DagsterConfig)
    exchange: ExchangeConfig = Field(default_factory=ExchangeConfig)
    _path: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _servers_are_apart(self) -> Self:
        directories: dict[Path, str] = {}
        addresses: dict[str, str] = {}
        for name, server in self.servers.items():
            if not _SERVER_NAME.fullmatch(name):
                raise ValueError(
                    f"servers.{name}: a server's name has letters, digits, _ and - only"
                )
            first = directories.setdefault(server.data, name)
            if first != name:
                raise ValueError(
                    f"servers {first} and {name} have the same data: {server.data}"
                )
            first = addresses.setdefault(server.listen, name)
            if first != name:
                raise ValueError(f"servers {first} and {name} both listen on {server.listen}")
        return self

    @property
    def path(self) -> Path | None:
        """The file this came from; None for the embedded default."""
        return self._path

    @property
    def zookeeper_hosts(self) -> str:
        """`host:port[,host:port]…`, as ZooKeeper clients take it."""
        return self.zookeeper.hosts or f"127.0.0.1:{self.zookeeper.port}"

    def server(self, name: str) -> ServerConfig:
        """Raises UserError listing the servers there are."""
        found = self.servers.get(name)
        if found is None:
            known = ", ".join(sorted(self.servers)) or "none"
            place = self._path or "the embedded default"
            raise UserError(f"there is no server {name!r} in {place}; servers: {known}")
        return found

    def secret_of(self, name: str) -> str | None:
        """The configured secret of a server; None means that the one in ZooKeeper counts."""
        return self.server(name).secret or self.exchange.secret


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
                "macros": {"shard": "01", "replica": name},
            }
            for name, port in (("r1", 9009), ("r2", 9010))
        }
    }


def _validated(raw: dict[str, Any], *, base: Path, path: Path | None) -> Config:
    # Sections that are not in the file still hold directories that are relative to it.
    complete = {"zookeeper": {}, "spark": {}, "dagster": {}, **raw}
    try:
        config = Config.model_validate(complete, context={"base": base})
    except ValidationError as error:
        lines = "\n  ".join(_explain(item) for item in error.errors())
        place = str(path) if path else "the embedded default"
        raise BadConfiguration(f"{place}: {lines}") from None
    config._path = path  # noqa: SLF001  set once, here, by the only maker
    for name, server in config.servers.items():
        server._name = name  # noqa: SLF001
    return config


def _explain(item: Any) -> str:
    """One validation error in our words: the key's path, what is wrong, the remedy."""
    location = [str(step) for step in item["loc"]]
    where = ".".join(location)
    prefix = f"{where}: " if where else ""
    if item["type"] == "extra_forbidden":
        keys = _keys_of(location[:-1])
        near = get_close_matches(location[-1], keys, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"keys here: {', '.join(keys)}"
        return f"{prefix}unknown key; {hint}"
    if item["type"] == "missing":
        return f"{prefix}this key is needed and missing"
    if item["type"] == "value_error":
        return f"{prefix}{item['ctx']['error']}"
    value = "not shown" if location[-1:] == ["secret"] else repr(item["input"])
    if item["type"] == "string_pattern_mismatch":
        return f"{prefix}is {value}, but should match {item['ctx']['pattern']}"
    wanted = _WANTED.get(item["type"]) or item["msg"].removeprefix("Input should be ")
    return f"{prefix}is {value}, but should be {wanted}"


def _keys_of(section: list[str]) -> list[str]:
    models: dict[str, type[BaseModel]] = {
        "": Config,
        "zookeeper": ZooKeeperConfig,
        "servers": ServerConfig,
        "spark": SparkConfig,
        "dagster": DagsterConfig,
        "exchange": ExchangeConfig,
    }
    return sorted(models[section[0] if section else ""].model_fields)
