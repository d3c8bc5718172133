"""Asks an ASGI application without a server between: an error of its own is raised here."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from starlette.types import ASGIApp


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


def ask(
    app: ASGIApp,
    method: str = "POST",
    path: str = "/",
    *,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """One request; the whole answer."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "server": ("peer", 80),
        "path": path,
        "raw_path": quote(path).encode(),
        "root_path": "",
        "query_string": urlencode(query or {}).encode(),
        "headers": [
            (name.lower().encode(), value.encode("latin-1", "replace"))
            for name, value in (headers or {}).items()
        ],
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    asyncio.run(app(scope, receive, send))
    [start, *rest] = sent
    whole = b"".join(message.get("body", b"") for message in rest)
    return Answer(start["status"], whole)
