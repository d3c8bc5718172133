"""Which requests a server answers. Without the right credentials every path is
answered with 401.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rmt_pipeline.config import Config, RenewedConfig

MONITORED = ("/health", "/ready", "/metrics")


@dataclass(frozen=True, slots=True)
class Guard:
    """Which requests are admitted. A request with one of `secrets` may ask for everything; there
    are two while the secret is being changed. One of `tokens` admits to the paths in MONITORED
    alone; with `open_monitoring` these paths need no credentials.
    """

    secrets: tuple[str, ...] = field(repr=False)
    """Empty while the server has still to read the secret in ZooKeeper: until then no peer may ask.
    """
    tokens: tuple[str, ...] = field(default=(), repr=False)
    open_monitoring: bool = False

    def __post_init__(self) -> None:
        assert all(self.secrets), "an empty secret would let everybody in"

    @classmethod
    def of(cls, config: Config, secrets: tuple[str, ...]) -> "Guard":
        tokens = config.monitoring.token
        return cls(secrets, tokens, open_monitoring=not tokens)

    def admits(self, path: str, shown: bytes) -> bool:
        """Whether the request is admitted. Takes as long for a wrong secret as for a right one."""
        monitored = path in MONITORED
        valid = (*self.secrets, *(self.tokens if monitored else ()))
        found = [hmac.compare_digest(shown, f"Bearer {one}".encode()) for one in valid]
        return any(found) or (monitored and self.open_monitoring)


class Admits(Protocol):
    """Decides about each request for `guarded`."""

    def admits(self, path: str, shown: bytes) -> bool: ...


class RenewedGuard:
    """The guard of server `name`, by what rmt.toml says now: secrets and tokens change without a
    restart. `shared` is the secret from ZooKeeper, or "" if it is not known, because ZooKeeper has
    not answered yet or the configuration had a secret at the start; a secret that is removed from
    the file stays valid until the server is started again.
    """

    def __init__(self, config: Config, name: str, shared: str = "") -> None:
        self._name = name
        self._shared = shared
        self._renewed = RenewedConfig(config, name)
        self._known = config, self._guard(config)

    def learn(self, shared: str) -> None:
        """Take note of the secret in ZooKeeper."""
        self._shared = shared
        self._known = self._known[0], self._guard(self._known[0])

    def admits(self, path: str, shown: bytes) -> bool:
        config = self._renewed.now()
        if config is not self._known[0]:
            self._known = config, self._guard(config)
        return self._known[1].admits(path, shown)

    def _guard(self, config: Config) -> Guard:
        shared = (self._shared,) if self._shared else ()
        return Guard.of(config, config.secrets_of(self._name) or shared)


def guarded(app: ASGIApp, guard: Admits, on_stranger: Callable[[], None]) -> ASGIApp:
    """`app` for requests that the guard admits; all others are answered with 401, and the
    connection is closed: strangers do not keep it as long as peers do.
    """

    async def ask(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not guard.admits(scope["path"], _shown(scope)):
            on_stranger()
            headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            refusal = Response(status_code=401, headers=headers)
            await refusal(scope, receive, send)
            return
        await app(scope, receive, send)

    return ask


def _shown(scope: Scope) -> bytes:
    found: dict[bytes, bytes] = dict(scope["headers"])
    return found.get(b"authorization", b"")
