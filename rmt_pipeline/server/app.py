"""The HTTP face of a server: parts for peers, health, metrics, and "look at your tables now"."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from rmt_pipeline.exchange.guard import Admits, guarded
from rmt_pipeline.protocol.errors import RmtError
from rmt_pipeline.server.status import Counters, ServerStatus, metrics_page


def server_app(
    *,
    exchange: ASGIApp,
    guard: Admits,
    status: Callable[[], ServerStatus],
    reload: Callable[[], dict[str, str]],
    counters: Counters,
) -> ASGIApp:
    """`reload` looks at the catalog and returns why each table is read-only, "" for active."""

    async def health(_: Request) -> Response:
        found = await run_in_threadpool(status)
        return JSONResponse(found.as_json(), status_code=200 if found.healthy else 503)

    async def metrics(_: Request) -> Response:
        page = await run_in_threadpool(metrics_page, status, counters)
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def reload_tables(_: Request) -> Response:
        try:
            tables = await run_in_threadpool(reload)
        except RmtError as error:
            return PlainTextResponse(str(error), 503)
        return JSONResponse({"tables": tables})

    def stranger() -> None:
        counters.sends_refused += 1

    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/metrics", metrics),
            Route("/reload", reload_tables, methods=["POST"]),
            Mount("/", exchange),
        ]
    )
    return guarded(app, guard, stranger)
