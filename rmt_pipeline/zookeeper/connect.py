"""Opens a ZooKeeper session. It is closed by `KazooKeeper.close`."""

import logging
import select
import socket
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionDropped,
    ConnectionLoss,
    SessionExpiredError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry

from rmt_pipeline.protocol.errors import BadConfiguration, ZooKeeperUnreachable
from rmt_pipeline.system import Clock, SystemClock
from rmt_pipeline.zookeeper.kazoo_keeper import KazooKeeper

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_MAX_S = 1.0
TCP_TIMEOUT_MAX_S = 3.0  # for one TCP connection: `close` may have to wait this long
_ENDED = select.POLLHUP | select.POLLERR | select.POLLNVAL

# kazoo reports every attempt to connect. What concerns users we say ourselves, in errors; to
# see kazoo's own words, lower the level of this logger.
_KAZOO_LOGGER = logging.getLogger("rmt_pipeline.zookeeper.kazoo")
_KAZOO_LOGGER.setLevel(logging.CRITICAL)


def connect(
    hosts: str,
    *,
    session_timeout_s: float = 10.0,
    connect_timeout_s: float = 10.0,
    chroot: str = "",
    clock: Clock | None = None,
) -> KazooKeeper:
    """A keeper with a session of its own.

    `hosts` is "host:port,host:port…"; all paths are below `chroot`, which is created. The
    server may grant another session timeout than asked for (2 to 20 ticks by default).
    Raises ZooKeeperUnreachable after `connect_timeout_s`, BadConfiguration for unusable hosts.
    """
    handler = OneSessionHandler()
    retry = KazooRetry(
        max_tries=-1,
        delay=RECONNECT_DELAY_S,
        backoff=2,
        max_delay=RECONNECT_DELAY_MAX_S,
        sleep_func=handler.sleep_func,
    )
    if not hosts.strip(", ") or "/" in hosts:
        raise BadConfiguration(
            f"{hosts!r} names no ZooKeeper servers; write [zookeeper] hosts in rmt.toml as "
            '"host1:2181,host2:2181"'
        )
    try:
        client = KazooClient(
            hosts,
            timeout=session_timeout_s,
            handler=handler,
            connection_retry=retry,
            logger=_KAZOO_LOGGER,
        )
    except ValueError as problem:
        raise BadConfiguration(
            f"{hosts!r} is not a list of ZooKeeper servers ({problem}); write [zookeeper] "
            'hosts in rmt.toml as "host1:2181,host2:2181"'
        ) from problem
    try:
        client.start(timeout=connect_timeout_s)
        if chroot:
            client.ensure_path(chroot)
            client.chroot = chroot
    except (KazooTimeoutError, ConnectionLoss, SessionExpiredError) as problem:
        client.stop()
        client.close()
        raise ZooKeeperUnreachable(
            f"no ZooKeeper answered at {hosts} within {connect_timeout_s:g} s; start one with "
            "`rmt zookeeper`, or correct [zookeeper] hosts in rmt.toml"
        ) from problem
    except ZookeeperError as problem:
        client.stop()
        client.close()
        raise ZooKeeperUnreachable(
            f"ZooKeeper at {hosts} refused to create {chroot}: {type(problem).__name__}"
        ) from problem
    return KazooKeeper(
        client, handler, clock or SystemClock(), session_timeout_s=session_timeout_s
    )


class OneSessionHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A kazoo handler that connects only while `may_connect` says so, so that kazoo cannot
    start a second session in the place of one that ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_connect: Callable[[], bool] = lambda: True
        self._socket: socket.socket | None = None

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        if not self.may_connect():
            raise ConnectionDropped("the session is over")
        timeout_s = kwargs.get("timeout") or TCP_TIMEOUT_MAX_S
        kwargs["timeout"] = min(timeout_s, TCP_TIMEOUT_MAX_S)
        self._socket = super().create_connection(*args, **kwargs)
        return self._socket

    def cut(self) -> None:
        """Break the connection, whatever the server is doing."""
        connection = self._socket
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it is closed already

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        errors: Sequence[Any],
        timeout_s: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Like select.select. kazoo's own makes and closes an epoll object at each call, which
        costs more than everything else it does for a request.
        """
        del errors
        waiting = select.poll()
        for reader in readers:
            waiting.register(reader, select.POLLIN)
        for writer in writers:
            waiting.register(writer, select.POLLOUT)
        timeout_ms = None if timeout_s is None else ceil(timeout_s * 1000)
        happened = dict(waiting.poll(timeout_ms))
        return (
            [it for it in readers if happened.get(it.fileno(), 0) & (select.POLLIN | _ENDED)],
            [it for it in writers if happened.get(it.fileno(), 0) & (select.POLLOUT | _ENDED)],
            [],
        )
