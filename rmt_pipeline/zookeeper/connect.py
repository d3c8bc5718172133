"""Opens ZooKeeper sessions. `KazooKeeper.close` ends one."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionDropped,
    ConnectionLoss,
    NoAuthError,
    SessionExpiredError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from rmt_pipeline.protocol.errors import BadConfiguration, ZooKeeperUnreachable
from rmt_pipeline.system import SystemClock
from rmt_pipeline.tls import Renewed
from rmt_pipeline.zookeeper.access import ANYONE, Access
from rmt_pipeline.zookeeper.direct import DirectClient, OneSessionHandler
from rmt_pipeline.zookeeper.kazoo_keeper import DENIED, KazooKeeper, denied
from rmt_pipeline.zookeeper.sasl import Sasl

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_MAX_S = 1.0
STOP_EVERY_S = 0.1  # between looks whether a caller that waits for a connection is to end
_GONE = (KazooTimeoutError, ConnectionLoss, ConnectionClosedError, SessionExpiredError)

# kazoo logs every attempt to connect. Users get what concerns them from our errors; to see
# kazoo's own messages, lower the level of this logger.
_KAZOO_LOGGER = logging.getLogger("rmt_pipeline.zookeeper.kazoo")
_KAZOO_LOGGER.setLevel(logging.CRITICAL)


def connect(
    hosts: str,
    *,
    session_timeout_s: float = 10.0,
    connect_timeout_s: float = 10.0,
    chroot: str = "",
    access: Access = ANYONE,
    should_stop: Callable[[], bool] = lambda: False,
) -> KazooKeeper:
    """Open a session and return its keeper.

    `hosts` is "host:port,host:port…", perhaps with a "/chroot" at its end. All paths are below that
    and `chroot`; both are created if they are missing. The server may grant another session timeout
    than the one asked for (2 to 20 ticks by default).

    Raises ZooKeeperUnreachable after `connect_timeout_s`, or before that when `should_stop`;
    AccessDenied if ZooKeeper does not accept our identity or does not let us create the chroot,
    BadConfiguration for unusable hosts and certificates.
    """
    servers, root = _split(hosts)
    handler = OneSessionHandler(None if access.tls is None else Renewed.client(access.tls))
    try:
        client = _client(servers, handler, session_timeout_s, access)
    except ValueError as problem:
        raise _no_hosts(hosts, f"is not a list of ZooKeeper servers ({problem})") from problem
    answer = _Answer(client, should_stop)
    try:
        answer.wait(connect_timeout_s, for_belief=bool(access.identity))
        if root + chroot:
            client.ensure_path(root + chroot)
            client.chroot = root + chroot
    except DENIED as problem:
        _give_up(client, handler)
        raise denied(root + chroot, access.who, problem) from None
    except _GONE as problem:
        _give_up(client, handler)
        if answer.refused:
            raise denied(root + chroot, access.who, AuthFailedError()) from None
        raise unreachable(hosts, connect_timeout_s, handler.refused_because) from problem
    except ZookeeperError as problem:
        _give_up(client, handler)
        raise ZooKeeperUnreachable(
            f"ZooKeeper at {hosts} refused to create {root}{chroot}: {type(problem).__name__}"
        ) from problem
    except BaseException:  # Ctrl-C, after which a prompt goes on
        _give_up(client, handler)
        raise
    return KazooKeeper(
        client,
        handler,
        SystemClock(),
        session_timeout_s=session_timeout_s,
        who=access.who,
    )


def _client(
    servers: str, handler: OneSessionHandler, session_timeout_s: float, access: Access
) -> DirectClient:
    """A client that is not started yet. Raises ValueError for what is no list of servers."""
    retry = KazooRetry(
        max_tries=-1,
        delay=RECONNECT_DELAY_S,
        backoff=2,
        max_delay=RECONNECT_DELAY_MAX_S,
        sleep_func=handler.sleep_func,
    )
    client = DirectClient(
        servers,
        timeout=session_timeout_s,
        handler=handler,
        connection_retry=retry,
        logger=_KAZOO_LOGGER,
        auth_data=[] if access.sasl else _digest(access),
        default_acl=CREATOR_ALL_ACL if access.restricted else None,  # of each new node
        use_ssl=access.tls is not None,
    )
    if access.sasl and access.identity:
        _speak_sasl(client, access)
    return client


def unreachable(hosts: str, waited_s: float, because: str = "") -> ZooKeeperUnreachable:
    """The error to raise when none of the hosts answered within `waited_s`, with the remedy.
    `because` is `OneSessionHandler.refused_because`: the reason, if TLS failed.
    """
    remedy = (
        "look whether this is the ensemble's secureClientPort, and whether [zookeeper] ca signed "
        "its certificates, and certificate is one that it asks for"
        if because
        else "start one with `rmt zookeeper`, or correct [zookeeper] hosts in rmt.toml"
    )
    return ZooKeeperUnreachable(
        f"no ZooKeeper answered at {hosts} within {waited_s:g} s{because}; {remedy}"
    )


class _Answer:
    """The first answer that a starting client gets from a server.

    kazoo reports that it is connected before the server has accepted our identity, and closes the
    client if the server does not. A moment later the client is only closed, without the reason. So
    this listener notes a refusal when it happens.
    """

    def __init__(self, client: KazooClient, should_stop: Callable[[], bool]) -> None:
        self._client = client
        self._should_stop = should_stop
        self._came = threading.Event()
        self.refused = False
        client.add_listener(self)

    def __call__(self, _state: str) -> None:
        """Note the client's state; kazoo calls this from its thread at each change."""
        if self._client.client_state == KeeperState.AUTH_FAILED:
            self.refused = True
        self._came.set()

    def wait(self, timeout_s: float, *, for_belief: bool) -> None:
        """Start the client and wait until it is connected; with `for_belief` also until the server
        has accepted our identity.

        Raises KazooTimeoutError if it is not connected in time, and kazoo's exceptions. kazoo's own
        `start` is not used because it closes the client by itself when it gives up.
        """
        client = self._client
        client.start_async()
        deadline_s = time.monotonic() + timeout_s
        while not self._came.wait(STOP_EVERY_S):
            if self._should_stop() or time.monotonic() >= deadline_s:
                break
        if not client.connected:
            raise KazooTimeoutError
        if for_belief:
            with suppress(NoAuthError):  # an answer too: we may not read the root
                client.exists_async("/").get(timeout=timeout_s)


