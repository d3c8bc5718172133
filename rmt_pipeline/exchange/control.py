"""What a process of the same cluster may ask of a server besides parts: its health, and to read its
catalog again.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as NoAnswerInTime

from rmt_pipeline.config import Config, ServerConfig, TlsFiles
from rmt_pipeline.exchange.connections import Connections, Peer, Timeouts, whole_body
from rmt_pipeline.protocol.errors import Unavailable
from rmt_pipeline.protocol.refusal import ReadOnlyReason
from rmt_pipeline.protocol.table import TableDefinition

PROBE_TIMEOUT_S = 3.0  # a person waits for the answer
ANSWER_BYTES_MAX = 64 << 20  # it has a line for each table

Health = dict[str, Any] | Unavailable
"""What a server says about itself, or why it says nothing."""


def peer_of(config: Config, server: ServerConfig) -> Peer:
    """The address at which other processes reach a server."""
    address = server.advertised_address
    return Peer(config.scheme, address.host, address.port)


def reload_tables(peer: Peer, secret: str, tls: TlsFiles | None = None) -> dict[str, str]:
    """Have a server read its catalog again after CREATE or DROP; returns when it has.

    Returns for each table, by `database.name`, why it is read-only, or "" if it is active. Raises
    Unavailable when the server does not answer; it will read its catalog when it starts.
    """
    status, body = _asked("POST", peer, "/reload", secret, _Way(tls))
    if status != 200:
        raise Unavailable(f"{peer} answered {refusal(status, body)}")
    try:
        return {str(name): str(reason) for name, reason in json.loads(body)["tables"].items()}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Unavailable(f"{peer} cannot be asked to look at its tables: {error!r}") from error


def health(config: Config, server: ServerConfig, timeout_s: float) -> dict[str, Any]:
    """The answer of a server's `/health`. Raises Unavailable when nothing answers at its address,
    when something else than our server does, or when it refuses our secret.
    """
    shown = (*config.monitoring.token, *config.secrets_of(server.name), "")[0]
    peer, way = peer_of(config, server), _Way(config.tls.files, Timeouts(timeout_s, timeout_s))
    status, body = _asked("GET", peer, "/health", shown, way)
    if status not in (200, 503):
        raise Unavailable(f"{peer} answered {refusal(status, body)}")
    try:
        return dict(json.loads(body))
    except (ValueError, TypeError, RecursionError) as error:
        raise Unavailable(f"{peer} did not answer like an rmt server: {error}") from error


def how_it_is(config: Config, server: ServerConfig) -> Health:
    """What a server says about itself, or why it says nothing."""
    try:
        return health(config, server, PROBE_TIMEOUT_S)
    except Unavailable as error:
        return error


def nothing_answers(told: Health, server: ServerConfig) -> str:
    """That the server does not run, with the error and the remedy; "" if something answered."""
    if not isinstance(told, Unavailable) or not isinstance(told.__cause__, NewConnectionError):
        return ""
    why = str(told).rpartition(": ")[2]
    return (
        f"nothing answers at {server.advertised_address} ({why}); start it with "
        f"`rmt serve --server {server.name}`"
    )


def why_read_only(
    told: Health, server: ServerConfig, definition: TableDefinition
) -> ReadOnlyReason | None:
    """Why a server's table takes no writes, by what the server says. None: it does take them."""
    if nothing := nothing_answers(told, server):
        return ReadOnlyReason(f"Server {server.name} does not run: {nothing}")
    if isinstance(told, Unavailable):
        return ReadOnlyReason(f"Server {server.name} does not say why: {told}")
    if not told.get("session"):
        return ReadOnlyReason(f"Server {server.name} runs, but {without_session(told)}")
    for table in told.get("tables", []):
        if (table["database"], table["table"]) == (definition.database, definition.name):
            if not table["readonly"]:
                return None
            words = f"Server {server.name} says why: {table['reason']}"
            return ReadOnlyReason(words, table.get("needs_somebody", False))
    return ReadOnlyReason(f"Server {server.name} runs, and has not taken up this table yet")


def without_session(told: Mapping[str, Any]) -> str:
    """Why a server that answers has no ZooKeeper session, in its own words."""
    return (
        "; ".join(told.get("waiting", [])) or "it has no ZooKeeper session; it is starting over"
    )


def refusal(status: int, body: bytes) -> str:
    """An HTTP status with its meaning. A 401 comes without a reason, so the likely one is given
    here.
    """
    if status == 401:
        return (
            "401: it does not accept our secret. All servers of a cluster share one exchange "
            "secret, or for a while two: look at [exchange] secret and [monitoring] token of both. "
            "Without one in rmt.toml it reads it in ZooKeeper, once that answers"
        )
    return f"{status}: {body.decode(errors='replace').strip()[:500] or 'no reason given'}"


@dataclass(frozen=True, slots=True)
class _Way:
    """How to connect to a server: TLS and timeouts."""

    tls: TlsFiles | None
    timeouts: Timeouts = field(default_factory=Timeouts)


def _asked(method: str, peer: Peer, target: str, secret: str, way: _Way) -> tuple[int, bytes]:
    with closing(Connections(way.tls)) as connections:
        try:
            answer = connections.ask(method, peer, target, secret, timeouts=way.timeouts)
        except HTTPError as error:
            words = repr(error)
            if isinstance(
                error, NewConnectionError | NoAnswerInTime
            ):  # urllib3's message begins with its own objects
                words = str(error).partition("): ")[2]
            if isinstance(error, SSLError) and "WRONG_VERSION_NUMBER" in words:
                words = "it speaks http, and we https: all servers have [tls], or none"
            elif isinstance(error, ProtocolError) and way.tls is None:
                words += "; if it speaks https, the [tls] of its rmt.toml is needed"
            raise Unavailable(f"{peer} cannot be asked for {target}: {words}") from error
        return answer.status, whole_body(answer, way.timeouts, ANSWER_BYTES_MAX)
