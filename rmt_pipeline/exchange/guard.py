"""Who may ask a server what. A stranger is not even told what there is to ask for."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rmt_pipeline.config import Config, RenewedConfig

MONITORED = ("/health", "/metrics")


@dataclass(frozen=True, slots=True)
class Guard:
    """Whoever shows one of `secrets` may ask for everything: two are valid while one takes the
    other's place. One of `tokens` is for MONITORED alone, which with `open_monitoring` is for
    everybody who reaches the port.
    """

    secrets: tuple[str, ...] = field(repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)
    open_monitoring: bool = False

    def __post_init__(self) -> None:
        assert all(self.secrets), "an empty secret would let everybody in"
        assert self.secrets, "without a secret no peer could ask"

    @classmethod
    def of(cls, config: Config, secrets: tuple[str, ...]) -> "Guard":
        tokens = config.monitoring.token
        return cls(secrets, tokens, open_monitoring=not tokens)

    def admits(self, path: str, shown: bytes) -> bool:
        """Takes as long for a wrong secret as for a right one."""
        monitored = path in MONITORED
        valid = (*self.secrets, *(self.tokens if monitored else ()))
        found = [hmac.compare_digest(shown, f"Bearer {one}".encode()) for one in valid]
        return any(found) or (monitored and self.open_monitoring)


class Admits(Protocol):
    """What `guarded` asks about each request."""

    def admits(self, path: str, shown: bytes) -> bool: ...


class RenewedGuard:
    """The guard of server `name`, as rmt.toml says it now: secrets and tokens are changed without a
    restart. `shared`: the secret that is in ZooKeeper, "" when one was configured at the start; one
    that is taken out of the file counts until the server is started again.
    """

    def __init__(self, config: Config, name: str, shared: str = "") -> None:
        self._name = name
        self._shared = shared
        self._renewed = RenewedConfig(config, name, self._objection)
        self._known = config, self._guard(config)

    def admits(self, path: str, shown: bytes) -> bool:
        config = self._renewed.now()
        if config is not self._known[0]:
            self._known = config, self._guard(config)
        return self._known[1].admits(path, shown)

    def _guard(self, config: Config) -> Guard:
        return Guard.of(config, config.secrets_of(self._name) or (self._shared,))

    def _objection(self, config: Config) -> str:
        config.require_guarded(self._name)
        if config.secrets_of(self._name) or self._shared:
            return ""
        return "the exchange secret is gone from it, and this server began with one"


def guarded(app: ASGIApp, guard: Admits, on_stranger: Callable[[], None]) -> ASGIApp:
    """`app` for whom the guard admits; anybody else gets 401, whatever he asks for."""

    async def ask(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not guard.admits(scope["path"], _shown(scope)):
            on_stranger()
            refusal = Response(status_code=401, headers={"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        await app(scope, receive, send)

    return ask


def _shown(scope: Scope) -> bytes:
    found: dict[bytes, bytes] = dict(scope["headers"])
    return found.get(b"authorization", b"")