def _give_up(client: KazooClient, handler: OneSessionHandler) -> None:
    """Close the client at once, also if a server has accepted the connection and does not answer:
    kazoo would wait for it for as long as a session lasts.
    """
    if not client.connected:
        handler.may_connect = lambda: False
        handler.cut()
    client.stop()
    client.close()


def _digest(access: Access) -> list[tuple[str, str]]:
    return [("digest", access.identity)] if access.identity else []


def _speak_sasl(client: KazooClient, access: Access) -> None:
    """Make the client authenticate with `Sasl` at the start of each connection. kazoo would need
    a package for that, which does no more than `Sasl` and is not maintained.
    """
    connection = client._connection  # noqa: SLF001  kazoo has no public name for it

    def authenticate(_host: str, timeout_s: float) -> None:
        exchange = Sasl(*access.user_and_password)
        try:
            response = exchange.response(_ask_sasl(connection, b"", 1, timeout_s))
            if not exchange.is_confirmed_by(_ask_sasl(connection, response, 2, timeout_s)):
                raise AuthFailedError("the server does not know the password")
        except (ConnectionDropped, ValueError) as error:  # a server drops wrong passwords
            raise AuthFailedError(str(error)) from error

    connection.sasl_options = {}
    connection._authenticate_with_sasl = authenticate  # noqa: SLF001


def _ask_sasl(connection: Any, token: bytes, xid: int, timeout_s: float) -> bytes:
    connection._submit(serialization.SASL(token), timeout_s, xid)  # noqa: SLF001
    header, answer, offset = connection._read_header(timeout_s)  # noqa: SLF001
    if header.err:
        raise AuthFailedError(f"error {header.err}")
    challenge, _ = serialization.SASL.deserialize(answer, offset)
    return challenge or b""


def _split(hosts: str) -> tuple[str, str]:
    """The servers, and the chroot behind them; "" for none. Raises BadConfiguration."""
    servers, slash, path = hosts.partition("/")
    root = (slash + path).rstrip("/")
    if not servers.strip(", "):
        raise _no_hosts(hosts, "names no ZooKeeper servers")
    if "//" in root or "," in root or {".", ".."} & set(root.split("/")):
        raise _no_hosts(hosts, f"has the chroot {root!r}, which is not a path of ZooKeeper")
    return servers, root


def _no_hosts(hosts: str, why: str) -> BadConfiguration:
    return BadConfiguration(
        f"{hosts!r} {why}; write [zookeeper] hosts in rmt.toml as "
        '"host1:2181,host2:2181", with a chroot as "host1:2181,host2:2181/path"'
    )
